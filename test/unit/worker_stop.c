/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker, continued: stop and destroy with threads (G2, G3, G8, G10).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(worker_stop, .init = test_arm);

/* ---- G8 ---- */

WHEEL_TEST(worker_stop, hands_back_what_had_not_ended)
{
    static const uint64_t far[] = {HWT_SEC(50), HWT_SEC(3600), HWT_SEC(86400 * 100), UINT64_MAX};
    hwt_timer *timer;
    hwt_config config;
    hwt_unprocessed list;
    hwt_timeout *timeout;
    hwt_stats s;
    probe p = {0};

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0);
    cr_assert(wait_count(&p.runs, 1));
    for (size_t i = 0; i < 5000; i++)
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, far[i % COUNT_OF(far)], NULL), 0);
    cr_assert_eq(hwt_timer_stop(timer, &list), 0);
    cr_assert_eq(list.count, 5000);
    for (size_t left = 5000; (timeout = hwt_unprocessed_take(&list)) != NULL;) {
        cr_assert_eq(list.count, --left);
        cr_assert(hwt_timeout_is_cancelled(timeout));
        cr_assert_eq(hwt_timeout_arg(timeout), &p);
        hwt_timeout_unref(timeout);
    }
    s = stats_of(timer);
    cr_assert_eq(s.scheduled, 5001);
    cr_assert_eq(s.expired, 1);
    cr_assert_eq(s.unprocessed, 5000, "G3");
    cr_assert_eq(s.pending, 0);
    cr_assert(hwt_timer_is_stopped(timer));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(p.runs, 1);
}

typedef struct stopper {
    hwt_timer *timer;
    gate *gate;
    hwt_unprocessed list;
    int result;
    atomic_uint returned;
    bool task_had_left;
} stopper;

static void *stop_thread(void *arg)
{
    stopper *s = arg;

    s->result = hwt_timer_stop(s->timer, &s->list);
    s->task_had_left = atomic_load(&s->gate->left) == atomic_load(&s->gate->entered);
    atomic_fetch_add(&s->returned, 1);
    return NULL;
}

/* A stop waits for the running task, never interrupts it; the second waits for the first. */
Test(worker_stop, waits_for_the_running_task)
{
    hwt_timer *timer = worker_timer();
    gate g = {0};
    stopper s[3] = {0};
    pthread_t threads[COUNT_OF(s)];
    size_t handed_back = 0;

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
    cr_assert(wait_count(&g.entered, 1));
    for (unsigned i = 0; i < 100; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        s[i].timer = timer;
        s[i].gate = &g;
        cr_assert_eq(pthread_create(&threads[i], NULL, stop_thread, &s[i]), 0);
    }
    sleep_ms(50);
    for (size_t i = 0; i < COUNT_OF(s); i++)
        cr_assert_eq(s[i].returned, 0, "G8");
    gate_open(&g);
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert_eq(s[i].result, 0);
        cr_assert(s[i].task_had_left, "G8");
        cr_assert(s[i].list.count == 0 || s[i].list.count == 100, "one gets all of them");
        handed_back += s[i].list.count;
        for (hwt_timeout *t; (t = hwt_unprocessed_take(&s[i].list)) != NULL;)
            hwt_timeout_unref(t);
    }
    cr_assert_eq(handed_back, 100, "G2");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* While stop waits, the timer is closed already. */
Test(worker_stop, closes_before_it_waits)
{
    hwt_timer *timer = worker_timer();
    gate g = {0};
    stopper s = {.timer = timer, .gate = &g};
    pthread_t thread;
    int result = 0;

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(pthread_create(&thread, NULL, stop_thread, &s), 0);
    for (unsigned i = 0; i < 20000 && result == 0; i++) {
        result = hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL);
        usleep(500);
    }
    cr_assert_eq(result, -ESHUTDOWN);
    cr_assert(hwt_timer_is_stopped(timer), "from the moment that stop begins");
    cr_assert_eq(s.returned, 0);
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    for (hwt_timeout *t; (t = hwt_unprocessed_take(&s.list)) != NULL;)
        hwt_timeout_unref(t);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

typedef struct verdicts {
    atomic_int stop;
    atomic_int destroy;
    atomic_uint done;
} verdicts;

static void stop_from_task(hwt_timeout *timeout, void *arg)
{
    verdicts *v = arg;

    atomic_store(&v->stop, hwt_timer_stop(hwt_timeout_timer(timeout), NULL));
    atomic_store(&v->destroy, hwt_timer_destroy(hwt_timeout_timer(timeout)));
    atomic_fetch_add(&v->done, 1);
}

