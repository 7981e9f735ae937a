/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the test suites of native timers ask of theirs, asked of this one.
 * Written anew for this API; each test names the one it follows:
 *   go:     Go, src/time/sleep_test.go and tick_test.go
 *   kernel: Linux, the documented semantics of mod_timer, timer_delete,
 *           timer_delete_sync and the selftests of timers
 *   uv:     libuv, test/test-timer.c and test-timer-again.c
 * tokio has a file of its own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

#define EPOCH HWT_SEC(5000)

TestSuite(go, .init = test_arm);
TestSuite(kernel, .init = test_arm);
TestSuite(uv, .init = test_arm);

static hwt_timeout *at(rig *r, probe *p, uint64_t ms)
{
    hwt_timeout *timeout = NULL;

    cr_assert_eq(hwt_new_timeout_at(r->timer, probe_task, p, EPOCH + HWT_MSEC(ms), &timeout), 0);
    return timeout;
}

static int sleep_until_ms(rig *r, uint64_t ms)
{
    return rig_advance_to(r, EPOCH + HWT_MSEC(ms));
}

/* ---- Go ---- */

typedef struct chain {
    atomic_uint runs;
    unsigned left;
} chain;

static void chain_task(hwt_timeout *timeout, void *arg)
{
    chain *c = arg;

    atomic_fetch_add(&c->runs, 1);
    if (c->left > 0 && c->left--)
        hwt_new_timeout(hwt_timeout_timer(timeout), chain_task, c, 0, NULL);
}

/* TestAfterFunc: a function that starts itself again with no delay, ten times */
WHEEL_TEST(go, after_func)
{
    hwt_timer *timer = timer_of_kind(wheel);
    chain c = {.left = 10};

    cr_assert_eq(hwt_new_timeout(timer, chain_task, &c, 0, NULL), 0);
    cr_assert(wait_count(&c.runs, 11));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(c.runs, 11);
}

/* TestAfterStress: a ticker with a period of one nanosecond */
WHEEL_TEST(go, after_stress)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *timeout;
    hwt_spec spec;
    probe p = {0};

    probe_spec(&spec, &p, 1);
    spec.period_ns = 1;
    spec.period_mode = HWT_FIXED_RATE_SKIP;
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    cr_assert(wait_count(&p.runs, 100));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
    cr_assert_eq(p.overlapped, 0, "G14");
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* TestAfterStop: two are stopped before a third, later one; neither ever comes */
WHEEL_TEST(go, after_stop)
{
    hwt_timeout *t0, *t1, *other;
    probe p0 = {0}, p1 = {0}, q = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    other = at(&r, &q, 100);
    t0 = at(&r, &p0, 50);
    t1 = at(&r, &p1, 150);
    cr_assert(hwt_timeout_cancel(t0));
    cr_assert(hwt_timeout_cancel(t1));
    cr_assert_eq(sleep_until_ms(&r, 200), 1);
    cr_assert_eq(p0.runs + p1.runs, 0);
    cr_assert_not(hwt_timeout_cancel(t1), "Stop returned true twice");
    cr_assert_not(hwt_timeout_cancel(other), "it has run");
    hwt_timeout_unref(t0);
    hwt_timeout_unref(t1);
    hwt_timeout_unref(other);
    rig_close(&r);
}

