/* SPDX-License-Identifier: BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- options ---- */
static const struct option options[] = {
    {"help", no_argument, NULL, 'h'},          {"quick", no_argument, NULL, 'q'},
    {"full", no_argument, NULL, 'f'},          {"json", required_argument, NULL, 'j'},
    {"only", required_argument, NULL, 'o'},    {"repeats", required_argument, NULL, 'r'},
    {"seconds", required_argument, NULL, 's'}, {NULL, 0, NULL, 0},
};

static void print_help(const struct bench *b, const char *about)
{
    printf("%s: %s\n\n"
           "  --quick        seconds rather than minutes, rougher figures\n"
           "  --full         also what takes very long or much memory\n"
           "  --json FILE    append one JSON line per figure to FILE (- for standard output)\n"
           "  --only TEXT    only the cases whose name contains TEXT\n"
           "  --repeats N    measured runs of each case, at most %d\n"
           "  --seconds S    length of one measured run, where a run has a length\n"
           "  --help         this\n\n"
           "Each line is a median with the range over the runs, the limit that was set out to be\n"
           "kept, and the machine at that moment: nanoseconds for a cache line to cross from one\n"
           "CPU to another, for one clock read, and CPUs kept busy by others.\n",
           b->name, about, BENCH_RUNS_MAX);
}

static void open_json(struct bench *b, const char *path)
{
    b->json = strcmp(path, "-") == 0 ? stdout : fopen(path, "ae");
    if (!b->json)
        bench_die(path, errno);
}

static void bad_option(const struct bench *b)
{
    fprintf(stderr, "%s: wrong argument; see --help\n", b->name);
    exit(2);
}

static void take_option(struct bench *b, int c, const char *about)
{
    switch (c) {
    case 'h': print_help(b, about); exit(0);
    case 'q': b->quick = true; break;
    case 'f': b->full = true; break;
    case 'j': open_json(b, optarg); break;
    case 'o': b->only = optarg; break;
    case 'r': b->repeats = (unsigned)strtoul(optarg, NULL, 10); break;
    case 's': b->seconds = strtod(optarg, NULL); break;
    default: bad_option(b);
    }
}

static void set_defaults(struct bench *b)
{
    if (b->repeats == 0)
        b->repeats = b->quick ? 3 : 7;
    if (b->repeats > BENCH_RUNS_MAX)
        b->repeats = BENCH_RUNS_MAX;
    if (!(b->seconds > 0))
        b->seconds = b->quick ? 0.15 : 0.5;
}

static void print_head(const struct bench *b, const char *about)
{
    struct machine m;

    machine_sample(&m);
    printf("\n%s: %s\n", b->name, about);
    printf("%u CPUs, %.0f ns a cache line from one to another, %.1f ns a clock read, "
           "median of %u runs\n",
           machine_cpus(), m.line_ns, m.clock_ns, b->repeats);
    fflush(stdout);
}

void bench_open(struct bench *b, int argc, char **argv, const char *about)
{
    const char *slash = strrchr(argv[0], '/');
    int c;

    memset(b, 0, sizeof(*b));
    b->name = slash ? slash + 1 : argv[0];
    while ((c = getopt_long(argc, argv, "hqfj:o:r:s:", options, NULL)) != -1)
        take_option(b, c, about);
    if (optind != argc)
        bad_option(b);
    set_defaults(b);
    print_head(b, about);
}

int bench_close(struct bench *b)
{
    bool failed = fflush(stdout) != 0;

    if (b->json && b->json != stdout)
        failed |= fclose(b->json) != 0;
    b->json = NULL;
    return failed ? 1 : 0;
}

bool bench_wants(const struct bench *b, const char *scenario)
{
    return !b->only || strstr(scenario, b->only);
}

