/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt_timeout_reschedule under the virtual clock: later, earlier, past, from the
 * own task, from another thread, after the end; and that moving costs no memory.
 * That an earlier deadline wakes a sleeping worker is in unit/worker.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK  HWT_MSEC(1)
#define EPOCH HWT_SEC(1000)

TestSuite(reschedule, .init = test_arm);

/* Moves are tried on what the wheel has not seen yet and on what it holds. */
static hwt_timeout *pending_probe(rig *r, probe *p, uint64_t delay, bool in_wheel)
{
    hwt_timeout *timeout = NULL;

    cr_assert_eq(hwt_new_timeout(r->timer, probe_task, p, delay, &timeout), 0);
    if (in_wheel)
        cr_assert_eq(rig_advance_by(r, delay / 2), 0);
    return timeout;
}

static void expect_runs_exactly_at(rig *r, probe *p, hwt_timeout *timeout, uint64_t deadline)
{
    cr_expect_eq(hwt_timeout_deadline(timeout), deadline);
    cr_expect_eq(hwt_timer_next_deadline(r->timer), deadline);
    cr_expect_eq(hwt_timer_pending(r->timer), 1);
    cr_expect_eq(rig_advance_to(r, deadline - 1), 0);
    cr_assert_eq(p->runs, 0, "G1");
    cr_expect_eq(rig_advance_to(r, deadline), 1);
    cr_assert_eq(p->runs, 1);
    cr_expect_eq(p->early, 0);
    cr_expect_eq(rig_advance_by(r, HWT_SEC(86400)), 0);
    cr_assert_eq(p->runs, 1, "G2: ran for its old deadline too");
}

static void expect_move(hwt_wheel_kind wheel, uint64_t from, uint64_t to, bool in_wheel)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = pending_probe(&r, &p, from, in_wheel);
    cr_assert(hwt_timeout_reschedule_at(timeout, EPOCH + to));
    expect_runs_exactly_at(&r, &p, timeout, EPOCH + to);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* Every pair of places: the same tick, the next slot, other levels, hours apart. */
WHEEL_TEST(reschedule, later_and_earlier)
{
    static const uint64_t places[] = {
        5 * TICK,   5 * TICK + 1,  6 * TICK,      511 * TICK,     512 * TICK,
        600 * TICK, 262144 * TICK, 300000 * TICK, HWT_SEC(36000), HWT_SEC(86400 * 40)};

    for (size_t from = 0; from < COUNT_OF(places); from++)
        for (size_t to = 0; to < COUNT_OF(places); to++) {
            expect_move(wheel, places[from], places[to], false);
            if (places[to] > places[from] / 2)
                expect_move(wheel, places[from], places[to], true);
        }
}

/* What hwt_new_timeout_at cannot have a hook, a release or a period for. */
WHEEL_TEST(reschedule, for_never_and_then_to_a_time)
{
    hwt_timeout *timeout[10];
    probe p[10] = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        probe_spec(&spec, &p[i], UINT64_MAX);
        spec.period_ns = i % 2 ? HWT_SEC(60) : 0;
        cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout[i]), 0);
        cr_assert(hwt_timeout_reschedule_at(timeout[i], EPOCH + HWT_SEC(7)));
        cr_assert_eq(hwt_timeout_deadline(timeout[i]), EPOCH + HWT_SEC(7));
        rig_advance_by(&r, 1);
    }
    cr_assert_eq(rig_advance_to(&r, EPOCH + HWT_SEC(7) - 1), 0);
    cr_assert_eq(rig_advance_to(&r, EPOCH + HWT_SEC(7)), 10);
    for (size_t i = 1; i < COUNT_OF(p); i++)
        cr_assert_gt(p[i].order, p[i - 1].order, "G15: as they were submitted");
    cr_assert_eq(rig_advance_to(&r, EPOCH + HWT_SEC(67)), 5, "the phase is that of the time");
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert_eq(hwt_timeout_cancel(timeout[i]), i % 2);
        cr_assert_eq(p[i].hooks, i % 2);
        hwt_timeout_unref(timeout[i]);
    }
    rig_close(&r);
}

