/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worst that a single call takes: schedule, and cancel with the handle dropped, each timed by
 * itself in every one of many threads; alone, beside a million that are due at one tick (and
 * `these`, by the one thread that schedules them), beside timers that come and go with all their
 * memory, beside ten million, and after two million, whose memory is given back meanwhile. What the
 * machine itself takes from a thread is sampled in between, in the same threads: as long a time in
 * which only the clock is read; and by the one that schedules a million, how long a page takes that
 * is touched for the first time, one for as many timeouts as would fill it. `own` is the worst
 * without the time in which the thread was ready and others ran, by the kernel's account: what is
 * left is the call's, and what the host and interrupts take.
 */
#include "producer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- a histogram: powers of two, eight steps each ---- */
#define STEPS   8
#define BUCKETS (40 * STEPS)
_Static_assert(STEPS == 8, "bucket_of: a number of four bits is the step");

struct histogram {
    uint64_t count[BUCKETS];
    uint64_t n, most;
    uint64_t own; /* the worst, without the time in which others ran */
};

static unsigned bucket_of(uint64_t ns)
{
    unsigned power = ns < 2 * STEPS ? 0 : 60 - (unsigned)__builtin_clzll(ns);
    unsigned at = (unsigned)(ns >> power) + power * STEPS;

    return at < BUCKETS ? at : BUCKETS - 1;
}

static double bucket_end(unsigned bucket)
{
    unsigned power = bucket < 2 * STEPS ? 0 : bucket / STEPS - 1;

    return (double)((uint64_t)(bucket - power * STEPS + 1) << power);
}

#define LOOK_ABOVE 20000 /* ns: otherwise it is not worth to ask the kernel */

static _Thread_local uint64_t queued; /* when the kernel was asked last: at most a batch ago */

static void record_own(struct histogram *h, uint64_t ns)
{
    uint64_t now = thread_queue_ns(), own = ns > now - queued ? ns - (now - queued) : 0;

    queued = now;
    h->own = own > h->own ? own : h->own;
}

static void record(struct histogram *h, uint64_t ns)
{
    h->count[bucket_of(ns)]++;
    h->n++;
    h->most = ns > h->most ? ns : h->most;
    if (ns > LOOK_ABOVE)
        record_own(h, ns);
}

static void add(struct histogram *to, const struct histogram *h)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        to->count[i] += h->count[i];
    to->n += h->n;
    to->most = h->most > to->most ? h->most : to->most;
    to->own = h->own > to->own ? h->own : to->own;
}

static double at_percent(const struct histogram *h, double percent)
{
    double left = (double)h->n * (100 - percent) / 100;
    unsigned i = BUCKETS;

    for (double above = 0; i > 0 && above + (double)h->count[i - 1] <= left; i--)
        above += (double)h->count[i - 1];
    return i > 0 ? bucket_end(i - 1) : 0;
}

/* ---- a thread ---- */
enum { SCHEDULE, CANCEL, NOTHING, BESIDE, NEW_PAGES, KINDS };

struct caller {
    _Alignas(2 * BENCH_LINE) struct producer *p;
    struct histogram took[BESIDE];
};

static void fill(void *self)
{
    struct caller *c = self;

    for (unsigned i = 0; i < PRODUCER_DEPTH; i++)
        bench_check(hwt_new_timeout(c->p->timer, bench_ignore, NULL, HWT_SEC(60), &c->p->ring[i]),
                    "hwt_new_timeout");
    memset(c->took, 0, sizeof(c->took));
}

static void call_batch(void *self)
{
    struct caller *c = self;

    queued = thread_queue_ns();
    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        hwt_timeout **place = &c->p->ring[c->p->next++ % PRODUCER_DEPTH];
        uint64_t begin = clock_ns(), cancelled, scheduled;

        hwt_timeout_cancel(*place);
        hwt_timeout_unref(*place);
        cancelled = clock_ns();
        bench_check(hwt_new_timeout(c->p->timer, bench_ignore, NULL, HWT_SEC(60), place),
                    "hwt_new_timeout");
        scheduled = clock_ns();
        record(&c->took[CANCEL], cancelled - begin);
        record(&c->took[SCHEDULE], scheduled - cancelled);
        begin = clock_ns();
        for (unsigned reads = 0; reads < 3; reads++)
            scheduled = clock_ns();
        record(&c->took[NOTHING], scheduled - begin);
    }
}

