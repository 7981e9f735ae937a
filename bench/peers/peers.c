/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same questions to other timers: schedule + cancel with 1024 outstanding, alone and beside a
 * million others; scheduling only; one million due within a second; five million by two threads, of
 * which none is cancelled, to the end. Each case in a process of its own. Programs in other
 * languages come from the environment: see run.sh.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "peer.h"

#define DEPTH  1024
#define SECOND UINT64_C(1000000000)
#define MB     1048576.0

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

static void nothing(struct event *event)
{
    (void)event;
}

static struct event no_event = {nothing};

/* ---- schedule + cancel ---- */
struct producer {
    _Alignas(2 * BENCH_LINE) const struct peer *peer;
    void *timer;
    uint64_t seed;
    unsigned next;
    void *ring[DEPTH];
};

static void *schedule_far(struct producer *p)
{
    uint64_t deadline = clock_ns() + rng_between(&p->seed, SECOND, 60 * SECOND);

    return p->peer->schedule(p->timer, deadline, &no_event, true);
}

static void fill(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < DEPTH; i++)
        p->ring[i] = schedule_far(p);
}

static void replace_oldest(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        void **place = &p->ring[p->next++ % DEPTH];

        p->peer->cancel(p->timer, *place);
        *place = schedule_far(p);
    }
}

static void drain(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < DEPTH; i++)
        p->peer->cancel(p->timer, p->ring[i]);
}

static const struct work pairs_work = {fill, replace_oldest, drain};

struct pairs {
    const struct peer *peer;
    unsigned producers;
    uint64_t others;
};

static void add_others(const struct peer *peer, void *timer, uint64_t others)
{
    uint64_t now = clock_ns(), seed = 3;

    for (uint64_t i = 0; i < others; i++)
        peer->schedule(timer, now + rng_between(&seed, 600 * SECOND, 3600 * SECOND), &no_event,
                       false);
    sleep_ns(others * 500); /* some take them in afterwards */
}

static void run_pairs(struct bench *b, void *arg)
{
    const struct pairs *c = arg;
    void *timer = c->peer->create();
    struct bench_row row = {c->peer->name,
                            c->others ? "pairs beside others" : "pairs",
                            c->producers,
                            c->others ? c->others : DEPTH,
                            "CPU a pair",
                            "ns",
                            0};
    struct series cpu = {.n = 0}, wall = {.n = 0};
    struct producer *p = bench_alloc(c->producers * sizeof(*p));
    size_t before;
    struct window w;

    add_others(c->peer, timer, c->others);
    peak_reset();
    before = resident_bytes();
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, %s, run %u of %u", row.subject, row.scenario, i + 1, b->repeats);
        for (unsigned j = 0; j < c->producers; j++)
            p[j] = (struct producer){.peer = c->peer, .timer = timer, .seed = j + 1};
        window_run(&pairs_work, p, sizeof(*p), c->producers, b->seconds, &w);
        series_add(&cpu, window_cpu(&w));
        series_add(&wall, window_wall(&w, c->producers));
    }
    bench_report(b, &row, &cpu);
    row.metric = "wall a pair";
    bench_report(b, &row, &wall);
    row.metric = "peak memory";
    row.unit = "MB";
    bench_value(b, &row, (double)(peak_bytes() - before) / MB);
    c->peer->destroy(timer);
}

/* ---- schedule only ---- */
struct build {
    const struct peer *peer;
    uint64_t count;
    struct series *all, *wall, *bytes; /* shared with the child */
};

static void run_build(struct bench *b, void *arg)
{
    struct build *c = arg;
    size_t before = resident_bytes();
    void *timer = c->peer->create();
    uint64_t now = clock_ns(), cpu = process_cpu_ns(), seed = 5;

    bench_progress(b, "%s, schedule only", c->peer->name);
    for (uint64_t i = 0; i < c->count; i++)
        c->peer->schedule(timer, now + rng_between(&seed, 600 * SECOND, 3600 * SECOND), &no_event,
                          false);
    series_add(c->wall, (double)(clock_ns() - now) / (double)c->count);
    sleep_ns(c->count * 500);
    series_add(c->all, (double)(process_cpu_ns() - cpu) / (double)c->count);
    series_add(c->bytes, (double)(resident_bytes() - before) / (double)c->count);
    c->peer->destroy(timer);
}

/* ---- one million due within a second ---- */
struct record {
    struct event event;
    uint64_t deadline;
    int64_t late;
};

static _Atomic uint64_t fired;

static void note(struct event *event)
{
    struct record *record = (struct record *)event;

    record->late = (int64_t)(clock_ns() - record->deadline);
    atomic_fetch_add_explicit(&fired, 1, memory_order_relaxed);
}

