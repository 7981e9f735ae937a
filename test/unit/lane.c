/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=mmap,--wrap=platform_release_pages */
/*
 * A lane by itself, all its parts played by one thread, so that every step can be looked at (C2,
 * C3, C6). With threads: unit/lane_threads.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "submit.h"
#include "support.h"

#define NODE_SEGMENTS 4

static struct lanes lanes;
static struct lane *lane; /* the only one of `lanes` */
static hwt_timeout *node;
static size_t node_count;
static size_t *taken; /* indices, in the order of the sweep */
static size_t taken_count;

static void open_lanes(void)
{
    test_arm();
    cr_assert_eq(lanes_create(&lanes, 1, 0), 0);
    cr_assert_eq(lanes.count, 1);
    lane = lanes_own(&lanes, 0);
    cr_assert_neq(lane, lanes.common);
    node_count = NODE_SEGMENTS * LANE_SLOTS;
    node = aligned_alloc(CACHE_LINE, node_count * sizeof *node);
    taken = calloc(node_count, sizeof *taken);
    cr_assert(node && taken);
    memset((void *)node, 0, node_count * sizeof *node);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
    free(taken);
}

TestSuite(lane, .init = open_lanes, .fini = close_lanes);

static bool holds_pending(const struct lane *one)
{
    return lane_first_pending(one) || ck_pr_load_ptr(&one->spill.head);
}

static void take(void *context, hwt_timeout **found, unsigned count)
{
    cr_assert_eq(context, &lanes);
    for (unsigned i = 0; i < count; i++)
        taken[taken_count++] = (size_t)(found[i] - node);
}

/* As the worker does: the lane's bound first, then each segment's (C3). */
static void sweep_up_to(uint64_t near)
{
    struct segment *segment = lane->first;

    exchange_seq(&lane->earliest, UINT64_MAX);
    do {
        exchange_seq(&segment->earliest, UINT64_MAX);
        lane_tell_left(segment, lane_sweep(segment, 0, LANE_GROUPS, near, take, &lanes));
        segment = segment_next(segment);
    } while (segment != lane->first);
}

static size_t sweep(void)
{
    taken_count = 0;
    sweep_up_to(DEADLINE_NEVER);
    return taken_count;
}

/* The slot that it was submitted to; NULL: it is in the spill. */
static lane_slot *slot_of(const hwt_timeout *timeout)
{
    return lane_slot_of_where(load_relaxed(&timeout->where));
}

/* Does the worker hear of it that there is so much? */
static bool grows_by(size_t i, uint64_t deadline)
{
    int result;

    store_relaxed(&node[i].word, word_make(deadline, WORD_PENDING));
    result = lane_submit(&lanes, &node[i], deadline);
    cr_assert(result == 0 || result == LANE_GROWN);
    return result == LANE_GROWN;
}

static void submit_at(size_t i, uint64_t deadline)
{
    (void)grows_by(i, deadline);
}

static void submit(size_t i)
{
    submit_at(i, 1000 + i);
}

static size_t segments(void)
{
    size_t count = 1;

    for (struct segment *s = segment_next(lane->first); s != lane->first; s = segment_next(s))
        count += s->far == lane->first->far;
    return count;
}

static size_t spilled(void)
{
    size_t count = 0;

    for (hwt_timeout *timeout = lane_take_spill(lane); timeout;
         timeout = lane_next_spilled(timeout)) {
        cr_assert_null(slot_of(timeout));
        count++;
    }
    return count;
}

static void submit_range(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        submit(i);
}

static size_t most_memory = SIZE_MAX; /* at a time */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return size > most_memory ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

static void forbid_memory(void)
{
    most_memory = 0;
}

static void check_tally(uint64_t scheduled, uint64_t withdrawn)
{
    struct lane_tally tally = lane_count(lane);

    cr_assert_eq(tally.scheduled, scheduled, "%" PRIu64 " scheduled", tally.scheduled);
    cr_assert_eq(tally.withdrawn, withdrawn, "%" PRIu64 " withdrawn", tally.withdrawn);
}

/* ---- creation, slots ---- */

Test(lane, as_many_as_cpus_rounded_up)
{
    static const unsigned cpus[][2] = {{0, 1}, {1, 1}, {2, 2}, {3, 4}, {5, 8}, {64, 64}};
    struct lanes many;

    for (size_t i = 0; i < COUNT_OF(cpus); i++) {
        cr_assert_eq(lanes_create(&many, cpus[i][0], 0), 0);
        cr_assert_eq(many.count, cpus[i][1]);
        for (unsigned j = 0; j <= many.count; j++) { /* the last one is the common one */
            const struct lane *made = lanes_own(&many, j);
            cr_assert_eq(made, &many.room[j]);
            cr_assert_eq(load_relaxed(&made->earliest), UINT64_MAX);
            cr_assert_eq(load_relaxed(&made->moved), UINT64_MAX);
            cr_assert_not(lane_has_mail(made));
        }
        cr_assert_lt(lanes_index_here(&many), many.count);
        lanes_destroy(&many);
    }
}

Test(lane, a_slot_holds_an_address_and_a_count)
{
    uint64_t slot = 0;

    for (uint64_t count = 0; count < SLOT_COUNT_MAX; count += count < 1000 ? 1 : 999) {
        uint64_t empty = packed_make(NULL, count);
        slot = empty | (uint64_t)(uintptr_t)&node[7];
        cr_assert_eq(slot, packed_make(&node[7], count));
        cr_assert_eq(packed_timeout(slot), &node[7]);
        cr_assert_eq(packed_bits(slot), count);
        cr_assert_null(packed_timeout(slot_emptied(slot)));
        cr_assert_eq(packed_bits(slot_emptied(slot)), count + 1);
        cr_assert_eq(slot_emptied(slot | SLOT_MET), empty);
    }
}

/* ---- the flags of groups ---- */

Test(lane, a_slot_knows_its_group)
{
    for (unsigned i = 0; i < LANE_SLOTS; i++)
        cr_assert_eq(segment_group_of(&lane->first->slot[i]), i / GROUP_SLOTS);
}

/* Many share a word: none is touched with another. */
Test(lane, each_group_has_a_flag_of_its_own)
{
    struct segment *segment = lane->first;

    for (unsigned group = 0; group < LANE_GROUPS; group++) {
        segment_raise_flag(segment, group);
        for (unsigned i = 0; i < LANE_GROUPS; i++) {
            lane_slot *first = &segment->slot[i * GROUP_SLOTS];
            cr_assert_eq(segment_flag_is_up(segment, i), i <= group);
            cr_assert_eq(segment_slot_is_flagged(first), i <= group);
            cr_assert_eq(segment_slot_is_flagged(first + GROUP_SLOTS - 1), i <= group);
        }
    }
    for (unsigned group = 0; group < LANE_GROUPS; group++) {
        segment_take_flag_down(segment, group);
        for (unsigned i = 0; i < LANE_GROUPS; i++)
            cr_assert_eq(segment_flag_is_up(segment, i), i > group);
    }
}

Test(lane, the_next_flag_that_is_up)
{
    static const unsigned up[] = {0, 1, 63, 64, 130, LANE_GROUPS - 1};
    struct segment *segment = lane->first;
    unsigned group = 0;

    cr_assert_eq(segment_next_fresh(segment, 0, LANE_GROUPS), LANE_GROUPS);
    for (size_t i = 0; i < COUNT_OF(up); i++)
        segment_raise_flag(segment, up[i]);
    for (size_t i = 0; i < COUNT_OF(up); i++) {
        cr_assert_eq(segment_next_fresh(segment, group, LANE_GROUPS), up[i]);
        cr_assert_eq(segment_next_fresh(segment, group, up[i]), up[i], "not in that portion");
        group = up[i] + 1;
    }
    cr_assert_eq(segment_next_fresh(segment, group, LANE_GROUPS), LANE_GROUPS);
    cr_assert_eq(segment_next_fresh(segment, 2, 60), 60);
    cr_assert_eq(segment_next_fresh(segment, 65, 128), 128);
}

/* ---- submit, withdraw, sweep ---- */

