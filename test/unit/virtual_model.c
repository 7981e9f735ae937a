/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual timer against a model that is too simple to be wrong: an array.
 * Random schedules, cancels, moves and advances; after each step both must agree
 * on who ran, in which tick order, how many are pending and what comes next
 * (G1, G2, G3, G4, G11). HWT_TEST_SEED repeats a run.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support.h"

#define ENTRIES 300
#define STEPS   12000

TestSuite(model, .init = test_arm);

typedef enum entry_state { FREE, LIVE, RAN, CANCELLED } entry_state;

typedef struct entry {
    struct model *model;
    hwt_timeout *timeout;
    entry_state state;
    uint64_t deadline;
    bool late;     /* its tick had been expired when it got this deadline */
    unsigned runs; /* since scheduled */
    unsigned hooks;
    bool hooked; /* was scheduled with a hook */
    uint64_t order;
} entry;

typedef struct model {
    rig rig;
    uint64_t seed;
    uint64_t passed; /* the clock at the last advance */
    uint64_t order;  /* runs so far */
    unsigned early;
    uint64_t totals[4]; /* scheduled, ran, cancelled, live */
    entry entries[ENTRIES];
} model;

static void model_task(hwt_timeout *timeout, void *arg)
{
    entry *e = arg;

    (void)timeout;
    e->runs++;
    e->order = e->model->order++;
    if (virtual_now(&e->model->rig.clock) < e->deadline)
        e->model->early++;
}

static void model_hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ((entry *)arg)->hooks++;
}

/* All magnitudes alike: within a tick, a lap, several levels, days; and none at all. */
static uint64_t any_duration(model *m)
{
    uint64_t bits = test_random_below(&m->seed, 52);

    return test_random(&m->seed) & ((UINT64_C(1) << bits) - 1);
}

static uint64_t any_deadline(model *m)
{
    uint64_t now = virtual_now(&m->rig.clock), d = any_duration(m);

    switch (test_random_below(&m->seed, 16)) {
    case 0: return d < now ? now - d : 0;
    case 1: return UINT64_MAX;
    case 2: return now;
    default: return now + d;
    }
}

static void set_deadline(entry *e, uint64_t deadline)
{
    e->deadline = deadline;
    e->late = deadline <= e->model->passed;
}

static entry *any_entry(model *m)
{
    return &m->entries[test_random_below(&m->seed, ENTRIES)];
}

static void do_schedule(model *m)
{
    entry *e = any_entry(m);
    uint64_t deadline = any_deadline(m), now = virtual_now(&m->rig.clock);
    hwt_spec spec;

    if (e->state == LIVE)
        return;
    hwt_timeout_unref(e->timeout);
    *e = (entry){.model = m, .state = LIVE};
    set_deadline(e, deadline);
    hwt_spec_init(&spec);
    spec.task = model_task;
    spec.cancelled = model_hook;
    spec.arg = e;
    if (deadline >= now && deadline != UINT64_MAX) {
        spec.delay_ns = deadline - now;
        e->hooked = true;
        cr_assert_eq(hwt_schedule(m->rig.timer, &spec, &e->timeout), 0);
    } else {
        cr_assert_eq(hwt_new_timeout_at(m->rig.timer, model_task, e, deadline, &e->timeout), 0);
    }
    cr_assert_eq(hwt_timeout_deadline(e->timeout), deadline);
    m->totals[0]++;
    m->totals[3]++;
}

static void do_cancel(model *m)
{
    entry *e = any_entry(m);
    bool sync = test_random_below(&m->seed, 4) == 0;
    bool ended;

    if (e->state == FREE)
        return;
    ended = sync ? hwt_timeout_cancel_sync(e->timeout) == 1 : hwt_timeout_cancel(e->timeout);
    cr_assert_eq(ended, e->state == LIVE);
    if (!ended)
        return;
    e->state = CANCELLED;
    cr_assert_eq(e->hooks, e->hooked ? 1u : 0u, "G10: in the thread that cancelled");
    m->totals[2]++;
    m->totals[3]--;
}

static void do_move(model *m)
{
    entry *e = any_entry(m);
    uint64_t deadline = any_deadline(m), now = virtual_now(&m->rig.clock);
    bool moved;

    if (e->state == FREE)
        return;
    if (deadline >= now && deadline != UINT64_MAX)
        moved = hwt_timeout_reschedule(e->timeout, deadline - now);
    else
        moved = hwt_timeout_reschedule_at(e->timeout, deadline);
    cr_assert_eq(moved, e->state == LIVE);
    if (moved)
        set_deadline(e, deadline);
}

static int by_order(const void *a, const void *b)
{
    uint64_t x = (*(entry *const *)a)->order, y = (*(entry *const *)b)->order;

    return x < y ? -1 : x > y;
}

/* Ticks in order: whoever is two ticks or more ahead ran first, however ticks are aligned. */
static void check_order(model *m, entry **ran, size_t count)
{
    uint64_t highest = 0;

    qsort(ran, count, sizeof(*ran), by_order);
    for (size_t i = 0; i < count; i++) {
        if (ran[i]->late) /* came after its tick: in any place */
            continue;
        cr_assert(ran[i]->deadline + 2 * m->rig.config.tick_ns > highest,
                  "G4: ticks out of order: deadline %llu ran after %llu",
                  (unsigned long long)ran[i]->deadline, (unsigned long long)highest);
        if (ran[i]->deadline > highest)
            highest = ran[i]->deadline;
    }
}

