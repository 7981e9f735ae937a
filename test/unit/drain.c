/* SPDX-License-Identifier: BSD-2-Clause */
/* hwt_timer_drain, since 1.1: refuses, waits, stops (G2, G3, G8, C13). */
/* LDFLAGS: -Wl,--wrap=clock_gettime,--wrap=lane_count */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"
#include "timer.h"

/* Where a submission is that has been accepted, and not yet been submitted. */
static _Thread_local gate *reads_clock_at;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    gate *held = reads_clock_at;

    reads_clock_at = NULL;
    if (held)
        gate_task(NULL, held);
    return __real_clock_gettime(id, ts);
}

/* How often all slots of a lane are looked at, and how long that takes as well. */
static atomic_uint counts, count_ms;

__typeof__(lane_count) __real_lane_count;
__typeof__(lane_count) __wrap_lane_count;

struct lane_tally __wrap_lane_count(const struct lane *lane)
{
    counts++;
    if (count_ms > 0)
        sleep_ms(count_ms);
    return __real_lane_count(lane);
}

TestSuite(drain, .init = test_arm);

static hwt_timer *open_timer(hwt_wheel_kind wheel)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

static void close_timer(hwt_timer *timer)
{
    hwt_stats s = stats_of(timer);

    cr_assert_eq(s.pending, 0);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void rearm_once(hwt_timeout *timeout, void *arg)
{
    atomic_uint *runs = arg;

    if (atomic_fetch_add(runs, 1) == 0) {
        sleep_ms(5); /* nothing is pending just now, and it has not ended */
        cr_assert(hwt_timeout_reschedule(timeout, HWT_MSEC(10)));
    }
}

WHEEL_TEST(drain, waits_for_all)
{
    hwt_timer *timer = open_timer(wheel);
    atomic_uint runs = 0, rearmed = 0;
    hwt_timeout *cancelled = NULL, *moved = NULL;
    hwt_unprocessed list = {(hwt_timeout *)&list, 7};

    for (int i = 0; i < 100; i++)
        cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_USEC(300 * i), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, rearm_once, &rearmed, HWT_MSEC(31), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_SEC(3600), &cancelled), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_SEC(3600), &moved), 0);
    cr_assert(hwt_timeout_cancel(cancelled));
    cr_assert(hwt_timeout_reschedule(moved, HWT_MSEC(20)));
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(60), &list), 0);
    cr_assert_eq(runs, 101);
    cr_assert_eq(rearmed, 2);
    cr_assert_eq(list.count, 0);
    cr_assert_null(list.first);
    hwt_timeout_unref(cancelled);
    hwt_timeout_unref(moved);
    close_timer(timer);
}

WHEEL_TEST(drain, no_longer_than_told)
{
    for (int variant = 0; variant < 4; variant++) {
        bool with_list = variant % 2;
        hwt_timer *timer = open_timer(wheel);
        uint64_t began = hwt_timer_now(timer);
        hwt_unprocessed list;
        hwt_timeout *timeout;
        probe soon = {0}, never = {0};
        hwt_spec spec;

        probe_spec(&spec, &soon, HWT_MSEC(5));
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
        probe_spec(&spec, &never, variant / 2 ? UINT64_MAX : HWT_SEC(3600));
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
        cr_assert_eq(hwt_timer_drain(timer, HWT_MSEC(50), with_list ? &list : NULL), 0);
        cr_assert_geq(hwt_timer_now(timer) - began, HWT_MSEC(50), "it waits for what is never due");
        cr_assert_eq(soon.runs, 1);
        cr_assert_eq(never.runs, 0);
        cr_assert_eq(never.hooks, !with_list);
        if (with_list) {
            cr_assert_eq(list.count, 1);
            timeout = hwt_unprocessed_take(&list);
            cr_assert_eq(hwt_timeout_arg(timeout), &never);
            cr_assert(hwt_timeout_is_cancelled(timeout));
            hwt_timeout_unref(timeout);
        }
        close_timer(timer);
    }
}

