/* SPDX-License-Identifier: BSD-2-Clause */
#include "level.h"

/* The first slot that is marked, round the ring from this one on. UINT64_MAX: none is. */
static uint64_t marked_from(const struct level *level, uint64_t slot)
{
    size_t start = level_ring_index(level, slot), found;

    if (bitmap_is_empty(&level->occupied))
        return UINT64_MAX;
    found = bitmap_next(&level->occupied, start);
    if (found == BITMAP_NONE)
        found = bitmap_next(&level->occupied, 0);
    return slot + level_ring_index(level, found - start);
}

uint64_t level_seek_occupied(struct level *level, uint64_t current)
{
    uint64_t slot = max_u64(level->first, level_slot_of(level, current));

    while ((slot = marked_from(level, slot)) != UINT64_MAX &&
           bucket_is_empty(level_bucket(level, slot)))
        level_mark_empty(level, slot);
    level->first = slot;
    return slot;
}

void level_visit(const struct level *level, bucket_see *see, void *context, struct sighting *shown)
{
    const struct bitmap *occupied = &level->occupied;

    for (size_t i = bitmap_next(occupied, 0); i != BITMAP_NONE; i = bitmap_next(occupied, i + 1))
        bucket_visit(&level->slot[i], see, context, shown);
}

size_t level_size(unsigned bits)
{
    size_t ring = (size_t)2 << bits;
    return ring * sizeof(struct bucket) + bitmap_words(ring) * sizeof(uint64_t) + CACHE_LINE;
}

char *level_init(struct level *level, unsigned shift, unsigned bits, char *memory)
{
    size_t ring = (size_t)2 << bits;

    level->first = UINT64_MAX;
    level->shift = shift;
    level->mask = ring - 1;
    level->slot = (struct bucket *)(void *)memory;
    memory += ring * sizeof(struct bucket);
    bitmap_init(&level->occupied, ring, (uint64_t *)(void *)memory);
    memory += bitmap_words(ring) * sizeof(uint64_t);
    return align_to_line(memory);
}
