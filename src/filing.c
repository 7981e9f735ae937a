/* SPDX-License-Identifier: BSD-2-Clause */
#include "filing.h"

#include "extra.h"
#include "fellows.h"
#include "quota.h"

#define WORTH_RETURNING 8 /* blocks of a lane */

/* ---- stop ---- */

/* It has been ended by stop or drain: into the list of those that go back. */
static void enlist(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    quota_give_back(timer, timeout);
    bump_release(&w->count.unprocessed, 1);
    timeout->link.next = w->reclaimed ? &w->reclaimed->link : NULL;
    w->reclaimed = timeout;
}

/* It is nowhere any more, so its `where` can lead ahead: to who comes out of the list later. */
static void lead_ahead(struct worker *w, hwt_timeout *timeout)
{
    uint64_t turn = load_relaxed(&w->count.unprocessed) % RECLAIM_AHEAD;

    timeout_set_where(timeout, w->ahead[turn], PLACE_ADRIFT);
    w->ahead[turn] = timeout;
}

/* Hand it back, unless somebody else ended it, or a nudge for it is on its way. */
static void reclaim(hwt_timer *timer, hwt_timeout *timeout)
{
    if (!timeout_reclaim(timeout)) {
        file_adrift(timer, timeout);
        return;
    }
    enlist(timer, timeout);
    lead_ahead(&timer->worker, timeout);
}

static void reclaim_or_bury(hwt_timer *timer, hwt_timeout *timeout)
{
    if (timeout->place == PLACE_NOTICED)
        file_bury(timer, timeout);
    else
        reclaim(timer, timeout);
}

void file_reclaim_all(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    hwt_timeout *timeout, *popped[WHEEL_POP];
    unsigned count;

    while ((timeout = fellows_pop(&w->later_listed)) != NULL)
        reclaim_or_bury(timer, timeout);
    while ((timeout = wheel_pop_beside(w->wheel, &w->later)) != NULL)
        reclaim(timer, timeout);
    while ((timeout = fellows_pop(&w->shelf)) != NULL)
        reclaim(timer, timeout);
    while ((timeout = wheel_pop_beside(w->wheel, &w->dispatched)) != NULL)
        reclaim(timer, timeout);
    while ((count = wheel_pop(w->wheel, popped)) > 0) {
        for (unsigned i = 0; i < count; i++)
            reclaim_or_bury(timer, popped[i]);
    }
}

/* ---- the bound that others read ---- */

/*
 * A mover who is half-way (a guest), or whose nudge lies on a lane that the worker has already
 * looked at, may have been relied on by another who moved the same timeout and has returned: his
 * deadline has been taken from the lane that he told it to, and is known to the bound alone (C15).
 * Guests first: who signs out has queued his nudge.
 */
bool file_more_is_promised(const hwt_timer *timer)
{
    const struct lane *lane;

    if (load_seq(&timer->guests) > 0)
        return true;
    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        if (lane_has_notices(lane))
            return true;
    }
    return false;
}

/*
 * Who has no place in a lane is counted until he is a guest: so that first, and it pairs with
 * hide_rearmed (run_job.c), who has signed in before he counts himself out. The lanes once more:
 * who put a timeout into one again, and is no guest any more, has told it.
 */
void file_raise_bound(hwt_timer *timer, uint64_t deadline)
{
    struct worker *worker = &timer->worker;

    if (deadline > load_relaxed(&worker->next_deadline)) {
        if (load_acquire(&timer->rearmed) > 0 || file_more_is_promised(timer))
            return;
        deadline = min_u64(deadline, lanes_earliest(&timer->lanes));
    }
    file_set_bound(worker, deadline);
}

/* ---- into the wheel, or aside ---- */

/* Without a slot: it is listed. */
static void lower_later(struct worker *w, struct sighting put)
{
    if (!w->any_later || put.deadline < w->later_first.deadline)
        w->later_first = put;
    w->any_later = true;
}

static void put_later(struct worker *w, hwt_timeout *timeout, uint64_t deadline)
{
    struct sighting put = {NULL, packed_of_key(timeout, 0), deadline};

    put.slot = wheel_put_beside(w->wheel, &w->later, timeout);
    if (unlikely(!put.slot))
        fellows_push(&w->later_listed, timeout, PLACE_LATER);
    lower_later(w, put);
}

static bool goes_back(const struct worker *w, const hwt_timeout *timeout)
{
    return w->reclaiming == RECLAIM_ALL || timeout->flags & FLAG_PERIODIC;
}

