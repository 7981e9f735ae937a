/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does it cost to let many expire? One million due within a second on the real clock, and
 * within a minute and an hour on a virtual one; each task reads the clock and notes its lateness,
 * where what it is called with begins or, `next line`, in the line behind that.
 * `again` is the second million of one timer: the memory is there, and lies as the first left it.
 * `walk` is no timer: the least that running them in order takes of memory and clock here, at once,
 * and with a wake-up for each tick.
 */
#include "producer.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define TICK HWT_MSEC(1)

/* What a task is called with, elsewhere in memory than its timeout, as a connection would be. */
struct record {
    uint64_t deadline;
    int64_t late;
};

/* The same in something larger: what its task uses lies in the line behind the first. */
struct wide {
    alignas(64) char first[64];
    struct record record;
};

struct crowd {
    char *memory;
    size_t size, at; /* of what one task is called with, and where in that its record is */
    bool hooked;     /* scheduled with a hook: a block more for each */
    uint64_t count;
    uint64_t *late; /* sorted, for the percentiles */
    uint64_t early;
};

static _Atomic uint64_t expired;

static void note(hwt_timeout *timeout, void *arg)
{
    struct record *record = arg;

    (void)timeout;
    record->late = (int64_t)(clock_ns() - record->deadline);
    /* Only the worker writes it: no need for a locked instruction. */
    atomic_store_explicit(&expired, atomic_load_explicit(&expired, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void crowd_new(struct crowd *crowd, uint64_t count, size_t size, size_t at)
{
    crowd->count = count;
    crowd->size = size;
    crowd->at = at;
    crowd->hooked = false;
    crowd->memory = bench_alloc(count * size);
    crowd->late = bench_alloc(count * sizeof(*crowd->late));
}

static void *argument_of(const struct crowd *crowd, uint64_t i)
{
    return crowd->memory + i * crowd->size;
}

static struct record *record_of(const struct crowd *crowd, uint64_t i)
{
    return (struct record *)(crowd->memory + i * crowd->size + crowd->at);
}

static void crowd_free(struct crowd *crowd)
{
    free(crowd->memory);
    free(crowd->late);
}

static void hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    bench_die("a hook of what was not cancelled", EBUSY);
}

static void submit_one(hwt_timer *timer, const struct crowd *crowd, uint64_t i, hwt_task *task)
{
    uint64_t deadline = record_of(crowd, i)->deadline;
    hwt_spec spec;

    if (!crowd->hooked) {
        bench_check(hwt_new_timeout_at(timer, task, argument_of(crowd, i), deadline, NULL),
                    "hwt_new_timeout_at");
        return;
    }
    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = hook;
    spec.arg = argument_of(crowd, i);
    spec.delay_ns = deadline - hwt_timer_now(timer);
    bench_check(hwt_schedule(timer, &spec, NULL), "hwt_schedule");
}

static void submit(hwt_timer *timer, struct crowd *crowd, hwt_task *task, uint64_t from,
                   uint64_t span, uint64_t seed)
{
    atomic_store(&expired, 0);
    crowd->early = 0;
    for (uint64_t i = 0; i < crowd->count; i++) {
        record_of(crowd, i)->deadline = from + rng_between(&seed, 0, span);
        submit_one(timer, crowd, i, task);
    }
}

static void collect_lateness(struct crowd *crowd)
{
    for (uint64_t i = 0; i < crowd->count; i++) {
        int64_t late = record_of(crowd, i)->late;

        crowd->early += late < 0;
        crowd->late[i] = late < 0 ? 0 : (uint64_t)late;
    }
    sort_u64(crowd->late, crowd->count);
}

/* ---- the real clock ---- */
enum { CPU_ALL, CPU_AFTER, SUBMIT, EARLY, P50, P99, P999, WORST, LONGEST, REAL_FIGURES };

static void add_lateness(const struct crowd *crowd, struct series *f)
{
    series_add(&f[P50], (double)percentile(crowd->late, crowd->count, 50) / 1e3);
    series_add(&f[P99], (double)percentile(crowd->late, crowd->count, 99) / 1e3);
    series_add(&f[P999], (double)percentile(crowd->late, crowd->count, 99.9) / 1e3);
    series_add(&f[WORST], (double)percentile(crowd->late, crowd->count, 100) / 1e3);
}

static void await_all(uint64_t count, uint64_t until)
{
    uint64_t now = clock_ns();

    if (now < until)
        sleep_ns(until - now);
    while (atomic_load_explicit(&expired, memory_order_relaxed) < count) {
        if (clock_ns() > until + HWT_SEC(60))
            bench_die("timeouts that never expired", ETIME);
        sleep_ns(HWT_MSEC(1));
    }
}

static void real_crowd(hwt_timer *timer, struct crowd *crowd, uint64_t seed, struct series *f)
{
    double n = (double)crowd->count;
    uint64_t lead = crowd->count * 600 + HWT_MSEC(50); /* time to submit them all */
    uint64_t from = hwt_timer_now(timer) + lead;
    uint64_t all = process_cpu_ns();
    uint64_t submit_cpu = thread_cpu_ns();
    uint64_t after;

    submit(timer, crowd, note, from, HWT_SEC(1), seed);
    submit_cpu = thread_cpu_ns() - submit_cpu;
    after = process_cpu_ns();
    await_all(crowd->count, from + HWT_SEC(1));
    sleep_ns(HWT_MSEC(20)); /* what is left to be freed belongs to it */
    series_add(&f[CPU_ALL], (double)(process_cpu_ns() - all - submit_cpu) / n);
    series_add(&f[CPU_AFTER], (double)(process_cpu_ns() - after) / n);
    series_add(&f[SUBMIT], (double)submit_cpu / n);
    collect_lateness(crowd);
    series_add(&f[EARLY], (double)crowd->early);
    add_lateness(crowd, f);
}

enum scene { WORKER, LOOP, AGAIN };

struct real {
    enum scene scene;
    uint64_t count, seed;
    struct series *f; /* shared with the child */
};

/* With a worker, or in an event loop; or with a worker that has had as many before. */
static void real_once(struct bench *b, void *arg)
{
    const struct real *real = arg;
    bool loops = real->scene == LOOP;
    struct series before[REAL_FIGURES] = {{.n = 0}};
    struct bench_loop loop;
    struct crowd crowd;
    hwt_timer *timer;

    (void)b;
    crowd_new(&crowd, real->count, sizeof(struct record), 0);
    timer = bench_timer_on(CLOCK_MONOTONIC, TICK, loops ? &loop : NULL);
    if (real->scene == AGAIN)
        real_crowd(timer, &crowd, ~real->seed, before);
    real_crowd(timer, &crowd, real->seed, real->f);
    if (loops) {
        bench_loop_close(&loop);
        series_add(&real->f[LONGEST], (double)loop.longest_ns / 1e3);
    }
    hwt_timer_destroy(timer);
    crowd_free(&crowd);
}

struct figure {
    const char *metric, *unit;
    double limit;
};

/* Those that have a name. */
static void report(struct bench *b, const char *timer, const char *scenario, uint64_t count,
                   const struct figure *figures, unsigned n, const struct series *f)
{
    for (unsigned i = 0; i < n; i++) {
        struct bench_row row = {timer,           scenario,        1, count, figures[i].metric,
                                figures[i].unit, figures[i].limit};

        if (figures[i].metric)
            bench_report(b, &row, &f[i]);
    }
}

/* Each run in a process of its own: what memory is like after others is what `again` asks. */
static void real(struct bench *b, const char *scenario, enum scene scene, uint64_t count)
{
    static const struct figure figures[REAL_FIGURES] = {
        [CPU_ALL] = {"CPU, worker", "ns", 130}, [CPU_AFTER] = {"CPU, after", "ns", 0},
        [SUBMIT] = {"submission", "ns", 0},     [EARLY] = {"early", "timeouts", BENCH_NONE},
        [P50] = {"late p50", "us", 0},          [P99] = {"late p99", "us", 0},
        [P999] = {"late p99.9", "us", 1500},    [WORST] = {"late max", "us", 0},
        [LONGEST] = {"advance max", "us", 0},
    };
    struct real real = {.scene = scene, .count = count};

    if (!bench_wants(b, scenario))
        return;
    real.f = bench_shared(REAL_FIGURES * sizeof(*real.f));
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, run %u of %u", scenario, i + 1, b->repeats);
        real.seed = i + 1;
        bench_isolated(b, real_once, &real);
    }
    report(b, "hwt", scenario, count, figures, scene == LOOP ? REAL_FIGURES : LONGEST, real.f);
}

/* ---- a virtual clock ---- */
enum {
    CPU_EACH,
    V_SUBMIT,
    V_EARLY,
    V_LATE,
    ADVANCES,
    ADVANCE_P50,
    ADVANCE_P999,
    ADVANCE_MAX,
    VIRTUAL_FIGURES
};

static uint64_t virtual_now;

static void note_virtual(hwt_timeout *timeout, void *arg)
{
    struct record *record = arg;
    uint64_t sink = clock_ns(); /* the same work as on the real clock */

    (void)timeout;
    __asm__ volatile("" : : "r"(sink));
    record->late = (int64_t)(virtual_now - record->deadline);
    atomic_store_explicit(&expired, atomic_load_explicit(&expired, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void note_wide(hwt_timeout *timeout, void *arg)
{
    note_virtual(timeout, &((struct wide *)arg)->record);
}

/* From tick to tick, as a worker would wake up, skipping those at which nothing is due. */
static void to_next_tick(hwt_timer *timer)
{
    uint64_t next = hwt_timer_next_deadline(timer);

    if (next == UINT64_MAX)
        bench_die("timeouts that were lost", ETIME);
    next = (next + TICK - 1) / TICK * TICK;
    virtual_now = next > virtual_now ? next : virtual_now;
    bench_check(hwt_timer_advance(timer), "hwt_timer_advance");
}

static void advance_all(hwt_timer *timer, uint64_t count)
{
    while (atomic_load_explicit(&expired, memory_order_relaxed) < count)
        to_next_tick(timer);
}

/* How long each advance took shows the bursts. */
static size_t advance_timed(hwt_timer *timer, uint64_t count, uint64_t *took, size_t room)
{
    size_t n = 0;

    while (atomic_load_explicit(&expired, memory_order_relaxed) < count) {
        uint64_t before = clock_ns();

        to_next_tick(timer);
        if (n < room)
            took[n++] = clock_ns() - before;
    }
    return n;
}

static hwt_timer *virtual_crowd(struct crowd *crowd, uint64_t span, uint64_t seed)
{
    hwt_timer *timer;

    virtual_now = HWT_SEC(1000);
    timer = bench_virtual_timer(HWT_WHEEL_HIERARCHICAL, TICK, &virtual_now);
    submit(timer, crowd, crowd->at ? note_wide : note_virtual, virtual_now, span, seed);
    return timer;
}

static void virtual_cost(struct crowd *crowd, uint64_t span, uint64_t seed, struct series *f)
{
    double n = (double)crowd->count;
    uint64_t start = thread_cpu_ns();
    hwt_timer *timer = virtual_crowd(crowd, span, seed);
    uint64_t ready = thread_cpu_ns();

    advance_all(timer, crowd->count);
    series_add(&f[V_SUBMIT], (double)(ready - start) / n);
    series_add(&f[CPU_EACH], (double)(thread_cpu_ns() - ready) / n);
    hwt_timer_destroy(timer);
    collect_lateness(crowd);
    series_add(&f[V_EARLY], (double)crowd->early);
    series_add(&f[V_LATE], (double)percentile(crowd->late, crowd->count, 100) / 1e3);
}

static void virtual_bursts(struct crowd *crowd, uint64_t span, uint64_t seed, uint64_t *took,
                           struct series *f)
{
    hwt_timer *timer = virtual_crowd(crowd, span, seed);
    size_t advances;

    to_next_tick(timer); /* takes in all that was submitted, which is not what is looked for */
    advances = advance_timed(timer, crowd->count, took, crowd->count * 2);

    hwt_timer_destroy(timer);
    sort_u64(took, advances);
    series_add(&f[ADVANCES], (double)advances);
    series_add(&f[ADVANCE_P50], (double)percentile(took, advances, 50) / 1e3);
    series_add(&f[ADVANCE_P999], (double)percentile(took, advances, 99.9) / 1e3);
    series_add(&f[ADVANCE_MAX], (double)percentile(took, advances, 100) / 1e3);
}

enum called_with { NARROW, WIDE, HOOKED };

static void virtual(struct bench *b, const char *scenario, uint64_t span, uint64_t count,
                    double limit, enum called_with called_with)
{
    const struct figure figures[VIRTUAL_FIGURES] = {
        [CPU_EACH] = {"CPU each", "ns", limit},        [V_SUBMIT] = {"submission", "ns", 0},
        [ADVANCES] = {"advances", "calls", 0},         [ADVANCE_P50] = {"advance p50", "us", 0},
        [ADVANCE_P999] = {"advance p99.9", "us", 0},   [ADVANCE_MAX] = {"advance max", "us", 0},
        [V_EARLY] = {"early", "timeouts", BENCH_NONE}, [V_LATE] = {"late max", "us", TICK / 1e3},
    };
    struct series f[VIRTUAL_FIGURES] = {{.n = 0}};
    struct crowd crowd;
    uint64_t *took;

    if (!bench_wants(b, scenario))
        return;
    if (called_with == WIDE)
        crowd_new(&crowd, count, sizeof(struct wide), offsetof(struct wide, record));
    else
        crowd_new(&crowd, count, sizeof(struct record), 0);
    crowd.hooked = called_with == HOOKED;
    took = bench_alloc(2 * count * sizeof(*took));
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, run %u of %u", scenario, i + 1, b->repeats);
        virtual_cost(&crowd, span, i + 1, f);
        virtual_bursts(&crowd, span, i + 1, took, f);
    }
    free(took);
    crowd_free(&crowd);
    report(b, "hwt", scenario, count, figures, VIRTUAL_FIGURES, f);
}

/* ---- no timer ---- */

/* So many are fetched together: these blocks after the next, what the next are called with. */
#define WALK_GROUP  8
#define WALK_MEMORY ((size_t)2 << 20) /* in huge pages, as this library's is */

/* What stands for a timeout. */
struct block {
    alignas(64) _Atomic uint64_t word;
    void (*task)(hwt_timeout *timeout, void *arg);
    void *arg;
};

enum { BLOCK_PENDING, BLOCK_RUNNING, BLOCK_OVER };

/* Inlined: gcc drops calls of a function that only fetches, as having no effect. */
static inline __attribute__((always_inline)) void fetch_ahead(struct block *const *order,
                                                              uint64_t at, uint64_t count)
{
    for (uint64_t i = at + WALK_GROUP; i < at + 2 * WALK_GROUP && i < count; i++)
        __builtin_prefetch(order[i]->arg, 1);
    for (uint64_t i = at + 2 * WALK_GROUP; i < at + 3 * WALK_GROUP && i < count; i++)
        __builtin_prefetch(order[i], 1);
}

struct walk {
    struct crowd *crowd;
    struct block *blocks, **order;
    uint64_t cpu;
};

static void walk_one(const struct walk *w, uint64_t i)
{
    struct block *block = w->order[i];
    uint64_t word = BLOCK_PENDING;

    if (i % WALK_GROUP == 0)
        fetch_ahead(w->order, i, w->crowd->count);
    if (!atomic_compare_exchange_strong(&block->word, &word, BLOCK_RUNNING))
        bench_die("a block that nobody else knows", EBUSY);
    block->task(NULL, block->arg);
    atomic_store_explicit(&block->word, BLOCK_OVER, memory_order_release);
}

/* In the order of their deadlines. The lowest bits of what is sorted tell which it is. */
static void put_in_order(struct walk *w, hwt_task *task, uint64_t seed)
{
    struct crowd *crowd = w->crowd;

    crowd->early = 0;
    for (uint64_t i = 0; i < crowd->count; i++) {
        struct record *record = record_of(crowd, i);

        record->deadline = rng_between(&seed, 0, HWT_SEC(1));
        w->blocks[i] = (struct block){BLOCK_PENDING, task, record};
        crowd->late[i] = record->deadline * crowd->count + i;
    }
    sort_u64(crowd->late, crowd->count);
    for (uint64_t i = 0; i < crowd->count; i++)
        w->order[i] = &w->blocks[crowd->late[i] % crowd->count];
}

/* Sorting takes longer than it may: so they count from a moment after it. */
static void let_begin(struct walk *w, uint64_t from)
{
    for (uint64_t i = 0; i < w->crowd->count; i++)
        record_of(w->crowd, i)->deadline += from;
}

static uint64_t deadline_of(const struct walk *w, uint64_t i)
{
    return ((const struct record *)w->order[i]->arg)->deadline;
}

static void walk_at_once(struct walk *w)
{
    uint64_t start = thread_cpu_ns();

    for (uint64_t i = 0; i < w->crowd->count; i++)
        walk_one(w, i);
    w->cpu = thread_cpu_ns() - start;
}

/* As a worker would, in a thread of its own: asleep until a tick is over, then all that is due. */
static void *walk_in_time(void *walk)
{
    struct walk *w = walk;
    uint64_t start = thread_cpu_ns(), i = 0;

    while (i < w->crowd->count) {
        uint64_t tick_over = (deadline_of(w, i) / TICK + 1) * TICK, now = clock_ns();

        if (now < tick_over)
            sleep_ns(tick_over - now);
        for (now = clock_ns(); i < w->crowd->count && deadline_of(w, i) <= now; i++)
            walk_one(w, i);
    }
    w->cpu = thread_cpu_ns() - start;
    return NULL;
}

static void walk_open(struct walk *w, struct crowd *crowd, uint64_t count)
{
    size_t size;

    crowd_new(crowd, count, sizeof(struct record), 0);
    w->crowd = crowd;
    size = (count * sizeof(*w->blocks) + WALK_MEMORY - 1) / WALK_MEMORY * WALK_MEMORY;
    w->blocks = aligned_alloc(WALK_MEMORY, size);
    if (!w->blocks)
        bench_die("aligned_alloc", ENOMEM);
    madvise(w->blocks, size, MADV_HUGEPAGE);
    w->order = bench_alloc(count * sizeof(*w->order));
}

static void walk_close(struct walk *w)
{
    free(w->order);
    free(w->blocks);
    crowd_free(w->crowd);
}

static void in_order(struct bench *b, const char *scenario, uint64_t count)
{
    struct bench_row row = {"walk", scenario, 1, count, "CPU each", "ns", 0};
    struct series f = {.n = 0};
    struct crowd crowd;
    struct walk w;

    if (!bench_wants(b, scenario))
        return;
    walk_open(&w, &crowd, count);
    for (unsigned i = 0; i < b->repeats; i++) {
        put_in_order(&w, note_virtual, i + 1);
        walk_at_once(&w);
        series_add(&f, (double)w.cpu / (double)count);
    }
    walk_close(&w);
    bench_report(b, &row, &f);
}

/* What a wake-up for each tick costs besides, and how late the machine makes it. */
static void in_time(struct bench *b, const char *scenario, uint64_t count)
{
    static const struct figure figures[REAL_FIGURES] = {
        [CPU_ALL] = {"CPU, worker", "ns", 0}, [P50] = {"late p50", "us", 0},
        [P99] = {"late p99", "us", 0},        [P999] = {"late p99.9", "us", 0},
        [WORST] = {"late max", "us", 0},
    };
    struct series f[REAL_FIGURES] = {{.n = 0}};
    struct crowd crowd;
    struct walk w;

    if (!bench_wants(b, scenario))
        return;
    walk_open(&w, &crowd, count);
    for (unsigned i = 0; i < b->repeats; i++) {
        pthread_t thread;

        put_in_order(&w, note, i + 1);
        let_begin(&w, clock_ns() + HWT_MSEC(500));
        if (pthread_create(&thread, NULL, walk_in_time, &w) != 0)
            bench_die("pthread_create", EAGAIN);
        pthread_join(thread, NULL);
        series_add(&f[CPU_ALL], (double)w.cpu / (double)count);
        collect_lateness(&crowd);
        add_lateness(&crowd, f);
    }
    walk_close(&w);
    report(b, "walk", scenario, count, figures, REAL_FIGURES, f);
}

int main(int argc, char **argv)
{
    const uint64_t million = 1000000;
    struct bench b;

    bench_open(&b, argc, argv, "one million expiring, submission apart");
    real(&b, "within a second", WORKER, million);
    real(&b, "within a second, again", AGAIN, million);
    real(&b, "within a second, event loop", LOOP, million);
    virtual(&b, "a second, virtual clock", HWT_SEC(1), million, 130, NARROW);
    virtual(&b, "a second, virtual clock, next line", HWT_SEC(1), million, 0, WIDE);
    virtual(&b, "a second, virtual clock, with a hook", HWT_SEC(1), million, 0, HOOKED);
    virtual(&b, "a second, virtual clock", HWT_SEC(1), 2 * million, 0, NARROW);
    virtual(&b, "a minute, virtual clock", HWT_SEC(60), million, 120, NARROW);
    virtual(&b, "an hour, virtual clock", HWT_SEC(3600), million, 200, NARROW);
    in_order(&b, "in order, no timer", million);
    in_time(&b, "in time, no timer", million);
    return bench_close(&b);
}
