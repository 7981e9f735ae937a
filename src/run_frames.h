/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread is running just now, and the hooks that it calls. Each thread's frames are its own.
 */
#ifndef HWT_RUN_FRAMES_H
#define HWT_RUN_FRAMES_H

#include "timer.h"

/* What this thread is running, innermost first: for -EDEADLK and for re-arming. */
struct run_frame {
    hwt_timer *timer;
    hwt_timeout *current; /* its task, or after it its hook, is running; NULL: none right now */
    hwt_timeout *offered; /* to the executor, who has not run it on this thread so far */
    hwt_timeout *refused; /* by the executor, and its hook is running */
    bool in_hook;         /* of `current` */
    bool ended;           /* on an executor's thread: the word is settled, the run is over */
    bool elsewhere;       /* on an executor's thread */
    bool rearmed;         /* there, and shown to the worker (C15) ... */
    bool visits;          /* a visitor is shown what is pending (visit.c) */
    bool returned;        /* not left by an exception, or by the end of the thread */
    rearmed_place *rearmed_at; /* ... here; NULL: counted by the timer */
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
bool run_visits(const hwt_timer *timer);
static inline bool run_is_visiting(const hwt_timer *timer)
{
    return unlikely(run_frames != NULL) && run_visits(timer);
}
/* Inside one of its tasks, as its worker: not on an executor's thread. */
bool run_runs_here(const hwt_timer *timer);
static inline bool run_is_inside_here(const hwt_timer *timer)
{
    return unlikely(run_frames != NULL) && run_runs_here(timer);
}
struct run_frame *run_frame_of(const hwt_timeout *timeout);

/* Whoever ended it otherwise than by its last run: calls its hook, if it has one (G10). */
void run_hook(hwt_timeout *timeout);
/*
 * The same, and then the runtime needs its argument no more (G16). By who has a handle. `life`: its
 * timer's `lives`, read before the word was won.
 */
void run_last_words(hwt_timeout *timeout, uint32_t life);

#endif
