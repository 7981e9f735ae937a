/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one would write oneself: a binary heap under a mutex, and a thread that waits for its top.
 */
#include <pthread.h>
#include <stdlib.h>

#include "peer.h"

struct node {
    uint64_t deadline;
    struct event *event;
    size_t at;
};

struct heap {
    pthread_mutex_t lock;
    pthread_cond_t sooner;
    pthread_t thread;
    bool stop;
    size_t n, room;
    struct node **nodes;
};

/* ---- the heap ---- */
static void put(struct heap *heap, size_t at, struct node *node)
{
    heap->nodes[at] = node;
    node->at = at;
}

static void up(struct heap *heap, size_t at, struct node *node)
{
    while (at > 0 && heap->nodes[(at - 1) / 2]->deadline > node->deadline) {
        put(heap, at, heap->nodes[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(heap, at, node);
}

static void down(struct heap *heap, size_t at, struct node *node)
{
    size_t child;

    while ((child = 2 * at + 1) < heap->n) {
        if (child + 1 < heap->n && heap->nodes[child + 1]->deadline < heap->nodes[child]->deadline)
            child++;
        if (heap->nodes[child]->deadline >= node->deadline)
            break;
        put(heap, at, heap->nodes[child]);
        at = child;
    }
    put(heap, at, node);
}

static void insert(struct heap *heap, struct node *node)
{
    if (heap->n == heap->room) {
        heap->room = heap->room ? 2 * heap->room : 1024;
        heap->nodes = realloc(heap->nodes, heap->room * sizeof(struct node *));
        if (!heap->nodes)
            bench_die("memory", 12);
    }
    up(heap, heap->n++, node);
}

static void take_out(struct heap *heap, struct node *node)
{
    struct node *last = heap->nodes[--heap->n];
    size_t at = node->at;

    if (last == node)
        return;
    if (at > 0 && heap->nodes[(at - 1) / 2]->deadline > last->deadline)
        up(heap, at, last);
    else
        down(heap, at, last);
}

/* ---- its thread ---- */
static void run_first(struct heap *heap)
{
    struct node *node = heap->nodes[0];

    take_out(heap, node);
    pthread_mutex_unlock(&heap->lock);
    node->event->fire(node->event);
    free(node);
    pthread_mutex_lock(&heap->lock);
}

static void wait_for_first(struct heap *heap)
{
    struct timespec until;

    if (heap->n == 0) {
        pthread_cond_wait(&heap->sooner, &heap->lock);
        return;
    }
    until = peer_timespec(heap->nodes[0]->deadline);
    pthread_cond_timedwait(&heap->sooner, &heap->lock, &until);
}

static void *work(void *arg)
{
    struct heap *heap = arg;

    pthread_mutex_lock(&heap->lock);
    while (!heap->stop) {
        if (heap->n > 0 && heap->nodes[0]->deadline <= clock_ns())
            run_first(heap);
        else
            wait_for_first(heap);
    }
    pthread_mutex_unlock(&heap->lock);
    return NULL;
}

/* ---- the interface ---- */
static void *create(void)
{
    struct heap *heap = bench_alloc(sizeof(*heap));
    pthread_condattr_t monotonic;

    pthread_mutex_init(&heap->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&heap->sooner, &monotonic);
    if (pthread_create(&heap->thread, NULL, work, heap) != 0)
        bench_die("pthread_create", 11);
    return heap;
}

static void destroy(void *timer)
{
    struct heap *heap = timer;

    pthread_mutex_lock(&heap->lock);
    heap->stop = true;
    pthread_cond_signal(&heap->sooner);
    pthread_mutex_unlock(&heap->lock);
    pthread_join(heap->thread, NULL);
    while (heap->n > 0)
        free(heap->nodes[--heap->n]);
    free(heap->nodes);
    free(heap);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct heap *heap = timer;
    struct node *node = peer_alloc(sizeof(*node));

    node->deadline = deadline_ns;
    node->event = event;
    pthread_mutex_lock(&heap->lock);
    insert(heap, node);
    if (node->at == 0)
        pthread_cond_signal(&heap->sooner);
    pthread_mutex_unlock(&heap->lock);
    return keep ? node : NULL;
}

static void cancel(void *timer, void *handle)
{
    struct heap *heap = timer;

    pthread_mutex_lock(&heap->lock);
    take_out(heap, handle);
    pthread_mutex_unlock(&heap->lock);
    free(handle);
}

const struct peer peer_heap = {"heap", create, destroy, schedule, cancel, NULL, NULL};