Test(worker_stop, from_the_worker_is_refused)
{
    hwt_timer *timer = worker_timer();
    verdicts v = {0};
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, stop_from_task, &v, 0, NULL), 0);
    cr_assert(wait_count(&v.done, 1));
    cr_assert_eq(v.stop, -EDEADLK);
    cr_assert_eq(v.destroy, -EDEADLK);
    cr_assert_not(hwt_timer_is_stopped(timer));
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0, "and it lives on");
    cr_assert(wait_count(&p.runs, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void stop_other(hwt_timeout *timeout, void *arg)
{
    stopper *s = arg;

    (void)timeout;
    stop_thread(s);
}

/* Another timer's worker is no obstacle. */
Test(worker_stop, of_another_timer_from_a_task)
{
    hwt_timer *timer = worker_timer(), *other = worker_timer();
    gate none = {0};
    stopper s = {.timer = other, .gate = &none};

    cr_assert_eq(hwt_new_timeout(other, noop_task, NULL, HWT_SEC(50), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, stop_other, &s, 0, NULL), 0);
    cr_assert(wait_count(&s.returned, 1));
    cr_assert_eq(s.result, 0);
    cr_assert_eq(s.list.count, 1);
    hwt_timeout_unref(hwt_unprocessed_take(&s.list));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(hwt_timer_destroy(other), 0);
}

/* The running one had not ended as a periodic: it is handed back after its task returned. */
Test(worker_stop, while_a_periodic_task_runs)
{
    hwt_timer *timer = worker_timer();
    gate g = {0};
    stopper s = {.timer = timer, .gate = &g};
    pthread_t thread;
    hwt_timeout *timeout;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = gate_task;
    spec.arg = &g;
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(pthread_create(&thread, NULL, stop_thread, &s), 0);
    sleep_ms(20);
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(s.list.count, 1);
    cr_assert_eq(hwt_unprocessed_take(&s.list), timeout);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
    cr_assert_eq(stats_of(timer).unprocessed, 1, "G3");
    cr_assert_eq(g.entered, 1, "it did not start again");
    hwt_timeout_unref(timeout);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(worker_stop, hooks_run_when_there_is_no_list)
{
    static probe p[1000];
    hwt_timer *timer = worker_timer();

    for (size_t i = 0; i < COUNT_OF(p); i++) {
        hwt_spec spec;

        probe_spec(&spec, &p[i], HWT_SEC(100));
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(p[i].hooks, 1, "G10");
}

/* ---- the end of the process ---- */

static atomic_uint ran_in_time;

static void expect_runs_at_exit(void)
{
    unsigned before = ran_in_time;

    _exit(wait_count(&ran_in_time, before + 3) ? 0 : 1);
}

/* Nothing stops a timer then: its worker goes on beside the handlers of the program. */
Test(worker_stop, not_by_exit)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        hwt_timer *timer = worker_timer();
        hwt_spec spec;

        alarm(PATIENCE_S + 5);
        hwt_spec_init(&spec);
        spec.task = count_task;
        spec.arg = &ran_in_time;
        spec.period_ns = HWT_MSEC(1);
        if (atexit(expect_runs_at_exit) != 0 || hwt_schedule(timer, &spec, NULL) != 0)
            _exit(2);
        exit(3);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    cr_assert_eq(WEXITSTATUS(status), 0);
}

/* ---- submitters racing with stop ---- */

typedef struct racer {
    hwt_timer *timer;
    atomic_uint *runs;
    unsigned accepted;
    int last;
} racer;

static void *race_thread(void *arg)
{
    racer *r = arg;

    while ((r->last = hwt_new_timeout(r->timer, count_task, r->runs, HWT_SEC(100), NULL)) == 0)
        r->accepted++;
    return NULL;
}

/* G8: a submission that races with stop is refused or handed back, none is lost. */
Test(worker_stop, races_with_submitters)
{
    for (unsigned round = 0; round < 60; round++) {
        hwt_timer *timer = worker_timer();
        atomic_uint runs = 0;
        racer r[2];
        pthread_t threads[COUNT_OF(r)];
        hwt_unprocessed list;
        size_t accepted = 0, taken = 0;

        for (size_t i = 0; i < COUNT_OF(r); i++) {
            r[i] = (racer){.timer = timer, .runs = &runs};
            cr_assert_eq(pthread_create(&threads[i], NULL, race_thread, &r[i]), 0);
        }
        usleep(round * 20);
        cr_assert_eq(hwt_timer_stop(timer, &list), 0);
        for (size_t i = 0; i < COUNT_OF(r); i++) {
            cr_assert_eq(pthread_join(threads[i], NULL), 0);
            cr_assert_eq(r[i].last, -ESHUTDOWN);
            accepted += r[i].accepted;
        }
        for (hwt_timeout *t; (t = hwt_unprocessed_take(&list)) != NULL; taken++)
            hwt_timeout_unref(t);
        cr_assert_eq(taken, accepted, "G2, G8: round %u", round);
        cr_assert_eq(stats_of(timer).scheduled, accepted, "G3");
        cr_assert_eq(stats_of(timer).unprocessed, accepted, "G3");
        cr_assert_eq(hwt_timer_destroy(timer), 0);
        cr_assert_eq(runs, 0);
    }
}
