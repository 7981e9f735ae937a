/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A task that ends the thread it runs on (pthread_exit, a cancellation) is a mistake, but not a
 * silent one: submissions fail, the log is told, and stop and destroy return and hand back what had
 * not run (C13, G2, G3, G8).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

TestSuite(thread_end, .init = test_arm);

typedef struct journal {
    atomic_uint lines;
    char last[256];
} journal;

static journal told;

static void write_journal(void *log_arg, const char *message)
{
    journal *j = log_arg;

    snprintf(j->last, sizeof(j->last), "%s", message);
    atomic_fetch_add(&j->lines, 1);
}

static void open_timer(hwt_timer **timer, hwt_wheel_kind wheel)
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.log = write_journal;
    config.log_arg = &told;
    cr_assert_eq(hwt_timer_create(timer, &config), 0);
}

static void exit_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    pthread_exit(NULL);
}

static void expect_told(hwt_task *task)
{
    char address[40];

    cr_assert(wait_count(&told.lines, 1), "the log was not told");
    snprintf(address, sizeof(address), "0x%lx", (unsigned long)(uintptr_t)task);
    cr_assert_neq(strstr(told.last, address), NULL, "%s", told.last);
}

static void expect_refusal(hwt_timer *timer)
{
    hwt_timeout *untouched = (hwt_timeout *)&told, *timeout = untouched;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = noop_task;
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, 0, &timeout), -EOWNERDEAD);
    cr_assert_eq(hwt_new_timeout_at(timer, noop_task, NULL, 0, &timeout), -EOWNERDEAD);
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), -EOWNERDEAD);
    cr_assert_eq(hwt_timer_start(timer), -EOWNERDEAD);
    cr_assert_eq(timeout, untouched);
    cr_assert(!hwt_timer_is_stopped(timer));
}

/* G8: `left` come back, each once; G3. */
static void expect_handed_back(hwt_timer *timer, size_t left)
{
    hwt_unprocessed list;
    hwt_timeout *timeout;
    hwt_stats s;

    cr_assert_eq(hwt_timer_stop(timer, &list), 0);
    cr_assert_eq(list.count, left);
    while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
        cr_assert(hwt_timeout_is_cancelled(timeout));
        hwt_timeout_unref(timeout);
        left--;
    }
    cr_assert_eq(left, 0);
    s = stats_of(timer);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    cr_assert_eq(s.pending, 0);
    cr_assert_eq(hwt_timer_start(timer), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- on the worker ---- */

/* More are due in the same pass than the worker takes in hand, and others later. */
WHEEL_TEST(thread_end, a_task_exits)
{
    hwt_timeout *exits;
    hwt_timer *timer;
    gate g = {0};
    atomic_uint ran = 0;
    unsigned due = 200;

    open_timer(&timer, wheel);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
    cr_assert(wait_count(&g.entered, 1));
    for (unsigned i = 0; i < due; i++)
        cr_assert_eq(hwt_new_timeout(timer, count_task, &ran, HWT_USEC(i), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, exit_task, NULL, HWT_USEC(due / 2), &exits), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &ran, HWT_SEC(60), NULL), 0);
    sleep_ms(5);
    gate_open(&g);
    expect_told(exit_task);
    cr_assert_eq(hwt_timeout_state(exits), HWT_EXPIRED);
    cr_assert_eq(hwt_timeout_cancel_sync(exits), 0, "it is not running any more");
    hwt_timeout_unref(exits);
    expect_refusal(timer);
    expect_handed_back(timer, due + 1 - ran);
}

typedef struct last_words {
    hwt_timer *timer;
    atomic_uint runs, hooks;
    int said;
} last_words;

static void cancel_and_exit(hwt_timeout *timeout, void *arg)
{
    last_words *w = arg;

    w->runs++;
    hwt_timeout_cancel(timeout);
    pthread_exit(NULL);
}

static void try_to_schedule(hwt_timeout *timeout, void *arg)
{
    last_words *w = arg;

    (void)timeout;
    w->said = hwt_new_timeout(w->timer, noop_task, NULL, 0, NULL);
    w->hooks++;
}

/* What would never run is refused from the first moment on: to its own hook, too. */
WHEEL_TEST(thread_end, nothing_is_accepted_on_the_way_out)
{
    last_words w = {.said = 1};
    hwt_timeout *timeout;
    hwt_spec spec;

    open_timer(&w.timer, wheel);
    hwt_spec_init(&spec);
    spec.task = cancel_and_exit;
    spec.cancelled = try_to_schedule;
    spec.arg = &w;
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(w.timer, &spec, &timeout), 0);
    cr_assert(wait_count(&w.runs, 1));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    expect_refusal(w.timer);
    cr_assert(wait_count(&w.hooks, 1));
    cr_assert_eq(w.said, -EOWNERDEAD);
    hwt_timeout_unref(timeout);
    expect_handed_back(w.timer, 0);
}

