/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The timer itself: its parts, and who may touch which.
 *
 * A timer's shell (this struct) is type-stable: destroy keeps it for the next create instead of
 * giving it back to malloc, so that a handle which outlives its timer (G9) may still read
 * `generation` and `lives`, and sign in with `guests`. Everything it points to is freed.
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
    PHASE_LOST,     /* a task has ended the worker's thread */
    PHASE_DRAINING, /* closed; what is there may still run */
    PHASE_DRAINED,  /* closed, and nothing will run any more */
    PHASE_STOPPING,
    PHASE_STOPPED,
};

/* What goes back to the caller instead of being filed. */
enum reclaim { RECLAIM_NONE, RECLAIM_PERIODIC, RECLAIM_ALL };
#define RECLAIM_AHEAD 8 /* the fetch of what goes back: a list alone waits for each of its lines */

static_assert(CLOCK_LAST == DEADLINE_NEVER - 1, "the clock can reach every deadline but never");

/* The worker's own: a segment is being looked through ahead of its time (intake.c). */
struct look {
    struct segment *segment; /* NULL: none is */
    unsigned group;          /* where it goes on */
    uint64_t earliest;       /* what the segment said, and does not say until all is looked at */
    uint64_t near;           /* what is due up to then is taken ... */
    uint64_t left;           /* ... and of the rest this is the earliest so far */
    struct segment *last;    /* the one before: the next is looked for behind it */
};

/* The worker's own: how long before they are due segments are to be looked through (lead.c). */
struct lead {
    uint64_t time;     /* by what was measured ... */
    uint64_t measured; /* ... then ... */
    uint64_t most;     /* ... when it could be so much */
};

/* The worker's own: memory that is to go back, or to be made ready (house.h). */
struct house {
    uint64_t next;  /* no piece before */
    uint64_t pause; /* after the last one */
    uint64_t look;  /* no look before at whether there is something */
    uint64_t took;  /* to make a slab ready, last */
    uint64_t dear;  /* what a huge page took that was dear */
    int small; /* so many more are made so in small pages; below 0: in huge ones, dear or not */
    bool open; /* there is something to go back */
};

/*
 * The worker's own: touched by the worker thread; with HWT_DRIVE_CALLER by whoever is `driver`; by
 * stop once the worker has ended. The atomics are for readers elsewhere.
 *
 * Its times, all on the timer's clock:
 *   now            a recent reading: at most one hand of tasks, or some milliseconds, old
 *   coarse         the coarse clock at that reading: when it steps, `now` is read anew
 *   pass_limit     what the pass that is on runs: deadlines up to its beginning, or to what a
 *                  caller's clock has gone back to since (G1); otherwise 0. What is filed with such
 *                  a deadline meanwhile waits for the next pass (G11)
 *   passed         pass_limit of the last pass
 *   covered        (wheel.h) deadlines up to here are in the agenda, in order
 *   next_deadline  no deadline that the worker has met is below; lowered before anything is taken
 *                  out of a lane, raised when the next wake-up is planned
 *   planned        the next wake-up is for this deadline, which may still lie in a lane
 *   wake_before    (park.h) a deadline below is not covered by the planned wake-up
 *   paid_until     each wake-up takes its time, up to here (worker.c): behind `now`, they are few
 *   slack          (park.h) a wake-up so much later than `wake_before` is in time: a tick but 1 ns,
 *                  so that all of a tick costs one, but while they are few; with HWT_DRIVE_CALLER 0
 *                  while they are, then a tick, or a quarter of a millisecond if that is less
 */
