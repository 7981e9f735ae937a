/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tokio's tests (tests/time_sleep.rs; tokio-util, tests/time_delay_queue.rs)
 * ask of its timer wheel, asked of this one, written anew for this API; each test
 * names those it follows. They pause time, so does the virtual clock here; wheels
 * have 64 slots as tokio's do where that matters.
 */
#include <criterion/criterion.h>

#include "support.h"

#define EPOCH HWT_SEC(5000)

TestSuite(tokio, .init = test_arm);

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

/* immediate_sleep, delayed_sleep_level_0, sub_ms_delayed_sleep, delayed_sleep_wrapping_level_0 */
WHEEL_TEST(tokio, delayed_sleeps)
{
    static const uint64_t delays[] = {0, HWT_MSEC(1), HWT_MSEC(10), HWT_MSEC(60), HWT_MSEC(1) + 1};
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(&r), 0);
    for (unsigned round = 0; round < 5; round++)
        for (size_t i = 0; i < COUNT_OF(delays); i++) {
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, delays[i], NULL), 0);
            if (delays[i] > 0)
                cr_assert_eq(rig_advance_by(&r, delays[i] - 1), 0);
            cr_assert_eq(rig_advance_by(&r, delays[i] > 0), 1);
        }
    rig_close(&r);
}

/* reset_future_sleep_before_fire, reset_past_sleep_before_turn, reset_past_sleep_before_fire */
WHEEL_TEST(tokio, resets_before_it_fires)
{
    static const struct {
        uint64_t slept, to;
    } cases[] = {{0, 200}, {0, 80}, {10, 80}, {80, 120}, {99, 101}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_timeout *t;
        probe p = {0};
        rig r;

        rig_prepare(&r, wheel, EPOCH);
        r.config.ticks_per_wheel = 64;
        cr_assert_eq(rig_open(&r), 0);
        t = at(&r, &p, 100);
        cr_assert_eq(sleep_until_ms(&r, cases[i].slept), 0);
        cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(cases[i].to)));
        cr_assert_eq(sleep_until_ms(&r, cases[i].to - 1), 0);
        cr_assert_eq(sleep_until_ms(&r, cases[i].to), 1);
        cr_assert_eq(sleep_until_ms(&r, 1000), 0);
        hwt_timeout_unref(t);
        rig_close(&r);
    }
}

/* reset_sleep_to_past; insert_in_past_after_poll_fires_immediately */
WHEEL_TEST(tokio, to_the_past)
{
    hwt_timeout *t;
    probe p = {0}, q = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    t = at(&r, &p, 100);
    cr_assert_eq(sleep_until_ms(&r, 50), 0);
    cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(40)));
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    hwt_timeout_unref(t);
    hwt_timeout_unref(at(&r, &p, 200));
    hwt_timeout_unref(at(&r, &q, 40));
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(q.runs, 1);
    rig_close(&r);
}

/* greater_than_max, exactly_max, no_out_of_bounds_close_to_max, long_sleeps, multi_long_sleeps */
WHEEL_TEST(tokio, long_sleeps)
{
    const uint64_t max_ms = (UINT64_C(1) << 36) - 1;
    const uint64_t day_ms = UINT64_C(86400) * 1000;
    const uint64_t sleeps[] = {max_ms,           max_ms - 1,        max_ms + 1,
                               5 * 365 * day_ms, 10 * 365 * day_ms, 365 * day_ms,
                               365 * day_ms,     365 * day_ms};
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(&r), 0);
    for (size_t i = 0; i < COUNT_OF(sleeps); i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_MSEC(sleeps[i]), NULL), 0);
        cr_assert_eq(rig_advance_by(&r, HWT_MSEC(sleeps[i]) - 1), 0, "G1");
        cr_assert_eq(rig_advance_by(&r, 1), 1);
    }
    rig_close(&r);
}

/* drop_after_reschedule_at_new_scheduled_time */
WHEEL_TEST(tokio, cancel_after_a_move_when_another_of_the_old_slot_fired)
{
    hwt_timeout *a, *b, *c;
    probe p = {0}, q = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    a = at(&r, &p, 5);
    b = at(&r, &q, 5);
    c = at(&r, &p, 10);
    cr_assert(hwt_timeout_reschedule_at(b, EPOCH + HWT_MSEC(10)));
    cr_assert_eq(sleep_until_ms(&r, 5), 1);
    cr_assert(hwt_timeout_cancel(b));
    cr_assert_eq(sleep_until_ms(&r, 10), 1);
    cr_assert_eq(q.runs, 0);
    hwt_timeout_unref(a);
    hwt_timeout_unref(b);
    hwt_timeout_unref(c);
    rig_close(&r);
}

typedef struct drop_list {
    hwt_timeout *t[100];
    unsigned ran;
} drop_list;