static void exit_rearmed(hwt_timeout *timeout, void *arg)
{
    *(bool *)arg = hwt_timeout_reschedule(timeout, HWT_SEC(1));
    pthread_exit(NULL);
}

WHEEL_TEST(thread_end, a_rearmed_one_has_expired)
{
    hwt_timeout *timeout;
    hwt_timer *timer;
    bool rearmed = false;

    open_timer(&timer, wheel);
    cr_assert_eq(hwt_new_timeout(timer, exit_rearmed, &rearmed, 0, &timeout), 0);
    expect_told(exit_rearmed);
    cr_assert(rearmed);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    hwt_timeout_unref(timeout);
    expect_handed_back(timer, 0);
}

WHEEL_TEST(thread_end, a_periodic_one_has_expired)
{
    hwt_timeout *timeout;
    hwt_timer *timer;
    hwt_spec spec;
    probe p = {0};

    open_timer(&timer, wheel);
    probe_spec(&spec, &p, 0);
    spec.task = exit_task;
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    expect_told(exit_task);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    hwt_timeout_unref(timeout);
    expect_handed_back(timer, 0);
    cr_assert_eq(p.hooks, 0, "G10");
}

static void exit_cancelled(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    hwt_timeout_cancel(timeout); /* its hook waits for the end of the run */
    pthread_exit(NULL);
}

WHEEL_TEST(thread_end, a_cancelled_one_has_its_hook)
{
    hwt_timer *timer;
    hwt_spec spec;
    probe p = {0};

    open_timer(&timer, wheel);
    probe_spec(&spec, &p, 0);
    spec.task = exit_cancelled;
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    expect_told(exit_cancelled);
    cr_assert_eq(p.hooks, 1, "G10");
    expect_handed_back(timer, 0);
}

static void cancel_itself(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    hwt_timeout_cancel(timeout);
}

WHEEL_TEST(thread_end, a_hook_exits)
{
    hwt_timer *timer;
    hwt_spec spec;

    open_timer(&timer, wheel);
    hwt_spec_init(&spec);
    spec.task = cancel_itself;
    spec.cancelled = exit_task;
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    expect_told(cancel_itself);
    expect_handed_back(timer, 0);
}

typedef struct identity {
    atomic_uint known;
    pthread_t thread;
} identity;

static void hand_out_self(hwt_timeout *timeout, void *arg)
{
    identity *id = arg;

    (void)timeout;
    id->thread = pthread_self();
    atomic_fetch_add(&id->known, 1);
    for (;;)
        sleep_ms(10); /* a cancellation point */
}

WHEEL_TEST(thread_end, the_worker_is_cancelled)
{
    hwt_timer *timer;
    identity id = {0};

    if (under_sanitizer())
        cr_skip_test("AddressSanitizer takes the frames of a cancelled thread for live ones");
    open_timer(&timer, wheel);
    cr_assert_eq(hwt_new_timeout(timer, hand_out_self, &id, 0, NULL), 0);
    cr_assert(wait_count(&id.known, 1));
    cr_assert_eq(pthread_cancel(id.thread), 0);
    expect_told(hand_out_self);
    expect_refusal(timer);
    expect_handed_back(timer, 0);
}

/* Not in a task, but where it sleeps: on a descriptor that is a cancellation point too. */
static void name_self(hwt_timeout *timeout, void *arg)
{
    identity *id = arg;

    (void)timeout;
    id->thread = pthread_self();
    atomic_fetch_add(&id->known, 1);
}

WHEEL_TEST(thread_end, the_sleeping_worker_is_cancelled)
{
    hwt_timer *timer;
    hwt_config config;
    identity id = {0};

    if (under_sanitizer())
        cr_skip_test("AddressSanitizer takes the frames of a cancelled thread for live ones");
    hwt_config_init(&config);
    config.wheel = wheel;
    config.clock_id = CLOCK_BOOTTIME;
    config.log = write_journal;
    config.log_arg = &told;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, name_self, &id, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL), 0);
    cr_assert(wait_count(&id.known, 1));
    sleep_ms(20);
    cr_assert_eq(pthread_cancel(id.thread), 0);
    cr_assert(wait_count(&told.lines, 1), "the log was not told");
    expect_refusal(timer);
    expect_handed_back(timer, 1);
}

/* ---- while stop waits for it ---- */

static void exit_when_stopped(hwt_timeout *timeout, void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
    while (!hwt_timer_is_stopped(hwt_timeout_timer(timeout)))
        sleep_ms(1);
    sleep_ms(20);
    pthread_exit(NULL);
}

