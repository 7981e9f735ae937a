/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=aligned_alloc */
/*
 * The ladder of the hierarchical wheel (ladder.h): what is alone goes by it, whatever its slot
 * holds, and beside what has handles nothing is early (G1), late (G4), lost or doubled (G2), or out
 * of turn (G15).
 */
#include "hierarchical.h"
#include "wheel_walk.h"

#define TICK HWT_MSEC(1)

static bool memory_is_short;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

TestSuite(ladder, .init = test_arm);

static const struct hierarchical *wheel_of(const struct oracle *o)
{
    return container_of(o->wheel, const struct hierarchical, wheel);
}

static const struct ladder *ladder_of(const struct oracle *o)
{
    return &wheel_of(o)->ladder;
}

/* The width of a slot of the second level, and the start of the one after next. */
static uint64_t slot_width(const struct oracle *o)
{
    return level_slot_width(&wheel_of(o)->level[1]) * o->wheel->tick_ns;
}

static uint64_t slot_after_next(const struct oracle *o)
{
    const struct level *level = &wheel_of(o)->level[1];
    uint64_t slot = level_slot_of(level, o->wheel->current) + 2;

    return wheel_tick_time(o->wheel, level_first_tick(level, slot));
}

static void open_with(struct oracle *o, uint32_t slots, uint64_t tick_ns, uint64_t now,
                      size_t capacity)
{
    oracle_open(o, HWT_WHEEL_HIERARCHICAL, tick_ns, slots, now, capacity);
}

static hwt_timeout *insert_as(struct oracle *o, uint64_t deadline, bool alone)
{
    o->handles = !alone;
    o->submissions |= 1; /* the next one is even */
    return oracle_insert(o, deadline);
}

/* Evenly over one slot, in no order, of which so many of 16 are alone. */
static void fill_slot(struct oracle *o, size_t count, unsigned alone, uint64_t *random)
{
    uint64_t first = slot_after_next(o), width = slot_width(o);

    for (size_t i = 0; i < count; i++)
        insert_as(o, first + test_random_below(random, width),
                  test_random_below(random, 16) < alone);
    oracle_check_count(o);
}

static bool rungs_are_empty(const struct ladder *ladder)
{
    return rung_is_empty(&ladder->rung[0]) && rung_is_empty(&ladder->rung[1]);
}

/* ---- which way they go ---- */

/* Few wait in their slot until it is entered, and are sorted then; no bucket holds them after. */
Test(ladder, a_slot_that_fits_is_sorted_when_it_is_entered)
{
    uint64_t random = test_seed("ladder"), first;
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], LADDER_BOTTOM + 1);
    first = slot_after_next(&o);
    fill_slot(&o, LADDER_BOTTOM, 16, &random);
    insert_as(&o, first - 2 * TICK, true); /* a tick, after which something could come down */
    oracle_advance(&o, first - 2 * TICK, true);
    cr_assert_eq(o.count, LADDER_BOTTOM);
    cr_assert_not(ladder_has_bottom(ladder_of(&o)));
    cr_assert(rungs_are_empty(ladder_of(&o)));
    oracle_advance(&o, oracle_earliest(&o), true);
    cr_assert(ladder_has_bottom(ladder_of(&o)));
    cr_assert_leq(o.count - (ladder_of(&o)->hi - ladder_of(&o)->lo), 32, "but for its tick's");
    while (o.count) {
        cr_assert_eq(wheel_earliest_exact(o.wheel), oracle_earliest(&o));
        oracle_advance(&o, oracle_earliest(&o), true);
    }
    oracle_close(&o);
}

/* Many are spread while the slot before theirs lasts, a share with each tick, untouched. */
Test(ladder, a_slot_that_does_not_is_spread_before)
{
    uint64_t random = test_seed("ladder"), before;
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 21000);
    fill_slot(&o, 20000, 16, &random);
    before = slot_after_next(&o) - slot_width(&o);
    for (uint64_t tick = 0; tick < 100; tick++)
        insert_as(&o, before + (tick + 1) * TICK, false);
    oracle_advance(&o, before + 20 * TICK, false);
    cr_assert_not(rungs_are_empty(ladder_of(&o)));
    cr_assert_not(ladder_has_bottom(ladder_of(&o)));
    oracle_check_exact(&o);
    oracle_advance(&o, before + 100 * TICK, false);
    oracle_check_exact(&o); /* nothing comes before, but it has not been spread as a whole */
    cr_assert_not(ladder_has_bottom(ladder_of(&o)));
    oracle_advance(&o, before + slot_width(&o) - TICK, false);
    oracle_check_exact(&o);
    cr_assert(ladder_has_bottom(ladder_of(&o)));
    cr_assert_leq(ladder_of(&o)->hi, 20000 / 32);
    while (o.count)
        oracle_advance(&o, o.now + test_random_below(&random, 3 * TICK), true);
    oracle_close(&o);
}

