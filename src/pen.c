/* SPDX-License-Identifier: BSD-2-Clause */
#include "pen.h"

#include "fellows.h"

void pen_init(struct pen *pen, uint64_t tick_ns)
{
    pen->shift = 63 - (unsigned)__builtin_clzll(tick_ns);
}

static hwt_timeout **list_of(struct pen *pen, uint64_t span)
{
    return &pen->list[span % PEN_LISTS];
}

void pen_put(struct pen *pen, hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t span = deadline >> pen->shift;

    pen->from = pen_is_empty(pen) ? span : min_u64(span, pen->from);
    pen->count++;
    fellows_push(list_of(pen, span), timeout, PLACE_LISTED);
}

hwt_timeout *pen_pop(struct pen *pen)
{
    for (unsigned i = 0; i < PEN_LISTS; i++) {
        hwt_timeout *timeout = fellows_pop(list_of(pen, pen->from + i));
        if (!timeout)
            continue;
        pen->count--;
        timeout_set_where(timeout, NULL, PLACE_ADRIFT);
        return timeout;
    }
    return NULL;
}

/* In its span's list, unless it has been moved. */
bool pen_remove(struct pen *pen, hwt_timeout *timeout)
{
    uint64_t span = timeout_deadline(timeout) >> pen->shift;

    for (unsigned i = 0; i < PEN_LISTS; i++) {
        if (!fellows_remove(list_of(pen, span + i), timeout))
            continue;
        pen->count--;
        return true;
    }
    return false;
}

uint64_t pen_earliest(const struct pen *pen)
{
    uint64_t earliest = UINT64_MAX, span = pen->from, end = span + PEN_LISTS;

    /*
     * P1: what is due before this span has been seen by then. What was moved earlier is not found
     * before its list's turn, and is not told to be due before that.
     */
    for (; span != end && earliest >> pen->shift >= span; span++) {
        const hwt_timeout *timeout = pen->list[span % PEN_LISTS];
        for (; timeout; timeout = fellow_next(timeout))
            earliest = min_u64(earliest, max_u64(timeout_deadline(timeout), span << pen->shift));
    }
    return earliest;
}

/* What is not due yet goes to the list where it is by now. */
static void expire_list(struct pen *pen, uint64_t span, uint64_t covered, struct agenda *agenda)
{
    hwt_timeout *list = *list_of(pen, span), *timeout;

    *list_of(pen, span) = NULL;
    while ((timeout = fellows_pop(&list)) != NULL) {
        uint64_t deadline = timeout_deadline(timeout);
        pen->count--;
        if (deadline <= covered)
            agenda_add(agenda, timeout, deadline);
        else
            pen_put(pen, timeout, deadline);
    }
}

void pen_expire(struct pen *pen, uint64_t covered, struct agenda *agenda)
{
    uint64_t from = pen->from, to = covered >> pen->shift, spans;

    if (pen_is_empty(pen) || to < from)
        return;
    spans = min_u64(to - from + 1, PEN_LISTS);
    pen->from = to;
    for (uint64_t i = 0; i < spans; i++)
        expire_list(pen, from + i, covered, agenda);
}

void pen_show(const struct pen *pen, bucket_see *see, void *context)
{
    for (unsigned i = 0; i < PEN_LISTS; i++) {
        for (const hwt_timeout *timeout = pen->list[i]; timeout; timeout = fellow_next(timeout))
            see(context, timeout);
    }
}

size_t pen_check(const struct pen *pen)
{
    size_t count = 0;

    for (unsigned i = 0; i < PEN_LISTS; i++) {
        for (const hwt_timeout *timeout = pen->list[i]; timeout; timeout = fellow_next(timeout)) {
            hwt_assert(timeout->place == PLACE_LISTED);
            count++;
        }
    }
    hwt_assert(count == pen->count);
    return count;
}
