/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside the agenda: ranks, its front, and the parts of its radix heap. For its files alone.
 */
#ifndef HWT_AGENDA_PARTS_H
#define HWT_AGENDA_PARTS_H

#include "agenda.h"
#include "fellows.h"

#define RANK_MAX   (~(agenda_rank)0)
#define DIGIT_MASK ((1u << AGENDA_DIGIT) - 1)

struct agenda_memory {
    struct bucket part[AGENDA_LEVELS][AGENDA_PARTS];
    hwt_timeout *listed[AGENDA_LEVELS][AGENDA_PARTS]; /* in a part, by `where` */
    struct entry entries[AGENDA_FRONT];               /* the front */
    struct entry spare[AGENDA_FRONT];                 /* while sorting */
    struct entry aside[AGENDA_FRONT];                 /* moved in this pass */
    uint64_t packed[2][AGENDA_FRONT];                 /* while sorting */
};

/* ---- ranks ---- */

static inline agenda_rank rank_make(const struct agenda *agenda, uint64_t deadline, uint64_t stamp)
{
    return ((agenda_rank)deadline << STAMP_BITS | stamp) << agenda->pad;
}

static inline agenda_rank rank_of_entry(const struct agenda *agenda, const struct entry *entry)
{
    return rank_make(agenda, entry->deadline, entry->stamp);
}

static inline uint64_t rank_deadline(const struct agenda *agenda, agenda_rank rank)
{
    return (uint64_t)(rank >> (STAMP_BITS + agenda->pad));
}

/* The lowest bit of a level's digits, as one of deadlines; below 0: of stamps. */
static inline int rank_level_bit(const struct agenda *agenda, unsigned level)
{
    return (int)(level * AGENDA_DIGIT) - STAMP_BITS - (int)agenda->pad;
}

/* The highest digit in which they differ. */
static inline unsigned rank_level(agenda_rank a, agenda_rank b)
{
    agenda_rank differ = a ^ b;
    uint64_t high = (uint64_t)(differ >> 64), low = (uint64_t)differ;

    if (high)
        return (unsigned)(127 - __builtin_clzll(high)) / AGENDA_DIGIT;
    return low ? (unsigned)(63 - __builtin_clzll(low)) / AGENDA_DIGIT : 0;
}

static inline unsigned rank_digit(agenda_rank rank, unsigned level)
{
    return (unsigned)(rank >> (level * AGENDA_DIGIT)) & DIGIT_MASK;
}

/* The lowest rank of a part, and the first one beyond it. */
static inline agenda_rank part_start(const struct agenda *agenda, unsigned level, unsigned part)
{
    unsigned shift = (level + 1) * AGENDA_DIGIT;
    agenda_rank above = agenda->last >> shift << shift;
    return above | (agenda_rank)part << (level * AGENDA_DIGIT);
}

static inline agenda_rank part_end(const struct agenda *agenda, unsigned level, unsigned part)
{
    return part_start(agenda, level, part) + ((agenda_rank)1 << (level * AGENDA_DIGIT));
}

/*
 * The deadline that a slot's key stands for, its lowest bits cleared: the one of that key at or
 * after `base`.
 */
static inline uint64_t deadline_of_key(const struct agenda *agenda, uint64_t packed, uint64_t base)
{
    uint64_t from = base >> agenda->quantum;

    return (from + packed_key_from(packed, from)) << agenda->quantum;
}

/* ---- the front (agenda_front.c) ---- */

static inline unsigned front_length(const struct agenda *agenda)
{
    return agenda->hi - agenda->lo;
}

/* There, or into a part if there are lower ones in it. */
void front_add(struct agenda *agenda, hwt_timeout *timeout, agenda_rank rank);

/* ---- aside (agenda_moved.c) ---- */

/* Of what was put aside; false: it is not there. */
bool agenda_take_from_aside(struct agenda *agenda, const hwt_timeout *timeout);
/* It was moved, to this deadline, and is in nothing else of the agenda. */
void agenda_put_aside(struct agenda *agenda, hwt_timeout *timeout, uint64_t deadline);

/* ---- parts: level by level, each the value of a digit ---- */

static inline void part_push_listed(hwt_timeout **list, hwt_timeout *timeout)
{
    fellows_push(list, timeout, timeout->place == PLACE_NOTICED ? PLACE_NOTICED : PLACE_LISTED);
}

HOT void part_put(struct agenda *agenda, unsigned level, unsigned part, uint64_t packed)
{
    struct agenda_memory *more = agenda->more;

    agenda->occupied[level] |= UINT64_C(1) << part;
    if (unlikely(!bucket_put(&more->part[level][part], agenda->store, packed)))
        part_push_listed(&more->listed[level][part], packed_timeout(packed));
}

static inline bool part_is_empty(const struct agenda *agenda, unsigned level, unsigned part)
{
    return bucket_is_empty(&agenda->more->part[level][part]) && !agenda->more->listed[level][part];
}

/* Where its rank belongs, which is not below `last`; dropped if it is noticed. */
void parts_place(struct agenda *agenda, hwt_timeout *timeout, agenda_rank rank);
/* The one in use with the lowest ranks. False: no part holds anything. */
bool part_lowest(const struct agenda *agenda, unsigned *level, unsigned *part);
/* Does it fit into the front? */
bool part_fits(const struct agenda *agenda, unsigned level, unsigned part);
/* It is noticed, and was met: it waits for agenda_take_dropped. */
void agenda_drop(struct agenda *agenda, hwt_timeout *timeout);
/* From now on this rank, and all above, can be placed (A2). */
void parts_admit(struct agenda *agenda, agenda_rank rank);

#endif
