/* SPDX-License-Identifier: BSD-2-Clause */
#include "entries.h"

#include <string.h>

#define FEW         24   /* are sorted by counting, for each, how many come before it ... */
#define FEWER       12   /* ... and these as they come: it takes no longer */
#define BINS        2048 /* of that distribution at most; twice as many as there are of them */
#define FEW_IN_BIN  8
#define DESCENTS_IN 16 /* at most one in so many, and they are entered as they come */

static void insertion_sort(struct entry *entry, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        entry_enter(entry, i, entry[i]);
}

/* Two sorted runs that lie one after the other. */
static void merge_runs(struct entry *entry, unsigned left, unsigned count, struct entry *spare)
{
    unsigned i = 0, j = left, at = 0;

    if (!entry_before(&entry[left], &entry[left - 1]))
        return;
    memcpy(spare, entry, left * sizeof *entry);
    while (i < left)
        entry[at++] = j < count && entry_before(&entry[j], &spare[i]) ? entry[j++] : spare[i++];
}

void entries_sort(struct entry *entry, unsigned count, struct entry *spare)
{
    if (count <= FEW_IN_BIN) {
        insertion_sort(entry, count);
        return;
    }
    for (unsigned begin = 0; begin < count; begin += FEW_IN_BIN)
        insertion_sort(entry + begin, count - begin < FEW_IN_BIN ? count - begin : FEW_IN_BIN);
    for (unsigned width = FEW_IN_BIN; width < count; width *= 2) {
        for (unsigned begin = 0; begin + width < count; begin += 2 * width) {
            unsigned run = count - begin < 2 * width ? count - begin : 2 * width;
            merge_runs(entry + begin, width, run, spare);
        }
    }
}

/*
 * By their keys, which are mostly below `range`, into bins: so many that few share one, since of
 * these it is not foreseen which comes first. Read backwards, equal ones are mostly in order.
 */
static void distribute(const uint64_t *packed, unsigned count, uint64_t from, uint64_t range,
                       uint64_t *sorted)
{
    unsigned shift = 0, bins, sum = 0, next[BINS];

    while (range >> shift >= BINS || range >> shift > 2 * count)
        shift++;
    bins = (unsigned)(range >> shift) + 1;
    memset(next, 0, bins * sizeof *next);
    for (unsigned i = 0; i < count; i++)
        next[min_u64(packed_key_from(packed[i], from) >> shift, bins - 1)]++;
    for (unsigned i = 0; i < bins; i++) {
        unsigned here = next[i];
        next[i] = sum;
        sum += here;
    }
    for (unsigned i = count; i-- > 0;)
        sorted[next[min_u64(packed_key_from(packed[i], from) >> shift, bins - 1)]++] = packed[i];
}

/* So many steps at most; how many are left. */
static unsigned move_down(struct entry *entry, unsigned from, unsigned patience)
{
    struct entry coming = entry[from];
    unsigned at = from;

    for (; at > 0 && patience > 0 && entry_before(&coming, &entry[at - 1]); at--, patience--)
        entry[at] = entry[at - 1];
    entry[at] = coming;
    return patience;
}

/*
 * Entries of packed timeouts that are nearly in order: all are read first, so that the wait for one
 * is spent on the others, and then each goes to its place. False: it would take long, and they are
 * not sorted.
 */
static bool enter_in_order(const uint64_t *packed, unsigned count, struct entry *entry)
{
    unsigned patience = FEW_IN_BIN * count;

    for (unsigned i = 0; i < count; i++)
        entry[i] = entry_of(packed_timeout(packed[i]));
    for (unsigned i = 1; i < count; i++) {
        if (unlikely(entry_before(&entry[i], &entry[i - 1])))
            patience = move_down(entry, i, patience);
    }
    return patience > 0;
}

typedef int32_t four __attribute__((vector_size(16)));

/*
 * A few, by their keys; of equal ones the later first. Of each it is counted how many come before
 * it, four at a time: that foresees nothing, where a sort by moving each down is wrong about where
 * it ends once for each.
 */
static void rank(const uint64_t *packed, unsigned count, uint64_t from, uint64_t *sorted)
{
    four key[FEW / 4] = {{0}}, each[FEW], before;

    for (unsigned i = 0; i < count; i++) {
        int32_t here = (int32_t)(packed_key_from(packed[i], from) * FEW + (count - 1 - i));
        key[i / 4][i % 4] = here;
        each[i] = (four){here, here, here, here};
    }
    for (unsigned i = 0; i < count; i += 4) {
        before = (four){0};
        for (unsigned j = 0; j < count; j++)
            before -= each[j] < key[i / 4]; /* true: all bits, -1 */
        for (unsigned k = 0; k < 4 && i + k < count; k++)
            sorted[before[k]] = packed[i + k];
    }
}

/* As they mostly come if their delays are all the same. */
static bool nearly_in_order(const uint64_t *packed, unsigned count, uint64_t from)
{
    uint64_t before = 0;
    unsigned descents = 0;

    for (unsigned i = count; i-- > 0;) {
        uint64_t key = packed_key_from(packed[i], from);
        descents += key < before;
        before = key;
    }
    return descents <= count / DESCENTS_IN;
}

static void turn_round(const uint64_t *packed, unsigned count, uint64_t *turned)
{
    for (unsigned i = 0; i < count; i++)
        turned[i] = packed[count - 1 - i];
}

void entries_sort_packed(const uint64_t *packed, unsigned count, uint64_t from, uint64_t range,
                         struct entry *entry, struct entry *spare, uint64_t *spare_packed)
{
    if (count > FEWER && count <= FEW)
        rank(packed, count, from, spare_packed);
    else if (count <= FEWER || nearly_in_order(packed, count, from))
        turn_round(packed, count, spare_packed);
    else
        distribute(packed, count, from, range, spare_packed);
    if (unlikely(!enter_in_order(spare_packed, count, entry)))
        entries_sort(entry, count, spare); /* a crowded bin, or many that were moved */
}
