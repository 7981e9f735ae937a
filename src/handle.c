/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be done with a handle, from any thread. A handle outlives its timer (G9): the timer's
 * parts are touched only by whoever has won the word, because stop then waits for that winner's
 * last step (rule C6 of docs/concurrency.md).
 */
#include <errno.h>

#include "extra.h"
#include "guard.h"
#include "quota.h"
#include "release.h"
#include "run.h"

/* ---- cancel ---- */

/*
 * Not in its lane any more: out of its bucket, or the worker must be told. True: it is cancelled.
 * Counted before that: afterwards, stop may let go of all but the shell.
 */
static __attribute__((noinline)) bool cancel_met(hwt_timer *timer, hwt_timeout *timeout)
{
    struct lane *lane = lanes_here(&timer->lanes);
    uint64_t guest;

    add_release(&lane->cancelled, 1);
    if (likely(bucket_withdraw(timeout)) || lane_withdraw_met(timeout)) {
        store_release(&timeout->withdrawn, 1);
        return true;
    }
    if (likely(!lane_count_notice(lane))) {
        lane_notify(lane, timeout);
        return true;
    }
    guest = timer_sign_in(timer);
    lane_notify(lane, timeout);
    park_wake(&timer->park);
    timer_sign_out(timer, guest);
    return true;
}

/*
 * Won while pending. Until it is out of its slot, or its notice is queued, stop waits for it. Most
 * are in their lane, and that is all there is to them: no call, so no register to save.
 */
HOT bool take_away(hwt_timeout *timeout)
{
    if (unlikely(!lane_withdraw(timeout)))
        return cancel_met(timeout->timer, timeout);
    store_release(&timeout->withdrawn, 1);
    return true;
}

HOT void cancel_pending(hwt_timeout *timeout)
{
    quota_give(timeout->timer);
    take_away(timeout);
}

/*
 * Nudged, with the executor, or running: here nothing that the winner does would make stop wait
 * for him. So he first signs in as a guest of the shell, which outlives the timer.
 */
static __attribute__((noinline)) enum cancel_win cancel_as_guest(hwt_timeout *timeout)
{
    hwt_timer *timer = timeout->timer;
    uint64_t guest = timer_sign_in(timer);
    enum cancel_win win;

    win = timeout_cancel(timeout);
    if (win == CANCEL_PENDING) {
        cancel_pending(timeout);
    } else if (win != CANCEL_LOST) {
        quota_give(timer);
        add_release(&lanes_here(&timer->lanes)->cancelled, 1);
    }
    timer_sign_out(timer, guest);
    return win;
}

/* Won while pending, or not yet. */
static __attribute__((noinline)) enum cancel_win cancel_further(hwt_timeout *timeout, bool pending)
{
    if (!pending)
        return timeout_has_ended(timeout) ? CANCEL_LOST : cancel_as_guest(timeout);
    cancel_pending(timeout);
    return CANCEL_PENDING;
}

/* Once it is won, and taken away, its timer may be destroyed, and the shell be another one's. */
static __attribute__((noinline)) bool cancel_extended(hwt_timeout *timeout)
{
    uint32_t life = load_relaxed(&timeout->timer->lives);
    enum cancel_win win = cancel_further(timeout, timeout_cancel_pending(timeout));

    if (win != CANCEL_LOST && win != CANCEL_RUNNING) /* its arg is in use: up to who runs it */
        run_last_words(timeout, life);
    return win != CANCEL_LOST;
}

HOT bool cancel(hwt_timeout *timeout)
{
    bool pending;

    if (unlikely(timeout->flags & FLAG_EXTENDED))
        return cancel_extended(timeout);
    pending = likely(timeout_cancel_pending(timeout));
    if (unlikely(!pending) || unlikely(timeout->timer->max_pending))
        return cancel_further(timeout, pending) != CANCEL_LOST;
    return take_away(timeout);
}

bool hwt_timeout_cancel(hwt_timeout *timeout)
{
    if (unlikely(!timeout))
        return false;
    poison_check_alive(timeout);
    if (unlikely(!timer_is_ours(timeout->timer)))
        return false;
    return cancel(timeout);
}

static int cancel_and_await(hwt_timeout *timeout)
{
    bool won = cancel(timeout);

    if (!timer_is_ours(timeout->timer)) /* its hook has forked, and this is the child */
        return -ECHILD;
    timeout_await_run(timeout);
    return won;
}

static void let_go(void *held)
{
    timeout_let_go(held);
}

