/* SPDX-License-Identifier: BSD-2-Clause */
/* Stop: the worker ends, and what had not ended is handed back (G8). */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "extra.h"
#include "filing.h"
#include "intake.h"
#include "lifecycle.h"
#include "run.h"
#include "unwind.h"

static void pause_briefly(unsigned *times)
{
    struct timespec nap = {.tv_sec = 0, .tv_nsec = 50000};

    if ((*times)++ < 100)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Everything the worker has met: into the list, or adrift until its notice comes. */
static void reclaim_met(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    hwt_timeout *timeout;

    while ((timeout = wheel_bucket_pop(w->wheel, &w->due)) != NULL)
        file_timeout(timer, timeout);
    while ((timeout = wheel_bucket_pop(w->wheel, &w->dispatched)) != NULL)
        file_timeout(timer, timeout);
    while ((timeout = wheel_pop(w->wheel)) != NULL)
        file_timeout(timer, timeout);
}

/*
 * The lanes are closed and the worker has ended. What is left can only be in a lane, in the
 * worker's keeping, or in the hands of a thread that is between two steps of its call: a producer
 * on its way to a spill, somebody who owes a notice (`adrift`: a canceller, an executor's thread
 * in a task), a guest. This waits for all of them (C6).
 */
static void reclaim_all(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    unsigned times = 0;

    w->reclaiming = true;
    for (;;) {
        bool quiet = intake(timer, DEADLINE_NEVER);
        reclaim_met(timer);
        if (quiet && w->adrift == 0 && load_seq(&timer->guests) == 0)
            break;
        pause_briefly(&times);
    }
    file_flush_returns(timer);
}

static void end_worker(hwt_timer *timer)
{
    for (unsigned i = 0; i < timer->lanes.count; i++)
        lane_close(&timer->lanes.lane[i]);
    if (timer->has_thread) {
        park_wake(&timer->park);
        pthread_join(timer->thread, NULL);
    }
    pthread_mutex_lock(&timer->driving); /* an advance that is on ends soon: it looks at `phase` */
    reclaim_all(timer);
    pthread_mutex_unlock(&timer->driving);
}

/* True: this call is the one that stops it. Otherwise it has been stopped on return. */
static bool begin_stop(hwt_timer *timer)
{
    bool first;

    pthread_mutex_lock(&timer->mutex);
    first = load_relaxed(&timer->phase) < PHASE_STOPPING;
    if (first)
        store_seq(&timer->phase, PHASE_STOPPING); /* before park_wake (C4) */
    while (!first && load_relaxed(&timer->phase) != PHASE_STOPPED)
        pthread_cond_wait(&timer->stopped, &timer->mutex);
    pthread_mutex_unlock(&timer->mutex);
    return first;
}

static void finish_stop(hwt_timer *timer)
{
    pthread_mutex_lock(&timer->mutex);
    store_release(&timer->phase, PHASE_STOPPED);
    pthread_cond_broadcast(&timer->stopped);
    pthread_mutex_unlock(&timer->mutex);
}

/* Nobody wants them back. A hook that stops the timer would wait for itself. */
static void dispose(hwt_timer *timer, hwt_unprocessed *list)
{
    struct run_frame frame = {.timer = timer, .outer = run_frames};
    hwt_timeout *timeout;

    run_frames = &frame;
    while (timer_is_ours(timer) && (timeout = hwt_unprocessed_take(list)) != NULL) {
        run_hook(timeout);
        hwt_timeout_unref(timeout);
    }
    run_frames = frame.outer;
}

static void restore_cancel(void *state)
{
    pthread_setcancelstate(*(const int *)state, NULL);
}

/* A thread that was cancelled half-way would leave all others waiting: so it is when this ends. */
static int stop(hwt_timer *timer, hwt_unprocessed *unprocessed)
{
    hwt_unprocessed list = {NULL, 0};
    struct unwind guard UNWIND;
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    unwind_begin(&guard, restore_cancel, &state);
    if (begin_stop(timer)) {
        end_worker(timer);
        list.first = timer->worker.reclaimed;
        list.count = (size_t)load_relaxed(&timer->worker.count.unprocessed);
        timer->worker.reclaimed = NULL;
        if (!unprocessed)
            dispose(timer, &list);
        if (!timer_is_ours(timer)) /* a hook has forked, and this is the child */
            return lifecycle_leave_in_child(timer);
        finish_stop(timer);
    }
    if (unprocessed)
        *unprocessed = list;
    return 0;
}

int hwt_timer_stop(hwt_timer *timer, hwt_unprocessed *unprocessed)
{
    if (!timer)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (run_is_inside(timer))
        return -EDEADLK;
    return stop(timer, unprocessed);
}

hwt_timeout *hwt_unprocessed_take(hwt_unprocessed *unprocessed)
{
    hwt_timeout *first;

    if (!unprocessed || !unprocessed->first)
        return NULL;
    first = unprocessed->first;
    unprocessed->first = lane_next_notice(first); /* by `link` */
    unprocessed->count--;
    return first;
}
