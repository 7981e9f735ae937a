/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hierarchical wheel (Varghese and Lauck's scheme 7; Linux, Kafka), tickless.
 *
 * Slot s of level l stands for the ticks t with t >> (bits * l) == s; level 0 has a slot for each
 * tick. Every level is a ring of twice 2^bits slots: the window the current tick is in, and the
 * next one. So what a slot of level l holds can come down to level l - 1 at any time while the
 * window before it lasts, a few timeouts per tick (trickle), and no tick has to bring a whole slot
 * down at once (the cascade burst). Invariant: at every level above 0 the slot that the current
 * tick is in is empty.
 *
 * Each level keeps a bitmap of occupied slots, each bucket a lower bound of its deadlines: the next
 * deadline is a few bit scans away, and idle ticks cost nothing. A bucket may be empty although its
 * bit is set (removal does not know the slot): the bit is cleared by whoever comes by.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap.h"
#include "wheel.h"

#define TRICKLE_LEAST 32   /* timeouts per level and expired tick that come down ahead of time */
#define PREPARE_ABOVE 2048 /* a slot with more is worth a wake-up ahead of its first deadline */
#define PREPARE_STEP  1024
#define SCAN_UP_TO    16 /* a bucket with no more is looked through for its true earliest */

struct level {
    struct bucket *slot;
    struct bitmap occupied;
};

struct hierarchical {
    struct wheel wheel;
    unsigned bits; /* of a level: half of its ring */
    unsigned levels;
    void *memory;
    struct level level[];
};

static struct hierarchical *hierarchical(struct wheel *wheel)
{
    return container_of(wheel, struct hierarchical, wheel);
}

/* ---- geometry ---- */

static uint64_t slot_of_tick(const struct hierarchical *w, unsigned level, uint64_t tick)
{
    return tick >> (w->bits * level);
}

static size_t ring_index(const struct hierarchical *w, uint64_t slot)
{
    return (size_t)(slot & ((UINT64_C(2) << w->bits) - 1));
}

static struct bucket *bucket_at(struct hierarchical *w, unsigned level, uint64_t slot)
{
    return &w->level[level].slot[ring_index(w, slot)];
}

static uint64_t current_slot(const struct hierarchical *w, unsigned level)
{
    return slot_of_tick(w, level, w->wheel.current);
}

static void mark_empty(struct hierarchical *w, unsigned level, uint64_t slot)
{
    bitmap_clear(&w->level[level].occupied, ring_index(w, slot));
}

/* The first slot of a level that holds something, from the current one on. */
static bool first_occupied(struct hierarchical *w, unsigned level, uint64_t *slot)
{
    struct bitmap *occupied = &w->level[level].occupied;
    uint64_t here = current_slot(w, level);
    size_t start = ring_index(w, here);

    for (;;) {
        size_t found = bitmap_next(occupied, start);
        if (found == BITMAP_NONE)
            found = bitmap_next(occupied, 0);
        if (found == BITMAP_NONE)
            return false;
        *slot = here + ring_index(w, found - start);
        if (!bucket_is_empty(&w->level[level].slot[found]))
            return true;
        bitmap_clear(occupied, found);
    }
}

/* ---- insertion ---- */

static bool insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline, uint64_t tick)
{
    struct hierarchical *w = hierarchical(wheel);
    unsigned level = 0;
    uint64_t slot;

    while (level + 1 < w->levels &&
           slot_of_tick(w, level + 1, tick) - current_slot(w, level + 1) > 1)
        level++;
    slot = slot_of_tick(w, level, tick);
    if (unlikely(!bucket_insert(bucket_at(w, level, slot), &wheel->store, timeout, deadline)))
        return false;
    bitmap_set(&w->level[level].occupied, ring_index(w, slot));
    return true;
}

/* ---- coming down ---- */

static void come_down(struct hierarchical *w, unsigned level, uint64_t slot, size_t most)
{
    struct bucket *bucket = bucket_at(w, level, slot);
    hwt_timeout *batch[BUCKET_BATCH];

    while (most > 0) {
        unsigned wanted = most < BUCKET_BATCH ? (unsigned)most : BUCKET_BATCH;
        unsigned count = bucket_take(bucket, &w->wheel.store, batch, wanted);
        for (unsigned i = 0; i < count; i++)
            wheel_insert(&w->wheel, batch[i], word_deadline(load_relaxed(&batch[i]->word)));
        if (count < wanted) {
            mark_empty(w, level, slot);
            return;
        }
        most -= count;
    }
}

