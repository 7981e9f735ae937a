/* SPDX-License-Identifier: BSD-2-Clause */
#include "worker.h"

#include "ahead.h"
#include "driver.h"
#include "filing.h"
#include "guard.h"
#include "house.h"
#include "intake.h"
#include "lifecycle.h"
#include "pass.h"
#include "run_frames.h"
#include "uncaught.h"
#include "visit.h"

/* Wake-ups are few: one in so long, or in so many ticks; and so many that were saved (sizes.h). */
#define LOOP_WAKE_NS UINT64_C(250000) /* of a loop, a poll, and a descriptor to be set: cheaper */
#define WAKE_TICKS   16

/* Of a tick: so many, and so many for each further millisecond; twice what may wake one by one. */
#define FEW      4
#define FEW_MORE 2

/* ---- sleeping ---- */

/* Something that the plan does not cover: mail, an earlier deadline, stop. */
static bool is_urgent(const hwt_timer *timer, uint64_t wake_before)
{
    const struct lane *lane;

    ck_pr_fence_store_load(); /* the plan is published before this looks (C4) */
    if (load_seq(&timer->phase) >= PHASE_STOPPING || load_seq(&timer->asked))
        return true;
    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        if (lane_has_mail(lane) || load_seq(&lane->earliest) < wake_before)
            return true;
    }
    return false;
}

static uint64_t wake_price(const hwt_timer *timer)
{
    uint64_t price = timer->drive == HWT_DRIVE_CALLER ? LOOP_WAKE_NS : WAKE_NS;

    return min_u64(price, WAKE_TICKS * min_u64(timer->tick_ns, price));
}

static bool wakes_are_few(const hwt_timer *timer, uint64_t now)
{
    return timer->worker.paid_until + wake_price(timer) <= now;
}

/* Neither is saved for ever, nor does a debt last. */
static void pay_wake(hwt_timer *timer, uint64_t now)
{
    struct worker *w = &timer->worker;
    uint64_t price = wake_price(timer), saved = WAKES_SAVED * price;

    w->paid_until = max_u64(w->paid_until, now > saved ? now - saved : 0) + price;
    w->paid_until = min_u64(w->paid_until, now + saved);
}

/* ---- the plan ---- */

/*
 * How many may share a tick that runs before it is over: few, or it is worth many wake-ups. But
 * what comes after nothing, for as long as one is worth, may be many: a bunch of one deadline.
 */
static uint32_t may_share_tick(const hwt_timer *timer, uint64_t ahead, bool wakes_few)
{
    if (wakes_few && ahead >= wake_price(timer))
        return SPARSE;
    return (uint32_t)min_u64(FEW + FEW_MORE * (timer->park.slack / WAKE_NS), SPARSE);
}

/*
 * How much later than for `next` a worker's wake-up is in time. A tick, so that all that is due at
 * one costs one; but unless the tick is crowded, others would wait: so nothing while they are few,
 * or if it is due by now, which takes none, and else what one is worth, where a tick is longer.
 * What is filed and due, but left by the last pass, is of a crowded one.
 */
static uint64_t workers_slack(hwt_timer *timer, uint64_t next, uint64_t filed, uint64_t now)
{
    struct worker *w = &timer->worker;
    uint64_t tick = timer->park.slack, price = wake_price(timer);
    bool few = wakes_are_few(timer, now);

    w->wheel->sparse = may_share_tick(timer, next - min_u64(next, now), few);
    if ((!few && price >= tick) || next >= DEADLINE_NEVER || filed <= w->passed ||
        !wheel_is_sparse(w->wheel, next))
        return tick;
    return few || next <= now ? 0 : price;
}

/*
 * A deadline below this is not covered by a wake-up for `next`. One with the slack of a wake-up is
 * so long after this: what is submitted meanwhile waits for it, too.
 */
static uint64_t cover(const hwt_timer *timer, uint64_t next, uint64_t slack, uint64_t now)
{
    const struct wheel *wheel = timer->worker.wheel;

    if (next >= DEADLINE_NEVER)
        return DEADLINE_NEVER;
    if (slack > 0 && slack == timer->park.slack)
        next = max_u64(wheel_tick_time(wheel, wheel_tick_of(wheel, next)), slack + 1) - slack;
    else if (slack > 0)
        next = max_u64(next, now + slack) - slack;
    return max_u64(next, 1);
}

