/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runtime without a thread: HWT_DRIVE_CALLER under a virtual clock, both
 * wheels. When things run: G1, tick order (G4), G11, next_deadline, the results
 * of hwt_timer_advance, max_pending, a clock that jumps, lateness.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK HWT_MSEC(1)
#define YEAR HWT_SEC(365 * 86400)

TestSuite(virtual, .init = test_arm);

/* Boundaries of ticks, of the 512 slots, of the levels above them; and far away. */
static const uint64_t delays[] = {1,
                                  999,
                                  TICK - 1,
                                  TICK,
                                  TICK + 1,
                                  511 * TICK,
                                  512 * TICK,
                                  512 * TICK + 1,
                                  513 * TICK,
                                  262143 * TICK,
                                  262144 * TICK,
                                  262144 * TICK + 1,
                                  HWT_SEC(3600),
                                  HWT_SEC(86400),
                                  HWT_SEC(30 * 86400),
                                  YEAR,
                                  5 * YEAR,
                                  30 * YEAR};

static void expect_exact_run(hwt_wheel_kind wheel, uint64_t epoch, uint64_t delay)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, epoch), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, delay, &timeout), 0);
    cr_expect_eq(hwt_timeout_deadline(timeout), epoch + delay);
    cr_expect_eq(hwt_timer_next_deadline(r.timer), epoch + delay);
    cr_expect_eq(hwt_timer_advance(r.timer), 0);
    cr_expect_eq(rig_advance_to(&r, epoch + delay / 2), 0);
    cr_expect_eq(rig_advance_to(&r, epoch + delay - 1), 0);
    cr_expect_eq(p.runs, 0, "G1: early, epoch %llu delay %llu", (unsigned long long)epoch,
                 (unsigned long long)delay);
    cr_expect_eq(rig_advance_to(&r, epoch + delay), 1);
    cr_expect_eq(p.runs, 1, "not run, epoch %llu delay %llu", (unsigned long long)epoch,
                 (unsigned long long)delay);
    cr_expect_eq(rig_advance_by(&r, HWT_SEC(86400)), 0);
    cr_expect_eq(p.runs, 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* G1, and exactly on time: the caller's timer is not bound to tick boundaries. */
WHEEL_TEST(virtual, runs_exactly_at_its_deadline)
{
    for (size_t e = 0; e < test_epoch_count; e++)
        for (size_t d = 0; d < COUNT_OF(delays); d++)
            expect_exact_run(wheel, test_epochs[e], delays[d]);
}

/* G1 with all of them in the wheel at once, reached by a walk from deadline to deadline. */
WHEEL_TEST(virtual, never_early_together)
{
    for (size_t e = 0; e < test_epoch_count; e++) {
        probe p[COUNT_OF(delays)] = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, test_epochs[e]), 0);
        for (size_t d = COUNT_OF(delays); d-- > 0;)
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[d], delays[d], NULL), 0);
        for (size_t d = 0; d < COUNT_OF(delays); d++) {
            cr_expect_eq(hwt_timer_next_deadline(r.timer), test_epochs[e] + delays[d]);
            cr_expect_eq(rig_advance_to(&r, test_epochs[e] + delays[d] - 1), 0, "G1");
            cr_expect_eq(rig_advance_to(&r, test_epochs[e] + delays[d]), 1);
            cr_expect_eq(p[d].runs, 1);
            cr_expect_eq(p[d].early, 0);
        }
        rig_close(&r);
    }
}

/* G1: the wheel's origin is the clock at creation, not a multiple of anything. */
WHEEL_TEST(virtual, epochs_off_the_tick_grid)
{
    static const uint64_t offsets[] = {1, TICK - 1, 511 * TICK + 7, 512 * TICK - 1};

    for (size_t i = 0; i < COUNT_OF(offsets); i++)
        for (size_t d = 0; d < 12; d++)
            expect_exact_run(wheel, test_epochs[1] + offsets[i], delays[d]);
}

WHEEL_TEST(virtual, a_deadline_is_absolute_and_a_delay_is_from_now)
{
    hwt_timeout *at, *after;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(100)), 0);
    virtual_set(&r.clock, HWT_SEC(150));
    cr_assert_eq(hwt_timer_now(r.timer), HWT_SEC(150));
    cr_assert_eq(hwt_new_timeout_at(r.timer, noop_task, NULL, HWT_SEC(160), &at), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(5), &after), 0);
    cr_assert_eq(hwt_timeout_deadline(at), HWT_SEC(160));
    cr_assert_eq(hwt_timeout_deadline(after), HWT_SEC(155));
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(155)), 1);
    cr_assert(hwt_timeout_is_expired(after));
    cr_assert_not(hwt_timeout_is_expired(at));
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(160)), 1);
    hwt_timeout_unref(at);
    hwt_timeout_unref(after);
    rig_close(&r);
}

