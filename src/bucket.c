/* SPDX-License-Identifier: BSD-2-Clause */
#include "bucket.h"

#define SMALL_CHUNKS 3  /* of a bucket, before the large ones */
#define SHRINK_AT    10 /* B2: a large chunk with no more goes into a small one */
#define MERGE_SMALL  9  /* B3: two small ones with no more in all ... */
#define MERGE_MIXED  24 /* ... a small and a large one ... */
#define MERGE_LARGE  40 /* ... two large ones */

/* ---- the ring of a bucket and its chunks ---- */

static bool is_chunk(const struct ring *ring)
{
    return ring->room != 0;
}

static struct bucket *bucket_of(struct ring *ring)
{
    return container_of(ring, struct bucket, ring);
}

static struct ring *last_ring(struct bucket *bucket)
{
    return bucket->ring.prev ? bucket->ring.prev : &bucket->ring;
}

static void link_after(struct ring *before, struct chunk *chunk)
{
    struct ring *after = before->next ? before->next : before;

    chunk->ring.prev = before;
    chunk->ring.next = after;
    before->next = &chunk->ring;
    after->prev = &chunk->ring;
}

/* ---- insertion ---- */

static uint64_t *inline_hole(struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (!bucket->slot[i])
            return &bucket->slot[i];
    }
    return NULL;
}

/* The first chunks are small. */
static bool wants_large(struct bucket *bucket)
{
    struct ring *ring = &bucket->ring;

    for (unsigned i = 0; i < SMALL_CHUNKS; i++) {
        ring = ring->prev;
        if (!ring || !is_chunk(ring))
            return false;
    }
    return true;
}

/* The last chunk, with room for one more. NULL: no memory. */
static struct chunk *chunk_with_room(struct bucket *bucket, struct chunk_store *store)
{
    struct ring *last = last_ring(bucket);
    struct chunk *chunk;

    if (is_chunk(last) && last->used < last->room)
        return chunk_of(last);
    chunk = chunk_take(store, wants_large(bucket));
    if (likely(chunk != NULL))
        link_after(last, chunk);
    return chunk;
}

static uint64_t *append_slot(struct chunk *chunk)
{
    chunk->ring.live++;
    return &chunk->slot[chunk->ring.used++];
}

static enum timeout_place place_in(const struct chunk *chunk)
{
    if (!chunk)
        return PLACE_INLINE;
    return chunk_is_large(chunk) ? PLACE_LARGE : PLACE_SMALL;
}

static void put(uint64_t *slot, hwt_timeout *timeout, uint64_t key, enum timeout_place place)
{
    *slot = packed_make(timeout, key);
    timeout_set_where(timeout, slot, place);
}

/* In the bucket itself. False: there is no room. */
static bool insert_inline(struct bucket *bucket, hwt_timeout *timeout, uint64_t deadline,
                          uint64_t key)
{
    uint64_t *slot = inline_hole(bucket);

    if (!slot)
        return false;
    if (bucket_is_empty(bucket)) {
        bucket->earliest = deadline;
        bucket->ring.live = 0;
    }
    put(slot, timeout, key, PLACE_INLINE);
    return true;
}

static bool insert_in_chunk(struct bucket *bucket, struct chunk_store *store, hwt_timeout *timeout,
                            uint64_t key)
{
    struct chunk *chunk = chunk_with_room(bucket, store);

    if (unlikely(!chunk))
        return false;
    put(append_slot(chunk), timeout, key, place_in(chunk));
    chunk_lower_least(chunk, timeout->stamp);
    return true;
}

bool bucket_insert(struct bucket *bucket, struct chunk_store *store, hwt_timeout *timeout,
                   uint64_t deadline, uint64_t key)
{
    bool filed = (!bucket_has_chunks(bucket) && insert_inline(bucket, timeout, deadline, key)) ||
                 insert_in_chunk(bucket, store, timeout, key);

    if (unlikely(!filed))
        return false;
    bucket_count_in(bucket);
    if (deadline < bucket->earliest)
        bucket->earliest = deadline;
    return true;
}

