/* SPDX-License-Identifier: BSD-2-Clause */
/* What others move while a pass is on: what is due is read anew, what is later leaves. */
#include "agenda_parts.h"

void agenda_look_anew(struct agenda *agenda, uint64_t until)
{
    struct entry *front = agenda->front, *moved = agenda->more->spare;
    unsigned count = 0, end = agenda->lo, to;

    while (end < agenda->hi && front[end].deadline <= until)
        end++;
    agenda->seen_to = end < agenda->hi ? until + 1 : rank_deadline(agenda, agenda->bound);
    to = end;
    for (unsigned i = end; i-- > agenda->lo;) {
        uint64_t deadline = timeout_deadline(front[i].timeout);
        if (deadline > front[i].deadline)
            moved[count++] = (struct entry){deadline, front[i].stamp, front[i].timeout};
        else
            front[--to] = front[i];
    }
    agenda->lo = to;
    while (count-- > 0)
        front_add(agenda, moved[count].timeout, rank_of_entry(agenda, &moved[count]));
}

unsigned agenda_take_later(struct agenda *agenda, uint64_t limit, uint64_t *packed)
{
    struct agenda_memory *more = agenda->more;
    unsigned level, part, count;
    hwt_timeout *timeout;

    while (part_lowest(agenda, &level, &part) &&
           rank_deadline(agenda, part_start(agenda, level, part)) > limit) {
        count = bucket_take(&more->part[level][part], agenda->store, packed, BUCKET_BATCH, NULL);
        if (count == 0 && (timeout = fellows_pop(&more->listed[level][part])) != NULL) {
            if (timeout->place == PLACE_NOTICED)
                agenda_drop(agenda, timeout);
            else
                packed[count++] = packed_make(timeout, 0);
        }
        if (part_is_empty(agenda, level, part))
            agenda->occupied[level] &= ~(UINT64_C(1) << part);
        if (count > 0) {
            agenda->count -= count;
            return count;
        }
    }
    return 0;
}
