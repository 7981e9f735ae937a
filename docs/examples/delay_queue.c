/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JDK's DelayQueue: put() an item with a delay; take() blocks until one is due.
 *
 * The timer holds what is not due yet, so put() and remove() cost the same however many items
 * wait, where the JDK's heap sorts under its lock. A due item moves to a short list, sorted
 * because one may be put when others of later deadlines are due already, under the lock that the
 * takers wait on.
 */
#include "example.h"

#include <hwt.h>
#include <pthread.h>
#include <stdatomic.h>

#define TICK HWT_USEC(500)

struct delayed {
    uint64_t deadline;
    struct delay_queue *queue;
    hwt_timeout *timeout;
    struct delayed *next;
};

struct delay_queue {
    hwt_timer *timer;
    pthread_mutex_t lock;
    pthread_cond_t due;
    struct delayed *ready; /* earliest first */
};

static void delay_queue_init(struct delay_queue *queue)
{
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = TICK;
    must(hwt_timer_create(&queue->timer, &config) == 0, "create a timer");
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->due, NULL);
    queue->ready = NULL;
}

/* Nobody is taking any more; returns how many items had not come due. */
static size_t delay_queue_destroy(struct delay_queue *queue)
{
    hwt_unprocessed unprocessed = {0};
    size_t count;
    hwt_timeout *timeout;

    must(hwt_timer_stop(queue->timer, &unprocessed) == 0, "stop");
    count = unprocessed.count;
    while ((timeout = hwt_unprocessed_take(&unprocessed))) {
        struct delayed *item = hwt_timeout_arg(timeout);

        hwt_timeout_unref(item->timeout);
        hwt_timeout_unref(timeout);
    }
    must(hwt_timer_destroy(queue->timer) == 0, "destroy the timer");
    pthread_cond_destroy(&queue->due);
    pthread_mutex_destroy(&queue->lock);
    return count;
}

static void item_due(hwt_timeout *timeout, void *arg)
{
    struct delayed *item = arg;
    struct delay_queue *queue = item->queue;
    struct delayed **link = &queue->ready;

    (void)timeout;
    pthread_mutex_lock(&queue->lock);
    while (*link && (*link)->deadline <= item->deadline)
        link = &(*link)->next;
    item->next = *link;
    *link = item;
    pthread_cond_signal(&queue->due);
    pthread_mutex_unlock(&queue->lock);
}

/* Under the lock, so that no taker gets the item before its handle is stored. */
static int delay_queue_put(struct delay_queue *queue, struct delayed *item, uint64_t deadline)
{
    int result;

    item->queue = queue;
    item->deadline = deadline;
    pthread_mutex_lock(&queue->lock);
    result = hwt_new_timeout_at(queue->timer, item_due, item, deadline, &item->timeout);
    pthread_mutex_unlock(&queue->lock);
    return result;
}

static struct delayed *delay_queue_take(struct delay_queue *queue)
{
    struct delayed *item;

    pthread_mutex_lock(&queue->lock);
    while (!queue->ready)
        pthread_cond_wait(&queue->due, &queue->lock);
    item = queue->ready;
    queue->ready = item->next;
    pthread_mutex_unlock(&queue->lock);
    hwt_timeout_unref(item->timeout);
    return item;
}

/* True: the caller has it back. False: it is due, a taker has it or will get it. */
static bool delay_queue_remove(struct delayed *item)
{
    if (!hwt_timeout_cancel(item->timeout))
        return false;
    hwt_timeout_unref(item->timeout);
    return true;
}

/* ---- the queue at work ---- */

enum { ITEMS = 300, REMOVED = 50 };

static struct delayed items[ITEMS];

static unsigned put_and_remove(struct delay_queue *queue, uint64_t first)
{
    unsigned removed = 0, seed = 1;

    for (int i = 0; i < ITEMS; i++) {
        seed = seed * 1664525u + 1013904223u;
        must(delay_queue_put(queue, &items[i], first + seed % 200 * 4 * TICK) == 0, "put");
    }
    for (int i = 0; i < REMOVED; i++)
        removed += delay_queue_remove(&items[i * 5]);
    return removed;
}

int main(void)
{
    struct delay_queue queue;
    uint64_t first, previous = 0, late_max = 0;
    unsigned removed, taken = 0, unordered = 0;
    bool all_put_in_time;

    give_up_after(20);
    delay_queue_init(&queue);
    first = hwt_timer_now(queue.timer) + HWT_MSEC(100);
    removed = put_and_remove(&queue, first);
    all_put_in_time = hwt_timer_now(queue.timer) < first;

    for (; taken < ITEMS - removed; taken++) {
        struct delayed *item = delay_queue_take(&queue);
        uint64_t now = hwt_timer_now(queue.timer);

        must(now >= item->deadline, "no item is taken before it is due (G1)");
        late_max = now - item->deadline > late_max ? now - item->deadline : late_max;
        unordered += item->deadline < previous;
        previous = item->deadline;
    }
    must(!all_put_in_time || removed == REMOVED, "what is not due can be removed");
    must(!all_put_in_time || !unordered, "the earliest is taken first (G4)");
    must(delay_queue_destroy(&queue) == 0, "the queue is empty");
    printf("delay_queue: %u items taken in order, %u removed, at most %.2f ms late\n", taken,
           removed, to_ms(late_max));
    return 0;
}
