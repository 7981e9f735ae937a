/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G10: the cancelled hook runs exactly once for a timeout that ends without its
 * task having run and is not handed back by stop, whichever way that came about.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(hooks, .init = test_arm);

static hwt_timeout *schedule_probe(rig *r, probe *p, uint64_t delay_ns, uint64_t period_ns)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    probe_spec(&spec, p, delay_ns);
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(r->timer, &spec, &timeout), 0);
    return timeout;
}

WHEEL_TEST(hooks, not_when_it_ran)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    timeout = schedule_probe(&r, &p, TICK, 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_not(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    rig_close(&r);
    cr_assert_eq(p.runs, 1);
    cr_assert_eq(p.hooks, 0);
}

WHEEL_TEST(hooks, in_the_thread_that_cancelled)
{
    for (int way = 0; way < 4; way++) {
        hwt_timeout *timeout;
        probe p = {.hook_state = -1};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        timeout = schedule_probe(&r, &p, HWT_SEC(1), 0);
        if (way & 1) /* the wheel has it */
            cr_assert_eq(rig_advance_by(&r, HWT_MSEC(999)), 0);
        if (way & 2)
            cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
        else
            cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(p.hooks, 1);
        cr_assert(pthread_equal(p.hook_thread, pthread_self()));
        cr_assert_eq(p.hook_state, HWT_CANCELLED);
        cr_assert_not(hwt_timeout_cancel(timeout));
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(5)), 0);
        hwt_timeout_unref(timeout);
        rig_close(&r);
        cr_assert_eq(p.hooks, 1);
        cr_assert_eq(p.runs, 0);
    }
}

WHEEL_TEST(hooks, in_stop_without_a_list)
{
    probe p[100] = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++)
        hwt_timeout_unref(schedule_probe(&r, &p[i], i * HWT_SEC(7), i % 3 ? 0 : HWT_SEC(1)));
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert_eq(p[i].hooks, 1);
        cr_assert_eq(p[i].hook_state, HWT_CANCELLED);
    }
    rig_close(&r);
    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(p[i].hooks, 1, "again in destroy");
}

WHEEL_TEST(hooks, in_destroy)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    timeout = schedule_probe(&r, &p, TICK, 0);
    rig_close(&r);
    cr_assert_eq(p.hooks, 1);
    cr_assert(hwt_timeout_is_cancelled(timeout));
    hwt_timeout_unref(timeout);
    cr_assert_eq(p.hooks, 1);
}

WHEEL_TEST(hooks, not_when_handed_back)
{
    hwt_unprocessed list;
    hwt_timeout *timeout;
    probe p = {0}, periodic = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    hwt_timeout_unref(schedule_probe(&r, &p, TICK, 0));
    hwt_timeout_unref(schedule_probe(&r, &periodic, TICK, TICK));
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 2);
    while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
        cr_assert_not(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
    }
    rig_close(&r);
    cr_assert_eq(p.hooks + periodic.hooks, 0);
}

static int refuse(void *executor, void (*run)(void *job), void *job)
{
    (void)run;
    (void)job;
    ++*(unsigned *)executor;
    return -EAGAIN;
}

