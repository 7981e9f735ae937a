/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pen: timeouts that found no memory for a chunk, in lists linked by their `where`, which need
 * none. There is a list for each span of about a tick, and so many spans to a lap: what is due now
 * is found without a walk through all of them.
 *
 *   P1 What a list holds was due in its span when it was put there, of this lap or a later one; it
 *      may have been moved later since (or earlier: then its nudge is to come). None was due in a
 *      span before `from`.
 *
 * Worker only, all of it.
 */
#ifndef HWT_PEN_H
#define HWT_PEN_H

#include "agenda.h"

#define PEN_LISTS 64

struct pen {
    size_t count;
    unsigned shift;          /* of a deadline: its span */
    uint64_t from;           /* P1 */
    unsigned patience, wait; /* removals before the next one asks for memory: all; still */
    hwt_timeout *list[PEN_LISTS];
};

/* It is zeroed. */
void pen_init(struct pen *pen, uint64_t tick_ns);

static inline bool pen_is_empty(const struct pen *pen)
{
    return pen->count == 0;
}

void pen_put(struct pen *pen, hwt_timeout *timeout, uint64_t deadline);

/* One of the first, adrift; NULL: empty. */
hwt_timeout *pen_pop(struct pen *pen);

/* False: it is not there. Otherwise it is adrift. */
bool pen_remove(struct pen *pen, hwt_timeout *timeout);

/* UINT64_MAX: empty. */
uint64_t pen_earliest(const struct pen *pen);

/* All that is due by `covered` goes into the agenda. */
void pen_expire(struct pen *pen, uint64_t covered, struct agenda *agenda);

/* Counts them. Debug and tests. */
size_t pen_check(const struct pen *pen);

void pen_show(const struct pen *pen, bucket_see *see, void *context);

#endif
