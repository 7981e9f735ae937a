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

hwt_timer *registry_take(void)
{
    hwt_timer *timer;

    pthread_mutex_lock(&lock);
    timer = shells;
    if (timer)
        shells = timer->next_shell;
    pthread_mutex_unlock(&lock);
    if (!timer) {
        timer = aligned_alloc(CACHE_PAIR, sizeof *timer);
        if (timer)
            memset(timer, 0, sizeof *timer);
    }
    return timer;
}

void registry_give(hwt_timer *timer)
{
    pthread_mutex_lock(&lock);
    timer->next_shell = shells;
    shells = timer;
    pthread_mutex_unlock(&lock);
}

bool registry_enter(bool can_tell)
{
    bool tell;

    pthread_mutex_lock(&lock);
    alive++;
    tell = alive > MANY_TIMERS && !told && can_tell;
    told = told || tell;
    pthread_mutex_unlock(&lock);
    return tell;
}

void registry_leave(void)
{
    pthread_mutex_lock(&lock);
    alive--;
    if (alive <= MANY_TIMERS)
        told = false;
    pthread_mutex_unlock(&lock);
}

void registry_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void registry_after_fork(bool child)
{
    if (child)
        alive = 0;
    pthread_mutex_unlock(&lock);
}
