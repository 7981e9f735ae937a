/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt_timer_fd in several event loops: of the threads that are told, one advances, and the others
 * are refused. None of what they were told is lost with that (G4), and they are told no more while
 * it would be in vain (G5).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "support.h"

TestSuite(fd_loops, .init = test_arm);

enum { LOOPS = 3, TASKS = 20, RUNS = 20000 };

/* ---- loops on one epoll ---- */

typedef struct loops {
    hwt_timer *timer;
    int epoll;
    uint32_t events;
    atomic_uint runs;
} loops;

static void run_again(hwt_timeout *timeout, void *arg)
{
    loops *l = arg;

    if (atomic_fetch_add(&l->runs, 1) < RUNS)
        cr_assert(hwt_timeout_reschedule(timeout, HWT_USEC(50)));
}

/* As a user writes it: who is refused leaves it to who is in there. */
static void *loop(void *arg)
{
    loops *l = arg;
    struct epoll_event event;
    int ran;

    while (atomic_load(&l->runs) < RUNS) {
        if (epoll_wait(l->epoll, &event, 1, 100) != 1)
            continue;
        ran = hwt_timer_advance(l->timer);
        cr_assert(ran >= 0 || ran == -EBUSY, "%d", ran);
        event.events = l->events;
        if (l->events & EPOLLONESHOT)
            cr_assert_eq(epoll_ctl(l->epoll, EPOLL_CTL_MOD, hwt_timer_fd(l->timer), &event), 0);
    }
    return NULL;
}

static void share(hwt_wheel_kind wheel, uint32_t events)
{
    loops l = {.timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC), .events = events};
    struct epoll_event event = {.events = events};
    pthread_t thread[LOOPS];

    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    cr_assert_geq(l.epoll, 0);
    cr_assert_eq(epoll_ctl(l.epoll, EPOLL_CTL_ADD, hwt_timer_fd(l.timer), &event), 0);
    for (unsigned i = 0; i < LOOPS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, loop, &l), 0);
    for (unsigned i = 0; i < TASKS; i++)
        cr_assert_eq(hwt_new_timeout(l.timer, run_again, &l, HWT_USEC(i * 37), NULL), 0);
    cr_expect(wait_count(&l.runs, RUNS), "G4: it stands still after %u", atomic_load(&l.runs));
    atomic_fetch_add(&l.runs, RUNS);
    for (unsigned i = 0; i < LOOPS; i++)
        cr_assert_eq(pthread_join(thread[i], NULL), 0);
    close(l.epoll);
    cr_assert_eq(hwt_timer_destroy(l.timer), 0);
}

WHEEL_TEST(fd_loops, edge_triggered)
{
    share(wheel, EPOLLIN | EPOLLET);
}

WHEEL_TEST(fd_loops, level_triggered)
{
    share(wheel, EPOLLIN);
}

WHEEL_TEST(fd_loops, one_shot)
{
    share(wheel, EPOLLIN | EPOLLONESHOT);
}

/* ---- one that is refused ---- */

typedef struct stay {
    hwt_timer *timer;
    atomic_uint in;
    atomic_bool go_on;
} stay;

static void stay_in(hwt_timeout *timeout, void *arg)
{
    stay *s = arg;

    (void)timeout;
    atomic_fetch_add(&s->in, 1);
    while (!atomic_load(&s->go_on))
        sleep_ms(1);
}

static void *advance_once(void *arg)
{
    stay *s = arg;

    cr_assert_eq(hwt_timer_advance(s->timer), 1);
    return NULL;
}

static bool readable(hwt_timer *timer, int ms)
{
    struct pollfd poll_fd = {.fd = hwt_timer_fd(timer), .events = POLLIN};

    return poll(&poll_fd, 1, ms) == 1;
}

static pthread_t start_staying(stay *s, hwt_wheel_kind wheel)
{
    pthread_t thread;

    s->timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);
    cr_assert_eq(hwt_new_timeout(s->timer, stay_in, s, 0, NULL), 0);
    cr_assert(readable(s->timer, PATIENCE_S * 1000));
    cr_assert_eq(pthread_create(&thread, NULL, advance_once, s), 0);
    cr_assert(wait_count(&s->in, 1));
    return thread;
}

static void end_staying(stay *s, pthread_t thread)
{
    atomic_store(&s->go_on, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

WHEEL_TEST(fd_loops, who_is_refused_is_told_no_more)
{
    stay s = {0};
    pthread_t thread = start_staying(&s, wheel);
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(s.timer, probe_task, &p, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(s.timer), -EBUSY);
    cr_assert_not(readable(s.timer, 20), "while nothing can be done about it");
    end_staying(&s, thread);
    cr_assert(readable(s.timer, PATIENCE_S * 1000), "G4");
    cr_assert_eq(hwt_timer_advance(s.timer), 1);
    cr_assert_not(readable(s.timer, 20), "G5");
    cr_assert_eq(hwt_timer_destroy(s.timer), 0);
}

/* Nothing is left to do: nobody is told. */
WHEEL_TEST(fd_loops, who_is_refused_for_nothing)
{
    stay s = {0};
    pthread_t thread = start_staying(&s, wheel);

    cr_assert_eq(hwt_timer_advance(s.timer), -EBUSY);
    end_staying(&s, thread);
    cr_assert_not(readable(s.timer, 20), "G5");
    cr_assert_eq(hwt_timer_destroy(s.timer), 0);
}

static void *stop(void *arg)
{
    stay *s = arg;

    cr_assert_eq(hwt_timer_stop(s->timer, NULL), 0);
    return NULL;
}

/* The stop that begins meanwhile is heard of. */
WHEEL_TEST(fd_loops, who_is_refused_hears_of_the_stop)
{
    stay s = {0};
    pthread_t thread = start_staying(&s, wheel), stopper;

    cr_assert_eq(hwt_timer_advance(s.timer), -EBUSY);
    cr_assert_eq(pthread_create(&stopper, NULL, stop, &s), 0);
    end_staying(&s, thread);
    cr_assert(readable(s.timer, PATIENCE_S * 1000));
    while (!hwt_timer_is_stopped(s.timer)) /* the advance may have ended before it began */
        sleep_ms(1);
    cr_assert_eq(hwt_timer_advance(s.timer), -ESHUTDOWN);
    cr_assert_eq(pthread_join(stopper, NULL), 0);
    cr_assert_not(readable(s.timer, 20));
    cr_assert_eq(hwt_timer_destroy(s.timer), 0);
}
