/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How late does one timeout run on an otherwise idle timer? A random delay of 1 to 20 ms, one at a
 * time at a tick of 10 us and at one of 1 ms, there also on the boot-time clock and in an event
 * loop, in turn with what the operating system gives a bare sleep.
 */
#include "producer.h"

#include <errno.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- a task that says when it started ---- */
struct wait {
    sem_t ran;
    uint64_t at;
};

static void stamp(hwt_timeout *timeout, void *arg)
{
    struct wait *wait = arg;

    (void)timeout;
    wait->at = clock_ns();
    sem_post(&wait->ran);
}

static uint64_t by_timer(hwt_timer *timer, uint64_t deadline)
{
    struct wait wait;

    sem_init(&wait.ran, 0, 0);
    bench_check(hwt_new_timeout_at(timer, stamp, &wait, deadline, NULL), "hwt_new_timeout_at");
    while (sem_wait(&wait.ran) != 0)
        ;
    sem_destroy(&wait.ran);
    return wait.at;
}

/* ---- bare sleeps to the same absolute time ---- */
static struct timespec to_timespec(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    return t;
}

static uint64_t by_futex(uint64_t deadline)
{
    struct timespec at = to_timespec(deadline);
    uint32_t word = 0;

    while (syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL,
                   FUTEX_BITSET_MATCH_ANY) == -1 &&
           errno == EINTR)
        ;
    return clock_ns();
}

static uint64_t by_nanosleep(uint64_t deadline)
{
    struct timespec at = to_timespec(deadline);

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    return clock_ns();
}

/* ---- the ways in turn, so that they share what else the machine is doing ---- */
enum way { TIMER_FINE, TIMER_COARSE, TIMER_BOOT, TIMER_LOOP, FUTEX, FUTEX_SLACK, NANOSLEEP, WAYS };

static bool is_timer(enum way way)
{
    return way < FUTEX;
}

struct samples {
    hwt_timer *timer[FUTEX];
    uint64_t boot_ahead; /* the boot-time clock, of the monotonic one */
    uint64_t *late[WAYS];
    uint64_t early[WAYS];
    size_t n;
};

/* The worker sets its timer slack to the least; a sleeper that has not is told apart. */
static uint64_t sleep_by(enum way way, const struct samples *s, uint64_t deadline)
{
    uint64_t at;

    prctl(PR_SET_TIMERSLACK, way == FUTEX_SLACK ? 50000UL : 1UL, 0, 0, 0);
    switch (way) {
    case FUTEX:
    case FUTEX_SLACK: at = by_futex(deadline); break;
    case NANOSLEEP: at = by_nanosleep(deadline); break;
    case TIMER_BOOT: at = by_timer(s->timer[way], deadline + s->boot_ahead); break;
    default: at = by_timer(s->timer[way], deadline); break;
    }
    return at;
}

static void sample(struct samples *s, enum way way, uint64_t delay)
{
    uint64_t deadline = clock_ns() + delay;
    int64_t late = (int64_t)(sleep_by(way, s, deadline) - deadline);

    s->early[way] += late < 0;
    s->late[way][s->n] = late < 0 ? 0 : (uint64_t)late;
}

static void report(struct bench *b, struct samples *s, const char *const *names)
{
    static const double percents[] = {10, 50, 90, 99, 99.9, 100};
    double bare = 0, limit;
    char metric[32];

    for (unsigned i = 0; i < WAYS; i++)
        sort_u64(s->late[i], s->n);
    bare = (double)percentile(s->late[FUTEX], s->n, 50) / 1e3;
    for (unsigned way = 0; way < WAYS; way++) {
        struct bench_row row = {
            is_timer(way) ? "hwt" : "kernel", names[way], 1, s->n, metric, "us", 0};

        for (unsigned i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
            limit = is_timer(way) && i == 1 ? bare + (way == TIMER_FINE ? 10 : 20) : 0;
            row.limit = limit;
            snprintf(metric, sizeof(metric), percents[i] < 100 ? "late p%g" : "late max",
                     percents[i]);
            bench_value(b, &row, (double)percentile(s->late[way], s->n, percents[i]) / 1e3);
        }
        row.metric = "early";
        row.unit = "times";
        row.limit = BENCH_NONE;
        bench_value(b, &row, (double)s->early[way]);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[WAYS] = {"10 us tick",           "1 ms tick",
                                            "1 ms tick, boot time", "1 ms tick, event loop",
                                            "futex, slack 1 ns",    "futex, default slack",
                                            "nanosleep, slack 1 ns"};
    struct samples s = {.n = 0};
    struct bench_loop loop;
    struct bench b;
    uint64_t seed = 3;
    size_t wanted;

    bench_open(&b, argc, argv, "one timeout at a time, beside a bare sleep");
    wanted = b.quick ? 60 : b.full ? 5000 : 1000;
    s.timer[TIMER_FINE] = bench_timer(HWT_USEC(10));
    s.timer[TIMER_COARSE] = bench_timer(HWT_MSEC(1));
    s.timer[TIMER_BOOT] = bench_timer_on(CLOCK_BOOTTIME, HWT_MSEC(1), NULL);
    s.boot_ahead = hwt_timer_now(s.timer[TIMER_BOOT]) - clock_ns();
    s.timer[TIMER_LOOP] = bench_timer_on(CLOCK_MONOTONIC, HWT_MSEC(1), &loop);
    for (unsigned i = 0; i < WAYS; i++)
        s.late[i] = bench_alloc(wanted * sizeof(uint64_t));
    for (; s.n < wanted; s.n++) {
        bench_progress(&b, "%zu of %zu", s.n, wanted);
        for (unsigned i = 0; i < WAYS; i++)
            sample(&s, i, rng_between(&seed, HWT_MSEC(1), HWT_MSEC(20)));
    }
    bench_loop_close(&loop);
    for (unsigned i = 0; i < FUTEX; i++)
        hwt_timer_destroy(s.timer[i]);
    report(&b, &s, names);
    for (unsigned i = 0; i < WAYS; i++)
        free(s.late[i]);
    return bench_close(&b);
}
