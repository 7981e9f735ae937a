/* SPDX-License-Identifier: BSD-2-Clause */
/* How what is alone gets on the ladder of the hierarchical wheel, and off it (hierarchical.h). */
#include "hierarchical.h"

/* ---- from a slot of the second level ---- */

/* All deadlines of a slot are above it. */
static uint64_t slot_base(const struct hierarchical *w, uint64_t slot)
{
    uint64_t first = level_first_tick(&w->level[1], slot);

    return first ? wheel_tick_time(&w->wheel, first - 1) : 0;
}

void hierarchical_spread(struct hierarchical *w, uint64_t slot, const uint64_t *packed,
                         unsigned count)
{
    struct rung *rung = ladder_rung(&w->ladder, slot);
    uint64_t others[BUCKET_BATCH];
    unsigned left = 0;

    ladder_set_rung(&w->ladder, rung, slot_base(w, slot));
    for (unsigned i = 0; i < count; i++) {
        if (unlikely(!(packed[i] & PACKED_ALONE)) ||
            unlikely(!ladder_put(&w->ladder, rung, packed[i])))
            others[left++] = packed[i];
    }
    if (left > 0) {
        packed_prefetch(others, left);
        hierarchical_file_lower(w, others, left);
    }
}

bool hierarchical_waits(struct hierarchical *w, const struct level *level, uint64_t slot)
{
    const struct bucket *bucket = level_bucket(level, slot);

    return level == &w->level[1] && bucket_at_most(bucket) <= LADDER_BOTTOM &&
           rung_is_empty(ladder_rung(&w->ladder, slot)) && !bucket_is_shared(bucket);
}

void hierarchical_sort_slot(struct hierarchical *w, uint64_t slot)
{
    struct bucket *bucket = level_bucket(&w->level[1], slot);
    uint64_t *packed = agenda_sort_from(&w->wheel.agenda);
    uint64_t batch[BUCKET_BATCH], others[BUCKET_BATCH];
    unsigned alone = 0, left, count;

    while ((count = bucket_take(bucket, &w->wheel.store, batch, BUCKET_BATCH, NULL)) > 0) {
        packed_prefetch(batch, count);
        left = 0;
        for (unsigned i = 0; i < count; i++) {
            if (likely(batch[i] & PACKED_ALONE))
                packed[alone++] = batch[i];
            else
                others[left++] = batch[i];
        }
        hierarchical_file_lower(w, others, left);
    }
    level_mark_empty(&w->level[1], slot);
    if (alone > 0)
        ladder_sort(&w->ladder, alone, slot_base(w, slot));
}

/* ---- to the agenda ---- */

__attribute__((noinline)) bool hierarchical_open_part(struct hierarchical *w, struct rung *rung)
{
    struct bucket *too_many = ladder_open(&w->ladder, rung);

    if (unlikely(too_many != NULL))
        wheel_refile(&w->wheel, too_many, 0, NULL);
    return !too_many;
}

void hierarchical_expire_ladder(struct hierarchical *w, uint64_t tick)
{
    uint64_t deadline = wheel_tick_time(&w->wheel, tick);

    ladder_expire(&w->ladder, deadline);
    while (unlikely(!ladder_has_bottom(&w->ladder) &&
                    ladder_bound(&w->ladder, current_rung(w)) <= deadline)) {
        hierarchical_open_part(w, current_rung(w));
        ladder_expire(&w->ladder, deadline);
    }
}

/* ---- what comes first ---- */

void hierarchical_look_to_ladder(struct hierarchical *w, uint64_t best, bool *moved)
{
    while (!ladder_has_bottom(&w->ladder)) {
        uint64_t slot = current_slot(w, &w->level[1]), bound;
        slot += rung_is_empty(ladder_rung(&w->ladder, slot));
        bound = ladder_bound(&w->ladder, ladder_rung(&w->ladder, slot));
        w->ladder.in_use = bound < UINT64_MAX;
        if (bound >= best || level_is_marked(&w->level[1], slot))
            return;
        if (!hierarchical_open_part(w, ladder_rung(&w->ladder, slot)))
            *moved = true;
    }
}

uint64_t hierarchical_unsorted_earliest(struct hierarchical *w, uint64_t best, struct sighting *who)
{
    struct ladder *ladder = &w->ladder;
    uint64_t bound = ladder_has_bottom(ladder) ? UINT64_MAX : ladder_bound(ladder, next_rung(w));
    struct sighting found;

    if (likely(bound >= best))
        return best;
    if (!who)
        return bound;
    found = ladder_scan(ladder, next_rung(w));
    if (found.deadline >= best)
        return best;
    *who = found;
    return found.deadline;
}

void hierarchical_leave_ladder(struct hierarchical *w)
{
    struct ladder *ladder = &w->ladder;
    struct bucket *part;

    while (ladder_has_bottom(ladder)) {
        const struct entry *first = &ladder->bottom[ladder->lo];
        ladder_drop(ladder, 1);
        wheel_insert(&w->wheel, first->timeout, first->deadline);
    }
    while ((part = ladder_any_part(ladder)) != NULL)
        wheel_refile(&w->wheel, part, 0, NULL);
}