/* Of a group, the only one, wherever in it; and what it stood beside. */
Test(lane, a_sweep_finds_what_stands_alone)
{
    submit_range(0, LANE_SLOTS);
    for (size_t i = 0; i < LANE_SLOTS; i++)
        cr_assert(i % (GROUP_SLOTS + 1) == 0 || lane_withdraw(&node[i]));
    cr_assert_eq(sweep(), (LANE_SLOTS - 1) / (GROUP_SLOTS + 1) + 1);
    for (size_t i = 0; i < taken_count; i++)
        cr_assert_eq(taken[i], i * (GROUP_SLOTS + 1));
    cr_assert_eq(sweep(), 0, "the flags are down");
}

/* What stands in a group that a portion does not reach is left, and so is its flag. */
Test(lane, a_portion_takes_its_own_flags_down)
{
    submit_range(0, 3 * GROUP_SLOTS);
    taken_count = 0;
    cr_assert_eq(lane_sweep(lane->first, 1, 1, DEADLINE_NEVER, take, &lanes), UINT64_MAX);
    cr_assert_eq(taken_count, GROUP_SLOTS);
    cr_assert_eq(taken[0], GROUP_SLOTS);
    cr_assert(segment_flag_is_up(lane->first, 0));
    cr_assert_not(segment_flag_is_up(lane->first, 1));
    cr_assert(segment_flag_is_up(lane->first, 2));
    cr_assert_eq(sweep(), 2 * GROUP_SLOTS);
}

Test(lane, withdrawn_once)
{
    submit(0);
    check_tally(1, 0);
    cr_assert(lane_withdraw(&node[0]));
    cr_assert_not(lane_withdraw(&node[0]));
    check_tally(1, 1);
    cr_assert_eq(sweep(), 0);
}

Test(lane, swept_once_and_not_withdrawn_any_more)
{
    submit_range(0, 100);
    cr_assert_eq(sweep(), 100);
    for (size_t i = 0; i < 100; i++) {
        cr_assert_eq(taken[i], i);
        cr_assert_not(lane_withdraw(&node[i]));
    }
    cr_assert_eq(sweep(), 0);
    check_tally(100, 0);
}

Test(lane, taken_back_by_the_worker)
{
    submit_range(0, 2);
    cr_assert(lane_take_back(&node[0]));
    cr_assert_not(lane_take_back(&node[0]));
    cr_assert_not(lane_withdraw(&node[0]));
    check_tally(2, 0);
    cr_assert_eq(sweep(), 1);
    cr_assert_eq(taken[0], 1);
}

/* A slot that another one has been put in since is none of the first one's business. */
Test(lane, the_next_in_the_same_slot)
{
    submit(0);
    cr_assert(lane_withdraw(&node[0]));
    store_relaxed(&lane->tail[0], lane->first->slot);
    submit(1);
    cr_assert_not_null(slot_of(&node[0]));
    cr_assert_eq(slot_of(&node[0]), slot_of(&node[1]));
    cr_assert_not(lane_withdraw(&node[0]));
    cr_assert_not(lane_take_back(&node[0]));
    cr_assert(lane_withdraw(&node[1]));
}

Test(lane, the_earliest_since_the_last_sweep)
{
    submit(50);
    cr_assert_eq(load_relaxed(&lane->earliest), 1050);
    submit(60);
    cr_assert_eq(load_relaxed(&lane->earliest), 1050);
    cr_assert_eq(lane_submit(&lanes, &node[0], 0), 0);
    cr_assert_eq(load_relaxed(&lane->earliest), 0);
    sweep();
    cr_assert_eq(load_relaxed(&lane->earliest), UINT64_MAX);
    submit(70);
    cr_assert_eq(load_relaxed(&lane->earliest), 1070);
}

/* Nudges speak of their deadlines apart from submissions: no sweep may take one for the other. */
Test(lane, the_earliest_that_was_moved)
{
    lane_tell_moved(lane, 700);
    lane_tell_moved(lane, 900);
    cr_assert_eq(load_relaxed(&lane->moved), 700);
    lane_tell_moved(lane, 0);
    cr_assert_eq(load_relaxed(&lane->moved), 0);
    submit(50);
    sweep();
    cr_assert_eq(load_relaxed(&lane->moved), 0);
    cr_assert_eq(load_relaxed(&lane->earliest), UINT64_MAX);
}

/* G15: what tells equal deadlines of one thread apart, in slots, in the spill, over CPUs. */
Test(lane, stamps_rise_with_each_submission)
{
    forbid_memory();
    submit_range(0, LANE_SLOTS + 100);
    for (size_t i = 1; i < LANE_SLOTS + 100; i++) {
        cr_assert_gt(node[i].stamp, node[i - 1].stamp);
        cr_assert_lt(node[i].stamp >> STAMP_BITS, 1);
        cr_assert_eq(timeout_lane(&node[i]), 0);
    }
    cr_assert_eq(spilled(), 100);
}

/* Groups that were filled before and after a sweep, in whatever order. */
Test(lane, every_sweep_finds_what_came_since)
{
    uint64_t random = test_seed("lane");
    size_t next = 0;

    for (unsigned round = 0; round < 200; round++) {
        size_t from = next, count = (size_t)test_random_below(&random, 100);
        store_relaxed(&lane->tail[0], lane->first->slot + test_random_below(&random, LANE_SLOTS));
        submit_range(from, from + count);
        next += count;
        cr_assert_eq(sweep(), count);
    }
    check_tally(next, 0);
}

/* ---- more segments, fewer, the spill ---- */

/* Nothing asks the worker for space, and nothing spills. */
Test(lane, a_full_lane_grows)
{
    submit_range(0, node_count);
    cr_assert_not(lane_has_mail(lane));
    cr_assert_geq(segments(), NODE_SEGMENTS);
    cr_assert_leq(segments(), NODE_SEGMENTS + 1);
    check_tally(node_count, 0);
    for (size_t i = 0; i < node_count; i += 2)
        cr_assert(lane_withdraw(&node[i]));
    check_tally(node_count, node_count / 2);
    cr_assert_eq(sweep(), node_count / 2);
    check_tally(node_count, node_count / 2);
    cr_assert_not(holds_pending(lane));
}

/* G6: however long it goes on, a lane has the slots that those in flight need. */
Test(lane, a_lane_stays_as_large_as_what_is_in_flight)
{
    const size_t in_flight = LANE_SLOTS + LANE_SLOTS / 2;

    submit_range(0, in_flight);
    for (size_t i = in_flight; i < 40 * LANE_SLOTS; i++) {
        cr_assert(lane_withdraw(&node[(i - in_flight) % node_count]));
        submit(i % node_count);
    }
    cr_assert_leq(segments(), 3);
    check_tally(40 * LANE_SLOTS, 40 * LANE_SLOTS - in_flight);
}

enum { MANY_SEGMENTS = 3 * BUNCH };

static struct segment *many[MANY_SEGMENTS];

static void map_many(struct lanes *of)
{
    cr_assert_eq(lanes_create(of, 1, 0), 0);
    for (size_t i = 0; i < MANY_SEGMENTS; i++) {
        many[i] = segment_create(&of->store, lanes_own(of, 0), false);
        cr_assert_not_null(many[i]);
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(many[i], many[j], "one for two");
    }
}

/* G6: those that were mapped later, too, whatever ring they are in. */
Test(lane, segments_go_with_their_lanes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct lanes other = {0};
    unsigned char in_core;

    map_many(&other);
    lanes_destroy(&other);
    for (size_t i = 0; i < MANY_SEGMENTS; i++) {
        uintptr_t at = (uintptr_t)many[i]->slot & ~(uintptr_t)(page - 1);
        cr_assert_eq(mincore((void *)at, 1, &in_core), -1, "segment %zu is still mapped", i);
        cr_assert_eq(errno, ENOMEM);
    }
}

/* Where there is no room for a bunch there may be some for one segment. */
Test(lane, segments_come_one_by_one_at_need)
{
    struct lanes other = {0};

    most_memory = 4 * SEGMENT_SIZE;
    map_many(&other);
    lanes_destroy(&other);
}