bool bucket_append_further(struct bucket *bucket, struct chunk_store *store, uint64_t packed,
                           uint64_t least)
{
    uint64_t *slot = bucket_has_chunks(bucket) ? NULL : inline_hole(bucket);
    struct chunk *chunk;

    if (!slot) {
        chunk = chunk_with_room(bucket, store);
        if (unlikely(!chunk))
            return false;
        slot = append_slot(chunk);
        chunk_lower_least(chunk, least);
    } else if (bucket_is_empty(bucket)) {
        bucket->ring.live = 0;
    }
    *slot = ~packed;
    bucket_count_in(bucket);
    return true;
}

/* ---- removal ---- */

static struct chunk *chunk_holding(const hwt_timeout *timeout, uint64_t *slot)
{
    uintptr_t size = timeout->place == PLACE_LARGE ? CHUNK_LARGE_SIZE : CHUNK_SMALL_SIZE;
    return (struct chunk *)((uintptr_t)slot & ~(size - 1));
}

static uint64_t *slot_of(const hwt_timeout *timeout)
{
    return (uint64_t *)(uintptr_t)load_relaxed(&timeout->where);
}

static void put_again(uint64_t *slot, uint64_t packed, const struct chunk *chunk)
{
    *slot = packed;
    timeout_set_where(packed_timeout(packed), slot, place_in(chunk));
}

/* So many of `from` into the holes and the end of `into`. */
static void pour(struct chunk *from, struct chunk *into, unsigned count)
{
    unsigned hole = 0;

    for (unsigned i = 0; count > 0; i++) {
        if (!from->slot[i])
            continue;
        while (hole < into->ring.used && into->slot[hole])
            hole++;
        if (hole == into->ring.used)
            into->ring.used++;
        put_again(&into->slot[hole], from->slot[i], into);
        from->slot[i] = 0;
        into->ring.live++;
        from->ring.live--;
        count--;
    }
    chunk_lower_least(into, chunk_least(from));
}

static struct chunk *merge(struct chunk_store *store, struct chunk *from, struct chunk *into)
{
    pour(from, into, from->ring.live);
    chunk_unlink(store, from);
    return into;
}

static unsigned inline_holes(const struct bucket *bucket)
{
    unsigned holes = 0;

    for (unsigned i = 0; i < BUCKET_INLINE; i++)
        holes += bucket->slot[i] == 0;
    return holes;
}

/* B1 */
static bool pull_in(struct chunk_store *store, struct bucket *bucket, struct chunk *first)
{
    if (first->ring.live > inline_holes(bucket))
        return false;
    for (unsigned i = 0; i < first->ring.used; i++) {
        if (first->slot[i])
            put_again(inline_hole(bucket), first->slot[i], NULL);
        first->slot[i] = 0;
    }
    chunk_unlink(store, first);
    return true;
}

/* B2 */
static bool is_too_large(const struct chunk *chunk)
{
    const struct ring *before = chunk->ring.prev;
    unsigned live = chunk->ring.live;

    if (!chunk_is_large(chunk))
        return false;
    if (is_chunk(before))
        return live <= SHRINK_AT;
    live += BUCKET_INLINE - inline_holes(container_of(before, const struct bucket, ring));
    return live < CHUNK_SPLIT * (BUCKET_INLINE + 1);
}

/* Into a small chunk, or two. */
static struct chunk *shrink(struct chunk_store *store, struct chunk *chunk)
{
    struct chunk *small = chunk_take_free_small(store), *second;

    if (!small)
        return chunk;
    link_after(&chunk->ring, small);
    if (chunk->ring.live <= CHUNK_SMALL_ROOM)
        return merge(store, chunk, small);
    second = chunk_take_free_small(store);
    if (!second) {
        chunk_unlink(store, small);
        return chunk;
    }
    link_after(&chunk->ring, second);
    pour(chunk, second, chunk->ring.live / 2);
    return merge(store, chunk, small);
}

/* B3: the one that they are now, or NULL. */
static struct chunk *merge_if_sparse(struct chunk_store *store, struct ring *a, struct ring *b)
{
    unsigned live = a->live + b->live, most = MERGE_MIXED;

    if (!is_chunk(a) || !is_chunk(b))
        return NULL;
    if (a->room == b->room)
        most = a->room == CHUNK_LARGE_ROOM ? MERGE_LARGE : MERGE_SMALL;
    if (live > most)
        return NULL;
    if (a->room < b->room || (a->room == b->room && a->live < b->live))
        return merge(store, chunk_of(a), chunk_of(b));
    return merge(store, chunk_of(b), chunk_of(a));
}

