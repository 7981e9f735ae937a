/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What keeps the chunks of buckets filled in proportion to what lives (bucket.h, B1 to B3): when
 * something is removed, and when the chunks in use are looked through for what was withdrawn.
 */
#include "crowd.h"

#include <limits.h>

#define SHRINK_AT    10 /* B2: a large chunk with no more goes into a small one */
#define FEW_IN_LARGE (CHUNK_SPLIT * (BUCKET_INLINE + 1)) /* B2: the same for the first one */
#define MERGE_SMALL  9  /* B3: two small ones with no more in all ... */
#define MERGE_MIXED  24 /* ... a small and a large one ... */
#define MERGE_LARGE  40 /* ... two large ones */
#define COLLECT      4  /* chunks looked through for one that was never used */
#define MOST_ROUNDS  4  /* of the cursor, if there is next to nothing */

static struct bucket *bucket_of(struct ring *ring)
{
    return container_of(ring, struct bucket, ring);
}

/* ---- removal ---- */

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

static void move_into(struct chunk_store *store, _Atomic uint64_t *slot, uint64_t packed,
                      enum timeout_place place)
{
    if (unlikely(store->crowd != NULL))
        crowd_follow(store->crowd, slot, packed);
    slot_fill(slot, packed, place); /* S1: nothing of it is looked at afterwards */
}

/* Up to so many of `from` into the holes and the end of `into`, which has room for them. */
static void pour(struct chunk_store *store, struct chunk *from, struct chunk *into, unsigned count)
{
    unsigned used = ring_used(&from->ring), hole = 0, poured = 0;

    chunk_lower_least(into, chunk_least(from));
    if (ring_is_shared(&from->ring))
        ring_share(&into->ring);
    for (unsigned i = 0; i < used && poured < count; i++) {
        uint64_t packed = slot_empty(&from->slot[i]);
        if (!packed)
            continue;
        move_into(store, hole_from(into, &hole), packed, bucket_place_in(into));
        poured++;
    }
    count_in_chunk(into,
                   (uint32_t)min_u64(ring_live(&into->ring) + poured, ring_used(&into->ring)));
    count_in_chunk(from, ring_live(&from->ring) - poured);
}

static struct chunk *merge(struct chunk_store *store, struct chunk *from, struct chunk *into)
{
    pour(store, from, into, UINT_MAX);
    chunk_unlink(store, from);
    return into;
}

static unsigned inline_holes(const struct bucket *bucket)
{
    return BUCKET_INLINE - bucket_inline_live(bucket);
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
            move_into(store, bucket_inline_hole(bucket), packed, PLACE_INLINE);
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
    if (ring_is_chunk(before))
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
    chunk_link(&chunk->ring, small);
    if (live <= CHUNK_SMALL_ROOM)
        return merge(store, chunk, small);
    second = chunk_take_free_small(store);
    if (!second) {
        chunk_unlink(store, small);
        return chunk;
    }
    chunk_link(&chunk->ring, second);
    pour(store, chunk, second, live / 2);
    return merge(store, chunk, small);
}

/*
 * B3: the one that they are now, or NULL. It lies where both lay, and its lowest stamp is the lower
 * one of theirs: so chunks that were sorted by that (bucket_sort_chunks) stay so.
 */
static struct chunk *merge_if_sparse(struct chunk_store *store, struct ring *a, struct ring *b)
{
    unsigned live = ring_live(a) + ring_live(b), most = MERGE_MIXED;

    if (!ring_is_chunk(a) || !ring_is_chunk(b))
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

        if (!ring_is_chunk(before) && pull_in(store, bucket_of(before), chunk)) {
            chunk = ring_is_chunk(after) ? chunk_of(after) : NULL; /* the first one now */
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
        if (!chunk && ring_is_chunk(before))
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
            thin_out(store, bucket_first_chunk(bucket));
    } else {
        chunk = bucket_chunk_of(timeout, slot);
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
    unsigned live = ring_is_shared(&chunk->ring) ? count_live(chunk->slot, ring_used(&chunk->ring))
                                                 : ring_live(&chunk->ring);
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
struct chunk *bucket_obtain_chunk(struct chunk_store *store, bool large)
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