/* On a terminal the line replaces itself; elsewhere one in a while is enough. */
void bench_progress(const struct bench *b, const char *format, ...)
{
    static uint64_t last;
    bool terminal = isatty(STDERR_FILENO);
    va_list args;

    last = last ? last : clock_ns();
    if (!terminal && clock_ns() - last < UINT64_C(20000000000))
        return;
    last = clock_ns();
    fprintf(stderr, terminal ? "\r\033[K%s: " : "%s: ", b->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    if (!terminal)
        fputc('\n', stderr);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

void bench_skip(const struct bench *b, const char *subject, const char *reason)
{
    clear_progress();
    printf("%-9s skipped: %s\n", subject, reason);
    if (b->json)
        fprintf(b->json, "{\"bench\":\"%s\",\"subject\":\"%s\",\"skipped\":\"%s\"}\n", b->name,
                subject, reason);
}

static void flush_all(const struct bench *b)
{
    fflush(stdout);
    if (b->json)
        fflush(b->json);
}

void bench_isolated(struct bench *b, void (*run)(struct bench *b, void *arg), void *arg)
{
    int status = 0;
    pid_t child;

    flush_all(b);
    child = fork();
    if (child < 0)
        bench_die("fork", errno);
    if (child == 0) {
        machine_mark();
        run(b, arg);
        flush_all(b);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s: a case failed (status %d)\n", b->name, status);
        exit(1);
    }
}

void *bench_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        bench_die("memory", errno);
    return p;
}

/* ---- results ---- */
/* "delay, 2 producers, 1024 timeouts" */
static void describe(const struct bench_row *row, char *text, size_t size)
{
    char producers[32] = "", count[32] = "";

    if (row->producers)
        snprintf(producers, sizeof(producers), ", %u producer%s", row->producers,
                 row->producers > 1 ? "s" : "");
    if (row->count)
        snprintf(count, sizeof(count), ", %llu timeouts", (unsigned long long)row->count);
    snprintf(text, size, "%s%s%s", row->scenario, producers, count);
}

/* What a row says is all in it: rows are read alone, in a log or in the middle of a long table. */
static void print_row(const struct bench_row *row, const struct series *s, const struct machine *m)
{
    double median = series_median(s);
    char what[96], range[64] = "", limit[48] = "";

    describe(row, what, sizeof(what));
    if (s->n > 1)
        snprintf(range, sizeof(range), "(%.4g to %.4g)", series_min(s), series_max(s));
    if (row->limit < 0)
        snprintf(limit, sizeof(limit), "none wanted: %s", series_max(s) > 0 ? "OVER" : "kept");
    else if (row->limit > 0)
        snprintf(limit, sizeof(limit), "limit %.4g: %s", row->limit,
                 median <= row->limit ? "kept" : "OVER");
    clear_progress();
    printf("%-9s %-40s %-16s %9.5g %-6s %-20s %-17s [line %.0f ns, clock %.1f ns, load %.2f]\n",
           row->subject, what, row->metric, median, row->unit, range, limit, m->line_ns,
           m->clock_ns, m->load);
    fflush(stdout);
}

static void json_row(const struct bench *b, const struct bench_row *row, const struct series *s,
                     const struct machine *m)
{
    fprintf(b->json,
            "{\"bench\":\"%s\",\"subject\":\"%s\",\"case\":\"%s\",\"producers\":%u,\"count\":%llu,"
            "\"metric\":\"%s\",\"unit\":\"%s\",\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,"
            "\"runs\":%u,\"limit\":%g,\"quick\":%d,\"cpus\":%u,\"line_ns\":%.1f,"
            "\"clock_ns\":%.2f,\"load\":%.2f}\n",
            b->name, row->subject, row->scenario, row->producers, (unsigned long long)row->count,
            row->metric, row->unit, series_median(s), series_min(s), series_max(s), s->n,
            row->limit, b->quick, machine_cpus(), m->line_ns, m->clock_ns, m->load);
    fflush(b->json);
}

void bench_report(struct bench *b, const struct bench_row *row, const struct series *s)
{
    struct machine m;

    machine_sample(&m);
    print_row(row, s, &m);
    if (b->json)
        json_row(b, row, s, &m);
}

void bench_value(struct bench *b, const struct bench_row *row, double value)
{
    struct series s = {.n = 0};

    series_add(&s, value);
    bench_report(b, row, &s);
}

/* ---- windows ---- */
struct team {
    const struct work *work;
    pthread_barrier_t ready;
    _Atomic bool stop;
};

struct member {
    _Alignas(2 * BENCH_LINE) _Atomic uint64_t ops; /* written by its thread, read by the window */
    _Alignas(2 * BENCH_LINE) struct team *team;
    void *self;
    pthread_t thread;
};

static void *member_main(void *arg)
{
    struct member *me = arg;
    const struct work *work = me->team->work;
    uint64_t ops = 0;

    if (work->begin)
        work->begin(me->self);
    pthread_barrier_wait(&me->team->ready);
    while (!atomic_load_explicit(&me->team->stop, memory_order_relaxed)) {
        work->batch(me->self);
        ops += BENCH_BATCH;
        atomic_store_explicit(&me->ops, ops, memory_order_relaxed);
    }
    if (work->end)
        work->end(me->self);
    return NULL;
}

static void read_window(struct member *members, unsigned threads, struct window *w)
{
    w->ops = 0;
    w->wall_ns = clock_ns();
    w->cpu_ns = process_cpu_ns();
    for (unsigned i = 0; i < threads; i++)
        w->ops += atomic_load_explicit(&members[i].ops, memory_order_relaxed);
}

static void measure(struct member *members, unsigned threads, double seconds,
                    const struct borders *borders, struct window *out)
{
    uint64_t warm_up = (uint64_t)(seconds * 0.2e9);
    struct window from, to;

    sleep_ns(warm_up < 200000000 ? warm_up : 200000000);
    borders->from(borders->arg);
    read_window(members, threads, &from);
    sleep_ns((uint64_t)(seconds * 1e9));
    read_window(members, threads, &to);
    borders->to(borders->arg);
    out->wall_ns = to.wall_ns - from.wall_ns;
    out->cpu_ns = to.cpu_ns - from.cpu_ns;
    out->ops = to.ops - from.ops;
}

static void no_border(void *arg)
{
    (void)arg;
}

void window_run(const struct work *work, void *selves, size_t stride, unsigned threads,
                double seconds, struct window *out)
{
    const struct borders borders = {no_border, no_border, NULL};

    window_between(work, selves, stride, threads, seconds, &borders, out);
}

void window_between(const struct work *work, void *selves, size_t stride, unsigned threads,
                    double seconds, const struct borders *borders, struct window *out)
{
    struct team team = {.work = work};
    struct member *members = bench_alloc(threads * sizeof(*members));
    int error;

    pthread_barrier_init(&team.ready, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        members[i].team = &team;
        members[i].self = (char *)selves + i * stride;
        error = pthread_create(&members[i].thread, NULL, member_main, &members[i]);
        if (error)
            bench_die("pthread_create", error);
    }
    pthread_barrier_wait(&team.ready);
    measure(members, threads, seconds, borders, out);
    atomic_store_explicit(&team.stop, true, memory_order_relaxed);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&team.ready);
    free(members);
}
