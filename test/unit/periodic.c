/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G14 under the virtual clock: the three period modes, falling behind, ending
 * from inside and outside, accounting. Tests of a periodic timeout with threads
 * are in unit/worker.c and unit/executor.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "support.h"

#define TICK   HWT_MSEC(1)
#define PERIOD HWT_MSEC(10)
#define EPOCH  HWT_SEC(1000)

TestSuite(periodic, .init = test_arm);

static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};

/* A periodic task that lets virtual time pass while it runs. */
typedef struct beat {
    rig *rig;
    uint64_t at[64];    /* the clock at the start of each run */
    uint64_t lasts[64]; /* how long each run takes */
    unsigned runs;
    unsigned hooks;
    unsigned cancel_in; /* cancels itself in this run; 0: never */
    int cancelled;
    uint64_t pending_inside;
    bool expired_inside;
} beat;

static void beat_task(hwt_timeout *timeout, void *arg)
{
    beat *b = arg;
    unsigned run = b->runs++;

    b->pending_inside = hwt_timer_pending(b->rig->timer);
    b->expired_inside = hwt_timeout_is_expired(timeout);
    if (run < COUNT_OF(b->at)) {
        b->at[run] = hwt_timer_now(b->rig->timer);
        virtual_add(&b->rig->clock, b->lasts[run]);
    }
    if (b->runs == b->cancel_in)
        b->cancelled = hwt_timeout_cancel(timeout);
}

static void beat_hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ((beat *)arg)->hooks++;
}

static hwt_timeout *start_beat(rig *r, beat *b, hwt_period_mode mode, uint64_t delay,
                               uint64_t period)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = beat_task;
    spec.cancelled = beat_hook;
    spec.arg = b;
    spec.delay_ns = delay;
    spec.period_ns = period;
    spec.period_mode = mode;
    b->rig = r;
    cr_assert_eq(hwt_schedule(r->timer, &spec, &timeout), 0);
    return timeout;
}

/* Advances until nothing is due any more, however the library spreads catching up. */
static void settle(rig *r)
{
    while (hwt_timer_next_deadline(r->timer) <= virtual_now(&r->clock))
        cr_assert_gt(hwt_timer_advance(r->timer), 0, "due, but nothing ran");
}

/* ---- on time, all modes are alike ---- */

WHEEL_TEST(periodic, on_time)
{
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        beat b = {0};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = start_beat(&r, &b, modes[m], 3 * TICK, PERIOD);
        for (unsigned k = 0; k < 50; k++) {
            uint64_t due = EPOCH + 3 * TICK + k * PERIOD;

            cr_assert_eq(hwt_timer_next_deadline(r.timer), due);
            cr_assert_eq(hwt_timeout_deadline(timeout), due);
            cr_assert_eq(rig_advance_to(&r, due - 1), 0, "G1");
            cr_assert_eq(hwt_timeout_state(timeout), HWT_PENDING);
            cr_assert_eq(rig_advance_to(&r, due), 1);
            cr_assert_eq(b.at[k], due);
            cr_assert_eq(b.pending_inside, 1, "it has not ended");
        }
        cr_assert_eq(hwt_timer_pending(r.timer), 1);
        cr_assert(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

/* "Running or expired": so what is periodic is that again and again. */
WHEEL_TEST(periodic, counts_as_expired_during_its_runs)
{
    beat b = {0};
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = start_beat(&r, &b, HWT_FIXED_RATE, 0, PERIOD);
    for (unsigned run = 1; run <= 3; run++) {
        cr_assert_not(hwt_timeout_is_expired(timeout));
        cr_assert_eq(rig_advance_by(&r, PERIOD), 1 + (run == 1));
        cr_assert(b.expired_inside);
    }
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* What mode it would have does not matter. */
WHEEL_TEST(periodic, without_a_period_it_runs_once)
{
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        beat b = {0};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = start_beat(&r, &b, modes[m], TICK, 0);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(periodic, zero_delay_and_long_periods)
{
    static const uint64_t periods[] = {TICK - 1, 511 * TICK, 512 * TICK, 513 * TICK, HWT_SEC(7200)};

    for (size_t i = 0; i < COUNT_OF(periods); i++) {
        beat b = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, test_epochs[2]), 0);
        hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, 0, periods[i]));
        cr_assert_eq(b.runs, 0, "G11");
        for (unsigned k = 0; k < 20; k++) {
            cr_assert_eq(rig_advance_to(&r, test_epochs[2] + k * periods[i]), 1);
            cr_assert_eq(b.runs, k + 1);
        }
        rig_close(&r);
    }
}

