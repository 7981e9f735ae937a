/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's timers: how many there are, and the shells of destroyed ones, kept for the next. */
#ifndef HWT_REGISTRY_H
#define HWT_REGISTRY_H

#include "timer.h"

hwt_timer *registry_take(void); /* zeroed but for what late handles read; NULL: no memory */
void registry_give(hwt_timer *timer);
/* Counts a timer in; true: there are so many that the user should be told. */
bool registry_enter(bool can_tell);
void registry_leave(void);

/* Around a fork, by fork.c: what this file guards is whole in the child. */
void registry_before_fork(void);
void registry_after_fork(bool child);

#endif
