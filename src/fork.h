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
#include "platform.h"

/*
 * A page of its own, which the kernel wipes in a child: so the timers of the parent are dead there
 * whatever is called first, and before our handler. (Before Linux 4.14: from that handler on.)
 */
struct fork_page {
    alignas(PLATFORM_PAGE) _Atomic uint32_t generation; /* grows in a forked child; 0: wiped */
};
extern HIDDEN struct fork_page fork_page;
extern HIDDEN _Thread_local unsigned fork_depth; /* not 0: this thread is forking */

/* By whoever creates a timer, settled. False: no memory for it. */
bool fork_watch(void);

void fork_settle_now(void);
/* First of all, in what takes a lock or waits for another thread. */
static inline void fork_settle(void)
{
    if (unlikely(fork_depth > 0))
        fork_settle_now();
}

#endif
