/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sentences of hwt.h that belong to no guarantee and to no other file: who is called on which
 * thread, what is stored when, what a call does not do. test/check/promises.txt leads here.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

TestSuite(contract, .init = test_arm);

/* ---- the handle is stored before the task can run ---- */

typedef struct place {
    hwt_timeout *handle;
    atomic_uint runs, wrong;
} place;

static void look_at_place(hwt_timeout *timeout, void *arg)
{
    place *p = arg;

    if (p->handle != timeout)
        atomic_fetch_add(&p->wrong, 1);
    atomic_fetch_add(&p->runs, 1);
}

Test(contract, the_handle_is_there_when_the_task_runs)
{
    enum { ROUNDS = 2000 };
    hwt_timer *timer = worker_timer();
    place *p = calloc(ROUNDS, sizeof(*p));

    cr_assert(timer && p);
    for (unsigned i = 0; i < ROUNDS; i++)
        cr_assert_eq(hwt_new_timeout(timer, look_at_place, &p[i], 0, &p[i].handle), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        cr_assert(wait_count(&p[i].runs, 1));
        cr_assert_eq(p[i].wrong, 0, "round %u", i);
        hwt_timeout_unref(p[i].handle);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    free(p);
}

/* ---- who reads the caller's clock ---- */

static unsigned readings;

static uint64_t counted_now(void *clock)
{
    readings++;
    return virtual_now(clock);
}

static void open_counted(rig *r)
{
    rig_prepare(r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(5));
    r->config.now = counted_now;
    cr_assert_eq(rig_open(r), 0);
    readings = 0;
}

Test(contract, a_deadline_saves_reading_the_clock)
{
    hwt_timeout *timeout;
    rig r;

    open_counted(&r);
    cr_assert_eq(hwt_new_timeout_at(r.timer, noop_task, NULL, HWT_SEC(6), &timeout), 0);
    cr_assert(hwt_timeout_reschedule_at(timeout, HWT_SEC(7)));
    cr_assert_eq(readings, 0);
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(1)));
    cr_assert_gt(readings, 0, "nothing was counted");
    cr_assert_eq(hwt_timeout_deadline(timeout), HWT_SEC(6));
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

Test(contract, reschedule_at_needs_neither_clock_nor_timer)
{
    hwt_timeout *timeout;
    rig r;

    open_counted(&r);
    cr_assert_eq(hwt_new_timeout_at(r.timer, noop_task, NULL, HWT_SEC(6), &timeout), 0);
    rig_close(&r);
    readings = 0;
    cr_assert_not(hwt_timeout_reschedule_at(timeout, HWT_SEC(7)));
    cr_assert_not(hwt_timeout_cancel(timeout));
    cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
    cr_assert_eq(readings, 0);
    hwt_timeout_unref(timeout);
}

/* ---- cancel while the task runs ---- */

typedef struct held {
    gate gate;
    probe hook;
    pthread_t task_thread;
    atomic_uint hooked_too_early;
} held;

static void held_task(hwt_timeout *timeout, void *arg)
{
    held *h = arg;

    h->task_thread = pthread_self();
    gate_task(timeout, &h->gate);
}

static void held_hook(hwt_timeout *timeout, void *arg)
{
    held *h = arg;

    if (atomic_load(&h->gate.left) != 1)
        atomic_fetch_add(&h->hooked_too_early, 1);
    probe_hook(timeout, &h->hook);
}

static hwt_timeout *start_held(hwt_timer *timer, held *h, uint64_t period)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = held_task;
    spec.cancelled = held_hook;
    spec.arg = h;
    spec.period_ns = period;
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    cr_assert(wait_count(&h->gate.entered, 1));
    return timeout;
}

/* It returns although the task runs on and on: were it to wait, this would hang. */
Test(contract, cancel_does_not_wait_for_a_run)
{
    hwt_timer *timer = worker_timer();
    held once = {0}, periodic = {0};
    hwt_timeout *timeout = start_held(timer, &once, 0);

    cr_assert_not(hwt_timeout_cancel(timeout), "it runs for the last time");
    cr_assert_eq(once.gate.left, 0);
    gate_open(&once.gate);
    hwt_timeout_unref(timeout);
    timeout = start_held(timer, &periodic, HWT_MSEC(1));
    cr_assert(hwt_timeout_cancel(timeout), "it would have run again");
    cr_assert_eq(periodic.gate.left, 0);
    cr_assert_eq(periodic.hook.hooks, 0, "the argument is in use");
    gate_open(&periodic.gate);
    cr_assert(wait_count(&periodic.hook.hooks, 1));
    cr_assert_eq(periodic.hooked_too_early, 0);
    cr_assert(pthread_equal(periodic.hook.hook_thread, periodic.task_thread));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(once.hook.hooks, 0);
    cr_assert_eq(once.gate.entered + periodic.gate.entered, 2, "no run after cancel");
    hwt_timeout_unref(timeout);
}

