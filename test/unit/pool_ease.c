/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free blocks that nobody has wanted for a while go home a little at a time, and the pages of slabs
 * that are all at home back to the system (C9, C12).
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "pool.h"
#include "support_pool.h"

#define CROWD 300000 /* 18 MB, ten slabs */

TestSuite(pool_ease, .init = pool_arm);

/* They end in any order, so that each batch has blocks of all slabs; all but some. */
static void have_a_crowd_that_leaves(size_t left, uint64_t seed)
{
    hwt_timeout **block = calloc(CROWD, sizeof *block);

    cr_assert_not_null(block);
    for (size_t i = 0; i < CROWD; i++)
        cr_assert_not_null(block[i] = pool_take());
    for (size_t i = CROWD; i-- > left;) {
        size_t any = test_random_below(&seed, i + 1);
        pool_give(block[any]);
        block[any] = block[i];
    }
    pool_flush();
    free(block);
}

static void have_a_crowd(uint64_t seed)
{
    have_a_crowd_that_leaves(0, seed);
}

/* Three windows; how many pieces it took. */
static unsigned ease(void)
{
    unsigned pieces = 0;

    for (unsigned window = 0; window < 3; window++) {
        for (unsigned i = 0; i < EASE_WINDOW; i++)
            pool_ease();
        while (pool_ease_on())
            pieces++;
        cr_assert(!pool_must_ease());
    }
    return pieces;
}

/* Not in 4 KB, which a huge page is not cut into: in blocks that have their memory. */
static size_t held(void)
{
    return resident_bytes() / sizeof(hwt_timeout);
}

/* What a few batches keep would lie in all of the slabs. */
Test(pool_ease, gives_all_back_whatever_the_order)
{
    size_t before = held();

    have_a_crowd(1);
    cr_assert_gt(ease(), 0);
    if (memory_tells())
        cr_assert_leq(held(), before + CROWD / 4);
}

/* A thread that goes on keeps a magazine, whose blocks lie in as many slabs at most. */
Test(pool_ease, goes_on_when_there_is_nothing_to_do)
{
    have_a_crowd(2);
    ease();
    cr_assert_eq(ease(), 0, "it never ends");
}

/* All that came home is there to be taken, and once: what is taken then needs no other memory. */
Test(pool_ease, loses_nothing)
{
    size_t total;

    have_a_crowd(3);
    total = slab_total();
    for (unsigned round = 0; round < 3; round++) {
        ease();
        have_a_crowd(4 + round);
    }
    cr_assert_leq(slab_total(), total + SLAB_BLOCKS);
}

/* However many ask in a second, it is one look. */
Test(pool_ease, by_time_once_a_second)
{
    uint64_t now = UINT64_C(1000) * EASE_LOOK_NS;

    have_a_crowd(4);
    for (unsigned look = 0; look < EASE_WINDOW; look++, now += EASE_LOOK_NS) {
        cr_assert(!pool_must_ease(), "after %u looks", look);
        for (uint64_t i = 0; i < EASE_WINDOW; i++)
            pool_ease_by_time(now + i);
    }
    cr_assert(pool_must_ease());
}

/* What makes no whole batch is brought home, too. */
Test(pool_ease, leaves_nothing_sorted)
{
    enum { LEFT = 40 };

    have_a_crowd_that_leaves(LEFT, 9);
    ease();
    cr_assert_eq(slab_total() - slab_available(), LEFT);
}

/* What is half sorted comes home by a trim. */
Test(pool_ease, leaves_nothing_half_sorted_to_a_trim)
{
    have_a_crowd(5);
    for (unsigned i = 0; i < EASE_WINDOW; i++)
        pool_ease();
    for (unsigned i = 0; i < 3; i++)
        cr_assert(pool_ease_on());
    pool_trim();
    cr_assert_eq(slab_available(), slab_total(), "all of it is at home, or not yet carved");
}

/* So many keep their pages, and no more. */
Test(pool_ease, beside_a_reserve)
{
    struct pool_reservation reservation = {.count = CROWD / 3, .pending = pool_none_pending};
    size_t before = held();

    cr_assert_eq(pool_reserve(&reservation), 0);
    have_a_crowd(7);
    cr_assert_gt(ease(), 0);
    cr_assert_geq(held(), before + CROWD / 3);
    if (memory_tells())
        cr_assert_leq(held(), before + CROWD * 3 / 4);
    pool_unreserve(&reservation);
    have_a_crowd(8);
    ease();
    if (memory_tells())
        cr_assert_leq(held(), before + CROWD / 4);
}
