/* SPDX-License-Identifier: BSD-2-Clause */
/* What the hierarchical wheel files, and hands out (hierarchical.h). */
#include <stdlib.h>

#include "hierarchical.h"
#include "platform.h"

#define WIDE       2  /* so many levels, the lowest, ... */
#define WIDER_BITS 2  /* ... have so many bits more than the others ... */
#define WIDE_BITS  11 /* ... up to this */
#define MOST_BITS  15 /* of any level: a ring of 4 MB, since an empty one counts too (G6) */

static void mark_occupied(struct hierarchical *w, struct level *level, uint64_t slot)
{
    level_mark_occupied(level, slot);
    if (level != w->level)
        w->coming = min_u64(w->coming, coming_tick(level, slot));
}

/* ---- insertion ---- */

static struct bucket *bucket_of(const struct wheel *wheel, uint64_t tick)
{
    return place_of(container_of(wheel, const struct hierarchical, wheel), tick);
}

/* Into a bucket whose own slots do not do. */
static __attribute__((noinline)) _Atomic uint64_t *insert_in_chunk(struct hierarchical *w,
                                                                   struct level *level,
                                                                   uint64_t slot, uint64_t packed,
                                                                   uint64_t deadline)
{
    _Atomic uint64_t *filled =
        bucket_insert(level_bucket(level, slot), &w->wheel.store, packed, deadline);

    if (likely(filled != NULL))
        mark_occupied(w, level, slot);
    return filled;
}

/* What has chunks is marked, until they are gone; and what is marked is counted as coming. */
static _Atomic uint64_t *insert(struct wheel *wheel, uint64_t packed, uint64_t deadline,
                                uint64_t tick)
{
    struct hierarchical *w = hierarchical(wheel);
    struct level *level = &w->level[level_of_tick(w, tick)];
    uint64_t slot = level_slot_of(level, tick);
    struct bucket *bucket = level_bucket(level, slot);
    unsigned filled = bucket_has_chunks(bucket) ? BUCKET_INLINE_ALL : bucket_inline_filled(bucket);

    if (unlikely(filled == BUCKET_INLINE_ALL))
        return insert_in_chunk(w, level, slot, packed, deadline);
    if (!level_is_marked(level, slot))
        mark_occupied(w, level, slot);
    return bucket_insert_inline(bucket, filled, packed, deadline);
}

/* ---- from tick to tick ---- */

static void advance_to(struct hierarchical *w, uint64_t tick)
{
    const struct level *above = &w->level[1];
    bool same_window = level_slot_of(above, tick) == current_slot(w, above);

    w->wheel.current = tick;
    if (unlikely(!same_window))
        hierarchical_enter_window(w, tick);
}

static void prepare(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);

    if (is_any_coming(w))
        hierarchical_bring_down_ahead(w);
    hierarchical_fetch(w);
}

/* What a tick has on the ladder, sorted or not, counts as in its slot. */
static bool tick_is_sparse(const struct hierarchical *w, uint64_t tick, uint32_t most)
{
    uint32_t count = bucket_at_most(place_of(w, tick));

    if (likely(!w->ladder.in_use) || count > most)
        return count <= most;
    return ladder_count_all(&w->ladder, level_slot_of(&w->level[1], tick),
                            wheel_tick_time(&w->wheel, tick), most - count + 1) <= most - count;
}

static bool is_sparse(const struct wheel *wheel, uint64_t deadline, uint32_t most)
{
    return tick_is_sparse(container_of(wheel, const struct hierarchical, wheel),
                          max_u64(wheel_tick_of(wheel, deadline), wheel->current), most);
}

/* ---- expiry ---- */

static void take_tick(struct hierarchical *w, uint64_t tick)
{
    struct bucket *bucket = level_bucket(&w->level[0], tick);

    if (unlikely(w->ladder.in_use) && !level_is_marked(&w->level[0], tick))
        bucket = NULL; /* its line is not needed */
    else
        level_mark_empty(&w->level[0], tick);
    wheel_cover(&w->wheel, tick, bucket);
    if (unlikely(w->ladder.in_use))
        hierarchical_expire_ladder(w, tick);
}

