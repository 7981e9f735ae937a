/* SPDX-License-Identifier: BSD-2-Clause */
/* What is over leaves the agenda: marked, dropped when it is met, purged; or at once. */
#include "agenda_parts.h"

#include <string.h>

#define PURGE_ABOVE 64 /* noticed ones, and half of all */

void agenda_drop(struct agenda *agenda, hwt_timeout *timeout)
{
    part_push_listed(&agenda->dropped, timeout);
    agenda->count--;
    agenda->noticed--;
}

static void purge_front(struct agenda *agenda)
{
    struct entry *front = agenda->front;
    unsigned to = agenda->lo;

    for (unsigned i = agenda->lo; i < agenda->hi; i++) {
        if (front[i].timeout->place == PLACE_NOTICED)
            agenda_drop(agenda, front[i].timeout);
        else
            front[to++] = front[i];
    }
    agenda->hi = to;
}

static void purge_listed(struct agenda *agenda, hwt_timeout **list)
{
    hwt_timeout *here = *list, *timeout;

    *list = NULL;
    while ((timeout = fellows_pop(&here)) != NULL) {
        if (timeout->place == PLACE_NOTICED)
            agenda_drop(agenda, timeout);
        else
            part_push_listed(list, timeout);
    }
}

static void purge(struct agenda *agenda)
{
    purge_front(agenda);
    for (unsigned level = 0; level < AGENDA_LEVELS; level++) {
        for (unsigned part = 0; part < AGENDA_PARTS; part++) {
            if (agenda->occupied[level] >> part & 1)
                purge_listed(agenda, &agenda->more->listed[level][part]);
        }
    }
}

void agenda_notice(struct agenda *agenda, hwt_timeout *timeout)
{
    bool aside = timeout->place == PLACE_KICKED; /* not for long */

    timeout->place = PLACE_NOTICED;
    if (unlikely(aside))
        return;
    agenda->noticed++;
    if (agenda->noticed > PURGE_ABOVE && agenda->noticed > agenda->count / 2)
        purge(agenda);
}

static bool extract_from_front(struct agenda *agenda, const hwt_timeout *timeout)
{
    struct entry *front = agenda->front;

    for (unsigned i = agenda->lo; i < agenda->hi; i++) {
        if (front[i].timeout != timeout)
            continue;
        memmove(front + i, front + i + 1, (agenda->hi - i - 1) * sizeof *front);
        agenda->hi--;
        return true;
    }
    return false;
}

static bool extract_from_lists(struct agenda *agenda, hwt_timeout *timeout)
{
    for (unsigned level = 0; level < AGENDA_LEVELS; level++) {
        for (unsigned part = 0; part < AGENDA_PARTS; part++) {
            if (agenda->occupied[level] >> part & 1 &&
                fellows_remove(&agenda->more->listed[level][part], timeout))
                return true;
        }
    }
    return false;
}

void agenda_extract(struct agenda *agenda, hwt_timeout *timeout)
{
    bool found;

    if (unlikely(timeout->place == PLACE_KICKED)) {
        found = agenda_take_from_aside(agenda, timeout);
    } else {
        found = extract_from_front(agenda, timeout) || extract_from_lists(agenda, timeout);
        agenda->count--;
    }
    hwt_assert(found);
    (void)found;
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
}

hwt_timeout *agenda_pop_dropped(struct agenda *agenda)
{
    return fellows_pop(&agenda->dropped);
}

/* ---- validator ---- */

static size_t check_front(const struct agenda *agenda)
{
    const struct entry *front = agenda->front;
    size_t noticed = 0;

    hwt_assert(agenda->lo <= agenda->hi && agenda->hi <= AGENDA_FRONT);
    for (unsigned i = agenda->lo; i < agenda->hi; i++) {
        hwt_assert(i == agenda->lo || !entry_before(&front[i], &front[i - 1])); /* A1 */
        hwt_assert(!bucket_holds(front[i].timeout));
        noticed += front[i].timeout->place == PLACE_NOTICED;
    }
    return noticed;
}

static size_t check_aside(const struct agenda *agenda)
{
    size_t count = 0;

    hwt_assert(agenda->kicked <= agenda->kicked_end && agenda->kicked_end <= agenda->aside &&
               agenda->aside <= AGENDA_FRONT);
    for (unsigned i = agenda->kicked; i < agenda->aside; i++) {
        const hwt_timeout *timeout = agenda->more->aside[i].timeout;
        hwt_assert(!timeout || timeout->place == PLACE_KICKED || timeout->place == PLACE_NOTICED);
        count += timeout && timeout->place == PLACE_KICKED;
    }
    return count;
}

size_t agenda_check(struct agenda *agenda, unsigned idle)
{
    size_t count = (agenda->hi - agenda->lo), noticed = check_front(agenda);
    struct agenda_memory *more = agenda->more;

    for (unsigned level = 0; level < AGENDA_LEVELS; level++) {
        bool all = idle == AGENDA_LEVELS || idle == level;
        for (unsigned part = 0; part < AGENDA_PARTS; part++) {
            const hwt_timeout *listed = more->listed[level][part];
            size_t here;
            if (!all && !(agenda->occupied[level] >> part & 1))
                continue;
            here = bucket_check(&more->part[level][part]);
            for (; listed; listed = fellow_next(listed))
                here++;
            hwt_assert(here == 0 || agenda->occupied[level] >> part & 1);
            count += here;
        }
    }
    hwt_assert(count <= agenda->count && noticed <= agenda->noticed);
    hwt_assert(bucket_is_empty(&agenda->anew));
    (void)noticed;
    return count - agenda->noticed + bucket_check(&agenda->tie) + bucket_check(&agenda->rest) +
           check_aside(agenda);
}
