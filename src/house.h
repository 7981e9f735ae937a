/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * House-keeping: memory that a peak needed and nobody needs any more goes back to the system. Each
 * piece is a system call, during which other threads of the process may wait: so where there is a
 * worker it is he who does that, a small part of his time, and no submission does. Whoever goes
 * through a part of a segment and sees that there is something asks him (lane.c). Where the caller
 * drives, submissions do it themselves, a piece each.
 */
#ifndef HWT_HOUSE_H
#define HWT_HOUSE_H

#include "timer.h"

/* Of a timer (lanes.ask_keeper): unless he has been asked, and is not done with it. Any thread. */
void house_ask(void *keeper);

/* ---- only the worker, between two passes ---- */

/* He has been asked. */
static inline void house_begin(hwt_timer *timer)
{
    timer->worker.house.open = true;
}
/* A piece of it, if it is time for one. */
void house_keep_now(hwt_timer *timer);
static inline void house_keep(hwt_timer *timer)
{
    if (unlikely(timer->worker.house.open))
        house_keep_now(timer);
}
/* When the next one is to be done; or UINT64_MAX. */
static inline uint64_t house_time(const hwt_timer *timer)
{
    return likely(!timer->worker.house.open) ? UINT64_MAX : timer->worker.house.next;
}

#endif
