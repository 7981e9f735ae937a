/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a bucket holds, looked at where it lies (bucket_slot.h, S2 and S3): is there anything, which
 * is the earliest, what is to be fetched, what a visitor is shown. Nothing leaves its slot for
 * longer than a look.
 */
#include "bucket.h"

/* ---- looking ---- */

bool bucket_has_any(struct bucket *bucket, struct chunk_store *store)
{
    struct chunk *chunk;

    if (bucket_inline_any(bucket))
        return true;
    while ((chunk = bucket_first_chunk(bucket)) != NULL) {
        unsigned used = ring_used(&chunk->ring), i = 0;
        while (i < used && !load_acquire(&chunk->slot[i]))
            i++;
        if (i < used)
            return true;
        chunk_unlink(store, chunk);
    }
    return false;
}

bool bucket_is_shared(const struct bucket *bucket)
{
    const struct chunk *chunk = bucket_first_chunk(bucket);

    while (chunk && !ring_is_shared(&chunk->ring))
        chunk = bucket_next_chunk(bucket, chunk);
    return chunk != NULL;
}

/* How many it went through. */
HOT unsigned prefetch_slots(const _Atomic uint64_t *slot, unsigned count, unsigned most)
{
    unsigned from = count > most ? count - most : 0;

    for (unsigned i = from; i < count; i++) {
        uint64_t packed = load_relaxed(&slot[i]);
        if (packed)
            __builtin_prefetch(packed_timeout(packed), 1);
    }
    return count - from;
}

void bucket_prefetch_timeouts(const struct bucket *bucket)
{
    const struct ring *ring = ring_prev(&bucket->ring);
    unsigned most = BUCKET_BATCH;

    for (; most > 0 && ring && ring_is_chunk(ring); ring = ring_prev(ring)) {
        const struct chunk *chunk = container_of(ring, const struct chunk, ring);
        most -= prefetch_slots(chunk->slot, ring_used(ring), most);
    }
    for (unsigned filled = most > 0 ? bucket_inline_filled(bucket) : 0; filled;)
        __builtin_prefetch(packed_timeout(load_relaxed(&bucket->slot[take_lowest_bit(&filled)])),
                           1);
}

void bucket_prefetch_arguments(struct bucket *bucket)
{
    for (unsigned filled = bucket_inline_filled(bucket); filled;) {
        _Atomic uint64_t *slot = &bucket->slot[take_lowest_bit(&filled)];
        uint64_t packed = load_acquire(slot);
        if (likely(packed & PACKED_ALONE)) { /* S4: it cannot go meanwhile */
            __builtin_prefetch(packed_timeout(packed)->arg, 1);
        } else if ((packed = slot_empty(slot)) != 0) {
            __builtin_prefetch(packed_timeout(packed)->arg, 1);
            store_release(slot, packed);
        }
    }
}

/* S3: only what would be the earliest needs a second look at its slot. */
static void scan_slot(struct sighting *best, _Atomic uint64_t *slot, uint64_t packed)
{
    uint64_t deadline = timeout_deadline(packed_timeout(packed));

    if (deadline < best->deadline && slot_still_holds(slot, packed))
        *best = (struct sighting){slot, packed, deadline};
}

/* Touches only those with this key. False: there are only holes. */
static bool scan_for_key(struct sighting *best, _Atomic uint64_t *slot, unsigned count,
                         uint64_t key, uint64_t bound)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < count && best->deadline > bound; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        if (packed_key_from(packed, key) == 0 && packed)
            scan_slot(best, &slot[i], packed);
        any |= packed;
    }
    return any != 0;
}

static void scan_slots(struct sighting *best, _Atomic uint64_t *slot, unsigned count,
                       uint64_t bound)
{
    for (unsigned i = 0; i < count && best->deadline > bound; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        if (packed)
            scan_slot(best, &slot[i], packed);
    }
}

