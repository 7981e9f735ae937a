/* SPDX-License-Identifier: BSD-2-Clause */
#include "ladder.h"

struct ladder_memory {
    struct bucket part[2][LADDER_PARTS];
    alignas(CACHE_LINE) struct entry bottom[LADDER_BOTTOM];
};

static_assert(LADDER_BOTTOM <= AGENDA_FRONT, "what is expired together has room in the agenda");

size_t ladder_size(void)
{
    return sizeof(struct ladder_memory);
}

void ladder_init(struct ladder *ladder, struct agenda *agenda, struct chunk_store *store,
                 uint64_t width, char *memory)
{
    struct ladder_memory *more = (struct ladder_memory *)(void *)memory;
    unsigned bits = 64 - (unsigned)__builtin_clzll(width);

    ladder->agenda = agenda;
    ladder->store = store;
    ladder->quantum = bits > LADDER_BITS ? bits - LADDER_BITS : 0;
    ladder->most =
        (size_t)((width >> ladder->quantum >> LADDER_PART_BITS) + 1) * (LADDER_BOTTOM / 4 * 3);
    ladder->bottom = more->bottom;
    for (unsigned i = 0; i < 2; i++)
        ladder->rung[i].part = more->part[i];
}

/* ---- the bottom ---- */

/* L1, L2: the deadlines are still those by whose keys it was brought here, `range` above `from`. */
static void check_bottom(const struct ladder *ladder, uint64_t from, uint64_t range)
{
    for (unsigned i = ladder->lo; i < ladder->hi; i++)
        hwt_assert(ladder_key(ladder, ladder->bottom[i].deadline) - from <= range);
    (void)from;
    (void)range;
}

/* Of agenda_sort_from(), all of them in that range. */
static void sort_to_bottom(struct ladder *ladder, unsigned count, uint64_t from, uint64_t range)
{
    hwt_assert(!ladder_has_bottom(ladder));
    agenda_sort(ladder->agenda, count, from, range, ladder->bottom);
    ladder->in_use = true;
    ladder->lo = 0;
    ladder->hi = count;
    check_bottom(ladder, from, range);
    ladder_fetch(ladder, LADDER_FETCH_TIMEOUTS);
}

void ladder_sort(struct ladder *ladder, unsigned count, uint64_t base)
{
    sort_to_bottom(ladder, count, ladder_key(ladder, base), UINT64_C(1) << LADDER_BITS);
}

void ladder_expire(struct ladder *ladder, uint64_t deadline)
{
    unsigned count = ladder_count(ladder, deadline, LADDER_BOTTOM);

    if (count == 0)
        return;
    agenda_add_sorted(ladder->agenda, ladder->bottom + ladder->lo, count);
    ladder_drop(ladder, count);
    ladder_fetch(ladder, count);
}

unsigned ladder_pop(struct ladder *ladder, uint64_t *out, unsigned most)
{
    struct bucket *part;
    unsigned count = 0;

    while (count < most && ladder_has_bottom(ladder))
        out[count++] = packed_make(ladder_take(ladder), 0);
    while (count < most && (part = ladder_any_part(ladder)) != NULL)
        count += bucket_take(part, ladder->store, out + count, most - count, NULL);
    return count;
}

/* ---- the rungs ---- */

/* As bucket_take would have handed it out before it was spread: the last that was filed first. */
static void turn_round(uint64_t *packed, unsigned count)
{
    for (unsigned i = 0; i < count / 2; i++) {
        uint64_t here = packed[i];
        packed[i] = packed[count - 1 - i];
        packed[count - 1 - i] = here;
    }
}

static void sort_part(struct ladder *ladder, struct bucket *part, uint64_t from)
{
    uint64_t *packed = agenda_sort_from(ladder->agenda);
    unsigned count = 0, more;

    while ((more = bucket_take(part, ladder->store, packed + count, LADDER_BOTTOM - count, NULL)) >
           0) {
        packed_prefetch(packed + count, more);
        count += more;
    }
    turn_round(packed, count);
    sort_to_bottom(ladder, count, from, UINT64_C(1) << LADDER_PART_BITS);
}

static void mark_empty(struct rung *rung, unsigned part)
{
    rung->occupied[part / 64] &= ~(UINT64_C(1) << part % 64);
}

struct bucket *ladder_open(struct ladder *ladder, struct rung *rung)
{
    unsigned lowest = rung_lowest(rung);
    struct bucket *part = &rung->part[lowest];

    hwt_assert(!ladder_has_bottom(ladder));
    mark_empty(rung, lowest);
    if (unlikely(bucket_at_most(part) > LADDER_BOTTOM))
        return part;
    sort_part(ladder, part, rung->from + ((uint64_t)lowest << LADDER_PART_BITS));
    return NULL;
}

unsigned ladder_count_all(const struct ladder *ladder, uint64_t slot, uint64_t deadline,
                          unsigned most)
{
    const struct rung *rung = &ladder->rung[slot & 1];
    unsigned count = ladder_count(ladder, deadline, most);
    uint64_t limit = ladder_key(ladder, deadline) - rung->from + 1;

    for (uint64_t part = rung_lowest(rung); count < most && part < LADDER_PARTS; part++) {
        if (part << LADDER_PART_BITS >= limit)
            break;
        count += bucket_count_below(&rung->part[part], rung->from, limit, most - count);
    }
    return count;
}

struct sighting ladder_scan(struct ladder *ladder, struct rung *rung)
{
    struct bucket *part = &rung->part[rung_lowest(rung)];

    part->earliest = 0; /* nobody has kept it */
    return bucket_scan(part, ladder_key(ladder, 0));
}

struct bucket *ladder_any_part(struct ladder *ladder)
{
    unsigned lowest;

    for (unsigned i = 0; i < 2; i++) {
        struct rung *rung = &ladder->rung[i];
        for (; (lowest = rung_lowest(rung)) < LADDER_PARTS; mark_empty(rung, lowest)) {
            if (!bucket_is_empty(&rung->part[lowest]))
                return &rung->part[lowest];
        }
    }
    return NULL;
}

/* ---- validator ---- */

static void count_pending(void *count, uint64_t word)
{
    hwt_assert(word_code(word) == WORD_PENDING);
    (void)word;
    ++*(size_t *)count;
}

size_t ladder_check(const struct ladder *ladder)
{
    size_t count = 0;

    for (unsigned i = ladder->lo; i < ladder->hi; i++) {
        const struct entry *entry = &ladder->bottom[i];
        hwt_assert(i == ladder->lo || !entry_before(entry, entry - 1));
        hwt_assert(timeout_deadline(entry->timeout) == entry->deadline);
        count_pending(&count, load_acquire(&entry->timeout->word));
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct rung *rung = &ladder->rung[i];
        hwt_assert(ladder->in_use || (!ladder_has_bottom(ladder) && rung_is_empty(rung)));
        hwt_assert(!ladder_has_bottom(ladder) || rung_is_empty(rung) ||
                   ladder->bottom[ladder->hi - 1].deadline < ladder_bound(ladder, rung));
        for (unsigned part = 0; part < LADDER_PARTS; part++) {
            if (rung->occupied[part / 64] >> part % 64 & 1)
                bucket_look_through(&rung->part[part], count_pending, &count);
            else
                hwt_assert(bucket_is_empty(&rung->part[part]));
        }
    }
    return count;
}