static bool expire(struct wheel *wheel, uint64_t limit)
{
    struct hierarchical *w = hierarchical(wheel);
    const struct level *above = &w->level[1];

    while (wheel->current <= limit) {
        uint64_t window_end = level_first_tick(above, current_slot(w, above) + 1) - 1;
        uint64_t end = min_u64(limit, window_end);
        uint64_t ladder = hierarchical_ladder_tick(w), next = end + 1;
        uint64_t tick = min_u64(first_occupied(w, &w->level[0]), ladder);

        if (unlikely(ladder <= min_u64(tick, end) && !ladder_has_bottom(&w->ladder))) {
            hierarchical_open_part(w, current_rung(w)); /* what is in it may be due later */
            continue;
        }
        if (tick <= end) {
            take_tick(w, tick);
            advance_to(w, tick + 1); /* only now: its bucket may be filled anew */
            if (is_any_coming(w))
                hierarchical_trickle(w);
            return true;
        }
        if (next <= limit) /* over empty windows in one step */
            next = max_u64(next, min_u64(hierarchical_earliest_tick(w), limit + 1));
        advance_to(w, next);
    }
    return false;
}

/* The first of several at the bottom; NULL: it is not due, or not alone in its tick, or too far. */
static __attribute__((noinline)) hwt_timeout *take_first(struct hierarchical *w, uint64_t now)
{
    const struct entry *first = &w->ladder.bottom[w->ladder.lo];
    uint64_t tick = wheel_tick_of(&w->wheel, first->deadline);
    uint64_t end = wheel_tick_time(&w->wheel, tick);
    const struct level *above = &w->level[1];
    hwt_timeout *timeout;

    if (first->deadline > now || first[1].deadline <= end ||
        level_slot_of(above, tick) != current_slot(w, above))
        return NULL;
    timeout = ladder_take(&w->ladder);
    w->wheel.covered = end;
    w->wheel.witness.slot = NULL; /* it was the earliest */
    w->wheel.current = tick;
    if (end > now) /* the tick is not over */
        return timeout;
    w->wheel.current++; /* in the same window, for the second is */
    if (is_any_coming(w))
        hierarchical_trickle(w);
    return timeout;
}

static hwt_timeout *take_lone(struct wheel *wheel, uint64_t now)
{
    struct hierarchical *w = hierarchical(wheel);

    if (w->level->first != UINT64_MAX || w->ladder.hi - w->ladder.lo < 2)
        return NULL;
    return take_first(w, now);
}

/* The ladder first: it may file some in the lowest level. */
static __attribute__((noinline)) bool has_current_beside_ladder(struct hierarchical *w,
                                                                uint64_t now, uint32_t most)
{
    const struct bucket *bucket = level_bucket(&w->level[0], w->wheel.current);
    uint64_t earliest;
    bool moved;

    hierarchical_look_to_ladder(w, wheel_tick_time(&w->wheel, w->wheel.current) + 1, &moved);
    earliest = ladder_first(&w->ladder);
    if (level_is_marked(&w->level[0], w->wheel.current) && !bucket_is_empty(bucket))
        earliest = min_u64(earliest, bucket->earliest);
    return earliest <= now && (most == UINT32_MAX || tick_is_sparse(w, w->wheel.current, most));
}

static bool has_current(struct wheel *wheel, uint64_t now, uint32_t most)
{
    struct hierarchical *w = hierarchical(wheel);
    const struct bucket *bucket = level_bucket(&w->level[0], wheel->current);

    if (unlikely(w->ladder.in_use))
        return has_current_beside_ladder(w, now, most);
    return !bucket_is_empty(bucket) && bucket->earliest <= now && bucket_at_most(bucket) <= most;
}

static void take_current(struct wheel *wheel)
{
    take_tick(hierarchical(wheel), wheel->current);
}

/* ---- the rest ---- */