WHEEL_TEST(thread_end, during_stop)
{
    hwt_timer *timer;
    atomic_uint entered = 0;

    open_timer(&timer, wheel);
    cr_assert_eq(hwt_new_timeout(timer, exit_when_stopped, &entered, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL), 0);
    cr_assert(wait_count(&entered, 1));
    expect_handed_back(timer, 1);
    expect_told(exit_when_stopped);
}

/* ---- where the caller drives: it is his thread, and the timer is none the worse ---- */

static void *advance_in_a_thread(void *timer)
{
    hwt_timer_advance(timer);
    return timer;
}

WHEEL_TEST(thread_end, in_advance)
{
    atomic_uint ran = 0;
    pthread_t thread;
    void *returned;
    int left;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    for (unsigned i = 0; i < 200; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, i, NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, exit_task, NULL, 100, NULL), 0);
    virtual_add(&r.clock, HWT_MSEC(2));
    cr_assert_eq(pthread_create(&thread, NULL, advance_in_a_thread, r.timer), 0);
    cr_assert_eq(pthread_join(thread, &returned), 0);
    cr_assert_eq(returned, NULL);
    left = 200 - (int)ran;
    cr_assert_eq(hwt_timer_pending(r.timer), (uint64_t)left);
    cr_assert_eq(hwt_timer_advance(r.timer), left);
    cr_assert_eq(ran, 200, "G2");
    expect_handed_back(r.timer, 0);
}

/* ---- on an executor: its thread is its own affair, but nobody waits for it ---- */

static void expect_executor_survived(hwt_task *task, uint64_t period_ns)
{
    hwt_timeout *timeout;
    hwt_timer *timer;
    hwt_config config;
    hwt_spec spec;
    job_thread j = {0};
    void *returned;

    hwt_config_init(&config);
    config.execute = run_in_a_thread;
    config.executor = &j;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    hwt_spec_init(&spec);
    spec.task = task;
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    while (hwt_timeout_state(timeout) == HWT_PENDING)
        sleep_ms(1);
    cr_assert_eq(pthread_join(j.thread, &returned), 0);
    cr_assert_eq(returned, NULL);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL), 0);
    expect_handed_back(timer, 1);
}

Test(thread_end, on_an_executor)
{
    expect_executor_survived(exit_task, 0);
    expect_executor_survived(exit_task, HWT_SEC(60));
}

/* ---- a hook that stop runs ---- */

static void *stop_in_a_thread(void *timer)
{
    hwt_timer_stop(timer, NULL);
    return timer;
}

WHEEL_TEST(thread_end, a_hook_in_stop)
{
    hwt_timer *timer;
    pthread_t thread;
    void *returned;
    hwt_spec spec;
    probe p = {0};

    open_timer(&timer, wheel);
    for (unsigned i = 0; i < 10; i++) {
        probe_spec(&spec, &p, HWT_SEC(60));
        if (i == 5)
            spec.cancelled = exit_task;
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    }
    cr_assert_eq(pthread_create(&thread, NULL, stop_in_a_thread, timer), 0);
    cr_assert_eq(pthread_join(thread, &returned), 0);
    cr_assert_eq(returned, NULL);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0, "G8: a second stop");
    cr_assert_eq(p.hooks, 9, "G10");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- what is scheduled on the way out, in the same block perhaps ---- */

static struct {
    rig r;
    int result, synced;
    bool moved;
} after;

static void schedule_after(void *arg)
{
    hwt_timeout *timeout = NULL;

    (void)arg;
    after.result = hwt_new_timeout(after.r.timer, noop_task, NULL, HWT_SEC(10), &timeout);
    after.moved = hwt_timeout_reschedule(timeout, HWT_SEC(20));
    after.synced = hwt_timeout_cancel_sync(timeout);
    hwt_timeout_unref(timeout);
}

static void expect_another_life(hwt_task *task, hwt_task *hook)
{
    pthread_t thread;
    hwt_spec spec;

    after.result = after.synced = -1;
    after.moved = false;
    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = hook;
    spec.period_ns = hook ? HWT_SEC(1) : 0;
    spec.release = schedule_after;
    cr_assert_eq(hwt_schedule(after.r.timer, &spec, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_in_a_thread, after.r.timer), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(after.result, 0);
    cr_assert(after.moved, "it is pending");
    cr_assert_eq(after.synced, 1, "it is another one, which does not run");
}

/* G16, G2: the release comes last of all, so nothing speaks of what is over. */
WHEEL_TEST(thread_end, a_release_schedules)
{
    cr_assert_eq(rig_start(&after.r, wheel, 0), 0);
    expect_another_life(exit_task, NULL);
    expect_another_life(exit_cancelled, noop_task);
    rig_close(&after.r);
}
