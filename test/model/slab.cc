/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The word of a slab (slab.h): two threads carve blocks, two at once, fetch, use and bring them; a
 * third one claims the slab when all of it is at home, lets its pages go, and reopens it. A block
 * belongs to one thread at a time, what its owner writes into it is seen by the next (`content` is
 * not atomic: relacy reports the race), pages go only when nobody has a block of them, and none is
 * lost.
 */
#include "model.h"

enum {
    NO_TAG = 1,
    CLAIMED_IN_USE,
    CLAIMED_IN_TWO_STEPS,
    CLAIM_RELAXED,
    REOPENED_RELAXED,
    REOPENED_EARLY,
    BROUGHT_RELAXED,
    FETCHED_RELAXED,
    LINKED_AFTER_BRINGING,
    CARVED_IN_TWO_STEPS,
};

static const model_case mutants[] = {
    {NO_TAG, "word without a tag (ABA)"},
    {CLAIMED_IN_USE, "claimed with a block in circulation"},
    {CLAIMED_IN_TWO_STEPS, "claimed by a look and a store"},
    {CLAIM_RELAXED, "claim does not acquire"},
    {REOPENED_RELAXED, "reopening does not release"},
    {REOPENED_EARLY, "reopened before the pages are gone"},
    {BROUGHT_RELAXED, "bringing does not release"},
    {FETCHED_RELAXED, "fetching does not acquire"},
    {LINKED_AFTER_BRINGING, "batch linked after it was brought"},
    {CARVED_IN_TWO_STEPS, "carved by a look and a store"},
};

enum corner {
    CARVED_AGAIN,
    CARVED_TWO,
    CARVED_THE_REST,
    FETCHED,
    LOST_RACE,
    CLAIMED,
    FOUND_CLOSED,
    NOTHING_LEFT,
    CORNERS
};

/* A batch is one block here. */
enum { USERS = 2, BLOCKS = 3, AT_ONCE = 2, ROUNDS = 4, CLOSED = 15 };

struct view {
    unsigned used, home, first;
};

static view view_of(unsigned state)
{
    return {state % 16, state / 16 % 16, state / 256 % 16};
}

struct slab : rl::test_suite<slab, USERS + 1> {
    rl::atomic<unsigned> state;            /* used, home, first: 4 bits each; then the tag */
    rl::atomic<unsigned> word[BLOCKS + 1]; /* of a block: the next one at home */
    rl::var<unsigned> content[BLOCKS + 1];
    unsigned owner[BLOCKS + 1]; /* the books: 0: at home, or not carved */
    bool going;                 /* the pages are */
    unsigned vacated;

    void before()
    {
        model_setup setup(USERS + 1, 12);
        store_relaxed(state, 0u);
        for (unsigned b = 0; b <= BLOCKS; b++) {
            store_relaxed(word[b], 0u);
            content[b]($) = 0;
            owner[b] = 0;
        }
        unsigned count = 0, mine[BLOCKS];

        going = false;
        vacated = 0;
        take(mine, count);
        while (count > 0)
            bring(mine[--count]);
    }

    static unsigned after_change(unsigned seen, view v)
    {
        unsigned tag = mutant == NO_TAG ? 0 : seen / 4096 + 1;
        return tag * 4096 + v.first % 16 * 256 + v.home % 16 * 16 + v.used;
    }

    bool change(unsigned &seen, view to, bool relaxed)
    {
        unsigned then = after_change(seen, to);
        return relaxed ? cas_relaxed(state, seen, then) : cas_acq_rel(state, seen, then);
    }

    /* What the owner does: whatever he likes, with the word as well. */
    void use(unsigned b)
    {
        RL_ASSERT(b >= 1 && b <= BLOCKS && owner[b] == 0 && !going);
        owner[b] = 1 + rl::thread_index();
        content[b]($) = content[b]($) + 1;
        store_relaxed(word[b], rl::rand(BLOCKS + 1));
    }

    /* How many are carved: up to the next multiple. */
    static unsigned carve(unsigned used)
    {
        unsigned to_multiple = AT_ONCE - used % AT_ONCE, rest = BLOCKS - used;
        return to_multiple < rest ? to_multiple : rest;
    }

