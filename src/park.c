/* SPDX-License-Identifier: BSD-2-Clause */
#include "park.h"

#define AT_ONCE 1 /* a time that has passed on every clock */

void park_init(struct park *park, uint64_t slack)
{
    store_relaxed(&park->wake_before, 0);
    store_relaxed(&park->parked, 0);
    store_relaxed(&park->kind, PARK_NONE);
    store_relaxed(&park->fd, -1);
    park->slack = slack;
}

/* `published` has just been stored in wake_before. The last to set the timer sets the latest. */
static void set_timer(struct park *park, uint64_t published)
{
    uint64_t set;

    do {
        set = published;
        platform_timerfd_set(load_relaxed(&park->fd), set == AT_ONCE ? set : set + park->slack);
        published = load_seq(&park->wake_before);
    } while (published != set && published != 0); /* 0: the driver will set it when it is done */
}

void park_publish(struct park *park, uint64_t wake_before)
{
    int kind = load_relaxed(&park->kind);

    if (kind == PARK_NONE)
        return;
    store_relaxed(&park->parked, 1);
    store_seq(&park->wake_before, wake_before); /* pairs with park_wake_for and park_wake_at */
    if (kind == PARK_TIMERFD)
        set_timer(park, wake_before);
}

void park_sleep(struct park *park, uint64_t until)
{
    if (load_relaxed(&park->kind) == PARK_TIMERFD)
        platform_timerfd_wait(load_relaxed(&park->fd));
    else
        platform_futex_wait(&park->parked, 1, until);
}

void park_leave(struct park *park)
{
    store_relaxed(&park->parked, 0);
    store_relaxed(&park->wake_before, 0);
}

static void wake_sleeper(struct park *park)
{
    if (exchange_seq(&park->wake_before, 0) == 0) /* awake, or another one is waking it */
        return;
    if (exchange_seq(&park->parked, 0) == 1)
        platform_futex_wake_all(&park->parked);
}

static void lower_timer(struct park *park, uint64_t deadline)
{
    uint64_t planned = load_seq(&park->wake_before);

    while (deadline < planned) {
        if (cas_seq(&park->wake_before, &planned, deadline)) {
            set_timer(park, deadline);
            return;
        }
    }
}

void park_wake_at(struct park *park, uint64_t deadline)
{
    if (load_acquire(&park->kind) == PARK_TIMERFD) /* pairs with the store when it is created */
        lower_timer(park, deadline > AT_ONCE ? deadline : AT_ONCE);
    else
        wake_sleeper(park);
}

void park_wake(struct park *park)
{
    park_wake_at(park, AT_ONCE);
}

void park_fire(struct park *park)
{
    store_seq(&park->wake_before, AT_ONCE);
    set_timer(park, AT_ONCE);
}
