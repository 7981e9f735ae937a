/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G16, since 1.1: release is called exactly once, when the timeout has ended, neither task nor hook
 * runs or will run, and the last reference is dropped; on the thread that drops it, under no lock.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(release, .init = test_arm);

typedef struct cargo {
    probe probe; /* the first: what task and hook are called with */
    atomic_uint releases;
    unsigned runs, hooks; /* when it was released */
    pthread_t thread;
    void (*also)(struct cargo *); /* what its release does */
    hwt_timer *timer;
    hwt_timeout *other;
    int result;
} cargo;

static void release_cargo(void *arg)
{
    cargo *c = arg;

    c->runs = c->probe.runs;
    c->hooks = c->probe.hooks;
    c->thread = pthread_self();
    atomic_fetch_add(&c->releases, 1);
    if (c->also)
        c->also(c);
}

static int schedule_cargo(hwt_timer *timer, cargo *c, uint64_t delay, uint64_t period,
                          hwt_timeout **timeout)
{
    hwt_spec spec;

    probe_spec(&spec, &c->probe, delay);
    spec.period_ns = period;
    spec.release = release_cargo;
    return hwt_schedule(timer, &spec, timeout);
}

static hwt_timeout *handle_of(hwt_timer *timer, cargo *c, uint64_t delay, uint64_t period)
{
    hwt_timeout *timeout = NULL;

    cr_assert_eq(schedule_cargo(timer, c, delay, period, &timeout), 0);
    return timeout;
}

WHEEL_TEST(release, after_its_last_run)
{
    cargo c = {0}, bare = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(schedule_cargo(r.timer, &c, TICK, 0, NULL), 0);
    hwt_spec_init(&spec); /* a release and nothing else */
    spec.task = probe_task;
    spec.arg = &bare.probe;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 2);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(c.runs, 1);
    cr_assert_eq(bare.releases, 1);
    rig_close(&r);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(c.probe.hooks, 0);
}

WHEEL_TEST(release, not_before_the_last_handle)
{
    hwt_timeout *timeout;
    cargo c = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    timeout = handle_of(r.timer, &c, TICK, 0);
    hwt_timeout_ref(timeout);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    hwt_timeout_unref(timeout);
    cr_assert_eq(c.releases, 0);
    cr_assert_eq(hwt_timeout_arg(timeout), &c);
    rig_close(&r); /* G9 */
    cr_assert_eq(c.releases, 0);
    cr_assert_eq(hwt_timeout_arg(timeout), &c);
    hwt_timeout_unref(timeout);
    cr_assert_eq(c.releases, 1);
}

typedef struct consigned {
    cargo cargo, next;
    hwt_timer *timer;
    hwt_timeout *own, *other;
} consigned;

static void drop_and_schedule(hwt_timeout *timeout, void *arg)
{
    consigned *c = arg;

    (void)timeout;
    hwt_timeout_unref(c->own);
    cr_assert_eq(c->cargo.releases, 0, "the hook needs it");
    cr_assert_eq(schedule_cargo(c->timer, &c->next, HWT_SEC(9), 0, &c->other), 0);
}

/* The hook drops the handle that is cancelled: each argument is released once, no other's. */
WHEEL_TEST(release, of_what_its_hook_drops)
{
    for (int way = 0; way < 4; way++) {
        consigned c = {0};
        hwt_spec spec;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        c.timer = r.timer;
        probe_spec(&spec, &c.cargo.probe, HWT_SEC(3));
        spec.cancelled = drop_and_schedule;
        spec.release = release_cargo;
        cr_assert_eq(hwt_schedule(r.timer, &spec, &c.own), 0);
        if (way & 1) /* the wheel has it */
            hwt_timer_next_deadline(r.timer);
        if (way & 2)
            cr_assert_eq(hwt_timeout_cancel_sync(c.own), 1);
        else
            cr_assert(hwt_timeout_cancel(c.own));
        cr_assert_eq(c.cargo.releases, 1);
        cr_assert(hwt_timeout_cancel(c.other));
        cr_assert_eq(c.next.releases, 0);
        hwt_timeout_unref(c.other);
        cr_assert_eq(c.next.releases, 1);
        rig_close(&r);
        cr_assert_eq(c.cargo.releases + c.next.releases, 2);
    }
}

/* Wherever it is: the worker's notice is not waited for. */
WHEEL_TEST(release, cancelled)
{
    for (int way = 0; way < 8; way++) {
        hwt_timeout *timeout;
        cargo c = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        timeout = handle_of(r.timer, &c, HWT_SEC(3600), way & 1 ? TICK : 0);
        if (way & 2) /* the wheel has it */
            hwt_timer_next_deadline(r.timer);
        if (way & 4) /* a nudge is on its way */
            cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(1)));
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(c.probe.hooks, 1);
        cr_assert_eq(c.releases, 0);
        hwt_timeout_unref(timeout);
        cr_assert_eq(c.releases, 1);
        cr_assert_eq(c.hooks, 1);
        cr_assert(pthread_equal(c.thread, pthread_self()));
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(7200)), 0);
        rig_close(&r);
        cr_assert_eq(c.releases, 1);
    }
}