void file_timeout(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    timer_check_acting(timer);
    file_lower_bound(w, deadline);
    if (unlikely(w->reclaiming) && goes_back(w, timeout))
        reclaim(timer, timeout);
    else if (unlikely(deadline <= w->pass_limit)) /* due, but submitted after what is running */
        put_later(w, timeout, deadline);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void file_batch(hwt_timer *timer, const struct wheel_batch *batch)
{
    struct worker *w = &timer->worker;
    uint64_t earliest = UINT64_MAX;

    timer_check_acting(timer);
    for (unsigned i = 0; i < batch->count; i++)
        earliest = min_u64(earliest, batch->deadline[i]);
    file_lower_bound(w, earliest);
    if (likely(!w->reclaiming && earliest > w->pass_limit)) {
        wheel_insert_batch(w->wheel, batch);
        return;
    }
    for (unsigned i = 0; i < batch->count; i++)
        file_timeout(timer, batch->timeout[i]);
}

void file_in_order(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t deadline = timeout_deadline(timeout);

    timer_check_acting(timer);
    file_lower_bound(w, deadline);
    if (unlikely(w->reclaiming) && goes_back(w, timeout))
        reclaim(timer, timeout);
    else
        wheel_insert(w->wheel, timeout, deadline);
}

void file_what_waited(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    hwt_timeout *timeout;

    w->any_later = false;
    wheel_file_beside(w->wheel, &w->later);
    while ((timeout = fellows_pop(&w->later_listed)) != NULL) {
        if (unlikely(timeout->place == PLACE_NOTICED))
            file_bury(timer, timeout);
        else
            wheel_insert(w->wheel, timeout, timeout_deadline(timeout));
    }
}

/* Does it wait still, and has it that deadline? What is listed is not gone before it is filed. */
static bool is_first_later(const struct sighting *first)
{
    const hwt_timeout *timeout = packed_timeout(first->packed);

    if (first->slot)
        return wheel_still_has(first);
    return timeout && timeout->place == PLACE_LATER && timeout_deadline(timeout) == first->deadline;
}

uint64_t file_look_at_later(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    struct sighting *first = &w->later_first;

    if (is_first_later(first))
        return first->deadline;
    *first = wheel_first_beside(w->wheel, &w->later);
    for (hwt_timeout *timeout = w->later_listed; timeout; timeout = fellow_next(timeout)) {
        uint64_t deadline = timeout_deadline(timeout); /* read once: it may be moved meanwhile */
        if (timeout->place == PLACE_LATER && deadline < first->deadline)
            *first = (struct sighting){NULL, packed_of_key(timeout, 0), deadline};
    }
    return first->deadline;
}

/* ---- with the executor ---- */

void file_dispatched(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    if (unlikely(!wheel_put_beside(w->wheel, &w->dispatched, timeout)))
        fellows_push(&w->shelf, timeout, PLACE_SHELF);
}

/* Running there, and re-armed, or about to come back; its notice will file it. */
static void look_at_rearmed(void *earliest, uint64_t word)
{
    uint64_t *least = earliest;

    if (word_code(word) == WORD_REARMED || word_code(word) == WORD_NUDGED)
        *least = min_u64(*least, word_deadline(word));
}

/* Those for which there is no place in a lane, among all that are there. */
static __attribute__((noinline)) void look_for_rearmed(struct worker *w, uint64_t *earliest)
{
    bucket_look_through(&w->dispatched, look_at_rearmed, earliest);
    for (const hwt_timeout *timeout = w->shelf; timeout; timeout = fellow_next(timeout))
        look_at_rearmed(earliest, load_acquire(&timeout->word));
}

uint64_t file_look_at_rearmed(hwt_timer *timer, bool all)
{
    uint64_t earliest = UINT64_MAX;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        for (unsigned place = 0; place < LANE_REARMED; place++) {
            /* what stands there is not buried meanwhile: its notice is taken in by this thread */
            const hwt_timeout *timeout = load_acquire(&lane->rearmed[place]);
            if (timeout)
                look_at_rearmed(&earliest, load_acquire(&timeout->word));
        }
    }
    if (unlikely(all && load_acquire(&timer->rearmed) > 0))
        look_for_rearmed(&timer->worker, &earliest);
    return earliest;
}

void file_undispatched(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    if (unlikely(timeout->place == PLACE_SHELF))
        fellows_remove(&w->shelf, timeout);
    else
        wheel_remove(w->wheel, timeout);
}

/* ---- looking through all ---- */

/* What is due already waits for the next pass: where a callback may end the thread (C13). */
static void put_agenda_off(hwt_timer *timer)
{
    struct worker *w = &timer->worker;
    hwt_timeout *timeout;

    while ((timeout = wheel_take_on_agenda(w->wheel)) != NULL)
        put_later(w, timeout, timeout_deadline(timeout));
}

