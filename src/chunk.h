/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chunks: what buckets are made of beyond their own cache line. There are small ones and large
 * ones, so that a bucket with five timeouts costs little and one with thousands is walked quickly;
 * each is aligned to its size, so that it is found from the address of one of its slots.
 *
 * The store of a wheel keeps the free ones. It never grows while any chunk is free: whoever wants a
 * large one takes a small one then, and a large one is split for whoever wants a small one.
 *
 * Worker only, all of it, but for the slots: these are emptied by cancellers, too (bucket_slot.h),
 * and nobody tells the worker. So he looks through the chunks that are in use now and then, with a
 * cursor that goes round.
 */
#ifndef HWT_CHUNK_H
#define HWT_CHUNK_H

#include "atomic.h"
#include "base.h"

#define CHUNK_SMALL_SIZE 128
#define CHUNK_LARGE_SIZE 512
#define CHUNK_SPLIT      (CHUNK_LARGE_SIZE / CHUNK_SMALL_SIZE)

/*
 * The head of a bucket and of each of its chunks, linked in a ring once there are chunks.
 *
 * A chunk may be split, and the head of a small one come to lie where a large one had a slot. A
 * canceller whose timeout is just being moved may still look there (bucket_withdraw): so the words
 * of a head are atomic, and none of them looks like a timeout that is packed.
 */
struct ring {
    _Atomic(struct ring *) prev, next;
    _Atomic uint64_t fill; /* by the functions below */
};

struct chunk {
    struct ring ring;
    _Atomic uint64_t bound;  /* chunk_least, inverted: see above */
    _Atomic uint64_t slot[]; /* packed timeouts, 0: a hole */
};

#define CHUNK_SMALL_ROOM ((CHUNK_SMALL_SIZE - sizeof(struct chunk)) / sizeof(uint64_t))
#define CHUNK_LARGE_ROOM ((CHUNK_LARGE_SIZE - sizeof(struct chunk)) / sizeof(uint64_t))
static_assert(CHUNK_LARGE_ROOM < 64, "six bits of `fill` count the slots that were filled");

struct chunk_store {
    struct ring *large, *small; /* free ones, by `next`; small ones never used come last */
    size_t large_count, small_count;
    struct chunk_lot *lots, *last; /* the oldest and the youngest; go back with the store */
    struct chunk_lot *opening;     /* the oldest in which there are chunks that never were in use */
    uint32_t next_lot;             /* large chunks in the next one */
    bool half_open;                /* of the youngest one half is opened: another may be wanted */
    bool small_pages;              /* are what the next one asks for */
    size_t total, fresh;           /* small chunks: in all lots; in what never was taken from one */
    struct chunk_lot *at;          /* the cursor: a lot (NULL: before the first), and ... */
    size_t offset;                 /* ... how far in it, in small chunks */
    size_t in_vain;      /* so often none need be looked for: nothing was found (bucket_thin.c) */
    unsigned refused;    /* so often the system need not be asked: it had none */
    struct crowd *crowd; /* whom to tell what changes its slot within its bucket; or NULL */
};

/* ---- heads ---- */

#define RING_USED_SHIFT 48
#define RING_ROOM_SHIFT 56
#define RING_USED_UNIT  (UINT64_C(1) << RING_USED_SHIFT)
#define RING_ROOM_UNIT  (UINT64_C(1) << RING_ROOM_SHIFT)
#define RING_USED_MASK  0x3f
#define RING_ONE_MORE   (RING_USED_UNIT + 1)
#define RING_SHARED     (UINT64_C(1) << 55) /* a chunk: others may empty a slot of it */
#define RING_LIVE_MASK  (RING_USED_UNIT - 1)

static inline struct ring *ring_next(const struct ring *ring)
{
    return load_relaxed(&ring->next);
}

static inline struct ring *ring_prev(const struct ring *ring)
{
    return load_relaxed(&ring->prev);
}

static inline void ring_link(struct ring *before, struct ring *after)
{
    store_relaxed(&before->next, after);
    store_relaxed(&after->prev, before);
}

/* At most so many timeouts are in a chunk; in a bucket with its chunks: bucket_at_most. */
static inline uint32_t ring_live(const struct ring *ring)
{
    return (uint32_t)(load_relaxed(&ring->fill) & RING_LIVE_MASK);
}

/* A chunk: slots ever filled. */
static inline unsigned fill_used(uint64_t fill)
{
    return (unsigned)(fill >> RING_USED_SHIFT) & RING_USED_MASK;
}

static inline unsigned ring_used(const struct ring *ring)
{
    return fill_used(load_relaxed(&ring->fill));
}

/* A chunk: slots in all; a bucket: 0, which tells it apart. */
static inline unsigned fill_room(uint64_t fill)
{
    return (unsigned)(fill >> RING_ROOM_SHIFT);
}