WHEEL_TEST(reschedule, a_delay_counts_from_the_move)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = pending_probe(&r, &p, HWT_SEC(10), true);
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(10)));
    expect_runs_exactly_at(&r, &p, timeout, EPOCH + HWT_SEC(15));
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(reschedule, to_the_past_runs_in_the_next_pass)
{
    static const uint64_t past[] = {0, 1, EPOCH - TICK, EPOCH, EPOCH + HWT_SEC(5)};

    for (size_t i = 0; i < 2 * COUNT_OF(past); i++) {
        hwt_timeout *timeout;
        probe p = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = pending_probe(&r, &p, HWT_SEC(10), i % 2);
        virtual_set(&r.clock, EPOCH + HWT_SEC(5));
        cr_assert(hwt_timeout_reschedule_at(timeout, past[i / 2]));
        cr_assert_eq(p.runs, 0, "not on the calling thread");
        cr_assert_leq(hwt_timer_next_deadline(r.timer), virtual_now(&r.clock));
        cr_assert_eq(hwt_timer_advance(r.timer), 1);
        cr_assert_eq(p.runs, 1);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(reschedule, to_never_and_back)
{
    for (int in_wheel = 0; in_wheel < 2; in_wheel++) {
        hwt_timeout *timeout;
        probe p = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = pending_probe(&r, &p, HWT_SEC(2), in_wheel);
        cr_assert(hwt_timeout_reschedule(timeout, UINT64_MAX));
        cr_assert_eq(hwt_timeout_deadline(timeout), UINT64_MAX);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(86400 * 3000)), 0);
        cr_assert_eq(p.runs, 0);
        cr_assert(hwt_timeout_reschedule(timeout, TICK));
        cr_assert_eq(rig_advance_by(&r, TICK - 1), 0, "G1");
        cr_assert_eq(rig_advance_by(&r, 1), 1);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(reschedule, the_last_of_many_moves_counts)
{
    uint64_t seed = test_seed("the_last_of_many_moves");

    for (unsigned round = 0; round < 200; round++) {
        hwt_timeout *timeout;
        uint64_t last = 0;
        probe p = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = pending_probe(&r, &p, HWT_SEC(100), round % 2);
        for (unsigned move = 0; move < 30; move++) {
            last = EPOCH + HWT_SEC(60) + test_random_below(&seed, HWT_SEC(100));
            cr_assert(hwt_timeout_reschedule_at(timeout, last));
            if (move % 7 == 0)
                cr_assert_eq(rig_advance_by(&r, TICK), 0);
        }
        expect_runs_exactly_at(&r, &p, timeout, last);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

/* G4: in a late pass, one that was moved later takes its turn at its new tick, not its old one. */
WHEEL_TEST(reschedule, a_late_pass_keeps_the_order_of_ticks)
{
    hwt_timeout *moved;
    probe first = {0}, p = {0}, other = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.ticks_per_wheel = 8;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &first, 16 * TICK, NULL), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &p, 39 * TICK, &moved), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &other, 193 * TICK, NULL), 0);
    cr_assert_eq(rig_advance_to(&r, 37 * TICK), 1);
    cr_assert(hwt_timeout_reschedule_at(moved, 204 * TICK));
    cr_assert_eq(rig_advance_to(&r, 1000 * TICK), 2);
    cr_assert_gt(p.order, other.order, "due at 204, ran before the one due at 193");
    hwt_timeout_unref(moved);
    rig_close(&r);
}