/* Its hook, which is called in between, may drop the handle. */
static int cancel_and_await_held(hwt_timeout *timeout)
{
    struct guard guard GUARDED = {.leave = let_go, .what = timeout};

    add_relaxed(&timeout->refs, 1);
    guard_begin(&guard);
    return cancel_and_await(timeout);
}

int hwt_timeout_cancel_sync(hwt_timeout *timeout)
{
    if (!timeout)
        return -EINVAL;
    poison_check_alive(timeout);
    if (!timer_is_ours_now(timeout->timer))
        return -ECHILD;
    if (run_frame_of(timeout))
        return -EDEADLK;
    return timeout->flags & FLAG_EXTENDED ? cancel_and_await_held(timeout)
                                          : cancel_and_await(timeout);
}

/* ---- reschedule ---- */

static void nudge(hwt_timer *timer, hwt_timeout *timeout)
{
    struct lane *lane = lanes_here(&timer->lanes);
    bool many = lane_count_notice(lane);

    lane_notify(lane, timeout);
    if (many)
        park_wake(&timer->park);
    /* Another one may have moved it still earlier meanwhile, and relies on this nudge. */
    timer_tell_moved(timer, lane, word_deadline(load_seq(&timeout->word)));
}

/*
 * Not while somebody goes round all timeouts, and must meet each. He has said so before he looks
 * whether there are guests; who asks here is one.
 */
static bool may_put_again(const hwt_timer *timer)
{
    return likely(load_seq(&timer->phase) < PHASE_STOPPING && !load_seq(&timer->still));
}

/*
 * Nudged, by this caller: then who can take it out of its bucket puts it into a lane, as if it had
 * been submitted now, and the worker need not be told. False: it is in none.
 */
static bool put_again(hwt_timer *timer, hwt_timeout *timeout)
{
    struct lane *lane = lanes_here(&timer->lanes);
    uint64_t word;

    if (!may_put_again(timer))
        return false;
    word = load_acquire(&timeout->word);
    lane_tell_moved(lane, word_deadline(word)); /* before it is in no slot (C15) */
    if (!bucket_withdraw(timeout))
        return false;
    timeout->place = PLACE_UNMET;
    while (word_code(word) == WORD_NUDGED) {
        if (timeout_take_nudge(timeout, &word)) {
            uint64_t deadline = word_deadline(word);
            park_wake_for(&timer->park, lane_submit_met(&timer->lanes, timeout, deadline));
            return true;
        }
        lane_tell_moved(lane, word_deadline(word)); /* others move it still */
    }
    store_release(&timeout->withdrawn, 1); /* cancelled: the nudge was to tell the worker */
    return true;
}

/* The worker has met it. */
static bool move_met(hwt_timer *timer, hwt_timeout *timeout, uint64_t deadline)
{
    enum move_win win = timeout_move(timeout, deadline);

    if (win == MOVE_NUDGE && !put_again(timer, timeout))
        nudge(timer, timeout);
    else if (win == MOVE_COMPARE)
        timer_tell_moved(timer, lanes_here(&timer->lanes), deadline);
    return win != MOVE_LOST;
}

/*
 * In the slot of a lane it can stay: whoever takes it out looks at its deadline then. It is told
 * before it is moved, because others may move it later, but still earlier than it was, without
 * telling anybody (C15).
 */
static bool move_unmet(hwt_timer *timer, hwt_timeout *timeout, uint64_t deadline)
{
    enum move_win win;

    lane_tell_moved(lanes_here(&timer->lanes), deadline);
    win = timeout_move_unmet(timeout, deadline);
    if (win == MOVE_DONE && !lane_move(timeout, deadline) && timeout_nudge(timeout) &&
        !put_again(timer, timeout))
        nudge(timer, timeout);
    if (win == MOVE_COMPARE) /* by somebody who found it in no slot */
        lane_tell_moved(lanes_here(&timer->lanes), deadline);
    if (win != MOVE_LOST)
        park_wake_for(&timer->park, deadline);
    return win != MOVE_LOST;
}

/*
 * Earlier, or nudged: what is to be touched after the word was won, or the nudge was queued,
 * nothing but this holds: the worker's next wake-up, and the descriptor that is set to it.
 */
static __attribute__((noinline)) bool move_as_guest(hwt_timeout *timeout, uint64_t deadline)
{
    hwt_timer *timer = timeout->timer;
    uint64_t guest = timer_sign_in(timer);
    bool moved = false;

    if (timeout_is_pending(timeout)) /* so stop, which ends it first, waits for this guest */
        moved = lane_holds(timeout) ? move_unmet(timer, timeout, deadline)
                                    : move_met(timer, timeout, deadline);
    timer_sign_out(timer, guest);
    return moved;
}

