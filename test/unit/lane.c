/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lane by itself, all its parts played by one thread, so that every step can be looked at (C2,
 * C3, C6). With threads: unit/lane_threads.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "support.h"

#define COUNT_MAX ((UINT64_C(1) << PACKED_BITS) - 1)

static struct lanes lanes;
static struct lane *lane; /* the only one of `lanes` */
static hwt_timeout *node;
static size_t node_count;
static size_t *taken; /* indices, in the order of the sweep */
static size_t taken_count;

static void open_lanes(void)
{
    test_arm();
    cr_assert_eq(lanes_create(&lanes, 1), 0);
    cr_assert_eq(lanes.count, 1);
    lane = &lanes.lane[0];
    node_count = 2 * LANE_SLOTS;
    node = aligned_alloc(CACHE_LINE, node_count * sizeof *node);
    taken = calloc(node_count, sizeof *taken);
    cr_assert(node && taken);
    memset((void *)node, 0, node_count * sizeof *node);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
    free(taken);
}

TestSuite(lane, .init = open_lanes, .fini = close_lanes);

static void take(void *context, hwt_timeout **found, unsigned count)
{
    cr_assert_eq(context, &lanes);
    for (unsigned i = 0; i < count; i++)
        taken[taken_count++] = (size_t)(found[i] - node);
}

static size_t sweep(void)
{
    taken_count = 0;
    exchange_seq(&lane->earliest, UINT64_MAX); /* the worker's: C3 */
    lane_sweep(lane, take, &lanes);
    return taken_count;
}

static size_t sweep_older(void)
{
    taken_count = 0;
    lane_sweep_older(lane, take, &lanes);
    return taken_count;
}

/* The slot that it was submitted to; IN_NO_SLOT: it is in the spill. */
#define IN_NO_SLOT UINT32_MAX

static uint32_t origin_of(const hwt_timeout *timeout)
{
    uint32_t origin;

    return origin_of_where(load_relaxed(&timeout->where), &origin) ? origin : IN_NO_SLOT;
}

static bool submit(size_t i)
{
    bool crowded = false;

    cr_assert_eq(lane_submit(&lanes, &node[i], 1000 + i, &crowded), 0);
    return crowded;
}

static size_t spilled(void)
{
    size_t count = 0;

    for (hwt_timeout *timeout = lane_take_spill(lane); timeout;
         timeout = lane_next_spilled(timeout)) {
        cr_assert_eq(origin_of(timeout), IN_NO_SLOT);
        count++;
    }
    return count;
}

static void submit_range(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        submit(i);
}

static void check_tally(uint64_t scheduled, uint64_t withdrawn)
{
    struct lane_tally tally = lane_count(lane);

    cr_assert_eq(tally.scheduled, scheduled, "%" PRIu64 " scheduled", tally.scheduled);
    cr_assert_eq(tally.withdrawn, withdrawn, "%" PRIu64 " withdrawn", tally.withdrawn);
}

/* ---- creation, slots ---- */

Test(lane, as_many_as_cpus_rounded_up)
{
    static const unsigned cpus[][2] = {{0, 1}, {1, 1}, {2, 2}, {3, 4}, {5, 8}, {64, 64}};
    struct lanes many;

    for (size_t i = 0; i < COUNT_OF(cpus); i++) {
        cr_assert_eq(lanes_create(&many, cpus[i][0]), 0);
        cr_assert_eq(many.count, cpus[i][1]);
        for (unsigned j = 0; j < many.count; j++) {
            cr_assert_eq(load_relaxed(&many.lane[j].earliest), UINT64_MAX);
            cr_assert_eq(load_relaxed(&many.lane[j].moved), UINT64_MAX);
            cr_assert_not(lane_has_mail(&many.lane[j]));
        }
        cr_assert_lt(lanes_index_here(&many), many.count);
        lanes_destroy(&many);
    }
}

Test(lane, a_slot_holds_an_address_and_a_count)
{
    uint64_t slot = 0;

    for (uint64_t count = 0; count < COUNT_MAX; count += count < 1000 ? 1 : 999) {
        uint64_t empty = packed_make(NULL, count);
        slot = empty | (uint64_t)(uintptr_t)&node[7];
        cr_assert_eq(slot, packed_make(&node[7], count));
        cr_assert_eq(packed_timeout(slot), &node[7]);
        cr_assert_eq(packed_bits(slot), count);
        cr_assert_null(packed_timeout(slot_emptied(slot)));
        cr_assert_eq(packed_bits(slot_emptied(slot)), count + 1);
    }
}

