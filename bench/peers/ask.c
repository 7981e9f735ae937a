/* SPDX-License-Identifier: BSD-2-Clause */
/* The questions, each to one peer and once; peers.c asks them. */
#include "ask.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define SECOND UINT64_C(1000000000)
#define MB     1048576.0

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
    void *ring[ASK_DEPTH];
};

static void *schedule_far(struct producer *p)
{
    uint64_t delay = rng_between(&p->seed, SECOND, 60 * SECOND);

    return peer_schedule_in(p->peer, p->timer, delay, &no_event, true);
}

static void fill(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < ASK_DEPTH; i++)
        p->ring[i] = schedule_far(p);
}

static void replace_oldest(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        void **place = &p->ring[p->next++ % ASK_DEPTH];

        p->peer->cancel(p->timer, *place);
        *place = schedule_far(p);
    }
}

static void drain(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < ASK_DEPTH; i++)
        p->peer->cancel(p->timer, p->ring[i]);
}

static const struct work pairs_work = {fill, replace_oldest, drain};

static void add_others(const struct peer *peer, void *timer, uint64_t others)
{
    uint64_t now = clock_ns(), seed = 3;

    for (uint64_t i = 0; i < others; i++)
        peer->schedule(timer, now + rng_between(&seed, 600 * SECOND, 3600 * SECOND), &no_event,
                       false);
    sleep_ns(others * 500); /* some take them in afterwards */
}

void ask_pairs(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    void *timer = ask->peer->create();
    struct producer *p = bench_alloc(ask->producers * sizeof(*p));
    size_t before;
    struct window w;

    add_others(ask->peer, timer, ask->others);
    peak_reset();
    before = resident_bytes();
    for (unsigned i = 0; i < ask->producers; i++)
        p[i] = (struct producer){.peer = ask->peer, .timer = timer, .seed = i + 1};
    window_run(&pairs_work, p, sizeof(*p), ask->producers, b->seconds, &w);
    series_add(&ask->figures[0], window_cpu(&w));
    series_add(&ask->figures[1], window_wall(&w, ask->producers));
    series_add(&ask->figures[2], (double)(peak_bytes() - before) / MB);
    ask->peer->destroy(timer);
}

