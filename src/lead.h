/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lead: how long before the first of what is far away comes due all of it has to be looked
 * through, so that what is due by then is found in its turn. Only the worker, or whoever acts as
 * the worker.
 */
#ifndef HWT_LEAD_H
#define HWT_LEAD_H

#include "timer.h"

/*
 * By how much was ever filled. 0: so little that it can wait until it is due; or nobody sleeps, and
 * who drives comes when he likes.
 */
uint64_t lead_for(uint64_t groups);
static inline uint64_t lead_at_most(const hwt_timer *timer)
{
    uint64_t groups = load_seq(&timer->lanes.store.far_groups);

    if (likely(groups < AHEAD_FROM) || load_relaxed(&timer->park.kind) == PARK_NONE)
        return 0;
    return lead_for(groups);
}
/* So often it is measured, when that is at most `most`. */
uint64_t lead_period(uint64_t most);
/* By what was measured lately, or is now. */
uint64_t lead_time(hwt_timer *timer, uint64_t now);

#endif
