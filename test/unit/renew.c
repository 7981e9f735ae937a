/* SPDX-License-Identifier: BSD-2-Clause */
/* hwt_timeout_renew, since 1.1: what has ended is scheduled anew; the reference moves along. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(renew, .init = test_arm);

WHEEL_TEST(renew, after_a_run)
{
    hwt_timeout *timeout = NULL;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, &timeout), 0);
    for (unsigned i = 1; i <= 100; i++) {
        cr_assert_eq(rig_advance_by(&r, TICK), 1);
        cr_assert_eq(p.runs, i);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
        cr_assert_eq(hwt_timeout_renew(&timeout, NULL, TICK), 0);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_PENDING);
        cr_assert_eq(hwt_timeout_deadline(timeout), (i + 1) * TICK);
        cr_assert_eq(hwt_timeout_task(timeout), probe_task);
        cr_assert_eq(hwt_timeout_arg(timeout), &p);
        cr_assert_eq(hwt_timeout_timer(timeout), r.timer);
        cr_assert_eq(hwt_timer_pending(r.timer), 1);
    }
    hwt_timeout_unref(timeout);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(stats_of(r.timer).scheduled, 101);
    rig_close(&r);
}

WHEEL_TEST(renew, after_a_cancellation)
{
    for (int met = 0; met < 2; met++) {
        hwt_timeout *timeout = NULL;
        probe p = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(1), &timeout), 0);
        if (met)
            hwt_timer_next_deadline(r.timer);
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(hwt_timeout_renew(&timeout, NULL, HWT_SEC(2)), 0);
        cr_assert_eq(rig_advance_to(&r, HWT_SEC(1)), 0);
        cr_assert_eq(rig_advance_to(&r, HWT_SEC(2)), 1);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(renew, keeps_hook_and_period)
{
    hwt_timeout *timeout = NULL;
    probe p = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &p, TICK);
    spec.period_ns = 2 * TICK;
    spec.period_mode = HWT_FIXED_RATE_SKIP;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    for (unsigned i = 1; i <= 3; i++) {
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(p.hooks, i);
        cr_assert_eq(hwt_timeout_renew(&timeout, NULL, TICK), 0);
    }
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(rig_advance_by(&r, 5 * TICK), 1, "of 2, 4 and 5 only the phase is kept");
    cr_assert_eq(hwt_timeout_deadline(timeout), 7 * TICK);
    hwt_timeout_unref(timeout);
    rig_close(&r);
    cr_assert_eq(p.hooks, 4);
}

/* What is handed back goes on elsewhere, as in a program that replaces its timer. */
WHEEL_TEST(renew, on_a_successor)
{
    hwt_unprocessed list;
    hwt_timeout *timeout;
    probe p[20] = {0};
    rig old, next;

    cr_assert_eq(rig_start(&old, wheel, HWT_SEC(5)), 0);
    cr_assert_eq(rig_start(&next, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        hwt_spec spec;

        probe_spec(&spec, &p[i], i * TICK);
        spec.period_ns = i % 2 ? TICK : 0;
        cr_assert_eq(hwt_schedule(old.timer, &spec, NULL), 0);
    }
    cr_assert_eq(hwt_timer_stop(old.timer, &list), 0);
    cr_assert_eq(list.count, COUNT_OF(p));
    while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
        cr_assert_eq(hwt_timeout_renew(&timeout, NULL, 0), -ESHUTDOWN);
        cr_assert_eq(hwt_timeout_renew(&timeout, next.timer, TICK), 0);
        cr_assert_eq(hwt_timeout_timer(timeout), next.timer);
        hwt_timeout_unref(timeout);
    }
    rig_close(&old);
    cr_assert_eq(rig_advance_by(&next, TICK), 20);
    cr_assert_eq(hwt_timer_pending(next.timer), 10);
    rig_close(&next);
}

WHEEL_TEST(renew, the_old_handle)
{
    hwt_timeout *timeout = NULL, *other;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, &timeout), 0);
    other = hwt_timeout_ref(timeout);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(hwt_timeout_renew(&timeout, NULL, TICK), 0);
    cr_assert(other == timeout || hwt_timeout_state(other) == HWT_EXPIRED);
    cr_assert(other == timeout || !hwt_timeout_cancel(other));
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    hwt_timeout_unref(other);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

static hwt_timeout *handle;
static atomic_uint other_handle;

