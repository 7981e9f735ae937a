/* SPDX-License-Identifier: BSD-2-Clause */
/* Who acts as the worker: with HWT_DRIVE_CALLER one thread at a time, and stop. */
#ifndef HWT_DRIVE_H
#define HWT_DRIVE_H

#include "timer.h"

/*
 * This thread acts as the worker from now on, and sees what the one before did. It waits for who
 * only looks; stop waits for an advance too. False: another thread is in advance.
 */
bool drive_begin(hwt_timer *timer, enum driver as);
void drive_end(hwt_timer *timer);

#endif
