/* SPDX-License-Identifier: BSD-2-Clause */
/* What is too short to be called: the CPU by its restartable-sequence area, and its counter. */
#ifndef HWT_PLATFORM_LINUX_H
#define HWT_PLATFORM_LINUX_H

#ifndef HWT_PLATFORM_H
#error "include platform.h instead"
#endif

#if defined(__GLIBC__) && defined(__x86_64__) && defined(__has_include)
#if __GLIBC_PREREQ(2, 35) && __has_include(<sys/rseq.h>)
#define PLATFORM_RSEQ 1
/* Where that word is, from the thread pointer; 0: nowhere. Set before main, constant from then. */
extern HIDDEN ptrdiff_t platform_rseq_cpu;
#endif
#endif

/* Negative: it takes a call to know. */
static inline int platform_cpu_at_once(void)
{
    int cpu = -1;
#ifdef PLATFORM_RSEQ
    /* The kernel keeps this word of the thread's restartable-sequence area current. */
    if (likely(platform_rseq_cpu != 0))
        __asm__ volatile("movl %%fs:(%1), %0" : "=r"(cpu) : "r"(platform_rseq_cpu));
#endif
    return cpu;
}

static inline unsigned platform_cpu(void)
{
    int cpu = platform_cpu_at_once();

    return likely(cpu >= 0) ? (unsigned)cpu : platform_cpu_slow();
}

#ifndef PLATFORM_COUNTER /* the simulator has a time of its own */
#ifdef __x86_64__
#define PLATFORM_COUNTER 1
#else
#define PLATFORM_COUNTER 0
#endif
#endif

#if PLATFORM_COUNTER
/* Whether CLOCK_MONOTONIC goes by this counter, which then is the same on all CPUs. */
bool platform_counter_is_clock(void);

/* May be read before what stands before it is done. */
static inline uint64_t platform_counter(void)
{
    return __builtin_ia32_rdtsc();
}

/* Not before what stands before it is done. */
static inline uint64_t platform_counter_after(void)
{
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
}
#endif

#endif
