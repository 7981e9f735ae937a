/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An executor that only shelves its jobs: the test decides when each runs, or
 * that it never does. What may happen to a due timeout that waits at an executor,
 * under the virtual clock (G2, G3, G8, G10).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(shelf, .init = test_arm);

typedef struct shelf {
    void (*run[64])(void *job);
    void *job[64];
    unsigned count;
    int result; /* what execute says */
} shelf;

static int shelve(void *executor, void (*run)(void *job), void *job)
{
    shelf *s = executor;

    if (s->result == 0) {
        s->run[s->count] = run;
        s->job[s->count++] = job;
    }
    return s->result;
}

static void run_shelved(shelf *s)
{
    for (unsigned i = 0; i < s->count; i++)
        s->run[i](s->job[i]);
    s->count = 0;
}

static void open_shelf(rig *r, shelf *s, hwt_wheel_kind wheel)
{
    memset(s, 0, sizeof(*s));
    rig_prepare(r, wheel, HWT_SEC(1));
    r->config.execute = shelve;
    r->config.executor = s;
    cr_assert_eq(rig_open(r), 0);
}

/* Schedules one with a hook, lets it fall due and waits at the executor. */
static hwt_timeout *shelve_one(rig *r, shelf *s, probe *p, uint64_t period_ns)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    probe_spec(&spec, p, TICK);
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(r->timer, &spec, &timeout), 0);
    cr_assert_geq(rig_advance_by(r, TICK), 0);
    cr_assert_eq(s->count, 1);
    return timeout;
}

WHEEL_TEST(shelf, queued_is_pending_until_it_runs)
{
    hwt_timeout *timeout;
    probe p = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    timeout = shelve_one(&r, &s, &p, 0);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_PENDING);
    cr_assert_not(hwt_timeout_is_expired(timeout));
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert_eq(p.runs, 0);
    run_shelved(&s);
    cr_assert_eq(p.runs, 1);
    cr_assert_eq(p.run_state, HWT_RUNNING);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    cr_assert_eq(stats_of(r.timer).expired, 1);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    cr_assert_eq(s.count, 0, "handed over once");
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

static void rearm_in_a_minute(hwt_timeout *timeout, void *arg)
{
    *(bool *)arg = hwt_timeout_reschedule(timeout, HWT_SEC(60));
}

/* hwt_timer_advance has nothing to do with it until it comes back. */
WHEEL_TEST(shelf, queued_is_no_deadline)
{
    bool rearmed = false;
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    cr_assert_eq(hwt_new_timeout(r.timer, rearm_in_a_minute, &rearmed, TICK, NULL), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), r.clock.now + TICK);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), r.clock.now + HWT_SEC(3600));
    run_shelved(&s);
    cr_assert(rearmed);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), r.clock.now + HWT_SEC(60));
    rig_close(&r);
}

WHEEL_TEST(shelf, queued_can_be_cancelled)
{
    for (int sync = 0; sync < 2; sync++) {
        hwt_timeout *timeout;
        probe p = {0};
        shelf s;
        rig r;

        open_shelf(&r, &s, wheel);
        timeout = shelve_one(&r, &s, &p, 0);
        if (sync)
            cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
        else
            cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(p.hooks, 1, "G10");
        cr_assert_eq(hwt_timer_pending(r.timer), 0, "G3: free at once");
        run_shelved(&s);
        cr_assert_eq(p.runs, 0, "G2");
        cr_assert_eq(p.hooks, 1);
        cr_assert_eq(stats_of(r.timer).cancelled, 1);
        cr_assert_eq(stats_of(r.timer).rejected, 0);
        hwt_timeout_unref(timeout);
        rig_close(&r);
        cr_assert_eq(p.runs, 0);
    }
}

WHEEL_TEST(shelf, queued_cannot_be_moved)
{
    hwt_timeout *timeout;
    probe p = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    timeout = shelve_one(&r, &s, &p, 0);
    cr_assert_not(hwt_timeout_reschedule(timeout, HWT_SEC(1)));
    cr_assert_not(hwt_timeout_reschedule_at(timeout, 0));
    run_shelved(&s);
    cr_assert_eq(p.runs, 1);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(5)), 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* Stop with a job that waits: handed back now; the job, whenever it comes, does nothing. */