/* TestAfterQueuing: the order of expiry is that of the delays, here in real time */
WHEEL_TEST(go, after_queuing)
{
    static const unsigned slots[] = {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0};
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t base = hwt_timer_now(timer) + HWT_MSEC(10);
    probe p[COUNT_OF(slots)] = {0};

    for (size_t i = 0; i < COUNT_OF(slots); i++)
        cr_assert_eq(
            hwt_new_timeout_at(timer, probe_task, &p[i], base + slots[i] * HWT_MSEC(10), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(slots); i++)
        cr_assert(wait_count(&p[i].runs, 1));
    for (size_t i = 0; i < COUNT_OF(slots); i++)
        for (size_t k = 0; k < COUNT_OF(slots); k++)
            if (slots[i] < slots[k])
                cr_assert_lt(p[i].order, p[k].order);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

typedef struct stop_stress {
    hwt_timer *timer;
    atomic_uint runs;
    atomic_uint stopped;
} stop_stress;

static void *stop_stress_thread(void *arg)
{
    stop_stress *s = arg;
    hwt_timeout *timeout = NULL;

    for (unsigned i = 0; i < 25; i++) {
        if (hwt_new_timeout(s->timer, count_task, &s->runs, HWT_SEC(60), &timeout) != 0)
            return NULL;
        sleep_ms(2);
        atomic_fetch_add(&s->stopped, hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
    }
    return NULL;
}

/* TestTimerStopStress: many threads start one, wait a while and stop it */
WHEEL_TEST(go, timer_stop_stress)
{
    stop_stress s = {.timer = timer_of_kind(wheel)};
    pthread_t threads[8];

    for (size_t i = 0; i < COUNT_OF(threads); i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, stop_stress_thread, &s), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    cr_assert_eq(s.stopped, 200);
    cr_assert_eq(s.runs, 0);
    cr_assert_eq(hwt_timer_destroy(s.timer), 0);
}

/* testReset: moved before it fires, true and not early; moved after it fired, false */
WHEEL_TEST(go, reset)
{
    hwt_timeout *t;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    t = at(&r, &p, 50);
    cr_assert_eq(sleep_until_ms(&r, 25), 0);
    cr_assert(hwt_timeout_reschedule(t, HWT_MSEC(75)));
    cr_assert_eq(sleep_until_ms(&r, 75), 0, "timer fired early");
    cr_assert_eq(sleep_until_ms(&r, 125), 1, "reset timer did not fire");
    cr_assert_not(hwt_timeout_reschedule(t, HWT_MSEC(50)));
    hwt_timeout_unref(t);
    rig_close(&r);
}

/* TestOverflowSleep, TestOverflowRuntimeTimer: the largest delay is not a short one */
WHEEL_TEST(go, overflow)
{
    static const uint64_t big[] = {INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX};
    hwt_timer *timer = timer_of_kind(wheel);
    probe p = {0}, q = {0};

    for (size_t i = 0; i < COUNT_OF(big); i++) {
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, big[i], NULL), 0);
        cr_assert_eq(hwt_new_timeout_at(timer, probe_task, &p, big[i], NULL), 0);
    }
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &q, HWT_MSEC(25), NULL), 0);
    cr_assert(wait_count(&q.runs, 1));
    cr_assert_eq(p.runs, 0, "big timeout fired");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* TestZeroTimer: zero delays one after another are not missed while the worker goes to sleep */
WHEEL_TEST(go, zero_timer)
{
    hwt_timer *timer = timer_of_kind(wheel);
    probe p = {0};

    for (unsigned i = 1; i <= 2000; i++) {
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0);
        cr_assert(wait_count(&p.runs, i), "missed number %u", i);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- Linux ---- */

/* mod_timer to the same or another expiry, timer_pending, timer_delete's two answers */
WHEEL_TEST(kernel, mod_and_delete)
{
    hwt_timeout *t;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    t = at(&r, &p, 100);
    cr_assert_eq(hwt_timeout_state(t), HWT_PENDING, "timer_pending");
    for (unsigned i = 0; i < 3; i++) /* the optimised-away case of mod_timer */
        cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(100)));
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert(hwt_timeout_cancel(t), "timer_delete of a pending one: 1");
    cr_assert_not(hwt_timeout_cancel(t), "of an inactive one: 0");
    cr_assert_not(hwt_timeout_reschedule(t, 0), "timer_shutdown: never armed again");
    cr_assert_eq(sleep_until_ms(&r, 200), 0);
    hwt_timeout_unref(t);
    rig_close(&r);
}

static void mod_itself(hwt_timeout *timeout, void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
    hwt_timeout_reschedule(timeout, HWT_USEC(200));
}

