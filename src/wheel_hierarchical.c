/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hierarchical wheel (Varghese and Lauck's scheme 7; Linux, Kafka), tickless.
 *
 * Slot s of a level stands for the ticks t with t >> shift == s. Level 0 has a slot for each tick,
 * and four times as many as the levels above (2048 instead of 512), so that most timeouts are
 * filed once and never cascade. Every level is a ring of twice its slots: the window the current
 * tick is in, and the next one. So what a slot of level l holds can come down to level l - 1 at any
 * time while the window before it lasts, a few timeouts per tick (trickle), and no tick has to
 * bring a whole slot down at once (the cascade burst). Invariant: at every level above 0 the slot
 * that the current tick is in is empty.
 *
 * Each level keeps a bitmap of occupied slots, each bucket a lower bound of its deadlines: the next
 * deadline is a few bit scans away, and idle ticks cost nothing. A bucket may be empty although its
 * bit is set (removal does not know the slot), or have nothing but chunks of holes: the bit is
 * cleared by whoever comes by.
 */
#include <stdlib.h>

#include "bitmap.h"
#include "wheel.h"

#define TRICKLE_LEAST 32   /* timeouts per level and expired tick that come down ahead of time */
#define PREPARE_ABOVE 2048 /* a slot with more is worth a wake-up ahead of its first deadline */
#define PREPARE_STEP  1024
#define WIDER_BITS    2  /* the lowest level has so many more than the others ... */
#define LOWEST_BITS   11 /* ... up to this */

struct level {
    uint64_t first; /* no slot before it holds anything; UINT64_MAX: none does */
    uint64_t end;   /* the first tick that is too far for it; UINT64_MAX: none is */
    /* never changes, but for what the buckets and the bitmap hold */
    unsigned shift; /* a slot is as wide as 2^shift ticks */
    size_t mask;    /* of its ring */
    struct bucket *slot;
    struct bitmap occupied;
};

struct hierarchical {
    struct wheel wheel;
    uint64_t coming; /* no slot above level 0 can come down before this tick */
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
    return tick >> w->level[level].shift;
}

static size_t ring_index(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return (size_t)slot & w->level[level].mask;
}

static uint64_t first_tick(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return slot << w->level[level].shift;
}

static uint64_t slot_width(const struct hierarchical *w, unsigned level)
{
    return UINT64_C(1) << w->level[level].shift;
}

static struct bucket *bucket_at(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return &w->level[level].slot[ring_index(w, level, slot)];
}

static uint64_t current_slot(const struct hierarchical *w, unsigned level)
{
    return slot_of_tick(w, level, w->wheel.current);
}

static void mark_empty(struct hierarchical *w, unsigned level, uint64_t slot)
{
    bitmap_clear(&w->level[level].occupied, ring_index(w, level, slot));
}

/* What a slot holds can come down during the window before its own. */
static uint64_t coming_tick(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return first_tick(w, level, slot - 1);
}

static void mark_occupied(struct hierarchical *w, unsigned level, uint64_t slot)
{
    struct level *l = &w->level[level];

    bitmap_set(&l->occupied, ring_index(w, level, slot));
    l->first = min_u64(l->first, slot);
    if (level > 0)
        w->coming = min_u64(w->coming, coming_tick(w, level, slot));
}

static bool is_marked(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return slot >= w->level[level].first &&
           bitmap_test(&w->level[level].occupied, ring_index(w, level, slot));
}

/* The first slot that is marked, round the ring from this one on. UINT64_MAX: none is. */
static uint64_t marked_from(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    const struct bitmap *occupied = &w->level[level].occupied;
    size_t start = ring_index(w, level, slot), found;

    if (bitmap_is_empty(occupied))
        return UINT64_MAX;
    found = bitmap_next(occupied, start);
    if (found == BITMAP_NONE)
        found = bitmap_next(occupied, 0);
    return slot + ring_index(w, level, found - start);
}

/* The first slot of a level that holds something, from the current one on. */
static bool first_occupied(struct hierarchical *w, unsigned level, uint64_t *slot)
{
    struct level *l = &w->level[level];

    while (l->first != UINT64_MAX) {
        uint64_t from = max_u64(l->first, current_slot(w, level));
        *slot = l->first = is_marked(w, level, from) ? from : marked_from(w, level, from);
        if (*slot != UINT64_MAX && !bucket_is_empty(bucket_at(w, level, *slot)))
            return true;
        if (*slot != UINT64_MAX)
            mark_empty(w, level, *slot);
    }
    return false;
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
    unsigned level;

    for (level = 0; level + 1 < w->levels; level++)
        w->level[level].end = first_tick(w, level + 1, slot_of_tick(w, level + 1, current) + 2);
    w->level[level].end = UINT64_MAX;
}

static struct bucket *bucket_of(const struct wheel *wheel, uint64_t tick)
{
    const struct hierarchical *w = container_of(wheel, const struct hierarchical, wheel);
    unsigned level = level_of_tick(w, tick);

    return bucket_at(w, level, slot_of_tick(w, level, tick));
}

static _Atomic uint64_t *insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline,
                                uint64_t tick)
{
    struct hierarchical *w = hierarchical(wheel);
    unsigned level = level_of_tick(w, tick);
    uint64_t slot = slot_of_tick(w, level, tick);
    _Atomic uint64_t *filled =
        wheel_bucket_insert(wheel, bucket_at(w, level, slot), timeout, deadline);

    if (likely(filled != NULL))
        mark_occupied(w, level, slot);
    return filled;
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

static void come_down(struct hierarchical *w, unsigned level, uint64_t slot, size_t most)
{
    struct bucket *bucket = bucket_at(w, level, slot);
    uint64_t batch[BUCKET_BATCH];

    while (most > 0) {
        unsigned wanted = most < BUCKET_BATCH ? (unsigned)most : BUCKET_BATCH;
        unsigned count = bucket_take(bucket, &w->wheel.store, batch, wanted, NULL);
        if (count == 0) {
            mark_empty(w, level, slot);
            return;
        }
        packed_prefetch(batch, count);
        bucket_prefetch_timeouts(bucket); /* for the next time */
        file_lower(w, batch, count);
        most -= count;
    }
    if (bucket_is_empty(bucket))
        mark_empty(w, level, slot);
}

static void advance_to(struct hierarchical *w, uint64_t tick)
{
    bool same_window = slot_of_tick(w, 1, tick) == current_slot(w, 1);

    w->wheel.current = tick;
    if (same_window)
        return;
    set_ends(w, tick);
    for (unsigned level = w->levels; level-- > 1;) {
        uint64_t slot = current_slot(w, level);
        if (is_marked(w, level, slot))
            come_down(w, level, slot, SIZE_MAX);
    }
}

/* Ticks until the slot after the current one is entered. */
static uint64_t ticks_left(const struct hierarchical *w, unsigned level)
{
    return first_tick(w, level, current_slot(w, level) + 1) - w->wheel.current;
}

/* A lower bound may have become too low: what it speaks of has come down, or was withdrawn. */
static bool is_any_coming(struct hierarchical *w)
{
    uint64_t slot;

    if (w->wheel.current < w->coming)
        return false;
    w->coming = UINT64_MAX;
    for (unsigned level = 1; level < w->levels; level++) {
        if (first_occupied(w, level, &slot))
            w->coming = min_u64(w->coming, coming_tick(w, level, slot));
    }
    return w->wheel.current >= w->coming;
}

/* After a tick: a share of each level's next slot, so that it is empty when it is entered. */
static void trickle(struct hierarchical *w)
{
    if (!is_any_coming(w))
        return;
    for (unsigned level = 1; level < w->levels; level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (is_marked(w, level, slot))
            come_down(w, level, slot,
                      (size_t)(bucket_at_most(bucket_at(w, level, slot)) / ticks_left(w, level)) +
                          TRICKLE_LEAST);
    }
}

static bool is_crowded(const struct hierarchical *w, unsigned level, uint64_t slot)
{
    return bucket_at_most(bucket_at(w, level, slot)) > PREPARE_ABOVE;
}

/* The tick at which a crowded slot should start to come down; UINT64_MAX: it can wait. */
static uint64_t prepare_tick(struct hierarchical *w, unsigned level, uint64_t slot)
{
    const struct bucket *bucket = bucket_at(w, level, slot);
    uint64_t first = first_tick(w, level, slot); /* entering it brings all of it down */
    uint64_t ahead = bucket_at_most(bucket) / PREPARE_STEP;
    uint64_t start;

    if (!is_crowded(w, level, slot))
        return UINT64_MAX;
    start = first > ahead ? first - ahead : 0;
    return max_u64(start, first_tick(w, level, slot - 1)); /* not before the window before it */
}

static void prepare_now(struct hierarchical *w)
{
    if (!is_any_coming(w))
        return;
    for (unsigned level = 1; level < w->levels; level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (is_marked(w, level, slot) && prepare_tick(w, level, slot) <= w->wheel.current)
            come_down(w, level, slot, PREPARE_STEP);
    }
}

/* Of what is next at this level. What has been withdrawn as a whole is worth no wake-up. */
static uint64_t prepare_level_tick(struct hierarchical *w, unsigned level)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot) && is_crowded(w, level, slot)) {
        if (bucket_has_any(bucket_at(w, level, slot), &w->wheel.store))
            return prepare_tick(w, level, slot);
        mark_empty(w, level, slot);
    }
    return UINT64_MAX;
}

