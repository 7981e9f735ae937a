/* SPDX-License-Identifier: BSD-2-Clause */
#include "lane.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_AHEAD 16  /* the producer's prefetch of the ring */
#define COUNT_TRIES 100 /* readings of a group */

/* ---- creation ---- */

int lanes_create(struct lanes *lanes, unsigned cpus)
{
    size_t ring = LANE_SLOTS * sizeof(uint64_t), each;
    char *base;

    for (lanes->count = 1; lanes->count < cpus && lanes->count * 2 <= LANES_MAX;)
        lanes->count *= 2;
    each = sizeof(struct lane) + ring;
    /* calloc: pages that no producer comes to are never touched */
    lanes->memory = calloc(1, lanes->count * each + CACHE_PAIR);
    if (!lanes->memory)
        return -ENOMEM;
    base = (char *)(((uintptr_t)lanes->memory + CACHE_PAIR - 1) & ~(uintptr_t)(CACHE_PAIR - 1));
    lanes->lane = (struct lane *)(void *)base;
    base += lanes->count * sizeof(struct lane);
    for (unsigned i = 0; i < lanes->count; i++, base += ring) {
        lanes->lane[i].ring = (_Atomic uint64_t *)(void *)base;
        store_relaxed(&lanes->lane[i].earliest, UINT64_MAX);
        store_relaxed(&lanes->lane[i].moved, UINT64_MAX);
        ck_stack_init(&lanes->lane[i].notices);
        ck_stack_init(&lanes->lane[i].spill);
    }
    return 0;
}

void lanes_destroy(struct lanes *lanes)
{
    free(lanes->memory);
    lanes->memory = NULL;
    lanes->lane = NULL;
}

/* ---- submission ---- */

static _Thread_local uint64_t submissions; /* by this thread, to all timers (G15) */

HOT void lower(_Atomic uint64_t *bound, uint64_t deadline)
{
    uint64_t earliest = load_seq(bound);

    while (unlikely(deadline < earliest)) {
        if (cas_seq(bound, &earliest, deadline))
            return;
    }
}

/* The timeout lies in its slot by now (C3): the worker takes `earliest` first, then looks. */
HOT void announce(struct lane *lane, uint64_t deadline)
{
    lower(&lane->earliest, deadline);
}

static void push_spill(struct lane *lane, hwt_timeout *timeout)
{
    ck_stack_push_upmc(&lane->spill, &timeout->spilled);
    ck_pr_fence_atomic_load(); /* pushed before the comparisons that follow (C4) */
}

/* Nothing comes back from the spill, so stop waits for whoever is between the two steps (C6). */
static int submit_to_spill(struct lane *lane, hwt_timeout *timeout)
{
    int result = -ESHUTDOWN;

    add_seq(&lane->spilling, 1); /* before `closed` is read: pairs with lane_sweep_all */
    if (!load_seq(&lane->closed)) {
        add_relaxed(&lane->spilled, 1);
        push_spill(lane, timeout);
        result = 0;
    }
    sub_acq_rel(&lane->spilling, 1);
    return result;
}

/* Fills an empty slot; what it holds then, or 0: it was not empty. */
HOT uint64_t try_slot(struct lane *lane, uint32_t origin, hwt_timeout *timeout)
{
    _Atomic uint64_t *slot = &lane->ring[origin & LANE_MASK];
    uint64_t empty = load_relaxed(slot), filled;

    if (packed_timeout(empty))
        return 0;
    if (unlikely(packed_bits(empty) == (UINT64_C(1) << PACKED_BITS) - 1)) {
        if (!cas_acq_rel(slot, &empty, 0))
            return 0;
        add_relaxed(&lane->carried, packed_bits(empty));
        empty = 0;
    }
    store_relaxed(&timeout->where, where_of_origin(origin));
    filled = empty | (uint64_t)(uintptr_t)timeout;
    /* publishes the timeout to whoever empties the slot; seq_cst for C2 to C4 */
    return cas_seq(slot, &empty, filled) ? filled : 0;
}

