/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buckets: where the worker keeps timeouts. A bucket is an array that grows by chunks, not a list
 * through the timeouts: filing appends a word and touches no neighbour, and whoever walks a bucket
 * can prefetch ahead. The first few slots lie in the bucket itself, so that sparse wheels need no
 * chunks at all.
 *
 * A canceller may empty a slot at any moment (bucket_slot.h), so what the worker counts are upper
 * bounds: filled, and not emptied by him. (In a chunk whose timeouts all have the mark of S4, one
 * that is not `shared`, they are exact.) Chunks stay filled in proportion all the same (B1 to B3),
 * as far as he knows: when he takes something out, and when he looks through the chunks in use, a
 * few at a time, before one is taken that was never used. When he has looked at all of them, n
 * timeouts need no more than 4 n / 15 small chunks, or large ones of the same size, wherever they
 * lie and whatever was removed (a chunk for five where they are spread worst; a large chunk that
 * has just been begun):
 *   B1 no chunk is empty, and the first one has more timeouts than would fit into the bucket;
 *   B2 a large chunk with few, the first one with what is in the bucket, is replaced by a small one
 *      or two, if they are free;
 *   B3 two neighbours that would fill half of one are merged.
 *
 * Worker only, all of it. A bucket lies where it stays: a canceller who comes too late may look at
 * a slot long after it was emptied.
 */
#ifndef HWT_BUCKET_H
#define HWT_BUCKET_H

#include "bucket_slot.h"
#include "chunk.h"

#define BUCKET_INLINE     4
#define BUCKET_INLINE_ALL ((1u << BUCKET_INLINE) - 1)

struct bucket {
    alignas(CACHE_LINE) struct ring ring;
    uint64_t earliest; /* no deadline in it is below this; valid while not empty */
    _Atomic uint64_t slot[BUCKET_INLINE];
};

static_assert(sizeof(struct bucket) == CACHE_LINE, "a sparse bucket costs one cache line");

/* What a bucket with n timeouts may need: small chunks. */
#define BUCKET_CHUNKS_FOR(n) ((n) / 15 * 4 + (n) % 15 * 4 / 15)

static inline bool bucket_has_chunks(const struct bucket *bucket)
{
    const struct ring *next = ring_next(&bucket->ring);
    return next && next != &bucket->ring;
}

/* Its chunks, one by one; NULL: no more. */
static inline struct chunk *bucket_first_chunk(const struct bucket *bucket)
{
    return bucket_has_chunks(bucket) ? chunk_of(ring_next(&bucket->ring)) : NULL;
}

static inline struct chunk *bucket_next_chunk(const struct bucket *bucket,
                                              const struct chunk *chunk)
{
    struct ring *next = ring_next(&chunk->ring);
    return next != &bucket->ring ? chunk_of(next) : NULL;
}

/* Does the bucket itself hold any, as it stands? */
static inline bool bucket_inline_any(const struct bucket *bucket)
{
    static_assert(BUCKET_INLINE == 4, "all of them");
    uint64_t any = load_acquire(&bucket->slot[0]) | load_acquire(&bucket->slot[1]);

    return (any | load_acquire(&bucket->slot[2]) | load_acquire(&bucket->slot[3])) != 0;
}

/* How many. */
static inline unsigned bucket_inline_live(const struct bucket *bucket)
{
    unsigned live = 0;

    for (unsigned i = 0; i < BUCKET_INLINE; i++)
        live += load_acquire(&bucket->slot[i]) != 0;
    return live;
}

/* Which of its own slots hold something, as it stands: a bit for each. No branch foresees it. */
HOT unsigned bucket_inline_filled(const struct bucket *bucket)
{
    static_assert(BUCKET_INLINE == 4, "all of them");
    return (unsigned)(load_acquire(&bucket->slot[0]) != 0) |
           (unsigned)(load_acquire(&bucket->slot[1]) != 0) << 1 |
           (unsigned)(load_acquire(&bucket->slot[2]) != 0) << 2 |
           (unsigned)(load_acquire(&bucket->slot[3]) != 0) << 3;
}

/* Of such bits the first, which is taken off. */
static inline unsigned take_lowest_bit(unsigned *bits)
{
    unsigned lowest = (unsigned)__builtin_ctz(*bits);

    *bits &= *bits - 1;
    return lowest;
}

/* A slot of the bucket itself that is empty, and stays so until the worker fills it; NULL: none. */
static inline _Atomic uint64_t *bucket_inline_hole(struct bucket *bucket)
{
    unsigned holes = bucket_inline_filled(bucket) ^ BUCKET_INLINE_ALL;

    return holes ? &bucket->slot[__builtin_ctz(holes)] : NULL;
}

/*
 * At least as many as are in it: with chunks, what was filed there and what the bucket itself had
 * room for, less what was taken out (but not what bucket_remove took from a chunk, nor what was
 * withdrawn). Where it would wrap it stays at UINT32_MAX, until there are no chunks.
 */
static inline uint32_t bucket_at_most(const struct bucket *bucket)
{
    return bucket_has_chunks(bucket) ? ring_live(&bucket->ring) : bucket_inline_live(bucket);
}

