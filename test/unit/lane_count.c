/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_release_pages */
/*
 * Counting while the worker is between any two of the steps in which it takes a timeout out of its
 * slot, or gives pages of slots back, for as long as it likes, or while slots begin their counts
 * anew: the count is right and comes at once (G3, C23).
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "submit.h"
#include "support.h"

enum { MANY = 1000, AT = 70 };

static struct lanes lanes;
static struct lane *lane;
static hwt_timeout *node;

static void open_lanes(void)
{
    test_arm();
    cr_assert_eq(lanes_create(&lanes, 1, 0), 0);
    lane = lanes_own(&lanes, 0);
    node = aligned_alloc(CACHE_LINE, MANY * sizeof *node);
    cr_assert(node);
    memset((void *)node, 0, MANY * sizeof *node);
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_eq(lane_submit(&lanes, &node[i], 1000), 0);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
}

TestSuite(lane_count, .init = open_lanes, .fini = close_lanes);

static void check_tally(uint64_t withdrawn)
{
    uint64_t start = real_now(CLOCK_THREAD_CPUTIME_ID);
    struct lane_tally tally = lane_count(lane);

    cr_assert_eq(tally.scheduled, MANY);
    cr_assert_eq(tally.withdrawn, withdrawn);
    cr_assert_lt(real_now(CLOCK_THREAD_CPUTIME_ID) - start, HWT_MSEC(5));
}

static uint32_t slot_of(const hwt_timeout *timeout)
{
    lane_slot *slot = lane_slot_of_where(load_relaxed(&timeout->where));

    cr_assert_not_null(slot);
    return (uint32_t)(slot - lane->first->slot);
}

/* What take_slot does, with a look after each step; the group's count is even, then odd. */
static void take_in_steps(unsigned at)
{
    _Atomic uint64_t *slot = &lane->first->slot[slot_of(&node[at])];
    _Atomic uint64_t *taken = &lane->first->taken[slot_of(&node[at]) / GROUP_SLOTS];
    uint64_t held = load_seq(slot), count = load_seq(taken);

    cr_assert_eq(packed_timeout(held), &node[at]);
    store_seq(slot, slot_being_taken(slot_emptied(held), count));
    check_tally(0);
    cr_assert_not(lane_withdraw(&node[at]), "a canceller comes too late");
    store_seq(taken, count + 1);
    check_tally(0);
    store_seq(slot, slot_emptied(held));
    check_tally(0);
}

Test(lane_count, between_the_steps)
{
    take_in_steps(AT);
    take_in_steps(AT + 1);
    take_in_steps(AT + 2);
    take_in_steps(0);
    take_in_steps(MANY - 1);
}

/* A producer steps over a slot that is being taken, as over one that is filled. */
Test(lane_count, beside_a_producer)
{
    _Atomic uint64_t *slot = &lane->first->slot[5];
    uint64_t held = load_seq(slot);
    hwt_timeout *other = aligned_alloc(CACHE_LINE, sizeof *other);

    cr_assert(other);
    store_seq(slot, slot_being_taken(slot_emptied(held), 0));
    store_relaxed(&lane->tail[0], lane->first->slot + 5);
    cr_assert_eq(lane_submit(&lanes, other, 1000), 0);
    cr_assert_neq(slot_of(other), 5);
    cr_assert_eq(lane_count(lane).scheduled, MANY + 1);
    free(other);
}

/* ---- while pages go ---- */

enum { KEPT_PART = 1 };

static bool system_keeps; /* the pages of that part */
static void (*while_pages_go)(void);
static unsigned looks;

__typeof__(platform_release_pages) __real_platform_release_pages;
__typeof__(platform_release_pages) __wrap_platform_release_pages;