/* ---- submit, withdraw, sweep ---- */

Test(lane, withdrawn_once)
{
    submit(0);
    check_tally(1, 0);
    cr_assert(lane_withdraw(&lanes, &node[0]));
    cr_assert_not(lane_withdraw(&lanes, &node[0]));
    check_tally(1, 1);
    cr_assert_eq(sweep(), 0);
}

Test(lane, swept_once_and_not_withdrawn_any_more)
{
    submit_range(0, 100);
    cr_assert_eq(sweep(), 100);
    for (size_t i = 0; i < 100; i++) {
        cr_assert_eq(taken[i], i);
        cr_assert_not(lane_withdraw(&lanes, &node[i]));
    }
    cr_assert_eq(sweep(), 0);
    check_tally(100, 0);
}

Test(lane, taken_back_by_the_worker)
{
    submit_range(0, 2);
    cr_assert(lane_take_back(&lanes, &node[0]));
    cr_assert_not(lane_take_back(&lanes, &node[0]));
    cr_assert_not(lane_withdraw(&lanes, &node[0]));
    check_tally(2, 0);
    cr_assert_eq(sweep(), 1);
    cr_assert_eq(taken[0], 1);
}

/* A slot that another one has been put in since is none of the first one's business. */
Test(lane, the_next_in_the_same_slot)
{
    submit(0);
    cr_assert(lane_withdraw(&lanes, &node[0]));
    store_relaxed(&lane->tail, 0);
    submit(1);
    cr_assert_neq(origin_of(&node[0]), IN_NO_SLOT);
    cr_assert_eq(origin_of(&node[0]), origin_of(&node[1]));
    cr_assert_not(lane_withdraw(&lanes, &node[0]));
    cr_assert_not(lane_take_back(&lanes, &node[0]));
    cr_assert(lane_withdraw(&lanes, &node[1]));
}

Test(lane, the_earliest_since_the_last_sweep)
{
    bool crowded = false;

    submit(50);
    cr_assert_eq(load_relaxed(&lane->earliest), 1050);
    submit(60);
    cr_assert_eq(load_relaxed(&lane->earliest), 1050);
    cr_assert_eq(lane_submit(&lanes, &node[0], 0, &crowded), 0);
    cr_assert_eq(load_relaxed(&lane->earliest), 0);
    sweep();
    cr_assert_eq(load_relaxed(&lane->earliest), UINT64_MAX);
    submit(70);
    cr_assert_eq(load_relaxed(&lane->earliest), 1070);
}

/* Nudges speak of their deadlines apart from submissions: no sweep may take one for the other. */
Test(lane, the_earliest_that_was_moved)
{
    lane_tell_moved(lane, 700);
    lane_tell_moved(lane, 900);
    cr_assert_eq(load_relaxed(&lane->moved), 700);
    lane_tell_moved(lane, 0);
    cr_assert_eq(load_relaxed(&lane->moved), 0);
    submit(50);
    sweep();
    cr_assert_eq(load_relaxed(&lane->moved), 0);
    cr_assert_eq(load_relaxed(&lane->earliest), UINT64_MAX);
}

/* G15: what tells equal deadlines of one thread apart, in slots, in the spill, over CPUs. */
Test(lane, stamps_rise_with_each_submission)
{
    submit_range(0, LANE_SLOTS + 100);
    for (size_t i = 1; i < LANE_SLOTS + 100; i++) {
        cr_assert_gt(node[i].stamp, node[i - 1].stamp);
        cr_assert_lt(node[i].stamp >> STAMP_BITS, 1);
        cr_assert_eq(timeout_lane(&node[i]), 0);
    }
    cr_assert_eq(spilled(), 100);
}

/* Groups that were filled before and after a sweep, in whatever order. */
Test(lane, every_sweep_finds_what_came_since)
{
    uint64_t random = test_seed("lane");
    size_t next = 0;

    for (unsigned round = 0; round < 200; round++) {
        size_t from = next, count = (size_t)test_random_below(&random, 100);
        store_relaxed(&lane->tail, test_random(&random));
        submit_range(from, from + count);
        next += count;
        cr_assert_eq(sweep(), count);
    }
    check_tally(next, 0);
}

