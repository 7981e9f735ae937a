/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running tasks: on the worker, or handed to the caller's executor. Whoever wins the claim of the
 * word runs the task, and files or buries the timeout when it has returned.
 */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>

#include "extra.h"
#include "filing.h"
#include "guard.h"
#include "lifecycle.h"
#include "quota.h"
#include "release.h"

/* ---- telling the log ---- */

__attribute__((cold)) void run_tell(const hwt_timer *timer, hwt_task *task, const char *rest)
{
    char message[160];

    if (!timer->log)
        return;
    snprintf(message, sizeof message, "hwt: the task at 0x%" PRIxPTR " %s", (uintptr_t)task, rest);
    timer->log(timer->log_arg, message);
}

static __attribute__((cold)) void tell_slow(hwt_timer *timer, hwt_task *task, uint64_t took)
{
    char rest[64];

    add_relaxed(&timer->run_count.slow_tasks, 1);
    snprintf(rest, sizeof rest, "ran for %" PRIu64 " us", took / 1000);
    run_tell(timer, task, rest);
}

void run_tell_uncaught(void)
{
    const struct run_frame *frame = run_frames;

    if (frame && frame->current)
        run_tell(frame->timer, frame->current->task,
                 "let an exception escape, which ends the process");
}

/* ---- counting ---- */

/* A run that may be the last ends it as far as the counts go, before its task is called. */
HOT void count_end(hwt_timer *timer, bool elsewhere)
{
    if (elsewhere)
        add_relaxed(&lanes_here(&timer->lanes)->expired, 1);
    else
        bump_single_writer(&timer->worker.count.expired, 1);
    quota_give(timer);
}

/* False: at max_pending. */
static bool uncount_end(hwt_timer *timer, bool elsewhere)
{
    if (!quota_take(timer))
        return false;
    if (elsewhere)
        sub_relaxed(&lanes_here(&timer->lanes)->expired, 1);
    else
        bump_single_writer(&timer->worker.count.expired, (uint64_t)-1);
    return true;
}

HOT void count_run(hwt_timer *timer, const hwt_timeout *timeout, uint64_t now, bool elsewhere)
{
    uint64_t deadline = timeout_deadline(timeout);

    if (elsewhere)
        add_relaxed(&lanes_here(&timer->lanes)->runs, 1);
    else
        bump_single_writer(&timer->worker.count.runs, 1);
    count_lateness(&timer->run_count, now > deadline ? now - deadline : 0, timer->execute != NULL);
}

/* ---- one run ---- */

HOT void call_task(hwt_timer *timer, hwt_timeout *timeout)
{
    uint64_t started, ended;

    if (likely(!timer->slow_task_ns)) {
        timeout->task(timeout, timeout_arg(timeout));
        return;
    }
    started = timer_now(timer);
    timeout->task(timeout, timeout_arg(timeout));
    ended = timer_now(timer);
    if (ended > started && ended - started > timer->slow_task_ns) /* it may have gone back */
        tell_slow(timer, timeout->task, ended - started);
}

/* G14. Later than any phase of the past that was missed, if those are to be skipped. */
static uint64_t next_period(const hwt_timer *timer, const hwt_timeout *timeout)
{
    const struct timeout_extra *extra = timeout_extra(timeout);
    uint64_t period = extra->period_ns, deadline = timeout_deadline(timeout), now;

    if (extra->mode == HWT_FIXED_RATE)
        return deadline_after(deadline, period);
    now = timer_now(timer);
    if (extra->mode == HWT_FIXED_DELAY)
        return deadline_after(now, period);
    if (now > deadline && now - deadline > period)
        deadline += (now - deadline - 1) / period * period;
    return deadline_after(deadline, period);
}

HOT uint64_t next_run(const hwt_timer *timer, const hwt_timeout *timeout)
{
    return unlikely(timeout->flags & FLAG_PERIODIC) ? next_period(timer, timeout) : DEADLINE_NEVER;
}