/* ---- behind: the clock jumps ---- */

/* FIXED_RATE makes up for every missed run, within one advance. */
WHEEL_TEST(periodic, fixed_rate_catches_up)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, 20 * PERIOD + PERIOD / 2), 20);
    cr_assert_eq(b.runs, 20);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 21 * PERIOD, "no drift");
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    rig_close(&r);
}

WHEEL_TEST(periodic, fixed_rate_of_a_nanosecond_catches_up)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, 1, 1));
    cr_assert_eq(rig_advance_by(&r, 1000), 1000);
    cr_assert_eq(rig_advance_by(&r, 7), 7);
    rig_close(&r);
}

/*
 * Several runs a tick, and many ticks behind: after a run the next one belongs to a tick that is
 * being expired, or has been. It must not wait for another pass, neither when it was found in the
 * wheel, nor when it was submitted during a pass and so was overdue at the next.
 */
WHEEL_TEST(periodic, fixed_rate_catches_up_within_ticks)
{
    static const uint64_t periods[] = {TICK / 4, TICK / 3, TICK - 1, TICK};

    for (size_t i = 0; i < COUNT_OF(periods); i++) {
        beat b = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, periods[i], periods[i]));
        cr_assert_eq(rig_advance_by(&r, 40 * periods[i]), 40, "period %" PRIu64, periods[i]);
        cr_assert_eq(rig_advance_by(&r, 7 * periods[i] + 1), 7);
        rig_close(&r);
    }
}

static void submit_beat(hwt_timeout *timeout, void *arg)
{
    beat *b = arg;

    (void)timeout;
    hwt_timeout_unref(start_beat(b->rig, b, HWT_FIXED_RATE, 0, TICK / 4));
}

WHEEL_TEST(periodic, fixed_rate_catches_up_when_overdue)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    b.rig = &r;
    for (unsigned i = 0; i < 100; i++) /* more than one hand: the worker takes in between them */
        cr_assert_eq(hwt_new_timeout(r.timer, i ? noop_task : submit_beat, &b, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 100);
    cr_assert_eq(b.runs, 0, "G11");
    cr_assert_eq(rig_advance_by(&r, 10 * TICK), 41);
    rig_close(&r);
}

static int run_at_once(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run(job);
    return 0;
}

/* G14: one run a call, since the worker hears of its end by a notice. */
WHEEL_TEST(periodic, with_an_executor_it_catches_up_by_turns)
{
    beat b = {0};
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.execute = run_at_once;
    cr_assert_eq(rig_open(&r), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, 3 * PERIOD), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 2 * PERIOD);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(b.runs, 3);
    rig_close(&r);
}

/* FIXED_RATE_SKIP drops what it missed and keeps the phase. */
WHEEL_TEST(periodic, fixed_rate_skip_drops_the_missed)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE_SKIP, 3 * TICK, PERIOD));
    cr_assert_eq(rig_advance_by(&r, 3 * TICK + 20 * PERIOD + PERIOD / 2), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 3 * TICK + 21 * PERIOD, "the phase");
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(rig_advance_by(&r, PERIOD / 2), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 3 * TICK + 22 * PERIOD);
    rig_close(&r);
}

