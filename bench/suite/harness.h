/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frame of every benchmark: the options, the table a person reads, the JSON lines a script
 * reads, cases in a process of their own, and threads that are measured while they work.
 */
#ifndef HWT_BENCH_HARNESS_H
#define HWT_BENCH_HARNESS_H

#include <stdatomic.h>
#include <stdio.h>

#include "support.h"

/* ---- options, and the program's frame ---- */
struct bench {
    const char *name;
    bool quick;       /* seconds rather than minutes; the figures are rougher */
    bool full;        /* also the cases that take very long or much memory */
    unsigned repeats; /* measured runs of each case */
    double seconds;   /* length of one measured window */
    const char *only; /* run only the cases whose name contains this */
    FILE *json;
};

void bench_open(struct bench *b, int argc, char **argv, const char *about);
int bench_close(struct bench *b);
bool bench_wants(const struct bench *b, const char *scenario);
void bench_progress(const struct bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void bench_skip(const struct bench *b, const char *subject, const char *reason);

/* Runs a case in a child process, so that its memory and its peak are its own. */
void bench_isolated(struct bench *b, void (*run)(struct bench *b, void *arg), void *arg);
void *bench_shared(size_t bytes); /* zeroed memory that such a child can write figures to */

/* ---- results ---- */
struct bench_row {
    const char *subject; /* whose figure: "hwt" or a peer */
    const char *scenario;
    unsigned producers; /* 0: does not apply */
    uint64_t count;     /* how many timeouts the case is about; 0: does not apply */
    const char *metric;
    const char *unit;
    double limit; /* what was set out to be reached: at most this; 0: nothing was */
};

#define BENCH_NONE (-1.0) /* as a limit: not a single one */

void bench_report(struct bench *b, const struct bench_row *row, const struct series *s);
void bench_value(struct bench *b, const struct bench_row *row, double value);

/* ---- threads that do one thing over and over while somebody looks at the clock ---- */
struct work {
    void (*begin)(void *self); /* in the thread, before the first batch; may be NULL */
    void (*batch)(void *self); /* BENCH_BATCH operations */
    void (*end)(void *self);   /* in the thread, after the last batch; may be NULL */
};

#define BENCH_BATCH 1024

struct window {
    uint64_t wall_ns;
    uint64_t cpu_ns; /* of the whole process, so the timer's worker is in it */
    uint64_t ops;    /* of all threads together */
};

/* One thread per element of selves (stride bytes apart), measured for that long after a warm-up. */
void window_run(const struct work *work, void *selves, size_t stride, unsigned threads,
                double seconds, struct window *out);

/* The same, and whoever looks at more than the clock is told where the window begins and ends. */
struct borders {
    void (*from)(void *arg);
    void (*to)(void *arg);
    void *arg;
};

void window_between(const struct work *work, void *selves, size_t stride, unsigned threads,
                    double seconds, const struct borders *borders, struct window *out);

static inline double window_cpu(const struct window *w)
{
    return (double)w->cpu_ns / (double)(w->ops ? w->ops : 1);
}

/* What one operation costs the thread that makes it. */
static inline double window_wall(const struct window *w, unsigned threads)
{
    return (double)w->wall_ns * threads / (double)(w->ops ? w->ops : 1);
}

#endif