WHEEL_TEST(virtual, a_deadline_in_the_past_runs_in_the_next_advance)
{
    static const uint64_t past[] = {0, 1, HWT_SEC(1), HWT_SEC(99), HWT_SEC(100) - 1, HWT_SEC(100)};
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(100)), 0);
    for (size_t i = 0; i < COUNT_OF(past); i++) {
        cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &p, past[i], NULL), 0);
        cr_expect(hwt_timer_next_deadline(r.timer) <= HWT_SEC(100));
        cr_expect_eq(p.runs, i, "G11: ran on the submitting thread");
        cr_expect_eq(hwt_timer_advance(r.timer), 1);
        cr_expect_eq(p.runs, i + 1);
    }
    rig_close(&r);
}

/* G1: a delay too large for the clock means never; it does not wrap round to now. */
WHEEL_TEST(virtual, saturation_is_never)
{
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - HWT_SEC(1)};

    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        hwt_timeout *timeout;
        probe p = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, test_epochs[2]), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, huge[i], &timeout), 0);
        cr_expect_eq(hwt_timeout_deadline(timeout), UINT64_MAX);
        cr_expect_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
        cr_expect_eq(hwt_timer_pending(r.timer), 1);
        cr_expect_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
        cr_expect_eq(rig_advance_by(&r, 40 * YEAR), 0);
        cr_expect_eq(p.runs, 0, "G1: wrapped");
        cr_expect_eq(hwt_timeout_state(timeout), HWT_PENDING);
        cr_expect(hwt_timeout_cancel(timeout));
        cr_expect_eq(hwt_timer_pending(r.timer), 0);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(virtual, saturated_deadline_and_ordinary_ones)
{
    probe never = {0}, soon = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(7)), 0);
    cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &never, UINT64_MAX, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &soon, HWT_SEC(1), NULL), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(8));
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(8)), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    cr_assert_eq(rig_advance_by(&r, 70 * YEAR), 0);
    cr_assert_eq(soon.runs, 1);
    cr_assert_eq(never.runs, 0);
    rig_close(&r);
}

/* A clock that goes back makes nothing early (G1) and loses nothing (G2). */
WHEEL_TEST(virtual, a_clock_that_steps_back)
{
    probe p = {0}, q = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(10), NULL), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1005)), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1001)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &q, HWT_SEC(1), NULL), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1002) - 1), 0);
    cr_assert_eq(q.early + p.early, 0);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1010)), 2);
    cr_assert_eq(p.runs + q.runs, 2);
    cr_assert_eq(q.early + p.early, 0);
    rig_close(&r);
}

struct fickle {
    unsigned readings, turns_after; /* so many of which say 5 s, and all later ones 1 s */
    uint64_t last;
    unsigned runs, early;
};

static uint64_t fickle_now(void *clock)
{
    struct fickle *f = clock;
    f->last = f->readings++ < f->turns_after ? HWT_SEC(5) : HWT_SEC(1);
    return f->last;
}

static void compare_with_last(hwt_timeout *timeout, void *clock)
{
    struct fickle *f = clock;
    f->runs++;
    f->early += hwt_timeout_deadline(timeout) > f->last;
}

/* At whatever reading within an advance it goes back: what it said last decides (G1, G2). */
WHEEL_TEST(virtual, a_clock_that_steps_back_within_an_advance)
{
    for (unsigned turns = 0; turns < 12; turns++) {
        struct fickle f = {0};
        rig r;

        rig_prepare(&r, wheel, 0);
        r.config.now = fickle_now;
        r.config.clock = &f;
        cr_assert_eq(rig_open(&r), 0);
        for (uint64_t i = 1; i <= 4; i++)
            cr_assert_eq(hwt_new_timeout_at(r.timer, compare_with_last, &f, HWT_SEC(1) + i, NULL),
                         0);
        f.readings = 0;
        f.turns_after = turns;
        cr_assert_geq(hwt_timer_advance(r.timer), 0);
        cr_assert_eq(f.early, 0, "%u early, the clock went back after %u readings", f.early, turns);
        f.readings = 0;
        f.turns_after = UINT32_MAX;
        cr_assert_geq(hwt_timer_advance(r.timer), 0);
        cr_assert_eq(f.runs, 4);
        rig_close(&r);
    }
}