/* The same for one that was overdue when it was moved; `later` or earlier than the other. */
static void expect_order_from_the_past(hwt_wheel_kind wheel, bool later)
{
    hwt_timeout *moved;
    probe p = {0}, other = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &p, EPOCH, &moved), 0);
    cr_assert_leq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_SEC(1)); /* the wheel has it */
    cr_assert(hwt_timeout_reschedule(moved, later ? 30 * TICK : 10 * TICK));
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &other, 20 * TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 2);
    cr_assert_eq(p.order > other.order, later);
    hwt_timeout_unref(moved);
    rig_close(&r);
}

WHEEL_TEST(reschedule, from_the_past_into_order)
{
    expect_order_from_the_past(wheel, false);
    expect_order_from_the_past(wheel, true);
}

/* ---- after the end ---- */

WHEEL_TEST(reschedule, not_after_the_end)
{
    hwt_timeout *ran, *cancelled, *stopped, *moved;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    ran = pending_probe(&r, &p, 0, false);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cancelled = pending_probe(&r, &p, TICK, false);
    cr_assert(hwt_timeout_cancel(cancelled));
    moved = pending_probe(&r, &p, HWT_SEC(1), true);
    cr_assert(hwt_timeout_reschedule(moved, TICK));
    cr_assert(hwt_timeout_cancel(moved), "moved and then cancelled");
    stopped = pending_probe(&r, &p, TICK, false);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_expect_not(hwt_timeout_reschedule(ran, TICK));
    cr_expect_not(hwt_timeout_reschedule(cancelled, TICK));
    cr_expect_not(hwt_timeout_reschedule(moved, TICK));
    cr_expect_not(hwt_timeout_reschedule(stopped, TICK));
    cr_expect_eq(hwt_timeout_state(ran), HWT_EXPIRED);
    cr_expect_eq(hwt_timeout_state(cancelled), HWT_CANCELLED);
    cr_assert_eq(p.runs, 1);
    hwt_timeout_unref(ran);
    hwt_timeout_unref(cancelled);
    hwt_timeout_unref(moved);
    hwt_timeout_unref(stopped);
    rig_close(&r);
}

/* ---- while the task runs ---- */

typedef struct rearming {
    unsigned left;
    uint64_t delay;
    unsigned runs;
    bool refused;
    uint64_t pending_inside; /* after the re-arm */
    int state_inside;        /* after the re-arm */
} rearming;

static void rearm_task(hwt_timeout *timeout, void *arg)
{
    rearming *s = arg;

    s->runs++;
    if (s->left > 0) {
        s->left--;
        s->refused |= !hwt_timeout_reschedule(timeout, s->delay);
    }
    s->pending_inside = hwt_timer_pending(hwt_timeout_timer(timeout));
    s->state_inside = (int)hwt_timeout_state(timeout);
}

WHEEL_TEST(reschedule, a_task_rearms_itself)
{
    static const uint64_t delay_choices[] = {0, TICK, 700 * TICK, HWT_SEC(7200)};

    for (size_t d = 0; d < COUNT_OF(delay_choices); d++) {
        rearming s = {.left = 10, .delay = delay_choices[d]};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, rearm_task, &s, s.delay, &timeout), 0);
        for (unsigned run = 1; run <= 10; run++) {
            cr_assert_eq(rig_advance_by(&r, s.delay), 1, "G11: once a pass, also with delay 0");
            cr_assert_eq(s.runs, run);
            cr_assert_eq(s.pending_inside, 1, "a re-arm takes the slot back");
            cr_assert_eq(s.state_inside, HWT_RUNNING);
            cr_assert_eq(hwt_timeout_state(timeout), HWT_PENDING);
            cr_assert_eq(hwt_timer_pending(r.timer), 1);
            cr_assert_eq(hwt_timeout_deadline(timeout), virtual_now(&r.clock) + s.delay);
            if (s.delay > 0)
                cr_assert_eq(rig_advance_by(&r, 0), 0);
        }
        cr_assert_eq(rig_advance_by(&r, s.delay), 1);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
        cr_assert_not(s.refused);
        cr_assert_eq(stats_of(r.timer).scheduled, 1);
        cr_assert_eq(stats_of(r.timer).expired, 1, "G2: one end, whatever it was re-armed");
        cr_assert_eq(stats_of(r.timer).runs, 11);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

