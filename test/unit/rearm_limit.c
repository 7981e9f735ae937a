/* SPDX-License-Identifier: BSD-2-Clause */
/* G3: a task that re-arms itself takes a place under max_pending again, if there is one. */
#include <criterion/criterion.h>
#include <errno.h>

#include "support.h"

TestSuite(rearm_limit, .init = test_arm);

typedef struct chain {
    hwt_timer *timer;
    bool schedules, cancels;
    int schedule_result;
    bool rearmed, rearmed_twice, cancelled;
    uint64_t most_pending;
    atomic_uint runs;
} chain;

static void look(chain *c)
{
    uint64_t pending = hwt_timer_pending(c->timer);

    if (pending > c->most_pending)
        c->most_pending = pending;
}

/* One that it schedules itself, then the re-arm. */
static void schedule_and_rearm(hwt_timeout *timeout, void *arg)
{
    chain *c = arg;

    if (atomic_fetch_add(&c->runs, 1) > 0)
        return;
    if (c->schedules)
        c->schedule_result = hwt_new_timeout(c->timer, noop_task, NULL, HWT_SEC(60), NULL);
    look(c);
    c->rearmed = hwt_timeout_reschedule(timeout, HWT_SEC(1));
    look(c);
    c->rearmed_twice = hwt_timeout_reschedule(timeout, HWT_SEC(2));
    look(c);
    if (c->cancels)
        c->cancelled = hwt_timeout_cancel(timeout);
}

static void run_chain(rig *r, chain *c, hwt_wheel_kind wheel)
{
    rig_prepare(r, wheel, HWT_SEC(1));
    r->config.max_pending = 1;
    cr_assert_eq(rig_open(r), 0);
    c->timer = r->timer;
    cr_assert_eq(hwt_new_timeout(r->timer, schedule_and_rearm, c, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(r, HWT_MSEC(1)), 1);
    cr_assert_leq(c->most_pending, 1, "G3: %u pending of at most 1", (unsigned)c->most_pending);
}

static void end_chain(rig *r)
{
    hwt_stats s;

    cr_assert_eq(hwt_timer_stop(r->timer, NULL), 0);
    s = stats_of(r->timer);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    cr_assert_eq(hwt_timer_pending(r->timer), 0, "G3");
    rig_close(r);
}

WHEEL_TEST(rearm_limit, its_place_was_taken)
{
    chain c = {.schedules = true};
    rig r;

    run_chain(&r, &c, wheel);
    cr_assert_eq(c.schedule_result, 0);
    cr_assert(!c.rearmed);
    cr_assert(!c.rearmed_twice);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(3)), 0);
    end_chain(&r);
    cr_assert_eq(c.runs, 1);
}

WHEEL_TEST(rearm_limit, its_place_is_free)
{
    chain c = {0};
    rig r;

    run_chain(&r, &c, wheel);
    cr_assert(c.rearmed);
    cr_assert(c.rearmed_twice, "it has its place already");
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), -ENOBUFS);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(3)), 1);
    end_chain(&r);
    cr_assert_eq(c.runs, 2);
}

WHEEL_TEST(rearm_limit, cancelled_after_a_rearm)
{
    chain c = {.cancels = true};
    rig r;

    run_chain(&r, &c, wheel);
    cr_assert(c.rearmed);
    cr_assert(c.cancelled);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), 0, "G3: its place is free");
    end_chain(&r);
}

/* ---- the same on an executor that runs its jobs at once ---- */

static int run_at_once(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run(job);
    return 0;
}

Test(rearm_limit, on_an_executor)
{
    chain c = {.schedules = true};
    rig r;

    rig_prepare(&r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(1));
    r.config.max_pending = 1;
    r.config.execute = run_at_once;
    cr_assert_eq(rig_open(&r), 0);
    c.timer = r.timer;
    cr_assert_eq(hwt_new_timeout(r.timer, schedule_and_rearm, &c, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 1);
    cr_assert_eq(c.schedule_result, 0);
    cr_assert(!c.rearmed);
    cr_assert_leq(c.most_pending, 1, "G3");
    end_chain(&r);
}
