/* SPDX-License-Identifier: BSD-2-Clause */
/* The time a timer lives by: a clock of the system, or one that the caller supplies. */
#ifndef HWT_CLOCK_H
#define HWT_CLOCK_H

#include <time.h>

#include "counter.h"

/* Never changes once its timer exists. */
struct clock {
    clockid_t id;
    uint64_t (*now)(void *context); /* NULL: the system's clock `id` */
    void *context;
};

/*
 * The last moment there is: one before the deadline that means never (timeout.h). Whatever a clock
 * of the caller's says, no reading that anything is compared with lies beyond it, so that a clock
 * which jumps there makes due all that is ever due. A system clock that has got there is refused at
 * create: no deadline would be left for it.
 */
#define CLOCK_LAST ((UINT64_C(1) << 61) - 2)

/* What a delay counts from. False: it takes a call to know. */
HOT bool clock_tells(const struct clock *clock, uint64_t delay, uint64_t *now)
{
    return likely(!clock->now) && likely(clock->id == CLOCK_MONOTONIC) && counter_tells(delay, now);
}

static inline uint64_t clock_now(const struct clock *clock)
{
    uint64_t now =
        unlikely(clock->now != NULL) ? clock->now(clock->context) : clock_system_now(clock->id);

    return min_u64(now, CLOCK_LAST);
}

/* When clock_tells is false. */
static inline uint64_t clock_read(const struct clock *clock, uint64_t delay)
{
    if (likely(!clock->now) && likely(clock->id == CLOCK_MONOTONIC))
        return counter_read(delay);
    return clock_now(clock);
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
