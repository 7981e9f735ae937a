/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buckets: where the worker keeps timeouts. A bucket is an array that grows by chunks, not a list
 * through the timeouts: filing appends a pointer and touches no neighbour, and whoever walks a
 * bucket can prefetch ahead. The first few pointers lie in the bucket itself, so that sparse
 * wheels need no chunks at all.
 *
 * A timeout's `where` points at the slot that holds it, for its removal; if that slot lies in a
 * chunk (512 bytes, aligned), the chunk is found by masking the address. Removal leaves a hole; an
 * empty chunk is freed, and one that is mostly holes is merged into its neighbour, so that holes
 * stay in proportion to what is live.
 *
 * Worker only, all of it.
 */
#ifndef HWT_BUCKET_H
#define HWT_BUCKET_H

#include "timeout.h"

#define CHUNK_SIZE    512
#define CHUNK_SLOTS   ((CHUNK_SIZE - 24) / sizeof(hwt_timeout *))
#define BUCKET_INLINE 4

/* The head of a bucket and of each of its chunks, linked in a ring once there are chunks. */
struct block {
    struct block *prev, *next;
    uint32_t live; /* a chunk: slots in use; a bucket: at least the timeouts in it */
    uint32_t used; /* a chunk: slots ever filled, at least 1; a bucket: 0, which tells it apart */
};

struct chunk {
    alignas(CHUNK_SIZE) struct block head;
    hwt_timeout *slot[CHUNK_SLOTS];
};

struct bucket {
    alignas(CACHE_LINE) struct block head;
    uint64_t earliest; /* no deadline in it is below this; valid while not empty */
    hwt_timeout *slot[BUCKET_INLINE];
};

static_assert(sizeof(struct chunk) == CHUNK_SIZE, "a chunk is found by masking");
static_assert(sizeof(struct bucket) == CACHE_LINE, "a sparse bucket costs one cache line");

/* Free chunks of one wheel; slabs go back to malloc when the store is destroyed. */
struct chunk_store {
    struct block *free;
    size_t free_count;
    struct chunk_slab *slabs;
    size_t next_slab; /* chunks in the next slab */
};

void chunk_store_init(struct chunk_store *store);
void chunk_store_destroy(struct chunk_store *store);
/* Sees to it that `chunks` are free. 0 or -ENOMEM. */
int chunk_store_reserve(struct chunk_store *store, size_t chunks);

static inline bool bucket_has_chunks(const struct bucket *bucket)
{
    return bucket->head.next && bucket->head.next != &bucket->head;
}

static inline bool bucket_is_empty(const struct bucket *bucket)
{
    static_assert(BUCKET_INLINE == 4, "all of them");

    return !bucket_has_chunks(bucket) && /* a linked chunk is never empty */
           !bucket->slot[0] && !bucket->slot[1] && !bucket->slot[2] && !bucket->slot[3];
}

/* False: no memory for a chunk; nothing happened. */
bool bucket_insert(struct bucket *bucket, struct chunk_store *store, hwt_timeout *timeout,
                   uint64_t deadline);
/* One in a bucket, out of whichever holds it. It is PLACE_ADRIFT afterwards. */
void bucket_remove(struct chunk_store *store, hwt_timeout *timeout);
/*
 * Takes out up to `most` of them, any; the number taken. Their lines are being fetched and have not
 * been touched: `where` and `place` are stale until the caller files them or sets them adrift.
 */
#define BUCKET_BATCH 32
unsigned bucket_take(struct bucket *bucket, struct chunk_store *store, hwt_timeout **out,
                     unsigned most);
/* Fetches the line where the next one would be appended. */
void bucket_prefetch_last(const struct bucket *bucket);
/* Fetches the one that bucket_take will come to after `ahead` others, if it is near. */
static inline void bucket_prefetch_ahead(const struct bucket *bucket, unsigned ahead)
{
    const struct block *last = bucket->head.prev;

    if (bucket_has_chunks(bucket) && ahead < last->used)
        __builtin_prefetch(
            container_of(last, const struct chunk, head)->slot[last->used - 1 - ahead], 1);
}

/* Fetch, of a bucket's first few timeouts, their lines; what their tasks will be called with. */
void bucket_prefetch_timeouts(const struct bucket *bucket);
void bucket_prefetch_arguments(const struct bucket *bucket);
/* Any one of them; NULL when empty. It is PLACE_ADRIFT afterwards. */
hwt_timeout *bucket_pop(struct bucket *bucket, struct chunk_store *store);
/* All of `from` to the empty bucket `to`. */
void bucket_move(struct bucket *to, struct bucket *from);
/* Validator: counts the timeouts; asserts that all is well linked. */
size_t bucket_check(const struct bucket *bucket);

#endif
