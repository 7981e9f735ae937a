/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which cache lines do producers share? The library is compiled with -fsanitize=thread, but linked
 * with those of hooks.c instead of the sanitizer's runtime: every access it makes is recorded here,
 * line by line and thread by thread, as a cache-coherence protocol would see it. Each producer is
 * told that it runs on a CPU of its own, so that machines larger than this one can be looked at.
 *
 * A transfer is an access that finds the line in another thread's cache: a read of what another
 * one wrote last, or a write to what another one has read or written since. A line is shared if one
 * producer writes what another one wrote last more often than once in a thousand pairs; else, as
 * what is done once round a lane's ring, or once a second, it is seldom shared. A thread's own
 * stack is left out: to look at it takes so long that the library would not trust its clock.
 */
#include <hwt.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lines.h"
#include "suite/harness.h"

#define DEPTH      1024
#define PRODUCERS  128
#define OTHERS     PRODUCERS /* the number of every thread that is not a producer: the worker */
#define TABLE      (1u << 20)
#define SELDOM     1000 /* pairs for each change of hands, and more */
#define STACK      (64u << 10)
/* So many pairs go more than once round a lane's ring, so that all of it has been used. */
#define ONCE_ROUND 20000

/* ---- what is known of a line ---- */
struct line {
    uintptr_t address;
    uint64_t holders[PRODUCERS / 64 + 1]; /* who has it in the cache */
    uint64_t writers[PRODUCERS / 64 + 1]; /* who has written it since recording began */
    unsigned last_writer;
    uint64_t changes;     /* of that, from one producer to another */
    const void *place[2]; /* in the code: of the two latest writers */
};

struct counts {
    uint64_t from_producers; /* transfers to a producer of what a producer wrote last */
    uint64_t from_worker;
    uint64_t upgrades; /* a producer's write to a line that others have read */
    uint64_t accesses, writes;
};

static struct line *table;
static struct counts counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool recording;
static unsigned simulated_cpus = 1;
static _Thread_local unsigned me = OTHERS;

static bool has(const uint64_t *set, unsigned i)
{
    return set[i / 64] >> (i % 64) & 1;
}

static void add(uint64_t *set, unsigned i)
{
    set[i / 64] |= UINT64_C(1) << (i % 64);
}

static unsigned size_of(const uint64_t *set)
{
    return (unsigned)(__builtin_popcountll(set[0]) + __builtin_popcountll(set[1]) +
                      __builtin_popcountll(set[2]));
}