static void advance_to(struct hierarchical *w, uint64_t tick)
{
    bool same_window = slot_of_tick(w, 1, tick) == current_slot(w, 1);

    w->wheel.current = tick;
    if (same_window)
        return;
    for (unsigned level = w->levels; level-- > 1;) {
        uint64_t slot = current_slot(w, level);
        if (bitmap_test(&w->level[level].occupied, ring_index(w, slot)))
            come_down(w, level, slot, SIZE_MAX);
    }
}

/* Ticks until the slot after the current one is entered. */
static uint64_t ticks_left(const struct hierarchical *w, unsigned level)
{
    return ((current_slot(w, level) + 1) << (w->bits * level)) - w->wheel.current;
}

/* After a tick: a share of each level's next slot, so that it is empty when it is entered. */
static void trickle(struct hierarchical *w)
{
    for (unsigned level = 1; level < w->levels; level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (!bitmap_test(&w->level[level].occupied, ring_index(w, slot)))
            continue;
        come_down(w, level, slot,
                  (size_t)(bucket_at(w, level, slot)->head.live / ticks_left(w, level)) +
                      TRICKLE_LEAST);
    }
}

/* The tick at which a crowded slot should start to come down; UINT64_MAX: it can wait. */
static uint64_t prepare_tick(struct hierarchical *w, unsigned level, uint64_t slot)
{
    const struct bucket *bucket = bucket_at(w, level, slot);
    uint64_t first = slot << (w->bits * level); /* entering it brings all of it down */
    uint64_t ahead = bucket->head.live / PREPARE_STEP;
    uint64_t start;

    if (bucket->head.live <= PREPARE_ABOVE)
        return UINT64_MAX;
    start = first > ahead ? first - ahead : 0;
    return max_u64(start, (slot - 1) << (w->bits * level)); /* not before the window before it */
}

static void prepare_now(struct hierarchical *w)
{
    for (unsigned level = 1; level < w->levels; level++) {
        uint64_t slot;
        if (first_occupied(w, level, &slot) && slot == current_slot(w, level) + 1 &&
            prepare_tick(w, level, slot) <= w->wheel.current)
            come_down(w, level, slot, PREPARE_STEP);
    }
}

static uint64_t prepare(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t tick = UINT64_MAX, slot;

    for (unsigned level = 1; level < w->levels; level++) {
        if (first_occupied(w, level, &slot))
            tick = min_u64(tick, prepare_tick(w, level, slot));
    }
    return tick == UINT64_MAX ? UINT64_MAX : wheel_tick_time(wheel, tick);
}

/* ---- what comes next ---- */

/* Nothing is due before this tick. */
static uint64_t earliest_tick(struct hierarchical *w)
{
    uint64_t tick = UINT64_MAX, slot;

    for (unsigned level = 0; level < w->levels; level++) {
        if (first_occupied(w, level, &slot))
            tick = min_u64(tick, wheel_tick_of(&w->wheel, bucket_at(w, level, slot)->earliest));
    }
    return tick;
}

/* One whose deadline has left the slot keeps the others' bound from being exact: file it anew. */
static bool file_anew_if_moved(struct hierarchical *w, unsigned level, uint64_t slot)
{
    struct bucket *bucket = bucket_at(w, level, slot), moved;
    uint64_t tick = wheel_tick_of(&w->wheel, bucket->earliest);

    if (slot_of_tick(w, level, tick) == slot)
        return false;
    memset(&moved, 0, sizeof moved);
    bucket_move(&moved, bucket);
    mark_empty(w, level, slot);
    wheel_refile(&w->wheel, &moved, 0, &w->wheel.overdue);
    return true;
}

/* Only what may be below `best` is worth looking through. */
static uint64_t level_earliest(struct hierarchical *w, unsigned level, uint64_t best, bool exact,
                               bool *moved)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot)) {
        struct bucket *bucket = bucket_at(w, level, slot);
        if (bucket->earliest >= best || (!exact && bucket->head.live > SCAN_UP_TO))
            return bucket->earliest;
        bucket->earliest = wheel_scan(bucket);
        if (!file_anew_if_moved(w, level, slot))
            return bucket->earliest;
        *moved = true;
    }
    return UINT64_MAX;
}

