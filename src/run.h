/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running tasks: on the worker, or handed to the caller's executor; and what a thread is running
 * just now.
 */
#ifndef HWT_RUN_H
#define HWT_RUN_H

#include "timer.h"

/* What this thread is running, innermost first: for -EDEADLK and for re-arming. */
struct run_frame {
    hwt_timer *timer;
    hwt_timeout *current; /* its task, or after it its hook, is running; NULL: none right now */
    hwt_timeout *refused; /* by the executor, and its hook is running */
    bool in_hook;         /* of `current` */
    bool ended;           /* on an executor's thread: the word is settled, the run is over */
    bool elsewhere;       /* on an executor's thread */
    bool rearmed;         /* there, and counted in the timer's `rearmed` */
    bool visits;          /* a visitor is shown what is pending (visit.c) */
    bool returned;        /* not left by an exception, or by the end of the thread */
    struct run_frame *outer;
};
extern HIDDEN _Thread_local struct run_frame *run_frames;
/* This thread is the worker of that timer, to the end of its last destructor. */
extern HIDDEN _Thread_local const hwt_timer *run_worker_of;
/* To wait for this timer would be to wait for oneself. */
bool run_is_inside(const hwt_timer *timer);
/* The same, or in a hook of it, on whatever thread. */
bool run_is_inside_any(const hwt_timer *timer);
/* Its wheel is being looked through, by this thread: nothing may be filed. */
bool run_is_visiting(const hwt_timer *timer);
/* The same, and as its worker: not on an executor's thread. */
bool run_is_inside_here(const hwt_timer *timer);
struct run_frame *run_frame_of(const hwt_timeout *timeout);

/* The worker: reads the clock, always or if some milliseconds have passed since it last did. */
void run_read_now(hwt_timer *timer);
void run_refresh_now(hwt_timer *timer);
/* The worker: runs or dispatches one that is due. True: its task was called or handed over. */
bool run_due(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame);
/* Inside a task, on the worker: when it runs again, as far as is known; UINT64_MAX: not at all. */
uint64_t run_next_of_current(const hwt_timer *timer);
/* From inside the task. */
bool run_rearm(struct run_frame *frame, hwt_timeout *timeout, uint64_t deadline);
/*
 * The worker: a task or hook did not return to its pass, but threw or ended the thread. It was the
 * last run of its timeout.
 */
void run_abandon(const struct run_frame *frame);
/* An exception is about to end the process: which task was it? */
void run_tell_uncaught(void);
/* Tells the log: "hwt: the task at 0x... " and the rest. */
void run_tell(const hwt_timer *timer, hwt_task *task, const char *rest);
/* Whoever ended it otherwise than by its last run: calls its hook, if it has one (G10). */
void run_hook(hwt_timeout *timeout);
/* The same, and then the runtime needs its argument no more (G16). By who has a handle. */
void run_last_words(hwt_timeout *timeout);

#endif