/* ---- of one tick ---- */

#define THRONG 300 /* some hands of the worker: what was cancelled is noticed in between */
#define ENDS   3   /* one in so many is cancelled: too few to be taken out at once */
static hwt_timeout *throng[THRONG];
static unsigned throng_ran, throng_hooked, throng_released;

static void throng_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    throng_ran += *(unsigned *)arg;
}

static void throng_hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    throng_hooked += *(unsigned *)arg;
}

static void free_argument(void *arg)
{
    free(arg);
    throng_released++;
}

static void cancel_some(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    for (unsigned i = 0; i < THRONG; i += ENDS) {
        cr_assert(hwt_timeout_cancel(throng[i]));
        hwt_timeout_unref(throng[i]);
    }
    cr_assert_eq(throng_released, THRONG / ENDS);
}

/*
 * G6, G10: by a task of their tick, when they stand in order already. What the worker still has of
 * them, their second blocks too, stays until he has met them: he looks there for what to fetch.
 */
WHEEL_TEST(release, cancelled_by_a_task_of_their_tick)
{
    unsigned *one;
    hwt_spec spec;
    rig r;

    throng_ran = throng_hooked = throng_released = 0;
    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, cancel_some, NULL, TICK / 2, NULL), 0);
    hwt_spec_init(&spec);
    spec.task = throng_task;
    spec.cancelled = throng_hook;
    spec.release = free_argument;
    for (unsigned i = 0; i < THRONG; i++) {
        one = malloc(sizeof *one);
        *one = 1;
        spec.arg = one;
        spec.delay_ns = TICK / 2 + 1 + i;
        cr_assert_eq(hwt_schedule(r.timer, &spec, i % ENDS ? NULL : &throng[i]), 0);
    }
    cr_assert_eq(rig_advance_by(&r, TICK), 1 + THRONG - THRONG / ENDS);
    cr_assert_eq(throng_ran, THRONG - THRONG / ENDS);
    cr_assert_eq(throng_hooked, THRONG / ENDS);
    cr_assert_eq(throng_released, THRONG);
    rig_close(&r);
}

static void keep_handle(hwt_timeout *timeout, void *arg)
{
    cargo *c = arg;

    probe_task(timeout, arg);
    c->other = hwt_timeout_ref(timeout);
}

WHEEL_TEST(release, a_task_may_keep_its_argument)
{
    cargo c = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    hwt_spec_init(&spec);
    spec.task = keep_handle;
    spec.arg = &c;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(c.releases, 0);
    hwt_timeout_unref(c.other);
    cr_assert_eq(c.releases, 1);
    rig_close(&r);
}

WHEEL_TEST(release, in_stop_and_destroy)
{
    for (int way = 0; way < 3; way++) {
        hwt_unprocessed list = {NULL, 0};
        hwt_timeout *timeout, *kept;
        cargo c = {0}, other = {0};
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        cr_assert_eq(schedule_cargo(r.timer, &c, TICK, 0, NULL), 0);
        kept = handle_of(r.timer, &other, HWT_SEC(60), TICK);
        if (way < 2)
            cr_assert_eq(hwt_timer_stop(r.timer, way ? NULL : &list), 0);
        while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
            cr_assert_eq(((cargo *)hwt_timeout_arg(timeout))->releases, 0);
            hwt_timeout_unref(timeout);
        }
        rig_close(&r);
        cr_assert_eq(c.releases, 1);
        cr_assert_eq(c.hooks, way > 0);
        cr_assert_eq(other.releases, 0);
        hwt_timeout_unref(kept);
        cr_assert_eq(other.releases, 1);
    }
}

static void cancel_at_third(hwt_timeout *timeout, void *arg)
{
    cargo *c = arg;

    probe_task(timeout, arg);
    if (c->probe.runs == 3)
        cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(c->releases, 0);
}

WHEEL_TEST(release, a_periodic_one)
{
    cargo c = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &c.probe, TICK);
    spec.task = cancel_at_third;
    spec.period_ns = TICK;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 2 * TICK), 2);
    cr_assert_eq(c.releases, 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(c.runs, 3);
    cr_assert_eq(c.hooks, 1);
    rig_close(&r);
    cr_assert_eq(c.releases, 1);
}

