/* SPDX-License-Identifier: BSD-2-Clause */
#include <hwt.h>

#include <stdlib.h>

#include "inflight.h"

#define TIMEOUT HWT_SEC(60)
#define MB      1048576.0

/* ---- a producer and its ring ---- */
struct producer {
    _Alignas(2 * BENCH_LINE) const struct peer *peer;
    void *timer;
    uint64_t each, next;
    void **ring;
};

static void ignore(struct event *event)
{
    (void)event;
}

static struct event no_event = {ignore};

static void *schedule(struct producer *p)
{
    return peer_schedule_in(p->peer, p->timer, TIMEOUT, &no_event, true);
}

static void replace_oldest(void *self)
{
    struct producer *p = self;
    uint64_t next = p->next;

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        void **place = &p->ring[next];

        p->peer->cancel(p->timer, *place);
        *place = schedule(p);
        next = next + 1 < p->each ? next + 1 : 0;
    }
    p->next = next;
}

/* The ring is filled, and turned once. */
static void fill(void *self)
{
    struct producer *p = self;

    for (uint64_t i = 0; i < p->each; i++)
        p->ring[i] = schedule(p);
    for (uint64_t i = 0; i < p->each; i += BENCH_BATCH)
        replace_oldest(p);
}

static const struct work work = {fill, replace_oldest, NULL};

static struct producer *producers_of(const struct flight *flight)
{
    struct producer *p = bench_alloc(flight->producers * sizeof(*p));

    for (unsigned i = 0; i < flight->producers; i++) {
        p[i].peer = flight->peer;
        p[i].each = flight->each;
        p[i].ring = bench_alloc(flight->each * sizeof(*p[i].ring));
    }
    return p;
}

/* ---- what is looked at from one border of a window to the other ---- */
struct look {
    void *ours; /* the timer, if it is of this library */
    struct watch *timeout, *sleeper;
    uint64_t cancelled, by_worker;
};

static void read_stats(struct look *look, uint64_t *cancelled, uint64_t *by_worker)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    if (look->ours && hwt_timer_stats(look->ours, &stats) != 0)
        bench_die("hwt_timer_stats", 22);
    *cancelled = stats.cancelled;
    *by_worker = stats.cancelled - stats.withdrawn;
}

static void from(void *arg)
{
    struct look *look = arg;

    read_stats(look, &look->cancelled, &look->by_worker);
    watch_begin(look->sleeper);
    if (look->timeout)
        watch_begin(look->timeout);
}

static void to(void *arg)
{
    struct look *look = arg;
    uint64_t cancelled, by_worker;

    if (look->timeout)
        watch_end(look->timeout);
    watch_end(look->sleeper);
    read_stats(look, &cancelled, &by_worker);
    look->cancelled = cancelled - look->cancelled;
    look->by_worker = by_worker - look->by_worker;
}

static void add_late(struct watch *watch, struct series *p50, struct series *max,
                     struct series *times)
{
    const uint64_t *late;
    size_t runs, n = watch_late(watch, &late, &runs);

    if (n > 0) {
        series_add(p50, (double)percentile(late, n, 50) / 1e3);
        series_add(max, (double)percentile(late, n, 100) / 1e3);
    }
    if (times)
        series_add(times, (double)runs);
}

static void add_look(struct look *look, struct series *f)
{
    if (look->timeout)
        add_late(look->timeout, &f[LATE_P50], &f[LATE_MAX], &f[RUNS]);
    add_late(look->sleeper, &f[SLEEP_P50], &f[SLEEP_MAX], NULL);
    if (look->ours && look->cancelled > 0)
        series_add(&f[BY_WORKER], 100.0 * (double)look->by_worker / (double)look->cancelled);
}

/* ---- the case ---- */
static void nothing(void *self)
{
    (void)self;
    sleep_ns(HWT_MSEC(1));
}

/* What threads and the harness take is there before memory is looked at. */
static void rehearse(unsigned threads)
{
    const struct work rehearsal = {NULL, nothing, NULL};
    char selves[1];
    struct window w;

    window_run(&rehearsal, selves, 0, threads, 0.01, &w);
}

static void measure(struct bench *b, const struct flight *flight, struct producer *p,
                    struct look *look)
{
    const struct borders borders = {from, to, look};
    struct window w;

    window_between(&work, p, sizeof(*p), flight->producers, b->seconds, &borders, &w);
    series_add(&flight->f[CPU], window_cpu(&w));
    series_add(&flight->f[WALL], window_wall(&w, flight->producers));
    add_look(look, flight->f);
}

/* What is in flight in the end goes with the process. */
void flight_run(struct bench *b, void *arg)
{
    const struct flight *flight = arg;
    struct producer *p = producers_of(flight);
    bool walk = flight->peer == &walk_in_order || flight->peer == &walk_in_any_order;
    struct look look = {.timeout = watch_new(), .sleeper = watch_new()};
    size_t before;
    double beyond;
    void *timer;

    watch_start(look.sleeper, NULL, NULL);
    walk_lots(flight->each);
    rehearse(flight->producers);
    peak_reset();
    before = resident_bytes();
    timer = flight->peer->create();
    look.ours = flight->peer == &peer_hwt ? timer : NULL;
    if (walk)
        look.timeout = NULL;
    else
        watch_start(look.timeout, flight->peer, timer);
    for (unsigned i = 0; i < flight->producers; i++)
        p[i].timer = timer;
    measure(b, flight, p, &look);
    beyond = (double)peak_bytes() - (double)before;
    if (walk)
        return;
    series_add(&flight->f[PEAK], beyond / MB);
    series_add(&flight->f[BYTES], beyond / ((double)flight->each * flight->producers));
}