uint64_t run_next_of_running(const hwt_timer *timer)
{
    uint64_t earliest = UINT64_MAX;

    for (const struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        const hwt_timeout *timeout = frame->current;
        uint64_t word = frame->timer == timer && timeout ? load_acquire(&timeout->word) : 0;
        if (word_code(word) == WORD_REARMED)
            earliest = min_u64(earliest, word_deadline(word));
        else if (word_code(word) == WORD_RUNNING && timeout->flags & FLAG_PERIODIC)
            earliest = min_u64(earliest, next_run(timer, timeout));
    }
    return earliest;
}

/* On the worker, in its pass: nothing is half-done when the argument is released. */
static __attribute__((noinline)) void bury_and_release(hwt_timer *timer, hwt_timeout *timeout)
{
    struct release release = release_drop_user(timeout);

    file_bury(timer, timeout);
    run_frames->current = NULL; /* nobody shall look at it if this does not return (C13) */
    release_call(release);
}

HOT void bury(hwt_timer *timer, hwt_timeout *timeout)
{
    if (has_release(timeout))
        bury_and_release(timer, timeout);
    else
        file_bury(timer, timeout);
}

HOT void end_run(hwt_timer *timer, hwt_timeout *timeout)
{
    uint64_t next = next_run(timer, timeout);

    hwt_assert(!bucket_holds(timeout)); /* in the worker's hand */
    if (next < DEADLINE_NEVER) /* from then on it may be moved later by who tells nobody (C15) */
        file_lower_bound(&timer->worker, next);
    switch (timeout_finish(timeout, next, WORD_PENDING)) {
    case FINISH_EXPIRED:
        timeout_run_over(timeout);
        bury(timer, timeout);
        break;
    case FINISH_AGAIN:
        timeout_run_over(timeout);
        if (timeout_deadline(timeout) == next)
            file_in_order(timer, timeout); /* more runs to catch up on: in this pass */
        else
            file_timeout(timer, timeout); /* re-armed: in a later one (G11) */
        break;
    case FINISH_CANCELLED:
        run_hook(timeout); /* part of the run: cancel_sync waits for it */
        timeout_run_over(timeout);
        bury(timer, timeout);
        break;
    }
}

HOT void run_here(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame)
{
    if (!(timeout->flags & FLAG_PERIODIC))
        count_end(timer, false);
    count_run(timer, timeout, timer->worker.now, false);
    frame->current = timeout;
    call_task(timer, timeout);
    if (likely(timer_is_ours(timer))) /* otherwise the task forked, and this is the child */
        end_run(timer, timeout);
    frame->current = NULL;
}

/* The bound that others read (hwt_timer_next_deadline) comes down before the re-arm returns. */
static void tell_rearmed(const struct run_frame *frame, hwt_timer *timer, uint64_t deadline)
{
    if (frame->elsewhere)
        lane_tell_moved(lanes_here(&timer->lanes), deadline);
    else
        file_lower_bound(&timer->worker, deadline);
}

/* Before its deadline is told: whoever takes that from the lane then looks for it (C15). */
static void show_rearmed(struct run_frame *frame, hwt_timer *timer, hwt_timeout *timeout)
{
    if (!frame->elsewhere || frame->rearmed)
        return;
    frame->rearmed_at = lane_show_rearmed(lanes_here(&timer->lanes), timeout);
    if (unlikely(!frame->rearmed_at))
        add_seq(&timer->rearmed, 1);
    frame->rearmed = true;
}

/* By a guest: until its notice is queued nobody raises the bound, or relies on what is filed. */
static void hide_rearmed(const struct run_frame *frame, hwt_timer *timer)
{
    if (likely(frame->rearmed_at))
        store_release(frame->rearmed_at, NULL);
    else
        sub_acq_rel(&timer->rearmed, 1);
}

bool run_rearm(struct run_frame *frame, hwt_timeout *timeout, uint64_t deadline)
{
    hwt_timer *timer = timeout->timer;
    /* A second re-arm in one run counts no more; only this thread re-arms. */
    bool counts = !(timeout->flags & FLAG_PERIODIC) &&
                  word_code(load_acquire(&timeout->word)) == WORD_RUNNING;

    /* Pending again before the word says so: whoever cancels it then counts it out (G3). */
    if (counts && !uncount_end(timer, frame->elsewhere))
        return false;
    show_rearmed(frame, timer, timeout);
    if (!timeout_rearm(timeout, deadline)) {
        if (counts)
            count_end(timer, frame->elsewhere);
        return false;
    }
    tell_rearmed(frame, timer, deadline);
    return true;
}

