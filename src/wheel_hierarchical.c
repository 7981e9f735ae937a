/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hierarchical wheel (Varghese and Lauck's scheme 7; Linux, Kafka), tickless.
 *
 * Slot s of a level stands for the ticks t with t >> shift == s. Level 0 has a slot for each tick.
 * The two lowest levels have four times as many slots as those above (2048 instead of 512): so most
 * timeouts are filed once and never cascade, and nearly all others cascade once (at a tick of a
 * millisecond, what is due within the hour). Every level is a ring of twice its slots: the window
 * the current tick is in, and the next one. So what a slot of level l holds can come down to level
 * l - 1 at any time while the window before it lasts, a few timeouts per tick (trickle), and no
 * tick has to bring a whole slot down at once (the cascade burst). Invariant: at every level above
 * 0 the slot that the current tick is in is empty.
 *
 * Each level knows which of its slots are occupied (level.h), each bucket a lower bound of its
 * deadlines: the next deadline is a few bit scans away, and idle ticks cost nothing.
 */
#include <stdlib.h>

#include "level.h"
#include "platform.h"
#include "wheel.h"

#define TRICKLE_LEAST 32   /* timeouts per level and expired tick that come down ahead of time */
#define PREPARE_ABOVE 2048 /* a slot with more is worth a wake-up ahead of its first deadline */
#define PREPARE_STEP  1024
#define WIDE          2  /* so many levels, the lowest, ... */
#define WIDER_BITS    2  /* ... have so many bits more than the others ... */
#define WIDE_BITS     11 /* ... up to this */

struct hierarchical {
    struct wheel wheel;
    uint64_t coming; /* no slot above level 0 can come down before this tick */
    unsigned levels;
    char *memory; /* of all levels; mapped */
    size_t size;
    struct level level[];
};

static struct hierarchical *hierarchical(struct wheel *wheel)
{
    return container_of(wheel, struct hierarchical, wheel);
}

/* One behind the highest level. */
static struct level *levels_end(struct hierarchical *w)
{
    return &w->level[w->levels];
}

static uint64_t current_slot(const struct hierarchical *w, const struct level *level)
{
    return level_slot_of(level, w->wheel.current);
}

static bool first_occupied(const struct hierarchical *w, struct level *level, uint64_t *slot)
{
    return level_first_occupied(level, w->wheel.current, slot);
}

/* What a slot above level 0 holds can come down during the window before its own. */
static uint64_t coming_tick(const struct level *level, uint64_t slot)
{
    return level_first_tick(level, slot - 1);
}

static void mark_occupied(struct hierarchical *w, struct level *level, uint64_t slot)
{
    level_mark_occupied(level, slot);
    if (level != w->level)
        w->coming = min_u64(w->coming, coming_tick(level, slot));
}

/* ---- insertion ---- */

/* The lowest level whose ring reaches that far. */
static unsigned level_of_tick(const struct hierarchical *w, uint64_t tick)
{
    unsigned level = 0;

    while (tick >= w->level[level].end)
        level++;
    return level;
}

/* Each reaches to the end of the window after the current one. */
static void set_ends(struct hierarchical *w, uint64_t current)
{
    struct level *level;

    for (level = w->level; level + 1 < levels_end(w); level++)
        level->end = level_first_tick(level + 1, level_slot_of(level + 1, current) + 2);
    level->end = UINT64_MAX;
}

static struct bucket *bucket_of(const struct wheel *wheel, uint64_t tick)
{
    const struct hierarchical *w = container_of(wheel, const struct hierarchical, wheel);
    const struct level *level = &w->level[level_of_tick(w, tick)];

    return level_bucket(level, level_slot_of(level, tick));
}

/* Into a bucket that has no chunk with room. */
static __attribute__((noinline)) _Atomic uint64_t *
insert_further(struct hierarchical *w, struct level *level, uint64_t slot, hwt_timeout *timeout,
               uint64_t deadline)
{
    _Atomic uint64_t *filled =
        wheel_bucket_insert(&w->wheel, level_bucket(level, slot), timeout, deadline);

    if (likely(filled != NULL))
        mark_occupied(w, level, slot);
    return filled;
}

/* What has chunks is marked, until they are gone. */
static _Atomic uint64_t *insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline,
                                uint64_t tick)
{
    struct hierarchical *w = hierarchical(wheel);
    struct level *level = &w->level[level_of_tick(w, tick)];
    uint64_t slot = level_slot_of(level, tick);
    struct bucket *bucket = level_bucket(level, slot);

    if (unlikely(!bucket_room(bucket)))
        return insert_further(w, level, slot, timeout, deadline);
    return wheel_bucket_insert(wheel, bucket, timeout, deadline);
}