void file_visit(hwt_timer *timer, bucket_see *see, void *context)
{
    struct worker *w = &timer->worker;

    timer_check_acting(timer);
    put_agenda_off(timer);
    wheel_visit_beside(w->wheel, &w->later, see, context);
    for (const hwt_timeout *timeout = w->later_listed; timeout; timeout = fellow_next(timeout))
        see(context, timeout);
    for (const hwt_timeout *timeout = w->shelf; timeout; timeout = fellow_next(timeout))
        see(context, timeout);
    wheel_visit_beside(w->wheel, &w->dispatched, see, context);
    wheel_visit(w->wheel, see, context);
}

void file_end_visit(hwt_timer *timer)
{
    wheel_end_show(timer->worker.wheel);
}

/*
 * For a drain, one of those that would never end: into the list, with a reference of that. The
 * worker's own share is given up when all have been looked through.
 */
static void reclaim_periodic(void *context, const hwt_timeout *shown)
{
    hwt_timeout *timeout = (hwt_timeout *)(uintptr_t)shown;
    hwt_timer *timer = context;

    if (!(timeout->flags & FLAG_PERIODIC) || !timeout_reclaim(timeout))
        return;
    add_relaxed(&timeout->refs, 1);
    enlist(timer, timeout);
}

void file_reclaim_periodic(hwt_timer *timer)
{
    struct worker *w = &timer->worker;

    file_visit(timer, reclaim_periodic, timer);
    for (hwt_timeout *timeout = w->reclaimed; timeout; timeout = timeout_next_linked(timeout)) {
        if (timeout->place != PLACE_NOTICED)
            file_noticed(timer, timeout);
    }
}

/* ---- adrift, nudged, over ---- */

/* Nudged: its mover may not have told anybody yet, nor queued the nudge (C15). */
void file_adrift(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;
    uint64_t word = load_acquire(&timeout->word);

    if (word_code(word) == WORD_NUDGED)
        w->promised = min_u64(w->promised, word_deadline(word));
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
    w->adrift++;
}

bool file_take_nudged(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    switch ((enum timeout_place)timeout->place) {
    case PLACE_LATER: return false; /* listed: its turn comes with the next pass in any case */
    case PLACE_ADRIFT: w->adrift--; break;
    case PLACE_UNMET: break;
    case PLACE_SHELF: fellows_remove(&w->shelf, timeout); break;
    default: wheel_remove(w->wheel, timeout); break;
    }
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
    return true;
}

void file_nudged_later(hwt_timer *timer, hwt_timeout *timeout)
{
    lower_later(&timer->worker,
                (struct sighting){NULL, packed_of_key(timeout, 0), timeout_deadline(timeout)});
}

void file_bury_noticed(hwt_timer *timer)
{
    hwt_timeout *timeout;

    while ((timeout = wheel_take_noticed(timer->worker.wheel)) != NULL)
        file_bury(timer, timeout);
}

void file_noticed(hwt_timer *timer, hwt_timeout *timeout)
{
    struct worker *w = &timer->worker;

    switch ((enum timeout_place)timeout->place) {
    case PLACE_LATER: timeout->place = PLACE_NOTICED; return;
    case PLACE_ADRIFT: w->adrift--; break;
    case PLACE_UNMET: break;
    case PLACE_SHELF: fellows_remove(&w->shelf, timeout); break;
    default:
        if (unlikely(!wheel_remove_over(w->wheel, timeout))) {
            file_bury_noticed(timer);
            return;
        }
    }
    file_bury(timer, timeout);
}

void file_bury(hwt_timer *timer, hwt_timeout *timeout)
{
    if (timeout_drop(timeout))
        file_free(timer, timeout);
}

void file_free(hwt_timer *timer, hwt_timeout *timeout)
{
    unsigned lane = timeout_lane(timeout);

    timer_check_acting(timer);
    if (unlikely(timeout->flags & FLAG_EXTENDED) || lane >= timer->lanes.count) {
        timeout_free(timeout);
    } else { /* back to where it came from */
        struct pool_return *batch = &timer->worker.returns[lane];
        poison_mark_dead(timeout);
        if (unlikely(pool_return_add(batch, lane, timeout) == WORTH_RETURNING))
            timer->worker.may_return = true;
    }
}

void file_return_batches(hwt_timer *timer)
{
    struct pool_return *returns = timer->worker.returns;

    timer->worker.may_return = false;
    for (unsigned i = 0; lanes_next_used(&timer->lanes, &i);) {
        if (returns[i - 1].count >= WORTH_RETURNING)
            pool_return_flush(&returns[i - 1], i - 1);
    }
}

void file_return_all(hwt_timer *timer)
{
    file_bury_noticed(timer);
    for (unsigned i = 0; i < timer->lanes.count; i++)
        pool_return_flush(&timer->worker.returns[i], i);
}
