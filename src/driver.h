/* SPDX-License-Identifier: BSD-2-Clause */
/* Who acts as the worker: with HWT_DRIVE_CALLER one thread at a time, and stop. */
#ifndef HWT_DRIVER_H
#define HWT_DRIVER_H

#include "timer.h"

/*
 * This thread acts as the worker from now on, and sees what the one before did. It waits for who
 * only looks; stop waits for an advance too. False: another thread is in advance, or in stop; who
 * looks does not get ahead of an advance that waits.
 */
bool driver_begin(hwt_timer *timer, enum driver as);
void driver_end(hwt_timer *timer);
bool driver_end_told(hwt_timer *timer);
/*
 * The same, by who has planned for the descriptor. False: an advance was refused meanwhile, and it
 * is to be planned for once more; the role is not given up.
 */
static inline bool driver_end_unless_missed(hwt_timer *timer)
{
    uint32_t driver = load_relaxed(&timer->driver);

    /* pairs with driver_begin, as the exchange of driver_end does (C16) */
    return likely(!(driver & (DRIVER_AWAITED | DRIVER_MISSED)) &&
                  cas_acq_rel(&timer->driver, &driver, DRIVER_NONE)) ||
           driver_end_told(timer);
}

#endif