static void raise_groups_used(struct lane *lane, uint32_t groups)
{
    uint32_t used = load_relaxed(&lane->groups_used);

    while (used < groups && !cas_seq(&lane->groups_used, &used, groups)) /* C6: lane_sweep_all */
        continue;
}

/* The group is known to the next sweep: the flag is read after the slot was filled (C2). */
HOT void mark_fresh(struct lane *lane, uint32_t origin)
{
    uint32_t group = (origin & LANE_MASK) / GROUP_SLOTS;

    if (likely(load_seq(&lane->fresh[group])))
        return;
    raise_groups_used(lane, group + 1);
    store_seq(&lane->fresh[group], 1);
}

/* A sample of the whole ring: mostly taken? */
static bool looks_crowded(struct lane *lane)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < SAMPLES; i++)
        taken += packed_timeout(load_relaxed(&lane->ring[i * (LANE_SLOTS / SAMPLES)])) != NULL;
    return taken >= SAMPLES_TAKEN;
}

/* Only the one who raises the flag wakes the worker. */
static bool ask_for_space(struct lane *lane)
{
    return load_relaxed(&lane->crowded) == 0 && exchange_seq(&lane->crowded, 1) == 0;
}

/*
 * Closed meanwhile: taken back, or stop has it, then it was accepted. By the slot alone: the
 * timeout may be over and gone, if there is no handle to it.
 */
static int settle(struct lane *lane, uint32_t origin, uint64_t filled)
{
    if (!cas_acq_rel(&lane->ring[origin & LANE_MASK], &filled, slot_emptied(filled)))
        return 0;
    add_relaxed(&lane->refused, 1);
    return -ESHUTDOWN;
}

/*
 * The tail is no more than a hint where to go on: it is not raised atomically, and threads that
 * share a lane may set it back. Whoever finds a slot taken tries the next one, and after a few
 * leaps ahead by ever larger steps, because what stands in the way stands together: the timeouts
 * of a thread that is not running just now.
 */
HOT uint64_t next_position(struct lane *lane, unsigned probe)
{
    uint64_t position = load_relaxed(&lane->tail);

    if (unlikely(probe > STEPS))
        position += GROUP_SLOTS << (probe - STEPS - 1);
    store_relaxed(&lane->tail, position + 1);
    __builtin_prefetch((const void *)&lane->ring[(position + SLOTS_AHEAD) & LANE_MASK], 1);
    return position;
}

/* In its slot: now the worker must hear of it, and it must not have been too late. */
HOT int publish(struct lane *lane, uint32_t origin, uint64_t filled, uint64_t deadline)
{
    mark_fresh(lane, origin);
    announce(lane, deadline);
    if (unlikely(load_seq(&lane->closed))) /* after the slot was filled: pairs with lane_close */
        return settle(lane, origin, filled);
    return 0;
}

HOT uint32_t origin_of(unsigned index, uint64_t position)
{
    return index << LANE_BITS | (uint32_t)(position & LANE_MASK);
}

/* The first slot was taken. */
static __attribute__((noinline)) int submit_further(struct lanes *lanes, unsigned index,
                                                    hwt_timeout *timeout, uint64_t deadline,
                                                    bool *crowded)
{
    struct lane *lane = &lanes->lane[index];
    int result;

    for (unsigned probe = 1; probe <= PROBES; probe++) {
        uint32_t origin = origin_of(index, next_position(lane, probe));
        uint64_t filled = try_slot(lane, origin, timeout);
        if (filled)
            return publish(lane, origin, filled, deadline);
    }
    *crowded = ask_for_space(lane);
    result = submit_to_spill(lane, timeout);
    announce(lane, deadline);
    return result;
}

