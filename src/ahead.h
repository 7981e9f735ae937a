/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking ahead. Where much lies in lanes that is far away, all of it cannot be looked through when
 * the first of it comes due: the worker begins earlier (lead.h), and does a portion between two
 * passes. Only the worker, or whoever acts as the worker, and not while tasks run.
 */
#ifndef HWT_AHEAD_H
#define HWT_AHEAD_H

#include "lead.h"

/* A portion. False: there is none to be done now. */
bool ahead_look_now(hwt_timer *timer);
static inline bool ahead_may_look(const hwt_timer *timer)
{
    return unlikely(timer->worker.look.segment || lead_at_most(timer) > 0);
}
static inline bool ahead_look(hwt_timer *timer)
{
    return ahead_may_look(timer) && ahead_look_now(timer);
}
/* One, and others until so much time has passed since the pass began. */
void ahead_look_on_now(hwt_timer *timer, uint64_t ns);
static inline void ahead_look_on(hwt_timer *timer, uint64_t ns)
{
    if (ahead_may_look(timer))
        ahead_look_on_now(timer, ns);
}
/* So long before the deadline of what is submitted while he sleeps the worker wants to be awake. */
uint64_t ahead_warning(const hwt_timer *timer);
/* When there is one, or when it should be asked again, if that is before `until`; or UINT64_MAX. */
uint64_t ahead_time(hwt_timer *timer, uint64_t until);

#endif
