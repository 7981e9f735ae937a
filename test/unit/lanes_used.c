/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which lanes are looked at: those of which anything was ever told (C21). On a machine with more
 * CPUs than this one has.
 */
#include <criterion/criterion.h>

#include "submit.h"
#include "support.h"

#define MANY 256

static struct lanes lanes;
static hwt_timeout *node;

static void open_lanes(void)
{
    test_arm();
    cr_assert_eq(lanes_create(&lanes, MANY, 0), 0);
    cr_assert_eq(lanes.count, MANY);
    node = aligned_alloc(CACHE_LINE, sizeof *node);
    cr_assert_not_null(node);
    memset((void *)node, 0, sizeof *node);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
}

TestSuite(lanes_used, .init = open_lanes, .fini = close_lanes);

/* They are found one by one, in their order, and no others. */
static void check_used(const unsigned *wanted, size_t count)
{
    const struct lane *lane;
    size_t found = 0;

    for (unsigned i = 0; (lane = lanes_next_used(&lanes, &i)) != NULL; found++) {
        cr_assert_lt(found, count, "lane %td too", lane - lanes.room);
        cr_assert_eq(lane, &lanes.room[wanted[found]], "lane %td", lane - lanes.room);
    }
    cr_assert_eq(found, count);
}

Test(lanes_used, none_at_first)
{
    check_used(NULL, 0);
    cr_assert_eq(lanes_earliest(&lanes), UINT64_MAX);
}

/* At both ends of the words that they are written down in, and beside each other. */
Test(lanes_used, each_by_itself)
{
    static const unsigned in_order[] = {0, 1, 62, 63, 64, 65, 127, 128, 200, 255};
    static const unsigned as_used[] = {128, 0, 255, 63, 62, 65, 200, 64, 1, 127};

    for (size_t i = 0; i < COUNT_OF(as_used); i++)
        lane_use(lanes_own(&lanes, as_used[i]));
    check_used(in_order, COUNT_OF(in_order));
    for (size_t i = 0; i < COUNT_OF(as_used); i++)
        lane_use(lanes_own(&lanes, as_used[i])); /* once more, which changes nothing */
    check_used(in_order, COUNT_OF(in_order));
}

/* G4: what a submission tells is looked for. */
Test(lanes_used, by_a_submission)
{
    unsigned here;

    cr_assert_eq(lane_submit(&lanes, node, 77), 0);
    here = (unsigned)(segment_of(lane_slot_of_where(node->where))->lane - lanes.room);
    check_used(&here, 1);
    cr_assert_eq(lanes_earliest(&lanes), 77);
}

/* Of a lane that is used already it tells nothing twice, of one that is not the lane itself. */
Test(lanes_used, by_a_deadline)
{
    static const unsigned wanted[] = {3, 70};
    struct lane *third = lanes_own(&lanes, 3), *other = lanes_own(&lanes, 70);

    lane_announce(third, third->first, 50);
    check_used(wanted, 1);
    lane_announce(third, third->first, 40);
    lane_announce(third, third->first, 60);
    check_used(wanted, 1);
    lane_announce(other, other->first, DEADLINE_NEVER);
    check_used(wanted, 2);
    cr_assert_eq(lanes_earliest(&lanes), 40);
}

/* G6: a notice is found wherever its sender runs. */
Test(lanes_used, by_a_notice)
{
    static const unsigned wanted[] = {200};

    lane_notify(lanes_own(&lanes, 200), node);
    check_used(wanted, 1);
    cr_assert_eq(lane_take_notice(lanes_own(&lanes, 200)), node);
    check_used(wanted, 1); /* for good */
}

/* G4 */
Test(lanes_used, by_what_a_nudge_speaks_of)
{
    static const unsigned wanted[] = {129};

    lane_tell_moved(lanes_own(&lanes, 129), 5);
    check_used(wanted, 1);
    cr_assert_eq(load_seq(&lanes.room[129].moved), 5);
}

/* And there is room for as many as there are places. */
Test(lanes_used, by_a_run_that_is_rearmed)
{
    static const unsigned wanted[] = {64};
    struct lane *lane = lanes_own(&lanes, 64);
    rearmed_place *at[LANE_REARMED];

    for (unsigned i = 0; i < LANE_REARMED; i++) {
        at[i] = lane_show_rearmed(lane, node);
        cr_assert_not_null(at[i]);
        cr_assert_eq(load_acquire(at[i]), node);
        for (unsigned other = 0; other < i; other++)
            cr_assert_neq(at[i], at[other]);
        check_used(wanted, 1);
    }
    cr_assert_null(lane_show_rearmed(lane, node));
    store_release(at[3], NULL);
    cr_assert_eq(lane_show_rearmed(lane, node), at[3]);
}

/* Every slot of every lane: stop does not go by what was told. */
static void take(void *context, hwt_timeout **found, unsigned count)
{
    cr_assert_eq(count, 1);
    *(hwt_timeout **)context = found[0];
}

Test(lanes_used, stop_sees_what_was_not_told)
{
    struct lane *lane = lanes_own(&lanes, 9);
    lane_slot *slot = lane->first->slot;
    hwt_timeout *found = NULL;

    cr_assert_neq(lane_try_slot(slot, node, 0), 0);
    lane_mark_fresh(lane->first, slot); /* and its submitter is preempted */
    check_used(NULL, 0);
    lane_close(lane);
    cr_assert(lane_sweep_all(lane, false, take, &found));
    cr_assert_eq(found, node);
}
