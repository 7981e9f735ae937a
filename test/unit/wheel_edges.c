/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The places where wheels go wrong: the first and last tick of slots, windows and laps at every
 * level, deadlines beyond all levels, what is filed too late, idle stretches.
 */
#include "wheel_oracle.h"

#define TICK     HWT_MSEC(1)
#define YEAR     HWT_SEC(86400 * 365)
#define CAPACITY 600

TestSuite(wheel_edges, .init = test_arm);

/* ---- boundaries ---- */

/*
 * Around k slots of a level from `base`, to the nanosecond and to the tick; also where the levels
 * are that lie above two that are four times as wide.
 */
static void insert_around(struct oracle *o, uint64_t base, uint64_t slot_ns, uint32_t slots)
{
    const uint64_t ahead[] = {1, 2, 3, 4, 8, 16, 32, slots - 1, slots, slots + 1};

    for (size_t i = 0; i < COUNT_OF(ahead); i++) {
        uint64_t at = base + ahead[i] * slot_ns;
        const uint64_t deadlines[] = {at - TICK, at - 1, at, at + 1, at + TICK};
        for (size_t j = 0; j < COUNT_OF(deadlines); j++) {
            if (deadlines[j] >= o->now && o->spares > 1)
                oracle_insert(o, deadlines[j]);
        }
    }
}

static void insert_boundaries(struct oracle *o, uint32_t slots)
{
    uint64_t slot_ns = TICK, base;

    for (unsigned level = 0; level < 6 && slot_ns <= YEAR / slots; level++, slot_ns *= slots) {
        base = o->now - o->now % slot_ns;
        insert_around(o, base, slot_ns, slots);
    }
}

/* From deadline to deadline (or its tick): a nanosecond before it nothing, then all of it. */
static void expire_one_by_one(struct oracle *o, bool exact)
{
    while (o->count) {
        uint64_t next = oracle_earliest(o), last;
        cr_assert_eq(wheel_earliest_exact(o->wheel), next);
        cr_assert_leq(wheel_next_call(o->wheel), next);
        if (next > o->now)
            cr_assert_eq(oracle_advance(o, next - 1, exact), 0, "G1");
        next = last = exact ? next : wheel_tick_time(o->wheel, wheel_tick_of(o->wheel, next));
        last = oracle_rank(o, last);
        cr_assert_eq(oracle_advance(o, next, exact), last, "G4");
    }
}

static void boundaries_from(hwt_wheel_kind kind, uint32_t slots, uint64_t start, bool exact)
{
    struct oracle o;

    oracle_open(&o, kind, TICK, slots, start, CAPACITY);
    insert_boundaries(&o, slots);
    cr_assert_gt(o.count, 20);
    oracle_check_count(&o);
    expire_one_by_one(&o, exact);
    oracle_check_count(&o);
    oracle_close(&o);
}

/* Starting on, just before and just after the edges of a tick, a window and a lap. */
static void boundaries(hwt_wheel_kind kind, uint32_t slots)
{
    uint64_t window = slots * TICK, lap = slots * window, wide = 4 * window, above = 16 * lap;

    for (size_t i = 0; i < test_epoch_count; i++) {
        uint64_t epoch = test_epochs[i] - test_epochs[i] % above;
        const uint64_t starts[] = {0,
                                   1,
                                   TICK - 1,
                                   TICK,
                                   window - 1,
                                   window - TICK,
                                   window,
                                   lap - TICK,
                                   lap - 1,
                                   lap + window - TICK,
                                   wide - TICK,
                                   wide - 1,
                                   above - TICK,
                                   above - 1,
                                   above + wide - TICK};
        for (size_t j = 0; j < COUNT_OF(starts); j++)
            boundaries_from(kind, slots, epoch + starts[j], j % 2);
    }
}

WHEEL_TEST(wheel_edges, boundaries_2_slots)
{
    boundaries(wheel, 2);
}

WHEEL_TEST(wheel_edges, boundaries_4_slots)
{
    boundaries(wheel, 4);
}

