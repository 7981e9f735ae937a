/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts leave the slots of a segment beside one who counts (C23; segment_carry, segment_count):
 * when the pages of its only part go back, and when a slot is full. A producer fills and empties
 * slots, two take counts out of them, one reads. What goes with its page is as if it had been
 * stored; the system does no less.
 */
#include "model.h"

enum {
    PAGES_FIRST = 1,
    OPENED_FIRST,
    BEGUN_ANEW_FIRST,
    IN_PLACE,
    CARRIED_RELAXED,
    CARRYING_RELAXED,
    KEPT_NOT_TAKEN_BACK,
    BY_TWO,
    NO_SECOND_LOOK,
    CLOSED_COUNTED,
    CLOSED_NEVER_COUNTED,
    SLOTS_RELAXED,
    OPENED_RELAXED,
};

static const model_case mutants[] = {
    {PAGES_FIRST, "carried after the pages have gone"},
    {OPENED_FIRST, "slots whose page was kept opened before they count again"},
    {BEGUN_ANEW_FIRST, "a full slot begins anew before its count is carried"},
    {IN_PLACE, "carried changed where it is read"},
    {CARRIED_RELAXED, "carried stored without release"},
    {CARRYING_RELAXED, "carrying stored without release"},
    {KEPT_NOT_TAKEN_BACK, "what was kept is carried as well"},
    {BY_TWO, "counts taken out by two at a time"},
    {NO_SECOND_LOOK, "no second look at carrying"},
    {CLOSED_COUNTED, "closed slots counted though they are carried"},
    {CLOSED_NEVER_COUNTED, "closed slots not counted though they are not carried"},
    {SLOTS_RELAXED, "slots read without acquire"},
    {OPENED_RELAXED, "a slot opened without release"},
};

enum corner {
    WENT,
    KEPT,
    HELD_STAYS,
    FULL,
    SOMEBODY_ELSE,
    CHANGED_MEANWHILE,
    CARRIED_SEEN,
    CORNERS
};

enum { PRODUCER, READER, CARRIERS, THREADS = CARRIERS + 2 };
enum { SLOTS = 2, FILLS = 7, READINGS = 3, CARRIES = 2, TRIES = 40 };
enum { EMPTY = 0, HELD = 1, CLOSED = 2, COUNT = 4, COUNT_MAX = 2 }; /* a slot: count, state */
enum { PART = 1, VERSION = 2 };                                     /* of `carrying` */

struct count : rl::test_suite<count, THREADS> {
    rl::atomic<unsigned> slot[SLOTS], carrying, carried[2], releasing;
    rl::atomic<unsigned> told; /* by the producer, of what is done */
    unsigned begun, done, seen;

    void before()
    {
        model_setup setup(THREADS, 20);
        for (unsigned i = 0; i < SLOTS; i++)
            store_relaxed(slot[i], unsigned(EMPTY));
        store_relaxed(carrying, 0u);
        store_relaxed(carried[0], 0u);
        store_relaxed(carried[1], 0u);
        store_relaxed(releasing, 0u);
        store_relaxed(told, 0u);
        begun = done = seen = 0;
    }

    static unsigned state(unsigned value)
    {
        return value % COUNT;
    }

    /* ---- counts leave the slots ---- */
    static unsigned place(unsigned value)
    {
        return mutant == IN_PLACE ? 0 : value / VERSION % 2;
    }

    void carry(unsigned parts, unsigned more)
    {
        unsigned was = load_relaxed(carrying), is = (was / VERSION + 1) * VERSION + parts;
        unsigned sum = load_relaxed(carried[place(was)]) + more;

        if (mutant == CARRIED_RELAXED)
            store_relaxed(carried[place(is)], sum);
        else
            store_release(carried[place(is)], sum);
        if (mutant == CARRYING_RELAXED)
            store_relaxed(carrying, is);
        else
            store_seq(carrying, is);
    }

    bool close(unsigned i, unsigned &sum)
    {
        unsigned empty = load_relaxed(slot[i]);

        if (state(empty) != EMPTY || !cas_acq_rel(slot[i], empty, empty + CLOSED))
            return false;
        sum += empty / COUNT;
        return true;
    }

    void open(unsigned i, bool anew)
    {
        unsigned closed = load_relaxed(slot[i]);

        if (state(closed) != CLOSED)
            return;
        if (mutant == OPENED_RELAXED)
            store_relaxed(slot[i], anew ? 0 : closed - CLOSED);
        else
            store_release(slot[i], anew ? 0 : closed - CLOSED);
    }

