/* SPDX-License-Identifier: BSD-2-Clause */
#include "bucket.h"

#include <limits.h>

#define SMALL_CHUNKS 3  /* of a bucket, before the large ones */
#define SHRINK_AT    10 /* B2: a large chunk with no more goes into a small one */
#define FEW_IN_LARGE (CHUNK_SPLIT * (BUCKET_INLINE + 1)) /* B2: the same for the first one */
#define MERGE_SMALL  9  /* B3: two small ones with no more in all ... */
#define MERGE_MIXED  24 /* ... a small and a large one ... */
#define MERGE_LARGE  40 /* ... two large ones */
#define COLLECT      4  /* chunks looked through for one that was never used */
#define MOST_ROUNDS  4  /* of the cursor, if there is next to nothing */

/* ---- the ring of a bucket and its chunks ---- */

static bool is_chunk(const struct ring *ring)
{
    return ring_room(ring) != 0;
}

static struct bucket *bucket_of(struct ring *ring)
{
    return container_of(ring, struct bucket, ring);
}

/* Its chunks, one by one; NULL: no more. */
static struct chunk *first_chunk(struct bucket *bucket)
{
    struct ring *first = ring_next(&bucket->ring);
    return first && first != &bucket->ring ? chunk_of(first) : NULL;
}

static struct chunk *next_chunk(const struct bucket *bucket, const struct chunk *chunk)
{
    struct ring *next = ring_next(&chunk->ring);
    return next != &bucket->ring ? chunk_of(next) : NULL;
}

static struct ring *last_ring(struct bucket *bucket)
{
    struct ring *last = ring_prev(&bucket->ring);
    return last ? last : &bucket->ring;
}

static void link_after(struct ring *before, struct chunk *chunk)
{
    struct ring *after = ring_next(before) ? ring_next(before) : before;

    ring_link(&chunk->ring, after);
    ring_link(before, &chunk->ring);
}

/* ---- removal ---- */

static struct chunk *chunk_holding(const hwt_timeout *timeout, const _Atomic uint64_t *slot)
{
    uintptr_t size = timeout->place == PLACE_LARGE ? CHUNK_LARGE_SIZE : CHUNK_SMALL_SIZE;
    return (struct chunk *)((uintptr_t)slot & ~(size - 1));
}

static void count_in_chunk(struct chunk *chunk, uint32_t live)
{
    ring_set_live(&chunk->ring, live);
}

/* The first hole; a slot at the end if there is none. */
static _Atomic uint64_t *hole_from(struct chunk *chunk, unsigned *hole)
{
    unsigned used = ring_used(&chunk->ring);

    while (*hole < used && load_acquire(&chunk->slot[*hole]))
        ++*hole;
    if (*hole == used)
        store_relaxed(&chunk->ring.fill, load_relaxed(&chunk->ring.fill) + RING_ONE_MORE - 1);
    return &chunk->slot[*hole];
}

/* Up to so many of `from` into the holes and the end of `into`, which has room for them. */
static void pour(struct chunk *from, struct chunk *into, unsigned count)
{
    unsigned used = ring_used(&from->ring), hole = 0, poured = 0;

    chunk_lower_least(into, chunk_least(from));
    for (unsigned i = 0; i < used && poured < count; i++) {
        uint64_t packed = slot_empty(&from->slot[i]);
        if (!packed)
            continue;
        slot_fill(hole_from(into, &hole), packed, bucket_place_in(into));
        poured++;
    }
    count_in_chunk(into,
                   (uint32_t)min_u64(ring_live(&into->ring) + poured, ring_used(&into->ring)));
    count_in_chunk(from, ring_live(&from->ring) - poured);
}

static struct chunk *merge(struct chunk_store *store, struct chunk *from, struct chunk *into)
{
    pour(from, into, UINT_MAX);
    chunk_unlink(store, from);
    return into;
}

static unsigned inline_holes(const struct bucket *bucket)
{
    return BUCKET_INLINE - bucket_inline_live(bucket);
}

static _Atomic uint64_t *inline_hole(struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (!load_acquire(&bucket->slot[i]))
            return &bucket->slot[i];
    }
    return NULL;
}

/* B1 */
static bool pull_in(struct chunk_store *store, struct bucket *bucket, struct chunk *first)
{
    unsigned used = ring_used(&first->ring);

    if (ring_live(&first->ring) > inline_holes(bucket))
        return false;
    for (unsigned i = 0; i < used; i++) {
        uint64_t packed = slot_empty(&first->slot[i]);
        if (packed)
            slot_fill(inline_hole(bucket), packed, PLACE_INLINE);
    }
    chunk_unlink(store, first);
    return true;
}

