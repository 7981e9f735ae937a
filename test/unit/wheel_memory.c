/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=aligned_alloc */
/*
 * A wheel without memory for chunks keeps timeouts in its pen, and its agenda in lists: slower, but
 * nothing is early (G1) or lost (G2), and the order is the same (G15).
 */
#include <errno.h>

#include "wheel_walk.h"

#define TICK HWT_MSEC(1)

static bool memory_is_short;
static unsigned refusals;

void *__real_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    refusals += memory_is_short;
    return memory_is_short ? NULL : __real_malloc(size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    refusals += memory_is_short;
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

static void have_memory(void)
{
    memory_is_short = false;
    refusals = 0;
}

static void start(void)
{
    test_arm();
    have_memory();
}

TestSuite(wheel_memory, .init = start, .fini = have_memory);

/* ---- random walks ---- */

static void always_short(struct walk *w)
{
    w->oracle.crowded = true; /* by what the pen holds */
    memory_is_short = true;
}

/* What the store had in hand is given up, so that it has to ask again. */
static void forget_free_chunks(struct wheel *wheel)
{
    wheel->store.large = wheel->store.small = NULL;
    wheel->store.large_count = wheel->store.small_count = wheel->store.fresh = 0;
    wheel->store.opening = NULL;
}

static void sometimes_short(struct walk *w)
{
    w->oracle.crowded = true;
    if (pick(w, 50) == 0) {
        memory_is_short = !memory_is_short;
        forget_free_chunks(w->oracle.wheel);
    }
}

static void short_walks(hwt_wheel_kind kind, uint32_t slots, void (*before_step)(struct walk *w))
{
    struct walk w = {.tick_ns = TICK, .slots = slots, .before_step = before_step};
    size_t refused = 0;

    w.random = test_seed("wheel_memory");
    for (size_t i = 0; i < test_epoch_count; i++) {
        have_memory();
        random_walk(&w, kind, test_epochs[i], 2500);
        refused += refusals;
    }
    cr_assert_gt(refused, 0, "the pen was never needed");
}

WHEEL_TEST(wheel_memory, always_short_2_slots)
{
    short_walks(wheel, 2, always_short);
}

WHEEL_TEST(wheel_memory, always_short_16_slots)
{
    short_walks(wheel, 16, always_short);
}

WHEEL_TEST(wheel_memory, sometimes_short_2_slots)
{
    short_walks(wheel, 2, sometimes_short);
}

WHEEL_TEST(wheel_memory, sometimes_short_16_slots)
{
    short_walks(wheel, 16, sometimes_short);
}

/* ---- one thing at a time ---- */

#define CROWD 300

static void crowd_one_tick(struct oracle *o, hwt_wheel_kind kind, uint64_t deadline, unsigned fit)
{
    oracle_open(o, kind, TICK, 64, 0, CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        memory_is_short = i >= fit;
        if (memory_is_short)
            forget_free_chunks(o->wheel);
        oracle_insert(o, deadline);
    }
    cr_assert_eq(o->node[CROWD - 1].place, PLACE_LISTED);
    oracle_check_exact(o);
    oracle_check_bounds(o);
}

WHEEL_TEST(wheel_memory, a_crowd_in_one_tick_expires)
{
    struct oracle o;

    crowd_one_tick(&o, wheel, 5 * TICK, 0);
    cr_assert_eq(oracle_advance(&o, 5 * TICK - 1, true), 0);
    cr_assert_eq(oracle_advance(&o, 5 * TICK, false), CROWD);
    oracle_drain(&o);
    oracle_close(&o);
}

WHEEL_TEST(wheel_memory, the_part_of_a_tick_that_is_due)
{
    struct oracle o;
    size_t penned = 0;

    crowd_one_tick(&o, wheel, 5 * TICK - 10, 100);
    cr_assert_eq(oracle_advance(&o, 5 * TICK - 11, true), 0);
    for (unsigned i = 0; i < CROWD; i++)
        penned += o.node[i].place == PLACE_LISTED;
    cr_assert(penned > 0 && penned < CROWD);
    cr_assert_eq(oracle_advance(&o, 5 * TICK - 10, false), 0, "the slot is not sparse");
    cr_assert_eq(oracle_advance(&o, 5 * TICK - 10, true), CROWD, "the pen keeps the order (G15)");
    oracle_close(&o);
}

/* Once there is memory again it does not stay: neither walked for each tick, nor searched. */
WHEEL_TEST(wheel_memory, the_pen_is_left)
{
    struct oracle o;
    unsigned penned = 0;

    oracle_open(&o, wheel, TICK, 64, 0, CROWD);
    memory_is_short = true;
    for (unsigned i = 0; i < CROWD; i++)
        oracle_insert(&o, (5 + i % 3 * 100) * TICK);
    cr_assert_eq(oracle_advance(&o, TICK, false), 0);
    for (unsigned i = 0; i < CROWD; i++)
        penned += o.node[i].place == PLACE_LISTED;
    cr_assert_gt(penned, CROWD / 2);
    memory_is_short = false;
    cr_assert_eq(oracle_advance(&o, 2 * TICK, false), 0);
    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_neq(o.node[i].place, PLACE_LISTED);
    oracle_check_exact(&o);
    oracle_check_bounds(&o);
    oracle_check_count(&o);
    cr_assert_eq(oracle_advance(&o, 4 * TICK, false), 0);
    cr_assert_eq(oracle_advance(&o, 5 * TICK, false), CROWD / 3);
    oracle_drain(&o);
    oracle_close(&o);
}

/* With handles to all; there is no memory yet. */
static void fill_pen(struct oracle *o, hwt_wheel_kind wheel)
{
    oracle_open(o, wheel, TICK, 64, 0, CROWD);
    o->handles = true;
    memory_is_short = true;
    for (unsigned i = 0; i < CROWD; i++)
        oracle_insert(o, (5 + i % 3 * 100) * TICK);
}

/* Who is to be taken out of the pen is not looked for there, once all can leave. */
WHEEL_TEST(wheel_memory, the_pen_is_left_by_a_removal)
{
    struct oracle o;

    fill_pen(&o, wheel);
    memory_is_short = false;
    oracle_remove_over(&o, o.sorted[CROWD / 2]);
    cr_assert_eq(o.noticed, 0);
    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_neq(o.node[i].place, PLACE_LISTED);
    oracle_check_exact(&o);
    oracle_check_count(&o);
    cr_assert_eq(oracle_advance(&o, 1000 * TICK, false), CROWD - 1);
    oracle_close(&o);
}

/* G4: nor is the system asked anew for each that is taken out: to ask in vain takes long. */
WHEEL_TEST(wheel_memory, is_asked_for_seldom_by_removals)
{
    struct oracle o;

    fill_pen(&o, wheel);
    refusals = 0;
    while (o.count > 0)
        oracle_remove_over(&o, o.sorted[o.count / 2]);
    memory_is_short = false;
    cr_assert_leq(refusals, 10 + CROWD / 1000);
    oracle_close(&o);
}

/* Filed with memory, coming down without. */
WHEEL_TEST(wheel_memory, runs_short_between_filing_and_expiry)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 4, 0, CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        oracle_insert(&o, 100 * TICK + i % 3 * TICK);
    cr_assert_eq(refusals, 0);
    memory_is_short = true;
    for (uint64_t now = 90; now < 102; now++) {
        oracle_advance(&o, now * TICK, false);
        oracle_check_count(&o);
        oracle_check_bounds(&o);
    }
    cr_assert_eq(oracle_advance(&o, 102 * TICK, false), CROWD / 3);
    cr_assert_eq(o.expired, CROWD);
    oracle_close(&o);
}

