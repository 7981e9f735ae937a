/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes next, for who asks while nobody drives (HWT_DRIVE_CALLER): whoever drove last leaves
 * the answer, and what it stands on. As long as that is so, nobody has to drive to ask again (C22).
 *
 * The answer stands on one timeout: it is in its slot, nothing in the wheel or beside it is due
 * earlier, and nobody but a driver changes that. What others change they tell a lane.
 */
#ifndef HWT_ANSWER_H
#define HWT_ANSWER_H

#include "timer.h"

/*
 * The driver, before anything else that he does: whoever sees in a lane that he has taken something
 * from there, by a compare-and-swap, sees this, too.
 */
static inline void answer_withdraw(struct answer *answer)
{
    uint64_t turn = load_relaxed(&answer->turn);

    if (!(turn & 1))
        store_relaxed(&answer->turn, turn + 1);
}

/*
 * The driver, last of all: nothing is due earlier. It is left if it is the witness's; but not if it
 * is 0, which no lane can say less than. All of it pairs with answer_read's loads.
 */
static inline void answer_leave(struct answer *answer, const struct sighting *witness,
                                uint64_t earliest)
{
    uint64_t turn = load_relaxed(&answer->turn);

    hwt_assert(turn & 1);
    if (!witness->slot || witness->deadline != earliest || earliest == 0)
        return;
    store_release(&answer->slot, witness->slot);
    store_release(&answer->packed, witness->packed);
    store_release(&answer->deadline, earliest);
    store_release(&answer->turn, turn + 1);
}

/* Any thread. False: there is no answer any more, ask as the driver; *deadline is as it was. */
bool answer_read(const hwt_timer *timer, uint64_t *deadline);

/* Is the next one worth leaving? Any thread; a hint. */
static inline void answer_want(struct answer *answer, bool wanted)
{
    if (load_relaxed(&answer->wanted) != wanted)
        store_relaxed(&answer->wanted, wanted);
}

#endif
