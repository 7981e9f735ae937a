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
    unsigned submitter; /* thread and 1, while it submits */
    uint8_t held;       /* threads that hold a reference */
    unsigned calls, in_flight;
    bool known; /* its deadline is what the last call made it: between these two */
    uint64_t deadline, latest;
    uint64_t order; /* of its thread's submissions */
    /* what happened */
    unsigned runs, wins, hooks, back, turned_away, rearms;
    bool running, no_more, never_again;
    unsigned jobs; /* of the executor's that have it */
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
    unsigned calls;   /* of the timer or of a handle that are on, by any thread */
    unsigned running; /* tasks and hooks */
    unsigned accepted;
    unsigned back; /* handed back, of what was renewed since */
    /* G5: what had happened when the worker last fell asleep, and how often it woke for nothing */
    unsigned happened, happened_before, excuses, futile;
    struct sim_thread *sleeper; /* who sleeps until the next deadline: the worker, or the loop */
    int fd;
    /* G15: the advance that is on */
    bool in_pass;
    struct life *last; /* that ran, with this deadline then */
    uint64_t last_deadline;
    uint64_t pass_began;
    uint64_t submissions[SIM_THREADS];
};
extern struct oracle oracle;

uint64_t oracle_now(void); /* on the timer's clock */

void oracle_reset(const struct world *world, const struct program *program);
struct life *oracle_life(uint8_t conduct);

/* Around a call: what is on, and that it must not wait (G7). */
void call_begins(struct life *life, const char *what, bool may_wait);
void call_ends(struct life *life);

/* A call that has returned made this its deadline; so many calls and runs had begun with it. */
void oracle_established(struct life *life, uint64_t deadline, uint64_t latest, unsigned calls,
                        unsigned runs);
/* Could it still run, for all that is known? */
bool oracle_is_pending(const struct life *life);

void oracle_pass_begins(void);
void oracle_pass_ends(void);
void oracle_run_begins(struct life *life, hwt_timeout *timeout);
void oracle_run_ends(struct life *life);
void oracle_hook(struct life *life, hwt_timeout *timeout);
void oracle_release(struct life *life);
/* Whoever sleeps until a deadline does not sleep too long (G4). */
void oracle_check_sleep(void);
/* The bound that hwt_timer_next_deadline gives (C15). */
struct next_snapshot {
    uint64_t deadline[LIVES_MOST];
    unsigned calls[LIVES_MOST];
    bool exact;
};
void oracle_before_next(struct next_snapshot *snapshot);
void oracle_after_next(const struct next_snapshot *snapshot, uint64_t answer);
void oracle_handed_back(hwt_unprocessed *list);
/* The timer is stopped: what G2 and G3 say about it. */
void oracle_check_stopped(void);
void oracle_check_end(void);

#endif
