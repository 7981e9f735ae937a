/* SPDX-License-Identifier: BSD-2-Clause */
#include "filing.h"

#include "extra.h"
#include "quota.h"

void file_adrift(hwt_timer *timer, hwt_timeout *timeout)
{
    timeout->place = PLACE_ADRIFT;
    timer->worker.adrift++;
}

/* Stop: hand it back, unless somebody else ended it, or a nudge for it is on its way. */
static void reclaim(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    if (!timeout_reclaim(timeout)) {
        file_adrift(timer, timeout);
        return;
    }
    quota_give(timer);
    bump_single_writer(&w->count.unprocessed, 1);
    timeout->link.next = w->reclaimed ? &w->reclaimed->link : NULL;
    w->reclaimed = timeout;
}

void file_timeout(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    if (unlikely(w->reclaiming))
        reclaim(timer, timeout);
    else if (unlikely(deadline <= w->pass_limit)) /* due, but submitted after what is running */
        wheel_bucket_insert(w->wheel, &w->wheel->overdue, timeout);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void file_in_order(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    if (unlikely(w->reclaiming))
        reclaim(timer, timeout);
    else if (deadline <= w->wheel->due_limit)
        wheel_bucket_insert(w->wheel, &w->due, timeout);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void file_bury(hwt_timer *timer, hwt_timeout *timeout)
{
    unsigned shard = timeout->origin >> LANE_BITS;

    if (!timeout_drop(timeout))
        return;
    if (unlikely(timeout->kind & KIND_EXTENDED) || shard >= timer->lanes.count) {
        timeout_free(timeout);
    } else { /* back to where it came from */
        poison_mark_dead(timeout);
        pool_return_add(&timer->worker.returns[shard], shard, timeout);
    }
}

void file_flush_returns(hwt_timer *timer)
{
    for (unsigned i = 0; i < timer->lanes.count; i++)
        pool_return_flush(&timer->worker.returns[i], i);
}
