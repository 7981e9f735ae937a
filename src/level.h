/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One level of the hierarchical wheel: a ring of buckets, which of them are occupied, and how far
 * it reaches. A slot is named by its number since time began: slot s stands for the ticks t with
 * t >> shift == s, and lies at s modulo the ring.
 *
 * A bucket may be empty although its bit is set (removal does not know the slot), or have nothing
 * but chunks of holes: the bit is cleared by whoever comes by.
 */
#ifndef HWT_LEVEL_H
#define HWT_LEVEL_H

#include "bitmap.h"
#include "bucket.h"

struct level {
    uint64_t first; /* no slot before it holds anything; UINT64_MAX: none does */
    uint64_t end;   /* the first tick that is too far for it; UINT64_MAX: none is */
    /* never changes, but for what the buckets and the bitmap hold */
    unsigned shift; /* a slot is as wide as 2^shift ticks */
    size_t mask;    /* of its ring */
    struct bucket *slot;
    struct bitmap occupied;
};

/* ---- geometry ---- */

static inline uint64_t level_slot_of(const struct level *level, uint64_t tick)
{
    return tick >> level->shift;
}

static inline uint64_t level_first_tick(const struct level *level, uint64_t slot)
{
    return slot << level->shift;
}

static inline uint64_t level_slot_width(const struct level *level)
{
    return UINT64_C(1) << level->shift;
}

static inline size_t level_ring_index(const struct level *level, uint64_t slot)
{
    return (size_t)slot & level->mask;
}

static inline struct bucket *level_bucket(const struct level *level, uint64_t slot)
{
    return &level->slot[level_ring_index(level, slot)];
}

/* ---- which slots are occupied ---- */

static inline void level_mark_empty(struct level *level, uint64_t slot)
{
    bitmap_clear(&level->occupied, level_ring_index(level, slot));
}

static inline void level_mark_occupied(struct level *level, uint64_t slot)
{
    bitmap_set(&level->occupied, level_ring_index(level, slot));
    level->first = min_u64(level->first, slot);
}

static inline bool level_is_marked(const struct level *level, uint64_t slot)
{
    return slot >= level->first && bitmap_test(&level->occupied, level_ring_index(level, slot));
}

/*
 * The first slot that holds something, from the one on that the current tick is in. UINT64_MAX:
 * none does.
 */
uint64_t level_seek_occupied(struct level *level, uint64_t current);
/* Shows all that it holds, as bucket_visit does. */
void level_visit(const struct level *level, bucket_see *see, void *context, struct sighting *shown);
static inline uint64_t level_first_occupied(struct level *level, uint64_t current)
{
    uint64_t first = level->first;

    if (first == UINT64_MAX ||
        likely(first >= level_slot_of(level, current) && level_is_marked(level, first) &&
               !bucket_is_empty(level_bucket(level, first))))
        return first;
    return level_seek_occupied(level, current);
}

/* ---- making one ---- */

/* Bytes for a ring of 2^bits slots and as many again, and what aligns it. */
size_t level_size(unsigned bits);
/* In zeroed memory that is aligned to cache lines; returns what is behind it, aligned. */
char *level_init(struct level *level, unsigned shift, unsigned bits, char *memory);

#endif
