/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known about each timeout of a history, and what must hold of it (oracle.c). */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "timer.h"
#include "world.h"

#define TICK       UINT64_C(1000)
#define LIVES_MOST 80

/* One timeout, from before its submission until after its end. */
struct life {
    hwt_timeout *timeout; /* once it was returned; valid while a reference is held */
    uint32_t *payload;    /* plain memory: what one writes before, the other must see */
    uint8_t conduct;
    bool begun, accepted, refused, periodic, with_hook, with_release;
    uint64_t period;
    hwt_period_mode mode;
    unsigned submitter;               /* thread and 1, while it submits */
    uint8_t held;                     /* threads that hold a reference */
    unsigned since;                   /* of all, when its block was known to be its own */
    unsigned calls, moves, in_flight; /* `moves` are calls, too */
    bool known; /* its deadline is what the last call made it: between these two */
    uint64_t deadline, latest;
    uint64_t told;  /* if no call has begun since: by one that has returned; or UINT64_MAX */
    uint64_t order; /* of its thread's submissions */
    /* what happened */
    unsigned runs, wins, hooks, back, turned_away, rearms;
    bool running, no_more, never_again;
    bool rearmed;                      /* by this run, and that call has returned */
    unsigned runs_before_win;          /* of any, when its cancellation and moves had returned */
    uint64_t last_deadline, run_ended; /* of its last run, and the clock after it */
    unsigned last_calls;
    bool last_alone;   /* with no call on, begun before */
    unsigned armed_in; /* the advance, of this thread, in whose task it was submitted or re-armed */
    unsigned jobs;     /* of the executor's that have it */
    unsigned releases;
    unsigned shown; /* in the visit that is on */
    bool starting;  /* when a cancellation returned it was claimed, and its task not yet called */
};

struct oracle {
    const struct world *world;
    const struct program *program;
    hwt_timer *timer;
    bool created, stopping, stopped, destroyed, quit, lost, slow_system;
    struct life life[LIVES_MOST];
    unsigned lives;
    unsigned ends;  /* calls of stop and drain, begun */
    unsigned calls; /* of the timer or of a handle that are on, by any thread */
    unsigned begun; /* calls, ever */
    unsigned advances, advances_begun, advance_of[SIM_THREADS];
    bool advance_waits, visit_is_late; /* one has slept, since one got in; before a visit's call */
    uint8_t left;                      /* threads that a task has ended while they advanced */
    unsigned trimming;                 /* `begun` when the last trim had begun */
    unsigned trims;                    /* that are on */
    unsigned blocks;                   /* known to be of a timeout, so often */
    unsigned runs;                     /* of the crowd's and all others' tasks, ever */
    unsigned running;                  /* tasks and hooks */
    unsigned accepted;
    uint64_t cancelled[SIM_THREADS]; /* as each last counted them */
    unsigned back;                   /* handed back, of what was renewed since */
    /* G5: what had happened when the worker last fell asleep, and how often it woke for nothing */
    unsigned happened, happened_before, excuses, futile;
    unsigned stops;             /* threads in a stop: bits */
    struct sim_thread *sleeper; /* who sleeps until the next deadline: the worker, or the loop */
    int fd;
    bool told;        /* one of two loops has heard of the stop */
    unsigned in_vain; /* they had an edge, and were refused */
    /* G15: the advance that is on */
    bool in_pass;
    uint64_t pass_deadline[LIVES_MOST]; /* due when it began, or 0 */
    unsigned pass_calls[LIVES_MOST];
    struct life *last; /* that ran, with this deadline then */
    uint64_t last_deadline;
    uint64_t pass_began;
    uint64_t submissions[SIM_THREADS];
    bool in_child;                                      /* of a task or hook that has forked */
    uint64_t ahead;                                     /* the caller's clock, modulo 2^64 ... */
    uint64_t reading[SIM_THREADS], before[SIM_THREADS]; /* ... as each last read it, and before */
};
extern struct oracle oracle;

uint64_t oracle_now(void); /* on the timer's clock */
uint64_t oracle_read_clock(void);

void oracle_reset(const struct world *world, const struct program *program);
struct life *oracle_life(uint8_t conduct);

/* Around a call: what is on, and that it must not wait (G7). */
void call_begins(struct life *life, const char *what, bool may_wait);
void call_ends(struct life *life);
/* This is its block from now on, as it turns out. */
void oracle_know_block(struct life *life, hwt_timeout *block);

/* A call that has returned made this its deadline; so many calls and runs had begun with it. */
void oracle_established(struct life *life, uint64_t deadline, uint64_t latest, unsigned calls,
                        unsigned runs);
/* Could it still run, for all that is known? */
bool oracle_is_pending(const struct life *life);

void oracle_pass_begins(void);
void oracle_pass_ends(bool done);
void oracle_run_begins(struct life *life, hwt_timeout *timeout);
void oracle_run_ends(struct life *life);
void oracle_hook(struct life *life, hwt_timeout *timeout);
/* When all wait: not one for a worker that sleeps (C4). */
void oracle_check_waits(void);
/* Nothing runs any more: submissions say so (-EOWNERDEAD). */
bool oracle_worker_is_over(void);
void oracle_release(struct life *life);
/* Whoever sleeps until a deadline does not sleep too long (G4). */
void oracle_check_sleep(void);
/* The bound that hwt_timer_next_deadline gives (C15). */
struct next_snapshot {
    uint64_t deadline[LIVES_MOST];
    unsigned calls[LIVES_MOST], runs[LIVES_MOST], moves[LIVES_MOST];
    unsigned begun, calls_on; /* calls: begun until then, and on */
};
void oracle_before_next(struct next_snapshot *snapshot);
void oracle_after_next(const struct next_snapshot *snapshot, uint64_t answer);
void oracle_handed_back(hwt_unprocessed *list);
/* The timer is stopped: what G2 and G3 say about it. */
void oracle_check_stopped(void);
void oracle_check_end(void);
/* When pages have gone: as many as are reserved are at home, if nobody else is about. */
void oracle_pages_go(void);
/* In a forked child. */
void oracle_check_slabs(void);

#endif
