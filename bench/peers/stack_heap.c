/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The design that JDK 25 schedules delayed tasks with (DelayScheduler), written for this and not
 * the original: whoever schedules or cancels pushes on a lock-free stack; one thread pops all of
 * it, and keeps a heap of four children a node, in which each task knows its place. A cancelled
 * task is taken out of the heap when the thread meets its request.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peer.h"

#define CHILDREN 4
#define NOWHERE  SIZE_MAX

enum state { PUSHED, QUEUED, CANCELLED, DONE };

struct task {
    struct task *next; /* on the stack */
    uint64_t deadline;
    struct event *event;
    size_t at;              /* in the heap, or NOWHERE; the thread's */
    _Atomic unsigned state; /* enum state */
};

struct scheduler {
    _Alignas(2 * BENCH_LINE) struct task *_Atomic stack;
    _Atomic uint32_t asleep; /* futex word: 1 while the thread sleeps, or is about to */
    _Alignas(2 * BENCH_LINE) _Atomic bool stop;
    pthread_t thread;
    size_t n, room;
    struct task **heap;
};

/* ---- the heap ---- */
static void put(struct scheduler *s, size_t at, struct task *task)
{
    s->heap[at] = task;
    task->at = at;
}

static void up(struct scheduler *s, size_t at, struct task *task)
{
    while (at > 0 && s->heap[(at - 1) / CHILDREN]->deadline > task->deadline) {
        put(s, at, s->heap[(at - 1) / CHILDREN]);
        at = (at - 1) / CHILDREN;
    }
    put(s, at, task);
}

static size_t least_child(const struct scheduler *s, size_t at)
{
    size_t first = CHILDREN * at + 1, least = first;

    for (size_t i = first + 1; i < first + CHILDREN && i < s->n; i++)
        if (s->heap[i]->deadline < s->heap[least]->deadline)
            least = i;
    return least;
}

static void down(struct scheduler *s, size_t at, struct task *task)
{
    for (size_t child; (child = least_child(s, at)) < s->n; at = child) {
        if (s->heap[child]->deadline >= task->deadline)
            break;
        put(s, at, s->heap[child]);
    }
    put(s, at, task);
}

static void insert(struct scheduler *s, struct task *task)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 4096;
        s->heap = realloc(s->heap, s->room * sizeof(struct task *));
        if (!s->heap)
            bench_die("memory", 12);
    }
    up(s, s->n++, task);
}

static void take_out(struct scheduler *s, struct task *task)
{
    size_t at = task->at;
    struct task *last = s->heap[--s->n];

    task->at = NOWHERE;
    if (last == task)
        return;
    if (last->deadline < task->deadline)
        up(s, at, last);
    else
        down(s, at, last);
}

/* ---- its thread ---- */
/* Just scheduled; or cancelled, and if it was in the heap by then this is for taking it out. */
static void meet(struct scheduler *s, struct task *task)
{
    unsigned pushed = PUSHED;

    if (atomic_compare_exchange_strong(&task->state, &pushed, QUEUED)) {
        insert(s, task);
        return;
    }
    if (task->at != NOWHERE)
        take_out(s, task);
    free(task);
}

/* Last in, first out: what is scheduled and cancelled again comes in the other order. */
static void collect(struct scheduler *s)
{
    struct task *task = atomic_exchange_explicit(&s->stack, NULL, memory_order_acquire);
    struct task *first = NULL, *next;

    for (; task; task = next) {
        next = task->next;
        task->next = first;
        first = task;
    }
    for (task = first; task; task = next) {
        next = task->next;
        meet(s, task);
    }
}

static void run_due(struct scheduler *s)
{
    uint64_t now = clock_ns();

    while (s->n > 0 && s->heap[0]->deadline <= now) {
        struct task *task = s->heap[0];
        unsigned queued = QUEUED;

        take_out(s, task);
        if (atomic_compare_exchange_strong(&task->state, &queued, DONE)) {
            task->event->fire(task->event);
            free(task);
        }
    }
}

static void doze(struct scheduler *s)
{
    struct timespec until;

    atomic_store(&s->asleep, 1);
    if (!atomic_load(&s->stack) && !atomic_load(&s->stop)) {
        if (s->n > 0)
            until = peer_timespec(s->heap[0]->deadline);
        syscall(SYS_futex, &s->asleep, FUTEX_WAIT_BITSET_PRIVATE, 1, s->n > 0 ? &until : NULL, NULL,
                FUTEX_BITSET_MATCH_ANY);
    }
    atomic_store(&s->asleep, 0);
}

static void *work(void *arg)
{
    struct scheduler *s = arg;

    while (!atomic_load(&s->stop)) {
        collect(s);
        run_due(s);
        if (!atomic_load_explicit(&s->stack, memory_order_relaxed))
            doze(s);
    }
    return NULL;
}

/* ---- the interface ---- */
static void wake(struct scheduler *s)
{
    if (atomic_load(&s->asleep) && atomic_exchange(&s->asleep, 0))
        syscall(SYS_futex, &s->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void push(struct scheduler *s, struct task *task)
{
    task->next = atomic_load_explicit(&s->stack, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&s->stack, &task->next, task))
        ;
    wake(s);
}

static void *create(void)
{
    struct scheduler *s = bench_alloc(sizeof(*s));

    if (pthread_create(&s->thread, NULL, work, s) != 0)
        bench_die("pthread_create", 11);
    return s;
}

static void destroy(void *timer)
{
    struct scheduler *s = timer;

    atomic_store(&s->stop, true);
    wake(s);
    pthread_join(s->thread, NULL);
    collect(s);
    for (size_t i = 0; i < s->n; i++)
        free(s->heap[i]);
    free(s->heap);
    free(s);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct task *task = peer_alloc(sizeof(*task));

    task->deadline = deadline_ns;
    task->event = event;
    task->at = NOWHERE;
    atomic_init(&task->state, PUSHED);
    push(timer, task);
    return keep ? task : NULL;
}

/* Of one that has not expired. On the stack it is met in any case. */
static void cancel(void *timer, void *handle)
{
    struct task *task = handle;

    if (atomic_exchange(&task->state, CANCELLED) == QUEUED)
        push(timer, task);
}

const struct peer peer_stack_heap = {"stack-heap", create, destroy, schedule, cancel, NULL, NULL};
