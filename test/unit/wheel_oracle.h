/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A wheel beside a list of the same timeouts sorted by deadline, and a worker's part in the play:
 * what comes due is popped and either ends or, if its deadline was moved, is filed again. Every
 * difference between the two is a failed assertion.
 */
#ifndef HWT_TEST_WHEEL_ORACLE_H
#define HWT_TEST_WHEEL_ORACLE_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "wheel.h"

struct oracle {
    struct wheel *wheel;
    hwt_timeout *node;
    hwt_timeout **sorted; /* in the wheel, earliest deadline first */
    hwt_timeout **spare;
    size_t count, spares;
    hwt_timeout *nudge[8]; /* moved earlier, their nudges on the way; not in `sorted` */
    size_t nudges;
    size_t nudged_filed; /* those of them that the wheel holds still */
    uint64_t now;
    uint64_t ticked; /* the tick that was expired last */
    bool unordered;  /* the pen knows no order of ticks */
    size_t parted;   /* run in this batch though their tick is not over */
    size_t expired;  /* by all advances so far */
    struct bucket due;
};

static inline uint64_t oracle_deadline(const hwt_timeout *timeout)
{
    return word_deadline(load_relaxed(&timeout->word));
}

static inline void oracle_open(struct oracle *o, hwt_wheel_kind kind, uint64_t tick_ns,
                               uint32_t slots, uint64_t now, size_t capacity)
{
    memset(o, 0, sizeof *o);
    o->now = now;
    o->node = aligned_alloc(CACHE_LINE, capacity * sizeof *o->node);
    o->sorted = calloc(capacity, sizeof *o->sorted);
    o->spare = calloc(capacity, sizeof *o->spare);
    cr_assert(o->node && o->sorted && o->spare);
    memset((void *)o->node, 0, capacity * sizeof *o->node);
    while (o->spares < capacity) {
        o->spare[o->spares] = &o->node[capacity - 1 - o->spares];
        o->spares++;
    }
    cr_assert_eq((kind == HWT_WHEEL_HASHED ? wheel_hashed_create : wheel_hierarchical_create)(
                     &o->wheel, tick_ns, slots, now),
                 0);
}

static inline void oracle_close(struct oracle *o)
{
    wheel_destroy(o->wheel);
    free(o->node);
    free(o->sorted);
    free(o->spare);
}

/* ---- the sorted list ---- */