static void gate_hook(hwt_timeout *timeout, void *arg)
{
    gate_task(timeout, arg);
}

static void *cancel_it(void *timeout)
{
    return hwt_timeout_cancel(timeout) ? timeout : NULL;
}

static hwt_timeout *schedule_gated(hwt_timer *timer, gate *g, uint64_t delay)
{
    hwt_timeout *timeout;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.cancelled = gate_hook;
    spec.arg = g;
    spec.delay_ns = delay;
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    return timeout;
}

/* The other one has won; were this to wait for its hook, it would hang. */
Test(contract, cancel_sync_does_not_wait_for_a_hook_in_cancel)
{
    hwt_timer *timer = worker_timer();
    gate g = {0};
    hwt_timeout *timeout = schedule_gated(timer, &g, HWT_SEC(60));
    pthread_t thread;
    void *won;

    cr_assert_eq(pthread_create(&thread, NULL, cancel_it, timeout), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    cr_assert_eq(g.left, 0);
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, &won), 0);
    cr_assert_eq(won, timeout);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void *destroy_it(void *timer)
{
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    return NULL;
}

Test(contract, cancel_sync_does_not_wait_for_a_hook_in_stop)
{
    hwt_timer *timer = worker_timer();
    gate g = {0};
    hwt_timeout *timeout = schedule_gated(timer, &g, HWT_SEC(60));
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, destroy_it, timer), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    cr_assert_eq(g.left, 0);
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    hwt_timeout_unref(timeout);
}

static int refuse(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    (void)run;
    (void)job;
    return -1;
}

Test(contract, cancel_sync_does_not_wait_for_a_hook_of_a_refusal)
{
    hwt_timeout *timeout;
    hwt_config config;
    hwt_timer *timer;
    gate g = {0};

    hwt_config_init(&config);
    config.execute = refuse;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    timeout = schedule_gated(timer, &g, HWT_MSEC(1));
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    cr_assert_eq(g.left, 0);
    gate_open(&g);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    hwt_timeout_unref(timeout);
}

/* ---- what is called on the worker ---- */

typedef struct thread_names {
    atomic_uint executed, logged;
    char executor[16], log[16];
} thread_names;

static int name_executor(void *executor, void (*run)(void *job), void *job)
{
    thread_names *names = executor;

    pthread_getname_np(pthread_self(), names->executor, sizeof(names->executor));
    atomic_fetch_add(&names->executed, 1);
    run(job);
    return 0;
}

static void name_log(void *log_arg, const char *message)
{
    thread_names *names = log_arg;

    (void)message;
    pthread_getname_np(pthread_self(), names->log, sizeof(names->log));
    atomic_fetch_add(&names->logged, 1);
}

static void slow_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    sleep_ms(5);
}

