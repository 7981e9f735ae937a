/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same questions to other timers: schedule + cancel with 1024 outstanding, alone and beside a
 * million others (with --full ten million, too); scheduling only; one million due within a second;
 * one timeout at a time; five million by two threads, of which none is cancelled, to the end. Each
 * case in a process of its own, and all peers by turns, so that what the machine does meanwhile it
 * does to all of them. Programs in other languages come from the environment: see run.sh.
 */
#include <stdlib.h>

#include "ask.h"

/* This library comes first: the others' ratios are to it. */
static const struct peer *const peers[] = {
    &peer_hwt,      &peer_heap,
#ifdef HAVE_libuv
    &peer_libuv,
#endif
#ifdef HAVE_libevent_pthreads
    &peer_libevent,
#endif
    &peer_timerfd,  &peer_posix, &peer_four_shards, &peer_stack_heap, &peer_brpc_like,
};

#define PEERS (sizeof(peers) / sizeof(*peers))

/* ---- the questions ---- */
struct figure {
    const char *metric, *unit;
    bool beside; /* and to this library's, run by run */
};

enum { FIGURES_MAX = 5 };

static const struct figure pair_figures[FIGURES_MAX] = {
    {"CPU a pair", "ns", true}, {"wall a pair", "ns", false}, {"peak memory", "MB", false}};
static const struct figure build_figures[FIGURES_MAX] = {
    {"CPU in all", "ns", true}, {"wall each", "ns", false}, {"resident each", "bytes", false}};
static const struct figure expire_figures[FIGURES_MAX] = {{"CPU each", "ns", true},
                                                          {"early", "timeouts", false},
                                                          {"late p50", "us", false},
                                                          {"late p99", "us", false},
                                                          {"late p99.9", "us", false}};
static const struct figure again_figures[FIGURES_MAX] = {{"to schedule, first", "ns", false},
                                                         {"to schedule, again", "ns", true},
                                                         {"the rest, again", "ns", true}};
static const struct figure lone_figures[FIGURES_MAX] = {{"late p50", "us", true},
                                                        {"late p99", "us", true},
                                                        {"bare sleep p50", "us", false},
                                                        {"bare sleep p99", "us", false},
                                                        {"early", "timeouts", false}};
static const struct figure bulk_figures[FIGURES_MAX] = {{"wall to schedule", "ns", true},
                                                        {"CPU to schedule", "ns", true},
                                                        {"CPU of its life", "ns", true},
                                                        {"peak each", "bytes", false}};

#define MILLION     UINT64_C(1000000)
#define TEN_MILLION (10 * MILLION)

static const struct question {
    const char *name;
    void (*ask)(struct bench *b, void *ask);
    const struct figure *figure;
    unsigned producers;
    bool slow; /* has half as many runs */
    uint64_t count, quick, others;
    bool full; /* asked with --full only */
} questions[] = {
    {"pairs", ask_pairs, pair_figures, 1, false, ASK_DEPTH, ASK_DEPTH, 0, false},
    {"pairs", ask_pairs, pair_figures, 2, false, ASK_DEPTH, ASK_DEPTH, 0, false},
    {"pairs beside others", ask_pairs, pair_figures, 1, false, MILLION, MILLION, MILLION, false},
    {"pairs beside others", ask_pairs, pair_figures, 2, false, MILLION, MILLION, MILLION, false},
    {"pairs beside others", ask_pairs, pair_figures, 1, true, TEN_MILLION, TEN_MILLION, TEN_MILLION,
     true},
    {"pairs beside others", ask_pairs, pair_figures, 2, true, TEN_MILLION, TEN_MILLION, TEN_MILLION,
     true},
    {"schedule only", ask_build, build_figures, 1, true, 5 * MILLION, MILLION, 0, false},
    {"within a second", ask_expire, expire_figures, 1, true, MILLION, MILLION, 0, false},
    {"a second time", ask_again, again_figures, 1, true, MILLION, MILLION, 0, false},
    {"one at a time", ask_lone, lone_figures, 1, true, 300, 100, 0, false},
    {"bulk", ask_bulk, bulk_figures, 2, true, 5 * MILLION, MILLION, 0, false},
};

