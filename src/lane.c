/* SPDX-License-Identifier: BSD-2-Clause */
#include "lane.h"

#include <errno.h>
#include <stdlib.h>

#include "platform.h"
#include "pool.h"

#define SLOTS_AHEAD 16 /* the producer's prefetch of the ring */

/* ---- creation ---- */

/* A lane is given another segment when its own are half full. */
static size_t segments_for(size_t timeouts)
{
    return timeouts / LANE_SLOTS * 3 + (timeouts % LANE_SLOTS * 3 + LANE_SLOTS - 1) / LANE_SLOTS;
}

static void lane_init(struct lane *lane, struct segment_store *store)
{
    struct segment *far = segment_create(store, lane, true); /* two of those that there are */

    lane->first = segment_create(store, lane, false);
    segment_link(lane->first, far);
    store_relaxed(&lane->tail[0], lane->first->slot);
    store_relaxed(&lane->tail[1], far->slot);
    store_relaxed(&lane->earliest, UINT64_MAX);
    store_relaxed(&lane->far_from, UINT64_MAX);
    store_relaxed(&lane->moved, UINT64_MAX);
    lane->mail_earliest = UINT64_MAX;
    ck_stack_init(&lane->notices);
    ck_stack_init(&lane->spill);
}

int lanes_create(struct lanes *lanes, unsigned cpus, size_t reserve)
{
    for (lanes->count = 1; lanes->count < cpus && lanes->count * 2 <= LANES_MAX;)
        lanes->count *= 2;
    lanes->memory = calloc(1, lanes->count * sizeof(struct lane) + CACHE_PAIR);
    if (!lanes->memory ||
        segment_store_create(&lanes->store, 2 * lanes->count + segments_for(reserve)) != 0) {
        free(lanes->memory);
        lanes->memory = NULL;
        return -ENOMEM;
    }
    lanes->lane = (struct lane *)(void *)(((uintptr_t)lanes->memory + CACHE_PAIR - 1) &
                                          ~(uintptr_t)(CACHE_PAIR - 1));
    for (unsigned i = 0; i < lanes->count; i++)
        lane_init(&lanes->lane[i], &lanes->store);
    return 0;
}

