/* SPDX-License-Identifier: BSD-2-Clause */
/* The time a timer lives by: a clock of the system, or one that the caller supplies. */
#ifndef HWT_CLOCK_H
#define HWT_CLOCK_H

#include <time.h>

#include "base.h"

/* Never changes once its timer exists. */
struct clock {
    clockid_t id;
    uint64_t (*now)(void *context); /* NULL: the system's clock `id` */
    void *context;
};

static inline uint64_t clock_system_now(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_now(const struct clock *clock)
{
    return unlikely(clock->now != NULL) ? clock->now(clock->context) : clock_system_now(clock->id);
}

/*
 * Coarse time that only tells whether some milliseconds have passed: a fifth of the price.
 */
static inline uint64_t clock_coarse(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    return clock_system_now(CLOCK_MONOTONIC_COARSE);
#else
    return clock_system_now(CLOCK_MONOTONIC);
#endif
}

#endif