/* ---- one question, to every peer ---- */

/* Some have a limit: they are asked about as many as they can hold; 0: too few to ask. */
static struct ask about(const struct bench *b, const struct question *q, const struct peer *peer)
{
    struct ask ask = {peer, q->producers, b->quick ? q->quick : q->count, q->others, NULL};
    uint64_t outstanding = q->ask == ask_pairs ? (uint64_t)q->producers * ASK_DEPTH : 0;
    uint64_t most = peer->most ? peer->most() : UINT64_MAX;

    most = most > outstanding ? most - outstanding : 0;
    if (ask.others > most)
        ask.others = ask.count = most;
    if (outstanding == 0 && ask.count > most)
        ask.count = most;
    return ask;
}

static void report(struct bench *b, const struct question *q, const struct ask *ask,
                   const struct series *ours)
{
    struct bench_row row = {ask->peer->name, q->name, ask->producers, ask->count, "", "", 0};

    for (unsigned i = 0; i < FIGURES_MAX && q->figure[i].metric; i++) {
        const struct series *s = &ask->figures[i];
        struct series ratio = {.n = 0};
        char metric[40];

        row.metric = q->figure[i].metric;
        row.unit = q->figure[i].unit;
        bench_report(b, &row, s);
        for (unsigned run = 0; q->figure[i].beside && run < s->n && run < ours[i].n; run++)
            series_add(&ratio, s->v[run] / ours[i].v[run]);
        snprintf(metric, sizeof(metric), "%s / hwt", q->figure[i].metric);
        row.metric = metric;
        row.unit = "times";
        if (ratio.n > 0)
            bench_report(b, &row, &ratio);
    }
}

static void measure(struct bench *b, const struct question *q)
{
    struct series *figures = bench_shared(PEERS * FIGURES_MAX * sizeof(*figures));
    unsigned runs = q->slow ? (b->repeats + 1) / 2 : b->repeats;
    struct ask ask[PEERS];

    for (unsigned i = 0; i < PEERS; i++) {
        ask[i] = about(b, q, peers[i]);
        ask[i].figures = &figures[i * FIGURES_MAX];
        if ((q->full && !b->full) || (!bench_wants(b, peers[i]->name) && !bench_wants(b, q->name)))
            ask[i].count = 0;
    }
    for (unsigned run = 0; run < runs; run++)
        for (unsigned i = 0; i < PEERS; i++) {
            if (ask[i].count == 0)
                continue;
            bench_progress(b, "%s, %s, %u producers, run %u of %u", peers[i]->name, q->name,
                           q->producers, run + 1, runs);
            bench_isolated(b, q->ask, &ask[i]);
        }
    for (unsigned i = 0; i < PEERS; i++)
        if (ask[i].count > 0)
            report(b, q, &ask[i], figures);
}

/* The environment says how to run a peer's program, or why there is none. */
static void measure_foreign(struct bench *b, const char *name, const char *variable)
{
    const char *command = getenv(variable);

    if (!bench_wants(b, name))
        return;
    if (!command || command[0] == '!')
        bench_skip(b, name, command ? command + 1 : "started without bench/peers/run.sh");
    else
        peer_foreign(b, name, command);
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "other timers, and this one, under one interface");
    for (unsigned i = 0; i < sizeof(questions) / sizeof(*questions); i++)
        measure(&b, &questions[i]);
#ifndef HAVE_libuv
    bench_skip(&b, "libuv", "libuv1-dev is not installed");
#endif
#ifndef HAVE_libevent_pthreads
    bench_skip(&b, "libevent", "libevent-dev is not installed");
#endif
    measure_foreign(&b, "netty", "BENCH_NETTY");
    measure_foreign(&b, "go", "BENCH_GO");
    return bench_close(&b);
}
