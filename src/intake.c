/* SPDX-License-Identifier: BSD-2-Clause */
#include "intake.h"

#include <limits.h>
#include <sched.h>

#include "extra.h"
#include "filing.h"
#include "lead.h"

#define NEAR_TICKS 4
#define FAR_TICKS  64
#define YIELDS     100 /* before a pause is a sleep */

/* From a lane: the first time that the worker sees it. True: it is to be filed. */
HOT bool meet(hwt_timer *timer, hwt_timeout *timeout)
{
    if (unlikely(timeout->place == PLACE_NOTICED)) /* its notice overtook it (from the spill) */
        file_bury(timer, timeout);
    else if (likely(word_code(load_acquire(&timeout->word)) == WORD_PENDING))
        return true;
    else
        file_adrift(timer, timeout);
    return false;
}

static_assert(GROUP_SLOTS <= WHEEL_BATCH, "what is met together is filed together");

static void meet_all(void *context, hwt_timeout **found, unsigned count)
{
    hwt_timer *timer = context;
    struct wheel_batch batch;

    batch.count = 0;
    for (unsigned i = 0; i < count; i++) {
        if (meet(timer, found[i]))
            wheel_gather(timer->worker.wheel, &batch, found[i], timeout_deadline(found[i]));
    }
    file_batch(timer, &batch);
}

/* False: it was cancelled meanwhile. Its deadline is told first (C15). */
static bool take_nudge(hwt_timer *timer, hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_NUDGED) {
        file_lower_bound(&timer->worker, word_deadline(word));
        timer->worker.promised = min_u64(timer->worker.promised, word_deadline(word));
        if (timeout_take_nudge(timeout, &word))
            return true;
    }
    return false;
}

/* From when it is taken in, a canceller may withdraw it: it is in the worker's hand by then. */
static void receive_nudge(hwt_timer *timer, hwt_timeout *timeout)
{
    bool taken_out = file_take_nudged(timer, timeout);

    if (!take_nudge(timer, timeout)) {
        if (taken_out)
            file_bury(timer, timeout);
        else
            file_noticed(timer, timeout);
    } else if (taken_out) {
        file_timeout(timer, timeout);
    } else {
        file_nudged_later(timer, timeout);
    }
}

/*
 * It is in the spill, or in the hand of a mover who puts it into a lane. He may have put it into
 * its slot since that was looked at, and read the word there before it was moved once more, by
 * somebody who relied on this nudge: so the slot is looked at again. Once it is pending others may
 * end it, hence a reference.
 */
static void receive_elsewhere(hwt_timer *timer, hwt_timeout *timeout)
{
    bool nudged;

    add_relaxed(&timeout->refs, 1);
    nudged = take_nudge(timer, timeout);
    if (!lane_take_back(timeout)) {
        if (!nudged)
            timeout->place = PLACE_NOTICED; /* when it is met it is buried */
    } else if (nudged) {
        file_timeout(timer, timeout);
    } else {
        file_noticed(timer, timeout);
    }
    timeout_let_go(timeout);
}

/*
 * A notice has arrived: of a cancellation, of a deadline moved earlier, or of a run that is over
 * on the executor. It is the only one for this timeout, so nobody else will file or bury it.
 */
static void receive(hwt_timer *timer, hwt_timeout *timeout)
{
    /* Not withdrawn by a canceller: that is what the notice or nudge excludes. */
    if (timeout->place == PLACE_UNMET && !lane_take_back(timeout))
        receive_elsewhere(timer, timeout);
    else if (word_code(load_acquire(&timeout->word)) == WORD_NUDGED)
        receive_nudge(timer, timeout);
    else
        file_noticed(timer, timeout);
}

/*
 * The bound on deadlines that is published comes down to what a lane says before that is taken
 * from the lane: at no moment is a deadline known to neither (drive.c). UINT64_MAX: it says nothing
 * of deadlines up to `horizon`.
 */
static uint64_t take_bound(hwt_timer *timer, _Atomic uint64_t *bound, uint64_t horizon)
{
    uint64_t deadline = load_seq(bound);

    while (deadline <= horizon) {
        file_lower_bound(&timer->worker, deadline);
        if (cas_seq(bound, &deadline, UINT64_MAX)) /* first this, then flags and slots (C3) */
            return deadline;
    }
    return UINT64_MAX;
}

/*
 * So many at most, unless a nudge among them may speak of what is due: that is to run in its turn
 * (G15), so it has to be found.
 */
static void collect_notices(hwt_timer *timer, struct lane *lane, uint64_t horizon, unsigned most)
{
    uint64_t moved = take_bound(timer, &lane->moved, DEADLINE_NEVER);
    hwt_timeout *timeout;

    if (unlikely(moved < UINT64_MAX)) {
        lane->mail_earliest = min_u64(lane->mail_earliest, moved);
        timer->worker.promised = min_u64(timer->worker.promised, moved);
        ck_pr_fence_atomic_load(); /* what it speaks of was queued before: it is found now (C15) */
    }
    if (unlikely(lane->mail_earliest <= horizon))
        most = UINT_MAX;
    for (; most > 0 && (timeout = lane_take_notice(lane)) != NULL; most--)
        receive(timer, timeout);
    if (!lane_has_notices(lane))
        lane->mail_earliest = UINT64_MAX;
}

static void collect_spill(hwt_timer *timer, struct lane *lane)
{
    hwt_timeout *next;

    for (hwt_timeout *timeout = lane_take_spill(lane); timeout; timeout = next) {
        next = lane_next_spilled(timeout);
        if (meet(timer, timeout))
            file_timeout(timer, timeout);
    }
}

/*
 * What is due soon is taken with what is due: within half the time since the last look, or a few
 * ticks, or so long that no look is late for what is left. That is mostly cancelled in time.
 */