static void cancel_and_rearm(hwt_timeout *timeout, void *arg)
{
    bool *refused = arg;

    hwt_timeout_cancel(timeout);
    *refused = !hwt_timeout_reschedule(timeout, 0);
}

WHEEL_TEST(reschedule, not_after_a_cancellation_in_its_task)
{
    bool refused = false;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, cancel_and_rearm, &refused, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert(refused);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    rig_close(&r);
}

static void move_to_now(hwt_timeout *timeout, void *arg)
{
    hwt_timeout *const *others = arg;

    (void)timeout;
    for (unsigned i = 0; i < 2; i++)
        cr_assert(hwt_timeout_reschedule(others[i], 0));
}

/* What was due in the pass anyway is not put off by it, and what was not does not prolong it. */
WHEEL_TEST(reschedule, another_one_to_now_in_a_task)
{
    hwt_timeout *others[2];
    probe due = {0}, later = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, move_to_now, others, TICK, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &due, 2 * TICK, &others[0]), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &later, 100 * TICK, &others[1]), 0);
    cr_assert_eq(rig_advance_by(&r, 2 * TICK), 2);
    cr_assert_eq(due.runs, 1);
    cr_assert_eq(later.runs, 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(later.runs, 1);
    hwt_timeout_unref(others[0]);
    hwt_timeout_unref(others[1]);
    rig_close(&r);
}

static void move_to_before_now(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    cr_assert(hwt_timeout_reschedule_at(*(hwt_timeout *const *)arg, EPOCH + TICK));
}

/* It is told anew, and runs when that is taken in: once, and not later than in the next pass. */
WHEEL_TEST(reschedule, another_one_to_before_now_in_a_task)
{
    hwt_timeout *other;
    probe due = {0};
    rig r;
    int ran;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, move_to_before_now, &other, TICK, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &due, 2 * TICK, &other), 0);
    ran = rig_advance_by(&r, 2 * TICK);
    cr_assert_eq(ran + hwt_timer_advance(r.timer), 2);
    cr_assert_eq(due.runs, 1);
    hwt_timeout_unref(other);
    rig_close(&r);
}

WHEEL_TEST(reschedule, a_rearmed_timeout_can_be_moved_and_cancelled)
{
    rearming s = {.left = 2, .delay = HWT_SEC(1)};
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, rearm_task, &s, 0, &timeout), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert(hwt_timeout_reschedule(timeout, TICK));
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(s.runs, 2);
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(5)), 0);
    cr_assert_eq(stats_of(r.timer).cancelled, 1);
    cr_assert_eq(stats_of(r.timer).expired, 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* A re-armed one that nobody holds: the timer's own share keeps it alive. */
WHEEL_TEST(reschedule, rearm_without_a_handle)
{
    rearming s = {.left = 5, .delay = TICK};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, rearm_task, &s, TICK, NULL), 0);
    for (unsigned run = 0; run < 6; run++)
        cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    cr_assert_eq(s.runs, 6);
    rig_close(&r);
}

static void *advance_in_thread(void *arg)
{
    return (void *)(intptr_t)hwt_timer_advance(((rig *)arg)->timer);
}

WHEEL_TEST(reschedule, not_from_another_thread_while_it_runs)
{
    gate g = {0};
    hwt_timeout *timeout;
    pthread_t thread;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, gate_task, &g, 0, &timeout), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_in_thread, &r), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_expect_eq(hwt_timeout_state(timeout), HWT_RUNNING);
    cr_expect(hwt_timeout_is_expired(timeout));
    cr_expect_not(hwt_timeout_reschedule(timeout, TICK));
    cr_expect_not(hwt_timeout_reschedule_at(timeout, 0));
    cr_expect_not(hwt_timeout_cancel(timeout));
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(9)), 0);
    cr_assert_eq(g.entered, 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* ---- periodic ---- */

static hwt_timeout *periodic(rig *r, hwt_task *task, void *arg, hwt_period_mode mode)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.arg = arg;
    spec.delay_ns = HWT_MSEC(10);
    spec.period_ns = HWT_MSEC(10);
    spec.period_mode = mode;
    cr_assert_eq(hwt_schedule(r->timer, &spec, &timeout), 0);
    return timeout;
}

