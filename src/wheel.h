/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wheel: a pure data structure. No thread, no clock, no callback, no lock; it is told the time
 * and hands back what is due, tick by tick. One owner at a time: the worker, or whoever acts as
 * the worker.
 *
 * A timeout of deadline d is due at tick ceil(d / tick_ns). Two kinds stand behind one interface:
 * hierarchical (Kafka, Linux) and hashed, one level with rounds (Netty, Dubbo).
 *
 * Deadlines are lower bounds here: a timeout whose deadline was moved later stays where it is
 * filed, and is filed again when its old deadline comes up.
 */
#ifndef HWT_WHEEL_H
#define HWT_WHEEL_H

#include "bucket.h"

struct wheel;

struct wheel_ops {
    /* Files at `tick`, which is not before wheel->current. False: no memory for a chunk. */
    bool (*insert)(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline, uint64_t tick);
    /* Where it would be filed. */
    const struct bucket *(*bucket_of)(const struct wheel *wheel, uint64_t tick);
    /* Moves the next tick's bucket that is due by `limit` to `due`; false if there is none. */
    bool (*expire)(struct wheel *wheel, uint64_t limit, struct bucket *due);
    /* Files of tick `current` what has reached `now` into `due`, if at most `most` share it. */
    void (*expire_part)(struct wheel *wheel, uint64_t now, uint32_t most, struct bucket *due);
    /* No deadline in the wheel is below it; UINT64_MAX: empty. exact: spare no effort. */
    uint64_t (*earliest)(struct wheel *wheel, bool exact);
    /* How many share the slot of the earliest deadline, which is given. */
    uint32_t (*sharing)(const struct wheel *wheel, uint64_t deadline);
    /* When there is work to do ahead of a deadline; UINT64_MAX: none. */
    uint64_t (*prepare)(struct wheel *wheel);
    /* Fetches what the next calls of `expire` will touch. */
    void (*foresee)(const struct wheel *wheel);
    hwt_timeout *(*pop)(struct wheel *wheel); /* any one; NULL: empty */
    size_t (*check)(struct wheel *wheel);
    void (*destroy)(struct wheel *wheel);
};

struct wheel {
    /* never changes */
    const struct wheel_ops *ops;
    uint64_t tick_ns;
    uint64_t reciprocal; /* 2^64 / tick_ns, rounded down */

    uint64_t current;   /* ticks below have been expired */
    uint64_t due_limit; /* what wheel_expire last handed back is due if its deadline is not above:
                           otherwise it was moved, and is to be filed again */
    struct chunk_store store;
    struct bucket overdue; /* filed for a tick that has been expired already */
    hwt_timeout *pen;      /* by `fellow`: filed without memory for a chunk */
};

/* 0 or -ENOMEM. `slots`: a power of two, per level. */
int wheel_hierarchical_create(struct wheel **wheel, uint64_t tick_ns, uint32_t slots, uint64_t now);
int wheel_hashed_create(struct wheel **wheel, uint64_t tick_ns, uint32_t slots, uint64_t now);
void wheel_destroy(struct wheel *wheel);

/* Never fails: without memory it gets slower (the pen), but nothing is lost. */
void wheel_insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline);
/* A hint: these will be filed next. Fetches the lines that filing them touches. */
void wheel_expect(const struct wheel *wheel, hwt_timeout *const *batch, unsigned count);
/* One that wheel_insert filed and nothing else took. PLACE_ADRIFT afterwards. */
void wheel_remove(struct wheel *wheel, hwt_timeout *timeout);
/* Also for a bucket beside the wheel; false: no memory for a chunk. */
bool wheel_bucket_insert(struct wheel *wheel, struct bucket *bucket, hwt_timeout *timeout);
hwt_timeout *wheel_bucket_pop(struct wheel *wheel, struct bucket *bucket);
unsigned wheel_bucket_take(struct wheel *wheel, struct bucket *bucket, hwt_timeout **out,
                           unsigned most); /* as bucket_take */

/*
 * Moves what is due at `now` to `due`, one tick's worth per call and in order of ticks; false:
 * nothing is. The tick that is not over yet counts as far as its deadlines are reached, if its slot
 * is sparse, or with `exact`; the overdue ones are left for wheel_take_overdue.
 */
bool wheel_expire(struct wheel *wheel, uint64_t now, bool exact, struct bucket *due);
/* What was filed too late for its tick, or up to `limit`; `due` must be empty. */
void wheel_take_overdue(struct wheel *wheel, uint64_t limit, struct bucket *due);

/* After the last wheel_expire of a pass: fetches what the next ones will touch. */
static inline void wheel_foresee(const struct wheel *wheel)
{
    wheel->ops->foresee(wheel);
}

/* The earliest deadline, or a lower bound unless `exact`; UINT64_MAX: empty. */
uint64_t wheel_earliest(struct wheel *wheel, bool exact);
/* When wheel_expire should next be called: a deadline, or work ahead of one. */
uint64_t wheel_next_call(struct wheel *wheel);
/* Would wheel_expire hand back what has this deadline, the earliest, before its tick is over? */
bool wheel_is_sparse(const struct wheel *wheel, uint64_t earliest);

/* Any one, until NULL. */
hwt_timeout *wheel_pop(struct wheel *wheel);
/* Validator of debug builds and tests: counts the timeouts. */
size_t wheel_check(struct wheel *wheel);

/* The tick at which a deadline is due; the time of a tick. */
static inline uint64_t wheel_tick_floor(const struct wheel *wheel, uint64_t ns)
{
    uint64_t tick = (uint64_t)((unsigned __int128)ns * wheel->reciprocal >> 64);

    if (ns - tick * wheel->tick_ns >= wheel->tick_ns) /* the rounding costs at most one */
        tick++;
    return tick;
}

static inline uint64_t wheel_tick_of(const struct wheel *wheel, uint64_t deadline)
{
    uint64_t tick = wheel_tick_floor(wheel, deadline);
    return tick * wheel->tick_ns < deadline ? tick + 1 : tick;
}

static inline uint64_t wheel_tick_time(const struct wheel *wheel, uint64_t tick)
{
    return tick * wheel->tick_ns;
}

/* For the two kinds. */
void wheel_init(struct wheel *wheel, const struct wheel_ops *ops, uint64_t tick_ns, uint64_t now);
/* Files those of `from` that have reached `now` into `due`, the others anew. */
void wheel_refile(struct wheel *wheel, struct bucket *from, uint64_t now, struct bucket *due);
/* The exact earliest deadline of a bucket, by looking until one reaches the bucket's bound. */
uint64_t wheel_scan(const struct bucket *bucket);

#endif
