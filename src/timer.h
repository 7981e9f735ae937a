/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The timer itself: its parts, and who may touch which.
 *
 * A timer's shell (this struct) is type-stable: destroy keeps it for the next create instead of
 * giving it back to malloc, so that a handle which outlives its timer (G9) may still read
 * `generation` and compare with `park`. Everything it points to is freed.
 */
#ifndef HWT_TIMER_H
#define HWT_TIMER_H

#include <pthread.h>

#include "clock.h"
#include "fork.h"
#include "lane.h"
#include "park.h"
#include "pool.h"
#include "stats.h"
#include "wheel.h"

enum phase {
    PHASE_CREATED,
    PHASE_RUNNING,
    PHASE_LOST, /* a task has ended the worker's thread */
    PHASE_STOPPING,
    PHASE_STOPPED,
};

#define HAND 64 /* due timeouts taken out of the wheel at a time */

/*
 * The worker's own: touched by the worker thread; with HWT_DRIVE_CALLER by whoever holds `drive`;
 * by stop once the worker has ended. The atomics are for readers elsewhere.
 */
struct worker {
    struct wheel *wheel;
    struct bucket due;        /* of a tick that has come */
    struct bucket dispatched; /* with the executor */
    hwt_timeout *hand[HAND];  /* taken out of `due`: no notice is received before they are done */
    unsigned hand_next, hand_count;
    uint64_t adrift;     /* met, held by nothing: as many notices or nudges are on their way */
    uint64_t pass_limit; /* during a pass: what is filed with a deadline up to here waits for the
                            next one; otherwise 0 */
    uint64_t passed;     /* when the last pass was */
    uint64_t now;        /* a recent reading of the clock ... */
    uint64_t coarse;     /* ... and of the coarse one */
    struct pool_return *returns; /* per lane */
    bool reclaiming;             /* stop hands back instead of filing ... */
    hwt_timeout *reclaimed;      /* ... into this list, by `link` */
    hwt_task *escaped;           /* the last task that did not return to its pass */
    struct worker_counters count;
    _Atomic uint64_t next_deadline; /* for hwt_timer_next_deadline, while the worker sleeps */
};

struct hwt_timer {
    _Atomic uint32_t generation; /* fork_generation of the process that created it */
    _Atomic uint32_t phase;      /* enum phase; changed under `mutex` */

    /* never change between create and destroy */
    struct clock clock;
    uint64_t tick_ns;
    uint64_t max_pending;
    uint64_t slow_task_ns;
    size_t reserved;
    hwt_drive drive;
    int (*execute)(void *executor, void (*run)(void *job), void *job);
    void *executor;
    void (*log)(void *log_arg, const char *message);
    void *log_arg;
    uint8_t kind; /* of its timeouts: the clock's bits */
    char thread_name[16];
    pthread_attr_t attr;
    bool has_attr;
    struct lanes lanes;

    struct park park; /* shared, see park.h */

    alignas(CACHE_PAIR) _Atomic uint64_t quota_used; /* only if max_pending; everyone */
    struct run_counters run_count;

    alignas(CACHE_PAIR) struct worker worker;

    alignas(CACHE_PAIR) pthread_mutex_t mutex; /* phase, thread */
    pthread_cond_t stopped;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t driving; /* HWT_DRIVE_CALLER: who acts as the worker */
    _Atomic uint32_t guests; /* handle calls that stop must wait for (handle.c) */
    hwt_timer *next_shell;   /* under the registry's lock */
    bool forsaken; /* in a forked child: destroyed by one of its callbacks (lifecycle.c) */
};

/* Created in this process? What a forked child inherited is dead (G12). */
static inline bool timer_is_ours(const hwt_timer *timer)
{
    return likely(load_relaxed(&timer->generation) == load_relaxed(&fork_generation));
}

/* The same in calls that may wait: in a forked child that would be for ever (fork_settle). */
static inline bool timer_is_ours_now(const hwt_timer *timer)
{
    fork_settle();
    return timer_is_ours(timer);
}

static inline uint64_t timer_now(const hwt_timer *timer)
{
    return clock_now(&timer->clock);
}

#endif