/*
 * Publishes the next wake-up, which is in time until `until`; false: something has come up, do not
 * sleep.
 */
static bool worker_plan(hwt_timer *timer, uint64_t now, uint64_t *wake_before, uint64_t *until)
{
    struct worker *w = &timer->worker;
    uint64_t filed = wheel_next_call(w->wheel), slack = 0;
    uint64_t met = min_u64(filed, file_later_earliest(timer));

    timer_check_acting(timer);
    hwt_assert(!w->look.segment); /* its deadlines would not be covered */
    /* with what the lanes say: some of it was taken from there, and told there again (C15) */
    w->planned = min_u64(met, lanes_earliest(&timer->lanes));
    file_raise_bound(timer, min_u64(w->planned, file_rearmed_earliest(timer, false)));
    if (timer->drive == HWT_DRIVE_WORKER)
        slack = workers_slack(timer, w->planned, filed, now);
    *wake_before = cover(timer, w->planned, slack, now);
    *until = *wake_before + slack;
    park_publish(&timer->park, *wake_before);
    if (!is_urgent(timer, *wake_before))
        return true;
    park_leave(&timer->park);
    return false;
}

void worker_was_woken(hwt_timer *timer)
{
    if (unlikely(park_has_fd(&timer->park)))
        pay_wake(timer, timer->worker.passed);
}

/* What a submitter sets a descriptor to while nobody is awake who could say it better. */
static void foresee(hwt_timer *timer, uint64_t held_back)
{
    park_foresee(&timer->park, held_back, ahead_warning(timer));
}

/* ---- a descriptor's, of whoever drives ---- */

/* Exact while wake-ups are few; else so much later that what is due meanwhile costs no other. */
static uint64_t callers_slack(const hwt_timer *timer, uint64_t now)
{
    return wakes_are_few(timer, now) ? 0 : min_u64(timer->tick_ns - 1, LOOP_WAKE_NS);
}

/* The next deadline, or a little later if wake-ups are many, or now if something has come up. */
static void plan_fd(hwt_timer *timer)
{
    struct park *park = &timer->park;
    uint64_t now = timer_now(timer), wake_before, until, at;

    park->slack = callers_slack(timer, now);
    foresee(timer, park->slack);
    if (timer->worker.look.segment || !worker_plan(timer, now, &wake_before, &until)) {
        park_at_once(park);
        return;
    }
    until = wake_before + min_u64(park->slack, callers_slack(timer, wake_before));
    at = min_u64(until, ahead_time(timer, until));
    if (at < wake_before + park->slack)
        park_sooner(park, at);
}

/*
 * Set when the role is free: whoever wakes up at that must not be refused. (Without a descriptor
 * one is refused as well; with one that has just been made, this one may learn of it by that.)
 */
void worker_hand_over_fd(hwt_timer *timer)
{
    bool for_fd;

    do {
        for_fd = park_has_fd(&timer->park);
        if (for_fd)
            plan_fd(timer);
    } while (!driver_end_unless_missed(timer));
    if (for_fd)
        park_set(&timer->park);
}

void worker_stop_driving(void *driven)
{
    hwt_timer *timer = driven;

    if (!timer_is_ours(timer)) {
        lifecycle_leave_in_child(timer);
        return;
    }
    file_return_some(timer);
    worker_hand_over(timer);
}

/* ---- a worker's ---- */

static void sleep_until_due(hwt_timer *timer)
{
    uint64_t wake_before, until, now;

    file_return_some(timer);
    now = timer_now(timer);
    house_look(timer, now);
    if (park_has_fd(&timer->park))
        foresee(timer, wakes_are_few(timer, now) ? 0 : min_u64(timer->park.slack, WAKE_NS));
    if (!worker_plan(timer, now, &wake_before, &until))
        return;
    until = min_u64(min_u64(until, ahead_time(timer, until)), house_time(timer));
    if (until > now) {
        pay_wake(timer, now);
        park_sleep(&timer->park, until);
        bump_single_writer(&timer->worker.count.wakeups, 1);
    }
    park_leave(&timer->park);
}

