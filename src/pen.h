/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pen: a list of the timeouts that found no memory for a chunk. It needs none, and whoever
 * looks for something in it walks through all of it. What is in it waits for the end of its tick.
 * By who has the wheel.
 */
#ifndef HWT_PEN_H
#define HWT_PEN_H

#include "wheel.h"

void pen_put(struct wheel *wheel, hwt_timeout *timeout);

/* The earliest deadline in it. UINT64_MAX: it is empty. */
uint64_t pen_earliest(const struct wheel *wheel);

/* All that is due by what is covered goes into the agenda. */
void pen_expire(struct wheel *wheel);

/* A portion of them is filed, if there is memory by now. */
void pen_leave(struct wheel *wheel);

/* False: it is not there. It is looked for only as long as there is no memory to leave it. */
bool pen_remove(struct wheel *wheel, hwt_timeout *timeout);

#endif