/* Parts that have not gone back: of those that have, a look may have met a page since. */
static size_t resident(void)
{
    enum { PAGE = 4096, PAGES = PART_SIZE / PAGE };
    const struct segment *segment = lane->first;
    unsigned char page[LANE_SLOTS / RELEASE_SLOTS][PAGES];
    size_t parts = 0;

    do {
        cr_assert_eq(mincore((void *)(uintptr_t)segment->slot, sizeof segment->slot, page[0]), 0);
        for (size_t i = 0; i < COUNT_OF(page); i++) {
            unsigned in_core = 0;
            for (size_t j = 0; j < PAGES; j++)
                in_core += page[i][j] & 1;
            parts += in_core == PAGES;
        }
        segment = segment_next(segment);
    } while (segment != lane->first);
    return parts;
}

enum { MANY_LAPS = 400 * LANE_SLOTS };

/* G6: when few are left the pages go back, but not what was counted there; they are used again. */
Test(lane, a_lane_becomes_smaller)
{
    size_t full;

    submit_range(0, node_count);
    full = resident();
    for (size_t i = 0; i < node_count; i++)
        cr_assert(lane_withdraw(&node[i]));
    for (size_t i = 0; i < MANY_LAPS; i++) {
        submit(0);
        cr_assert(lane_withdraw(&node[0]));
    }
    cr_assert_lt(resident(), full / 2);
    check_tally(node_count + MANY_LAPS, node_count + MANY_LAPS);
    submit_range(0, node_count);
    cr_assert_leq(segments(), NODE_SEGMENTS + 1);
    check_tally(2 * node_count + MANY_LAPS, node_count + MANY_LAPS);
    cr_assert_eq(sweep(), node_count);
}

/* ---- a stretch of the ring at a time ---- */

enum { RING = 3 * SURVEY_MOST - 2, LAPS = SURVEY_MOST / LAP_MOST };

static struct survey *survey(void)
{
    return &lane->survey[0];
}

/* As find_segment does where there is no other lane. */
static struct segment *room_from(struct segment *here)
{
    struct segment *retired, *found = segment_with_room(survey(), &retired);

    return found ? found : segment_more(&lanes.store, here, retired);
}

/* As a look sees it. */
static void crowd(struct segment *segment)
{
    segment_raise_groups(segment, LANE_GROUPS);
    for (size_t i = 0; i < SAMPLES; i++)
        store_relaxed(&segment->slot[i * (LANE_SLOTS / SAMPLES)], packed_make(&node[i], 0));
}

static void empty(struct segment *segment)
{
    memset((void *)segment->slot, 0, sizeof segment->slot);
}

/* The next one that is as near. */
static struct segment *next_of(const struct segment *segment)
{
    return load_acquire(&segment->alike);
}

/* A ring of crowded ones. */
static void make_ring(void)
{
    crowd(lane->first);
    while (segments() < RING) {
        struct segment *segment = segment_add(&lanes.store, lane->first);
        cr_assert_not_null(segment);
        cr_assert_eq(segment_next(lane->first), segment);
        crowd(segment);
    }
}

static size_t in_use(void)
{
    const struct segment *segment = lane->first;
    size_t count = 0;

    do {
        count += !segment->far && !load_relaxed(&segment->retired);
        segment = segment_next(segment);
    } while (segment != lane->first);
    return count;
}

/* Room is found after a turn at most, and until then there is one more for each look in vain. */
Test(lane, room_is_looked_for_a_stretch_at_a_time)
{
    struct segment *roomy, *found;
    size_t looks = 0;

    make_ring();
    roomy = segment_next(lane->first);
    empty(roomy);
    while ((found = room_from(lane->first)) != roomy) {
        crowd(found);
        cr_assert_leq(++looks, RING / ROOM_MOST + 1);
    }
    cr_assert_leq(segments(), RING + looks);
    cr_assert_eq(room_from(lane->first)->far, false);
}

/* Every other one of those that a look begins with, and so many of all. */
static void crowd_half(struct segment *segment, size_t full)
{
    size_t every = SAMPLES / SAMPLES_FIRST, so_far = 0;

    empty(segment);
    segment_raise_groups(segment, LANE_GROUPS);
    for (size_t i = 0; i < SAMPLES; i++) {
        bool first = i % every == 0;
        if (first ? i / every % 2 == 0 : so_far + SAMPLES_FIRST / 2 < full) {
            so_far += !first;
            store_relaxed(&segment->slot[i * (LANE_SLOTS / SAMPLES)], packed_make(&node[i], 0));
        }
    }
    cr_assert_eq(segment_sample(segment), full);
}

/* A few slots tell whether there is room, all that are sampled where these do not agree. */
Test(lane, room_is_told_by_few_slots_or_by_more)
{
    struct segment *here = lane->first, *next, *added;

    make_ring();
    next = segment_next(here);
    crowd_half(next, SAMPLES_TAKEN);
    added = room_from(here);
    cr_assert_neq(added, next, "half of it is taken");
    crowd(added);
    store_release(&survey()->at, here);
    crowd_half(next, SAMPLES_TAKEN - 1);
    cr_assert_eq(room_from(here), next);
    store_release(&survey()->at, here);
    empty(next);
    store_relaxed(&next->slot[0], packed_make(&node[0], 0));
    for (size_t i = 1; i < SAMPLES; i += SAMPLES / SAMPLES_FIRST) /* none of the few */
        store_relaxed(&next->slot[i * (LANE_SLOTS / SAMPLES)], packed_make(&node[i], 0));
    cr_assert_eq(room_from(here), next);
    store_release(&survey()->at, here);
    empty(next);
    for (size_t i = 0; i < SAMPLES; i += SAMPLES / SAMPLES_FIRST) /* the few, and no others */
        store_relaxed(&next->slot[i * (LANE_SLOTS / SAMPLES)], packed_make(&node[i], 0));
    cr_assert_neq(room_from(here), next);
}

/* No call goes far: where only what was retired is near, that is used again, or the same. */
Test(lane, what_was_retired_is_used_again)
{
    make_ring();
    for (struct segment *s = segment_next(lane->first); s != lane->first; s = segment_next(s))
        store_relaxed(&s->retired, s->far ? 0 : 1);
    cr_assert_eq(segment_after(lane->first, survey()), lane->first);
    cr_assert_eq(in_use(), 1);
    cr_assert_neq(room_from(lane->first), lane->first);
    cr_assert_eq(segments(), RING, "no new one");
    cr_assert_eq(in_use(), 2);
    store_relaxed(&lane->first->retired, 1);
    for (struct segment *s = segment_next(lane->first); s != lane->first; s = segment_next(s))
        store_relaxed(&s->retired, s->far ? 0 : 1);
    cr_assert_eq(segment_after(lane->first, survey()), lane->first);
    cr_assert_eq(in_use(), 1, "where a lane goes on is in use");
}

Test(lane, rather_the_same_again_than_a_crowded_one)
{
    struct segment *next;

    make_ring();
    empty(lane->first);
    cr_assert_eq(segment_after(lane->first, survey()), lane->first);
    crowd(lane->first);
    next = segment_after(lane->first, survey());
    cr_assert_neq(next, lane->first);
    empty(next);
    cr_assert_eq(segment_after(lane->first, survey()), next);
    empty(lane->first);
    cr_assert_eq(segment_after(lane->first, survey()), next, "round all that have room");
}

/* G6: with each lap one retires, if one is near, and what has gives back its parts one by one. */
Test(lane, a_ring_becomes_smaller_by_stretches)
{
    struct segment *here = lane->first;
    size_t parts = 0, laps = 0;

    make_ring();
    do {
        empty(here);
        here = segment_next(here);
    } while (here != lane->first);
    for (size_t before = RING; before > 1; before = in_use()) {
        cr_assert_leq(++laps, 2 * RING * LAPS);
        here = segment_after(here, survey());
        cr_assert_geq(in_use() + 1, before);
    }
    cr_assert_eq(segment_after(here, survey()), here);
    cr_assert_eq(in_use(), 1);
    for (size_t looks = 0; looks < 2 * RING * LAPS; looks++) {
        while (segment_give_back(survey(), 1))
            parts++;
        segment_after(here, survey());
    }
    cr_assert_geq(parts, (RING - 1) * (LANE_SLOTS / RELEASE_SLOTS));
    for (struct segment *s = segment_next(here); s != here; s = segment_next(s))
        cr_assert(s->far || load_relaxed(&s->released) == (1u << LANE_SLOTS / RELEASE_SLOTS) - 1);
}

