/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running tasks: on the worker, or handed to the caller's executor.
 */
#ifndef HWT_RUN_H
#define HWT_RUN_H

#include "run_frames.h"

/* The worker: runs or dispatches one that is due. True: its task was called or handed over. */
bool run_due(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame);
/* Inside a task, on the worker: when it runs again, as far as is known; UINT64_MAX: not at all. */
uint64_t run_next_of_running(const hwt_timer *timer);
static inline uint64_t run_next_of_current(const hwt_timer *timer)
{
    return unlikely(run_frames != NULL) ? run_next_of_running(timer) : UINT64_MAX;
}
/* From inside the task. */
bool run_rearm(struct run_frame *frame, hwt_timeout *timeout, uint64_t deadline);
/*
 * The worker: a task or hook did not return to its pass, but threw or ended the thread. It was the
 * last run of its timeout.
 */
void run_abandon(struct run_frame *frame);
/* An exception is about to end the process: which task was it? */
void run_tell_uncaught(void);
/* Tells the log: "hwt: the task at 0x... " and the rest. */
void run_tell(const hwt_timer *timer, hwt_task *task, const char *rest);

#endif
