/* SPDX-License-Identifier: BSD-2-Clause */
/* Stop: the worker ends, and what had not ended is handed back (G8). */
#include <errno.h>
#include <time.h>

#include "driver.h"
#include "extra.h"
#include "filing.h"
#include "guard.h"
#include "intake.h"
#include "lifecycle.h"
#include "run_frames.h"
#include "visit.h"

/* Nobody has one in his hand any more, or is about to fill or to empty a slot of a lane. */
static bool reclaim_slots(hwt_timer *timer)
{
    bool guests = load_seq(&timer->guests) > 0; /* one may have a timeout in his hand */
    bool quiet = intake_all(timer);

    file_reclaim_all(timer);
    return quiet && !guests && load_seq(&timer->guests) == 0;
}

/*
 * The lanes are closed and the worker has ended. What is left can only be in a lane, in the
 * worker's keeping, or in the hands of a thread that is between two steps of its call: a producer
 * on its way to a spill, somebody who owes a notice (`adrift`: a canceller, an executor's thread
 * in a task), a guest. This waits for all of them (C6). A task may take long: so when all slots are
 * empty, and stay so, they are not gone round any more.
 */
static void reclaim_all(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    unsigned times = 0;

    w->reclaiming = RECLAIM_ALL;
    while (!reclaim_slots(timer))
        intake_pause(&times, NAP_LEAST);
    while (w->adrift > 0 || load_seq(&timer->guests) > 0) {
        intake_pause(&times, NAP_MOST);
        intake_notices(timer);
    }
    file_return_all(timer);
}

/*
 * The common one first: nobody begins to make another one then, and whoever has begun is soon done
 * with it, whatever else keeps him. So no lane is made behind the back of this (C25).
 */
static void close_lanes(hwt_timer *timer)
{
    unsigned times = 0;
    struct lane *lane;

    lane_close(timer->lanes.common);
    while (lanes_being_made(&timer->lanes))
        intake_pause(&times, NAP_LEAST);
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;)
        lane_close(lane);
}

static void end_worker(hwt_timer *timer)
{
    close_lanes(timer);
    park_wake(&timer->park); /* the worker, or an event loop: until it advances the next time */
    if (timer->has_thread)
        pthread_join(timer->thread, NULL);
    visit_refuse_all(timer, -ESHUTDOWN);
    driver_begin(timer, DRIVER_STOPS); /* an advance that is on ends soon: it looks at `phase` */
    reclaim_all(timer);
    driver_end(timer);
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

/* However stop ends: also by a hook that threw, or ended its thread. Others wait for it. */
static void finish_stop(void *stopped)
{
    hwt_timer *timer = stopped;

    if (!timer_is_ours(timer)) { /* a hook has forked, and this is the child */
        lifecycle_leave_in_child(timer);
        return;
    }
    pthread_mutex_lock(&timer->mutex);
    store_release(&timer->phase, PHASE_STOPPED);
    pthread_cond_broadcast(&timer->stopped);
    pthread_mutex_unlock(&timer->mutex);
}

/* ---- nobody wants them back ---- */

struct disposal {
    struct run_frame frame; /* a hook that stops the timer would wait for itself */
    hwt_unprocessed list;
    hwt_timeout *current;
};

static void dispose_guarded(struct disposal *disposal);

/* Its release may not return either, and is called once. */
static void drop_current(struct disposal *disposal)
{
    hwt_timeout *current = disposal->current;

    disposal->current = NULL;
    hwt_timeout_unref(current);
}

static void dispose_all(struct disposal *disposal)
{
    hwt_timer *timer = disposal->frame.timer;

    while (timer_is_ours(timer) && (disposal->current = hwt_unprocessed_take(&disposal->list))) {
        run_hook(disposal->current);
        drop_current(disposal);
    }
}

/*
 * If a hook did not return, those of the others are called all the same (G10), and so on: each of
 * them on top of the one before, whose way out has not ended.
 */
static void leave_disposal(void *left)
{
    struct disposal *disposal = left;

    if (!disposal->frame.returned)
        dispose_guarded(disposal);
}

static void dispose_guarded(struct disposal *disposal)
{
    struct guard guard GUARDED = {.leave = leave_disposal, .what = disposal};

    guard_begin(&guard);
    if (timer_is_ours(disposal->frame.timer))
        drop_current(disposal);
    dispose_all(disposal);
    run_frames = disposal->frame.outer;
    disposal->frame.returned = true;
}

static void dispose(hwt_timer *timer, hwt_unprocessed list)
{
    struct disposal disposal = {.frame = {.timer = timer, .outer = run_frames}, .list = list};

    run_frames = &disposal.frame;
    dispose_guarded(&disposal);
}

/* ---- stop ---- */

/* By the one who stops it. */
static void stop_first(hwt_timer *timer, hwt_unprocessed *unprocessed)
{
    struct guard guard GUARDED = {.leave = finish_stop, .what = timer};
    hwt_unprocessed list;

    guard_begin(&guard);
    end_worker(timer);
    list.first = timer->worker.reclaimed;
    list.count = (size_t)load_relaxed(&timer->worker.count.unprocessed);
    timer->worker.reclaimed = NULL;
    if (unprocessed)
        *unprocessed = list;
    else
        dispose(timer, list);
}

static void restore_cancel(void *state)
{
    pthread_setcancelstate(*(const int *)state, NULL);
}

/* A thread that was cancelled half-way would leave all others waiting: so it is when this ends. */
static int stop(hwt_timer *timer, hwt_unprocessed *unprocessed)
{
    int state = PTHREAD_CANCEL_ENABLE;
    struct guard guard GUARDED = {.leave = restore_cancel, .what = &state};

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    guard_begin(&guard);
    if (begin_stop(timer))
        stop_first(timer, unprocessed);
    else if (unprocessed)
        *unprocessed = (hwt_unprocessed){NULL, 0};
    return timer_is_ours(timer) ? 0 : -ECHILD;
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

/* ---- drain ---- */

#define LOOK_SHARES 20            /* to count takes one of so many of the time until the next ... */
#define LOOK_LATEST HWT_MSEC(200) /* ... which comes by then: who counted may have been preempted */

void stop_await_drains(hwt_timer *timer)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&timer->mutex);
    while (timer->drains > 0)
        pthread_cond_wait(&timer->stopped, &timer->mutex);
    pthread_mutex_unlock(&timer->mutex);
    pthread_setcancelstate(state, NULL);
}

