/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buckets: where the worker keeps timeouts. A bucket is an array that grows by chunks, not a list
 * through the timeouts: filing appends a word and touches no neighbour, and whoever walks a bucket
 * can prefetch ahead. The first few slots lie in the bucket itself, so that sparse wheels need no
 * chunks at all.
 *
 * A slot packs a timeout's address with 22 bits of its deadline, the `key`, so that what is due can
 * be brought into a rough order without touching the timeouts (agenda.h).
 *
 * A timeout's `where` is the address of the slot that holds it, for its removal. Removal leaves a
 * hole; but chunks stay filled in proportion (B1 to B3), so that n timeouts never need more than
 * 4 n / 15 small chunks, or large ones of the same size, wherever they lie and whatever was removed
 * (a chunk for five where they are spread worst; a large chunk that has just been begun):
 *   B1 no chunk is empty, and the first one has more timeouts than would fit into the bucket;
 *   B2 a large chunk with few, the first one with what is in the bucket, is replaced by a small one
 *      or two, if they are free;
 *   B3 two neighbours that would fill half of one are merged.
 *
 * Worker only, all of it.
 */
#ifndef HWT_BUCKET_H
#define HWT_BUCKET_H

#include "chunk.h"
#include "timeout.h"

#define BUCKET_INLINE 4

struct bucket {
    alignas(CACHE_LINE) struct ring ring;
    uint64_t earliest; /* no deadline in it is below this; valid while not empty */
    uint64_t slot[BUCKET_INLINE];
};

static_assert(sizeof(struct bucket) == CACHE_LINE, "a sparse bucket costs one cache line");

/* What a bucket with n timeouts may need: small chunks. */
#define BUCKET_CHUNKS_FOR(n) ((n) / 15 * 4 + (n) % 15 * 4 / 15)

static inline bool bucket_has_chunks(const struct bucket *bucket)
{
    return bucket->ring.next && bucket->ring.next != &bucket->ring;
}

/*
 * At least as many as are in it: what bucket_remove takes from a chunk is not counted out. Where it
 * would wrap it stays at UINT32_MAX, until the bucket is empty.
 */
static inline uint32_t bucket_at_most(const struct bucket *bucket)
{
    return bucket->ring.live;
}

static inline void bucket_count_in(struct bucket *bucket)
{
    if (likely(bucket->ring.live != UINT32_MAX))
        bucket->ring.live++;
}

/* Not from UINT32_MAX: nobody knows how many were not counted in. */
static inline void bucket_count_out(struct bucket *bucket, unsigned count)
{
    if (likely(bucket->ring.live != UINT32_MAX))
        bucket->ring.live -= count;
}

static inline bool bucket_is_empty(const struct bucket *bucket)
{
    static_assert(BUCKET_INLINE == 4, "all of them");

    return !bucket_has_chunks(bucket) && /* B1 */
           !bucket->slot[0] && !bucket->slot[1] && !bucket->slot[2] && !bucket->slot[3];
}

/* False: no memory for a chunk; nothing happened. */
bool bucket_insert(struct bucket *bucket, struct chunk_store *store, hwt_timeout *timeout,
                   uint64_t deadline, uint64_t key);

/*
 * For the agenda: a packed timeout that is not touched, its `where` and `place` are stale; no stamp
 * is below `least`. It lies in the bucket inverted, so that no stale `where` ever finds its timeout
 * there (bucket_holds). False: no memory for a chunk.
 */
bool bucket_append_further(struct bucket *bucket, struct chunk_store *store, uint64_t packed,
                           uint64_t least);
