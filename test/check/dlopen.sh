#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A program that knows nothing of the library loads libhwt.so late, as a language's runtime does,
# with threads that are older than that; a timeout runs. With glibc, and with musl if musl-gcc is
# installed, whose loader has no room for static thread storage of libraries that come late.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}" "${BUILD:=build}" "${MAKE:=make}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/late.c" <<'END_C'
#include <dlfcn.h>
#include <hwt.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static sem_t loaded;
static atomic_uint ran;
static hwt_timer *timer;
static __typeof__(&hwt_new_timeout) new_timeout;

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

static void *older_thread(void *failed)
{
    sem_wait(&loaded);
    *(int *)failed = new_timeout(timer, task, NULL, HWT_MSEC(1), NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    __typeof__(&hwt_timer_create) create;
    __typeof__(&hwt_timer_destroy) destroy;
    pthread_t thread;
    int failed = 0;
    void *library;

    (void)argc;
    sem_init(&loaded, 0, 0);
    pthread_create(&thread, NULL, older_thread, &failed);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        return 1;
    }
    *(void **)&create = dlsym(library, "hwt_timer_create");
    *(void **)&destroy = dlsym(library, "hwt_timer_destroy");
    *(void **)&new_timeout = dlsym(library, "hwt_new_timeout");
    if (create(&timer, NULL) != 0 || new_timeout(timer, task, NULL, HWT_MSEC(1), NULL) != 0)
        return 2;
    sem_post(&loaded);
    pthread_join(thread, NULL);
    if (failed)
        return 3;
    for (int i = 0; i < 10000 && atomic_load(&ran) < 2; i++)
        usleep(1000);
    return atomic_load(&ran) == 2 && destroy(timer) == 0 && dlclose(library) == 0 ? 0 : 4;
}
END_C

loads() # libc compiler library
{
    local status=0
    $2 -O2 -Iinclude -o "$dir/late" "$dir/late.c" -pthread -ldl
    if ldd "$dir/late" 2>/dev/null | grep -q libhwt; then
        echo "$1: it was linked with the library"
        exit 1
    fi
    "$dir/late" "$(realpath "$3")" || status=$?
    [ $status = 0 ] || { echo "$1: exit status $status"; exit 1; }
}

loads "$CC" "$CC" "$BUILD/libhwt.so"
if ! command -v musl-gcc >/dev/null; then
    echo "left out: musl: apt-get install musl-tools"
    echo "loaded late by $CC's libc"
    exit 0
fi
$MAKE --no-print-directory -s BUILD="$BUILD/musl" CC=musl-gcc all
loads musl musl-gcc "$BUILD/musl/libhwt.so"
echo "loaded late by $CC's libc and by musl"
