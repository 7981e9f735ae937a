/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker on CLOCK_BOOTTIME: it sleeps on a timer descriptor, quietly (G5), in the first tick
 * since boot too; and when a sandbox forbids to set that descriptor it still meets its deadlines
 * (G4).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support.h"

TestSuite(boottime, .init = test_arm);

static int boottime_timer(hwt_timer **timer, uint64_t tick_ns)
{
    hwt_config config;

    hwt_config_init(&config);
    config.clock_id = CLOCK_BOOTTIME;
    config.tick_ns = tick_ns;
    config.ticks_per_wheel = 64;
    return hwt_timer_create(timer, &config);
}

/* A tick of 300 days: now is in the first since boot, and so is the deadline. */
Test(boottime, quiet_in_the_first_tick)
{
    hwt_timer *timer = NULL;
    uint64_t before;

    cr_assert_eq(boottime_timer(&timer, HWT_SEC(300 * 86400)), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    sleep_ms(100);
    before = stats_of(timer).wakeups;
    sleep_ms(300);
    cr_assert_leq(stats_of(timer).wakeups, before, "G5: %lu wake-ups in 300 ms",
                  (unsigned long)(stats_of(timer).wakeups - before));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- what cannot be had is said at once ---- */

Test(boottime, no_descriptor_is_left)
{
    struct rlimit before, none;
    hwt_timer *timer = NULL;
    int result;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    result = boottime_timer(&timer, 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(result, -EMFILE);
    cr_assert_null(timer);
}

/* From now on this system call fails on this thread and those that it creates. */
static int deny(long call, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = COUNT_OF(filter), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

#define DENY(call, error)                                                                          \
    do {                                                                                           \
        if (deny(call, error) != 0)                                                                \
            cr_skip_test("no seccomp here");                                                       \
    } while (0)

Test(boottime, creation_is_denied)
{
    hwt_timer *timer = NULL;

    DENY(SYS_timerfd_create, EPERM);
    cr_assert_eq(boottime_timer(&timer, 0), -EPERM);
    cr_assert_null(timer);
}

Test(boottime, setting_is_denied)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    DENY(SYS_timerfd_settime, EACCES);
    cr_assert_eq(boottime_timer(&timer, 0), -EACCES);
    cr_assert_null(timer);
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_timer_fd(timer), -EACCES);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- and what is forbidden later is done without ---- */

static void expect_deadlines_met(hwt_timer *timer)
{
    probe p[3] = {{0}, {0}, {0}};
    hwt_timeout *timeout;
    uint64_t wakeups;

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p[0], HWT_SEC(3600), &timeout), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p[1], HWT_MSEC(20), NULL), 0);
    cr_assert(wait_count(&p[1].runs, 1), "G4: a deadline after the sandbox was entered");
    cr_assert(hwt_timeout_reschedule(timeout, HWT_MSEC(20)));
    cr_assert(wait_count(&p[0].runs, 1), "G4: moved earlier");
    cr_assert_eq(p[0].early + p[1].early, 0, "G1");
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    sleep_ms(50);
    wakeups = stats_of(timer).wakeups;
    sleep_ms(200);
    cr_assert_leq(stats_of(timer).wakeups, wakeups + 1, "G5");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(boottime, setting_is_denied_later)
{
    hwt_timer *timer = NULL;
    probe p = {0};

    cr_assert_eq(boottime_timer(&timer, 0), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(1), NULL), 0);
    cr_assert(wait_count(&p.runs, 1));
    sleep_ms(20); /* the worker sleeps with nothing pending */
    DENY(SYS_timerfd_settime, EPERM);
    expect_deadlines_met(timer);
}

Test(boottime, setting_is_denied_before_the_start)
{
    hwt_timer *timer = NULL;

    cr_assert_eq(boottime_timer(&timer, 0), 0);
    DENY(SYS_timerfd_settime, EPERM);
    expect_deadlines_met(timer);
}

/* From now on this thread ends at the next cancellation point. */
static bool cancel_self(void)
{
    return pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0 &&
           pthread_cancel(pthread_self()) == 0 &&
           pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0;
}

static void *submit_cancelled(void *timer)
{
    return cancel_self() && hwt_new_timeout(timer, noop_task, NULL, 0, NULL) == 0 ? timer : NULL;
}

/* The bell that then rings is no cancellation point. */
Test(boottime, setting_is_denied_and_a_thread_cancelled)
{
    hwt_timer *timer = NULL;
    pthread_t thread;
    void *result;

    cr_assert_eq(boottime_timer(&timer, 0), 0);
    cr_assert_eq(hwt_timer_start(timer), 0);
    sleep_ms(20);
    DENY(SYS_timerfd_settime, EPERM);
    cr_assert_eq(pthread_create(&thread, NULL, submit_cancelled, timer), 0);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_eq(result, timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void *ask_for_fd_cancelled(void *timer)
{
    return cancel_self() && hwt_timer_fd(timer) == -EACCES ? timer : NULL;
}

/* The descriptor that cannot be set is closed, under the lock that start and stop take. */
Test(boottime, setting_is_denied_and_who_asks_is_cancelled)
{
    hwt_timer *timer = NULL;
    hwt_config config;
    pthread_t thread;
    void *result;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    DENY(SYS_timerfd_settime, EACCES);
    cr_assert_eq(pthread_create(&thread, NULL, ask_for_fd_cancelled, timer), 0);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_expect_eq(result, timer, "it ended in the call");
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(hwt_timer_fd(timer), -EACCES);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* A loop's descriptor falls silent, but nothing hangs, and it can still ask for the deadline. */
Test(boottime, a_loop_is_denied_later)
{
    hwt_timer *timer = NULL;
    hwt_config config;
    probe p = {0};

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_geq(hwt_timer_fd(timer), 0);
    DENY(SYS_timerfd_settime, EPERM);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(1), NULL), 0);
    cr_assert_neq(hwt_timer_next_deadline(timer), UINT64_MAX);
    sleep_ms(5);
    cr_assert_eq(hwt_timer_advance(timer), 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