static const uint64_t delays[] = {0, HWT_USEC(10), HWT_MSEC(3), HWT_SEC(2), HWT_SEC(5000)};

/* What it takes to wait does not grow with what is pending. */
WHEEL_TEST(drain, does_not_count_all_again_and_again)
{
    hwt_timer *timer = open_timer(wheel);
    hwt_unprocessed list;
    hwt_timeout *back;

    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_timer_drain(timer, HWT_MSEC(200), &list), 0); /* it looks some hundred times */
    cr_assert_eq(list.count, 1000);
    cr_assert_leq(counts, 8 * (timer->lanes.count + 1));
    while ((back = hwt_unprocessed_take(&list)) != NULL)
        hwt_timeout_unref(back);
    close_timer(timer);
}

WHEEL_TEST(drain, periodic_ones_end_at_once)
{
    hwt_timer *timer = open_timer(wheel);
    hwt_timeout *timeout[20], *back;
    hwt_unprocessed list;
    probe p[20] = {0};
    size_t count = 0;

    for (size_t i = 0; i < COUNT_OF(p); i++) {
        hwt_spec spec;

        probe_spec(&spec, &p[i], delays[i % COUNT_OF(delays)]);
        spec.period_ns = HWT_USEC(500);
        cr_assert_eq(hwt_schedule(timer, &spec, &timeout[i]), 0);
    }
    sleep_ms(10);
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(60), &list), 0, "they alone do not keep it");
    cr_assert_eq(list.count, 20);
    while ((back = hwt_unprocessed_take(&list)) != NULL) {
        cr_assert(hwt_timeout_is_cancelled(back));
        hwt_timeout_unref(back);
        count++;
    }
    cr_assert_eq(count, 20);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert_eq(p[i].hooks, 0);
        cr_assert_not(hwt_timeout_cancel(timeout[i]));
        hwt_timeout_unref(timeout[i]);
    }
    close_timer(timer);
}

typedef struct lag {
    hwt_timer *timer;
    atomic_uint runs, late;
} lag;

static void fall_behind(hwt_timeout *timeout, void *arg)
{
    lag *l = arg;

    (void)timeout;
    l->runs++;
    l->late += hwt_timer_is_stopped(l->timer);
    sleep_ms(2);
}

