/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both kinds of wheel against the sorted list of wheel_oracle.h, under random inserts, removals,
 * deadlines moved either way and jumps of time, the validator after every step. HWT_TEST_SEED=n
 * repeats a run.
 */
#include "agenda_parts.h"
#include "wheel_walk.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK HWT_MSEC(1)

TestSuite(wheel, .init = test_arm);

static void random_walks(hwt_wheel_kind kind, uint64_t tick_ns, uint32_t slots, unsigned steps)
{
    struct walk w = {.tick_ns = tick_ns, .slots = slots, .random = test_seed("wheel")};

    for (size_t i = 0; i < test_epoch_count; i++)
        random_walk(&w, kind, test_epochs[i], steps);
}

WHEEL_TEST(wheel, random_2_slots)
{
    random_walks(wheel, TICK, 2, 4000);
}

WHEEL_TEST(wheel, random_4_slots)
{
    random_walks(wheel, TICK, 4, 4000);
}

WHEEL_TEST(wheel, random_64_slots)
{
    random_walks(wheel, TICK, 64, 3000);
}

WHEEL_TEST(wheel, random_512_slots)
{
    random_walks(wheel, TICK, 512, 1500);
}

/* Ticks that are no power of ten and no power of two, the shortest and a long one. */
WHEEL_TEST(wheel, random_odd_ticks)
{
    random_walks(wheel, 1000, 64, 1000);
    random_walks(wheel, 1024 * 1024, 16, 1000);
    random_walks(wheel, 1000003, 8, 1000);
    random_walks(wheel, HWT_SEC(60), 64, 1000);
}

/* Ticks of which a bucket's keys do not tell the nanosecond. */
WHEEL_TEST(wheel, random_long_ticks)
{
    random_walks(wheel, 1u << 22, 16, 1000);
    random_walks(wheel, (1u << 22) + 1, 16, 1000);
    random_walks(wheel, HWT_SEC(3600), 16, 1000);
}

/* A single slot: everything is in one bucket of the hashed kind. */
WHEEL_TEST(wheel, random_1_slot)
{
    random_walks(wheel, TICK, 1, 1000);
}

/* ---- both kinds, step by step ---- */

static void check_alike(struct oracle *a, struct oracle *b)
{
    cr_assert_eq(a->now, b->now);
    cr_assert_eq(a->expired, b->expired);
    cr_assert_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        cr_assert_eq(oracle_deadline(a->sorted[i]), oracle_deadline(b->sorted[i]));
        cr_assert_eq(a->sorted[i]->stamp, b->sorted[i]->stamp);
    }
    if (a->nudges == 0)
        cr_assert_eq(wheel_earliest_exact(a->wheel), wheel_earliest_exact(b->wheel));
}

/* Each walks on its own random numbers, which are the same as long as the wheels are alike. */
static void walk_alike(uint64_t epoch, uint64_t tick_ns, uint32_t slots)
{
    struct walk a = {.tick_ns = tick_ns, .slots = slots, .exact = true, .random = test_seed("two")};
    struct walk b = a;

    walk_open(&a, HWT_WHEEL_HIERARCHICAL, epoch);
    walk_open(&b, HWT_WHEEL_HASHED, epoch);
    for (unsigned i = 0; i < 2500; i++) {
        walk_step(&a);
        walk_step(&b);
        check_alike(&a.oracle, &b.oracle);
    }
    cr_assert_gt(a.oracle.expired, 100);
    walk_close(&a);
    walk_close(&b);
}

Test(wheel, both_kinds_alike)
{
    for (size_t i = 0; i < test_epoch_count; i++) {
        walk_alike(test_epochs[i], TICK, 4);
        walk_alike(test_epochs[i], TICK, 64);
        walk_alike(test_epochs[i], HWT_SEC(10), 8);
    }
}

