/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker's side of a lane: what the threads have sent comes out of it. The rules by which a
 * slot is emptied beside cancellers: C2, C3 and C20.
 */
#include "submit.h"

/* ---- mail, and what is taken back ---- */

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
 * C20. The slot is marked: whoever wins the word from now on finds it so. Who has won it before may
 * have found it unmarked, and will empty it, or has, and the block may be somebody else's by now.
 * False: it is left to him; *held is what the slot holds then, 0 if that is to be left too.
 */
HOT bool keeps_mark(lane_slot *slot, uint64_t mark, uint64_t *held)
{
    const hwt_timeout *timeout = packed_timeout(*held);
    uint64_t seen = mark;

    if (unlikely(word_code(load_seq(&timeout->word)) == WORD_CANCELLED)) {
        (void)cas_seq(slot, &seen, *held); /* as it was, unless it has been emptied */
        *held = 0;
        return false;
    }
    seen = load_seq(slot);
    if (likely(seen == mark))
        return true;
    *held = seen;
    return false;
}

/*
 * Out of its slot; `count`: of its group. `asks`: it may be that of a canceller, too (otherwise its
 * notice has come). The worker may be preempted between any two steps: the slot itself tells
 * whether it has been counted yet (count_group).
 */
HOT bool take_slot(lane_slot *slot, _Atomic uint64_t *count, uint64_t *held, bool asks)
{
    uint64_t taken = load_relaxed(count), emptied = slot_emptied(*held);
    uint64_t mark = slot_being_taken(emptied, taken);

    if (unlikely(*held & SLOT_MET)) /* counted when it was taken the first time */
        return cas_seq(slot, held, emptied);
    if (!cas_seq(slot, held, mark))
        return false;
    if (asks && !keeps_mark(slot, mark, held))
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
           take_slot(slot, &segment->taken[segment_group_of(slot)], &held, false);
}

/* ---- sweeps ---- */

#define LINE_SLOTS  (GROUP_SLOTS < 8 ? GROUP_SLOTS : 8)
#define GROUP_LINES (GROUP_SLOTS / LINE_SLOTS)

/*
 * What it held; or NULL, and *left is not above the deadline of what is left in it. That may be
 * over by now, and its block somebody else's, whose deadline was read: then it is not in the slot
 * any more, and who fills that anew tells his own.
 */
HOT hwt_timeout *sweep_slot(lane_slot *slot, _Atomic uint64_t *count, uint64_t near, uint64_t *left)
{
    uint64_t held = load_seq(slot); /* after its group's flag was taken (C2) */
    hwt_timeout *timeout;

    while (slot_is_held(held)) {
        uint64_t deadline = near < DEADLINE_NEVER ? timeout_deadline(packed_timeout(held)) : 0;
        if (deadline > near) {
            *left = min_u64(*left, deadline);
            return NULL;
        }
        timeout = packed_timeout(held);
        if (take_slot(slot, count, &held, true))
            return timeout;
    }
    return NULL;
}

/*
 * A first look at the slots of a cache line, after their group's flag was taken (C2): many that are
 * swept hold nothing, since what was cancelled is out of them. The timeouts are fetched.
 */
HOT bool line_holds_any(const lane_slot *slot)
{
    uint64_t any = 0;

#pragma GCC unroll 8
    for (unsigned i = 0; i < LINE_SLOTS; i++)
        any |= load_seq(&slot[i]);
    if (!packed_timeout(any))
        return false;
#pragma GCC unroll 8
    for (unsigned i = 0; i < LINE_SLOTS; i++)
        __builtin_prefetch(packed_timeout(load_relaxed(&slot[i])), 1);
    return true;
}

/* The earliest that was left. */
static uint64_t sweep_group(struct segment *segment, unsigned group, uint64_t near, lane_take *take,
                            void *context)
{
    lane_slot *slot = &segment->slot[group * GROUP_SLOTS];
    hwt_timeout *found[GROUP_SLOTS];
    uint64_t left = UINT64_MAX;
    unsigned held = 0, count = 0;

    for (unsigned line = 0; line < GROUP_LINES; line++)
        held |= (unsigned)line_holds_any(&slot[line * LINE_SLOTS]) << line;
    for (; held; held &= held - 1) {
        lane_slot *line = &slot[(unsigned)__builtin_ctz(held) * LINE_SLOTS];
        for (unsigned i = 0; i < LINE_SLOTS; i++) {
            hwt_timeout *timeout = sweep_slot(&line[i], &segment->taken[group], near, &left);
            if (timeout)
                found[count++] = timeout;
        }
    }
    if (count > 0)
        take(context, found, count);
    return left;
}

/*
 * From a group, by cancellers, since the last look at it. Others go on meanwhile: how it differs
 * from before is a hint.
 */