static void thin_out(struct chunk_store *store, struct chunk *chunk)
{
    while (chunk) {
        struct ring *before = chunk->ring.prev, *after = chunk->ring.next;

        if (!is_chunk(before) && pull_in(store, bucket_of(before), chunk)) {
            chunk = is_chunk(after) ? chunk_of(after) : NULL; /* the first one now */
            continue;
        }
        if (chunk->ring.live == 0) {
            chunk_unlink(store, chunk);
            return;
        }
        if (is_too_large(chunk))
            chunk = shrink(store, chunk);
        after = chunk->ring.next;
        before = chunk->ring.prev;
        chunk = merge_if_sparse(store, &chunk->ring, after);
        if (!chunk && is_chunk(before))
            chunk = merge_if_sparse(store, before, before->next);
    }
}

void bucket_remove(struct chunk_store *store, hwt_timeout *timeout)
{
    uint64_t *slot = slot_of(timeout);

    hwt_assert(bucket_holds(timeout));
    *slot = 0;
    if (timeout->place == PLACE_INLINE) {
        struct bucket *bucket = (struct bucket *)((uintptr_t)slot & ~(uintptr_t)(CACHE_LINE - 1));
        bucket_count_out(bucket, 1);
        if (unlikely(bucket_has_chunks(bucket)))
            thin_out(store, chunk_of(bucket->ring.next));
    } else {
        struct chunk *chunk = chunk_holding(timeout, slot);
        chunk->ring.live--;
        thin_out(store, chunk);
    }
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
}

/* ---- taking out ---- */

/* The chunk that is next, all of it. Its head may be on its way still: it is not looked at. */
HOT void prefetch_before(const struct chunk *chunk)
{
    const char *before = (const char *)chunk->ring.prev;
    unsigned size = chunk_is_large(chunk) ? CHUNK_LARGE_SIZE : CHUNK_SMALL_SIZE;

    for (unsigned i = 0; i < size; i += CACHE_LINE)
        __builtin_prefetch(before + i, 1);
}

/* From the end of the last chunk; frees it when it is empty. */
static unsigned take_from_chunk(struct chunk_store *store, struct chunk *chunk, uint64_t *out,
                                unsigned most)
{
    unsigned count = 0;

    prefetch_before(chunk);
    while (count < most && chunk->ring.live > 0) {
        uint64_t packed = chunk->slot[--chunk->ring.used];
        if (!packed)
            continue;
        chunk->slot[chunk->ring.used] = 0; /* bucket_holds */
        out[count++] = packed;
        chunk->ring.live--;
    }
    if (chunk->ring.live == 0)
        chunk_unlink(store, chunk);
    return count;
}

static unsigned take_inline(struct bucket *bucket, uint64_t *out, unsigned most)
{
    unsigned count = 0;

    for (unsigned i = BUCKET_INLINE; i-- > 0 && count < most;) {
        if (!bucket->slot[i])
            continue;
        out[count++] = bucket->slot[i];
        bucket->slot[i] = 0;
    }
    return count;
}

unsigned bucket_take(struct bucket *bucket, struct chunk_store *store, uint64_t *out, unsigned most,
                     uint64_t *least)
{
    unsigned count;

    if (bucket_has_chunks(bucket)) {
        struct chunk *chunk = chunk_of(bucket->ring.prev);
        if (least)
            *least = chunk_least(chunk);
        count = take_from_chunk(store, chunk, out, most);
    } else {
        if (least)
            *least = 0;
        count = take_inline(bucket, out, most);
    }
    bucket_count_out(bucket, count);
    return count;
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
    hwt_assert(bucket_is_empty(to));
    to->earliest = from->earliest;
    to->ring = from->ring;
    if (bucket_has_chunks(from)) {
        to->ring.next->prev = &to->ring;
        to->ring.prev->next = &to->ring;
    } else {
        to->ring.next = to->ring.prev = NULL;
    }
    from->ring.next = from->ring.prev = NULL;
    from->ring.live = 0;
}

void bucket_move(struct bucket *to, struct bucket *from)
{
    move_ring(to, from);
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (from->slot[i])
            put_again(&to->slot[i], from->slot[i], NULL);
        from->slot[i] = 0;
    }
}

void bucket_move_packed(struct bucket *to, struct bucket *from)
{
    move_ring(to, from);
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        to->slot[i] = from->slot[i];
        from->slot[i] = 0;
    }
}