static void end_a_stretch(struct segment *here)
{
    for (unsigned laps = 0; laps < LAPS; laps++)
        segment_after(here, survey());
}

/* Of the few that are looked at in each, an eighth is the least that keeps all in use. */
Test(lane, what_is_in_use_does_not_retire)
{
    struct segment *here = lane->first;
    unsigned every = SAMPLES / SAMPLES_FIRST, in_stretch = SURVEY_MOST + 1;
    size_t least = (in_stretch * SAMPLES_FIRST + FEW_BELOW - 1) / FEW_BELOW, put = 0;

    make_ring();
    do {
        empty(here);
        here = segment_next(here);
    } while (here != lane->first);
    for (struct segment *s = next_of(here); put < least; s = next_of(s), put++)
        store_relaxed(&s->slot[every * (LANE_SLOTS / SAMPLES)], packed_make(&node[put], 0));
    end_a_stretch(here);
    cr_assert_eq(in_use(), RING, "in %zu of %u", put, in_stretch);
    store_relaxed(&next_of(here)->slot[every * (LANE_SLOTS / SAMPLES)], 0);
    store_release(&survey()->at, here);
    end_a_stretch(here);
    cr_assert_eq(in_use(), RING - 1, "in one less");
}

/* A few with each lap; what they had is decided on at the end of the stretch. */
Test(lane, a_stretch_is_looked_at_by_laps)
{
    struct segment *here = lane->first, *at = lane->first;

    make_ring();
    for (struct segment *s = next_of(here); s != here; s = next_of(s))
        empty(s);
    for (unsigned laps = 1; laps < LAPS; laps++) {
        segment_after(here, survey());
        for (unsigned i = 0; i < LAP_MOST; i++)
            at = next_of(at);
        cr_assert_eq(survey()->at, at, "after %u laps", laps);
        cr_assert_eq(in_use(), RING, "after %u laps", laps);
    }
    segment_after(here, survey());
    cr_assert_eq(in_use(), RING - 1);
}

static unsigned asked[WISH_MAKE_READY + 1];

static void ask(void *keeper, enum wish wish)
{
    cr_assert_eq(keeper, &asked);
    asked[wish]++;
}

static void have_a_keeper(void)
{
    lanes.ask_keeper = ask;
    lanes.keeper = &asked;
    lane_use(lane);
}

/* Submissions give nothing back then, and he takes what lies side by side at once. */
Test(lane, a_keeper_is_asked)
{
    struct segment *here = lane->first, *leaving;
    lane_slot *last = &here->slot[RELEASE_SLOTS - 1];

    have_a_keeper();
    make_ring();
    cr_assert_eq(lane_go_on_after(last), last + 1);
    cr_assert_eq(asked[WISH_GIVE_BACK], 0, "nothing is to be done");
    leaving = next_of(here);
    empty(leaving);
    store_relaxed(&leaving->retired, 1);
    store_release(&survey()->leaving, leaving);
    cr_assert_eq(lane_go_on_after(last), last + 1);
    cr_assert_eq(asked[WISH_GIVE_BACK], 1);
    cr_assert_eq(leaving->released, 0);
    cr_assert(lanes_give_back(&lanes));
    cr_assert_eq(leaving->released, (1u << SEGMENT_PARTS) - 1);
    cr_assert_not(lanes_give_back(&lanes), "it has given all");
    cr_assert_null(survey()->leaving);
}

/* ---- more memory, before it is needed ---- */

/* Of so many slots: pages that are there. */
static size_t pages_in(const lane_slot *slot, size_t slots)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
    size_t count = 0;

    for (; at < (uintptr_t)(slot + slots); at += page) {
        unsigned char in_core = 0;
        cr_assert_eq(mincore((void *)at, page, &in_core), 0);
        count += in_core & 1;
    }
    return count;
}

static size_t pages_of(const struct segment *segment)
{
    return pages_in(segment->slot, LANE_SLOTS);
}

/* Before Linux 5.14, and in some emulators, pages come one by one. */
static bool can_populate(void)
{
    static int page[4096];
    return madvise((void *)((uintptr_t)page & ~UINT64_C(4095)), 4096, 23) == 0;
}

/* In the middle of a segment, if half of what is behind is taken; and where one was added. */
Test(lane, more_is_asked_for_where_a_segment_fills)
{
    struct segment *here = lane->first;
    lane_slot *middle = &here->slot[LANE_SLOTS / 2];

    have_a_keeper();
    cr_assert_eq(lane_go_on_after(middle - 1), middle);
    cr_assert_eq(asked[WISH_MAKE_READY], 0, "it is empty");
    crowd_half(here, SAMPLES_TAKEN - 1);
    cr_assert_eq(lane_go_on_after(middle - 1), middle);
    cr_assert_eq(asked[WISH_MAKE_READY], 0, "not crowded");
    crowd_half(here, SAMPLES_TAKEN);
    cr_assert_eq(lane_go_on_after(middle - RELEASE_SLOTS - 1), middle - RELEASE_SLOTS);
    cr_assert_eq(asked[WISH_MAKE_READY], 0, "not the middle");
    cr_assert_eq(lane_go_on_after(middle - 1), middle);
    cr_assert_eq(asked[WISH_MAKE_READY], 1);
    lanes_make_ready(&lanes);
    cr_assert_eq(lane_go_on_after(middle - 1), middle);
    cr_assert_eq(asked[WISH_MAKE_READY], 1, "it is ready");
    empty(here);
    submit_range(0, LANE_SLOTS + 1);
    cr_assert_eq(segments(), 2, "one more");
    cr_assert_eq(asked[WISH_MAKE_READY], 2, "and the next");
    empty(here);
}

/* The next segment is the one that was made ready: nobody maps for it, or meets a page. */
Test(lane, what_is_ready_is_taken)
{
    struct segment *here = lane->first, *added;

    for (unsigned i = 0; i < 2 * BUNCH; i++) {
        cr_assert_not(segment_is_ready(&lanes.store));
        cr_assert(segment_make_ready(&lanes.store));
        cr_assert(segment_is_ready(&lanes.store));
        cr_assert_not(segment_make_ready(&lanes.store), "it is");
        most_memory = 0;
        added = segment_add(&lanes.store, here);
        most_memory = SIZE_MAX;
        cr_assert(added && added->whole);
        cr_assert(!can_populate() || pages_of(added) >= LANE_SLOTS * sizeof(lane_slot) / 4096);
    }
    added = segment_add(&lanes.store, here);
    cr_assert_not(added->whole, "nobody has made it ready");
    forbid_memory();
    while (segment_add(&lanes.store, here))
        continue;
    cr_assert_not(segment_make_ready(&lanes.store), "no memory");
    cr_assert_not(segment_is_ready(&lanes.store));
}

/* A new one's pages come by pieces, each a little before its first group is come to. */
Test(lane, pages_come_by_pieces)
{
    struct segment *here = segment_add(&lanes.store, lane->first);
    size_t piece = MEET_GROUPS * GROUP_SLOTS * sizeof(lane_slot) / 4096, before, beyond;
    const lane_slot *end = here->slot + LANE_SLOTS; /* there the next region begins */

    before = pages_of(here);
    cr_assert(!can_populate() || before >= piece, "the first one");
    cr_assert_leq(before, piece + 1);
    segment_raise_groups(here, 1);
    segment_raise_groups(here, MEET_GROUPS - MEET_EARLY);
    cr_assert_eq(pages_of(here), before, "the same piece");
    segment_raise_groups(here, MEET_GROUPS - MEET_EARLY + 1);
    cr_assert(!can_populate() || pages_of(here) >= 2 * piece);
    before = pages_of(here);
    segment_raise_groups(here, MEET_GROUPS + 1);
    cr_assert_eq(pages_of(here), before, "it was met");
    segment_raise_groups(here, LANE_GROUPS - MEET_EARLY);
    cr_assert(!can_populate() || pages_of(here) >= 3 * piece);
    beyond = pages_in(end, MEET_GROUPS * GROUP_SLOTS);
    segment_raise_groups(here, LANE_GROUPS);
    cr_assert_eq(pages_in(end, MEET_GROUPS * GROUP_SLOTS), beyond, "there is no next one");
    cr_assert_leq(pages_of(here), 3 * piece + 1, "what was passed over is not touched");
    before = pages_of(lane->first);
    segment_raise_groups(lane->first, 1);
    cr_assert_eq(pages_of(lane->first), before, "a lane with little in it stays small");
    segment_raise_groups(lane->first, MEET_GROUPS + 1);
    cr_assert(!can_populate() || pages_of(lane->first) >= before + piece);
}