WHEEL_TEST(wheel_edges, boundaries_64_slots)
{
    boundaries(wheel, 64);
}

WHEEL_TEST(wheel_edges, boundaries_512_slots)
{
    boundaries(wheel, 512);
}

/* The largest wheel there may be: once, because its validator looks at millions of buckets. */
WHEEL_TEST(wheel_edges, boundaries_1048576_slots)
{
    boundaries_from(wheel, 1u << 20, test_epochs[1] + 1, true);
}

/* One per lap in the same slot of the hashed kind: a visit must leave the other rounds alone. */
WHEEL_TEST(wheel_edges, rounds_in_one_slot)
{
    uint64_t lap = 64 * TICK;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 12 * lap, 100);
    for (unsigned round = 100; round > 0; round--)
        oracle_insert(&o, (12 + round) * lap);
    for (unsigned round = 1; round <= 100; round++) {
        cr_assert_eq(oracle_advance(&o, (12 + round) * lap - TICK, false), 0);
        cr_assert_eq(oracle_advance(&o, (12 + round) * lap, false), 1);
        oracle_check_count(&o);
    }
    oracle_close(&o);
}

/* G4: nor do they crowd the tick of one that is due in the middle of it. */
WHEEL_TEST(wheel_edges, other_rounds_do_not_crowd_a_tick)
{
    const uint64_t lap = 8 * TICK, begin = 13 * lap, due = begin - TICK / 2;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 8, 12 * lap, 1001);
    for (unsigned round = 1; round <= 1000; round++)
        oracle_insert(&o, begin + round * lap);
    oracle_insert(&o, due);
    cr_assert_eq(oracle_advance(&o, due - 1, false), 0);
    cr_assert(wheel_is_sparse(o.wheel, due));
    cr_assert_eq(oracle_advance(&o, due, false), 1);
    oracle_drain(&o);
    oracle_close(&o);
}

/* All ticks in one go come out tick by tick, in order (checked by the oracle, G4). */
WHEEL_TEST(wheel_edges, late_by_many_laps)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 8, test_epochs[1], 600);
    for (unsigned i = 600; i > 0; i--)
        oracle_insert(&o, test_epochs[1] + i * (TICK + 7));
    cr_assert_eq(oracle_advance(&o, test_epochs[1] + 601 * (TICK + 7), false), 600);
    oracle_close(&o);
}

/* ---- far away ---- */

static void far_away(hwt_wheel_kind kind, uint32_t slots, uint64_t start)
{
    struct oracle o;

    oracle_open(&o, kind, TICK, slots, start, 10);
    oracle_insert(&o, DEADLINE_NEVER);
    oracle_insert(&o, DEADLINE_NEVER - 1);
    oracle_insert(&o, DEADLINE_NEVER - TICK);
    oracle_insert(&o, start + 40 * YEAR);
    oracle_check_exact(&o);
    oracle_check_bounds(&o);
    cr_assert_eq(oracle_advance(&o, start + 40 * YEAR - 1, true), 0, "G1");
    cr_assert_eq(oracle_advance(&o, start + 40 * YEAR, true), 1);
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, DEADLINE_NEVER - TICK - 1, true), 0);
    cr_assert_eq(oracle_advance(&o, DEADLINE_NEVER - 1, true), 2);
    oracle_check_exact(&o);
    oracle_drain(&o);
    oracle_close(&o);
}

WHEEL_TEST(wheel_edges, far_deadlines)
{
    static const uint32_t slots[] = {1, 2, 4, 64, 512};

    for (size_t i = 0; i < COUNT_OF(slots); i++)
        for (size_t j = 0; j < test_epoch_count; j++)
            far_away(wheel, slots[i], test_epochs[j]);
}

/* The whole clock in a few jumps, and a near timeout filed after each. */
WHEEL_TEST(wheel_edges, near_deadlines_after_long_idleness)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 512, 0, 10);
    for (uint64_t now = 1; now < YEAR * 70; now = now * 3 + 1) {
        cr_assert_eq(oracle_advance(&o, now, false), 0);
        oracle_insert(&o, now + TICK / 2);
        oracle_check_exact(&o);
        cr_assert_eq(oracle_advance(&o, now + 2 * TICK, false), 1);
        oracle_check_exact(&o);
    }
    oracle_close(&o);
}