/* Where nothing had to be spread for a while, it begins again in time. */
Test(ladder, a_crowded_slot_after_sparse_ones_is_spread_before)
{
    uint64_t random = test_seed("ladder"), first, tick;
    const struct level *level;
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 6000);
    level = &wheel_of(&o)->level[1];
    first = slot_after_next(&o) + 2 * slot_width(&o);
    for (unsigned i = 0; i < 5000; i++)
        insert_as(&o, first + test_random_below(&random, slot_width(&o)), true);
    for (tick = o.now + TICK; tick < first; tick += 5 * TICK)
        insert_as(&o, tick, true);
    while (o.now + 6 * TICK < first) {
        oracle_advance(&o, o.now + TICK, true);
        wheel_prepare(o.wheel);
    }
    cr_assert_lt(oracle_rank(&o, first - 1), 3);
    cr_assert_lt(bucket_at_most(level_bucket(level, level_slot_of(level, first / TICK))), 1500,
                 "its rest comes down at once");
    oracle_close(&o);
}

/*
 * Nothing is due before, so no tick gives occasion to spread anything: calls ahead of time do, a
 * step at a time, and who asks for the next deadline does not finish it.
 */
Test(ladder, a_crowded_slot_after_a_gap_is_spread_in_steps)
{
    uint64_t random = test_seed("ladder"), slot;
    const struct bucket *bucket;
    const struct level *level;
    struct oracle o;
    uint32_t left;

    open_with(&o, 64, TICK, test_epochs[1], 20000);
    level = &wheel_of(&o)->level[1];
    slot = level_slot_of(level, o.wheel->current) + 2;
    bucket = level_bucket(level, slot);
    fill_slot(&o, 20000, 16, &random);
    for (unsigned passes = 0; (left = bucket_at_most(bucket)) > 0; passes++) {
        cr_assert_lt(passes, 50);
        oracle_advance(&o, max_u64(o.now, wheel_next_call(o.wheel)), false);
        wheel_prepare(o.wheel);
        oracle_check_exact(&o);
        cr_assert_leq(left - bucket_at_most(bucket), 3 * PREPARE_STEP);
    }
    cr_assert_leq(o.now, wheel_tick_time(o.wheel, level_first_tick(level, slot) + 2));
    while (o.count)
        oracle_advance(&o, o.now + test_random_below(&random, 3 * TICK), true);
    oracle_close(&o);
}

/* A part that does not fit into the bottom goes on to the lowest level. */
Test(ladder, a_part_that_does_not_fit_comes_down)
{
    uint64_t random = test_seed("ladder"), first;
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 4 * LADDER_BOTTOM);
    first = slot_after_next(&o);
    while (o.spares)
        insert_as(&o, first + 2 * TICK + test_random_below(&random, TICK / 2), true);
    oracle_check_exact(&o);
    oracle_advance(&o, first, true);
    oracle_check_exact(&o);
    cr_assert_not(ladder_has_bottom(ladder_of(&o)));
    cr_assert(rungs_are_empty(ladder_of(&o)));
    while (o.count)
        oracle_advance(&o, o.now + test_random_below(&random, TICK / 16), true);
    oracle_close(&o);
}

/* The first boundary between parts of a rung that is in the middle half of a tick. */
static uint64_t boundary_in_tick(const struct ladder *ladder, uint64_t base)
{
    uint64_t boundary, part = 1;

    do
        boundary = (ladder_key(ladder, base) + (part++ << LADDER_PART_BITS)) << ladder->quantum;
    while (boundary % TICK < TICK / 4 || boundary % TICK > TICK / 4 * 3);
    return boundary;
}

