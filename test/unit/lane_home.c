/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=clock_gettime,--wrap=platform_cpu_slow,--wrap=mmap */
/*
 * A load that goes from CPU to CPU takes its slots along (C26): lanes do not become larger while
 * there is one with room that nobody comes to. On a machine with more CPUs than this one has; each
 * thread is on the one that it says.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "submit.h"
#include "support.h"
#include "timer.h"

enum {
    CPUS = 64,
    SEGMENTS = 4, /* that a load takes, or more */
    LOAD = SEGMENTS * LANE_SLOTS,
};

#define STEP_NS 2000 /* from one submission to the next: a segment takes longer than DESERTED_NS */

static struct lanes lanes;
static hwt_timeout *node;
static _Thread_local unsigned cpu;
static uint64_t coarse;
static bool no_memory;

__typeof__(platform_cpu_slow) __wrap_platform_cpu_slow;
__typeof__(clock_gettime) __real_clock_gettime;
__typeof__(clock_gettime) __wrap_clock_gettime;
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

unsigned __wrap_platform_cpu_slow(void)
{
    return cpu;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
    if (id != CLOCK_MONOTONIC_COARSE)
        return __real_clock_gettime(id, time);
    *time = (struct timespec){(time_t)(coarse / HWT_SEC(1)), (long)(coarse % HWT_SEC(1))};
    return 0;
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return no_memory ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

static void open_lanes(void)
{
    test_arm();
#ifdef PLATFORM_RSEQ
    platform_rseq_cpu = 0; /* no CPU without a call */
#endif
    coarse = HWT_SEC(1000);
    cr_assert_eq(lanes_create(&lanes, CPUS, 0), 0);
    node = aligned_alloc(CACHE_LINE, 2 * LOAD * sizeof *node);
    cr_assert_not_null(node);
    memset((void *)node, 0, 2 * LOAD * sizeof *node);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
}

TestSuite(lane_home, .init = open_lanes, .fini = close_lanes);

static uint64_t deadline_of(size_t i)
{
    return HWT_SEC(3600) + i;
}

static void submit(size_t i)
{
    coarse += STEP_NS;
    store_relaxed(&node[i].word, word_make(deadline_of(i), WORD_PENDING));
    cr_assert_geq(lane_submit(&lanes, &node[i], deadline_of(i)), 0);
    cr_assert_not_null(lane_slot_of_where(load_relaxed(&node[i].where)));
}

static void withdraw(size_t i)
{
    cr_assert(lane_withdraw(&node[i]), "%zu", i);
}

static void submit_range(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        submit(i);
}

static void withdraw_range(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        withdraw(i);
}

/* As much as that at once, and nothing is left. */
static void have_a_load(unsigned on)
{
    cpu = on;
    submit_range(0, LOAD);
    withdraw_range(0, LOAD);
}

static size_t segments_of(const struct lane *lane)
{
    size_t count = 1;

    for (const struct segment *s = segment_next(lane->first); s != lane->first; s = segment_next(s))
        count++;
    return count;
}

/* Beyond the two that each lane begins with. */
static size_t more_segments(void)
{
    const struct lane *lane;
    size_t count = 0;

    for (unsigned i = 0; (lane = lanes_next_made(&lanes, &i)) != NULL;)
        count += lane == lanes.common ? 0 : segments_of(lane) - 2;
    return count;
}

static const struct lane *lane_of(size_t i)
{
    return segment_of(lane_slot_of_where(load_relaxed(&node[i].where)))->lane;
}

/* Each is that of one CPU. */
static void check_homes(void)
{
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&lanes, &i)) != NULL;) {
        if (lane != lanes.common)
            cr_assert_eq(lanes_of_cpu(&lanes, lane->cpu), lane);
    }
}

static void check_a_load_takes_its_slots_along(void)
{
    size_t most;

    have_a_load(0);
    most = more_segments();
    cr_assert_geq(most, SEGMENTS - 1);
    for (unsigned i = 1; i < CPUS; i++) {
        have_a_load(i);
        cr_assert_leq(more_segments(), most + 2 + i / 2, "G6: after %u CPUs", i + 1);
        check_homes();
    }
}

Test(lane_home, a_load_takes_its_slots_along)
{
    check_a_load_takes_its_slots_along();
}

/* What is far lies in segments of its own. */
Test(lane_home, a_load_takes_its_far_slots_along)
{
    lanes_set_far(&lanes, HWT_SEC(60));
    check_a_load_takes_its_slots_along();
}

/* A few of each load are left behind, so that no page of its slots could go back. */
Test(lane_home, a_load_that_leaves_some_behind)
{
    size_t most;

    have_a_load(0);
    most = more_segments();
    for (unsigned i = 1; i < CPUS; i++) {
        cpu = i;
        submit_range(0, LOAD);
        for (size_t j = 0; j < LOAD; j++) {
            if (j % 500 != 0)
                withdraw(j);
        }
        cr_assert_leq(more_segments(), most + 2 + i / 2, "G6: after %u CPUs", i + 1);
    }
}

