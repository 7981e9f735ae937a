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
 *
 * wheel_hierarchical.c files, brings down and hands out; what is only looked for, because it comes
 * next, is hierarchical_ahead.c's. Of nobody else.
 */
#ifndef HWT_HIERARCHICAL_H
#define HWT_HIERARCHICAL_H

#include "level.h"
#include "wheel.h"

#define PREPARE_STEP 1024 /* timeouts of a crowded slot that come down with a tick, or a pass */

/* What is fetched ahead, of which of those that come next: the first of them is 0. */
enum { FETCH_ARGUMENTS = 2, FETCH_TIMEOUTS = 4, FETCH_CHUNK = 5, FETCH_TICKS };

struct hierarchical {
    struct wheel wheel;
    uint64_t coming;               /* no slot above level 0 can come down before this tick */
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

/* ---- what comes next (hierarchical_ahead.c) ---- */

/* The tick at which a crowded slot should start to come down; UINT64_MAX: it can wait. */
uint64_t hierarchical_prepare_tick(const struct level *level, uint64_t slot);
/* Nothing is due before this tick; UINT64_MAX: nothing is filed. */
uint64_t hierarchical_earliest_tick(struct hierarchical *w);
/* As the kinds' (wheel.h). */
uint64_t hierarchical_prepare_at(struct wheel *wheel);
uint64_t hierarchical_earliest(struct wheel *wheel, struct sighting *who);
/* Fetches what the next ticks will touch. */
void hierarchical_fetch(struct hierarchical *w);

#endif
