/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When the descriptor of an event loop is set to be readable: at the very deadline while something
 * is due now and then, a little later while that is so all the time, so that one advance does for
 * many (G4: within a tick; G5).
 */
#include <criterion/criterion.h>

#include "support.h"
#include "timer.h"

#define COARSE HWT_MSEC(10) /* ticks */
#define FINE   HWT_USEC(10)
#define LATER  HWT_USEC(250) /* than the deadline, unless a tick is less */

TestSuite(fd_many, .init = test_arm);

static hwt_timer *loop_timer(uint64_t tick_ns)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.tick_ns = tick_ns;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_geq(hwt_timer_fd(timer), 0);
    return timer;
}

/* As if so much had been due that for so long the wake-ups are many. */
static void owe(hwt_timer *timer, uint64_t ns)
{
    timer->worker.paid_until = hwt_timer_now(timer) + ns;
}

/* What it is set to (park.c). */
static uint64_t readable_at(const hwt_timer *timer)
{
    return load_seq(&timer->park.alarm) >> 3;
}

static void schedule_at(hwt_timer *timer, uint64_t deadline)
{
    static atomic_uint ran;

    cr_assert_eq(hwt_new_timeout_at(timer, count_task, &ran, deadline, NULL), 0);
}

Test(fd_many, exact_while_few)
{
    hwt_timer *timer = loop_timer(COARSE);
    uint64_t deadline = hwt_timer_now(timer) + HWT_SEC(100);

    schedule_at(timer, deadline);
    cr_assert_eq(readable_at(timer), deadline, "from the submission on");
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(readable_at(timer), deadline, "as it is planned");
    schedule_at(timer, deadline - 1);
    cr_assert_eq(readable_at(timer), deadline - 1, "another one of the same tick");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Never a tick late, however fine the ticks are. */
static void check_held_back(uint64_t tick_ns, uint64_t later)
{
    hwt_timer *timer = loop_timer(tick_ns);
    uint64_t deadline = hwt_timer_now(timer) + HWT_SEC(100);

    owe(timer, HWT_SEC(200));
    schedule_at(timer, deadline);
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(readable_at(timer), deadline + later, "as it is planned");
    schedule_at(timer, deadline + later);
    cr_assert_eq(readable_at(timer), deadline + later, "that one does for both");
    schedule_at(timer, deadline - HWT_SEC(1));
    cr_assert_eq(readable_at(timer), deadline - HWT_SEC(1) + later, "an earlier one");
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(readable_at(timer), deadline - HWT_SEC(1) + later);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(fd_many, held_back_while_many)
{
    check_held_back(COARSE, LATER);
    check_held_back(FINE, FINE - 1);
}

/* What is still far will be a lone one by then. */
Test(fd_many, exact_if_few_by_then)
{
    hwt_timer *timer = loop_timer(COARSE);
    uint64_t deadline = hwt_timer_now(timer) + HWT_SEC(100);

    owe(timer, HWT_SEC(50));
    schedule_at(timer, deadline);
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(readable_at(timer), deadline);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Not the calls are counted, but those in which there was something to do. */
Test(fd_many, counts_what_was_due)
{
    hwt_timer *timer = loop_timer(COARSE);
    uint64_t paid = timer->worker.paid_until;

    for (unsigned i = 0; i < 100; i++)
        cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(timer->worker.paid_until, paid);
    for (unsigned i = 0; i < 100; i++) {
        schedule_at(timer, hwt_timer_now(timer));
        cr_assert_eq(hwt_timer_advance(timer), 1);
        cr_assert_gt(timer->worker.paid_until, paid);
        paid = timer->worker.paid_until;
    }
    cr_assert_leq(paid, hwt_timer_now(timer) + WAKES_SAVED * LATER, "no debt lasts");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
