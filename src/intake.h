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
 * DEADLINE_NEVER all of everything that was told.
 */
void intake(hwt_timer *timer, uint64_t horizon);
/*
 * For stop, and for the end of a drain: all, told or not. False, look again: a producer was on its
 * way to a spill, or somebody about to empty his slot.
 */
bool intake_all(hwt_timer *timer);
/* The same when nothing can be in a lane any more: what is still to come is notices. */
void intake_notices(hwt_timer *timer);
/* Between two hands of tasks: a smaller portion of the notices, and nothing else. */
void intake_between(hwt_timer *timer);

/*
 * A segment ahead of its time (ahead.c), if there is anything in it up to `until`. Nobody else
 * knows of its deadlines until all of it has been looked at: so no plan is made before.
 */
bool intake_begin_look(hwt_timer *timer, struct segment *segment, uint64_t now, uint64_t until);
/* So many groups more of it. */
void intake_look_on(hwt_timer *timer, unsigned groups);

/*
 * For the producers, what is far away: from time to time, because they read it with every
 * submission. Also before the first of them.
 */
void intake_tell_far(hwt_timer *timer, uint64_t now);

#define NAP_LEAST UINT64_C(50000)
#define NAP_MOST  UINT64_C(2000000)

/*
 * Some who have won a word are between two steps, and what they owe has not come yet: a little
 * while before the next look. The longer it has taken the longer, up to `most`.
 */
void intake_pause(unsigned *times, uint64_t most);

#endif
