/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a worker sleeps until a deadline, and how others wake it for an earlier one.
 *
 * The worker publishes `wake_before` (a deadline below it is not covered by the planned wake-up),
 * looks once more at everything that could have become urgent, and only then sleeps. Whoever makes
 * something urgent publishes that first and then compares with `wake_before`. Both sides store
 * first and load second, sequentially consistent, so at least one of them sees the other (the
 * Dekker pattern; rule C4 of docs/concurrency.md).
 *
 * Nobody else writes `wake_before`, so that it never claims a wake-up which is still to come: a
 * second word says how far the end of this sleep has come. On a futex that is the futex word, which
 * numbers the sleeps; whoever finds the system call not made yet makes it, and whoever finds it
 * made goes on. A timer descriptor need not wake anybody: it is set to the earlier time. `alarm` is
 * that time, lowered first, and whether the descriptor has been set to it; whoever has lowered it
 * sets it, and whoever finds it not set yet, too. Several may be setting it at once, so whoever has
 * set it looks whether it is still what is wanted, and otherwise sets that.
 */
#ifndef HWT_PARK_H
#define HWT_PARK_H

#include "atomic.h"
#include "base.h"
#include "platform.h"

enum park_kind {
    PARK_NONE,    /* nobody sleeps here: the caller drives */
    PARK_FUTEX,   /* a worker on CLOCK_MONOTONIC */
    PARK_TIMERFD, /* a worker on a clock a futex cannot follow, or an event loop of the caller's */
};

struct park {
    /* shared: the worker publishes, everyone reads */
    alignas(CACHE_PAIR) _Atomic uint64_t wake_before; /* 0: awake, no wake-up is needed */
    /* PARK_TIMERFD, for what is submitted then: it may be held back by so much, ... */
    _Atomic uint64_t held_back;
    _Atomic uint64_t lead; /* ... or the sleep shall end so much before its deadline */
    /* shared: everyone, by compare-and-swap */
    _Atomic uint32_t parked; /* PARK_FUTEX: the number of the sleep, and how far it has come */
    _Atomic uint64_t alarm;  /* PARK_TIMERFD: the time it is to be set to, and whether it is */
    /* set before the park is used by more than one thread, then never changes */
    _Atomic int kind; /* enum park_kind */
    _Atomic int fd;   /* PARK_TIMERFD */
    int bell;         /* PARK_TIMERFD of a worker: wakes it if the timer cannot be set; or -1 */
    clockid_t clock;  /* PARK_TIMERFD of a worker */
    /* the worker's own, or whoever's drives */
    uint64_t slack; /* a wake-up this much after `wake_before` is in time */
};

void park_init(struct park *park, uint64_t slack);

static inline bool park_has_fd(const struct park *park)
{
    return load_relaxed(&park->kind) == PARK_TIMERFD;
}

/*
 * The worker, before park_publish, for a descriptor: how long such a deadline may be held back, or
 * how long before it he wants to be awake. At first: the slack, and 0.
 */
static inline void park_foresee(struct park *park, uint64_t held_back, uint64_t lead)
{
    store_relaxed(&park->held_back, held_back);
    store_relaxed(&park->lead, lead);
}
/*
 * The worker: about to sleep; deadlines below `wake_before` must wake it. A descriptor is planned
 * to be readable in time for them, and set to that by park_set or park_sleep: set anew, even if
 * that is what it is set to, since an event loop may wait for the edge.
 */
void park_publish(struct park *park, uint64_t wake_before);
/* After that: it shall be readable at that time already. */
void park_sooner(struct park *park, uint64_t time);
/* Anyone, instead of these: it shall be readable at once, until the next park_publish. */
void park_at_once(struct park *park);
/* Who has called one of these: it is set to what is wanted by then. */
void park_set(struct park *park);
/*
 * The worker: sleep until then, which is not after `wake_before` and the slack. Returns at the
 * time, when woken, or for no reason.
 */
void park_sleep(struct park *park, uint64_t until);
/* The worker: awake again, or not going to sleep after all. */
void park_leave(struct park *park);

/* Anyone: make it wake up in time for this deadline, which is below `wake_before`. */
void park_wake_at(struct park *park, uint64_t deadline);
/* Anyone: end the sleep that is on, or the one that is being prepared. */
void park_wake(struct park *park);
/* Anyone: a descriptor is not readable until it is planned for anew, or something is urgent. */
void park_hush(struct park *park);
/* Stopped, and whoever drives knows it: the descriptor shall not be readable any more, ever. */
void park_end(struct park *park);

/* Anyone, after having published a deadline: does the planned wake-up come too late for it? */
static inline void park_wake_for(struct park *park, uint64_t deadline)
{
    if (unlikely(deadline < load_seq(&park->wake_before))) /* pairs with park_publish */
        park_wake_at(park, deadline);
}

#endif
