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