/* ---- too late ---- */

WHEEL_TEST(wheel_edges, overdue_comes_first_in_order)
{
    uint64_t now = test_epochs[1];
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, now, 10);
    oracle_insert(&o, now + 1);
    oracle_insert(&o, now);
    oracle_insert(&o, now - 5 * TICK);
    oracle_insert(&o, 0);
    oracle_insert(&o, now - 5 * TICK);
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, now, true), 4);
    oracle_insert(&o, now - 1);
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, now, true), 1);
    cr_assert_eq(oracle_advance(&o, now + 1, true), 1);
    cr_assert_eq(wheel_check(o.wheel), 0);
    oracle_close(&o);
}

WHEEL_TEST(wheel_edges, overdue_can_be_removed)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, test_epochs[1], 200);
    o.handles = true;
    while (o.spares)
        oracle_insert(&o, o.spares);
    while (o.count > 100)
        oracle_remove(&o, o.sorted[o.count / 2]);
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, o.now, true), 100);
    oracle_close(&o);
}

/* While the others of its tick run it may still be removed: its notice has arrived. */
static void remove_while_running(hwt_wheel_kind kind,
                                 void (*remove)(struct oracle *, hwt_timeout *))
{
    hwt_timeout *first;
    struct oracle o;

    oracle_open(&o, kind, TICK, 64, 0, 200);
    while (o.spares)
        oracle_insert(&o, TICK);
    o.now = TICK;
    first = wheel_take_due(o.wheel, TICK, false);
    first->place = PLACE_ADRIFT;
    oracle_forget(&o, first);
    for (unsigned i = 0; i < 200; i += 2) {
        if (o.node[i].place != PLACE_ADRIFT)
            remove(&o, &o.node[i]);
    }
    cr_assert_eq(o.count, 100);
    oracle_check_count(&o);
    cr_assert_eq(oracle_run_due(&o, false), 100);
    oracle_take_noticed(&o);
    cr_assert_eq(o.noticed, 0, "they would keep their memory (G6)");
    oracle_close(&o);
}

WHEEL_TEST(wheel_edges, due_ones_can_be_removed)
{
    remove_while_running(wheel, oracle_remove);
    remove_while_running(wheel, oracle_remove_over);
}

/* The next that is handed out runs. */
static void run_next(struct oracle *o, hwt_timeout *next)
{
    cr_assert_eq(wheel_take_due(o->wheel, o->now, true), next);
    cr_assert_leq(oracle_deadline(next), o->now, "G1");
    next->place = PLACE_ADRIFT;
    oracle_forget(o, next);
}

/* It is not due, or the worker takes it to be so, and it is filed anew. */
static void file_next(struct oracle *o, hwt_timeout *next)
{
    cr_assert_eq(wheel_take_due(o->wheel, o->now, true), next);
    next->place = PLACE_ADRIFT;
    wheel_insert(o->wheel, next, oracle_deadline(next));
}

static void end_pass(struct oracle *o)
{
    cr_assert_null(wheel_take_due(o->wheel, o->now, true));
    wheel_prepare(o->wheel);
    oracle_check_exact(o);
}

/*
 * Moved to soon after the limit of a pass while that is on, and once more, it is handed out in it,
 * or who does so again and again keeps it from running (G4). Moved once, or before, it keeps its
 * place (G15), and nothing is overtaken.
 */
