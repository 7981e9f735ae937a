/* SPDX-License-Identifier: BSD-2-Clause */
/* The bitmap with summaries against an array of bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap.h"
#include "support.h"

TestSuite(bitmap, .init = test_arm);

struct pair {
    struct bitmap map;
    uint64_t *words;
    uint8_t *naive;
    uint64_t random;
};

static void pair_open(struct pair *p, size_t size)
{
    p->words = calloc(bitmap_words(size), sizeof *p->words);
    p->naive = calloc(size, 1);
    cr_assert(p->words && p->naive);
    bitmap_init(&p->map, size, p->words);
}

static void pair_close(struct pair *p)
{
    free(p->words);
    free(p->naive);
}

static size_t naive_next(const struct pair *p, size_t from)
{
    for (; from < p->map.size; from++) {
        if (p->naive[from])
            return from;
    }
    return BITMAP_NONE;
}

static void check_next(const struct pair *p, size_t from)
{
    cr_assert_eq(bitmap_next(&p->map, from), naive_next(p, from), "size %zu, from %zu", p->map.size,
                 from);
}

static void flip(struct pair *p, size_t bit, bool set)
{
    if (set)
        bitmap_set(&p->map, bit);
    else
        bitmap_clear(&p->map, bit);
    p->naive[bit] = set;
    cr_assert_eq(bitmap_test(&p->map, bit), set);
    check_next(p, bit);
    if (bit > 0)
        check_next(p, bit - 1);
    check_next(p, bit + 1);
}

/* All summaries follow from the bits: words of zeros at the end mean that nothing was forgotten. */
static void clear_all(struct pair *p)
{
    size_t bit = 0;

    while ((bit = bitmap_next(&p->map, bit)) != BITMAP_NONE)
        flip(p, bit, false);
    for (size_t i = 0; i < bitmap_words(p->map.size); i++)
        cr_assert_eq(p->words[i], 0);
}

static void random_flips(struct pair *p, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        size_t bit = (size_t)test_random_below(&p->random, p->map.size);
        flip(p, bit, test_random_below(&p->random, 3) != 0);
        check_next(p, (size_t)test_random_below(&p->random, p->map.size + 1));
    }
}

Test(bitmap, every_small_size)
{
    struct pair p = {.random = test_seed("bitmap")};

    for (size_t size = 1; size <= 5000; size++) {
        pair_open(&p, size);
        check_next(&p, 0);
        flip(&p, size - 1, true);
        flip(&p, 0, true);
        random_flips(&p, 8);
        clear_all(&p);
        pair_close(&p);
    }
}

/* Where a word, a summary and its summary begin and end. */
Test(bitmap, sizes_around_powers_of_64)
{
    static const size_t sizes[] = {1,    2,    63,   64,     65,     127,   128,
                                   4095, 4096, 4097, 262143, 262144, 262145};
    struct pair p = {.random = test_seed("bitmap")};

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        pair_open(&p, sizes[i]);
        random_flips(&p, 500);
        clear_all(&p);
        pair_close(&p);
    }
}

/* The ring of the largest wheel. */
Test(bitmap, two_million_bits)
{
    struct pair p = {.random = test_seed("bitmap")};

    pair_open(&p, (size_t)1 << 21);
    cr_assert_eq(p.map.levels, 4);
    for (size_t bit = 0; bit < p.map.size; bit += 4096 * 7 + 63)
        flip(&p, bit, true);
    random_flips(&p, 1000);
    clear_all(&p);
    pair_close(&p);
}

Test(bitmap, setting_and_clearing_twice)
{
    struct pair p;

    pair_open(&p, 300);
    for (unsigned i = 0; i < 2; i++)
        flip(&p, 130, true);
    for (unsigned i = 0; i < 2; i++)
        flip(&p, 130, false);
    clear_all(&p);
    pair_close(&p);
}
