/* SPDX-License-Identifier: BSD-2-Clause */
#include "driver.h"

#include "answer.h"
#include "platform.h"

/* Who is, whatever others have said about that. */
static uint32_t role_of(uint32_t driver)
{
    return driver & ~(uint32_t)(DRIVER_AWAITED | DRIVER_MISSED | DRIVER_WANTED);
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

/*
 * Everyone for stop, which may be waiting for this very thread, if it runs a task. Who looks for an
 * advance, also for one that waits: it takes longer to wake up than another visit to begin.
 */
static bool gives_up(uint32_t driver, enum driver as)
{
    uint32_t by = role_of(driver);

    return by == DRIVER_STOPS ||
           (as == DRIVER_LOOKS && (by == DRIVER_ADVANCES || driver & DRIVER_WANTED));
}

/* Says so first, and then sleeps, unless the word is another one by then. */
static void wait_for_end(hwt_timer *timer, uint32_t driver, enum driver as)
{
    uint32_t says = as == DRIVER_ADVANCES ? DRIVER_AWAITED | DRIVER_WANTED : DRIVER_AWAITED;

    if ((driver & says) == says || cas_acq_rel(&timer->driver, &driver, driver | says))
        platform_futex_wait(&timer->driver, driver | says, UINT64_MAX);
}

bool driver_begin(hwt_timer *timer, enum driver as)
{
    uint32_t driver = load_acquire(&timer->driver);

    for (;;) {
        if (driver == DRIVER_NONE || (driver == DRIVER_WANTED && as != DRIVER_LOOKS)) {
            if (!cas_acq_rel(&timer->driver, &driver, (uint32_t)as)) /* acquire: driver_end */
                continue;
            timer_act(timer);
            answer_withdraw(&timer->answer);
            return true;
        }
        if (role_of(driver) == DRIVER_ADVANCES && as == DRIVER_ADVANCES) {
            if (say_missed(timer, &driver))
                return false;
            continue;
        }
        if (gives_up(driver, as))
            return false;
        wait_for_end(timer, driver, as);
        driver = load_acquire(&timer->driver);
    }
}

/* Of a timer that is stopped: an advance that waits need not be the first any more. */
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
        if (!cas_acq_rel(&timer->driver, &driver, driver & DRIVER_WANTED))
            continue;
        if (driver & DRIVER_AWAITED)
            platform_futex_wake_all(&timer->driver);
        return true;
    }
    while (!cas_acq_rel(&timer->driver, &driver, driver & ~(uint32_t)DRIVER_MISSED))
        ; /* pairs with say_missed: what is planned from here on comes after its hush */
    return false;
}
