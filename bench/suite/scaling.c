/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How does it scale? The pairs of `submit` with one producer up to twice as many as there are
 * CPUs, and with eight to a CPU; then what the instrumented build (see lines.c) counts on larger
 * machines, and what that makes a pair cost there.
 */
#include "producer.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPU, WALL, RATE, RATIO, FIGURES };

/* ---- measured here ---- */
static void one_run(struct bench *b, unsigned producers, struct series *f)
{
    double clock = producers_clock(producers, b->seconds);
    hwt_timer *timer = bench_timer(0);
    struct producer *p = producers_new(producers, timer);
    struct window w;

    window_run(&producer_relative, p, sizeof(*p), producers, b->seconds, &w);
    series_add(&f[CPU], window_cpu(&w));
    series_add(&f[WALL], window_wall(&w, producers));
    series_add(&f[RATE], (double)w.ops * 1e3 / (double)w.wall_ns);
    series_add(&f[RATIO], window_cpu(&w) / clock);
    hwt_timer_destroy(timer);
    free(p);
}

static double measure(struct bench *b, unsigned producers)
{
    static const char *const metric[FIGURES] = {"CPU a pair", "wall a pair", "together",
                                                "CPU / clock"};
    static const char *const unit[FIGURES] = {"ns", "ns", "M/s", "times"};
    struct series f[FIGURES] = {{.n = 0}};

    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%u producers, run %u of %u", producers, i + 1, b->repeats);
        one_run(b, producers, f);
    }
    for (unsigned i = 0; i < FIGURES; i++) {
        struct bench_row row = {"hwt", "schedule + cancel", producers, 0, metric[i], unit[i], 0};

        bench_report(b, &row, &f[i]);
    }
    return series_median(&f[CPU]);
}

/* ---- counted by the instrumented build ---- */
struct counted {
    unsigned producers;
    double shared, transfers; /* lines that two producers write; transfers a pair */
};

static double field(const char *line, const char *name)
{
    const char *at = strstr(line, name);

    return at ? strtod(at + strlen(name), NULL) : 0;
}

/* One figure a line; the transfers of all kinds add up. */
static void take_line(const char *line, struct counted *counted, unsigned *n, unsigned room)
{
    unsigned producers = (unsigned)field(line, "\"producers\":");
    double value = field(line, "\"median\":");

    if (producers == 0)
        return;
    if (*n == 0 || counted[*n - 1].producers != producers) {
        if (*n == room)
            return;
        counted[*n] = (struct counted){.producers = producers};
        (*n)++;
    }
    if (strstr(line, "\"shared lines\""))
        counted[*n - 1].shared = value;
    if (strstr(line, "\"from producers\"") || strstr(line, "\"from worker\"") ||
        strstr(line, "\"upgrades\""))
        counted[*n - 1].transfers += value;
}

static unsigned count_lines(struct bench *b, struct counted *counted, unsigned room)
{
    char path[PATH_MAX], command[PATH_MAX + 64], line[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    unsigned n = 0;
    FILE *f;

    path[length > 0 ? length : 0] = '\0';
    snprintf(command, sizeof(command), "'%s/lines' %s --json - 2>/dev/null", dirname(path),
             b->quick ? "--quick" : "");
    bench_progress(b, "counting cache lines");
    f = popen(command, "r");
    while (f && fgets(line, sizeof(line), f))
        if (line[0] == '{')
            take_line(line, counted, &n, room);
    if (f)
        pclose(f);
    return n;
}

/*
 * The model. A pair costs what it costs one producer alone, and one crossing for each line that it
 * finds elsewhere. While no line is written by two producers there is nothing that more of them
 * would wait for in turn. Beside it, a queue whose one line every pair writes twice (a tail and a
 * counter): a line is in one place at a time, so that all of them together get one pair per two
 * crossings, whatever their number.
 */
static void model(struct bench *b, const struct counted *c, double alone, double crossing,
                  const char *scenario)
{
    struct bench_row row = {"model", scenario, c->producers, 0, "a pair", "ns", 0};
    double shared = 2 * crossing * c->producers;

    bench_value(b, &row, alone + c->transfers * crossing + (c->shared > 0 ? shared : 0));
    row.scenario = "one shared line instead";
    bench_value(b, &row, alone > shared ? alone : shared);
}

static void larger_machines(struct bench *b, double alone)
{
    struct counted counted[8];
    struct machine m;
    unsigned n = count_lines(b, counted, 8);
    char near[40];

    machine_sample(&m);
    snprintf(near, sizeof(near), "a crossing takes %.0f ns", m.line_ns);
    if (n == 0)
        bench_skip(b, "model", "the instrumented build (build/bench/lines) is not there");
    for (unsigned i = 0; i < n; i++) {
        if (counted[i].producers < 16)
            continue;
        model(b, &counted[i], alone, m.line_ns, near);
        model(b, &counted[i], alone, 250, "a crossing takes 250 ns");
    }
}

int main(int argc, char **argv)
{
    struct bench b;
    unsigned cpus = machine_cpus();
    double alone;

    bench_open(&b, argc, argv, "more producers, and larger machines");
    alone = measure(&b, 1);
    for (unsigned producers = 2; producers <= 2 * cpus; producers += producers < 8 ? 1 : cpus / 4)
        measure(&b, producers);
    measure(&b, 8 * cpus);
    larger_machines(&b, alone);
    return bench_close(&b);
}
