/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does a pair of schedule + cancel cost with many timeouts in flight? Each producer keeps so
 * many of 60 s and replaces the oldest: this library, peers, and a walk over as much memory without
 * any timer. Meanwhile a timeout that is due every 10 ms is watched, beside bare sleeps. Netty
 * comes from the environment: see bench/peers/run.sh.
 */
#include "inflight.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t counts[] = {1024, 8192, 16384, 65536, 262144, 1048576};
static const uint64_t quick_counts[] = {1024, 16384, 262144};

#define MOST_WITH_FOUR 262144u

/* This library comes first: the others' ratios are to it. */
static const struct peer *const peers[] = {
    &peer_hwt,         &walk_in_order,  &walk_in_any_order, &peer_heap,
#ifdef HAVE_libevent_pthreads
    &peer_libevent,
#endif
    &peer_four_shards, &peer_brpc_like,
};

#define PEERS (sizeof(peers) / sizeof(*peers))
#define NETTY PEERS

/* ---- one row of the comparison: so many producers, so many each ---- */
struct row {
    struct bench *b;
    const char *scenario;
    unsigned producers;
    uint64_t each;
    struct series ours;                /* CPU a pair */
    struct series (*least)[PEERS + 1]; /* the same with the fewest in flight */
};

static struct bench_row head(const struct row *row, const char *subject, const char *metric,
                             const char *unit)
{
    return (struct bench_row){
        subject, row->scenario, row->producers, row->each * row->producers, metric, unit, 0};
}

static void report(const struct row *row, const char *subject, const char *metric, const char *unit,
                   const struct series *s)
{
    struct bench_row r = head(row, subject, metric, unit);

    if (s->n > 0)
        bench_report(row->b, &r, s);
}

/* Beside this library's, and beyond what it was with the fewest in flight, run by run. */
static void compare(struct row *row, unsigned who, const char *subject, const struct series *cpu)
{
    struct series *least = &row->least[row->producers / 4][who];
    struct series ratio = {.n = 0}, growth = {.n = 0};

    if (who == 0)
        row->ours = *cpu;
    if (least->n == 0 && row->each == counts[0])
        *least = *cpu;
    for (unsigned i = 0; i < cpu->n && i < row->ours.n; i++)
        series_add(&ratio, cpu->v[i] / row->ours.v[i]);
    for (unsigned i = 0; i < cpu->n && i < least->n; i++)
        series_add(&growth, cpu->v[i] - least->v[i]);
    report(row, subject, "CPU / hwt", "times", &ratio);
    report(row, subject, "CPU beyond 1024", "ns", &growth);
}

static void report_figures(struct row *row, unsigned who, const struct series *f)
{
    static const struct {
        const char *metric, *unit;
    } what[FIGURES] = {
        [CPU] = {"CPU a pair", "ns"},        [WALL] = {"wall a pair", "ns"},
        [PEAK] = {"peak memory", "MB"},      [BYTES] = {"peak each", "bytes"},
        [BY_WORKER] = {"by worker", "%"},    [LATE_P50] = {"late p50", "us"},
        [LATE_MAX] = {"late max", "us"},     [RUNS] = {"runs", "times"},
        [SLEEP_P50] = {"sleeper p50", "us"}, [SLEEP_MAX] = {"sleeper max", "us"},
    };
    const char *subject = peers[who]->name;

    for (unsigned i = 0; i < FIGURES; i++) {
        report(row, subject, what[i].metric, what[i].unit, &f[i]);
        if (i == CPU)
            compare(row, who, subject, &f[CPU]);
    }
}

/* By turns, so that what the machine does meanwhile it does to all of them. */
static void measure(struct row *row, const bool *wanted)
{
    struct series *f = bench_shared(PEERS * FIGURES * sizeof(*f));

    for (unsigned run = 0; run < row->b->repeats; run++)
        for (unsigned who = 0; who < PEERS; who++) {
            struct flight flight = {peers[who], row->producers, row->each, &f[who * FIGURES]};

            if (!wanted[who])
                continue;
            bench_progress(row->b, "%s, %u producers, %llu each, run %u of %u", peers[who]->name,
                           row->producers, (unsigned long long)row->each, run + 1, row->b->repeats);
            bench_isolated(row->b, flight_run, &flight);
        }
    for (unsigned who = 0; who < PEERS; who++)
        if (wanted[who])
            report_figures(row, who, &f[who * FIGURES]);
}

/* ---- Netty ---- */
static void netty_figure(struct bench *b, const struct bench_row *figure, const struct series *s,
                         void *arg)
{
    struct row *row = arg;

    (void)b;
    report(row, "netty", figure->metric, figure->unit, s);
    if (strcmp(figure->metric, "CPU a pair") == 0)
        compare(row, NETTY, "netty", s);
}

static const char *netty_command(const struct bench *b)
{
    static bool asked;
    const char *command = getenv("BENCH_NETTY");
    bool missing = !command || command[0] == '!';

    if (missing && !asked)
        bench_skip(b, "netty", command ? command + 1 : "started without bench/peers/run.sh");
    asked = true;
    return missing ? NULL : command;
}

static void measure_netty(struct row *row)
{
    const char *command = netty_command(row->b);
    char call[4096];

    if (!command)
        return;
    snprintf(call, sizeof(call), "%s %u %g %d %u %llu", command, row->b->repeats, row->b->seconds,
             row->b->quick, row->producers, (unsigned long long)row->each);
    peer_figures(row->b, "netty", call, netty_figure, row);
}

/* ---- every row ---- */
static bool wants(const struct row *row, const char *subject)
{
    return bench_wants(row->b, row->scenario) || bench_wants(row->b, subject);
}

static void measure_row(struct row *row)
{
    bool wanted[PEERS];

    for (unsigned who = 0; who < PEERS; who++)
        wanted[who] = wants(row, peers[who]->name);
    measure(row, wanted);
    if (wants(row, "netty"))
        measure_netty(row);
}

int main(int argc, char **argv)
{
    static struct series least[2][PEERS + 1];
    unsigned n;
    struct bench b;

    bench_open(&b, argc, argv, "schedule + cancel with many timeouts in flight");
    n = b.quick ? sizeof(quick_counts) / sizeof(*counts) : sizeof(counts) / sizeof(*counts);
    for (unsigned i = 0; i < n; i++)
        for (unsigned producers = 2; producers <= (b.quick ? 2 : 4); producers += 2) {
            struct row row = {.b = &b, .producers = producers, .least = least};
            char scenario[32];

            row.each = b.quick ? quick_counts[i] : counts[i];
            row.scenario = scenario;
            snprintf(scenario, sizeof(scenario), "%llu each", (unsigned long long)row.each);
            if (producers == 2 || row.each <= MOST_WITH_FOUR)
                measure_row(&row);
        }
    return bench_close(&b);
}
