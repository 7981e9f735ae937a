/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a load is measured by: the process's memory against the most that was pending at once (G6),
 * and a watched timeout against a thread that only sleeps (G4).
 *
 * Each row of the table is a process of its own, so that what one has left free does not help the
 * next. The machine may be noisy: a row that was late is played again, one that took too much
 * memory is not. One that was late each time, and other processes kept a CPU from it each time, is
 * not judged: G4 speaks of a worker that has one.
 */
#ifndef STRESS_LOAD_H
#define STRESS_LOAD_H

#include "stress.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/*
 * Bounds on time and memory are those of an optimized build. The others' validators look at all
 * that is pending, again and again; with UBSan's checks the worker needs more than the share of the
 * CPUs that the system gives one thread of eighteen. What is left there is progress and the ledger.
 */
#if STRESS_SANITIZED || defined(HWT_SANITIZED) || !defined(__OPTIMIZE__)
#define LOAD_MEASURED 0
#else
#define LOAD_MEASURED 1
#endif

#define LOAD_PERIOD HWT_MSEC(10)
#define LOAD_TICK   HWT_MSEC(1)
#define LOAD_WORK   HWT_USEC(150) /* at most, of a tick: who needs more is not excused */
#define LOAD_LATE   HWT_MSEC(20)  /* later than the sleeper: so much is allowed */
#define LOAD_SAMPLE HWT_MSEC(2)

enum { LOAD_EACH = 100, LOAD_FLAT = 16 << 20, LOAD_PER_CPU = 256 << 10 }; /* bytes allowed */
enum { LOAD_REPEATS = 3, LOAD_WRONG = 1, LOAD_TARDY = 2 };
enum { LOAD_OTHERS = 5 }; /* a fifth of a CPU for others is too much to judge by */

struct load_row {
    const char *what; /* the case that it belongs to */
    int (*play)(const struct load_row *row);
    void *(*produce)(void *producer); /* NULL: by the main thread, for as long as it takes */
    unsigned producers, each;         /* in flight */
    hwt_wheel_kind wheel;
    hwt_drive drive;   /* by the caller: in a loop that waits for the descriptor */
    clockid_t clock;   /* 0: the default */
    bool taken, moved; /* held: the wheel had them before, they are moved before they are ended */
};

struct load_watch {
    _Atomic uint64_t runs, worst_ns;
    uint64_t runs_before; /* it counts */
};

/* ---- the row that plays ---- */
struct load_state {
    hwt_timer *timer;
    hwt_timeout *periodic; /* the watched one */
    pthread_t sleeping, looping;
    uint64_t ahead;                     /* its clock, of this program's */
    _Atomic uint64_t go, filled, ended; /* producers: begin; how many have got so far */
    _Atomic bool quit;                  /* producers, come home */
    _Atomic bool over;                  /* and then the sleeper */
    _Atomic uint64_t held;              /* the worker, in a long task */
    _Atomic bool release;
    bool busy;                                  /* the sleeper: works at each tick ... */
    _Atomic uint64_t work;                      /* ... so long, as the worker has of late */
    uint64_t worked, worked_at;                 /* his: CPU time so far, and when that was */
    _Atomic uint64_t scheduled, cancelled, ran; /* the ledger */
    _Atomic uint64_t since; /* lateness counts from here: before, the worker was held */
    struct load_watch watched, sleeper;
    uint64_t before, peak; /* memory: at the beginning, and how much more */
};
static struct load_state load;
static uint64_t load_share; /* how long it plays, in ns */

/* What the rows have in common, in memory that they share. */
struct load_totals {
    unsigned not_judged;
    uint64_t scheduled, memory_percent, late_ns;
};
static struct load_totals *load_totals;

/* ---- punctuality ---- */
static inline void load_note(struct load_watch *watch, uint64_t late)
{
    if (late > atomic_load(&watch->worst_ns))
        atomic_store(&watch->worst_ns, late);
    atomic_fetch_add(&watch->runs, 1);
}

