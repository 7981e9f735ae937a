/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does a timer cost that has little to do? With one hour-long timeout pending: wake-ups and
 * CPU time. With ten thousand timeouts a second at a 100 us tick: the share of one core.
 */
#include "producer.h"

#include <stdlib.h>
#include <sys/prctl.h>

struct use {
    struct thread_counts before, after;
    uint64_t wakeups, wall_ns;
};

static uint64_t wakeups(hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    bench_check(hwt_timer_stats(timer, &stats), "hwt_timer_stats");
    return stats.wakeups;
}

/* Counts what the operating system saw of the other threads, and what the timer says itself. */
static void watch(struct bench *b, hwt_timer *timer, uint64_t seconds, struct use *use)
{
    use->wakeups = wakeups(timer);
    use->wall_ns = clock_ns();
    other_threads(&use->before);
    for (uint64_t i = 0; i < seconds; i++) {
        bench_progress(b, "watching, %llu of %llu s", (unsigned long long)i,
                       (unsigned long long)seconds);
        sleep_ns(HWT_SEC(1));
    }
    other_threads(&use->after);
    use->wall_ns = clock_ns() - use->wall_ns;
    use->wakeups = wakeups(timer) - use->wakeups;
}

static double cpu_ns(const struct use *use)
{
    return (double)(use->after.cpu_ns - use->before.cpu_ns);
}

static double switches(const struct use *use)
{
    return (double)(use->after.switches - use->before.switches);
}

/* ---- nothing due ---- */
static void quiet(struct bench *b, const char *scenario, uint64_t pending)
{
    struct bench_row row = {"hwt", scenario, 0, pending, "wake-ups", "times", BENCH_NONE};
    hwt_timer *timer = bench_timer(0);
    struct use use;

    if (!bench_wants(b, scenario)) {
        hwt_timer_destroy(timer);
        return;
    }
    for (uint64_t i = 0; i < pending; i++)
        bench_check(hwt_new_timeout(timer, bench_ignore, NULL, HWT_SEC(3600), NULL),
                    "hwt_new_timeout");
    sleep_ns(HWT_MSEC(200));
    watch(b, timer, b->quick ? 3 : b->full || pending == 1 ? 60 : 10, &use);
    bench_value(b, &row, (double)use.wakeups);
    row.metric = "switches";
    bench_value(b, &row, switches(&use));
    row.metric = "CPU";
    row.unit = "ns";
    bench_value(b, &row, cpu_ns(&use));
    hwt_timer_destroy(timer);
}

/* ---- ten thousand a second ---- */
#define RATE UINT64_C(10000)

static void submit_stream(hwt_timer *timer, uint64_t seconds, bool even)
{
    uint64_t from = hwt_timer_now(timer) + HWT_MSEC(300);
    uint64_t seed = 5;

    for (uint64_t i = 0; i < RATE * seconds; i++) {
        uint64_t at = even ? i * (HWT_SEC(1) / RATE) : rng_between(&seed, 0, HWT_SEC(seconds));

        bench_check(hwt_new_timeout_at(timer, bench_ignore, NULL, from + at, NULL),
                    "hwt_new_timeout_at");
    }
}

static void again(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    hwt_timeout_reschedule(timeout, HWT_SEC(1) / RATE);
}

static void start_stream(hwt_timer *timer, const char *kind, uint64_t seconds)
{
    if (*kind == 'r' || *kind == 'e') {
        submit_stream(timer, seconds, *kind == 'e');
        return;
    }
    bench_check(hwt_new_timeout(timer, again, NULL, HWT_SEC(1) / RATE, NULL), "hwt_new_timeout");
}

static void stream(struct bench *b, const char *scenario, const char *kind, double limit)
{
    uint64_t seconds = b->quick ? 2 : b->full ? 20 : 5;
    struct bench_row row = {"hwt", scenario, 0, RATE, "of one core", "%", limit};
    hwt_timer *timer;
    struct use use;

    if (!bench_wants(b, scenario))
        return;
    timer = bench_timer(HWT_USEC(100));
    start_stream(timer, kind, seconds + 2);
    sleep_ns(HWT_MSEC(500));
    watch(b, timer, seconds, &use);
    bench_value(b, &row, 100 * cpu_ns(&use) / (double)use.wall_ns);
    row.limit = 0;
    row.metric = "wake-ups";
    row.unit = "/s";
    bench_value(b, &row, (double)use.wakeups * 1e9 / (double)use.wall_ns);
    row.metric = "CPU a wake-up";
    row.unit = "ns";
    bench_value(b, &row, use.wakeups ? cpu_ns(&use) / (double)use.wakeups : 0);
    hwt_timer_destroy(timer);
}

/* ---- what the operating system takes for as many sleeps ---- */
struct sleeper {
    _Atomic bool stop;
    _Atomic uint64_t sleeps;
};

static void *sleep_on(void *arg)
{
    struct sleeper *sleeper = arg;
    uint64_t next = clock_ns(), now;

    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    while (!atomic_load(&sleeper->stop)) {
        next += HWT_SEC(1) / RATE;
        now = clock_ns();
        if (next > now)
            sleep_ns(next - now);
        atomic_fetch_add(&sleeper->sleeps, 1);
    }
    return NULL;
}

static void bare(struct bench *b, const char *scenario)
{
    struct bench_row row = {"kernel", scenario, 0, RATE, "of one core", "%", 0};
    struct sleeper sleeper = {.stop = false};
    hwt_timer *unused = bench_timer(0);
    pthread_t thread;
    uint64_t sleeps;
    struct use use;

    if (bench_wants(b, scenario) && pthread_create(&thread, NULL, sleep_on, &sleeper) == 0) {
        sleeps = atomic_load(&sleeper.sleeps);
        watch(b, unused, b->quick ? 2 : 5, &use);
        sleeps = atomic_load(&sleeper.sleeps) - sleeps;
        atomic_store(&sleeper.stop, true);
        pthread_join(thread, NULL);
        bench_value(b, &row, 100 * cpu_ns(&use) / (double)use.wall_ns);
        row.metric = "CPU a wake-up";
        row.unit = "ns";
        bench_value(b, &row, cpu_ns(&use) / (double)(sleeps ? sleeps : 1));
    }
    hwt_timer_destroy(unused);
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "little to do: wake-ups and CPU time of the worker");
    quiet(&b, "one hour-long timeout", 1);
    quiet(&b, "100000 hour-long timeouts", 100000);
    stream(&b, "10000/s, random", "random", 5);
    stream(&b, "10000/s, one each tick", "even", 0);
    stream(&b, "10000/s, one re-armed", "same", 0);
    bare(&b, "10000/s, bare sleeps");
    return bench_close(&b);
}
