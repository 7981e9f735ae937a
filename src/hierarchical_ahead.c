/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes next in the hierarchical wheel, and when there is something to do before it does. */
#include "hierarchical.h"

#define PREPARE_ABOVE 2048 /* a slot with more is worth a wake-up ahead of its first deadline */

/* ---- a crowded slot ---- */

static bool is_crowded(const struct level *level, uint64_t slot)
{
    return bucket_at_most(level_bucket(level, slot)) > PREPARE_ABOVE;
}

/* A step with each tick, or, where ticks are short, as many ticks as it takes. */
static uint64_t ticks_to_bring(const struct hierarchical *w, const struct bucket *bucket)
{
    uint64_t count = bucket_at_most(bucket);

    return max_u64(count / PREPARE_STEP, count * LOOK_NS / w->wheel.tick_ns);
}

uint64_t hierarchical_prepare_tick(const struct hierarchical *w, const struct level *level,
                                   uint64_t slot)
{
    uint64_t first = level_first_tick(level, slot); /* entering it brings all of it down */
    uint64_t ahead, start;

    if (!is_crowded(level, slot))
        return UINT64_MAX;
    ahead = ticks_to_bring(w, level_bucket(level, slot));
    start = first > ahead ? first - ahead : 0;
    return max_u64(start, level_first_tick(level, slot - 1)); /* not before the window before it */
}

static bool is_marked_crowd(const struct level *level, uint64_t slot)
{
    return level_is_marked(level, slot) && is_crowded(level, slot);
}

/*
 * Of what is next at this level, and the slot behind it: it may be at its end that this one holds
 * something, too late to begin. What has been withdrawn as a whole is worth no wake-up.
 */
static uint64_t prepare_level_tick(struct hierarchical *w, struct level *level)
{
    uint64_t slot;

    while ((slot = first_occupied(w, level)) != UINT64_MAX) {
        slot += !is_crowded(level, slot);
        if (!is_marked_crowd(level, slot))
            return UINT64_MAX;
        if (bucket_has_any(level_bucket(level, slot), &w->wheel.store))
            return hierarchical_prepare_tick(w, level, slot);
        level_mark_empty(level, slot);
    }
    return UINT64_MAX;
}

uint64_t hierarchical_prepare_at(struct wheel *wheel)
{
    struct hierarchical *w = hierarchical(wheel);
    uint64_t tick = UINT64_MAX;

    for (struct level *level = &w->level[1]; level < levels_end(w); level++)
        tick = min_u64(tick, prepare_level_tick(w, level));
    return tick == UINT64_MAX ? UINT64_MAX : wheel_tick_time(wheel, tick);
}

/* ---- the earliest ---- */

