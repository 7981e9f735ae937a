/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mix: threads that schedule, cancel, move and drop their own and each other's timeouts, while
 * tasks and hooks do the same. Every timeout has a probe that records its ends, and mix_verify()
 * (stress/round.h) demands exactly one of each (G2), agreeing with the timer's own ledger (G3).
 *
 * What is written by the task alone (runs, rearms) is deliberately not atomic: ThreadSanitizer then
 * proves that runs never overlap (G14) and that cancel_sync and stop order them before their return
 * (G8). The other counters are relaxed, so as not to add an order that the library should give.
 */
#ifndef STRESS_MIX_H
#define STRESS_MIX_H

#include "stress.h"

enum { MIX_SLOTS = 64 };
enum { MIX_HOOK = 1, MIX_PERIODIC = 2, MIX_REARM = 4 };

struct mix_probe {
    uint32_t runs;            /* the task's */
    uint32_t rearms;          /* the task's: runs after which it was armed again */
    uint32_t flags;           /* the submitter's, before it submits */
    bool accepted;            /* the submitter's, after it submitted */
    _Atomic uint32_t cancels; /* cancel said true, or cancel_sync 1 */
    _Atomic uint32_t hooks;   /* `cancelled` was called */
    _Atomic uint32_t handed;  /* taken from stop's list */
    _Atomic bool busy;        /* the task is running */
    _Atomic bool sealed;      /* some cancel returned: no re-arm may succeed any more */
    _Atomic bool dead;        /* cancel_sync returned: no run may start or last */
    _Atomic uint64_t floor;   /* no deadline in force was ever below */
};

struct mix_round {
    hwt_timer *timer;
    struct mix_probe *probes;
    uint32_t capacity;
    _Atomic uint32_t used;
    _Atomic uint64_t no_buffers; /* submissions refused at max_pending */
    _Atomic uint64_t refusals;   /* jobs that the program's executor refused */
    _Atomic uint64_t pooled_runs;
    _Atomic uint32_t lists; /* stops that handed something back */
    _Atomic bool quit;      /* producers, come home */
    _Atomic bool stop_returned;
    bool stop_null; /* stop without a list: hooks instead */
    bool pooled;    /* tasks run on an executor's threads */
    uint64_t max_pending;
    _Atomic(hwt_timeout *) slots[MIX_SLOTS]; /* each holds a reference */
};
static struct mix_round mix;

/* What this thread is in the middle of: a hook may run here only on one of these accounts. */
struct mix_place {
    struct mix_probe *cancelling;
    struct mix_probe *last_run;
    hwt_timeout *running;
    bool stopping;
    bool refused; /* the executor refused the last job given to it */
};
static _Thread_local struct mix_place mix_here;