static void rearm_twice(hwt_timeout *timeout, void *arg)
{
    cargo *c = arg;

    probe_task(timeout, arg);
    if (c->probe.runs < 3)
        cr_assert(hwt_timeout_reschedule(timeout, TICK));
    cr_assert_eq(c->releases, 0);
}

WHEEL_TEST(release, a_rearmed_one)
{
    cargo c = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    probe_spec(&spec, &c.probe, TICK);
    spec.task = rearm_twice;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    for (unsigned i = 1; i <= 3; i++) {
        cr_assert_eq(rig_advance_by(&r, TICK), 1);
        cr_assert_eq(c.releases, i == 3);
    }
    rig_close(&r);
}

Test(release, not_for_a_submission_that_fails)
{
    hwt_timeout *timeout = NULL;
    cargo c = {0};
    hwt_spec spec;
    rig r;

    rig_prepare(&r, HWT_WHEEL_HIERARCHICAL, 0);
    r.config.max_pending = 1;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, &timeout), 0);
    cr_assert_eq(schedule_cargo(r.timer, &c, TICK, 0, NULL), -ENOBUFS);
    probe_spec(&spec, &c.probe, 0);
    spec.release = release_cargo;
    spec.period_mode = (hwt_period_mode)7;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), -EINVAL);
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(schedule_cargo(r.timer, &c, TICK, 0, NULL), -ESHUTDOWN);
    rig_close(&r);
    cr_assert_eq(c.releases, 0);
}

/* ---- with an executor ---- */

static struct {
    void (*run)(void *job);
    void *job;
    int answer;
} shelf;

static int put_on_shelf(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    shelf.run = run;
    shelf.job = job;
    return shelf.answer;
}

static void open_with_shelf(rig *r, hwt_wheel_kind wheel, int answer)
{
    shelf.answer = answer;
    rig_prepare(r, wheel, 0);
    r->config.execute = put_on_shelf;
    cr_assert_eq(rig_open(r), 0);
}

