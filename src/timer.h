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
#include "lane.h"
#include "park.h"
#include "pool.h"
#include "wheel.h"

enum phase { PHASE_CREATED, PHASE_RUNNING, PHASE_STOPPING, PHASE_STOPPED };

#define HAND 64 /* due timeouts taken out of the wheel at a time */

/* What the worker counts: written by it alone, read by everyone. */
struct worker_counters {
    _Atomic uint64_t expired;
    _Atomic uint64_t unprocessed;
    _Atomic uint64_t runs;
    _Atomic uint64_t wakeups;
};

/* With an executor several threads write these. */
struct run_counters {
    _Atomic uint64_t slow_tasks;
    _Atomic uint64_t late_max;
    _Atomic uint64_t late_log2[64];
};

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
    struct pool_reservation reservation; /* opened at creation, closed by destroy */
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
};

/* ---- fork.c ---- */
extern HIDDEN _Atomic uint32_t fork_generation; /* grows in a forked child; never 0 */
void fork_watch(void);

/* Created in this process? What a forked child inherited is dead (G12). */
static inline bool timer_is_ours(const hwt_timer *timer)
{
    return likely(load_relaxed(&timer->generation) == load_relaxed(&fork_generation));
}

/* ---- registry.c: shells, and how many timers there are ---- */
hwt_timer *registry_take(void); /* zeroed but for what late handles read; NULL: no memory */
void registry_give(hwt_timer *timer);
/* Counts a timer in; true: there are so many that the user should be told. */
bool registry_enter(bool can_tell);
void registry_leave(void);
void registry_before_fork(void);
void registry_after_fork(bool child);

/* ---- config.c ---- */
/* Checks, and fills the unchanging part of a shell. 0 or -EINVAL. *slots: per level. */
int config_apply(hwt_timer *timer, const hwt_config *config, uint32_t *slots);

/* ---- run.c ---- */
/* What this thread is running, innermost first: for -EDEADLK and for re-arming. */
struct run_frame {
    const hwt_timer *timer;
    const hwt_timeout *current; /* NULL: none right now */
    bool elsewhere;             /* on an executor's thread */
    struct run_frame *outer;
};
extern HIDDEN _Thread_local struct run_frame *run_frames;
bool run_is_inside(const hwt_timer *timer);
const struct run_frame *run_frame_of(const hwt_timeout *timeout);
/* Runs or dispatches one that is due. True: its task was called or handed over. */
bool run_due(hwt_timer *timer, hwt_timeout *timeout, struct run_frame *frame);
/* From inside the task. */
bool run_rearm(const struct run_frame *frame, hwt_timeout *timeout, uint64_t deadline);
/* A submission or a task's end no longer counts as pending. */
static inline void run_release_quota(hwt_timer *timer)
{
    if (unlikely(timer->max_pending))
        sub_relaxed(&timer->quota_used, 1);
}
void run_hook(hwt_timeout *timeout);

/* ---- worker.c ---- */
void *worker_main(void *timer);
/* One pass: takes in what was submitted, runs what is due. The number of tasks run. */
int worker_pass(hwt_timer *timer, bool exact);
/*
 * Takes in all notices and spills, and the lanes with deadlines up to `horizon`. For stop: false,
 * if a producer was on its way to a spill.
 */
bool worker_collect(hwt_timer *timer, uint64_t horizon);
/*
 * Met and pending: into the wheel (or, for stop, into the list). What is due already waits for the
 * next pass.
 */
void worker_file(hwt_timer *timer, hwt_timeout *timeout);
/* The same for one that was there before the pass: if due, it is run in this pass, in its turn. */
void worker_file_in_order(hwt_timer *timer, hwt_timeout *timeout);
/* Its notice or nudge will come. */
void worker_leave_adrift(hwt_timer *timer, hwt_timeout *timeout);
/* The runtime's share of it is over. */
void worker_bury(hwt_timer *timer, hwt_timeout *timeout);
/* Publishes the next wake-up; false: something has come up, do not sleep. */
bool worker_plan(hwt_timer *timer, uint64_t *wake_before);
void worker_flush_returns(hwt_timer *timer);

/* ---- handle.c ---- */
void timeout_free(hwt_timeout *timeout);

/* ---- lifecycle.c ---- */
/* Ready for submissions: started if need be. 0 or a negative errno. */
int lifecycle_begin(hwt_timer *timer);

static inline uint64_t deadline_clamp(uint64_t deadline)
{
    return min_u64(deadline, DEADLINE_NEVER);
}

static inline uint64_t deadline_after(uint64_t now, uint64_t delay)
{
    return delay >= DEADLINE_NEVER - min_u64(now, DEADLINE_NEVER) ? DEADLINE_NEVER : now + delay;
}

static inline uint64_t timer_now(const hwt_timer *timer)
{
    return clock_now(&timer->clock);
}

#endif