uint64_t hierarchical_earliest_tick(struct hierarchical *w)
{
    uint64_t ladder = hierarchical_ladder_bound(w), slot;
    uint64_t tick = ladder == UINT64_MAX ? ladder : wheel_tick_of(&w->wheel, ladder);

    for (struct level *level = w->level; level < levels_end(w); level++) {
        if ((slot = first_occupied(w, level)) != UINT64_MAX)
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
HOT uint64_t level_earliest(struct hierarchical *w, struct level *level, uint64_t best,
                            struct sighting *who, bool *moved)
{
    uint64_t slot;

    while ((slot = first_occupied(w, level)) != UINT64_MAX) {
        struct bucket *bucket = level_bucket(level, slot);
        uint64_t bound = bucket->earliest;
        struct sighting found;
        if (bound >= best)
            return best;
        if (bucket_has_chunks(bucket) && !bucket_has_any(bucket, &w->wheel.store)) {
            level_mark_empty(level, slot);
            continue;
        }
        if (!who && bucket_at_most(bucket) > WHEEL_SCAN_UP_TO)
            return bound;
        found = wheel_bucket_scan(&w->wheel, bucket, level == w->level ? 0 : UINT64_MAX);
        if (!found.slot)
            continue; /* they have just been withdrawn */
        /* who still has the bound's deadline lies where that is due */
        if (likely(found.deadline == bound) || !file_anew_if_moved(w, level, slot)) {
            if (who && found.deadline < best)
                *who = found;
            return found.deadline;
        }
        *moved = true;
    }
    return UINT64_MAX;
}

static __attribute__((noinline)) uint64_t earliest_above(struct hierarchical *w, uint64_t best,
                                                         struct sighting *who, bool *moved)
{
    for (struct level *level = &w->level[1]; level < levels_end(w) && begin_above(w) < best;
         level++)
        best = min_u64(best, level_earliest(w, level, best, who, moved));
    return best;
}

static __attribute__((noinline)) uint64_t earliest_on_ladder(struct hierarchical *w, uint64_t best,
                                                             struct sighting *who, bool *moved)
{
    hierarchical_look_to_ladder(w, best, moved);
    if (ladder_has_bottom(&w->ladder) && ladder_first(&w->ladder) <= best) {
        best = ladder_first(&w->ladder);
        if (who)
            *who = ladder_sight(&w->ladder);
    }
    return hierarchical_unsorted_earliest(w, best, who);
}

static __attribute__((noinline)) uint64_t earliest_by_levels(struct hierarchical *w,
                                                             struct sighting *who)
{
    uint64_t best;
    bool moved;

    do { /* again if some were filed anew: maybe in a level that had been looked at */
        moved = false;
        if (who)
            *who = (struct sighting){NULL, 0, UINT64_MAX};
        best = level_earliest(w, w->level, ladder_first(&w->ladder), who, &moved);
        if (w->ladder.in_use)
            best = earliest_on_ladder(w, best, who, &moved);
        if (begin_above(w) < best)
            best = earliest_above(w, best, who, &moved);
    } while (moved);
    return best;
}

/* Mostly, where ticks are sparse: nothing is in the lowest level, nor near enough above it. */
static bool bottom_is_next(const struct hierarchical *w)
{
    return w->level->first == UINT64_MAX && ladder_has_bottom(&w->ladder) &&
           ladder_first(&w->ladder) <= begin_above(w);
}

uint64_t hierarchical_earliest(struct wheel *wheel, struct sighting *who)
{
    struct hierarchical *w = hierarchical(wheel);

    if (!bottom_is_next(w))
        return earliest_by_levels(w, who);
    if (who)
        *who = ladder_sight(&w->ladder);
    return ladder_first(&w->ladder);
}

/* ---- fetching ---- */

/* The first from this one on that something is filed for; itself, if the ring ends before. */
static uint64_t next_tick(const struct level *lowest, uint64_t tick)
{
    size_t from = level_ring_index(lowest, tick);
    size_t found = bitmap_next(&lowest->occupied, from);

    return found == BITMAP_NONE ? tick : tick + (found - from);
}

/*
 * In three steps, from one tick that expires to the next: of the sixth from here the chunk, of the
 * fifth its timeouts, and of the third what the tasks will be called with. So each has the time of
 * a pass or two to arrive in. What is filed in between is not fetched. Full buckets are left to
 * whoever takes their timeouts out.
 */
void hierarchical_fetch(struct hierarchical *w)
{
    const struct level *lowest = &w->level[0];
    uint64_t *tick = w->fetched, current = w->wheel.current;

    if (lowest->first == UINT64_MAX || tick[0] >= current) /* none has expired since */
        return;
    if (unlikely(tick[1] < current)) { /* more than one has */
        tick[1] = next_tick(lowest, current);
        for (unsigned i = 2; i < FETCH_TICKS; i++)
            tick[i] = next_tick(lowest, tick[i - 1] + 1);
    }
    for (unsigned i = 1; i < FETCH_TICKS; i++)
        tick[i - 1] = tick[i];
    tick[FETCH_TICKS - 1] = next_tick(lowest, tick[FETCH_TICKS - 2] + 1);
    bucket_prefetch_arguments(level_bucket(lowest, tick[FETCH_ARGUMENTS]));
    bucket_prefetch_timeouts(level_bucket(lowest, tick[FETCH_TIMEOUTS]));
    bucket_prefetch_chunk(level_bucket(lowest, tick[FETCH_CHUNK]));
}