/* ---- coming down ---- */

static void file_lower(struct hierarchical *w, const uint64_t *packed, unsigned count)
{
    hwt_timeout *batch[BUCKET_BATCH];

    for (unsigned i = 0; i < count; i++)
        batch[i] = packed_timeout(packed[i]);
    wheel_expect(&w->wheel, batch, count);
    for (unsigned i = 0; i < count; i++)
        wheel_insert(&w->wheel, batch[i], timeout_deadline(batch[i]));
}

static void come_down(struct hierarchical *w, struct level *level, uint64_t slot, size_t most)
{
    struct bucket *bucket = level_bucket(level, slot);
    uint64_t batch[BUCKET_BATCH];

    while (most > 0) {
        unsigned wanted = most < BUCKET_BATCH ? (unsigned)most : BUCKET_BATCH;
        unsigned count = bucket_take(bucket, &w->wheel.store, batch, wanted, NULL);
        if (count == 0) {
            level_mark_empty(level, slot);
            return;
        }
        packed_prefetch(batch, count);
        bucket_prefetch_timeouts(bucket); /* for the next time */
        file_lower(w, batch, count);
        most -= count;
    }
    if (bucket_is_empty(bucket))
        level_mark_empty(level, slot);
}

static void advance_to(struct hierarchical *w, uint64_t tick)
{
    const struct level *above = &w->level[1];
    bool same_window = level_slot_of(above, tick) == current_slot(w, above);

    w->wheel.current = tick;
    if (same_window)
        return;
    set_ends(w, tick);
    for (struct level *level = levels_end(w); --level > w->level;) {
        uint64_t slot = current_slot(w, level);
        if (level_is_marked(level, slot))
            come_down(w, level, slot, SIZE_MAX);
    }
}

/* Ticks until the slot after the current one is entered. */
static uint64_t ticks_left(const struct hierarchical *w, const struct level *level)
{
    return level_first_tick(level, current_slot(w, level) + 1) - w->wheel.current;
}

/* A lower bound may have become too low: what it speaks of has come down, or was withdrawn. */
static bool is_any_coming(struct hierarchical *w)
{
    uint64_t slot;

    if (w->wheel.current < w->coming)
        return false;
    w->coming = UINT64_MAX;
    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        if (first_occupied(w, level, &slot))
            w->coming = min_u64(w->coming, coming_tick(level, slot));
    }
    return w->wheel.current >= w->coming;
}

/* After a tick: a share of each level's next slot, so that it is empty when it is entered. */
static void trickle(struct hierarchical *w)
{
    if (!is_any_coming(w))
        return;
    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (level_is_marked(level, slot))
            come_down(w, level, slot,
                      (size_t)(bucket_at_most(level_bucket(level, slot)) / ticks_left(w, level)) +
                          TRICKLE_LEAST);
    }
}

static bool is_crowded(const struct level *level, uint64_t slot)
{
    return bucket_at_most(level_bucket(level, slot)) > PREPARE_ABOVE;
}

/* The tick at which a crowded slot should start to come down; UINT64_MAX: it can wait. */
static uint64_t prepare_tick(const struct level *level, uint64_t slot)
{
    const struct bucket *bucket = level_bucket(level, slot);
    uint64_t first = level_first_tick(level, slot); /* entering it brings all of it down */
    uint64_t ahead = bucket_at_most(bucket) / PREPARE_STEP;
    uint64_t start;

    if (!is_crowded(level, slot))
        return UINT64_MAX;
    start = first > ahead ? first - ahead : 0;
    return max_u64(start, level_first_tick(level, slot - 1)); /* not before the window before it */
}

static void prepare_now(struct hierarchical *w)
{
    if (!is_any_coming(w))
        return;
    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (level_is_marked(level, slot) && prepare_tick(level, slot) <= w->wheel.current)
            come_down(w, level, slot, PREPARE_STEP);
    }
}

/* Of what is next at this level. What has been withdrawn as a whole is worth no wake-up. */
static uint64_t prepare_level_tick(struct hierarchical *w, struct level *level)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot) && is_crowded(level, slot)) {
        if (bucket_has_any(level_bucket(level, slot), &w->wheel.store))
            return prepare_tick(level, slot);
        level_mark_empty(level, slot);
    }
    return UINT64_MAX;
}

