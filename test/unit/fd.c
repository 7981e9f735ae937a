/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt_timer_fd: a caller-driven timer in an event loop, in real time. Readable
 * when hwt_timer_advance has something to do, not before (G1), also for what
 * another thread submits (G4), and no busy wake-ups (G5).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "support.h"

TestSuite(fd, .init = test_arm);

static hwt_timer *loop_timer(hwt_wheel_kind wheel, clockid_t clock)
{
    return timer_on(wheel, HWT_DRIVE_CALLER, clock);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

/* A loop as a user writes it; returns how often it was woken. */
static unsigned loop_until(hwt_timer *timer, int fd, const atomic_uint *counter, unsigned target)
{
    uint64_t give_up = real_now(CLOCK_MONOTONIC) + HWT_SEC(PATIENCE_S);
    unsigned wakeups = 0;

    while (atomic_load(counter) < target && real_now(CLOCK_MONOTONIC) < give_up) {
        if (!readable(fd, PATIENCE_S * 1000))
            break;
        wakeups++;
        if (hwt_timer_advance(timer) < 0)
            break;
    }
    return wakeups;
}

/* ---- errors ---- */

Test(fd, errors)
{
    hwt_timer *timer = worker_timer();
    rig r;

    cr_assert_eq(hwt_timer_fd(timer), -EINVAL, "driven by a worker");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    cr_assert_eq(hwt_timer_fd(r.timer), -ENOTSUP, "no descriptor follows such a clock");
    rig_close(&r);
    cr_assert_eq(hwt_timer_fd(NULL), -EINVAL);
}

/* Owned by the timer: one descriptor, closed with it, not inherited by exec. */
Test(fd, is_the_timers_own)
{
    hwt_timer *timer = loop_timer(HWT_WHEEL_HIERARCHICAL, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);

    cr_assert_geq(fd, 0);
    cr_assert_eq(hwt_timer_fd(timer), fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(fcntl(fd, F_GETFD), -1);
    cr_assert_eq(errno, EBADF);
}

Test(fd, no_descriptor_is_leaked)
{
    int first = -1;

    for (unsigned i = 0; i < 200; i++) {
        hwt_timer *timer = loop_timer(HWT_WHEEL_HIERARCHICAL, CLOCK_MONOTONIC);
        int fd = hwt_timer_fd(timer);

        cr_assert_geq(fd, 0);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
        if (first < 0)
            first = fd;
        cr_assert_eq(fd, first);
    }
}

/* ---- readable on due ---- */

WHEEL_TEST(fd, readable_on_due)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};

    for (size_t c = 0; c < COUNT_OF(clocks); c++) {
        hwt_timer *timer = loop_timer(wheel, clocks[c]);
        int fd = hwt_timer_fd(timer);
        hwt_timeout *timeout;
        unsigned wakeups;
        probe p = {0};

        cr_assert_not(readable(fd, 0), "nothing pending");
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(30), &timeout), 0);
        wakeups = loop_until(timer, fd, &p.runs, 1);
        cr_assert_eq(p.runs, 1);
        cr_assert_eq(p.early, 0, "G1");
        cr_assert_geq(p.ran_at, hwt_timeout_deadline(timeout));
        cr_assert_leq(wakeups, 3, "busy: %u wake-ups for one timeout", wakeups);
        cr_assert_not(readable(fd, 20), "nothing left to do");
        hwt_timeout_unref(timeout);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

WHEEL_TEST(fd, asked_for_after_scheduling)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(10), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0);
    loop_until(timer, hwt_timer_fd(timer), &p.runs, 2);
    cr_assert_eq(p.runs, 2);
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(fd, already_overdue)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);
    probe p = {0};

    for (unsigned i = 1; i <= 50; i++) {
        cr_assert_eq(hwt_new_timeout_at(timer, probe_task, &p, i % 2, NULL), 0);
        cr_assert(readable(fd, PATIENCE_S * 1000), "overdue, but silent");
        cr_assert_eq(hwt_timer_advance(timer), 1);
        cr_assert_eq(p.runs, i);
    }
    cr_assert_not(readable(fd, 20));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* It stays readable until the caller has advanced: level-triggered loops lose nothing. */
WHEEL_TEST(fd, stays_readable_until_advanced)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(1), NULL), 0);
    sleep_ms(10);
    for (unsigned i = 0; i < 5; i++)
        cr_assert(readable(fd, PATIENCE_S * 1000));
    cr_assert_eq(p.runs, 0);
    cr_assert_eq(hwt_timer_advance(timer), 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- what changes the next deadline ---- */

WHEEL_TEST(fd, an_earlier_one_comes_first)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);
    hwt_timeout *far;
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(3600), &far), 0);
    cr_assert_not(readable(fd, 5));
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(5), NULL), 0);
    loop_until(timer, fd, &p.runs, 1);
    cr_assert_eq(p.runs, 1, "a later submission for earlier");
    cr_assert(hwt_timeout_reschedule(far, HWT_MSEC(5)));
    loop_until(timer, fd, &p.runs, 2);
    cr_assert_eq(p.runs, 2, "a move to earlier");
    cr_assert_eq(p.early, 0, "G1");
    hwt_timeout_unref(far);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* The earliest is cancelled or moved on: at most one wake-up for nothing, then silence. */
