/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ladder (after Tang, Goh and Thng's ladder queue): what is alone goes by it from a slot of the
 * second level to its turn, without coming down to the lowest. Nobody has a handle to it, so nobody
 * moves it or takes it out (bucket_slot.h, S4), and it can be sorted long before it is due.
 *
 * A rung is the time of one slot, in parts: what the slot holds is spread over them by its keys, no
 * timeout touched. There are two, for the slot that the current tick is in and for the next one.
 * When its time has come, a part is sorted as a whole, to the bottom: an array in the order in
 * which it is to run. What a slot holds that fits there is sorted at once, and makes no rung.
 *
 *   L1 the bottom comes before all that is in the rungs, and the rung of the current slot before
 *      the other one. So a part is sorted only when the bottom is empty, the lowest first, and only
 *      when its slot has been spread as a whole.
 *   L2 all that is here is pending, and its deadline is what it was when it came here. `where` and
 *      `place` are stale: a visitor, who could make handles of what he is shown, or move it, finds
 *      it in the wheel (hierarchical.h).
 *
 * Of the hierarchical wheel alone. Worker only.
 */
#ifndef HWT_LADDER_H
#define HWT_LADDER_H

#include "agenda.h"

#define LADDER_PARTS     (1u << LADDER_DIGIT)
#define LADDER_WORDS     (LADDER_PARTS / 64)
#define LADDER_BITS      (KEY_BITS - 1) /* of a key: how far a rung reaches */
#define LADDER_PART_BITS (LADDER_BITS - LADDER_DIGIT)

struct rung {
    uint64_t base;                   /* all its deadlines are above this; while it holds any */
    uint64_t from;                   /* ... and its key, from which the parts count */
    uint64_t occupied[LADDER_WORDS]; /* parts that hold something */
    struct bucket *part;             /* never changes */
};

struct ladder {
    /* never changes */
    struct agenda *agenda;
    struct chunk_store *store; /* the wheel's */
    unsigned quantum;          /* the lowest bits of a deadline that a key lacks */
    size_t most;               /* what a rung takes, so that its parts mostly fit into the bottom */
    struct entry *bottom;

    bool in_use;           /* it may hold something */
    unsigned lo, hi;       /* of the bottom */
    _Atomic uint64_t head; /* a slot that holds the first one there, if somebody has asked */
    struct rung rung[2];   /* by the slot's last bit */
};

/* Bytes, a multiple of cache lines, and untouched until something is put here. */
size_t ladder_size(void);
/* In zeroed memory that is aligned to cache lines. A slot is `width` ns wide. */
void ladder_init(struct ladder *ladder, struct agenda *agenda, struct chunk_store *store,
                 uint64_t width, char *memory);

static inline struct rung *ladder_rung(struct ladder *ladder, uint64_t slot)
{
    return &ladder->rung[slot & 1];
}

static inline uint64_t ladder_key(const struct ladder *ladder, uint64_t deadline)
{
    return deadline >> ladder->quantum;
}

/* ---- the bottom ---- */

static inline bool ladder_has_bottom(const struct ladder *ladder)
{
    return ladder->lo < ladder->hi;
}

/* The first deadline there; UINT64_MAX: it is empty. */
static inline uint64_t ladder_first(const struct ladder *ladder)
{
    return ladder_has_bottom(ladder) ? ladder->bottom[ladder->lo].deadline : UINT64_MAX;
}

/* How many there are up to `deadline`, but no more than `most`. */
static inline unsigned ladder_count(const struct ladder *ladder, uint64_t deadline, unsigned most)
{
    unsigned count = 0, there = ladder->hi - ladder->lo;

    while (count < there && count < most && ladder->bottom[ladder->lo + count].deadline <= deadline)
        count++;
    return count;
}

/*
 * Of the first there, which there is. Others may look at the slot, as at any (S4): answer_leave's
 * release stores tell them of it, and pair with answer_read's loads (C22). Only the worker, or who
 * drives, writes it.
 */
static inline struct sighting ladder_sight(struct ladder *ladder)
{
    const struct entry *first = &ladder->bottom[ladder->lo];
    uint64_t packed = packed_make(first->timeout, 0) | PACKED_ALONE;

    store_relaxed(&ladder->head, packed);
    return (struct sighting){&ladder->head, packed, first->deadline};
}

/* The first `count` are not there any more. */
static inline void ladder_drop(struct ladder *ladder, unsigned count)
{
    store_relaxed(&ladder->head, 0);
    ladder->lo += count;
}

/* Fetches what comes near now that the first `count` are not there: so many behind the first. */
#define LADDER_FETCH_TIMEOUTS  8
#define LADDER_FETCH_ARGUMENTS 4 /* what their tasks will be called with */
HOT void ladder_fetch(const struct ladder *ladder, unsigned count)
{
    const struct entry *first = &ladder->bottom[ladder->lo];
    unsigned left = ladder->hi - ladder->lo, here;

    here = count < LADDER_FETCH_ARGUMENTS ? LADDER_FETCH_ARGUMENTS - count : 0;
    for (; here < LADDER_FETCH_ARGUMENTS && here < left; here++)
        __builtin_prefetch(first[here].timeout->arg, 1);
    here = count < LADDER_FETCH_TIMEOUTS ? LADDER_FETCH_TIMEOUTS - count : 0;
    for (; here < LADDER_FETCH_TIMEOUTS && here < left; here++)
        __builtin_prefetch(first[here].timeout, 1);
}

/* Hands out the first, which there is. */
static inline hwt_timeout *ladder_take(struct ladder *ladder)
{
    hwt_timeout *timeout = ladder->bottom[ladder->lo].timeout;

    ladder_drop(ladder, 1);
    ladder_fetch(ladder, 1);
    return timeout;
}

/* All up to `deadline` goes into the agenda. */
void ladder_expire(struct ladder *ladder, uint64_t deadline);
/* Any, of the rungs, too, as bucket_take hands them out; 0: there is none. */
unsigned ladder_pop(struct ladder *ladder, uint64_t *out, unsigned most);

/*
 * What is alone, `count` of agenda_sort_from(), as bucket_take hands it out: to the bottom, which
 * is empty. No deadline is at or before `base`.
 */
void ladder_sort(struct ladder *ladder, unsigned count, uint64_t base);

/* ---- the rungs ---- */

/* The lowest part that holds something; LADDER_PARTS: none does. */
static inline unsigned rung_lowest(const struct rung *rung)
{
    for (unsigned i = 0; i < LADDER_WORDS; i++) {
        if (rung->occupied[i])
            return i * 64 + (unsigned)__builtin_ctzll(rung->occupied[i]);
    }
    return LADDER_PARTS;
}

static inline bool rung_is_empty(const struct rung *rung)
{
    return rung_lowest(rung) == LADDER_PARTS;
}

/* From now on it is that of a slot whose deadlines are all above `base`. */
static inline void ladder_set_rung(struct ladder *ladder, struct rung *rung, uint64_t base)
{
    ladder->in_use = true;
    rung->base = base;
    rung->from = ladder_key(ladder, base);
}

/* Into one that has been set: what is alone. False: no memory for a chunk. */
HOT bool ladder_put(struct ladder *ladder, struct rung *rung, uint64_t packed)
{
    uint64_t part =
        min_u64(packed_key_from(packed, rung->from) >> LADDER_PART_BITS, LADDER_PARTS - 1);

    rung->occupied[part / 64] |= UINT64_C(1) << part % 64;
    return bucket_put_untouched(&rung->part[part], ladder->store, packed);
}

/* No deadline in it is below this; UINT64_MAX: it is empty. */
static inline uint64_t ladder_bound(const struct ladder *ladder, const struct rung *rung)
{
    uint64_t part = rung_lowest(rung);

    if (part == LADDER_PARTS)
        return UINT64_MAX;
    return max_u64(rung->base + 1, (rung->from + (part << LADDER_PART_BITS)) << ladder->quantum);
}

/*
 * How many there are up to `deadline`, which is in a slot that may have a rung, in that and at the
 * bottom: told by keys, so it may be a few too many. From `most` on it may stop.
 */
unsigned ladder_count_all(const struct ladder *ladder, uint64_t slot, uint64_t deadline,
                          unsigned most);
/* Who is the first of a rung that is not empty. */
struct sighting ladder_scan(struct ladder *ladder, struct rung *rung);

/*
 * The lowest part of a rung that is not empty, to the bottom, which is; NULL. Or there are too many
 * in it: the part, for the caller to empty.
 */
struct bucket *ladder_open(struct ladder *ladder, struct rung *rung);
/* Any part that holds something, for the caller to empty; NULL: none does. */
struct bucket *ladder_any_part(struct ladder *ladder);

/* Validator: counts the timeouts. */
size_t ladder_check(const struct ladder *ladder);

#endif
