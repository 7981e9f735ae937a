/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G7: while the worker is stuck in a slow task, scheduling, cancelling and moving go on at their
 * usual speed and never wait; what is withdrawn meanwhile needs no memory, what is pending gets its
 * end once the worker is free.
 */
#include "stress.h"

enum { PRODUCERS = 2, WINDOW = 256, SLICE = 2000, TAKEN = 10000, SPILLED = 100000 };

static hwt_timer *timer;
static _Atomic bool quit, release;
static _Atomic uint64_t stuck, ran, pairs;

static void count_run(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    STRESS_CHECK(hwt_timer_now(timer) >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&ran, 1);
}

static void never(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    stress_fail(__FILE__, __LINE__, "an hour", "fired at %" PRIu64, hwt_timeout_deadline(timeout));
}

static void slow_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_store(&stuck, 1);
    while (!atomic_load(&release))
        stress_sleep(HWT_MSEC(1));
    atomic_store(&stuck, 0);
}

static void block_worker(void)
{
    atomic_store(&release, false);
    STRESS_OK(hwt_new_timeout(timer, slow_task, NULL, 0, NULL));
    stress_await(&stuck, 1, "the slow task");
}

static void unblock_worker(void)
{
    uint64_t end = stress_now() + HWT_SEC(30);

    STRESS_CHECK(atomic_load(&stuck) == 1, "the worker was not stuck all the time");
    atomic_store(&release, true);
    while (atomic_load(&stuck) == 1)
        STRESS_CHECK(stress_now() < end, "the worker stays stuck");
}

/* ---- speed: the best slice of many, which neighbours on the machine disturb least ---- */
struct speed {
    uint64_t best_ns, slices;
};

static void replace(hwt_timeout **place)
{
    if (*place != NULL) {
        STRESS_CHECK(hwt_timeout_reschedule(*place, HWT_SEC(7200)), "it did not move");
        STRESS_CHECK(hwt_timeout_cancel(*place), "it was not pending");
        hwt_timeout_unref(*place);
    }
    STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), place));
}

static void *producer(void *arg)
{
    struct speed *speed = arg;
    hwt_timeout *window[WINDOW] = {0};

    speed->best_ns = UINT64_MAX;
    for (speed->slices = 0; !atomic_load(&quit); speed->slices++) {
        uint64_t begin = stress_now(), took;

        for (int i = 0; i < SLICE; i++)
            replace(&window[i % WINDOW]);
        took = stress_now() - begin;
        if (took < speed->best_ns)
            speed->best_ns = took;
    }
    for (int i = 0; i < WINDOW; i++) {
        STRESS_CHECK(window[i] == NULL || hwt_timeout_cancel(window[i]), "it was not pending");
        hwt_timeout_unref(window[i]);
    }
    return NULL;
}

static uint64_t measure(double seconds)
{
    struct speed speeds[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uint64_t best = UINT64_MAX, before;

    atomic_store(&quit, false);
    for (int i = 0; i < PRODUCERS; i++)
        threads[i] = stress_thread(producer, &speeds[i]);
    stress_sleep((uint64_t)(seconds * 3e8));
    before = stress_resident();
    stress_sleep((uint64_t)(seconds * 7e8));
    stress_check_growth(before, 8 << 20, "withdrawn while the worker is stuck");
    atomic_store(&quit, true);
    for (int i = 0; i < PRODUCERS; i++) {
        stress_join(threads[i]);
        STRESS_CHECK(speeds[i].slices > 0, "G7: producer %d stood still", i);
        atomic_fetch_add(&pairs, speeds[i].slices * SLICE);
        best = speeds[i].best_ns < best ? speeds[i].best_ns : best;
    }
    return best / SLICE;
}

/* ---- what the worker holds, and what it has not seen, both with it stuck ---- */
static void cancel_taken(hwt_timeout **taken)
{
    uint64_t pending = hwt_timer_pending(timer);

    for (int i = 0; i < TAKEN; i++) {
        if (i % 2 == 0)
            STRESS_CHECK(hwt_timeout_cancel(taken[i]), "it was not pending");
        else
            STRESS_CHECK(hwt_timeout_cancel_sync(taken[i]) == 1, "it was not pending");
        hwt_timeout_unref(taken[i]);
    }
    STRESS_CHECK(hwt_timer_pending(timer) == pending - TAKEN, "G3: %" PRIu64 " pending",
                 hwt_timer_pending(timer));
}

static void check_population(void)
{
    static hwt_timeout *taken[TAKEN];

    for (int i = 0; i < TAKEN; i++)
        STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), &taken[i]));
    block_worker(); /* the expiry of the slow task made the worker collect the others */
    cancel_taken(taken);
    for (uint64_t i = 0; i < SPILLED; i++)
        STRESS_OK(hwt_new_timeout(timer, count_run, NULL, stress_below(HWT_MSEC(5)), NULL));
    STRESS_CHECK(atomic_load(&ran) == 0, "%" PRIu64 " ran beside the slow task", atomic_load(&ran));
    unblock_worker();
    stress_await(&ran, SPILLED, "what was submitted while the worker was stuck");
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 2);
    uint64_t free_ns, stuck_ns;

    STRESS_OK(hwt_timer_create(&timer, NULL));
    check_population();
    free_ns = measure(seconds / 3);
    block_worker();
    stuck_ns = measure(seconds * 2 / 3);
    unblock_worker();
    STRESS_CHECK(STRESS_SANITIZED || stuck_ns <= 3 * free_ns + 200,
                 "G7: %" PRIu64 " ns with the worker stuck, %" PRIu64 " without", stuck_ns,
                 free_ns);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
    return stress_end("stress/blocked",
                      "%" PRIu64 " rounds of schedule, move, cancel; %" PRIu64 " ns each, %" PRIu64
                      " ns with the worker stuck",
                      atomic_load(&pairs), free_ns, stuck_ns);
}
