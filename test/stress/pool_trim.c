/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large timers come and go beside one that is in use: some threads schedule, cancel and keep
 * handles on it, one measures how long each of its submissions takes while the others' memory is
 * given back. What is in use stays as it was (G9), nobody waits (G7), and in the end every block
 * is back. The argument is the size of the large ones, in hundred thousands.
 */
#include "stress.h"

#include "pool.h"

#include <sys/resource.h>

#ifndef USERS
#define USERS 2 /* with none, the longest submission is a measurement */
#endif
enum { KEPT = 3000, ROUNDS = 4 };

static hwt_timer *used;
static _Atomic bool quit;
static _Atomic uint64_t operations;
static uint64_t large;

static void never(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    stress_fail(__FILE__, __LINE__, "an hour away", "it ran, with %p", arg);
}

/* ---- users: what they keep carries a mark ---- */
static void check_and_end(hwt_timeout **place)
{
    STRESS_CHECK(hwt_timeout_arg(*place) == place && hwt_timeout_task(*place) == never,
                 "G9: overwritten");
    STRESS_CHECK(hwt_timeout_cancel(*place), "G2: ended by nobody");
    hwt_timeout_unref(*place);
    *place = NULL;
}

static void *use(void *arg)
{
    hwt_timeout **kept = calloc(KEPT, sizeof *kept);

    STRESS_CHECK(kept, "memory");
    while (!atomic_load(&quit)) {
        hwt_timeout **place = &kept[stress_below(KEPT)];
        if (*place)
            check_and_end(place);
        else
            STRESS_OK(hwt_new_timeout(used, never, place, HWT_SEC(3600), place));
        atomic_fetch_add(&operations, 1);
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i])
            check_and_end(&kept[i]);
    free(kept);
    return arg;
}

/* ---- one measures how long a submission takes; when it was not merely preempted ---- */
enum { HISTOGRAM = 40, BURST = 5000 };
static _Atomic bool measuring;
static uint64_t waits[HISTOGRAM], worst, submissions;

static long preempted(void)
{
    struct rusage usage;

    STRESS_OK(getrusage(RUSAGE_THREAD, &usage));
    return usage.ru_nivcsw;
}

static void note(uint64_t ns, long *before)
{
    if (ns > 50000) {
        long now = preempted();
        bool by_others = now != *before;
        *before = now;
        if (by_others)
            return;
    }
    waits[63 - __builtin_clzll(ns | 1)]++;
    worst = ns > worst ? ns : worst;
    submissions++;
}

/* A burst is more than a thread keeps free, so that it must ask for blocks. */
static void measure_burst(hwt_timeout **timeouts)
{
    long before = preempted();
    uint64_t last = stress_now();

    for (int i = 0; i < BURST; i++) {
        uint64_t now;
        STRESS_OK(hwt_new_timeout(used, never, &timeouts[i], HWT_SEC(3600), &timeouts[i]));
        now = stress_now();
        if (atomic_load(&measuring))
            note(now - last, &before);
        last = now;
    }
    for (int i = 0; i < BURST; i++)
        check_and_end(&timeouts[i]);
}

static void *measure(void *arg)
{
    hwt_timeout **timeouts = calloc(BURST, sizeof *timeouts);

    STRESS_CHECK(timeouts, "memory");
    while (!atomic_load(&quit))
        measure_burst(timeouts);
    free(timeouts);
    return arg;
}

/* How many took longer than a millisecond. */
static uint64_t long_waits(void)
{
    uint64_t sum = 0;

    for (int i = 20; i < HISTOGRAM; i++)
        sum += waits[i];
    return sum;
}

/* Every other one in a thread of its own, so that two are given back at once. */
static void *come_and_go(void *arg)
{
    hwt_timer *timer;
    hwt_timeout *one;

    STRESS_OK(hwt_timer_create(&timer, NULL));
    STRESS_OK(hwt_new_timeout(timer, never, timer, HWT_SEC(3600), &one));
    for (uint64_t i = 0; i < large; i++)
        STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), NULL));
    STRESS_OK(hwt_timer_stop(timer, NULL));
    atomic_store(&measuring, true);
    STRESS_OK(hwt_timer_destroy(timer));
    atomic_store(&measuring, false);
    STRESS_CHECK(hwt_timeout_is_cancelled(one) && hwt_timeout_arg(one) == timer,
                 "G9: a handle that outlives its timer");
    hwt_timeout_unref(one);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t user[USERS + 1], measurer, second;

    large = (uint64_t)(stress_begin(argc, argv, STRESS_SANITIZED ? 1 : 4) * 100000);
    STRESS_OK(hwt_timer_create(&used, NULL));
    STRESS_OK(hwt_timer_start(used));
    measurer = stress_thread(measure, NULL);
    for (int i = 0; i < USERS; i++)
        user[i] = stress_thread(use, NULL);
    come_and_go(NULL);
    for (int i = 0; i < ROUNDS; i++) {
        second = stress_thread(come_and_go, NULL);
        if (USERS && i % 2)
            come_and_go(NULL);
        stress_join(second);
    }
    atomic_store(&quit, true);
    stress_join(measurer);
    for (int i = 0; i < USERS; i++)
        stress_join(user[i]);
    STRESS_OK(hwt_timer_destroy(used));
    pool_trim();
    STRESS_CHECK(slab_available() == slab_total(), "%zu of %zu blocks are back", slab_available(),
                 slab_total());
    return stress_end("stress_pool_trim",
                      "%" PRIu64 " operations; the longest of %" PRIu64 " submissions took %" PRIu64
                      " us, %" PRIu64 " more than 1 ms",
                      atomic_load(&operations), submissions, worst / 1000, long_waits());
}
