#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The static library inside a plugin that is loaded, used and unloaded again and again (G13): the
# threads that used it end well when it is gone, a fork finds no handler of it, and what a load
# leaves behind is bounded. And a process that exits while other threads are at work with it.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}" "${BUILD:=build}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/plugin.c" <<'END_C'
#include <hwt.h>
#include <stdatomic.h>

static hwt_timer *timer;
static atomic_uint ran;

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

int plugin_open(void);
int plugin_use(void);
int plugin_close(void);

int plugin_open(void)
{
    return hwt_timer_create(&timer, NULL);
}

int plugin_use(void)
{
    hwt_timeout *timeouts[50];
    unsigned before = atomic_load(&ran);

    if (hwt_new_timeout(timer, task, NULL, 0, NULL) != 0)
        return 1;
    for (int i = 0; i < 50; i++)
        if (hwt_new_timeout(timer, task, NULL, HWT_SEC(60), &timeouts[i]) != 0)
            return 1;
    for (int i = 0; i < 50; i++) {
        if (!hwt_timeout_cancel(timeouts[i]))
            return 1;
        hwt_timeout_unref(timeouts[i]);
    }
    while (atomic_load(&ran) == before)
        continue;
    return 0;
}

int plugin_close(void)
{
    return hwt_timer_destroy(timer);
}
END_C

cat >"$dir/host.c" <<'END_C'
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *plugin;
static sem_t go, done;

static void must(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, plugin ? "failed" : dlerror());
    _exit(1);
}

static int call(const char *name)
{
    int (*function)(void);
    *(void **)&function = dlsym(plugin, name);
    must(function != NULL, name);
    return function();
}

static void load(const char *path)
{
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    must(plugin != NULL, "dlopen");
    must(call("plugin_open") == 0, "plugin_open");
}

static void unload(void)
{
    must(call("plugin_close") == 0, "plugin_close");
    must(dlclose(plugin) == 0, "dlclose");
}

static void *use_each(void *times)
{
    for (int i = 0; i < *(int *)times; i++) {
        sem_wait(&go);
        must(call("plugin_use") == 0, "plugin_use, another thread");
        sem_post(&done);
    }
    return NULL;
}

static void *use_for_ever(void *unused)
{
    while (call("plugin_use") == 0)
        continue;
    return unused;
}

static long kilobytes(const char *what)
{
    char line[200];
    long amount = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, what, strlen(what)) == 0)
            amount = atol(line + strlen(what));
    if (file)
        fclose(file);
    return amount;
}

static void play(const char *path, int times)
{
    pthread_t outlives;
    pthread_key_t key;
    long before = 0;
    pid_t child;
    int status;

    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    pthread_create(&outlives, NULL, use_each, &times);
    for (int i = 0; i < times; i++) {
        load(path);
        must(call("plugin_use") == 0, "plugin_use");
        sem_post(&go);
        sem_wait(&done);
        unload();
        if (i + 1 >= times / 10 && before == 0)
            before = kilobytes("VmRSS:");
    }
    printf("%d loads, each left %ld bytes; ", times,
           (kilobytes("VmRSS:") - before) * 1024 / (times - times / 10));
    must(pthread_join(outlives, NULL) == 0, "join");
    must(pthread_key_create(&key, NULL) == 0, "a key is left");
    child = fork();
    if (child == 0)
        _exit(0);
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork");
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        play(argv[1], atoi(argv[2]));
    } else { /* exit, with others at work */
        pthread_t thread;
        load(argv[1]);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, NULL, use_for_ever, NULL);
        usleep(3000);
    }
    return 0;
}
END_C

$CC -O2 -g -fPIC -shared -Iinclude -o "$dir/plugin.so" "$dir/plugin.c" "$BUILD/libhwt.a" -pthread
$CC -O2 -g -o "$dir/host" "$dir/host.c" -pthread -ldl
"$dir/host" "$dir/plugin.so" 2 >/dev/null
"$dir/host" "$dir/plugin.so" 2000
for i in $(seq 100); do
    "$dir/host" "$dir/plugin.so" || { echo "exit $i: status $?"; exit 1; }
done
echo "100 exits"