    void open_all(bool anew)
    {
        for (unsigned i = 0; i < SLOTS; i++)
            open(i, anew);
    }

    /* release_next_parts, close_part, release_closed */
    void give_back()
    {
        unsigned sum = 0;
        bool kept = rl::rand(3) == 0;

        for (unsigned i = 0; i < SLOTS; i++) {
            if (!close(i, sum)) {
                model_corner(HELD_STAYS);
                while (i-- > 0)
                    open(i, false);
                return;
            }
        }
        model_corner(kept ? KEPT : WENT);
        if (mutant != PAGES_FIRST)
            carry(PART, sum);
        if (!kept)
            open_all(true);
        if (mutant == PAGES_FIRST)
            carry(PART, sum);
        if (kept && mutant == OPENED_FIRST)
            open_all(false);
        carry(0, kept && mutant != KEPT_NOT_TAKEN_BACK ? 0 - sum : 0);
        if (kept)
            open_all(false);
    }

    /* segment_carry_part */
    void begin_anew()
    {
        unsigned sum = 0;

        for (unsigned i = 0; i < SLOTS; i++)
            close(i, sum);
        if (mutant == BEGUN_ANEW_FIRST)
            open_all(true);
        carry(PART, sum);
        open_all(true);
        carry(0, 0);
    }

    bool take_counts_out(bool full)
    {
        if (mutant != BY_TWO && exchange_acq_rel(releasing, 1u)) {
            model_corner(SOMEBODY_ELSE);
            return false;
        }
        if (full)
            begin_anew();
        else
            give_back();
        store_release(releasing, 0u);
        return true;
    }

    /* ---- a producer: lane_try_slot, lane_withdraw ---- */
    void fill_and_empty(unsigned i)
    {
        unsigned empty = load_relaxed(slot[i]);

        if (state(empty) != EMPTY)
            return;
        if (empty / COUNT == COUNT_MAX) {
            model_corner(FULL);
            if (!take_counts_out(true))
                return;
            empty = 0;
        }
        begun++;
        if (!cas_seq(slot[i], empty, empty + HELD)) {
            begun--;
            return;
        }
        store_release(slot[i], empty + COUNT);
        done++;
        store_release(told, done);
    }

    /* ---- who counts ---- */
    unsigned look_at_slot(unsigned i)
    {
        return mutant == SLOTS_RELAXED ? load_relaxed(slot[i]) : load_acquire(slot[i]);
    }

    bool count_once(unsigned &sum)
    {
        unsigned now = load_acquire(carrying);

        sum = load_acquire(carried[place(now)]);
        for (unsigned i = 0; i < SLOTS; i++) {
            unsigned value = look_at_slot(i);
            bool is_carried = now % VERSION != 0;
            if (is_carried && state(value) == CLOSED)
                model_corner(CARRIED_SEEN);
            if (mutant == CLOSED_COUNTED)
                is_carried = false;
            if (mutant == CLOSED_NEVER_COUNTED)
                is_carried = true;
            if (state(value) != CLOSED || !is_carried)
                sum += value / COUNT;
            sum += state(value) == HELD;
        }
        if (mutant == NO_SECOND_LOOK || load_acquire(carrying) == now)
            return true;
        model_corner(CHANGED_MEANWHILE);
        return false;
    }

    void look()
    {
        unsigned least = load_acquire(told), sum = 0;

        for (unsigned tries = 0; tries < TRIES; tries++) {
            if (count_once(sum)) {
                RL_ASSERT(sum >= least && sum >= seen && sum <= begun);
                seen = sum;
                return;
            }
        }
    }

    void thread(unsigned index)
    {
        if (index == PRODUCER) {
            for (unsigned i = 0; i < FILLS; i++)
                fill_and_empty(rl::rand(SLOTS));
        } else if (index == READER) {
            for (unsigned i = 0; i < READINGS; i++)
                look();
        } else {
            for (unsigned i = 0; i < CARRIES; i++)
                take_counts_out(rl::rand(4) == 0);
        }
    }

    void after()
    {
        unsigned sum;

        RL_ASSERT(count_once(sum) && sum == done);
    }
};

int main()
{
    return model_check<count>("counts that leave their slots", mutants, 300000, CORNERS) ? 0 : 1;
}
