/* SPDX-License-Identifier: BSD-2-Clause */
#include "entries.h"

#include <string.h>

#define FEW        24  /* are sorted without being distributed first */
#define BINS       256 /* of that distribution */
#define FEW_IN_BIN 8
#define KEY_MASK   ((UINT64_C(1) << PACKED_BITS) - 1)

static uint64_t key_from(uint64_t packed, uint64_t from)
{
    return (packed_bits(packed) - from) & KEY_MASK;
}

static void insertion_sort(struct entry *entry, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        struct entry moving = entry[i];
        unsigned at = i;
        for (; at > 0 && entry_before(&moving, &entry[at - 1]); at--)
            entry[at] = entry[at - 1];
        entry[at] = moving;
    }
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
 * By their keys into bins; `bin` then tells where each begins. Read backwards, equal ones are mostly
 * in order already.
 */
static void distribute(const uint64_t *packed, unsigned count, uint64_t from, uint64_t *sorted,
                       unsigned bin[BINS + 1])
{
    uint64_t least = KEY_MASK, most = 0;
    unsigned shift = 0, next[BINS], sum = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t key = key_from(packed[i], from);
        least = min_u64(least, key);
        most = max_u64(most, key);
    }
    while ((most - least) >> shift >= BINS)
        shift++;
    memset(next, 0, sizeof next);
    for (unsigned i = 0; i < count; i++)
        next[(key_from(packed[i], from) - least) >> shift]++;
    for (unsigned i = 0; i < BINS; i++) {
        unsigned here = next[i];
        next[i] = bin[i] = sum;
        sum += here;
    }
    bin[BINS] = sum;
    for (unsigned i = count; i-- > 0;)
        sorted[next[(key_from(packed[i], from) - least) >> shift]++] = packed[i];
}

void entries_sort_packed(const uint64_t *packed, unsigned count, uint64_t from, struct entry *entry,
                         struct entry *spare, uint64_t *spare_packed)
{
    unsigned bin[BINS + 1];

    if (count <= FEW) {
        for (unsigned i = 0; i < count; i++)
            entry[i] = entry_of(packed_timeout(packed[count - 1 - i]));
        insertion_sort(entry, count);
        return;
    }
    distribute(packed, count, from, spare_packed, bin);
    for (unsigned i = 0; i < count; i++)
        entry[i] = entry_of(packed_timeout(spare_packed[i]));
    for (unsigned i = 0; i < BINS; i++)
        entries_sort(entry + bin[i], bin[i + 1] - bin[i], spare);
    /* one that was moved is not in the bin of its deadline */
    for (unsigned i = 1; i < count; i++) {
        if (unlikely(entry_before(&entry[i], &entry[i - 1]))) {
            entries_sort(entry, count, spare);
            return;
        }
    }
}
