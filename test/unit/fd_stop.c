/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An event loop and stop: once the timer is stopped its descriptor is readable until the next
 * advance has said -ESHUTDOWN, and never again. A loop hears of the stop and does not spin (G5).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "support.h"

#define QUIET_MS 30

TestSuite(fd_stop, .init = test_arm);

static hwt_timer *loop_timer(hwt_wheel_kind wheel)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

static void expect_end(hwt_timer *timer, int fd)
{
    cr_assert(readable(fd, PATIENCE_S * 1000), "it does not hear of the stop");
    cr_assert(readable(fd, 0), "until it has advanced");
    cr_assert_eq(hwt_timer_advance(timer), -ESHUTDOWN);
    cr_assert_not(readable(fd, QUIET_MS), "it has been told");
    cr_assert_eq(hwt_timer_advance(timer), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
    cr_assert_eq(hwt_timer_fd(timer), fd);
    cr_assert_not(readable(fd, QUIET_MS), "it has been told");
}

WHEEL_TEST(fd_stop, with_nothing_pending)
{
    hwt_timer *timer = loop_timer(wheel);
    int fd = hwt_timer_fd(timer);

    cr_assert_not(readable(fd, QUIET_MS));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    expect_end(timer, fd);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(fd_stop, with_something_due)
{
    hwt_timer *timer = loop_timer(wheel);
    int fd = hwt_timer_fd(timer);

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(5), NULL), 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    expect_end(timer, fd);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Asked for when all is over, once told and once not. */
WHEEL_TEST(fd_stop, descriptor_of_a_stopped_timer)
{
    hwt_timer *timer = loop_timer(wheel);

    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    expect_end(timer, hwt_timer_fd(timer));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    timer = loop_timer(wheel);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_timer_advance(timer), -ESHUTDOWN);
    cr_assert_not(readable(hwt_timer_fd(timer), QUIET_MS), "it has been told");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Whoever has a descriptor of its own for it, or a child, hears of no timer that is gone. */
WHEEL_TEST(fd_stop, destroyed_with_a_duplicate)
{
    hwt_timer *timer = loop_timer(wheel);
    int fd = hwt_timer_fd(timer), other = dup(fd);

    cr_assert_geq(other, 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert(readable(other, 0));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_not(readable(other, QUIET_MS));
    close(other);
}

static void *stop_soon(void *timer)
{
    sleep_ms(20);
    hwt_timer_stop(timer, NULL);
    return NULL;
}

typedef int wait_for(int handle);

static int wait_poll(int fd)
{
    return readable(fd, PATIENCE_S * 1000);
}

static int wait_epoll(int loop)
{
    struct epoll_event event;

    return epoll_wait(loop, &event, 1, PATIENCE_S * 1000);
}

/* A loop as a user writes it: it ends when it hears of the stop. Returns how often it was woken. */
static unsigned run_loop(hwt_timer *timer, wait_for *wait, int handle)
{
    unsigned wakeups = 0;

    do {
        if (wait(handle) != 1)
            return UINT32_MAX;
        wakeups++;
    } while (hwt_timer_advance(timer) >= 0);
    return wakeups;
}

/* Stop comes from another thread while the loop sleeps. */
static void expect_loop_ends(hwt_wheel_kind wheel, uint32_t events, bool pending)
{
    hwt_timer *timer = loop_timer(wheel);
    int fd = hwt_timer_fd(timer), loop = fd;
    struct epoll_event event = {.events = events};
    unsigned wakeups;
    pthread_t thread;

    if (pending)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_timer_advance(timer), 0);
    if (events) {
        loop = epoll_create1(EPOLL_CLOEXEC);
        cr_assert_eq(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event), 0);
    }
    cr_assert_eq(pthread_create(&thread, NULL, stop_soon, timer), 0);
    wakeups = run_loop(timer, events ? wait_epoll : wait_poll, loop);
    cr_assert_leq(wakeups, 3, "G5: %u wake-ups to hear of one stop", wakeups);
    pthread_join(thread, NULL);
    cr_assert_not(readable(loop, QUIET_MS), "it has been told");
    if (events)
        close(loop);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(fd_stop, ends_a_loop_on_poll)
{
    expect_loop_ends(wheel, 0, false);
    expect_loop_ends(wheel, 0, true);
}

WHEEL_TEST(fd_stop, ends_a_loop_on_epoll)
{
    expect_loop_ends(wheel, EPOLLIN, false);
    expect_loop_ends(wheel, EPOLLIN, true);
}

WHEEL_TEST(fd_stop, ends_an_edge_triggered_loop)
{
    expect_loop_ends(wheel, EPOLLIN | EPOLLET, false);
    expect_loop_ends(wheel, EPOLLIN | EPOLLET, true);
}

/* ---- submissions that race with stop do not bring it back ---- */

static void *submit_until_refused(void *timer)
{
    while (hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(1), NULL) == 0)
        continue;
    return NULL;
}

WHEEL_TEST(fd_stop, beside_submissions)
{
    for (unsigned round = 0; round < 30; round++) {
        hwt_timer *timer = loop_timer(wheel);
        int fd = hwt_timer_fd(timer);
        pthread_t submitter, stopper;

        cr_assert_eq(pthread_create(&submitter, NULL, submit_until_refused, timer), 0);
        cr_assert_eq(pthread_create(&stopper, NULL, stop_soon, timer), 0);
        cr_assert_neq(run_loop(timer, wait_poll, fd), UINT32_MAX, "it does not hear of the stop");
        pthread_join(submitter, NULL);
        pthread_join(stopper, NULL);
        cr_assert_eq(hwt_timer_advance(timer), -ESHUTDOWN);
        cr_assert_not(readable(fd, 5), "it has been told");
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}