/* B2 */
static bool is_too_large(const struct chunk *chunk)
{
    const struct ring *before = ring_prev(&chunk->ring);
    unsigned live = ring_live(&chunk->ring);

    if (!chunk_is_large(chunk))
        return false;
    if (is_chunk(before))
        return live <= SHRINK_AT;
    live += bucket_inline_live(container_of(before, const struct bucket, ring));
    return live < FEW_IN_LARGE;
}

/* Into a small chunk, or two. */
static struct chunk *shrink(struct chunk_store *store, struct chunk *chunk)
{
    struct chunk *small = chunk_take_free_small(store), *second;
    unsigned live = ring_live(&chunk->ring);

    if (!small)
        return chunk;
    link_after(&chunk->ring, small);
    if (live <= CHUNK_SMALL_ROOM)
        return merge(store, chunk, small);
    second = chunk_take_free_small(store);
    if (!second) {
        chunk_unlink(store, small);
        return chunk;
    }
    link_after(&chunk->ring, second);
    pour(chunk, second, live / 2);
    return merge(store, chunk, small);
}

/*
 * B3: the one that they are now, or NULL. It lies where both lay, and its lowest stamp is the lower
 * one of theirs: so chunks that were sorted by that (bucket_sort_chunks) stay so.
 */
static struct chunk *merge_if_sparse(struct chunk_store *store, struct ring *a, struct ring *b)
{
    unsigned live = ring_live(a) + ring_live(b), most = MERGE_MIXED;

    if (!is_chunk(a) || !is_chunk(b))
        return NULL;
    if (ring_room(a) == ring_room(b))
        most = ring_room(a) == CHUNK_LARGE_ROOM ? MERGE_LARGE : MERGE_SMALL;
    if (live > most)
        return NULL;
    if (ring_room(a) < ring_room(b) ||
        (ring_room(a) == ring_room(b) && ring_live(a) < ring_live(b)))
        return merge(store, chunk_of(a), chunk_of(b));
    return merge(store, chunk_of(b), chunk_of(a));
}

static void thin_out(struct chunk_store *store, struct chunk *chunk)
{
    while (chunk) {
        struct ring *before = ring_prev(&chunk->ring), *after = ring_next(&chunk->ring);

        if (!is_chunk(before) && pull_in(store, bucket_of(before), chunk)) {
            chunk = is_chunk(after) ? chunk_of(after) : NULL; /* the first one now */
            continue;
        }
        if (ring_live(&chunk->ring) == 0) {
            chunk_unlink(store, chunk);
            return;
        }
        if (is_too_large(chunk))
            chunk = shrink(store, chunk);
        after = ring_next(&chunk->ring);
        before = ring_prev(&chunk->ring);
        chunk = merge_if_sparse(store, &chunk->ring, after);
        if (!chunk && is_chunk(before))
            chunk = merge_if_sparse(store, before, ring_next(before));
    }
}

void bucket_remove(struct chunk_store *store, hwt_timeout *timeout)
{
    _Atomic uint64_t *slot = slot_of_where(load_relaxed(&timeout->where));
    struct chunk *chunk;

    hwt_assert(bucket_holds(timeout));
    slot_empty(slot);
    if (timeout->place == PLACE_INLINE) {
        struct bucket *bucket = (struct bucket *)((uintptr_t)slot & ~(uintptr_t)(CACHE_LINE - 1));
        bucket_count_out(bucket, 1);
        if (unlikely(bucket_has_chunks(bucket)))
            thin_out(store, first_chunk(bucket));
    } else {
        chunk = chunk_holding(timeout, slot);
        count_in_chunk(chunk, ring_live(&chunk->ring) - 1);
        thin_out(store, chunk);
    }
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
}

/* ---- chunks of which timeouts were withdrawn ---- */

static unsigned count_live(const _Atomic uint64_t *slot, unsigned count)
{
    unsigned live = 0;

    for (unsigned i = 0; i < count; i++)
        live += load_acquire(&slot[i]) != 0;
    return live;
}

/*
 * The rules for one chunk, as if its holes had been made now. If none is new, its neighbours are
 * left in peace; but what the bucket itself holds may have become less.
 */
