/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Submission, as far as every one goes: into the slot at the lane's tail, and the worker is told.
 * Part of schedule.c, into which it is inlined, and of lane.c, which has what is rare.
 */
#ifndef HWT_SUBMIT_H
#define HWT_SUBMIT_H

#include "lane.h"

#define SLOTS_AHEAD 16 /* the prefetch of the ring */
#define LANE_GROWN  1  /* accepted, and the worker should plan anew (lane_mark_fresh) */

/* How many by this thread, to all timers, times what a lane's number takes. */
extern HIDDEN _Thread_local uint64_t lane_submissions;

/* ---- the rest: lane.c ---- */
lane_slot *lane_next_segment(struct segment *segment); /* the first slot there */
lane_slot *lane_go_on_after(lane_slot *slot);          /* the last one of a part, or segment */
int lane_submit_further(struct lanes *lanes, struct lane *lane, hwt_timeout *timeout,
                        uint64_t deadline);
/* To the spill. 0, or -ESHUTDOWN. */
int lane_submit_aside(struct lane *lane, hwt_timeout *timeout, uint64_t deadline);
int lane_settle(lane_slot *slot, uint64_t filled);
/* A tail that has stayed on the last slot of a part goes on. */
void lane_turn(struct lane *lane, lane_slot *slot);

HOT void lane_lower(_Atomic uint64_t *bound, uint64_t deadline)
{
    uint64_t earliest = load_seq(bound);

    while (unlikely(deadline < earliest)) {
        if (cas_seq(bound, &earliest, deadline))
            return;
    }
}

/*
 * The timeout lies in its slot by now (C3): the worker takes `earliest`, the lane's and then the
 * segment's, and then looks.
 */
HOT void lane_announce(struct lane *lane, struct segment *segment, uint64_t deadline)
{
    lane_lower(&segment->earliest, deadline);
    if (unlikely(deadline < load_seq(&lane->earliest))) {
        lane_use(lane);
        lane_lower(&lane->earliest, deadline);
    }
}

/* What a slot holds when it has been filled. `met`: SLOT_MET, or 0. */
HOT uint64_t slot_filled(uint64_t empty, const hwt_timeout *timeout, uint64_t met)
{
    return empty | (uint64_t)(uintptr_t)timeout | met;
}

static inline uint64_t slot_unfilled(uint64_t filled)
{
    return filled & ~PACKED_ADDRESS;
}

/* Fills a slot that was empty, and held this. False: it is not any more. */
HOT bool lane_fill(lane_slot *slot, hwt_timeout *timeout, uint64_t empty, uint64_t met)
{
    if (unlikely(met)) /* in one order with those who look for it (lane_withdraw_met) */
        store_seq(&timeout->where, where_of_lane_slot(slot));
    else
        store_relaxed(&timeout->where, where_of_lane_slot(slot));
    /* publishes the timeout to whoever empties the slot; seq_cst for C2 to C4 */
    return cas_seq(slot, &empty, slot_filled(empty, timeout, met));
}

/* The same, if it is empty, with room for its count; what it holds then, or 0: it was not. */
HOT uint64_t lane_try_slot(lane_slot *slot, hwt_timeout *timeout, uint64_t met)
{
    uint64_t empty = load_relaxed(slot);

    if (packed_timeout(empty))
        return 0;
    if (unlikely(empty == packed_make(NULL, SLOT_COUNT_MAX))) {
        if (!segment_carry_part(slot))
            return 0;
        empty = 0;
    }
    return lane_fill(slot, timeout, empty, met) ? slot_filled(empty, timeout, met) : 0;
}

/*
 * The group is known to the next sweep: the flag is read after the slot was filled (C2). True: so
 * much more than before is in far segments that the worker should plan anew.
 */
HOT bool lane_mark_fresh(struct segment *segment, const lane_slot *slot)
{
    unsigned group = segment_group_of(slot);
    bool grown;

    if (likely(segment_slot_is_flagged(slot)))
        return false;
    grown = segment_raise_groups(segment, group + 1);
    segment_raise_flag(segment, group);
    return grown;
}

HOT lane_slot *lane_slot_after(lane_slot *slot)
{
    return unlikely(segment_part_ends_at(slot + 1)) ? lane_go_on_after(slot) : slot + 1;
}

/*
 * The tail is no more than a hint where to go on: it is not raised atomically, and threads that
 * share a lane may set it back. Whoever finds a slot taken tries the next one, and after a few
 * leaps ahead by ever larger steps, because what stands in the way stands together: the timeouts
 * of a thread that is not running just now.
 */