static unsigned pop(struct wheel *wheel, uint64_t *out, unsigned most)
{
    struct hierarchical *w = hierarchical(wheel);
    unsigned count = 0;
    uint64_t slot;

    for (struct level *level = w->level; level < levels_end(w); level++) {
        while (count < most && (slot = first_occupied(w, level)) != UINT64_MAX)
            count += bucket_take(level_bucket(level, slot), &wheel->store, out + count,
                                 most - count, NULL);
    }
    return count > 0 ? count : ladder_pop(&w->ladder, out, most);
}

static void show_all(struct wheel *wheel, bucket_see *see, void *context)
{
    struct hierarchical *w = hierarchical(wheel);

    hierarchical_leave_ladder(w);
    for (struct level *level = w->level; level < levels_end(w); level++)
        level_visit(level, see, context, &wheel->shown);
}

static size_t check_slot(const struct hierarchical *w, const struct level *level, uint64_t here,
                         uint64_t slot)
{
    struct bucket *bucket = level_bucket(level, slot);
    size_t count = bucket_check(bucket);

    hwt_assert(count == 0 || level_is_marked(level, slot));
    hwt_assert(!bucket_has_chunks(bucket) || level_is_marked(level, slot)); /* insert */
    hwt_assert(count == 0 || level == w->level || slot != here);
    hwt_assert(count == 0 || level == w->level || w->coming <= coming_tick(level, slot));
    (void)w;
    (void)here;
    return count;
}

/* The slots of all levels, one level after the other, as they lie in memory. */
static size_t check(struct wheel *wheel, size_t *at, size_t most)
{
    struct hierarchical *w = hierarchical(wheel);
    size_t total = 0, first = 0;

    for (const struct level *level = w->level; level < levels_end(w); level++) {
        uint64_t here = current_slot(w, level);
        for (; *at - first <= level->mask && most > 0; ++*at, most--)
            total += check_slot(w, level, here, here + ((*at - first - here) & level->mask));
        first += level->mask + 1;
    }
    if (*at == first)
        *at = 0;
    return total + ladder_check(&w->ladder);
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

/* Of so many ticks, or all the time that there is. */
static uint64_t slot_ns(uint64_t tick_ns, unsigned shift)
{
    return tick_ns <= DEADLINE_NEVER >> shift ? tick_ns << shift : DEADLINE_NEVER;
}

static struct wheel *create(uint64_t tick_ns, uint32_t slots, uint64_t current)
{
    unsigned bits = slots > 1 ? (unsigned)min_u64(bits_of(slots) - 1, MOST_BITS) : 1;
    unsigned wide = wide_bits(bits);
    unsigned reach = bits_of(DEADLINE_NEVER / tick_ns + 1); /* bits of a tick */
    unsigned levels = reach > 2 * wide ? WIDE + (reach - 2 * wide + bits - 1) / bits : WIDE;
    struct hierarchical *w =
        wheel_alloc(sizeof(struct hierarchical) + levels * sizeof(struct level));
    unsigned shift = 0;
    char *memory;

    if (!w)
        return NULL;
    w->size = WIDE * level_size(wide) + (levels - WIDE) * level_size(bits) + ladder_size();
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
    ladder_init(&w->ladder, &w->wheel.agenda, &w->wheel.store, slot_ns(tick_ns, w->level[1].shift),
                memory);
    w->wheel.far_quantum = w->ladder.quantum;
    hierarchical_set_ends(w, current);
    return &w->wheel;
}

HIDDEN const struct wheel_ops wheel_hierarchical;
HIDDEN const struct wheel_ops wheel_hierarchical = {
    .create = create,
    .destroy = destroy,
    .insert = insert,
    .bucket_of = bucket_of,
    .fills_chunks = true,
    .expire = expire,
    .take_lone = take_lone,
    .has_current = has_current,
    .take_current = take_current,
    .earliest = hierarchical_earliest,
    .is_sparse = is_sparse,
    .prepare_at = hierarchical_prepare_at,
    .prepare = prepare,
    .pop = pop,
    .visit = show_all,
    .check = check,
};
