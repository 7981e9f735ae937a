/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same questions to other timers: schedule + cancel with 1024 outstanding, alone and beside a
 * million others (with --full ten million, too); scheduling only; one million due within a second;
 * one timeout at a time; five million by two threads, of which none is cancelled, to the end. Each
 * case in a process of its own, and all peers by turns, so that what the machine does meanwhile it
 * does to all of them. The release before this one, and timers in other languages, are programs of
 * their own, which come from the environment: see run.sh.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "ask.h"

/* A release of this library, by the program that the environment names. */
static const struct peer release = {.name = "hwt-1.0"};
#define RELEASE "BENCH_RELEASE"

/* This library comes first: the others' ratios are to it. */
static const struct peer *const peers[] = {
    &peer_hwt,      &release,    &peer_heap,
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

static const struct figure pair_figures[ASK_FIGURES] = {
    {"CPU a pair", "ns", true}, {"wall a pair", "ns", false}, {"peak memory", "MB", false}};
static const struct figure build_figures[ASK_FIGURES] = {
    {"CPU in all", "ns", true}, {"wall each", "ns", false}, {"resident each", "bytes", false}};
static const struct figure expire_figures[ASK_FIGURES] = {
    {"CPU each", "ns", true},  {"early", "timeouts", false}, {"late p50", "us", false},
    {"late p99", "us", false}, {"late p99.9", "us", false},  {"to schedule", "ns", true}};
static const struct figure again_figures[ASK_FIGURES] = {{"to schedule, first", "ns", false},
                                                         {"to schedule, again", "ns", true},
                                                         {"the rest, again", "ns", true}};
static const struct figure lone_figures[ASK_FIGURES] = {{"late p50", "us", true},
                                                        {"late p99", "us", true},
                                                        {"bare sleep p50", "us", false},
                                                        {"bare sleep p99", "us", false},
                                                        {"early", "timeouts", false}};
static const struct figure bulk_figures[ASK_FIGURES] = {{"wall to schedule", "ns", true},
                                                        {"CPU to schedule", "ns", true},
                                                        {"CPU of its life", "ns", true},
                                                        {"peak each", "bytes", false}};

#define MILLION     UINT64_C(1000000)
#define TEN_MILLION (10 * MILLION)

static const struct question {
    const char *name;
    const struct figure *figure;
    unsigned producers;
    bool slow; /* has half as many runs */
    uint64_t count, quick, others;
    bool full; /* asked with --full only */
} questions[] = {
    {"pairs", pair_figures, 1, false, ASK_DEPTH, ASK_DEPTH, 0, false},
    {"pairs", pair_figures, 2, false, ASK_DEPTH, ASK_DEPTH, 0, false},
    {"pairs beside others", pair_figures, 1, false, MILLION, MILLION, MILLION, false},
    {"pairs beside others", pair_figures, 2, false, MILLION, MILLION, MILLION, false},
    {"pairs beside others", pair_figures, 1, true, TEN_MILLION, TEN_MILLION, TEN_MILLION, true},
    {"pairs beside others", pair_figures, 2, true, TEN_MILLION, TEN_MILLION, TEN_MILLION, true},
    {"schedule only", build_figures, 1, true, 5 * MILLION, MILLION, 0, false},
    {"within a second", expire_figures, 1, true, MILLION, MILLION, 0, false},
    {"a second time", again_figures, 1, true, MILLION, MILLION, 0, false},
    {"one at a time", lone_figures, 1, true, 300, 100, 0, false},
    {"bulk", bulk_figures, 2, true, 5 * MILLION, MILLION, 0, false},
};

/* ---- peers with a program of their own ---- */

/* The environment says how to run it, or why there is none. */
static const char *program_named(const char *variable)
{
    const char *command = getenv(variable);

    return command && command[0] != '!' ? command : NULL;
}

static void skip_program(const struct bench *b, const char *name, const char *variable)
{
    const char *command = getenv(variable);

    bench_skip(b, name, command ? command + 1 : "started without bench/peers/run.sh");
}

static void measure_foreign(struct bench *b, const char *name, const char *variable)
{
    const char *command = program_named(variable);

    if (!bench_wants(b, name))
        return;
    if (command)
        peer_foreign(b, name, command);
    else
        skip_program(b, name, variable);
}

/* ---- one question, to every peer ---- */

/* Some have a limit: they are asked about as many as they can hold; 0: too few to ask. */
static struct ask about(const struct bench *b, const struct question *q, const struct peer *peer)
{
    struct ask ask = {peer, q->producers, b->quick ? q->quick : q->count, q->others, NULL};
    uint64_t outstanding = ask_named(q->name) == ask_pairs ? (uint64_t)q->producers * ASK_DEPTH : 0;
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

    for (unsigned i = 0; i < ASK_FIGURES && q->figure[i].metric; i++) {
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

/* A figure that a peer's program prints, as it prints them in their order. */
static void take(struct bench *b, const struct bench_row *row, const struct series *s, void *arg)
{
    struct series **next = arg;

    (void)b;
    (void)row;
    series_add((*next)++, s->v[0]);
}

static void ask_program(struct bench *b, const struct question *q, struct ask *ask)
{
    struct series *next = ask->figures;
    char call[4096];

    snprintf(call, sizeof(call), "%s '%s' %u %" PRIu64 " %" PRIu64 " %g", getenv(RELEASE), q->name,
             ask->producers, ask->count, ask->others, b->seconds);
    if (!peer_figures(b, ask->peer->name, call, take, &next))
        ask->count = 0;
}

static bool asked(const struct bench *b, const struct question *q, const struct peer *peer)
{
    if (peer == &release && !program_named(RELEASE))
        return false;
    return (!q->full || b->full) && (bench_wants(b, peer->name) || bench_wants(b, q->name));
}

static void measure(struct bench *b, const struct question *q)
{
    struct series *figures = bench_shared(PEERS * ASK_FIGURES * sizeof(*figures));
    unsigned runs = q->slow ? (b->repeats + 1) / 2 : b->repeats;
    struct ask ask[PEERS];

    for (unsigned i = 0; i < PEERS; i++) {
        ask[i] = about(b, q, peers[i]);
        ask[i].figures = &figures[i * ASK_FIGURES];
        if (!asked(b, q, peers[i]))
            ask[i].count = 0;
    }
    for (unsigned run = 0; run < runs; run++)
        for (unsigned i = 0; i < PEERS; i++) {
            if (ask[i].count == 0)
                continue;
            bench_progress(b, "%s, %s, %u producers, run %u of %u", peers[i]->name, q->name,
                           q->producers, run + 1, runs);
            if (peers[i] == &release)
                ask_program(b, q, &ask[i]);
            else
                bench_isolated(b, ask_named(q->name), &ask[i]);
        }
    for (unsigned i = 0; i < PEERS; i++)
        if (ask[i].count > 0)
            report(b, q, &ask[i], figures);
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "other timers, and this one, under one interface");
    if (!program_named(RELEASE))
        skip_program(&b, release.name, RELEASE);
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
