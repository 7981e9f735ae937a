/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes next in the hierarchical wheel, and when there is something to do before it does. */
#include "hierarchical.h"

#define PREPARE_ABOVE 2048 /* a slot with more is worth a wake-up ahead of its first deadline */

/* ---- a crowded slot ---- */

static bool is_crowded(const struct level *level, uint64_t slot)
{
    return bucket_at_most(level_bucket(level, slot)) > PREPARE_ABOVE;
}

uint64_t hierarchical_prepare_tick(const struct level *level, uint64_t slot)
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

/* Of what is next at this level. What has been withdrawn as a whole is worth no wake-up. */
static uint64_t prepare_level_tick(struct hierarchical *w, struct level *level)
{
    uint64_t slot;

    while (first_occupied(w, level, &slot) && is_crowded(level, slot)) {
        if (bucket_has_any(level_bucket(level, slot), &w->wheel.store))
            return hierarchical_prepare_tick(level, slot);
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

uint64_t hierarchical_earliest(struct wheel *wheel, struct sighting *who)
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

/* ---- fetching ---- */

/*
 * In three steps, from pass to pass: of the third tick from here the chunk, of the one before its
 * timeouts, and of the next one what the tasks will be called with. Full buckets are left to
 * whoever takes their timeouts out.
 */
void hierarchical_foresee(struct wheel *wheel)
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