static uint64_t prepare_at(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t tick = UINT64_MAX;

    for (struct level *level = &w->level[1]; level < levels_end(w); level++)
        tick = min_u64(tick, prepare_level_tick(w, level));
    return tick == UINT64_MAX ? UINT64_MAX : wheel_tick_time(wheel, tick);
}

/* ---- what comes next ---- */

/* Nothing is due before this tick. */
static uint64_t earliest_tick(struct hierarchical *w)
{
    uint64_t tick = UINT64_MAX, slot;

    for (struct level *level = w->level; level < levels_end(w); level++) {
        if (first_occupied(w, level, &slot))
            tick = min_u64(tick, wheel_tick_of(&w->wheel, level_bucket(level, slot)->earliest));
    }
    return tick;
}

/* One whose deadline has left the slot keeps the others' bound from being exact: file it anew. */
static bool file_anew_if_moved(struct hierarchical *w, struct level *level, uint64_t slot)
{
    struct bucket *bucket = level_bucket(level, slot), *anew = &w->wheel.anew;
    uint64_t tick = wheel_tick_of(&w->wheel, bucket->earliest);

    if (level_slot_of(level, tick) == slot)
        return false;
    bucket_move(anew, bucket);
    level_mark_empty(level, slot);
    wheel_refile(&w->wheel, anew, 0, NULL);
    return true;
}

/* No deadline above level 0 is below this. */
static uint64_t begin_above(const struct hierarchical *w)
{
    uint64_t narrowest = level_slot_width(&w->level[1]);

    if (w->coming >= UINT64_MAX - narrowest)
        return UINT64_MAX;
    return wheel_tick_time(&w->wheel, w->coming + narrowest - 1);
}

/* Only what may be below `best` is worth looking through. */
static uint64_t level_earliest(struct hierarchical *w, struct level *level, uint64_t best,
                               struct sighting *who, bool *moved)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot)) {
        struct bucket *bucket = level_bucket(level, slot);
        struct sighting found;
        if (bucket->earliest >= best)
            return best;
        if (bucket_has_chunks(bucket) && !bucket_has_any(bucket, &w->wheel.store)) {
            level_mark_empty(level, slot);
            continue;
        }
        if (!who && bucket_at_most(bucket) > WHEEL_SCAN_UP_TO)
            return bucket->earliest;
        found = wheel_bucket_scan(&w->wheel, bucket);
        if (!found.slot)
            continue; /* they have just been withdrawn */
        if (!file_anew_if_moved(w, level, slot)) {
            if (who && bucket->earliest < best)
                *who = found;
            return bucket->earliest;
        }
        *moved = true;
    }
    return UINT64_MAX;
}

static uint64_t earliest(struct wheel *wheel, struct sighting *who)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t best;
    bool moved;

    do { /* again if some were filed anew: maybe in a level that had been looked at */
        best = UINT64_MAX;
        moved = false;
        if (who)
            *who = (struct sighting){NULL, 0, UINT64_MAX};
        for (struct level *level = w->level; level < levels_end(w); level++) {
            if (level != w->level && begin_above(w) >= best)
                break;
            best = min_u64(best, level_earliest(w, level, best, who, &moved));
        }
    } while (moved);
    return best;
}

static uint32_t sharing(const struct wheel *wheel, uint64_t deadline)
{
    return bucket_at_most(
        bucket_of(wheel, max_u64(wheel_tick_of(wheel, deadline), wheel->current)));
}

/* ---- expiry ---- */

static void take_tick(struct hierarchical *w, uint64_t tick)
{
    level_mark_empty(&w->level[0], tick);
    wheel_cover(&w->wheel, tick, level_bucket(&w->level[0], tick));
}

static bool expire(struct wheel *wheel, uint64_t limit)
{
    struct hierarchical *w = hierarchical(wheel);
    const struct level *above = &w->level[1];

    while (wheel->current <= limit) {
        uint64_t window_end = level_first_tick(above, current_slot(w, above) + 1) - 1;
        uint64_t end = min_u64(limit, window_end);
        uint64_t tick, next = end + 1;

        if (first_occupied(w, &w->level[0], &tick) && tick <= end) {
            take_tick(w, tick);
            advance_to(w, tick + 1); /* only now: its bucket may be filled anew */
            trickle(w);
            return true;
        }
        if (next <= limit) /* over empty windows in one step */
            next = max_u64(next, min_u64(earliest_tick(w), limit + 1));
        advance_to(w, next);
    }
    prepare_now(w);
    return false;
}

static const struct bucket *next_bucket(struct wheel *wheel)
{
    return level_bucket(&hierarchical(wheel)->level[0], wheel->current);
}

