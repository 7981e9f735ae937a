/* SPDX-License-Identifier: BSD-2-Clause */
#include "park.h"

void park_init(struct park *park)
{
    store_relaxed(&park->wake_before, 0);
    store_relaxed(&park->parked, 0);
    store_relaxed(&park->kind, PARK_NONE);
    store_relaxed(&park->fd, -1);
}

void park_publish(struct park *park, uint64_t wake_before, uint64_t until_ns)
{
    int kind = load_relaxed(&park->kind);

    if (kind == PARK_NONE)
        return;
    store_relaxed(&park->parked, 1);
    store_seq(&park->wake_before, wake_before); /* pairs with park_wake_for and park_wake */
    if (kind == PARK_TIMERFD)
        platform_timerfd_set(load_relaxed(&park->fd), until_ns);
}

void park_sleep(struct park *park, uint64_t until_ns)
{
    if (load_relaxed(&park->kind) == PARK_TIMERFD)
        platform_timerfd_wait(load_relaxed(&park->fd));
    else
        platform_futex_wait(&park->parked, 1, until_ns);
}

void park_leave(struct park *park)
{
    store_relaxed(&park->parked, 0);
    store_relaxed(&park->wake_before, 0);
}

void park_wake(struct park *park)
{
    if (exchange_seq(&park->wake_before, 0) == 0) /* awake, or another one is waking it */
        return;
    if (load_acquire(&park->kind) == PARK_TIMERFD) /* pairs with the store when it is created */
        platform_timerfd_set(load_relaxed(&park->fd), 1);
    else if (exchange_seq(&park->parked, 0) == 1)
        platform_futex_wake_all(&park->parked);
}
