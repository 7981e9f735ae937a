/* SPDX-License-Identifier: BSD-2-Clause */
#include "worker.h"

#include "filing.h"
#include "guard.h"
#include "intake.h"
#include "lifecycle.h"
#include "run.h"
#include "uncaught.h"

#define PREFETCH_AHEAD 12
#define QUIET_TICKS    16

/* ---- running ---- */

HOT bool must_leave(const hwt_timer *timer)
{
    return unlikely(load_relaxed(&timer->phase) >= PHASE_STOPPING) || !timer_is_ours(timer);
}

static void fill_hand(struct worker *w)
{
    w->hand_next = 0;
    w->hand_count = wheel_bucket_take(w->wheel, &w->due, w->hand, HAND);
}

/* Stopped: what was not run is where stop looks for it, and where a notice may take it from. */
static void put_back_hand(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    while (w->hand_next < w->hand_count && timer_is_ours(timer))
        wheel_bucket_insert(w->wheel, &w->due, w->hand[w->hand_next++]);
}

/* Its line has been on its way since the hand was filled: fetch what its task is called with. */
static void prefetch_argument(const struct worker *w, unsigned i)
{
    if (i < w->hand_count)
        __builtin_prefetch(w->hand[i]->arg, 1);
}

static int run_hand(hwt_timer *timer, struct run_frame *frame)
{
    struct worker *w = &timer->worker;
    int ran = 0;

    fill_hand(w);
    w->now = timer_now(timer);
    if (!timer->clock.now)
        w->coarse = clock_coarse();
    for (unsigned i = 0; i < PREFETCH_AHEAD; i++)
        prefetch_argument(w, i);
    while (w->hand_next < w->hand_count && !must_leave(timer)) {
        prefetch_argument(w, w->hand_next + PREFETCH_AHEAD);
        bucket_prefetch_ahead(&w->due, w->hand_next);
        ran += run_due(timer, w->hand[w->hand_next++], frame);
    }
    put_back_hand(timer);
    return ran;
}

static int pass(hwt_timer *timer, bool exact, struct run_frame *frame)
{
    struct worker *w = &timer->worker;
    uint64_t now = timer_now(timer);
    int ran = 0;

    intake(timer, now);
    wheel_take_overdue(w->wheel, w->passed, &w->due);
    w->pass_limit = now;
    while (!bucket_is_empty(&w->due) || wheel_expire(w->wheel, now, exact, &w->due)) {
        ran += run_hand(timer, frame);
        if (must_leave(timer))
            break;
        intake(timer, w->now); /* a flood of expiries delays nobody else */
    }
    wheel_foresee(w->wheel);
    w->pass_limit = 0;
    w->passed = now;
#ifdef HWT_DEBUG
    if (timer_is_ours(timer))
        wheel_check(w->wheel);
#endif
    return ran;
}

/* What was to run in this pass will run in the next one. */
static void put_off(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    hwt_timeout *timeout;

    put_back_hand(timer);
    while ((timeout = wheel_bucket_pop(w->wheel, &w->due)) != NULL)
        file_timeout(timer, timeout);
    w->passed = max_u64(w->passed, w->pass_limit);
    w->pass_limit = 0;
}

static __attribute__((cold)) void abandon_pass(const struct run_frame *frame)
{
    if (frame->current)
        frame->timer->worker.escaped = frame->current->task;
    run_abandon(frame);
    put_off(frame->timer);
}

/* However a pass ends: by a task or hook that threw, or ended its thread? */
static void leave_pass(void *left)
{
    struct run_frame *frame = left;

    if (likely(frame->returned))
        return;
    if (timer_is_ours(frame->timer))
        abandon_pass(frame);
    run_frames = frame->outer;
}

int worker_pass(hwt_timer *timer, bool exact)
{
    struct run_frame frame = {.timer = timer, .outer = run_frames};
    struct guard guard GUARDED = {.leave = leave_pass, .what = &frame};
    int ran;

    run_frames = &frame;
    guard_begin(&guard);
    ran = pass(timer, exact, &frame);
    run_frames = frame.outer;
    frame.returned = true;
    return ran;
}

