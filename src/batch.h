/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A batch: free blocks that go round together between threads, depots and slabs, a chain by
 * `link.next`. All of it is its owner's, who passes it on with its first block, which says how long
 * it is.
 *
 * Blocks that come back when their tasks have run lie all over memory, and whoever takes one waits
 * for it to learn where the next one is. So who makes a batch of what has come back notes where it
 * lies, while he still has it at hand: some of the blocks, the nodes, have the addresses of those
 * that follow each of them, and the first block has the nodes'. Who takes a batch to use it fetches
 * the nodes, then what they know: one wait for nearly all of it. The notes are hints: only a fetch
 * goes by them.
 *
 *     first | node follows it | node follows it | ...
 *     0     | 1    2 to 6     | 7    8 to 12    | ...
 */
#ifndef HWT_BATCH_H
#define HWT_BATCH_H

#include "poison.h"

static inline hwt_timeout *block_of(ck_stack_entry_t *link)
{
    return link ? container_of(link, hwt_timeout, link) : NULL;
}

static inline hwt_timeout *next_free(const hwt_timeout *block)
{
    return block_of(block->link.next);
}

/* A node knows the one behind it by its link, the others by its notes; so does the first block. */
#define BATCH_NODES  (BATCH_NOTES + 1)
#define BATCH_STRIDE (BATCH_NOTES + 2)

HOT unsigned batch_node_at(unsigned node)
{
    return 1 + node * BATCH_STRIDE;
}

/* How long it is, and no more: for what lies as it follows, or is rare. */
static inline void batch_set_length(hwt_timeout *first, uint32_t length)
{
    first->batch_length = length;
    first->batch_noted = 0;
}

/* The first so many of a chain: that, and where they lie. It reads them, and returns the last. */
hwt_timeout *batch_note(hwt_timeout *first, uint32_t length);

HOT void batch_fetch_followers(hwt_timeout *node)
{
    __builtin_prefetch(next_free(node), 1);
    poison_open(node);
    for (unsigned i = 0; i < BATCH_NOTES; i++)
        __builtin_prefetch(node->noted[i], 1);
    poison(node);
}

/* Inline by force: base.h says why. */
HOT void batch_fetch(hwt_timeout *first)
{
    hwt_timeout *node[BATCH_NODES];
    unsigned nodes = 0;

    if (!first->batch_noted)
        return;
    poison_open(first);
    for (; nodes < BATCH_NODES && batch_node_at(nodes) < first->batch_length; nodes++) {
        node[nodes] = nodes == 0 ? next_free(first) : first->noted[nodes - 1];
        __builtin_prefetch(node[nodes], 1);
    }
    poison(first);
    for (unsigned i = 0; i < nodes; i++)
        batch_fetch_followers(node[i]);
}

#endif
