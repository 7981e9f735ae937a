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
 * What is alone does not come down from the second level to the lowest: it goes by the ladder
 * (ladder.h), unless the slot holds so much that the ticks are crowded. A slot that fits into the
 * ladder's bottom as a whole stays as it is until it is entered.
 *
 * Each level knows which of its slots are occupied (level.h), each bucket a lower bound of its
 * deadlines: the next deadline is a few bit scans away, and idle ticks cost nothing.
 *
 * wheel_hierarchical.c files and hands out, hierarchical_down.c brings down, hierarchical_ladder.c
 * sees to the ladder; what is only looked for, because it comes next, is hierarchical_ahead.c's. Of
 * nobody else.
 */
#ifndef HWT_HIERARCHICAL_H
#define HWT_HIERARCHICAL_H

#include "ladder.h"
#include "level.h"
#include "wheel.h"

#define PREPARE_STEP 1024 /* timeouts of a crowded slot that come down with a tick, or a pass */

/* What is fetched ahead, of which of those that come next: the first of them is 0. */
enum { FETCH_ARGUMENTS = 2, FETCH_TIMEOUTS = 4, FETCH_CHUNK = 5, FETCH_TICKS = 6 };

struct hierarchical {
    struct wheel wheel;
    uint64_t coming;               /* no slot above level 0 can come down before this tick, ... */
    uint64_t calm_until;           /* ... and what can waits until this one, to be entered */
    struct ladder ladder;          /* of the second level's current slot, and the next one */
    uint64_t fetched[FETCH_TICKS]; /* those that come next, as it was seen then */
    unsigned levels;
    char *memory; /* of all levels; mapped */
    size_t size;
    struct level level[];
};

static inline struct hierarchical *hierarchical(struct wheel *wheel)
{
    return container_of(wheel, struct hierarchical, wheel);
}

/* One behind the highest level. */
static inline struct level *levels_end(struct hierarchical *w)
{
    return &w->level[w->levels];
}

static inline uint64_t current_slot(const struct hierarchical *w, const struct level *level)
{
    return level_slot_of(level, w->wheel.current);
}

/* UINT64_MAX: none is. */
static inline uint64_t first_occupied(const struct hierarchical *w, struct level *level)
{
    return level_first_occupied(level, w->wheel.current);
}

/* What a slot above level 0 holds can come down during the window before its own. */
static inline uint64_t coming_tick(const struct level *level, uint64_t slot)
{
    return level_first_tick(level, slot - 1);
}

/* The lowest level whose ring reaches that far. */
static inline unsigned level_of_tick(const struct hierarchical *w, uint64_t tick)
{
    unsigned level = 0;

    while (tick >= w->level[level].end)
        level++;
    return level;
}

HOT struct bucket *place_of(const struct hierarchical *w, uint64_t tick)
{
    const struct level *level = &w->level[level_of_tick(w, tick)];

    return level_bucket(level, level_slot_of(level, tick));
}

/* ---- coming down (hierarchical_down.c) ---- */

/* Files each by the deadline that it has now. Their lines are on their way. */
void hierarchical_file_lower(struct hierarchical *w, const uint64_t *packed, unsigned count);
/* So many of a slot at most, from the end on. */
void hierarchical_come_down(struct hierarchical *w, struct level *level, uint64_t slot,
                            size_t most);
/* Each level reaches to the end of the window after the one that this tick is in. */
void hierarchical_set_ends(struct hierarchical *w, uint64_t current);
/* `tick` is the current one by now, in another slot of the second level than the one before. */
void hierarchical_enter_window(struct hierarchical *w, uint64_t tick);
/* A lower bound may have become too low: what it speaks of has come down, or was withdrawn. */
bool hierarchical_is_still_coming(struct hierarchical *w);
static inline bool is_any_coming(struct hierarchical *w)
{
    return w->wheel.current >= w->coming && w->wheel.current >= w->calm_until &&
           hierarchical_is_still_coming(w);
}
/*
 * After a tick: a share of each level's next slot, so that it is empty when it is entered. Nothing
 * is filed there any more, so what does not come down now does not do so in this window.
 */
