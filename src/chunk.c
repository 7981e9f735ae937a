/* SPDX-License-Identifier: BSD-2-Clause */
#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOT_MOST 4096 /* large chunks: 2 MB */

struct chunk_lot {
    struct chunk_lot *next;
    void *chunks;
};

void chunk_store_init(struct chunk_store *store)
{
    memset(store, 0, sizeof *store);
    store->next_lot = LOT_FIRST;
}

void chunk_store_destroy(struct chunk_store *store)
{
    struct chunk_lot *next;

    for (struct chunk_lot *lot = store->lots; lot; lot = next) {
        next = lot->next;
        free(lot->chunks);
        free(lot);
    }
    store->lots = NULL;
    store->large = store->small = NULL;
    store->large_count = store->small_count = 0;
}

static void push_free(struct ring **list, size_t *count, void *memory)
{
    struct ring *ring = memory;

    ring->next = *list;
    *list = ring;
    ++*count;
}

static struct ring *pop_free(struct ring **list, size_t *count)
{
    struct ring *first = *list;

    if (!first)
        return NULL;
    *list = first->next;
    --*count;
    return first;
}

static struct chunk *open_chunk(struct ring *ring, size_t room)
{
    struct chunk *chunk = container_of(ring, struct chunk, ring);

    ring->live = 0;
    ring->used = 0;
    ring->room = (uint16_t)room;
    chunk->bound = 0;
    return chunk;
}

static bool grow(struct chunk_store *store, size_t count)
{
    struct chunk_lot *lot = malloc(sizeof *lot);
    char *chunks;

    if (!lot)
        return false;
    chunks = aligned_alloc(CHUNK_LARGE_SIZE, count * CHUNK_LARGE_SIZE);
    if (!chunks) {
        free(lot);
        return false;
    }
    lot->chunks = chunks;
    lot->next = store->lots;
    store->lots = lot;
    while (count-- > 0)
        push_free(&store->large, &store->large_count, chunks + count * CHUNK_LARGE_SIZE);
    return true;
}

int chunk_store_reserve(struct chunk_store *store, size_t small)
{
    size_t have = store->small_count + store->large_count * CHUNK_SPLIT;

    if (small > SIZE_MAX / CHUNK_LARGE_SIZE)
        return -ENOMEM;
    if (have >= small)
        return 0;
    return grow(store, (small - have + CHUNK_SPLIT - 1) / CHUNK_SPLIT) ? 0 : -ENOMEM;
}

struct chunk *chunk_take_free_small(struct chunk_store *store)
{
    struct ring *ring = pop_free(&store->small, &store->small_count);
    char *large;

    if (ring)
        return open_chunk(ring, CHUNK_SMALL_ROOM);
    large = (char *)pop_free(&store->large, &store->large_count);
    if (!large)
        return NULL;
    for (size_t i = CHUNK_SPLIT; i-- > 1;)
        push_free(&store->small, &store->small_count, large + i * CHUNK_SMALL_SIZE);
    return open_chunk((struct ring *)(void *)large, CHUNK_SMALL_ROOM);
}

static struct chunk *take_free(struct chunk_store *store, bool large)
{
    struct ring *ring = large ? pop_free(&store->large, &store->large_count) : NULL;

    return ring ? open_chunk(ring, CHUNK_LARGE_ROOM) : chunk_take_free_small(store);
}

struct chunk *chunk_take(struct chunk_store *store, bool large)
{
    struct chunk *chunk = take_free(store, large);

    if (likely(chunk) || !grow(store, store->next_lot))
        return chunk;
    if (store->next_lot < LOT_MOST)
        store->next_lot *= 2;
    return take_free(store, large);
}

void chunk_give(struct chunk_store *store, struct chunk *chunk)
{
    if (chunk_is_large(chunk))
        push_free(&store->large, &store->large_count, chunk);
    else
        push_free(&store->small, &store->small_count, chunk);
}