/* The arithmetic of ticks against a plain division, over the whole range of deadlines. */
Test(wheel, tick_of_a_deadline)
{
    static const uint64_t ticks[] = {1000, 1001, 4096, 999983, HWT_MSEC(1), HWT_SEC(1), 1ull << 42};
    uint64_t random = test_seed("tick");
    struct wheel *wheel;

    for (size_t i = 0; i < COUNT_OF(ticks); i++) {
        cr_assert_eq(wheel_create(&wheel, HWT_WHEEL_HASHED, ticks[i], 2, 0), 0);
        for (unsigned j = 0; j < 20000; j++) {
            uint64_t ns = test_random(&random) >> (3 + j % 61);
            if (j % 3)
                ns = min_u64(ns - ns % ticks[i] + j % 3 - 1, DEADLINE_NEVER);
            cr_assert_eq(wheel_tick_floor(wheel, ns), ns / ticks[i]);
            cr_assert_eq(wheel_tick_of(wheel, ns), ns / ticks[i] + (ns % ticks[i] != 0));
        }
        cr_assert_eq(wheel_tick_floor(wheel, DEADLINE_NEVER), DEADLINE_NEVER / ticks[i]);
        wheel_destroy(wheel);
    }
}

/* ---- the validator of debug builds ---- */

#ifdef HWT_DEBUG
/* _exit: what the library aborts for ends this child. */
static void found(int signal)
{
    (void)signal;
    _exit(0);
}

static void found_at_once(int signal)
{
    (void)signal;
    _exit(2);
}

/* A timeout that says that it is elsewhere. */
static _Noreturn void go_on_after_damage(hwt_wheel_kind kind, uint32_t slots)
{
    struct oracle o;
    hwt_timeout *timeout;

    oracle_open(&o, kind, HWT_MSEC(1), slots, 0, 10);
    timeout = oracle_insert(&o, HWT_MSEC(slots - slots / 4));
    for (unsigned i = 0; i < CHECK_ALL; i++)
        wheel_check_on(o.wheel);
    o.wheel->check_at = 0;
    timeout->where ^= 64;
    signal(SIGABRT, found_at_once);
    wheel_check_on(o.wheel);
    signal(SIGABRT, found);
    for (unsigned i = 0; i < slots / CHECK_SLOTS; i++)
        wheel_check_on(o.wheel);
    _exit(1);
}

/* One in a part of the agenda that is said to be empty. */
static _Noreturn void go_on_after_loss(hwt_wheel_kind kind, uint32_t slots)
{
    struct oracle o;
    hwt_timeout lost = {0};

    oracle_open(&o, kind, HWT_MSEC(1), slots, 0, 10);
    for (unsigned i = 0; i < CHECK_ALL; i++)
        wheel_check_on(o.wheel);
    while (o.wheel->checked % AGENDA_LEVELS != 2)
        wheel_check_on(o.wheel);
    o.wheel->agenda.more->listed[2][5] = &lost;
    signal(SIGABRT, found_at_once);
    wheel_check_on(o.wheel);
    signal(SIGABRT, found);
    for (unsigned i = 0; i < AGENDA_LEVELS; i++)
        wheel_check_on(o.wheel);
    _exit(1);
}

static void check_damage(void (*damage)(hwt_wheel_kind, uint32_t), hwt_wheel_kind kind)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        damage(kind, 1024);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "it is looked for beyond its end");
    cr_assert_neq(WEXITSTATUS(status), 1, "it is not found");
    cr_assert_neq(WEXITSTATUS(status), 2, "all of it was looked at");
}

/* A few slots after each pass, and after so many passes what is wrong has been seen. */
WHEEL_TEST(wheel, is_looked_through_a_few_slots_at_a_time)
{
    check_damage(go_on_after_damage, wheel);
}

/* So with the parts of the agenda that are empty: a level of them at a time. */
WHEEL_TEST(wheel, has_its_agenda_looked_through_a_level_at_a_time)
{
    check_damage(go_on_after_loss, wheel);
}
#endif