typedef struct late_pass {
    rig r;
    uint64_t back;
    unsigned beats, submitted;
} late_pass;

static void beat(hwt_timeout *timeout, void *arg)
{
    late_pass *l = arg;

    (void)timeout;
    l->beats++;
    l->r.clock.now += HWT_MSEC(2);
}

static void ran_now(hwt_timeout *timeout, void *arg)
{
    late_pass *l = arg;

    (void)timeout;
    l->submitted = l->beats;
}

static void set_it_back(hwt_timeout *timeout, void *arg)
{
    late_pass *l = arg;

    (void)timeout;
    l->r.clock.now -= l->back;
    cr_assert_eq(hwt_new_timeout(l->r.timer, ran_now, l, 0, NULL), 0);
}

/*
 * G11: a pass ends with what was due at its beginning, and was still when the clock had gone back:
 * what a periodic timeout has to do again by then waits for the next one, like what was submitted.
 */
WHEEL_TEST(virtual, a_pass_is_no_longer_than_the_clock)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};

    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        late_pass l = {.back = HWT_SEC(100)};
        hwt_spec spec;

        cr_assert_eq(rig_start(&l.r, wheel, HWT_SEC(1000)), 0);
        cr_assert_eq(hwt_new_timeout_at(l.r.timer, set_it_back, &l, HWT_SEC(800), NULL), 0);
        hwt_spec_init(&spec);
        spec.task = beat;
        spec.arg = &l;
        spec.period_ns = HWT_MSEC(1);
        spec.period_mode = modes[i];
        for (int j = 0; j < 2; j++) { /* overdue then, and still when the clock has gone back */
            hwt_timeout *timeout;
            cr_assert_eq(hwt_schedule(l.r.timer, &spec, &timeout), 0);
            cr_assert(hwt_timeout_reschedule_at(timeout, HWT_SEC(850)));
            hwt_timeout_unref(timeout);
        }
        cr_assert_eq(hwt_timer_advance(l.r.timer), 3);
        cr_assert_eq(l.beats, 2);
        cr_assert_leq(hwt_timer_advance(l.r.timer), 3);
        cr_assert_leq(l.submitted, 4);
        cr_assert_gt(l.submitted, 1);
        rig_close(&l.r);
    }
}

/* ---- order ---- */

#define ORDERED 3000

/* G4: ticks are expired in order, even when all are due at once. */
WHEEL_TEST(virtual, ticks_expire_in_order)
{
    static probe p[ORDERED];
    uint64_t seed = test_seed("ticks_expire_in_order");
    uint32_t slots[ORDERED];
    rig r;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    for (uint32_t i = 0; i < ORDERED; i++)
        slots[i] = i;
    for (uint32_t i = ORDERED - 1; i > 0; i--) {
        uint32_t other = (uint32_t)test_random_below(&seed, i + 1), held = slots[i];

        slots[i] = slots[other];
        slots[other] = held;
    }
    for (uint32_t i = 0; i < ORDERED; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[slots[i]], slots[i] * TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(3600)), ORDERED);
    for (uint32_t i = 0; i < ORDERED; i++) {
        cr_assert_eq(p[i].runs, 1);
        cr_assert(i == 0 || p[i].order > p[i - 1].order, "tick %u out of order", i);
    }
    rig_close(&r);
}

/* ---- G11 ---- */

typedef struct rearm {
    unsigned left; /* how often it still submits itself */
    unsigned runs;
    unsigned depth;
    unsigned max_depth;
} rearm;

static void submit_itself(hwt_timeout *timeout, void *arg)
{
    rearm *chain = arg;

    chain->runs++;
    if (++chain->depth > chain->max_depth)
        chain->max_depth = chain->depth;
    if (chain->left > 0) {
        chain->left--;
        hwt_new_timeout(hwt_timeout_timer(timeout), submit_itself, chain, 0, NULL);
    }
    chain->depth--;
}

WHEEL_TEST(virtual, zero_delay_waits_for_the_next_advance)
{
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, 0, NULL), 0);
    cr_assert_eq(p.runs, 0, "G11");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(1));
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(p.runs, 1);
    rig_close(&r);
}