static uint16_t withdrawn_since(const struct segment *segment, unsigned group)
{
    const lane_slot *slot = &segment->slot[group * GROUP_SLOTS];
    uint64_t emptied = 0;

    for (unsigned i = 0; i < GROUP_SLOTS; i++)
        emptied += slot_count(load_relaxed(&slot[i]));
    return (uint16_t)(emptied - load_relaxed(&segment->taken[group]) - segment->withdrawn[group]);
}

/* Is more than an eighth of a segment cancelled from look to look? By samples; a hint as well. */
static bool is_cancelled_much(const struct segment *segment)
{
    unsigned used = load_relaxed(&segment->groups_used), withdrawn = 0, most = 0;

    for (unsigned group = 0; group < used; group += used / LOOK_SAMPLES + 1) {
        if (!segment_flag_is_up(segment, group)) /* nobody looks at it; it may have no page */
            continue;
        withdrawn += withdrawn_since(segment, group);
        most += GROUP_SLOTS / 8;
    }
    return withdrawn > most;
}

/*
 * To look at one costs a seventh of what it costs to file it, a third where its line is in no
 * cache. So those that are far are left at the first look only if more than an eighth of
 * their segment was cancelled since the last, because they may be too young themselves; and then a
 * few times more, as long as that many of their group are from look to look.
 */
static bool is_left(struct segment *segment, unsigned group)
{
    uint16_t withdrawn = withdrawn_since(segment, group);

    segment->withdrawn[group] = (uint16_t)(segment->withdrawn[group] + withdrawn);
    if (segment->looks[group] == 0)
        return segment->leaves;
    return segment->looks[group] < LOOKS && withdrawn > GROUP_SLOTS / 8;
}

static uint64_t look_through(struct segment *segment, unsigned group, uint64_t near,
                             lane_take *take, void *context)
{
    uint64_t left;

    if (near < DEADLINE_NEVER && !(segment->far && is_left(segment, group)))
        near = DEADLINE_NEVER;
    left = sweep_group(segment, group, near, take, context);
    segment->looks[group] = left == UINT64_MAX ? 0 : (uint8_t)(segment->looks[group] + 1);
    if (left < UINT64_MAX)
        segment_raise_flag(segment, group); /* before it is told: the next sweep comes here */
    return left;
}

void lanes_set_far(struct lanes *lanes, uint64_t deadline)
{
    store_relaxed(&lanes->far_from, deadline);
}

uint64_t lane_sweep(struct segment *segment, unsigned first, unsigned count, uint64_t near,
                    lane_take *take, void *context)
{
    unsigned end = first + count;
    uint64_t left = UINT64_MAX;

    if (first == 0 && near < DEADLINE_NEVER && segment->far)
        segment->leaves = is_cancelled_much(segment);
    for (unsigned group = first; (group = segment_next_fresh(segment, group, end)) < end; group++) {
        segment_take_flag_down(segment, group); /* first this, then the slots (C2) */
        left = min_u64(left, look_through(segment, group, near, take, context));
    }
    return left;
}

void lane_tell_left(struct segment *segment, uint64_t left)
{
    lane_announce(segment->lane, segment, left);
}

void lane_restore_earliest(struct lane *lane)
{
    struct segment *segment = lane->first;
    uint64_t earliest = UINT64_MAX;

    do {
        earliest = min_u64(earliest, load_seq(&segment->earliest));
        segment = segment_next(segment);
    } while (segment != lane->first);
    lane_lower(&lane->earliest, earliest);
}

void lane_close(struct lane *lane)
{
    store_seq(&lane->closed, 1); /* pairs with the submitters' second look */
}

/* Those that a mover has put there. They are over: cancelled while he had them in his hand. */
static void sweep_met(struct segment *segment, unsigned group, lane_take *take, void *context)
{
    lane_slot *slot = &segment->slot[group * GROUP_SLOTS];

    for (unsigned i = 0; i < GROUP_SLOTS; i++) {
        uint64_t held = load_seq(&slot[i]);
        hwt_timeout *timeout = packed_timeout(held);
        if (slot_is_held(held) && held & SLOT_MET &&
            take_slot(&slot[i], &segment->taken[group], &held, true))
            take(context, &timeout, 1);
    }
}

bool lane_sweep_all(struct lane *lane, bool ended, lane_take *take, void *context)
{
    bool quiet = load_seq(&lane->spilling) == 0; /* before the spill is collected */
    struct segment *segment = lane->first;

    /* after `closed` was set: whoever relied on an older `fresh` is in a group counted here */
    do {
        for (unsigned group = 0; group < load_seq(&segment->groups_used); group++) {
            if (ended)
                sweep_met(segment, group, take, context);
            else
                sweep_group(segment, group, DEADLINE_NEVER, take, context);
        }
        if (segment_holds_any(segment)) /* somebody is about to empty his slot (C6, C20) */
            quiet = false;
        segment = segment_next(segment);
    } while (segment != lane->first);
    return quiet;
}
