/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The depot of free batches (C9; depot_push, depot_pop): three threads take and give batches.
 * A batch belongs to one thread at a time, what its owner writes into it is seen by the next one
 * (`content` is not atomic: relacy reports the race), and none is lost.
 */
#include "model.h"

enum { NO_TAG = 1, PUSHED_RELAXED, POPPED_RELAXED, LINKED_AFTER_PUSH };

static const model_case mutants[] = {
    {NO_TAG, "head without a tag (ABA)"},
    {PUSHED_RELAXED, "push does not release"},
    {POPPED_RELAXED, "pop does not acquire"},
    {LINKED_AFTER_PUSH, "batch linked after it was pushed"},
};

enum corner { EMPTY, POPPED, LOST_RACE, CORNERS };

enum { THREADS = 3, BATCHES = 4, ROUNDS = 3, TAG = 1 << 16 };

struct depot : rl::test_suite<depot, THREADS> {
    rl::atomic<unsigned> head;              /* tag * 16 + batch */
    rl::atomic<unsigned> next[BATCHES + 1]; /* the word of a batch's first block */
    rl::var<unsigned> content[BATCHES + 1];
    unsigned owner[BATCHES + 1]; /* the books: 0: in the depot */

    void before()
    {
        model_setup setup(THREADS, 10);
        store_relaxed(head, 0u);
        for (unsigned b = 1; b <= BATCHES; b++) {
            store_relaxed(next[b], 0u);
            content[b]($) = 0;
            owner[b] = THREADS;
        }
        for (unsigned b = 1; b < BATCHES; b++)
            push(b);
    }

    static unsigned make(unsigned b, unsigned before)
    {
        return mutant == NO_TAG ? b : (before / 16 + 1) % TAG * 16 + b;
    }

    bool change_head(unsigned &seen, unsigned to, bool relaxed)
    {
        return relaxed ? cas_relaxed(head, seen, to) : cas_acq_rel(head, seen, to);
    }

    void push(unsigned b)
    {
        unsigned seen = load_relaxed(head);

        content[b]($) = content[b]($) + 1; /* its chain and its length */
        owner[b] = 0;
        do {
            if (mutant != LINKED_AFTER_PUSH)
                store_relaxed(next[b], seen % 16);
        } while (!change_head(seen, make(b, seen), mutant == PUSHED_RELAXED));
        if (mutant == LINKED_AFTER_PUSH)
            store_relaxed(next[b], seen % 16);
    }

    unsigned pop()
    {
        unsigned seen = mutant == POPPED_RELAXED ? load_relaxed(head) : load_acquire(head), b;

        while ((b = seen % 16) != 0) {
            unsigned then = load_relaxed(next[b]);
            if (change_head(seen, make(then, seen), mutant == POPPED_RELAXED))
                return b;
            model_corner(LOST_RACE);
        }
        return 0;
    }

    /* The word of a block that is in use is the timeout's own. */
    void use(unsigned b)
    {
        RL_ASSERT(b <= BATCHES && owner[b] == 0);
        owner[b] = 1 + rl::thread_index();
        content[b]($) = content[b]($) + 1;
        store_relaxed(next[b], rl::rand(BATCHES + 1));
        model_corner(POPPED);
    }

    void thread(unsigned index)
    {
        unsigned mine[ROUNDS], count = 0;

        if (index == 0)
            push(BATCHES);
        for (unsigned i = 0; i < ROUNDS; i++) {
            unsigned b = pop();
            if (b) {
                use(b);
                mine[count++] = b;
            } else {
                model_corner(EMPTY);
            }
            if (count && rl::rand(2)) {
                b = mine[rl::rand(count)];
                for (unsigned k = 0; k < count; k++)
                    mine[k] = mine[k] == b ? mine[count - 1] : mine[k];
                count--;
                push(b);
            }
        }
        while (count > 0)
            push(mine[--count]);
    }

    void after()
    {
        unsigned left = 0;

        while (unsigned b = pop()) {
            use(b);
            RL_ASSERT(++left <= BATCHES);
        }
        RL_ASSERT(left == BATCHES);
    }
};

int main()
{
    return model_check<depot>("depot of batches", mutants, 300000, CORNERS) ? 0 : 1;
}