/* The end of one part, and the start of the next: a tick counts as a whole, sorted or not. */
Test(ladder, a_tick_in_two_parts_is_sparse_or_not_as_a_whole)
{
    uint64_t random = test_seed("ladder"), few[] = {2, ORACLE_SPARSE - 1, ORACLE_SPARSE, 100};

    for (size_t i = 0; i < COUNT_OF(few); i++) {
        uint64_t first, boundary;
        struct oracle o;
        bool sparse = few[i] < ORACLE_SPARSE;
        open_with(&o, 64, TICK, test_epochs[1], 3000);
        first = slot_after_next(&o);
        boundary = boundary_in_tick(ladder_of(&o), first - TICK); /* its base */
        for (unsigned filler = 0; filler < 2000; filler++)
            insert_as(&o, first + slot_width(&o) / 2 + test_random_below(&random, TICK), true);
        insert_as(&o, boundary - TICK / 8, true);
        for (uint64_t more = 0; more < few[i]; more++)
            insert_as(&o, boundary + TICK / 8 + test_random_below(&random, TICK / 16), true);
        oracle_advance(&o, first, false);
        cr_assert_eq(wheel_earliest_exact(o.wheel), boundary - TICK / 8);
        cr_assert_eq(ladder_of(&o)->hi - ladder_of(&o)->lo, 1, "the others are in the next part");
        cr_assert_eq(wheel_is_sparse(o.wheel, boundary - TICK / 8), sparse);
        oracle_advance(&o, boundary - TICK / 8, false);
        cr_assert_eq(o.expired, sparse);
        cr_assert_eq(wheel_is_sparse(o.wheel, wheel_earliest(o.wheel)), sparse);
        oracle_advance(&o, boundary + TICK / 4, false);
        cr_assert_eq(o.expired, sparse ? 1 + few[i] : 0);
        oracle_advance(&o, boundary / TICK * TICK + TICK, false);
        cr_assert_eq(o.expired, 1 + few[i]);
        oracle_drain(&o);
        oracle_close(&o);
    }
}

/* Every so many ticks one, in a slot that fits; and the worker is at the first. */
static void enter_sparse_slot(struct oracle *o, uint64_t ticks)
{
    uint64_t first = slot_after_next(o);

    for (uint64_t at = 0; at < slot_width(o); at += ticks * TICK)
        insert_as(o, first + at + TICK / 2, true);
    oracle_advance(o, first + TICK / 2, true);
    cr_assert(ladder_has_bottom(ladder_of(o)));
    cr_assert(agenda_is_empty(&o->wheel->agenda));
}

/* Whether its tick is on, over, or over for long; and others may still come to that. */
Test(ladder, what_is_alone_in_its_tick_does_not_go_over_the_agenda)
{
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 300);
    enter_sparse_slot(&o, 4);
    while (o.count > 2) {
        uint64_t next = oracle_earliest(&o);
        hwt_timeout *taken;
        cr_assert_eq(wheel_earliest_exact(o.wheel), next);
        cr_assert(wheel_is_sparse(o.wheel, next));
        o.now = next - 1;
        cr_assert_null(wheel_take_due(o.wheel, o.now, true), "G1");
        o.now = next + o.count % 3 * TICK; /* the tick is not over, is, or was */
        taken = wheel_take_due(o.wheel, o.now, o.count % 2);
        cr_assert_eq(taken, o.sorted[0]);
        cr_assert(agenda_is_empty(&o.wheel->agenda));
        cr_assert_geq(o.wheel->covered, next);
        cr_assert_eq(o.wheel->current,
                     wheel_tick_floor(o.wheel, o.wheel->covered) + (o.wheel->covered <= o.now));
        oracle_forget(&o, taken);
        insert_as(&o, o.now + 1, o.count % 2); /* in a tick that is covered, or the next one */
        oracle_check_exact(&o);
        oracle_advance(&o, o.now + 1, true);
    }
    oracle_drain(&o);
    oracle_close(&o);
}

/* It waits on the agenda, with its old deadline; what is alone in its tick does not go there. */
Test(ladder, what_was_moved_later_has_its_turn_beside_what_is_alone)
{
    struct oracle o;

    for (int where = -1; where <= 1; where += 2) {
        hwt_timeout *moved;
        open_with(&o, 64, TICK, test_epochs[1], 300);
        enter_sparse_slot(&o, 4);
        insert_as(&o, o.now + TICK, false);
        moved = insert_as(&o, o.now + TICK + 1, false);
        oracle_advance(&o, o.now + TICK, true);
        cr_assert_eq(o.sorted[0], moved);
        cr_assert_not(agenda_is_empty(&o.wheel->agenda));
        oracle_move_later(&o, moved, oracle_deadline(o.sorted[1]) + (uint64_t)where);
        cr_assert_eq(oracle_advance(&o, o.now + 3 * TICK + 1, true), 2);
        oracle_drain(&o);
        oracle_close(&o);
    }
}

