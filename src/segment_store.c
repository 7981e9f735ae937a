/* SPDX-License-Identifier: BSD-2-Clause */
/* Where segments come from: regions, mapped by the bunch; the next one before it is needed. */
#include "segment.h"

#include <errno.h>

#include "platform.h"

/* Pages that no producer comes to are never touched; small ones, in proportion to what lives. */
static char *map_regions(size_t count)
{
    char *regions = NULL;

    if (count <= SIZE_MAX / SEGMENT_SIZE)
        regions = platform_map(count * SEGMENT_SIZE, SEGMENT_SIZE);
    if (regions)
        platform_advise_small(regions, count * SEGMENT_SIZE);
    return regions;
}

int segment_store_create(struct segment_store *store, size_t firsts, size_t count)
{
    store->first = (struct bunch){.regions = map_regions(count), .count = count};
    store_relaxed(&store->first.used, firsts);
    store_relaxed(&store->newest, &store->first);
    return store->first.regions ? 0 : -ENOMEM;
}

void segment_store_destroy(struct segment_store *store)
{
    struct bunch *bunch = load_acquire(&store->newest), *before; /* pairs with take_region */

    for (; bunch; bunch = before) {
        before = bunch->before;
        platform_unmap(bunch->regions, bunch->count * SEGMENT_SIZE);
    }
}

/* It begins with what describes it: a segment lies at the end of its region. NULL: no memory. */
static struct bunch *map_bunch(struct bunch *before, size_t used)
{
    size_t count = BUNCH;
    char *regions = map_regions(count);
    struct bunch *bunch;

    if (!regions && (regions = map_regions(count = 1)) == NULL)
        return NULL;
    bunch = (struct bunch *)(void *)regions;
    bunch->regions = regions;
    bunch->count = count;
    bunch->before = before;
    store_relaxed(&bunch->used, used);
    return bunch;
}

/*
 * Who comes second with a new bunch goes on with the other's. Whoever reads `newest` acquires what
 * map_bunch has written, which its compare-and-swap releases. `used` orders nothing: a region has
 * never been touched, and its segment is published by segment_link.
 */
static char *take_region(struct segment_store *store)
{
    struct bunch *bunch = load_acquire(&store->newest), *more;
    size_t index;

    for (;;) {
        if (load_relaxed(&bunch->used) < bunch->count &&
            (index = add_relaxed(&bunch->used, 1)) < bunch->count)
            return bunch->regions + index * SEGMENT_SIZE;
        more = map_bunch(bunch, 1);
        if (!more || cas_acq_rel(&store->newest, &bunch, more))
            return more ? more->regions : NULL;
        platform_unmap(more->regions, more->count * SEGMENT_SIZE);
    }
}

/* NULL: all that have been mapped are taken. */
static char *next_region(const struct bunch *bunch)
{
    size_t used = load_relaxed(&bunch->used);
    return used < bunch->count ? bunch->regions + used * SEGMENT_SIZE : NULL;
}

bool segment_is_ready(const struct segment_store *store)
{
    const char *next = next_region(load_acquire(&store->newest)); /* pairs with take_region */
    return next && load_relaxed(&store->ready) == next;
}

/* A producer may take it meanwhile, and meets some of the pages himself. */
bool segment_make_ready(struct segment_store *store)
{
    struct bunch *bunch = load_acquire(&store->newest), *more; /* pairs with take_region */
    char *next = next_region(bunch);

    if (!next && (more = map_bunch(bunch, 0)) != NULL) {
        if (cas_acq_rel(&store->newest, &bunch, more))
            next = more->regions;
        else
            platform_unmap(more->regions, more->count * SEGMENT_SIZE);
    }
    if (!next || next == load_relaxed(&store->ready))
        return false;
    platform_populate_pages(segment_in((uintptr_t)next), sizeof(struct segment));
    store_relaxed(&store->ready, next);
    return true;
}

static struct segment *create_in(char *region, struct segment_store *store, struct lane *lane,
                                 bool far)
{
    struct segment *segment = segment_in((uintptr_t)region);

    store_relaxed(&segment->earliest, UINT64_MAX);
    store_relaxed(&segment->next, segment);
    store_relaxed(&segment->alike, segment);
    segment->lane = lane;
    segment->store = store;
    segment->far = far;
    segment->whole = region == load_relaxed(&store->ready);
    return segment;
}

struct segment *segment_create(struct segment_store *store, struct lane *lane, bool far)
{
    char *region = take_region(store);

    return region ? create_in(region, store, lane, far) : NULL;
}

struct segment *segment_create_first(struct segment_store *store, size_t index, struct lane *lane,
                                     bool far)
{
    return create_in(store->first.regions + index * SEGMENT_SIZE, store, lane, far);
}
