/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker: between passes (pass.h) it plans when to wake up, and sleeps. A thread of its own
 * calls worker_main; a thread of the caller's (drive.c) calls the pass itself, and has a descriptor
 * set to what is planned.
 */
#ifndef HWT_WORKER_H
#define HWT_WORKER_H

#include "timer.h"

void *worker_main(void *timer);
/* Publishes the next wake-up; false: something has come up, do not sleep. */
bool worker_plan(hwt_timer *timer, uint64_t *wake_before);
/* Who drives for a descriptor: that was a wake-up, since something was due. */
void worker_was_woken(hwt_timer *timer);
/*
 * Who drives: the descriptor is set to the next deadline, or a little later if wake-ups are many,
 * or to now if something has come up.
 */
void worker_arm_fd(hwt_timer *timer);
static inline void worker_arm(hwt_timer *timer)
{
    if (unlikely(park_has_fd(&timer->park)))
        worker_arm_fd(timer);
}
/*
 * He drives no more: a guard's way out of what called tasks or a visitor, also if one of them
 * threw, ended its thread, or has forked, and this is the child.
 */
void worker_stop_driving(void *timer);

#endif