/* ---- full, crowded, spill ---- */

Test(lane, a_full_lane_spills)
{
    submit_range(0, LANE_SLOTS);
    cr_assert_not(lane_has_mail(lane));
    submit_range(LANE_SLOTS, LANE_SLOTS + 100);
    cr_assert(lane_has_mail(lane));
    cr_assert_eq(load_relaxed(&lane->crowded), 1);
    cr_assert_not(lane_withdraw(&lanes, &node[LANE_SLOTS]));
    cr_assert_not(lane_take_back(&lanes, &node[LANE_SLOTS]));
    check_tally(LANE_SLOTS + 100, 0);
    cr_assert_eq(spilled(), 100);
    cr_assert_eq(spilled(), 0);
    cr_assert_not(lane_has_mail(lane));
    cr_assert_eq(sweep(), LANE_SLOTS);
    check_tally(LANE_SLOTS + 100, 0);
}

/* G4: what is spilled is announced too. */
Test(lane, the_spill_lowers_the_earliest)
{
    bool crowded = false;

    for (size_t i = 0; i < LANE_SLOTS; i++)
        submit(i + 1);
    cr_assert_eq(lane_submit(&lanes, &node[0], 5, &crowded), 0);
    cr_assert_eq(origin_of(&node[0]), IN_NO_SLOT);
    cr_assert_eq(load_relaxed(&lane->earliest), 5);
}

static size_t submit_until_crowded(size_t i)
{
    while (!submit(i))
        i++;
    return i + 1;
}

/* Mostly full, the worker is asked for space; it takes the oldest and leaves the young half. */
Test(lane, the_young_half_stays)
{
    const size_t filled = LANE_SLOTS * 7 / 8;
    size_t count = submit_until_crowded(0), oldest;

    cr_assert_geq(count, LANE_SLOTS / 4);
    cr_assert_leq(count, filled);
    for (size_t i = count; i < filled; i++)
        cr_assert_not(submit(i), "asked for once, not again before the sweep");
    oldest = sweep_older();
    cr_assert_gt(oldest, LANE_SLOTS / 8);
    cr_assert_leq(oldest, LANE_SLOTS / 2);
    for (size_t i = 0; i < oldest; i++)
        cr_assert_lt(taken[i], oldest, "a young one was taken before an older one");
    cr_assert_eq(load_relaxed(&lane->crowded), 0);
    cr_assert_eq(load_relaxed(&lane->earliest), 1000, "a lower bound still");
    check_tally(filled, 0);
    cr_assert_eq(sweep(), filled - oldest);
}

/* With sweeps for space alone there is always space, and nothing spills. */
Test(lane, older_sweeps_keep_up)
{
    size_t swept = 0;

    for (size_t i = 0; i < 20 * LANE_SLOTS; i++) {
        size_t slot = i % node_count;
        if (submit(slot))
            swept += sweep_older();
        cr_assert_not(lane_has_mail(lane));
    }
    cr_assert_geq(swept + LANE_SLOTS, 20 * LANE_SLOTS);
    check_tally(20 * LANE_SLOTS, 0);
}

/* Positions go round: what is still there is stepped over. */
Test(lane, long_lived_ones_in_the_way)
{
    for (size_t i = 0; i < LANE_SLOTS; i++) {
        submit(i);
        if (i % 10)
            cr_assert(lane_withdraw(&lanes, &node[i]));
    }
    for (size_t i = LANE_SLOTS; i < LANE_SLOTS * 3 / 2; i++)
        submit(i);
    cr_assert_not(lane_has_mail(lane), "spilled though there is space");
    cr_assert_eq(sweep(), LANE_SLOTS / 2 + (LANE_SLOTS + 9) / 10);
}

Test(lane, positions_wrap_around)
{
    store_relaxed(&lane->tail, UINT64_MAX - 50);
    submit_range(0, 100);
    cr_assert_eq(sweep(), 100);
    check_tally(100, 0);
}

/* ---- counting ---- */

