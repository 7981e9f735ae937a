/* SPDX-License-Identifier: BSD-2-Clause */
/* worker_start and worker_exit, since 1.1: on the worker's thread, before its first pass, after its
 * last (C13, G8, G12). */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(worker_callbacks, .init = test_arm);

static struct {
    hwt_timer *timer;
    atomic_uint started, exited, ran;
    unsigned ran_at_start, ran_at_exit;
    pthread_t start_thread, exit_thread;
    int stop_in_start, submit_in_exit, stop_in_exit;
    void (*also)(void), (*also_at_exit)(void);
} seen;

static void on_start(void *arg)
{
    cr_assert_eq(arg, &seen);
    seen.start_thread = pthread_self();
    seen.ran_at_start = seen.ran;
    if (seen.timer)
        seen.stop_in_start = hwt_timer_stop(seen.timer, NULL);
    if (seen.also)
        seen.also();
    atomic_fetch_add(&seen.started, 1);
}

static void on_exit_of_worker(void *arg)
{
    cr_assert_eq(arg, &seen);
    seen.exit_thread = pthread_self();
    seen.ran_at_exit = seen.ran;
    if (seen.timer) {
        seen.submit_in_exit = hwt_new_timeout(seen.timer, noop_task, NULL, 0, NULL);
        seen.stop_in_exit = hwt_timer_stop(seen.timer, NULL);
    }
    if (seen.also_at_exit)
        seen.also_at_exit();
    atomic_fetch_add(&seen.exited, 1);
}

static hwt_timer *open_timer(hwt_drive drive)
{
    hwt_config config;

    hwt_config_init(&config);
    config.drive = drive;
    config.worker_start = on_start;
    config.worker_exit = on_exit_of_worker;
    config.worker_arg = &seen;
    cr_assert_eq(hwt_timer_create(&seen.timer, &config), 0);
    return seen.timer;
}

static void count_run(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    cr_assert(pthread_equal(*(pthread_t *)arg, pthread_self()));
    atomic_fetch_add(&seen.ran, 1);
}

Test(worker_callbacks, around_all_passes)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER);

    cr_assert_eq(seen.started, 0, "not before it is started");
    for (int i = 0; i < 10; i++)
        cr_assert_eq(hwt_new_timeout(timer, count_run, &seen.start_thread, 0, NULL), 0);
    cr_assert(wait_count(&seen.ran, 10));
    cr_assert_eq(seen.started, 1);
    cr_assert_eq(seen.ran_at_start, 0);
    cr_assert_eq(seen.exited, 0);
    cr_assert_not(pthread_equal(seen.start_thread, pthread_self()));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(seen.exited, 1, "stop has returned");
    cr_assert_eq(seen.ran_at_exit, 10);
    cr_assert(pthread_equal(seen.start_thread, seen.exit_thread));
    cr_assert_eq(seen.stop_in_start, -EDEADLK);
    cr_assert_eq(seen.stop_in_exit, -EDEADLK);
    cr_assert_eq(seen.submit_in_exit, -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(seen.exited, 1);
}

Test(worker_callbacks, not_without_a_worker)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER);

    cr_assert_eq(hwt_timer_destroy(timer), 0); /* it was never started */
    timer = open_timer(HWT_DRIVE_CALLER);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(timer), 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(seen.started + seen.exited, 0);
}

static atomic_bool go_on;

static void wait_long(void)
{
    while (!go_on)
        sleep_ms(1);
}

Test(worker_callbacks, submissions_do_not_wait)
{
    hwt_timer *timer;

    seen.also = wait_long;
    timer = open_timer(HWT_DRIVE_WORKER);
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_run, &seen.start_thread, 0, NULL), 0);
    cr_assert_eq(seen.started, 0);
    go_on = true;
    cr_assert(wait_count(&seen.ran, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void end_thread(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    pthread_exit(NULL);
}

Test(worker_callbacks, after_a_task_has_ended_the_thread)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER);

    cr_assert_eq(hwt_new_timeout(timer, end_thread, NULL, 0, NULL), 0);
    cr_assert(wait_count(&seen.exited, 1));
    cr_assert(pthread_equal(seen.start_thread, seen.exit_thread));
    cr_assert_eq(seen.submit_in_exit, -EOWNERDEAD);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(seen.exited, 1);
}

static void exit_at_start(void)
{
    pthread_exit(NULL);
}

/* What was not begun is not ended. */
Test(worker_callbacks, a_start_that_ends_the_thread)
{
    hwt_timer *timer;
    int result = 0;

    seen.also = exit_at_start;
    timer = open_timer(HWT_DRIVE_WORKER);
    cr_assert_eq(hwt_timer_start(timer), 0);
    while (result == 0) {
        result = hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL);
        sleep_ms(1);
    }
    cr_assert_eq(result, -EOWNERDEAD);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(seen.exited, 0);
}

static pid_t child;

static void fork_at_start(void)
{
    child = fork();
    if (child == 0)
        _exit(hwt_new_timeout(seen.timer, noop_task, NULL, 0, NULL) == -ECHILD ? 0 : 1);
}

Test(worker_callbacks, a_start_that_forks)
{
    hwt_timer *timer;
    int status;

    seen.also = fork_at_start;
    timer = open_timer(HWT_DRIVE_WORKER);
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert(wait_count(&seen.started, 1));
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(seen.exited, 1);
}

static int descriptors(void)
{
    int open = 0;

    for (int fd = 0; fd < 1024; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static int descriptors_before;

/* By when the callback has returned, and the thread that it was called on is about to end. */
static void look_for_leaks(void *arg)
{
    (void)arg;
    _exit(descriptors() == descriptors_before ? 0 : 1);
}

static void fork_at_exit(void)
{
    static pthread_key_t last;

    child = fork();
    if (child == 0) {
        alarm(15);
        cr_assert_eq(pthread_key_create(&last, look_for_leaks), 0);
        cr_assert_eq(pthread_setspecific(last, &last), 0);
        cr_assert_eq(hwt_timer_destroy(seen.timer), 0);
    }
}

/* G12: the child's destroy frees what it can, when the callback that called it has returned. */
Test(worker_callbacks, an_exit_that_forks)
{
    hwt_config config;
    hwt_timer *timer;
    int status;

    seen.also_at_exit = fork_at_exit;
    hwt_config_init(&config);
    config.clock_id = CLOCK_BOOTTIME; /* it has descriptors */
    config.worker_start = on_start;
    config.worker_exit = on_exit_of_worker;
    config.worker_arg = &seen;
    descriptors_before = descriptors();
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert(wait_count(&seen.started, 1));
    seen.timer = timer;
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it has not freed all");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