/* Whoever looks whether it is crowded waits for no page: where nothing was filled there is none. */
Test(lane, a_look_meets_no_page)
{
    struct segment *here = segment_add(&lanes.store, lane->first);
    size_t step = LANE_SLOTS / SAMPLES, before = pages_of(here);

    cr_assert_eq(segment_sample(here), 0);
    cr_assert_eq(pages_of(here), before, "nothing was ever filled");
    store_relaxed(&here->slot[0], packed_make(&node[0], 0));
    segment_raise_groups(here, 1);
    before = pages_of(here);
    cr_assert_eq(segment_sample(here), 1);
    cr_assert_eq(pages_of(here), before, "and nothing behind the first group");
    store_relaxed(&here->slot[step], packed_make(&node[1], 0));
    cr_assert_eq(segment_sample(here), 1, "that is not known to be filled yet");
    segment_raise_groups(here, (uint32_t)(step / GROUP_SLOTS));
    cr_assert_eq(segment_sample(here), 1);
    segment_raise_groups(here, (uint32_t)(step / GROUP_SLOTS + 1));
    cr_assert_eq(segment_sample(here), 2);
}

/* What is in use, or went before, lies between: its neighbours go, it stays. */
Test(lane, parts_go_together_up_to_one_in_use)
{
    struct segment *leaving;
    uint64_t scheduled;

    make_ring();
    leaving = next_of(lane->first);
    empty(leaving);
    scheduled = lane_count(lane).scheduled + 1 + 5;
    store_relaxed(&leaving->slot[2 * RELEASE_SLOTS], packed_make(&node[0], 0));
    store_relaxed(&leaving->slot[RELEASE_SLOTS], packed_make(NULL, 5));
    store_relaxed(&leaving->retired, 1);
    store_release(&survey()->leaving, leaving);
    cr_assert(segment_give_back(survey(), SEGMENT_PARTS));
    cr_assert_eq(leaving->released, 3, "two of them");
    check_tally(scheduled, 5); /* nothing is counted twice, or lost */
    cr_assert_not(segment_give_back(survey(), SEGMENT_PARTS), "the third");
    cr_assert_eq(leaving->slot[2 * RELEASE_SLOTS], packed_make(&node[0], 0));
    cr_assert(segment_give_back(survey(), SEGMENT_PARTS));
    cr_assert_eq(leaving->released, ((1u << SEGMENT_PARTS) - 1) & ~4u);
    cr_assert_not(segment_give_back(survey(), SEGMENT_PARTS), "these went before");
}

static void (*while_pages_go)(void);

__typeof__(platform_release_pages) __real_platform_release_pages;
__typeof__(platform_release_pages) __wrap_platform_release_pages;

void __wrap_platform_release_pages(void *memory, size_t size)
{
    __real_platform_release_pages(memory, size);
    if (while_pages_go)
        while_pages_go();
}

static void use_the_next_again(void)
{
    store_release(&survey()->at, lane->first);
    cr_assert_eq(room_from(lane->first), next_of(lane->first));
}

/* G6: when one has given all it is the next one's turn, without another lap. */
Test(lane, what_has_retired_gives_back_in_turn)
{
    struct segment *here = lane->first;

    make_ring();
    for (struct segment *s = next_of(here); s != here; s = next_of(s)) {
        empty(s);
        store_relaxed(&s->retired, LANE_GROUPS + 1);
    }
    lane_use(lane);
    store_release(&survey()->leaving, next_of(here));
    while (lanes_give_back(&lanes))
        continue;
    cr_assert_null(survey()->leaving);
    for (struct segment *s = next_of(here); s != here; s = next_of(s))
        cr_assert_eq(s->released, (1u << SEGMENT_PARTS) - 1);
    cr_assert_eq(here->released, 0);
}

/* G6: what is used again while its pages go gives them back when it has retired once more. */
Test(lane, used_again_while_its_pages_go)
{
    struct segment *here = lane->first, *leaving;

    make_ring();
    leaving = next_of(here);
    empty(leaving);
    store_relaxed(&leaving->retired, 1);
    store_release(&survey()->leaving, leaving);
    while_pages_go = use_the_next_again;
    cr_assert(segment_give_back(survey(), SEGMENT_PARTS));
    while_pages_go = NULL;
    cr_assert_not(leaving->retired);
    for (struct segment *s = leaving; s != here; s = next_of(s))
        empty(s);
    empty(here);
    for (unsigned laps = 0; !leaving->retired; laps++) {
        cr_assert_leq(laps, 2 * RING * LAPS);
        segment_after(here, survey());
    }
    store_release(&survey()->leaving, leaving);
    cr_assert(segment_give_back(survey(), SEGMENT_PARTS));
}

/* Its pages come back a part at a time, as it is come to: all of them would take one call long. */
Test(lane, used_again_part_by_part)
{
    size_t part = PART_SIZE / (size_t)sysconf(_SC_PAGESIZE);
    struct segment *leaving;

    make_ring();
    leaving = next_of(lane->first);
    empty(leaving);
    store_relaxed(&leaving->retired, 1);
    store_release(&survey()->leaving, leaving);
    while (segment_give_back(survey(), SEGMENT_PARTS))
        continue;
    cr_assert_eq(leaving->released, (1u << SEGMENT_PARTS) - 1);
    use_the_next_again();
    for (unsigned i = 1; i < SEGMENT_PARTS; i++) {
        lane_slot *next = &leaving->slot[(size_t)i * RELEASE_SLOTS];
        cr_assert_eq(leaving->released, (1u << SEGMENT_PARTS) - (1u << i), "and no more");
        cr_assert(!can_populate() || pages_in(next - RELEASE_SLOTS, RELEASE_SLOTS) == part);
        cr_assert_lt(pages_in(next, RELEASE_SLOTS), part, "a sample, at most");
        cr_assert_eq(lane_go_on_after(next - 1), next);
    }
    cr_assert_eq(leaving->released, 0);
    platform_release_pages(leaving->slot, sizeof leaving->slot);
    lane_go_on_after(&leaving->slot[RELEASE_SLOTS - 1]);
    cr_assert_lt(pages_in(&leaving->slot[RELEASE_SLOTS], RELEASE_SLOTS), part, "once");
}

/* It was the last one in use that was seen in a stretch, and has retired and gone since. */
Test(lane, what_has_retired_and_gone_is_left_alone)
{
    struct segment *here = lane->first, *gone;

    make_ring();
    gone = next_of(here);
    empty(gone);
    for (struct segment *s = gone; s != here; s = next_of(s)) {
        store_relaxed(&s->retired, 1);
        store_relaxed(&s->released, (1u << SEGMENT_PARTS) - 1);
    }
    store_relaxed(&survey()->steps, SURVEY_MOST - LAP_MOST);
    store_relaxed(&survey()->in_use, SURVEY_MOST);
    store_release(&survey()->last, gone);
    store_release(&survey()->at, gone);
    segment_after(here, survey());
    cr_assert_eq(survey()->steps, 0, "the stretch has ended");
    cr_assert_eq(gone->released, (1u << SEGMENT_PARTS) - 1, "its pages are not asked for again");
}

/* A part that holds one keeps its page; its slots are open again. */
Test(lane, a_part_in_use_stays)
{
    submit_range(0, node_count);
    for (size_t i = 0; i < node_count; i++) {
        if (i % (RELEASE_SLOTS / 2))
            cr_assert(lane_withdraw(&node[i]));
    }
    for (size_t i = 0; i < 100 * LANE_SLOTS; i++) {
        submit(1);
        cr_assert(lane_withdraw(&node[1]));
    }
    cr_assert_eq(sweep(), node_count / (RELEASE_SLOTS / 2));
    check_tally(node_count + 100 * LANE_SLOTS, node_count - taken_count + 100 * LANE_SLOTS);
}

