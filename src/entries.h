/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the agenda sorts: timeouts beside their deadlines and stamps, so that they are compared
 * without going to each. Worker only.
 */
#ifndef HWT_ENTRIES_H
#define HWT_ENTRIES_H

#include "bucket_slot.h"

struct entry {
    uint64_t deadline, stamp; /* when it was entered: the timeout may have been moved since */
    hwt_timeout *timeout;
};

static inline bool entry_before(const struct entry *a, const struct entry *b)
{
    return a->deadline < b->deadline || (a->deadline == b->deadline && a->stamp < b->stamp);
}

/* As it stands. */
static inline struct entry entry_of(hwt_timeout *timeout)
{
    return (struct entry){timeout_deadline(timeout), timeout->stamp, timeout};
}

/* Among `count` sorted ones, behind which there is room. */
static inline void entry_enter(struct entry *sorted, unsigned count, struct entry coming)
{
    unsigned at = count;

    for (; unlikely(at > 0 && entry_before(&coming, &sorted[at - 1])); at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = coming;
}

/* `spare`: as much room again. */
void entries_sort(struct entry *entry, unsigned count, struct entry *spare);

/*
 * Of packed timeouts, whose keys are mostly within `range` of `from`, into sorted entries. They
 * come as bucket_take hands them out, the last that was filed first; their lines are on their way.
 */
void entries_sort_packed(const uint64_t *packed, unsigned count, uint64_t from, uint64_t range,
                         struct entry *entry, struct entry *spare, uint64_t *spare_packed);

#endif