WHEEL_TEST(shelf, stop_hands_back_the_queued)
{
    for (int periodic = 0; periodic < 2; periodic++) {
        hwt_unprocessed list;
        hwt_timeout *timeout;
        probe p = {0};
        shelf s;
        rig r;

        open_shelf(&r, &s, wheel);
        timeout = shelve_one(&r, &s, &p, periodic ? TICK : 0);
        cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
        cr_assert_eq(list.count, 1);
        cr_assert_eq(hwt_unprocessed_take(&list), timeout);
        cr_assert(hwt_timeout_is_cancelled(timeout));
        run_shelved(&s);
        cr_assert_eq(p.runs + p.hooks, 0, "G2, G10");
        cr_assert_eq(stats_of(r.timer).unprocessed, 1, "G3");
        cr_assert_eq(stats_of(r.timer).pending, 0);
        hwt_timeout_unref(timeout);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(shelf, stop_without_a_list_runs_the_hook_of_the_queued)
{
    probe p = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    hwt_timeout_unref(shelve_one(&r, &s, &p, 0));
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(p.hooks, 1);
    run_shelved(&s);
    rig_close(&r);
    cr_assert_eq(p.runs, 0);
    cr_assert_eq(p.hooks, 1);
}

/* A job that is never run keeps nothing from ending: destroy does not wait for it. */
WHEEL_TEST(shelf, a_job_that_is_never_run)
{
    hwt_timeout *timeout;
    probe p = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    timeout = shelve_one(&r, &s, &p, 0);
    rig_close(&r);
    cr_assert_eq(p.hooks, 1);
    cr_assert(hwt_timeout_is_cancelled(timeout), "G9");
    hwt_timeout_unref(timeout);
    run_shelved(&s); /* after all: it holds a reference, which would be reported as leaked */
}

/* One that is run after the timer is gone finds that it has nothing to do. */
WHEEL_TEST(shelf, a_job_that_is_run_after_destroy)
{
    hwt_timeout *timeout;
    probe p = {0}, q = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    hwt_timeout_unref(shelve_one(&r, &s, &p, 0));
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &q, TICK, &timeout), 0);
    cr_assert_geq(rig_advance_by(&r, TICK), 0);
    cr_assert_eq(s.count, 2);
    cr_assert(hwt_timeout_cancel(timeout));
    rig_close(&r);
    run_shelved(&s);
    cr_assert_eq(p.runs + q.runs, 0);
    cr_assert_eq(p.hooks, 1);
    hwt_timeout_unref(timeout);
}

/* The next run of a periodic one is not handed over while this one waits (G14). */
WHEEL_TEST(shelf, a_periodic_one_is_queued_once)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};

    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        hwt_timeout *timeout;
        hwt_spec spec;
        probe p = {0};
        shelf s;
        rig r;

        open_shelf(&r, &s, wheel);
        probe_spec(&spec, &p, TICK);
        spec.period_ns = TICK;
        spec.period_mode = modes[m];
        cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
        for (unsigned i = 0; i < 10; i++)
            cr_assert_geq(rig_advance_by(&r, TICK), 0);
        cr_assert_eq(s.count, 1, "G14");
        run_shelved(&s);
        cr_assert_eq(p.runs, 1);
        for (unsigned i = 0; i < 100 && p.runs < 5; i++) {
            cr_assert_geq(rig_advance_by(&r, TICK), 0);
            cr_assert_leq(s.count, 1);
            run_shelved(&s);
        }
        cr_assert_eq(p.runs, 5);
        cr_assert_eq(p.early, 0, "G1");
        cr_assert(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

/* Refused at its third run, a periodic one ends there, with its hook. */
WHEEL_TEST(shelf, a_periodic_one_that_is_refused)
{
    hwt_timeout *timeout;
    probe p = {0};
    shelf s;
    rig r;

    open_shelf(&r, &s, wheel);
    timeout = shelve_one(&r, &s, &p, TICK);
    run_shelved(&s);
    cr_assert_geq(rig_advance_by(&r, TICK), 0);
    run_shelved(&s);
    cr_assert_eq(p.runs, 2);
    s.result = -EBUSY;
    cr_assert_geq(rig_advance_by(&r, TICK), 0);
    cr_assert_eq(p.hooks, 1);
    cr_assert(hwt_timeout_is_cancelled(timeout));
    cr_assert_eq(stats_of(r.timer).rejected, 1);
    cr_assert_eq(stats_of(r.timer).cancelled, 1);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    s.result = 0;
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    cr_assert_eq(s.count, 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* ---- an executor that runs at once, on the thread that asks ---- */

static int run_at_once(void *executor, void (*run)(void *job), void *job)
{
    ++*(unsigned *)executor;
    run(job);
    return 0;
}

WHEEL_TEST(shelf, run_at_once_by_the_executor)
{
    unsigned asked = 0;
    hwt_timeout *timeout;
    hwt_spec spec;
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.execute = run_at_once;
    r.config.executor = &asked;
    cr_assert_eq(rig_open(&r), 0);
    probe_spec(&spec, &p, TICK);
    spec.period_ns = TICK;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    for (unsigned i = 1; i <= 10; i++) {
        cr_assert_geq(rig_advance_by(&r, TICK), 0);
        cr_assert_eq(p.runs, i);
        cr_assert_eq(asked, i);
    }
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* ---- the number of a refusal is the executor's own ---- */

WHEEL_TEST(shelf, any_result_but_0_is_a_refusal)
{
    static const int results[] = {-EAGAIN, -1, -4242, 1, 4242};

    for (size_t i = 0; i < COUNT_OF(results); i++) {
        hwt_timeout *timeout;
        hwt_spec spec;
        probe p = {0};
        shelf s;
        rig r;

        open_shelf(&r, &s, wheel);
        s.result = results[i];
        probe_spec(&spec, &p, 0);
        cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
        cr_assert_geq(hwt_timer_advance(r.timer), 0);
        cr_expect_eq(p.hooks, 1, "execute said %d", results[i]);
        cr_expect(hwt_timeout_is_cancelled(timeout));
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}
