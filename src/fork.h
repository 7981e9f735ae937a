/* SPDX-License-Identifier: BSD-2-Clause */
/* G12: in a forked child the parent's timers are dead, and new ones work. */
#ifndef HWT_FORK_H
#define HWT_FORK_H

#include "atomic.h"
#include "base.h"

extern HIDDEN _Atomic uint32_t fork_generation; /* grows in a forked child; never 0 */

/* Before anything else, by whoever creates a timer. */
void fork_watch(void);

#endif