static void look_through(struct chunk_store *store, struct chunk *chunk)
{
    unsigned live = count_live(chunk->slot, ring_used(&chunk->ring));
    unsigned few = chunk_is_large(chunk) ? FEW_IN_LARGE - 1 : BUCKET_INLINE;

    if (live == ring_live(&chunk->ring) && live > few)
        return;
    count_in_chunk(chunk, live);
    thin_out(store, chunk);
}

/* So much of the store, in small chunks, from the cursor on. */
static void collect(struct chunk_store *store, size_t units)
{
    unsigned rounds = 0;

    while (units > 0 && rounds < MOST_ROUNDS) {
        size_t passed;
        struct chunk *chunk = chunk_cursor_next(store, &passed);
        if (chunk)
            look_through(store, chunk);
        rounds += !store->at;
        units -= units < passed ? units : passed;
    }
}

/*
 * A free chunk. Before the store takes one into use that never was, so many others are looked
 * through: so while all are looked through once, at most a COLLECT_ah part of them is added, and
 * what was withdrawn before has been collected. So what is in use is at most 4 / 3 of what B1 to B3
 * allow for those that were live while that went on, and a constant. Without memory for another one
 * all are looked through: twice, since a large one is replaced only when there are small ones. That
 * is what lets wheel_reserve promise that there is one. If it was in vain, it is done again only
 * when so many as an eighth of them have been asked for: who gets none goes to the pen.
 */
static struct chunk *obtain(struct chunk_store *store, bool large)
{
    struct chunk *chunk;

    if (chunk_next_is_fresh(store))
        collect(store, COLLECT * (large ? CHUNK_SPLIT : 1));
    chunk = chunk_take(store, large);
    if (likely(chunk != NULL))
        return chunk;
    if (store->in_vain > 0) {
        store->in_vain--;
        return NULL;
    }
    collect(store, 2 * store->total);
    chunk = chunk_take(store, large);
    if (!chunk)
        store->in_vain = store->total / 8;
    return chunk;
}

/* ---- filing ---- */

/* The first chunks are small. */
static bool wants_large(struct bucket *bucket)
{
    struct ring *ring = &bucket->ring;

    for (unsigned i = 0; i < SMALL_CHUNKS; i++) {
        ring = ring_prev(ring);
        if (!ring || !is_chunk(ring))
            return false;
    }
    return true;
}

/* Some of what is in the bucket's own slots may be withdrawn, but no more comes in. */
static void link_last(struct bucket *bucket, struct chunk *chunk)
{
    if (!bucket_has_chunks(bucket))
        ring_set_live(&bucket->ring, BUCKET_INLINE);
    link_after(last_ring(bucket), chunk);
}

_Atomic uint64_t *bucket_put_further(struct bucket *bucket, struct chunk_store *store,
                                     uint64_t packed)
{
    _Atomic uint64_t *slot = bucket_has_chunks(bucket) ? NULL : inline_hole(bucket);
    struct chunk *chunk;

    if (slot) {
        slot_fill(slot, packed, PLACE_INLINE);
        return slot;
    }
    chunk = obtain(store, wants_large(bucket)); /* chunks of this bucket may be gone after that */
    if (unlikely(!chunk))
        return NULL;
    link_last(bucket, chunk);
    return bucket_put(bucket, store, packed);
}

_Atomic uint64_t *bucket_insert(struct bucket *bucket, struct chunk_store *store,
                                hwt_timeout *timeout, uint64_t deadline, uint64_t key)
{
    bool chunks = bucket_has_chunks(bucket), empty = !chunks && !bucket_inline_any(bucket);
    uint64_t packed = packed_make(timeout, key);
    _Atomic uint64_t *slot = likely(chunks) ? bucket_put(bucket, store, packed)
                                            : bucket_put_further(bucket, store, packed);

    if (unlikely(!slot))
        return NULL;
    if (empty || deadline < bucket->earliest)
        bucket->earliest = deadline;
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
    ring_set(&chunk->ring, live, used, ring_room(&chunk->ring));
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

/* ---- looking ---- */

bool bucket_has_any(struct bucket *bucket, struct chunk_store *store)
{
    struct chunk *chunk;

    if (bucket_inline_any(bucket))
        return true;
    while ((chunk = first_chunk(bucket)) != NULL) {
        unsigned used = ring_used(&chunk->ring), i = 0;
        while (i < used && !load_acquire(&chunk->slot[i]))
            i++;
        if (i < used)
            return true;
        chunk_unlink(store, chunk);
    }
    return false;
}

void bucket_prefetch_timeouts(struct bucket *bucket)
{
    struct ring *last = bucket_has_chunks(bucket) ? ring_prev(&bucket->ring) : NULL;
    const _Atomic uint64_t *slot = last ? chunk_of(last)->slot : bucket->slot;
    unsigned end = last ? ring_used(last) : BUCKET_INLINE;

    for (unsigned i = end > BUCKET_BATCH ? end - BUCKET_BATCH : 0; i < end; i++) {
        uint64_t packed = load_relaxed(&slot[i]);
        if (packed)
            __builtin_prefetch(packed_timeout(packed), 1);
    }
}

void bucket_prefetch_arguments(struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        uint64_t packed = slot_empty(&bucket->slot[i]);
        if (!packed)
            continue;
        __builtin_prefetch(packed_timeout(packed)->arg, 1);
        store_release(&bucket->slot[i], packed);
    }
}