static inline unsigned ring_room(const struct ring *ring)
{
    return fill_room(load_relaxed(&ring->fill));
}

static inline void ring_set(struct ring *ring, uint64_t live, uint64_t used, uint64_t room)
{
    store_relaxed(&ring->fill, live + used * RING_USED_UNIT + room * RING_ROOM_UNIT);
}

/* The room stays, and whether it is shared. */
static inline void ring_set_filled(struct ring *ring, uint64_t live, uint64_t used)
{
    uint64_t rest = load_relaxed(&ring->fill) & ~(RING_LIVE_MASK | RING_USED_MASK * RING_USED_UNIT);

    store_relaxed(&ring->fill, rest + live + used * RING_USED_UNIT);
}

static inline void ring_set_live(struct ring *ring, uint64_t live)
{
    store_relaxed(&ring->fill, (load_relaxed(&ring->fill) & ~RING_LIVE_MASK) | live);
}

/* False: only the worker makes holes in this chunk, so that ring_live is exact. */
static inline bool ring_is_shared(const struct ring *ring)
{
    return load_relaxed(&ring->fill) & RING_SHARED;
}

static inline void ring_share(struct ring *ring)
{
    store_relaxed(&ring->fill, load_relaxed(&ring->fill) | RING_SHARED);
}

static inline bool ring_is_chunk(const struct ring *ring)
{
    return ring_room(ring) != 0;
}

/* ---- the store ---- */

void chunk_store_init(struct chunk_store *store);
void chunk_store_destroy(struct chunk_store *store);
/* Sees to it that small chunks, or large ones instead of four each, are free. 0 or -ENOMEM. */
int chunk_store_reserve(struct chunk_store *store, size_t small);

/* Empty. May be small although a large one is wanted. NULL: no memory. */
struct chunk *chunk_take(struct chunk_store *store, bool large);
/* It may have been long ago that the system had no memory. */
static inline void chunk_ask_again(struct chunk_store *store)
{
    store->refused = 0;
}
/* Would the next one be of those that were never used, or come from malloc? */
bool chunk_next_is_fresh(const struct chunk_store *store);
/* The same, but only if that takes no memory. */
struct chunk *chunk_take_free_small(struct chunk_store *store);
void chunk_give(struct chunk_store *store, struct chunk *chunk);

/* Will another lot be needed soon? Only of those that are as large as any. */
bool chunk_is_low(const struct chunk_store *store);
static inline bool chunk_runs_low(const struct chunk_store *store)
{
    return unlikely(store->half_open) && chunk_is_low(store);
}
/* Of what kind are lots that come without the following. */
static inline void chunk_choose_pages(struct chunk_store *store, bool small)
{
    store->small_pages = small;
}
/*
 * Another lot, and its pages, which whoever takes its first chunk would have to wait for. `small`:
 * it is of small pages, as are those that come without this before another choice.
 */
void chunk_make_ready(struct chunk_store *store, bool small);

/*
 * The cursor goes on, by one chunk; those that were never used it leaves out. *units: the size of
 * that in small chunks. NULL: it is free, or the cursor has come round (*units: 0).
 */
struct chunk *chunk_cursor_next(struct chunk_store *store, size_t *units);

/* No stamp of a timeout in it is below. */
static inline uint64_t chunk_least(const struct chunk *chunk)
{
    return ~load_relaxed(&chunk->bound);
}

static inline void chunk_lower_least(struct chunk *chunk, uint64_t stamp)
{
    store_relaxed(&chunk->bound, max_u64(load_relaxed(&chunk->bound), ~stamp)); /* no branch */
}

static inline struct chunk *chunk_of(struct ring *ring)
{
    return container_of(ring, struct chunk, ring);
}

/* Fetches the lines of a small one; of a large one its head. */
HOT void chunk_prefetch(const struct ring *chunk)
{
    for (unsigned i = 0; i < CHUNK_SMALL_SIZE; i += CACHE_LINE)
        __builtin_prefetch((const char *)chunk + i, 1);
}

/* Into a ring: behind a chunk, or the bucket, which may have none yet. */
static inline void chunk_link(struct ring *before, struct chunk *chunk)
{
    struct ring *after = ring_next(before) ? ring_next(before) : before;

    ring_link(&chunk->ring, after);
    ring_link(before, &chunk->ring);
}

/* Out of its ring, and free. */
static inline void chunk_unlink(struct chunk_store *store, struct chunk *chunk)
{
    ring_link(ring_prev(&chunk->ring), ring_next(&chunk->ring));
    chunk_give(store, chunk);
}

static inline bool chunk_is_large(const struct chunk *chunk)
{
    return ring_room(&chunk->ring) == CHUNK_LARGE_ROOM;
}

#endif
