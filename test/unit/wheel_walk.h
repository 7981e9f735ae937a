/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A random walk of a wheel and its oracle: whatever can be done to a wheel, the validator after. It
 * takes nine tenths of the time; with HWT_TEST_LOOK_EVERY=n it looks after every nth step only.
 */
#ifndef HWT_TEST_WHEEL_WALK_H
#define HWT_TEST_WHEEL_WALK_H

#include "wheel_oracle.h"

#define WALK_MOST     400
#define WALK_CAPACITY 1000 /* with those that are over and not handed back yet */

struct walk {
    struct oracle oracle;
    uint64_t random;
    uint64_t tick_ns;
    uint32_t slots;
    bool exact;                          /* always: then both kinds go the same way */
    void (*before_step)(struct walk *w); /* may be NULL */
    uint64_t steps, look_every;
};

static inline uint64_t pick(struct walk *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

/* A span of time at the scale of a random level, as often as not close to its boundary. */
static inline uint64_t random_span(struct walk *w)
{
    uint64_t span = w->tick_ns;

    for (uint64_t levels = pick(w, 5); levels > 0 && span < HWT_SEC(86400 * 300); levels--)
        span *= w->slots;
    if (pick(w, 2))
        return pick(w, 3 * span);
    return span * (1 + pick(w, 3)) + pick(w, 3 * w->tick_ns) - w->tick_ns;
}

static inline uint64_t after(uint64_t now, uint64_t span)
{
    return span >= DEADLINE_NEVER - min_u64(now, DEADLINE_NEVER) ? DEADLINE_NEVER : now + span;
}

static inline uint64_t random_deadline(struct walk *w)
{
    uint64_t now = w->oracle.now;

    switch (pick(w, 16)) {
    case 0: /* past */ return now - min_u64(now, random_span(w));
    case 1: return now;
    case 2: return DEADLINE_NEVER;
    case 3: /* on a tick, or beside one */
        return after(now - now % w->tick_ns, w->tick_ns * pick(w, 5) + pick(w, 3));
    default: return after(now, random_span(w));
    }
}

/* One to which there is a handle, from any on; NULL: there is none. */
static inline hwt_timeout *random_live(struct walk *w)
{
    const struct oracle *o = &w->oracle;
    size_t from = o->count ? pick(w, o->count) : 0;

    for (size_t i = 0; i < o->count; i++) {
        hwt_timeout *timeout = o->sorted[(from + i) % o->count];
        if (!timeout_is_alone(timeout))
            return timeout;
    }
    return NULL;
}

static inline uint64_t random_now(struct walk *w)
{
    struct oracle *o = &w->oracle;

    switch (pick(w, 6)) {
    case 0: /* as the worker sleeps */
        if (w->exact)
            return o->now;
        return max_u64(o->now, min_u64(wheel_next_call(o->wheel), o->now + HWT_SEC(86400)));
    case 1: /* as a caller that asks does */
        return max_u64(o->now, min_u64(oracle_earliest(o), o->now + HWT_SEC(86400 * 30)));
    case 2: return o->now + min_u64(random_span(w), HWT_SEC(86400 * 30));
    default: return o->now + pick(w, 4 * w->tick_ns);
    }
}

static inline void move_one(struct walk *w, hwt_timeout *timeout)
{
    struct oracle *o = &w->oracle;
    uint64_t deadline = oracle_deadline(timeout);

    if (pick(w, 3) || o->nudges == COUNT_OF(o->nudge))
        oracle_move_later(o, timeout, after(deadline, random_span(w)));
    else if (deadline > 0)
        oracle_move_earlier(o, timeout, min_u64(deadline - 1, random_deadline(w)));
}

/* Cancelled: in time, or just while it is moved. */
static inline void remove_one(struct walk *w, hwt_timeout *timeout)
{
    if (pick(w, 3) == 0 || !oracle_withdraw(&w->oracle, timeout))
        oracle_remove_over(&w->oracle, timeout);
}

static inline void random_step(struct walk *w)
{
    struct oracle *o = &w->oracle;
    uint64_t what = pick(w, 20);
    hwt_timeout *live = random_live(w);

    if (what < 10 && o->count < WALK_MOST)
        oracle_insert(o, random_deadline(w));
    else if (what < 12 && live)
        remove_one(w, live);
    else if (what < 13 && live)
        oracle_remove(o, live);
    else if (what < 16 && live)
        move_one(w, live);
    else if (what < 17 && o->nudges)
        oracle_take_nudge(o);
    else
        oracle_advance(o, random_now(w), pick(w, 2) || w->exact);
}

static inline void walk_open(struct walk *w, hwt_wheel_kind kind, uint64_t epoch)
{
    const char *look = getenv("HWT_TEST_LOOK_EVERY");

    oracle_open(&w->oracle, kind, w->tick_ns, w->slots, epoch, WALK_CAPACITY);
    w->oracle.shuffle = 15;
    w->oracle.random = w->random;
    w->look_every = look ? max_u64(strtoull(look, NULL, 10), 1) : 1;
}

static inline void walk_step(struct walk *w)
{
    bool look = w->steps++ % w->look_every == 0;

    if (w->before_step)
        w->before_step(w);
    random_step(w);
    if (look)
        oracle_check_count(&w->oracle);
    oracle_check_bounds(&w->oracle);
    if (pick(w, 8))
        return;
    oracle_check_earliest(&w->oracle);
    if (look)
        oracle_check_count(&w->oracle);
}

static inline void walk_close(struct walk *w)
{
    oracle_drain(&w->oracle);
    oracle_close(&w->oracle);
}

static inline void random_walk(struct walk *w, hwt_wheel_kind kind, uint64_t epoch, unsigned steps)
{
    walk_open(w, kind, epoch);
    for (unsigned i = 0; i < steps; i++)
        walk_step(w);
    cr_assert_gt(w->oracle.expired, steps / 50);
    walk_close(w);
}

#endif
