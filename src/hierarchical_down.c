/* SPDX-License-Identifier: BSD-2-Clause */
/* How what the hierarchical wheel holds comes down, level by level (hierarchical.h). */
#include "hierarchical.h"

#define TRICKLE_LEAST 32 /* timeouts per level and expired tick that come down ahead of time */

void hierarchical_file_lower(struct hierarchical *w, const uint64_t *packed, unsigned count)
{
    struct wheel_batch batch;

    batch.count = 0;
    for (unsigned i = 0; i < count; i++) {
        hwt_timeout *timeout = packed_timeout(packed[i]);
        uint64_t deadline = timeout_deadline(timeout), tick = wheel_tick_of(&w->wheel, deadline);
        wheel_gather_for(&batch, timeout, deadline, tick,
                         place_of(w, max_u64(tick, w->wheel.current)));
    }
    wheel_insert_batch(&w->wheel, &batch);
}

void hierarchical_come_down(struct hierarchical *w, struct level *level, uint64_t slot, size_t most)
{
    struct bucket *bucket = level_bucket(level, slot);
    bool by_ladder = level == &w->level[1] && bucket_at_most(bucket) <= w->ladder.most;
    uint64_t batch[BUCKET_BATCH];

    while (most > 0) {
        unsigned wanted = most < BUCKET_BATCH ? (unsigned)most : BUCKET_BATCH;
        unsigned count = bucket_take(bucket, &w->wheel.store, batch, wanted, NULL);
        if (count == 0) {
            level_mark_empty(level, slot);
            return;
        }
        if (likely(by_ladder)) {
            hierarchical_spread(w, slot, batch, count);
        } else {
            packed_prefetch(batch, count);
            bucket_prefetch_timeouts(bucket); /* for the next time */
            hierarchical_file_lower(w, batch, count);
        }
        most -= count;
    }
    if (bucket_is_empty(bucket))
        level_mark_empty(level, slot);
}

/* ---- as time goes on ---- */

void hierarchical_set_ends(struct hierarchical *w, uint64_t current)
{
    struct level *level;

    for (level = w->level; level + 1 < levels_end(w); level++)
        level->end = level_first_tick(level + 1, level_slot_of(level + 1, current) + 2);
    level->end = UINT64_MAX;
    w->wheel.far_from = w->level[0].end;
}

void hierarchical_enter_window(struct hierarchical *w, uint64_t tick)
{
    hierarchical_set_ends(w, tick);
    for (struct level *level = levels_end(w); --level > w->level;) {
        uint64_t slot = current_slot(w, level);
        if (!level_is_marked(level, slot))
            continue;
        if (hierarchical_waits(w, level, slot))
            hierarchical_sort_slot(w, slot);
        else
            hierarchical_come_down(w, level, slot, SIZE_MAX);
    }
}

/* Ticks until the slot after the current one is entered. */
static uint64_t ticks_left(const struct hierarchical *w, const struct level *level)
{
    return level_first_tick(level, current_slot(w, level) + 1) - w->wheel.current;
}

bool hierarchical_is_still_coming(struct hierarchical *w)
{
    uint64_t slot;

    w->coming = UINT64_MAX;
    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        if ((slot = first_occupied(w, level)) != UINT64_MAX)
            w->coming = min_u64(w->coming, coming_tick(level, slot));
    }
    return w->wheel.current >= w->coming;
}

void hierarchical_trickle(struct hierarchical *w)
{
    uint64_t share;
    bool any = false;

    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (!level_is_marked(level, slot) || hierarchical_waits(w, level, slot))
            continue;
        share = bucket_at_most(level_bucket(level, slot)) / ticks_left(w, level);
        hierarchical_come_down(w, level, slot, (size_t)share + TRICKLE_LEAST);
        any = true;
    }
    if (!any)
        w->calm_until = w->wheel.current + ticks_left(w, &w->level[1]);
}

void hierarchical_bring_down_ahead(struct hierarchical *w)
{
    for (struct level *level = &w->level[1]; level < levels_end(w); level++) {
        uint64_t slot = current_slot(w, level) + 1;
        if (level_is_marked(level, slot) &&
            hierarchical_prepare_tick(w, level, slot) <= w->wheel.current)
            hierarchical_come_down(w, level, slot, PREPARE_STEP);
    }
}
