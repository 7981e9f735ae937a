/* SPDX-License-Identifier: BSD-2-Clause */
#include "pass.h"

#include <limits.h>

#include "filing.h"
#include "guard.h"
#include "intake.h"
#include "lifecycle.h"
#include "run.h"

/*
 * Arguments are fetched so many at a time: a fetch waits for its address to be translated, and in
 * between a task reads the clock, which waits for all that came before. Together they wait once.
 * So many before the first of them is needed: earlier ones would be gone again from the cache.
 */
#define FETCH_AT_ONCE 16
#define FETCH_AHEAD   4
/*
 * Then the next line of each, since what users schedule with is mostly larger than a line, and
 * seldom begins with one; or the argument of one that has an extra, which tells where it is. One by
 * one: the addresses are translated by then, and together they would be more than a core has on
 * their way at a time.
 */
#define FURTHER_AHEAD 3

/* What is due then waits for the next pass, if there is one. */
HOT bool must_end_pass(const hwt_timer *timer)
{
    return unlikely(load_relaxed(&timer->phase) >= PHASE_DRAINING) &&
           (pass_must_leave(timer) || pass_has_to_drain(timer));
}

/*
 * Somebody waits for the end of this pass, to visit. A hint: what was asked is taken by the
 * exchange in attend (C18). After one the next has to wait for a hand of tasks: who visits again
 * and again does not keep them from running.
 */
HOT bool has_to_attend(const hwt_timer *timer, uint64_t ran)
{
    return unlikely(load_relaxed(&timer->asked) & ASKED_VISIT) &&
           (ran >= HAND || !timer->worker.visited);
}

HOT void read_now(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    w->now = timer_now(timer);
    if (!timer->clock.now)
        w->coarse = clock_coarse();
    else if (unlikely(w->now < w->pass_limit)) /* it went back: what is due later waits */
        w->pass_limit = w->now;
}

/* If milliseconds may have passed; or the clock is the caller's: it costs whatever it costs. */
HOT void refresh_now(hwt_timer *timer)
{
    if (timer->clock.now || unlikely(clock_coarse() != timer->worker.coarse))
        read_now(timer);
}

HOT hwt_timeout *next_due(hwt_timer *timer, bool exact)
{
    return wheel_take_due(timer->worker.wheel, timer->worker.pass_limit, exact);
}

/*
 * Runs a hand of what is due. False: there is no more, or this is to end. Once something is there
 * the clock is read; a task that is not due any more by then, because the clock has gone back, is
 * not begun (run_due).
 */
static bool run_hand(hwt_timer *timer, bool exact, struct run_frame *frame, uint64_t *ran)
{
    struct wheel *wheel = timer->worker.wheel;
    hwt_timeout *timeout = next_due(timer, exact);

    if (!timeout)
        return false;
    read_now(timer);
    if (!timer_is_ours(timer)) /* a clock of the caller's has forked, and this is the child */
        return false;
    wheel_prefetch_due(wheel, 0, FETCH_AHEAD + FETCH_AT_ONCE);
    wheel_prefetch_due_further(wheel, 0, FURTHER_AHEAD);
    for (unsigned i = 1;; i++) {
        if (i % FETCH_AT_ONCE == 0)
            wheel_prefetch_due(wheel, FETCH_AHEAD, FETCH_AT_ONCE);
        wheel_prefetch_due_further(wheel, FURTHER_AHEAD, 1);
        *ran += run_due(timer, timeout, frame);
        if (must_end_pass(timer) || has_to_attend(timer, *ran)) {
            wheel_break_off(wheel);
            return false;
        }
        if (i == HAND)
            return timer_is_ours(timer);
        timeout = next_due(timer, exact);
        if (!timeout)
            return false;
        refresh_now(timer);
        if (!timer_is_ours(timer)) /* it has, or a task */
            return false;
    }
}

/* False: the clock has forked, and this is the child. */
static bool begin_pass(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    uint64_t now = timer_now(timer);

    if (!timer_is_ours(timer))
        return false;
    timer_check_acting(timer);
    hwt_assert(w->pass_limit == 0 && wheel_has_ended_pass(w->wheel));
    intake(timer, now);
    file_later_ones(timer);
    w->pass_limit = w->now = now;
    return true;
}

static void end_pass(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    wheel_prepare(w->wheel);
    w->passed = w->pass_limit;
    w->pass_limit = 0;
    w->visited = false;
#ifdef HWT_DEBUG
    wheel_check_on(w->wheel);
#endif
}

static uint64_t pass(hwt_timer *timer, bool exact, struct run_frame *frame)
{
    uint64_t ran = 0;

    if (!begin_pass(timer))
        return 0;
    while (run_hand(timer, exact, frame, &ran))
        intake_between(timer); /* what is over does not run, and its memory is free */
    if (timer_is_ours(timer))
        end_pass(timer);
    return ran;
}

/* What was to run in this pass is in the agenda, or waits for the next pass anyway. */
static void break_off(struct worker *w)
{
    wheel_break_off(w->wheel);
    w->passed = max_u64(w->passed, w->pass_limit);
    w->pass_limit = 0;
}

static void leave_abandoned_pass(void *left)
{
    const struct run_frame *frame = left;

    run_frames = frame->outer;
    break_off(&frame->timer->worker);
}

/* What is owed to its timeout may not return either. */
static __attribute__((cold)) void abandon_pass(struct run_frame *frame)
{
    struct guard guard GUARDED = {.leave = leave_abandoned_pass, .what = frame};

    guard_begin(&guard);
    if (frame->timer->drive == HWT_DRIVE_WORKER)
        lifecycle_close_lost(frame->timer); /* before who waits for the run hears that it is over */
    if (frame->current)
        frame->timer->worker.escaped = frame->current->task;
    run_abandon(frame);
}

/* However a pass ends: by a task or hook that threw, or ended its thread? */
static void leave_pass(void *left)
{
    struct run_frame *frame = left;

    if (likely(frame->returned))
        return;
    if (timer_is_ours(frame->timer))
        abandon_pass(frame);
    else
        run_frames = frame->outer;
}

int pass_run(hwt_timer *timer, bool exact)
{
    struct run_frame frame = {.timer = timer, .outer = run_frames};
    struct guard guard GUARDED = {.leave = leave_pass, .what = &frame};
    uint64_t ran;

    run_frames = &frame;
    guard_begin(&guard);
    ran = pass(timer, exact, &frame);
    run_frames = frame.outer;
    frame.returned = true;
    return (int)min_u64(ran, INT_MAX);
}
