/* SPDX-License-Identifier: BSD-2-Clause */
#include "house.h"

#include "pool.h"

/*
 * A piece takes so long, or one step: a system call, and the sorting of a few hundred blocks. Then
 * so many times as long there is none: a worker that takes much of the CPU is to the system's
 * scheduler a thread like any other, and what is due would wait for its turn.
 */
#define PIECE_NS    UINT64_C(100000)
#define SHARE       20
/* And so long anyway: it is a wake-up. After pieces of no use ever longer, a second at most. */
#define PAUSE_LEAST UINT64_C(1000000)
#define PAUSE_MOST  UINT64_C(1000000000)

void house_ask(void *keeper)
{
    hwt_timer *timer = keeper;

    if (!load_relaxed(&timer->untidy) && !exchange_acq_rel(&timer->untidy, 1))
        timer_ask(timer, ASKED_HOUSE);
}

static bool step(hwt_timer *timer)
{
    bool given = lanes_give_back(&timer->lanes);

    return pool_ease_on() || given;
}

/* False: there was nothing, or nothing that can go now. */
static bool do_piece(hwt_timer *timer, uint64_t *now)
{
    uint64_t end = *now + PIECE_NS;
    bool any = false;

    while (*now < end && step(timer)) {
        any = true;
        *now = timer_now(timer);
    }
    return any;
}

/*
 * When nothing is left others may ask again, and are heard after a pause: what cannot go, because
 * something is in use yet, is asked for with each part of a segment.
 */
void house_keep_now(hwt_timer *timer)
{
    struct house *house = &timer->worker.house;
    uint64_t begin = timer_now(timer), now = begin;

    timer_check_acting(timer);
    if (begin < house->next)
        return;
    if (do_piece(timer, &now)) {
        house->pause = PAUSE_LEAST + SHARE * (now - begin);
    } else {
        house->pause = min_u64(2 * max_u64(house->pause, PAUSE_LEAST), PAUSE_MOST);
        house->open = false;
        store_release(&timer->untidy, 0);
    }
    house->next = now + house->pause;
}