/* Nothing is pending, or with the executor, where it might be re-armed. */
static bool has_all_ended(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    if (wheel_has_beside(w->wheel, &w->dispatched) || w->shelf)
        return false;
    return !stats_any_pending(timer);
}

/*
 * Ends what is periodic, now or when it is filed. To find it takes a look at all that is pending,
 * while nothing runs: so only if there has been any. Of what the worker has met that is known; what
 * is accepted at this moment, and not told yet, is found soon (look_for_end).
 */
static void end_periodic(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    bool any = timer_has_periodic(timer);

    if (any)
        intake(timer, DEADLINE_NEVER);
    if (any && w->reclaiming == RECLAIM_NONE)
        file_reclaim_periodic(timer);
    w->reclaiming = RECLAIM_PERIODIC;
}

/*
 * Asked whether all has ended; nothing runs here just now. The lanes are closed: what has been
 * accepted is in them, or is known, so all is looked through once more. What comes later is taken
 * back by who has submitted it, and nobody else may take it out: so this is the worker's end (C18).
 */
static void attend_drain(hwt_timer *timer, bool closed)
{
    struct worker *w = &timer->worker;

    end_periodic(timer);
    if (!closed || !has_all_ended(timer) || !intake_all(timer) || !has_all_ended(timer))
        return;
    pthread_mutex_lock(&timer->mutex);
    if (load_relaxed(&timer->phase) == PHASE_DRAINING) {
        w->ended = true;
        store_release(&timer->phase, PHASE_DRAINED);
    }
    pthread_mutex_unlock(&timer->mutex);
}

/* What others have asked for; then another pass, for what has come up meanwhile. */
static void attend(hwt_timer *timer)
{
    uint32_t asked = exchange_seq(&timer->asked, 0); /* before it is looked at what that is */

    if (asked & ASKED_PLAN) /* nothing was pending: then the next plan raises the bound */
        intake(timer, DEADLINE_NEVER);
    if (asked & ASKED_VISIT)
        visit_attend(timer);
    if (asked & ASKED_DRAIN && timer_is_ours(timer))
        attend_drain(timer, true);
    if (asked & ASKED_READY)
        house_make_ready(timer);
    if (asked & ASKED_HOUSE)
        house_begin(timer);
}

static UNCAUGHT_FUNCTION void work(hwt_timer *timer)
{
    UNCAUGHT_TOLD;
    while (!pass_must_leave(timer)) { /* pass or visitor may have forked */
        pass_run(timer, false);
        if (pass_must_leave(timer))
            return;
        house_look_to_wheel(timer);
        house_keep(timer);
        if (unlikely(load_relaxed(&timer->asked)))
            attend(timer);
        else if (unlikely(pass_has_to_drain(timer)))
            attend_drain(timer, false);
        else if (!ahead_look(timer))
            sleep_until_due(timer);
    }
}

/* The user's words on this thread, before all else that it does and after it. */
static void introduce(hwt_timer *timer)
{
    if (timer->worker_start)
        timer->worker_start(timer->worker_arg);
    timer->introduced = true;
}

static void take_leave(hwt_timer *timer)
{
    if (timer->worker_exit && timer->introduced)
        timer->worker_exit(timer->worker_arg);
}

struct shift {
    hwt_timer *timer;
    bool returned; /* from its work */
};

/* Stopped; or in the child of a task or worker_exit that has forked; or a task has ended it. */
static void leave_work(void *left)
{
    const struct shift *shift = left;
    hwt_timer *timer = shift->timer;

    if (likely(timer_is_ours(timer))) {
        if (!shift->returned)
            lifecycle_lose_worker(timer);
        take_leave(timer);
    }
    if (unlikely(!timer_is_ours(timer))) {
        run_worker_of = NULL;
        lifecycle_leave_in_child(timer);
    }
}

void *worker_main(void *argument)
{
    hwt_timer *timer = argument;
    struct shift shift = {.timer = timer, .returned = false};
    struct guard guard GUARDED = {.leave = leave_work, .what = &shift};

    run_worker_of = timer;
    timer_act(timer);
    platform_name_worker(timer->thread_name);
    guard_begin(&guard);
    introduce(timer);
    if (likely(timer_is_ours(timer)))
        work(timer);
    shift.returned = true;
    return NULL;
}
