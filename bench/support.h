/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a measuring program needs of the machine: clocks, CPU time, memory, and what the figures
 * have to be read against; and medians, percentiles and random numbers.
 */
#ifndef HWT_BENCH_SUPPORT_H
#define HWT_BENCH_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define BENCH_LINE 64

_Noreturn void bench_die(const char *what, int error); /* error: an errno, of either sign */
void *bench_alloc(size_t bytes); /* zeroed, touched, on lines of its own; never NULL */

/* ---- the machine ---- */
struct machine {
    double line_ns;  /* one cache line handed from one CPU to another; 0 with a single CPU */
    double clock_ns; /* one clock_gettime(CLOCK_MONOTONIC) */
    double load;     /* CPUs kept busy by others since the last sample, stolen ones included */
};

void machine_sample(struct machine *m);
void machine_mark(void); /* the load counts from here; done by every sample */
unsigned machine_cpus(void);
void pin_to_cpu(unsigned cpu); /* the calling thread; failure is ignored */
void sleep_ns(uint64_t ns);

size_t resident_bytes(void);
size_t peak_bytes(void);
void peak_reset(void);

uint64_t process_cpu_ns(void);
uint64_t thread_cpu_ns(void);
uint64_t thread_queue_ns(void); /* so long this thread was ready to run, and others ran; or 0 */

struct thread_counts {
    uint64_t switches; /* times another thread of this process than the caller went to sleep */
    uint64_t cpu_ns;   /* CPU time of those threads */
};

void other_threads(struct thread_counts *counts);

static inline uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- figures ---- */
#define BENCH_RUNS_MAX 64

struct series {
    double v[BENCH_RUNS_MAX];
    unsigned n;
};

void series_add(struct series *s, double value);
double series_median(const struct series *s);
double series_min(const struct series *s);
double series_max(const struct series *s);

void sort_u64(uint64_t *v, size_t n);
uint64_t percentile(const uint64_t *sorted, size_t n, double percent);

/* ---- random numbers: a multiply and three shifts, so that they hide nothing ---- */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* In [low, high), in steps of about (high - low) / 2^32. */
static inline uint64_t rng_between(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + (uint64_t)(((unsigned __int128)rng_next(state) * (high - low)) >> 64);
}

void shuffle_u32(uint32_t *v, size_t n, uint64_t seed);

#endif