static void expect_handle(hwt_timeout *timeout, void *arg)
{
    if (timeout != *(hwt_timeout *volatile *)&handle)
        atomic_fetch_add(&other_handle, 1);
    count_task(timeout, arg);
}

Test(renew, before_the_task_can_run)
{
    hwt_timer *timer = worker_timer();
    atomic_uint runs = 0;

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, expect_handle, &runs, 0, &handle), 0);
    for (unsigned i = 1; i < 500; i++) {
        cr_assert(wait_state(handle, HWT_EXPIRED));
        cr_assert_eq(hwt_timeout_renew(&handle, NULL, 0), 0, "however soon after");
    }
    cr_assert(wait_count(&runs, 500));
    cr_assert_eq(other_handle, 0);
    hwt_timeout_unref(handle);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- with a release (G16) ---- */

typedef struct cargo {
    probe probe;
    atomic_uint releases;
} cargo;

static void release_cargo(void *arg)
{
    atomic_fetch_add(&((cargo *)arg)->releases, 1);
}

WHEEL_TEST(renew, with_a_release)
{
    hwt_timeout *timeout = NULL;
    cargo c = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &c.probe, TICK);
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    for (int i = 0; i < 10; i++) {
        if (i % 2)
            cr_assert(hwt_timeout_cancel(timeout));
        else
            cr_assert_eq(rig_advance_by(&r, TICK), 1);
        cr_assert_eq(hwt_timeout_renew(&timeout, NULL, TICK), 0);
        cr_assert_eq(c.releases, 0);
    }
    hwt_timeout_unref(timeout);
    cr_assert_eq(c.releases, 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(c.releases, 1);
    rig_close(&r);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(c.probe.runs, 6);
    cr_assert_eq(c.probe.hooks, 5);
}

/* ---- errors ---- */

WHEEL_TEST(renew, not_before_its_end)
{
    hwt_timeout *timeout = NULL, *same;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, &timeout), 0);
    same = timeout;
    cr_assert_eq(hwt_timeout_renew(&timeout, NULL, 5 * TICK), -EBUSY);
    cr_assert_eq(timeout, same);
    cr_assert_eq(hwt_timeout_deadline(timeout), TICK);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

static void *move_and_renew(void *arg)
{
    hwt_timeout *timeout = arg;

    cr_expect_not(hwt_timeout_reschedule(timeout, 0));
    cr_expect_eq(hwt_timeout_renew(&timeout, NULL, 0), -EBUSY);
    cr_expect_eq(timeout, arg);
    return arg;
}