enum { EXPIRE_CPU, EARLY, P50, P99, P999, EXPIRE_FIGURES };

struct expire {
    const struct peer *peer;
    uint64_t count;
    struct series *figures; /* shared with the child */
};

static void lateness(struct record *records, uint64_t count, struct series *f)
{
    uint64_t *late = bench_alloc(count * sizeof(*late));
    uint64_t early = 0;

    for (uint64_t i = 0; i < count; i++) {
        early += records[i].late < 0;
        late[i] = records[i].late < 0 ? 0 : (uint64_t)records[i].late;
    }
    sort_u64(late, count);
    series_add(&f[EARLY], (double)early);
    series_add(&f[P50], (double)percentile(late, count, 50) / 1e3);
    series_add(&f[P99], (double)percentile(late, count, 99) / 1e3);
    series_add(&f[P999], (double)percentile(late, count, 99.9) / 1e3);
    free(late);
}

static void submit_crowd(const struct expire *c, void *timer, struct record *records)
{
    uint64_t from = clock_ns() + c->count * 1500 + SECOND / 3, seed = 9;

    for (uint64_t i = 0; i < c->count; i++) {
        records[i].event.fire = note;
        records[i].deadline = from + rng_between(&seed, 0, SECOND);
        c->peer->schedule(timer, records[i].deadline, &records[i].event, false);
    }
}

static void run_expire(struct bench *b, void *arg)
{
    struct expire *c = arg;
    struct record *records = bench_alloc(c->count * sizeof(*records));
    void *timer = c->peer->create();
    uint64_t all = process_cpu_ns(), mine = thread_cpu_ns(), until;

    bench_progress(b, "%s, one million within a second", c->peer->name);
    submit_crowd(c, timer, records);
    mine = thread_cpu_ns() - mine;
    until = clock_ns() + 60 * SECOND;
    while (atomic_load(&fired) < c->count && clock_ns() < until)
        sleep_ns(SECOND / 100);
    sleep_ns(SECOND / 50);
    if (atomic_load(&fired) < c->count)
        bench_die("timeouts that never expired", ETIME);
    series_add(&c->figures[EXPIRE_CPU], (double)(process_cpu_ns() - all - mine) / (double)c->count);
    c->peer->destroy(timer);
    lateness(records, c->count, c->figures);
}

/* ---- millions by two threads, none cancelled: scheduling them, and their whole life ---- */
enum { BULK_WALL, BULK_CPU, BULK_LIFE, BULK_BYTES, BULK_FIGURES };

struct bulk {
    const struct peer *peer;
    uint64_t count;
    struct series *figures; /* shared with the child */
};

struct bulk_thread {
    const struct bulk *bulk;
    void *timer;
    uint64_t from, seed;
};

static _Atomic uint64_t done[2 * BENCH_LINE];
static _Thread_local _Atomic uint64_t *own_done;

/* Whoever runs it: most have one thread for that. */
static void count_one(struct event *event)
{
    static _Atomic unsigned threads;

    (void)event;
    if (!own_done)
        own_done = &done[atomic_fetch_add(&threads, 1) % 4 * (BENCH_LINE / 8)];
    atomic_fetch_add_explicit(own_done, 1, memory_order_relaxed);
}

static struct event one_event = {count_one};

static uint64_t all_done(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += atomic_load_explicit(&done[i * (BENCH_LINE / 8)], memory_order_relaxed);
    return sum;
}

static void *submit_bulk(void *arg)
{
    struct bulk_thread *t = arg;

    for (uint64_t i = 0; i < t->bulk->count / 2; i++)
        t->bulk->peer->schedule(t->timer, t->from + rng_between(&t->seed, 0, 2 * SECOND),
                                &one_event, false);
    return NULL;
}