/* Without chunks they are so few that all are looked at, or fewer: their lines are on their way. */
static struct sighting scan_few(struct bucket *bucket)
{
    struct sighting best = {NULL, 0, UINT64_MAX};

    for (unsigned filled = bucket_inline_filled(bucket); filled;)
        scan_slots(&best, &bucket->slot[take_lowest_bit(&filled)], 1, bucket->earliest);
    bucket->earliest = best.deadline;
    return best;
}

struct sighting bucket_find(struct bucket *bucket, struct chunk_store *store, uint64_t key,
                            size_t *walked)
{
    struct sighting best = {NULL, 0, UINT64_MAX};
    uint64_t bound = bucket->earliest;
    struct chunk *chunk, *next;

    scan_for_key(&best, bucket->slot, BUCKET_INLINE, key, bound);
    for (chunk = bucket_first_chunk(bucket); chunk && best.deadline > bound; chunk = next) {
        next = bucket_next_chunk(bucket, chunk);
        *walked += ring_used(&chunk->ring);
        if (!scan_for_key(&best, chunk->slot, ring_used(&chunk->ring), key, bound))
            chunk_unlink(store, chunk);
    }
    return best;
}

struct sighting bucket_scan(struct bucket *bucket, uint64_t key)
{
    struct sighting best = {NULL, 0, UINT64_MAX};
    uint64_t bound = bucket->earliest;
    struct chunk *chunk;

    if (!bucket_has_chunks(bucket))
        return scan_few(bucket);
    scan_for_key(&best, bucket->slot, BUCKET_INLINE, key, bound);
    for (chunk = bucket_first_chunk(bucket); chunk && best.deadline > bound;
         chunk = bucket_next_chunk(bucket, chunk))
        scan_for_key(&best, chunk->slot, ring_used(&chunk->ring), key, bound);
    scan_slots(&best, bucket->slot, BUCKET_INLINE, bound);
    for (chunk = bucket_first_chunk(bucket); chunk && best.deadline > bound;
         chunk = bucket_next_chunk(bucket, chunk))
        scan_slots(&best, chunk->slot, ring_used(&chunk->ring), bound);
    bucket->earliest = best.deadline;
    return best;
}

/* ---- the first of many: a heap whose root is the last of them ---- */

struct lowest {
    struct sighting *heap;
    unsigned count, most;
};

static void sift_down(struct sighting *heap, unsigned count, unsigned at, struct sighting value)
{
    unsigned below;

    while ((below = 2 * at + 1) < count) {
        if (below + 1 < count && heap[below + 1].deadline > heap[below].deadline)
            below++;
        if (heap[below].deadline <= value.deadline)
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = value;
}

static void sift_up(struct sighting *heap, unsigned at, struct sighting value)
{
    for (; at > 0 && heap[(at - 1) / 2].deadline < value.deadline; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* S3: as scan_slot. */
static void lowest_of_slots(struct lowest *lowest, _Atomic uint64_t *slot, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        uint64_t deadline = packed ? timeout_deadline(packed_timeout(packed)) : UINT64_MAX;
        struct sighting seen = {&slot[i], packed, deadline};
        if (!packed || (lowest->count == lowest->most && deadline >= lowest->heap[0].deadline) ||
            !slot_still_holds(&slot[i], packed))
            continue;
        if (lowest->count < lowest->most)
            sift_up(lowest->heap, lowest->count++, seen);
        else
            sift_down(lowest->heap, lowest->count, 0, seen);
    }
}

unsigned bucket_lowest(struct bucket *bucket, struct sighting *seen, unsigned most)
{
    struct lowest lowest = {seen, 0, most};
    struct chunk *chunk;

    lowest_of_slots(&lowest, bucket->slot, BUCKET_INLINE);
    for (chunk = bucket_first_chunk(bucket); chunk; chunk = bucket_next_chunk(bucket, chunk))
        lowest_of_slots(&lowest, chunk->slot, ring_used(&chunk->ring));
    for (unsigned left = lowest.count; left > 1; left--) {
        struct sighting last = seen[left - 1];
        seen[left - 1] = seen[0];
        sift_down(seen, left - 1, 0, last);
    }
    return lowest.count;
}

static void look_at_slots(_Atomic uint64_t *slot, unsigned count, bucket_look *look, void *context)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        uint64_t word = packed ? load_acquire(&packed_timeout(packed)->word) : 0;
        if (packed && slot_still_holds(&slot[i], packed))
            look(context, word);
    }
}

