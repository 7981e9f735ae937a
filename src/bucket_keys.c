/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is read off a bucket's slots and chunks alone, no timeout touched: are all keys the same,
 * which are the lowest, which chunks have the lowest stamps. For the agenda, and the ladder.
 */
#include "bucket.h"

#define SKIM_BINS 2048

/* The one behind that is on its way then. */
static struct chunk *next_chunk(const struct bucket *bucket, const struct chunk *chunk)
{
    struct chunk *next = bucket_next_chunk(bucket, chunk);

    if (next)
        __builtin_prefetch(ring_next(&next->ring));
    return next;
}

static bool one_key(const _Atomic uint64_t *slot, unsigned count, uint64_t *packed)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t here = load_relaxed(&slot[i]);
        if (!here)
            continue;
        if (!*packed)
            *packed = here;
        if ((here ^ *packed) & ~(PACKED_ADDRESS | PACKED_ALONE))
            return false;
    }
    return true;
}

bool bucket_one_key(const struct bucket *bucket, uint64_t *packed)
{
    const struct chunk *chunk;

    *packed = 0;
    if (!one_key(bucket->slot, BUCKET_INLINE, packed))
        return false;
    for (chunk = bucket_first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk)) {
        if (!one_key(chunk->slot, ring_used(&chunk->ring), packed))
            return false;
    }
    return *packed != 0;
}

static void count_keys(const _Atomic uint64_t *slot, unsigned count, uint64_t from, unsigned shift,
                       uint32_t bin[SKIM_BINS])
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_relaxed(&slot[i]);
        if (packed)
            bin[min_u64(packed_key_from(packed, from) >> shift, SKIM_BINS - 1)]++;
    }
}

uint64_t bucket_key_limit(const struct bucket *bucket, uint64_t from, uint64_t range, unsigned most)
{
    const struct chunk *chunk;
    uint32_t bin[SKIM_BINS] = {0}, sum = 0;
    unsigned shift = 0, bins = 0;

    while (range >> shift >= SKIM_BINS - 1)
        shift++;
    count_keys(bucket->slot, BUCKET_INLINE, from, shift, bin);
    for (chunk = bucket_first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk))
        count_keys(chunk->slot, ring_used(&chunk->ring), from, shift, bin);
    while (bins < SKIM_BINS - 1 && sum + bin[bins] <= most)
        sum += bin[bins++];
    return (uint64_t)bins << shift;
}

static unsigned skim_slots(_Atomic uint64_t *slot, unsigned count, uint64_t from, uint64_t limit,
                           uint64_t *out)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_relaxed(&slot[i]);
        if (!packed || likely(packed_key_from(packed, from) >= limit))
            continue;
        __builtin_prefetch(packed_timeout(packed), 1);
        out[taken] = slot_empty(&slot[i]);
        taken += out[taken] != 0;
    }
    return taken;
}

unsigned bucket_skim(struct bucket *bucket, struct chunk_store *store, uint64_t from,
                     uint64_t limit, uint64_t *out)
{
    unsigned count = skim_slots(bucket->slot, BUCKET_INLINE, from, limit, out), here;
    struct chunk *chunk, *next;

    for (chunk = bucket_first_chunk(bucket); chunk; chunk = next) {
        struct ring *ring = &chunk->ring;
        next = next_chunk(bucket, chunk);
        here = skim_slots(chunk->slot, ring_used(ring), from, limit, out + count);
        count += here;
        ring_set_live(ring, ring_live(ring) - here);
        if (ring_live(ring) == 0)
            chunk_unlink(store, chunk);
    }
    bucket_count_out(bucket, count);
    return count;
}

static unsigned count_below(const _Atomic uint64_t *slot, unsigned count, uint64_t from,
                            uint64_t limit)
{
    unsigned below = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_relaxed(&slot[i]);
        below += packed && packed_key_from(packed, from) < limit;
    }
    return below;
}

unsigned bucket_count_below(const struct bucket *bucket, uint64_t from, uint64_t limit,
                            unsigned most)
{
    unsigned count = count_below(bucket->slot, BUCKET_INLINE, from, limit);
    const struct chunk *chunk;

    for (chunk = bucket_first_chunk(bucket); chunk && count < most;
         chunk = next_chunk(bucket, chunk))
        count += count_below(chunk->slot, ring_used(&chunk->ring), from, limit);
    return count;
}

/* Two lists by `next`, of falling `least`, into one. */
static struct ring *merge_lists(struct ring *a, struct ring *b)
{
    struct ring *merged = NULL, *last = NULL, **larger;

    while (a && b) {
        larger = chunk_least(chunk_of(a)) >= chunk_least(chunk_of(b)) ? &a : &b;
        if (last)
            store_relaxed(&last->next, *larger);
        else
            merged = *larger;
        last = *larger;
        *larger = ring_next(last);
    }
    if (!last)
        return a ? a : b;
    store_relaxed(&last->next, a ? a : b);
    return merged;
}

/* `list[i]`: a sorted list of 2^i chunks, or NULL; as when adding 1 to a number. */
static void carry(struct ring *list[], struct ring *sorted)
{
    unsigned i = 0;

    for (; list[i]; i++) {
        sorted = merge_lists(list[i], sorted);
        list[i] = NULL;
    }
    list[i] = sorted;
}

void bucket_sort_chunks(struct bucket *bucket)
{
    struct ring *list[64] = {NULL}, *head = &bucket->ring, *next, *all = NULL, *last = head;

    if (!bucket_has_chunks(bucket))
        return;
    for (struct ring *ring = ring_next(head); ring != head; ring = next) {
        next = ring_next(ring);
        store_relaxed(&ring->next, NULL);
        carry(list, ring);
    }
    for (unsigned i = 0; i < 64; i++)
        all = merge_lists(list[i], all);
    for (struct ring *ring = all; ring; ring = ring_next(ring)) {
        ring_link(last, ring);
        last = ring;
    }
    ring_link(last, head);
}
