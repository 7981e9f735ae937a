/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which lane is a CPU's (C26): at first the one with its number (lane_make.c). When that has no
 * room it becomes larger only if there is none near to which few have come for a while, and which
 * has; otherwise the two CPUs exchange lanes. So a load that goes from CPU to CPU takes its slots
 * along, and what the lanes hold is in proportion to what is pending at once (G6), not to the sum
 * of what ever was pending on each CPU.
 *
 * Whichever lane somebody submits to, it is as if he had been preempted just after he asked for his
 * CPU, and had gone on elsewhere.
 */
#include "clock.h"
#include "lane.h"

/* ---- by who is `moving` ---- */

/* A few have come at most since somebody looked: those there are on every CPU. */
static bool is_near(const lane_slot *tail, const lane_slot *seen)
{
    return (uintptr_t)tail - (uintptr_t)seen < DESERTED_SLOTS * sizeof(lane_slot);
}

/* ... and that is some time ago. */
static bool is_deserted(struct lane *lane, uint64_t now)
{
    lane_slot *near = load_acquire(&lane->tail[0]), *far = load_acquire(&lane->tail[1]);

    if (is_near(near, lane->seen[0]) && is_near(far, lane->seen[1]))
        return now - lane->seen_at >= DESERTED_NS;
    lane->seen[0] = near;
    lane->seen[1] = far;
    lane->seen_at = now;
    return false;
}

/* In one of the next few lanes. */
static struct segment *find_deserted(struct lanes *lanes, const struct lane *own, bool far)
{
    struct segment *found = NULL;
    unsigned looks = 8 * SURVEY_MOST; /* at lanes and segments, mostly a cache line each */
    uint64_t now = clock_coarse();

    while (!found && looks > 0) {
        struct lane *lane = lanes_next_used(lanes, &lanes->turn);
        looks--;
        if (!lane)
            lanes->turn = 0;
        else if (lane != own && lane != lanes->common && is_deserted(lane, now))
            found = segment_for_another(segment_of(load_acquire(&lane->tail[far])),
                                        &lane->survey[far], &looks);
    }
    return found;
}

static void give_to(struct lanes *lanes, struct lane *lane, unsigned cpu)
{
    lane->cpu = cpu;
    store_release(&lanes->home[cpu], lane); /* pairs with lanes_of_cpu */
}

/* For a moment both CPUs have the same: two threads may be on one CPU, too. */
static void exchange_homes(struct lanes *lanes, struct lane *lane, struct lane *other)
{
    unsigned cpu = lane->cpu;

    give_to(lanes, lane, other->cpu);
    give_to(lanes, other, cpu);
}

/* ---- any thread ---- */

struct segment *lane_move_in(struct lanes *lanes, struct lane *lane, bool far)
{
    struct segment *segment = NULL;

    if (exchange_acq_rel(&lanes->moving, 1))
        return NULL; /* nobody waits: then the lane becomes larger */
    if (lane->cpu == lanes_index_here(lanes))
        segment = find_deserted(lanes, lane, far);
    if (segment)
        exchange_homes(lanes, lane, segment->lane);
    store_release(&lanes->moving, 0);
    return segment;
}