/* ---- runs that do not return ---- */

/* False: it was cancelled meanwhile. Otherwise it has expired, and does not run again. */
static bool finish_for_good(hwt_timer *timer, hwt_timeout *timeout, bool elsewhere)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) != WORD_CANCELLED) {
        if (!word_change(timeout, &word, word_deadline(word), WORD_EXPIRED))
            continue;
        if (word_code(word) == WORD_REARMED || timeout->flags & FLAG_PERIODIC)
            count_end(timer, elsewhere); /* until now it was pending */
        return true;
    }
    return false;
}

/* Calls its hook, if it is owed one, and then `rest`, even if that did not return either. */
static void abandon_current(struct run_frame *frame, void (*rest)(void *frame))
{
    struct guard guard GUARDED = {.leave = rest, .what = frame};

    guard_begin(&guard);
    if (!finish_for_good(frame->timer, frame->current, frame->elsewhere) && !frame->in_hook)
        run_hook(frame->current);
}

static void bury_refused(hwt_timer *timer, hwt_timeout *timeout)
{
    struct release release = release_drop_user_of(timeout);

    file_bury(timer, timeout);
    release_call(release);
}

static void bury_abandoned(void *abandoned)
{
    const struct run_frame *frame = abandoned;
    struct release release;

    timeout_run_over(frame->current);
    release = release_drop_user_of(frame->current);
    file_bury(frame->timer, frame->current);
    release_call(release);
}

__attribute__((cold)) void run_abandon(struct run_frame *frame)
{
    if (frame->current)
        abandon_current(frame, bury_abandoned);
    else if (frame->refused)
        bury_refused(frame->timer, frame->refused);
}

/* ---- on an executor ---- */

/*
 * The end of a run elsewhere is a message to the worker: it buries it, or files it again. Once that
 * is queued the timer may be gone, but for its shell, unless this has signed in there before. The
 * job's share keeps the timeout.
 */
static void report(const struct run_frame *frame)
{
    hwt_timer *timer = frame->timer;
    hwt_timeout *timeout = frame->current;
    struct lane *lane = lanes_here(&timer->lanes);
    bool many = lane_count_notice(lane);
    bool again = word_code(load_acquire(&timeout->word)) == WORD_NUDGED;
    uint64_t word;

    if (likely(!many && !again && !frame->rearmed)) {
        lane_notify(lane, timeout);
        return;
    }
    timer_sign_in(timer);
    if (frame->rearmed)
        hide_rearmed(frame, timer);
    lane_notify(lane, timeout);
    if (many)
        park_wake(&timer->park);
    word = load_seq(&timeout->word); /* others move it, too, until the notice is taken in */
    if (word_code(word) == WORD_NUDGED)
        timer_tell_moved(timer, lane, word_deadline(word));
    timer_sign_out(timer);
}

static void release_abandoned(void *abandoned)
{
    const struct run_frame *frame = abandoned;

    timeout_run_over(frame->current);
    release_call(release_drop_user_of(frame->current));
}

static void report_abandoned(void *abandoned)
{
    const struct run_frame *frame = abandoned;

    run_frames = frame->outer;
    report(frame);
    timeout_let_go(frame->current);
}

/* The executor's thread is the executor's affair; ours is that nobody waits for this job. */
static __attribute__((cold)) void abandon_job(struct run_frame *frame)
{
    struct guard guard GUARDED = {.leave = report_abandoned, .what = frame};

    guard_begin(&guard);
    if (!frame->ended)
        abandon_current(frame, release_abandoned);
}

/* However a job ends: by a task that threw, or ended its thread? */
static void leave_job(void *left)
{
    struct run_frame *frame = left;

    if (likely(frame->returned))
        return;
    if (timer_is_ours(frame->timer))
        abandon_job(frame);
    else
        run_frames = frame->outer;
}

