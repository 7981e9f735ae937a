/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the worker puts a timeout that it has met: into the wheel, adrift, or into its grave. Only
 * the worker, or whoever acts as the worker.
 */
#ifndef HWT_FILING_H
#define HWT_FILING_H

#include "timer.h"

/*
 * Met and pending: into the wheel (or, for stop, into the list). What is due already waits for the
 * next pass.
 */
void file_timeout(hwt_timer *timer, hwt_timeout *timeout);
/* The same for one that was there before the pass: if due, it is run in this pass, in its turn. */
void file_in_order(hwt_timer *timer, hwt_timeout *timeout);
/* Its notice or nudge will come. */
void file_adrift(hwt_timer *timer, hwt_timeout *timeout);
/* The runtime's share of it is over. */
void file_bury(hwt_timer *timer, hwt_timeout *timeout);
/* What was buried goes back to the pool, at the latest before a sleep. */
void file_flush_returns(hwt_timer *timer);

#endif