/* Refused by the executor: cancelled and rejected, the hook where it was refused. */
WHEEL_TEST(hooks, when_the_executor_refuses)
{
    unsigned asked = 0;
    hwt_timeout *timeout;
    hwt_stats s;
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.execute = refuse;
    r.config.executor = &asked;
    cr_assert_eq(rig_open(&r), 0);
    timeout = schedule_probe(&r, &p, TICK, 0);
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert_geq(rig_advance_by(&r, TICK), 0);
    cr_assert_eq(asked, 1);
    cr_assert_eq(p.runs, 0);
    cr_assert_eq(p.hooks, 1);
    cr_assert(hwt_timeout_is_cancelled(timeout));
    cr_assert_not(hwt_timeout_cancel(timeout), "G2");
    s = stats_of(r.timer);
    cr_assert_eq(s.cancelled, 1);
    cr_assert_eq(s.rejected, 1);
    cr_assert_eq(s.pending + s.expired + s.runs, 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
    cr_assert_eq(p.hooks, 1);
}

/* ---- what a hook may do ---- */

typedef struct helper {
    hwt_timer *timer;
    hwt_timeout *own;     /* dropped by the hook */
    hwt_timeout *sibling; /* cancelled by the hook */
    int scheduled;
    unsigned hooks;
    probe next;
} helper;

static void busy_hook(hwt_timeout *timeout, void *arg)
{
    helper *h = arg;

    (void)timeout;
    h->hooks++;
    h->scheduled = hwt_new_timeout(h->timer, probe_task, &h->next, 0, NULL);
    if (h->sibling)
        hwt_timeout_cancel(h->sibling);
    hwt_timeout_unref(h->own);
    h->own = NULL;
}

static void helper_spec(hwt_spec *spec, helper *h, rig *r)
{
    hwt_spec_init(spec);
    spec->task = noop_task;
    spec->cancelled = busy_hook;
    spec->arg = h;
    spec->delay_ns = HWT_SEC(1);
    h->timer = r->timer;
    h->scheduled = 1;
}

typedef struct last_handle {
    hwt_timer *timer;
    hwt_timeout *own, *other;
    bool was_itself;
} last_handle;

/* The next one that is scheduled takes the block of the one before, if that is free. */
static void drop_the_last(hwt_timeout *timeout, void *arg)
{
    last_handle *l = arg;

    hwt_timeout_unref(l->own);
    cr_assert_eq(hwt_new_timeout(l->timer, noop_task, &l->other, HWT_SEC(9), &l->other), 0);
    l->was_itself =
        hwt_timeout_arg(timeout) == l && hwt_timeout_is_cancelled(timeout) && timeout != l->other;
}

/* G9: it may drop the very handle that is cancelled; the timeout is valid until it returns. */
WHEEL_TEST(hooks, may_drop_the_handle_that_is_cancelled)
{
    for (int way = 0; way < 4; way++) {
        last_handle l = {0};
        hwt_spec spec;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        l.timer = r.timer;
        hwt_spec_init(&spec);
        spec.task = noop_task;
        spec.cancelled = drop_the_last;
        spec.arg = &l;
        spec.delay_ns = HWT_SEC(3);
        cr_assert_eq(hwt_schedule(r.timer, &spec, &l.own), 0);
        if (way & 1) /* the wheel has it */
            hwt_timer_next_deadline(r.timer);
        if (way & 2)
            cr_assert_eq(hwt_timeout_cancel_sync(l.own), 1);
        else
            cr_assert(hwt_timeout_cancel(l.own));
        cr_assert(l.was_itself);
        cr_assert(hwt_timeout_cancel(l.other));
        hwt_timeout_unref(l.other);
        rig_close(&r);
    }
}

/* It runs under no lock: it may schedule, cancel (which runs another hook) and drop. */
WHEEL_TEST(hooks, may_schedule_cancel_and_drop)
{
    probe sibling = {0};
    helper h = {0};
    hwt_timeout *extra;
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    helper_spec(&spec, &h, &r);
    cr_assert_eq(hwt_schedule(r.timer, &spec, &h.own), 0);
    h.sibling = schedule_probe(&r, &sibling, HWT_SEC(2), 0);
    extra = hwt_timeout_ref(h.own);
    cr_assert(hwt_timeout_cancel(extra));
    cr_assert_eq(h.hooks, 1);
    cr_assert_eq(h.scheduled, 0);
    cr_assert_null(h.own);
    cr_assert_eq(sibling.hooks, 1);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(h.next.runs, 1);
    hwt_timeout_unref(extra);
    hwt_timeout_unref(h.sibling);
    rig_close(&r);
}

/* In stop the timer is closed already; a hook that tries is told so, and nothing hangs. */
WHEEL_TEST(hooks, in_stop_cannot_schedule_any_more)
{
    probe sibling = {0};
    helper h = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    helper_spec(&spec, &h, &r);
    cr_assert_eq(hwt_schedule(r.timer, &spec, &h.own), 0);
    h.sibling = schedule_probe(&r, &sibling, HWT_SEC(2), 0);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(h.hooks, 1);
    cr_assert_eq(h.scheduled, -ESHUTDOWN);
    cr_assert_eq(sibling.hooks, 1, "G10: once, by whichever of the two");
    hwt_timeout_unref(h.sibling);
    rig_close(&r);
}

/* ---- cancelled while its task is running ---- */

typedef struct running {
    probe hook;
    uint64_t again_ns; /* re-arms by this before it is cancelled; 0: does not */
    bool rearmed;
    bool cancelled;
    bool rearmed_after; /* G2: a re-arm after the cancel must fail */
    unsigned hooks_inside;
    unsigned runs;
} running;

static void cancel_while_running(hwt_timeout *timeout, void *arg)
{
    running *s = arg;

    s->runs++;
    if (s->again_ns > 0)
        s->rearmed = hwt_timeout_reschedule(timeout, s->again_ns);
    s->cancelled = hwt_timeout_cancel(timeout);
    s->rearmed_after = hwt_timeout_reschedule(timeout, TICK);
    s->hooks_inside = s->hook.hooks;
}

static void running_hook(hwt_timeout *timeout, void *arg)
{
    probe_hook(timeout, &((running *)arg)->hook);
}

static hwt_timeout *schedule_running(rig *r, running *s, uint64_t period_ns)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = cancel_while_running;
    spec.cancelled = running_hook;
    spec.arg = s;
    spec.delay_ns = TICK;
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(r->timer, &spec, &timeout), 0);
    return timeout;
}

