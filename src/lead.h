/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lead: how long before the first of what is far away comes due all of it has to be looked
 * through, so that what is due by then is found in its turn. Only the worker, or whoever acts as
 * the worker.
 */
#ifndef HWT_LEAD_H
#define HWT_LEAD_H

#include "timer.h"

/*
 * By how much was ever filled. 0: so little that it can wait until it is due; or nobody sleeps, and
 * who drives comes when he likes.
 */
uint64_t lead_at_most(const hwt_timer *timer);
/* So often it is measured, when that is at most `most`. */
uint64_t lead_period(uint64_t most);
/* By what was measured lately, or is now. */
uint64_t lead_time(hwt_timer *timer, uint64_t now);

#endif
