/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks that may be slow, run by GLib's GThreadPool instead of the timer's own thread.
 *
 * The executor takes a job or refuses it, here when too many wait already. A refused timeout ends
 * as cancelled, and its hook tells so. The pool is freed after the timer has stopped, when no
 * further job can come, and before it is destroyed: every job that was taken must be run.
 */
#include "example.h"

#include <errno.h>
#include <glib.h>
#include <hwt.h>
#include <stdatomic.h>

enum { THREADS = 4, QUEUE_LIMIT = 16, SLOW = 8, FLOOD = 200 };

struct job {
    void (*run)(void *job);
    void *job;
};

static void pool_run(gpointer data, gpointer unused)
{
    struct job *job = data;

    (void)unused;
    job->run(job->job);
    g_free(job);
}

static int pool_execute(void *executor, void (*run)(void *job), void *arg)
{
    GThreadPool *pool = executor;
    struct job *job;

    if (g_thread_pool_unprocessed(pool) >= QUEUE_LIMIT)
        return -EAGAIN;
    job = g_new(struct job, 1);
    job->run = run;
    job->job = arg;
    g_thread_pool_push(pool, job, NULL);
    return 0;
}

/* ---- the pool at work ---- */

static atomic_uint slow_running, slow_together, slow_done;
static atomic_uint poll_running, polls;
static atomic_uint flood_ran, flood_cancelled;

static void slow_task(hwt_timeout *timeout, void *unused)
{
    unsigned running = atomic_fetch_add(&slow_running, 1) + 1;
    unsigned most = slow_together;

    (void)timeout;
    (void)unused;
    while (running > most && !atomic_compare_exchange_weak(&slow_together, &most, running))
        ;
    sleep_ms(50);
    atomic_fetch_sub(&slow_running, 1);
    atomic_fetch_add(&slow_done, 1);
}

/* Takes longer than its period, with idle threads about. */
static void poll_task(hwt_timeout *timeout, void *unused)
{
    (void)timeout;
    (void)unused;
    must(atomic_fetch_add(&poll_running, 1) == 0, "never concurrent with itself (G14)");
    sleep_ms(7);
    atomic_fetch_sub(&poll_running, 1);
    atomic_fetch_add(&polls, 1);
}

static void flood_task(hwt_timeout *timeout, void *unused)
{
    (void)timeout;
    (void)unused;
    sleep_ms(1);
    atomic_fetch_add(&flood_ran, 1);
}

static void flood_hook(hwt_timeout *timeout, void *unused)
{
    (void)unused;
    must(hwt_timeout_is_cancelled(timeout), "a timeout whose hook runs is cancelled (G10)");
    atomic_fetch_add(&flood_cancelled, 1);
}

static void slow_tasks_overlap(hwt_timer *timer)
{
    for (int i = 0; i < SLOW; i++)
        must(hwt_new_timeout(timer, slow_task, NULL, HWT_MSEC(5), NULL) == 0, "schedule");
    while (slow_done < SLOW)
        sleep_ms(1);
    must(slow_together > 1, "the pool runs slow tasks side by side");
}

static void periodic_does_not(hwt_timer *timer)
{
    hwt_timeout *poll = NULL;
    hwt_spec spec;
    unsigned seen;

    hwt_spec_init(&spec);
    spec.task = poll_task;
    spec.period_ns = HWT_MSEC(3);
    spec.period_mode = HWT_FIXED_RATE_SKIP;
    must(hwt_schedule(timer, &spec, &poll) == 0, "schedule a periodic timeout");
    while (polls < 10)
        sleep_ms(1);
    must(hwt_timeout_cancel_sync(poll) == 1, "cancel it");
    seen = polls;
    must(poll_running == 0, "after cancel_sync it is not running, in no thread");
    sleep_ms(20);
    must(polls == seen, "and never again");
    hwt_timeout_unref(poll);
}

/* More than the pool takes, and stop comes while it is at it. */
static void flood_and_stop(hwt_timer *timer)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = flood_task;
    spec.cancelled = flood_hook;
    for (unsigned i = 0; i < FLOOD; i++) {
        spec.delay_ns = HWT_USEC(200) * i;
        must(hwt_schedule(timer, &spec, NULL) == 0, "schedule");
    }
    sleep_ms(20);
    must(hwt_timer_stop(timer, NULL) == 0, "stop");
}

int main(void)
{
    GThreadPool *pool = g_thread_pool_new(pool_run, NULL, THREADS, TRUE, NULL);
    hwt_config config;
    hwt_timer *timer;
    hwt_stats stats;

    give_up_after(20);
    hwt_config_init(&config);
    config.execute = pool_execute;
    config.executor = pool;
    must(hwt_timer_create(&timer, &config) == 0, "create a timer");
    slow_tasks_overlap(timer);
    periodic_does_not(timer);
    flood_and_stop(timer);
    g_thread_pool_free(pool, FALSE, TRUE); /* runs what it took, waits for its threads */

    hwt_stats_init(&stats);
    must(hwt_timer_stats(timer, &stats) == 0, "statistics");
    must(flood_ran + flood_cancelled == FLOOD, "each ends exactly once (G2)");
    must(stats.scheduled == stats.expired + stats.cancelled + stats.unprocessed, "balance (G3)");
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    printf("glib_pool: %u slow tasks at once, %u of %u ran before stop, %u refused\n",
           slow_together, flood_ran, FLOOD, (unsigned)stats.rejected);
    return 0;
}