/* Also what has fallen behind, and would catch up within the pass. */
WHEEL_TEST(drain, a_periodic_one_does_not_catch_up)
{
    lag l = {.timer = open_timer(wheel)};
    atomic_uint ran = 0;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = fall_behind;
    spec.arg = &l;
    spec.period_ns = HWT_USEC(100);
    cr_assert_eq(hwt_schedule(l.timer, &spec, NULL), 0);
    cr_assert_eq(hwt_schedule(l.timer, &spec, NULL), 0);
    cr_assert(wait_count(&l.runs, 20));
    cr_assert_eq(hwt_new_timeout(l.timer, count_task, &ran, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(hwt_timer_drain(l.timer, HWT_SEC(3600), NULL), 0);
    cr_assert_leq(l.late, 1, "%u runs began", l.late); /* as the drain did */
    cr_assert_eq(ran, 1, "what was due was waited for");
    close_timer(l.timer);
}

/* ---- beside others ---- */

struct drainer {
    hwt_timer *timer;
    uint64_t max_ns;
    hwt_unprocessed list;
    int result;
    pthread_t thread;
};

static void *drain_main(void *arg)
{
    struct drainer *d = arg;

    d->result = hwt_timer_drain(d->timer, d->max_ns, &d->list);
    return NULL;
}

static void start_drain(struct drainer *d, hwt_timer *timer)
{
    *d = (struct drainer){.timer = timer, .max_ns = HWT_SEC(3600), .list = {NULL, 9}, .result = 1};
    cr_assert_eq(pthread_create(&d->thread, NULL, drain_main, d), 0);
    while (!hwt_timer_is_stopped(timer))
        sleep_ms(1);
}

static void ends_empty(struct drainer *d)
{
    cr_assert_eq(pthread_join(d->thread, NULL), 0);
    cr_assert_eq(d->result, 0);
    cr_assert_eq(d->list.count, 0);
}

/*
 * With nothing periodic there is nothing to look for: what is far stays where it is, and can still
 * be withdrawn.
 */
WHEEL_TEST(drain, looks_for_what_is_periodic_only_if_there_is_any)
{
    for (size_t periodic = 0; periodic < 2; periodic++) {
        hwt_timer *timer = open_timer(wheel);
        hwt_timeout *far[1000], *back;
        atomic_uint runs = 0;
        struct drainer d;
        hwt_spec spec;

        for (size_t i = 0; i < COUNT_OF(far); i++)
            cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_SEC(3600), &far[i]), 0);
        hwt_spec_init(&spec);
        spec.task = count_task;
        spec.arg = &runs;
        spec.delay_ns = spec.period_ns = HWT_SEC(3600);
        if (periodic)
            cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
        start_drain(&d, timer);
        while (timer->worker.reclaiming == RECLAIM_NONE) /* the worker has yet to come to it */
            sleep_ms(1);
        for (size_t i = 0; i < COUNT_OF(far); i++) {
            cr_assert(hwt_timeout_cancel(far[i]));
            hwt_timeout_unref(far[i]);
        }
        cr_assert_eq(pthread_join(d.thread, NULL), 0);
        cr_assert_eq(d.result, 0);
        cr_assert_eq(d.list.count, periodic);
        while ((back = hwt_unprocessed_take(&d.list)) != NULL)
            hwt_timeout_unref(back);
        cr_assert_eq(stats_of(timer).withdrawn, periodic ? 0 : COUNT_OF(far));
        close_timer(timer);
    }
}

/* ---- beside an executor ---- */

/* Its run ends at the executor while the worker sleeps, and is to be followed by one far away. */
static void drain_beside_a_run(hwt_wheel_kind wheel, uint64_t period, bool beside_another)
{
    hwt_timeout *other = NULL;
    gate run = {0};
    job_thread one;
    hwt_config config;
    hwt_timer *timer;
    hwt_spec spec;
    struct drainer d;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.execute = run_in_a_thread;
    config.executor = &one;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    if (beside_another)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &other), 0);
    hwt_spec_init(&spec);
    spec.task = gate_task;
    spec.arg = &run;
    spec.period_ns = period;
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    cr_assert(wait_count(&run.entered, 1));
    start_drain(&d, timer);
    sleep_ms(50); /* the worker has seen it, and sleeps */
    gate_open(&run);
    cr_assert_eq(pthread_join(one.thread, NULL), 0);
    if (beside_another) {
        cr_assert(hwt_timeout_cancel(other));
        hwt_timeout_unref(other);
    }
    cr_assert_eq(pthread_join(d.thread, NULL), 0, "it waits for the periodic one's next run");
    cr_assert_eq(d.result, 0);
    cr_assert_eq(d.list.count, 1, "the periodic one");
    hwt_timeout_unref(hwt_unprocessed_take(&d.list));
    close_timer(timer);
}

WHEEL_TEST(drain, a_periodic_one_at_an_executor)
{
    drain_beside_a_run(wheel, HWT_SEC(7200), true);
}

WHEEL_TEST(drain, the_last_run_of_a_periodic_one_at_an_executor)
{
    drain_beside_a_run(wheel, UINT64_MAX / 2, false);
}

/* ---- what it takes to wait for the last run ---- */

WHEEL_TEST(drain, looks_at_nothing_while_the_worker_is_in_a_task)
{
    hwt_timer *timer = open_timer(wheel);
    gate run = {0};
    struct drainer d;

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &run, 0, NULL), 0);
    cr_assert(wait_count(&run.entered, 1));
    start_drain(&d, timer);
    sleep_ms(100);
    cr_assert_eq(counts, 0);
    gate_open(&run);
    ends_empty(&d);
    close_timer(timer);
}