HOT lane_slot *lane_next_slot(_Atomic(lane_slot *) *tail, unsigned probe)
{
    lane_slot *slot = load_acquire(tail); /* with the segment that it is in */

    if (unlikely(probe > STEPS)) {
        size_t step = (size_t)GROUP_SLOTS << (probe - STEPS - 1);
        size_t here = (size_t)(slot - segment_of(slot)->slot);
        slot = here + step < LANE_SLOTS ? slot + step : lane_next_segment(segment_of(slot));
    }
    store_release(tail, lane_slot_after(slot));
    __builtin_prefetch((const void *)(slot + SLOTS_AHEAD), 1);
    return slot;
}

/*
 * A branch that is foreseen, where a selection would keep the tail and its slot waiting for the
 * clock: the deadline is the last thing that is known.
 */
HOT _Atomic(lane_slot *) *lane_tail_for(const struct lanes *lanes, struct lane *lane,
                                        uint64_t deadline)
{
    _Atomic(lane_slot *) *tail = &lane->tail[0];

    if (deadline >= load_relaxed(&lanes->far_from)) {
        tail = &lane->tail[1];
        __asm__("" : "+r"(tail)); /* keeps this a branch */
    }
    return tail;
}

/* In its slot: now the worker must hear of it, and it must not have been too late. */
HOT int lane_publish(struct lane *lane, lane_slot *slot, uint64_t filled, uint64_t deadline)
{
    struct segment *segment = segment_of(slot);
    bool grown = lane_mark_fresh(segment, slot);

    lane_announce(lane, segment, deadline);
    if (unlikely(load_seq(&lane->closed))) /* after the slot was filled: pairs with lane_close */
        return lane_settle(slot, filled);
    return unlikely(grown) ? LANE_GROWN : 0;
}

/*
 * As lane_publish, if there is nothing to do. False: there is, or may be, or the tail has stayed;
 * nothing has been done.
 */
HOT bool lane_is_told(const lane_slot *slot, uint64_t deadline)
{
    const struct segment *segment = segment_of(slot);
    const struct lane *lane = segment->lane;

    return likely(segment_slot_is_flagged(slot)) &&
           likely(deadline >= load_seq(&segment->earliest)) &&
           likely(deadline >= load_seq(&lane->earliest)) && likely(!load_seq(&lane->closed)) &&
           likely(!segment_part_ends_at(slot + 1));
}

/*
 * The slot that is next, and what it holds. False: it cannot be filled at once, lane_submit has
 * more to do. It changes nothing.
 */
HOT bool lane_look(_Atomic(lane_slot *) *tail, lane_slot **slot, uint64_t *empty)
{
    *slot = load_acquire(tail); /* with the segment that it is in */
    *empty = load_relaxed(*slot);
    return likely(!packed_timeout(*empty)) && likely(*empty != packed_make(NULL, SLOT_COUNT_MAX));
}

/* At the end of a part of a segment the tail stays, until lane_turn. */
HOT void lane_pass(_Atomic(lane_slot *) *tail, lane_slot *slot)
{
    if (likely(!segment_part_ends_at(slot + 1)))
        store_release(tail, slot + 1);
    __builtin_prefetch((const void *)(slot + SLOTS_AHEAD), 1);
}

/* The order among equal deadlines (G15), and the lane. */
HOT uint64_t lane_stamp(unsigned index)
{
    lane_submissions += 1u << STAMP_LANE_BITS;
    return lane_submissions | (index & ((1u << STAMP_LANE_BITS) - 1));
}

/*
 * Submits; the timeout is the worker's from here on. 0, or -ESHUTDOWN when closed. The caller then
 * compares the deadline with the planned wake-up (park_wake_for), or, after LANE_GROWN, ends the
 * sleep that is on.
 */
HOT int lane_submit(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline)
{
    unsigned index = lanes_index_here(lanes);
    struct lane *lane = lanes_own(lanes, index);
    uint64_t filled;
    lane_slot *slot;

    timeout->stamp = lane_stamp(index);
    if (unlikely(lane == lanes->common))
        return lane_submit_aside(lane, timeout, deadline);
    slot = lane_next_slot(lane_tail_for(lanes, lane, deadline), 0);
    filled = lane_try_slot(slot, timeout, 0);
    if (unlikely(!filled))
        return lane_submit_further(lanes, lane, timeout, deadline);
    return lane_publish(lane, slot, filled, deadline);
}

#endif
