/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is read off a bucket's slots and chunks alone, no timeout touched: are all keys the same,
 * which are the lowest, which chunks have the lowest stamps. For the agenda.
 */
#include "bucket.h"

#define SKIM_BINS 2048

static bool one_key(const uint64_t *slot, unsigned count, uint64_t *packed)
{
    for (unsigned i = 0; i < count; i++) {
        if (!slot[i])
            continue;
        if (!*packed)
            *packed = slot[i];
        if ((slot[i] ^ *packed) & ~PACKED_ADDRESS)
            return false;
    }
    return true;
}

bool bucket_one_key(const struct bucket *bucket, uint64_t *packed)
{
    const struct ring *ring = bucket->ring.next;

    *packed = 0;
    if (!one_key(bucket->slot, BUCKET_INLINE, packed))
        return false;
    for (; ring && ring != &bucket->ring; ring = ring->next) {
        __builtin_prefetch(ring->next);
        if (!one_key(container_of(ring, const struct chunk, ring)->slot, ring->used, packed))
            return false;
    }
    return *packed != 0;
}

static void count_keys(const uint64_t *slot, unsigned count, uint64_t from, unsigned shift,
                       uint32_t bin[SKIM_BINS])
{
    for (unsigned i = 0; i < count; i++) {
        if (slot[i])
            bin[min_u64(packed_bits_from(slot[i], from) >> shift, SKIM_BINS - 1)]++;
    }
}

uint64_t bucket_key_limit(const struct bucket *bucket, uint64_t from, uint64_t range, unsigned most)
{
    const struct ring *ring = bucket->ring.next;
    uint32_t bin[SKIM_BINS] = {0}, sum = 0;
    unsigned shift = 0, bins = 0;

    while (range >> shift >= SKIM_BINS - 1)
        shift++;
    count_keys(bucket->slot, BUCKET_INLINE, from, shift, bin);
    for (; ring && ring != &bucket->ring; ring = ring->next) {
        __builtin_prefetch(ring->next);
        count_keys(container_of(ring, const struct chunk, ring)->slot, ring->used, from, shift,
                   bin);
    }
    while (bins < SKIM_BINS - 1 && sum + bin[bins] <= most)
        sum += bin[bins++];
    return (uint64_t)bins << shift;
}

static unsigned skim_slots(uint64_t *slot, unsigned count, uint64_t from, uint64_t limit,
                           uint64_t *out)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < count; i++) {
        if (!slot[i] || likely(packed_bits_from(slot[i], from) >= limit))
            continue;
        __builtin_prefetch(packed_timeout(slot[i]), 1);
        out[taken++] = slot[i];
        slot[i] = 0;
    }
    return taken;
}

unsigned bucket_skim(struct bucket *bucket, struct chunk_store *store, uint64_t from,
                     uint64_t limit, uint64_t *out)
{
    unsigned count = skim_slots(bucket->slot, BUCKET_INLINE, from, limit, out), here;
    struct ring *next;

    for (struct ring *ring = bucket->ring.next; ring && ring != &bucket->ring; ring = next) {
        next = ring->next;
        __builtin_prefetch(next->next);
        here = skim_slots(chunk_of(ring)->slot, ring->used, from, limit, out + count);
        count += here;
        ring->live -= here;
        if (ring->live == 0)
            chunk_unlink(store, chunk_of(ring));
    }
    bucket_count_out(bucket, count);
    return count;
}

/* Two lists by `next`, of falling `least`, into one. */
static struct ring *merge_lists(struct ring *a, struct ring *b)
{
    struct ring *merged = NULL, **link = &merged;

    while (a && b) {
        struct ring **larger = chunk_least(chunk_of(a)) >= chunk_least(chunk_of(b)) ? &a : &b;
        *link = *larger;
        link = &(*link)->next;
        *larger = *link;
    }
    *link = a ? a : b;
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
    struct ring *list[64] = {NULL}, *head = &bucket->ring, *next, *all = NULL, *prev = head;

    if (!bucket_has_chunks(bucket))
        return;
    for (struct ring *ring = head->next; ring != head; ring = next) {
        next = ring->next;
        ring->next = NULL;
        carry(list, ring);
    }
    for (unsigned i = 0; i < 64; i++)
        all = merge_lists(list[i], all);
    head->next = all;
    for (struct ring *ring = all; ring; ring = ring->next) {
        ring->prev = prev;
        prev = ring;
    }
    prev->next = head;
    head->prev = prev;
}