WHEEL_TEST(virtual, a_zero_delay_chain_is_one_link_an_advance)
{
    rearm chain = {.left = 5};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, submit_itself, &chain, 0, NULL), 0);
    for (unsigned pass = 1; pass <= 6; pass++) {
        cr_assert_eq(hwt_timer_advance(r.timer), 1, "G11: pass %u", pass);
        cr_assert_eq(chain.runs, pass);
    }
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(chain.max_depth, 1, "G11: recursion");
    rig_close(&r);
}

typedef struct follower {
    probe first;
    probe peers[200];
    probe late;
} follower;

static void submit_late(hwt_timeout *timeout, void *arg)
{
    follower *f = arg;

    probe_task(timeout, &f->first);
    hwt_new_timeout_at(hwt_timeout_timer(timeout), probe_task, &f->late, 0, NULL);
}

/* G11: what a task submits for now comes after everything that was already due. */
WHEEL_TEST(virtual, a_task_cannot_overtake_what_was_due)
{
    static follower f;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, submit_late, &f, TICK, NULL), 0);
    for (unsigned i = 0; i < COUNT_OF(f.peers); i++)
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &f.peers[i], (i % 50) * TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), (int)COUNT_OF(f.peers) + 1);
    cr_assert_eq(f.late.runs, 0);
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    for (unsigned i = 0; i < COUNT_OF(f.peers); i++)
        cr_assert_lt(f.peers[i].order, f.late.order);
    rig_close(&r);
}

/* ---- next_deadline ---- */

WHEEL_TEST(virtual, next_deadline_is_the_earliest)
{
    hwt_timeout *t[4];
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(10)), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(900), &t[0]), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(910));
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(5) + 3, &t[1]), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(10) + HWT_MSEC(5) + 3);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(5) + 2, &t[2]), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(10) + HWT_MSEC(5) + 2);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(2), &t[3]), 0);
    cr_assert(hwt_timeout_cancel(t[2]));
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(10) + HWT_MSEC(5) + 3);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(12));
    cr_assert(hwt_timeout_cancel(t[3]));
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(910));
    cr_assert(hwt_timeout_cancel(t[0]));
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    for (size_t i = 0; i < COUNT_OF(t); i++)
        hwt_timeout_unref(t[i]);
    rig_close(&r);
}

/* Sleeping until next_deadline and advancing wakes exactly once for each deadline. */
WHEEL_TEST(virtual, next_deadline_leads_from_one_to_the_next)
{
    uint64_t seed = test_seed("next_deadline_leads");
    uint64_t end = test_epochs[2] + HWT_SEC(100000);
    unsigned passes = 0;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[2]), 0);
    for (unsigned i = 0; i < 500; i++)
        hwt_new_timeout(r.timer, probe_task, &p, 1 + test_random_below(&seed, HWT_SEC(100000)),
                        NULL);
    while (hwt_timer_next_deadline(r.timer) != UINT64_MAX) {
        cr_assert_leq(hwt_timer_next_deadline(r.timer), end);
        cr_assert_geq(rig_advance_to(&r, hwt_timer_next_deadline(r.timer)), 1, "woke for nothing");
        passes++;
    }
    cr_assert_eq(p.runs, 500);
    cr_assert_eq(p.early, 0);
    cr_assert_leq(passes, 500);
    cr_assert_eq(stats_of(r.timer).late_ns_max, 0);
    rig_close(&r);
}

/* ---- a clock that jumps ---- */

WHEEL_TEST(virtual, a_jump_of_days_runs_all_once_in_order)
{
    static probe p[1000];
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(3)), 0);
    for (uint64_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[i], i * HWT_SEC(997), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(86400 * 20)), (int)COUNT_OF(p));
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert_eq(p[i].runs, 1);
        cr_assert(i == 0 || p[i].order > p[i - 1].order);
    }
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(86400 * 400)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[0], TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK - 1), 0);
    cr_assert_eq(rig_advance_by(&r, 1), 1, "and the wheel still turns");
    rig_close(&r);
}

/* Ten years in one step, with a 1 us tick: the walk must not visit every tick. */
WHEEL_TEST(virtual, a_jump_of_years_is_quick)
{
    uint64_t began;
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(1));
    r.config.tick_ns = HWT_USEC(1);
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, YEAR, NULL), 0);
    began = real_now(CLOCK_MONOTONIC);
    cr_assert_eq(rig_advance_by(&r, 10 * YEAR), 1);
    cr_assert_lt(real_now(CLOCK_MONOTONIC) - began, HWT_SEC(5));
    rig_close(&r);
}