static void drop_everything(hwt_timeout *timeout, void *arg)
{
    drop_list *l = arg;

    (void)timeout;
    l->ran++;
    for (size_t i = 0; i < COUNT_OF(l->t); i++) {
        hwt_timeout_cancel(l->t[i]);
        hwt_timeout_unref(l->t[i]);
        l->t[i] = NULL;
    }
}

/* drop_from_wake: the first to fire drops all others of its tick, itself included */
WHEEL_TEST(tokio, drop_from_wake)
{
    drop_list l = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (size_t i = 0; i < COUNT_OF(l.t); i++)
        cr_assert_eq(hwt_new_timeout(r.timer, drop_everything, &l, HWT_MSEC(10), &l.t[i]), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(11)), 1);
    cr_assert_eq(l.ran, 1);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    rig_close(&r);
}

/* With the validators, which look at all of the wheel each time, it would take a minute. */
#ifdef HWT_DEBUG
#define STRIDE 8
#else
#define STRIDE 1
#endif

/* DelayQueue: multi_delay_at_start, walked by the millisecond through the levels */
WHEEL_TEST(tokio, multi_delay_at_start)
{
    static const uint64_t delays[] = {1000, 2, 234, 262144 + 9 * 4096, 60, 10};
    probe p[COUNT_OF(delays)] = {0};
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(&r), 0);
    for (size_t i = 0; i < COUNT_OF(delays); i++)
        hwt_timeout_unref(at(&r, &p[i], delays[i]));
    for (uint64_t before = 0, ms = 1; ms <= delays[3]; before = ms, ms += ms < 1024 ? 1 : STRIDE) {
        int due = 0;

        for (size_t i = 0; i < COUNT_OF(delays); i++)
            due += delays[i] > before && delays[i] <= ms;
        cr_assert_eq(sleep_until_ms(&r, ms), due, "at %llu ms", (unsigned long long)ms);
    }
    rig_close(&r);
}

/* DelayQueue: reset_much_later, reset_twice, repeatedly_reset_entry_inserted_as_expired,
 * reset_inserted_expired */
WHEEL_TEST(tokio, repeated_resets)
{
    hwt_timeout *t;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    t = at(&r, &p, 200);
    cr_assert_eq(sleep_until_ms(&r, 4), 0);
    cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(50)));
    cr_assert_eq(sleep_until_ms(&r, 24), 0);
    cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(40)));
    cr_assert_eq(sleep_until_ms(&r, 39), 0);
    cr_assert_eq(sleep_until_ms(&r, 44), 1);
    hwt_timeout_unref(t);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &p, EPOCH - HWT_MSEC(100), &t), 0);
    cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(200)));
    cr_assert(hwt_timeout_reschedule_at(t, EPOCH + HWT_MSEC(150)));
    cr_assert_eq(sleep_until_ms(&r, 149), 0);
    cr_assert_eq(sleep_until_ms(&r, 160), 1);
    hwt_timeout_unref(t);
    rig_close(&r);
}

/* DelayQueue: remove_expired_item, remove_at_timer_wheel_threshold */
WHEEL_TEST(tokio, remove_at_the_threshold)
{
    hwt_timeout *t[3];
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(&r), 0);
    for (unsigned i = 0; i < 3; i++)
        t[i] = at(&r, &p, 64);
    cr_assert_eq(sleep_until_ms(&r, 63), 0);
    virtual_set(&r.clock, EPOCH + HWT_MSEC(64));
    cr_assert(hwt_timeout_cancel(t[0]), "due, but not yet run");
    cr_assert_eq(sleep_until_ms(&r, 80), 2);
    for (unsigned i = 0; i < 3; i++)
        hwt_timeout_unref(t[i]);
    rig_close(&r);
}

/* DelayQueue: multi_reset and the resets that change who is first */
WHEEL_TEST(tokio, multi_reset)
{
    hwt_timeout *one, *two;
    probe p1 = {0}, p2 = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    one = at(&r, &p1, 200);
    two = at(&r, &p2, 250);
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert(hwt_timeout_reschedule_at(one, EPOCH + HWT_MSEC(300)));
    cr_assert(hwt_timeout_reschedule_at(two, EPOCH + HWT_MSEC(350)));
    cr_assert(hwt_timeout_reschedule_at(one, EPOCH + HWT_MSEC(400)));
    cr_assert_eq(sleep_until_ms(&r, 310), 0);
    cr_assert_eq(sleep_until_ms(&r, 360), 1);
    cr_assert_eq(p2.runs, 1);
    cr_assert_eq(sleep_until_ms(&r, 410), 1);
    cr_assert_eq(p1.runs, 1);
    hwt_timeout_unref(one);
    hwt_timeout_unref(two);
    rig_close(&r);
}
