/* SPDX-License-Identifier: BSD-2-Clause */
/* libevent, with its locking for threads: events are added and freed from any of them. */
#ifdef HAVE_libevent_pthreads
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdlib.h>

#include "peer.h"

struct base {
    struct event_base *base;
    pthread_t thread;
};

/* Named as libevent's own type is not: `struct event` is the interface's here. */
struct node {
    void *timer;
    struct event *event;
};

static void fired(evutil_socket_t fd, short what, void *arg)
{
    struct node *node = arg;

    (void)fd;
    (void)what;
    node->event->fire(node->event);
    event_free(node->timer);
    free(node);
}

static void *work(void *arg)
{
    struct base *base = arg;

    event_base_loop(base->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

static void *create(void)
{
    struct base *base = bench_alloc(sizeof(*base));

    evthread_use_pthreads();
    base->base = event_base_new();
    if (!base->base || pthread_create(&base->thread, NULL, work, base) != 0)
        bench_die("event_base_new", 11);
    return base;
}

/* Those still pending are not freed one by one: the process ends after this. */
static void destroy(void *timer)
{
    struct base *base = timer;

    event_base_loopbreak(base->base);
    pthread_join(base->thread, NULL);
    free(base);
}

static void *schedule_in(void *timer, uint64_t delay_ns, struct event *event, bool keep)
{
    struct base *base = timer;
    struct node *node = peer_alloc(sizeof(*node));
    uint64_t us = (delay_ns + 999) / 1000;
    struct timeval in = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};

    node->event = event;
    node->timer = evtimer_new(base->base, fired, node);
    if (!node->timer || evtimer_add(node->timer, &in) != 0)
        bench_die("evtimer_add", 12);
    return keep ? node : NULL;
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    uint64_t now = clock_ns();

    return schedule_in(timer, deadline_ns > now ? deadline_ns - now : 0, event, keep);
}

static void cancel(void *timer, void *handle)
{
    struct node *node = handle;

    (void)timer;
    event_free(node->timer);
    free(node);
}

const struct peer peer_libevent = {"libevent", create, destroy,    schedule,
                                   cancel,     NULL,   schedule_in};
#else
typedef int libevent_is_not_installed;
#endif
