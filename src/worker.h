/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker: between passes (pass.h) it plans when to wake up, and sleeps. A thread of its own
 * calls worker_main; a thread of the caller's (drive.c) calls the pass itself, and has a descriptor
 * set to what is planned.
 */
#ifndef HWT_WORKER_H
#define HWT_WORKER_H

#include "driver.h"

void *worker_main(void *timer);
/* Who drives for a descriptor: that was a wake-up, since something was due. */
void worker_was_woken(hwt_timer *timer);
/* Who drives, and no more: the descriptor, if there is one, is set to what comes next. */
void worker_hand_over_fd(hwt_timer *timer);
static inline void worker_hand_over(hwt_timer *timer)
{
    if (unlikely(park_has_fd(&timer->park)) || unlikely(!driver_end_unless_missed(timer)))
        worker_hand_over_fd(timer);
}
/*
 * The same as a guard's way out of what called tasks or a visitor, also if one of them threw, ended
 * its thread, or has forked, and this is the child.
 */
void worker_stop_driving(void *timer);

#endif