/* ---- schedule only ---- */
void ask_build(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    size_t before = resident_bytes();
    void *timer = ask->peer->create();
    uint64_t now = clock_ns(), cpu = process_cpu_ns(), seed = 5;
    double each = (double)ask->count;

    (void)b;
    for (uint64_t i = 0; i < ask->count; i++)
        ask->peer->schedule(timer, now + rng_between(&seed, 600 * SECOND, 3600 * SECOND), &no_event,
                            false);
    series_add(&ask->figures[1], (double)(clock_ns() - now) / each);
    sleep_ns(ask->count * 500);
    series_add(&ask->figures[0], (double)(process_cpu_ns() - cpu) / each);
    series_add(&ask->figures[2], (double)(resident_bytes() - before) / each);
    ask->peer->destroy(timer);
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

enum { EXPIRE_CPU, EARLY, P50, P99, P999, EXPIRE_SCHEDULE };

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

static void submit_crowd(const struct ask *ask, void *timer, struct record *records)
{
    uint64_t from = clock_ns() + ask->count * 1500 + SECOND / 3, seed = 9;

    for (uint64_t i = 0; i < ask->count; i++) {
        records[i].event.fire = note;
        records[i].deadline = from + rng_between(&seed, 0, SECOND);
        ask->peer->schedule(timer, records[i].deadline, &records[i].event, false);
    }
}

/* CPU each: the submitter's, and all but his until the last has run. */
struct crowd_cost {
    double schedule, rest;
};

static struct crowd_cost run_crowd(const struct ask *ask, void *timer, struct record *records)
{
    uint64_t all = process_cpu_ns(), mine = thread_cpu_ns(), until;
    double n = (double)ask->count;

    atomic_store(&fired, 0);
    submit_crowd(ask, timer, records);
    mine = thread_cpu_ns() - mine;
    until = clock_ns() + 60 * SECOND;
    while (atomic_load(&fired) < ask->count && clock_ns() < until)
        sleep_ns(SECOND / 100);
    sleep_ns(SECOND / 50);
    if (atomic_load(&fired) < ask->count)
        bench_die("timeouts that never expired", ETIME);
    return (struct crowd_cost){(double)mine / n, (double)(process_cpu_ns() - all - mine) / n};
}

void ask_expire(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    struct record *records = bench_alloc(ask->count * sizeof(*records));
    void *timer = ask->peer->create();
    struct crowd_cost cost = run_crowd(ask, timer, records);

    (void)b;
    series_add(&ask->figures[EXPIRE_CPU], cost.rest);
    series_add(&ask->figures[EXPIRE_SCHEDULE], cost.schedule);
    ask->peer->destroy(timer);
    lateness(records, ask->count, ask->figures);
}

/* ---- the next million of the same timer: its memory lies as the first one left it ---- */
enum { FIRST_SCHEDULE, AGAIN_SCHEDULE, AGAIN_REST };

void ask_again(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    struct record *records = bench_alloc(ask->count * sizeof(*records));
    void *timer = ask->peer->create();
    struct crowd_cost first = run_crowd(ask, timer, records);
    struct crowd_cost again = run_crowd(ask, timer, records);

    (void)b;
    ask->peer->destroy(timer);
    series_add(&ask->figures[FIRST_SCHEDULE], first.schedule);
    series_add(&ask->figures[AGAIN_SCHEDULE], again.schedule);
    series_add(&ask->figures[AGAIN_REST], again.rest);
    free(records);
}

/* ---- one at a time ---- */
enum { LONE_P50, LONE_P99, SLEEP_P50, SLEEP_P99, LONE_EARLY };

struct lone {
    struct event event;
    uint64_t deadline;
    int64_t late;
    sem_t over;
};

static void note_lone(struct event *event)
{
    struct lone *lone = (struct lone *)event;

    lone->late = (int64_t)(clock_ns() - lone->deadline);
    sem_post(&lone->over);
}

/* As late as the system makes a thread that only sleeps. */
static uint64_t sleep_late(uint64_t delay)
{
    uint64_t until = clock_ns() + delay;
    struct timespec at = peer_timespec(until);

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        ;
    return clock_ns() - until;
}

static void report_lone(uint64_t *late, uint64_t count, struct series *p50, struct series *p99)
{
    sort_u64(late, count);
    series_add(p50, (double)percentile(late, count, 50) / 1e3);
    series_add(p99, (double)percentile(late, count, 99) / 1e3);
}

void ask_lone(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    uint64_t *late = bench_alloc(ask->count * sizeof(*late)), seed = 11, early = 0;
    uint64_t *slept = bench_alloc(ask->count * sizeof(*slept));
    struct lone lone = {.event = {note_lone}};
    void *timer = ask->peer->create();

    (void)b;
    sem_init(&lone.over, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1);
    for (uint64_t i = 0; i < ask->count; i++) {
        slept[i] = sleep_late(rng_between(&seed, SECOND / 1000, SECOND / 50));
        lone.deadline = clock_ns() + rng_between(&seed, SECOND / 1000, SECOND / 50);
        ask->peer->schedule(timer, lone.deadline, &lone.event, false);
        while (sem_wait(&lone.over) != 0)
            ;
        early += lone.late < 0;
        late[i] = lone.late < 0 ? 0 : (uint64_t)lone.late;
    }
    ask->peer->destroy(timer);
    report_lone(late, ask->count, &ask->figures[LONE_P50], &ask->figures[LONE_P99]);
    report_lone(slept, ask->count, &ask->figures[SLEEP_P50], &ask->figures[SLEEP_P99]);
    series_add(&ask->figures[LONE_EARLY], (double)early);
    free(late);
    free(slept);
}

/* ---- millions by two threads, none cancelled: scheduling them, and their whole life ---- */
enum { BULK_WALL, BULK_CPU, BULK_LIFE, BULK_BYTES };

struct bulk_thread {
    const struct ask *ask;
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

    for (uint64_t i = 0; i < t->ask->count / 2; i++)
        t->ask->peer->schedule(t->timer, t->from + rng_between(&t->seed, 0, 2 * SECOND), &one_event,
                               false);
    return NULL;
}

void ask_bulk(struct bench *b, void *arg)
{
    const struct ask *ask = arg;
    struct bulk_thread thread[2];
    pthread_t id[2];
    void *timer = ask->peer->create();
    uint64_t wall = clock_ns(), cpu = process_cpu_ns(), until = wall + 120 * SECOND;
    size_t before = resident_bytes();
    double each = (double)(ask->count / 2 * 2);

    (void)b;
    peak_reset();
    for (unsigned i = 0; i < 2; i++) {
        thread[i] = (struct bulk_thread){ask, timer, wall + ask->count * 400 + SECOND, i + 1};
        if (pthread_create(&id[i], NULL, submit_bulk, &thread[i]) != 0)
            bench_die("pthread_create", EAGAIN);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    series_add(&ask->figures[BULK_WALL], (double)(clock_ns() - wall) / each);
    series_add(&ask->figures[BULK_CPU], (double)(process_cpu_ns() - cpu) / each);
    while (all_done() < ask->count / 2 * 2 && clock_ns() < until)
        sleep_ns(SECOND / 20);
    if (all_done() < ask->count / 2 * 2)
        bench_die("timeouts that never expired", ETIME);
    ask->peer->destroy(timer);
    series_add(&ask->figures[BULK_LIFE], (double)(process_cpu_ns() - cpu) / each);
    series_add(&ask->figures[BULK_BYTES], (double)(peak_bytes() - before) / each);
}

ask_question *ask_named(const char *name)
{
    static const struct {
        const char *name;
        ask_question *ask;
    } all[] = {
        {"pairs", ask_pairs},         {"pairs beside others", ask_pairs},
        {"schedule only", ask_build}, {"within a second", ask_expire},
        {"a second time", ask_again}, {"one at a time", ask_lone},
        {"bulk", ask_bulk},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].ask;
    return NULL;
}