/* How many have a deadline of at most `deadline`. */
static inline size_t oracle_rank(const struct oracle *o, uint64_t deadline)
{
    size_t low = 0, high = o->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (oracle_deadline(o->sorted[middle]) <= deadline)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline void oracle_list(struct oracle *o, hwt_timeout *timeout)
{
    size_t at = oracle_rank(o, oracle_deadline(timeout));

    memmove(&o->sorted[at + 1], &o->sorted[at], (o->count - at) * sizeof o->sorted[0]);
    o->sorted[at] = timeout;
    o->count++;
}

static inline void oracle_unlist(struct oracle *o, const hwt_timeout *timeout)
{
    size_t at = oracle_rank(o, oracle_deadline(timeout));

    do
        cr_assert(at > 0, "came out of the wheel twice, or was never in it (G2)");
    while (o->sorted[--at] != timeout);
    o->count--;
    memmove(&o->sorted[at], &o->sorted[at + 1], (o->count - at) * sizeof o->sorted[0]);
}

/* ---- what the wheel is told ---- */

/*
 * `refs` says that the deadline was moved since the wheel was told: the wheel does not look at
 * it.
 */
static inline bool oracle_was_moved(const hwt_timeout *timeout)
{
    return load_relaxed(&timeout->refs) != 0;
}

static inline hwt_timeout *oracle_insert(struct oracle *o, uint64_t deadline)
{
    hwt_timeout *timeout = o->spare[--o->spares];

    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    store_relaxed(&timeout->refs, 0);
    wheel_insert(o->wheel, timeout, deadline);
    oracle_list(o, timeout);
    return timeout;
}

static inline void oracle_forget(struct oracle *o, hwt_timeout *timeout)
{
    oracle_unlist(o, timeout);
    o->spare[o->spares++] = timeout;
}

static inline void oracle_remove(struct oracle *o, hwt_timeout *timeout)
{
    wheel_remove(o->wheel, timeout);
    cr_assert_eq(timeout->place, PLACE_ADRIFT);
    oracle_forget(o, timeout);
}

/* As a producer does: the word changes, and nobody tells the wheel. */
static inline void oracle_move_later(struct oracle *o, hwt_timeout *timeout, uint64_t deadline)
{
    cr_assert_geq(deadline, oracle_deadline(timeout));
    oracle_unlist(o, timeout);
    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    store_relaxed(&timeout->refs, 1);
    oracle_list(o, timeout);
}

static inline void oracle_move_earlier(struct oracle *o, hwt_timeout *timeout, uint64_t deadline)
{
    oracle_unlist(o, timeout);
    store_relaxed(&timeout->word, word_make(deadline, WORD_NUDGED));
    o->nudge[o->nudges++] = timeout;
    o->nudged_filed++;
}

/* The worker meets the latest nudge. */
static inline void oracle_take_nudge(struct oracle *o)
{
    hwt_timeout *timeout = o->nudge[--o->nudges];
    uint64_t deadline = oracle_deadline(timeout);

    if (timeout->place != PLACE_ADRIFT) {
        wheel_remove(o->wheel, timeout);
        o->nudged_filed--;
    }
    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    store_relaxed(&timeout->refs, 0);
    wheel_insert(o->wheel, timeout, deadline);
    oracle_list(o, timeout);
}

/* ---- time ---- */

static inline void oracle_check_tick(struct oracle *o, const hwt_timeout *timeout, bool exact,
                                     uint64_t *tick_of_batch)
{
    uint64_t tick = wheel_tick_of(o->wheel, oracle_deadline(timeout));

    if (o->unordered)
        return;
    cr_assert_geq(tick, o->ticked, "G4: ticks in order");
    cr_assert(*tick_of_batch == UINT64_MAX || *tick_of_batch == tick, "one tick per call");
    if (!exact && wheel_tick_time(o->wheel, tick) > o->now)
        cr_assert_leq(++o->parted, BUCKET_INLINE, "a tick that is not over, and not sparse");
    o->ticked = *tick_of_batch = tick;
}

/* What the worker does with a batch of due timeouts; returns how many really were. */
static inline size_t oracle_run_due(struct oracle *o, bool exact, bool overdue)
{
    uint64_t tick = UINT64_MAX;
    hwt_timeout *timeout;
    size_t ran = 0;

    o->parted = 0;
    while ((timeout = wheel_bucket_pop(o->wheel, &o->due)) != NULL) {
        uint64_t deadline = oracle_deadline(timeout);
        cr_assert_eq(timeout->place, PLACE_ADRIFT);
        if (word_code(load_relaxed(&timeout->word)) == WORD_NUDGED) {
            o->nudged_filed--;
            continue;
        }
        if (deadline > o->wheel->due_limit) {
            cr_assert(oracle_was_moved(timeout), "G1: early");
            store_relaxed(&timeout->refs, 0);
            wheel_insert(o->wheel, timeout, deadline);
            continue;
        }
        cr_assert_leq(deadline, o->now, "G1: early");
        if (!overdue)
            oracle_check_tick(o, timeout, exact, &tick);
        oracle_forget(o, timeout);
        ran++;
    }
    cr_assert(bucket_is_empty(&o->due));
    return ran;
}

static inline void oracle_check_nothing_left(const struct oracle *o, bool exact)
{
    uint64_t tick;

    if (o->nudges == 0 && bucket_is_empty(&o->wheel->overdue)) {
        uint64_t bound = wheel_earliest(o->wheel, false);
        cr_assert(bound > o->now || !wheel_is_sparse(o->wheel, bound), "a worker would spin");
    }
    if (o->count == 0)
        return;
    cr_assert(!exact || oracle_deadline(o->sorted[0]) > o->now, "G4: left behind");
    tick = wheel_tick_of(o->wheel, oracle_deadline(o->sorted[0]));
    cr_assert_gt(wheel_tick_time(o->wheel, tick), o->now, "G4: left behind");
}

static inline size_t oracle_advance(struct oracle *o, uint64_t now, bool exact)
{
    size_t ran;

    wheel_take_overdue(o->wheel, o->now, &o->due);
    o->now = now;
    o->ticked = 0;
    ran = oracle_run_due(o, exact, true);
    while (wheel_expire(o->wheel, now, exact, &o->due)) {
        cr_assert_not(bucket_is_empty(&o->due));
        ran += oracle_run_due(o, exact, false);
    }
    oracle_check_nothing_left(o, exact);
    o->expired += ran;
    return ran;
}

/* ---- what the wheel must say ---- */

static inline uint64_t oracle_earliest(const struct oracle *o)
{
    return o->count ? oracle_deadline(o->sorted[0]) : UINT64_MAX;
}

static inline void oracle_check_count(struct oracle *o)
{
    cr_assert_eq(wheel_check(o->wheel), o->count + o->nudged_filed, "lost or made up");
}

static inline void oracle_check_bounds(struct oracle *o)
{
    cr_assert_leq(wheel_earliest(o->wheel, false), oracle_earliest(o));
    cr_assert_leq(wheel_next_call(o->wheel), oracle_earliest(o));
}

/* Asking exactly makes the wheel tidy up, so not every step does it. */
static inline void oracle_check_exact(struct oracle *o)
{
    uint64_t earliest = wheel_earliest(o->wheel, true);

    cr_assert_leq(earliest, oracle_earliest(o));
    cr_assert(o->nudges || earliest == oracle_earliest(o));
    oracle_check_count(o);
}

/* Empties the wheel as stop does. */
static inline void oracle_drain(struct oracle *o)
{
    hwt_timeout *timeout;

    while (o->nudges)
        oracle_take_nudge(o);
    while ((timeout = wheel_pop(o->wheel)) != NULL) {
        cr_assert_eq(timeout->place, PLACE_ADRIFT);
        oracle_forget(o, timeout);
    }
    cr_assert_eq(o->count, 0, "lost (G2)");
    oracle_check_exact(o);
}

#endif