static unsigned given_back(unsigned looks)
{
    unsigned given = 0;

    while (looks-- > 0)
        given += segment_give_back(survey(), 1);
    return given;
}

/* G6: while one lives in what has retired, who comes by has time to bring other memory home. */
Test(lane, a_part_in_use_keeps_nobody_from_other_work)
{
    struct segment *leaving;
    unsigned parts = LANE_SLOTS / RELEASE_SLOTS;

    make_ring();
    leaving = segment_next(lane->first);
    empty(leaving);
    store_relaxed(&leaving->slot[RELEASE_SLOTS + 1], packed_make(&node[0], 0));
    store_relaxed(&leaving->retired, 1);
    store_release(&survey()->leaving, leaving);
    cr_assert_eq(given_back(parts), parts - 1, "each but that one");
    cr_assert_eq(given_back(3 * parts), 0);
    cr_assert_eq(survey()->leaving, leaving, "it is tried again");
    empty(leaving);
    cr_assert_eq(given_back(parts + 1), 1);
    cr_assert_null(survey()->leaving);
}

/* G7: for want of memory alone. */
Test(lane, without_memory_it_spills)
{
    forbid_memory();
    submit_range(0, LANE_SLOTS);
    cr_assert_not(lane_has_mail(lane));
    submit_range(LANE_SLOTS, LANE_SLOTS + 100);
    cr_assert(lane_has_mail(lane));
    cr_assert_not(lane_withdraw(&node[LANE_SLOTS]));
    cr_assert_not(lane_take_back(&node[LANE_SLOTS]));
    check_tally(LANE_SLOTS + 100, 0);
    cr_assert_eq(spilled(), 100);
    cr_assert_eq(spilled(), 0);
    cr_assert_not(lane_has_mail(lane));
    cr_assert_eq(sweep(), LANE_SLOTS);
    check_tally(LANE_SLOTS + 100, 0);
}

/* G4: what is spilled is announced too. */
Test(lane, the_spill_lowers_the_earliest)
{
    forbid_memory();
    for (size_t i = 0; i < LANE_SLOTS; i++)
        submit(i + 1);
    cr_assert_eq(lane_submit(&lanes, &node[0], 5), 0);
    cr_assert_null(slot_of(&node[0]));
    cr_assert_eq(load_relaxed(&lane->earliest), 5);
}

/* Positions go round: what is still there is stepped over. */
Test(lane, long_lived_ones_in_the_way)
{
    for (size_t i = 0; i < LANE_SLOTS; i++) {
        submit(i);
        if (i % 10)
            cr_assert(lane_withdraw(&node[i]));
    }
    for (size_t i = LANE_SLOTS; i < LANE_SLOTS * 3 / 2; i++)
        submit(i);
    cr_assert_eq(segments(), 1, "grown though there is space");
    cr_assert_eq(sweep(), LANE_SLOTS / 2 + (LANE_SLOTS + 9) / 10);
}

/* ---- what a sweep leaves ---- */

static void come_and_go(size_t i, unsigned times)
{
    while (times-- > 0) {
        submit_at(i, 1000000);
        cr_assert(lane_withdraw(&node[i]));
    }
}

/* So a first look leaves what is far. */
static void most_is_cancelled(void)
{
    come_and_go(0, LANE_SLOTS);
}

/* What is not due soon stays where it can be withdrawn, and is known: it comes up in its time. */
Test(lane, a_sweep_leaves_what_is_not_due_soon)
{
    lanes_set_far(&lanes, 0);
    most_is_cancelled();
    for (size_t i = 0; i < 1000; i++)
        submit_at(i, 1000 * (i + 1));
    taken_count = 0;
    sweep_up_to(100000);
    cr_assert_eq(taken_count, 100);
    cr_assert_eq(load_relaxed(&lane->earliest), 101000);
    for (size_t i = 100; i < 1000; i += 2)
        cr_assert(lane_withdraw(&node[i]));
    sweep_up_to(200000);
    cr_assert_eq(taken_count, 150);
    cr_assert_eq(load_relaxed(&lane->earliest), 202000);
    check_tally(LANE_SLOTS + 1000, LANE_SLOTS + 450);
}

/* What is near is taken whatever it is; it stands in segments of its own. */
Test(lane, near_and_far)
{
    lanes_set_far(&lanes, 5000);
    most_is_cancelled();
    for (size_t i = 0; i < 10; i++)
        submit_at(i, 1000 * (i + 1));
    cr_assert_eq(segment_of(slot_of(&node[3])), lane->first);
    cr_assert(segment_of(slot_of(&node[4]))->far);
    taken_count = 0;
    sweep_up_to(1000);
    cr_assert_eq(taken_count, 4);
    cr_assert_eq(load_relaxed(&lane->earliest), 5000);
}

#define MOST_STAYED (GROUP_SLOTS / 8) /* that many withdrawn from look to look: file it */

/* With how many cancelled in its group before each is one taken that is far away? */
static unsigned looks_until_taken(unsigned cancelled)
{
    unsigned looks = 0;

    lanes_set_far(&lanes, 0);
    submit_at(0, 1000000);
    taken_count = 0;
    do {
        for (unsigned i = 0; i < cancelled; i++) {
            submit_at(1, 1000000);
            cr_assert(lane_withdraw(&node[1]));
        }
        sweep_up_to(1);
        looks++;
        cr_assert_leq(looks, GROUP_SLOTS);
    } while (taken_count == 0);
    cr_assert_eq(taken_count, 1);
    cr_assert_eq(load_relaxed(&lane->earliest), UINT64_MAX);
    check_tally(1 + looks * cancelled, looks * cancelled);
    return looks;
}

/* Most of those beside it are cancelled. But not for ever: it would be looked at in each sweep. */
Test(lane, what_was_left_a_few_times_is_taken)
{
    cr_assert_eq(looks_until_taken(MOST_STAYED + 1), LOOKS + 1);
}

/* What hardly anybody cancels is not worth another look. */
Test(lane, what_stays_is_taken_at_once)
{
    cr_assert_eq(looks_until_taken(MOST_STAYED), 1);
}

/* A group may be too young for any of it to be cancelled: the first time its segment tells. */
Test(lane, what_stays_in_a_segment_that_is_cancelled_is_taken_the_second_time)
{
    lanes_set_far(&lanes, 0);
    for (size_t i = 0; i < GROUP_SLOTS; i++)
        submit_at(i, 1000000);
    /* all in the next group, but more than an eighth of both */
    come_and_go(GROUP_SLOTS, 2 * MOST_STAYED + 1);
    taken_count = 0;
    sweep_up_to(1);
    cr_assert_eq(taken_count, 0);
    come_and_go(GROUP_SLOTS, 2 * MOST_STAYED + 1);
    sweep_up_to(1);
    cr_assert_eq(taken_count, GROUP_SLOTS);
}

/* Nor does a group tell in which nothing is new: it may not even have its page. */
Test(lane, what_was_taken_does_not_tell_of_its_segment)
{
    lanes_set_far(&lanes, 0);
    for (size_t i = 0; i < LOOK_SAMPLES / 2 * GROUP_SLOTS; i++)
        submit_at(i, 1000000);
    cr_assert_eq(sweep(), LOOK_SAMPLES / 2 * GROUP_SLOTS);
    submit_at(0, 1000000);
    come_and_go(1, MOST_STAYED + 1);
    taken_count = 0;
    sweep_up_to(1);
    cr_assert_eq(taken_count, 0);
}

/* What the worker takes has not been cancelled. */
Test(lane, what_was_taken_does_not_count_as_withdrawn)
{
    lanes_set_far(&lanes, 0);
    submit_at(0, 1000000);
    for (size_t i = 1; i <= MOST_STAYED + 1; i++)
        submit_at(i, 1);
    come_and_go(GROUP_SLOTS, MOST_STAYED + 1);
    taken_count = 0;
    sweep_up_to(1);
    cr_assert_eq(taken_count, MOST_STAYED + 1);
    sweep_up_to(1);
    cr_assert_eq(taken_count, MOST_STAYED + 2);
}