static uint64_t take_beyond(hwt_timer *timer, struct segment *segment, uint64_t now)
{
    uint64_t since = segment->swept ? segment->swept : timer->worker.started;

    since = now > since ? now - since : 0;
    segment->swept = now;
    return max_u64(max_u64(since / 2, NEAR_TICKS * timer->tick_ns), 2 * lead_time(timer, now));
}

static uint64_t take_up_to(hwt_timer *timer, struct segment *segment, uint64_t horizon)
{
    if (horizon >= DEADLINE_NEVER)
        return DEADLINE_NEVER;
    return deadline_after(horizon, take_beyond(timer, segment, horizon));
}

static void sweep_lane(hwt_timer *timer, struct lane *lane, uint64_t horizon)
{
    struct segment *segment = lane->first;

    do {
        if (take_bound(timer, &segment->earliest, horizon) < UINT64_MAX) {
            uint64_t near = take_up_to(timer, segment, horizon);
            lane_tell_left(segment, lane_sweep(segment, 0, LANE_GROUPS, near, meet_all, timer));
        }
        segment = segment_next(segment);
    } while (segment != lane->first);
    lane_restore_earliest(lane);
}

/* ---- a segment, a portion at a time: for ahead.c ---- */

bool intake_begin_look(hwt_timer *timer, struct segment *segment, uint64_t now, uint64_t until)
{
    struct look *look = &timer->worker.look;

    look->earliest = take_bound(timer, &segment->earliest, until);
    if (look->earliest == UINT64_MAX)
        return false;
    look->segment = segment;
    look->group = 0;
    look->left = UINT64_MAX;
    look->near = deadline_after(max_u64(now, look->earliest), take_beyond(timer, segment, now));
    return true;
}

void intake_look_on(hwt_timer *timer, unsigned groups)
{
    struct look *look = &timer->worker.look;
    struct segment *segment = look->segment;
    uint64_t left;

    groups = groups < LANE_GROUPS - look->group ? groups : LANE_GROUPS - look->group;
    left = lane_sweep(segment, look->group, groups, look->near, meet_all, timer);
    look->left = min_u64(look->left, left);
    look->group += groups;
    if (look->group < LANE_GROUPS)
        return;
    lane_tell_left(segment, look->left);
    look->last = segment;
    look->segment = NULL;
}

/* ---- a pass's ---- */

/*
 * Nothing has come that a pass up to `horizon` would look at. Each look pairs with whoever told it:
 * lane_tell_moved, lane_notify and the spill, lane_announce. What is told later its teller compares
 * with the plan (C4), before which all of this is looked at once more.
 */
HOT bool is_at_rest(const struct lane *lane, uint64_t horizon)
{
    return load_seq(&lane->moved) > DEADLINE_NEVER && !lane_has_mail(lane) &&
           load_seq(&lane->earliest) > horizon;
}

static __attribute__((noinline)) void collect_lane(hwt_timer *timer, struct lane *lane,
                                                   uint64_t horizon)
{
    collect_notices(timer, lane, horizon, horizon < DEADLINE_NEVER ? NOTICES_PER_PASS : UINT_MAX);
    if (take_bound(timer, &lane->earliest, horizon) < UINT64_MAX)
        sweep_lane(timer, lane, horizon);
    collect_spill(timer, lane);
}

void intake_tell_far(hwt_timer *timer, uint64_t now)
{
    struct worker *w = &timer->worker;
    uint64_t distance = FAR_TICKS * timer->tick_ns, since = now - w->told_far;
    bool told = w->told_far && now >= w->told_far;

    distance = max_u64(distance, 2 * lead_time(timer, now));
    if (told && since < distance / 4)
        return;
    w->told_far = now;
    lanes_set_far(&timer->lanes, deadline_after(now, distance));
}

/* Never told is long ago; and so is what is told of a time to come. */
HOT bool was_just_told_far(const hwt_timer *timer, uint64_t now)
{
    return now - timer->worker.told_far < FAR_TICKS / 4 * timer->tick_ns;
}

void intake(hwt_timer *timer, uint64_t horizon)
{
    struct lane *lane;

    timer_check_acting(timer);
    if (horizon < DEADLINE_NEVER && !was_just_told_far(timer, horizon))
        intake_tell_far(timer, horizon);
    if (unlikely(timer->worker.look.segment != NULL) && timer->worker.look.earliest <= horizon)
        intake_look_on(timer, LANE_GROUPS);
    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        if (!is_at_rest(lane, horizon))
            collect_lane(timer, lane, horizon);
    }
}

void intake_notices(hwt_timer *timer)
{
    struct lane *lane;

    timer_check_acting(timer);
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;)
        collect_notices(timer, lane, DEADLINE_NEVER, UINT_MAX);
}

bool intake_all(hwt_timer *timer)
{
    struct lane *lane;
    bool quiet = true;

    timer_check_acting(timer);
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        collect_notices(timer, lane, DEADLINE_NEVER, UINT_MAX);
        quiet = lane_sweep_all(lane, timer->worker.ended, meet_all, timer) && quiet;
        collect_spill(timer, lane);
    }
    return quiet;
}

void intake_between(hwt_timer *timer)
{
    struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        /* as is_at_rest, but for what is due */
        if (load_seq(&lane->moved) <= DEADLINE_NEVER || lane_has_notices(lane))
            collect_notices(timer, lane, 0, HAND);
    }
}

void intake_pause(unsigned *times, uint64_t most)
{
    unsigned before = (*times)++;

    if (before < YIELDS)
        sched_yield();
    else
        platform_nap(min_u64(NAP_LEAST + NAP_LEAST / 8 * (before - YIELDS), most));
}