static struct line *find(uintptr_t address)
{
    size_t at = (size_t)((address >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 44) % TABLE;

    for (size_t tries = 0; tries < TABLE; tries++, at = (at + 1) % TABLE) {
        if (table[at].address == address)
            return &table[at];
        if (table[at].address == 0) {
            table[at].address = address;
            table[at].last_writer = OTHERS + 1;
            return &table[at];
        }
    }
    bench_die("too many lines", ENOMEM);
}

static void count_transfer(const struct line *line)
{
    if (me == OTHERS)
        return;
    if (line->last_writer < OTHERS)
        counts.from_producers++;
    else if (line->last_writer == OTHERS)
        counts.from_worker++;
}

static void take(struct line *line, bool write, const void *place)
{
    if (!has(line->holders, me) && line->last_writer != me)
        count_transfer(line);
    else if (write && me != OTHERS && size_of(line->holders) > 1)
        counts.upgrades++;
    if (write) {
        memset(line->holders, 0, sizeof(line->holders));
        if (line->last_writer != me || !line->place[0]) {
            line->place[1] = line->place[0];
            line->place[0] = place;
        }
        add(line->writers, me);
        line->changes += me != OTHERS && line->last_writer < OTHERS && line->last_writer != me;
        line->last_writer = me;
    }
    add(line->holders, me);
}

static bool on_own_stack(const volatile void *address)
{
    return (uintptr_t)address - (uintptr_t)__builtin_frame_address(0) < STACK;
}

void line_access(const volatile void *address, size_t size, bool write, const void *place)
{
    uintptr_t first = (uintptr_t)address / BENCH_LINE, last;

    if (!atomic_load_explicit(&recording, memory_order_relaxed) || size == 0 ||
        on_own_stack(address))
        return;
    last = ((uintptr_t)address + size - 1) / BENCH_LINE;
    pthread_mutex_lock(&lock);
    if (me != OTHERS) {
        counts.accesses++;
        counts.writes += write;
    }
    for (uintptr_t line = first; line <= last; line++)
        take(find(line * BENCH_LINE), write, place);
    pthread_mutex_unlock(&lock);
}

/* ---- a machine with as many CPUs as there are producers ---- */
int sched_getcpu(void)
{
    return (int)(me % simulated_cpus);
}

long sysconf(int name)
{
    switch (name) {
    case _SC_NPROCESSORS_CONF:
    case _SC_NPROCESSORS_ONLN: return (long)simulated_cpus;
    case _SC_PAGESIZE: return 4096;
    case _SC_CLK_TCK: return 100;
    default: errno = EINVAL; return -1;
    }
}

/* The library reads the CPU's number from the thread's rseq area unless there is none. */
static void without_rseq(char **argv)
{
    const char *tunables = getenv("GLIBC_TUNABLES");

    if (tunables && strstr(tunables, "glibc.pthread.rseq=0"))
        return;
    setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
    execv("/proc/self/exe", argv);
    bench_die("/proc/self/exe", errno);
}

/* ---- producers ---- */
struct shared {
    hwt_timer *timer;
    uint64_t pairs;
    pthread_barrier_t step;
};

struct producer {
    struct shared *shared;
    unsigned number;
    unsigned next;
    uint64_t seed;
    pthread_t thread;
    hwt_timeout *ring[DEPTH];
};

static void ignore(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void one_pair(struct producer *p)
{
    hwt_timeout **place = &p->ring[p->next++ % DEPTH];
    uint64_t delay = rng_between(&p->seed, HWT_SEC(1000), HWT_SEC(60000));
    int error;

    if (*place) {
        hwt_timeout_cancel(*place);
        hwt_timeout_unref(*place);
    }
    error = hwt_new_timeout(p->shared->timer, ignore, p, delay, place);
    if (error)
        bench_die("hwt_new_timeout", error);
}

/* They take turns pair by pair: nobody gets to keep a line by running undisturbed for long. */
static void many_pairs(struct producer *p, uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++) {
        one_pair(p);
        sched_yield();
    }
}

static void *produce(void *arg)
{
    struct producer *p = arg;

    me = p->number;
    for (unsigned i = 0; i < DEPTH; i++)
        one_pair(p);
    many_pairs(p, ONCE_ROUND);
    pthread_barrier_wait(&p->shared->step);
    pthread_barrier_wait(&p->shared->step); /* between the two, recording begins */
    many_pairs(p, p->shared->pairs);
    pthread_barrier_wait(&p->shared->step);
    pthread_barrier_wait(&p->shared->step); /* and ends */
    for (unsigned i = 0; i < DEPTH; i++) {
        hwt_timeout_cancel(p->ring[i]);
        hwt_timeout_unref(p->ring[i]);
    }
    return NULL;
}

static void record_while_they_run(struct shared *shared)
{
    pthread_barrier_wait(&shared->step);
    memset(&counts, 0, sizeof(counts));
    memset(table, 0, TABLE * sizeof(*table));
    atomic_store(&recording, true);
    pthread_barrier_wait(&shared->step);
    pthread_barrier_wait(&shared->step);
    atomic_store(&recording, false);
    pthread_barrier_wait(&shared->step);
}

static void run_producers(unsigned n, uint64_t pairs, bool limited)
{
    struct producer *p = bench_alloc(n * sizeof(*p));
    struct shared shared = {.pairs = pairs};
    hwt_config config;
    int error;

    hwt_config_init(&config);
    config.max_pending = limited ? 2 * DEPTH * n : 0;
    error = hwt_timer_create(&shared.timer, &config);
    if (error)
        bench_die("hwt_timer_create", error);
    pthread_barrier_init(&shared.step, NULL, n + 1);
    for (unsigned i = 0; i < n; i++) {
        p[i].shared = &shared;
        p[i].number = i;
        p[i].seed = i + 1;
        error = pthread_create(&p[i].thread, NULL, produce, &p[i]);
        if (error)
            bench_die("pthread_create", error);
    }
    record_while_they_run(&shared);
    for (unsigned i = 0; i < n; i++)
        pthread_join(p[i].thread, NULL);
    hwt_timer_destroy(shared.timer);
    free(p);
}

/* ---- what came of it ---- */
static void name_place(const void *place)
{
    char command[128], name[200] = "";
    FILE *f;

    snprintf(command, sizeof(command), "addr2line -fpe /proc/%d/exe %p 2>/dev/null", (int)getpid(),
             place);
    f = place ? popen(command, "r") : NULL;
    if (f && fgets(name, sizeof(name), f))
        printf("    %s", name);
    if (f)
        pclose(f);
}

struct summary {
    uint64_t shared, seldom, written;
};

static void show(const struct line *line, uint64_t pairs)
{
    printf("  line %#lx went from one producer to another once in %.0f pairs, among others at\n",
           (unsigned long)line->address, (double)pairs / (double)line->changes);
    name_place(line->place[0]);
    name_place(line->place[1]);
}

static void summarize(struct summary *s, uint64_t pairs)
{
    unsigned shown = 0;

    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < TABLE; i++) {
        const struct line *line = &table[i];
        bool often = line->changes * SELDOM > pairs;

        s->written += size_of(line->writers) > has(line->writers, OTHERS);
        s->shared += often;
        s->seldom += line->changes > 0 && !often;
        if (line->changes > 0 && shown++ < 5)
            show(line, pairs);
    }
}

