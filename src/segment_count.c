/* SPDX-License-Identifier: BSD-2-Clause */
/* What the slots of a segment have counted, and what they hold: read beside all who change them. */
#include "segment.h"

#define COUNT_TRIES 100 /* readings of a group */

/* The same number taken before and after: but for one slot at most, nothing was taken meanwhile. */
static bool count_group_once(const struct segment *segment, uint32_t group,
                             struct segment_tally *tally)
{
    uint64_t taken = load_acquire(&segment->taken[group]); /* pairs with take_slot */

    *tally = (struct segment_tally){.taken = taken};
    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        uint64_t slot = load_acquire(&segment->slot[group * GROUP_SLOTS + i]);
        tally->emptied += slot_count(slot);
        tally->held += slot_is_held(slot) && !(slot & SLOT_MET);
        tally->taken += slot_is_beyond(slot, taken);
    }
    return load_acquire(&segment->taken[group]) == taken;
}

/* A worker that was preempted is no obstacle, and one that runs is soon through with a group. */
static struct segment_tally count_group(const struct segment *segment, uint32_t group)
{
    struct segment_tally tally;

    for (unsigned tries = 0; tries < COUNT_TRIES; tries++) {
        if (count_group_once(segment, group, &tally))
            break;
    }
    return tally;
}

static void count_groups(const struct segment *segment, struct segment_tally *sum)
{
    uint32_t groups = load_acquire(&segment->groups_used);

    for (uint32_t group = 0; group < groups; group++) {
        struct segment_tally tally = count_group(segment, group);
        sum->emptied += tally.emptied;
        sum->held += tally.held;
        sum->taken += tally.taken;
    }
}

/* While counts go from the slots to `carried` neither is right; that does not last long. */
void segment_count(const struct segment *segment, struct segment_tally *sum)
{
    struct segment_tally tally;
    uint32_t epoch;

    for (unsigned tries = 0; tries < COUNT_TRIES; tries++) {
        epoch = load_acquire(&segment->epoch);
        tally = (struct segment_tally){.emptied = load_acquire(&segment->carried)};
        count_groups(segment, &tally);
        if (epoch % 2 == 0 && load_acquire(&segment->epoch) == epoch)
            break;
    }
    sum->emptied += tally.emptied;
    sum->held += tally.held;
    sum->taken += tally.taken;
}

bool segment_holds_any(const struct segment *segment)
{
    uint64_t used = (uint64_t)load_acquire(&segment->groups_used) * GROUP_SLOTS;

    for (uint64_t i = 0; i < used; i++) {
        if (slot_is_held(load_acquire(&segment->slot[i]))) /* pairs with lane_withdraw, for stop */
            return true;
    }
    return false;
}
