/* SPDX-License-Identifier: BSD-2-Clause */
#include "driver.h"

#include "answer.h"
#include "platform.h"

/* Who is, whatever others have said about that. */
static uint32_t role_of(uint32_t driver)
{
    return driver & ~(uint32_t)(DRIVER_AWAITED | DRIVER_MISSED);
}

/*
 * An advance is refused. Its thread has had the descriptor's edge, and would be told again and
 * again while it stays readable: so first nobody is told any more, then the driver that he is to
 * set it anew. False: he has given the role up meanwhile.
 */
static bool say_missed(hwt_timer *timer, uint32_t *driver)
{
    park_hush(&timer->park);
    return cas_acq_rel(&timer->driver, driver, *driver | DRIVER_MISSED);
}

bool driver_begin(hwt_timer *timer, enum driver as)
{
    uint32_t driver = load_acquire(&timer->driver), by;

    for (;;) {
        if (driver == DRIVER_NONE) {
            if (!cas_acq_rel(&timer->driver, &driver, (uint32_t)as)) /* acquire: driver_end */
                continue;
            timer_act(timer);
            answer_withdraw(&timer->answer);
            return true;
        }
        by = role_of(driver);
        if (by == DRIVER_ADVANCES && as == DRIVER_ADVANCES) {
            if (say_missed(timer, &driver))
                return false;
            continue;
        }
        if ((by == DRIVER_ADVANCES && as != DRIVER_STOPS) || by == DRIVER_STOPS)
            return false; /* stop may be waiting for this very thread, if it runs a task */
        if (driver & DRIVER_AWAITED ||
            cas_acq_rel(&timer->driver, &driver, driver | DRIVER_AWAITED))
            platform_futex_wait(&timer->driver, driver | DRIVER_AWAITED, UINT64_MAX);
        driver = load_acquire(&timer->driver);
    }
}

void driver_end(hwt_timer *timer)
{
    if (unlikely(exchange_acq_rel(&timer->driver, DRIVER_NONE) & DRIVER_AWAITED))
        platform_futex_wake_all(&timer->driver);
}

/* Somebody has said something. */
bool driver_end_told(hwt_timer *timer)
{
    uint32_t driver = load_relaxed(&timer->driver);

    while (!(driver & DRIVER_MISSED)) {
        if (!cas_acq_rel(&timer->driver, &driver, DRIVER_NONE))
            continue;
        if (driver & DRIVER_AWAITED)
            platform_futex_wake_all(&timer->driver);
        return true;
    }
    while (!cas_acq_rel(&timer->driver, &driver, driver & ~(uint32_t)DRIVER_MISSED))
        ; /* pairs with say_missed: what is planned from here on comes after its hush */
    return false;
}
