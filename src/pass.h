/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pass: what the lanes hold is taken in, the wheel advances, and what is due is run. Only the
 * worker, or whoever acts as the worker.
 */
#ifndef HWT_PASS_H
#define HWT_PASS_H

#include "timer.h"

/*
 * Takes in what was submitted and runs what is due by now: of the tick that is not over what is
 * sparse, or, with `exact`, all. The number of tasks run.
 */
int pass_run(hwt_timer *timer, bool exact);

/* Whoever drives: stopped, or drained; or this is the child of a task that has forked. */
HOT bool pass_must_leave(const hwt_timer *timer)
{
    return unlikely(load_relaxed(&timer->phase) >= PHASE_DRAINED) || !timer_is_ours(timer);
}

/* Closed, and what is periodic has not been ended yet: none of it begins another run. */
HOT bool pass_has_to_drain(const hwt_timer *timer)
{
    return load_relaxed(&timer->phase) == PHASE_DRAINING &&
           timer->worker.reclaiming == RECLAIM_NONE;
}

#endif