/* Nothing is pending; the worker knows what is on at the executor, and counts nothing. */
WHEEL_TEST(drain, looks_the_more_seldom_the_longer_it_takes)
{
    gate run = {0};
    job_thread one;
    hwt_config config;
    hwt_timer *timer;
    struct drainer d;
    uint64_t began, looks, counted;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.execute = run_in_a_thread;
    config.executor = &one;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &run, 0, NULL), 0);
    cr_assert(wait_count(&run.entered, 1));
    count_ms = 4; /* two counts of each lane are a look: 8 ms at least, and no other for 160 */
    began = real_now(CLOCK_MONOTONIC);
    start_drain(&d, timer);
    sleep_ms(500);
    counted = counts;
    looks = 1 + (real_now(CLOCK_MONOTONIC) - began) / HWT_MSEC(160);
    cr_assert_leq(counted, looks * 2 * (timer->lanes.count + 1));
    count_ms = 0;
    gate_open(&run);
    ends_empty(&d);
    cr_assert_eq(pthread_join(one.thread, NULL), 0);
    close_timer(timer);
}

static unsigned lanes_made(const hwt_timer *timer)
{
    unsigned made = 0;

    for (unsigned i = 0; lanes_next_made(&timer->lanes, &i);)
        made++;
    return made;
}

/* Each may have brought something periodic into a lane; that something is pending is known. */
WHEEL_TEST(drain, moves_meanwhile_do_not_make_it_count)
{
    hwt_timer *timer = open_timer(wheel);
    hwt_timeout *moved = NULL;
    struct drainer d;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.delay_ns = spec.period_ns = HWT_SEC(7200);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(7200), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(7200), &moved), 0);
    start_drain(&d, timer);
    while (timer->worker.reclaiming == RECLAIM_NONE)
        sleep_ms(1);
    for (int i = 0; i < 50; i++) {
        cr_assert(hwt_timeout_reschedule(moved, HWT_SEC(3600 - i)));
        sleep_ms(4); /* who drains looks twice meanwhile */
    }
    cr_assert_leq(counts, 2 * 2 * lanes_made(timer), "%u", counts); /* once he, once the worker */
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(pthread_join(d.thread, NULL), 0);
    hwt_timeout_unref(moved);
    close_timer(timer);
}

typedef struct straggler {
    hwt_timer *timer;
    uint64_t delay, period;
    hwt_timeout *handle;
    gate gate;
    int result;
} straggler;

static void *submit_late(void *arg)
{
    straggler *s = arg;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.delay_ns = s->delay;
    spec.period_ns = s->period;
    reads_clock_at = &s->gate;
    s->result = hwt_schedule(s->timer, &spec, &s->handle);
    return NULL;
}

/* It was let in before the timer was closed, and is there only afterwards. */
static void submits_late(hwt_wheel_kind wheel, uint64_t delay, uint64_t period)
{
    straggler s = {.timer = open_timer(wheel), .delay = delay, .period = period, .result = 1};
    pthread_t thread;
    gate last = {0};
    struct drainer d;

    cr_assert_eq(hwt_timer_start(s.timer), 0);
    cr_assert_eq(pthread_create(&thread, NULL, submit_late, &s), 0);
    cr_assert(wait_count(&s.gate.entered, 1));
    cr_assert_eq(hwt_new_timeout(s.timer, gate_task, &last, HWT_MSEC(20), NULL), 0);
    start_drain(&d, s.timer);
    cr_assert(wait_count(&last.entered, 1)); /* the worker has seen to what there was */
    gate_open(&s.gate);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(s.result, -ESHUTDOWN);
    cr_assert_null(s.handle);
    gate_open(&last);
    ends_empty(&d);
    cr_assert_eq(stats_of(s.timer).scheduled, 1);
    close_timer(s.timer);
}

