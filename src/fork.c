/* SPDX-License-Identifier: BSD-2-Clause */
/* G12: in a forked child the parent's timers are dead, and new ones work. */
#include "fork.h"

#include <pthread.h>

#include "registry.h"
#include "slab.h"

_Atomic uint32_t fork_generation = 1;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * The only locks that outlive a timer's call are held over the fork, so that what they guard
 * is whole in the child. All else the child can reach is lock-free and whole at every moment.
 */
static void before(void)
{
    registry_before_fork();
    pool_before_fork();
}

static void in_parent(void)
{
    pool_after_fork(false);
    registry_after_fork(false);
}

static void in_child(void)
{
    add_relaxed(&fork_generation, 1);
    pool_after_fork(true);
    registry_after_fork(true);
}

static void watch(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void fork_watch(void)
{
    pthread_once(&once, watch);
}
