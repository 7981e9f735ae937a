/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "Run now", said again and again without a pause, as who has to flush says it with each write:
 * each time the deadline is a later one, and the task runs all the same (G4). One timeout, some,
 * and as many as crowd a tick; on either wheel, and on a timer that its caller drives.
 */
#include "stress.h"

#define MOST    100
#define RUNS    200
#define KICKERS 2

static hwt_timer *timer;
static hwt_timeout *kicked[MOST];
static unsigned count;
static _Atomic uint64_t runs, kicks, all_runs;
static atomic_bool over;

/* Each is to be kicked into its next run. */
static void run(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    atomic_fetch_add(&runs, 1);
    (void)hwt_timeout_reschedule(timeout, HWT_SEC(3600)); /* false: stop has begun */
}

static void *kick(void *arg)
{
    uint64_t said = 0;

    (void)arg;
    for (unsigned i = 0; !atomic_load_explicit(&over, memory_order_relaxed); i++)
        said += hwt_timeout_reschedule(kicked[i % count], 0);
    atomic_fetch_add(&kicks, said);
    return NULL;
}

static void *drive(void *arg)
{
    (void)arg;
    while (!atomic_load_explicit(&over, memory_order_relaxed))
        STRESS_CHECK(hwt_timer_advance(timer) >= 0, "advance");
    return NULL;
}

static void round_of(unsigned round)
{
    static const unsigned counts[] = {1, 10, MOST};
    pthread_t thread[KICKERS + 1];
    unsigned threads = 0;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = round & 1 ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config.drive = round & 2 ? HWT_DRIVE_CALLER : HWT_DRIVE_WORKER;
    STRESS_OK(hwt_timer_create(&timer, &config));
    count = counts[round / 4 % 3];
    atomic_store(&runs, 0);
    atomic_store(&over, false);
    for (unsigned i = 0; i < count; i++)
        STRESS_OK(hwt_new_timeout(timer, run, NULL, HWT_SEC(3600), &kicked[i]));
    if (config.drive == HWT_DRIVE_CALLER)
        thread[threads++] = stress_thread(drive, NULL);
    for (unsigned i = 0; i < KICKERS; i++)
        thread[threads++] = stress_thread(kick, NULL);
    stress_await(&runs, RUNS * count, "runs of what is kicked");
    atomic_store(&over, true);
    while (threads > 0)
        STRESS_OK(pthread_join(thread[--threads], NULL));
    for (unsigned i = 0; i < count; i++)
        hwt_timeout_unref(kicked[i]);
    STRESS_OK(hwt_timer_destroy(timer));
    atomic_fetch_add(&all_runs, runs);
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2));
    unsigned rounds = 0;

    for (; rounds < 12 || stress_now() < end; rounds++)
        round_of(rounds);
    return stress_end("stress/kicked", "%u rounds, %" PRIu64 " kicks, %" PRIu64 " runs", rounds,
                      atomic_load(&kicks), atomic_load(&all_runs));
}
