/* SPDX-License-Identifier: BSD-2-Clause */
/* POSIX timers: each signals one thread, which waits for that signal. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peer.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct node {
    timer_t id;
    struct event *event;
};

struct waiter {
    pthread_t thread;
    _Atomic int tid;
    _Atomic bool stop;
};

static void expected(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGRTMIN);
}

static void *work(void *arg)
{
    struct waiter *waiter = arg;
    siginfo_t info;
    sigset_t set;

    expected(&set);
    atomic_store(&waiter->tid, (int)syscall(SYS_gettid));
    while (!atomic_load(&waiter->stop)) {
        struct node *node;

        if (sigwaitinfo(&set, &info) < 0 || !info.si_value.sival_ptr)
            continue;
        node = info.si_value.sival_ptr;
        node->event->fire(node->event);
        timer_delete(node->id);
        free(node);
    }
    return NULL;
}

static void *create(void)
{
    struct waiter *waiter = bench_alloc(sizeof(*waiter));
    sigset_t set;

    expected(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&waiter->thread, NULL, work, waiter) != 0)
        bench_die("pthread_create", 11);
    while (atomic_load(&waiter->tid) == 0)
        sleep_ns(100000);
    return waiter;
}

static void destroy(void *timer)
{
    struct waiter *waiter = timer;

    atomic_store(&waiter->stop, true);
    pthread_kill(waiter->thread, SIGRTMIN);
    pthread_join(waiter->thread, NULL);
    free(waiter);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    struct waiter *waiter = timer;
    struct node *node = peer_alloc(sizeof(*node));
    struct itimerspec when = {.it_value = peer_timespec(deadline_ns)};
    struct sigevent notice = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};

    node->event = event;
    notice.sigev_value.sival_ptr = node;
    notice.sigev_notify_thread_id = atomic_load(&waiter->tid);
    if (timer_create(CLOCK_MONOTONIC, &notice, &node->id) != 0 ||
        timer_settime(node->id, TIMER_ABSTIME, &when, NULL) != 0)
        bench_die("timer_create", errno);
    return keep ? node : NULL;
}

static void cancel(void *timer, void *handle)
{
    struct node *node = handle;

    (void)timer;
    timer_delete(node->id);
    free(node);
}

/* Each takes a queued signal of the user's in advance. */
static uint64_t most(void)
{
    struct rlimit limit = {.rlim_cur = 1024};

    getrlimit(RLIMIT_SIGPENDING, &limit);
    return limit.rlim_cur > 2048 ? limit.rlim_cur - 2048 : 0;
}

const struct peer peer_posix = {"posix", create, destroy, schedule, cancel, most, NULL};
