/* SPDX-License-Identifier: BSD-2-Clause */
/* platform_cpu: read from memory, where the C library has a restartable-sequence area. */
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

#endif