static void insert_many(struct oracle *o, unsigned count, uint64_t deadline)
{
    while (count-- > 0)
        oracle_insert(o, deadline);
}

/* The bound of one that was removed makes the hashed kind file the others anew, before its time. */
WHEEL_TEST(wheel_memory, due_on_its_way_to_the_pen)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 4, 0, CROWD);
    insert_many(&o, 1, 5 * TICK);
    insert_many(&o, BUCKET_INLINE, 13 * TICK);
    insert_many(&o, 40, 9 * TICK);
    insert_many(&o, 10, 13 * TICK);
    oracle_remove(&o, o.sorted[0]);
    memory_is_short = true;
    forget_free_chunks(o.wheel);
    cr_assert_eq(oracle_advance(&o, 9 * TICK, false), 40);
    oracle_drain(&o);
    oracle_close(&o);
}

WHEEL_TEST(wheel_memory, removal_from_the_pen)
{
    struct oracle o;

    crowd_one_tick(&o, wheel, 5 * TICK, 0);
    for (unsigned i = 0; i < CROWD; i += 2)
        oracle_remove(&o, &o.node[i]);
    oracle_check_exact(&o);
    oracle_drain(&o);
    oracle_close(&o);
}

/* More than the agenda sorts at a time lie in its lists: there too they are found, and in order. */
WHEEL_TEST(wheel_memory, a_tick_larger_than_the_front)
{
    struct oracle o;
    uint64_t random = test_seed("wheel_memory");

    oracle_open(&o, wheel, TICK, 64, 0, 4000);
    o.handles = true;
    forget_free_chunks(o.wheel);
    memory_is_short = true;
    while (o.spares)
        oracle_insert(&o, 4 * TICK + 1 + test_random_below(&random, TICK));
    oracle_advance(&o, 4 * TICK + TICK / 8, true);
    while (o.count > 500) {
        hwt_timeout *timeout = o.sorted[test_random_below(&random, o.count)];
        switch (test_random_below(&random, 4)) {
        case 0: oracle_remove(&o, timeout); break;
        case 1: oracle_remove_over(&o, timeout); break;
        case 2: oracle_move_later(&o, timeout, oracle_deadline(timeout) + 100); break;
        default:
            oracle_move_earlier(&o, timeout, oracle_deadline(timeout) - 100);
            oracle_take_nudge(&o);
            break;
        }
        oracle_check_count(&o);
        if (o.count % 100 == 0)
            oracle_advance(&o, o.now + 1000, true);
    }
    oracle_advance(&o, 6 * TICK, false);
    oracle_drain(&o);
    oracle_close(&o);
}