static void take_current(struct wheel *wheel)
{
    take_tick(hierarchical(wheel), wheel->current);
}

/*
 * In three steps, from pass to pass: of the third tick from here the chunk, of the one before its
 * timeouts, and of the next one what the tasks will be called with. Full buckets are left to
 * whoever takes their timeouts out.
 */
static void foresee(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    const struct level *lowest = &w->level[0];
    size_t next = bitmap_next(&lowest->occupied, level_ring_index(lowest, wheel->current));

    if (next == BITMAP_NONE)
        return;
    bucket_prefetch_arguments(&lowest->slot[next]);
    next = bitmap_next(&lowest->occupied, next + 1);
    if (next == BITMAP_NONE)
        return;
    bucket_prefetch_timeouts(&lowest->slot[next]);
    next = bitmap_next(&lowest->occupied, next + 1);
    if (next != BITMAP_NONE)
        bucket_prefetch_chunk(&lowest->slot[next]);
}

/* ---- the rest ---- */

static hwt_timeout *pop(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t slot;

    for (struct level *level = w->level; level < levels_end(w); level++) {
        while (first_occupied(w, level, &slot)) {
            hwt_timeout *timeout = bucket_pop(level_bucket(level, slot), &wheel->store);
            if (timeout)
                return timeout;
        }
    }
    return NULL;
}

static void show_all(struct wheel *wheel, bucket_see *see, void *context)
{
    struct hierarchical *w = hierarchical(wheel);

    for (struct level *level = w->level; level < levels_end(w); level++) {
        for (size_t i = 0; i <= level->mask; i++)
            bucket_visit(&level->slot[i], see, context, &wheel->shown);
    }
}

static size_t check(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    size_t total = 0;

    for (struct level *level = w->level; level < levels_end(w); level++) {
        uint64_t here = current_slot(w, level);
        for (uint64_t slot = here; slot - here <= level->mask; slot++) {
            struct bucket *bucket = level_bucket(level, slot);
            size_t count = bucket_check(bucket);
            hwt_assert(count == 0 || level_is_marked(level, slot));
            hwt_assert(!bucket_has_chunks(bucket) || level_is_marked(level, slot)); /* insert */
            hwt_assert(count == 0 || level == w->level || slot != here);
            hwt_assert(count == 0 || level == w->level || w->coming <= coming_tick(level, slot));
            total += count;
        }
    }
    return total;
}

static void destroy(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);

    platform_unmap(w->memory, w->size);
    free(w);
}

static unsigned bits_of(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

static unsigned wide_bits(unsigned bits)
{
    return bits >= WIDE_BITS ? bits : (unsigned)min_u64(bits + WIDER_BITS, WIDE_BITS);
}

static struct wheel *create(uint64_t tick_ns, uint32_t slots, uint64_t current)
{
    unsigned bits = slots > 1 ? bits_of(slots) - 1 : 1, wide = wide_bits(bits);
    unsigned reach = bits_of(DEADLINE_NEVER / tick_ns + 1); /* bits of a tick */
    unsigned levels = reach > 2 * wide ? WIDE + (reach - 2 * wide + bits - 1) / bits : WIDE;
    struct hierarchical *w =
        wheel_alloc(sizeof(struct hierarchical) + levels * sizeof(struct level));
    unsigned shift = 0;
    char *memory;

    if (!w)
        return NULL;
    w->size = WIDE * level_size(wide) + (levels - WIDE) * level_size(bits);
    w->memory = platform_map(w->size, CACHE_LINE); /* untouched, where nothing is ever filed */
    if (!w->memory) {
        free(w);
        return NULL;
    }
    w->levels = levels;
    w->coming = UINT64_MAX;
    memory = w->memory;
    for (unsigned i = 0; i < levels; i++) {
        unsigned own = i < WIDE ? wide : bits;
        memory = level_init(&w->level[i], shift, own, memory);
        shift += own;
    }
    set_ends(w, current);
    return &w->wheel;
}

HIDDEN const struct wheel_ops wheel_hierarchical;
HIDDEN const struct wheel_ops wheel_hierarchical = {
    .create = create,
    .destroy = destroy,
    .insert = insert,
    .bucket_of = bucket_of,
    .expire = expire,
    .next_bucket = next_bucket,
    .take_current = take_current,
    .earliest = earliest,
    .sharing = sharing,
    .prepare_at = prepare_at,
    .foresee = foresee,
    .pop = pop,
    .visit = show_all,
    .check = check,
};