WHEEL_TEST(periodic, fixed_rate_skip_keeps_what_is_due_now)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE_SKIP, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, 3 * PERIOD), 2, "the first, late, and the third");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 4 * PERIOD);
    rig_close(&r);
}

WHEEL_TEST(periodic, fixed_delay_counts_from_the_end)
{
    beat b = {.lasts = {HWT_MSEC(4), 0, HWT_MSEC(35)}};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_DELAY, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, PERIOD + HWT_MSEC(3)), 1); /* late by 3, lasts 4 */
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 2 * PERIOD + HWT_MSEC(7));
    cr_assert_eq(rig_advance_to(&r, EPOCH + 2 * PERIOD + HWT_MSEC(7)), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 3 * PERIOD + HWT_MSEC(7));
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1); /* far behind: still one */
    cr_assert_eq(hwt_timer_next_deadline(r.timer), b.at[2] + HWT_MSEC(35) + PERIOD);
    rig_close(&r);
}

/* ---- overrun: a run lasts longer than the period ---- */

WHEEL_TEST(periodic, fixed_rate_overrun)
{
    beat b = {.lasts = {0, 3 * PERIOD + PERIOD / 5}};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    cr_assert_geq(rig_advance_by(&r, PERIOD), 1);
    settle(&r);
    cr_assert_eq(virtual_now(&r.clock), EPOCH + 5 * PERIOD + PERIOD / 5);
    cr_assert_eq(b.runs, 5, "the three it slept through, one after another");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 6 * PERIOD);
    rig_close(&r);
}

WHEEL_TEST(periodic, fixed_rate_skip_overrun)
{
    beat b = {.lasts = {0, 3 * PERIOD + PERIOD / 5}};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE_SKIP, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    cr_assert_geq(rig_advance_by(&r, PERIOD), 1);
    settle(&r);
    cr_assert_leq(b.runs, 3, "at most the one that is due now");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + 6 * PERIOD);
    rig_close(&r);
}

/* A task that always overruns must not keep the others from running. */
WHEEL_TEST(periodic, a_permanent_overrun_starves_nobody)
{
    beat b = {0};
    probe other = {0};
    rig r;

    for (size_t i = 0; i < COUNT_OF(b.lasts); i++)
        b.lasts[i] = i < 40 ? 2 * PERIOD : 0;
    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &other, 5 * PERIOD, NULL), 0);
    virtual_add(&r.clock, PERIOD);
    for (unsigned pass = 0; pass < 100 && other.runs == 0; pass++)
        cr_assert_geq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(other.runs, 1);
    cr_assert_eq(other.early, 0, "G1");
    settle(&r);
    cr_assert_eq(b.runs, (virtual_now(&r.clock) - EPOCH) / PERIOD, "and it caught up");
    rig_close(&r);
}

/* ---- ending ---- */

WHEEL_TEST(periodic, cancel_between_runs)
{
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        beat b = {0};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = start_beat(&r, &b, modes[m], PERIOD, PERIOD);
        for (unsigned k = 0; k < 7; k++)
            cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_not(hwt_timeout_cancel(timeout));
        cr_assert_eq(b.hooks, 1);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(9)), 0);
        cr_assert_eq(b.runs, 7);
        cr_assert_eq(stats_of(r.timer).runs, 7);
        cr_assert_eq(stats_of(r.timer).cancelled, 1);
        cr_assert_eq(stats_of(r.timer).expired, 0);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(periodic, cancel_from_inside)
{
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        beat b = {.cancel_in = 4, .cancelled = -1};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
        timeout = start_beat(&r, &b, modes[m], PERIOD, PERIOD);
        for (unsigned k = 0; k < 4; k++)
            cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
        cr_assert_eq(b.cancelled, 1);
        cr_assert_eq(b.hooks, 1);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(9)), 0);
        cr_assert_eq(b.runs, 4);
        hwt_timeout_unref(timeout);
        rig_close(&r);
        cr_assert_eq(b.hooks, 1);
    }
}

