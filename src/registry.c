/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's timers: how many there are, and the shells of destroyed ones, kept for the next. */
#include "registry.h"

#include <stdlib.h>
#include <string.h>

#define MANY_TIMERS 64 /* Netty's lesson: a timer per connection is a mistake */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hwt_timer *shells; /* under `lock`, as all here */
static unsigned alive;
static bool told;

static void enter(void)
{
    fork_settle();
    if (likely(fork_depth == 0)) /* otherwise this thread holds it, for its fork */
        pthread_mutex_lock(&lock);
}

static void leave(void)
{
    if (likely(fork_depth == 0))
        pthread_mutex_unlock(&lock);
}

hwt_timer *registry_take(void)
{
    hwt_timer *timer;

    enter();
    timer = shells;
    if (timer)
        shells = timer->next_shell;
    leave();
    if (!timer) {
        timer = aligned_alloc(CACHE_PAIR, sizeof *timer);
        if (timer)
            memset(timer, 0, sizeof *timer);
    }
    return timer;
}

void registry_give(hwt_timer *timer)
{
    enter();
    timer->next_shell = shells;
    shells = timer;
    leave();
}

bool registry_enter(bool can_tell)
{
    bool tell;

    enter();
    alive++;
    tell = alive > MANY_TIMERS && !told && can_tell;
    told = told || tell;
    leave();
    return tell;
}

void registry_leave(void)
{
    enter();
    alive--;
    if (alive <= MANY_TIMERS)
        told = false;
    leave();
}

void registry_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

/* The threads that had signed in with them, through late handles, are not in the child. */
static void dismiss_guests(void)
{
    for (hwt_timer *timer = shells; timer; timer = timer->next_shell)
        store_relaxed(&timer->guests, 0);
}

void registry_after_fork(bool child)
{
    if (child) {
        alive = 0;
        dismiss_guests();
    }
    pthread_mutex_unlock(&lock);
}