    bool take(unsigned *mine, unsigned &count)
    {
        bool relaxed = mutant == FETCHED_RELAXED;
        unsigned seen = relaxed ? load_relaxed(state) : load_acquire(state);

        for (;;) {
            view v = view_of(seen), to = v;
            if (v.first) {
                to.first = load_relaxed(word[v.first]);
                to.home--;
                if (change(seen, to, relaxed)) {
                    model_corner(FETCHED);
                    use(mine[count++] = v.first);
                    return true;
                }
            } else if (v.used < BLOCKS) {
                to.used += carve(v.used);
                if (mutant == CARVED_IN_TWO_STEPS)
                    store_release(state, after_change(seen, to));
                if (mutant == CARVED_IN_TWO_STEPS || change(seen, to, false)) {
                    if (vacated)
                        model_corner(CARVED_AGAIN);
                    model_corner(to.used - v.used == AT_ONCE ? CARVED_TWO : CARVED_THE_REST);
                    for (unsigned b = v.used + 1; b <= to.used; b++)
                        use(mine[count++] = b);
                    return true;
                }
            } else {
                model_corner(v.used == CLOSED ? FOUND_CLOSED : NOTHING_LEFT);
                return false;
            }
            model_corner(LOST_RACE);
        }
    }

    void bring(unsigned b)
    {
        unsigned seen = load_relaxed(state);
        view to;

        content[b]($) = content[b]($) + 1;
        owner[b] = 0;
        do {
            to = view_of(seen);
            RL_ASSERT(to.used != CLOSED);
            if (mutant != LINKED_AFTER_BRINGING)
                store_relaxed(word[b], to.first);
            to.first = b;
            to.home++;
        } while (!change(seen, to, mutant == BROUGHT_RELAXED));
        if (mutant == LINKED_AFTER_BRINGING)
            store_relaxed(word[b], view_of(seen).first);
    }

    bool claim()
    {
        bool relaxed = mutant == CLAIM_RELAXED;
        unsigned seen = relaxed ? load_relaxed(state) : load_acquire(state);
        view v = view_of(seen), closed = {CLOSED, 0, 0};

        if (v.used == 0 || (v.home != v.used && mutant != CLAIMED_IN_USE))
            return false;
        if (mutant != CLAIMED_IN_TWO_STEPS)
            return change(seen, closed, relaxed);
        store_release(state, after_change(seen, closed));
        return true;
    }

    void vacate()
    {
        unsigned open;

        if (!claim())
            return;
        model_corner(CLAIMED);
        for (unsigned b = 1; b <= BLOCKS; b++)
            RL_ASSERT(owner[b] == 0);
        going = true;
        open = after_change(load_relaxed(state), {0, 0, 0});
        if (mutant == REOPENED_EARLY)
            store_release(state, open);
        for (unsigned b = 1; b <= BLOCKS; b++) {
            content[b]($) = 0;
            store_relaxed(word[b], 0u);
        }
        going = false;
        vacated++;
        if (mutant == REOPENED_RELAXED)
            store_relaxed(state, open);
        else if (mutant != REOPENED_EARLY)
            store_release(state, open);
    }

    void user()
    {
        unsigned mine[ROUNDS * AT_ONCE], count = 0;

        for (unsigned i = 0; i < ROUNDS; i++) {
            take(mine, count);
            if (count && rl::rand(3))
                bring(mine[--count]);
        }
        while (count > 0)
            bring(mine[--count]);
    }

    void thread(unsigned index)
    {
        if (index < USERS) {
            user();
        } else {
            for (unsigned i = 0; i < 3; i++)
                vacate();
        }
    }

    void after()
    {
        unsigned left = 0, all[ROUNDS * AT_ONCE];
        view v = view_of(load_relaxed(state));

        RL_ASSERT(v.home == v.used && v.used <= BLOCKS);
        while (take(all, left))
            continue;
        RL_ASSERT(left == BLOCKS);
    }
};

int main()
{
    return model_check<slab>("word of a slab", mutants, 300000, CORNERS) ? 0 : 1;
}
