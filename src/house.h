/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * House-keeping: memory that a peak needed and nobody needs any more goes back to the system, and
 * what a growing timer will need next is mapped and has its pages before. Both are system calls,
 * during which others may wait: so where there is a worker it is he who does that, and no
 * submission does if he has time. Whoever goes through a part of a segment and sees that there is
 * something asks him (lane.c). Where the caller drives, submissions give back themselves, a piece
 * each, and meet pages as they need them. What the wheel needs is the business of who files, on
 * whatever thread.
 */
#ifndef HWT_HOUSE_H
#define HWT_HOUSE_H

#include "timer.h"

/* Of a timer (lanes.ask_keeper): unless he has been asked, and is not done with it. Any thread. */
void house_ask(void *keeper, enum wish wish);

/* ---- only the worker, or who acts as the worker, between two passes ---- */

/* What the wheel will need next; but not for who comes when he likes: he may not be in haste. */
void house_make_wheel_ready(hwt_timer *timer);
static inline void house_look_to_wheel(hwt_timer *timer)
{
    if (wheel_runs_low(timer->worker.wheel) && load_relaxed(&timer->park.kind) != PARK_NONE)
        house_make_wheel_ready(timer);
}

/* ---- only a worker ---- */

/* He has been asked. */
static inline void house_begin(hwt_timer *timer)
{
    timer->worker.house.open = true;
}
/* The next memory that will be needed. */
void house_make_ready(hwt_timer *timer);
/* A piece of it, if it is time for one. */
void house_keep_now(hwt_timer *timer);
static inline void house_keep(hwt_timer *timer)
{
    if (unlikely(timer->worker.house.open))
        house_keep_now(timer);
}
/* Before he sleeps: once in a while he looks himself whether there is something. */
void house_look_now(hwt_timer *timer, uint64_t now);
static inline void house_look(hwt_timer *timer, uint64_t now)
{
    if (unlikely(now >= timer->worker.house.look))
        house_look_now(timer, now);
}
/* When the next one is to be done; or UINT64_MAX. */
static inline uint64_t house_time(const hwt_timer *timer)
{
    return likely(!timer->worker.house.open) ? UINT64_MAX : timer->worker.house.next;
}

#endif