static void do_advance(model *m)
{
    uint64_t now = virtual_now(&m->rig.clock) + any_duration(m);
    entry *ran[ENTRIES];
    size_t due = 0;
    int result = rig_advance_to(&m->rig, now);

    for (size_t i = 0; i < ENTRIES; i++) {
        entry *e = &m->entries[i];

        if (e->state != LIVE || e->deadline > now)
            continue;
        ran[due++] = e;
        cr_assert_eq(e->runs, 1, "lost or early: deadline %llu now %llu runs %u",
                     (unsigned long long)e->deadline, (unsigned long long)now, e->runs);
        e->state = RAN;
    }
    cr_assert_eq(result, (int)due);
    check_order(m, ran, due);
    m->passed = now;
    m->totals[1] += due;
    m->totals[3] -= due;
}

/* Jump to just before or exactly onto the next deadline: where off-by-one lives. */
static void do_advance_to_edge(model *m)
{
    uint64_t next = hwt_timer_next_deadline(m->rig.timer);
    uint64_t now = virtual_now(&m->rig.clock);

    if (next == UINT64_MAX || next <= now)
        return;
    virtual_set(&m->rig.clock, next - 1);
    m->passed = next - 1;
    cr_assert_eq(hwt_timer_advance(m->rig.timer), 0, "G1");
    virtual_set(&m->rig.clock, next);
}

static void check_entry(const entry *e)
{
    static const hwt_state states[] = {HWT_PENDING, HWT_PENDING, HWT_EXPIRED, HWT_CANCELLED};

    if (e->state == FREE)
        return;
    cr_assert_eq(hwt_timeout_state(e->timeout), states[e->state]);
    cr_assert_eq(e->runs, e->state == RAN ? 1u : 0u, "G2");
    cr_assert_leq(e->hooks, e->state == CANCELLED ? 1u : 0u, "G10");
    cr_assert_eq(hwt_timeout_arg(e->timeout), e);
    if (e->state == LIVE)
        cr_assert_eq(hwt_timeout_deadline(e->timeout), e->deadline);
}

static void check_all(model *m)
{
    uint64_t earliest = UINT64_MAX, now = virtual_now(&m->rig.clock);
    uint64_t next = hwt_timer_next_deadline(m->rig.timer);

    for (size_t i = 0; i < ENTRIES; i++)
        if (m->entries[i].state == LIVE && m->entries[i].deadline < earliest)
            earliest = m->entries[i].deadline;
    if (earliest > now)
        cr_assert_eq(next, earliest);
    else
        cr_assert_leq(next, now);
    cr_assert_eq(hwt_timer_pending(m->rig.timer), m->totals[3], "G3");
    cr_assert_eq(m->early, 0, "G1");
    check_entry(any_entry(m));
}

static void step(model *m)
{
    switch (test_random_below(&m->seed, 16)) {
    case 0: do_advance(m); break;
    case 1: do_advance_to_edge(m); break;
    case 2:
    case 3:
    case 4: do_cancel(m); break;
    case 5:
    case 6:
    case 7:
    case 8: do_move(m); break;
    default: do_schedule(m); break;
    }
}

static void finish(model *m)
{
    hwt_unprocessed list;
    hwt_timeout *timeout;
    hwt_stats s;

    cr_assert_eq(hwt_timer_stop(m->rig.timer, &list), 0);
    cr_assert_eq(list.count, m->totals[3]);
    while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
        entry *e = hwt_timeout_arg(timeout);

        cr_assert_eq(e->state, LIVE, "handed back what had ended, or twice");
        e->state = CANCELLED;
        hwt_timeout_unref(timeout);
    }
    s = stats_of(m->rig.timer);
    cr_assert_eq(s.scheduled, m->totals[0]);
    cr_assert_eq(s.expired, m->totals[1]);
    cr_assert_eq(s.cancelled, m->totals[2]);
    cr_assert_eq(s.unprocessed, m->totals[3]);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    for (size_t i = 0; i < ENTRIES; i++) {
        check_entry(&m->entries[i]);
        hwt_timeout_unref(m->entries[i].timeout);
    }
    rig_close(&m->rig);
}

static void compare(hwt_wheel_kind wheel, uint64_t epoch, uint64_t tick_ns, uint32_t ticks)
{
    static model m;

    memset(&m, 0, sizeof(m));
    rig_prepare(&m.rig, wheel, epoch);
    m.rig.config.tick_ns = tick_ns;
    m.rig.config.ticks_per_wheel = ticks;
    m.seed = test_seed("model");
    m.passed = epoch;
    cr_assert_eq(rig_open(&m.rig), 0);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&m);
        check_all(&m);
    }
    finish(&m);
}

WHEEL_TEST(model, default_wheel)
{
    for (size_t e = 0; e < test_epoch_count; e++)
        compare(wheel, test_epochs[e], HWT_MSEC(1), 512);
}

WHEEL_TEST(model, small_wheel)
{
    for (size_t e = 0; e < test_epoch_count; e++)
        compare(wheel, test_epochs[e] + 12345, HWT_MSEC(1), 8);
}

WHEEL_TEST(model, fine_tick)
{
    for (size_t e = 0; e < test_epoch_count; e++)
        compare(wheel, test_epochs[e] + 1, HWT_USEC(1), 64);
}

WHEEL_TEST(model, coarse_odd_tick)
{
    compare(wheel, test_epochs[1] + 777, HWT_SEC(1) + 7, 3);
    compare(wheel, test_epochs[2], HWT_SEC(3600), 1);
}

WHEEL_TEST(model, large_wheel)
{
    compare(wheel, test_epochs[1], HWT_USEC(10), 1u << 16);
}
