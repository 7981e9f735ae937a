/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agenda: what has come due, and the rest of the tick that is on, in the order in which it is
 * to run (G15): by deadline to the nanosecond, equal ones by their stamps. A wheel tells ticks
 * apart, the agenda the timeouts within one, at a wheel's cost: nothing is compared with more than
 * its neighbours.
 *
 * At its head lies the front, a sorted array of up to AGENDA_FRONT entries. A tick with no more
 * goes there at once: a distribution by the keys of the slots (bucket_slot.h), then by insertion.
 * What does not fit waits in parts, unsorted: a radix heap. The rank of an entry is its deadline
 * and its stamp as one number of 21 digits (64 each). An entry lies at the level of the highest
 * digit in which its rank differs from `last`, a lower bound of all that waits, in the part of that
 * digit's value. So the lowest part in use holds the lowest ranks; when the front is empty, that
 * part goes into it, or is distributed over the levels below if it is too large. Only where the key
 * cannot tell (equal deadlines, ticks of more than 2 ms) are their words and stamps looked at.
 *
 *   A1 the front is sorted, and holds all ranks below `bound`; no part holds a lower one, but for
 *      timeouts that were moved: a key, like a deadline of the wheel, is a lower bound.
 *   A2 `last` is not above the rank of anything in a part.
 *   A3 what is aside was met in this pass with the deadline beside it: if its word has another one
 *      now, somebody has moved it in this pass.
 *
 * Of a tick with more than fit into the front, the lowest are skimmed off into it, and the rest is
 * spread over the parts only when they have run. A tie, a tick all of one key, would have to be
 * touched as a whole before the first of it could run. It stays in its chunks instead, which
 * know a lower bound of their stamps, and is opened from the lowest on, as far as needed.
 *
 * It needs no memory to go on: without a chunk for a part, a timeout is listed there.
 *
 * A part, the tie and the rest hold their timeouts as any bucket: a canceller takes his out
 * himself, and the worker finds it by its `where`. In the front, and where they are listed, they
 * cannot be taken out quickly: whoever would remove one marks it as noticed, and it is dropped
 * when it is met, or when half of what is here is marked.
 *
 * Worker only, all of it.
 */
#ifndef HWT_AGENDA_H
#define HWT_AGENDA_H

#include "bucket.h"
#include "entries.h"
#include "extra.h"

#define AGENDA_DIGIT  6 /* bits */
#define AGENDA_PARTS  (1u << AGENDA_DIGIT)
#define AGENDA_LEVELS 21

/* The deadline's 61 bits and the stamp's 60. */
__extension__ typedef unsigned __int128 agenda_rank;

struct agenda {
    struct chunk_store *store;  /* the wheel's; never changes */
    uint64_t tick_ns;           /* never changes */
    unsigned quantum;           /* the lowest bits of a deadline that a key lacks; never changes */
    unsigned pad;               /* of ranks: a tick is 64 parts wide; never changes */
    struct agenda_memory *more; /* mapped; never changes */
    struct entry *front;        /* in there; never changes */
    unsigned lo, hi;            /* of the front */
    agenda_rank bound, last;
    size_t count;      /* at most so many are in front and parts, noticed ones included: those that
                       were withdrawn are counted until the parts have been found empty */
    size_t noticed;    /* ... of which so many are */
    struct bucket tie; /* a tie that is still closed, by falling stamps ... */
    uint64_t tie_deadline; /* ... none of them with one below this */
    struct bucket rest;    /* of a large tick, not spread over the parts yet ... */
    uint64_t rest_base;    /* ... whose deadlines are above this */
    bool crowded;          /* a tie or a rest may hold something */
    struct bucket anew;    /* on its way to other parts; otherwise empty */
    hwt_timeout *dropped;  /* by `where`: noticed ones that were met */
    unsigned aside;        /* in a pass: so many were met that had been moved. Not counted ... */
    unsigned kicked, kicked_end; /* ... of them those that are handed out, from there to there */
    uint64_t occupied[AGENDA_LEVELS]; /* parts that may hold something */
};

/* 0 or -ENOMEM. */
int agenda_init(struct agenda *agenda, struct chunk_store *store, uint64_t tick_ns);
void agenda_destroy(struct agenda *agenda);

/*
 * Nothing is here, but for what was put aside. False: maybe nothing; agenda_first tells, by any
 * limit, and then this does.
 */
static inline bool agenda_is_empty(const struct agenda *agenda)
{
    return agenda->count == 0 && !agenda->crowded;
}

/* False: it has more, or those that were withdrawn are still counted. */
static inline bool agenda_has_at_most(const struct agenda *agenda, size_t most)
{
    return agenda->count <= most && !agenda->crowded;
}

/* What a bucket's slot keeps of a deadline. */
static inline uint64_t agenda_key(const struct agenda *agenda, uint64_t deadline)
{
    return deadline >> agenda->quantum;
}

/* The timeout is in nothing else. */
void agenda_add(struct agenda *agenda, hwt_timeout *timeout, uint64_t deadline);
/*
 * All of a bucket, whose deadlines were above `base` and at most a tick later when they were filed.
 * The timeouts in it are touched only as far as needed.
 */
void agenda_add_bucket(struct agenda *agenda, struct bucket *bucket, uint64_t base);
/*
 * Sorted ones, which are in nothing else; no more than the front has room for. They are not
 * touched unless something else is here.
 */
