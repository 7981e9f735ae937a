/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * max_pending: how many timeouts may be pending, counted only where there is a limit. A submission
 * takes a place before anything else, and whoever ends the timeout gives it back (G3).
 *
 * What is free lies with the lanes, all of it with the common one at first. Each CPU takes from its
 * own lane, and gives to it, so in the steady state no two producers write the same line; who finds
 * nothing there takes a place from another lane, one at a time (C27).
 */
#ifndef HWT_QUOTA_H
#define HWT_QUOTA_H

#include "timer.h"

/* `quota` of a lane: free places, and above them how often one was given. */
#define QUOTA_BITS  40
#define QUOTA_FREE  ((UINT64_C(1) << QUOTA_BITS) - 1) /* no address space has room for more */
#define QUOTA_GIVEN (UINT64_C(1) << QUOTA_BITS)

/* When the lanes are there. */
void quota_open(hwt_timer *timer);
/* This lane has none: from any. False: at the limit. */
bool quota_take_elsewhere(struct lanes *lanes, struct lane *lane);
/*
 * How many are taken, for a timer with a limit. Not too few; as many too many as are given while
 * this looks.
 */
uint64_t quota_used(const hwt_timer *timer);

/* Of this CPU, or the common one: whoever submits makes it. */
static inline struct lane *quota_lane_here(const hwt_timer *timer)
{
    return lanes_of_cpu(&timer->lanes, lanes_index_here(&timer->lanes));
}

/* Where it was submitted. A hint: of a few CPUs, or by now another one's. */
static inline struct lane *quota_lane_of(const hwt_timer *timer, const hwt_timeout *timeout)
{
    return lanes_of_cpu(&timer->lanes, timeout_lane(timeout) & (timer->lanes.count - 1));
}

static inline void quota_give_to(struct lane *lane)
{
    add_seq(&lane->quota, QUOTA_GIVEN + 1); /* who finds none looks whether it was (C27) */
}

/* False: *quota is what it was when there was none. */
HOT bool quota_take_one(struct lane *lane, uint64_t *quota)
{
    *quota = load_seq(&lane->quota);
    while (likely(*quota & QUOTA_FREE)) {
        if (likely(cas_seq(&lane->quota, quota, *quota - 1)))
            return true;
    }
    return false;
}

/* From this lane if it has any, else from any. False: at the limit. */
static inline bool quota_take_from(hwt_timer *timer, struct lane *lane)
{
    uint64_t quota;

    return quota_take_one(lane, &quota) || quota_take_elsewhere(&timer->lanes, lane);
}

/* False: at the limit. */
static inline bool quota_take(hwt_timer *timer)
{
    return likely(!timer->max_pending) || quota_take_from(timer, quota_lane_here(timer));
}

/* By its task, which re-arms it: the place that it had just given back, mostly. */
static inline bool quota_take_again(hwt_timer *timer, const hwt_timeout *timeout)
{
    return likely(!timer->max_pending) || quota_take_from(timer, quota_lane_of(timer, timeout));
}

/* A submission failed, or this thread has cancelled a timeout. */
static inline void quota_give(hwt_timer *timer)
{
    if (unlikely(timer->max_pending))
        quota_give_to(quota_lane_here(timer));
}

/* It has ended by its run, or is handed back: its place will be needed where it came from. */
static inline void quota_give_back(hwt_timer *timer, const hwt_timeout *timeout)
{
    if (unlikely(timer->max_pending))
        quota_give_to(quota_lane_of(timer, timeout));
}

#endif