struct worker {
    struct wheel *wheel;
    struct bucket dispatched;    /* with the executor ... */
    hwt_timeout *shelf;          /* ... and those for which there was no memory, by `where` */
    struct bucket later;         /* for the next pass ... */
    hwt_timeout *later_listed;   /* ... and those for which there was no memory, by `where` */
    struct sighting later_first; /* no deadline of these was below its when they were put there */
    bool any_later;              /* there may be some */
    uint64_t adrift;             /* met, held by nothing: as many notices or nudges are to come */
    uint64_t pass_limit, passed; /* see above, as the next four */
    uint64_t now, coarse, planned, paid_until;
    uint64_t started;  /* never changes: when it was created */
    uint64_t told_far; /* when the lanes were last told what is far away */
    struct look look;
    struct lead lead;
    struct house house;
    struct pool_return *returns; /* per lane (of the common one's nothing comes) ... */
    bool may_return;             /* ... of which one may be worth being given back */
    bool visited;                /* since the last pass */
    uint64_t promised;           /* what movers have in hand is due then, or later (drive.c) */
    unsigned pauses;             /* before the next visit, by now */
    uint32_t awaited;            /* halves whose guests came before `still` was set (visit.c) */
    enum reclaim reclaiming;     /* stop or drain hands back instead of filing ... */
    hwt_timeout *reclaimed;      /* ... into this list, by `link` ... */
    /* ... and these came last: the next one's `where` leads to the first of them */
    hwt_timeout *ahead[RECLAIM_AHEAD];
    bool ended;        /* drained, and all that was accepted has ended */
    hwt_task *escaped; /* the last task that did not return to its pass */
    struct worker_counters count;
    _Atomic uint64_t next_deadline; /* see above */
    _Atomic uintptr_t acting;       /* who acts as the worker: for assertions */
};

/* What others ask the worker to do between two passes. */
enum asked { ASKED_VISIT = 1, ASKED_DRAIN = 2, ASKED_HOUSE = 4, ASKED_READY = 8, ASKED_PLAN = 16 };

/* HWT_DRIVE_CALLER: who acts as the worker, and that somebody waits for his end (driver.h). */
enum driver {
    DRIVER_NONE = 0,
    DRIVER_LOOKS = 1,    /* hwt_timer_next_deadline, not for long; hwt_timer_visit */
    DRIVER_ADVANCES = 2, /* hwt_timer_advance: runs tasks */
    DRIVER_STOPS = 3,
    DRIVER_AWAITED = 4, /* a flag */
    DRIVER_MISSED = 8,  /* a flag: an advance was refused, and the descriptor is unset for that */
    DRIVER_WANTED = 16, /* a flag: an advance waits, and nobody begins to look before it */
};

/* HWT_DRIVE_CALLER: what comes next (answer.h). By who drives; others read it. */
struct answer {
    _Atomic uint64_t turn; /* odd: there is none */
    _Atomic uint64_t deadline;
    _Atomic(_Atomic uint64_t *) slot; /* of who has that deadline ... */
    _Atomic uint64_t packed;          /* ... and what it holds */
    _Atomic bool wanted;              /* a hint: somebody has asked since, and nothing had come */
};

struct hwt_timer {
    _Atomic uint32_t generation; /* fork_page.generation of the process that created it */
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
    void (*worker_start)(void *worker_arg);
    void (*worker_exit)(void *worker_arg);
    void *worker_arg;
    uint8_t flags;        /* of its timeouts: the clock's bits */
    char thread_name[16]; /* what Linux takes */
    pthread_attr_t attr;
    bool has_attr;
    bool runs_plainly; /* no executor, no limit of time or number: a run is its task, counted */
    struct lanes lanes;

    struct park park; /* shared, see park.h */

    alignas(CACHE_PAIR) struct run_counters run_count;

    alignas(CACHE_PAIR) struct worker worker;

