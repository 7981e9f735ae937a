/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a run on the worker and one on an executor's thread have in common. For run.c and run_job.c
 * alone.
 */
#ifndef HWT_RUN_PARTS_H
#define HWT_RUN_PARTS_H

#include "quota.h"
#include "release.h"
#include "run.h"

/* ---- counting ---- */

/* A run that may be the last ends it as far as the counts go, before its task is called. */
HOT void count_end(hwt_timer *timer, const hwt_timeout *timeout, bool elsewhere)
{
    if (elsewhere)
        add_release(&lanes_here(&timer->lanes)->expired, 1);
    else
        bump_release(&timer->worker.count.expired, 1);
    quota_give_back(timer, timeout);
}

static inline uint64_t late(uint64_t now, uint64_t deadline)
{
    return now > deadline ? now - deadline : 0;
}

HOT void count_run(hwt_timer *timer, const hwt_timeout *timeout, uint64_t now, bool elsewhere)
{
    if (elsewhere)
        add_relaxed(&lanes_here(&timer->lanes)->runs, 1);
    else
        bump_single_writer(&timer->worker.count.runs, 1);
    count_lateness(&timer->run_count, late(now, timeout_deadline(timeout)), timer->execute != NULL);
}

/* ---- one run ---- */

/* Tells the log. */
void run_tell_slow(hwt_timer *timer, hwt_task *task, uint64_t took);
HOT void call_task(hwt_timer *timer, hwt_timeout *timeout)
{
    uint64_t started, ended;

    if (likely(!timer->slow_task_ns)) {
        timeout->task(timeout, timeout_arg(timeout));
        return;
    }
    started = timer_now(timer);
    if (!timer_is_ours(timer)) /* the clock is the caller's, and has forked */
        return;
    timeout->task(timeout, timeout_arg(timeout));
    ended = timer_now(timer);
    if (timer_is_ours(timer) && ended > started && /* it may have gone back */
        ended - started > timer->slow_task_ns)
        run_tell_slow(timer, timeout->task, ended - started);
}

/* G14. Later than any phase of the past that was missed, if those are to be skipped. */
uint64_t run_next_period(const hwt_timer *timer, const hwt_timeout *timeout);
HOT uint64_t next_run(const hwt_timer *timer, const hwt_timeout *timeout)
{
    return unlikely(timeout->flags & FLAG_PERIODIC) ? run_next_period(timer, timeout)
                                                    : DEADLINE_NEVER;
}

/* ---- not the common way ---- */

/*
 * A run did not return: calls its timeout's hook, if it is owed one, and then `rest`, even if that
 * did not return either.
 */
void run_abandon_current(struct run_frame *frame, void (*rest)(void *frame));
/* The executor has refused it, and its hook has been called, or has thrown. */
void run_bury_refused(hwt_timer *timer, hwt_timeout *timeout);
/* One that is due, and DISPATCHED: to the executor. False: that has refused it. */
bool run_dispatch(hwt_timer *timer, hwt_timeout *timeout);

#endif
