/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting beside an executor whose tasks begin on one CPU and re-arm, or end, on another (G3,
 * C24), and beside threads that replace one timeout by another: what is pending all the time is
 * found, and no counter is below 0.
 */
#include "stress.h"

enum { MANY = 1000, JOBS = 4, REPLACERS = 2 };

struct slot {
    void (*run)(void *job);
    void *job;
    _Atomic bool full;
};

static struct slot slots[JOBS];
static hwt_timer *timer;
static _Atomic bool enough;
static _Atomic uint64_t chains; /* that go on: each has one timeout, or more for a moment */
static _Atomic uint64_t places; /* in each of which there is a timeout */

static void go_to(unsigned cpu)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one); /* there may be one CPU only */
}

/* There are as many chains as slots, and each waits for its job. */
static int keep(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    for (unsigned i = 0; i < JOBS; i++) {
        if (!atomic_load(&slots[i].full)) {
            slots[i].run = run;
            slots[i].job = job;
            atomic_store(&slots[i].full, true);
            return 0;
        }
    }
    return -EAGAIN;
}

static void *pool_thread(void *arg)
{
    struct slot *slot = arg;

    while (!atomic_load(&enough) || atomic_load(&chains) > 0) {
        if (!atomic_load(&slot->full)) {
            sched_yield();
            continue;
        }
        go_to(0);
        struct slot job = {slot->run, slot->job, false};
        atomic_store(&slot->full, false);
        job.run(job.job);
    }
    return NULL;
}

static void nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* As one that has waited for something, and goes on elsewhere. */
static void wander(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    go_to(1);
    if (atomic_load(&enough))
        atomic_fetch_sub(&chains, 1);
    else if (stress_one_in(2))
        STRESS_CHECK(hwt_timeout_reschedule(timeout, 0), "it was not cancelled");
    else
        STRESS_OK(hwt_new_timeout(timer, wander, NULL, 0, NULL));
}

/* One of his is pending, or two, wherever. */
static void *replace(void *arg)
{
    hwt_timeout *last, *next;

    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(3600), &last));
    atomic_fetch_add(&places, 1);
    while (!atomic_load(&enough)) {
        if (stress_one_in(16))
            go_to(stress_one_in(2));
        STRESS_OK(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(3600), &next));
        STRESS_CHECK(hwt_timeout_cancel(last), "it was pending");
        hwt_timeout_unref(last);
        last = next;
    }
    hwt_timeout_unref(last);
    return arg;
}

static void check_counters(void)
{
    uint64_t least = atomic_load(&places), pending;
    hwt_stats s = stress_stats(timer);

    pending = hwt_timer_pending(timer);
    STRESS_CHECK(hwt_timer_next_deadline(timer) != UINT64_MAX, "nothing is said to be pending");
    STRESS_CHECK(s.expired <= s.runs + JOBS, "G3: %" PRIu64 " expired", s.expired);
    STRESS_CHECK(s.pending >= least && pending >= least,
                 "G3: %" PRIu64 " and %" PRIu64 " pending, %" PRIu64 " expired", s.pending, pending,
                 s.expired);
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 3)), looks = 0;
    pthread_t threads[JOBS], replacers[REPLACERS];
    hwt_config config;
    hwt_stats s;

    hwt_config_init(&config);
    config.execute = keep;
    STRESS_OK(hwt_timer_create(&timer, &config));
    for (unsigned i = 0; i < MANY; i++)
        STRESS_OK(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(3600), NULL));
    for (unsigned i = 0; i < JOBS; i++) {
        atomic_fetch_add(&chains, 1);
        threads[i] = stress_thread(pool_thread, &slots[i]);
        STRESS_OK(hwt_new_timeout(timer, wander, NULL, 0, NULL));
    }
    atomic_store(&places, MANY);
    for (unsigned i = 0; i < REPLACERS; i++)
        replacers[i] = stress_thread(replace, NULL);
    for (; stress_now() < end; looks++)
        check_counters();
    atomic_store(&enough, true);
    for (unsigned i = 0; i < JOBS; i++)
        stress_join(threads[i]);
    for (unsigned i = 0; i < REPLACERS; i++)
        stress_join(replacers[i]);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    s = stress_stats(timer);
    STRESS_CHECK(s.unprocessed == MANY + REPLACERS, "%" PRIu64 " unprocessed", s.unprocessed);
    STRESS_OK(hwt_timer_destroy(timer));
    return stress_end("stress/ledger", "%" PRIu64 " looks, %" PRIu64 " runs", looks, s.runs);
}
