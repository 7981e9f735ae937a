/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chunks: what buckets are made of beyond their own cache line. There are small ones and large
 * ones, so that a bucket with five timeouts costs little and one with thousands is walked quickly;
 * each is aligned to its size, so that it is found from the address of one of its slots.
 *
 * The store of a wheel keeps the free ones. It never grows while any chunk is free: whoever wants a
 * large one takes a small one then, and a large one is split for whoever wants a small one.
 *
 * Worker only, all of it.
 */
#ifndef HWT_CHUNK_H
#define HWT_CHUNK_H

#include "base.h"

#define CHUNK_SMALL_SIZE 128
#define CHUNK_LARGE_SIZE 512
#define CHUNK_SPLIT      (CHUNK_LARGE_SIZE / CHUNK_SMALL_SIZE)

/* The head of a bucket and of each of its chunks, linked in a ring once there are chunks. */
struct ring {
    struct ring *prev, *next;
    uint32_t live; /* timeouts in a chunk; in a bucket with its chunks: bucket_at_most */
    uint16_t used; /* a chunk: slots ever filled */
    uint16_t room; /* a chunk: slots in all; a bucket: 0, which tells it apart */
};

struct chunk {
    struct ring ring;
    uint64_t bound;  /* chunk_least, inverted: a stale `where` may point here (bucket_holds) */
    uint64_t slot[]; /* packed timeouts, 0: a hole */
};

#define CHUNK_SMALL_ROOM ((CHUNK_SMALL_SIZE - sizeof(struct chunk)) / sizeof(uint64_t))
#define CHUNK_LARGE_ROOM ((CHUNK_LARGE_SIZE - sizeof(struct chunk)) / sizeof(uint64_t))

struct chunk_store {
    struct ring *large, *small; /* free ones, by `next` */
    size_t large_count, small_count;
    struct chunk_lot *lots; /* what malloc gave; goes back when the store is destroyed */
    size_t next_lot;        /* large chunks in the next one */
};

void chunk_store_init(struct chunk_store *store);
void chunk_store_destroy(struct chunk_store *store);
/* Sees to it that small chunks, or large ones instead of four each, are free. 0 or -ENOMEM. */
int chunk_store_reserve(struct chunk_store *store, size_t small);

/* Empty. May be small although a large one is wanted. NULL: no memory. */
struct chunk *chunk_take(struct chunk_store *store, bool large);
/* The same, but only if that takes no memory. */
struct chunk *chunk_take_free_small(struct chunk_store *store);
void chunk_give(struct chunk_store *store, struct chunk *chunk);

/* No stamp of a timeout in it is below. */
static inline uint64_t chunk_least(const struct chunk *chunk)
{
    return ~chunk->bound;
}

static inline void chunk_lower_least(struct chunk *chunk, uint64_t stamp)
{
    if (~stamp > chunk->bound)
        chunk->bound = ~stamp;
}

static inline struct chunk *chunk_of(struct ring *ring)
{
    return container_of(ring, struct chunk, ring);
}

/* Out of its ring, and free. */
static inline void chunk_unlink(struct chunk_store *store, struct chunk *chunk)
{
    chunk->ring.prev->next = chunk->ring.next;
    chunk->ring.next->prev = chunk->ring.prev;
    chunk_give(store, chunk);
}

static inline bool chunk_is_large(const struct chunk *chunk)
{
    return chunk->ring.room == CHUNK_LARGE_ROOM;
}

#endif
