/* SPDX-License-Identifier: BSD-2-Clause */
#include "producer.h"

#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define EARLIEST HWT_SEC(1)
#define LATEST   HWT_SEC(60)

void bench_check(int result, const char *what)
{
    if (result < 0)
        bench_die(what, result);
}

void bench_ignore(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void *run_loop(void *arg)
{
    struct bench_loop *loop = arg;
    struct pollfd wanted = {.fd = hwt_timer_fd(loop->timer), .events = POLLIN, .revents = 0};
    uint64_t before;
    int ran;

    do {
        poll(&wanted, 1, -1);
        before = clock_ns();
        ran = hwt_timer_advance(loop->timer);
        before = clock_ns() - before;
        loop->longest_ns = before > loop->longest_ns ? before : loop->longest_ns;
    } while (ran >= 0);
    return NULL;
}

hwt_timer *bench_timer_on(clockid_t clock, uint64_t tick_ns, struct bench_loop *loop)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.tick_ns = tick_ns;
    config.clock_id = clock;
    config.drive = loop ? HWT_DRIVE_CALLER : HWT_DRIVE_WORKER;
    bench_check(hwt_timer_create(&timer, &config), "hwt_timer_create");
    bench_check(hwt_timer_start(timer), "hwt_timer_start");
    if (loop) {
        *loop = (struct bench_loop){.timer = timer};
        bench_check(-pthread_create(&loop->thread, NULL, run_loop, loop), "pthread_create");
    }
    return timer;
}

void bench_loop_close(struct bench_loop *loop)
{
    bench_check(hwt_timer_stop(loop->timer, NULL), "hwt_timer_stop");
    pthread_join(loop->thread, NULL);
}

hwt_timer *bench_timer(uint64_t tick_ns)
{
    return bench_timer_on(CLOCK_MONOTONIC, tick_ns, NULL);
}

static uint64_t read_virtual(void *clock)
{
    return *(uint64_t *)clock;
}

hwt_timer *bench_virtual_timer(hwt_wheel_kind kind, uint64_t tick_ns, uint64_t *now)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.wheel = kind;
    config.tick_ns = tick_ns;
    config.now = read_virtual;
    config.clock = now;
    bench_check(hwt_timer_create(&timer, &config), "hwt_timer_create");
    return timer;
}

static void post(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    sem_post(arg);
}

void bench_sync(hwt_timer *timer)
{
    sem_t ran;

    sem_init(&ran, 0, 0);
    bench_check(hwt_new_timeout(timer, post, &ran, 0, NULL), "hwt_new_timeout");
    while (sem_wait(&ran) != 0)
        ;
    sleep_ns(HWT_MSEC(1)); /* the post comes from inside the task; let the pass end as well */
    sem_destroy(&ran);
}

struct producer *producers_new(unsigned n, hwt_timer *timer)
{
    struct producer *p = bench_alloc(n * sizeof(*p));

    for (unsigned i = 0; i < n; i++) {
        p[i].seed = UINT64_C(0x9E3779B97F4A7C15) * (i + 1);
        p[i].timer = timer;
    }
    return p;
}

/* ---- nothing but one clock read ---- */
static void clock_batch(void *self)
{
    struct producer *p = self;
    uint64_t seed = p->seed;

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        uint64_t delay = rng_between(&seed, EARLIEST, LATEST);
        hwt_timeout **place = &p->ring[p->next++ % PRODUCER_DEPTH];

        *place = (hwt_timeout *)(uintptr_t)(clock_ns() + delay);
    }
    p->seed = seed;
}

static void clock_end(void *self)
{
    struct producer *p = self;

    memset(p->ring, 0, sizeof(p->ring));
}

const struct work producer_clock = {NULL, clock_batch, clock_end};

/* ---- replace the oldest ---- */
static void fill(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < PRODUCER_DEPTH; i++)
        bench_check(hwt_new_timeout(p->timer, bench_ignore, p,
                                    rng_between(&p->seed, EARLIEST, LATEST), &p->ring[i]),
                    "hwt_new_timeout");
}

static void drain(void *self)
{
    struct producer *p = self;

    for (unsigned i = 0; i < PRODUCER_DEPTH; i++) {
        hwt_timeout_cancel(p->ring[i]);
        hwt_timeout_unref(p->ring[i]);
        p->ring[i] = NULL;
    }
}

static void relative_batch(void *self)
{
    struct producer *p = self;
    uint64_t seed = p->seed;

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        uint64_t delay = rng_between(&seed, EARLIEST, LATEST);
        hwt_timeout **place = &p->ring[p->next++ % PRODUCER_DEPTH];

        hwt_timeout_cancel(*place);
        hwt_timeout_unref(*place);
        bench_check(hwt_new_timeout(p->timer, bench_ignore, p, delay, place), "hwt_new_timeout");
    }
    p->seed = seed;
}

const struct work producer_relative = {fill, relative_batch, drain};

/* The clock is read once for the whole batch, as an event loop does once per round. */
static void absolute_batch(void *self)
{
    struct producer *p = self;
    uint64_t seed = p->seed;
    uint64_t now = hwt_timer_now(p->timer);

    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        uint64_t deadline = now + rng_between(&seed, EARLIEST, LATEST);
        hwt_timeout **place = &p->ring[p->next++ % PRODUCER_DEPTH];

        hwt_timeout_cancel(*place);
        hwt_timeout_unref(*place);
        bench_check(hwt_new_timeout_at(p->timer, bench_ignore, p, deadline, place),
                    "hwt_new_timeout_at");
    }
    p->seed = seed;
}

const struct work producer_absolute = {fill, absolute_batch, drain};

double producers_clock(unsigned n, double seconds)
{
    struct producer *p = producers_new(n, NULL);
    struct window w;

    window_run(&producer_clock, p, sizeof(*p), n, seconds, &w);
    free(p);
    return window_cpu(&w);
}
