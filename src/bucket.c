/* SPDX-License-Identifier: BSD-2-Clause */
#include "bucket.h"

#define SMALL_CHUNKS 3 /* of a bucket, before the large ones */

/* ---- filing ---- */

/* The first chunks are small. */
static bool wants_large(struct bucket *bucket)
{
    struct ring *ring = &bucket->ring;

    for (unsigned i = 0; i < SMALL_CHUNKS; i++) {
        ring = ring_prev(ring);
        if (!ring || !ring_is_chunk(ring))
            return false;
    }
    return true;
}

static struct ring *last_ring(struct bucket *bucket)
{
    struct ring *last = ring_prev(&bucket->ring);
    return last ? last : &bucket->ring;
}

/* Some of what is in the bucket's own slots may be withdrawn, but no more comes in. */
static void link_last(struct bucket *bucket, struct chunk *chunk)
{
    if (!bucket_has_chunks(bucket))
        ring_set_live(&bucket->ring, BUCKET_INLINE);
    chunk_link(last_ring(bucket), chunk);
}

_Atomic uint64_t *bucket_put_further(struct bucket *bucket, struct chunk_store *store,
                                     uint64_t packed)
{
    _Atomic uint64_t *slot = bucket_has_chunks(bucket) ? NULL : bucket_inline_hole(bucket);
    struct chunk *chunk;

    if (slot) {
        slot_fill(slot, packed, PLACE_INLINE);
        return slot;
    }
    /* Chunks of this bucket may be gone after that. */
    chunk = bucket_obtain_chunk(store, wants_large(bucket));
    if (unlikely(!chunk))
        return NULL;
    link_last(bucket, chunk);
    return bucket_put(bucket, store, packed);
}

_Atomic uint64_t *bucket_insert_further(struct bucket *bucket, struct chunk_store *store,
                                        uint64_t packed, uint64_t deadline)
{
    unsigned filled = bucket_has_chunks(bucket) ? BUCKET_INLINE_ALL : bucket_inline_filled(bucket);
    _Atomic uint64_t *slot;

    if (filled != BUCKET_INLINE_ALL)
        return bucket_insert_inline(bucket, filled, packed, deadline);
    slot = bucket_put_further(bucket, store, packed);
    if (likely(slot != NULL))
        bucket->earliest = min_u64(bucket->earliest, deadline);
    return slot;
}

/* ---- taking out ---- */

/* The chunk that is next, all of it. Its head may be on its way still: it is not looked at. */
HOT void prefetch_before(const struct chunk *chunk)
{
    const char *before = (const char *)ring_prev(&chunk->ring);
    unsigned size = chunk_is_large(chunk) ? CHUNK_LARGE_SIZE : CHUNK_SMALL_SIZE;

    for (unsigned i = 0; i < size; i += CACHE_LINE)
        __builtin_prefetch(before + i, 1);
}

/* From the end of the last chunk; frees it when it has been looked through. */
static unsigned take_from_chunk(struct chunk_store *store, struct chunk *chunk, uint64_t *out,
                                unsigned most)
{
    unsigned count = 0, used = ring_used(&chunk->ring);
    uint32_t live;

    prefetch_before(chunk);
    while (count < most && used > 0) {
        out[count] = slot_empty(&chunk->slot[--used]);
        count += out[count] != 0;
    }
    live = (uint32_t)min_u64(ring_live(&chunk->ring) - count, used);
    ring_set_filled(&chunk->ring, live, used);
    if (live == 0)
        chunk_unlink(store, chunk);
    return count;
}

static unsigned take_inline(struct bucket *bucket, uint64_t *out, unsigned most)
{
    unsigned count = 0;

    for (unsigned i = BUCKET_INLINE; i-- > 0 && count < most;) {
        out[count] = slot_empty(&bucket->slot[i]);
        count += out[count] != 0;
    }
    return count;
}

unsigned bucket_take(struct bucket *bucket, struct chunk_store *store, uint64_t *out, unsigned most,
                     uint64_t *least)
{
    unsigned count = 0;

    while (count == 0 && most > 0 && bucket_has_chunks(bucket)) {
        struct chunk *chunk = chunk_of(ring_prev(&bucket->ring));
        if (least)
            *least = chunk_least(chunk);
        count = take_from_chunk(store, chunk, out, most);
        bucket_count_out(bucket, count);
    }
    if (count > 0)
        return count;
    if (least)
        *least = 0;
    return take_inline(bucket, out, most);
}

hwt_timeout *bucket_pop(struct bucket *bucket, struct chunk_store *store)
{
    uint64_t packed;
    hwt_timeout *timeout;

    if (bucket_take(bucket, store, &packed, 1, NULL) == 0)
        return NULL;
    timeout = packed_timeout(packed);
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
    return timeout;
}

static void move_ring(struct bucket *to, struct bucket *from)
{
    bool chunks = bucket_has_chunks(from);

    hwt_assert(bucket_is_empty(to));
    to->earliest = from->earliest;
    ring_set_live(&to->ring, ring_live(&from->ring));
    if (chunks) {
        ring_link(&to->ring, ring_next(&from->ring));
        ring_link(ring_prev(&from->ring), &to->ring);
    } else {
        ring_link(&to->ring, &to->ring);
    }
    ring_link(&from->ring, &from->ring);
}

void bucket_move(struct bucket *to, struct bucket *from)
{
    move_ring(to, from);
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        uint64_t packed = slot_empty(&from->slot[i]);
        if (packed)
            slot_fill(&to->slot[i], packed, PLACE_INLINE);
    }
}
