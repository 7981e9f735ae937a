/* SPDX-License-Identifier: BSD-2-Clause */
#include "segment.h"

#include <errno.h>

#include "platform.h"

#define COUNT_TRIES   100 /* readings of a group */
#define SEGMENT_PARTS (LANE_SLOTS / RELEASE_SLOTS)
#define ALL_PARTS     ((1u << SEGMENT_PARTS) - 1)

/* ---- where they come from ---- */

/* Pages that no producer comes to are never touched; small ones, in proportion to what lives. */
static char *map_regions(size_t count)
{
    char *regions = NULL;

    if (count <= SIZE_MAX / SEGMENT_SIZE)
        regions = platform_map(count * SEGMENT_SIZE, SEGMENT_SIZE);
    if (regions)
        platform_advise_small(regions, count * SEGMENT_SIZE);
    return regions;
}

int segment_store_create(struct segment_store *store, size_t count)
{
    store->first = (struct bunch){.regions = map_regions(count), .count = count};
    store_relaxed(&store->newest, &store->first);
    return store->first.regions ? 0 : -ENOMEM;
}

void segment_store_destroy(struct segment_store *store)
{
    struct bunch *bunch = load_acquire(&store->newest), *before; /* pairs with take_region */

    for (; bunch; bunch = before) {
        before = bunch->before;
        platform_unmap(bunch->regions, bunch->count * SEGMENT_SIZE);
    }
}

/* It begins with what describes it: a segment lies at the end of its region. NULL: no memory. */
static struct bunch *map_bunch(struct bunch *before)
{
    size_t count = BUNCH;
    char *regions = map_regions(count);
    struct bunch *bunch;

    if (!regions && (regions = map_regions(count = 1)) == NULL)
        return NULL;
    bunch = (struct bunch *)(void *)regions;
    bunch->regions = regions;
    bunch->count = count;
    bunch->before = before;
    store_relaxed(&bunch->used, 1); /* whoever maps it needs one */
    return bunch;
}

/*
 * Who comes second with a new bunch goes on with the other's. Whoever reads `newest` acquires what
 * map_bunch has written, which its compare-and-swap releases. `used` orders nothing: a region has
 * never been touched, and its segment is published by segment_link.
 */
static char *take_region(struct segment_store *store)
{
    struct bunch *bunch = load_acquire(&store->newest), *more;
    size_t index;

    for (;;) {
        if (load_relaxed(&bunch->used) < bunch->count &&
            (index = add_relaxed(&bunch->used, 1)) < bunch->count)
            return bunch->regions + index * SEGMENT_SIZE;
        more = map_bunch(bunch);
        if (!more || cas_acq_rel(&store->newest, &bunch, more))
            return more ? more->regions : NULL;
        platform_unmap(more->regions, more->count * SEGMENT_SIZE);
    }
}

struct segment *segment_create(struct segment_store *store, struct lane *lane, bool far)
{
    char *region = take_region(store);
    struct segment *segment = region ? segment_in((uintptr_t)region) : NULL;

    if (!segment)
        return NULL;
    store_relaxed(&segment->earliest, UINT64_MAX);
    store_relaxed(&segment->next, segment);
    store_relaxed(&segment->alike, segment);
    segment->lane = lane;
    segment->store = store;
    segment->far = far;
    return segment;
}

/* ---- more ---- */

void segment_link(struct segment *here, struct segment *segment)
{
    struct segment *next = segment_next(here);

    do {
        store_relaxed(&segment->next, next);
    } while (!cas_seq(&here->next, &next, segment));
}

/* In the ring by now: who comes by here fills only what a sweep finds. */
static void link_alike(struct segment *here, struct segment *segment)
{
    struct segment *alike = load_acquire(&here->alike);

    do {
        store_relaxed(&segment->alike, alike);
    } while (!cas_acq_rel(&here->alike, &alike, segment));
}

/* The next one that is as far. */
static struct segment *next_alike(const struct segment *segment)
{
    return load_acquire(&segment->alike); /* pairs with link_alike */
}

struct segment *segment_add(struct segment_store *store, struct segment *here)
{
    struct segment *segment = segment_create(store, here->lane, here->far);

    if (segment) {
        segment_link(here, segment);
        link_alike(here, segment);
    }
    return segment;
}

static bool count_far(struct segment_store *store, uint32_t more)
{
    uint32_t before = add_seq(&store->far_groups, more); /* before the worker is told, if it is */

    return segment_doubled(before, before + more);
}

bool segment_raise_groups(struct segment *segment, uint32_t groups)
{
    uint32_t used = load_relaxed(&segment->groups_used);

    while (used < groups) {
        if (cas_seq(&segment->groups_used, &used, groups)) /* C6: lane_sweep_all */
            return segment->far && count_far(segment->store, groups - used);
    }
    return false;
}

/* Several may be about to: whoever changes it counts, by what it says. */
static void retire(struct segment *segment)
{
    uint32_t groups = load_relaxed(&segment->groups_used), in_use = 0;

    if (cas_acq_rel(&segment->retired, &in_use, groups + 1) && segment->far)
        sub_relaxed(&segment->store->far_groups, groups);
}

static void use_again(struct segment *segment)
{
    uint32_t retired;

    store_relaxed(&segment->released, 0);
    retired = exchange_acq_rel(&segment->retired, 0);

    if (retired && segment->far)
        add_seq(&segment->store->far_groups, retired - 1); /* as above */
}

/* Each is in a page of its own, which nobody may have touched for long: as few as will do. */
static unsigned sample(const struct segment *segment, unsigned count)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < count; i++)
        taken += packed_timeout(load_relaxed(&segment->slot[i * (LANE_SLOTS / count)])) != NULL;
    return taken;
}

