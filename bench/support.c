/* SPDX-License-Identifier: BSD-2-Clause */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void bench_die(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

void *bench_alloc(size_t bytes)
{
    size_t pair = 2 * BENCH_LINE; /* lines are fetched in pairs */
    size_t size = (bytes / pair + 1) * pair;
    void *p = aligned_alloc(pair, size);

    if (!p)
        bench_die("memory", ENOMEM);
    return memset(p, 0, size);
}

unsigned machine_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

void pin_to_cpu(unsigned cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

void sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* ---- clocks ---- */
static uint64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t process_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* The second number of schedstat, which not every kernel keeps; open until the process ends. */
uint64_t thread_queue_ns(void)
{
    static _Thread_local int fd = -1;
    unsigned long long ran = 0, queued = 0;
    char text[96];
    ssize_t length;

    if (fd < 0)
        fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    length = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    return sscanf(text, "%llu %llu", &ran, &queued) == 2 ? queued : 0;
}

static double best_of(double (*measure)(void), unsigned times)
{
    double best = measure();

    for (unsigned i = 1; i < times; i++) {
        double again = measure();

        best = again < best ? again : best;
    }
    return best;
}

static double clock_cost(void)
{
    enum { READS = 20000 };
    uint64_t start = clock_ns();
    uint64_t last = start;

    for (int i = 0; i < READS; i++)
        last = clock_ns();
    return (double)(last - start) / (double)READS;
}

/* ---- a cache line going back and forth between two CPUs ---- */
struct ball {
    _Alignas(BENCH_LINE) _Atomic unsigned turn;
    _Alignas(BENCH_LINE) unsigned cpu;
    unsigned rounds;
};

/* Gives up the CPU after a long wait: both players may have been put on the same one. */
static void await_turn(struct ball *ball, unsigned turn)
{
    unsigned spins = 0;

    while (atomic_load_explicit(&ball->turn, memory_order_acquire) != turn)
        if (++spins % 10000 == 0)
            sched_yield();
}

static void *return_ball(void *arg)
{
    struct ball *ball = arg;

    pin_to_cpu(ball->cpu);
    for (unsigned i = 0; i < ball->rounds; i++) {
        await_turn(ball, 2 * i + 1);
        atomic_store_explicit(&ball->turn, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

/* The server also waits one round before the time counts: the other side must have started. */
static double serve(struct ball *ball)
{
    uint64_t start = 0;

    for (unsigned i = 0; i < ball->rounds; i++) {
        if (i == 1)
            start = clock_ns();
        atomic_store_explicit(&ball->turn, 2 * i + 1, memory_order_release);
        await_turn(ball, 2 * i + 2);
    }
    return (double)(clock_ns() - start) / (2.0 * (ball->rounds - 1));
}

/* The first two CPUs that this process may use. */
static bool two_cpus(const cpu_set_t *set, unsigned cpu[2])
{
    unsigned found = 0;

    for (unsigned i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, set))
            cpu[found++] = i;
    return found == 2;
}

static double line_latency(void)
{
    struct ball ball = {.rounds = 4000};
    cpu_set_t before;
    pthread_t other;
    unsigned cpu[2];
    double ns;

    if (sched_getaffinity(0, sizeof(before), &before) != 0 || !two_cpus(&before, cpu))
        return 0;
    ball.cpu = cpu[1];
    if (pthread_create(&other, NULL, return_ball, &ball) != 0)
        return 0;
    pin_to_cpu(cpu[0]);
    ns = serve(&ball);
    pthread_join(other, NULL);
    (void)sched_setaffinity(0, sizeof(before), &before);
    return ns;
}

/* ---- what others take ---- */
struct cpu_use {
    double all, own, at; /* seconds */
};

static double children_cpu(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_CHILDREN, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void read_use(struct cpu_use *use)
{
    unsigned long long user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
    unsigned long long steal = 0;
    FILE *f = fopen("/proc/stat", "re");

    if (f) {
        if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                   &wait, &irq, &soft, &steal) != 8)
            user = 0;
        fclose(f);
    }
    use->all = (double)(user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
    use->own = (double)process_cpu_ns() * 1e-9 + children_cpu();
    use->at = (double)clock_ns() * 1e-9;
}

static struct cpu_use since;

void machine_mark(void)
{
    read_use(&since);
}

static double foreign_load(void)
{
    struct cpu_use last = since;
    double load, span;

    machine_mark();
    span = since.at - last.at;
    load = last.at > 0 ? (since.all - last.all - (since.own - last.own)) / span : 0;
    return load > 0 ? load : 0;
}

/* Figures of one measurement are reported one after the other: they share a sample. */
void machine_sample(struct machine *m)
{
    static struct machine last;
    static uint64_t at;

    if (at == 0 || clock_ns() - at > 50000000) {
        last.load = foreign_load();
        last.clock_ns = best_of(clock_cost, 3);
        last.line_ns = best_of(line_latency, 3);
        at = clock_ns();
    }
    *m = last;
}

/* ---- memory ---- */
size_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

size_t peak_bytes(void)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtoul(line + 6, NULL, 10);
    fclose(f);
    return kib * 1024;
}

void peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");

    if (!f)
        return;
    fputs("5", f);
    fclose(f);
}

/* ---- the threads beside the caller ---- */
static void add_thread(struct thread_counts *counts, const char *tid)
{
    char path[64], line[256];
    unsigned long long run = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
            counts->switches += strtoull(line + 24, NULL, 10);
    if (f)
        fclose(f);
    snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", tid);
    f = fopen(path, "re");
    if (f && fscanf(f, "%llu", &run) == 1)
        counts->cpu_ns += run;
    if (f)
        fclose(f);
}

void other_threads(struct thread_counts *counts)
{
    struct dirent *entry;
    char self[32];
    DIR *dir = opendir("/proc/self/task");

    memset(counts, 0, sizeof(*counts));
    snprintf(self, sizeof(self), "%ld", (long)syscall(SYS_gettid));
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, self) != 0)
            add_thread(counts, entry->d_name);
    if (dir)
        closedir(dir);
}

/* ---- figures ---- */
void series_add(struct series *s, double value)
{
    if (s->n < BENCH_RUNS_MAX)
        s->v[s->n++] = value;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_median(const struct series *s)
{
    double v[BENCH_RUNS_MAX];

    if (s->n == 0)
        return 0;
    memcpy(v, s->v, s->n * sizeof(*v));
    qsort(v, s->n, sizeof(*v), compare_double);
    return (v[(s->n - 1) / 2] + v[s->n / 2]) / 2;
}

double series_min(const struct series *s)
{
    double least = s->n ? s->v[0] : 0;

    for (unsigned i = 1; i < s->n; i++)
        least = fmin(least, s->v[i]);
    return least;
}

double series_max(const struct series *s)
{
    double most = s->n ? s->v[0] : 0;

    for (unsigned i = 1; i < s->n; i++)
        most = fmax(most, s->v[i]);
    return most;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void sort_u64(uint64_t *v, size_t n)
{
    qsort(v, n, sizeof(*v), compare_u64);
}

uint64_t percentile(const uint64_t *sorted, size_t n, double percent)
{
    size_t rank = (size_t)ceil(percent / 100.0 * (double)n);

    return n ? sorted[rank ? rank - 1 : 0] : 0;
}

void shuffle_u32(uint32_t *v, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)rng_between(&seed, 0, i);
        uint32_t kept = v[i - 1];

        v[i - 1] = v[j];
        v[j] = kept;
    }
}
