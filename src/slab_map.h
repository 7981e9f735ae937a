/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs in the address space: how they are mapped, listed, and found by the address of a block.
 * Within slab*.c only.
 */
#ifndef HWT_SLAB_MAP_H
#define HWT_SLAB_MAP_H

#include "platform.h"
#include "slab.h"

struct slab {
    alignas(CACHE_LINE) _Atomic uint64_t state; /* see slab.h */
    _Atomic uint32_t ready; /* while vacant: it has its pages; by who brought them, and who gives
                               them back (relaxed: a hint) */
    /* never change */
    uint32_t batches; /* that can be carved */
    hwt_timeout *blocks;
    bool small;        /* its pages are, as those of the first one and of spare ones */
    struct slab *next; /* the one mapped before it */
#ifdef HWT_DEBUG
    _Atomic uintptr_t *notes; /* one for each block */
#endif
};

/* All there are: the list only grows, at this end. */
extern HIDDEN _Atomic(struct slab *) slab_list;

static inline struct slab *slab_newest(void)
{
    return load_acquire(&slab_list); /* pairs with enter: its fields before its use */
}

#define ROOT_BITS (PLATFORM_ADDRESS_BITS - GRANULE_BITS - LEAF_BITS)
extern HIDDEN _Atomic(struct slab *) slab_root[1 << ROOT_BITS];

static inline uint64_t slab_granule(const hwt_timeout *block)
{
    return (uint64_t)(uintptr_t)block >> GRANULE_BITS;
}

/* Whoever has a block in hand has got it after its slab was entered: relaxed is enough. */
static inline struct slab *slab_of(const hwt_timeout *block)
{
    uint64_t granule = slab_granule(block);
    struct slab *leaf = load_relaxed(&slab_root[granule >> LEAF_BITS]);

    return leaf + (granule & ((1u << LEAF_BITS) - 1));
}

/* One thread at a time maps more; these do nothing within a fork, which holds the lock. */
void slab_map_lock(void);
void slab_map_unlock(void);
/* Under the lock: so many slabs more and so many spare ones, or the first one. 0, or -ENOMEM. */
int slab_map_more(size_t slabs, size_t spare);
/* Under the lock: how many there are but the first. */
size_t slab_count(void);

/* In a forked child, where nobody is left who would reopen what he has claimed, ... */
void slab_reopen_all(void);
/* ... or bring the pages of the next one. */
void slab_promise_nothing(void);

#endif
