/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worlds: what may happen to a timer in a history, and what must hold. A world has threads with
 * parts (producers, whoever drives, an executor's), and each producer a program: a list of calls
 * that the seed chose. The oracles (oracle.c) look at every call, run and sleep.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "hwt.h"
#include "sim.h"

/* ---- programs ---- */

enum op_code {
    OP_NONE,
    OP_SCHEDULE, /* with a handle */
    OP_FORGET,   /* without */
    OP_PERIODIC,
    OP_CANCEL,
    OP_CANCEL_SYNC,
    OP_MOVE,    /* by a delay */
    OP_MOVE_AT, /* to a deadline */
    OP_DROP,    /* this thread's reference */
    OP_REF,     /* and drop it */
    OP_LOOK,    /* state, deadline, ... */
    OP_SLEEP,
    OP_PENDING, /* and stats */
    OP_NEXT,    /* hwt_timer_next_deadline */
    OP_STOP,
    OP_START,
    OP_TRIM,
    OP_ADVANCE,
    OP_DESCRIPTOR,
    OP_FORK,
    OP_OTHER_TIMER, /* create one, use it, destroy it */
    OP_TAKE,        /* so many blocks from the pool, beside all timers ... */
    OP_GIVE,        /* ... and back */
    OP_SHUFFLE,     /* takes some, gives them back in another order, and trims */
    OP_BLOCKS,      /* takes some of the pool, and gives them back */
    OP_ROUND,       /* another timer again, with a handle that others move ... */
    OP_MOVE_ROUND,  /* ... also when it is no more */
    OP_RENEW,
    OP_VISIT,
    OP_DRAIN,
    OP_FLEETING, /* schedule, cancel, drop: its block is used again at once */
    OP_COUNT,
};

struct op {
    uint8_t code;
    uint8_t target;  /* a timeout: one that all share, or of an op of this thread before */
    uint8_t delay;   /* see oracle.c: delays */
    uint8_t conduct; /* of its task */
    bool removed;    /* shrinking */
};

#define PRODUCERS_MOST 4
#define SHARED_MOST    8
#define OPS_MOST       12

struct program {
    unsigned producers, ops; /* each */
    unsigned shared;         /* timeouts that are there from the beginning */
    uint8_t shared_delay[SHARED_MOST], shared_conduct[SHARED_MOST];
    bool hashed, settles, hands_back, second_timer;
    struct op op[PRODUCERS_MOST][OPS_MOST];
};

/* What a task does, besides being counted. */
enum conduct {
    DOES_NOTHING,
    REARMS_NOW,
    REARMS_LATER,
    REARMS_ONCE_AND_IS_SLOW,
    SCHEDULES,
    CANCELS_SHARED,
    MOVES_SHARED,
    IS_SLOW,
    ASKS_NEXT,
    CANCELS_ITSELF,
    ENDS_THREAD, /* only where the world allows it */
    DAWDLES,     /* takes steps, but no time */
    FORKS,       /* and the child returns from it, as from its hook */
    REARMS_AND_ASKS,
    HOOK_ENDS_THREAD, /* only where the world allows it */
    TAKES_HANDLE,     /* of itself, if nobody has one; it is dropped at the end of all */
    CONDUCT_COUNT,
};

/* ---- worlds ---- */

enum executor_kind { NO_EXECUTOR, EXECUTOR_QUEUES, EXECUTOR_RUNS_AT_ONCE };

struct world {
    const char *name;
    const char *shows; /* the rules and guarantees that it is about */
    unsigned producers, ops, shared;
    unsigned handlers; /* so many of the producers use handles alone, also after destroy */
    hwt_drive drive;
    unsigned loops; /* so many wait for the descriptor and drive: two as on one epoll, for edges */
    bool boottime;
    enum executor_kind executor;
    bool executor_refuses;
    unsigned executor_threads;
    uint64_t max_pending;
    bool all_fit; /* no producer has more than one, and there is a place for each */
    size_t reserve;
    unsigned crowd;       /* so many timeouts are in one lane from the beginning ... */
    bool crowd_is_due;    /* ... and to be run, each for a while */
    bool met;             /* the worker has taken in what is there from the beginning */
    bool visitors_move;   /* ... what they are shown, and leave no handle to it */
    bool still;           /* as beside a visit: who moves a timeout earlier tells the worker */
    unsigned held_blocks; /* so many of the pool's are taken from the beginning ... */
    bool blocks_free;     /* ... and given back at once */
    bool one_cpu;         /* all are on it */
    bool wanders;         /* ... or each goes from one CPU to the other */
    unsigned stays;       /* ... or all of them do, after so many questions where they are */
    bool hasty;           /* stopped as soon as the producers are done, or at once */
    bool quick;           /* time hardly passes but in naps */
    bool callers_clock;   /* which jumps ahead, and back */
    bool late_jobs;       /* the executor's threads may end theirs after destroy */
    bool hooks;           /* timeouts have one */
    bool releases;        /* so do they of these, every other one */
    bool no_segments;     /* there is no memory for more of them */
    bool no_chunks;       /* nor for any of these */
    bool pages_stay;      /* the system keeps some that could go */
    bool faults;          /* the system's calls fail now and then */
    bool ends_threads;    /* tasks may end their thread */
    bool not_started;     /* the first submission starts it */
    bool small;           /* small enough for exhaustive search */
    bool hurries;         /* all its producers at once, and stop as soon as it may */
    unsigned blocks;      /* free in the pool from the beginning, about */
    bool counts;          /* who asks how many are pending asks for all counters */
    bool long_ticks;      /* beside what a wake-up is worth */
    bool narrow;          /* few slots: what is not near comes down, or goes by the ladder */
    bool brief;           /* what comes after the calls is left out, where it can be */
    uint8_t weight[OP_COUNT];
    uint8_t conduct_weight[CONDUCT_COUNT];
    uint32_t delays;        /* which delays it uses: bits */
    uint32_t shared_delays; /* and those that are there from the beginning; 0: the same */
};

extern const struct world worlds[];
extern const unsigned world_count;

/* A program for a world, by its seed. */
void program_make(struct program *program, const struct world *world, uint64_t seed, bool small);
void program_print(const struct program *program);

struct run {
    const struct world *world;
    const struct program *program;
};
/* What sim_run is given: a history of a world from beginning to end; `arg` is a struct run. */
void world_main(void *arg);

#endif