static uint64_t *find_slot(uint64_t *slot, unsigned count, const hwt_timeout *timeout)
{
    for (unsigned i = 0; i < count; i++) {
        if (packed_timeout(~slot[i]) == timeout)
            return &slot[i];
    }
    return NULL;
}

bool bucket_extract(struct bucket *bucket, struct chunk_store *store, const hwt_timeout *timeout)
{
    uint64_t *slot = find_slot(bucket->slot, BUCKET_INLINE, timeout);

    if (slot) {
        *slot = 0;
        bucket_count_out(bucket, 1);
        return true;
    }
    for (struct ring *ring = bucket->ring.next; ring && ring != &bucket->ring; ring = ring->next) {
        slot = find_slot(chunk_of(ring)->slot, ring->used, timeout);
        if (!slot)
            continue;
        *slot = 0;
        bucket_count_out(bucket, 1);
        if (--ring->live == 0)
            chunk_unlink(store, chunk_of(ring));
        return true;
    }
    return false;
}

/* ---- looking ---- */

void bucket_prefetch_timeouts(const struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (bucket->slot[i])
            __builtin_prefetch(packed_timeout(bucket->slot[i]), 1);
    }
}

void bucket_prefetch_arguments(const struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (bucket->slot[i])
            __builtin_prefetch(packed_timeout(bucket->slot[i])->arg, 1);
    }
}

/* The earliest so far, and its deadline. */
struct scan {
    hwt_timeout *timeout;
    uint64_t deadline;
};

static void scan_slots(struct scan *best, const uint64_t *slot, unsigned count, uint64_t bound)
{
    for (unsigned i = 0; i < count && best->deadline > bound; i++) {
        hwt_timeout *timeout = packed_timeout(slot[i]);
        uint64_t deadline = timeout ? timeout_deadline(timeout) : UINT64_MAX; /* read once */
        if (deadline < best->deadline)
            *best = (struct scan){timeout, deadline};
    }
}

hwt_timeout *bucket_scan(struct bucket *bucket)
{
    struct scan best = {NULL, UINT64_MAX};
    struct ring *ring;

    scan_slots(&best, bucket->slot, BUCKET_INLINE, bucket->earliest);
    for (ring = bucket->ring.next; ring && ring != &bucket->ring; ring = ring->next)
        scan_slots(&best, chunk_of(ring)->slot, ring->used, bucket->earliest);
    bucket->earliest = best.deadline;
    return best.timeout;
}

void bucket_visit(const struct bucket *bucket, bucket_see *see, void *context)
{
    const struct ring *ring = bucket->ring.next;

    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (bucket->slot[i])
            see(context, packed_timeout(bucket->slot[i]));
    }
    for (; ring && ring != &bucket->ring; ring = ring->next) {
        const struct chunk *chunk = container_of(ring, const struct chunk, ring);
        for (unsigned i = 0; i < ring->used; i++) {
            if (chunk->slot[i])
                see(context, packed_timeout(chunk->slot[i]));
        }
    }
}

/* ---- validator ---- */

static size_t check_slots(const uint64_t *slot, unsigned count, enum timeout_place place, bool held)
{
    size_t live = 0;

    for (unsigned i = 0; i < count; i++) {
        const hwt_timeout *timeout = packed_timeout(slot[i]);
        if (!timeout)
            continue;
        hwt_assert(!held || (timeout->place == place && slot_of(timeout) == &slot[i]));
        live++;
    }
    (void)place;
    (void)held;
    return live;
}

size_t bucket_check(const struct bucket *bucket, bool held)
{
    size_t total = check_slots(bucket->slot, BUCKET_INLINE, PLACE_INLINE, held);
    const struct ring *ring = bucket->ring.next;

    for (; ring && ring != &bucket->ring; ring = ring->next) {
        const struct chunk *chunk = container_of(ring, const struct chunk, ring);
        size_t live = check_slots(chunk->slot, ring->used, place_in(chunk), held);
        hwt_assert(is_chunk(ring) && ring->used <= ring->room);
        hwt_assert(live == ring->live && live > 0);
        hwt_assert(ring->next->prev == ring && ring->prev->next == ring);
        total += live;
    }
    hwt_assert(total == 0 || bucket_at_most(bucket) >= total);
    return total;
}
