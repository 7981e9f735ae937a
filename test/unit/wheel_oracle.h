/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A wheel beside a list of the same timeouts sorted by deadline and stamp, and a worker's part in
 * the play: what comes due ends, unless its nudge is on the way. Every difference between the two
 * is a failed assertion: the wheel hands out the first of the list and nothing else (G15).
 */
#ifndef HWT_TEST_WHEEL_ORACLE_H
#define HWT_TEST_WHEEL_ORACLE_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "wheel.h"

#define ORACLE_SPARSE 4 /* instead of SPARSE: so few crowd a tick */

struct oracle {
    struct wheel *wheel;
    hwt_timeout *node;
    hwt_timeout **sorted; /* in the wheel, in the order in which they are to run */
    hwt_timeout **spare;
    size_t count, spares;
    hwt_timeout *nudge[8]; /* moved earlier, their nudges on the way; not in `sorted` */
    size_t nudges;
    size_t nudged_filed; /* those of them that the wheel holds still */
    size_t noticed;      /* over, and not handed back by the wheel yet */
    uint64_t now;
    uint64_t submissions;
    uint64_t shuffle; /* of stamps: 0: in the order of insertion, or a mask of 2^n - 1 */
    uint64_t random;  /* for that */
    bool crowded;     /* a tick's slot need not tell all that is due at it */
    bool hashed;
    bool handles;            /* all have one; otherwise every other one is alone */
    size_t expired;          /* by all advances so far */
    uint64_t moved_to[1024]; /* ticks, as bits and modulo their number */
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
    o->hashed = kind == HWT_WHEEL_HASHED;
    o->node = aligned_alloc(CACHE_LINE, capacity * sizeof *o->node);
    o->sorted = calloc(capacity, sizeof *o->sorted);
    o->spare = calloc(capacity, sizeof *o->spare);
    cr_assert(o->node && o->sorted && o->spare);
    memset((void *)o->node, 0, capacity * sizeof *o->node);
    while (o->spares < capacity) {
        o->spare[o->spares] = &o->node[capacity - 1 - o->spares];
        o->spares++;
    }
    cr_assert_eq(wheel_create(&o->wheel, kind, tick_ns, slots, now), 0);
    o->wheel->sparse = ORACLE_SPARSE;
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

static inline bool oracle_before(const hwt_timeout *a, const hwt_timeout *b)
{
    if (oracle_deadline(a) != oracle_deadline(b))
        return oracle_deadline(a) < oracle_deadline(b);
    return a->stamp < b->stamp;
}

static inline void oracle_list(struct oracle *o, hwt_timeout *timeout)
{
    size_t low = 0, high = o->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (oracle_before(timeout, o->sorted[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&o->sorted[low + 1], &o->sorted[low], (o->count - low) * sizeof o->sorted[0]);
    o->sorted[low] = timeout;
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

/* Timeouts of one thread come to the wheel in another order than they were submitted in. */
static inline uint64_t oracle_stamp(struct oracle *o)
{
    uint64_t submission = ++o->submissions;

    if (o->shuffle)
        submission ^= test_random(&o->random) & o->shuffle;
    return submission << STAMP_LANE_BITS;
}

static inline hwt_timeout *oracle_insert(struct oracle *o, uint64_t deadline)
{
    hwt_timeout *timeout = o->spare[--o->spares];

    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    timeout->stamp = oracle_stamp(o);
    store_relaxed(&timeout->refs, o->handles ? 2 : 1 + (uint32_t)(o->submissions & 1));
    wheel_insert(o->wheel, timeout, deadline);
    oracle_list(o, timeout);
    return timeout;
}

static inline void oracle_forget(struct oracle *o, hwt_timeout *timeout)
{
    oracle_unlist(o, timeout);
    o->spare[o->spares++] = timeout;
}

/* Nobody else can get at what is alone: neither removes nor moves it (bucket_slot.h, S4). */
static inline void oracle_check_handle(const hwt_timeout *timeout)
{
    cr_assert_not(timeout_is_alone(timeout));
}

static inline void oracle_remove(struct oracle *o, hwt_timeout *timeout)
{
    oracle_check_handle(timeout);
    wheel_remove(o->wheel, timeout);
    cr_assert_eq(timeout->place, PLACE_ADRIFT);
    oracle_forget(o, timeout);
}

/* What the wheel could not take out at once and has met since. */
static inline void oracle_take_noticed(struct oracle *o)
{
    hwt_timeout *timeout;

    while ((timeout = wheel_take_noticed(o->wheel)) != NULL) {
        cr_assert_eq(timeout->place, PLACE_NOTICED);
        cr_assert_gt(o->noticed, 0, "dropped twice, or never noticed (G2)");
        o->noticed--;
        o->spare[o->spares++] = timeout;
    }
}

/* A cancelled one: out of the wheel now, or when it is met. */
static inline void oracle_remove_over(struct oracle *o, hwt_timeout *timeout)
{
    oracle_check_handle(timeout);
    if (wheel_remove_over(o->wheel, timeout)) {
        oracle_forget(o, timeout);
        return;
    }
    cr_assert_eq(timeout->place, PLACE_NOTICED);
    oracle_unlist(o, timeout);
    o->noticed++;
    oracle_take_noticed(o);
}

/* As a canceller does: nobody tells the wheel. False: it is in no bucket. */
static inline bool oracle_withdraw(struct oracle *o, hwt_timeout *timeout)
{
    oracle_check_handle(timeout);
    if (!bucket_withdraw(timeout))
        return false;
    oracle_forget(o, timeout);
    return true;
}

static inline void oracle_move(struct oracle *o, hwt_timeout *timeout, uint64_t deadline,
                               enum word_code code)
{
    uint64_t tick = wheel_tick_of(o->wheel, deadline);

    oracle_unlist(o, timeout);
    store_relaxed(&timeout->word, word_make(deadline, code));
    o->moved_to[tick / 64 % COUNT_OF(o->moved_to)] |= UINT64_C(1) << tick % 64;
}

static inline bool oracle_has_moved_to(const struct oracle *o, uint64_t tick)
{
    return o->moved_to[tick / 64 % COUNT_OF(o->moved_to)] >> tick % 64 & 1;
}

/* As a producer does: the word changes, and nobody tells the wheel. */
static inline void oracle_move_later(struct oracle *o, hwt_timeout *timeout, uint64_t deadline)
{
    oracle_check_handle(timeout);
    cr_assert_geq(deadline, oracle_deadline(timeout));
    oracle_move(o, timeout, deadline, WORD_PENDING);
    oracle_list(o, timeout);
}

static inline void oracle_move_earlier(struct oracle *o, hwt_timeout *timeout, uint64_t deadline)
{
    oracle_check_handle(timeout);
    oracle_move(o, timeout, deadline, WORD_NUDGED);
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
    wheel_insert(o->wheel, timeout, deadline);
    oracle_list(o, timeout);
}

/* ---- time ---- */

/* What comes out is the first of all, to the nanosecond and to the submission. */
static inline void oracle_check_turn(const struct oracle *o, const hwt_timeout *timeout)
{
    cr_assert_gt(o->count, 0, "from nowhere (G2)");
    cr_assert_eq(oracle_deadline(timeout), oracle_deadline(o->sorted[0]), "G15: out of turn");
    cr_assert_eq(timeout->stamp, o->sorted[0]->stamp, "G15: equal deadlines out of turn");
}

/*
 * Whether a tick's slot tells all that is due at it, and whether it is taken. Not if something was
 * moved to the tick: met where it was filed, and due by then, it has the tick taken; and of a
 * hashed wheel the slot that counts is that of the earliest.
 */
static inline bool oracle_slot_tells_all(const struct oracle *o, uint64_t tick)
{
    return !o->crowded && !oracle_has_moved_to(o, tick);
}

/* What the worker does with what is due; returns how many really were. */
static inline size_t oracle_run_due(struct oracle *o, bool exact)
{
    uint64_t covered = o->wheel->covered;
    size_t ran = 0, parted = 0;
    hwt_timeout *timeout;

    while ((timeout = wheel_take_due(o->wheel, o->now, exact)) != NULL) {
        uint64_t tick = wheel_tick_of(o->wheel, oracle_deadline(timeout));
        cr_assert_not(bucket_holds(timeout));
        timeout->place = PLACE_ADRIFT; /* for what follows here: the wheel leaves it stale */
        if (word_code(load_relaxed(&timeout->word)) == WORD_NUDGED) {
            o->nudged_filed--;
            continue;
        }
        cr_assert_leq(oracle_deadline(timeout), o->now, "G1: early");
        oracle_check_turn(o, timeout);
        parted += oracle_slot_tells_all(o, tick) &&
                  wheel_tick_time(o->wheel, tick) > max_u64(o->now, covered);
        oracle_forget(o, timeout);
        ran++;
    }
    if (!exact)
        cr_assert_leq(parted, o->wheel->sparse, "of a tick that is not over, and not sparse");
    wheel_prepare(o->wheel);
    return ran;
}

static inline void oracle_check_nothing_left(const struct oracle *o, bool exact)
{
    uint64_t tick;

    if (o->nudges == 0) {
        uint64_t bound = wheel_earliest(o->wheel);
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

    o->now = now;
    ran = oracle_run_due(o, exact);
    oracle_take_noticed(o);
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
    cr_assert_leq(wheel_earliest(o->wheel), oracle_earliest(o));
    cr_assert_leq(wheel_next_call(o->wheel), oracle_earliest(o));
}

/* Asking exactly makes the wheel tidy up, so not every step does it. */
static inline void oracle_check_earliest(struct oracle *o)
{
    uint64_t earliest = wheel_earliest_exact(o->wheel);

    cr_assert_leq(earliest, oracle_earliest(o));
    cr_assert(o->nudges || earliest == oracle_earliest(o));
}

static inline void oracle_check_exact(struct oracle *o)
{
    oracle_check_earliest(o);
    oracle_check_count(o);
}

static inline void oracle_see_popped(struct oracle *o, hwt_timeout *timeout)
{
    if (timeout->place == PLACE_NOTICED) {
        o->noticed--;
        o->spare[o->spares++] = timeout;
        return;
    }
    cr_assert_not(bucket_holds(timeout));
    timeout->place = PLACE_ADRIFT; /* for what follows here: the wheel leaves it stale */
    oracle_forget(o, timeout);
}

/* Empties the wheel as stop does. */
static inline void oracle_drain(struct oracle *o)
{
    hwt_timeout *popped[WHEEL_POP];
    unsigned count;

    while (o->nudges)
        oracle_take_nudge(o);
    while ((count = wheel_pop(o->wheel, popped)) > 0) {
        cr_assert_leq(count, WHEEL_POP);
        for (unsigned i = 0; i < count; i++)
            oracle_see_popped(o, popped[i]);
    }
    cr_assert_eq(o->count, 0, "lost (G2)");
    cr_assert_eq(o->noticed, 0, "lost (G2)");
    oracle_check_exact(o);
}

#endif