/* The bottom is the next slot's, and so is what comes before that, but it lies two levels above. */
Test(ladder, what_is_alone_in_the_next_slot_waits_until_that_is_entered)
{
    const struct level *third;
    uint64_t slot, start;
    struct oracle o;

    open_with(&o, 512, TICK, test_epochs[1], 3201);
    third = &wheel_of(&o)->level[2];
    slot = level_slot_of(third, o.wheel->current) + 2;
    start = wheel_tick_time(o.wheel, level_first_tick(third, slot));
    insert_as(&o, start + 1, true); /* the last one to come down */
    while (o.count < 2001)
        insert_as(&o, start + 10 * slot_width(&o) + o.count * TICK, true);
    oracle_advance(&o, start - 3 * slot_width(&o), true);
    while (o.count < 3101)
        insert_as(&o, start + (2 + o.count % 1500) * TICK, true);
    for (uint64_t tick = 0; tick < 50; tick++)
        insert_as(&o, start - slot_width(&o) + tick * TICK, false);
    for (uint64_t tick = 0; tick < 50; tick++)
        oracle_advance(&o, start - slot_width(&o) + tick * TICK, true);
    oracle_check_exact(&o);
    cr_assert_gt(ladder_of(&o)->hi - ladder_of(&o)->lo, 1);
    cr_assert_gt(bucket_at_most(level_bucket(third, slot)), 0);
    oracle_check_exact(&o);
    cr_assert_eq(oracle_advance(&o, start + 5 * TICK, true), 5);
    while (o.count)
        oracle_advance(&o, o.now + test_random_below(&o.random, 20 * TICK), true);
    oracle_close(&o);
}

/* What holds more than a rung takes comes down to the lowest level, in turn. */
Test(ladder, a_slot_that_is_too_crowded_comes_down)
{
    uint64_t random = test_seed("ladder"), now = test_epochs[1], count;
    hwt_timeout *node, *timeout, *before = NULL;
    struct hierarchical *w;
    struct wheel *wheel;

    cr_assert_eq(wheel_create(&wheel, HWT_WHEEL_HIERARCHICAL, TICK, 64, now), 0);
    w = hierarchical(wheel);
    count = w->ladder.most + 1000;
    node = aligned_alloc(CACHE_LINE, count * sizeof *node);
    cr_assert_not_null(node);
    memset((void *)node, 0, count * sizeof *node);
    for (uint64_t i = 0; i < count; i++) {
        const struct level *level = &w->level[1];
        uint64_t first = level_first_tick(level, level_slot_of(level, now / TICK) + 2);
        uint64_t deadline = first * TICK + test_random_below(&random, 255 * TICK);
        node[i].stamp = i << STAMP_LANE_BITS;
        store_relaxed(&node[i].refs, 1);
        store_relaxed(&node[i].word, word_make(deadline, WORD_PENDING));
        wheel_insert(wheel, &node[i], deadline);
    }
    while (count) {
        now += TICK;
        while ((timeout = wheel_take_due(wheel, now, false)) != NULL) {
            cr_assert_leq(oracle_deadline(timeout), now, "G1");
            cr_assert(!before || oracle_before(before, timeout), "G15");
            before = timeout;
            count--;
        }
        wheel_prepare(wheel);
    }
    wheel_destroy(wheel);
    free(node);
}

/* Who has a handle never goes by it: he may be withdrawn at any time, and moved. */
Test(ladder, what_has_handles_comes_down)
{
    uint64_t random = test_seed("ladder");
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 3000);
    fill_slot(&o, 3000, 0, &random);
    while (o.count > 100) {
        oracle_advance(&o, o.now + 4 * TICK, true);
        cr_assert_not(ladder_has_bottom(ladder_of(&o)));
        cr_assert(rungs_are_empty(ladder_of(&o)));
        cr_assert(oracle_withdraw(&o, o.sorted[o.count - 1]));
    }
    oracle_drain(&o);
    oracle_close(&o);
}

/* ---- whatever happens meanwhile ---- */

static size_t shown;

/* A visitor makes a handle of one in eight. */
static void see(void *seen, const hwt_timeout *timeout)
{
    hwt_timeout *here = (hwt_timeout *)(uintptr_t)timeout;
    struct oracle *o = seen;

    cr_assert_eq(word_code(load_relaxed(&here->word)), WORD_PENDING);
    if ((here - o->node) % 8 == 0)
        store_relaxed(&here->refs, 2);
    shown++;
}

/* As the worker does it: what is on its way to being run waits beside the wheel. */
static void visit(struct oracle *o)
{
    hwt_timeout *timeout, *waits[LADDER_BOTTOM * 2];
    size_t waiting = 0;

    shown = 0;
    while ((timeout = wheel_take_on_agenda(o->wheel)) != NULL)
        waits[waiting++] = timeout;
    wheel_visit(o->wheel, see, o);
    wheel_end_show(o->wheel);
    cr_assert_eq(shown + waiting, o->count, "G2");
    for (size_t i = 0; i < waiting; i++)
        wheel_insert(o->wheel, waits[i], oracle_deadline(waits[i]));
    oracle_check_count(o);
}