/* timer_delete_sync against a handler that always re-arms itself */
WHEEL_TEST(kernel, delete_sync_of_a_self_rearming_timer)
{
    hwt_timer *timer = timer_of_kind(wheel);

    for (unsigned round = 0; round < 100; round++) {
        hwt_timeout *t;
        atomic_uint runs = 0;
        unsigned after;
        int result;

        cr_assert_eq(hwt_new_timeout(timer, mod_itself, &runs, 0, &t), 0);
        cr_assert(wait_count(&runs, 1 + round % 3));
        result = hwt_timeout_cancel_sync(t);
        after = runs;
        cr_assert(result == 0 || result == 1);
        cr_assert_not(hwt_timeout_reschedule(t, 0));
        if (round % 20 == 0)
            sleep_ms(5);
        cr_assert_eq(runs, after, "ran after delete_sync");
        hwt_timeout_unref(t);
    }
    cr_assert(wait_pending(timer, 0));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* timer_delete from another timer's handler of the same expiry */
typedef struct victim {
    hwt_timeout *t;
    bool deleted;
} victim;

static void delete_victim(hwt_timeout *timeout, void *arg)
{
    victim *v = arg;

    (void)timeout;
    v->deleted = hwt_timeout_cancel(v->t);
}

WHEEL_TEST(kernel, delete_in_a_handler_of_the_tick_before)
{
    victim v = {0};
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    v.t = at(&r, &p, 7);
    cr_assert_eq(hwt_new_timeout(r.timer, delete_victim, &v, HWT_MSEC(5), NULL), 0);
    cr_assert_eq(sleep_until_ms(&r, 100), 1, "both were due at once");
    cr_assert(v.deleted);
    cr_assert_eq(p.runs, 0);
    hwt_timeout_unref(v.t);
    rig_close(&r);
}

/* An expiry in the past fires at the next tick; one at every level boundary fires on time. */
WHEEL_TEST(kernel, level_boundaries)
{
    for (unsigned bit = 0; bit < 38; bit++)
        for (int offset = -1; offset <= 1; offset++) {
            uint64_t ticks = (UINT64_C(1) << bit) + (uint64_t)(int64_t)offset;
            probe p = {0};
            rig r;

            rig_prepare(&r, wheel, EPOCH);
            r.config.ticks_per_wheel = 64;
            cr_assert_eq(rig_open(&r), 0);
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, ticks * HWT_MSEC(1), NULL), 0);
            if (ticks > 0)
                cr_assert_eq(rig_advance_by(&r, ticks * HWT_MSEC(1) - 1), 0, "G1: 2^%u%+d", bit,
                             offset);
            cr_assert_eq(rig_advance_by(&r, ticks > 0), 1, "2^%u%+d", bit, offset);
            rig_close(&r);
        }
}

/* ---- libuv ---- */

/* timer: ten that fire once, one that repeats and stops itself, one that is stopped */
WHEEL_TEST(uv, once_repeat_never)
{
    probe once = {0}, never = {0}, repeat = {0};
    hwt_timeout *t, *repeating;
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (unsigned i = 0; i < 10; i++)
        hwt_timeout_unref(at(&r, &once, i * 50));
    probe_spec(&spec, &repeat, HWT_MSEC(100));
    spec.period_ns = HWT_MSEC(100);
    cr_assert_eq(hwt_schedule(r.timer, &spec, &repeating), 0);
    t = at(&r, &never, 100);
    cr_assert(hwt_timeout_cancel(t));
    for (uint64_t ms = 0; ms <= 500; ms += 10)
        cr_assert_geq(sleep_until_ms(&r, ms), 0);
    cr_assert_eq(once.runs, 10);
    cr_assert_eq(repeat.runs, 5);
    cr_assert_eq(never.runs, 0);
    cr_assert(hwt_timeout_cancel(repeating));
    hwt_timeout_unref(repeating);
    hwt_timeout_unref(t);
    rig_close(&r);
}

/* timer_huge_timeout, timer_huge_repeat: the huge ones do not come before the small one */
WHEEL_TEST(uv, huge)
{
    static const uint64_t huge[] = {0xffffffffffff, UINT64_MAX, UINT64_MAX - 1};
    probe tiny = {0}, p = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, huge[i], NULL), 0);
        probe_spec(&spec, &tiny, HWT_MSEC(1));
        spec.period_ns = huge[i];
        cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    }
    cr_assert_eq(sleep_until_ms(&r, 1), 3);
    cr_assert_eq(sleep_until_ms(&r, 10), 0);
    cr_assert_eq(tiny.runs, 3);
    cr_assert_eq(p.runs, 0);
    rig_close(&r);
}

/* timer_again: moved on before it fires, again and again, it never does; then it does */
WHEEL_TEST(uv, again)
{
    hwt_timeout *t;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    t = at(&r, &p, 50);
    for (unsigned i = 1; i <= 30; i++) {
        cr_assert_eq(sleep_until_ms(&r, i * 49), 0);
        cr_assert(hwt_timeout_reschedule(t, HWT_MSEC(50)));
    }
    cr_assert_eq(sleep_until_ms(&r, 30 * 49 + 50), 1);
    hwt_timeout_unref(t);
    rig_close(&r);
}

/* timer_no_double_call_*: started again in the same pass, a timer is not called twice in it */
WHEEL_TEST(uv, no_double_call)
{
    atomic_uint runs = 0;
    chain c = {.left = 3};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, chain_task, &c, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, mod_itself, &runs, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 2);
    cr_assert_eq(c.runs, 1);
    cr_assert_eq(runs, 1);
    rig_close(&r);
}
