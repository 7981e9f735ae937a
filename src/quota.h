/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * max_pending: how many timeouts may be pending, counted only where there is a limit. Taken before
 * a submission, given back by whoever ends the timeout (G3).
 */
#ifndef HWT_QUOTA_H
#define HWT_QUOTA_H

#include "timer.h"

/* False: at the limit. */
static inline bool quota_take(hwt_timer *timer)
{
    uint64_t used;

    if (likely(!timer->max_pending))
        return true;
    used = load_relaxed(&timer->quota_used);
    do {
        if (used >= timer->max_pending)
            return false;
    } while (!cas_acq_rel(&timer->quota_used, &used, used + 1));
    return true;
}

/* How many are, for a timer with a limit. */
static inline uint64_t quota_used(const hwt_timer *timer)
{
    return load_acquire(&timer->quota_used);
}

/* A submission failed, or a timeout no longer counts as pending. */
static inline void quota_give(hwt_timer *timer)
{
    if (unlikely(timer->max_pending))
        sub_relaxed(&timer->quota_used, 1);
}

#endif
