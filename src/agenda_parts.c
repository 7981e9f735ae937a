/* SPDX-License-Identifier: BSD-2-Clause */
#include "agenda_parts.h"

static void place_packed(struct agenda *agenda, uint64_t packed, agenda_rank rank)
{
    unsigned level = rank_level(rank, agenda->last);
    part_put(agenda, level, rank_digit(rank, level), packed);
}

void parts_place(struct agenda *agenda, hwt_timeout *timeout, agenda_rank rank)
{
    hwt_assert(rank >= agenda->last);
    if (unlikely(timeout->place == PLACE_NOTICED)) {
        agenda_drop(agenda, timeout);
        return;
    }
    place_packed(agenda, packed_of_key(timeout, agenda_key(agenda, rank_deadline(agenda, rank))),
                 rank);
}

bool part_lowest(const struct agenda *agenda, unsigned *level, unsigned *part)
{
    for (*level = 0; *level < AGENDA_LEVELS; ++*level) {
        if (agenda->occupied[*level]) {
            *part = (unsigned)__builtin_ctzll(agenda->occupied[*level]);
            return true;
        }
    }
    return false;
}

/* All of a part into another, as it is. */
static void pour(struct agenda *agenda, unsigned level, unsigned part, unsigned to_level,
                 unsigned to_part)
{
    struct agenda_memory *more = agenda->more;
    uint64_t batch[BUCKET_BATCH];
    hwt_timeout *timeout;
    unsigned count;

    while ((count = bucket_take(&more->part[level][part], agenda->store, batch, BUCKET_BATCH,
                                NULL)) > 0) {
        packed_prefetch(batch, count);
        for (unsigned i = 0; i < count; i++)
            part_put(agenda, to_level, to_part, batch[i]);
    }
    while ((timeout = fellows_pop(&more->listed[level][part])) != NULL) {
        part_push_listed(&more->listed[to_level][to_part], timeout);
        agenda->occupied[to_level] |= UINT64_C(1) << to_part;
    }
}

/*
 * A lower `last`: what lies below the highest digit in which the two differ now differs in that
 * digit, all of it in the same way.
 */
static void lower_last(struct agenda *agenda, agenda_rank rank)
{
    unsigned level, part, to_level = rank_level(rank, agenda->last);
    unsigned to_part = rank_digit(agenda->last, to_level);

    while (part_lowest(agenda, &level, &part) && level < to_level) {
        pour(agenda, level, part, to_level, to_part);
        agenda->occupied[level] &= ~(UINT64_C(1) << part);
    }
    agenda->last = rank;
}

void parts_admit(struct agenda *agenda, agenda_rank rank)
{
    unsigned level, part;

    if (!part_lowest(agenda, &level, &part))
        agenda->last = rank;
    else if (rank < agenda->last)
        lower_last(agenda, rank);
}

bool part_fits(const struct agenda *agenda, unsigned level, unsigned part)
{
    const hwt_timeout *timeout = agenda->more->listed[level][part];
    size_t count = bucket_at_most(&agenda->more->part[level][part]);

    for (; timeout && count <= AGENDA_FRONT; timeout = fellow_next(timeout))
        count++;
    return count <= AGENDA_FRONT;
}
