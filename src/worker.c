/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker: takes in what the lanes hold, advances the wheel, runs what is due, sleeps. The same
 * code serves a thread of its own, the caller's thread (drive.c) and, with `reclaiming` set, stop.
 */
#include "timer.h"

#define PREFETCH_AHEAD 12
#define QUIET_TICKS    16

/* ---- filing and burying ---- */

void worker_leave_adrift(hwt_timer *timer, hwt_timeout *timeout)
{
    timeout->place = PLACE_ADRIFT;
    timer->worker.adrift++;
}

/* Stop: hand it back, unless somebody else ended it, or a nudge for it is on its way. */
static void reclaim(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    if (!timeout_reclaim(timeout)) {
        worker_leave_adrift(timer, timeout);
        return;
    }
    run_release_quota(timer);
    bump_single_writer(&w->count.unprocessed, 1);
    timeout->link.next = w->reclaimed ? &w->reclaimed->link : NULL;
    w->reclaimed = timeout;
}

void worker_file(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    if (unlikely(w->reclaiming))
        reclaim(timer, timeout);
    else if (unlikely(deadline <= w->pass_limit)) /* due, but submitted after what is running */
        wheel_bucket_insert(w->wheel, &w->wheel->overdue, timeout);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void worker_file_in_order(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    if (unlikely(w->reclaiming))
        reclaim(timer, timeout);
    else if (deadline <= w->wheel->due_limit)
        wheel_bucket_insert(w->wheel, &w->due, timeout);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void worker_bury(hwt_timer *timer, hwt_timeout *timeout)
{
    unsigned shard = timeout->origin >> LANE_BITS;

    if (!timeout_drop(timeout))
        return;
    if (unlikely(timeout->kind & KIND_EXTENDED) || shard >= timer->lanes.count) {
        timeout_free(timeout);
    } else { /* back to where it came from */
        poison_mark_dead(timeout);
        pool_return_add(&timer->worker.returns[shard], shard, timeout);
    }
}

void worker_flush_returns(hwt_timer *timer)
{
    for (unsigned i = 0; i < timer->lanes.count; i++)
        pool_return_flush(&timer->worker.returns[i], i);
}

/* ---- taking in ---- */

/* From a lane: the first time that the worker sees it. */
static void meet(hwt_timer *timer, hwt_timeout *timeout)
{
    if (unlikely(timeout->noticed)) /* its notice overtook it (from the spill) */
        worker_bury(timer, timeout);
    else if (likely(word_code(load_acquire(&timeout->word)) == WORD_PENDING))
        worker_file(timer, timeout);
    else
        worker_leave_adrift(timer, timeout);
}

static void meet_all(void *context, hwt_timeout **found, unsigned count)
{
    hwt_timer *timer = context;

    wheel_expect(timer->worker.wheel, found, count);
    for (unsigned i = 0; i < count; i++)
        meet(timer, found[i]);
}

/*
 * A notice has arrived: of a cancellation, of a deadline moved earlier, or of a run that is over
 * on the executor. It is the only one for this timeout, so nobody else will file or bury it.
 */
static void receive(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    switch ((enum timeout_place)timeout->place) {
    case PLACE_UNMET:
        /* Not withdrawn by a canceller: that is what the notice or nudge excludes. */
        if (lane_take_back(&timer->lanes, timeout))
            break;
        if (!timeout_take_nudge(timeout)) /* it comes from the spill some time: then bury it */
            timeout->noticed = 1;
        return;
    case PLACE_INLINE:
    case PLACE_CHUNK:
    case PLACE_PEN: wheel_remove(w->wheel, timeout); break;
    case PLACE_ADRIFT: w->adrift--; break;
    }
    timeout->place = PLACE_ADRIFT;
    if (timeout_take_nudge(timeout))
        worker_file(timer, timeout);
    else
        worker_bury(timer, timeout);
}

static void collect_notices(hwt_timer *timer, struct lane *lane)
{
    hwt_timeout *next;

    for (hwt_timeout *timeout = lane_take_notices(lane); timeout; timeout = next) {
        next = lane_next_notice(timeout);
        if (next)
            __builtin_prefetch(next, 1);
        receive(timer, timeout);
    }
}

static void collect_spill(hwt_timer *timer, struct lane *lane)
{
    hwt_timeout *next;

    for (hwt_timeout *timeout = lane_take_spill(lane); timeout; timeout = next) {
        next = lane_next_spilled(timeout);
        meet(timer, timeout);
    }
}

static bool collect_lane(hwt_timer *timer, struct lane *lane, uint64_t horizon)
{
    bool quiet = true;

    collect_notices(timer, lane);
    if (unlikely(timer->worker.reclaiming))
        quiet = lane_sweep_all(lane, meet_all, timer);
    else if (load_seq(&lane->earliest) <= horizon)
        lane_sweep(lane, meet_all, timer);
    else if (load_relaxed(&lane->crowded))
        lane_sweep_older(lane, meet_all, timer);
    collect_spill(timer, lane);
    return quiet;
}

bool worker_collect(hwt_timer *timer, uint64_t horizon)
{
    bool quiet = true;

    for (unsigned i = 0; i < timer->lanes.count; i++)
        quiet = collect_lane(timer, &timer->lanes.lane[i], horizon) && quiet;
    return quiet;
}

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

int worker_pass(hwt_timer *timer, bool exact)
{
    struct worker *w = &timer->worker;
    struct run_frame frame = {.timer = timer, .outer = run_frames};
    uint64_t now = timer_now(timer);
    int ran = 0;

    run_frames = &frame;
    worker_collect(timer, now);
    wheel_take_overdue(w->wheel, w->passed, &w->due);
    w->pass_limit = now;
    while (!bucket_is_empty(&w->due) || wheel_expire(w->wheel, now, exact, &w->due)) {
        ran += run_hand(timer, &frame);
        if (must_leave(timer))
            break;
        worker_collect(timer, w->now); /* a flood of expiries delays nobody else */
    }
    wheel_foresee(w->wheel);
    w->pass_limit = 0;
    w->passed = now;
    run_frames = frame.outer;
#ifdef HWT_DEBUG
    if (timer_is_ours(timer))
        wheel_check(w->wheel);
#endif
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

    worker_flush_returns(timer);
    if (!worker_plan(timer, &wake_before))
        return;
    until = wake_up_time(timer, wake_before);
    if (until > timer_now(timer)) {
        park_sleep(&timer->park, until);
        bump_single_writer(&timer->worker.count.wakeups, 1);
    }
    park_leave(&timer->park);
}

void *worker_main(void *argument)
{
    hwt_timer *timer = argument;

    platform_name_worker(timer->thread_name);
    for (;;) {
        worker_pass(timer, false);
        if (must_leave(timer))
            return NULL;
        sleep_until_due(timer);
    }
}