static inline bool bucket_append(struct bucket *bucket, struct chunk_store *store, uint64_t packed,
                                 uint64_t least)
{
    struct ring *last = bucket->ring.prev;
    struct chunk *chunk = container_of(last, struct chunk, ring);

    if (unlikely(!last || last->used >= last->room))
        return bucket_append_further(bucket, store, packed, least);
    chunk->slot[last->used++] = ~packed;
    last->live++;
    bucket_count_in(bucket);
    chunk_lower_least(chunk, least);
    return true;
}
/* The words as bucket_take hands them out, if they come from such a bucket. */
static inline void bucket_invert(uint64_t *packed, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        packed[i] = ~packed[i];
}
/* bucket_move from such a bucket, or with no timeout touched. */
void bucket_move_packed(struct bucket *to, struct bucket *from);
/* One that may lie in such a bucket; false: not here. Looks at all of them. */
bool bucket_extract(struct bucket *bucket, struct chunk_store *store, const hwt_timeout *timeout);

/* Is it in the slot that its `where` and `place` speak of? */
static inline bool bucket_holds(const hwt_timeout *timeout)
{
    const uint64_t *slot = (const uint64_t *)(uintptr_t)load_relaxed(&timeout->where);

    return timeout->place >= PLACE_INLINE && timeout->place <= PLACE_LARGE &&
           packed_timeout(*slot) == timeout;
}
/* One that a bucket holds. It is PLACE_ADRIFT afterwards. */
void bucket_remove(struct chunk_store *store, hwt_timeout *timeout);
/*
 * Takes out up to `most` of them, any, as they are packed, from one chunk or the bucket itself; the
 * number taken, 0: it is empty. The timeouts have not been touched: `where` and `place` are stale
 * until the caller files them or sets them adrift. No stamp is below *least (may be NULL).
 */
#define BUCKET_BATCH 32
unsigned bucket_take(struct bucket *bucket, struct chunk_store *store, uint64_t *out, unsigned most,
                     uint64_t *least);
/* Fetches the lines of timeouts that were taken out. */
HOT void packed_prefetch(const uint64_t *packed, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        __builtin_prefetch(packed_timeout(packed[i]), 1);
}
/* Any one of them; NULL when empty. It is PLACE_ADRIFT afterwards. */
hwt_timeout *bucket_pop(struct bucket *bucket, struct chunk_store *store);
/* All of `from` to the empty bucket `to`; the timeouts in chunks are not touched. */
void bucket_move(struct bucket *to, struct bucket *from);
/* Do all have the same key? *packed: one of them. */
bool bucket_one_key(const struct bucket *bucket, uint64_t *packed);
/*
 * Keys count from `from` and are mostly within `range`. The limit below which there are at most
 * `most`, and not many less; then these, taken out as packed words, and how many.
 */
uint64_t bucket_key_limit(const struct bucket *bucket, uint64_t from, uint64_t range,
                          unsigned most);
unsigned bucket_skim(struct bucket *bucket, struct chunk_store *store, uint64_t from,
                     uint64_t limit, uint64_t *out);
/* Brings its chunks into an order: bucket_take takes from those with the lowest stamps first. */
void bucket_sort_chunks(struct bucket *bucket);
/*
 * The one with the exact earliest deadline; looks until one reaches the bucket's bound, which it
 * then makes exact. NULL: empty.
 */
hwt_timeout *bucket_scan(struct bucket *bucket);
/* Shows all that it holds. */
typedef void bucket_see(void *context, const hwt_timeout *timeout);
void bucket_visit(const struct bucket *bucket, bucket_see *see, void *context);

/* Fetches the line where the next one would be appended. */
HOT void bucket_prefetch_last(const struct bucket *bucket)
{
    if (bucket_has_chunks(bucket))
        __builtin_prefetch(bucket->ring.prev, 1);
}

/* Fetch, of a bucket's first few timeouts, their lines; what their tasks will be called with. */
void bucket_prefetch_timeouts(const struct bucket *bucket);
void bucket_prefetch_arguments(const struct bucket *bucket);

/* Validator: counts the timeouts; asserts that all is well linked. `held`: by their `where`. */
size_t bucket_check(const struct bucket *bucket, bool held);

#endif