static void kick(hwt_wheel_kind kind, uint64_t by, bool rounds)
{
    hwt_timeout *first, *last, *moved, *once, *kicked;
    struct oracle o;

    oracle_open(&o, kind, TICK, 64, 0, CAPACITY);
    o.handles = true;
    first = oracle_insert(&o, TICK / 2);
    moved = oracle_insert(&o, TICK / 2 + 1);
    once = oracle_insert(&o, TICK / 2 + 2);
    kicked = oracle_insert(&o, TICK / 2 + 3);
    last = oracle_insert(&o, TICK / 2 + 4);
    if (rounds) /* a hashed wheel has to look at each in the slot */
        oracle_insert(&o, TICK / 2 + 64 * TICK);
    o.now = TICK + 1000;
    oracle_move_later(&o, moved, o.now + 1);
    run_next(&o, first);
    oracle_move_later(&o, once, o.now + 1);
    oracle_move_later(&o, kicked, o.now + by);
    run_next(&o, last);
    oracle_move_later(&o, kicked, o.now + by + 1);
    if (by <= KICK_SPAN)
        file_next(&o, kicked);
    end_pass(&o);
    cr_assert_eq(oracle_advance(&o, o.now + 1, true), 2);
    cr_assert_eq(oracle_advance(&o, o.now + by, true), 1);
    oracle_drain(&o);
    oracle_close(&o);
}

WHEEL_TEST(wheel_edges, what_is_kicked_is_handed_out)
{
    for (unsigned rounds = 0; rounds < 2; rounds++) {
        kick(wheel, 2, rounds);
        kick(wheel, KICK_SPAN, rounds);
        kick(wheel, KICK_SPAN + 1, rounds);
        kick(wheel, 10 * KICK_SPAN, rounds);
    }
}

/* What an earlier pass has left, the same: it may have been moved before this one. */
WHEEL_TEST(wheel_edges, what_was_left_is_handed_out_if_it_is_moved_again)
{
    hwt_timeout *due[3], *kicked[2];
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, CAPACITY);
    o.handles = true;
    oracle_insert(&o, 5 * TICK + 100);
    due[0] = oracle_insert(&o, 5 * TICK + 1000);
    kicked[0] = oracle_insert(&o, 5 * TICK + 2000);
    due[1] = oracle_insert(&o, 5 * TICK + 3000);
    kicked[1] = oracle_insert(&o, 5 * TICK + 4000);
    due[2] = oracle_insert(&o, 5 * TICK + 4500);
    oracle_insert(&o, 5 * TICK + TICK / 2);
    cr_assert_eq(oracle_advance(&o, 5 * TICK + 500, true), 1);
    o.now = 5 * TICK + 5000;
    run_next(&o, due[0]);
    oracle_move_later(&o, kicked[0], o.now + 1); /* as if before the pass */
    run_next(&o, due[1]);
    oracle_move_later(&o, kicked[1], o.now + 2);
    run_next(&o, due[2]);
    oracle_move_later(&o, kicked[1], o.now + 3);
    file_next(&o, kicked[1]);
    end_pass(&o);
    cr_assert_eq(oracle_advance(&o, o.now + 1, true), 1);
    cr_assert_eq(oracle_advance(&o, o.now + 3, true), 1);
    oracle_drain(&o);
    oracle_close(&o);
}

/*
 * Each of what is put aside for the end of a pass can be removed, over, moved earlier, or put back
 * where the pass is broken off; and is among what comes next.
 */
WHEEL_TEST(wheel_edges, what_is_kicked_is_still_there)
{
    hwt_timeout *due[2], *kicked[4], *over;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, CAPACITY);
    o.handles = true;
    due[0] = oracle_insert(&o, TICK / 2);
    for (unsigned i = 0; i < 4; i++)
        kicked[i] = oracle_insert(&o, TICK / 2 + 1 + i);
    over = oracle_insert(&o, TICK / 2 + 9);
    due[1] = oracle_insert(&o, TICK / 2 + 10);
    o.now = TICK + 1000;
    run_next(&o, due[0]);
    for (unsigned i = 0; i < 4; i++)
        oracle_move_later(&o, kicked[i], o.now + 1);
    oracle_move_later(&o, over, o.now + 20);
    run_next(&o, due[1]);
    for (unsigned i = 0; i < 4; i++)
        oracle_move_later(&o, kicked[i], o.now + 10 - i);
    oracle_move_later(&o, over, o.now + 21);
    cr_assert_eq(wheel_earliest_exact(o.wheel), o.now + 7);
    file_next(&o, kicked[3]); /* which sees to all of them */
    oracle_check_count(&o);
    oracle_remove(&o, kicked[2]);
    oracle_remove_over(&o, over);
    cr_assert_eq(wheel_earliest_exact(o.wheel), o.now + 7, "filed anew");
    oracle_check_count(&o);
    file_next(&o, kicked[1]);
    wheel_break_off(o.wheel);
    oracle_take_noticed(&o);
    cr_assert_eq(o.noticed, 0);
    oracle_check_exact(&o);
    end_pass(&o);
    cr_assert_eq(oracle_advance(&o, o.now + 10, true), 3);
    oracle_drain(&o);
    oracle_close(&o);
}