void __wrap_platform_release_pages(void *memory, size_t size)
{
    char *kept = (char *)&segment_of(memory)->slot[(size_t)KEPT_PART * RELEASE_SLOTS];

    if (while_pages_go)
        while_pages_go();
    if (!system_keeps) {
        __real_platform_release_pages(memory, size);
    } else {
        __real_platform_release_pages(memory, (size_t)(kept - (char *)memory));
        __real_platform_release_pages(kept + PART_SIZE,
                                      (size_t)((char *)memory + size - kept) - PART_SIZE);
    }
    if (while_pages_go)
        while_pages_go();
}

static void submit_at(lane_slot *slot, hwt_timeout *timeout)
{
    store_relaxed(&lane->tail[0], slot);
    cr_assert_eq(lane_submit(&lanes, timeout, 1000), 0);
    cr_assert_eq(lane_slot_of_where(load_relaxed(&timeout->where)), slot);
}

static uint64_t more; /* than MANY, submitted and withdrawn */

/* Half of them were taken by a sweep, half were withdrawn; now nobody changes anything. */
static void look(void)
{
    struct lane_tally tally = lane_count(lane);

    looks++;
    cr_assert_eq(tally.scheduled, MANY + more);
    cr_assert_eq(tally.withdrawn, MANY / 2 + more);
    cr_assert_eq(tally.met, MANY / 2);
}

/* A producer fills and empties a slot of a page that has just gone. */
static void use_again(void)
{
    lane_slot *slot = &lane->first->slot[3];

    look();
    if (packed_timeout(load_seq(slot))) /* closed yet */
        return;
    submit_at(slot, &node[1]);
    cr_assert_eq(lane_count(lane).scheduled, MANY + 1);
    cr_assert_eq(lane_count(lane).withdrawn, MANY / 2);
    cr_assert(lane_withdraw(&node[1]));
    more++;
    look();
}

static void take_none(void *context, hwt_timeout **found, unsigned count)
{
    (void)context;
    (void)found;
    (void)count;
}

static void end_all(void)
{
    for (unsigned i = 1; i < MANY; i += 2)
        cr_assert(lane_withdraw(&node[i]));
    exchange_seq(&lane->first->earliest, UINT64_MAX);
    lane_sweep(lane->first, 0, LANE_GROUPS, DEADLINE_NEVER, take_none, NULL);
    look();
}

static void give_back_all(void (*meanwhile)(void))
{
    struct survey *survey = &lane->survey[0];

    while_pages_go = meanwhile;
    store_relaxed(&lane->first->retired, 1);
    store_release(&survey->leaving, lane->first);
    looks = 0;
    cr_assert_eq(segment_give_back(survey, SEGMENT_PARTS), !system_keeps);
    cr_assert_geq(looks, 2);
    while_pages_go = NULL;
    look();
}

Test(lane_count, while_pages_go)
{
    end_all();
    give_back_all(look);
    cr_assert_eq(load_relaxed(&lane->first->slot[0]), 0, "it was counted, and forgotten");
}

Test(lane_count, while_pages_go_and_are_used_again)
{
    end_all();
    give_back_all(use_again);
    cr_assert_eq(more, 1);
    cr_assert_eq(slot_count(load_relaxed(&lane->first->slot[3])), 1);
}

/* Its slots are open again, and count for themselves. */
Test(lane_count, while_pages_go_and_the_system_keeps_some)
{
    lane_slot *kept = &lane->first->slot[(size_t)KEPT_PART * RELEASE_SLOTS];

    end_all();
    submit_at(kept, &node[1]);
    cr_assert(lane_withdraw(&node[1]));
    more = 1;
    system_keeps = true;
    give_back_all(look);
    cr_assert_eq(load_relaxed(kept), packed_make(NULL, 1));
    cr_assert_eq(load_relaxed(&lane->first->slot[0]), 0);
    submit_at(kept, &node[1]);
    cr_assert(lane_withdraw(&node[1]));
    more = 2;
    look();
}

/* ---- when slots have counted as far as they can ---- */

enum { LAPS = 6, BEFORE_THE_END = 2 }; /* what a slot can count yet */

static _Atomic uint64_t begun, done;

