/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fellows: timeouts in a list, linked by their `where`. It needs no memory, and whoever takes one
 * out of the middle looks for it from the start.
 *
 * Worker only, all of it.
 */
#ifndef HWT_FELLOWS_H
#define HWT_FELLOWS_H

#include "timeout.h"

/* The one behind it; NULL: it is the last. */
static inline hwt_timeout *fellow_next(const hwt_timeout *timeout)
{
    return (hwt_timeout *)(uintptr_t)load_relaxed(&timeout->where);
}

static inline void fellows_push(hwt_timeout **list, hwt_timeout *timeout, enum timeout_place place)
{
    timeout_set_where(timeout, *list, place);
    *list = timeout;
}

/* Takes out the one behind `before` (NULL: the first), which is there. Its `where` is stale. */
static inline hwt_timeout *fellows_take_after(hwt_timeout **list, hwt_timeout *before)
{
    hwt_timeout *timeout = before ? fellow_next(before) : *list;

    if (before)
        store_relaxed(&before->where, load_relaxed(&timeout->where));
    else
        *list = fellow_next(timeout);
    return timeout;
}

/* Any one, its `where` stale; NULL: empty. */
static inline hwt_timeout *fellows_pop(hwt_timeout **list)
{
    return *list ? fellows_take_after(list, NULL) : NULL;
}

/* False: it is not there. Otherwise it is PLACE_ADRIFT afterwards. */
static inline bool fellows_remove(hwt_timeout **list, hwt_timeout *timeout)
{
    hwt_timeout *before = NULL, *here = *list;

    for (; here && here != timeout; here = fellow_next(here))
        before = here;
    if (!here)
        return false;
    fellows_take_after(list, before);
    timeout_set_where(timeout, NULL, PLACE_ADRIFT);
    return true;
}

#endif
