/* SPDX-License-Identifier: BSD-2-Clause */
/* Depots: where the CPUs keep free blocks, in batches. Any thread pushes to and pops from any. */
#ifndef HWT_DEPOT_H
#define HWT_DEPOT_H

#include "timeout.h"

/* ---- a batch: a chain of free blocks ---- */

static inline hwt_timeout *block_of(ck_stack_entry_t *link)
{
    return link ? container_of(link, hwt_timeout, link) : NULL;
}

static inline hwt_timeout *next_free(const hwt_timeout *block)
{
    return block_of(block->link.next);
}

/* ---- depots ---- */

/* A power of two that covers the CPUs, if these are no more than DEPOTS. */
unsigned depots_used(void);
/* Of a CPU; `batch`: the first of `count` blocks, which nobody else uses. */
void depot_push(unsigned depot, hwt_timeout *batch, uint32_t count);
/* Of depots_used(). The whole batch is the caller's; the first block tells how long it is. */
hwt_timeout *depot_pop(unsigned depot);
/* Batches. A glimpse; below zero is a pop that was counted before its push. */
int32_t depot_length(unsigned depot);

#endif