/* Put aside, moved earlier, and put aside again in the same pass: it is there once. */
WHEEL_TEST(wheel_edges, what_is_put_aside_twice)
{
    hwt_timeout *due[4], *kicked;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, CAPACITY);
    o.handles = true;
    due[0] = oracle_insert(&o, TICK / 2);
    kicked = oracle_insert(&o, TICK / 2 + 1);
    for (unsigned i = 1; i < 4; i++)
        due[i] = oracle_insert(&o, TICK / 2 + 2 * i);
    o.now = TICK + 1000;
    run_next(&o, due[0]);
    oracle_move_later(&o, kicked, o.now + 1);
    run_next(&o, due[1]);
    oracle_check_count(&o);
    oracle_move_earlier(&o, kicked, TICK / 2 + 3);
    oracle_take_nudge(&o);
    oracle_move_later(&o, kicked, o.now + 2);
    run_next(&o, due[2]);
    oracle_check_count(&o);
    oracle_move_later(&o, kicked, o.now + 3);
    run_next(&o, due[3]);
    file_next(&o, kicked);
    end_pass(&o);
    cr_assert_eq(oracle_advance(&o, o.now + 3, true), 1);
    oracle_drain(&o);
    oracle_close(&o);
}

/*
 * More than the front has, all moved while they run: what is later is not sorted, nor lost, and
 * what is due at a later tick runs in the same pass.
 */
WHEEL_TEST(wheel_edges, a_crowd_moved_while_it_runs)
{
    for (uint64_t by = TICK / 2; by <= 8 * TICK; by *= 16) {
        hwt_timeout *last;
        struct oracle o;

        oracle_open(&o, wheel, TICK, 64, 0, 3 * AGENDA_FRONT);
        o.handles = true;
        last = oracle_insert(&o, 6 * TICK + 5);
        while (o.spares)
            oracle_insert(&o, 5 * TICK + 1 + o.spares % (TICK - 1));
        o.now = 7 * TICK + 10;
        run_next(&o, o.sorted[0]);
        for (size_t i = 0; i < 3 * AGENDA_FRONT; i++) {
            if (o.node[i].place != PLACE_ADRIFT && &o.node[i] != last)
                oracle_move_later(&o, &o.node[i], o.now + by + i);
        }
        if (by > KICK_SPAN) {
            run_next(&o, last);
            end_pass(&o);
        }
        cr_assert_eq(oracle_advance(&o, 20 * TICK, true), 3 * AGENDA_FRONT - 1 - (by > KICK_SPAN));
        oracle_close(&o);
    }
}

/* The same while none is due: what comes next is the first of those that were moved. */
WHEEL_TEST(wheel_edges, a_crowd_moved_between_passes)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, 3 * AGENDA_FRONT);
    o.handles = true;
    oracle_insert(&o, 5 * TICK + 100);
    while (o.spares)
        oracle_insert(&o, 5 * TICK + TICK / 2 + o.spares % (TICK / 4));
    cr_assert_eq(oracle_advance(&o, 5 * TICK + 200, true), 1);
    for (size_t i = 0; i < 3 * AGENDA_FRONT; i++) {
        if (o.node[i].place != PLACE_ADRIFT)
            oracle_move_later(&o, &o.node[i], 8 * TICK + i);
    }
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, 20 * TICK, true), 3 * AGENDA_FRONT - 1);
    oracle_close(&o);
}

