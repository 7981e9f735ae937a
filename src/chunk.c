/* SPDX-License-Identifier: BSD-2-Clause */
#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "platform.h"

#define LOT_MOST  4096               /* large chunks: 2 MB */
#define ASK_AGAIN 256                /* chunks later, if the system had no memory: it takes long */
#define MEET_SIZE ((size_t)32 << 10) /* whose pages are asked for together */

/* In place of the room of a chunk that is free; `used` then tells whether it ever was in use. */
#define FREE_SMALL 1
#define FREE_LARGE 2

/* Its memory is touched as it is taken into use, from the beginning on. */
struct chunk_lot {
    struct chunk_lot *next; /* younger */
    char *chunks;
    size_t units, opened; /* small chunks: in all; ever taken into use, or split off for that */
    bool in_pieces;       /* its pages are asked for as they are come to */
};

/* So large that the system may give it a huge page: there filing costs no faults. */
static bool is_mapped(size_t units)
{
    return units >= LOT_MOST * CHUNK_SPLIT;
}

/* ---- lots ---- */

void chunk_store_init(struct chunk_store *store)
{
    memset(store, 0, sizeof *store);
    store->next_lot = LOT_FIRST;
}

static void free_chunks(const struct chunk_lot *lot)
{
    if (is_mapped(lot->units))
        platform_unmap(lot->chunks, lot->units * CHUNK_SMALL_SIZE);
    else
        free(lot->chunks);
}

void chunk_store_destroy(struct chunk_store *store)
{
    struct chunk_lot *next;

    for (struct chunk_lot *lot = store->lots; lot; lot = next) {
        next = lot->next;
        free_chunks(lot);
        free(lot);
    }
    chunk_store_init(store);
}

static char *obtain_chunks(size_t units, bool small)
{
    size_t size = units * CHUNK_SMALL_SIZE;
    char *chunks;

    if (!is_mapped(units))
        return aligned_alloc(CHUNK_LARGE_SIZE, size);
    chunks = platform_map(size, LOT_MOST * CHUNK_LARGE_SIZE);
    if (chunks && small)
        platform_advise_small(chunks, size);
    else if (chunks)
        platform_advise_huge(chunks, size);
    return chunks;
}

static struct chunk_lot *lot_create(size_t units, bool small)
{
    int saved = errno; /* in a caller's advance; malloc may try one thing before another */
    struct chunk_lot *lot = malloc(sizeof *lot);
    char *chunks = lot ? obtain_chunks(units, small) : NULL;

    if (chunks) {
        *lot = (struct chunk_lot){NULL, chunks, units, 0, small || !is_mapped(units)};
    } else {
        free(lot);
        lot = NULL;
    }
    __asm__ volatile("" : : : "memory"); /* clang takes it that malloc leaves errno alone */
    errno = saved;
    return lot;
}

/* Another lot of large chunks, after those that there are. */
static bool grow(struct chunk_store *store, size_t count)
{
    struct chunk_lot *lot = lot_create(count * CHUNK_SPLIT, store->small_pages);

    if (!lot)
        return false;
    *(store->last ? &store->last->next : &store->lots) = lot;
    store->last = lot;
    store->half_open = false;
    if (!store->opening)
        store->opening = lot;
    store->total += lot->units;
    store->fresh += lot->units;
    store->refused = 0;
    return true;
}

/* Small pages, several at once, where the first of them is come to: each would be waited for. */
static void meet_pages(const struct chunk_lot *lot)
{
    size_t rest = (lot->units - lot->opened) * CHUNK_SMALL_SIZE;

    if (lot->in_pieces && lot->opened * CHUNK_SMALL_SIZE % MEET_SIZE == 0)
        platform_populate_pages(lot->chunks + lot->opened * CHUNK_SMALL_SIZE,
                                rest < MEET_SIZE ? rest : MEET_SIZE);
}

/* Half of a lot is opened, and the next one will be as large as any. */
static bool is_running_low(const struct chunk_store *store, const struct chunk_lot *opening)
{
    return opening->opened * 2 == opening->units && store->next_lot == LOT_MOST;
}

/* A large one that never was in use; NULL: there is none. */
static struct ring *open_fresh(struct chunk_store *store)
{
    struct chunk_lot *lot = store->opening;
    char *memory;

    if (!lot)
        return NULL;
    meet_pages(lot);
    memory = lot->chunks + lot->opened * CHUNK_SMALL_SIZE;
    lot->opened += CHUNK_SPLIT;
    store->fresh -= CHUNK_SPLIT;
    if (is_running_low(store, lot))
        store->half_open = true;
    if (lot->opened == lot->units)
        store->opening = lot->next;
    return (struct ring *)(void *)memory;
}

/* ---- free chunks ---- */

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
    if (*list)
        chunk_prefetch(*list); /* who takes the next one asks whether it was in use */
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

static size_t free_units(const struct chunk_store *store)
{
    return store->small_count + store->large_count * CHUNK_SPLIT + store->fresh;
}