/* Cancelled in the middle of catching up: the rest of the missed runs is not made up for. */
WHEEL_TEST(periodic, cancel_while_catching_up)
{
    beat b = {.cancel_in = 3};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, 50 * PERIOD), 3);
    cr_assert_eq(b.runs, 3);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    rig_close(&r);
}

WHEEL_TEST(periodic, stop_between_runs)
{
    beat b = {0};
    hwt_unprocessed list;
    hwt_timeout *timeout;
    hwt_stats s;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD);
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 1);
    cr_assert_eq(hwt_unprocessed_take(&list), timeout);
    cr_assert_eq(b.hooks, 0, "G10: handed back");
    s = stats_of(r.timer);
    cr_assert_eq(s.scheduled, 1);
    cr_assert_eq(s.unprocessed, 1, "G3");
    cr_assert_eq(s.runs, 2);
    cr_assert_eq(s.expired + s.cancelled + s.pending, 0);
    hwt_timeout_unref(timeout);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(periodic, stop_without_a_list_runs_the_hook)
{
    beat b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    hwt_timeout_unref(start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD));
    cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(b.hooks, 1);
    rig_close(&r);
    cr_assert_eq(b.hooks, 1);
}

/* ---- the far end of the clock ---- */

/* G1: the second run saturates to never instead of wrapping to the past. */
WHEEL_TEST(periodic, a_period_too_large_is_never)
{
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        beat b = {0};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, test_epochs[2]), 0);
        timeout = start_beat(&r, &b, modes[m], PERIOD, UINT64_MAX);
        cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
        cr_assert_eq(hwt_timeout_deadline(timeout), UINT64_MAX);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
        cr_assert_eq(hwt_timer_pending(r.timer), 1);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(86400) * 3650), 0);
        cr_assert_eq(b.runs, 1);
        cr_assert(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(periodic, a_first_delay_too_large_is_never)
{
    beat b = {0};
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    timeout = start_beat(&r, &b, HWT_FIXED_RATE, UINT64_MAX, PERIOD);
    cr_assert_eq(hwt_timeout_deadline(timeout), UINT64_MAX);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(86400) * 3650), 0);
    cr_assert_eq(b.runs, 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* ---- with others ---- */

/* A slot under max_pending stays taken between the runs of a periodic one. */
WHEEL_TEST(periodic, keeps_its_slot)
{
    beat b = {0};
    hwt_timeout *timeout;
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.max_pending = 1;
    cr_assert_eq(rig_open(&r), 0);
    timeout = start_beat(&r, &b, HWT_FIXED_RATE, PERIOD, PERIOD);
    for (unsigned k = 0; k < 5; k++) {
        cr_assert_eq(rig_advance_by(&r, PERIOD), 1);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), -ENOBUFS);
    }
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* Many periods at once, stepping from deadline to deadline: every run at its exact time. */
WHEEL_TEST(periodic, many_periods_interleave)
{
    static beat beats[20];
    rig r;

    memset(beats, 0, sizeof(beats));
    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (unsigned i = 0; i < COUNT_OF(beats); i++)
        hwt_timeout_unref(start_beat(&r, &beats[i], HWT_FIXED_RATE, i * TICK, (i + 1) * 3 * TICK));
    while (virtual_now(&r.clock) < EPOCH + 40 * TICK)
        cr_assert_gt(rig_advance_to(&r, hwt_timer_next_deadline(r.timer)), 0);
    for (unsigned i = 0; i < COUNT_OF(beats); i++)
        for (unsigned k = 0; k < beats[i].runs; k++)
            cr_assert_eq(beats[i].at[k], EPOCH + i * TICK + k * (i + 1) * 3 * TICK);
    cr_assert_geq(beats[0].runs, 13);
    rig_close(&r);
}
