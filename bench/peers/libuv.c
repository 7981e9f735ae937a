/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libuv: its timers belong to the loop's thread, so that others hand their wishes over under a
 * mutex and wake the loop, as its documentation has it (uv_async_send).
 */
#ifdef HAVE_libuv
#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "peer.h"

struct node {
    uv_timer_t timer;
    uint64_t deadline;
    struct event *event;
};

struct wish {
    struct node *node;
    bool cancel;
};

struct wishes {
    struct wish *v;
    size_t n, room;
};

struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    pthread_t thread;
    pthread_mutex_t lock;
    struct wishes wishes;
    bool stop;
};

/* ---- on the loop's thread ---- */
static void free_node(uv_handle_t *handle)
{
    free(handle->data);
}

static void fired(uv_timer_t *timer)
{
    struct node *node = timer->data;

    node->event->fire(node->event);
    uv_close((uv_handle_t *)timer, free_node);
}

/* The loop counts whole milliseconds, from its own idea of now. */
static void fulfil(struct loop *loop, const struct wish *wish)
{
    struct node *node = wish->node;
    uint64_t due = node->deadline / 1000000 + 1;
    uint64_t now = uv_now(&loop->uv);

    if (wish->cancel) {
        uv_timer_stop(&node->timer);
        uv_close((uv_handle_t *)&node->timer, free_node);
        return;
    }
    uv_timer_init(&loop->uv, &node->timer);
    node->timer.data = node;
    uv_timer_start(&node->timer, fired, due > now ? due - now : 0, 0);
}

static void close_all(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, handle->type == UV_TIMER ? free_node : NULL);
    (void)arg;
}

static void woken(uv_async_t *async)
{
    struct loop *loop = async->data;
    struct wishes taken;
    bool stop;

    pthread_mutex_lock(&loop->lock);
    taken = loop->wishes;
    loop->wishes = (struct wishes){NULL, 0, 0};
    stop = loop->stop;
    pthread_mutex_unlock(&loop->lock);
    uv_update_time(&loop->uv);
    for (size_t i = 0; i < taken.n; i++)
        fulfil(loop, &taken.v[i]);
    free(taken.v);
    if (stop)
        uv_walk(&loop->uv, close_all, NULL);
}

static void *work(void *arg)
{
    struct loop *loop = arg;

    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return NULL;
}

/* ---- on the others ---- */
static void wish(struct loop *loop, struct node *node, bool cancel)
{
    struct wishes *w = &loop->wishes;

    pthread_mutex_lock(&loop->lock);
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 1024;
        w->v = realloc(w->v, w->room * sizeof(*w->v));
        if (!w->v)
            bench_die("memory", 12);
    }
    w->v[w->n++] = (struct wish){node, cancel};
    pthread_mutex_unlock(&loop->lock);
    uv_async_send(&loop->wake);
}

static void *create(void)
{
    struct loop *loop = bench_alloc(sizeof(*loop));

    pthread_mutex_init(&loop->lock, NULL);
    uv_loop_init(&loop->uv);
    uv_async_init(&loop->uv, &loop->wake, woken);
    loop->wake.data = loop;
    if (pthread_create(&loop->thread, NULL, work, loop) != 0)
        bench_die("pthread_create", 11);
    return loop;
}

static void destroy(void *timer)
{
    struct loop *loop = timer;

    pthread_mutex_lock(&loop->lock);
    loop->stop = true;
    pthread_mutex_unlock(&loop->lock);
    uv_async_send(&loop->wake);
    pthread_join(loop->thread, NULL);
    uv_loop_close(&loop->uv);
    free(loop);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct node *node = peer_alloc(sizeof(*node));

    node->deadline = deadline_ns;
    node->event = event;
    wish(timer, node, false);
    return keep ? node : NULL;
}

static void cancel(void *timer, void *handle)
{
    wish(timer, handle, true);
}

const struct peer peer_libuv = {"libuv", create, destroy, schedule, cancel, NULL, NULL};
#else
typedef int libuv_is_not_installed;
#endif
