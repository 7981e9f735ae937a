/* SPDX-License-Identifier: BSD-2-Clause */
#include <hwt.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "inflight.h"

#define PERIOD HWT_MSEC(10)
#define LEAD   HWT_MSEC(100)
#define ROOM   65536u

struct watch {
    struct event event; /* first */
    const struct peer *peer;
    void *timer;
    _Atomic uint64_t due;
    _Atomic bool counts;
    _Atomic size_t n;
    uint64_t overdue; /* what had not run in the end */
    uint64_t late[ROOM + 1];
};

static void note(struct watch *watch)
{
    uint64_t now = clock_ns(), due = atomic_load(&watch->due);
    size_t n = atomic_load_explicit(&watch->n, memory_order_relaxed);

    if (atomic_load(&watch->counts) && n < ROOM) {
        watch->late[n] = now > due ? now - due : 0;
        atomic_store_explicit(&watch->n, n + 1, memory_order_release);
    }
    atomic_store(&watch->due, due + PERIOD);
}

/* ---- this library: a periodic timeout ---- */
static void run(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    note(arg);
}

static void start_ours(struct watch *watch)
{
    hwt_timeout *timeout;
    hwt_spec spec;
    int error;

    hwt_spec_init(&spec);
    spec.task = run;
    spec.arg = watch;
    spec.delay_ns = LEAD;
    spec.period_ns = PERIOD;
    error = hwt_schedule(watch->timer, &spec, &timeout);
    if (error)
        bench_die("hwt_schedule", error);
    atomic_store(&watch->due, hwt_timeout_deadline(timeout));
    hwt_timeout_unref(timeout);
}

/* ---- others: each run schedules the next ---- */
static void again(struct event *event)
{
    struct watch *watch = (struct watch *)event;

    note(watch);
    watch->peer->schedule(watch->timer, atomic_load(&watch->due), event, false);
}

static void start_theirs(struct watch *watch)
{
    watch->event.fire = again;
    atomic_store(&watch->due, clock_ns() + LEAD);
    watch->peer->schedule(watch->timer, atomic_load(&watch->due), &watch->event, false);
}

/* ---- bare sleeps ---- */
static void *sleep_on(void *arg)
{
    struct watch *watch = arg;

    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    for (;;) {
        struct timespec at = peer_timespec(atomic_load(&watch->due));

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
        note(watch);
    }
    return NULL;
}

static void start_sleeper(struct watch *watch)
{
    pthread_t thread;
    int error;

    atomic_store(&watch->due, clock_ns() + LEAD);
    error = pthread_create(&thread, NULL, sleep_on, watch);
    if (error)
        bench_die("pthread_create", error);
    pthread_detach(thread);
}

/* ---- the interface ---- */
struct watch *watch_new(void)
{
    return bench_alloc(sizeof(struct watch));
}

void watch_start(struct watch *watch, const struct peer *peer, void *timer)
{
    watch->peer = peer;
    watch->timer = timer;
    if (!peer)
        start_sleeper(watch);
    else if (peer == &peer_hwt)
        start_ours(watch);
    else
        start_theirs(watch);
}

void watch_begin(struct watch *watch)
{
    atomic_store(&watch->n, 0);
    atomic_store(&watch->counts, true);
}

void watch_end(struct watch *watch)
{
    uint64_t now = clock_ns(), due = atomic_load(&watch->due);

    atomic_store(&watch->counts, false);
    watch->overdue = now > due + PERIOD ? now - due : 0;
}

size_t watch_late(struct watch *watch, const uint64_t **late, size_t *runs)
{
    size_t n = atomic_load_explicit(&watch->n, memory_order_acquire);

    *runs = n;
    *late = watch->late;
    if (watch->overdue)
        watch->late[n++] = watch->overdue;
    sort_u64(watch->late, n);
    return n;
}
