/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A model of brpc's TimerThread, written for this after its description and not the original: a
 * bucket (a mutex and a list) out of 13 by the thread's number, hashed; a thread that pulls the
 * lists into a heap when it wakes up, and drops what was cancelled when it meets it. Cancelling is
 * a compare-and-swap on the version of a task, which is found by its number in a pool that never
 * gives memory back. So a cancelled task keeps its block until the thread wakes up for another.
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peer.h"

#define BUCKETS 13
#define BLOCK   1024u      /* tasks that are allocated together */
#define BLOCKS  (1u << 17) /* at most */
#define CHUNK   256u       /* free tasks that go from thread to thread */
#define NEVER   INT64_MAX

struct task {
    _Alignas(BENCH_LINE) struct task *next;
    int64_t run_us;
    struct event *event;
    uint64_t id;              /* version and number as it was scheduled */
    _Atomic uint32_t version; /* + 1: running; + 2: over */
};

struct bucket {
    _Alignas(BENCH_LINE) pthread_mutex_t lock;
    int64_t nearest;
    struct task *_Atomic first;
};

struct brpc {
    struct bucket buckets[BUCKETS];
    pthread_mutex_t lock;
    int64_t nearest;
    _Atomic uint32_t signals;
    _Atomic bool stop;
    pthread_t thread;
    size_t n, room;
    struct task **heap;
};

/* ---- the pool ---- */
struct chunk {
    struct chunk *next;
    uint32_t n;
    uint32_t number[CHUNK];
};

static struct task *_Atomic blocks[BLOCKS];
static _Atomic uint32_t used_blocks;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *full_chunks;
static _Thread_local struct chunk *own_chunk;
static _Thread_local uint32_t own_block, own_used = BLOCK;

static struct task *task_at(uint32_t number)
{
    return atomic_load_explicit(&blocks[number / BLOCK], memory_order_acquire) + number % BLOCK;
}

static bool pop_chunk(void)
{
    struct chunk *chunk;

    pthread_mutex_lock(&pool_lock);
    chunk = full_chunks;
    if (chunk)
        full_chunks = chunk->next;
    pthread_mutex_unlock(&pool_lock);
    if (!chunk)
        return false;
    free(own_chunk);
    own_chunk = chunk;
    return true;
}

static uint32_t fresh_number(void)
{
    struct task *tasks;

    if (own_used == BLOCK) {
        tasks = bench_alloc(BLOCK * sizeof(*tasks));
        for (unsigned i = 0; i < BLOCK; i++)
            atomic_init(&tasks[i].version, 2);
        own_block = atomic_fetch_add(&used_blocks, 1);
        if (own_block >= BLOCKS)
            bench_die("blocks of tasks", 12);
        atomic_store_explicit(&blocks[own_block], tasks, memory_order_release);
        own_used = 0;
    }
    return own_block * BLOCK + own_used++;
}

static uint32_t take_number(void)
{
    if ((own_chunk && own_chunk->n > 0) || pop_chunk())
        return own_chunk->number[--own_chunk->n];
    return fresh_number();
}

static void give_number(uint32_t number)
{
    if (own_chunk && own_chunk->n == CHUNK) {
        pthread_mutex_lock(&pool_lock);
        own_chunk->next = full_chunks;
        full_chunks = own_chunk;
        pthread_mutex_unlock(&pool_lock);
        own_chunk = NULL;
    }
    if (!own_chunk) {
        own_chunk = peer_alloc(sizeof(*own_chunk));
        own_chunk->n = 0;
    }
    own_chunk->number[own_chunk->n++] = number;
}

/* ---- the heap ---- */
static void push(struct brpc *brpc, struct task *task)
{
    size_t at = brpc->n++;

    if (at == brpc->room) {
        brpc->room = brpc->room ? 2 * brpc->room : 4096;
        brpc->heap = realloc(brpc->heap, brpc->room * sizeof(struct task *));
        if (!brpc->heap)
            bench_die("memory", 12);
    }
    for (; at > 0 && brpc->heap[(at - 1) / 2]->run_us > task->run_us; at = (at - 1) / 2)
        brpc->heap[at] = brpc->heap[(at - 1) / 2];
    brpc->heap[at] = task;
}

static void pop(struct brpc *brpc)
{
    struct task *last = brpc->heap[--brpc->n];
    size_t at = 0, child;

    for (; (child = 2 * at + 1) < brpc->n; at = child) {
        if (child + 1 < brpc->n && brpc->heap[child + 1]->run_us < brpc->heap[child]->run_us)
            child++;
        if (brpc->heap[child]->run_us >= last->run_us)
            break;
        brpc->heap[at] = brpc->heap[child];
    }
    if (brpc->n > 0)
        brpc->heap[at] = last;
}

/* ---- its thread ---- */
static bool drop_cancelled(struct task *task)
{
    if (atomic_load_explicit(&task->version, memory_order_relaxed) == task->id >> 32)
        return false;
    give_number((uint32_t)task->id);
    return true;
}

static void run_task(struct task *task)
{
    uint32_t version = (uint32_t)(task->id >> 32);

    if (atomic_compare_exchange_strong_explicit(&task->version, &version, version + 1,
                                                memory_order_relaxed, memory_order_relaxed)) {
        task->event->fire(task->event);
        atomic_store_explicit(&task->version, version + 2, memory_order_release);
    }
    give_number((uint32_t)task->id);
}

static void set_nearest(struct brpc *brpc, int64_t us)
{
    pthread_mutex_lock(&brpc->lock);
    brpc->nearest = us;
    pthread_mutex_unlock(&brpc->lock);
}