static uint64_t prepare_at(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t tick = UINT64_MAX;

    for (unsigned level = 1; level < w->levels; level++)
        tick = min_u64(tick, prepare_level_tick(w, level));
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
    struct bucket *bucket = bucket_at(w, level, slot), *anew = &w->wheel.anew;
    uint64_t tick = wheel_tick_of(&w->wheel, bucket->earliest);

    if (slot_of_tick(w, level, tick) == slot)
        return false;
    bucket_move(anew, bucket);
    mark_empty(w, level, slot);
    wheel_refile(&w->wheel, anew, 0, NULL);
    return true;
}

/* No deadline above level 0 is below this. */
static uint64_t begin_above(const struct hierarchical *w)
{
    uint64_t narrowest = slot_width(w, 1);

    if (w->coming >= UINT64_MAX - narrowest)
        return UINT64_MAX;
    return wheel_tick_time(&w->wheel, w->coming + narrowest - 1);
}

/* Only what may be below `best` is worth looking through. */
static uint64_t level_earliest(struct hierarchical *w, unsigned level, uint64_t best,
                               struct sighting *who, bool *moved)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot)) {
        struct bucket *bucket = bucket_at(w, level, slot);
        struct sighting found;
        if (bucket->earliest >= best)
            return best;
        if (bucket_has_chunks(bucket) && !bucket_has_any(bucket, &w->wheel.store)) {
            mark_empty(w, level, slot);
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
        for (unsigned level = 0; level < w->levels; level++) {
            if (level > 0 && begin_above(w) >= best)
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
    mark_empty(w, 0, tick);
    wheel_cover(&w->wheel, tick, bucket_at(w, 0, tick));
}

static bool expire(struct wheel *wheel, uint64_t limit)
{
    struct hierarchical *w = hierarchical(wheel);

    while (wheel->current <= limit) {
        uint64_t window_end = first_tick(w, 1, current_slot(w, 1) + 1) - 1;
        uint64_t end = min_u64(limit, window_end);
        uint64_t tick, next = end + 1;

        if (first_occupied(w, 0, &tick) && tick <= end) {
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
    return bucket_at(hierarchical(wheel), 0, wheel->current);
}

static void take_current(struct wheel *wheel)
{
    take_tick(hierarchical(wheel), wheel->current);
}

/*
 * In two steps, from pass to pass: the timeouts of the tick after the next, then what the tasks of
 * the next one will be called with. Full buckets are left to whoever takes their timeouts out.
 */
static void foresee(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    const struct level *lowest = &w->level[0];
    size_t next = bitmap_next(&lowest->occupied, ring_index(w, 0, wheel->current));

    if (next == BITMAP_NONE)
        return;
    bucket_prefetch_arguments(&lowest->slot[next]);
    next = bitmap_next(&lowest->occupied, next + 1);
    if (next != BITMAP_NONE)
        bucket_prefetch_timeouts(&lowest->slot[next]);
}

/* ---- the rest ---- */

static hwt_timeout *pop(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t slot;

    for (unsigned level = 0; level < w->levels; level++) {
        while (first_occupied(w, level, &slot)) {
            hwt_timeout *timeout = bucket_pop(bucket_at(w, level, slot), &wheel->store);
            if (timeout)
                return timeout;
        }
    }
    return NULL;
}

static void show_all(struct wheel *wheel, bucket_see *see, void *context)
{
    struct hierarchical *w = hierarchical(wheel);

    for (unsigned level = 0; level < w->levels; level++) {
        for (size_t i = 0; i <= w->level[level].mask; i++)
            bucket_visit(&w->level[level].slot[i], see, context, &wheel->shown);
    }
}

static size_t check(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    size_t total = 0;

    for (unsigned level = 0; level < w->levels; level++) {
        uint64_t here = current_slot(w, level);
        for (uint64_t slot = here; slot - here <= w->level[level].mask; slot++) {
            size_t count = bucket_check(bucket_at(w, level, slot));
            hwt_assert(count == 0 || is_marked(w, level, slot));
            hwt_assert(count == 0 || level == 0 || slot != here);
            hwt_assert(count == 0 || level == 0 || w->coming <= coming_tick(w, level, slot));
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

static unsigned bits_of(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

/* A lowest level that is wider brings most timeouts to their slot at once, without a cascade. */
static unsigned lowest_bits(unsigned bits)
{
    return bits >= LOWEST_BITS ? bits : (unsigned)min_u64(bits + WIDER_BITS, LOWEST_BITS);
}

/* A level of 2^bits slots and as many again; the memory behind it. */
static char *level_init(struct level *level, unsigned shift, unsigned bits, char *memory)
{
    size_t ring = (size_t)2 << bits;

    level->first = UINT64_MAX;
    level->shift = shift;
    level->mask = ring - 1;
    level->slot = (struct bucket *)(void *)memory;
    memory += ring * sizeof(struct bucket);
    bitmap_init(&level->occupied, ring, (uint64_t *)(void *)memory);
    memory += bitmap_words(ring) * sizeof(uint64_t);
    return align_to_line(memory);
}

static size_t level_size(unsigned bits)
{
    size_t ring = (size_t)2 << bits;
    return ring * sizeof(struct bucket) + bitmap_words(ring) * sizeof(uint64_t) + CACHE_LINE;
}

static struct wheel *create(uint64_t tick_ns, uint32_t slots, uint64_t current)
{
    unsigned bits = slots > 1 ? bits_of(slots) - 1 : 1, lowest = lowest_bits(bits);
    unsigned reach = bits_of(DEADLINE_NEVER / tick_ns + 1); /* bits of a tick */
    unsigned levels = reach > lowest + bits ? 1 + (reach - lowest + bits - 1) / bits : 2;
    struct hierarchical *w =
        wheel_alloc(sizeof(struct hierarchical) + levels * sizeof(struct level));
    char *memory;

    if (!w)
        return NULL;
    w->memory = calloc(1, level_size(lowest) + (levels - 1) * level_size(bits) + CACHE_LINE);
    if (!w->memory) {
        free(w);
        return NULL;
    }
    w->levels = levels;
    w->coming = UINT64_MAX;
    memory = level_init(&w->level[0], 0, lowest, align_to_line(w->memory));
    for (unsigned i = 1; i < levels; i++)
        memory = level_init(&w->level[i], lowest + (i - 1) * bits, bits, memory);
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