static uint64_t earliest(struct wheel *wheel, bool exact)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t best;
    bool moved;

    do { /* again if some were filed anew: maybe in a level that had been looked at */
        best = UINT64_MAX;
        moved = false;
        for (unsigned level = 0; level < w->levels; level++)
            best = min_u64(best, level_earliest(w, level, best, exact, &moved));
    } while (moved);
    return best;
}

/* ---- expiry ---- */

static bool take_tick(struct hierarchical *w, uint64_t tick, struct bucket *due)
{
    struct bucket *bucket = bucket_at(w, 0, tick);

    mark_empty(w, 0, tick);
    bucket_move(due, bucket);
    w->wheel.due_limit = wheel_tick_time(&w->wheel, tick);
    advance_to(w, tick + 1);
    trickle(w);
    return true;
}

static bool expire(struct wheel *wheel, uint64_t limit, struct bucket *due)
{
    struct hierarchical *w = hierarchical(wheel);

    while (wheel->current <= limit) {
        uint64_t window_end = wheel->current | ((UINT64_C(1) << w->bits) - 1);
        uint64_t end = min_u64(limit, window_end);
        uint64_t tick, next = end + 1;

        if (first_occupied(w, 0, &tick) && tick <= end)
            return take_tick(w, tick, due);
        if (next <= limit) /* over empty windows in one step */
            next = max_u64(next, min_u64(earliest_tick(w), limit + 1));
        advance_to(w, next);
    }
    prepare_now(w);
    return false;
}

static void expire_part(struct wheel *wheel, uint64_t now, struct bucket *due)
{
    struct hierarchical *w = hierarchical(wheel);
    struct bucket *bucket = bucket_at(w, 0, wheel->current), part;

    if (bucket_is_empty(bucket) || bucket->earliest > now)
        return;
    memset(&part, 0, sizeof part);
    bucket_move(&part, bucket);
    mark_empty(w, 0, wheel->current);
    wheel_refile(wheel, &part, now, due);
}

/* ---- the rest ---- */

static hwt_timeout *pop(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t slot;

    for (unsigned level = 0; level < w->levels; level++) {
        if (first_occupied(w, level, &slot))
            return bucket_pop(bucket_at(w, level, slot), &wheel->store);
    }
    return NULL;
}

static size_t check(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    size_t total = 0, ring = (size_t)2 << w->bits;

    for (unsigned level = 0; level < w->levels; level++) {
        for (size_t i = 0; i < ring; i++) {
            size_t count = bucket_check(&w->level[level].slot[i]);
            hwt_assert(count == 0 || bitmap_test(&w->level[level].occupied, i));
            hwt_assert(count == 0 || level == 0 || i != ring_index(w, current_slot(w, level)));
            total += count;
        }
    }
    return total;
}

static void destroy(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);

    free(w->memory);
    free(w);
}

static const struct wheel_ops ops = {
    .insert = insert,
    .expire = expire,
    .expire_part = expire_part,
    .earliest = earliest,
    .prepare = prepare,
    .pop = pop,
    .check = check,
    .destroy = destroy,
};

static unsigned bits_of(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

int wheel_hierarchical_create(struct wheel **wheel, uint64_t tick_ns, uint32_t slots, uint64_t now)
{
    unsigned bits = slots > 1 ? bits_of(slots) - 1 : 1;
    unsigned levels = (bits_of(DEADLINE_NEVER / tick_ns + 1) + bits - 1) / bits;
    size_t ring = (size_t)2 << bits, words = bitmap_words(ring), size;
    struct hierarchical *w;
    char *memory;

    if (levels < 2)
        levels = 2;
    size = (sizeof *w + levels * sizeof w->level[0] + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    w = aligned_alloc(CACHE_LINE, size);
    if (!w)
        return -ENOMEM;
    memset(w, 0, size);
    w->memory =
        calloc(1, levels * (ring * sizeof(struct bucket) + words * sizeof(uint64_t)) + CACHE_LINE);
    if (!w->memory) {
        free(w);
        return -ENOMEM;
    }
    memory = (char *)(((uintptr_t)w->memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    w->bits = bits;
    w->levels = levels;
    for (unsigned i = 0; i < levels; i++, memory += ring * sizeof(struct bucket))
        w->level[i].slot = (struct bucket *)(void *)memory;
    for (unsigned i = 0; i < levels; i++, memory += words * sizeof(uint64_t))
        bitmap_init(&w->level[i].occupied, ring, (uint64_t *)(void *)memory);
    wheel_init(&w->wheel, &ops, tick_ns, now);
    *wheel = &w->wheel;
    return 0;
}
