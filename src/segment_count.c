/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the slots of a segment have counted, and what they hold: read beside all who change them.
 *
 * Counts leave the slots when their pages go back, or when one has counted as far as it can. Who
 * takes them out may be preempted anywhere, or wait for the system; who reads does not wait for
 * him, but goes by `carrying` (C23).
 */
#include "segment.h"

#define COUNT_TRIES 100 /* readings, if what is read goes on meanwhile */

/* ---- counts leave the slots ---- */

/*
 * `carrying`: the parts whose closed slots are counted in `carried`; and above these bits how often
 * it was changed, which tells which of the two is valid. The other one is for the next change: so a
 * value of `carrying` says the same for as long as it lasts.
 */
static uint64_t carry_version(uint64_t carrying)
{
    return carrying >> SEGMENT_PARTS;
}

static unsigned carry_place(uint64_t carrying)
{
    return carry_version(carrying) & 1;
}

void segment_carry(struct segment *segment, uint32_t parts, uint64_t more)
{
    uint64_t before = load_relaxed(&segment->carrying);
    uint64_t after = (carry_version(before) + 1) << SEGMENT_PARTS | parts;
    uint64_t carried = load_relaxed(&segment->carried[carry_place(before)]);

    /* release: who reads this although it is not valid yet finds `carrying` changed since */
    store_release(&segment->carried[carry_place(after)], carried + more);
    store_seq(&segment->carrying, after); /* before pages go, and before a slot is opened */
}

/* Those that are empty. What they had counted, all told. */
static uint64_t close_empty(lane_slot *slot, unsigned count)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < count; i++)
        (void)slot_close(&slot[i], &sum);
    return sum;
}

static void open_anew(lane_slot *slot, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (slot_is_closed(load_relaxed(&slot[i])))
            store_release(&slot[i], 0);
    }
}

bool segment_carry_part(const lane_slot *full)
{
    struct segment *segment = segment_of(full);
    uint32_t part = (uint32_t)(full - segment->slot) / RELEASE_SLOTS;
    lane_slot *slot = &segment->slot[part * RELEASE_SLOTS];

    if (exchange_acq_rel(&segment->releasing, 1))
        return false;
    segment_carry(segment, 1u << part, close_empty(slot, RELEASE_SLOTS));
    open_anew(slot, RELEASE_SLOTS);
    segment_carry(segment, 0, 0);
    store_release(&segment->releasing, 0);
    return true;
}

/* ---- counting ---- */

/* The same number taken before and after: but for one slot at most, nothing was taken meanwhile. */
HOT bool count_group_once(const struct segment *segment, uint32_t group, bool carried,
                          struct segment_tally *tally)
{
    uint64_t taken = load_acquire(&segment->taken[group]); /* pairs with take_slot */

    *tally = (struct segment_tally){.taken = taken};
    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        uint64_t slot = load_acquire(&segment->slot[group * GROUP_SLOTS + i]);
        tally->emptied += carried && slot_is_closed(slot) ? 0 : slot_count(slot);
        tally->held += slot_is_held(slot) && !(slot & SLOT_MET);
        tally->leaving += slot_is_beyond(slot, taken);
    }
    tally->taken += tally->leaving;
    return load_acquire(&segment->taken[group]) == taken;
}

/* A worker that was preempted is no obstacle; one that runs is soon through with a group. */
static struct segment_tally count_group(const struct segment *segment, uint32_t group, bool carried)
{
    struct segment_tally tally;

    for (unsigned tries = 0; tries < COUNT_TRIES; tries++) {
        /* one for each: the common one does not ask at every slot */
        if (likely(!carried) ? count_group_once(segment, group, false, &tally)
                             : count_group_once(segment, group, true, &tally))
            break;
    }
    return tally;
}

static void count_groups(const struct segment *segment, uint64_t carrying,
                         struct segment_tally *sum)
{
    uint32_t groups = load_acquire(&segment->groups_used);

    for (uint32_t group = 0; group < groups; group++) {
        bool carried = carrying >> group * GROUP_SLOTS / RELEASE_SLOTS & 1;
        struct segment_tally tally = count_group(segment, group, carried);
        sum->emptied += tally.emptied;
        sum->held += tally.held;
        sum->taken += tally.taken;
        sum->leaving += tally.leaving;
    }
}

/* The same before and after: it was so all the time. Nor is one who is `releasing` an obstacle. */
void segment_count(const struct segment *segment, struct segment_tally *sum)
{
    struct segment_tally tally;

    for (unsigned tries = 0; tries < COUNT_TRIES; tries++) {
        uint64_t carrying = load_acquire(&segment->carrying);
        tally.emptied = load_acquire(&segment->carried[carry_place(carrying)]);
        tally.held = tally.taken = tally.leaving = 0;
        count_groups(segment, carrying, &tally);
        if (load_acquire(&segment->carrying) == carrying)
            break;
    }
    sum->emptied += tally.emptied;
    sum->held += tally.held;
    sum->taken += tally.taken;
    sum->leaving += tally.leaving;
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

bool segment_slot_is_pending(const lane_slot *slot)
{
    uint64_t held = load_acquire(slot); /* pairs with who fills it: the word is there */

    return slot_is_held(held) && !timeout_has_ended(packed_timeout(held));
}

const lane_slot *segment_first_pending(const struct segment *segment)
{
    uint64_t used = (uint64_t)load_acquire(&segment->groups_used) * GROUP_SLOTS;

    for (uint64_t i = 0; i < used; i++) {
        if (segment_slot_is_pending(&segment->slot[i]))
            return &segment->slot[i];
    }
    return NULL;
}