static void run_bulk(struct bench *b, void *arg)
{
    struct bulk *c = arg;
    struct bulk_thread thread[2];
    pthread_t id[2];
    void *timer = c->peer->create();
    uint64_t wall = clock_ns(), cpu = process_cpu_ns(), until = wall + 120 * SECOND;
    size_t before = resident_bytes();
    double each = (double)(c->count / 2 * 2);

    bench_progress(b, "%s, bulk", c->peer->name);
    peak_reset();
    for (unsigned i = 0; i < 2; i++) {
        thread[i] = (struct bulk_thread){c, timer, wall + c->count * 400 + SECOND, i + 1};
        if (pthread_create(&id[i], NULL, submit_bulk, &thread[i]) != 0)
            bench_die("pthread_create", EAGAIN);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    series_add(&c->figures[BULK_WALL], (double)(clock_ns() - wall) / each);
    series_add(&c->figures[BULK_CPU], (double)(process_cpu_ns() - cpu) / each);
    while (all_done() < c->count / 2 * 2 && clock_ns() < until)
        sleep_ns(SECOND / 20);
    if (all_done() < c->count / 2 * 2)
        bench_die("timeouts that never expired", ETIME);
    c->peer->destroy(timer);
    series_add(&c->figures[BULK_LIFE], (double)(process_cpu_ns() - cpu) / each);
    series_add(&c->figures[BULK_BYTES], (double)(peak_bytes() - before) / each);
}

/* ---- every peer in turn ---- */
static uint64_t at_most(const struct peer *peer, uint64_t count)
{
    uint64_t most = peer->most ? peer->most() : count;

    return most < count ? most : count;
}

static void measure_pairs(struct bench *b, const struct peer *peer)
{
    uint64_t others = at_most(peer, 1000000 + 2 * DEPTH);

    for (unsigned producers = 1; producers <= 2; producers++) {
        struct pairs c = {peer, producers, 0};

        bench_isolated(b, run_pairs, &c);
    }
    if (others > 2 * DEPTH) {
        struct pairs c = {peer, 1, others - 2 * DEPTH};

        bench_isolated(b, run_pairs, &c);
    }
}

static void measure_build(struct bench *b, const struct peer *peer)
{
    uint64_t count = at_most(peer, b->quick ? 1000000 : 5000000);
    struct series *f = bench_shared(3 * sizeof(*f));
    struct build c = {peer, count, &f[0], &f[1], &f[2]};
    struct bench_row row = {peer->name, "schedule only", 1, count, "CPU in all", "ns", 0};

    for (unsigned i = 0; i < (b->repeats + 1) / 2; i++)
        bench_isolated(b, run_build, &c);
    bench_report(b, &row, c.all);
    row.metric = "wall each";
    bench_report(b, &row, c.wall);
    row.metric = "resident each";
    row.unit = "bytes";
    bench_report(b, &row, c.bytes);
}

struct figure {
    const char *metric, *unit;
};

static void report(struct bench *b, struct bench_row row, const struct figure *what, unsigned n,
                   const struct series *figures)
{
    for (unsigned i = 0; i < n; i++) {
        row.metric = what[i].metric;
        row.unit = what[i].unit;
        bench_report(b, &row, &figures[i]);
    }
}

static void measure_expire(struct bench *b, const struct peer *peer)
{
    static const struct figure what[EXPIRE_FIGURES] = {{"CPU each", "ns"},
                                                       {"early", "timeouts"},
                                                       {"late p50", "us"},
                                                       {"late p99", "us"},
                                                       {"late p99.9", "us"}};
    struct expire c = {peer, at_most(peer, 1000000), NULL};

    c.figures = bench_shared(EXPIRE_FIGURES * sizeof(*c.figures));
    for (unsigned i = 0; i < (b->repeats + 1) / 2; i++)
        bench_isolated(b, run_expire, &c);
    report(b, (struct bench_row){peer->name, "within a second", 1, c.count, "", "", 0}, what,
           EXPIRE_FIGURES, c.figures);
}

static void measure_bulk(struct bench *b, const struct peer *peer)
{
    static const struct figure what[BULK_FIGURES] = {{"wall to schedule", "ns"},
                                                     {"CPU to schedule", "ns"},
                                                     {"CPU of its life", "ns"},
                                                     {"peak each", "bytes"}};
    struct bulk c = {peer, at_most(peer, b->quick ? 1000000 : 5000000), NULL};

    c.figures = bench_shared(BULK_FIGURES * sizeof(*c.figures));
    for (unsigned i = 0; i < (b->repeats + 1) / 2; i++)
        bench_isolated(b, run_bulk, &c);
    report(b, (struct bench_row){peer->name, "bulk", 2, c.count, "", "", 0}, what, BULK_FIGURES,
           c.figures);
}

static void measure(struct bench *b, const struct peer *peer)
{
    static const struct {
        const char *name;
        void (*ask)(struct bench *b, const struct peer *peer);
    } questions[] = {
        {"pairs", measure_pairs},
        {"schedule only", measure_build},
        {"within a second", measure_expire},
        {"bulk", measure_bulk},
    };

    for (unsigned i = 0; i < sizeof(questions) / sizeof(*questions); i++)
        if (bench_wants(b, peer->name) || bench_wants(b, questions[i].name))
            questions[i].ask(b, peer);
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
    for (unsigned i = 0; i < sizeof(peers) / sizeof(*peers); i++)
        measure(&b, peers[i]);
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
