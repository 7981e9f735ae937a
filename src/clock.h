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

/*
 * The last moment there is: one before the deadline that means never (timeout.h). Whatever a clock
 * of the caller's says, no reading that anything is compared with lies beyond it, so that a clock
 * which jumps there makes due all that is ever due. A system clock that has got there is refused at
 * create: no deadline would be left for it.
 */
#define CLOCK_LAST ((UINT64_C(1) << 61) - 2)

/* As it stands: for a sum that is clamped itself. */
static inline uint64_t clock_reading(const struct clock *clock)
{
    return unlikely(clock->now != NULL) ? clock->now(clock->context) : clock_system_now(clock->id);
}

static inline uint64_t clock_now(const struct clock *clock)
{
    return min_u64(clock_reading(clock), CLOCK_LAST);
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
