/* SPDX-License-Identifier: BSD-2-Clause */
/* Who acts as the worker: with HWT_DRIVE_CALLER one thread at a time, and stop. */
#ifndef HWT_DRIVER_H
#define HWT_DRIVER_H

#include "timer.h"

/*
 * This thread acts as the worker from now on, and sees what the one before did. It waits for who
 * only looks; stop waits for an advance too. False: another thread is in advance, or in stop.
 */
bool driver_begin(hwt_timer *timer, enum driver as);
void driver_end(hwt_timer *timer);

#endif