/* Accepted, it would have to run before the drain ends; the worker may have seen the end by now. */
WHEEL_TEST(drain, what_comes_late_is_refused)
{
    submits_late(wheel, 0, 0);
    submits_late(wheel, HWT_SEC(3600), 0);
    submits_late(wheel, HWT_SEC(3600), HWT_SEC(3600));
}

WHEEL_TEST(drain, beside_others)
{
    hwt_timer *timer = open_timer(wheel);
    hwt_timeout *last = NULL;
    struct drainer first, second;
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(3600), &last), 0);
    start_drain(&first, timer);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_start(timer), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_visit(timer, probe_task, NULL), -ESHUTDOWN);
    start_drain(&second, timer);
    sleep_ms(10);
    cr_assert_eq(hwt_timeout_state(last), HWT_PENDING);
    cr_assert(hwt_timeout_reschedule(last, HWT_SEC(7200)));
    cr_assert_eq(first.result + second.result, 2, "both wait");
    cr_assert(hwt_timeout_cancel(last)); /* which the drain is not told */
    ends_empty(&first);
    ends_empty(&second);
    hwt_timeout_unref(last);
    close_timer(timer);
}

WHEEL_TEST(drain, cut_short)
{
    for (int by_destroy = 0; by_destroy < 2; by_destroy++) {
        hwt_timer *timer = open_timer(wheel);
        struct drainer d;
        hwt_unprocessed list;
        probe p = {0};
        hwt_spec spec;

        probe_spec(&spec, &p, HWT_SEC(3600));
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
        start_drain(&d, timer);
        if (by_destroy) {
            cr_assert_eq(hwt_timer_destroy(timer), 0);
            cr_assert_eq(p.hooks, 1);
        } else {
            cr_assert_eq(hwt_timer_stop(timer, &list), 0);
            cr_assert_eq(list.count, 1);
            hwt_timeout_unref(hwt_unprocessed_take(&list));
        }
        ends_empty(&d);
        if (!by_destroy)
            close_timer(timer);
    }
}

/* ---- errors, and timers without a worker ---- */

static void drain_in_task(hwt_timeout *timeout, void *arg)
{
    atomic_store((atomic_int *)arg, hwt_timer_drain(hwt_timeout_timer(timeout), 0, NULL));
}

WHEEL_TEST(drain, errors)
{
    hwt_timer *timer = open_timer(wheel);
    atomic_int result = 1;
    int status;
    pid_t child;
    rig r;

    cr_assert_eq(hwt_timer_drain(NULL, 0, NULL), -EINVAL);
    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_timer_drain(r.timer, 0, NULL), -EINVAL);
    cr_assert_not(hwt_timer_is_stopped(r.timer));
    rig_close(&r);
    cr_assert_eq(hwt_new_timeout(timer, drain_in_task, &result, 0, NULL), 0);
    while (result == 1)
        sleep_ms(1);
    cr_assert_eq(result, -EDEADLK);
    child = fork();
    if (child == 0)
        _exit(hwt_timer_drain(timer, HWT_SEC(1), NULL) == -ECHILD ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(hwt_timer_drain(timer, 0, NULL), 0);
    cr_assert_eq(hwt_timer_drain(timer, 0, NULL), 0, "again");
    close_timer(timer);
}

static void end_thread(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    pthread_exit(NULL);
}

WHEEL_TEST(drain, without_a_worker)
{
    hwt_timer *timer = open_timer(wheel);
    hwt_unprocessed list;

    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(3600), NULL), 0, "never started");
    close_timer(timer);
    timer = open_timer(wheel);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, end_thread, NULL, HWT_MSEC(20), NULL), 0);
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(3600), &list), 0, "lost while it waits");
    cr_assert_eq(list.count, 1);
    hwt_timeout_unref(hwt_unprocessed_take(&list));
    close_timer(timer);
}
