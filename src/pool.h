/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free timeouts: one pool for the process. Blocks of one cache line come from slabs and go round:
 * a thread keeps a magazine of free ones, and exchanges batches of them with the depot of its CPU.
 * Blocks come from the slabs by stretches, so that no two CPUs take turns within a page; what is
 * left of one lies in the depot of the CPU that it is for, and others leave that much to it. When
 * much has become free, the depots are emptied, portion by portion, and every block goes back to
 * its slab (slab.h), where it is taken from again before a new slab is carved, by stretches as
 * well, or given back to the system with all the others. All but the mapping of a new slab is free
 * of locks.
 *
 * The addresses are never unmapped, only their pages are given back (pool_trim): a handle that
 * outlives its timer stays valid (G9), and the head of a depot may be read by somebody who is too
 * late to take it.
 */
#ifndef HWT_POOL_H
#define HWT_POOL_H

#include "poison.h"
#include "slab.h"

#define POOL_BATCH   SLAB_BATCH
#define MAGAZINE_MAX (2 * POOL_BATCH)

/* Whether a thread may keep free blocks: only if somebody flushes them at its end. */
enum magazine_keeping { KEEP_UNKNOWN, KEEP_UNTIL_END, KEEP_NOTHING };

/* A thread's own free blocks, by `link`. */
struct magazine {
    ck_stack_entry_t *head;
    uint32_t room; /* for how many more; 0 also as long as it may keep nothing */
    enum magazine_keeping keeping;
    uint32_t passed_on; /* blocks that it borrowed or gave at first */
};
extern HIDDEN _Thread_local struct magazine pool_magazine;
/* So many keep some until their end; changed by these, and in a forked child. A hint. */
extern HIDDEN _Atomic uint32_t pool_keepers;

/* The rest of the next two: an empty magazine, and one without room. */
bool pool_refill(void);
void pool_give_slowly(hwt_timeout *block);

/* What the thread keeps goes to the depot of its CPU. */
void pool_flush(void);

/* How many batches a CPU gets from the slabs at once, and keeps from others as long as they can. */
uint32_t pool_stretch(void);

/* Before anything else, by whoever creates a timer. 0 or -ENOMEM. */
int pool_prepare(void);
/* Any thread: out of its own magazine. NULL: that is empty. */
static inline hwt_timeout *pool_take_here(void)
{
    hwt_timeout *block;

    if (unlikely(!pool_magazine.head))
        return NULL;
    block = container_of(pool_magazine.head, hwt_timeout, link);
    pool_magazine.head = block->link.next;
    pool_magazine.room++;
    unpoison(block);
    poison_mark_born(block);
    return block;
}

/* Any thread. NULL: no memory. */
static inline hwt_timeout *pool_take(void)
{
    if (unlikely(!pool_magazine.head) && !pool_refill())
        return NULL;
    return pool_take_here();
}

/* Any thread: back to its own magazine. */
static inline void pool_give(hwt_timeout *block)
{
    poison_mark_dead(block);
    poison(block);
    if (unlikely(!pool_magazine.room)) {
        pool_give_slowly(block);
        return;
    }
    block->link.next = pool_magazine.head;
    pool_magazine.head = &block->link;
    pool_magazine.room--;
}

/* One owner at a time (a worker): collects free blocks for one depot. */
struct pool_return {
    hwt_timeout *head;
    uint32_t count;
};
void pool_return_flush(struct pool_return *batch, unsigned depot);
/* How many the batch has then; 0: it was full, and has gone to the depot. */
HOT uint32_t pool_return_add(struct pool_return *batch, unsigned depot, hwt_timeout *block)
{
    block->link.next = batch->head ? &batch->head->link : NULL;
    poison_mark_dead(block);
    poison(block);
    batch->head = block;
    if (unlikely(++batch->count == POOL_BATCH))
        pool_return_flush(batch, depot);
    return batch->count;
}

/*
 * A reservation: `count` timeouts of its owner can be pending without more memory being mapped.
 * What lies free already counts, but for what the owners of other reservations may still claim.
 */
struct pool_reservation {
    size_t count;
    uint64_t (*pending)(const void *owner); /* how many of them are in use now */
    const void *owner;
    struct pool_reservation *next;
};
/* 0, or -ENOMEM and nothing has changed. Closed before its owner's end; closed ones are fine. */
int pool_reserve(struct pool_reservation *reservation);
void pool_unreserve(struct pool_reservation *reservation);

/*
 * Gives the pages of slabs without a block in use back to the system. It looks at every free block:
 * for when more than POOL_TRIM_ABOVE may have become free. It keeps nobody waiting, and only ever a
 * few blocks out of reach. As many blocks as are reserved and not in use keep their pages.
 */
void pool_trim(void);

/*
 * The same a little at a time (house.h), with as many blocks as are reserved at all keeping their
 * pages: for every few thousand submissions a look whether there is something to do, ...
 */
void pool_ease(void);
/* ... or, where there are few, by a worker now and then, at this time of the coarse clock, ... */
void pool_ease_by_time(uint64_t coarse);
/* ... for every thousand the question whether there is, ... */
bool pool_must_ease(void);
/* ... and a piece of it, by any thread. False: there was nothing, or somebody else is at it. */
bool pool_ease_on(void);
/* What a piece has sorted and not brought home is. False: somebody else is at it. */
bool pool_bring_sorted(void);

/* Around a fork: reservations and slabs are whole in the child. */
void pool_before_fork(void);
void pool_after_fork(bool child);

#endif
