/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server with a wheel of its own has: four hierarchical wheels, each under a mutex, and a
 * thread's timeouts in the one of its number. The wheel is written for this, after the pattern of
 * William Ahern's timeout.c, and is not that: four levels of 64 slots, intrusive doubly linked
 * lists, a bitmap of a level's occupied slots. A timeout is its user's memory, allocated once and
 * used again: who cancels one and schedules another has the same block in hand.
 */
#include <pthread.h>
#include <stdlib.h>

#include "peer.h"

#define SHARDS 4
#define LEVELS 4
#define BITS   6
#define SLOTS  (1u << BITS)
#define TICK   UINT64_C(1000000)

struct links {
    struct links *next, *prev;
};

struct shard;

struct node {
    struct links links; /* first */
    uint64_t tick;
    struct shard *shard;
    struct event *event;
    unsigned level, slot;
};

struct shard {
    _Alignas(2 * BENCH_LINE) pthread_mutex_t lock;
    pthread_cond_t sooner;
    pthread_t thread;
    bool stop;
    uint64_t now;     /* the last tick that was looked at */
    uint64_t planned; /* the tick that its thread sleeps until */
    uint64_t occupied[LEVELS];
    struct links slot[LEVELS][SLOTS];
};

/* ---- lists ---- */
static void list_clear(struct links *head)
{
    head->next = head->prev = head;
}

static void list_append(struct links *head, struct links *links)
{
    links->next = head;
    links->prev = head->prev;
    head->prev->next = links;
    head->prev = links;
}

static void list_remove(struct links *links)
{
    links->next->prev = links->prev;
    links->prev->next = links->next;
}

static struct node *list_take(struct links *head)
{
    struct links *first = head->next;

    if (first == head)
        return NULL;
    list_remove(first);
    return (struct node *)first;
}

/* ---- a wheel ---- */
/* The lowest level that reaches as far. Returns the tick at which the slot is looked at. */
static uint64_t file(struct shard *shard, struct node *node)
{
    uint64_t away = node->tick - shard->now;
    unsigned level = (63 - (unsigned)__builtin_clzll(away)) / BITS;

    node->level = level < LEVELS ? level : LEVELS - 1;
    node->slot = (node->tick >> (BITS * node->level)) % SLOTS;
    shard->occupied[node->level] |= UINT64_C(1) << node->slot;
    list_append(&shard->slot[node->level][node->slot], &node->links);
    return node->tick >> (BITS * node->level) << (BITS * node->level);
}

static void take_out(struct node *node)
{
    struct shard *shard = node->shard;
    struct links *head = &shard->slot[node->level][node->slot];

    list_remove(&node->links);
    if (head->next == head)
        shard->occupied[node->level] &= ~(UINT64_C(1) << node->slot);
}

/* When there is a slot to look at; the current one comes last, a turn later. */
static uint64_t next_tick(const struct shard *shard)
{
    uint64_t next = UINT64_MAX;

    for (unsigned level = 0; level < LEVELS; level++) {
        uint64_t hand = (shard->now >> (BITS * level)) + 1, set = shard->occupied[level];
        unsigned from = hand % SLOTS;
        uint64_t at;

        if (set == 0)
            continue;
        set = from ? set >> from | set << (SLOTS - from) : set;
        at = (hand + (unsigned)__builtin_ctzll(set)) << (BITS * level);
        next = at < next ? at : next;
    }
    return next;
}

static void look(struct shard *shard, unsigned level, struct links *due)
{
    unsigned slot = (shard->now >> (BITS * level)) % SLOTS;
    struct links moved;
    struct node *node;

    list_clear(&moved);
    while ((node = list_take(&shard->slot[level][slot])))
        list_append(&moved, &node->links);
    shard->occupied[level] &= ~(UINT64_C(1) << slot);
    while ((node = list_take(&moved)))
        if (node->tick <= shard->now)
            list_append(due, &node->links);
        else
            file(shard, node);
}

/* To the next slot that there is to look at, if it is not after `to`. */
static bool step(struct shard *shard, uint64_t to, struct links *due)
{
    uint64_t next = next_tick(shard);

    if (next > to) {
        shard->now = to;
        return false;
    }
    shard->now = next;
    for (unsigned level = LEVELS; level-- > 0;)
        if (next % (UINT64_C(1) << (BITS * level)) == 0)
            look(shard, level, due);
    return true;
}