void hierarchical_trickle(struct hierarchical *w);
/* So much of a crowded slot as is to come down by now. */
void hierarchical_bring_down_ahead(struct hierarchical *w);

/* ---- the ladder (hierarchical_ladder.c) ---- */

/* That of the slot which the current tick is in; of the next one. */
static inline struct rung *current_rung(struct hierarchical *w)
{
    return ladder_rung(&w->ladder, current_slot(w, &w->level[1]));
}

static inline struct rung *next_rung(struct hierarchical *w)
{
    return ladder_rung(&w->ladder, current_slot(w, &w->level[1]) + 1);
}

/* No deadline on the ladder is below; UINT64_MAX: it is empty. */
static inline uint64_t hierarchical_ladder_bound(struct hierarchical *w)
{
    if (!w->ladder.in_use)
        return UINT64_MAX;
    if (ladder_has_bottom(&w->ladder))
        return ladder_first(&w->ladder);
    return min_u64(ladder_bound(&w->ladder, current_rung(w)),
                   ladder_bound(&w->ladder, next_rung(w)));
}

/* The tick at which it has something to do; UINT64_MAX: in this window it has not. */
static inline uint64_t hierarchical_ladder_tick(struct hierarchical *w)
{
    uint64_t bound;

    if (!w->ladder.in_use)
        return UINT64_MAX;
    bound = ladder_has_bottom(&w->ladder) ? ladder_first(&w->ladder)
                                          : ladder_bound(&w->ladder, current_rung(w));
    return bound == UINT64_MAX ? bound : max_u64(wheel_tick_of(&w->wheel, bound), w->wheel.current);
}

/*
 * Does a slot go to the bottom as a whole, as it is entered? Not if part of it has gone another
 * way, nor if much of it would have to be filed then.
 */
bool hierarchical_waits(struct hierarchical *w, const struct level *level, uint64_t slot);
void hierarchical_sort_slot(struct hierarchical *w, uint64_t slot);
/* What comes down from a slot of the second level: over its rung, if it is alone. */
void hierarchical_spread(struct hierarchical *w, uint64_t slot, const uint64_t *packed,
                         unsigned count);
/* A rung's next part to the bottom; false: it does not fit, and went to the lowest level. */
bool hierarchical_open_part(struct hierarchical *w, struct rung *rung);
/* All up to the end of a tick, which is covered, into the agenda. */
void hierarchical_expire_ladder(struct hierarchical *w, uint64_t tick);
/*
 * It is in use. What may be below `best` is in the bottom from here on, or at least what comes
 * first, unless its slot is still being spread (L1). *moved: some were filed anew for that, in the
 * lowest level.
 */
void hierarchical_look_to_ladder(struct hierarchical *w, uint64_t best, bool *moved);
/*
 * Then, as level by level: of that slot what has been spread. Less of both, `best` and a bound, or
 * with `who` the exact deadline, and *who if it is that.
 */
uint64_t hierarchical_unsorted_earliest(struct hierarchical *w, uint64_t best,
                                        struct sighting *who);
/* All on it goes back into the lowest level, to be shown there; or to the pen (no memory). */
void hierarchical_leave_ladder(struct hierarchical *w);

/* ---- what comes next (hierarchical_ahead.c) ---- */

/* The tick at which a crowded slot should start to come down; UINT64_MAX: it can wait. */
uint64_t hierarchical_prepare_tick(const struct hierarchical *w, const struct level *level,
                                   uint64_t slot);
/* Nothing is due before this tick; UINT64_MAX: nothing is filed. */
uint64_t hierarchical_earliest_tick(struct hierarchical *w);
/* As the kinds' (wheel.h). */
uint64_t hierarchical_prepare_at(struct wheel *wheel);
uint64_t hierarchical_earliest(struct wheel *wheel, struct sighting *who);
/* Fetches what the next ticks will touch. */
void hierarchical_fetch(struct hierarchical *w);

#endif