/* Of a tick that is on what is due runs if few share its slot; more wait for the end (G4). */
WHEEL_TEST(wheel_edges, a_crowded_tick_waits_for_its_end)
{
    for (size_t count = 1; count <= ORACLE_SPARSE + 2; count++) {
        size_t early = count <= ORACLE_SPARSE ? count : 0;
        struct oracle o;

        oracle_open(&o, wheel, TICK, 64, 0, CAPACITY);
        for (size_t i = 0; i < count; i++)
            oracle_insert(&o, 5 * TICK + 1000 * (i + 1));
        cr_assert_eq(oracle_advance(&o, 5 * TICK, false), 0);
        cr_assert_eq(oracle_advance(&o, 5 * TICK + TICK / 2, false), early, "%zu", count);
        cr_assert_eq(oracle_advance(&o, 6 * TICK, false), count - early);
        oracle_close(&o);
    }
}

/* A producer may be held up between the word and its nudge: that is no reason to be late. */
WHEEL_TEST(wheel_edges, a_nudge_on_its_way_delays_nobody)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, 3);
    o.handles = true;
    oracle_insert(&o, 5 * TICK);
    oracle_insert(&o, 2 * TICK);
    oracle_move_earlier(&o, oracle_insert(&o, 66 * TICK), 5 * TICK);
    oracle_remove(&o, o.sorted[0]);
    wheel_earliest_exact(o.wheel); /* looks through the slot of 2 and 66, and sees the word */
    cr_assert_eq(oracle_advance(&o, 5 * TICK, false), 1, "G4");
    oracle_take_nudge(&o);
    cr_assert_eq(oracle_advance(&o, 5 * TICK, false), 1);
    oracle_close(&o);
}

/* Whoever had the earliest deadline is remembered only as long as the wheel files it. */
WHEEL_TEST(wheel_edges, the_earliest_comes_down_with_its_nudge_on_the_way)
{
    hwt_timeout *timeout;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 4, 20 * TICK, 3);
    timeout = oracle_insert(&o, 120 * TICK);
    cr_assert_eq(wheel_earliest_exact(o.wheel), 120 * TICK);
    oracle_move_earlier(&o, timeout, 1);
    cr_assert_eq(oracle_advance(&o, 120 * TICK, false), 0);
    cr_assert(!o.wheel->witness.slot || packed_timeout(*o.wheel->witness.slot) != timeout,
              "its block may be freed by now");
    oracle_take_nudge(&o);
    cr_assert_eq(oracle_advance(&o, 120 * TICK, false), 1);
    oracle_close(&o);
}

/* ---- quiet (G5) ---- */

/* What has been withdrawn as a whole is worth no wake-up, however large and however far. */
WHEEL_TEST(wheel_edges, a_bucket_of_holes_is_quiet)
{
    static const size_t counts[] = {1, 4, 5, 16, 17, 100, 3000};
    static const uint64_t deadlines[] = {5 * TICK, 500 * TICK, 500000 * TICK};
    struct oracle o;

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t j = 0; j < COUNT_OF(deadlines); j++) {
            oracle_open(&o, wheel, TICK, 16, 20 * TICK, counts[i] + 1);
            o.handles = true;
            oracle_insert(&o, 21 * TICK + 2 * deadlines[j]);
            for (size_t n = 0; n < counts[i]; n++)
                oracle_insert(&o, 20 * TICK + deadlines[j]);
            while (o.count > 1)
                cr_assert(oracle_withdraw(&o, o.sorted[0]));
            cr_assert_eq(wheel_next_call(o.wheel), 21 * TICK + 2 * deadlines[j]);
            cr_assert(oracle_withdraw(&o, o.sorted[0]));
            cr_assert_eq(wheel_next_call(o.wheel), UINT64_MAX);
            oracle_drain(&o);
            oracle_close(&o);
        }
    }
}