/* ---- its thread ---- */
static _Thread_local unsigned own_number; /* of a producer, from 1 */
static _Atomic unsigned numbers;

/* Those that are due here are nobody's but this thread's: nobody is going to cancel them. */
static void run_due(struct shard *shard, struct links *due)
{
    struct node *node;

    pthread_mutex_unlock(&shard->lock);
    while ((node = list_take(due))) {
        node->event->fire(node->event);
        free(node);
    }
    pthread_mutex_lock(&shard->lock);
}

static void wait_for_next(struct shard *shard)
{
    struct timespec until;

    shard->planned = next_tick(shard);
    if (shard->planned == UINT64_MAX) {
        pthread_cond_wait(&shard->sooner, &shard->lock);
        return;
    }
    until = peer_timespec(shard->planned * TICK);
    pthread_cond_timedwait(&shard->sooner, &shard->lock, &until);
}

static void *work(void *arg)
{
    struct shard *shard = arg;
    struct links due;

    list_clear(&due);
    own_number = SHARDS; /* what its tasks schedule: in the first one */
    pthread_mutex_lock(&shard->lock);
    while (!shard->stop) {
        while (step(shard, clock_ns() / TICK, &due))
            ;
        if (due.next != &due)
            run_due(shard, &due);
        else
            wait_for_next(shard);
    }
    pthread_mutex_unlock(&shard->lock);
    return NULL;
}

/* ---- the interface ---- */
static void start(struct shard *shard)
{
    pthread_condattr_t monotonic;

    for (unsigned i = 0; i < LEVELS * SLOTS; i++)
        list_clear(&shard->slot[i / SLOTS][i % SLOTS]);
    shard->now = clock_ns() / TICK;
    pthread_mutex_init(&shard->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&shard->sooner, &monotonic);
    if (pthread_create(&shard->thread, NULL, work, shard) != 0)
        bench_die("pthread_create", 11);
}

static void *create(void)
{
    struct shard *shards = bench_alloc(SHARDS * sizeof(*shards));

    for (unsigned i = 0; i < SHARDS; i++)
        start(&shards[i]);
    return shards;
}

static void destroy(void *timer)
{
    struct shard *shards = timer;
    struct node *node;

    for (unsigned i = 0; i < SHARDS; i++) {
        pthread_mutex_lock(&shards[i].lock);
        shards[i].stop = true;
        pthread_cond_signal(&shards[i].sooner);
        pthread_mutex_unlock(&shards[i].lock);
        pthread_join(shards[i].thread, NULL);
        for (unsigned j = 0; j < LEVELS * SLOTS; j++)
            while ((node = list_take(&shards[i].slot[j / SLOTS][j % SLOTS])))
                free(node);
    }
    free(shards);
}

/* The block that this thread has in hand. */
static _Thread_local struct node *in_hand;

static struct node *block(void)
{
    struct node *node = in_hand;

    in_hand = NULL;
    return node ? node : peer_alloc(sizeof(*node));
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct shard *shards = timer, *shard;
    struct node *node = block();

    if (own_number == 0)
        own_number = atomic_fetch_add(&numbers, 1) + 1;
    shard = &shards[own_number % SHARDS];
    node->shard = shard;
    node->event = event;
    node->tick = (deadline_ns + TICK - 1) / TICK;
    pthread_mutex_lock(&shard->lock);
    node->tick = node->tick > shard->now ? node->tick : shard->now + 1;
    if (file(shard, node) < shard->planned)
        pthread_cond_signal(&shard->sooner);
    pthread_mutex_unlock(&shard->lock);
    return keep ? node : NULL;
}

static void cancel(void *timer, void *handle)
{
    struct node *node = handle;
    struct shard *shard = node->shard;

    (void)timer;
    pthread_mutex_lock(&shard->lock);
    take_out(node);
    pthread_mutex_unlock(&shard->lock);
    if (in_hand)
        free(node);
    else
        in_hand = node;
}

const struct peer peer_four_shards = {"four-shards", create, destroy, schedule, cancel, NULL, NULL};
