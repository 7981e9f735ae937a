/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CLOCK_MONOTONIC, told by the CPU's own counter.
 *
 * To read the system's clock takes two fences and 25 ns, more than all else of what it costs to
 * schedule with a delay and to cancel. The counter that it goes by takes 10. So a thread that reads
 * the clock often reads it once, the counter beside it, and knows the time by the counter alone for
 * a twentieth of a millisecond from then on: a window. How fast the clock runs against the counter
 * is learned once a second, by one thread for all; a window that turns out to have been wrong (the
 * clock is just being set, the process was moved to another machine) ends that until it is learned
 * anew.
 *
 * Only for when a delay begins. Whether something is due is always asked of the clock (G1).
 */
#ifndef HWT_COUNTER_H
#define HWT_COUNTER_H

#include "platform.h"

/*
 * Shorter delays count from the clock itself: a window may be off by a few nanoseconds, and what is
 * due at once is to be due when the clock is looked at next.
 */
#define COUNTER_DELAY UINT64_C(1000)

/* The system's clock `id`, itself. */
static inline uint64_t clock_system_now(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* Once in a process, by whoever creates a timer: whether the counter is to be trusted. */
void counter_find(void);
/* In a forked child: its clock may be another time namespace's. */
void counter_after_fork(void);

#if PLATFORM_COUNTER

/* A thread's own. */
struct counter_window {
    uint64_t from;    /* the counter, as it was when the clock was read */
    uint64_t span;    /* for so many counts from there on; 0: there is no window */
    uint64_t ns;      /* the clock */
    uint64_t rate;    /* its nanoseconds in 2^32 counts */
    uint64_t bracket; /* counts that it takes to read both, at best */
    uint64_t seen;    /* the counter when it was last read for want of a window */
};
extern HIDDEN _Thread_local struct counter_window counter_window;

/* When counter_tells is false: by the clock. May open the next window. */
uint64_t counter_read(uint64_t delay);

/* What a delay counts from. False: it takes a call to know. */
HOT bool counter_tells(uint64_t delay, uint64_t *now)
{
    uint64_t gone;

    if (unlikely(!counter_window.span) || unlikely(delay < COUNTER_DELAY))
        return false;
    gone = platform_counter() - counter_window.from;
    *now = counter_window.ns + (gone * counter_window.rate >> 32);
    return likely(gone < counter_window.span);
}

#else

static inline uint64_t counter_read(uint64_t delay)
{
    (void)delay;
    return clock_system_now(CLOCK_MONOTONIC);
}

HOT bool counter_tells(uint64_t delay, uint64_t *now)
{
    (void)delay;
    (void)now;
    return false;
}

#endif

static inline uint64_t counter_now(uint64_t delay)
{
    uint64_t now;

    return counter_tells(delay, &now) ? now : counter_read(delay);
}

#endif