void agenda_add_sorted(struct agenda *agenda, const struct entry *entry, unsigned count);
/*
 * For what is sorted before it comes here: room for as many packed timeouts as the front has, and
 * these sorted, as entries_sort_packed does.
 */
uint64_t *agenda_sort_from(const struct agenda *agenda);
void agenda_sort(struct agenda *agenda, unsigned count, uint64_t from, uint64_t range,
                 struct entry *entry);
/*
 * The first, by the deadline that it has now. Drops what is noticed on the way. It stays valid
 * until the next call of anything here. What is later than `limit` is not put in order: the first
 * of that may have a lower bound, and NULL may mean that all is later.
 */
const struct entry *agenda_find_first(struct agenda *agenda, uint64_t limit, bool in_pass);
HOT const struct entry *agenda_find(struct agenda *agenda, uint64_t limit, bool in_pass)
{
    const struct entry *first = &agenda->front[agenda->lo];

    if (agenda->lo == agenda->hi)
        return agenda_is_empty(agenda) ? NULL : agenda_find_first(agenda, limit, in_pass);
    if (likely(first->timeout->place != PLACE_NOTICED &&
               timeout_deadline(first->timeout) <= first->deadline))
        return first;
    return agenda_find_first(agenda, limit, in_pass);
}
/* In no pass. Beside others who move what is here again and again it may have a lower bound. */
static inline const struct entry *agenda_first(struct agenda *agenda, uint64_t limit)
{
    return agenda_find(agenda, limit, false);
}
/*
 * In a pass, up to its limit. Who kicks a timeout, moves it to "now" again and again, makes it
 * later each time that it is met: by its deadline it would not run as long as he is faster than the
 * pass. So what was due, and has been moved to a time soon after the limit, is put aside, for
 * agenda_take_kicked.
 */
static inline const struct entry *agenda_first_due(struct agenda *agenda, uint64_t limit)
{
    return agenda_find(agenda, limit, true);
}
/*
 * Nothing else is due in this pass: the next of what was put aside and has been moved once more
 * since, which is to say in this pass (A3): no order is promised for that (G15), and by their new
 * deadlines they come. NULL: none. Its place is stale, and who runs it finds out whether its time
 * has come. What was not moved again goes where its deadline belongs: it may have been moved before
 * the pass, or by a task of it, which lets nothing overtake what is due, nor each other.
 */
hwt_timeout *agenda_pop_kicked(struct agenda *agenda);
static inline hwt_timeout *agenda_take_kicked(struct agenda *agenda)
{
    return unlikely(agenda->aside > 0) ? agenda_pop_kicked(agenda) : NULL;
}
/* The earliest deadline of what was put aside; UINT64_MAX: nothing was. */
uint64_t agenda_earliest_aside(const struct agenda *agenda);
/* The pass is broken off: all of it goes where its deadlines belong. */
void agenda_put_aside_back(struct agenda *agenda);

/*
 * Where nothing is left to come by `limit`, and yet something is here: takes some of it out, as
 * many as a batch has, in any order. 0: there is none that is later.
 */
unsigned agenda_take_later(struct agenda *agenda, uint64_t limit, uint64_t *packed);

/* Takes out the first, which agenda_first has just returned. Its place is stale. */
static inline hwt_timeout *agenda_take(struct agenda *agenda)
{
    agenda->count--;
    return agenda->front[agenda->lo++].timeout;
}

/* Fetches what the tasks of `count` will be called with, from the `from`th after the first on. */
HOT void agenda_prefetch(const struct agenda *agenda, unsigned from, unsigned count)
{
    unsigned begin = agenda->lo + from, end = begin + count;

    for (unsigned i = begin; i < end && i < agenda->hi; i++)
        __builtin_prefetch(agenda->front[i].timeout->arg, 1);
}
/*
 * The same a few runs later: the next line of each; or, since it was an extra that was fetched, the
 * argument of which that tells. It stays as long as the block does, noticed or not, and its `arg`
 * never changes.
 */
HOT void agenda_prefetch_further(const struct agenda *agenda, unsigned from, unsigned count)
{
    unsigned begin = agenda->lo + from, end = begin + count;

    for (unsigned i = begin; i < end && i < agenda->hi; i++) {
        const hwt_timeout *timeout = agenda->front[i].timeout;
        uintptr_t further = (uintptr_t)timeout->arg + CACHE_LINE; /* wherever: it does not fault */

        if (unlikely(timeout->flags & FLAG_EXTENDED))
            further = (uintptr_t)timeout_arg(timeout);
        __builtin_prefetch((const void *)further, 1);
    }
}

/* It is over, and no bucket holds it: it will be dropped. */
void agenda_notice(struct agenda *agenda, hwt_timeout *timeout);
/* Takes it out now, if no bucket holds it. */
void agenda_extract(struct agenda *agenda, hwt_timeout *timeout);
/* One that was dropped, PLACE_NOTICED; NULL: none. */
hwt_timeout *agenda_pop_dropped(struct agenda *agenda);
static inline hwt_timeout *agenda_take_dropped(struct agenda *agenda)
{
    return unlikely(agenda->dropped != NULL) ? agenda_pop_dropped(agenda) : NULL;
}

/*
 * Validator: counts the timeouts that are not noticed. Of the parts that are said to be empty it
 * looks at those of one level (AGENDA_LEVELS: of all): there are a thousand, and mostly all are.
 */
size_t agenda_check(struct agenda *agenda, unsigned idle);

#endif