/* Of those that come last: they are not on their way to being run. */
static void withdraw_one(struct oracle *o, uint64_t *random)
{
    hwt_timeout *timeout = o->sorted[o->count - 1 - test_random_below(random, o->count / 2 + 1)];

    if (!timeout_is_alone(timeout) && !bucket_holds(timeout))
        return; /* in the agenda */
    if (!timeout_is_alone(timeout))
        cr_assert(oracle_withdraw(o, timeout));
}

static void go_on(struct oracle *o, uint64_t *random)
{
    uint64_t tick = o->wheel->tick_ns, width = slot_width(o);
    uint64_t steps[] = {1, tick / 3 + 1, tick, 7 * tick, width / 5, width};

    switch (test_random_below(random, 12)) {
    case 0: oracle_check_exact(o); break;
    case 1: withdraw_one(o, random); break;
    case 2:
        if (o->spares)
            insert_as(o, o->now + test_random_below(random, 3 * width),
                      test_random_below(random, 2));
        break;
    case 3:
        if (test_random_below(random, 8) == 0)
            visit(o);
        break;
    case 4: oracle_check_bounds(o); break;
    case 5: /* as an event loop does */
        oracle_advance(o, max_u64(o->now, wheel_earliest_exact(o->wheel)), true);
        break;
    default:
        oracle_advance(o, o->now + steps[test_random_below(random, COUNT_OF(steps))],
                       test_random_below(random, 2));
        break;
    }
}

/* Four slots, after which the wheel is emptied half-way every other time. */
static void play(uint64_t tick_ns, uint32_t slots, size_t count, unsigned alone, uint64_t *random)
{
    for (size_t epoch = 0; epoch < test_epoch_count; epoch++) {
        uint64_t first, width;
        struct oracle o;

        open_with(&o, slots, tick_ns, test_epochs[epoch], count);
        o.shuffle = 15;
        first = o.now + test_random_below(random, slot_width(&o));
        width = 4 * slot_width(&o);
        while (o.count < count / 8 * 7)
            insert_as(&o, first + test_random_below(random, width),
                      test_random_below(random, 16) < alone);
        while (o.count > (epoch % 2 ? count / 3 : 0))
            go_on(&o, random);
        oracle_drain(&o);
        oracle_close(&o);
    }
}

static void play_all(unsigned alone)
{
    uint64_t random = test_seed("ladder");

    play(TICK, 16, 1000, alone, &random); /* sorted as they are entered */
    play(TICK, 64, 20000, alone, &random);
    play(TICK, 2, 8000, alone, &random); /* parts shorter than a tick */
    play(1000, 4, 8000, alone, &random);
    play((1u << 22) + 1, 64, 8000, alone, &random); /* keys of whole ticks do not tell all */
    play(HWT_SEC(3600), 64, 8000, alone, &random);
    play(HWT_SEC(86400 * 30), 4, 2000, alone, &random);
}

Test(ladder, all_alone)
{
    play_all(16);
}

Test(ladder, a_few_with_handles)
{
    play_all(15);
}

Test(ladder, half_and_half)
{
    play_all(8);
}

/* Deadlines that are all the same, or a few nanoseconds apart: keys tell nothing. */
Test(ladder, ties)
{
    uint64_t random = test_seed("ladder");

    for (uint64_t spread = 1; spread < 10000; spread *= 10) {
        struct oracle o;
        open_with(&o, 64, TICK, test_epochs[1], 3 * LADDER_BOTTOM);
        o.shuffle = 15;
        while (o.spares) {
            uint64_t deadline = slot_after_next(&o) + o.spares % 8 * 20 * TICK;
            insert_as(&o, deadline + test_random_below(&random, spread), o.spares % 16);
        }
        while (o.count)
            go_on(&o, &random);
        oracle_close(&o);
    }
}

/* Without memory for the chunks of a rung they come down, and from there to the pen. */
Test(ladder, without_memory)
{
    uint64_t random = test_seed("ladder");
    struct oracle o;

    open_with(&o, 64, TICK, test_epochs[1], 8000);
    fill_slot(&o, 7000, 15, &random);
    o.wheel->store.large = o.wheel->store.small = NULL; /* what it has in hand */
    o.wheel->store.large_count = o.wheel->store.small_count = o.wheel->store.fresh = 0;
    o.wheel->store.opening = NULL;
    memory_is_short = true;
    while (o.count)
        oracle_advance(&o, o.now + test_random_below(&random, 8 * TICK), true);
    memory_is_short = false;
    oracle_close(&o);
}
