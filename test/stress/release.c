/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G16: threads that schedule with a release, cancel, move, share and drop, against a worker or an
 * executor's threads and a stop at any moment. Each accepted timeout's argument is released once,
 * when nobody uses it: that is told by plain fields, which ThreadSanitizer watches, and by freeing.
 */
#include <errno.h>
#include <stdlib.h>

#include "stress.h"

enum { PRODUCERS = 3, WINDOW = 16 };

static hwt_timer *timer;
static _Atomic uint64_t accepted, released, alive;

struct cargo {
    uint64_t runs; /* plain, as the next */
    bool done;
    bool rearms;
};

static void run_cargo(hwt_timeout *timeout, void *arg)
{
    struct cargo *cargo = arg;

    cargo->runs++;
    STRESS_CHECK(!cargo->done, "a task runs with what was released");
    if (cargo->rearms && cargo->runs < 3)
        hwt_timeout_reschedule(timeout, stress_below(HWT_USEC(200)));
}

static void hook(hwt_timeout *timeout, void *arg)
{
    const struct cargo *cargo = arg;

    STRESS_CHECK(!cargo->done, "a hook runs with what was released");
    STRESS_CHECK(hwt_timeout_arg(timeout) == arg, "arg");
}

static void release(void *arg)
{
    struct cargo *cargo = arg;

    STRESS_CHECK(!cargo->done, "released twice");
    cargo->done = true;
    atomic_fetch_add(&released, 1);
    atomic_fetch_sub(&alive, 1);
    free(cargo);
}

static int schedule(hwt_timeout **timeout)
{
    struct cargo *cargo = calloc(1, sizeof *cargo);
    hwt_spec spec;
    int result;

    STRESS_CHECK(cargo, "memory");
    cargo->rearms = stress_one_in(4);
    hwt_spec_init(&spec);
    spec.task = run_cargo;
    spec.cancelled = stress_one_in(2) ? hook : NULL;
    spec.arg = cargo;
    spec.release = release;
    spec.delay_ns = stress_below(HWT_MSEC(2));
    if (timeout && stress_one_in(4))
        spec.period_ns = HWT_USEC(100) + stress_below(HWT_USEC(300));
    atomic_fetch_add(&alive, 1);
    result = hwt_schedule(timer, &spec, timeout);
    if (result != 0) {
        atomic_fetch_sub(&alive, 1);
        free(cargo);
    } else {
        atomic_fetch_add(&accepted, 1);
    }
    return result;
}

static void use(hwt_timeout *timeout)
{
    switch (stress_below(6)) {
    case 0: hwt_timeout_reschedule(timeout, stress_below(HWT_MSEC(1))); break;
    case 1: hwt_timeout_cancel_sync(timeout); break;
    case 2: hwt_timeout_unref(hwt_timeout_ref(timeout)); break;
    default: hwt_timeout_cancel(timeout); break;
    }
}

static void *producer(void *arg)
{
    hwt_timeout *window[WINDOW] = {0};
    int result = 0;

    while (result == 0) {
        hwt_timeout **place = &window[stress_below(WINDOW)];

        if (*place)
            use(*place);
        hwt_timeout_unref(*place);
        *place = NULL;
        result = schedule(stress_one_in(5) ? NULL : place);
    }
    STRESS_CHECK(result == -ESHUTDOWN, "%d", result);
    for (int i = 0; i < WINDOW; i++) {
        if (window[i])
            use(window[i]);
        hwt_timeout_unref(window[i]);
    }
    return arg;
}

static int execute(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    if (stress_one_in(10))
        return -1;
    run(job);
    return 0;
}

static void one_round(hwt_wheel_kind wheel)
{
    pthread_t threads[PRODUCERS];
    hwt_unprocessed list;
    hwt_config config;

    atomic_store(&accepted, 0);
    atomic_store(&released, 0);
    hwt_config_init(&config);
    config.wheel = wheel;
    config.tick_ns = HWT_USEC(100);

    config.execute = stress_one_in(2) ? execute : NULL; /* on the worker's thread */
    STRESS_OK(hwt_timer_create(&timer, &config));
    for (int i = 0; i < PRODUCERS; i++)
        STRESS_OK(pthread_create(&threads[i], NULL, producer, NULL));
    stress_sleep(HWT_MSEC(1) + stress_below(HWT_MSEC(20)));
    if (stress_one_in(2)) {
        STRESS_OK(hwt_timer_stop(timer, &list));
        for (hwt_timeout *t; (t = hwt_unprocessed_take(&list)) != NULL;)
            hwt_timeout_unref(t);
    } else {
        STRESS_OK(hwt_timer_stop(timer, NULL));
    }
    for (int i = 0; i < PRODUCERS; i++)
        STRESS_OK(pthread_join(threads[i], NULL));
    STRESS_CHECK(atomic_load(&released) == atomic_load(&accepted),
                 "%" PRIu64 " released of %" PRIu64, atomic_load(&released),
                 atomic_load(&accepted));
    STRESS_CHECK(atomic_load(&alive) == 0, "%" PRIu64 " alive", atomic_load(&alive));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2));
    uint64_t rounds = 0, total = 0;

    for (; stress_now() < end; rounds++) {
        one_round(rounds & 1 ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL);
        total += atomic_load(&released);
    }
    return stress_end("stress/release", "%" PRIu64 " rounds, %" PRIu64 " released", rounds, total);
}
