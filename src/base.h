/* SPDX-License-Identifier: BSD-2-Clause */
/* The ground floor: what every other file may use and nothing else knows. */
#ifndef HWT_BASE_H
#define HWT_BASE_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef HWT_SIZES
#include HWT_SIZES
#else
#include "sizes.h"
#endif

#if defined(UINTPTR_MAX) && UINTPTR_MAX != UINT64_MAX
#error "libhwt is for 64-bit platforms: its words hold an address and a count, or a deadline"
#endif

/*
 * Two lines: the adjacent-line prefetcher of x86 pulls lines in pairs, so that fields which must
 * not share a line are kept two lines apart.
 */
#define CACHE_LINE 64
#define CACHE_PAIR 128

#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Nothing that several files share is anybody else's: no detour through the GOT. */
#define HIDDEN __attribute__((visibility("hidden")))

/*
 * The steps of the path that every call takes, one call after inlining. Also whatever does nothing
 * but prefetch: gcc takes such a function for one without effect, and drops its calls.
 */
#define HOT static inline __attribute__((always_inline))

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#ifdef HWT_DEBUG
void base_fail(const char *what, const char *file, int line) __attribute__((noreturn, cold));
#define hwt_assert(condition)                                                                      \
    ((condition) ? (void)0 : base_fail("assertion failed: " #condition, __FILE__, __LINE__))
#else
#define hwt_assert(condition) ((void)0)
#endif

/* Of memory that is a line longer than what is to lie in it. */
static inline char *align_to_line(void *memory)
{
    return (char *)(((uintptr_t)memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
