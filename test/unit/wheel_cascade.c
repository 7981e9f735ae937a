/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=wheel_insert_batch */
/*
 * No cascade burst: what an upper level holds comes down a little at a time, so that no single
 * call of wheel_take_due or wheel_prepare files many more timeouts than are due in a tick (G4 under
 * load).
 */
#include "wheel_oracle.h"

#define TICK     HWT_MSEC(1)
#define TIMEOUTS 200000

/* What may come down in one call that nothing is due in: the rest of a slot that is being entered,
 * and a step of the next one. */
#define MOST_AHEAD 3200

TestSuite(wheel_cascade, .init = test_arm);

static size_t filed;   /* timeouts filed or filed anew, by one call ... */
static size_t filings; /* ... and in all */

__typeof__(wheel_insert_batch) __real_wheel_insert_batch;
__typeof__(wheel_insert_batch) __wrap_wheel_insert_batch;

/* What comes down a level is filed through it. */
void __wrap_wheel_insert_batch(struct wheel *wheel, const struct wheel_batch *batch)
{
    filed += batch->count;
    filings += batch->count;
    __real_wheel_insert_batch(wheel, batch);
}

struct load {
    struct wheel *wheel;
    uint64_t tick;
    hwt_timeout *timeouts;
    uint64_t now;
    size_t left;
    size_t passes;
    size_t most; /* filed by one call */
};

static void load_one(struct load *l, uint64_t deadline)
{
    hwt_timeout *timeout = &l->timeouts[l->left];

    timeout->stamp = l->left++ << STAMP_LANE_BITS;
    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    wheel_insert(l->wheel, timeout, deadline);
}

/* Evenly from `first` to `first + span`, in no order; there is room for another one. */
static void load_open_at(struct load *l, uint64_t tick, uint32_t slots, uint64_t first,
                         uint64_t span)
{
    uint64_t random = test_seed("cascade");

    memset(l, 0, sizeof *l);
    l->tick = tick;
    l->now = test_epochs[1];
    l->timeouts = aligned_alloc(CACHE_LINE, (TIMEOUTS + 1) * sizeof *l->timeouts);
    cr_assert_not_null(l->timeouts);
    memset((void *)l->timeouts, 0, (TIMEOUTS + 1) * sizeof *l->timeouts);
    cr_assert_eq(wheel_create(&l->wheel, HWT_WHEEL_HIERARCHICAL, tick, slots, l->now), 0);
    while (l->left < TIMEOUTS)
        load_one(l, l->now + first + test_random_below(&random, span));
}

static void load_open(struct load *l, uint32_t slots, uint64_t first, uint64_t span)
{
    load_open_at(l, TICK, slots, first, span);
}

static void load_close(struct load *l)
{
    cr_log_info("at most %zu filed by a call, %zu passes", l->most, l->passes);
    cr_assert_eq(l->left, 0);
    wheel_destroy(l->wheel);
    free(l->timeouts);
}

static void check_due(struct load *l, const hwt_timeout *timeout, const hwt_timeout *before)
{
    cr_assert_leq(oracle_deadline(timeout), l->now, "G1");
    cr_assert_gt(oracle_deadline(timeout) + 2 * l->tick, l->now, "G4: late");
    cr_assert(!before || oracle_before(before, timeout), "G15");
    l->left--;
}

static void expire_at(struct load *l, uint64_t now)
{
    hwt_timeout *timeout, *before = NULL;

    l->now = now;
    l->passes++;
    do {
        filed = 0;
        timeout = wheel_take_due(l->wheel, now, false);
        l->most = filed > l->most ? filed : l->most;
        if (timeout)
            check_due(l, timeout, before);
        before = timeout;
    } while (timeout);
    filed = 0;
    wheel_prepare(l->wheel);
    l->most = filed > l->most ? filed : l->most;
}

static void run_tick_by_tick(struct load *l)
{
    while (l->left)
        expire_at(l, l->now + l->tick);
}

/* As the worker sleeps. */
static void run_by_next_call(struct load *l)
{
    while (l->left) {
        uint64_t next = wheel_next_call(l->wheel);
        expire_at(l, max_u64(l->now, wheel_tick_time(l->wheel, wheel_tick_of(l->wheel, next))));
        cr_assert_lt(l->passes, TIMEOUTS);
    }
}

