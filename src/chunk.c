/* SPDX-License-Identifier: BSD-2-Clause */
#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOT_MOST 4096 /* large chunks: 2 MB */

/* In place of the room of a chunk that is free; `used` then tells whether it ever was in use. */
#define FREE_SMALL 1
#define FREE_LARGE 2

struct chunk_lot {
    struct chunk_lot *next;
    char *chunks;
    size_t units; /* small chunks */
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
    store->large_count = store->small_count = store->total = 0;
    store->at = NULL;
}

static void push_free(struct chunk_store *store, void *memory, bool large, bool fresh)
{
    struct ring *ring = memory;

    ring_set(ring, 0, !fresh, large ? FREE_LARGE : FREE_SMALL);
    if (large) {
        store_relaxed(&ring->next, store->large);
        store->large = ring;
        store->large_count++;
    } else {
        store_relaxed(&ring->next, store->small);
        store->small = ring;
        store->small_count++;
    }
}

static struct ring *pop_free(struct ring **list, size_t *count)
{
    struct ring *first = *list;

    if (!first)
        return NULL;
    *list = ring_next(first);
    --*count;
    return first;
}

/* Free, and was in use. */
static bool is_used(const struct ring *ring)
{
    return ring && ring_used(ring);
}

static struct chunk *open_chunk(struct ring *ring, size_t room)
{
    struct chunk *chunk = container_of(ring, struct chunk, ring);

    ring_set(ring, 0, 0, room);
    store_relaxed(&chunk->bound, 0);
    return chunk;
}

static struct chunk_lot *lot_create(size_t count)
{
    int saved = errno; /* in a caller's advance; malloc may try one thing before another */
    struct chunk_lot *lot = malloc(sizeof *lot);

    if (!lot)
        return NULL;
    lot->chunks = aligned_alloc(CHUNK_LARGE_SIZE, count * CHUNK_LARGE_SIZE);
    if (!lot->chunks) {
        free(lot);
        return NULL;
    }
    __asm__ volatile("" : : : "memory"); /* clang takes it that malloc leaves errno alone */
    errno = saved;
    lot->units = count * CHUNK_SPLIT;
    return lot;
}

/* Behind those that are free already. */
static bool grow(struct chunk_store *store, size_t count)
{
    struct chunk_lot *lot = lot_create(count);
    struct ring *used = store->large, *last = used;

    if (!lot)
        return false;
    lot->next = store->lots;
    store->lots = lot;
    store->total += lot->units;
    store->large = NULL;
    while (count-- > 0)
        push_free(store, lot->chunks + count * CHUNK_LARGE_SIZE, true, true);
    if (!used)
        return true;
    while (ring_next(last))
        last = ring_next(last);
    store_relaxed(&last->next, store->large);
    store->large = used;
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

/* A large one becomes four, of which one is left. */
static struct ring *split(struct chunk_store *store, struct ring *large)
{
    bool fresh = !is_used(large);

    for (size_t i = CHUNK_SPLIT; i-- > 1;)
        push_free(store, (char *)large + i * CHUNK_SMALL_SIZE, false, fresh);
    return large;
}

/* What was in use comes before what never was. */
struct chunk *chunk_take_free_small(struct chunk_store *store)
{
    struct ring *ring;

    if (store->small && (is_used(store->small) || !is_used(store->large)))
        return open_chunk(pop_free(&store->small, &store->small_count), CHUNK_SMALL_ROOM);
    ring = pop_free(&store->large, &store->large_count);
    return ring ? open_chunk(split(store, ring), CHUNK_SMALL_ROOM) : NULL;
}

static struct chunk *take_free(struct chunk_store *store, bool large)
{
    bool instead = is_used(store->small) && !is_used(store->large);
    struct ring *ring = large && !instead ? pop_free(&store->large, &store->large_count) : NULL;

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

bool chunk_next_is_fresh(const struct chunk_store *store)
{
    return !is_used(store->small) && !is_used(store->large);
}

void chunk_give(struct chunk_store *store, struct chunk *chunk)
{
    push_free(store, chunk, chunk_is_large(chunk), false);
}

/* ---- the cursor ---- */

/* To the next lot. False: that is the first again. */
static bool next_lot(struct chunk_store *store)
{
    store->at = store->at ? store->at->next : store->lots;
    store->offset = 0;
    return store->at != NULL;
}

/* A lot is taken into use from its beginning: behind one that never was there is no other. */
static bool is_past(const struct chunk_store *store, const struct ring *ring)
{
    return ring_room(ring) == FREE_LARGE && !is_used(ring) && store->offset % CHUNK_SPLIT == 0;
}

struct chunk *chunk_cursor_next(struct chunk_store *store, size_t *units)
{
    struct ring *ring;
    unsigned room;

    *units = 0;
    if ((!store->at || store->offset == store->at->units) && !next_lot(store))
        return NULL;
    ring = (struct ring *)(void *)(store->at->chunks + store->offset * CHUNK_SMALL_SIZE);
    if (is_past(store, ring)) {
        store->offset = store->at->units;
        return NULL;
    }
    room = ring_room(ring);
    *units = room == CHUNK_LARGE_ROOM || room == FREE_LARGE ? CHUNK_SPLIT : 1;
    store->offset += *units;
    __builtin_prefetch(store->at->chunks + store->offset * CHUNK_SMALL_SIZE);
    return room >= CHUNK_SMALL_ROOM ? chunk_of(ring) : NULL;
}
