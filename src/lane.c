/* SPDX-License-Identifier: BSD-2-Clause */
#include "submit.h"

#include <errno.h>

#include "platform.h"
#include "pool.h"
#include "slab.h"

/* ---- submission: what submit.h leaves to be called ---- */

_Thread_local uint64_t lane_submissions;

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

/*
 * Closed meanwhile: taken back, or stop has it, then it was accepted. By the slot alone: the
 * timeout may be over and gone, if there is no handle to it. What was not accepted does not count:
 * the slot is as it was before. Whoever else takes it out counts it, so what is found there as it
 * was filled is this filling.
 */
int lane_settle(lane_slot *slot, uint64_t filled)
{
    return cas_acq_rel(slot, &filled, slot_unfilled(filled)) ? -ESHUTDOWN : 0;
}

static struct survey *survey_of(const struct segment *segment)
{
    return &segment->lane->survey[segment->far];
}

static const struct lanes *lanes_of(const struct segment *segment)
{
    return container_of(segment->store, struct lanes, store);
}

/* If he does not come in time, or there is nobody, pages are met by pieces (segment.c). */
static void ask_for_more(const struct lanes *lanes)
{
    if (lanes->ask_keeper && !segment_is_ready(&lanes->store))
        lanes->ask_keeper(lanes->keeper, WISH_MAKE_READY);
}

/*
 * Once for so many submissions: time to give back what is not needed any more, a piece of it; or to
 * ask him whose work that is.
 */
static void keep_house(const struct segment *segment)
{
    struct survey *survey = survey_of(segment);
    const struct lanes *lanes = lanes_of(segment);

    if (!lanes->ask_keeper) {
        if (!segment_give_back(survey, 1))
            pool_ease_on();
        return;
    }
    if (segment_is_leaving(survey) || pool_must_ease())
        lanes->ask_keeper(lanes->keeper, WISH_GIVE_BACK);
    if (slab_next_is_wanted())
        lanes->ask_keeper(lanes->keeper, WISH_MAKE_READY);
}

__attribute__((noinline)) lane_slot *lane_next_segment(struct segment *segment)
{
    pool_ease();
    keep_house(segment);
    return segment_after(segment, survey_of(segment))->slot;
}

__attribute__((noinline)) lane_slot *lane_go_on_after(lane_slot *slot)
{
    if (segment_ends_at(slot + 1))
        return lane_next_segment(segment_of(slot));
    keep_house(segment_of(slot));
    if (segment_is_crowded_so_far(slot + 1))
        ask_for_more(lanes_of(segment_of(slot)));
    segment_enter_part(slot + 1);
    return slot + 1;
}

void lane_turn(struct lane *lane, lane_slot *slot)
{
    for (unsigned far = 0; far < 2; far++) {
        if (load_acquire(&lane->tail[far]) == slot)
            store_release(&lane->tail[far], lane_go_on_after(slot));
    }
}

static bool give_back(struct survey *survey)
{
    for (unsigned tries = 0; tries < SEGMENT_PARTS && segment_is_leaving(survey); tries++) {
        if (segment_give_back(survey, SEGMENT_PARTS))
            return true;
    }
    return false;
}

bool lanes_give_back(struct lanes *lanes)
{
    struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(lanes, &i)) != NULL;) {
        if (give_back(&lane->survey[0]) || give_back(&lane->survey[1]))
            return true;
    }
    return false;
}

void lanes_make_ready(struct lanes *lanes)
{
    segment_make_ready(&lanes->store);
}

/* It has been filled, or NULL. */
static lane_slot *probe(_Atomic(lane_slot *) *tail, hwt_timeout *timeout, uint64_t met,
                        uint64_t *filled)
{
    for (unsigned probe = 1; probe <= PROBES; probe++) {
        lane_slot *slot = lane_next_slot(tail, probe);
        if ((*filled = lane_try_slot(slot, timeout, met)) != 0)
            return slot;
    }
    return NULL;
}

/* There is none near: rather what another lane has than more. */
static struct segment *find_segment(struct lanes *lanes, struct segment *here)
{
    struct segment *retired, *segment = segment_with_room(survey_of(here), &retired);

    if (!segment)
        segment = lane_move_in(lanes, here->lane, here->far);
    return segment ? segment : segment_more(&lanes->store, here, retired);
}

/*
 * The first slot was taken. It may be one of another lane. NULL: no slot is empty, and there is no
 * memory for more.
 */