/* So many come to a CPU in turn, and withdraw what they submit, while a load is on another one. */
static const struct lane *load_beside(unsigned comes, uint64_t deadline)
{
    const struct lane *first, *second;
    size_t every = DESERTED_NS / STEP_NS / 2;

    have_a_load(1);
    first = lanes_here(&lanes);
    cpu = 2;
    second = lanes_here(&lanes);
    for (size_t i = 0; i < LOAD; i++) {
        cpu = 2;
        submit(i);
        if (lane_of(i) != second)
            return lane_of(i);
        if (i % every >= comes)
            continue;
        cpu = 1;
        store_relaxed(&node[LOAD].word, word_make(deadline, WORD_PENDING));
        cr_assert_geq(lane_submit(&lanes, &node[LOAD], deadline), 0);
        cr_assert_eq(lane_of(LOAD), first);
        withdraw(LOAD);
    }
    cr_assert_geq(segments_of(second), SEGMENTS, "it has grown");
    return second;
}

static bool is_lane_of(const struct lane *lane, unsigned number)
{
    return lane == lanes_at(&lanes, number);
}

/* What they come to is theirs, be it for what is near or for what is far. */
Test(lane_home, not_one_that_many_come_to)
{
    cr_assert(is_lane_of(load_beside(DESERTED_SLOTS, deadline_of(0)), 2));
}

Test(lane_home, not_one_that_many_come_to_with_what_is_near)
{
    lanes_set_far(&lanes, HWT_SEC(60));
    cr_assert(is_lane_of(load_beside(DESERTED_SLOTS, HWT_SEC(1)), 2));
}

Test(lane_home, not_one_that_many_come_to_with_what_is_far)
{
    lanes_set_far(&lanes, deadline_of(2 * LOAD));
    cr_assert(is_lane_of(load_beside(DESERTED_SLOTS, deadline_of(2 * LOAD)), 2));
}

/* G6: a few timeouts there are on every CPU. */
Test(lane_home, one_that_few_come_to)
{
    cr_assert(is_lane_of(load_beside(1, deadline_of(0)), 1));
}

Test(lane_home, not_one_that_is_crowded)
{
    const struct lane *first, *second;

    cpu = 1;
    submit_range(0, LOAD);
    first = lanes_here(&lanes);
    cpu = 2;
    submit_range(LOAD, 2 * LOAD);
    second = lanes_here(&lanes);
    for (size_t i = 0; i < LOAD; i++) {
        cr_assert_eq(lane_of(i), first);
        cr_assert_eq(lane_of(LOAD + i), second);
    }
    cr_assert_eq(lanes_of_cpu(&lanes, 1), first);
    cr_assert_eq(lanes_of_cpu(&lanes, 2), second);
}

/* One that is as large as at the beginning has nothing that another one could need. */
Test(lane_home, not_one_that_has_not_grown)
{
    const struct lane *second;

    cpu = 1;
    submit(LOAD);
    withdraw(LOAD);
    cpu = 2;
    second = lanes_here(&lanes);
    submit_range(0, LOAD);
    cr_assert_eq(lanes_of_cpu(&lanes, 2), second);
}

/* All but the segment where it would go on. */
static void retire_all(const struct lane *lane, uint32_t released)
{
    struct segment *here = segment_of(load_acquire(&lane->tail[0]));

    for (struct segment *s = segment_next(here); s != here; s = segment_next(s)) {
        store_relaxed(&s->retired, LANE_GROUPS + 1);
        store_relaxed(&s->released, released);
    }
}

/* Pages that have gone back would come again: that is no better than one's own. */
Test(lane_home, not_one_that_has_given_all_back)
{
    const struct lane *first, *second;

    have_a_load(1);
    first = lanes_here(&lanes);
    retire_all(first, (1u << SEGMENT_PARTS) - 1);
    cpu = 2;
    second = lanes_here(&lanes);
    submit_range(0, LOAD);
    cr_assert_eq(lanes_of_cpu(&lanes, 1), first);
    cr_assert_eq(lanes_of_cpu(&lanes, 2), second);
}

/* G6: pages that nobody has given back are used again, and that is told. */
Test(lane_home, one_that_has_retired_and_has_its_pages)
{
    size_t i = 0, most;

    have_a_load(1);
    most = more_segments();
    retire_all(lanes_here(&lanes), 0);
    coarse += DESERTED_NS;
    cpu = 2;
    do {
        submit(i);
    } while (is_lane_of(lane_of(i++), 2));
    cr_assert_eq(segment_of(lane_slot_of_where(load_relaxed(&node[i - 1].where)))->retired, 0);
    cr_assert_leq(more_segments(), most + 1);
}