/* One slot at the end of its count; what it had is carried over and nothing is counted twice. */
static void fill_and_empty(size_t i, bool by_withdrawing)
{
    store_relaxed(&lane->tail, 5);
    submit(i);
    cr_assert_eq(origin_of(&node[i]), 5);
    if (by_withdrawing)
        cr_assert(lane_withdraw(&lanes, &node[i]));
    else
        cr_assert_eq(sweep(), 1);
}

static void count_over_the_carry(bool by_withdrawing)
{
    const uint64_t preset = COUNT_MAX - 3;

    store_relaxed(&lane->ring[5], packed_make(NULL, preset));
    store_relaxed(&lane->taken[0], by_withdrawing ? 0 : preset);
    for (uint64_t i = 1; i <= 8; i++) {
        fill_and_empty(i, by_withdrawing);
        check_tally(preset + i, by_withdrawing ? preset + i : 0);
    }
    cr_assert_eq(load_relaxed(&lane->carried), COUNT_MAX);
    cr_assert_eq(packed_bits(load_relaxed(&lane->ring[5])), 5);
}

Test(lane, the_count_of_a_slot_is_carried_when_withdrawn)
{
    count_over_the_carry(true);
}

Test(lane, the_count_of_a_slot_is_carried_when_swept)
{
    count_over_the_carry(false);
}

Test(lane, counts_in_any_mixture)
{
    uint64_t random = test_seed("lane"), scheduled = 0, withdrawn = 0;
    size_t oldest = 0;

    for (unsigned step = 0; step < 20000; step++) {
        size_t i = scheduled % node_count;
        if (scheduled - oldest == node_count || test_random_below(&random, 1000) == 0) {
            sweep();
            spilled();
            oldest = scheduled;
            check_tally(scheduled, withdrawn);
        }
        submit(i);
        scheduled++;
        if (test_random_below(&random, 3))
            withdrawn += lane_withdraw(&lanes, &node[i]);
    }
    check_tally(scheduled, withdrawn);
}

/* ---- notices ---- */

Test(lane, notices_come_in_a_chain)
{
    size_t count = 0;

    cr_assert_null(lane_take_notices(lane));
    for (size_t i = 0; i < 3; i++)
        lane_notify(lane, &node[i]);
    cr_assert(lane_has_mail(lane));
    for (hwt_timeout *timeout = lane_take_notices(lane); timeout;
         timeout = timeout_next_linked(timeout))
        count += 1u << (timeout - node) * 4;
    cr_assert_eq(count, 0x111, "each once");
    cr_assert_not(lane_has_mail(lane));
    cr_assert_null(lane_take_notices(lane));
}

/* ---- stop ---- */

static size_t sweep_all(bool quiet)
{
    taken_count = 0;
    cr_assert_eq(lane_sweep_all(lane, take, &lanes), quiet);
    return taken_count;
}

static int submit_closed(size_t i)
{
    bool crowded = false;

    return lane_submit(&lanes, &node[i], 1000, &crowded);
}

/* G8: refused, or found by stop's sweep. */
Test(lane, closed_for_good)
{
    submit_range(0, 10);
    lane_close(lane);
    for (size_t i = 10; i < 200; i++)
        cr_assert_eq(submit_closed(i), -ESHUTDOWN);
    check_tally(10, 0);
    cr_assert(lane_withdraw(&lanes, &node[3]));
    check_tally(10, 1);
    cr_assert_eq(sweep_all(true), 9);
    check_tally(10, 1);
}

Test(lane, closed_when_full)
{
    submit_range(0, LANE_SLOTS);
    lane_close(lane);
    cr_assert_eq(submit_closed(LANE_SLOTS), -ESHUTDOWN);
    cr_assert_not(lane_has_mail(lane));
    cr_assert_eq(sweep_all(true), LANE_SLOTS);
    check_tally(LANE_SLOTS, 0);
}

/* Stop finds what sweeps for space have passed over, and does not trust the flags. */
Test(lane, sweep_all_looks_at_every_slot)
{
    submit_range(0, 300);
    sweep();
    submit_range(300, 400);
    memset((void *)lane->fresh, 0, sizeof lane->fresh);
    cr_assert_eq(sweep(), 0);
    cr_assert_eq(sweep_all(true), 100);
}

Test(lane, a_producer_on_its_way_to_the_spill)
{
    store_relaxed(&lane->spilling, 1);
    lane_close(lane);
    sweep_all(false);
    store_relaxed(&lane->spilling, 0);
    sweep_all(true);
}