/* A large one becomes four, of which one is left. */
static struct ring *split(struct chunk_store *store, struct ring *large, bool fresh)
{
    for (size_t i = CHUNK_SPLIT; i-- > 1;)
        push_free(store, (char *)large + i * CHUNK_SMALL_SIZE, false, fresh);
    return large;
}

/* What was in use comes before what never was. */
struct chunk *chunk_take_free_small(struct chunk_store *store)
{
    struct ring *ring;

    if (store->small && (is_used(store->small) || !store->large))
        return open_chunk(pop_free(&store->small, &store->small_count), CHUNK_SMALL_ROOM);
    ring = pop_free(&store->large, &store->large_count);
    if (ring)
        return open_chunk(split(store, ring, false), CHUNK_SMALL_ROOM);
    ring = open_fresh(store);
    return ring ? open_chunk(split(store, ring, true), CHUNK_SMALL_ROOM) : NULL;
}

static struct ring *take_large(struct chunk_store *store)
{
    struct ring *ring = pop_free(&store->large, &store->large_count);
    return ring ? ring : open_fresh(store);
}

static struct chunk *take_free(struct chunk_store *store, bool large)
{
    bool instead = is_used(store->small) && !store->large;
    struct ring *ring = large && !instead ? take_large(store) : NULL;

    return ring ? open_chunk(ring, CHUNK_LARGE_ROOM) : chunk_take_free_small(store);
}

struct chunk *chunk_take(struct chunk_store *store, bool large)
{
    struct chunk *chunk = take_free(store, large);

    if (likely(chunk != NULL))
        return chunk;
    if (store->refused > 0) {
        store->refused--;
        return NULL;
    }
    if (!grow(store, store->next_lot)) {
        store->refused = ASK_AGAIN;
        return NULL;
    }
    if (store->next_lot < LOT_MOST)
        store->next_lot *= 2;
    return take_free(store, large);
}

/* Not while more than half a large lot is free: it has come back since. */
bool chunk_is_low(const struct chunk_store *store)
{
    return free_units(store) <= LOT_MOST * CHUNK_SPLIT / 2;
}

/* A huge page comes by a touch; if it was none, the rest is asked for. Small ones: by pieces. */
static void bring_pages(struct chunk_lot *lot, size_t units)
{
    size_t size = units * CHUNK_SMALL_SIZE, piece = lot->in_pieces ? MEET_SIZE : size;

    *(volatile char *)lot->chunks = 0;
    for (size_t at = 0; at < size; at += piece)
        platform_populate_pages(lot->chunks + at, size - at < piece ? size - at : piece);
    if (units == lot->units)
        lot->in_pieces = false;
}

/* With their pages as many as there would be if all were full: so it is mostly, or nearly. */
int chunk_store_reserve(struct chunk_store *store, size_t small)
{
    size_t have = free_units(store);

    if (small > SIZE_MAX / CHUNK_LARGE_SIZE)
        return -ENOMEM;
    if (have >= small)
        return 0;
    if (!grow(store, (small - have + CHUNK_SPLIT - 1) / CHUNK_SPLIT))
        return -ENOMEM;
    bring_pages(store->last, store->last->units / CHUNK_SPLIT);
    return 0;
}

void chunk_make_ready(struct chunk_store *store, bool small)
{
    chunk_choose_pages(store, small);
    if (!grow(store, store->next_lot)) {
        store->half_open = false; /* whoever needs it may fare better */
        return;
    }
    bring_pages(store->last, store->last->units);
}

bool chunk_next_is_fresh(const struct chunk_store *store)
{
    return !is_used(store->small) && !store->large;
}

void chunk_give(struct chunk_store *store, struct chunk *chunk)
{
    push_free(store, chunk, chunk_is_large(chunk), false);
}

/* ---- the cursor ---- */

/* To the next lot. False: that is the first again. Behind one that was never opened is no other. */
static bool next_lot(struct chunk_store *store)
{
    store->at = store->at ? store->at->next : store->lots;
    store->offset = 0;
    if (store->at && store->at->opened == 0)
        store->at = NULL;
    return store->at != NULL;
}

struct chunk *chunk_cursor_next(struct chunk_store *store, size_t *units)
{
    struct ring *ring;
    unsigned room;

    *units = 0;
    if ((!store->at || store->offset == store->at->opened) && !next_lot(store))
        return NULL;
    ring = (struct ring *)(void *)(store->at->chunks + store->offset * CHUNK_SMALL_SIZE);
    room = ring_room(ring);
    *units = room == CHUNK_LARGE_ROOM || room == FREE_LARGE ? CHUNK_SPLIT : 1;
    store->offset += *units;
    __builtin_prefetch(store->at->chunks + store->offset * CHUNK_SMALL_SIZE);
    return room >= CHUNK_SMALL_ROOM ? chunk_of(ring) : NULL;
}
