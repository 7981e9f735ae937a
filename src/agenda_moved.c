/* SPDX-License-Identifier: BSD-2-Clause */
/* What others move while a pass is on: it is put aside, or leaves. */
#include "agenda_parts.h"

/* ---- aside: what is handed out, then what is to be looked at once more ---- */

void agenda_put_aside(struct agenda *agenda, hwt_timeout *timeout, uint64_t deadline)
{
    hwt_assert(agenda->aside < AGENDA_FRONT);
    agenda->more->aside[agenda->aside++] = (struct entry){deadline, timeout->stamp, timeout};
    timeout_set_where(timeout, NULL, PLACE_KICKED);
    agenda->count--;
}

/* True: it is pending, and was not taken out. */
static bool is_still_aside(struct agenda *agenda, hwt_timeout *timeout)
{
    if (timeout && timeout->place == PLACE_NOTICED)
        part_push_listed(&agenda->dropped, timeout);
    return timeout && timeout->place == PLACE_KICKED;
}

/* A kick may take a moment to be followed by the next: `looks` for all together. */
static bool was_moved_again(const struct entry *entry, unsigned *looks)
{
    while (timeout_deadline(entry->timeout) == entry->deadline) {
        if (*looks == 0)
            return false;
        --*looks;
        ck_pr_stall();
    }
    return true;
}

/* Nothing is handed out any more: of the others those that were moved again come next. */
static void choose_kicked(struct agenda *agenda)
{
    struct entry *aside = agenda->more->aside;
    unsigned from = agenda->kicked_end, end = agenda->aside, looks = KICK_LOOKS;

    agenda->aside = agenda->kicked = agenda->kicked_end = 0;
    for (unsigned i = from; i < end; i++) {
        hwt_timeout *timeout = aside[i].timeout;

        if (!is_still_aside(agenda, timeout))
            continue;
        if (was_moved_again(&aside[i], &looks))
            aside[agenda->kicked_end++] = entry_of(timeout);
        else
            agenda_add(agenda, timeout, timeout_deadline(timeout));
    }
    agenda->aside = agenda->kicked_end;
    entries_sort(aside, agenda->kicked_end, agenda->more->spare);
}

hwt_timeout *agenda_pop_kicked(struct agenda *agenda)
{
    while (agenda->aside > 0) {
        while (agenda->kicked < agenda->kicked_end) {
            hwt_timeout *timeout = agenda->more->aside[agenda->kicked++].timeout;
            if (is_still_aside(agenda, timeout))
                return timeout;
        }
        choose_kicked(agenda);
    }
    return NULL;
}

uint64_t agenda_earliest_aside(const struct agenda *agenda)
{
    const struct entry *aside = agenda->more->aside;
    uint64_t earliest = UINT64_MAX;

    for (unsigned i = agenda->kicked; i < agenda->aside; i++) {
        if (aside[i].timeout && aside[i].timeout->place == PLACE_KICKED)
            earliest = min_u64(earliest, timeout_deadline(aside[i].timeout));
    }
    return earliest;
}

bool agenda_take_from_aside(struct agenda *agenda, const hwt_timeout *timeout)
{
    struct entry *aside = agenda->more->aside;

    for (unsigned i = agenda->kicked; i < agenda->aside; i++) {
        if (aside[i].timeout == timeout) {
            aside[i].timeout = NULL;
            return true;
        }
    }
    return false;
}

void agenda_put_aside_back(struct agenda *agenda)
{
    for (unsigned i = agenda->kicked; i < agenda->aside; i++) {
        hwt_timeout *timeout = agenda->more->aside[i].timeout;
        if (is_still_aside(agenda, timeout))
            agenda_add(agenda, timeout, timeout_deadline(timeout));
    }
    agenda->aside = agenda->kicked = agenda->kicked_end = 0;
}

/* ---- what is later ---- */

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