/* How late it is now for something that is due then, on this program's clock. */
static inline uint64_t load_lateness_at(uint64_t due)
{
    uint64_t since = atomic_load(&load.since), now = stress_now();

    due = due > since ? due : since;
    return now > due ? now - due : 0;
}

static inline uint64_t load_lateness(hwt_timeout *timeout)
{
    return load_lateness_at(hwt_timeout_deadline(timeout) - load.ahead);
}

static inline uint64_t load_cpu_of_thread(void)
{
    struct timespec used;

    STRESS_OK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used));
    return (uint64_t)used.tv_sec * HWT_SEC(1) + (uint64_t)used.tv_nsec;
}

/* By the worker, once in a period. */
static inline void load_tell_work(void)
{
    uint64_t worked = load_cpu_of_thread(), now = stress_now();
    uint64_t ticks = (now - load.worked_at) / LOAD_TICK, each;

    if (load.worked_at > 0 && ticks > 0) {
        each = (worked - load.worked) / ticks;
        atomic_store(&load.work, each < LOAD_WORK ? each : LOAD_WORK);
    }
    load.worked = worked;
    load.worked_at = now;
}

static inline void load_watched_run(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    load_tell_work();
    load_note(&load.watched, load_lateness(timeout));
}

static inline void load_sleep_until(uint64_t time)
{
    struct timespec until = {(time_t)(time / HWT_SEC(1)), (long)(time % HWT_SEC(1))};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static inline void load_work(uint64_t ns)
{
    uint64_t end = load_cpu_of_thread() + ns;

    while (load_cpu_of_thread() < end)
        continue;
}

/*
 * As the watched timeout: what it has missed is dropped. In a mixed load something is due in every
 * millisecond: then this wakes as often as the worker has to, and works as long. The nearer a
 * thread comes to its share of the CPUs, the later the system lets it go: of 18 threads on two CPUs
 * that is 111 us of a tick, and the worker of 16 x 2000 took 88 to 98 (600 timeouts, 2.5 GHz).
 */
static inline void *load_sleep(void *arg)
{
    uint64_t next = stress_now(), late;

    while (!atomic_load(&load.over)) {
        for (uint64_t time = next + LOAD_TICK; load.busy && time < next + LOAD_PERIOD;
             time += LOAD_TICK) {
            load_sleep_until(time);
            load_work(atomic_load(&load.work));
        }
        next += LOAD_PERIOD;
        load_sleep_until(next);
        late = load_lateness_at(next);
        load_note(&load.sleeper, late);
        next += late / LOAD_PERIOD * LOAD_PERIOD;
    }
    return arg;
}

/* From here on it is judged. */
static inline void load_watch_begin(void)
{
    atomic_store(&load.since, stress_now());
    atomic_store(&load.watched.worst_ns, 0);
    load.watched.runs_before = atomic_load(&load.watched.runs);
    load.sleeper.runs_before = atomic_load(&load.sleeper.runs);
}

static inline uint64_t load_runs(const struct load_watch *watch)
{
    return atomic_load(&watch->runs) - watch->runs_before;
}

/* For builds that do not measure. */
static inline void load_await_progress(void)
{
    if (!LOAD_MEASURED)
        stress_await(&load.watched.runs, load.watched.runs_before + 3, "G4: the watched timeout");
}

/* ---- memory ---- */
static inline uint64_t load_sample(void)
{
    uint64_t now = stress_resident();
    uint64_t more = now > load.before ? now - load.before : 0;

    load.peak = more > load.peak ? more : load.peak;
    return more;
}

static inline void load_sample_until(uint64_t end)
{
    do {
        stress_sleep(LOAD_SAMPLE);
        load_sample();
    } while (stress_now() < end);
}

static inline double load_mb(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* ---- from the timer's creation to its end ---- */
static inline void *load_loop(void *arg)
{
    struct pollfd wanted = {.fd = hwt_timer_fd(load.timer), .events = POLLIN, .revents = 0};

    do
        poll(&wanted, 1, -1);
    while (hwt_timer_advance(load.timer) >= 0);
    return arg;
}

static inline void load_open(const struct load_row *row)
{
    hwt_config config;
    hwt_spec spec;

    load.before = stress_resident();
    hwt_config_init(&config);
    config.wheel = row->wheel;
    config.drive = row->drive;
    if (row->clock)
        config.clock_id = row->clock;
    STRESS_OK(hwt_timer_create(&load.timer, &config));
    load.ahead = hwt_timer_now(load.timer) - stress_now();
    if (row->drive == HWT_DRIVE_CALLER)
        load.looping = stress_thread(load_loop, NULL);
    hwt_spec_init(&spec);
    spec.task = load_watched_run;
    spec.delay_ns = LOAD_PERIOD;
    spec.period_ns = LOAD_PERIOD;
    spec.period_mode = HWT_FIXED_RATE_SKIP;
    STRESS_OK(hwt_schedule(load.timer, &spec, &load.periodic));
    load.sleeping = stress_thread(load_sleep, NULL);
    load_watch_begin();
}

/* G2, G3: all that was scheduled has run or was cancelled, once; but for the watched timeout. */
static inline void load_close(const struct load_row *row)
{
    hwt_stats s = stress_stats(load.timer);
    uint64_t scheduled = atomic_load(&load.scheduled), cancelled = atomic_load(&load.cancelled);

    atomic_store(&load.over, true);
    stress_join(load.sleeping);
    STRESS_CHECK(s.pending == 1 && s.scheduled == s.cancelled + s.expired + s.pending,
                 "G3: %" PRIu64 " scheduled, %" PRIu64 " cancelled, %" PRIu64 " expired, %" PRIu64
                 " pending",
                 s.scheduled, s.cancelled, s.expired, s.pending);
    STRESS_OK(hwt_timer_stop(load.timer, NULL));
    if (row->drive == HWT_DRIVE_CALLER)
        stress_join(load.looping);
    stress_check_balance(load.timer);
    STRESS_CHECK(s.scheduled - 1 == scheduled && s.cancelled == cancelled,
                 "G2: %" PRIu64 " of %" PRIu64 " scheduled, %" PRIu64 " of %" PRIu64 " cancelled",
                 s.scheduled - 1, scheduled, s.cancelled, cancelled);
    STRESS_CHECK(s.expired == atomic_load(&load.ran), "G2: %" PRIu64 " expired, %" PRIu64 " ran",
                 s.expired, atomic_load(&load.ran));
    hwt_timeout_unref(load.periodic);
    STRESS_OK(hwt_timer_destroy(load.timer));
    load_totals->scheduled += scheduled;
}

/* ---- the verdict ---- */
static inline int load_say(int verdict, const char *why, const char *line)
{
    if (verdict != 0)
        fprintf(stderr, "%s: not so: %s\n", line, why);
    else if (getenv("HWT_VERBOSE") != NULL)
        printf("%s\n", line);
    return verdict;
}

static inline void load_label(const struct load_row *row, char *label, size_t size)
{
    bool plain = strcmp(row->what, "loads") == 0;

    snprintf(label, size, "%s%s%s%s%s%s%s%u x %u", plain ? "" : row->what, plain ? "" : ", ",
             row->wheel == HWT_WHEEL_HASHED ? "hashed, " : "",
             row->drive == HWT_DRIVE_CALLER ? "in a loop, " : "",
             row->clock == CLOCK_BOOTTIME ? "boot time, " : "", row->taken ? "in the wheel, " : "",
             row->moved ? "moved, " : "", row->producers, row->each);
}

/* While the sleeper still sleeps. What the watched timeout has not come to is late, too. */
static inline int load_verdict(const struct load_row *row)
{
    uint64_t bound = (uint64_t)row->producers * row->each * LOAD_EACH + LOAD_FLAT +
                     (uint64_t)sysconf(_SC_NPROCESSORS_CONF) * LOAD_PER_CPU;
    uint64_t overdue = load_lateness(load.periodic);
    uint64_t late = atomic_load(&load.watched.worst_ns);
    uint64_t noise = atomic_load(&load.sleeper.worst_ns);
    uint64_t runs = load_runs(&load.watched), sleeps = load_runs(&load.sleeper);
    char label[80], line[240];
    bool tardy;

    late = overdue > late ? overdue : late;
    tardy = late > noise + LOAD_LATE || (runs + 1) * 10 < sleeps * 9; /* one is just due */
    load_label(row, label, sizeof label);
    snprintf(line, sizeof line,
             "%s: %.1f MB of %.1f, %" PRIu64 " runs (sleeper %" PRIu64 "), late %.1f ms (%.1f)",
             label, load_mb(load.peak), load_mb(bound), runs, sleeps, (double)late / 1e6,
             (double)noise / 1e6);
    if (LOAD_MEASURED && load.peak > bound)
        return load_say(LOAD_WRONG, tardy ? "G6 and G4: too much, and too late" : "G6: too much",
                        line);
    if (LOAD_MEASURED && tardy)
        return load_say(LOAD_TARDY, "G4: too late", line);
    if (load.peak * 100 / bound > load_totals->memory_percent)
        load_totals->memory_percent = load.peak * 100 / bound;
    if (late > load_totals->late_ns)
        load_totals->late_ns = late;
    return load_say(0, NULL, line);
}

/* ---- a process for each row that is measured ---- */
static inline int load_play_once(const struct load_row *row)
{
    int status = 0;
    pid_t child;

    memset(&load, 0, sizeof load);
    if (!LOAD_MEASURED) /* ThreadSanitizer thinks that locks are held in a child */
        return row->play(row);
    fflush(NULL);
    child = fork();
    STRESS_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stress_watchdog(100 + (unsigned)(4 * load_share / HWT_SEC(1)));
        exit(row->play(row));
    }
    while (waitpid(child, &status, 0) < 0)
        STRESS_CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : LOAD_WRONG;
}

/* CPU time of the whole machine, but for what it was idle; 0: not known. */
static inline uint64_t load_cpu_of_all(void)
{
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
    FILE *file = fopen("/proc/stat", "re");
    int known;

    if (file == NULL)
        return 0;
    known = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system,
                   &idle, &iowait, &irq, &softirq, &steal);
    fclose(file);
    if (known != 8)
        return 0;
    return (user + nice + system + irq + softirq + steal) * 1000000000 /
           (unsigned long long)sysconf(_SC_CLK_TCK);
}

static inline uint64_t load_cpu_of_rows(void)
{
    struct rusage used;

    getrusage(RUSAGE_CHILDREN, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000 +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
}

/* G4 speaks of a worker that has a CPU. True: others had so much of them that nobody can tell. */
static inline bool load_play_beside_others(const struct load_row *row, int *result)
{
    uint64_t began = stress_now(), all = load_cpu_of_all(), ours = load_cpu_of_rows(), others;

    *result = load_play_once(row);
    if (all == 0)
        return false;
    all = load_cpu_of_all() - all;
    ours = load_cpu_of_rows() - ours;
    others = all > ours ? all - ours : 0;
    return others * LOAD_OTHERS > stress_now() - began;
}

static inline bool load_play(const struct load_row *row)
{
    bool alone = false;
    int result = LOAD_TARDY;

    for (int i = 0; i <= LOAD_REPEATS && result == LOAD_TARDY; i++)
        alone = !load_play_beside_others(row, &result) || alone;
    if (result != LOAD_TARDY || alone)
        return result == 0;
    fprintf(stderr, "... but others kept the CPUs busy: not judged\n");
    load_totals->not_judged++;
    return true;
}

#endif
