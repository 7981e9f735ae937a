/* SPDX-License-Identifier: BSD-2-Clause */
/* The caller's own thread as the worker, and a descriptor that tells its event loop when. */
#include <errno.h>

#include "filing.h"
#include "guard.h"
#include "intake.h"
#include "lifecycle.h"
#include "run.h"
#include "worker.h"

/* Sets the descriptor to the next deadline, or to now if something came up meanwhile. */
static void arm(hwt_timer *timer)
{
    uint64_t wake_before;

    if (load_relaxed(&timer->park.kind) == PARK_TIMERFD && !worker_plan(timer, &wake_before))
        park_fire(&timer->park);
}

/* However a pass ends: also by a task that threw, or ended its thread. */
static void stop_driving(void *driven)
{
    hwt_timer *timer = driven;

    if (!timer_is_ours(timer)) { /* a task has forked, and this is the child */
        lifecycle_leave_in_child(timer);
        return;
    }
    file_flush_returns(timer);
    arm(timer);
    pthread_mutex_unlock(&timer->driving);
}

/* Under `driving`, which it releases. */
static int drive(hwt_timer *timer)
{
    struct guard guard GUARDED = {.leave = stop_driving, .what = timer};

    guard_begin(&guard);
    park_leave(&timer->park);
    return worker_pass(timer, true);
}

int hwt_timer_advance(hwt_timer *timer)
{
    int ran;

    if (!timer || timer->drive != HWT_DRIVE_CALLER)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (run_is_inside(timer))
        return -EDEADLK;
    if (load_acquire(&timer->phase) >= PHASE_STOPPING)
        return -ESHUTDOWN;
    if (pthread_mutex_trylock(&timer->driving) != 0)
        return -EBUSY;
    if (load_acquire(&timer->phase) >= PHASE_STOPPING) { /* stopped while this got here */
        pthread_mutex_unlock(&timer->driving);
        return -ESHUTDOWN;
    }
    ran = drive(timer);
    return timer_is_ours(timer) ? ran : -ECHILD;
}

/* Without the wheel: no deadline is earlier, but it may be of one that was cancelled. */
static uint64_t estimate(const hwt_timer *timer)
{
    uint64_t earliest = load_relaxed(&timer->worker.next_deadline);

    if (hwt_timer_pending(timer) == 0)
        return UINT64_MAX;
    for (unsigned i = 0; i < timer->lanes.count; i++)
        earliest = min_u64(earliest, load_seq(&timer->lanes.lane[i].earliest));
    return earliest;
}

/* Exactly; under `driving`. */
static uint64_t look_ahead(hwt_timer *timer)
{
    uint64_t earliest;

    intake(timer, DEADLINE_NEVER);
    earliest = wheel_earliest(timer->worker.wheel, true);
    store_relaxed(&timer->worker.next_deadline, earliest);
    arm(timer);
    return earliest;
}

uint64_t hwt_timer_next_deadline(hwt_timer *timer)
{
    uint64_t earliest;

    if (!timer || !timer_is_ours_now(timer) || load_acquire(&timer->phase) >= PHASE_STOPPING)
        return UINT64_MAX;
    if (timer->drive == HWT_DRIVE_CALLER && !run_is_inside(timer) &&
        pthread_mutex_trylock(&timer->driving) == 0) {
        earliest = UINT64_MAX;
        if (load_acquire(&timer->phase) < PHASE_STOPPING)
            earliest = look_ahead(timer);
        pthread_mutex_unlock(&timer->driving);
    } else {
        earliest = estimate(timer);
    }
    return earliest >= DEADLINE_NEVER ? UINT64_MAX : earliest;
}

/* From now on submissions see the descriptor. Whoever is driving may be past arming it. */
static void take_into_use(hwt_timer *timer, int fd)
{
    store_relaxed(&timer->park.fd, fd);
    store_release(&timer->park.kind, PARK_TIMERFD);
    if (!run_is_inside(timer) && pthread_mutex_trylock(&timer->driving) == 0) {
        arm(timer);
        pthread_mutex_unlock(&timer->driving);
    } else {
        park_fire(&timer->park); /* the next advance arms it */
    }
}

int hwt_timer_fd(hwt_timer *timer)
{
    int fd;

    if (!timer || timer->drive != HWT_DRIVE_CALLER)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (timer->clock.now)
        return -ENOTSUP;
    pthread_mutex_lock(&timer->mutex);
    fd = load_relaxed(&timer->park.fd);
    if (fd < 0) {
        fd = platform_timerfd_create(timer->clock.id);
        if (fd >= 0)
            take_into_use(timer, fd);
    }
    pthread_mutex_unlock(&timer->mutex);
    return fd;
}