static __attribute__((noinline)) lane_slot *find_slot(struct lanes *lanes,
                                                      _Atomic(lane_slot *) *tail,
                                                      hwt_timeout *timeout, uint64_t met,
                                                      uint64_t *filled)
{
    lane_slot *slot = probe(tail, timeout, met, filled);
    struct segment *segment = segment_of(load_acquire(tail));

    for (unsigned tries = 0; !slot && tries < SEGMENT_TRIES; tries++) {
        segment = tries + 1 < SEGMENT_TRIES ? find_segment(lanes, segment)
                                            : segment_add(&lanes->store, segment);
        if (!segment)
            return NULL;
        tail = &segment->lane->tail[segment->far];
        store_release(tail, segment->slot);
        ask_for_more(lanes);
        slot = probe(tail, timeout, met, filled);
    }
    return slot;
}

int lane_submit_aside(struct lane *lane, hwt_timeout *timeout, uint64_t deadline)
{
    int result = submit_to_spill(lane, timeout);

    lane_announce(lane, lane->first, deadline);
    return result;
}

int lane_submit_further(struct lanes *lanes, struct lane *lane, hwt_timeout *timeout,
                        uint64_t deadline)
{
    uint32_t before = load_relaxed(&lanes->store.far_groups);
    uint64_t filled;
    lane_slot *slot = find_slot(lanes, lane_tail_for(lanes, lane, deadline), timeout, 0, &filled);
    int result;

    if (likely(slot != NULL)) {
        result = lane_publish(segment_of(slot)->lane, slot, filled, deadline);
        if (result == 0 && segment_doubled(before, load_relaxed(&lanes->store.far_groups)))
            result = LANE_GROWN; /* one that was retired is used again */
        return result;
    }
    return lane_submit_aside(lane, timeout, deadline);
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
    lane_slot *slot = NULL;
    uint64_t filled, word;

    if (likely(lane != lanes->common))
        slot = find_slot(lanes, lane_tail_for(lanes, lane, deadline), timeout, SLOT_MET, &filled);
    if (likely(slot != NULL)) {
        segment = segment_of(slot);
        lane = segment->lane;
        lane_mark_fresh(segment, slot);
    } else {
        push_spill(lane, timeout); /* not counted: it was, when it came the first time */
    }
    word = add_acq_rel(&timeout->word, 0);
    deadline = word_code(word) == WORD_CANCELLED ? 0 : min_u64(deadline, word_deadline(word));
    lane_announce(lane, segment, deadline);
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
    lane_mark_fresh(segment_of(slot), slot);
    lane_announce(segment_of(slot)->lane, segment_of(slot), deadline);
    return true;
}

/* `end` first: who finds the bit behind it would not look there. */
void lane_use_first(struct lane *lane)
{
    struct lanes *lanes = container_of(lane->first->store, struct lanes, store);
    uint32_t end = load_relaxed(&lanes->end);

    while (end <= lane->index && !cas_seq(&lanes->end, &end, lane->index + 1))
        continue;
    or_seq(lane->used, lane->used_bit);
}

void lane_notify(struct lane *lane, hwt_timeout *timeout)
{
    lane_use(lane);
    ck_stack_push_upmc(&lane->notices, &timeout->link);
    ck_pr_fence_atomic_load(); /* queued before the comparison with the wake-up (C4) */
}

void lane_tell_moved(struct lane *lane, uint64_t deadline)
{
    lane_use(lane);
    lane_lower(&lane->moved, deadline);
}

rearmed_place *lane_show_rearmed(struct lane *lane, hwt_timeout *timeout)
{
    lane_use(lane);
    for (unsigned i = 0; i < LANE_REARMED; i++) {
        hwt_timeout *none = NULL;
        if (!load_relaxed(&lane->rearmed[i]) && cas_acq_rel(&lane->rearmed[i], &none, timeout))
            return &lane->rearmed[i];
    }
    return NULL;
}

/* ---- counting ---- */

struct lane_tally lane_count(const struct lane *lane)
{
    const struct segment *segment = lane->first;
    struct segment_tally sum = {0};
    uint64_t spilled;

    do {
        segment_count(segment, &sum);
        segment = segment_next(segment);
    } while (segment != lane->first);
    spilled = load_acquire(&lane->spilled);
    return (struct lane_tally){
        .scheduled = sum.emptied + sum.held + spilled,
        .withdrawn = sum.emptied - sum.taken,
        .met = sum.taken - sum.leaving + spilled,
    };
}

const lane_slot *lane_first_pending(const struct lane *lane)
{
    const struct segment *segment = lane->first;
    const lane_slot *found;

    do {
        found = segment_first_pending(segment);
        segment = segment_next(segment);
    } while (!found && segment != lane->first);
    return found;
}
