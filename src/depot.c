/* SPDX-License-Identifier: BSD-2-Clause */
#include "depot.h"

#include "platform.h"

/*
 * The first block of a batch has in `word` the next batch of the depot: `word` is atomic wherever
 * it is used, so that a late-comer may read it from a block that is no longer free. The depot's
 * head packs the block's address with a tag that counts its changes, against ABA.
 */
#define TAG_BITS (64 - PLATFORM_ADDRESS_BITS + 6) /* a block's address ends in 6 zeros */

struct depot {
    alignas(CACHE_PAIR) _Atomic uint64_t head;
    _Atomic uint32_t batches; /* in it, but for those on their way */
};

static struct depot depots[DEPOTS];
static _Atomic uint32_t depot_count; /* power of two covering the CPUs; 0: not yet known */

unsigned depots_used(void)
{
    unsigned count = load_relaxed(&depot_count);

    if (unlikely(count == 0)) {
        for (count = 1; count < platform_cpu_count() && count < DEPOTS;)
            count *= 2;
        store_relaxed(&depot_count, count);
    }
    return count;
}

static hwt_timeout *head_block(uint64_t head)
{
    return (hwt_timeout *)(uintptr_t)(head >> TAG_BITS << 6);
}

static uint64_t head_make(const hwt_timeout *block, uint64_t before)
{
    uint64_t tag = (before + 1) & ((UINT64_C(1) << TAG_BITS) - 1);
    return (uint64_t)(uintptr_t)block >> 6 << TAG_BITS | tag;
}

void depot_push(unsigned depot, hwt_timeout *batch)
{
    _Atomic uint64_t *head = &depots[depot & (depots_used() - 1)].head;
    uint64_t seen = load_relaxed(head);

    do { /* release: the batch is complete before it can be popped */
        store_release(&batch->word, (uint64_t)(uintptr_t)head_block(seen)); /* C20 */
    } while (!cas_acq_rel(head, &seen, head_make(batch, seen)));
    add_relaxed(&depots[depot & (depots_used() - 1)].batches, 1);
}

hwt_timeout *depot_pop(unsigned depot)
{
    _Atomic uint64_t *head = &depots[depot].head;
    uint64_t seen = load_acquire(head); /* pairs with depot_push */
    hwt_timeout *batch;

    while ((batch = head_block(seen)) != NULL) {
        uint64_t next = load_relaxed(&batch->word); /* stale if popped meanwhile: the tag tells */
        if (cas_acq_rel(head, &seen, head_make((hwt_timeout *)(uintptr_t)next, seen))) {
            sub_relaxed(&depots[depot].batches, 1);
            if (next)
                __builtin_prefetch((const void *)(uintptr_t)next, 1); /* for the next time */
            return batch;
        }
    }
    return NULL;
}

int32_t depot_length(unsigned depot)
{
    return (int32_t)load_relaxed(&depots[depot].batches);
}
