/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=clock_gettime */
/*
 * A clock that says anything at all: jumps to the end of time, beyond it, and back. Every call
 * returns, nothing is early, never stays never (G1, G2). A system clock that has got to its end is
 * refused.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <time.h>

#include "support.h"

#define END (UINT64_C(1) << 61) /* deadlines have 61 bits, and the last of them means never */

TestSuite(clock_far, .init = test_arm);

static const uint64_t ticks[] = {HWT_USEC(1), HWT_MSEC(1), HWT_SEC(86400)};
static const uint64_t far[] = {END - 3, END - 2, END - 1,        END,
                               END + 1, 2 * END, UINT64_MAX - 1, UINT64_MAX};

static void open_rig(rig *r, hwt_wheel_kind wheel, uint64_t tick_ns, uint64_t epoch)
{
    rig_prepare(r, wheel, epoch);
    r->config.tick_ns = tick_ns;
    r->config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(r), 0);
}

/* All that is ever due is due there, and what is never due is not. */
static void jump(hwt_wheel_kind wheel, uint64_t tick_ns, uint64_t to)
{
    probe soon = {0}, late = {0}, last = {0}, never = {0};
    hwt_timeout *moved;
    rig r;

    open_rig(&r, wheel, tick_ns, HWT_SEC(1));
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &soon, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &late, END - HWT_SEC(1), NULL), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &last, END - 3, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &never, UINT64_MAX, NULL), 0);
    cr_assert_eq(rig_advance_to(&r, to), 3);
    cr_assert(soon.runs == 1 && late.runs == 1 && last.runs == 1 && never.runs == 0);
    cr_assert_lt(hwt_timer_now(r.timer), END, "no moment is beyond the last deadline");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    /* and goes on there: what is due now runs, what is due in a while is never due */
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &soon, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &soon, HWT_SEC(9), &moved), 0);
    cr_assert(hwt_timeout_reschedule(moved, 0));
    hwt_timeout_unref(moved);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &never, HWT_SEC(1), NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 2);
    cr_assert(soon.runs == 3 && never.runs == 0, "G1");
    cr_assert_geq(rig_advance_to(&r, HWT_SEC(2)), 0); /* back */
    cr_assert_geq(rig_advance_to(&r, to), 0);
    cr_assert_eq(never.runs, 0, "G1");
    rig_close(&r);
}

WHEEL_TEST(clock_far, a_jump_to_the_end)
{
    for (size_t t = 0; t < COUNT_OF(ticks); t++) {
        for (size_t i = 0; i < COUNT_OF(far); i++)
            jump(wheel, ticks[t], far[i]);
    }
}

WHEEL_TEST(clock_far, a_life_at_the_end)
{
    for (size_t t = 0; t < COUNT_OF(ticks); t++) {
        for (size_t i = 0; i < COUNT_OF(far); i++) {
            probe p = {0};
            rig r;

            open_rig(&r, wheel, ticks[t], far[i]);
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(1), NULL), 0);
            cr_assert_eq(hwt_timer_advance(r.timer), 0, "G1");
            cr_assert_eq(hwt_timer_pending(r.timer), 1);
            rig_close(&r);
        }
    }
}

/* Anything, at random: nothing that is pending has run, what has run had its time. */
WHEEL_TEST(clock_far, any_reading)
{
    uint64_t seed = test_seed("clock");
    probe p = {0};
    rig r;

    open_rig(&r, wheel, HWT_MSEC(1), 0);
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t reading = test_random(&seed) >> test_random_below(&seed, 64);
        hwt_timeout *timeout;

        virtual_set(&r.clock, reading);
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p,
                                     test_random(&seed) >> test_random_below(&seed, 64), &timeout),
                     0);
        if (test_random_below(&seed, 4) == 0)
            hwt_timeout_reschedule(timeout, test_random(&seed) >> test_random_below(&seed, 64));
        cr_assert_geq(hwt_timer_advance(r.timer), 0);
        cr_assert_lt(hwt_timer_now(r.timer), END);
        hwt_timeout_unref(timeout);
    }
    rig_close(&r);
}

/* ---- the system's clock ---- */

static _Atomic int64_t offset; /* of a time namespace, in seconds */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    int result = __real_clock_gettime(id, ts);

    ts->tv_sec += atomic_load(&offset);
    return result;
}

static void turn_back(hwt_timeout *timeout, void *clock)
{
    (void)timeout;
    *(uint64_t *)clock -= HWT_MSEC(500);
}

/* A task during which the clock goes back has not been slow for the rest of time. */
WHEEL_TEST(clock_far, a_clock_that_goes_back_makes_no_task_slow)
{
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(1));
    r.config.slow_task_ns = HWT_MSEC(1);
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, turn_back, &r.clock, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(stats_of(r.timer).slow_tasks, 0);
    rig_close(&r);
}

Test(clock_far, a_system_clock_beyond_the_end_is_refused)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    static const hwt_drive drives[] = {HWT_DRIVE_WORKER, HWT_DRIVE_CALLER};

    for (size_t i = 0; i < 4; i++) {
        hwt_timer *timer = NULL;
        hwt_config config;

        hwt_config_init(&config);
        config.clock_id = clocks[i % 2];
        config.drive = drives[i / 2];
        atomic_store(&offset, INT64_C(100) * 365 * 86400);
        cr_assert_eq(hwt_timer_create(&timer, &config), -EINVAL);
        cr_assert_null(timer);
        atomic_store(&offset, INT64_C(70) * 365 * 86400);
        cr_assert_eq(hwt_timer_create(&timer, &config), 0);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

static void *drain_for_ever(void *timer)
{
    static int result;

    result = hwt_timer_drain(timer, UINT64_MAX, NULL);
    return &result;
}

/* It waits for its time, and the clock stops before that. */
WHEEL_TEST(clock_far, a_drain_ends_with_the_clock)
{
    hwt_timer *timer;
    pthread_t thread;
    void *result;

    atomic_store(&offset, INT64_C(73) * 365 * 86400);
    timer = timer_of_kind(wheel);
    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, UINT64_MAX, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, drain_for_ever, timer), 0);
    while (!hwt_timer_is_stopped(timer))
        sleep_ms(1);
    atomic_store(&offset, INT64_C(74) * 365 * 86400);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_eq(*(int *)result, 0);
    cr_assert_eq(stats_of(timer).unprocessed, 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