/* G2, G4: what was begun on one lane, and lies in another one, is told there, and found. */
Test(lane_home, what_lies_there_is_told_there)
{
    struct lane *first, *second;
    size_t i = 0;

    have_a_load(1);
    first = lanes_here(&lanes);
    lane_lower(&first->earliest, deadline_of(0));
    exchange_seq(&first->earliest, UINT64_MAX); /* the worker has been there */
    for (struct segment *s = segment_next(first->first); s != first->first; s = segment_next(s))
        exchange_seq(&s->earliest, UINT64_MAX);
    cpu = 2;
    second = lanes_here(&lanes);
    do {
        submit(i);
    } while (lane_of(i++) == second);
    cr_assert_eq(lane_of(--i), first);
    cr_assert_eq(lanes_here(&lanes), first);
    cr_assert_eq(lanes_of_cpu(&lanes, 1), second);
    cr_assert_eq(load_seq(&first->earliest), deadline_of(i));
    cr_assert_lt(load_seq(&second->earliest), deadline_of(i));
    cr_assert(lane_holds(&node[i]));
    cr_assert_eq(lane_first_pending(first), lane_slot_of_where(load_relaxed(&node[i].where)));
    withdraw_range(0, i + 1);
    cr_assert_null(lane_first_pending(first));
    cr_assert_null(lane_first_pending(second));
}

/* One that the worker had met comes to the other lane as well. */
Test(lane_home, what_was_met_is_told_there)
{
    struct lane *first, *second;
    size_t i = 0;

    have_a_load(1);
    first = lanes_here(&lanes);
    cpu = 2;
    second = lanes_here(&lanes);
    do {
        coarse += STEP_NS;
        store_relaxed(&first->earliest, UINT64_MAX);
        store_relaxed(&node[i].word, word_make(deadline_of(i), WORD_PENDING));
        cr_assert_eq(lane_submit_met(&lanes, &node[i], deadline_of(i)), deadline_of(i));
    } while (lane_of(i++) == second);
    cr_assert_eq(lane_of(i - 1), first);
    cr_assert_eq(load_seq(&first->earliest), deadline_of(i - 1));
}

/* G7: nobody waits for who is about to move; nor does one who has come elsewhere meanwhile. */
Test(lane_home, nobody_waits_for_that)
{
    struct lane *first, *second;

    have_a_load(1);
    first = lanes_here(&lanes);
    store_relaxed(&lanes.moving, 1);
    have_a_load(2);
    second = lanes_here(&lanes);
    cr_assert_neq(second, first);
    cr_assert_geq(segments_of(second), SEGMENTS);
    store_relaxed(&lanes.moving, 0);
    cpu = 3;
    submit_range(0, LANE_SLOTS / 2);
    cr_assert_null(lane_move_in(&lanes, lanes_here(&lanes), false), "seen");
    coarse += DESERTED_NS;
    cr_assert_null(lane_move_in(&lanes, first, false), "not of this CPU");
    cr_assert_null(lane_move_in(&lanes, second, false), "not of this CPU");
    cr_assert_not_null(lane_move_in(&lanes, lanes_here(&lanes), false));
    check_homes();
}

/* What is refused to a lane is there in another one. */
Test(lane_home, without_memory)
{
    have_a_load(1);
    no_memory = true;
    coarse += DESERTED_NS;
    cpu = 2;
    for (size_t i = 0; i < LOAD; i++) {
        coarse += STEP_NS;
        store_relaxed(&node[i].word, word_make(deadline_of(i), WORD_PENDING));
        if (lane_submit(&lanes, &node[i], deadline_of(i)) < 0) {
            no_memory = false;
            cr_assert_fail("%zu", i);
        }
    }
    no_memory = false;
    cr_assert_neq(lanes_of_cpu(&lanes, 2)->index, 2);
}

/* What is submitted at once (submit_at_once) goes there, too. */
WHEEL_TEST(lane_home, a_timer_goes_by_it)
{
    hwt_timeout *timeout[2];
    struct lane *lane[2];
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (cpu = 0; cpu < 2; cpu++)
        lane[cpu] = lanes_here(&timer->lanes);
    cr_assert_neq(lane[0], lane[1]);
    store_release(&timer->lanes.home[0], lane[1]);
    store_release(&timer->lanes.home[1], lane[0]);
    for (unsigned round = 0; round < 100; round++) { /* the first ones borrow their blocks */
        for (cpu = 0; cpu < 2; cpu++) {
            cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(9), &timeout[cpu]), 0);
            cr_assert_eq(segment_of(lane_slot_of_where(timeout[cpu]->where))->lane, lane[!cpu]);
        }
        for (cpu = 0; cpu < 2; cpu++) {
            cr_assert(hwt_timeout_cancel(timeout[cpu]));
            hwt_timeout_unref(timeout[cpu]);
        }
    }
    cpu = 0;
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