/* G14: its phase moves along; 5 ms late, so that the modes differ. */
static void move_between_runs(hwt_wheel_kind wheel, hwt_period_mode mode, uint64_t next)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = periodic(&r, probe_task, &p, mode);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(10)), 1);
    cr_assert(hwt_timeout_reschedule(timeout, HWT_MSEC(3)));
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_MSEC(13));
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(3 + 5)), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + next);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(reschedule, a_periodic_one_between_runs)
{
    move_between_runs(wheel, HWT_FIXED_RATE, HWT_MSEC(23));
    move_between_runs(wheel, HWT_FIXED_RATE_SKIP, HWT_MSEC(23));
    move_between_runs(wheel, HWT_FIXED_DELAY, HWT_MSEC(28));
}

/* G14: every period since then, in a row; a delay of 0 is now. */
WHEEL_TEST(reschedule, a_periodic_one_to_long_ago)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = periodic(&r, probe_task, &p, HWT_FIXED_RATE);
    cr_assert(hwt_timeout_reschedule(timeout, 0));
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_MSEC(10));
    cr_assert(hwt_timeout_reschedule_at(timeout, EPOCH - HWT_SEC(100)));
    cr_assert_eq(hwt_timer_advance(r.timer), 10001);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_MSEC(10));
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* Its task's own wish comes before the period. */
WHEEL_TEST(reschedule, a_periodic_one_by_its_task)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};

    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        rearming s = {.left = 1, .delay = HWT_MSEC(33)};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = periodic(&r, rearm_task, &s, modes[m]);
        cr_assert_eq(rig_advance_by(&r, HWT_MSEC(10)), 1);
        cr_assert_not(s.refused);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_MSEC(43));
        cr_assert_eq(rig_advance_by(&r, HWT_MSEC(33)), 1);
        cr_assert_eq(hwt_timer_pending(r.timer), 1, "and the period goes on");
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

/* ---- cost ---- */

/* Moving on every packet, a million times, never grows memory or a queue. */
static void expect_flat_memory(hwt_wheel_kind wheel, bool earlier, bool advancing)
{
    hwt_timeout *timeout;
    size_t before;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = pending_probe(&r, &p, HWT_SEC(3600), true);
    before = resident_bytes();
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t away = earlier ? HWT_SEC(3600) - i : HWT_SEC(3600) + i;

        cr_assert(hwt_timeout_reschedule_at(timeout, EPOCH + away));
        if (advancing && i % 1000 == 0)
            cr_assert_eq(hwt_timer_advance(r.timer), 0);
    }
    if (!under_sanitizer())
        cr_assert_lt(resident_bytes(), before + (4u << 20));
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(reschedule, a_million_moves_later)
{
    expect_flat_memory(wheel, false, false);
    expect_flat_memory(wheel, false, true);
}

WHEEL_TEST(reschedule, a_million_moves_earlier)
{
    expect_flat_memory(wheel, true, false);
    expect_flat_memory(wheel, true, true);
}

/* An idle timeout that is always moved on just before it is due: the hour never ends. */
WHEEL_TEST(reschedule, moved_on_for_a_year)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = pending_probe(&r, &p, HWT_SEC(3600), false);
    for (unsigned hour = 0; hour < 8760; hour++) {
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(3599)), 0);
        cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(3600)));
    }
    cr_assert_eq(p.runs, 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(3600)), 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}
