/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hashed wheel with rounds (Varghese and Lauck's scheme 6; Netty, Dubbo): a single level, slot
 * tick mod size, where a bucket holds timeouts of several rounds and a visit takes what is due.
 *
 * Unlike its models it is tickless: a tournament tree over the buckets' earliest deadlines tells
 * which bucket to visit next, and a bucket is visited only when something in it is due. The tree
 * keeps complements, so that zeroed memory means empty and the root is the largest.
 */
#include <stdlib.h>

#include "platform.h"
#include "wheel.h"

#define COUNT_UP_TO 1024 /* of all rounds, how many are of this one */
#define MOST_BITS   17   /* of the number of its slots: 11 MB, since empty ones count too (G6) */

struct hashed {
    struct wheel wheel;
    uint32_t slots;
    struct bucket *slot;
    uint64_t *tree;    /* [1] is the root, [slots + i] the leaf of slot i: ~earliest, or 0 */
    uint64_t *latest;  /* by slot: no deadline in it was above, as it was filed */
    size_t size;       /* of all three; mapped */
    struct bucket due; /* on its way to the agenda; otherwise empty */
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

static _Atomic uint64_t *insert(struct wheel *wheel, uint64_t packed, uint64_t deadline,
                                uint64_t tick)
{
    struct hashed *w = hashed(wheel);
    uint32_t slot = (uint32_t)(tick & (w->slots - 1));
    _Atomic uint64_t *filled;

    if (bucket_is_empty(&w->slot[slot]))
        w->latest[slot] = 0;
    filled = bucket_insert(&w->slot[slot], &wheel->store, packed, deadline);
    if (unlikely(!filled))
        return NULL;
    w->latest[slot] = max_u64(w->latest[slot], deadline);
    if (~deadline > w->tree[w->slots + slot])
        tree_set(w, slot, ~deadline);
    return filled;
}

static struct bucket *bucket_of(const struct wheel *wheel, uint64_t tick)
{
    const struct hashed *w = container_of(wheel, const struct hashed, wheel);
    return &w->slot[tick & (w->slots - 1)];
}

/*
 * What is due by `tick` goes to the agenda: all of the bucket if it holds this round's only, so
 * that none of them needs to be touched yet. False: it does not, and what is due waits in `due`.
 */
static bool visit(struct hashed *w, uint32_t slot, uint64_t tick)
{
    uint64_t limit = wheel_tick_time(&w->wheel, tick);
    struct bucket *anew = &w->wheel.anew;

    tree_set(w, slot, 0);
    if (w->latest[slot] <= limit) {
        wheel_cover(&w->wheel, tick, &w->slot[slot]);
        return true;
    }
    bucket_move(anew, &w->slot[slot]);
    wheel_refile(&w->wheel, anew, limit, &w->due); /* the others come back, and into the tree */
    return false;
}

/* In more than one bucket, if some were moved: they lie where they were filed. */
static bool visit_all(struct hashed *w, uint64_t tick)
{
    uint64_t limit = wheel_tick_time(&w->wheel, tick);
    bool any = false;

    while (tree_earliest(w) <= limit)
        any = visit(w, tree_winner(w), tick) || any;
    if (!bucket_is_empty(&w->due)) {
        wheel_cover(&w->wheel, tick, &w->due);
        any = true;
    }
    return any;
}

/*
 * After a pause of more than a lap a bucket may hold several ticks that are due. Tick by tick, all
 * else in it would be filed anew for each of them, which is quadratic.
 */
static bool is_far_behind(const struct hashed *w, uint64_t tick, uint64_t limit)
{
    return unlikely(limit - tick >= w->slots) &&
           w->latest[tree_winner(w)] > wheel_tick_time(&w->wheel, tick);
}

/*
 * All that is due by `limit` at once, each bucket visited once. It is covered first, and nothing is
 * filed for it any more: so whatever is filed anew goes where it belongs, to a later tick or to the
 * agenda, which has the order across ticks, too.
 */
static __attribute__((noinline)) void catch_up(struct hashed *w, uint64_t limit)
{
    struct wheel *wheel = &w->wheel;

    wheel->current = limit + 1;
    wheel->witness.slot = NULL;
    wheel_cover(wheel, limit, NULL);
    while (tree_earliest(w) <= wheel->covered) {
        uint32_t slot = tree_winner(w);
        tree_set(w, slot, 0);
        bucket_move(&wheel->anew, &w->slot[slot]);
        wheel_refile(wheel, &wheel->anew, 0, NULL);
    }
}

static bool expire(struct wheel *wheel, uint64_t limit)
{
    struct hashed *w = hashed(wheel);

    while (w->tree[1] != 0) {
        uint64_t tick = max_u64(wheel_tick_of(wheel, tree_earliest(w)), wheel->current);
        if (tick > limit)
            break;
        if (is_far_behind(w, tick, limit)) {
            catch_up(w, limit);
            return true;
        }
        wheel->current = tick + 1; /* what is filed anew goes to a later one */
        if (visit_all(w, tick))
            return true;
    }
    wheel->current = max_u64(wheel->current, limit + 1);
    return false;
}

static uint64_t earliest(struct wheel *wheel, struct sighting *who)
{
    struct hashed *w = hashed(wheel);

    while (w->tree[1] != 0) {
        uint32_t slot = tree_winner(w);
        uint64_t bound = tree_earliest(w);
        struct bucket *bucket = &w->slot[slot];
        struct sighting found;
        if (!bucket_has_any(bucket, &wheel->store)) {
            tree_set(w, slot, 0);
            continue;
        }
        if (!who && bucket_at_most(bucket) > WHEEL_SCAN_UP_TO)
            return bound;
        found = wheel_bucket_scan(wheel, bucket, 0);
        if (found.deadline == bound) {
            if (who)
                *who = found;
            return bound;
        }
        tree_set(w, slot, found.slot ? ~found.deadline : 0);
        w->latest[slot] = UINT64_MAX; /* one was moved: its key is of another tick */
    }
    return UINT64_MAX;
}

struct due {
    uint64_t until;
    uint32_t count;
};

static void count_due(void *due, uint64_t word)
{
    struct due *d = due;

    d->count += word_deadline(word) <= d->until;
}

/* Up to then, it holds so many at most. What comes later is not counted where that takes long. */
static bool holds_at_most(struct bucket *bucket, uint64_t until, uint32_t most)
{
    struct due due = {until, 0};
    size_t all = bucket_at_most(bucket);

    if (all <= most || all > COUNT_UP_TO)
        return all <= most;
    bucket_look_through(bucket, count_due, &due);
    return due.count <= most;
}

/*
 * Not that of the tick: what was moved lies where it was filed. Nor the one that the tree names
 * while its bound is that of one that was moved or removed: behind it may be one that is due, and
 * sparse.
 */
static bool has_current(struct wheel *wheel, uint64_t now, uint32_t most)
{
    struct hashed *w = hashed(wheel);
    struct bucket *bucket;

    earliest(wheel, NULL);
    bucket = &w->slot[tree_winner(w)];
    return !bucket_is_empty(bucket) && bucket->earliest <= now &&
           (most == UINT32_MAX ||
            holds_at_most(bucket, wheel_tick_time(wheel, wheel->current), most));
}

static void take_current(struct wheel *wheel)
{
    if (!visit_all(hashed(wheel), wheel->current))
        wheel_cover(wheel, wheel->current, NULL);
}

/*
 * It may have been moved, and not lie in the slot of its deadline. What is covered comes from the
 * agenda, or is on its way there; or it is the bound of what has left its bucket.
 */
static bool is_sparse(const struct wheel *wheel, uint64_t deadline, uint32_t most)
{
    const struct hashed *w = container_of(wheel, const struct hashed, wheel);
    uint64_t tick = max_u64(wheel_tick_of(wheel, deadline), wheel->current);

    if (deadline <= wheel->covered)
        return deadline != tree_earliest(w);
    return !w->tree[1] ||
           holds_at_most(&w->slot[tree_winner(w)], wheel_tick_time(wheel, tick), most);
}

static uint64_t prepare_at(struct wheel *wheel)
{
    (void)wheel;
    return UINT64_MAX; /* nothing ever has to come down */
}

static void prepare(struct wheel *wheel)
{
    struct hashed *w = hashed(wheel);

    if (w->tree[1] != 0)
        bucket_prefetch_arguments(&w->slot[tree_winner(w)]);
}

static unsigned pop(struct wheel *wheel, uint64_t *out, unsigned most)
{
    struct hashed *w = hashed(wheel);
    unsigned count = 0;

    while (count < most && w->tree[1] != 0) {
        uint32_t slot = tree_winner(w);
        unsigned taken =
            bucket_take(&w->slot[slot], &wheel->store, out + count, most - count, NULL);
        if (taken == 0)
            tree_set(w, slot, 0);
        count += taken;
    }
    return count;
}

static void show_all(struct wheel *wheel, bucket_see *see, void *context)
{
    struct hashed *w = hashed(wheel);

    for (uint32_t slot = 0; slot < w->slots; slot++) {
        if (w->tree[w->slots + slot] != 0)
            bucket_visit(&w->slot[slot], see, context, &wheel->shown);
    }
}

static size_t check(struct wheel *wheel, size_t *at, size_t most)
{
    struct hashed *w = hashed(wheel);
    size_t total = 0;

    hwt_assert(bucket_is_empty(&w->due));
    for (; *at < w->slots && most > 0; ++*at, most--) {
        size_t count = bucket_check(&w->slot[*at]);
        hwt_assert(count == 0 || w->tree[w->slots + *at] != 0);
        total += count;
    }
    if (*at == w->slots)
        *at = 0;
    return total;
}

static void destroy(struct wheel *wheel)
{
    struct hashed *w = hashed(wheel);

    platform_unmap(w->slot, w->size);
    free(w);
}

static struct wheel *create(uint64_t tick_ns, uint32_t slots, uint64_t current)
{
    struct hashed *w = wheel_alloc(sizeof *w);
    size_t buckets;

    (void)tick_ns;
    (void)current;
    if (!w)
        return NULL;
    w->wheel.far_from = UINT64_MAX;
    slots = (uint32_t)min_u64(slots, UINT32_C(1) << MOST_BITS);
    buckets = slots * sizeof(struct bucket);
    w->size = buckets + 3 * (size_t)slots * sizeof(uint64_t);
    w->slot = platform_map(w->size, CACHE_LINE); /* untouched, where nothing is ever filed */
    if (!w->slot) {
        free(w);
        return NULL;
    }
    w->slots = slots;
    w->tree = (uint64_t *)(void *)((char *)w->slot + buckets);
    w->latest = w->tree + 2 * (size_t)slots;
    return &w->wheel;
}

HIDDEN const struct wheel_ops wheel_hashed;
HIDDEN const struct wheel_ops wheel_hashed = {
    .create = create,
    .destroy = destroy,
    .insert = insert,
    .bucket_of = bucket_of,
    .expire = expire,
    .has_current = has_current,
    .take_current = take_current,
    .earliest = earliest,
    .is_sparse = is_sparse,
    .prepare_at = prepare_at,
    .prepare = prepare,
    .pop = pop,
    .visit = show_all,
    .check = check,
};
