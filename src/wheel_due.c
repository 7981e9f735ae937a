/* SPDX-License-Identifier: BSD-2-Clause */
/* What is due, of both kinds of wheel: tick by tick into the agenda, and out of it in order. */
#include "wheel.h"

void wheel_cover(struct wheel *wheel, uint64_t tick, struct bucket *due)
{
    wheel->covered = max_u64(wheel->covered, wheel_tick_time(wheel, tick));
    if (due) {
        wheel->witness.slot = NULL;
        agenda_add_bucket(&wheel->agenda, due, tick ? wheel_tick_time(wheel, tick - 1) : 0);
    }
    if (unlikely(!pen_is_empty(&wheel->pen)))
        pen_expire(&wheel->pen, wheel->covered, &wheel->agenda);
}

/* The next tick up to `limit` at which something is due goes into the agenda. */
static bool expire_tick(struct wheel *wheel, uint64_t limit)
{
    uint64_t penned = UINT64_MAX;
    bool any;

    if (unlikely(!pen_is_empty(&wheel->pen)))
        wheel_leave_pen(wheel);
    if (unlikely(!pen_is_empty(&wheel->pen))) {
        penned = wheel_tick_of(wheel, pen_earliest(&wheel->pen));
        limit = min_u64(limit, max_u64(penned, wheel->current));
    }
    any = wheel->ops->expire(wheel, limit);
    if (!any)
        wheel_cover(wheel, wheel->current - 1, NULL);
    /* what came down may have gone to the pen, and from there on */
    return any || penned <= limit || !agenda_is_empty(&wheel->agenda);
}

/* So does what is due at the tick that is on, if its slot has so many at most. */
static bool expire_current(struct wheel *wheel, uint64_t now, uint32_t most)
{
    bool wanted = wheel->ops->has_current(wheel, now, most);

    if (unlikely(!pen_is_empty(&wheel->pen)))
        wanted = wanted || (most == UINT32_MAX && pen_earliest(&wheel->pen) <= now);
    if (!wanted || wheel->covered >= wheel_tick_time(wheel, wheel->current))
        return false;
    wheel->ops->take_current(wheel);
    return true;
}

/* Most ticks of an event loop have one: it need not go over the agenda. */
static hwt_timeout *take_lone(struct wheel *wheel, uint64_t now)
{
    if (!wheel->ops->take_lone || unlikely(!pen_is_empty(&wheel->pen)) ||
        !agenda_is_empty(&wheel->agenda))
        return NULL;
    return wheel->ops->take_lone(wheel, now);
}

/* Of what is on the agenda the first, or the rest, was moved beyond all that is covered. */
static void put_back_first(struct wheel *wheel)
{
    hwt_timeout *timeout = agenda_take(&wheel->agenda);

    wheel_insert(wheel, timeout, timeout_deadline(timeout));
}

static __attribute__((noinline)) void put_back_later(struct wheel *wheel, uint64_t limit)
{
    uint64_t batch[BUCKET_BATCH];
    unsigned count;

    while ((count = agenda_take_later(&wheel->agenda, limit, batch)) > 0) {
        packed_prefetch(batch, count);
        for (unsigned i = 0; i < count; i++) {
            hwt_timeout *timeout = packed_timeout(batch[i]);
            wheel_insert(wheel, timeout, timeout_deadline(timeout));
        }
    }
}

/*
 * What is met where it was filed, and has been moved to the tick that is on, and is due there by
 * now, does not wait for the end of that: it could be moved once more before.
 */
hwt_timeout *wheel_find_due(struct wheel *wheel, uint64_t now, bool exact)
{
    uint64_t limit = wheel_tick_floor(wheel, now);
    hwt_timeout *lone = take_lone(wheel, now);
    uint32_t most = exact ? UINT32_MAX : wheel->sparse;

    if (lone)
        return lone;
    for (;;) {
        const struct entry *first = agenda_first_due(&wheel->agenda, now);
        if (first && first->deadline <= wheel->covered) {
            if (first->deadline <= now)
                return agenda_take(&wheel->agenda);
            break;
        }
        if (first) {
            if (first->deadline <= now && most < SPARSE)
                most = SPARSE;
            put_back_first(wheel);
        } else if (unlikely(!agenda_is_empty(&wheel->agenda))) {
            if (wheel->covered > now)
                break;
            put_back_later(wheel, now);
        } else if (!expire_tick(wheel, limit) && !expire_current(wheel, now, most)) {
            break;
        }
    }
    return agenda_take_kicked(&wheel->agenda);
}

uint64_t wheel_agenda_earliest(struct wheel *wheel)
{
    while (unlikely(!agenda_is_empty(&wheel->agenda))) {
        const struct entry *first = agenda_first(&wheel->agenda, wheel->covered);
        if (first && first->deadline <= wheel->covered)
            return first->deadline;
        if (first)
            put_back_first(wheel);
        else
            put_back_later(wheel, wheel->covered);
    }
    return UINT64_MAX;
}
