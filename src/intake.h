/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking in: what the lanes hold comes to the worker here, and nowhere else. Only the worker, or
 * whoever acts as the worker.
 */
#ifndef HWT_INTAKE_H
#define HWT_INTAKE_H

#include "timer.h"

/*
 * Takes in all notices and spills, and the lanes with deadlines up to `horizon`. For stop: false,
 * if a producer was on its way to a spill.
 */
bool intake(hwt_timer *timer, uint64_t horizon);

/*
 * Some who have won a word are between two steps, and what they owe has not come yet: a little
 * while before the next look.
 */
void intake_pause(unsigned *times);

#endif