static void let_another_thread_try(hwt_timeout *timeout, void *arg)
{
    pthread_t thread;

    (*(int *)arg)++;
    cr_assert_eq(pthread_create(&thread, NULL, move_and_renew, timeout), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

/* Neither of the two is for what runs for the last time. */
WHEEL_TEST(renew, while_its_last_run_is_on)
{
    hwt_timeout *timeout = NULL;
    int runs = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, let_another_thread_try, &runs, TICK, &timeout), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(rig_advance_by(&r, TICK), 0);
    cr_assert_eq(runs, 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

static pthread_t renewing;

static void *await_and_renew(void *arg)
{
    hwt_timeout *timeout = arg;

    cr_expect_eq(hwt_timeout_cancel_sync(timeout), 0, "too late, and over now");
    cr_expect_eq(hwt_timeout_renew(&timeout, NULL, TICK), 0);
    return timeout;
}

static void begin_to_renew(hwt_timeout *timeout, void *arg)
{
    if ((*(int *)arg)++ == 0)
        cr_assert_eq(pthread_create(&renewing, NULL, await_and_renew, timeout), 0);
}

/* He waits for the last run, and renews then. */
WHEEL_TEST(renew, once_its_last_run_is_over)
{
    hwt_timeout *timeout = NULL;
    void *renewed;
    int runs = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, begin_to_renew, &runs, TICK, &timeout), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(pthread_join(renewing, &renewed), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(runs, 2);
    hwt_timeout_unref(renewed);
    rig_close(&r);
}

static void *cancel_renew_and_wait(void *arg)
{
    hwt_timeout *timeout = hwt_timeout_ref(arg);

    cr_expect(hwt_timeout_cancel(timeout));
    cr_expect_eq(hwt_timeout_renew(&timeout, NULL, 5 * TICK), 0);
    cr_expect_eq(hwt_timeout_cancel_sync(timeout), 1);
    hwt_timeout_unref(timeout);
    return arg;
}

static void let_another_thread_renew(hwt_timeout *timeout, void *arg)
{
    pthread_t thread;

    probe_task(timeout, arg);
    cr_assert_eq(pthread_create(&thread, NULL, cancel_renew_and_wait, timeout), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0, "while this run goes on");
}

/* The new timeout has not run: who waits for it does not wait for a run of the old one. */
WHEEL_TEST(renew, and_wait_for_the_new_one)
{
    probe p = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &p, TICK);
    spec.task = let_another_thread_renew;
    spec.period_ns = TICK;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(rig_advance_by(&r, 10 * TICK), 0);
    cr_assert_eq(p.runs, 1);
    cr_assert_eq(p.hooks, 2, "the old one and the new one (G10)");
    rig_close(&r);
}

static void renew_itself(hwt_timeout *timeout, void *arg)
{
    *(int *)arg = hwt_timeout_renew(&timeout, NULL, 0);
}

WHEEL_TEST(renew, not_in_its_own_task)
{
    int result = 1;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, renew_itself, &result, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(result, -EBUSY);
    rig_close(&r);
}

static void cancel_and_renew(hwt_timeout *timeout, void *arg)
{
    cargo *c = arg;

    probe_task(timeout, arg);
    if (c->probe.runs > 1)
        return;
    hwt_timeout_cancel(timeout);
    handle = hwt_timeout_ref(timeout);
    cr_assert_eq(hwt_timeout_renew(&handle, NULL, 5 * TICK), 0);
}

WHEEL_TEST(renew, cancelled_while_it_ran)
{
    cargo c = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &c.probe, TICK);
    spec.task = cancel_and_renew;
    spec.period_ns = TICK;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(c.probe.hooks, 1);
    cr_assert_eq(rig_advance_by(&r, 4 * TICK), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(c.releases, 0);
    cr_assert(hwt_timeout_cancel(handle));
    hwt_timeout_unref(handle);
    cr_assert_eq(c.releases, 1);
    rig_close(&r);
}

WHEEL_TEST(renew, errors)
{
    hwt_timeout *timeout = NULL, *same;
    cargo c = {0};
    hwt_spec spec;
    int status;
    pid_t child;
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.max_pending = 1;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_timeout_renew(NULL, r.timer, 0), -EINVAL);
    cr_assert_eq(hwt_timeout_renew(&timeout, r.timer, 0), -EINVAL);
    probe_spec(&spec, &c.probe, 0);
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    same = timeout;
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
    cr_assert_eq(hwt_timeout_renew(&timeout, NULL, 0), -ENOBUFS);
    child = fork();
    if (child == 0)
        _exit(hwt_timeout_renew(&timeout, NULL, 0) == -ECHILD ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(hwt_timeout_renew(&timeout, r.timer, 0), -ESHUTDOWN);
    cr_assert_eq(timeout, same);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(c.releases, 0);
    hwt_timeout_unref(timeout);
    cr_assert_eq(c.releases, 1);
    rig_close(&r);
}

/* ---- what the executor has refused ---- */

static unsigned refusals;

static int refuse_twice(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    if (refusals++ < 2)
        return -1;
    run(job);
    return 0;
}

static void go_on(hwt_timeout *timeout, void *arg)
{
    hwt_timeout *mine;

    if (hwt_timer_is_stopped(hwt_timeout_timer(timeout)))
        return;
    mine = hwt_timeout_ref(timeout);
    ((probe *)arg)->hooks++;
    cr_assert_eq(hwt_timeout_renew(&mine, NULL, TICK), 0);
    hwt_timeout_unref(mine);
}

/* A periodic one that was refused has ended; its hook sees to it that it goes on. */
WHEEL_TEST(renew, in_the_hook_of_a_refusal)
{
    hwt_spec spec;
    probe p = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.execute = refuse_twice;
    cr_assert_eq(rig_open(&r), 0);
    probe_spec(&spec, &p, TICK);
    spec.period_ns = TICK;
    spec.cancelled = go_on;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    for (unsigned i = 0; i < 10; i++)
        rig_advance_by(&r, TICK);
    cr_assert_eq(p.hooks, 2);
    cr_assert_eq(p.runs, 8, "%u runs", (unsigned)p.runs);
    cr_assert_eq(hwt_timer_pending(r.timer), 1);
    cr_assert_eq(stats_of(r.timer).rejected, 2);
    rig_close(&r);
}
