/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_nap,--wrap=lane_sweep_all */
/*
 * What it costs to wait in stop for a task that takes long on an executor's thread: naps that grow,
 * and no look at what is over (C6).
 */
#include <criterion/criterion.h>

#include "platform.h"
#include "submit.h"
#include "support.h"
#include "timer.h"

TestSuite(stop_naps, .init = test_arm);

#define LONG HWT_SEC(1) /* so long the task is on, by the naps of who waits for it */

static gate run;
static unsigned naps, sweeps;
static uint64_t napped, longest;

__typeof__(platform_nap) __real_platform_nap;
__typeof__(platform_nap) __wrap_platform_nap;
__typeof__(lane_sweep_all) __real_lane_sweep_all;
__typeof__(lane_sweep_all) __wrap_lane_sweep_all;

/* Time passes by this alone, until the task is over. */
void __wrap_platform_nap(uint64_t ns)
{
    if (napped >= LONG) {
        __real_platform_nap(ns);
        return;
    }
    naps++;
    napped += ns;
    longest = ns > longest ? ns : longest;
    if (napped >= LONG)
        gate_open(&run);
}

bool __wrap_lane_sweep_all(struct lane *lane, bool ended, lane_take *take, void *context)
{
    sweeps++;
    return __real_lane_sweep_all(lane, ended, take, context);
}

static void wait_for_a_long_task(hwt_wheel_kind wheel, hwt_drive drive)
{
    hwt_unprocessed list;
    hwt_config config;
    job_thread one;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = drive;
    config.execute = run_in_a_thread;
    config.executor = &one;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &run, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    if (drive == HWT_DRIVE_CALLER)
        cr_assert_eq(hwt_timer_advance(timer), 1);
    cr_assert(wait_count(&run.entered, 1));
    cr_assert_eq(hwt_timer_stop(timer, &list), 0);
    cr_assert_eq(run.left, 1);
    cr_assert_eq(list.count, 1);
    hwt_timeout_unref(hwt_unprocessed_take(&list));
    cr_assert_eq(pthread_join(one.thread, NULL), 0);
    cr_assert_leq(naps, 1000);
    cr_assert_leq(longest, HWT_MSEC(2), "so late it is at most");
    cr_assert_leq(sweeps, timer->lanes.count + 1, "once is enough");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(stop_naps, beside_a_worker)
{
    wait_for_a_long_task(wheel, HWT_DRIVE_WORKER);
}

WHEEL_TEST(stop_naps, driven_by_the_caller)
{
    wait_for_a_long_task(wheel, HWT_DRIVE_CALLER);
}
