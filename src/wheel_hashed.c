/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hashed wheel with rounds (Varghese and Lauck's scheme 6; Netty, Dubbo): a single level, slot
 * tick mod size, where a bucket holds timeouts of several rounds and a visit takes what is due.
 *
 * Unlike its models it is tickless: a tournament tree over the buckets' earliest deadlines tells
 * which bucket to visit next, and a bucket is visited only when something in it is due. The tree
 * keeps complements, so that zeroed memory means empty and the root is the largest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wheel.h"

struct hashed {
    struct wheel wheel;
    uint32_t slots;
    struct bucket *slot;
    uint64_t *tree; /* [1] is the root, [slots + i] the leaf of slot i: ~earliest, or 0 */
    void *memory;
};

static struct hashed *hashed(struct wheel *wheel)
{
    return container_of(wheel, struct hashed, wheel);
}

/* ---- the tournament ---- */

static void tree_set(struct hashed *w, uint32_t slot, uint64_t value)
{
    size_t node = (size_t)w->slots + slot;

    w->tree[node] = value;
    for (node /= 2; node > 0; node /= 2) {
        uint64_t best = max_u64(w->tree[2 * node], w->tree[2 * node + 1]);
        if (w->tree[node] == best)
            return;
        w->tree[node] = best;
    }
}

static uint32_t tree_winner(const struct hashed *w)
{
    size_t node = 1;

    while (node < w->slots) {
        node *= 2;
        if (w->tree[node] != w->tree[node / 2])
            node++;
    }
    return (uint32_t)(node - w->slots);
}

static uint64_t tree_earliest(const struct hashed *w)
{
    return ~w->tree[1];
}

/* ---- the wheel ---- */

static bool insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline, uint64_t tick)
{
    struct hashed *w = hashed(wheel);
    uint32_t slot = (uint32_t)(tick & (w->slots - 1));

    if (!bucket_insert(&w->slot[slot], &wheel->store, timeout, deadline))
        return false;
    if (~deadline > w->tree[w->slots + slot])
        tree_set(w, slot, ~deadline);
    return true;
}

static const struct bucket *bucket_of(const struct wheel *wheel, uint64_t tick)
{
    const struct hashed *w = container_of(wheel, const struct hashed, wheel);
    return &w->slot[tick & (w->slots - 1)];
}

/* Of the bucket with the earliest deadline, what has reached `until` becomes due. */
static void visit_winner(struct hashed *w, uint64_t until, struct bucket *due)
{
    uint32_t slot = tree_winner(w);
    struct bucket visited;

    memset(&visited, 0, sizeof visited);
    bucket_move(&visited, &w->slot[slot]);
    tree_set(w, slot, 0);
    wheel_refile(&w->wheel, &visited, until, due); /* the others come back, and into the tree */
}

static bool expire(struct wheel *wheel, uint64_t limit, struct bucket *due)
{
    struct hashed *w = hashed(wheel);

    while (w->tree[1] != 0) {
        uint64_t tick = max_u64(wheel_tick_of(wheel, tree_earliest(w)), wheel->current);
        if (tick > limit)
            break;
        wheel->current = tick;
        visit_winner(w, wheel_tick_time(wheel, tick), due);
        wheel->due_limit = wheel_tick_time(wheel, tick);
        if (!bucket_is_empty(due))
            return true;
    }
    wheel->current = max_u64(wheel->current, limit + 1);
    return false;
}

static uint64_t earliest(struct wheel *wheel, bool exact)
{
    struct hashed *w = hashed(wheel);

    while (w->tree[1] != 0) {
        uint32_t slot = tree_winner(w);
        uint64_t bound = tree_earliest(w), found;
        if (!exact && w->slot[slot].head.live > 16)
            return bound;
        found = wheel_scan(&w->slot[slot]);
        if (found == bound)
            return found;
        tree_set(w, slot, ~found); /* UINT64_MAX, an empty bucket, becomes 0 */
    }
    return UINT64_MAX;
}

/* Up to the first slot that more share: its tick will be over before long. */
static void expire_part(struct wheel *wheel, uint64_t now, uint32_t most, struct bucket *due)
{
    struct hashed *w = hashed(wheel);

    while (earliest(wheel, false) <= now && w->slot[tree_winner(w)].head.live <= most)
        visit_winner(w, now, due);
}

/* It may have been moved, and not lie in the slot of its deadline. */
static uint32_t sharing(const struct wheel *wheel, uint64_t deadline)
{
    const struct hashed *w = container_of(wheel, const struct hashed, wheel);

    (void)deadline;
    return w->tree[1] ? w->slot[tree_winner(w)].head.live : 0;
}

static uint64_t prepare(struct wheel *wheel)
{
    (void)wheel;
    return UINT64_MAX; /* nothing ever has to come down */
}

static void foresee(const struct wheel *wheel)
{
    const struct hashed *w = container_of(wheel, const struct hashed, wheel);

    if (w->tree[1] != 0)
        bucket_prefetch_arguments(&w->slot[tree_winner(w)]);
}

static hwt_timeout *pop(struct wheel *wheel)
{
    struct hashed *w = hashed(wheel);

    while (w->tree[1] != 0) {
        uint32_t slot = tree_winner(w);
        hwt_timeout *timeout = bucket_pop(&w->slot[slot], &wheel->store);
        if (timeout)
            return timeout;
        tree_set(w, slot, 0);
    }
    return NULL;
}

static size_t check(struct wheel *wheel)
{
    struct hashed *w = hashed(wheel);
    size_t total = 0;

    for (uint32_t slot = 0; slot < w->slots; slot++) {
        size_t count = bucket_check(&w->slot[slot]);
        hwt_assert(count == 0 || w->tree[w->slots + slot] != 0);
        total += count;
    }
    return total;
}

static void destroy(struct wheel *wheel)
{
    struct hashed *w = hashed(wheel);

    free(w->memory);
    free(w);
}

static const struct wheel_ops ops = {
    .insert = insert,
    .bucket_of = bucket_of,
    .expire = expire,
    .expire_part = expire_part,
    .earliest = earliest,
    .sharing = sharing,
    .prepare = prepare,
    .foresee = foresee,
    .pop = pop,
    .check = check,
    .destroy = destroy,
};

int wheel_hashed_create(struct wheel **wheel, uint64_t tick_ns, uint32_t slots, uint64_t now)
{
    size_t buckets = slots * sizeof(struct bucket);
    struct hashed *w = aligned_alloc(CACHE_LINE, sizeof *w);

    if (!w)
        return -ENOMEM;
    memset(w, 0, sizeof *w);
    w->memory = calloc(1, buckets + 2 * (size_t)slots * sizeof(uint64_t) + CACHE_LINE);
    if (!w->memory) {
        free(w);
        return -ENOMEM;
    }
    w->slots = slots;
    w->slot =
        (struct bucket *)(((uintptr_t)w->memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    w->tree = (uint64_t *)(void *)((char *)w->slot + buckets);
    wheel_init(&w->wheel, &ops, tick_ns, now);
    *wheel = &w->wheel;
    return 0;
}
