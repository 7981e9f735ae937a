/* SPDX-License-Identifier: BSD-2-Clause */
/* Slabs as they are seen within slab*.c: the word, taken apart, and the kinds that there are. */
#ifndef HWT_SLAB_WORD_H
#define HWT_SLAB_WORD_H

#include "slab_map.h"

/* ---- the word: slab.h says what it means ---- */

#define USED_BITS   11
#define NUMBER_BITS 16
#define CLOSED      ((1u << USED_BITS) - 1)
#define NUMBER_MASK ((1u << NUMBER_BITS) - 1)

#define HOME_AT  USED_BITS
#define FIRST_AT (HOME_AT + NUMBER_BITS)
#define TAG_AT   (FIRST_AT + NUMBER_BITS)

static_assert(SLAB_BLOCKS / SLAB_BATCH < CLOSED && SLAB_BLOCKS <= NUMBER_MASK,
              "the parts of the word are wide enough");

struct view {
    uint32_t used, home, first; /* first: the number of its first block and 1, or 0 */
};

static inline struct view view_of(uint64_t state)
{
    return (struct view){
        .used = (uint32_t)state & CLOSED,
        .home = (uint32_t)(state >> HOME_AT) & NUMBER_MASK,
        .first = (uint32_t)(state >> FIRST_AT) & NUMBER_MASK,
    };
}

static inline uint64_t state_after(uint64_t before, struct view v)
{
    return ((before >> TAG_AT) + 1) << TAG_AT | (uint64_t)v.first << FIRST_AT |
           (uint64_t)(v.home & NUMBER_MASK) << HOME_AT | v.used;
}

static inline bool change(struct slab *slab, uint64_t *seen, struct view to)
{
    return cas_acq_rel(&slab->state, seen, state_after(*seen, to));
}

static inline bool is_open(struct view v)
{
    return v.used != CLOSED;
}

/* ---- kinds ---- */

/* The first is small, has small pages, and stays. */
static inline bool is_first(const struct slab *slab)
{
    return !slab->next;
}

/* For those who would have to wait for a huge page otherwise. */
static inline bool is_spare(const struct slab *slab)
{
    return slab->small && !is_first(slab);
}

static inline bool has_room(const struct slab *slab, struct view v)
{
    return is_open(v) && v.used < slab->batches;
}

static inline size_t blocks_in(const struct slab *slab)
{
    return (size_t)slab->batches * SLAB_BATCH;
}

static inline size_t uncarved(const struct slab *slab, struct view v)
{
    return is_open(v) ? blocks_in(slab) - (size_t)v.used * SLAB_BATCH : blocks_in(slab);
}

/* ---- steps ---- */

#define NO_BATCHES ((struct slab_batches){NULL, 0, 0})

/* Carves or fetches; with `at_once` 0 it only fetches. NO_BATCHES: there was nothing (slab.c). */
struct slab_batches slab_take_from(struct slab *slab, uint32_t at_once);
/* By who has carved batches `before` to `used` (slab_take.c). */
void slab_note_carved(const struct slab *slab, uint32_t before, uint32_t used);

#endif
