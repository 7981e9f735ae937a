/* SPDX-License-Identifier: BSD-2-Clause */
#include "driver.h"

#include "answer.h"
#include "platform.h"

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
        by = driver & ~(uint32_t)DRIVER_AWAITED;
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
