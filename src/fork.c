/* SPDX-License-Identifier: BSD-2-Clause */
/* G12: in a forked child the parent's timers are dead, and new ones work. */
#include "fork.h"

#include <pthread.h>

#include "counter.h"
#include "pool.h"
#include "registry.h"

struct fork_page fork_page;
_Thread_local unsigned fork_depth;

static uint32_t generations; /* so many have been, in the line of this process */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool watched;

/*
 * The only locks that outlive a timer's call are held over the fork, so that what they guard
 * is whole in the child. All else the child can reach is lock-free and whole at every moment.
 */
static void before(void)
{
    if (fork_depth++ > 0) /* a handler that forks */
        return;
    registry_before_fork();
    pool_before_fork();
    platform_before_fork();
}

static void in_parent(void)
{
    if (fork_depth == 0)
        return;
    if (--fork_depth > 0)
        return;
    pool_after_fork(false);
    registry_after_fork(false);
}

static void in_child(void)
{
    if (fork_depth == 0) /* done when it was needed */
        return;
    store_relaxed(&fork_page.generation, ++generations);
    fork_depth = 0;
    counter_after_fork();
    pool_after_fork(true);
    registry_after_fork(true);
}

void fork_settle_now(void)
{
    if (load_relaxed(&fork_page.generation) == 0 || platform_is_forked())
        in_child();
}

static void watch(void)
{
    store_relaxed(&fork_page.generation, ++generations);
    platform_wipe_on_fork(&fork_page, sizeof fork_page);
    watched = pthread_atfork(before, in_parent, in_child) == 0;
}

bool fork_watch(void)
{
    pthread_once(&once, watch);
    if (unlikely(load_relaxed(&fork_page.generation) == 0)) /* a child without handlers: _Fork */
        store_relaxed(&fork_page.generation, ++generations);
    return watched;
}

/*
 * Early, so that our handlers enclose those of the application: prepared last, and first to know
 * that this is the child.
 */
static __attribute__((constructor(101))) void watch_from_the_start(void)
{
    fork_watch();
}
