/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=free,--wrap=munmap,--wrap=close */
/*
 * G12: a fork while another thread destroys a timer, after each thing that it gives back. In the
 * child the timer can be destroyed, and nothing is given back twice.
 */
#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define MOST 64

static _Thread_local int left; /* until this thread waits; 0: it does not */
static sem_t given, forked;

static void gave(void)
{
    if (left > 0 && --left == 0) {
        sem_post(&given);
        while (sem_wait(&forked) != 0)
            continue;
    }
}

void __real_free(void *memory);
void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    __real_free(memory);
    if (memory)
        gave();
}

int __real_munmap(void *memory, size_t size);
int __wrap_munmap(void *memory, size_t size);
int __wrap_munmap(void *memory, size_t size)
{
    int result = __real_munmap(memory, size);
    gave();
    return result;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);
    gave();
    return result;
}

TestSuite(fork_destroy, .init = test_arm);

typedef struct doomed {
    hwt_timer *timer;
    int after;
    bool waited;
} doomed;

static void *destroy_it(void *arg)
{
    doomed *d = arg;

    left = d->after;
    cr_assert_eq(hwt_timer_destroy(d->timer), 0);
    d->waited = left == 0;
    if (!d->waited)
        sem_post(&given);
    left = 0;
    return NULL;
}

static bool fork_after(hwt_config *config, int after)
{
    doomed d = {.after = after};
    pthread_t thread;
    int status;
    pid_t child;

    cr_assert_eq(hwt_timer_create(&d.timer, config), 0);
    cr_assert_eq(hwt_new_timeout(d.timer, noop_task, NULL, HWT_SEC(9), NULL), 0);
    if (config->drive == HWT_DRIVE_CALLER)
        cr_assert_geq(hwt_timer_fd(d.timer), 0);
    cr_assert_eq(pthread_create(&thread, NULL, destroy_it, &d), 0);
    while (sem_wait(&given) != 0)
        continue;
    child = fork();
    if (child == 0) {
        alarm(10);
        _exit(hwt_timer_destroy(d.timer) != 0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    sem_post(&forked);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x after %d", status, after);
    while (sem_trywait(&forked) == 0)
        continue;
    return d.waited;
}

WHEEL_TEST(fork_destroy, at_every_step)
{
    for (int drive = HWT_DRIVE_WORKER; drive <= HWT_DRIVE_CALLER; drive++) {
        hwt_config config;
        int after = 1;

        sem_init(&given, 0, 0);
        sem_init(&forked, 0, 0);
        hwt_config_init(&config);
        config.wheel = wheel;
        config.drive = (hwt_drive)drive;
        while (after < MOST && fork_after(&config, after))
            after++;
        cr_assert_gt(after, 4);
        cr_assert_lt(after, MOST);
    }
}
