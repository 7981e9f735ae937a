/* SPDX-License-Identifier: BSD-2-Clause */
#include "house.h"

#include "pool.h"
#include "slab.h"

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
/* So much later what is due may run because memory is made ready. */
#define BRIEF_NS    UINT64_C(200000)
#define TOOK_MOST   UINT64_C(10000000)
/*
 * A huge page that takes longer is dear: the host has to find it. In small ones the same memory
 * takes 1.2 ms on many of these; so many times, then a huge one is tried again. On others small
 * ones take nearly as long: if one slab takes two thirds of that, as many times huge ones, whatever
 * they take.
 */
#define DEAR_NS     UINT64_C(2000000)
#define SMALL_TIMES 16
/* Nothing is due for so long: then a huge page is waited for by nobody, wherever it comes from. */
#define QUIET_NS    UINT64_C(10000000)

static void ask_to_give_back(hwt_timer *timer)
{
    if (!load_relaxed(&timer->untidy) && !exchange_acq_rel(&timer->untidy, 1))
        timer_ask(timer, ASKED_HOUSE);
}

static void ask_to_make_ready(hwt_timer *timer)
{
    if (!(load_relaxed(&timer->asked) & ASKED_READY))
        timer_ask(timer, ASKED_READY);
    slab_promise_next();
}

void house_ask(void *keeper, enum wish wish)
{
    if (wish == WISH_GIVE_BACK)
        ask_to_give_back(keeper);
    else
        ask_to_make_ready(keeper);
}

/* As far as is known. */
static uint64_t next_due(const hwt_timer *timer)
{
    return min_u64(load_relaxed(&timer->worker.next_deadline), lanes_earliest(&timer->lanes));
}

/*
 * The pages of a slab mostly take a tenth of a millisecond; milliseconds, where a host has to find
 * them first. Then that is done only when nothing comes due meanwhile, as far as is known; but
 * tried again some time.
 */
static bool may_take_time(hwt_timer *timer, uint64_t now)
{
    struct house *house = &timer->worker.house;
    uint64_t due = next_due(timer);

    if (house->took <= BRIEF_NS || due >= now + house->took)
        return true;
    house->took /= 2;
    return false;
}

/* Of which kind the next slabs are, from what the last one took. */
static void choose_pages(struct house *house)
{
    if (house->small < 0) {
        house->small++;
    } else if (house->small > 0) {
        house->small = house->took < house->dear / 3 * 2 ? house->small - 1 : -SMALL_TIMES;
    } else if (house->took > DEAR_NS) {
        house->dear = house->took;
        house->small = SMALL_TIMES;
    }
}

/*
 * No pause: there is one segment at most for each that was filled, and one slab. The time is the
 * system's, for pages that somebody would have waited for otherwise.
 */
void house_make_ready(hwt_timer *timer)
{
    struct house *house = &timer->worker.house;
    uint64_t begin, end;

    timer_check_acting(timer);
    lanes_make_ready(&timer->lanes);
    if (!slab_next_is_wanted())
        return;
    begin = timer_now(timer);
    if (!may_take_time(timer, begin)) {
        slab_put_off();
        return;
    }
    slab_make_ready(house->small > 0);
    end = timer_now(timer); /* some clocks go back, or leap */
    house->took = end > begin ? min_u64(end - begin, TOOK_MOST) : 0;
    choose_pages(house);
}

/*
 * It is he who would wait for these pages when he needs them: so to have them ready is of no use
 * but when there is time.
 */
void house_make_wheel_ready(hwt_timer *timer)
{
    bool small = timer->worker.house.small > 0;

    timer_check_acting(timer);
    if (next_due(timer) >= deadline_after(timer_now(timer), QUIET_NS))
        wheel_make_ready(timer->worker.wheel, small);
    else
        wheel_choose_pages(timer->worker.wheel, small);
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

/* Nobody may ask for long, where little is submitted after a peak. */
void house_look_now(hwt_timer *timer, uint64_t now)
{
    struct house *house = &timer->worker.house;

    timer_check_acting(timer);
    house->look = deadline_after(now, EASE_LOOK_NS);
    pool_ease_by_time(clock_coarse());
    house->open = house->open || pool_must_ease();
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
