/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free timeouts: one pool for the process. Blocks of one cache line come from slabs and go round:
 * a thread keeps a magazine of free ones, and exchanges batches of them with the depot of its CPU.
 * All but the growth by a slab is free of locks.
 *
 * The addresses are never unmapped, only their pages are given back (pool_trim): a handle that
 * outlives its timer stays valid (G9), and the head of a depot may be read by somebody who is too
 * late to take it.
 */
#ifndef HWT_POOL_H
#define HWT_POOL_H

#include "poison.h"
#include "slab.h"

#define POOL_BATCH SLAB_BATCH

/* A thread's own free blocks, by `link`. */
struct magazine {
    ck_stack_entry_t *head;
    uint32_t count;
    uint32_t room; /* for how many more; 0 also until its flush at the thread's end is arranged */
};
extern HIDDEN _Thread_local struct magazine pool_magazine;

/* The rest of the next two: an empty magazine, a full one. */
bool pool_refill(void);
void pool_make_room(void);

/* Before anything else, by whoever creates a timer. */
void pool_prepare(void);
/* Any thread. NULL: no memory. */
static inline hwt_timeout *pool_take(void)
{
    hwt_timeout *block;

    if (unlikely(!pool_magazine.head) && !pool_refill())
        return NULL;
    block = container_of(pool_magazine.head, hwt_timeout, link);
    pool_magazine.head = block->link.next;
    pool_magazine.count--;
    pool_magazine.room++;
    unpoison(block);
    return block;
}

/* Any thread: back to its own magazine. */
static inline void pool_give(hwt_timeout *block)
{
    if (unlikely(!pool_magazine.room))
        pool_make_room();
    block->link.next = pool_magazine.head;
    pool_magazine.head = &block->link;
    pool_magazine.count++;
    pool_magazine.room--;
    poison_mark_dead(block);
    poison(block);
}

/* One owner at a time (a worker): collects free blocks for one depot. */
struct pool_return {
    hwt_timeout *head;
    uint32_t count;
};
void pool_return_add(struct pool_return *batch, unsigned shard, hwt_timeout *block);
void pool_return_flush(struct pool_return *batch, unsigned shard);

/* Sees to it that `count` blocks can be taken without malloc. 0 or -ENOMEM. */
int pool_reserve(size_t count);
/*
 * Gives the pages of slabs without a block in use back to the system. It looks at every free block:
 * for when more than POOL_TRIM_ABOVE may have become free.
 */
#define POOL_TRIM_ABOVE 16384
void pool_trim(void);

#endif
