/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G6, of many timers: what a timer never uses takes no memory, though malloc would clear what it
 * gives again and so touch all of it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "support.h"

#define TIMERS 64
#define ROUNDS 4

TestSuite(memory_many, .init = test_arm);

static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t size, pages;

    cr_assert(file && fscanf(file, "%zu %zu", &size, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

WHEEL_TEST(memory_many, timers_that_hold_little)
{
    static hwt_timer *timer[TIMERS];
    size_t before = resident();
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = HWT_DRIVE_CALLER;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TIMERS; i++) {
            cr_assert_eq(hwt_timer_create(&timer[i], &config), 0);
            cr_assert_eq(hwt_new_timeout(timer[i], noop_task, NULL, HWT_SEC(9), NULL), 0);
            cr_assert_neq(hwt_timer_next_deadline(timer[i]), UINT64_MAX);
        }
        cr_assert_lt(resident() - before, (size_t)16 << 20, "round %d", round);
        for (int i = 0; i < TIMERS; i++)
            cr_assert_eq(hwt_timer_destroy(timer[i]), 0);
    }
}

#ifndef HWT_SANITIZED
/* In LeakSanitizer's place. */
static unsigned told;

void __lsan_register_root_region(const void *memory, size_t size);
void __lsan_register_root_region(const void *memory, size_t size)
{
    (void)memory;
    told += size > 0;
}

/* What it is told it keeps for ever, and reads through for each: so only what stays. */
Test(memory_many, a_leak_checker_is_told_once)
{
    unsigned before = 0;

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 3; i++) {
            hwt_timer *timer;
            cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
            cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(9), NULL), 0);
            cr_assert_eq(hwt_timer_destroy(timer), 0);
        }
        cr_assert(round == 0 || told == before, "%u times more", told - before);
        before = told;
    }
    cr_assert_gt(told, 0);
}
#endif