WHEEL_TEST(release, while_the_executor_has_it)
{
    hwt_timeout *timeout;
    cargo c = {0}, stopped = {0}, ran = {0};
    hwt_unprocessed list;
    rig r;

    open_with_shelf(&r, wheel, 0);
    timeout = handle_of(r.timer, &c, 0, 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    cr_assert_eq(c.releases, 1, "at once, whenever its job comes");
    shelf.run(shelf.job);
    cr_assert_eq(schedule_cargo(r.timer, &ran, 0, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    shelf.run(shelf.job);
    cr_assert_eq(ran.releases, 1);
    cr_assert_eq(ran.runs, 1);
    cr_assert_eq(schedule_cargo(r.timer, &stopped, 0, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 1);
    hwt_timeout_unref(hwt_unprocessed_take(&list));
    cr_assert_eq(stopped.releases, 1);
    shelf.run(shelf.job);
    rig_close(&r);
    cr_assert_eq(c.releases + stopped.releases + ran.releases, 3);
}

WHEEL_TEST(release, when_the_executor_refuses)
{
    cargo c = {0};
    rig r;

    open_with_shelf(&r, wheel, -1);
    cr_assert_eq(schedule_cargo(r.timer, &c, 0, 0, NULL), 0);
    rig_advance_by(&r, 0);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(c.hooks, 1);
    rig_close(&r);
}

/* ---- what it may do ---- */

static void use_all(cargo *c)
{
    hwt_timer *another;

    if (hwt_new_timeout(c->timer, noop_task, NULL, HWT_SEC(5), NULL) != 0)
        c->result = 1;
    if (hwt_timer_next_deadline(c->timer) == UINT64_MAX)
        c->result = 2;
    if (!hwt_timeout_cancel(c->other))
        c->result = 3;
    hwt_timeout_unref(c->other); /* another release, inside this one */
    if (hwt_timer_create(&another, NULL) != 0 || hwt_timer_start(another) != 0 ||
        hwt_timer_destroy(another) != 0)
        c->result = 4;
}

WHEEL_TEST(release, may_use_the_library)
{
    for (int way = 0; way < 3; way++) {
        cargo c = {.also = use_all}, other = {0};
        hwt_timeout *timeout;
        rig r;

        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        c.timer = r.timer;
        c.other = handle_of(r.timer, &other, HWT_SEC(9), 0);
        timeout = handle_of(r.timer, &c, TICK, 0);
        if (way == 2) {
            cr_assert(hwt_timeout_cancel(timeout));
            hwt_timeout_unref(timeout);
        } else {
            if (way == 0) /* then the worker calls it, otherwise whoever drops the handle */
                hwt_timeout_unref(timeout);
            cr_assert_eq(rig_advance_by(&r, TICK), 1);
            if (way == 1)
                hwt_timeout_unref(timeout);
        }
        cr_assert_eq(c.releases, 1);
        cr_assert_eq(c.result, 0);
        cr_assert_eq(other.releases, 1);
        cr_assert_eq(hwt_timer_pending(r.timer), 1);
        rig_close(&r);
    }
}

static void stop_own(cargo *c)
{
    c->result = hwt_timer_stop(c->timer, NULL);
}

/* On the worker's thread, and in stop, it cannot wait for its timer. */
Test(release, cannot_wait_for_itself)
{
    cargo c = {.also = stop_own}, late = {.also = stop_own};
    hwt_timer *timer = worker_timer();

    cr_assert_not_null(timer);
    c.timer = late.timer = timer;
    cr_assert_eq(schedule_cargo(timer, &late, HWT_SEC(60), 0, NULL), 0);
    cr_assert_eq(schedule_cargo(timer, &c, 0, 0, NULL), 0);
    cr_assert(wait_count(&c.releases, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(c.result, -EDEADLK);
    cr_assert_not(pthread_equal(c.thread, pthread_self()));
    cr_assert_eq(late.result, -EDEADLK);
}

/* ---- one that does not return (C13) ---- */

static void exit_thread(cargo *c)
{
    (void)c;
    pthread_exit(NULL);
}

static void *advance_main(void *arg)
{
    rig_advance_by(arg, TICK);
    return NULL;
}

static void *destroy_main(void *arg)
{
    rig_close(arg);
    return NULL;
}

WHEEL_TEST(release, ends_its_thread)
{
    cargo c = {.also = exit_thread}, next = {0}, left = {.also = exit_thread}, last = {0};
    pthread_t thread;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(schedule_cargo(r.timer, &c, TICK, 0, NULL), 0);
    cr_assert_eq(schedule_cargo(r.timer, &next, TICK, 0, NULL), 0);
    cr_assert_eq(schedule_cargo(r.timer, &left, HWT_SEC(1), 0, NULL), 0);
    cr_assert_eq(schedule_cargo(r.timer, &last, HWT_SEC(1), 0, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_main, &r), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(c.releases, 1);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(next.releases, 1);
    cr_assert_eq(hwt_timer_pending(r.timer), 2);
    cr_assert_eq(pthread_create(&thread, NULL, destroy_main, &r), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(c.releases + next.releases + left.releases + last.releases, 4);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0); /* it was stopped, and not destroyed */
    rig_close(&r);
}

/* A task that ends the worker's thread has run for the last time. */
static void exit_in_task(hwt_timeout *timeout, void *arg)
{
    probe_task(timeout, arg);
    pthread_exit(NULL);
}

Test(release, of_a_task_that_ends_its_thread)
{
    hwt_timer *timer = worker_timer();
    cargo c = {0};
    hwt_spec spec;

    cr_assert_not_null(timer);
    probe_spec(&spec, &c.probe, 0);
    spec.task = exit_in_task;
    spec.release = release_cargo;
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    cr_assert(wait_count(&c.releases, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(c.releases, 1);
}

/* ---- in a forked child ---- */

Test(release, in_a_forked_child)
{
    cargo ended = {0}, pending = {0};
    hwt_timeout *of_ended, *of_pending;
    int status;
    pid_t child;
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    of_ended = handle_of(r.timer, &ended, 0, 0);
    of_pending = handle_of(r.timer, &pending, HWT_SEC(1), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    child = fork();
    if (child == 0) {
        hwt_timeout_unref(of_ended);
        hwt_timeout_unref(of_pending);
        hwt_timer_destroy(r.timer);
        _exit(ended.releases == 1 && pending.releases == 0 ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(ended.releases + pending.releases, 0);
    hwt_timeout_unref(of_ended);
    hwt_timeout_unref(of_pending);
    cr_assert_eq(ended.releases, 1);
    rig_close(&r);
    cr_assert_eq(pending.releases, 1);
}

static void drop_mine(hwt_timeout *timeout, void *arg)
{
    cargo *c = arg;

    (void)timeout;
    c->probe.runs++;
    hwt_timeout_unref(c->other);
    c->other = NULL;
}

/* Each would wait for the other: it is for the last run, or for the hook, to drop it. */
WHEEL_TEST(release, of_an_argument_that_holds_its_own_handle)
{
    cargo kept = {0}, dropped = {0};
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    kept.other = handle_of(r.timer, &kept, TICK, 0);
    hwt_spec_init(&spec);
    spec.task = drop_mine;
    spec.cancelled = drop_mine;
    spec.arg = &dropped;
    spec.release = release_cargo;
    spec.delay_ns = TICK;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &dropped.other), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 2);
    cr_assert_eq(dropped.releases, 1);
    cr_assert_eq(kept.releases, 0);
    hwt_timeout_unref(kept.other);
    cr_assert_eq(kept.releases, 1);
    rig_close(&r);
}