/* The one that had the earliest deadline is gone, and its block has another, earlier one. */
WHEEL_TEST(wheel_edges, the_earliest_is_withdrawn)
{
    hwt_timeout *timeout;
    struct oracle o;

    oracle_open(&o, wheel, TICK, 16, 20 * TICK, 40);
    o.handles = true;
    for (uint64_t i = 0; i < 30; i++)
        oracle_insert(&o, (40 + i) * TICK);
    for (uint64_t i = 0; i < 30; i++) {
        cr_assert_eq(wheel_earliest_exact(o.wheel), (40 + i) * TICK);
        timeout = o.sorted[0];
        cr_assert(oracle_withdraw(&o, timeout));
        store_relaxed(&timeout->word, word_make(i % 2 ? (40 + i) * TICK : 1, WORD_PENDING));
    }
    cr_assert_eq(wheel_earliest_exact(o.wheel), UINT64_MAX);
    oracle_close(&o);
}

/* How often a worker that sleeps until wheel_next_call wakes before the last timeout is gone. */
static unsigned wakeups_until_empty(struct oracle *o)
{
    unsigned wakeups = 0;

    while (o->count) {
        uint64_t next = wheel_next_call(o->wheel);
        next = wheel_tick_time(o->wheel, wheel_tick_of(o->wheel, next));
        oracle_advance(o, max_u64(o->now, next), false);
        cr_assert_lt(++wakeups, 1000);
    }
    return wakeups;
}

WHEEL_TEST(wheel_edges, one_far_timeout_is_one_wakeup)
{
    struct oracle o;

    for (uint64_t delay = TICK; delay < 20 * YEAR; delay = delay * 2 + 1) {
        oracle_open(&o, wheel, TICK, 512, test_epochs[1] + delay / 3, 1);
        oracle_insert(&o, o.now + delay);
        cr_assert_eq(wakeups_until_empty(&o), 1, "delay %" PRIu64, delay);
        oracle_close(&o);
    }
}

/* The bounds that thousands of removed ones leave behind cost a few wake-ups, not thousands. */
WHEEL_TEST(wheel_edges, removed_ones_do_not_wake)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 512, test_epochs[1], 5000);
    o.handles = true;
    for (uint64_t i = 0; i < 5000; i++)
        oracle_insert(&o, o.now + HWT_SEC(30) + i * TICK);
    while (o.count > 1)
        oracle_remove(&o, o.sorted[0]);
    cr_assert_leq(wakeups_until_empty(&o), 16);
    oracle_close(&o);
}

/* As do those that were moved later again and again: a connection's idle timeout. */
WHEEL_TEST(wheel_edges, moved_ones_wake_once_per_old_deadline)
{
    struct oracle o;

    oracle_open(&o, wheel, TICK, 512, test_epochs[1], 1);
    oracle_insert(&o, o.now + HWT_SEC(30));
    for (uint64_t i = 1; i < 1000; i++)
        oracle_move_later(&o, o.sorted[0], test_epochs[1] + HWT_SEC(30) + i * HWT_MSEC(20));
    cr_assert_leq(wakeups_until_empty(&o), 2);
    oracle_close(&o);
}

/*
 * Six that were moved to another tick lie together, and what the wheel knows of them is the
 * deadline of one that has been moved on since: behind it is one that is alone, and due (G4, G5).
 */
WHEEL_TEST(wheel_edges, what_was_moved_hides_nobody)
{
    hwt_timeout *moved[6];
    struct oracle o;

    oracle_open(&o, wheel, TICK, 64, 0, 7);
    o.handles = true;
    for (unsigned i = 0; i < COUNT_OF(moved); i++)
        moved[i] = oracle_insert(&o, 5 * TICK);
    for (unsigned i = 0; i < COUNT_OF(moved); i++)
        oracle_move_later(&o, moved[i], 8 * TICK + TICK / 10 + i * TICK / 10);
    oracle_check_exact(&o);
    oracle_move_later(&o, moved[0], 8 * TICK + TICK * 9 / 10);
    oracle_insert(&o, 8 * TICK + TICK * 3 / 20);
    cr_assert_eq(oracle_advance(&o, 8 * TICK + TICK * 7 / 40, false), wheel == HWT_WHEEL_HASHED);
    oracle_drain(&o);
    oracle_close(&o);
}