static inline uint32_t mix_get(const _Atomic uint32_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void mix_add(_Atomic uint32_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static inline bool mix_is(const _Atomic bool *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

static inline void mix_mark(_Atomic bool *flag)
{
    atomic_store_explicit(flag, true, memory_order_relaxed);
}

static inline uint64_t mix_delay(void)
{
    switch (stress_below(8)) {
    case 0: return 0;
    case 1: return stress_below(HWT_USEC(50));
    case 2:
    case 3:
    case 4: return stress_below(HWT_MSEC(3));
    case 5: return HWT_MSEC(20) + stress_below(HWT_MSEC(600));
    case 6: return HWT_SEC(1800) + stress_below(HWT_SEC(3600));
    default: return UINT64_MAX - stress_below(3);
    }
}

static inline uint64_t mix_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* To be called before the deadline takes effect, so that the floor is never above it. */
static inline void mix_lower_floor(struct mix_probe *probe, uint64_t delay)
{
    uint64_t floor = mix_sum(hwt_timer_now(mix.timer), delay);
    uint64_t old = atomic_load_explicit(&probe->floor, memory_order_relaxed);

    while (floor < old &&
           !atomic_compare_exchange_weak_explicit(&probe->floor, &old, floor, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* ---- shared handles: taking one out of its slot takes its reference ---- */
static inline void mix_put(hwt_timeout *timeout)
{
    hwt_timeout_unref(atomic_exchange(&mix.slots[stress_below(MIX_SLOTS)], timeout));
}

static inline hwt_timeout *mix_take(void)
{
    return atomic_exchange(&mix.slots[stress_below(MIX_SLOTS)], NULL);
}

static inline void mix_share(hwt_timeout *timeout)
{
    for (uint64_t copies = stress_below(3); copies > 0; copies--)
        mix_put(hwt_timeout_ref(timeout));
    mix_put(timeout);
}

/* ---- what may be done to a timeout ---- */
static inline void mix_cancel(hwt_timeout *timeout, struct mix_probe *probe)
{
    struct mix_probe *outer = mix_here.cancelling;
    bool won;

    mix_here.cancelling = probe;
    won = hwt_timeout_cancel(timeout);
    mix_here.cancelling = outer;
    mix_mark(&probe->sealed);
    if (!won)
        return;
    mix_add(&probe->cancels);
    if ((probe->flags & (MIX_PERIODIC | MIX_REARM)) != 0)
        return; /* it may be running: then the hook follows the task */
    STRESS_CHECK(hwt_timeout_state(timeout) == HWT_CANCELLED, "state %d after cancel",
                 (int)hwt_timeout_state(timeout));
    if ((probe->flags & MIX_HOOK) != 0)
        STRESS_CHECK(mix_get(&probe->hooks) == 1, "G10: %u hooks", mix_get(&probe->hooks));
}

static inline void mix_cancel_sync(hwt_timeout *timeout, struct mix_probe *probe)
{
    struct mix_probe *outer = mix_here.cancelling;
    int result;

    if (mix.pooled && mix_here.running != NULL && timeout != mix_here.running)
        return; /* two tasks that wait for each other would be the program's own deadlock */
    mix_here.cancelling = probe;
    result = hwt_timeout_cancel_sync(timeout);
    mix_here.cancelling = outer;
    if (timeout == mix_here.running) {
        STRESS_CHECK(result == -EDEADLK, "cancel_sync of oneself: %d", result);
        return;
    }
    STRESS_CHECK(result == 0 || result == 1, "cancel_sync: %d", result);
    if (result == 1)
        mix_add(&probe->cancels);
    STRESS_CHECK(!mix_is(&probe->busy), "running after cancel_sync");
    if ((probe->flags & (MIX_PERIODIC | MIX_REARM)) == 0)
        STRESS_CHECK(probe->runs <= 1, "%u runs", probe->runs); /* a race, unless it was ordered */
    mix_mark(&probe->sealed);
    mix_mark(&probe->dead);
}

static inline void mix_move(hwt_timeout *timeout, struct mix_probe *probe)
{
    bool sealed = mix_is(&probe->sealed);
    uint64_t delay = mix_delay();
    bool moved;

    if (timeout == mix_here.running)
        return; /* that would re-arm it: see mix_rearm */
    mix_lower_floor(probe, delay);
    if (stress_one_in(2))
        moved = hwt_timeout_reschedule(timeout, delay);
    else
        moved = hwt_timeout_reschedule_at(timeout, mix_sum(hwt_timer_now(mix.timer), delay));
    STRESS_CHECK(!moved || !sealed, "moved after a cancel had returned");
}

static inline void mix_look(const hwt_timeout *timeout, const struct mix_probe *probe)
{
    uint64_t deadline = hwt_timeout_deadline(timeout);
    hwt_state state = hwt_timeout_state(timeout);

    STRESS_CHECK(deadline >= atomic_load_explicit(&probe->floor, memory_order_relaxed) ||
                     deadline >= UINT64_C(1) << 58, /* "never" */
                 "deadline %" PRIu64 " was never asked for", deadline);
    STRESS_CHECK(hwt_timeout_timer(timeout) == mix.timer, "another timer");
    if (state == HWT_CANCELLED)
        STRESS_CHECK(hwt_timeout_is_cancelled(timeout), "cancelled, then not");
    if (state == HWT_EXPIRED)
        STRESS_CHECK(hwt_timeout_is_expired(timeout), "expired, then not");
}

/* Something at random to a timeout of somebody's; no_wait where a hook runs. */
static inline void mix_poke(bool no_wait)
{
    hwt_timeout *timeout = mix_take();
    struct mix_probe *probe;

    if (timeout == NULL)
        return;
    probe = hwt_timeout_arg(timeout);
    switch (stress_below(8)) {
    case 0:
    case 1:
    case 2: mix_cancel(timeout, probe); break;
    case 3:
        if (!no_wait)
            mix_cancel_sync(timeout, probe);
        break;
    case 4:
    case 5:
    case 6: mix_move(timeout, probe); break;
    default: mix_look(timeout, probe);
    }
    if (stress_one_in(3))
        hwt_timeout_unref(timeout);
    else
        mix_put(timeout);
}

/* ---- scheduling ---- */
static hwt_task mix_task, mix_hook;

static inline int mix_schedule(struct mix_probe *probe, uint64_t delay, hwt_timeout **handle)
{
    hwt_spec spec;

    if ((probe->flags & (MIX_HOOK | MIX_PERIODIC)) == 0 && stress_one_in(2))
        return hwt_new_timeout(mix.timer, mix_task, probe, delay, handle);
    if ((probe->flags & (MIX_HOOK | MIX_PERIODIC)) == 0)
        return hwt_new_timeout_at(mix.timer, mix_task, probe,
                                  mix_sum(hwt_timer_now(mix.timer), delay), handle);
    hwt_spec_init(&spec);
    spec.task = mix_task;
    spec.arg = probe;
    spec.delay_ns = delay;
    if ((probe->flags & MIX_HOOK) != 0)
        spec.cancelled = mix_hook;
    if ((probe->flags & MIX_PERIODIC) != 0) {
        spec.period_ns = HWT_USEC(50) + stress_below(HWT_MSEC(4));
        spec.period_mode = (hwt_period_mode)stress_below(3);
    }
    return hwt_schedule(mix.timer, &spec, handle);
}

static inline struct mix_probe *mix_new_probe(void)
{
    uint32_t index = atomic_fetch_add_explicit(&mix.used, 1, memory_order_relaxed);
    struct mix_probe *probe;

    if (index >= mix.capacity) {
        atomic_store_explicit(&mix.used, mix.capacity, memory_order_relaxed);
        return NULL;
    }
    probe = &mix.probes[index];
    probe->flags = (stress_one_in(3) ? 0u : MIX_HOOK) | (stress_one_in(8) ? MIX_PERIODIC : 0u);
    /* A re-arm needs no free place under max_pending, and so would pass it. */
    if ((probe->flags & MIX_PERIODIC) == 0 && mix.max_pending == 0 && stress_one_in(8))
        probe->flags |= MIX_REARM;
    return probe;
}

static inline int mix_submit(void)
{
    struct mix_probe *probe = mix_new_probe();
    bool drop = stress_one_in(4);
    hwt_timeout *const untouched = (hwt_timeout *)&mix;
    hwt_timeout *handle = untouched;
    uint64_t delay = mix_delay();
    int result;

    if (probe == NULL)
        return 0;
    mix_lower_floor(probe, delay);
    result = mix_schedule(probe, delay, drop ? NULL : &handle);
    if (result == 0) {
        probe->accepted = true;
        if (!drop)
            mix_share(handle);
        return 0;
    }
    STRESS_CHECK(handle == untouched, "an error of %d touched the handle", result);
    STRESS_CHECK(result == -ESHUTDOWN || (result == -ENOBUFS && mix.max_pending > 0),
                 "submission: %d", result);
    if (result == -ENOBUFS)
        atomic_fetch_add(&mix.no_buffers, 1);
    return result;
}

/* ---- what the library calls ---- */
static inline void mix_rearm(hwt_timeout *timeout, struct mix_probe *probe)
{
    bool sealed = mix_is(&probe->sealed);
    uint64_t delay = mix_delay();

    mix_lower_floor(probe, delay);
    if (!hwt_timeout_reschedule(timeout, delay))
        return;
    STRESS_CHECK(!sealed, "re-armed after a cancel had returned");
    probe->rearms++;
}

static inline void mix_in_task(void)
{
    switch (stress_below(24)) {
    case 0:
    case 1: mix_submit(); break;
    case 2:
    case 3: mix_poke(false); break;
    case 4: STRESS_CHECK(hwt_timer_stop(mix.timer, NULL) == -EDEADLK, "stop from a task"); break;
    case 5: stress_spin(stress_below(HWT_USEC(100))); break;
    default: break;
    }
}

static void mix_task(hwt_timeout *timeout, void *arg)
{
    struct mix_probe *probe = arg;
    struct mix_place outer = mix_here;
    uint64_t now = hwt_timer_now(mix.timer);

    STRESS_CHECK(!atomic_exchange_explicit(&probe->busy, true, memory_order_relaxed),
                 "G14: it runs twice at once");
    STRESS_CHECK(!mix_is(&probe->dead), "runs after cancel_sync");
    STRESS_CHECK(!mix_is(&mix.stop_returned), "G8: runs after stop");
    STRESS_CHECK(now >= hwt_timeout_deadline(timeout), "G1: %" PRIu64 " ns early",
                 hwt_timeout_deadline(timeout) - now);
    STRESS_CHECK(now >= atomic_load_explicit(&probe->floor, memory_order_relaxed),
                 "G1: under its floor");
    probe->runs++;
    mix_here.running = timeout;
    mix_here.cancelling = NULL;
    mix_in_task();
    if ((probe->flags & MIX_REARM) != 0)
        mix_rearm(timeout, probe);
    STRESS_CHECK(!mix_is(&probe->dead) && !mix_is(&mix.stop_returned), "runs on after the end");
    mix_here = outer;
    mix_here.last_run = probe;
    atomic_store_explicit(&probe->busy, false, memory_order_relaxed);
}

static void mix_hook(hwt_timeout *timeout, void *arg)
{
    struct mix_probe *probe = arg;
    struct mix_place outer = mix_here;

    mix_add(&probe->hooks);
    STRESS_CHECK((probe->flags & MIX_HOOK) != 0, "a hook that nobody set");
    STRESS_CHECK(!mix_is(&probe->busy), "the hook runs beside its task");
    STRESS_CHECK(hwt_timeout_is_cancelled(timeout), "G10: the hook of one that is not cancelled");
    STRESS_CHECK(outer.cancelling == probe || outer.last_run == probe || outer.stopping ||
                     outer.refused,
                 "G10: the hook runs on a stranger's thread");
    if (stress_one_in(8))
        mix_submit();
    if (stress_one_in(16))
        mix_poke(true);
    mix_here = outer;
}

#endif
