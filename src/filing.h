/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the worker puts a timeout that it has met: into the wheel, aside for the next pass or for
 * the executor, adrift, or into its grave. Only the worker, or whoever acts as the worker.
 */
#ifndef HWT_FILING_H
#define HWT_FILING_H

#include "timer.h"

/*
 * Met and pending: into the wheel (or, for stop, into the list). What is due already waits for the
 * next pass.
 */
void file_timeout(hwt_timer *timer, hwt_timeout *timeout);
/* The same for a batch, gathered from a lane. */
void file_batch(hwt_timer *timer, const struct wheel_batch *batch);
/* The same for one that was there before the pass: if due, it is run in this pass, in its turn. */
void file_in_order(hwt_timer *timer, hwt_timeout *timeout);
/* A pass begins: what waited for it goes into the wheel. */
void file_what_waited(hwt_timer *timer);
static inline void file_later_ones(hwt_timer *timer)
{
    if (unlikely(timer->worker.any_later))
        file_what_waited(timer);
}
/* The earliest deadline of those that wait for it; UINT64_MAX: none does. */
uint64_t file_look_at_later(hwt_timer *timer);
static inline uint64_t file_later_earliest(hwt_timer *timer)
{
    return unlikely(timer->worker.any_later) ? file_look_at_later(timer) : UINT64_MAX;
}

/* With the executor from now on. */
void file_dispatched(hwt_timer *timer, hwt_timeout *timeout);
/* Not there after all: adrift, as far as its place is concerned. */
void file_undispatched(hwt_timer *timer, hwt_timeout *timeout);
/*
 * The earliest deadline of those that have been re-armed there, and run on; UINT64_MAX: none.
 * `all`: also of those for which there is no place in a lane: that is a look at all that is there.
 */
uint64_t file_look_at_rearmed(hwt_timer *timer, bool all);
static inline uint64_t file_rearmed_earliest(hwt_timer *timer, bool all)
{
    return unlikely(timer->execute != NULL) ? file_look_at_rearmed(timer, all) : UINT64_MAX;
}

/* Its notice or nudge will come. */
void file_adrift(hwt_timer *timer, hwt_timeout *timeout);
/*
 * Its nudge has come, and is to be taken in: takes it out first, because then it can be withdrawn
 * from wherever it is. False: it waits for the next pass, and stays there, where nobody can.
 */
bool file_take_nudged(hwt_timer *timer, hwt_timeout *timeout);
/* One that waits there was moved earlier. */
void file_nudged_later(hwt_timer *timer, hwt_timeout *timeout);
/* Its notice has come: buries it, now or when it is met. */
void file_noticed(hwt_timer *timer, hwt_timeout *timeout);
/* The runtime's share of it is over. */
void file_bury(hwt_timer *timer, hwt_timeout *timeout);
/* The same, and nobody else has one: its block is free. */
void file_free(hwt_timer *timer, hwt_timeout *timeout);
/* Those whose notice came while they could not be taken out, and that the wheel has met since. */
void file_bury_noticed(hwt_timer *timer);
/*
 * What was buried goes back to the pool, where there are some of a lane; a few can wait: small
 * batches make the depot's next users wait for memory.
 */
void file_return_batches(hwt_timer *timer);
static inline void file_return_some(hwt_timer *timer)
{
    if (wheel_has_noticed(timer->worker.wheel))
        file_bury_noticed(timer);
    if (unlikely(timer->worker.may_return))
        file_return_batches(timer);
}
void file_return_all(hwt_timer *timer);

/* Between two passes: shows all that the worker holds. Nothing is filed or removed meanwhile. */
void file_visit(hwt_timer *timer, bucket_see *see, void *context);
/* However `see` was left. */
void file_end_visit(hwt_timer *timer);

/* Drain: all periodic ones that the worker holds go into the list. Once: others are not filed. */
void file_reclaim_periodic(hwt_timer *timer);
/* Stop: all that the worker holds goes into the list, or adrift until its notice comes. */
void file_reclaim_all(hwt_timer *timer);

/* No deadline that the worker knows is below `next_deadline`. */
static inline void file_lower_bound(struct worker *worker, uint64_t deadline)
{
    if (deadline < load_relaxed(&worker->next_deadline))
        store_seq(&worker->next_deadline, deadline); /* before it leaves its lane (drive.c) */
}

/* A nudge is on its way, or a mover has a timeout in his hand: `next_deadline` speaks for both. */
bool file_more_is_promised(const hwt_timer *timer);
/*
 * All that the worker knows is at this or later: the bound goes up, unless more is promised, or
 * runs are re-armed for which there is no place in a lane: to know those would take a look at all
 * that is with the executor, before each sleep.
 */
void file_raise_bound(hwt_timer *timer, uint64_t deadline);
/*
 * The same by whoever has looked for promises, and then at the lanes. Both stores pair with the
 * look of whoever estimates (read_bounds in drive.c). Up it may come late: nobody is misled by a
 * bound that is too low.
 */
static inline void file_set_bound(struct worker *worker, uint64_t deadline)
{
    uint64_t bound = load_relaxed(&worker->next_deadline);

    if (deadline > bound)
        store_release(&worker->next_deadline, deadline);
    else if (deadline < bound)
        store_seq(&worker->next_deadline, deadline);
}

#endif
