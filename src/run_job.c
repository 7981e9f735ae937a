/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running tasks on the threads of the caller's executor. The end of such a run is a message to the
 * worker, which files or buries the timeout.
 */
#include "extra.h"
#include "filing.h"
#include "guard.h"
#include "lifecycle.h"
#include "run_parts.h"

/* By a guest: until its notice is queued nobody raises the bound, or relies on what is filed. */
static void hide_rearmed(const struct run_frame *frame, hwt_timer *timer)
{
    if (likely(frame->rearmed_at))
        store_release(frame->rearmed_at, NULL);
    else
        sub_acq_rel(&timer->rearmed, 1);
}

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
    uint64_t word, guest;

    if (likely(!many && !again && !frame->rearmed)) {
        lane_notify(lane, timeout);
        return;
    }
    guest = timer_sign_in(timer);
    if (frame->rearmed)
        hide_rearmed(frame, timer);
    lane_notify(lane, timeout);
    if (many)
        park_wake(&timer->park);
    word = load_seq(&timeout->word); /* others move it, too, until the notice is taken in */
    if (word_code(word) == WORD_NUDGED)
        timer_tell_moved(timer, lane, word_deadline(word));
    timer_sign_out(timer, guest);
}

/* The job's. */
static void drop_share(hwt_timeout *timeout)
{
    poison_mark_taken_up(timeout);
    timeout_let_go(timeout);
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
    drop_share(frame->current);
}

/* The executor's thread is the executor's affair; ours is that nobody waits for this job. */
static __attribute__((cold)) void abandon_job(struct run_frame *frame)
{
    struct guard guard GUARDED = {.leave = report_abandoned, .what = frame};

    guard_begin(&guard);
    if (!frame->ended)
        run_abandon_current(frame, release_abandoned);
}

/* However a job ends: by a task that threw, or ended its thread? */
static void leave_job(void *left)
{
    struct run_frame *frame = left;

    if (likely(frame->returned))
        return;
    if (timer_is_ours(frame->timer)) {
        abandon_job(frame);
        return;
    }
    run_frames = frame->outer;
    lifecycle_leave_in_child(frame->timer);
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
        count_end(timer, timeout, true);
    count_run(timer, timeout, timer_now(timer), true);
    run_frames = &frame;
    guard_begin(&guard);
    if (likely(timer_is_ours(timer))) /* the clock may have forked */
        call_task(timer, timeout);
    if (likely(timer_is_ours(timer)))
        end_elsewhere(timer, timeout, &frame);
    if (likely(timer_is_ours(timer)))
        report(&frame);
    run_frames = frame.outer;
    frame.returned = true;
}

/* By an executor that runs a job while it is offered to him. */
static void take_offer(const hwt_timeout *timeout)
{
    for (struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        if (frame->offered == timeout)
            frame->offered = NULL;
    }
}

/* What the executor calls, once, on any of its threads. */
static void run_job(void *job)
{
    hwt_timeout *timeout = job;
    hwt_timer *timer = timeout->timer;

    take_offer(timeout);
    if (unlikely(!timer_is_ours(timer))) /* handed over before a fork: it is the parent's */
        return;
    store_relaxed(&timeout->run, RUN_ON);
    if (timeout_begin(timeout)) /* pins the timer: stop waits for the report */
        run_elsewhere(timer, timeout);
    else
        timeout_run_over(timeout);
    drop_share(timeout);
    if (unlikely(!timer_is_ours(timer))) /* or it has been destroyed; its shell stays */
        lifecycle_leave_in_child(timer);
}

/* G10: refused, it counts as cancelled and as rejected, and its hook runs here. */
static void refuse(hwt_timer *timer, hwt_timeout *timeout)
{
    struct lane *lane = lanes_here(&timer->lanes);

    if (timeout_cancel(timeout) != CANCEL_PENDING) {
        drop_share(timeout); /* cancelled first: withdrawn, or the notice will come */
        return;
    }
    poison_mark_taken_up(timeout);
    sub_acq_rel(&timeout->refs, 1); /* the job's share; the runtime still has its own */
    quota_give_back(timer, timeout);
    add_relaxed(&lane->rejected, 1);
    add_release(&lane->cancelled, 1);
    file_undispatched(timer, timeout);
    run_frames->refused = timeout;
    run_hook(timeout);
    run_frames->refused = NULL;
    run_bury_refused(timer, timeout);
}

/*
 * Somebody has called run(job) all the same: a refusal that comes too late is none. (The runtime's
 * share is there: who runs it elsewhere leaves a notice that only this thread takes in.) On another
 * thread, if it was cancelled, nobody can tell.
 */
static bool has_begun(const hwt_timeout *timeout)
{
    enum word_code code = word_code(load_acquire(&timeout->word));

    return !run_frames->offered || (code != WORD_DISPATCHED && code != WORD_CANCELLED);
}

bool run_dispatch(hwt_timer *timer, hwt_timeout *timeout)
{
    add_relaxed(&timeout->refs, 1); /* the job's share */
    poison_mark_offered(timeout);
    file_dispatched(timer, timeout);
    run_frames->offered = timeout;
    if (likely(timer->execute(timer->executor, run_job, timeout) == 0))
        return true;
    if (!timer_is_ours(timer))
        return false;
    if (has_begun(timeout))
        return true;
    refuse(timer, timeout);
    return false;
}