static void expect_hook_after_the_task(rig *r, running *s, hwt_timeout *timeout)
{
    cr_assert_eq(rig_advance_by(r, TICK), 1);
    cr_assert(s->cancelled);
    cr_assert_not(s->rearmed_after, "a re-arm after cancel");
    cr_assert_eq(s->hooks_inside, 0, "the hook waits for the task to return");
    cr_assert_eq(s->hook.hooks, 1);
    cr_assert(pthread_equal(s->hook.hook_thread, pthread_self()));
    cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
    cr_assert_eq(hwt_timer_pending(r->timer), 0);
    cr_assert_eq(rig_advance_by(r, HWT_SEC(100)), 0);
    cr_assert_eq(s->runs, 1);
    hwt_timeout_unref(timeout);
}

WHEEL_TEST(hooks, periodic_cancelled_inside_its_task)
{
    running s = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    expect_hook_after_the_task(&r, &s, schedule_running(&r, &s, TICK));
    cr_assert_eq(stats_of(r.timer).cancelled, 1);
    cr_assert_eq(stats_of(r.timer).expired, 0);
    rig_close(&r);
    cr_assert_eq(s.hook.hooks, 1);
}

WHEEL_TEST(hooks, rearmed_and_cancelled_inside_its_task)
{
    running s = {.again_ns = HWT_SEC(1)};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    expect_hook_after_the_task(&r, &s, schedule_running(&r, &s, 0));
    cr_assert(s.rearmed);
    rig_close(&r);
    cr_assert_eq(s.hook.hooks, 1);
}

/* A one-shot's own last run: cancel is false, it ended by running, no hook; no re-arm either. */
WHEEL_TEST(hooks, one_shot_cancelled_inside_its_task)
{
    running s = {0};
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    timeout = schedule_running(&r, &s, 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_not(s.cancelled);
    cr_assert_not(s.rearmed_after, "no run starts after a cancel returned, whatever it said");
    cr_assert_eq(s.hook.hooks, 0);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(100)), 0);
    cr_assert_eq(s.runs, 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
    cr_assert_eq(s.hook.hooks, 0);
}

/* A periodic one that has run before still ends by cancel: its hook runs, once. */
WHEEL_TEST(hooks, periodic_cancelled_between_runs)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    timeout = schedule_probe(&r, &p, TICK, TICK);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(p.hooks, 1);
    cr_assert_eq(p.runs, 2);
    hwt_timeout_unref(timeout);
    rig_close(&r);
    cr_assert_eq(p.hooks, 1);
}

WHEEL_TEST(hooks, null_hook_is_fine_in_every_way_of_ending)
{
    unsigned asked = 0;
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, &timeout), 0);
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    rig_close(&r);
    rig_prepare(&r, wheel, 0);
    r.config.execute = refuse;
    r.config.executor = &asked;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
    cr_assert_geq(rig_advance_by(&r, TICK), 0);
    cr_assert_eq(asked, 1);
    cr_assert_eq(stats_of(r.timer).rejected, 1);
    rig_close(&r);
}
