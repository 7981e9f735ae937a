/* SPDX-License-Identifier: BSD-2-Clause */
#include "quota.h"

#define TRIES 4 /* to count, while places are given */

void quota_open(hwt_timer *timer)
{
    store_relaxed(&timer->lanes.common->quota, timer->max_pending);
}

/* False: none had any when it was looked at. *given: how often places had been given to them. */
static bool take_any(struct lanes *lanes, struct lane *own, uint64_t *given)
{
    struct lane *lane;
    uint64_t quota;

    *given = 0;
    for (unsigned i = 0; (lane = lanes_next_made(lanes, &i)) != NULL;) {
        if (quota_take_one(lane, &quota)) {
            store_relaxed(&own->lender, lane->index);
            return true;
        }
        *given += quota >> QUOTA_BITS;
    }
    return false;
}

/*
 * C27: a place is always with a lane, or taken. So if no lane had any, twice, and none was given in
 * between, there was a moment at which all were taken.
 */
bool quota_take_elsewhere(struct lanes *lanes, struct lane *own)
{
    uint64_t before, given, quota;

    if (quota_take_one(lanes_at(lanes, load_relaxed(&own->lender)), &quota))
        return true;
    if (take_any(lanes, own, &given))
        return true;
    do {
        before = given;
        if (take_any(lanes, own, &given))
            return true;
    } while (given != before);
    return false;
}

/* *given as above. */
static uint64_t count_free(const struct lanes *lanes, uint64_t *given)
{
    const struct lane *lane;
    uint64_t count = 0;

    *given = 0;
    for (unsigned i = 0; (lane = lanes_next_made(lanes, &i)) != NULL;) {
        uint64_t quota = load_seq(&lane->quota);
        count += quota & QUOTA_FREE;
        *given += quota >> QUOTA_BITS;
    }
    return count;
}

/*
 * C27: what is found free was so between the two looks, but for what has been given since the first
 * one, which may have been found in two places.
 */
uint64_t quota_used(const hwt_timer *timer)
{
    uint64_t given, before, count, more;
    unsigned tries = 0;

    count_free(&timer->lanes, &given);
    do {
        before = given;
        count = count_free(&timer->lanes, &given);
        more = (given - before) & (UINT64_MAX >> QUOTA_BITS);
    } while (more > 0 && ++tries < TRIES);
    return timer->max_pending - (count - min_u64(count, more));
}
