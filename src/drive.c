/* SPDX-License-Identifier: BSD-2-Clause */
/* The caller's own thread as the worker, and a descriptor that tells its event loop when. */
#include <errno.h>

#include "ahead.h"
#include "answer.h"
#include "driver.h"
#include "filing.h"
#include "guard.h"
#include "house.h"
#include "intake.h"
#include "pass.h"
#include "run.h"
#include "worker.h"

/* Portions of looking ahead: a turn of the loop costs as much as one of them. */
#define LOOK_ON_NS UINT64_C(100000)

/* In a task that this thread's own advance runs: it drives already. */
static bool drives_here(const hwt_timer *timer)
{
    return timer->drive == HWT_DRIVE_CALLER && run_is_inside_here(timer) && !run_is_visiting(timer);
}

/* Becomes the driver, to look; not in a visitor, who is in that role already, and may not file. */
static bool looks(hwt_timer *timer)
{
    return !run_is_visiting(timer) && driver_begin(timer, DRIVER_LOOKS);
}

/* An event loop hears of the stop from this, and then no more from the descriptor. */
static int say_stopped(hwt_timer *timer)
{
    park_end(&timer->park);
    return -ESHUTDOWN;
}

/*
 * The earliest deadline of all that has been taken in, and what the lanes say of the rest; by
 * whoever drives, in a task too: then that one's next run counts. `promised`: before that, somebody
 * was a guest, whose nudge may not be queued yet (C15). Then there may be timeouts in no slot, none
 * of which is due before what was told to the lanes, or taken from there, or met nudged, since
 * nobody was a guest; nor before what had been re-armed then, which is hidden by a guest before it
 * is here.
 */
static uint64_t reckon(hwt_timer *timer, bool promised)
{
    struct worker *w = &timer->worker;
    uint64_t earliest = wheel_earliest_exact(w->wheel), rearmed, told;

    earliest = min_u64(earliest, file_later_earliest(timer));
    earliest = min_u64(earliest, run_next_of_current(timer));
    rearmed = file_rearmed_earliest(timer, true);
    earliest = min_u64(earliest, rearmed);
    /* afterwards: who had one in his hand meanwhile is a guest, or has put it down again */
    if (unlikely(load_seq(&timer->guests) > 0))
        promised = true;
    told = lanes_told(&timer->lanes, true);
    if (unlikely(promised || told == 0)) {
        earliest = min_u64(earliest, w->promised);
        told = lanes_bound(&timer->lanes);
    } else {
        w->promised = rearmed;
    }
    earliest = min_u64(earliest, told);
    file_set_bound(w, earliest);
    return earliest;
}

/* Exactly; by whoever drives, in a task too. */
static uint64_t look_ahead(hwt_timer *timer)
{
    bool promised = load_seq(&timer->guests) > 0;

    intake(timer, DEADLINE_NEVER);
    return reckon(timer, promised);
}

/* Who asks in turns with advancing is answered before he asks. */
static void leave_answer(hwt_timer *timer)
{
    const struct worker *w = &timer->worker;

    answer_want(&timer->answer, false);
    if (!w->look.segment) /* its deadlines would not be covered */
        answer_leave(&timer->answer, &w->wheel->witness,
                     reckon(timer, load_seq(&timer->guests) > 0));
}

/* By the driver, who is none any more afterwards. */
static int drive(hwt_timer *timer)
{
    struct guard guard GUARDED = {.leave = worker_stop_driving, .what = timer};
    int ran;

    guard_begin(&guard);
    park_leave(&timer->park);
    ran = pass_run(timer, true);
    if (!timer_is_ours(timer))
        return ran;
    if (ran > 0)
        worker_was_woken(timer);
    house_look_to_wheel(timer);
    ahead_look_on(timer, LOOK_ON_NS);
    if (load_relaxed(&timer->answer.wanted))
        leave_answer(timer);
    return ran;
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
        return say_stopped(timer);
    if (!driver_begin(timer, DRIVER_ADVANCES))
        return load_acquire(&timer->phase) >= PHASE_STOPPING ? say_stopped(timer) : -EBUSY;
    if (load_acquire(&timer->phase) >= PHASE_STOPPING) { /* stopped while this got here */
        driver_end(timer);
        return say_stopped(timer);
    }
    ran = drive(timer);
    return timer_is_ours(timer) ? ran : -ECHILD;
}

