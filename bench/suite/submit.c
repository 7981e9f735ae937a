/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does it cost to set a timeout and take it back? Each producer keeps 1024 of them, due in 1
 * to 60 s, and replaces the oldest; measured against the same loop with nothing but a clock read.
 */
#include "producer.h"

#include <stdlib.h>

struct figures {
    struct series clock, cpu, wall, ratio, peak, withdrawn;
};

static double withdrawn_share(hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    bench_check(hwt_timer_stats(timer, &stats), "hwt_timer_stats");
    return stats.cancelled ? 100.0 * (double)stats.withdrawn / (double)stats.cancelled : 0;
}

static void one_run(struct bench *b, const struct work *work, unsigned producers, struct figures *f)
{
    double clock = producers_clock(producers, b->seconds);
    size_t before;
    hwt_timer *timer;
    struct producer *p;
    struct window w;

    peak_reset();
    before = resident_bytes();
    timer = bench_timer(0);
    p = producers_new(producers, timer);
    window_run(work, p, sizeof(*p), producers, b->seconds, &w);
    series_add(&f->clock, clock);
    series_add(&f->cpu, window_cpu(&w));
    series_add(&f->wall, window_wall(&w, producers));
    series_add(&f->ratio, window_cpu(&w) / clock);
    series_add(&f->peak, (double)(peak_bytes() - before) / 1048576);
    series_add(&f->withdrawn, withdrawn_share(timer));
    hwt_timer_destroy(timer);
    free(p);
}

static void report(struct bench *b, struct bench_row row, const struct figures *f, double limit)
{
    row.metric = "CPU a pair";
    row.unit = "ns";
    bench_report(b, &row, &f->cpu);
    row.metric = "wall a pair";
    bench_report(b, &row, &f->wall);
    row.metric = "clock loop";
    bench_report(b, &row, &f->clock);
    row.metric = "CPU / clock";
    row.unit = "times";
    row.limit = limit;
    bench_report(b, &row, &f->ratio);
    row.metric = "peak memory";
    row.unit = "MB";
    row.limit = 16;
    bench_report(b, &row, &f->peak);
    row.metric = "withdrawn";
    row.unit = "%";
    row.limit = 0;
    bench_report(b, &row, &f->withdrawn);
}

static void measure(struct bench *b, const char *scenario, const struct work *work,
                    unsigned producers, double limit)
{
    struct bench_row row = {"hwt", scenario, producers, PRODUCER_DEPTH, "", "", 0};
    struct figures f = {.cpu = {.n = 0}};

    if (!bench_wants(b, scenario))
        return;
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, %u producers, run %u of %u", scenario, producers, i + 1, b->repeats);
        one_run(b, work, producers, &f);
    }
    report(b, row, &f, producers <= 4 ? limit : 0);
}

int main(int argc, char **argv)
{
    static const unsigned producers[] = {1, 2, 4, 16};
    struct bench b;

    bench_open(&b, argc, argv, "schedule + cancel, handle dropped");
    for (unsigned i = 0; i < sizeof(producers) / sizeof(*producers); i++) {
        measure(&b, "delay", &producer_relative, producers[i], 1.6);
        measure(&b, "deadline", &producer_absolute, producers[i], 1.0);
    }
    return bench_close(&b);
}
