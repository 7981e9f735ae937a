/* SPDX-License-Identifier: BSD-2-Clause */
#include "pen.h"

#include "fellows.h"

#define PEN_PORTION 16384 /* leave it at a time: a millisecond or two */

void pen_put(struct wheel *wheel, hwt_timeout *timeout)
{
    fellows_push(&wheel->pen, timeout, PLACE_LISTED);
}

uint64_t pen_earliest(const struct wheel *wheel)
{
    uint64_t earliest = UINT64_MAX;

    for (const hwt_timeout *timeout = wheel->pen; timeout; timeout = fellow_next(timeout))
        earliest = min_u64(earliest, timeout_deadline(timeout));
    return earliest;
}

void pen_expire(struct wheel *wheel)
{
    hwt_timeout *before = NULL, *here = wheel->pen, *next;

    for (; here; here = next) {
        uint64_t deadline = timeout_deadline(here);
        next = fellow_next(here);
        if (deadline <= wheel->covered)
            agenda_add(&wheel->agenda, fellows_take_after(&wheel->pen, before), deadline);
        else
            before = here;
    }
}

/* The first that finds no memory is in the pen again, and ends that. */
void pen_leave(struct wheel *wheel)
{
    chunk_ask_again(&wheel->store);
    for (unsigned filed = 0; wheel->pen && filed < PEN_PORTION; filed++) {
        hwt_timeout *timeout = fellows_pop(&wheel->pen), *rest = wheel->pen;

        timeout_set_where(timeout, NULL, PLACE_ADRIFT);
        wheel_insert(wheel, timeout, timeout_deadline(timeout));
        if (wheel->pen != rest)
            return;
    }
}

bool pen_remove(struct wheel *wheel, hwt_timeout *timeout)
{
    if (!wheel->pen || timeout->place != PLACE_LISTED)
        return false;
    pen_leave(wheel);
    if (!bucket_holds(timeout))
        return timeout->place == PLACE_LISTED && fellows_remove(&wheel->pen, timeout);
    bucket_remove(&wheel->store, timeout);
    return true;
}
