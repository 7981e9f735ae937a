/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small helpers shared by the plain-main stress and fault programs: checks that end the program,
 * a seeded random source per thread, threads, waiting, a watchdog and the process's memory.
 *
 * A program starts with stress_begin() and ends with stress_end(). HWT_SEED=n repeats a seed (the
 * choices repeat, the interleaving of threads does not).
 */
#ifndef STRESS_H
#define STRESS_H

#include "hwt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * Sanitizers slow everything down and hold memory back: bounds on speed and memory are not
 * theirs.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STRESS_SANITIZED 1
#endif
#endif
#ifndef STRESS_SANITIZED
#define STRESS_SANITIZED 0
#endif

/* ---- failing ---- */
static inline uint64_t *stress_seed(void)
{
    static uint64_t seed;
    return &seed;
}

__attribute__((noreturn, format(printf, 4, 5))) static inline void
stress_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[400];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "%s:%d: not so: %s: %s (HWT_SEED=%" PRIu64 ")\n", file, line, condition, text,
            *stress_seed());
#ifdef FUZZ_TARGET
    abort(); /* libFuzzer keeps the input of a crash */
#else
    _exit(1);
#endif
}

#define STRESS_CHECK(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            stress_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                              \
    } while (0)

/* For calls that return 0 or an error number of either sign. */
#define STRESS_OK(call)                                                                            \
    do {                                                                                           \
        int stress_result = (call);                                                                \
        STRESS_CHECK(stress_result == 0, "%s returned %d", #call, stress_result);                  \
    } while (0)

/* ---- time ---- */
static inline uint64_t stress_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void stress_sleep(uint64_t ns)
{
    struct timespec rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

/* Spins: shorter and more exact than a sleep can be. */
static inline void stress_spin(uint64_t ns)
{
    uint64_t end = stress_now() + ns;

    while (stress_now() < end)
        ;
}

static inline void stress_pause(uint64_t ns)
{
    if (ns > 60000)
        stress_sleep(ns);
    else
        stress_spin(ns);
}

/* ---- chance ---- */
static inline uint64_t stress_mix64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Each thread draws from a sequence of its own, without touching shared memory. */
static inline uint64_t stress_random(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t state;

    if (state == 0)
        state = stress_mix64(*stress_seed() + atomic_fetch_add(&threads, 1)) | 1;
    state += UINT64_C(0x9e3779b97f4a7c15);
    return stress_mix64(state);
}

static inline uint64_t stress_below(uint64_t n)
{
    return stress_random() % n;
}

static inline bool stress_one_in(uint64_t n)
{
    return stress_below(n) == 0;
}

/* ---- beginning and ending ---- */
static inline void stress_hung(int signal_number)
{
    static const char text[] = "hung: the watchdog ended the program\n";

    (void)signal_number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    abort();
}

static inline void stress_watchdog(unsigned seconds)
{
    signal(SIGALRM, stress_hung);
    alarm(seconds);
}

/* Returns how long to run: the program's only argument, or by_default. */
static inline double stress_begin(int argc, char **argv, double by_default)
{
    const char *seed = getenv("HWT_SEED");
    char *rest = NULL;
    double amount = argc > 1 ? strtod(argv[1], &rest) : by_default;

    if (argc > 2 || (argc > 1 && (*rest != '\0' || !(amount > 0)))) {
        fprintf(stderr, "usage: %s [amount, default %g]\n", argv[0], by_default);
        exit(2);
    }
    *stress_seed() = seed != NULL ? strtoull(seed, NULL, 0) : stress_now();
    stress_watchdog(120 + 20 * (unsigned)(amount < 1000 ? amount : 1000));
    return amount;
}

static inline uint64_t stress_deadline(double seconds)
{
    return stress_now() + (uint64_t)(seconds * 1e9);
}

__attribute__((format(printf, 2, 3))) static inline int stress_end(const char *name,
                                                                   const char *format, ...)
{
    va_list list;

    alarm(0);
    printf("%s: ", name);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf(" (seed %" PRIu64 ")\n", *stress_seed());
    return 0;
}

/* ---- threads and waiting ---- */
static inline pthread_t stress_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;

    STRESS_OK(pthread_create(&thread, NULL, body, arg));
    return thread;
}

static inline void stress_join(pthread_t thread)
{
    STRESS_OK(pthread_join(thread, NULL));
}

/* Waits until the counter has reached a value; the clock is generous, the machine may be busy. */
static inline void stress_await(_Atomic uint64_t *counter, uint64_t value, const char *what)
{
    uint64_t end = stress_now() + HWT_SEC(30);

    while (atomic_load(counter) < value) {
        STRESS_CHECK(stress_now() < end, "%s: %" PRIu64 " of %" PRIu64 " after 30 s", what,
                     atomic_load(counter), value);
        stress_sleep(50000);
    }
}

/* The task of what is too far away to run. */
static inline void stress_never(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    stress_fail(__FILE__, __LINE__, "far away", "fired at %" PRIu64, hwt_timeout_deadline(timeout));
}

/* ---- the timer's ledger ---- */
static inline hwt_stats stress_stats(const hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    STRESS_OK(hwt_timer_stats(timer, &stats));
    return stats;
}

/* G3, once the timer has stopped. */
static inline void stress_check_balance(const hwt_timer *timer)
{
    hwt_stats s = stress_stats(timer);
    uint64_t late = 0;

    STRESS_CHECK(s.scheduled == s.expired + s.cancelled + s.unprocessed,
                 "G3: %" PRIu64 " scheduled, %" PRIu64 " expired, %" PRIu64 " cancelled, %" PRIu64
                 " unprocessed",
                 s.scheduled, s.expired, s.cancelled, s.unprocessed);
    STRESS_CHECK(s.pending == 0 && hwt_timer_pending(timer) == 0, "G3: %" PRIu64 " pending",
                 s.pending);
    STRESS_CHECK(s.withdrawn <= s.cancelled, "%" PRIu64 " withdrawn of %" PRIu64, s.withdrawn,
                 s.cancelled);
    for (int i = 0; i < 64; i++)
        late += s.late_log2[i];
    STRESS_CHECK(late == s.runs, "%" PRIu64 " runs, %" PRIu64 " in the histogram", s.runs, late);
}

/* ---- memory ---- */
static inline uint64_t stress_resident(void)
{
    char text[128] = "";
    unsigned long long total, resident;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    STRESS_CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0, "/proc/self/statm");
    close(fd);
    STRESS_CHECK(sscanf(text, "%llu %llu", &total, &resident) == 2, "statm says %s", text);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Holds memory that was resident at `before` to a growth of at most `bound` bytes. */
static inline void stress_check_growth(uint64_t before, uint64_t bound, const char *what)
{
    uint64_t now = stress_resident();

    if (STRESS_SANITIZED)
        return;
    STRESS_CHECK(now <= before + bound, "%s: %" PRIu64 " KB grew to %" PRIu64 " KB", what,
                 before >> 10, now >> 10);
}

#endif