/* S3: only what would be the earliest needs a second look at its slot. */
static void scan_slot(struct sighting *best, _Atomic uint64_t *slot, uint64_t packed)
{
    uint64_t deadline = timeout_deadline(packed_timeout(packed));

    if (deadline < best->deadline && slot_still_holds(slot, packed))
        *best = (struct sighting){slot, packed, deadline};
}

/* Touches only those with this key. */
static void scan_for_key(struct sighting *best, _Atomic uint64_t *slot, unsigned count,
                         uint64_t key, uint64_t bound)
{
    for (unsigned i = 0; i < count && best->deadline > bound; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        if (packed_bits_from(packed, key) == 0 && packed)
            scan_slot(best, &slot[i], packed);
    }
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

struct sighting bucket_scan(struct bucket *bucket, uint64_t key)
{
    struct sighting best = {NULL, 0, UINT64_MAX};
    uint64_t bound = bucket->earliest;
    struct chunk *chunk;

    scan_for_key(&best, bucket->slot, BUCKET_INLINE, key, bound);
    for (chunk = first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk))
        scan_for_key(&best, chunk->slot, ring_used(&chunk->ring), key, bound);
    scan_slots(&best, bucket->slot, BUCKET_INLINE, bound);
    for (chunk = first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk))
        scan_slots(&best, chunk->slot, ring_used(&chunk->ring), bound);
    bucket->earliest = best.deadline;
    return best;
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
    for (chunk = first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk))
        look_at_slots(chunk->slot, ring_used(&chunk->ring), look, context);
}

/* ---- showing ---- */

void bucket_end_show(struct sighting *shown)
{
    _Atomic uint64_t *slot = shown->slot;

    if (!slot)
        return;
    shown->slot = NULL;
    store_release(slot, shown->packed);
}

static void show_slots(_Atomic uint64_t *slot, unsigned count, bucket_see *see, void *context,
                       struct sighting *shown)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = slot_empty(&slot[i]);
        if (!packed)
            continue;
        *shown = (struct sighting){&slot[i], packed, 0};
        see(context, packed_timeout(packed));
        bucket_end_show(shown);
    }
}

void bucket_visit(struct bucket *bucket, bucket_see *see, void *context, struct sighting *shown)
{
    struct chunk *chunk;

    show_slots(bucket->slot, BUCKET_INLINE, see, context, shown);
    for (chunk = first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk))
        show_slots(chunk->slot, ring_used(&chunk->ring), see, context, shown);
}

/* ---- validator ---- */

static size_t check_slots(_Atomic uint64_t *slot, unsigned count)
{
    size_t live = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        uint64_t where = packed ? load_acquire(&packed_timeout(packed)->where) : 0;
        if (!packed || !slot_still_holds(&slot[i], packed))
            continue;
        hwt_assert(where == where_of_slot(&slot[i]));
        (void)where;
        live++;
    }
    return live;
}

size_t bucket_check(struct bucket *bucket)
{
    size_t at_most = bucket_at_most(bucket), total = check_slots(bucket->slot, BUCKET_INLINE);
    struct chunk *chunk;

    for (chunk = first_chunk(bucket); chunk; chunk = next_chunk(bucket, chunk)) {
        const struct ring *ring = &chunk->ring;
        size_t live = check_slots(chunk->slot, ring_used(ring));
        hwt_assert(is_chunk(ring) && ring_used(ring) <= ring_room(ring));
        hwt_assert(live <= ring_live(ring) && ring_live(ring) <= ring_used(ring));
        hwt_assert(ring_prev(ring_next(ring)) == ring && ring_next(ring_prev(ring)) == ring);
        total += live;
    }
    hwt_assert(at_most >= total);
    (void)at_most;
    return total;
}