unsigned segment_sample(const struct segment *segment)
{
    return sample(segment, SAMPLES);
}

/* Mostly a few tell. */
static bool has_room(const struct segment *segment)
{
    unsigned taken = sample(segment, SAMPLES_FIRST);

    if (4 * taken <= SAMPLES_FIRST)
        return true;
    return 4 * taken < 3 * SAMPLES_FIRST && segment_sample(segment) < SAMPLES_TAKEN;
}

/*
 * A stretch of the ring: what is found there need not be the nearest, and where nothing is, one
 * more for each stretch is a small part of what there is.
 */
struct segment *segment_with_room(struct segment_store *store, struct segment *here,
                                  struct survey *survey)
{
    struct segment *begin = load_acquire(&survey->at), *segment = begin, *retired = NULL;
    bool found = false;

    for (unsigned steps = 0; !found && steps < SURVEY_MOST; steps++) {
        segment = next_alike(segment);
        if (unlikely(load_relaxed(&segment->retired)))
            retired = segment;
        else
            found = has_room(segment);
        if (segment == begin)
            break;
    }
    store_release(&survey->at, segment);
    if (found)
        return segment;
    if (!retired)
        return segment_add(store, here);
    use_again(retired);
    return retired;
}

/* ---- fewer ---- */

/*
 * All slots of a part, if none of them holds anything: their counts, all told. So many as `done`
 * have been closed.
 */
static bool close_slots(lane_slot *slot, unsigned *done, uint64_t *counts)
{
    for (*done = 0; *done < RELEASE_SLOTS; ++*done, slot++) {
        uint64_t empty = load_relaxed(slot);
        if (packed_timeout(empty) || !cas_acq_rel(slot, &empty, empty | SLOT_CLOSED))
            return false;
        *counts += slot_count(empty);
    }
    return true;
}

static void reopen_slots(lane_slot *slot, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        store_release(&slot[i], load_relaxed(&slot[i]) & ~SLOT_CLOSED);
}

/* The system may have kept the pages: then the slots still are as they were closed. */
static bool are_closed(const lane_slot *slot)
{
    return (load_acquire(slot) & PACKED_ADDRESS) == SLOT_CLOSED;
}

/* By who is `releasing`. False: it is in use, or the system has kept the pages. */
static bool release_part(struct segment *segment, lane_slot *slot)
{
    uint64_t counts = 0;
    unsigned closed;
    bool kept;

    if (!close_slots(slot, &closed, &counts)) {
        reopen_slots(slot, closed);
        return false;
    }
    add_seq(&segment->epoch, 1);
    platform_release_pages((void *)(uintptr_t)slot, RELEASE_SLOTS * sizeof *slot);
    kept = are_closed(slot);
    if (kept)
        reopen_slots(slot, closed);
    else
        add_release(&segment->carried, counts);
    add_seq(&segment->epoch, 1);
    return !kept;
}

/* False: it had, or cannot yet. */
static bool release_next_part(struct segment *segment)
{
    uint32_t part, bit;
    bool done;

    if (exchange_acq_rel(&segment->releasing, 1))
        return false;
    part = segment->part;
    bit = 1u << part;
    done = !(load_relaxed(&segment->released) & bit) &&
           release_part(segment, &segment->slot[part * RELEASE_SLOTS]);
    if (done)
        or_seq(&segment->released, bit);
    segment->part = (part + 1) % SEGMENT_PARTS;
    store_release(&segment->releasing, 0);
    return done;
}

static bool has_given_all(const struct segment *segment)
{
    return load_relaxed(&segment->released) == ALL_PARTS;
}

bool segment_give_back(struct survey *survey)
{
    struct segment *segment = load_acquire(&survey->leaving);

    if (likely(!segment))
        return false;
    if (!load_relaxed(&segment->retired) || has_given_all(segment)) {
        store_release(&survey->leaving, NULL);
        return false;
    }
    return release_next_part(segment);
}

/* A stretch on: where few are left, one retires; what had retired before has pages to give back. */
static void look_on(struct segment *here, struct survey *survey)
{
    struct segment *begin = load_acquire(&survey->at), *segment = begin;
    struct segment *leaving = NULL, *last = NULL;
    unsigned taken = sample(here, SAMPLES_FIRST), in_use = 1;

    for (unsigned steps = 0; steps < SURVEY_MOST; steps++) {
        segment = next_alike(segment);
        if (unlikely(load_relaxed(&segment->retired))) {
            if (!has_given_all(segment))
                leaving = segment;
        } else if (segment != here) {
            taken += sample(segment, SAMPLES_FIRST);
            in_use++;
            last = segment;
        }
        if (segment == begin)
            break;
    }
    store_release(&survey->at, segment);
    if (leaving)
        store_release(&survey->leaving, leaving);
    if (last && taken * FEW_BELOW < in_use * SAMPLES_FIRST)
        retire(last);
}

/* The next one that is in use, if it is not far off. */
static struct segment *next_in_use(struct segment *here)
{
    struct segment *next = next_alike(here);

    for (unsigned steps = 0; steps < SURVEY_MOST && next != here;
         steps++, next = next_alike(next)) {
        if (!load_relaxed(&next->retired))
            return next;
    }
    if (unlikely(load_relaxed(&here->retired)))
        use_again(here);
    return here;
}

/* Rather round the same one again than into one that is crowded. */
struct segment *segment_after(struct segment *here, struct survey *survey)
{
    struct segment *next;

    if (likely(next_alike(here) == here))
        return here;
    look_on(here, survey);
    next = next_in_use(here);
    return next != here && !has_room(next) && has_room(here) ? here : next;
}

/* ---- counting ---- */

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