/* Chunks reserved beforehand need no memory afterwards, one tick or many, far or near. */
WHEEL_TEST(wheel_memory, reserved_chunks_keep_the_pen_empty)
{
    static const uint64_t apart[] = {0, 1, TICK / 100, TICK / 5, TICK, 1000 * TICK};
    struct oracle o;

    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        memory_is_short = false;
        oracle_open(&o, wheel, TICK, 64, 0, CROWD);
        cr_assert_eq(wheel_reserve(o.wheel, CROWD), 0);
        memory_is_short = true;
        for (unsigned n = 0; n < CROWD; n++)
            oracle_insert(&o, 5 * TICK + n * apart[i]);
        cr_assert(pen_is_empty(&o.wheel->pen));
        while (o.count > 0)
            oracle_advance(&o, oracle_earliest(&o), true);
        cr_assert_eq(refusals, 0);
        oracle_close(&o);
    }
}

/* G5: with the pen in use too, the next call is the earliest deadline and no earlier. */
WHEEL_TEST(wheel_memory, next_call_with_a_pen)
{
    struct oracle o;

    crowd_one_tick(&o, wheel, 5 * TICK, 0);
    cr_assert_eq(wheel_earliest_exact(o.wheel), 5 * TICK);
    cr_assert_leq(wheel_next_call(o.wheel), 5 * TICK);
    cr_assert_gt(wheel_next_call(o.wheel), 0);
    oracle_close(&o);
}

WHEEL_TEST(wheel_memory, creation_fails_cleanly)
{
    struct wheel *made = NULL;

    memory_is_short = true;
    cr_assert_eq(wheel_create(&made, wheel, TICK, 512, 0), -ENOMEM);
    cr_assert_null(made);
    wheel_destroy(NULL);
    memory_is_short = false;
    cr_assert_eq(wheel_create(&made, (hwt_wheel_kind)2, TICK, 512, 0), -EINVAL);
    cr_assert_null(made);
}