static struct task *take_list(struct bucket *bucket)
{
    struct task *first = atomic_load_explicit(&bucket->first, memory_order_relaxed);

    if (!first)
        return NULL;
    pthread_mutex_lock(&bucket->lock);
    first = atomic_load_explicit(&bucket->first, memory_order_relaxed);
    atomic_store_explicit(&bucket->first, NULL, memory_order_relaxed);
    bucket->nearest = NEVER;
    pthread_mutex_unlock(&bucket->lock);
    return first;
}

static void pull(struct brpc *brpc)
{
    struct task *task, *next;

    for (unsigned i = 0; i < BUCKETS; i++)
        for (task = take_list(&brpc->buckets[i]); task; task = next) {
            next = task->next;
            if (!drop_cancelled(task))
                push(brpc, task);
        }
}

static bool sooner_than(struct brpc *brpc, int64_t us)
{
    bool sooner;

    pthread_mutex_lock(&brpc->lock);
    sooner = brpc->nearest < us;
    pthread_mutex_unlock(&brpc->lock);
    return sooner;
}

/* False: something earlier than what is at the top has come meanwhile. */
static bool run_due(struct brpc *brpc)
{
    while (brpc->n > 0) {
        struct task *top = brpc->heap[0];

        if (drop_cancelled(top)) {
            pop(brpc);
            continue;
        }
        if ((int64_t)(clock_ns() / 1000) < top->run_us)
            break;
        if (sooner_than(brpc, top->run_us))
            return false;
        pop(brpc);
        run_task(top);
    }
    return true;
}

static void wait_for_top(struct brpc *brpc)
{
    int64_t next = brpc->n > 0 ? brpc->heap[0]->run_us : NEVER, now;
    struct timespec in = {0, 0};
    uint32_t signals;

    pthread_mutex_lock(&brpc->lock);
    signals = atomic_load(&brpc->signals);
    if (next > brpc->nearest) {
        pthread_mutex_unlock(&brpc->lock);
        return;
    }
    brpc->nearest = next;
    pthread_mutex_unlock(&brpc->lock);
    now = (int64_t)(clock_ns() / 1000);
    if (next > now)
        in = peer_timespec((uint64_t)(next - now) * 1000);
    syscall(SYS_futex, &brpc->signals, FUTEX_WAIT_PRIVATE, signals, next == NEVER ? NULL : &in);
}

static void *work(void *arg)
{
    struct brpc *brpc = arg;

    while (!atomic_load(&brpc->stop)) {
        set_nearest(brpc, NEVER);
        pull(brpc);
        if (run_due(brpc))
            wait_for_top(brpc);
    }
    return NULL;
}

/* ---- the interface ---- */
static void *create(void)
{
    struct brpc *brpc = bench_alloc(sizeof(*brpc));

    pthread_mutex_init(&brpc->lock, NULL);
    brpc->nearest = NEVER;
    for (unsigned i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&brpc->buckets[i].lock, NULL);
        brpc->buckets[i].nearest = NEVER;
    }
    if (pthread_create(&brpc->thread, NULL, work, brpc) != 0)
        bench_die("pthread_create", 11);
    return brpc;
}

static void wake(struct brpc *brpc)
{
    syscall(SYS_futex, &brpc->signals, FUTEX_WAKE_PRIVATE, 1);
}

/* Tasks are the pool's, and stay. */
static void destroy(void *timer)
{
    struct brpc *brpc = timer;

    atomic_store(&brpc->stop, true);
    atomic_fetch_add(&brpc->signals, 1);
    wake(brpc);
    pthread_join(brpc->thread, NULL);
    free(brpc->heap);
    free(brpc);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static bool put(struct bucket *bucket, struct task *task)
{
    bool earlier;

    pthread_mutex_lock(&bucket->lock);
    task->next = atomic_load_explicit(&bucket->first, memory_order_relaxed);
    atomic_store_explicit(&bucket->first, task, memory_order_relaxed);
    earlier = task->run_us < bucket->nearest;
    if (earlier)
        bucket->nearest = task->run_us;
    pthread_mutex_unlock(&bucket->lock);
    return earlier;
}

static void come_sooner(struct brpc *brpc, int64_t us)
{
    bool earlier;

    pthread_mutex_lock(&brpc->lock);
    earlier = us < brpc->nearest;
    if (earlier) {
        brpc->nearest = us;
        atomic_fetch_add(&brpc->signals, 1);
    }
    pthread_mutex_unlock(&brpc->lock);
    if (earlier)
        wake(brpc);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct brpc *brpc = timer;
    uint32_t number = take_number();
    struct task *task = task_at(number);
    int64_t us = (int64_t)((deadline_ns + 999) / 1000);
    uint64_t id;

    task->event = event;
    task->run_us = us;
    id = (uint64_t)atomic_load_explicit(&task->version, memory_order_relaxed) << 32 | number;
    task->id = id;
    if (put(&brpc->buckets[mix((uint64_t)pthread_self()) % BUCKETS], task))
        come_sooner(brpc, us);
    return keep ? (void *)(uintptr_t)id : NULL;
}

static void cancel(void *timer, void *handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    uint32_t version = (uint32_t)(id >> 32);

    (void)timer;
    atomic_compare_exchange_strong_explicit(&task_at((uint32_t)id)->version, &version, version + 2,
                                            memory_order_acquire, memory_order_acquire);
}

const struct peer peer_brpc_like = {"brpc-like", create, destroy, schedule, cancel, NULL, NULL};