/* True: this call is the one that drains it. Otherwise it has been stopped on return. */
static bool begin_drain(hwt_timer *timer)
{
    uint32_t phase;
    bool first;

    pthread_mutex_lock(&timer->mutex);
    timer->drains++;
    phase = load_relaxed(&timer->phase);
    first = phase < PHASE_DRAINING;
    if (first) /* without a worker there is nothing to wait for */
        store_seq(&timer->phase, phase == PHASE_RUNNING ? PHASE_DRAINING : PHASE_DRAINED);
    while (!first && load_relaxed(&timer->phase) != PHASE_STOPPED)
        pthread_cond_wait(&timer->stopped, &timer->mutex);
    pthread_mutex_unlock(&timer->mutex);
    return first;
}

static void end_drain(void *drained)
{
    hwt_timer *timer = drained;

    if (!timer_is_ours(timer)) /* a hook has forked, and this is the child */
        return;
    pthread_mutex_lock(&timer->mutex);
    timer->drains--;
    pthread_cond_broadcast(&timer->stopped); /* destroy may be waiting for it */
    pthread_mutex_unlock(&timer->mutex);
}

/* What has come to a lane may be periodic, and is to end at once. */
static bool something_has_come(const hwt_timer *timer)
{
    return timer_has_periodic(timer) && lanes_told(&timer->lanes, false) < UINT64_MAX;
}

/* Not while the worker has yet to come to it: a task is on, and he looks himself after that. */
static void look_for_end(hwt_timer *timer, uint64_t *next)
{
    uint64_t began = timer_now(timer), took;

    if (load_relaxed(&timer->asked) & ASKED_DRAIN)
        return;
    if (something_has_come(timer) || (began >= *next && !stats_any_pending(timer)))
        timer_ask(timer, ASKED_DRAIN);
    took = timer_now(timer) - began;
    *next = max_u64(*next, began + min_u64(LOOK_SHARES * took, LOOK_LATEST));
}

/*
 * Until the worker says that all has ended, somebody else stops the timer, or the time is over (or
 * the clock at its end). Who cancels the last one tells nobody, nor does who was just submitting
 * when it was closed: so this looks now and then, and then asks the worker.
 */
static void await_end(hwt_timer *timer, uint64_t max_ns)
{
    uint64_t until = min_u64(deadline_after(timer_now(timer), max_ns), CLOCK_LAST);
    uint64_t nap = NAP_LEAST, look = 0, now;

    if (load_acquire(&timer->phase) == PHASE_DRAINING)
        timer_ask(timer, ASKED_DRAIN);
    while (load_acquire(&timer->phase) == PHASE_DRAINING && (now = timer_now(timer)) < until) {
        platform_nap(min_u64(nap, until - now));
        nap = min_u64(2 * nap, NAP_MOST);
        look_for_end(timer, &look);
    }
}

static int drain_guarded(hwt_timer *timer, uint64_t max_ns, hwt_unprocessed *unprocessed)
{
    struct guard guard GUARDED = {.leave = end_drain, .what = timer};

    guard_begin(&guard);
    if (begin_drain(timer)) {
        close_lanes(timer); /* before the worker is asked whether all has ended */
        await_end(timer, max_ns);
        return stop(timer, unprocessed);
    }
    if (unprocessed)
        *unprocessed = (hwt_unprocessed){NULL, 0};
    return 0;
}

static int drain(hwt_timer *timer, uint64_t max_ns, hwt_unprocessed *unprocessed)
{
    int state = PTHREAD_CANCEL_ENABLE;
    struct guard guard GUARDED = {.leave = restore_cancel, .what = &state};

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    guard_begin(&guard);
    return drain_guarded(timer, max_ns, unprocessed);
}

int hwt_timer_drain(hwt_timer *timer, uint64_t max_ns, hwt_unprocessed *unprocessed)
{
    if (!timer || timer->drive == HWT_DRIVE_CALLER)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (run_is_inside(timer))
        return -EDEADLK;
    return drain(timer, max_ns, unprocessed);
}

hwt_timeout *hwt_unprocessed_take(hwt_unprocessed *unprocessed)
{
    hwt_timeout *first;

    if (!unprocessed || !unprocessed->first)
        return NULL;
    first = unprocessed->first;
    unprocessed->first = timeout_next_linked(first);
    __builtin_prefetch((const void *)(uintptr_t)load_relaxed(&first->where), 1); /* lead_ahead */
    unprocessed->count--;
    return first;
}