void bucket_look_through(struct bucket *bucket, bucket_look *look, void *context)
{
    struct chunk *chunk;

    look_at_slots(bucket->slot, BUCKET_INLINE, look, context);
    for (chunk = bucket_first_chunk(bucket); chunk; chunk = bucket_next_chunk(bucket, chunk))
        look_at_slots(chunk->slot, ring_used(&chunk->ring), look, context);
}

/* ---- showing ---- */

void bucket_end_show(struct sighting *shown)
{
    _Atomic uint64_t *slot = shown->slot;
    const hwt_timeout *timeout;

    if (!slot)
        return;
    shown->slot = NULL;
    timeout = packed_timeout(shown->packed);
    if (shown->packed & PACKED_ALONE && !deserves_mark(timeout, shown->deadline)) { /* S4 */
        shown->packed &= ~PACKED_ALONE;
        if (timeout->place != PLACE_INLINE)
            ring_share(&bucket_chunk_of(timeout, slot)->ring);
    }
    store_release(slot, shown->packed);
}

static void show_slots(_Atomic uint64_t *slot, unsigned count, bucket_see *see, void *context,
                       struct sighting *shown)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = slot_empty(&slot[i]);
        if (!packed)
            continue;
        *shown = (struct sighting){&slot[i], packed, timeout_deadline(packed_timeout(packed))};
        see(context, packed_timeout(packed));
        bucket_end_show(shown);
    }
}

void bucket_visit(struct bucket *bucket, bucket_see *see, void *context, struct sighting *shown)
{
    struct chunk *chunk;

    show_slots(bucket->slot, BUCKET_INLINE, see, context, shown);
    for (chunk = bucket_first_chunk(bucket); chunk; chunk = bucket_next_chunk(bucket, chunk))
        show_slots(chunk->slot, ring_used(&chunk->ring), see, context, shown);
}

/* ---- validator ---- */

static size_t check_slots(_Atomic uint64_t *slot, unsigned count, bool shared)
{
    size_t live = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        uint64_t where = packed ? load_acquire(&packed_timeout(packed)->where) : 0;
        if (!packed || !slot_still_holds(&slot[i], packed))
            continue;
        hwt_assert(where == where_of_slot(&slot[i]));
        hwt_assert(shared || packed & PACKED_ALONE);
        (void)where;
        (void)shared;
        live++;
    }
    return live;
}

size_t bucket_check(struct bucket *bucket)
{
    size_t at_most = bucket_at_most(bucket), total = check_slots(bucket->slot, BUCKET_INLINE, true);
    struct chunk *chunk;

    for (chunk = bucket_first_chunk(bucket); chunk; chunk = bucket_next_chunk(bucket, chunk)) {
        const struct ring *ring = &chunk->ring;
        bool shared = ring_is_shared(ring);
        size_t live = check_slots(chunk->slot, ring_used(ring), shared);
        hwt_assert(ring_is_chunk(ring) && ring_used(ring) <= ring_room(ring));
        hwt_assert(live <= ring_live(ring) && ring_live(ring) <= ring_used(ring));
        hwt_assert(shared || live == ring_live(ring));
        hwt_assert(ring_prev(ring_next(ring)) == ring && ring_next(ring_prev(ring)) == ring);
        total += live;
    }
    hwt_assert(at_most >= total);
    (void)at_most;
    return total;
}
