/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several event loops share a caller-driven timer by one epoll, edge- or level-triggered or one at
 * a time, while another thread schedules, moves and asks: what is due runs, whoever was refused
 * with the edge (G4, C16), and the stop is heard of once (C11).
 */
#include <sys/epoll.h>

#include "stress.h"

enum { LOOPS = 3, TIMEOUTS = 16 };

static hwt_timer *timer;
static uint32_t events;
static int shared_epoll;
static _Atomic uint64_t runs, refused, told, to_come;
static uint64_t data; /* deliberately not atomic: one thread at a time runs tasks */

static void task(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    data++;
    atomic_fetch_add(&runs, 1);
    if (atomic_load(&to_come) > 0 && hwt_timeout_reschedule(timeout, stress_below(HWT_USEC(200))))
        return;
    atomic_fetch_add(&told, 1);
}

static void *loop(void *arg)
{
    int ran = 0;

    while (ran != -ESHUTDOWN && atomic_load(&told) <= TIMEOUTS) {
        struct epoll_event event;
        if (epoll_wait(shared_epoll, &event, 1, 20) != 1)
            continue;
        ran = hwt_timer_advance(timer);
        STRESS_CHECK(ran >= 0 || ran == -EBUSY || ran == -ESHUTDOWN, "advance: %d", ran);
        if (ran == -EBUSY)
            atomic_fetch_add(&refused, 1);
        event.events = events;
        if (events & EPOLLONESHOT)
            STRESS_OK(epoll_ctl(shared_epoll, EPOLL_CTL_MOD, hwt_timer_fd(timer), &event));
    }
    if (ran == -ESHUTDOWN)
        atomic_fetch_add(&told, 1000);
    return arg;
}

static void play(void)
{
    hwt_timeout *timeout[TIMEOUTS];

    for (unsigned i = 0; i < TIMEOUTS; i++)
        STRESS_OK(hwt_new_timeout(timer, task, NULL, stress_below(HWT_USEC(300)), &timeout[i]));
    for (unsigned i = 0; i < 200; i++) {
        hwt_timeout_reschedule(timeout[stress_below(TIMEOUTS)], stress_below(HWT_USEC(100)));
        if (stress_one_in(4))
            hwt_timer_next_deadline(timer);
        stress_spin(stress_below(HWT_USEC(20)));
    }
    atomic_store(&to_come, 0);
    stress_await(&told, TIMEOUTS, "last runs");
    for (unsigned i = 0; i < TIMEOUTS; i++)
        hwt_timeout_unref(timeout[i]);
}

static void round_of(void)
{
    static const uint32_t ways[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    pthread_t thread[LOOPS];
    struct epoll_event event;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    STRESS_OK(hwt_timer_create(&timer, &config));
    event.events = events = ways[stress_below(3)];
    shared_epoll = epoll_create1(EPOLL_CLOEXEC);
    STRESS_CHECK(shared_epoll >= 0, "epoll_create1");
    STRESS_OK(epoll_ctl(shared_epoll, EPOLL_CTL_ADD, hwt_timer_fd(timer), &event));
    atomic_store(&told, 0);
    atomic_store(&to_come, 1);
    for (unsigned i = 0; i < LOOPS; i++)
        thread[i] = stress_thread(loop, NULL);
    play();
    STRESS_OK(hwt_timer_stop(timer, NULL));
    for (unsigned i = 0; i < LOOPS; i++)
        STRESS_OK(pthread_join(thread[i], NULL));
    STRESS_CHECK(atomic_load(&told) >= TIMEOUTS + 1000, "the stop was not heard of");
    close(shared_epoll);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2)), rounds = 0;

    for (; stress_now() < end; rounds++)
        round_of();
    return stress_end("stress_loops", "%" PRIu64 " rounds, %" PRIu64 " runs, %" PRIu64 " refused",
                      rounds, atomic_load(&runs), atomic_load(&refused));
}