void lanes_destroy(struct lanes *lanes)
{
    if (!lanes->memory)
        return;
    for (unsigned i = 0; i < lanes->count; i++)
        segment_destroy_ring(&lanes->store, lanes->lane[i].first);
    segment_store_destroy(&lanes->store);
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

/*
 * The timeout lies in its slot by now (C3): the worker takes `earliest`, the lane's and then the
 * segment's, and then looks.
 */
HOT void announce(struct lane *lane, struct segment *segment, uint64_t deadline)
{
    lower(&segment->earliest, deadline);
    lower(&lane->earliest, deadline);
}

/*
 * As ck_stack_push_upmc does, but that the link, which lies over `where`, is written atomically:
 * of one that comes back (lane_submit_met) others may look at it meanwhile.
 */
static void push_spill(struct lane *lane, hwt_timeout *timeout)
{
    ck_stack_entry_t *head = ck_pr_load_ptr(&lane->spill.head);

    do {
        store_relaxed(&timeout->where, (uint64_t)(uintptr_t)head);
        ck_pr_fence_store_atomic();
    } while (!ck_pr_cas_ptr_value(&lane->spill.head, head, &timeout->spilled, &head));
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

/* Fills an empty slot; what it holds then, or 0: it was not empty. `met`: SLOT_MET, or 0. */
HOT uint64_t try_slot(lane_slot *slot, hwt_timeout *timeout, uint64_t met)
{
    uint64_t empty = load_relaxed(slot), filled;

    if (packed_timeout(empty))
        return 0;
    if (unlikely(slot_count(empty) == (UINT64_C(1) << SLOT_COUNT_BITS) - 1)) {
        if (!cas_acq_rel(slot, &empty, 0))
            return 0;
        add_relaxed(&segment_of(slot)->carried, slot_count(empty));
        empty = 0;
    }
    if (unlikely(met)) /* in one order with those who look for it (lane_withdraw_met) */
        store_seq(&timeout->where, where_of_lane_slot(slot));
    else
        store_relaxed(&timeout->where, where_of_lane_slot(slot));
    filled = empty | (uint64_t)(uintptr_t)timeout | met;
    /* publishes the timeout to whoever empties the slot; seq_cst for C2 to C4 */
    return cas_seq(slot, &empty, filled) ? filled : 0;
}

static void raise_groups_used(struct segment *segment, uint32_t groups)
{
    uint32_t used = load_relaxed(&segment->groups_used);

    while (used < groups && !cas_seq(&segment->groups_used, &used, groups)) /* C6: lane_sweep_all */
        continue;
}

/* The group is known to the next sweep: the flag is read after the slot was filled (C2). */
HOT void mark_fresh(struct segment *segment, const lane_slot *slot)
{
    uint32_t group = (uint32_t)(slot - segment->slot) / GROUP_SLOTS;

    if (likely(load_seq(&segment->fresh[group])))
        return;
    raise_groups_used(segment, group + 1);
    store_seq(&segment->fresh[group], 1);
}

/*
 * Closed meanwhile: taken back, or stop has it, then it was accepted. By the slot alone: the
 * timeout may be over and gone, if there is no handle to it.
 */
static int settle(struct lane *lane, lane_slot *slot, uint64_t filled)
{
    if (!cas_acq_rel(slot, &filled, slot_emptied(filled)))
        return 0;
    add_relaxed(&lane->refused, 1);
    return -ESHUTDOWN;
}

/* Once for so many submissions: time to give back what is not needed any more. */
static __attribute__((noinline)) lane_slot *go_on_after(struct segment *segment)
{
    pool_ease();
    return segment_after(segment)->slot;
}

HOT lane_slot *slot_after(lane_slot *slot)
{
    return unlikely(segment_ends_at(slot + 1)) ? go_on_after(segment_of(slot)) : slot + 1;
}

/*
 * The tail is no more than a hint where to go on: it is not raised atomically, and threads that
 * share a lane may set it back. Whoever finds a slot taken tries the next one, and after a few
 * leaps ahead by ever larger steps, because what stands in the way stands together: the timeouts
 * of a thread that is not running just now.
 */
HOT lane_slot *next_slot(_Atomic(lane_slot *) *tail, unsigned probe)
{
    lane_slot *slot = load_acquire(tail); /* with the segment that it is in */

    if (unlikely(probe > STEPS)) {
        size_t step = (size_t)GROUP_SLOTS << (probe - STEPS - 1);
        size_t here = (size_t)(slot - segment_of(slot)->slot);
        slot = here + step < LANE_SLOTS ? slot + step : go_on_after(segment_of(slot));
    }
    store_release(tail, slot_after(slot));
    __builtin_prefetch((const void *)(slot + SLOTS_AHEAD), 1);
    return slot;
}

HOT _Atomic(lane_slot *) *tail_for(struct lane *lane, uint64_t deadline)
{
    return &lane->tail[deadline >= load_relaxed(&lane->far_from)];
}

/* In its slot: now the worker must hear of it, and it must not have been too late. */
HOT int publish(struct lane *lane, lane_slot *slot, uint64_t filled, uint64_t deadline)
{
    struct segment *segment = segment_of(slot);

    mark_fresh(segment, slot);
    announce(lane, segment, deadline);
    if (unlikely(load_seq(&lane->closed))) /* after the slot was filled: pairs with lane_close */
        return settle(lane, slot, filled);
    return 0;
}

/* It has been filled, or NULL. */
static lane_slot *probe(_Atomic(lane_slot *) *tail, hwt_timeout *timeout, uint64_t met,
                        uint64_t *filled)
{
    for (unsigned probe = 1; probe <= PROBES; probe++) {
        lane_slot *slot = next_slot(tail, probe);
        if ((*filled = try_slot(slot, timeout, met)) != 0)
            return slot;
    }
    return NULL;
}

/* The first slot was taken. NULL: no slot is empty, and there is no memory for more. */
static __attribute__((noinline)) lane_slot *find_slot(struct lanes *lanes,
                                                      _Atomic(lane_slot *) *tail,
                                                      hwt_timeout *timeout, uint64_t met,
                                                      uint64_t *filled)
{
    lane_slot *slot = probe(tail, timeout, met, filled);
    struct segment *segment = segment_of(load_acquire(tail));

    for (unsigned tries = 0; !slot && tries < SEGMENT_TRIES; tries++) {
        segment = tries + 1 < SEGMENT_TRIES ? segment_with_room(&lanes->store, segment)
                                            : segment_add(&lanes->store, segment);
        if (!segment)
            return NULL;
        store_release(tail, segment->slot);
        slot = probe(tail, timeout, met, filled);
    }
    return slot;
}

static __attribute__((noinline)) int submit_further(struct lanes *lanes, struct lane *lane,
                                                    hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t filled;
    lane_slot *slot = find_slot(lanes, tail_for(lane, deadline), timeout, 0, &filled);
    int result;

    if (likely(slot != NULL))
        return publish(lane, slot, filled, deadline);
    result = submit_to_spill(lane, timeout);
    announce(lane, lane->first, deadline);
    return result;
}

int lane_submit(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline)
{
    unsigned index = lanes_index_here(lanes);
    struct lane *lane = &lanes->lane[index];
    lane_slot *slot = next_slot(tail_for(lane, deadline), 0);
    uint64_t filled;

    timeout->stamp = ++submissions << STAMP_LANE_BITS | (index & ((1u << STAMP_LANE_BITS) - 1));
    filled = try_slot(slot, timeout, 0);
    if (unlikely(!filled))
        return submit_further(lanes, lane, timeout, deadline);
    return publish(lane, slot, filled, deadline);
}

/*
 * Whoever ends or moves it meanwhile finds it in no slot, and leaves a notice; or he has changed
 * the word before that is read here. Then the worker shall look at it soon: it may be marked. Read
 * by a read-modify-write: whoever changes it after that sees the slot as it was filled before.
 */
uint64_t lane_submit_met(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline)
{
    struct lane *lane = lanes_here(lanes);
    struct segment *segment = lane->first;
    uint64_t filled, word;
    lane_slot *slot = find_slot(lanes, tail_for(lane, deadline), timeout, SLOT_MET, &filled);

    if (likely(slot != NULL)) {
        segment = segment_of(slot);
        mark_fresh(segment, slot);
    } else {
        push_spill(lane, timeout); /* not counted: it was, when it came the first time */
    }
    word = add_acq_rel(&timeout->word, 0);
    deadline = word_code(word) == WORD_CANCELLED ? 0 : min_u64(deadline, word_deadline(word));
    announce(lane, segment, deadline);
    return deadline;
}

/*
 * The slot is changed to what it holds: that comes before it is emptied, or finds that it was. Who
 * empties it afterwards sees the new deadline.
 */
bool lane_move(const hwt_timeout *timeout, uint64_t deadline)
{
    lane_slot *slot = lane_slot_of_where(load_seq(&timeout->where));
    uint64_t held = slot ? load_relaxed(slot) : 0;

    if (!slot || packed_timeout(held) != timeout || !cas_seq(slot, &held, held))
        return false;
    mark_fresh(segment_of(slot), slot);
    announce(segment_of(slot)->lane, segment_of(slot), deadline);
    return true;
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
    return lane->mail || ck_pr_load_ptr(&lane->notices.head) != NULL;
}

bool lane_has_mail(const struct lane *lane)
{
    return lane_has_notices(lane) || ck_pr_load_ptr(&lane->spill.head) != NULL;
}

/* All at once from the stack, one by one from here. */
hwt_timeout *lane_take_notice(struct lane *lane)
{
    hwt_timeout *timeout = lane->mail;
    ck_stack_entry_t *first = NULL;

    if (!timeout && ck_pr_load_ptr(&lane->notices.head) != NULL)
        first = ck_stack_batch_pop_upmc(&lane->notices);
    if (first)
        timeout = container_of(first, hwt_timeout, link);
    lane->mail = timeout ? timeout_next_linked(timeout) : NULL;
    if (lane->mail)
        __builtin_prefetch(lane->mail, 1);
    return timeout;
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
static bool take_slot(struct segment *segment, uint32_t index, uint64_t *held)
{
    _Atomic uint64_t *slot = &segment->slot[index], *count = &segment->taken[index / GROUP_SLOTS];
    uint64_t taken = load_relaxed(count), emptied = slot_emptied(*held);

    if (unlikely(*held & SLOT_MET)) /* counted when it was taken the first time */
        return cas_seq(slot, held, emptied);
    if (!cas_seq(slot, held, slot_being_taken(emptied, taken)))
        return false;
    store_release(count, taken + 1);
    store_release(slot, emptied);
    return true;
}

bool lane_take_back(hwt_timeout *timeout)
{
    lane_slot *slot = lane_slot_of_where(load_seq(&timeout->where));
    struct segment *segment;
    uint64_t held;

    if (!slot)
        return false;
    segment = segment_of(slot);
    held = load_seq(slot);
    return packed_timeout(held) == timeout &&
           take_slot(segment, (uint32_t)(slot - segment->slot), &held);
}

/* ---- sweeps ---- */

/*
 * What it held; or NULL, and *left is not above the deadline of what is left in it. That may be
 * over by now, and its block somebody else's, whose deadline was read: then it is not in the slot
 * any more, and who fills that anew tells his own.
 */
static hwt_timeout *sweep_slot(struct segment *segment, uint32_t index, uint64_t near,
                               uint64_t *left)
{
    lane_slot *slot = &segment->slot[index];
    uint64_t held = load_seq(slot); /* after its group's flag was taken (C2) */

    while (slot_is_held(held)) {
        uint64_t deadline = near < DEADLINE_NEVER ? timeout_deadline(packed_timeout(held)) : 0;
        if (deadline > near) {
            *left = min_u64(*left, deadline);
            return NULL;
        }
        if (take_slot(segment, index, &held))
            return packed_timeout(held);
    }
    return NULL;
}

static void prefetch_group(const struct segment *segment, uint32_t first)
{
    for (uint32_t i = 0; i < GROUP_SLOTS; i++)
        __builtin_prefetch(packed_timeout(load_relaxed(&segment->slot[first + i])), 1);
}

/* The earliest that was left. */
static uint64_t sweep_group(struct segment *segment, unsigned group, uint64_t near, lane_take *take,
                            void *context)
{
    hwt_timeout *found[GROUP_SLOTS];
    uint32_t first = group * GROUP_SLOTS;
    uint64_t left = UINT64_MAX;
    unsigned count = 0;

    prefetch_group(segment, first);
    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        hwt_timeout *timeout = sweep_slot(segment, first + i, near, &left);
        if (timeout)
            found[count++] = timeout;
    }
    if (count > 0)
        take(context, found, count);
    return left;
}

/* Eight flags at a time. */
static bool group_block_fresh(const struct segment *segment, unsigned group)
{
    for (unsigned i = 0; i < 8; i++) {
        if (load_seq(&segment->fresh[group + i]))
            return true;
    }
    return false;
}

/* To look at one costs a seventh of what it costs to file it: so it is left a few times. */
static uint64_t look_through(struct segment *segment, unsigned group, uint64_t near,
                             lane_take *take, void *context)
{
    uint64_t left;

    if (!segment->far || segment->looks[group] >= LOOKS)
        near = DEADLINE_NEVER;
    left = sweep_group(segment, group, near, take, context);
    segment->looks[group] = left == UINT64_MAX ? 0 : (uint8_t)(segment->looks[group] + 1);
    if (left < UINT64_MAX)
        store_seq(&segment->fresh[group], 1); /* before it is told: the next sweep comes here */
    return left;
}

void lane_set_far(struct lane *lane, uint64_t deadline)
{
    store_relaxed(&lane->far_from, deadline);
}

void lane_sweep(struct lane *lane, struct segment *segment, uint64_t near, lane_take *take,
                void *context)
{
    uint64_t left = UINT64_MAX;

    for (unsigned group = 0; group < LANE_GROUPS; group++) {
        if (group % 8 == 0 && !group_block_fresh(segment, group)) {
            group += 7;
            continue;
        }
        if (!load_seq(&segment->fresh[group]))
            continue;
        store_seq(&segment->fresh[group], 0); /* first this, then the slots (C2) */
        left = min_u64(left, look_through(segment, group, near, take, context));
    }
    announce(lane, segment, left);
}

void lane_restore_earliest(struct lane *lane)
{
    struct segment *segment = lane->first;
    uint64_t earliest = UINT64_MAX;

    do {
        earliest = min_u64(earliest, load_seq(&segment->earliest));
        segment = segment_next(segment);
    } while (segment != lane->first);
    lower(&lane->earliest, earliest);
}

void lane_close(struct lane *lane)
{
    store_seq(&lane->closed, 1); /* pairs with the submitters' second look */
}

bool lane_sweep_all(struct lane *lane, lane_take *take, void *context)
{
    bool quiet = load_seq(&lane->spilling) == 0; /* before the spill is collected */
    struct segment *segment = lane->first;

    /* after `closed` was set: whoever relied on an older `fresh` is in a group counted here */
    do {
        for (unsigned group = 0; group < load_seq(&segment->groups_used); group++)
            sweep_group(segment, group, DEADLINE_NEVER, take, context);
        segment = segment_next(segment);
    } while (segment != lane->first);
    return quiet;
}

/* ---- counting ---- */

struct lane_tally lane_count(const struct lane *lane)
{
    const struct segment *segment = lane->first;
    struct segment_tally sum = {0};
    uint64_t refused;

    do {
        segment_count(segment, &sum);
        segment = segment_next(segment);
    } while (segment != lane->first);
    refused = load_acquire(&lane->refused);
    return (struct lane_tally){
        .scheduled = sum.emptied + sum.held + load_acquire(&lane->spilled) - refused,
        .withdrawn = sum.emptied - sum.taken - refused,
    };
}

bool lane_holds_any(const struct lane *lane)
{
    const struct segment *segment = lane->first;

    if (ck_pr_load_ptr(&lane->spill.head) != NULL)
        return true;
    do {
        if (segment_holds_any(segment))
            return true;
        segment = segment_next(segment);
    } while (segment != lane->first);
    return false;
}