/* Submits and withdraws one, all around the segment. */
static void *go_round(void *timeout)
{
    for (unsigned i = 0; i < LAPS * LANE_SLOTS; i++) {
        atomic_fetch_add(&begun, 1);
        cr_assert_eq(lane_submit(&lanes, timeout, 1000), 0);
        cr_assert(lane_withdraw(timeout));
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

/* Counts leave all the slots, a part at a time: who counts beside that finds none missing. */
Test(lane_rounds, counts_are_carried_beside_who_counts)
{
    uint64_t preset = (uint64_t)LANE_SLOTS * (SLOT_COUNT_MAX - BEFORE_THE_END), before;
    struct lane_tally tally;
    pthread_t thread;

    test_arm();
    cr_assert_eq(lanes_create(&lanes, 1, 0), 0);
    lane = lanes_own(&lanes, 0);
    node = aligned_alloc(CACHE_LINE, sizeof *node);
    cr_assert(node);
    memset((void *)node, 0, sizeof *node);
    for (unsigned i = 0; i < LANE_SLOTS; i++)
        store_relaxed(&lane->first->slot[i], packed_make(NULL, SLOT_COUNT_MAX - BEFORE_THE_END));
    store_relaxed(&lane->first->groups_used, LANE_GROUPS);
    cr_assert_eq(pthread_create(&thread, NULL, go_round, node), 0);
    do {
        before = atomic_load(&done);
        tally = lane_count(lane);
        cr_assert_geq(tally.scheduled, preset + before);
        cr_assert_leq(tally.scheduled, preset + atomic_load(&begun));
        cr_assert_geq(tally.withdrawn, preset + before);
        cr_assert_leq(tally.withdrawn, preset + atomic_load(&begun));
        cr_assert_eq(tally.met, 0);
    } while (before < LAPS * LANE_SLOTS);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(load_relaxed(&lane->first->carrying) >> SEGMENT_PARTS, 2 * SEGMENT_PARTS,
                 "twice a part: a full slot takes along those beside it");
    free(node);
    lanes_destroy(&lanes);
}

/* While somebody else takes counts out of slots a full one is passed over. */
Test(lane_count, a_full_slot_is_passed_over_when_it_cannot_be_helped)
{
    lane_slot *slot = &lane->first->slot[MANY + 5];

    cr_assert(lane_withdraw(&node[0]));
    store_relaxed(slot, packed_make(NULL, SLOT_COUNT_MAX));
    store_relaxed(&lane->first->releasing, 1);
    store_relaxed(&lane->tail[0], slot);
    cr_assert_eq(lane_submit(&lanes, &node[0], 1000), 0);
    cr_assert_neq(slot_of(&node[0]), MANY + 5);
    cr_assert_eq(load_relaxed(slot), packed_make(NULL, SLOT_COUNT_MAX));
    cr_assert_eq(lane_count(lane).scheduled, MANY + 1 + SLOT_COUNT_MAX);
    store_relaxed(&lane->first->releasing, 0);
    cr_assert(lane_withdraw(&node[0]));
    store_relaxed(&lane->tail[0], slot);
    cr_assert_eq(lane_submit(&lanes, &node[0], 1000), 0);
    cr_assert_eq(slot_of(&node[0]), MANY + 5);
    cr_assert_eq(lane_count(lane).scheduled, MANY + 2 + SLOT_COUNT_MAX);
    cr_assert_eq(lane_count(lane).withdrawn, 2 + SLOT_COUNT_MAX);
}

/* ---- at a segment's end ---- */

/*
 * Who schedules and cancels one timeout after the other goes round all the same: once a lap memory
 * is given back (G6), and another segment may be the next.
 */
Test(lane_rounds, pairs_go_round)
{
    uint64_t last = 0;
    hwt_timer *timer;

    test_arm();
    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    for (unsigned i = 0; i < 5 * LANE_SLOTS; i++) {
        hwt_timeout *timeout;
        uint64_t where;
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), &timeout), 0);
        where = load_relaxed(&timeout->where);
        cr_assert_neq(where, last, "pair %u: the tail stays", i);
        last = where;
        cr_assert(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