static void drop_all(void *self)
{
    struct caller *c = self;

    for (unsigned i = 0; i < PRODUCER_DEPTH; i++) {
        hwt_timeout_cancel(c->p->ring[i]);
        hwt_timeout_unref(c->p->ring[i]);
    }
}

static const struct work calls = {fill, call_batch, drop_all};

/* ---- beside them ---- */
struct beside {
    pthread_t thread;
    hwt_timer *timer;
    struct histogram took;  /* its own calls */
    struct histogram pages; /* its own touches of new pages */
    _Atomic bool stop;
};

static void submit_timed(struct beside *beside, uint64_t at, unsigned number)
{
    uint64_t begin;

    if (number % BENCH_BATCH == 0)
        queued = thread_queue_ns();
    begin = clock_ns();
    bench_check(hwt_new_timeout_at(beside->timer, bench_ignore, NULL, at, NULL),
                "hwt_new_timeout_at");
    record(&beside->took, clock_ns() - begin);
}

/* ---- what new memory takes without a timer ---- */
enum { PAGE = 4096, BURST = 1000000, PER_PAGE = 64, NEW_MEMORY = (BURST / PER_PAGE + 1) * PAGE };

static char *new_memory(void)
{
    char *memory =
        mmap(NULL, NEW_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        bench_die("mmap", ENOMEM);
    madvise(memory, NEW_MEMORY, MADV_NOHUGEPAGE);
    return memory;
}

static void touch_timed(struct beside *beside, volatile char *page)
{
    uint64_t begin = clock_ns();

    *page = 1;
    record(&beside->pages, clock_ns() - begin);
}

static void *bursts(void *arg)
{
    struct beside *beside = arg;

    while (!atomic_load(&beside->stop)) {
        uint64_t at = hwt_timer_now(beside->timer) + HWT_MSEC(300);
        char *memory = new_memory();

        for (unsigned i = 0; i < BURST; i++) {
            submit_timed(beside, at, i);
            if (i % PER_PAGE == 0)
                touch_timed(beside, memory + (size_t)i / PER_PAGE * PAGE);
        }
        munmap(memory, NEW_MEMORY);
        while (hwt_timer_now(beside->timer) < at && !atomic_load(&beside->stop))
            sleep_ns(HWT_MSEC(10));
    }
    return NULL;
}

static void *comings_and_goings(void *arg)
{
    struct beside *beside = arg;

    while (!atomic_load(&beside->stop)) {
        hwt_timer *timer = bench_timer(0);

        for (unsigned i = 0; i < 200000; i++)
            bench_check(hwt_new_timeout(timer, bench_ignore, NULL, HWT_SEC(60), NULL),
                        "hwt_new_timeout");
        hwt_timer_destroy(timer);
    }
    return NULL;
}

/* ---- before them ---- */
static void schedule_many(hwt_timer *timer, uint64_t count, hwt_timeout **handles)
{
    for (uint64_t i = 0; i < count; i++)
        bench_check(hwt_new_timeout(timer, bench_ignore, NULL, HWT_SEC(86400),
                                    handles ? &handles[i] : NULL),
                    "hwt_new_timeout");
}

static void ten_million(hwt_timer *timer)
{
    schedule_many(timer, 10000000, NULL);
}

static void two_million_gone(hwt_timer *timer)
{
    enum { COUNT = 2000000 };
    hwt_timeout **handles = bench_alloc(COUNT * sizeof(hwt_timeout *));

    schedule_many(timer, COUNT, handles);
    for (uint64_t i = 0; i < COUNT; i++) {
        hwt_timeout_cancel(handles[i]);
        hwt_timeout_unref(handles[i]);
    }
    free(handles);
}

struct scenario {
    const char *name;
    void (*before)(hwt_timer *timer);
    void *(*beside)(void *arg);
};

static const struct scenario scenarios[] = {
    {"alone", NULL, NULL},
    {"a million at once", NULL, bursts},
    {"timers come and go", NULL, comings_and_goings},
    {"beside ten million", ten_million, NULL},
    {"after two million", two_million_gone, NULL},
};

/* ---- a case ---- */
struct tail {
    const struct scenario *scenario;
    unsigned threads;
    struct histogram *took; /* KINDS of them, shared with the child */
    struct series own[KINDS];
};

static void run(struct bench *b, void *arg)
{
    const struct tail *tail = arg;
    struct beside beside = {.timer = bench_timer(0)};
    struct producer *p = producers_new(tail->threads, beside.timer);
    struct caller *callers = bench_alloc(tail->threads * sizeof(*callers));
    struct window w;

    if (tail->scenario->before)
        tail->scenario->before(beside.timer);
    for (unsigned i = 0; i < tail->threads; i++)
        callers[i].p = &p[i];
    if (tail->scenario->beside &&
        pthread_create(&beside.thread, NULL, tail->scenario->beside, &beside) != 0)
        bench_die("pthread_create", 11);
    window_run(&calls, callers, sizeof(*callers), tail->threads, b->seconds, &w);
    atomic_store(&beside.stop, true);
    if (tail->scenario->beside)
        pthread_join(beside.thread, NULL);
    for (unsigned i = 0; i < tail->threads; i++)
        for (unsigned kind = 0; kind < BESIDE; kind++)
            add(&tail->took[kind], &callers[i].took[kind]);
    add(&tail->took[BESIDE], &beside.took);
    add(&tail->took[NEW_PAGES], &beside.pages);
    hwt_timer_destroy(beside.timer);
    free(callers);
    free(p);
}

static bool is_kernel(unsigned kind)
{
    return kind == NOTHING || kind == NEW_PAGES;
}

static void report(struct bench *b, const struct tail *tail)
{
    static const char *const call[KINDS] = {"schedule", "cancel", "clock reads", "these",
                                            "new pages"};
    static const double percents[] = {50, 99, 99.9, 99.99, 99.999};
    char scenario[64], metric[32];

    for (unsigned kind = 0; kind < KINDS; kind++) {
        const struct histogram *h = &tail->took[kind];
        struct bench_row row = {
            is_kernel(kind) ? "kernel" : "hwt", scenario, tail->threads, h->n, metric, "us", 0};

        if (h->n == 0)
            continue;
        snprintf(scenario, sizeof(scenario), "%s, %s", call[kind], tail->scenario->name);
        for (unsigned i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
            snprintf(metric, sizeof(metric), "p%g", percents[i]);
            bench_value(b, &row, at_percent(h, percents[i]) / 1e3);
        }
        snprintf(metric, sizeof(metric), "max");
        bench_value(b, &row, (double)h->most / 1e3);
        snprintf(metric, sizeof(metric), "own max");
        row.limit = is_kernel(kind) ? 0 : series_median(&tail->own[NOTHING]) + 50;
        bench_report(b, &row, &tail->own[kind]);
    }
}

static void measure(struct bench *b, const struct scenario *scenario, unsigned threads)
{
    struct tail tail = {.scenario = scenario,
                        .threads = threads,
                        .took = bench_shared(KINDS * sizeof(struct histogram))};

    if (!bench_wants(b, scenario->name))
        return;
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, %u threads, run %u of %u", scenario->name, threads, i + 1,
                       b->repeats);
        bench_isolated(b, run, &tail);
        for (unsigned kind = 0; kind < KINDS; kind++) {
            series_add(&tail.own[kind], (double)tail.took[kind].own / 1e3);
            tail.took[kind].own = 0;
        }
    }
    report(b, &tail);
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "the worst that one call takes, beside as long a look at the clock");
    for (unsigned i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
        measure(&b, &scenarios[i], 2);
        measure(&b, &scenarios[i], 16);
    }
    return bench_close(&b);
}