WHEEL_TEST(fd, quiet_after_the_earliest_went_away)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);
    hwt_timeout *a, *b;
    unsigned wakeups = 0;
    uint64_t end = real_now(CLOCK_MONOTONIC) + HWT_MSEC(200);

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(20), &a), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(30), &b), 0);
    cr_assert_geq(hwt_timer_advance(timer), 0);
    if (!hwt_timeout_cancel(a) || !hwt_timeout_reschedule(b, HWT_SEC(3600)))
        cr_skip_test("stalled for longer than the delay");
    while (real_now(CLOCK_MONOTONIC) < end) {
        if (readable(fd, 100)) {
            wakeups++;
            cr_assert_eq(hwt_timer_advance(timer), 0);
        }
    }
    cr_assert_leq(wakeups, 2, "G5: %u", wakeups);
    hwt_timeout_unref(a);
    hwt_timeout_unref(b);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(fd, quiet_while_an_hour_away)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, UINT64_MAX, NULL), 0);
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_not(readable(fd, 200), "G5");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- other threads ---- */

typedef struct submitter {
    hwt_timer *timer;
    probe *probes;
    unsigned count;
    int failed;
} submitter;

static void *submit_thread(void *arg)
{
    submitter *s = arg;

    for (unsigned i = 0; i < s->count; i++) {
        usleep(500);
        s->failed |=
            hwt_new_timeout(s->timer, probe_task, &s->probes[i], HWT_USEC(i * 7919 % 4000), NULL);
    }
    return NULL;
}

/* G4: the loop sleeps towards an hour; others submit what is due at once and soon. */
WHEEL_TEST(fd, an_earlier_one_from_another_thread)
{
    static probe p[200];
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    int fd = hwt_timer_fd(timer);
    submitter s = {.timer = timer, .probes = p, .count = COUNT_OF(p)};
    unsigned wakeups = 0;
    pthread_t thread;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_timer_advance(timer), 0);
    cr_assert_eq(pthread_create(&thread, NULL, submit_thread, &s), 0);
    for (unsigned i = 0; i < COUNT_OF(p); i++) {
        wakeups += loop_until(timer, fd, &p[i].runs, 1);
        cr_assert_eq(p[i].runs, 1, "missed number %u", i);
        cr_assert_eq(p[i].early, 0, "G1");
    }
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(s.failed, 0);
    cr_assert_leq(wakeups, 5 * COUNT_OF(p), "busy: %u wake-ups", wakeups);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- epoll, level- and edge-triggered, with many timeouts ---- */

static unsigned epoll_until(hwt_timer *timer, uint32_t events, const atomic_uint *counter,
                            unsigned target)
{
    struct epoll_event event = {.events = events};
    int loop = epoll_create1(EPOLL_CLOEXEC);
    unsigned wakeups = 0;

    cr_assert_geq(loop, 0);
    cr_assert_eq(epoll_ctl(loop, EPOLL_CTL_ADD, hwt_timer_fd(timer), &event), 0);
    while (atomic_load(counter) < target) {
        if (epoll_wait(loop, &event, 1, PATIENCE_S * 1000) != 1)
            break;
        wakeups++;
        cr_assert_geq(hwt_timer_advance(timer), 0);
    }
    close(loop);
    return wakeups;
}

static void expect_epoll(hwt_wheel_kind wheel, uint32_t events)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    uint64_t seed = test_seed("epoll");
    probe p = {0};
    unsigned wakeups;

    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(
            hwt_new_timeout(timer, probe_task, &p, test_random_below(&seed, HWT_MSEC(300)), NULL),
            0);
    wakeups = epoll_until(timer, events, &p.runs, 300);
    cr_assert_eq(p.runs, 300, "missed %u", 300 - p.runs);
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_leq(wakeups, 2 * 300 + 10, "busy: %u wake-ups", wakeups);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(fd, epoll_level_triggered)
{
    expect_epoll(wheel, EPOLLIN);
}

WHEEL_TEST(fd, epoll_edge_triggered)
{
    expect_epoll(wheel, EPOLLIN | EPOLLET);
}

WHEEL_TEST(fd, periodic)
{
    hwt_timer *timer = loop_timer(wheel, CLOCK_MONOTONIC);
    probe p = {0};
    hwt_spec spec;
    unsigned wakeups;

    probe_spec(&spec, &p, 0);
    spec.period_ns = HWT_MSEC(2);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    wakeups = loop_until(timer, hwt_timer_fd(timer), &p.runs, 50);
    cr_assert_geq(p.runs, 50);
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_leq(wakeups, 110, "busy: %u wake-ups", wakeups);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
