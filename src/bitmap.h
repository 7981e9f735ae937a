/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bitmap with summaries: bit i of a summary tells whether word i below it has a bit set, so that
 * the next set bit is found in a few steps however large the map is.
 */
#ifndef HWT_BITMAP_H
#define HWT_BITMAP_H

#include "base.h"

#define BITMAP_LEVELS 4 /* 64^4 bits */
#define BITMAP_NONE   SIZE_MAX

struct bitmap {
    uint64_t *words[BITMAP_LEVELS]; /* zeroed; [0]: the bits, then the summaries */
    size_t size;                    /* bits */
    unsigned levels;
};

/* Words that all levels of a map of `size` bits need. */
static inline size_t bitmap_words(size_t size)
{
    size_t total = 0;

    do {
        size = (size + 63) / 64;
        total += size;
    } while (size > 1);
    return total;
}

/* `words`: bitmap_words(size) zeroed words that outlive the map. */
static inline void bitmap_init(struct bitmap *map, size_t size, uint64_t *words)
{
    map->size = size;
    map->levels = 0;
    do {
        size = (size + 63) / 64;
        map->words[map->levels++] = words;
        words += size;
    } while (size > 1);
}

static inline bool bitmap_is_empty(const struct bitmap *map)
{
    return map->words[map->levels - 1][0] == 0;
}

static inline bool bitmap_test(const struct bitmap *map, size_t bit)
{
    return map->words[0][bit / 64] >> (bit % 64) & 1;
}

static inline void bitmap_set(struct bitmap *map, size_t bit)
{
    for (unsigned level = 0; level < map->levels; level++, bit /= 64) {
        uint64_t before = map->words[level][bit / 64];
        map->words[level][bit / 64] = before | UINT64_C(1) << (bit % 64);
        if (before) /* its summary is set already */
            return;
    }
}

static inline void bitmap_clear(struct bitmap *map, size_t bit)
{
    for (unsigned level = 0; level < map->levels; level++, bit /= 64) {
        map->words[level][bit / 64] &= ~(UINT64_C(1) << (bit % 64));
        if (map->words[level][bit / 64])
            return;
    }
}

/* The first set bit at or after `from`, or BITMAP_NONE. */
static inline size_t bitmap_next(const struct bitmap *map, size_t from)
{
    size_t size = map->size;
    unsigned level = 0;
    uint64_t word = 0;

    for (;; level++, from = from / 64 + 1, size = (size + 63) / 64) {
        if (level == map->levels || from >= size)
            return BITMAP_NONE;
        word = map->words[level][from / 64] & ~UINT64_C(0) << (from % 64);
        if (word)
            break;
    }
    from = from / 64 * 64 + (size_t)__builtin_ctzll(word);
    while (level-- > 0)
        from = from * 64 + (size_t)__builtin_ctzll(map->words[level][from]);
    return from;
}

#endif
