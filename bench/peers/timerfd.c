/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's timerfd: a descriptor for each timeout, and a thread in epoll_wait. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "peer.h"

struct node {
    int fd;
    struct event *event;
};

struct poller {
    int epoll;
    int stop;
    pthread_t thread;
};

static bool run_batch(struct poller *poller)
{
    struct epoll_event events[256];
    int n = epoll_wait(poller->epoll, events, 256, -1);

    for (int i = 0; i < n; i++) {
        struct node *node = events[i].data.ptr;

        if (!node)
            return false;
        node->event->fire(node->event);
        close(node->fd);
        free(node);
    }
    return true;
}

static void *work(void *arg)
{
    while (run_batch(arg))
        ;
    return NULL;
}

/*
 * One shot: a descriptor that is closed while another thread is still setting it would otherwise
 * be reported a second time.
 */
static void watch(struct poller *poller, int fd, struct node *node)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = node}};

    if (fd < 0 || epoll_ctl(poller->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        bench_die("timerfd", errno);
}

static void *create(void)
{
    struct poller *poller = bench_alloc(sizeof(*poller));

    poller->epoll = epoll_create1(EPOLL_CLOEXEC);
    poller->stop = eventfd(0, EFD_CLOEXEC);
    watch(poller, poller->stop, NULL);
    if (pthread_create(&poller->thread, NULL, work, poller) != 0)
        bench_die("pthread_create", 11);
    return poller;
}

static void destroy(void *timer)
{
    struct poller *poller = timer;

    eventfd_write(poller->stop, 1);
    pthread_join(poller->thread, NULL);
    close(poller->stop);
    close(poller->epoll);
    free(poller);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct node *node = peer_alloc(sizeof(*node));
    struct itimerspec when = {.it_value = peer_timespec(deadline_ns)};

    node->event = event;
    node->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    watch(timer, node->fd, node);
    timerfd_settime(node->fd, TFD_TIMER_ABSTIME, &when, NULL);
    return keep ? node : NULL;
}

static void cancel(void *timer, void *handle)
{
    struct node *node = handle;

    (void)timer;
    close(node->fd);
    free(node);
}

static uint64_t most(void)
{
    struct rlimit limit = {.rlim_cur = 1024};

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > 64 ? limit.rlim_cur - 64 : 0;
}

const struct peer peer_timerfd = {"timerfd", create, destroy, schedule, cancel, most, NULL};