int lane_submit(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline, bool *crowded)
{
    unsigned index = lanes_index_here(lanes);
    struct lane *lane = &lanes->lane[index];
    uint64_t position = next_position(lane, 0), filled;

    timeout->stamp = ++submissions << STAMP_LANE_BITS | (index & ((1u << STAMP_LANE_BITS) - 1));
    filled = try_slot(lane, origin_of(index, position), timeout);
    if (unlikely(!filled))
        return submit_further(lanes, index, timeout, deadline, crowded);
    if (unlikely(position % LOOK_EVERY == 0) && looks_crowded(lane))
        *crowded = ask_for_space(lane);
    return publish(lane, origin_of(index, position), filled, deadline);
}

void lane_notify(struct lane *lane, hwt_timeout *timeout)
{
    ck_stack_push_upmc(&lane->notices, &timeout->link);
    ck_pr_fence_atomic_load(); /* queued before the comparison with the wake-up (C4) */
}

void lane_tell_moved(struct lane *lane, uint64_t deadline)
{
    lower(&lane->moved, deadline);
}

/* ---- the worker's side ---- */

bool lane_has_notices(const struct lane *lane)
{
    return ck_pr_load_ptr(&lane->notices.head) != NULL;
}

bool lane_has_mail(const struct lane *lane)
{
    return lane_has_notices(lane) || ck_pr_load_ptr(&lane->spill.head) != NULL;
}

hwt_timeout *lane_take_notices(struct lane *lane)
{
    ck_stack_entry_t *first;

    if (ck_pr_load_ptr(&lane->notices.head) == NULL)
        return NULL;
    first = ck_stack_batch_pop_upmc(&lane->notices);
    return first ? container_of(first, hwt_timeout, link) : NULL;
}

hwt_timeout *lane_take_spill(struct lane *lane)
{
    ck_stack_entry_t *first;

    if (ck_pr_load_ptr(&lane->spill.head) == NULL)
        return NULL;
    first = ck_stack_batch_pop_upmc(&lane->spill);
    return first ? container_of(first, hwt_timeout, spilled) : NULL;
}

hwt_timeout *lane_next_spilled(const hwt_timeout *timeout)
{
    ck_stack_entry_t *next = timeout->spilled.next;
    return next ? container_of(next, hwt_timeout, spilled) : NULL;
}

/*
 * Against a canceller who withdraws it. The worker may be preempted between any two steps: the slot
 * itself tells whether it has been counted yet (count_group).
 */
static bool take_slot(struct lane *lane, uint32_t index, uint64_t *held)
{
    _Atomic uint64_t *slot = &lane->ring[index], *count = &lane->taken[index / GROUP_SLOTS];
    uint64_t taken = load_relaxed(count), emptied = slot_emptied(*held);

    if (!cas_seq(slot, held, slot_being_taken(emptied, taken)))
        return false;
    store_release(count, taken + 1);
    store_release(slot, emptied);
    return true;
}

bool lane_take_back(struct lanes *lanes, hwt_timeout *timeout)
{
    struct lane *lane;
    uint32_t index;
    uint64_t held;
    uint32_t origin;

    if (!origin_of_where(load_relaxed(&timeout->where), &origin))
        return false;
    lane = &lanes->lane[origin >> LANE_BITS];
    index = origin & LANE_MASK;
    held = load_acquire(&lane->ring[index]);
    return packed_timeout(held) == timeout && take_slot(lane, index, &held);
}

/* What it held, or NULL. */
static hwt_timeout *sweep_slot(struct lane *lane, uint32_t index)
{
    uint64_t held = load_seq(&lane->ring[index]); /* after its group's flag was taken (C2) */

    while (packed_timeout(held)) {
        if (take_slot(lane, index, &held))
            return packed_timeout(held);
    }
    return NULL;
}

static void sweep_group(struct lane *lane, unsigned group, lane_take *take, void *context)
{
    hwt_timeout *found[GROUP_SLOTS];
    uint32_t first = group * GROUP_SLOTS;
    unsigned count = 0;

    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        hwt_timeout *timeout = sweep_slot(lane, first + i);
        if (!timeout)
            continue;
        __builtin_prefetch(timeout, 1);
        found[count++] = timeout;
    }
    if (count > 0)
        take(context, found, count);
}

