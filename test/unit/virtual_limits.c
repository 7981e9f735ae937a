/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual timer, continued: results of hwt_timer_advance, max_pending and
 * reserve, statistics. Split from unit/virtual.c by subject.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(virtual_limits, .init = test_arm);

/* ---- what advance says ---- */

Test(virtual_limits, advance_of_a_worker_driven_timer)
{
    hwt_timer *timer = worker_timer();

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_timer_advance(timer), -EINVAL);
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(hwt_timer_advance(timer), -EINVAL);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(virtual_limits, advance_of_an_idle_timer)
{
    unsigned threads = thread_count();
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(hwt_timer_start(r.timer), 0);
    cr_assert_eq(hwt_timer_start(r.timer), 0);
    cr_assert_eq(thread_count(), threads, "the caller drives it");
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    rig_close(&r);
}

typedef struct verdicts {
    hwt_unprocessed list;
    int advance;
    int stop;
    int destroy;
    unsigned runs;
} verdicts;

static void try_everything(hwt_timeout *timeout, void *arg)
{
    verdicts *said = arg;
    hwt_timer *timer = hwt_timeout_timer(timeout);

    said->runs++;
    said->advance = hwt_timer_advance(timer);
    said->stop = hwt_timer_stop(timer, &said->list);
    said->destroy = hwt_timer_destroy(timer);
}

/* Inside a task the driving thread is the worker: it cannot wait for itself (G8). */
WHEEL_TEST(virtual_limits, from_inside_a_task)
{
    verdicts said = {.list = {NULL, 42}};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, try_everything, &said, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(said.runs, 1);
    cr_assert_eq(said.advance, -EDEADLK);
    cr_assert_eq(said.stop, -EDEADLK);
    cr_assert(said.list.first == NULL && said.list.count == 42, "untouched");
    cr_assert_eq(said.destroy, -EDEADLK);
    cr_assert_not(hwt_timer_is_stopped(r.timer), "a refused stop stops nothing");
    cr_assert_eq(hwt_new_timeout(r.timer, try_everything, &said, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    rig_close(&r);
}

static int refuse_all(void *executor, void (*run)(void *), void *job)
{
    (void)run;
    (void)job;
    return ++*(int *)executor;
}

/* "And returns how many": neither run nor handed over. */
WHEEL_TEST(virtual_limits, what_the_executor_refuses_does_not_count)
{
    int refused = 0;
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(1));
    r.config.execute = refuse_all;
    r.config.executor = &refused;
    cr_assert_eq(rig_open(&r), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(refused, 3);
    cr_assert_eq(stats_of(r.timer).rejected, 3);
    rig_close(&r);
}

/* Does what is asked, and returns something else. */
static int run_and_refuse(void *executor, void (*run)(void *), void *job)
{
    run(job);
    return ++*(int *)executor;
}

/* G2, G3: what has run is not refused any more. */
WHEEL_TEST(virtual_limits, a_refusal_after_the_run_is_none)
{
    probe p = {0};
    int called = 0;
    hwt_spec spec;
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(1));
    r.config.execute = run_and_refuse;
    r.config.executor = &called;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, 0, NULL), 0);
    probe_spec(&spec, &p, 0);
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 2);
    for (unsigned i = 1; i <= 10; i++)
        cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 1);
    cr_assert_eq(p.runs, 12);
    cr_assert_eq(called, 12);
    cr_assert_eq(p.hooks, 0);
    cr_assert_eq(stats_of(r.timer).rejected, 0);
    cr_assert_eq(stats_of(r.timer).expired, 1);
    rig_close(&r);
}

static void cancel_itself(hwt_timeout *timeout, void *arg)
{
    ++*(int *)arg;
    cr_assert(hwt_timeout_cancel(timeout));
}

static int cancel_run_and_refuse(void *executor, void (*run)(void *), void *job)
{
    hwt_timeout_cancel(*(hwt_timeout **)executor);
    run(job);
    return -1;
}

/* G2, the same, if it has been cancelled: inside the run, or before, so that there was none. */
WHEEL_TEST(virtual_limits, a_refusal_after_a_run_that_was_cancelled_is_none)
{
    for (int before = 0; before < 2; before++) {
        hwt_timeout *timeout, *other[100];
        int called = 0, runs = 0;
        hwt_spec spec;
        rig r;

        rig_prepare(&r, wheel, HWT_SEC(1));
        r.config.execute = before ? cancel_run_and_refuse : run_and_refuse;
        r.config.executor = before ? (void *)&timeout : (void *)&called;
        cr_assert_eq(rig_open(&r), 0);
        hwt_spec_init(&spec);
        spec.task = cancel_itself;
        spec.arg = &runs;
        spec.period_ns = HWT_MSEC(1);
        cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
        cr_assert_eq(hwt_timer_advance(r.timer), 1);
        rig_advance_by(&r, HWT_MSEC(3));
        cr_assert_eq(runs, !before);
        cr_assert_eq(stats_of(r.timer).rejected, 0);
        cr_assert_eq(stats_of(r.timer).cancelled, 1);
        for (size_t i = 0; i < COUNT_OF(other); i++) { /* it is there, as long as its handle is */
            cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &other[i]), 0);
            cr_assert_neq(other[i], timeout);
        }
        cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
        hwt_timeout_unref(timeout);
        for (size_t i = 0; i < COUNT_OF(other); i++)
            hwt_timeout_unref(other[i]);
        rig_close(&r);
    }
}