/* The lanes first: what is taken from a lane lowers `next_deadline` before that (intake.c). */
static uint64_t read_bounds(const hwt_timer *timer)
{
    uint64_t earliest = lanes_bound(&timer->lanes);

    return min_u64(earliest, load_seq(&timer->worker.next_deadline));
}

/*
 * Nothing is pending, though the bound says so: to find that out took a look at every slot that was
 * ever used. Where that has been found before, and nothing has come since, a worker is asked to
 * take in what is not there, and to plan: then the bound says it.
 */
static void ask_for_plan(hwt_timer *timer, uint64_t bound)
{
    if (load_relaxed(&timer->run_count.none_from) != bound)
        store_relaxed(&timer->run_count.none_from, bound);
    else if (timer->drive == HWT_DRIVE_WORKER && !(load_relaxed(&timer->asked) & ASKED_PLAN))
        timer_ask(timer, ASKED_PLAN);
}

/*
 * Without the wheel: no deadline is earlier, but it may be of one that was cancelled. Two looks:
 * meanwhile a deadline may come from a lane to the worker, and be told once more to a lane that the
 * first look has seen, by whoever queues the nudge; but not a third time.
 */
static uint64_t estimate(hwt_timer *timer)
{
    uint64_t earliest = read_bounds(timer);

    earliest = min_u64(earliest, read_bounds(timer));
    if (earliest == UINT64_MAX || stats_any_pending(timer))
        return earliest;
    ask_for_plan(timer, earliest);
    return UINT64_MAX;
}

/* By the driver, outside of tasks. Would the one before have answered, had it been left? */
static uint64_t ask(hwt_timer *timer)
{
    uint64_t told = lanes_told(&timer->lanes, true), earliest = look_ahead(timer);

    answer_leave(&timer->answer, &timer->worker.wheel->witness, earliest);
    answer_want(&timer->answer, told > earliest);
    return earliest;
}

uint64_t hwt_timer_next_deadline(hwt_timer *timer)
{
    uint64_t earliest = UINT64_MAX;

    if (!timer || !timer_is_ours_now(timer) || load_acquire(&timer->phase) >= PHASE_STOPPING)
        return UINT64_MAX;
    if (answer_read(timer, &earliest)) {
        answer_want(&timer->answer, true);
        earliest = min_u64(earliest, run_next_of_current(timer)); /* on an executor's thread */
    } else if (drives_here(timer)) {
        earliest = look_ahead(timer);
    } else if (timer->drive == HWT_DRIVE_CALLER && looks(timer)) {
        if (load_acquire(&timer->phase) < PHASE_STOPPING) {
            earliest = ask(timer);
            worker_hand_over(timer);
        } else {
            driver_end(timer);
        }
    } else {
        earliest = estimate(timer);
    }
    return earliest >= DEADLINE_NEVER ? UINT64_MAX : earliest;
}

/* From now on submissions see the descriptor, which is readable until somebody has armed it. */
static void take_into_use(hwt_timer *timer, int fd)
{
    store_relaxed(&timer->park.fd, fd);
    store_release(&timer->park.kind, PARK_TIMERFD);
    park_at_once(&timer->park);
    park_set(&timer->park);
}

/* The descriptor, a new one if there is none; or a negative errno. */
static int descriptor(hwt_timer *timer, bool *is_new)
{
    int fd;

    pthread_mutex_lock(&timer->mutex);
    fd = load_relaxed(&timer->park.fd);
    *is_new = fd < 0;
    if (fd < 0) {
        fd = platform_timerfd_create(timer->clock.id);
        if (fd >= 0)
            take_into_use(timer, fd);
    }
    pthread_mutex_unlock(&timer->mutex);
    return fd;
}

int hwt_timer_fd(hwt_timer *timer)
{
    bool is_new;
    int fd;

    if (!timer || timer->drive != HWT_DRIVE_CALLER)
        return -EINVAL;
    if (!timer_is_ours_now(timer))
        return -ECHILD;
    if (timer->clock.now)
        return -ENOTSUP;
    fd = descriptor(timer, &is_new);
    /* Armed now, if nobody drives; otherwise whoever advances next does. No lock is held. */
    if (fd >= 0 && is_new && !drives_here(timer) && looks(timer))
        worker_hand_over(timer);
    return fd;
}