/* Into a chunk. */
static inline void bucket_count_in(struct bucket *bucket)
{
    uint64_t fill = load_relaxed(&bucket->ring.fill);

    if (likely((uint32_t)fill != UINT32_MAX))
        store_relaxed(&bucket->ring.fill, fill + 1);
}

/* Not from UINT32_MAX: nobody knows how many were not counted in. */
static inline void bucket_count_out(struct bucket *bucket, unsigned count)
{
    uint32_t live = ring_live(&bucket->ring);

    if (likely(live != UINT32_MAX))
        ring_set_live(&bucket->ring, live > count ? live - count : 0);
}

/* False: it may hold something, or has nothing but chunks of holes (bucket_has_any). */
static inline bool bucket_is_empty(const struct bucket *bucket)
{
    return !bucket_has_chunks(bucket) && !bucket_inline_any(bucket);
}

/* What the chunk that it is filled into becomes by it: RING_SHARED, or nothing. */
static inline uint64_t packed_shared(uint64_t packed)
{
    return packed & PACKED_ALONE ? 0 : RING_SHARED;
}

/* ---- filing (bucket.c) ---- */

static inline enum timeout_place bucket_place_in(const struct chunk *chunk)
{
    return chunk_is_large(chunk) ? PLACE_LARGE : PLACE_SMALL;
}

/* Of a timeout that is in a slot of one. */
static inline struct chunk *bucket_chunk_of(const hwt_timeout *timeout,
                                            const _Atomic uint64_t *slot)
{
    uintptr_t size = timeout->place == PLACE_LARGE ? CHUNK_LARGE_SIZE : CHUNK_SMALL_SIZE;

    return (struct chunk *)((uintptr_t)slot & ~(size - 1));
}

/*
 * Fills a slot at the end of a bucket's last chunk with a packed timeout, which is not to be
 * touched any more. The slot; NULL: there is no chunk with room, and nothing happened.
 */
HOT _Atomic uint64_t *bucket_append(struct bucket *bucket, uint64_t packed)
{
    struct ring *last = ring_prev(&bucket->ring);
    uint64_t fill = likely(last != NULL) ? load_relaxed(&last->fill) : 0;
    _Atomic uint64_t *slot;
    struct chunk *chunk;

    if (unlikely(fill_used(fill) >= fill_room(fill)))
        return NULL;
    chunk = chunk_of(last);
    slot = &chunk->slot[fill_used(fill)];
    store_relaxed(&last->fill, (fill + RING_ONE_MORE) | packed_shared(packed));
    bucket_count_in(bucket);
    chunk_lower_least(chunk, packed_timeout(packed)->stamp);
    slot_fill(slot, packed, fill_room(fill) == CHUNK_LARGE_ROOM ? PLACE_LARGE : PLACE_SMALL);
    return slot;
}
/* The same, and lowers the bucket's bound. */
HOT _Atomic uint64_t *bucket_insert_last(struct bucket *bucket, uint64_t packed, uint64_t deadline)
{
    _Atomic uint64_t *slot = bucket_append(bucket, packed);

    if (likely(slot != NULL))
        bucket->earliest = min_u64(bucket->earliest, deadline); /* no branch to foresee */
    return slot;
}

/* Wherever there is room, or in a new chunk. NULL: no memory for one, nothing happened. */
_Atomic uint64_t *bucket_put_further(struct bucket *bucket, struct chunk_store *store,
                                     uint64_t packed);
static inline _Atomic uint64_t *bucket_put(struct bucket *bucket, struct chunk_store *store,
                                           uint64_t packed)
{
    _Atomic uint64_t *slot = bucket_append(bucket, packed);

    return likely(slot != NULL) ? slot : bucket_put_further(bucket, store, packed);
}
/*
 * The same for what is alone (S4), untouched: its place gets stale, and the chunk's stamps may be
 * any. False: no memory for a chunk, nothing happened.
 */
HOT bool bucket_put_untouched(struct bucket *bucket, struct chunk_store *store, uint64_t packed)
{
    struct ring *last = ring_prev(&bucket->ring);
    uint64_t fill = likely(last != NULL) ? load_relaxed(&last->fill) : 0;
    struct chunk *chunk;

    if (unlikely(fill_used(fill) >= fill_room(fill)))
        return bucket_put_further(bucket, store, packed) != NULL;
    chunk = chunk_of(last);
    store_relaxed(&last->fill, fill + RING_ONE_MORE);
    bucket_count_in(bucket);
    store_relaxed(&chunk->bound, ~UINT64_C(0)); /* any stamp */
    store_release(&chunk->slot[fill_used(fill)], packed);
    return true;
}
/* The same, and lowers the bucket's bound. */
_Atomic uint64_t *bucket_insert_further(struct bucket *bucket, struct chunk_store *store,
                                        uint64_t packed, uint64_t deadline);
HOT _Atomic uint64_t *bucket_insert(struct bucket *bucket, struct chunk_store *store,
                                    uint64_t packed, uint64_t deadline)
{
    _Atomic uint64_t *slot = bucket_insert_last(bucket, packed, deadline);

    return likely(slot != NULL) ? slot : bucket_insert_further(bucket, store, packed, deadline);
}

