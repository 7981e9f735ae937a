/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The producer that most questions are put to: it keeps some timeouts outstanding, due in 1 to
 * 60 s, and replaces the oldest one again and again, as a client of many short calls does.
 */
#ifndef HWT_BENCH_PRODUCER_H
#define HWT_BENCH_PRODUCER_H

#include <hwt.h>
#include <pthread.h>

#include "harness.h"

#define PRODUCER_DEPTH 1024

struct producer {
    _Alignas(2 * BENCH_LINE) uint64_t seed;
    hwt_timer *timer;
    unsigned next;
    uint64_t sink;
    hwt_timeout *ring[PRODUCER_DEPTH];
};

/* The three loops differ in nothing but what stands between the random number and the ring. */
extern const struct work producer_clock;    /* one clock read, kept in the ring */
extern const struct work producer_relative; /* cancel, unref, hwt_new_timeout */
extern const struct work producer_absolute; /* cancel, unref, hwt_new_timeout_at */

struct producer *producers_new(unsigned n, hwt_timer *timer);
double producers_clock(unsigned n, double seconds); /* CPU ns a turn of producer_clock */

/* A timer with a worker, everything else at its default but the tick (0: also that). */
hwt_timer *bench_timer(uint64_t tick_ns);
/* The same on another clock; driven by the caller with `loop`, of which it then is the timer. */
struct bench_loop;
hwt_timer *bench_timer_on(clockid_t clock, uint64_t tick_ns, struct bench_loop *loop);
/* An event loop: a thread that waits for the timer's descriptor, and advances it. */
struct bench_loop {
    hwt_timer *timer;
    pthread_t thread;
    uint64_t longest_ns; /* of all calls of advance, once it is closed */
};
/* Stops the timer, and waits for the thread. */
void bench_loop_close(struct bench_loop *loop);
/* A timer driven by the caller through a clock that is the variable behind the pointer. */
hwt_timer *bench_virtual_timer(hwt_wheel_kind kind, uint64_t tick_ns, uint64_t *now);
void bench_check(int result, const char *what);     /* ends the program on an error */
void bench_ignore(hwt_timeout *timeout, void *arg); /* a task that does nothing */

/*
 * Returns once a timeout that is due at once has run: by then the worker has taken in everything
 * that was submitted or cancelled before.
 */
void bench_sync(hwt_timer *timer);

#endif