/* Later, and no nudge on its way: one compare-and-swap, and nothing of the timer is touched. */
HOT bool move(hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t word = load_acquire(&timeout->word);

    while (likely(word_code(word) <= WORD_NUDGED)) { /* PENDING or NUDGED */
        if (deadline < word_deadline(word) || unlikely(word_code(word) == WORD_NUDGED))
            return move_as_guest(timeout, deadline);
        if (likely(word_change(timeout, &word, deadline, WORD_PENDING)))
            return true;
    }
    return false;
}

bool hwt_timeout_reschedule_at(hwt_timeout *timeout, uint64_t deadline_ns)
{
    uint64_t deadline = deadline_clamp(deadline_ns);
    struct run_frame *frame;

    if (unlikely(!timeout))
        return false;
    poison_check_alive(timeout);
    if (unlikely(!timer_is_ours(timeout->timer)))
        return false;
    if (unlikely(run_frames) && (frame = run_frame_of(timeout)) != NULL)
        return run_rearm(frame, timeout, deadline);
    return move(timeout, deadline);
}

/* A system clock is known without the timer, which may be gone. */
static uint64_t handle_now(const hwt_timeout *timeout, uint64_t delay)
{
    if (unlikely(timeout->flags & FLAG_CALLERS_CLOCK))
        return timer_now(timeout->timer);
    if (unlikely(timeout->flags & FLAG_BOOTTIME))
        return clock_system_now(CLOCK_BOOTTIME);
    return counter_now(delay);
}

bool hwt_timeout_reschedule(hwt_timeout *timeout, uint64_t delay_ns)
{
    if (unlikely(!timeout) || timeout_has_ended(timeout))
        return false;
    return hwt_timeout_reschedule_at(timeout,
                                     deadline_after(handle_now(timeout, delay_ns), delay_ns));
}

/* ---- looking at it ---- */

hwt_state hwt_timeout_state(const hwt_timeout *timeout)
{
    if (!timeout)
        return HWT_CANCELLED;
    switch (word_code(load_acquire(&timeout->word))) {
    case WORD_PENDING:
    case WORD_NUDGED:
    case WORD_DISPATCHED: return HWT_PENDING;
    case WORD_RUNNING:
    case WORD_REARMED:
    case WORD_LAST: return HWT_RUNNING;
    case WORD_EXPIRED: return HWT_EXPIRED;
    case WORD_CANCELLED: break;
    }
    return HWT_CANCELLED;
}

bool hwt_timeout_is_expired(const hwt_timeout *timeout)
{
    hwt_state state = hwt_timeout_state(timeout);
    return state == HWT_RUNNING || state == HWT_EXPIRED;
}

bool hwt_timeout_is_cancelled(const hwt_timeout *timeout)
{
    return timeout && hwt_timeout_state(timeout) == HWT_CANCELLED;
}

hwt_timer *hwt_timeout_timer(const hwt_timeout *timeout)
{
    return timeout ? timeout->timer : NULL;
}

hwt_task *hwt_timeout_task(const hwt_timeout *timeout)
{
    return timeout ? timeout->task : NULL;
}

void *hwt_timeout_arg(const hwt_timeout *timeout)
{
    return timeout ? timeout_arg(timeout) : NULL;
}

uint64_t hwt_timeout_deadline(const hwt_timeout *timeout)
{
    uint64_t deadline = timeout ? word_deadline(load_acquire(&timeout->word)) : DEADLINE_NEVER;
    return deadline == DEADLINE_NEVER ? UINT64_MAX : deadline;
}

/* ---- references ---- */

hwt_timeout *hwt_timeout_ref(hwt_timeout *timeout)
{
    if (!timeout)
        return NULL;
    poison_check_alive(timeout);
    add_relaxed(&timeout->refs, 1);
    if (has_release(timeout))
        release_add_user(timeout);
    return timeout;
}

/* With what belongs to it, and perhaps its argument (G16). */
static __attribute__((noinline)) void unref_extended(hwt_timeout *timeout)
{
    struct release release = {NULL, NULL};

    if (has_release(timeout))
        release = release_drop_user(timeout);
    timeout_let_go(timeout);
    release_call(release);
}

void hwt_timeout_unref(hwt_timeout *timeout)
{
    if (unlikely(!timeout))
        return;
    poison_check_alive(timeout);
    if (unlikely(timeout->flags & FLAG_EXTENDED))
        unref_extended(timeout);
    else if (timeout_drop(timeout))
        pool_give(timeout);
}
