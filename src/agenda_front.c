/* SPDX-License-Identifier: BSD-2-Clause */
/* The front of the agenda: a sorted array, and how one by one, or sorted ones, get into it. */
#include "agenda_parts.h"

#include <string.h>

/* Its upper half goes back into the parts. */
static void evict(struct agenda *agenda)
{
    const struct entry *front = agenda->front;
    unsigned from = agenda->lo + front_length(agenda) / 2;
    agenda_rank rank = rank_of_entry(agenda, &front[from]);

    parts_admit(agenda, rank);
    agenda->bound = rank;
    for (unsigned i = from; i < agenda->hi; i++)
        parts_place(agenda, front[i].timeout, rank_of_entry(agenda, &front[i]));
    agenda->hi = from;
}

static void make_room(struct agenda *agenda)
{
    struct entry *front = agenda->front;
    unsigned length = front_length(agenda);

    if (agenda->lo > 0) {
        memmove(front, front + agenda->lo, length * sizeof *front);
        agenda->lo = 0;
        agenda->hi = length;
    } else {
        evict(agenda);
    }
}

static void insert_into_front(struct agenda *agenda, const struct entry *entry)
{
    struct entry *front = agenda->front;
    unsigned low = agenda->lo, high = agenda->hi;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (entry_before(entry, &front[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    if (low == agenda->lo && agenda->lo > 0) {
        front[--agenda->lo] = *entry;
        return;
    }
    memmove(front + low + 1, front + low, (agenda->hi - low) * sizeof *front);
    front[low] = *entry;
    agenda->hi++;
}

void front_add(struct agenda *agenda, hwt_timeout *timeout, agenda_rank rank)
{
    struct entry entry = {rank_deadline(agenda, rank), timeout->stamp, timeout};

    if (rank < agenda->bound && agenda->hi == AGENDA_FRONT)
        make_room(agenda);
    if (rank < agenda->bound)
        insert_into_front(agenda, &entry);
    else
        parts_place(agenda, timeout, rank);
}

void agenda_add(struct agenda *agenda, hwt_timeout *timeout, uint64_t deadline)
{
    timeout_set_where(timeout, NULL, PLACE_AGENDA);
    agenda->count++;
    front_add(agenda, timeout, rank_make(agenda, deadline, timeout->stamp));
}

/* Into the front, which holds all that is here, and has room for them: from the end on. */
static void merge_into_front(struct agenda *agenda, const struct entry *entry, unsigned count)
{
    struct entry *front = agenda->front;
    unsigned at, here;

    if (agenda->hi + count > AGENDA_FRONT)
        make_room(agenda); /* before its first one */
    here = agenda->hi;
    at = agenda->hi += count;
    while (count > 0) {
        if (here > agenda->lo && entry_before(&entry[count - 1], &front[here - 1]))
            front[--at] = front[--here];
        else
            front[--at] = entry[--count];
    }
}

void agenda_add_sorted(struct agenda *agenda, const struct entry *entry, unsigned count)
{
    if (likely(agenda_is_empty(agenda))) {
        memcpy(agenda->front, entry, count * sizeof *entry);
        agenda->lo = 0;
        agenda->hi = count;
        agenda->bound = RANK_MAX;
    } else if (agenda->bound == RANK_MAX && front_length(agenda) + count <= AGENDA_FRONT) {
        merge_into_front(agenda, entry, count);
    } else {
        for (unsigned i = 0; i < count; i++)
            agenda_add(agenda, entry[i].timeout, entry[i].deadline);
        return;
    }
    agenda->count += count;
}
