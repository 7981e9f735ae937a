/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does the cost depend on how many are pending? The same pairs as `submit` with a population of
 * others pending; and what it costs, in time and memory, to build such a population.
 */
#include "producer.h"

#include <stdlib.h>

#define EARLIEST HWT_SEC(600)
#define LATEST   HWT_SEC(3600)
#define MB       1048576.0

/* ---- building a population ---- */
static void populate(hwt_timer *timer, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        bench_check(
            hwt_new_timeout(timer, bench_ignore, timer, rng_between(&seed, EARLIEST, LATEST), NULL),
            "hwt_new_timeout");
}

enum { WALL, PRODUCER, ALL, BYTES, BUILD_FIGURES };

/* All of the cost: until the worker has put the last one away. */
static void build_once(uint64_t count, uint64_t seed, struct series *f)
{
    size_t before = resident_bytes();
    hwt_timer *timer = bench_timer(0);
    uint64_t wall = clock_ns();
    uint64_t cpu = process_cpu_ns();
    uint64_t mine = thread_cpu_ns();
    double n = (double)count;

    populate(timer, count, seed);
    series_add(&f[WALL], (double)(clock_ns() - wall) / n);
    series_add(&f[PRODUCER], (double)(thread_cpu_ns() - mine) / n);
    bench_sync(timer);
    series_add(&f[ALL], (double)(process_cpu_ns() - cpu) / n);
    series_add(&f[BYTES], (double)(resident_bytes() - before) / n);
    hwt_timer_destroy(timer);
}

struct build_request {
    uint64_t count;
    unsigned run;
    struct series *figures; /* shared with the child */
};

/* Every build has a process of its own: memory that a former one left would come for free. */
static void build_case(struct bench *b, void *arg)
{
    struct build_request *request = arg;

    bench_progress(b, "schedule %llu, run %u of %u", (unsigned long long)request->count,
                   request->run + 1, b->repeats);
    build_once(request->count, request->run + 1, request->figures);
}

static void report_build(struct bench *b, uint64_t count, const struct series *f)
{
    static const struct {
        const char *metric, *unit;
        double limit;
    } what[BUILD_FIGURES] = {
        [WALL] = {"wall each", "ns", 0},
        [PRODUCER] = {"producer CPU", "ns", 75},
        [ALL] = {"CPU in all", "ns", 0},
        [BYTES] = {"resident each", "bytes", 80},
    };

    for (unsigned i = 0; i < BUILD_FIGURES; i++) {
        struct bench_row row = {"hwt",        "schedule only", 1, count, what[i].metric,
                                what[i].unit, what[i].limit};

        bench_report(b, &row, &f[i]);
    }
}

static void measure_build(struct bench *b, uint64_t count)
{
    struct build_request request = {.count = count};

    if (!bench_wants(b, "schedule only"))
        return;
    request.figures = bench_shared(BUILD_FIGURES * sizeof(*request.figures));
    for (request.run = 0; request.run < b->repeats; request.run++)
        bench_isolated(b, build_case, &request);
    report_build(b, count, request.figures);
}

/* ---- pairs beside a population ---- */
struct beside {
    uint64_t others;
    unsigned producers;
};

struct beside_figures {
    struct series cpu, ratio;
};

static void one_run(struct bench *b, hwt_timer *timer, unsigned producers, struct beside_figures *f)
{
    double clock = producers_clock(producers, b->seconds);
    struct producer *p = producers_new(producers, timer);
    struct window w;

    window_run(&producer_relative, p, sizeof(*p), producers, b->seconds, &w);
    series_add(&f->cpu, window_cpu(&w));
    series_add(&f->ratio, window_cpu(&w) / clock);
    free(p);
}

static void beside_case(struct bench *b, void *arg)
{
    const struct beside *how = arg;
    struct beside_figures f = {.cpu = {.n = 0}};
    struct bench_row row = {
        "hwt", "pairs beside others", how->producers, how->others, "CPU a pair", "ns", 0};
    hwt_timer *timer = bench_timer(0);
    size_t before;

    bench_progress(b, "populating with %llu", (unsigned long long)how->others);
    populate(timer, how->others, 7);
    bench_sync(timer);
    peak_reset();
    before = resident_bytes();
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%u producers beside %llu, run %u of %u", how->producers,
                       (unsigned long long)how->others, i + 1, b->repeats);
        one_run(b, timer, how->producers, &f);
    }
    bench_report(b, &row, &f.cpu);
    row.metric = "CPU / clock";
    row.unit = "times";
    row.limit = 1.6;
    bench_report(b, &row, &f.ratio);
    row.metric = "peak beyond";
    row.unit = "MB";
    row.limit = 16;
    bench_value(b, &row, (double)(peak_bytes() - before) / MB);
}

static void measure_beside(struct bench *b, uint64_t others, unsigned producers)
{
    struct beside how = {others, producers};

    if (bench_wants(b, "pairs beside others"))
        bench_isolated(b, beside_case, &how);
}

int main(int argc, char **argv)
{
    static const uint64_t counts[] = {1000000, 5000000, 10000000};
    struct bench b;

    bench_open(&b, argc, argv, "many pending: building them, and pairs beside them");
    for (unsigned i = 0; i < (b.quick ? 1 : 3); i++)
        measure_build(&b, counts[i]);
    for (unsigned producers = 1; producers <= 4; producers *= 2) {
        measure_beside(&b, counts[0], producers);
        if (!b.quick)
            measure_beside(&b, counts[2], producers);
    }
    return bench_close(&b);
}
