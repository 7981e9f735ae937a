/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places under max_pending (C27; quota_take_from, quota_give_to, quota_used): three threads take
 * them from any lane and give them to any, one counts. Never are more taken than there are; who is
 * refused has met a moment at which all were; who counts does not find fewer taken than there were.
 */
#include "model.h"

enum {
    ONE_LOOK = 1,
    GIVEN_NOT_COUNTED,
    ALL_AT_ONCE,
    TAKEN_BY_STORE,
    COUNTED_ONCE,
    COUNTED_AS_FOUND,
};

static const model_case mutants[] = {
    {ONE_LOOK, "refused after one look at each lane"},
    {GIVEN_NOT_COUNTED, "what was given is not counted"},
    {ALL_AT_ONCE, "all places of a lane taken along, and all but one put into one's own"},
    {TAKEN_BY_STORE, "a place taken by a store"},
    {COUNTED_ONCE, "counted in one look"},
    {COUNTED_AS_FOUND, "what was given meanwhile not taken off"},
};

enum corner { OWN, LENT, FOUND, REFUSED, AGAIN, USED, USED_AND_GIVEN, CORNERS };

enum { READER, TAKERS, THREADS = TAKERS + 3 };
enum { LANES = 3, COMMON = LANES - 1, PLACES = 2, ROUNDS = 3, READINGS = 2, TRIES = 2 };
enum { FREE = 15, GIVEN = 16 };

struct quota : rl::test_suite<quota, THREADS> {
    rl::atomic<unsigned> lane[LANES];
    /* the books */
    unsigned taken, fewest;
    bool all_taken[THREADS]; /* at some moment of this thread's call */

    void before()
    {
        model_setup setup(THREADS, 30);
        for (unsigned i = 0; i < LANES; i++)
            store_relaxed(lane[i], i == COMMON ? PLACES + 0u : 0u);
        taken = fewest = 0;
    }

    void book(int change)
    {
        taken += (unsigned)change;
        RL_ASSERT(taken <= PLACES);
        fewest = taken < fewest ? taken : fewest;
        for (bool &met : all_taken)
            met = met || taken == PLACES;
    }

    bool take_one(unsigned i, unsigned &seen)
    {
        seen = load_seq(lane[i]);
        while (seen & FREE) {
            if (mutant == TAKEN_BY_STORE) {
                store_seq(lane[i], seen - 1);
                book(1);
                return true;
            }
            if (mutant == ALL_AT_ONCE) {
                unsigned more = (seen & FREE) - 1;
                if (!cas_seq(lane[i], seen, seen & ~(unsigned)FREE))
                    continue;
                book(1);
                if (more)
                    add_seq(lane[rl::thread_index() % LANES], GIVEN + more);
                return true;
            }
            if (cas_seq(lane[i], seen, seen - 1)) {
                book(1);
                return true;
            }
        }
        return false;
    }

    bool take_any(unsigned &given)
    {
        unsigned seen;

        given = 0;
        for (unsigned i = 0; i < LANES; i++) {
            if (take_one(i, seen))
                return true;
            given += seen / GIVEN;
        }
        return false;
    }

    bool take_elsewhere()
    {
        unsigned before, given;

        if (take_any(given))
            return true;
        if (mutant == ONE_LOOK)
            return false;
        do {
            before = given;
            if (take_any(given)) {
                model_corner(AGAIN);
                return true;
            }
        } while (given != before);
        return false;
    }

    bool take()
    {
        unsigned own = rl::rand(LANES), seen;
        bool &met = all_taken[rl::thread_index()];

        met = taken == PLACES;
        if (take_one(own, seen)) {
            model_corner(OWN);
            return true;
        }
        if (take_one(rl::rand(LANES), seen)) {
            model_corner(LENT);
            return true;
        }
        if (take_elsewhere()) {
            model_corner(FOUND);
            return true;
        }
        model_corner(REFUSED);
        RL_ASSERT(met);
        return false;
    }

    /* Free before it is: from then on it is in the lane, whatever the canceller has yet to do. */
    void give()
    {
        unsigned more = mutant == GIVEN_NOT_COUNTED ? 1 : GIVEN + 1;

        add_seq(lane[rl::rand(LANES)], more);
        book(-1);
    }

    unsigned count_free(unsigned &given)
    {
        unsigned count = 0;

        given = 0;
        for (unsigned i = 0; i < LANES; i++) {
            unsigned seen = load_seq(lane[i]);
            count += seen & FREE;
            given += seen / GIVEN;
        }
        return count;
    }

    void count()
    {
        unsigned given = 0, before, found, more, tries = 0;

        fewest = taken;
        if (mutant != COUNTED_ONCE)
            count_free(given);
        do {
            before = given;
            found = count_free(given);
            more = mutant == COUNTED_ONCE || mutant == COUNTED_AS_FOUND ? 0 : given - before;
        } while (more > 0 && ++tries < TRIES);
        model_corner(more ? USED_AND_GIVEN : USED);
        found -= found < more ? found : more;
        RL_ASSERT(found <= PLACES - fewest);
    }

    void thread(unsigned index)
    {
        if (index == READER) {
            for (unsigned i = 0; i < READINGS; i++)
                count();
            return;
        }
        for (unsigned i = 0; i < ROUNDS; i++) {
            if (take())
                give();
        }
    }

    void after()
    {
        unsigned given;

        RL_ASSERT(taken == 0 && count_free(given) == PLACES);
    }
};

int main()
{
    return model_check<quota>("places under a limit", mutants, 300000, CORNERS) ? 0 : 1;
}
