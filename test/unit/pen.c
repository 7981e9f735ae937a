/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pen against a plain walk through all of it: what is due goes into the agenda, and nothing
 * else; the earliest is the earliest, whatever has been moved; and what is not due is let alone.
 * HWT_TEST_SEED=n repeats a run.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fellows.h"
#include "pen.h"
#include "support.h"

#define TICK  HWT_MSEC(1)
#define NODES 1000

TestSuite(pen, .init = test_arm);

struct play {
    struct pen pen;
    struct chunk_store store;
    struct agenda agenda;
    hwt_timeout *node;
    uint64_t covered, random;
    size_t count, nudged; /* in the pen */
};

static struct play *play_open(uint64_t tick_ns, uint64_t covered)
{
    struct play *p = aligned_alloc(CACHE_LINE, (sizeof *p + 63) & ~(size_t)63);

    cr_assert_not_null(p);
    memset((void *)p, 0, sizeof *p);
    p->node = aligned_alloc(CACHE_LINE, NODES * sizeof *p->node);
    cr_assert_not_null(p->node);
    memset((void *)p->node, 0, NODES * sizeof *p->node);
    p->covered = covered;
    p->random = test_seed("pen");
    chunk_store_init(&p->store);
    cr_assert_eq(agenda_init(&p->agenda, &p->store, tick_ns), 0);
    pen_init(&p->pen, tick_ns);
    return p;
}

static void play_close(struct play *p)
{
    agenda_destroy(&p->agenda);
    chunk_store_destroy(&p->store);
    free(p->node);
    free(p);
}

static bool is_here(const hwt_timeout *node)
{
    return node->place == PLACE_LISTED;
}

static void put(struct play *p, hwt_timeout *node, uint64_t deadline)
{
    store_relaxed(&node->word, word_make(deadline, WORD_PENDING));
    pen_put(&p->pen, node, deadline);
    p->count++;
}

static void gone(struct play *p, hwt_timeout *node)
{
    p->nudged -= word_code(load_relaxed(&node->word)) == WORD_NUDGED;
    p->count--;
    node->place = PLACE_ADRIFT;
}

static uint64_t earliest(const struct play *p)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < NODES; i++) {
        if (is_here(&p->node[i]))
            first = min_u64(first, timeout_deadline(&p->node[i]));
    }
    return first;
}

/* Whoever was moved earlier is found no later than he was due before. */
static void look(const struct play *p)
{
    uint64_t said = pen_earliest(&p->pen);

    cr_assert_eq(pen_check(&p->pen), p->count);
    cr_assert_eq(pen_is_empty(&p->pen), p->count == 0);
    cr_assert(p->nudged > 0 ? said >= earliest(p) : said == earliest(p));
}

static void expire(struct play *p, uint64_t covered)
{
    uint64_t said = pen_earliest(&p->pen);
    size_t expired = 0;

    p->covered = covered;
    pen_expire(&p->pen, covered, &p->agenda);
    for (hwt_timeout *node; agenda_first(&p->agenda, UINT64_MAX); expired++) {
        node = agenda_take(&p->agenda);
        cr_assert_leq(timeout_deadline(node), covered);
        gone(p, node);
    }
    cr_assert_eq(expired > 0, said <= covered, "who is told to be due is so");
    for (size_t i = 0; i < NODES && p->nudged == 0; i++)
        cr_assert(!is_here(&p->node[i]) || timeout_deadline(&p->node[i]) > covered);
}

static void move(struct play *p, hwt_timeout *node, uint64_t by)
{
    uint64_t word = load_relaxed(&node->word), deadline = word_deadline(word);

    if (word_code(word) != WORD_PENDING)
        return;
    if (test_random_below(&p->random, 4) > 0) {
        store_relaxed(&node->word, word_make(deadline + by, WORD_PENDING));
    } else {
        store_relaxed(&node->word, word_make(deadline - min_u64(by, deadline), WORD_NUDGED));
        p->nudged++;
    }
}

static void step(struct play *p, uint64_t tick, uint64_t range)
{
    hwt_timeout *node = &p->node[test_random_below(&p->random, NODES)];
    uint64_t by = test_random_below(&p->random, range) + 1;

    switch (test_random_below(&p->random, 16)) {
    case 0: expire(p, p->covered + test_random_below(&p->random, 3 * tick)); break;
    case 1: expire(p, p->covered + by / 4); break;
    case 2:
        node = pen_pop(&p->pen);
        cr_assert_eq(node == NULL, p->count == 0);
        if (node)
            gone(p, node);
        break;
    case 3:
    case 4:
        if (is_here(node)) {
            cr_assert(pen_remove(&p->pen, node));
            gone(p, node);
        } else {
            cr_assert_not(pen_remove(&p->pen, node));
        }
        break;
    case 5:
    case 6:
    case 7:
        if (is_here(node))
            move(p, node, by);
        break;
    default:
        if (!is_here(node))
            put(p, node, p->covered + by);
    }
}

Test(pen, keeps_what_is_not_due)
{
    static const uint64_t ticks[] = {HWT_USEC(1), TICK, TICK + 1, HWT_SEC(3600)};
    static const unsigned spans[] = {2, 40, 1000};

    for (size_t t = 0; t < COUNT_OF(ticks); t++) {
        for (size_t s = 0; s < COUNT_OF(spans); s++) {
            struct play *p = play_open(ticks[t], test_epochs[s]);
            for (unsigned i = 0; i < 20000; i++) {
                step(p, ticks[t], ticks[t] * spans[s]);
                look(p);
            }
            play_close(p);
        }
    }
}

/* Whatever else it holds: a list that is gone through is turned round. */
Test(pen, lets_alone_what_is_not_due)
{
    struct play *p = play_open(TICK, test_epochs[1]);
    uint64_t span = UINT64_C(1) << p->pen.shift, base = (p->covered / span + 1) * span;
    hwt_timeout *first[PEN_LISTS];

    for (size_t i = 0; i < NODES; i++)
        put(p, &p->node[i], base + i % 50 * span + i);
    memcpy(first, p->pen.list, sizeof first);
    expire(p, base + 2 * span - 1);
    cr_assert_eq(p->count, NODES - 2 * (NODES / 50));
    for (uint64_t i = 2; i < 50; i++) {
        size_t list = (base / span + i) % PEN_LISTS;
        cr_assert_eq(p->pen.list[list], first[list], "list %zu was gone through", list);
    }
    play_close(p);
}
