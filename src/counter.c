/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows of the CPU's counter: how they are opened, and the rate they go by. */
#include "counter.h"

#if PLATFORM_COUNTER

#include "atomic.h"

#define SPAN    (UINT64_C(1) << 17) /* of a window: 50 us at 2.6 GHz, as below */
#define BRIEF   (UINT64_C(1) << 21) /* the first rate is learned over this: 0.8 ms */
#define LONG    (UINT64_C(1) << 31) /* the next ones: 0.8 s */
#define BRACKET 512                 /* beyond, the clock does not go by the counter any more */
#define TRIES   3

enum trust { TRUST_UNKNOWN, TRUST_NOT, TRUST_IT };

/* Of the process. */
static struct {
    _Atomic unsigned trust; /* enum trust; constant once the first timer is there */
    _Atomic bool learning;  /* by whoever has set it: who finds it set goes on without */
    _Atomic uint64_t rate;  /* nanoseconds in 2^32 counts; 0: not known */
    _Atomic uint64_t from;  /* the counter and the clock when it was learned, or began to be */
    _Atomic uint64_t ns;
} process;

_Thread_local struct counter_window counter_window;

/* ---- both at once ---- */

struct pair {
    uint64_t from, ns; /* the counter, and the clock as it stood then */
    uint64_t bracket;  /* counts that it took to read both */
};

/*
 * The clock reads the counter as well, soon after it is called: a fifth of the way, as measured on
 * an AMD EPYC. With that, what a window tells lies between two readings of the clock around it.
 */
static struct pair read_pair(void)
{
    uint64_t before = platform_counter();
    uint64_t ns = clock_system_now(CLOCK_MONOTONIC);
    uint64_t bracket = platform_counter_after() - before;

    return (struct pair){before + bracket / 5, ns, bracket};
}

/*
 * Again, if it took longer than at best: an interrupt came between, or a line that was not in the
 * cache. False: each time; what is taken for the best grows, as a CPU may have become slower.
 */
static bool read_closely(struct pair *pair, uint64_t *best)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        *pair = read_pair();
        least = min_u64(least, pair->bracket);
        if (pair->bracket <= *best + *best / 8) {
            *best = min_u64(*best, pair->bracket);
            return true;
        }
    }
    *best = min_u64(*best ? *best + *best / 4 : least, BRACKET);
    return false;
}

/* ---- the rate ---- */

/* 0: no counter runs like that. */
static uint64_t rate_between(uint64_t counts, uint64_t ns)
{
    double rate = (double)ns / (double)counts * 0x1p32;

    return rate > 0x1p28 && rate < 0x1p34 ? (uint64_t)rate : 0; /* 16 to 0.25 GHz */
}

static bool is_near(uint64_t a, uint64_t b, uint64_t apart)
{
    return (a > b ? a - b : b - a) <= apart;
}

/* The rate from now on; 0: it is learned anew, from here on. `ns` 0: from the next pair on. */
static void begin_at(uint64_t from, uint64_t ns, uint64_t rate)
{
    store_relaxed(&process.rate, rate);
    store_relaxed(&process.from, from);
    store_relaxed(&process.ns, ns);
}

/* Whether there is something to learn from a pair of now. */
static bool is_ripe(uint64_t counter, uint64_t rate)
{
    return counter - load_relaxed(&process.from) >= (rate ? LONG : BRIEF);
}

/* Another thread has learned since it was read; unless it is the counter that has begun anew. */
static bool is_outdated(const struct pair *pair)
{
    uint64_t from = load_relaxed(&process.from);

    return (int64_t)(pair->from - from) < 0 && (int64_t)(platform_counter_after() - from) >= 0;
}

static void learn_from(const struct pair *pair, uint64_t rate)
{
    uint64_t counts = pair->from - load_relaxed(&process.from), found = 0;
    uint64_t ns = load_relaxed(&process.ns);

    if (ns && (rate || counts < LONG)) /* what is older may have slept in between */
        found = rate_between(counts, pair->ns - ns);
    begin_at(pair->from, pair->ns, !rate || is_near(found, rate, rate >> 10) ? found : 0);
}

/* By one thread at a time; the others go on without. `wrong`: the rate is not what it was. */
static void learn(const struct pair *pair, bool wrong)
{
    uint64_t rate;

    if (exchange_acq_rel(&process.learning, true))
        return;
    rate = load_relaxed(&process.rate);
    if (wrong)
        begin_at(pair->from, pair->bracket <= BRACKET ? pair->ns : 0, 0);
    else if (is_ripe(pair->from, rate) && !is_outdated(pair)) /* and nobody was first */
        learn_from(pair, rate);
    store_release(&process.learning, false);
}

/* ---- windows ---- */

/* What the last one would have told by now, if it is not long ago. */
static bool was_right(const struct counter_window *window, const struct pair *pair)
{
    uint64_t gone = pair->from - window->from, passed;

    if (!window->span || gone > 8 * SPAN)
        return true;
    passed = gone * window->rate >> 32;
    return is_near(window->ns + passed, pair->ns, (passed >> 10) + 50);
}

static uint64_t open_window(struct counter_window *window)
{
    struct pair pair;
    bool close = read_closely(&pair, &window->bracket);
    bool wrong = close ? !was_right(window, &pair) : pair.bracket > BRACKET;
    uint64_t rate;

    if (wrong || (close && is_ripe(pair.from, load_relaxed(&process.rate))))
        learn(&pair, wrong);
    rate = close ? load_relaxed(&process.rate) : 0;
    window->from = window->seen = pair.from;
    window->span = rate ? SPAN : 0;
    window->ns = pair.ns;
    window->rate = rate;
    return pair.ns;
}

uint64_t counter_read(uint64_t delay)
{
    struct counter_window *window = &counter_window;
    uint64_t counter, rate;

    if (delay < COUNTER_DELAY || load_relaxed(&process.trust) != TRUST_IT)
        return clock_system_now(CLOCK_MONOTONIC);
    counter = platform_counter();
    hwt_assert(!window->span || counter - window->from >= window->span);
    rate = load_relaxed(&process.rate);
    if (counter - window->seen < 2 * SPAN && (rate || is_ripe(counter, 0)))
        return open_window(window);
    window->span = 0; /* asked too seldom for one to pay, or of no use yet */
    window->seen = counter;
    return clock_system_now(CLOCK_MONOTONIC);
}

/* ---- the process ---- */

/* Two threads may find it out at once, or a fork leave one behind: each finds the same. */
void counter_find(void)
{
    uint64_t best = 0;
    struct pair pair;

    if (load_relaxed(&process.trust) != TRUST_UNKNOWN)
        return;
    if (platform_counter_is_clock())
        read_closely(&pair, &best);
    store_relaxed(&process.trust, best > 0 && best < BRACKET ? TRUST_IT : TRUST_NOT);
}

void counter_after_fork(void)
{
    counter_window.span = 0;
    begin_at(0, 0, 0); /* what the parent read is no measure of another clock */
    store_relaxed(&process.learning, false);
}

#else

void counter_find(void)
{
}

void counter_after_fork(void)
{
}

#endif
