/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking in: what the lanes hold comes to the worker here, and nowhere else. Only the worker, or
 * whoever acts as the worker.
 */
#ifndef HWT_INTAKE_H
#define HWT_INTAKE_H

#include "timer.h"

/*
 * For a pass: takes in what the lanes hold with deadlines up to `horizon`, all that is spilled, and
 * a portion of the notices: however many there are, what is due does not wait for them. With
 * DEADLINE_NEVER all of everything. For stop: false, if a producer was on its way to a spill.
 */
bool intake(hwt_timer *timer, uint64_t horizon);
/*
 * Where much lies in lanes that is far away, all of it cannot be looked through when the first of
 * it comes due: the worker begins earlier, and does a portion between two passes. False: there is
 * none to be done now. Not while tasks run.
 */
bool intake_ahead(hwt_timer *timer);
/* When it should be asked next, if that is before `until`; UINT64_MAX otherwise. */
uint64_t intake_ahead_at(hwt_timer *timer, uint64_t now, uint64_t until);
/* Between two hands of tasks: a smaller portion of the notices, and nothing else. */
void intake_between(hwt_timer *timer);

/*
 * For the producers, what is far away: from time to time, because they read it with every
 * submission. Also before the first of them.
 */
void intake_tell_far(hwt_timer *timer, uint64_t now);

/*
 * Some who have won a word are between two steps, and what they owe has not come yet: a little
 * while before the next look.
 */
void intake_pause(unsigned *times);

#endif