typedef struct nested {
    rig *other;
    int advanced;
} nested;

static void advance_another(hwt_timeout *timeout, void *arg)
{
    nested *n = arg;

    (void)timeout;
    n->advanced = hwt_timer_advance(n->other->timer);
}

WHEEL_TEST(virtual_limits, a_task_may_advance_another_timer)
{
    rig outer, inner;
    nested n = {.other = &inner, .advanced = -1};
    probe p = {0};

    cr_assert_eq(rig_start(&outer, wheel, 0), 0);
    cr_assert_eq(rig_start(&inner, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(inner.timer, probe_task, &p, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(outer.timer, advance_another, &n, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(outer.timer), 1);
    cr_assert_eq(n.advanced, 1);
    cr_assert_eq(p.runs, 1);
    rig_close(&inner);
    rig_close(&outer);
}

static void *advance_in_thread(void *arg)
{
    rig *r = arg;

    return (void *)(intptr_t)hwt_timer_advance(r->timer);
}

WHEEL_TEST(virtual_limits, one_thread_at_a_time)
{
    gate g = {0};
    pthread_t thread;
    void *ran;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, gate_task, &g, 0, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_in_thread, &r), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timer_advance(r.timer), -EBUSY);
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, &ran), 0);
    cr_assert_eq((intptr_t)ran, 1);
    cr_assert_eq(hwt_timer_advance(r.timer), 0, "the next thread may");
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, after_stop)
{
    hwt_timeout *const untouched = (hwt_timeout *)&errno;
    hwt_timeout *timeout = untouched;
    hwt_spec spec;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_not(hwt_timer_is_stopped(r.timer));
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert(hwt_timer_is_stopped(r.timer));
    probe_spec(&spec, &p, 0);
    cr_expect_eq(hwt_timer_advance(r.timer), -ESHUTDOWN);
    cr_expect_eq(hwt_timer_start(r.timer), -ESHUTDOWN);
    cr_expect_eq(hwt_new_timeout(r.timer, probe_task, &p, 0, &timeout), -ESHUTDOWN);
    cr_expect_eq(hwt_new_timeout_at(r.timer, probe_task, &p, 0, &timeout), -ESHUTDOWN);
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -ESHUTDOWN);
    cr_expect_eq(timeout, untouched);
    cr_expect_eq(p.runs + p.hooks, 0);
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, stop_of_a_timer_never_started)
{
    hwt_unprocessed list = {.first = (hwt_timeout *)&errno, .count = 99};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 0);
    cr_assert_null(hwt_unprocessed_take(&list));
    rig_close(&r);
}

/* ---- max_pending and reserve ---- */

static int open_limited(rig *r, hwt_wheel_kind wheel, uint64_t max_pending)
{
    rig_prepare(r, wheel, HWT_SEC(1));
    r->config.max_pending = max_pending;
    return rig_open(r);
}

/* G3: a slot is free again the moment cancel returns true. */
WHEEL_TEST(virtual_limits, cancel_frees_a_slot_at_once)
{
    hwt_timeout *const untouched = (hwt_timeout *)&errno;
    hwt_timeout *a, *b, *c = untouched;
    rig r;

    cr_assert_eq(open_limited(&r, wheel, 2), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &a), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &b), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &c), -ENOBUFS);
    cr_assert_eq(c, untouched);
    cr_assert_eq(hwt_timer_pending(r.timer), 2);
    cr_assert_eq(stats_of(r.timer).rejected, 1);
    cr_assert_eq(stats_of(r.timer).scheduled, 2);
    for (unsigned round = 0; round < 10000; round++) {
        cr_assert(hwt_timeout_cancel(a));
        hwt_timeout_unref(a);
        cr_assert_eq(hwt_timer_pending(r.timer), 1);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &a), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), NULL), -ENOBUFS);
    }
    hwt_timeout_unref(a);
    hwt_timeout_unref(b);
    rig_close(&r);
}

/* The same when the wheel already holds what is cancelled. */
WHEEL_TEST(virtual_limits, cancel_in_the_wheel_frees_a_slot_at_once)
{
    hwt_timeout *a;
    rig r;

    cr_assert_eq(open_limited(&r, wheel, 1), 0);
    for (unsigned round = 0; round < 2000; round++) {
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(3600), &a), 0);
        cr_assert_eq(rig_advance_by(&r, TICK), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), -ENOBUFS);
        cr_assert(hwt_timeout_cancel(a));
        hwt_timeout_unref(a);
    }
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), 0);
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, expiry_frees_a_slot)
{
    probe p = {0};
    rig r;

    cr_assert_eq(open_limited(&r, wheel, 1), 0);
    for (unsigned round = 1; round <= 100; round++) {
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, NULL), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, NULL), -ENOBUFS);
        cr_assert_eq(rig_advance_by(&r, TICK), 1);
    }
    cr_assert_eq(p.runs, 100);
    cr_assert_eq(stats_of(r.timer).rejected, 100);
    rig_close(&r);
}

