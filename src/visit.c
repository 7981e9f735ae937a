/* SPDX-License-Identifier: BSD-2-Clause */
#include "visit.h"

#include <errno.h>

#include "driver.h"
#include "filing.h"
#include "guard.h"
#include "intake.h"
#include "lifecycle.h"
#include "release.h"
#include "run_frames.h"
#include "worker.h"

/* A call that waits for the worker: on the caller's stack, in `visits`. */
struct visit {
    hwt_visitor *visit;
    void *arg;
    int64_t answer;
    bool answered;
    struct visit *next;
};

/* ---- a tour: by whoever acts as the worker ---- */

struct tour {
    struct run_frame frame;
    hwt_visitor *visit;
    void *arg;
    int64_t count;
    hwt_timeout *current; /* the visitor has it, and this is a user of its argument */
};

static bool is_pending(const hwt_timeout *timeout)
{
    return hwt_timeout_state(timeout) == HWT_PENDING;
}

static struct release drop_one(struct tour *tour)
{
    hwt_timeout *timeout = tour->current;

    tour->current = NULL;
    return timeout ? release_drop_user_of(timeout) : (struct release){NULL, NULL};
}

/* The worker keeps the block: it is in no slot now, and notices are taken in by this thread. */
static void visit_one(void *context, const hwt_timeout *shown)
{
    struct tour *tour = context;
    hwt_timeout *timeout = (hwt_timeout *)(uintptr_t)shown;

    if (!timer_is_ours(tour->frame.timer) || !is_pending(timeout))
        return;
    if (has_release(timeout) && !release_join_users(timeout))
        return;
    tour->current = timeout;
    if (is_pending(timeout)) {
        tour->count++;
        tour->visit(timeout, tour->arg);
    }
    release_call(drop_one(tour));
}

/*
 * Those who signed in before `still` was set may be half-way through a move; who comes later takes
 * nothing out of its slot, and is not waited for. There are always some where many threads move, so
 * they are let in elsewhere: into the half that nobody is waited for in, or not any more.
 */
static bool movers_have_left(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    uint64_t guests = load_seq(&timer->guests);
    uint32_t half = load_relaxed(&timer->half);

    for (uint32_t i = 0; i < 2; i++) {
        if (guests_in(guests, i) == 0)
            w->awaited &= ~(1u << i);
    }
    if (w->awaited == 1u << half)
        store_relaxed(&timer->half, !half);
    return w->awaited == 0;
}

/*
 * All that calls which have returned have made pending is where file_visit looks for it, and stays
 * there. False: not yet; tasks may run meanwhile.
 */
static bool settle(hwt_timer *timer)
{
    if (!load_relaxed(&timer->still)) {
        store_seq(&timer->still, 1);
        timer->worker.awaited = 1u << 0 | 1u << 1;
    }
    if (!movers_have_left(timer))
        return false;
    intake(timer, DEADLINE_NEVER); /* what they have queued, too */
    return timer->worker.adrift == 0;
}

static void leave_frame(void *left)
{
    const struct tour *tour = left;

    run_frames = tour->frame.outer;
}

/* However the visitor was left. What is released then is so inside of the visit, as ever. */
static void leave_tour(void *left)
{
    struct tour *tour = left;
    struct guard guard GUARDED = {.leave = leave_frame, .what = tour};
    struct release release = {NULL, NULL};

    guard_begin(&guard);
    store_release(&tour->frame.timer->still, 0);
    if (!tour->frame.returned) {
        if (tour->frame.timer->drive == HWT_DRIVE_WORKER && timer_is_ours(tour->frame.timer))
            lifecycle_close_lost(tour->frame.timer); /* before a release can submit */
        release = drop_one(tour);
        file_end_visit(tour->frame.timer); /* from then on it may be gone */
    }
    release_call(release);
}

static int64_t go_round(hwt_timer *timer, hwt_visitor *visit, void *arg)
{
    struct tour tour = {
        .frame = {.timer = timer, .visits = true, .outer = run_frames}, .visit = visit, .arg = arg};
    struct guard guard GUARDED = {.leave = leave_tour, .what = &tour};

    run_frames = &tour.frame;
    guard_begin(&guard);
    file_visit(timer, visit_one, &tour);
    tour.frame.returned = true;
    return timer_is_ours(timer) ? tour.count : -ECHILD;
}

/* ---- beside a worker ---- */

static void answer(hwt_timer *timer, struct visit *visit, int64_t with)
{
    pthread_mutex_lock(&timer->mutex);
    visit->answer = with;
    visit->answered = true;
    pthread_cond_broadcast(&timer->stopped);
    pthread_mutex_unlock(&timer->mutex);
}