/* Stop, which waits for the report, waits for hook and release, too. */
static void end_elsewhere(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame)
{
    enum finish finish = timeout_finish(timeout, next_run(timer, timeout), WORD_NUDGED);

    if (finish == FINISH_CANCELLED)
        run_hook(timeout); /* part of the run: cancel_sync waits for it */
    timeout_run_over(timeout);
    frame->ended = true;
    if (finish != FINISH_AGAIN)
        release_call(release_drop_user_of(timeout));
}

static void run_elsewhere(hwt_timer *timer, hwt_timeout *timeout)
{
    struct run_frame frame = {
        .timer = timer, .current = timeout, .elsewhere = true, .outer = run_frames};
    struct guard guard GUARDED = {.leave = leave_job, .what = &frame};

    if (!(timeout->flags & FLAG_PERIODIC))
        count_end(timer, true);
    count_run(timer, timeout, timer_now(timer), true);
    run_frames = &frame;
    guard_begin(&guard);
    call_task(timer, timeout);
    if (likely(timer_is_ours(timer)))
        end_elsewhere(timer, timeout, &frame);
    if (likely(timer_is_ours(timer)))
        report(&frame);
    run_frames = frame.outer;
    frame.returned = true;
}

/* What the executor calls, once, on any of its threads. */
static void run_job(void *job)
{
    hwt_timeout *timeout = job;
    hwt_timer *timer = timeout->timer;

    if (unlikely(!timer_is_ours(timer))) /* handed over before a fork: it is the parent's */
        return;
    store_relaxed(&timeout->run, RUN_ON);
    if (timeout_begin(timeout)) /* pins the timer: stop waits for the report */
        run_elsewhere(timer, timeout);
    else
        timeout_run_over(timeout);
    timeout_let_go(timeout);
    if (unlikely(!timer_is_ours(timer))) /* or it has been destroyed; its shell stays */
        lifecycle_leave_in_child(timer);
}

/* G10: refused, it counts as cancelled and as rejected, and its hook runs here. */
static void refuse(hwt_timer *timer, hwt_timeout *timeout)
{
    struct lane *lane = lanes_here(&timer->lanes);

    if (timeout_cancel(timeout) != CANCEL_PENDING) {
        timeout_let_go(timeout); /* cancelled first: withdrawn, or the notice will come */
        return;
    }
    sub_acq_rel(&timeout->refs, 1); /* the job's share; the runtime still has its own */
    quota_give(timer);
    add_relaxed(&lane->rejected, 1);
    add_release(&lane->cancelled, 1);
    file_undispatched(timer, timeout);
    run_frames->refused = timeout;
    run_hook(timeout);
    run_frames->refused = NULL;
    bury_refused(timer, timeout);
}

static void dispatch(hwt_timer *timer, hwt_timeout *timeout)
{
    add_relaxed(&timeout->refs, 1); /* the job's share */
    file_dispatched(timer, timeout);
    if (timer->execute(timer->executor, run_job, timeout) != 0 && timer_is_ours(timer))
        refuse(timer, timeout);
}

/* ---- from the worker ---- */

void run_read_now(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    w->now = timer_now(timer);
    if (!timer->clock.now)
        w->coarse = clock_coarse();
    else if (unlikely(w->now < w->pass_limit)) /* it went back: what is due later waits */
        w->pass_limit = w->now;
}

void run_refresh_now(hwt_timer *timer)
{
    if (timer->clock.now || unlikely(clock_coarse() != timer->worker.coarse))
        run_read_now(timer); /* milliseconds have passed, or it costs whatever it costs */
}

bool run_due(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame)
{
    enum word_code claimed = timer->execute ? WORD_DISPATCHED : WORD_RUNNING;

    if (!timer->execute)
        store_relaxed(&timeout->run, RUN_ON); /* before the claim shows (timeout_await_run) */
    switch (timeout_claim(timeout, timer->worker.pass_limit, claimed)) {
    case CLAIM_WON:
        if (timer->execute)
            dispatch(timer, timeout);
        else
            run_here(timer, timeout, frame);
        return true;
    case CLAIM_LATER:
        if (!timer->execute)
            timeout_run_over(timeout);
        file_in_order(timer, timeout);
        break;
    case CLAIM_LEFT:
        if (!timer->execute)
            timeout_run_over(timeout);
        file_adrift(timer, timeout);
        break;
    }
    return false;
}