/* Eight flags at a time. */
static bool group_block_fresh(const struct lane *lane, unsigned group)
{
    for (unsigned i = 0; i < 8; i++) {
        if (load_seq(&lane->fresh[group + i]))
            return true;
    }
    return false;
}

void lane_sweep(struct lane *lane, lane_take *take, void *context)
{
    store_relaxed(&lane->crowded, 0);
    for (unsigned group = 0; group < LANE_GROUPS; group++) {
        if (group % 8 == 0 && !group_block_fresh(lane, group)) {
            group += 7;
            continue;
        }
        if (!load_seq(&lane->fresh[group]))
            continue;
        store_seq(&lane->fresh[group], 0); /* first this, then the slots (C2) */
        sweep_group(lane, group, take, context);
    }
}

void lane_sweep_older(struct lane *lane, lane_take *take, void *context)
{
    unsigned group;

    store_relaxed(&lane->crowded, 0);
    group = (unsigned)(load_relaxed(&lane->tail) & LANE_MASK) / GROUP_SLOTS + 1;
    for (unsigned i = 0; i < LANE_GROUPS / 2; i++, group++)
        sweep_group(lane, group % LANE_GROUPS, take, context);
}

void lane_close(struct lane *lane)
{
    store_seq(&lane->closed, 1); /* pairs with the submitters' second look */
}

bool lane_sweep_all(struct lane *lane, lane_take *take, void *context)
{
    bool quiet = load_seq(&lane->spilling) == 0; /* before the spill is collected */

    /* after `closed` was set: whoever relied on an older `fresh` is in a group counted here */
    for (unsigned group = 0; group < load_seq(&lane->groups_used); group++)
        sweep_group(lane, group, take, context);
    return quiet;
}

struct group_tally {
    uint64_t emptied, held, taken;
};

/* The same number taken before and after: but for one slot at most, nothing was taken meanwhile. */
static bool count_group_once(const struct lane *lane, uint32_t group, struct group_tally *tally)
{
    uint64_t taken = load_acquire(&lane->taken[group]); /* pairs with take_slot */

    *tally = (struct group_tally){.taken = taken};
    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        uint64_t slot = load_acquire(&lane->ring[group * GROUP_SLOTS + i]);
        tally->emptied += packed_bits(slot);
        tally->held += slot_is_held(slot);
        tally->taken += slot_is_beyond(slot, taken);
    }
    return load_acquire(&lane->taken[group]) == taken;
}

/* A worker that was preempted is no obstacle, and one that runs is soon through with a group. */
static struct group_tally count_group(const struct lane *lane, uint32_t group)
{
    struct group_tally tally;

    for (unsigned tries = 0; tries < COUNT_TRIES; tries++) {
        if (count_group_once(lane, group, &tally))
            break;
    }
    return tally;
}

struct lane_tally lane_count(const struct lane *lane)
{
    uint64_t emptied = load_acquire(&lane->carried), held = 0, taken = 0, refused;
    uint32_t groups = load_acquire(&lane->groups_used);

    for (uint32_t group = 0; group < groups; group++) {
        struct group_tally tally = count_group(lane, group);
        emptied += tally.emptied;
        held += tally.held;
        taken += tally.taken;
    }
    refused = load_acquire(&lane->refused);
    return (struct lane_tally){
        .scheduled = emptied + held + load_acquire(&lane->spilled) - refused,
        .withdrawn = emptied - taken - refused,
    };
}

bool lane_holds_any(const struct lane *lane)
{
    uint64_t used = (uint64_t)load_acquire(&lane->groups_used) * GROUP_SLOTS;

    if (ck_pr_load_ptr(&lane->spill.head) != NULL)
        return true;
    for (uint64_t i = 0; i < used; i++) {
        if (slot_is_held(load_relaxed(&lane->ring[i])))
            return true;
    }
    return false;
}