static size_t count_visits(hwt_timer *timer)
{
    size_t count = 0;

    pthread_mutex_lock(&timer->mutex);
    for (const struct visit *visit = timer->visits; visit; visit = visit->next)
        count++;
    pthread_mutex_unlock(&timer->mutex);
    return count;
}

static struct visit *take_visit(hwt_timer *timer)
{
    struct visit *first;

    pthread_mutex_lock(&timer->mutex);
    first = timer->visits;
    if (first)
        timer->visits = first->next;
    pthread_mutex_unlock(&timer->mutex);
    return first;
}

struct attendance {
    hwt_timer *timer;
    struct visit *visit;
    int64_t answer;
};

/* By the end of the tour, or because the visitor has ended the worker's thread. */
static void leave_attendance(void *left)
{
    struct attendance *attendance = left;

    if (!timer_is_ours(attendance->timer))
        return;
    answer(attendance->timer, attendance->visit, attendance->answer);
}

static void attend(hwt_timer *timer, struct visit *visit)
{
    struct attendance attendance = {timer, visit, -EOWNERDEAD};
    struct guard guard GUARDED = {.leave = leave_attendance, .what = &attendance};

    guard_begin(&guard);
    attendance.answer = go_round(timer, visit->visit, visit->arg);
}

/* A mover may be preempted for long. What is due does not wait for him: the visit does. */
static void come_back(hwt_timer *timer)
{
    or_seq(&timer->asked, ASKED_VISIT);
    intake_pause(&timer->worker.pauses, NAP_LEAST);
}

/* Those who wait by now. Who comes meanwhile asks again. */
void visit_attend(hwt_timer *timer)
{
    for (size_t left = count_visits(timer); left > 0 && timer_is_ours(timer); left--) {
        if (!settle(timer)) {
            come_back(timer);
            break;
        }
        timer->worker.pauses = 0;
        attend(timer, take_visit(timer));
    }
    timer->worker.visited = true;
}

void visit_refuse_all(hwt_timer *timer, int64_t with)
{
    struct visit *visit;

    while ((visit = take_visit(timer)) != NULL)
        answer(timer, visit, with);
}

/* Under `mutex`. 1: wait; otherwise the answer. */
static int64_t enter(hwt_timer *timer, struct visit *visit)
{
    struct visit **last = &timer->visits;

    if (load_relaxed(&timer->phase) >= PHASE_DRAINING)
        return -ESHUTDOWN;
    if (load_relaxed(&timer->phase) == PHASE_LOST)
        return -EOWNERDEAD;
    if (load_relaxed(&timer->phase) == PHASE_CREATED) /* nothing was ever submitted */
        return 0;
    while (*last)
        last = &(*last)->next;
    *last = visit;
    return 1;
}

static int64_t visit_beside(hwt_timer *timer, struct visit *visit)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&timer->mutex);
    visit->answer = enter(timer, visit);
    if (visit->answer == 1) {
        pthread_mutex_unlock(&timer->mutex); /* the worker wants it at once */
        timer_ask(timer, ASKED_VISIT);
        pthread_mutex_lock(&timer->mutex);
        while (!visit->answered)
            pthread_cond_wait(&timer->stopped, &timer->mutex);
    }
    pthread_mutex_unlock(&timer->mutex);
    pthread_setcancelstate(state, NULL);
    return visit->answer;
}

/* ---- by the caller's thread ---- */

static int64_t drive(hwt_timer *timer, hwt_visitor *visit, void *arg)
{
    struct guard guard GUARDED = {.leave = worker_stop_driving, .what = timer};
    unsigned pauses = 0;

    guard_begin(&guard);
    while (!settle(timer))
        intake_pause(&pauses, NAP_LEAST);
    return go_round(timer, visit, arg);
}

static int64_t visit_here(hwt_timer *timer, hwt_visitor *visit, void *arg)
{
    int64_t visited;

    if (!driver_begin(timer, DRIVER_LOOKS))
        return load_acquire(&timer->phase) >= PHASE_STOPPING ? -ESHUTDOWN : -EBUSY;
    if (load_acquire(&timer->phase) >= PHASE_STOPPING) {
        driver_end(timer);
        return -ESHUTDOWN;
    }
    visited = drive(timer, visit, arg);
    return timer_is_ours(timer) ? visited : -ECHILD;
}

int64_t hwt_timer_visit(hwt_timer *timer, hwt_visitor *visit, void *arg)
{
    struct visit call = {.visit = visit, .arg = arg};

    if (!timer || !visit)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (run_is_inside_any(timer))
        return -EDEADLK;
    if (load_acquire(&timer->phase) >= PHASE_STOPPING)
        return -ESHUTDOWN;
    if (timer->drive == HWT_DRIVE_CALLER)
        return visit_here(timer, visit, arg);
    return visit_beside(timer, &call);
}
