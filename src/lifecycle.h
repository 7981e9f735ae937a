/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer's life. */
#ifndef HWT_LIFECYCLE_H
#define HWT_LIFECYCLE_H

#include "timer.h"

/* Ready for submissions: started if need be. 0 or a negative errno. Any thread. */
int lifecycle_begin(hwt_timer *timer);
/* Before its end: a drain that was cut short has left it (stop.c). */
void stop_await_drains(hwt_timer *timer);
/*
 * On the worker's thread, which a callback is ending: first, before anybody else hears of that, no
 * submission is accepted any more; last, nothing will run any more, and all are told.
 */
void lifecycle_close_lost(hwt_timer *timer);
void lifecycle_lose_worker(hwt_timer *timer);
/*
 * In a forked child: out of a call that was on at the fork, because a callback has forked and
 * returned. Nothing of the timer is touched any more. -ECHILD.
 */
int lifecycle_leave_in_child(hwt_timer *timer);

#endif