Test(wheel_cascade, two_seconds_tick_by_tick)
{
    struct load l;

    load_open(&l, 512, TICK, HWT_SEC(2)); /* 100 are due per tick */
    run_tick_by_tick(&l);
    cr_expect_leq(l.most, 300);
    load_close(&l);
}

Test(wheel_cascade, two_seconds_by_next_call)
{
    struct load l;

    load_open(&l, 512, TICK, HWT_SEC(2));
    run_by_next_call(&l);
    cr_expect_leq(l.most, 300);
    cr_expect_leq(l.passes, 2000 + 200);
    load_close(&l);
}

/* Through three levels: what is filed in a tick is the share of each. */
Test(wheel_cascade, many_levels_tick_by_tick)
{
    struct load l;

    load_open(&l, 16, TICK, HWT_SEC(20)); /* 10 are due per tick */
    run_tick_by_tick(&l);
    cr_expect_leq(l.most, 400);
    cr_expect_gt(l.most, 0, "what comes down is counted");
    load_close(&l);
}

/*
 * Nothing is due before, so no tick gives occasion to bring anything down: calls ahead of time
 * do.
 */
Test(wheel_cascade, after_a_gap)
{
    struct load l;

    load_open(&l, 512, HWT_SEC(3), HWT_SEC(2));
    run_by_next_call(&l);
    cr_expect_leq(l.most, MOST_AHEAD);
    cr_expect_leq(l.passes, 2000 + 2 * TIMEOUTS / 1024 + 200);
    load_close(&l);
}

/* The worst case: all of them in one tick. */
Test(wheel_cascade, all_in_one_tick)
{
    struct load l;

    load_open(&l, 512, HWT_SEC(3), TICK / 2);
    run_by_next_call(&l);
    cr_expect_leq(l.most, MOST_AHEAD);
    load_close(&l);
}

/* From now to where a slot of an upper level begins. */
static uint64_t to_window(uint64_t width, unsigned slots)
{
    return slots * width - test_epochs[1] % width;
}

/* And in the tick that is the first of its window. */
Test(wheel_cascade, all_in_the_first_tick_of_a_window)
{
    struct load l;

    load_open(&l, 512, to_window(4 * 512 * TICK, 8), 1);
    run_by_next_call(&l);
    cr_expect_leq(l.most, MOST_AHEAD);
    load_close(&l);
}

/* And where what is next is at the end of the slot before, and alone. */
Test(wheel_cascade, behind_one_at_the_end_of_the_slot_before)
{
    uint64_t first = to_window(4 * 512 * TICK, 8);
    struct load l;

    load_open(&l, 512, first, TICK);
    load_one(&l, l.now + first - TICK * 3 / 2);
    run_by_next_call(&l);
    cr_expect_leq(l.most, MOST_AHEAD);
    load_close(&l);
}

/* Where ticks are short it takes many of them. */
Test(wheel_cascade, begins_as_long_before_as_it_takes)
{
    uint64_t tick = HWT_USEC(1), first = to_window(UINT64_C(2048) * 2048 * tick, 4), before;
    struct load l;

    load_open_at(&l, tick, 512, first, 1);
    before = l.now + first - wheel_next_call(l.wheel);
    cr_expect_geq(before, TIMEOUTS * LOOK_NS);
    cr_expect_leq(before, 2 * TIMEOUTS * LOOK_NS, "nor much earlier");
    run_by_next_call(&l);
    cr_expect_leq(l.most, 2 * MOST_AHEAD, "from two levels");
    load_close(&l);
}

/* The second level is wide enough for that, at a tick of a millisecond. */
Test(wheel_cascade, within_an_hour_once)
{
    struct load l;

    filings = 0;
    load_open(&l, 512, TICK, HWT_SEC(3600));
    run_by_next_call(&l);
    cr_expect_leq(filings, (size_t)TIMEOUTS);
    cr_expect_gt(filings, (size_t)TIMEOUTS / 2, "it has a way to come down");
    load_close(&l);
}
