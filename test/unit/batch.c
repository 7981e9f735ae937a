/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a batch of free blocks says of itself: how many they are (C9, C12), and where they lie, by
 * every way that one is made. Nothing but a fetch goes by what is noted, so it is read here as a
 * fetch reads it.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "depot.h"
#include "pool.h"
#include "support_pool.h"

#define SOME 4096

static hwt_timeout *block[SOME];

TestSuite(batch, .init = pool_arm);

/* Not in the order of their addresses. */
static void take_some(void)
{
    uint64_t seed = 1;

    for (unsigned i = 0; i < SOME; i++) {
        block[i] = pool_take();
        cr_assert_not_null(block[i]);
    }
    for (unsigned i = SOME - 1; i > 0; i--) {
        unsigned other = (unsigned)test_random_below(&seed, i + 1);
        hwt_timeout *here = block[i];

        block[i] = block[other];
        block[other] = here;
    }
}

/* So that what is found there afterwards has come back. */
static void empty_depots(void)
{
    pool_flush();
    for (unsigned i = 0; i < depots_used(); i++) {
        while (depot_pop(i))
            continue;
    }
}

/* ---- what is known ---- */

struct known {
    hwt_timeout *block[(BATCH_NODES + 1) * BATCH_STRIDE];
    unsigned count;
};

static void learn(struct known *known, hwt_timeout *block_known)
{
    known->block[known->count++] = block_known;
}

static void learn_followers(struct known *known, hwt_timeout *node)
{
    learn(known, next_free(node));
    poison_open(node);
    for (unsigned i = 0; i < BATCH_NOTES; i++)
        learn(known, node->noted[i]);
    poison(node);
}

/* As batch_fetch goes. */
static struct known what_is_known(hwt_timeout *first)
{
    struct known known = {.count = 0};
    unsigned nodes = 0;

    poison_open(first);
    for (; nodes < BATCH_NODES && batch_node_at(nodes) < first->batch_length; nodes++)
        learn(&known, nodes == 0 ? next_free(first) : first->noted[nodes - 1]);
    poison(first);
    for (unsigned i = 0; i < nodes; i++)
        learn_followers(&known, known.block[i]);
    return known;
}

static bool is_known(const struct known *known, const hwt_timeout *wanted)
{
    for (unsigned i = 0; i < known->count; i++) {
        if (known->block[i] == wanted)
            return true;
    }
    return false;
}

/* All that follow are known, but for one that no node is left for; and nothing else is. */
static void check_known(hwt_timeout *first, unsigned length)
{
    struct known known = what_is_known(first);
    unsigned place = 0;

    cr_assert_eq(first->batch_length, length);
    cr_assert_eq(first->batch_noted, 1);
    for (hwt_timeout *at = next_free(first); at; at = next_free(at)) {
        place++;
        cr_assert(is_known(&known, at) || place == BATCH_NODES * BATCH_STRIDE + 1,
                  "of %u, number %u", length, place);
    }
    cr_assert_eq(place + 1, length);
    for (unsigned i = 0; i < known.count; i++) {
        hwt_timeout *at = first;

        while (at && at != known.block[i])
            at = next_free(at);
        cr_assert(at || !known.block[i], "noted, and not in it");
    }
}

/* ---- made by hand ---- */

Test(batch, it_is_known_where_each_block_lies)
{
    take_some();
    for (unsigned length = 1; length <= SLAB_BATCH; length++) {
        for (unsigned i = 0; i < length; i++) {
            block[i]->link.next = i + 1 < length ? &block[i + 1]->link : NULL;
            poison(block[i]);
        }
        batch_note(block[0], length);
        check_known(block[0], length);
        batch_fetch(block[0]);
    }
}

Test(batch, nothing_is_known_of_what_is_not_noted)
{
    take_some();
    batch_note(block[0], 1);
    batch_set_length(block[0], 1);
    cr_assert_eq(block[0]->batch_length, 1);
    cr_assert_eq(block[0]->batch_noted, 0);
    batch_fetch(block[0]);
}

/* ---- counted alone ---- */

static unsigned chain_length(const hwt_timeout *first)
{
    unsigned length = 0;

    for (; first; first = next_free(first))
        length++;
    return length;
}

static void check_counted(const hwt_timeout *first, unsigned length)
{
    cr_assert_eq(chain_length(first), length);
    cr_assert_eq(first->batch_length, length);
    cr_assert_eq(first->batch_noted, 0);
}

/* Side by side, and new. */
Test(batch, what_is_carved_is_counted)
{
    unsigned batches = 0;
    hwt_timeout *first;

    pool_magazine.passed_on = PASS_ON_FIRST; /* it keeps what it takes */
    cr_assert_not_null(pool_take());
    for (unsigned i = 0; i < depots_used(); i++) {
        for (; (first = depot_pop(i)) != NULL; batches++)
            check_counted(first, SLAB_BATCH);
    }
    cr_assert_eq(batches, pool_stretch() - 1);
}

/* What a thread had at its end, or a timer's owner before a trim. */
Test(batch, what_a_thread_leaves_is_counted)
{
    hwt_timeout *left = NULL;

    take_some();
    empty_depots();
    for (unsigned i = 0; i < MAGAZINE_MAX - 1; i++)
        pool_give(block[i]);
    pool_flush();
    for (unsigned i = 0; i < depots_used() && !left; i++)
        left = depot_pop(i);
    cr_assert_not_null(left);
    check_counted(left, MAGAZINE_MAX - 1);
}

/* ---- made by those who give back ---- */

/* Which depot, and how many there are. */
static unsigned check_depot(unsigned depot)
{
    unsigned batches = 0;
    hwt_timeout *first;

    for (; (first = depot_pop(depot)) != NULL; batches++)
        check_known(first, first->batch_length);
    return batches;
}

static unsigned check_depots(void)
{
    unsigned batches = 0;

    for (unsigned i = 0; i < depots_used(); i++)
        batches += check_depot(i);
    return batches;
}

Test(batch, the_worker_notes_where_his_lie)
{
    struct pool_return back = {NULL, 0};

    take_some();
    empty_depots();
    for (unsigned i = 0; i < SOME - 1; i++)
        pool_return_add(&back, 0, block[i]);
    cr_assert_eq(back.count, SLAB_BATCH - 1, "not a whole one is left");
    pool_return_flush(&back, 0);
    cr_assert_eq(check_depot(0), SOME / SLAB_BATCH);
}

Test(batch, so_does_a_thread_that_gives_more_than_it_keeps)
{
    take_some();
    empty_depots();
    for (unsigned i = 0; i < SOME; i++)
        pool_give(block[i]);
    cr_assert_eq(check_depots(), SOME / SLAB_BATCH - MAGAZINE_MAX / POOL_BATCH);
}

/* Sorted by their slabs, of which there is one here. */
Test(batch, so_does_who_brings_them_home)
{
    static struct pool_reservation one = {.count = 1, .pending = pool_none_pending};
    struct slab_batches home;
    unsigned blocks = 0;

    take_some();
    empty_depots();
    for (unsigned i = 0; i < SOME; i++)
        pool_give(block[i]);
    cr_assert_eq(pool_reserve(&one), 0);
    for (; blocks < SOME; blocks += home.length) {
        home = slab_fetch();
        cr_assert_not_null(home.first);
        check_known(home.first, home.length);
    }
}