/* G4: the worker, which sleeps, hears of it whenever what is far has become twice as much. */
Test(lane, growth_is_told)
{
    lanes_set_far(&lanes, 0);
    for (size_t i = 0; i < LANE_SLOTS; i++) {
        size_t groups = i / GROUP_SLOTS + 1;
        bool doubled = i % GROUP_SLOTS == 0 && groups >= AHEAD_FROM && !(groups & (groups - 1));
        cr_assert_eq(grows_by(i, 1000), doubled, "%zu", i);
    }
}

/* G5: of what is near it hears anyway. */
Test(lane, what_is_near_does_not_count)
{
    for (size_t i = 0; i < LANE_SLOTS; i++)
        cr_assert_not(grows_by(i, 1000));
    cr_assert_eq(load_relaxed(&lanes.store.far_groups), 0);
}

/* What retires does not count, until it is used again; then that is told, too. */
Test(lane, a_smaller_lane_counts_less)
{
    uint32_t full;
    size_t told = 0;

    lanes_set_far(&lanes, 0);
    submit_range(0, node_count);
    full = load_relaxed(&lanes.store.far_groups);
    cr_assert_geq(full, NODE_SEGMENTS * LANE_GROUPS);
    for (size_t i = 0; i < node_count; i++)
        cr_assert(lane_withdraw(&node[i]));
    for (size_t i = 0; i < 100 * LANE_SLOTS; i++) {
        submit(0);
        cr_assert(lane_withdraw(&node[0]));
    }
    cr_assert_leq(load_relaxed(&lanes.store.far_groups), full / 2);
    for (size_t i = 0; i < node_count; i++)
        told += grows_by(i, 1000);
    cr_assert_geq(load_relaxed(&lanes.store.far_groups), NODE_SEGMENTS * LANE_GROUPS);
    cr_assert_leq(load_relaxed(&lanes.store.far_groups), full + LANE_GROUPS);
    cr_assert_geq(told, 1);
}

/* A look that is broken off goes on where it was; what comes in between speaks for itself (C3). */
Test(lane, a_sweep_in_portions)
{
    uint64_t left = UINT64_MAX;
    struct segment *far;

    lanes_set_far(&lanes, 0);
    most_is_cancelled();
    for (size_t i = 0; i < 10 * GROUP_SLOTS; i++)
        submit_at(i, 1000 + i % 100);
    far = segment_of(slot_of(&node[0]));
    taken_count = 0;
    exchange_seq(&far->earliest, UINT64_MAX);
    left = lane_sweep(far, 0, 4, 1049, take, &lanes);
    cr_assert_eq(taken_count, 150);
    cr_assert_eq(left, 1050);
    cr_assert_eq(load_relaxed(&far->earliest), UINT64_MAX);
    cr_assert(lane_withdraw(&node[50]));
    store_release(&lane->tail[1], slot_of(&node[51]) - 1); /* its place, behind the sweep */
    submit_at(50, 1007);
    cr_assert_eq(load_relaxed(&far->earliest), 1007);
    left = min_u64(left, lane_sweep(far, 4, LANE_GROUPS - 4, 1049, take, &lanes));
    lane_tell_left(far, left);
    cr_assert_eq(load_relaxed(&far->earliest), 1007);
    taken_count = 0;
    sweep_up_to(DEADLINE_NEVER);
    cr_assert_eq(taken_count, 10 * GROUP_SLOTS - 150 - 190);
}

/* A segment whose time has not come is not swept, and the lane goes on saying its deadline. */
Test(lane, a_lane_says_again_what_was_not_swept)
{
    submit_range(0, node_count);
    exchange_seq(&lane->earliest, UINT64_MAX);
    exchange_seq(&lane->first->earliest, UINT64_MAX);
    lane_restore_earliest(lane);
    cr_assert_gt(load_relaxed(&lane->earliest), 1000);
    cr_assert_lt(load_relaxed(&lane->earliest), 1000 + node_count);
}

/* ---- moved earlier ---- */

/* C19: in its slot it stays; the lane says so, and a sweep finds it. */
Test(lane, one_that_is_moved_in_its_slot)
{
    lane_slot *slot;

    lanes_set_far(&lanes, 0);
    most_is_cancelled();
    submit_at(0, 1000000);
    sweep_up_to(1);
    slot = slot_of(&node[0]);
    store_relaxed(&node[0].word, word_make(7, WORD_PENDING));
    cr_assert(lane_move(&node[0], 7));
    cr_assert_eq(load_relaxed(&lane->earliest), 7);
    cr_assert_eq(slot_of(&node[0]), slot);
    check_tally(LANE_SLOTS + 1, LANE_SLOTS);
    taken_count = 0;
    sweep_up_to(7);
    cr_assert_eq(taken_count, 1);
    cr_assert_not(lane_move(&node[0], 5), "it has left it");
}

static void make_met(size_t i)
{
    submit(i);
    cr_assert_eq(sweep(), 1);
}

/* G3: it is scheduled once, and withdrawn never, by whomever it is taken out. */
Test(lane, one_that_comes_back)
{
    for (size_t i = 0; i < 2; i++)
        make_met(i);
    for (size_t i = 0; i < 2; i++) {
        store_relaxed(&node[i].word, word_make(7, WORD_PENDING));
        cr_assert_eq(lane_submit_met(&lanes, &node[i], 7), 7);
    }
    check_tally(2, 0);
    cr_assert_eq(load_relaxed(&lane->earliest), 7);
    cr_assert(holds_pending(lane));
    cr_assert_not(lane_withdraw(&node[0]), "that is counted otherwise");
    cr_assert(lane_withdraw_met(&node[0]));
    cr_assert_not(lane_withdraw_met(&node[0]));
    check_tally(2, 0);
    cr_assert_eq(sweep(), 1);
    check_tally(2, 0);
    cr_assert_not(holds_pending(lane));
}

/* Ended or moved meanwhile by somebody who found it in no slot: that is told, too. */
Test(lane, one_that_comes_back_and_was_changed_meanwhile)
{
    store_relaxed(&node[0].word, word_make(5, WORD_NUDGED));
    cr_assert_eq(lane_submit_met(&lanes, &node[0], 7), 5);
    cr_assert_eq(load_relaxed(&lane->earliest), 5);
    store_relaxed(&node[1].word, word_make(7, WORD_CANCELLED));
    cr_assert_eq(lane_submit_met(&lanes, &node[1], 7), 0, "the worker shall meet it soon");
    cr_assert_eq(load_relaxed(&lane->earliest), 0);
}

/* ---- at once (schedule.c): what it looks at ---- */

Test(lane, a_slot_that_can_be_filled_at_once)
{
    lane_slot *slot, *first = lane->first->slot;
    uint64_t empty;

    store_release(&lane->tail[0], first + 3);
    cr_assert(lane_look(&lane->tail[0], &slot, &empty));
    cr_assert_eq(slot, first + 3);
    cr_assert_eq(empty, 0);
    cr_assert_eq(load_relaxed(&lane->tail[0]), first + 3, "it only looks");
    store_relaxed(first + 3, packed_make(&node[0], 5));
    cr_assert_not(lane_look(&lane->tail[0], &slot, &empty), "it is taken");
    store_relaxed(first + 3, packed_make(NULL, SLOT_COUNT_MAX));
    cr_assert_not(lane_look(&lane->tail[0], &slot, &empty), "its count is to be carried");
    store_relaxed(first + 3, packed_make(NULL, SLOT_COUNT_MAX - 1));
    cr_assert(lane_look(&lane->tail[0], &slot, &empty));
    cr_assert_eq(empty, packed_make(NULL, SLOT_COUNT_MAX - 1));
    store_relaxed(first + 3, 0);
}