    alignas(CACHE_PAIR) pthread_mutex_t mutex; /* phase, thread */
    pthread_cond_t stopped;
    pthread_t thread;
    unsigned drains;         /* under `mutex`: calls of drain that are on; destroy waits for them */
    struct visit *visits;    /* under `mutex`: calls that wait for the worker (visit.c) */
    _Atomic uint32_t asked;  /* of the worker, between two passes: enum asked */
    _Atomic uint32_t untidy; /* 1: ASKED_HOUSE; who sets it asks, the worker clears it (C18) */
    bool has_thread;
    bool introduced;         /* the worker's own: worker_start has returned */
    _Atomic uint32_t driver; /* enum driver; futex word */
    struct answer answer;
    _Atomic uint64_t guests;   /* handle calls that stop must wait for (handle.c): two halves */
    _Atomic uint32_t half;     /* where who comes now signs in; turned by who visits (visit.c) */
    _Atomic uint32_t still;    /* who moves a timeout earlier shall not take it out (visit.c) */
    _Atomic uint32_t rearmed;  /* re-armed runs for which there is no place in a lane (run.c) */
    _Atomic uint32_t periodic; /* 1: something periodic was submitted, or will be (C18) */
    hwt_timer *next_shell;     /* under the registry's lock */
    bool forsaken;          /* in a forked child: destroyed by one of its callbacks (lifecycle.c) */
    _Atomic uint32_t lives; /* by create: how many timers this shell has been (run_frames.c) */
};

/* Created in this process? What a forked child inherited is dead (G12). */
static inline bool timer_is_ours(const hwt_timer *timer)
{
    return likely(load_relaxed(&timer->generation) == load_relaxed(&fork_page.generation));
}

/* The same in calls that may wait: in a forked child that would be for ever (fork_settle). */
static inline bool timer_is_ours_now(const hwt_timer *timer)
{
    fork_settle();
    return timer_is_ours(timer);
}

/* A guest, as he is counted in either half of `guests`; and who are in one. */
static inline uint64_t guest_in(uint32_t half)
{
    return UINT64_C(1) << 32 * half;
}

static inline uint32_t guests_in(uint64_t guests, uint32_t half)
{
    return (uint32_t)(guests >> 32 * half);
}

/*
 * Who signs in with the shell, before he wins a word or while stop waits for him anyway, may touch
 * all of the timer until he signs out, as what this returns: stop waits for him (C6).
 */
static inline uint64_t timer_sign_in(hwt_timer *timer)
{
    uint64_t guest = guest_in(load_relaxed(&timer->half));

    add_seq(&timer->guests, guest);
    return guest;
}

static inline void timer_sign_out(hwt_timer *timer, uint64_t guest)
{
    sub_acq_rel(&timer->guests, guest); /* pairs with the looks of stop and of a visit */
}

/*
 * A moved deadline is told to whoever asks for the next one, and to the worker's next wake-up. By
 * who queues the nudge: only then, and the one that the word has then (C4, C15).
 */
static inline void timer_tell_moved(hwt_timer *timer, struct lane *lane, uint64_t deadline)
{
    lane_tell_moved(lane, deadline);
    park_wake_for(&timer->park, deadline);
}

/* Asks the worker: said before he is woken, as all that is urgent (C4). */
static inline void timer_ask(hwt_timer *timer, enum asked what)
{
    or_seq(&timer->asked, what);
    park_wake(&timer->park);
}

/* Before something periodic is submitted: whoever takes that out of its slot sees this (C18). */
static inline void timer_tell_periodic(hwt_timer *timer)
{
    if (!load_relaxed(&timer->periodic))
        store_relaxed(&timer->periodic, 1);
}

static inline bool timer_has_periodic(const hwt_timer *timer)
{
    return load_relaxed(&timer->periodic);
}

/* This thread acts as the worker from now on. */
static inline void timer_act(hwt_timer *timer)
{
    store_relaxed(&timer->worker.acting, (uintptr_t)&fork_depth); /* each thread has its own */
}

/* What only the worker does, or whoever acts as the worker. */
static inline void timer_check_acting(const hwt_timer *timer)
{
    hwt_assert(load_relaxed(&timer->worker.acting) == (uintptr_t)&fork_depth);
    (void)timer;
}

static inline uint64_t timer_now(const hwt_timer *timer)
{
    return clock_now(&timer->clock);
}

#endif
