/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting while the worker is between any two of the steps in which it takes a timeout out of its
 * slot, for as long as it likes: the count is right and comes at once (G3).
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "submit.h"
#include "support.h"

enum { MANY = 1000, AT = 70 };

static struct lanes lanes;
static struct lane *lane;
static hwt_timeout *node;

static void open_lanes(void)
{
    test_arm();
    cr_assert_eq(lanes_create(&lanes, 1, 0), 0);
    lane = &lanes.lane[0];
    node = aligned_alloc(CACHE_LINE, MANY * sizeof *node);
    cr_assert(node);
    memset((void *)node, 0, MANY * sizeof *node);
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_eq(lane_submit(&lanes, &node[i], 1000), 0);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
}

TestSuite(lane_count, .init = open_lanes, .fini = close_lanes);

static void check_tally(uint64_t withdrawn)
{
    uint64_t start = real_now(CLOCK_THREAD_CPUTIME_ID);
    struct lane_tally tally = lane_count(lane);

    cr_assert_eq(tally.scheduled, MANY);
    cr_assert_eq(tally.withdrawn, withdrawn);
    cr_assert_lt(real_now(CLOCK_THREAD_CPUTIME_ID) - start, HWT_MSEC(5));
}

static uint32_t slot_of(const hwt_timeout *timeout)
{
    lane_slot *slot = lane_slot_of_where(load_relaxed(&timeout->where));

    cr_assert_not_null(slot);
    return (uint32_t)(slot - lane->first->slot);
}

/* What take_slot does, with a look after each step; the group's count is even, then odd. */
static void take_in_steps(unsigned at)
{
    _Atomic uint64_t *slot = &lane->first->slot[slot_of(&node[at])];
    _Atomic uint64_t *taken = &lane->first->taken[slot_of(&node[at]) / GROUP_SLOTS];
    uint64_t held = load_seq(slot), count = load_seq(taken);

    cr_assert_eq(packed_timeout(held), &node[at]);
    store_seq(slot, slot_being_taken(slot_emptied(held), count));
    check_tally(0);
    cr_assert_not(lane_withdraw(&node[at]), "a canceller comes too late");
    store_seq(taken, count + 1);
    check_tally(0);
    store_seq(slot, slot_emptied(held));
    check_tally(0);
}

Test(lane_count, between_the_steps)
{
    take_in_steps(AT);
    take_in_steps(AT + 1);
    take_in_steps(AT + 2);
    take_in_steps(0);
    take_in_steps(MANY - 1);
}

/* A producer steps over a slot that is being taken, as over one that is filled. */
Test(lane_count, beside_a_producer)
{
    _Atomic uint64_t *slot = &lane->first->slot[5];
    uint64_t held = load_seq(slot);
    hwt_timeout *other = aligned_alloc(CACHE_LINE, sizeof *other);

    cr_assert(other);
    store_seq(slot, slot_being_taken(slot_emptied(held), 0));
    store_relaxed(&lane->tail[0], lane->first->slot + 5);
    cr_assert_eq(lane_submit(&lanes, other, 1000), 0);
    cr_assert_neq(slot_of(other), 5);
    cr_assert_eq(lane_count(lane).scheduled, MANY + 1);
    free(other);
}

/* ---- at a segment's end ---- */

/*
 * Who schedules and cancels one timeout after the other goes round all the same: once a lap memory
 * is given back (G6), and another segment may be the next.
 */
Test(lane_rounds, pairs_go_round)
{
    uint64_t last = 0;
    hwt_timer *timer;

    test_arm();
    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    for (unsigned i = 0; i < 5 * LANE_SLOTS; i++) {
        hwt_timeout *timeout;
        uint64_t where;
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), &timeout), 0);
        where = load_relaxed(&timeout->where);
        cr_assert_neq(where, last, "pair %u: the tail stays", i);
        last = where;
        cr_assert(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
