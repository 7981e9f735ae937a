/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G12: in a forked child the parent's timers are dead, and new ones work.
 *
 * The thread that forks holds the locks of the process from before the fork until after it.
 * Between, it may run fork handlers of the application, which may call the library: for this thread
 * these locks are open (fork_depth), and in the child the first call that could wait does first
 * what the child's handler is about to do (fork_settle).
 */
#ifndef HWT_FORK_H
#define HWT_FORK_H

#include "atomic.h"
#include "base.h"

extern HIDDEN _Atomic uint32_t fork_generation;  /* grows in a forked child; never 0 */
extern HIDDEN _Thread_local unsigned fork_depth; /* not 0: this thread is forking */

/* Before anything else, by whoever creates a timer. False: no memory for it. */
bool fork_watch(void);

void fork_settle_now(void);
/* First of all, in what takes a lock or waits for another thread. */
static inline void fork_settle(void)
{
    if (unlikely(fork_depth > 0))
        fork_settle_now();
}

#endif