/* ---- sleeping ---- */

static uint64_t lanes_earliest(const hwt_timer *timer)
{
    uint64_t earliest = UINT64_MAX;

    for (unsigned i = 0; i < timer->lanes.count; i++)
        earliest = min_u64(earliest, load_seq(&timer->lanes.lane[i].earliest));
    return earliest;
}

/* Something that the plan does not cover: mail, a crowded lane, an earlier deadline, stop. */
static bool is_urgent(const hwt_timer *timer, uint64_t wake_before)
{
    ck_pr_fence_store_load(); /* the plan is published before this looks (C4) */
    if (load_seq(&timer->phase) >= PHASE_STOPPING)
        return true;
    for (unsigned i = 0; i < timer->lanes.count; i++) {
        const struct lane *lane = &timer->lanes.lane[i];
        if (lane_has_mail(lane) || load_seq(&lane->crowded) ||
            load_seq(&lane->earliest) < wake_before)
            return true;
    }
    return false;
}

/* A deadline below this is not covered by a wake-up for `next`: what is due at the same tick is. */
static uint64_t cover(const hwt_timer *timer, uint64_t next)
{
    const struct wheel *wheel = timer->worker.wheel;

    if (next >= DEADLINE_NEVER)
        return DEADLINE_NEVER;
    if (timer->park.slack)
        next = max_u64(wheel_tick_time(wheel, wheel_tick_of(wheel, next)), timer->park.slack + 1) -
               timer->park.slack;
    return max_u64(next, 1);
}

bool worker_plan(hwt_timer *timer, uint64_t *wake_before)
{
    struct worker *w = &timer->worker;
    uint64_t next = min_u64(wheel_next_call(w->wheel), lanes_earliest(timer));

    store_relaxed(&w->next_deadline, next);
    *wake_before = cover(timer, next);
    park_publish(&timer->park, *wake_before);
    if (!is_urgent(timer, *wake_before))
        return true;
    park_leave(&timer->park);
    return false;
}

/*
 * The end of the tick, so that all that is due at it costs one wake-up; but after a while without
 * any, at the very deadline of what has a slot almost to itself: nobody else is delayed by that.
 */
static uint64_t wake_up_time(const hwt_timer *timer, uint64_t wake_before)
{
    const struct worker *w = &timer->worker;
    uint64_t next = load_relaxed(&w->next_deadline);

    if (next < DEADLINE_NEVER && next > w->passed &&
        (next - w->passed) / QUIET_TICKS >= timer->tick_ns && wheel_is_sparse(w->wheel, next))
        return next;
    return wake_before + timer->park.slack;
}

static void sleep_until_due(hwt_timer *timer)
{
    uint64_t wake_before, until;

    file_flush_returns(timer);
    if (!worker_plan(timer, &wake_before))
        return;
    until = wake_up_time(timer, wake_before);
    if (until > timer_now(timer)) {
        park_sleep(&timer->park, until);
        bump_single_writer(&timer->worker.count.wakeups, 1);
    }
    park_leave(&timer->park);
}

static UNCAUGHT_FUNCTION void work(hwt_timer *timer)
{
    UNCAUGHT_TOLD;
    for (;;) {
        worker_pass(timer, false);
        if (must_leave(timer))
            return;
        sleep_until_due(timer);
    }
}

/* Stopped; or in the child of a task that has forked; or a task has ended this thread. */
static void leave_work(void *left)
{
    hwt_timer *timer = left;

    if (likely(timer_is_ours(timer))) {
        if (load_relaxed(&timer->phase) < PHASE_STOPPING)
            lifecycle_lose_worker(timer);
    } else {
        run_worker_of = NULL;
        lifecycle_leave_in_child(timer);
    }
}

void *worker_main(void *argument)
{
    hwt_timer *timer = argument;
    struct guard guard GUARDED = {.leave = leave_work, .what = timer};

    run_worker_of = timer;
    platform_name_worker(timer->thread_name);
    guard_begin(&guard);
    work(timer);
    return NULL;
}