static void report(struct bench *b, unsigned producers, uint64_t pairs, bool limited)
{
    double all = (double)pairs * producers;
    const char *name = limited ? "with max_pending" : "steady state";
    struct bench_row row = {"hwt", name, producers, pairs, "", "", 0};
    struct summary s;

    summarize(&s, pairs * producers);
    row.metric = "shared lines";
    row.unit = "lines";
    row.limit = BENCH_NONE;
    bench_value(b, &row, (double)s.shared);
    row.limit = 0;
    row.metric = "seldom shared";
    bench_value(b, &row, (double)s.seldom);
    row.metric = "lines each";
    bench_value(b, &row, (double)s.written / producers);
    row.metric = "from producers";
    row.unit = "/pair";
    bench_value(b, &row, (double)counts.from_producers / all);
    row.metric = "from worker";
    bench_value(b, &row, (double)counts.from_worker / all);
    row.metric = "upgrades";
    bench_value(b, &row, (double)counts.upgrades / all);
    row.metric = "writes";
    bench_value(b, &row, (double)counts.writes / all);
    row.metric = "accesses";
    bench_value(b, &row, (double)counts.accesses / all);
}

int main(int argc, char **argv)
{
    static const unsigned producers[] = {2, 16, 64, 128};
    struct bench b;

    without_rseq(argv);
    bench_open(&b, argc, argv, "cache lines that producers write, on simulated machines");
    table = bench_alloc(TABLE * sizeof(*table));
    for (unsigned i = 0; i < 2 * (sizeof(producers) / sizeof(*producers) - (b.quick ? 2 : 0));
         i++) {
        uint64_t pairs = b.quick ? 12500 : ONCE_ROUND;
        bool limited = i % 2;

        simulated_cpus = producers[i / 2];
        bench_progress(&b, "%u producers%s", simulated_cpus, limited ? ", max_pending" : "");
        run_producers(simulated_cpus, pairs, limited);
        report(&b, simulated_cpus, pairs, limited);
    }
    free(table);
    return bench_close(&b);
}
