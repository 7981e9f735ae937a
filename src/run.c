/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running tasks on the worker, which files or buries the timeout when its task has returned; and
 * what is the same on an executor's threads (run_job.c). Whoever wins the claim of the word runs
 * the task.
 */
#include "run_parts.h"

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

__attribute__((cold)) void run_tell_slow(hwt_timer *timer, hwt_task *task, uint64_t took)
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

/*
 * False: at max_pending. Elsewhere, this lane may be another one than that which counted the end:
 * so nothing is subtracted from what others may have read before (C24).
 */
static bool uncount_end(hwt_timer *timer, const hwt_timeout *timeout, bool elsewhere)
{
    if (!quota_take_again(timer, timeout))
        return false;
    if (elsewhere)
        add_relaxed(&lanes_here(&timer->lanes)->rearms, 1);
    else
        bump_release(&timer->worker.count.expired, (uint64_t)-1);
    return true;
}

/* ---- one run ---- */

uint64_t run_next_period(const hwt_timer *timer, const hwt_timeout *timeout)
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
        count_end(timer, timeout, false);
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

bool run_rearm(struct run_frame *frame, hwt_timeout *timeout, uint64_t deadline)
{
    hwt_timer *timer = timeout->timer;
    /* A second re-arm in one run counts no more; only this thread re-arms. */
    bool counts = !(timeout->flags & FLAG_PERIODIC) &&
                  word_code(load_acquire(&timeout->word)) == WORD_RUNNING;

    /* Pending again before the word says so: whoever cancels it then counts it out (G3). */
    if (counts && !uncount_end(timer, timeout, frame->elsewhere))
        return false;
    show_rearmed(frame, timer, timeout);
    if (!timeout_rearm(timeout, deadline)) {
        if (counts)
            count_end(timer, timeout, frame->elsewhere);
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
            count_end(timer, timeout, elsewhere); /* until now it was pending */
        return true;
    }
    return false;
}

void run_abandon_current(struct run_frame *frame, void (*rest)(void *frame))
{
    struct guard guard GUARDED = {.leave = rest, .what = frame};

    guard_begin(&guard);
    if (!finish_for_good(frame->timer, frame->current, frame->elsewhere) && !frame->in_hook)
        run_hook(frame->current);
}

void run_bury_refused(hwt_timer *timer, hwt_timeout *timeout)
{
    struct release release = release_drop_user_of(timeout);

    file_bury(timer, timeout);
    release_call(release);
}

static void bury_abandoned(void *abandoned)
{
    struct run_frame *frame = abandoned;
    hwt_timeout *timeout = frame->current;
    struct release release;

    timeout_run_over(timeout);
    release = release_drop_user_of(timeout);
    file_bury(frame->timer, timeout);
    frame->current = NULL; /* another one may have its block now */
    release_call(release);
}

__attribute__((cold)) void run_abandon(struct run_frame *frame)
{
    if (frame->current)
        run_abandon_current(frame, bury_abandoned);
    else if (frame->refused)
        run_bury_refused(frame->timer, frame->refused);
}

/* ---- from the worker ---- */

/* Not in the way of the common one. */
static __attribute__((noinline)) void end_otherwise(hwt_timer *timer, hwt_timeout *timeout)
{
    end_run(timer, timeout);
}

/* Of one that is alone: nobody sees what is not done. */
HOT void end_plainly(hwt_timer *timer, hwt_timeout *timeout, uint64_t deadline)
{
    store_relaxed(&timeout->word, word_make(deadline, WORD_EXPIRED));
    store_relaxed(&timeout->run, RUN_NONE);
    file_free(timer, timeout);
}

/*
 * The common run in one piece: of one that nobody has a handle to, and that is over when its task
 * has returned. False: it is not such a one, or not due, and nothing was done.
 */
HOT bool run_plainly(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame)
{
    uint64_t word, deadline;

    if (!timer->runs_plainly || !timeout_is_plain(timeout) || !timeout_is_alone(timeout))
        return false;
    word = load_acquire(&timeout->word);
    deadline = word_deadline(word);
    if (unlikely(word_code(word) != WORD_PENDING || deadline > timer->worker.pass_limit))
        return false;
    store_relaxed(&timeout->run, RUN_ON);
    word = word_make(deadline, WORD_RUNNING);
    store_relaxed(&timeout->word, word);
    bump_release(&timer->worker.count.expired, 1);
    bump_single_writer(&timer->worker.count.runs, 1);
    count_lateness(&timer->run_count, late(timer->worker.now, deadline), false);
    frame->current = timeout;
    timeout->task(timeout, timeout->arg);
    if (likely(timer_is_ours(timer))) { /* otherwise the task forked, and this is the child */
        if (likely(timeout_is_alone(timeout) && load_relaxed(&timeout->word) == word))
            end_plainly(timer, timeout, deadline);
        else
            end_otherwise(timer, timeout);
    }
    frame->current = NULL;
    return true;
}

/*
 * It was moved in this pass: after it had been found due, or it is handed out for that (agenda.h).
 * If the new deadline has come, too, it runs. The clock is read before the word: who moves it to
 * "now" has read his before he wrote that, and mostly the two agree. A clock of the caller's is not
 * asked: it may call back.
 */
static __attribute__((noinline)) enum claim claim_kicked(hwt_timer *timer, hwt_timeout *timeout,
                                                         enum word_code code)
{
    enum claim claim = CLAIM_LATER;
    uint64_t now;

    for (unsigned i = 0; i < KICK_TRIES && !timer->clock.now; i++) {
        timer->worker.now = now = timer_now(timer);
        claim = timeout_claim(timeout, now, code);
        if (claim != CLAIM_LATER || timeout_deadline(timeout) > now + KICK_NEAR)
            break;
    }
    return claim;
}

static enum claim claim_due(hwt_timer *timer, hwt_timeout *timeout, enum word_code code)
{
    enum claim claim = timeout_claim(timeout, timer->worker.pass_limit, code);

    return unlikely(claim == CLAIM_LATER) ? claim_kicked(timer, timeout, code) : claim;
}

static __attribute__((noinline)) bool run_or_dispatch(hwt_timer *timer, hwt_timeout *timeout,
                                                      struct run_frame *frame)
{
    enum word_code claimed = timer->execute ? WORD_DISPATCHED : WORD_RUNNING;

    if (!timer->execute)
        store_relaxed(&timeout->run, RUN_ON); /* before the claim shows (timeout_await_run) */
    switch (claim_due(timer, timeout, claimed)) {
    case CLAIM_WON:
        if (timer->execute)
            return run_dispatch(timer, timeout);
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

bool run_due(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame)
{
    return likely(run_plainly(timer, timeout, frame)) || run_or_dispatch(timer, timeout, frame);
}
