/* SPDX-License-Identifier: BSD-2-Clause */
#include "run_frames.h"

#include "extra.h"
#include "guard.h"
#include "release.h"

_Thread_local struct run_frame *run_frames;
_Thread_local const hwt_timer *run_worker_of;

/*
 * Hooks that this thread is calling for its own cancellations: it has no frame for these. Their
 * timer may be destroyed meanwhile, and the next one have its shell.
 */
struct hook_frame {
    hwt_timeout *timeout;
    const hwt_timer *timer;
    uint32_t life;
    struct hook_frame *outer;
};
static _Thread_local struct hook_frame *hook_frames;

bool run_is_inside(const hwt_timer *timer)
{
    for (const struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        if (frame->timer == timer)
            return true;
    }
    return run_worker_of == timer;
}

bool run_runs_here(const hwt_timer *timer)
{
    for (const struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        if (frame->timer == timer && !frame->elsewhere)
            return true;
    }
    return false;
}

bool run_visits(const hwt_timer *timer)
{
    for (const struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        if (frame->timer == timer && frame->visits)
            return true;
    }
    return false;
}

bool run_is_inside_any(const hwt_timer *timer)
{
    for (const struct hook_frame *frame = hook_frames; frame; frame = frame->outer) {
        if (frame->timer == timer && frame->life == load_relaxed(&timer->lives))
            return true;
    }
    return run_is_inside(timer);
}

struct run_frame *run_frame_of(const hwt_timeout *timeout)
{
    for (struct run_frame *frame = run_frames; frame; frame = frame->outer) {
        if (frame->current == timeout)
            return frame;
    }
    return NULL;
}

void run_hook(hwt_timeout *timeout)
{
    const struct timeout_extra *extra = timeout_extra(timeout);
    struct run_frame *frame = run_frames;
    bool ends_run = frame && frame->current == timeout;

    if (!extra || !extra->cancelled)
        return;
    if (ends_run)
        frame->in_hook = true;
    extra->cancelled(timeout, extra->arg);
    if (ends_run)
        frame->in_hook = false;
}

/* However the hook was left. It may have dropped the handle by which the timeout was cancelled. */
static void leave_last_words(void *left)
{
    const struct hook_frame *frame = left;
    struct release release = release_drop_user_of(frame->timeout);

    hook_frames = frame->outer;
    timeout_let_go(frame->timeout);
    release_call(release);
}

void run_last_words(hwt_timeout *timeout, uint32_t life)
{
    struct hook_frame frame = {timeout, timeout->timer, life, hook_frames};
    struct guard guard GUARDED = {.leave = leave_last_words, .what = &frame};

    add_relaxed(&timeout->refs, 1);
    hook_frames = &frame;
    guard_begin(&guard);
    run_hook(timeout);
    hook_frames = frame.outer;
}
