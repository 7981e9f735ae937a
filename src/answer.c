/* SPDX-License-Identifier: BSD-2-Clause */
#include "answer.h"

/*
 * Is it where it was, with that deadline? A look is enough, the slot's last: a word that is another
 * one's was written with release by who knew the slot emptied (C20).
 */
HOT bool answer_stands(const struct answer *answer, uint64_t deadline)
{
    const _Atomic uint64_t *slot = load_acquire(&answer->slot);
    uint64_t packed = load_acquire(&answer->packed);

    return word_deadline(load_acquire(&packed_timeout(packed)->word)) == deadline &&
           load_acquire(slot) == packed;
}

bool answer_read(const hwt_timer *timer, uint64_t *deadline)
{
    const struct answer *answer = &timer->answer;
    uint64_t turn = load_acquire(&answer->turn), told; /* pairs with answer_leave's last store */

    if (turn & 1)
        return false;
    told = load_acquire(&answer->deadline);
    if (!answer_stands(answer, told) || lanes_told(&timer->lanes, false) < told ||
        load_relaxed(&answer->turn) != turn) /* after the lanes: pairs with answer_withdraw */
        return false;
    *deadline = told;
    return true;
}