typedef struct successor {
    int result;
    uint64_t pending_inside;
    probe next;
} successor;

static void schedule_successor(hwt_timeout *timeout, void *arg)
{
    successor *s = arg;
    hwt_timer *timer = hwt_timeout_timer(timeout);

    s->pending_inside = hwt_timer_pending(timer);
    s->result = hwt_new_timeout(timer, probe_task, &s->next, TICK, NULL);
}

/* The slot of a one-shot is free just before its task is called. */
WHEEL_TEST(virtual_limits, a_task_may_use_its_own_slot)
{
    successor s = {.result = 1, .pending_inside = 99};
    rig r;

    cr_assert_eq(open_limited(&r, wheel, 1), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, schedule_successor, &s, TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(s.pending_inside, 0);
    cr_assert_eq(s.result, 0);
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(s.next.runs, 1);
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, a_rejected_schedule_runs_no_hook)
{
    hwt_spec spec;
    probe p = {0}, q = {0};
    rig r;

    cr_assert_eq(open_limited(&r, wheel, 1), 0);
    probe_spec(&spec, &p, TICK);
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    spec.arg = &q;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), -ENOBUFS);
    cr_assert_eq(q.hooks, 0, "G10: it was never accepted");
    cr_assert_eq(stats_of(r.timer).rejected, 1);
    cr_assert_eq(stats_of(r.timer).cancelled, 0);
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, more_than_the_reserve_is_fine)
{
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.reserve = 10;
    cr_assert_eq(rig_open(&r), 0);
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, i * TICK, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1000);
    rig_close(&r);
}

/* ---- statistics ---- */

WHEEL_TEST(virtual_limits, every_end_is_counted)
{
    hwt_timeout *t[30];
    hwt_stats s;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    for (unsigned i = 0; i < 30; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, i * HWT_SEC(1), &t[i]), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(9)), 10);
    for (unsigned i = 10; i < 15; i++)
        cr_assert(hwt_timeout_cancel(t[i]));
    s = stats_of(r.timer);
    cr_assert_eq(s.scheduled, 30);
    cr_assert_eq(s.expired, 10);
    cr_assert_eq(s.runs, 10);
    cr_assert_eq(s.cancelled, 5);
    cr_assert_eq(s.pending, 15);
    cr_assert_eq(hwt_timer_pending(r.timer), 15);
    cr_assert_eq(s.unprocessed + s.rejected, 0);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    s = stats_of(r.timer);
    cr_assert_eq(s.unprocessed, 15);
    cr_assert_eq(s.pending, 0);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    for (unsigned i = 0; i < 30; i++)
        hwt_timeout_unref(t[i]);
    rig_close(&r);
}

WHEEL_TEST(virtual_limits, withdrawn_are_those_the_worker_never_saw)
{
    hwt_timeout *fresh, *seen;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(30), &fresh), 0);
    cr_assert(hwt_timeout_cancel(fresh));
    cr_assert_eq(stats_of(r.timer).withdrawn, 1);
    cr_assert_eq(stats_of(r.timer).cancelled, 1);
    hwt_timeout_unref(fresh);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(30), &seen), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(31));
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1, "which takes in all that is there");
    cr_assert(hwt_timeout_cancel(seen));
    cr_assert_eq(stats_of(r.timer).cancelled, 2);
    cr_assert_eq(stats_of(r.timer).withdrawn, 1);
    hwt_timeout_unref(seen);
    rig_close(&r);
}

static uint64_t sum_of_lateness(const hwt_stats *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < COUNT_OF(s->late_log2); i++)
        sum += s->late_log2[i];
    return sum;
}

WHEEL_TEST(virtual_limits, lateness_by_powers_of_two)
{
    static const struct {
        uint64_t late;
        unsigned bin;
    } cases[] = {{0, 0},
                 {1, 0},
                 {2, 1},
                 {3, 1},
                 {4, 2},
                 {1023, 9},
                 {1024, 10},
                 {HWT_MSEC(1), 19},
                 {UINT64_C(1) << 40, 40},
                 {(UINT64_C(1) << 41) - 1, 40}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_stats s;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
        cr_assert_eq(rig_advance_by(&r, TICK + cases[i].late), 1);
        s = stats_of(r.timer);
        cr_expect_eq(s.late_ns_max, cases[i].late);
        cr_expect_eq(s.late_log2[cases[i].bin], 1, "late by %llu",
                     (unsigned long long)cases[i].late);
        cr_expect_eq(sum_of_lateness(&s), 1);
        rig_close(&r);
    }
}

WHEEL_TEST(virtual_limits, stats_survive_stop)
{
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(stats_of(r.timer).expired, 1);
    cr_assert_eq(stats_of(r.timer).struct_size, sizeof(hwt_stats));
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    rig_close(&r);
}