/* Into a slot of its own, of which these are filled, not all; it has no chunks. */
HOT _Atomic uint64_t *bucket_insert_inline(struct bucket *bucket, unsigned filled, uint64_t packed,
                                           uint64_t deadline)
{
    _Atomic uint64_t *hole = &bucket->slot[__builtin_ctz(~filled)];

    if (deadline < bucket->earliest || !filled)
        bucket->earliest = deadline;
    slot_fill(hole, packed, PLACE_INLINE);
    return hole;
}

/* ---- taking out (bucket.c) ---- */

/*
 * Takes out up to `most` of them, any, as they are packed, from one chunk or the bucket itself; the
 * number taken, 0: it is empty, and has no chunks. The timeouts have not been touched: `where` and
 * `place` are stale until the caller files them or sets them adrift. No stamp is below *least (may
 * be NULL).
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
/* All of `from` to `to`, which has been found empty; the timeouts in chunks are not touched. */
void bucket_move(struct bucket *to, struct bucket *from);

/* ---- filled in proportion (bucket_thin.c) ---- */

/* Is it in the slot that its `where` speaks of? Only of one that nobody can withdraw (any more). */
static inline bool bucket_holds(const hwt_timeout *timeout)
{
    const _Atomic uint64_t *slot = slot_of_where(load_relaxed(&timeout->where));

    return slot && timeout->place >= PLACE_INLINE && timeout->place <= PLACE_LARGE &&
           packed_timeout(load_relaxed(slot)) == timeout;
}
/* One that a bucket holds, and nobody can withdraw. It is PLACE_ADRIFT afterwards. */
void bucket_remove(struct chunk_store *store, hwt_timeout *timeout);
/* A free chunk, maybe smaller than wanted; for that others are looked through. NULL: no memory. */
struct chunk *bucket_obtain_chunk(struct chunk_store *store, bool large);

/* ---- by keys and stamps alone (bucket_keys.c) ---- */

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
/* How many are below a limit; from `most` on it may stop. */
unsigned bucket_count_below(const struct bucket *bucket, uint64_t from, uint64_t limit,
                            unsigned most);
/* Brings its chunks into an order: bucket_take takes from those with the lowest stamps first. */
void bucket_sort_chunks(struct bucket *bucket);

/* ---- looking (bucket_look.c) ---- */

/* Is there a chunk of which others may empty a slot? */
bool bucket_is_shared(const struct bucket *bucket);
/* Looks as far as the first that it holds; chunks of holes that are in the way are freed. */
bool bucket_has_any(struct bucket *bucket, struct chunk_store *store);

/*
 * The one with the exact earliest deadline; looks until one reaches the bucket's bound, which it
 * then makes exact. `key`: that of the bound. Mostly it is of the one that is looked for, and no
 * other is touched.
 */
struct sighting bucket_scan(struct bucket *bucket, uint64_t key);
/*
 * Only among those with that key: the first that reaches the bound, or the earliest of them. Chunks
 * of which all were withdrawn are given back on the way (B1). Adds the slots that it went through.
 */
struct sighting bucket_find(struct bucket *bucket, struct chunk_store *store, uint64_t key,
                            size_t *walked);
/* So many of the earliest, or all, by deadline. How many. */
unsigned bucket_lowest(struct bucket *bucket, struct sighting *seen, unsigned most);
/* Shows the words of all that it holds. */
typedef void bucket_look(void *context, uint64_t word);
void bucket_look_through(struct bucket *bucket, bucket_look *look, void *context);

/*
 * Shows all that it holds: each is taken out for that, so that its block is not freed meanwhile,
 * and then goes back into its slot. `shown`: that one, for whoever finds that `see` has not
 * returned.
 */
typedef void bucket_see(void *context, const hwt_timeout *timeout);
void bucket_visit(struct bucket *bucket, bucket_see *see, void *context, struct sighting *shown);
/* If one is being shown. */
void bucket_end_show(struct sighting *shown);

/* Fetches the line where the next one would be appended. To fetch from nowhere takes long. */
HOT void bucket_prefetch_last(const struct bucket *bucket)
{
    const struct ring *last = ring_prev(&bucket->ring);

    if (last)
        __builtin_prefetch(last, 1);
}

/* Fetches the chunk from which bucket_take will take next. */
HOT void bucket_prefetch_chunk(const struct bucket *bucket)
{
    if (bucket_has_chunks(bucket))
        chunk_prefetch(ring_prev(&bucket->ring));
}

/* Fetches the lines of those that bucket_take will hand out next. */
void bucket_prefetch_timeouts(const struct bucket *bucket);
/*
 * Fetches what the tasks of a bucket's first few timeouts will be called with: each is taken out
 * for that look (S2), and goes back into its slot.
 */
void bucket_prefetch_arguments(struct bucket *bucket);

/* Validator: counts the timeouts; asserts that all is well linked. */
size_t bucket_check(struct bucket *bucket);

#endif
