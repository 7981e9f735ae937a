/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What no timer can do without: to cancel the oldest, its handle and its block of 64 bytes are
 * touched; to schedule another, the same block is used again. Behind the peers' interface, so that
 * calls, clock reads and the ring are the same.
 */
#include <stdlib.h>

#include "inflight.h"

#define LOT_MOST 65536u /* blocks that are allocated together: 4 MB */

struct block {
    _Alignas(BENCH_LINE) uint64_t deadline;
    struct event *event;
};

static uint32_t lot_size;
static _Thread_local struct block *in_hand, *lot;
static _Thread_local uint32_t used, *order;

void walk_lots(uint64_t each)
{
    lot_size = each < LOT_MOST ? (uint32_t)each : LOT_MOST;
}

static struct block *fresh(bool any_order)
{
    if (!lot || used == lot_size) {
        lot = bench_alloc(lot_size * sizeof(*lot));
        order = order ? order : peer_alloc(lot_size * sizeof(*order));
        for (uint32_t i = 0; i < lot_size; i++)
            order[i] = i;
        if (any_order)
            shuffle_u32(order, lot_size, 23);
        used = 0;
    }
    return &lot[order[used++]];
}

static void *create(void)
{
    return NULL;
}

static void destroy(void *timer)
{
    (void)timer;
}

static void *put(uint64_t deadline_ns, struct event *event, bool any_order)
{
    struct block *block = in_hand ? in_hand : fresh(any_order);

    in_hand = NULL;
    block->deadline = deadline_ns;
    block->event = event;
    return block;
}

static void *in_order(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    (void)timer;
    (void)keep;
    return put(deadline_ns, event, false);
}

static void *in_any_order(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    (void)timer;
    (void)keep;
    return put(deadline_ns, event, true);
}

static void take_back(void *timer, void *handle)
{
    (void)timer;
    in_hand = handle;
    in_hand->event = NULL;
}

const struct peer walk_in_order = {"walk", create, destroy, in_order, take_back, NULL, NULL};
const struct peer walk_in_any_order = {"shuffled", create, destroy, in_any_order,
                                       take_back,  NULL,   NULL};