/* The name is the caller's buffer, which is gone by then: it was copied. */
Test(contract, execute_and_log_are_called_on_the_worker)
{
    thread_names names = {0};
    char name[] = "contract";
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.thread_name = name;
    config.execute = name_executor;
    config.executor = &names;
    config.log = name_log;
    config.log_arg = &names;
    config.slow_task_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    memset(name, '?', sizeof(name) - 1);
    cr_assert_eq(hwt_new_timeout(timer, slow_task, NULL, 0, NULL), 0);
    cr_assert(wait_count(&names.executed, 1));
    cr_assert(wait_count(&names.logged, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_str_eq(names.executor, "contract");
    cr_assert_str_eq(names.log, "contract");
}

typedef struct one_job {
    void (*run)(void *job);
    void *job;
    hwt_timer *timer;
    pthread_t logged_on;
    atomic_uint logged;
} one_job;

static int keep_job(void *executor, void (*run)(void *job), void *job)
{
    one_job *j = executor;

    j->run = run;
    j->job = job;
    return 0;
}

static void *run_kept_job(void *arg)
{
    one_job *j = arg;

    j->run(j->job);
    return NULL;
}

/* It may call in: nothing is locked. */
static void log_thread(void *log_arg, const char *message)
{
    one_job *j = log_arg;

    (void)message;
    j->logged_on = pthread_self();
    if (hwt_new_timeout(j->timer, noop_task, NULL, HWT_SEC(60), NULL) == 0)
        atomic_fetch_add(&j->logged, 1);
}

Test(contract, the_log_is_called_where_the_task_ran)
{
    one_job j = {0};
    pthread_t thread;
    rig r;

    rig_prepare(&r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(5));
    r.config.now = NULL;
    r.config.execute = keep_job;
    r.config.executor = r.config.log_arg = &j;
    r.config.log = log_thread;
    r.config.slow_task_ns = HWT_MSEC(1);
    cr_assert_eq(rig_open(&r), 0);
    j.timer = r.timer;
    cr_assert_eq(hwt_new_timeout(r.timer, slow_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(pthread_create(&thread, NULL, run_kept_job, &j), 0);
    cr_assert(wait_count(&j.logged, 1));
    cr_assert(pthread_equal(j.logged_on, thread));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    rig_close(&r);
}

/* ---- the caller as the worker ---- */

typedef struct sight {
    pthread_t thread;
    bool expired, cancelled;
} sight;

static void see(hwt_timeout *timeout, void *arg)
{
    sight *s = arg;

    s->thread = pthread_self();
    s->expired = hwt_timeout_is_expired(timeout);
    s->cancelled = hwt_timeout_is_cancelled(timeout);
}

Test(contract, the_callers_thread_runs_the_tasks)
{
    unsigned threads = thread_count();
    sight s = {0};
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(5)), 0);
    cr_assert_eq(hwt_timer_start(r.timer), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, see, &s, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 1);
    cr_assert(pthread_equal(s.thread, pthread_self()));
    cr_assert_eq(thread_count(), threads, "it has no thread of its own");
    cr_assert(s.expired, "running counts as expired");
    cr_assert_not(s.cancelled);
    rig_close(&r);
}

/* ---- figures ---- */

/*
 * What is due between two boundaries of a millisecond shares a tick, and so a wake-up. On a busy
 * machine there are fewer still.
 */
Test(contract, a_tick_is_a_millisecond_by_default)
{
    hwt_timer *timer = worker_timer();
    uint64_t boundary, before;

    cr_assert(timer);
    cr_assert_eq(hwt_timer_start(timer), 0);
    boundary = (hwt_timer_now(timer) / HWT_MSEC(1) + 30) * HWT_MSEC(1);
    for (unsigned i = 1; i <= 16; i++)
        cr_assert_eq(hwt_new_timeout_at(timer, noop_task, NULL, boundary + i * HWT_USEC(60), NULL),
                     0);
    sleep_ms(10); /* it has planned for the first of them, and sleeps */
    before = stats_of(timer).wakeups;
    cr_assert(wait_pending(timer, 0));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_leq(stats_of(timer).wakeups, before + 3);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void nap(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    sleep_ms(2);
}

/* A row of tasks, each of which makes the next one later: the last is late by all of them. */
Test(contract, lateness_is_measured_anew_while_many_run)
{
    enum { ROW = 50, A_FEW_MS = 10 };
    hwt_timer *timer = worker_timer();
    uint64_t deadline;

    cr_assert(timer);
    deadline = hwt_timer_now(timer) + HWT_MSEC(20);
    for (unsigned i = 0; i < ROW; i++)
        cr_assert_eq(hwt_new_timeout_at(timer, nap, NULL, deadline, NULL), 0);
    cr_assert(wait_pending(timer, 0));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(stats_of(timer).runs, ROW);
    cr_assert_geq(stats_of(timer).late_ns_max, HWT_MSEC(2 * (ROW - 1) - A_FEW_MS));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(contract, next_deadline_of_a_worker_is_a_lower_bound)
{
    static const uint64_t delays[] = {HWT_SEC(7200), HWT_SEC(60), HWT_SEC(3600), HWT_SEC(10)};
    hwt_timer *timer = worker_timer();
    uint64_t earliest = UINT64_MAX;

    cr_assert(timer);
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        hwt_timeout *timeout;
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, delays[i], &timeout), 0);
        if (hwt_timeout_deadline(timeout) < earliest)
            earliest = hwt_timeout_deadline(timeout);
        cr_assert_leq(hwt_timer_next_deadline(timer), earliest);
        sleep_ms(5); /* the worker may have planned anew */
        cr_assert_leq(hwt_timer_next_deadline(timer), earliest);
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* What one timer's timeouts leave, another's use. */
Test(contract, free_timeouts_are_shared_by_the_timers)
{
    enum { MANY = 1000 };
    hwt_timer *one = worker_timer(), *other = worker_timer();
    uintptr_t left[MANY];
    unsigned again = 0;

    cr_assert(one && other);
    for (unsigned i = 0; i < MANY; i++) {
        hwt_timeout *timeout;
        cr_assert_eq(hwt_new_timeout(one, noop_task, NULL, HWT_SEC(60), &timeout), 0);
        cr_assert(hwt_timeout_cancel(timeout));
        left[i] = (uintptr_t)timeout;
        hwt_timeout_unref(timeout);
    }
    for (unsigned i = 0; i < MANY; i++) {
        hwt_timeout *timeout;
        cr_assert_eq(hwt_new_timeout(other, noop_task, NULL, HWT_SEC(60), &timeout), 0);
        for (unsigned k = 0; k < MANY; k++)
            again += left[k] == (uintptr_t)timeout;
        hwt_timeout_unref(timeout);
    }
    cr_assert_gt(again, 0);
    cr_assert_eq(hwt_timer_destroy(one), 0);
    cr_assert_eq(hwt_timer_destroy(other), 0);
}