/* What must be so that nobody needs to be told of a deadline (C2, C3, C6). */
Test(lane, nobody_needs_to_be_told)
{
    struct segment *segment = lane->first;
    lane_slot *slot = &segment->slot[70];

    segment_raise_flag(segment, 1);
    store_relaxed(&segment->earliest, 50);
    store_relaxed(&lane->earliest, 50);
    cr_assert(lane_is_told(slot, 50));
    cr_assert_not(lane_is_told(slot, 49));
    cr_assert_not(lane_is_told(slot + GROUP_SLOTS, 50), "a group of which nothing is known");
    store_relaxed(&segment->earliest, 60);
    cr_assert_not(lane_is_told(slot, 50));
    store_relaxed(&segment->earliest, 40);
    store_relaxed(&lane->earliest, UINT64_MAX);
    cr_assert_not(lane_is_told(slot, 50));
    store_relaxed(&lane->earliest, 40);
    lane_close(lane);
    cr_assert_not(lane_is_told(slot, 50));
}

/* Once a lap: then somebody has to go on to the next segment, and to give memory back. */
Test(lane, at_the_end_of_a_segment_the_tail_is_turned)
{
    struct segment *segment = lane->first;
    lane_slot *last = &segment->slot[LANE_SLOTS - 1];

    segment_raise_flag(segment, LANE_GROUPS - 1);
    store_relaxed(&segment->earliest, 0);
    store_relaxed(&lane->earliest, 0);
    lane_pass(&lane->tail[0], last - 1);
    cr_assert_eq(load_relaxed(&lane->tail[0]), last);
    cr_assert(lane_is_told(last - 1, 9));
    lane_pass(&lane->tail[0], last);
    cr_assert_eq(load_relaxed(&lane->tail[0]), last);
    cr_assert_not(lane_is_told(last, 9));
    lane_turn(lane, last);
    cr_assert_eq(load_relaxed(&lane->tail[0]), segment_after(segment, &lane->survey[0])->slot);
    cr_assert_neq(load_relaxed(&lane->tail[1]), segment_after(segment, &lane->survey[0])->slot,
                  "the other's own");
}

/* ---- counting ---- */

/* One slot at the end of its count; what it had is carried over and nothing is counted twice. */
static void fill_and_empty(size_t i, bool by_withdrawing)
{
    store_relaxed(&lane->tail[0], lane->first->slot + 5);
    submit(i);
    cr_assert_eq(slot_of(&node[i]), lane->first->slot + 5);
    if (by_withdrawing)
        cr_assert(lane_withdraw(&node[i]));
    else
        cr_assert_eq(sweep(), 1);
}

static void count_over_the_carry(bool by_withdrawing)
{
    const uint64_t preset = SLOT_COUNT_MAX - 3;

    store_relaxed(&lane->first->slot[5], packed_make(NULL, preset));
    store_relaxed(&lane->first->taken[0], by_withdrawing ? 0 : preset);
    for (uint64_t i = 1; i <= 8; i++) {
        fill_and_empty(i, by_withdrawing);
        check_tally(preset + i, by_withdrawing ? preset + i : 0);
    }
    cr_assert_eq(slot_count(load_relaxed(&lane->first->slot[5])), 5);
}

Test(lane, the_count_of_a_slot_is_carried_when_withdrawn)
{
    count_over_the_carry(true);
}

Test(lane, the_count_of_a_slot_is_carried_when_swept)
{
    count_over_the_carry(false);
}

Test(lane, counts_in_any_mixture)
{
    uint64_t random = test_seed("lane"), scheduled = 0, withdrawn = 0;
    size_t oldest = 0;

    for (unsigned step = 0; step < 20000; step++) {
        size_t i = scheduled % node_count;
        if (scheduled - oldest == node_count || test_random_below(&random, 1000) == 0) {
            sweep();
            spilled();
            oldest = scheduled;
            check_tally(scheduled, withdrawn);
        }
        submit(i);
        scheduled++;
        if (test_random_below(&random, 3))
            withdrawn += lane_withdraw(&node[i]);
    }
    check_tally(scheduled, withdrawn);
}

/* ---- notices ---- */

Test(lane, notices_come_one_by_one)
{
    const hwt_timeout *timeout;
    size_t count = 0;

    cr_assert_null(lane_take_notice(lane));
    for (size_t i = 0; i < 3; i++)
        lane_notify(lane, &node[i]);
    cr_assert(lane_has_mail(lane));
    while ((timeout = lane_take_notice(lane)) != NULL)
        count += 1u << (timeout - node) * 4;
    cr_assert_eq(count, 0x111, "each once");
    cr_assert_not(lane_has_mail(lane));
    cr_assert_null(lane_take_notice(lane));
}

/* ---- stop ---- */

static void cancel_word(size_t i)
{
    store_relaxed(&node[i].word, word_make(1000 + i, WORD_CANCELLED));
}

static size_t sweep_all(bool quiet)
{
    taken_count = 0;
    cr_assert_eq(lane_sweep_all(lane, false, take, &lanes), quiet);
    return taken_count;
}

static int submit_closed(size_t i)
{
    return lane_submit(&lanes, &node[i], 1000);
}

/* G8: refused, or found by stop's sweep. */
Test(lane, closed_for_good)
{
    submit_range(0, 10);
    lane_close(lane);
    for (size_t i = 10; i < 200; i++)
        cr_assert_eq(submit_closed(i), -ESHUTDOWN);
    check_tally(10, 0);
    cr_assert(lane_withdraw(&node[3]));
    check_tally(10, 1);
    cr_assert_eq(sweep_all(true), 9);
    check_tally(10, 1);
}

/*
 * C18: all that was accepted has ended, so who has filled a slot takes the timeout back himself;
 * but for movers, from whose hand it was cancelled: that is met (C5).
 */
Test(lane, left_to_its_submitter)
{
    submit_range(0, 3);
    cr_assert_eq(sweep(), 3);
    cancel_word(0);
    lane_submit_met(&lanes, &node[0], 7);
    submit_range(3, 5);
    lane_close(lane);
    taken_count = 0;
    cr_assert_not(lane_sweep_all(lane, true, take, &lanes));
    cr_assert_eq(taken_count, 1);
    cr_assert_eq(taken[0], 0);
    for (size_t i = 3; i < 5; i++)
        cr_assert_eq(lane_settle(slot_of(&node[i]), load_relaxed(slot_of(&node[i]))), -ESHUTDOWN);
    cr_assert(lane_sweep_all(lane, true, take, &lanes));
    check_tally(3, 0);
}

Test(lane, closed_when_full)
{
    forbid_memory();
    submit_range(0, LANE_SLOTS);
    lane_close(lane);
    cr_assert_eq(submit_closed(LANE_SLOTS), -ESHUTDOWN);
    cr_assert_not(lane_has_mail(lane));
    cr_assert_eq(sweep_all(true), LANE_SLOTS);
    check_tally(LANE_SLOTS, 0);
}

/* C20: who has won the word has yet to empty the slot; until then it counts, and stop waits. */
Test(lane, left_to_its_canceller)
{
    uint64_t held;

    submit_range(0, 3);
    held = load_relaxed(slot_of(&node[1]));
    cancel_word(1);
    cr_assert_eq(sweep(), 2);
    cr_assert_eq(load_relaxed(slot_of(&node[1])), held);
    cr_assert_not(holds_pending(lane));
    cr_assert_eq(sweep_all(false), 0);
    check_tally(3, 0);
    cr_assert(lane_withdraw(&node[1]));
    cr_assert_eq(sweep_all(true), 0);
    check_tally(3, 1);
}

/* C20: or he found it in the worker's hand, and his notice has come. */
Test(lane, left_to_its_notice)
{
    submit(0);
    cancel_word(0);
    cr_assert_eq(sweep(), 0);
    cr_assert_not(lane_withdraw_met(&node[0]), "it has not been met");
    cr_assert(lane_take_back(&node[0]));
    cr_assert_not(lane_withdraw(&node[0]));
    cr_assert_eq(sweep_all(true), 0);
    check_tally(1, 0);
}

/* Stop does not trust the flags. */
Test(lane, sweep_all_looks_at_every_slot)
{
    submit_range(0, 300);
    sweep();
    submit_range(300, 400);
    memset((void *)lane->first->fresh, 0, sizeof lane->first->fresh);
    cr_assert_eq(sweep(), 0);
    cr_assert_eq(sweep_all(true), 100);
}

Test(lane, a_producer_on_its_way_to_the_spill)
{
    store_relaxed(&lane->spilling, 1);
    lane_close(lane);
    sweep_all(false);
    store_relaxed(&lane->spilling, 0);
    sweep_all(true);
}
