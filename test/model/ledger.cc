/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting what is pending (C24; count_ledger): timeouts lie in slots of two lanes, are run by two
 * threads of an executor, or by the worker alone, are re-armed and cancelled, each time on any
 * lane, and somebody counts. What he finds ended he finds scheduled, and nothing is below 0. Or one
 * takes the place of another, which is withdrawn from its slot: then he finds one that is pending.
 */
#include "model.h"

enum {
    EXPIRED_RELAXED = 1,
    CANCELLED_RELAXED,
    WORKERS_RELAXED,
    REARM_SUBTRACTED,
    REARM_COUNTED_LATE,
    ENDS_READ_RELAXED,
    REARMS_READ_FIRST,
    SLOTS_READ_FIRST,
    ENDS_READ_BY_LANE,
    WORKERS_READ_FIRST,
    NOT_CUT_OFF,
    WITHDRAWN_READ_WITH_SLOTS,
};

static const model_case mutants[] = {
    {EXPIRED_RELAXED, "a run elsewhere is counted relaxed"},
    {CANCELLED_RELAXED, "a cancellation is counted relaxed"},
    {WORKERS_RELAXED, "a run on the worker is counted relaxed"},
    {REARM_SUBTRACTED, "a re-arm elsewhere is subtracted from what has expired on a lane"},
    {REARM_COUNTED_LATE, "a re-arm is counted when the word says so already"},
    {ENDS_READ_RELAXED, "what has ended is read relaxed"},
    {REARMS_READ_FIRST, "what was re-armed is read before what has ended"},
    {SLOTS_READ_FIRST, "the slots are read before what has ended"},
    {ENDS_READ_BY_LANE, "what has ended on a lane is read after the slots of another"},
    {WORKERS_READ_FIRST, "what has expired on the worker is read before what was cancelled"},
    {NOT_CUT_OFF, "more that was re-armed than has expired is less than nothing"},
    {WITHDRAWN_READ_WITH_SLOTS, "the slots are gone through once"},
};

enum corner {
    REARMED,
    CANCELLED_REARMED,
    ENDED_AGAIN,
    TRIED_AGAIN,
    CUT_OFF,
    ON_WORKER,
    FOUND_BOTH,
    CORNERS
};

enum { THREADS = 4, LANES = 2, TIMEOUTS = 2, ROUNDS = 4, COUNTS = 2, TRIES = 2 };
enum { PENDING = 1, RUNNING, ARMED_ANEW, CANCELLED, EXPIRED };
enum { EMPTY, FILLED, WITHDRAWN }; /* a slot, which counts what begins in it, and is withdrawn */

struct ledger : rl::test_suite<ledger, THREADS> {
    rl::atomic<unsigned> word[TIMEOUTS], slot[TIMEOUTS]; /* that of timeout i is in lane i */
    rl::atomic<int> cancelled[LANES], expired[LANES], rearms[LANES], on_worker;
    bool worker;        /* runs them; otherwise the executor's threads */
    unsigned replacing; /* nothing runs, one takes another's place: that one's number and 1; or 0 */

    void before()
    {
        model_setup setup(THREADS, 12);
        worker = rl::rand(2);
        replacing = rl::rand(2) ? 1 + rl::rand(TIMEOUTS) : 0;
        store_relaxed(on_worker, 0);
        for (unsigned i = 0; i < LANES; i++) {
            store_relaxed(cancelled[i], 0);
            store_relaxed(expired[i], 0);
            store_relaxed(rearms[i], 0);
            store_relaxed(word[i], 0u);
            store_relaxed(slot[i], +EMPTY);
        }
        if (replacing) {
            store_relaxed(word[replacing - 1], +PENDING);
            store_relaxed(slot[replacing - 1], +FILLED);
        }
    }

    /* ---- who schedules and cancels ---- */

    void schedule(unsigned i)
    {
        store_relaxed(word[i], +PENDING);
        exchange_seq(slot[i], +FILLED);
    }

    void replace(unsigned last)
    {
        unsigned seen = PENDING;

        schedule(!last);
        RL_ASSERT(cas_seq(word[last], seen, +CANCELLED));
        exchange_acq_rel(slot[last], +WITHDRAWN);
    }

    void cancel(unsigned i)
    {
        unsigned seen = load_acquire(word[i]);

        do {
            if (seen == CANCELLED || seen == EXPIRED)
                return;
        } while (!cas_seq(word[i], seen, +CANCELLED));
        if (seen == RUNNING) /* it has ended already */
            return;
        if (seen == ARMED_ANEW)
            model_corner(CANCELLED_REARMED);
        if (mutant == CANCELLED_RELAXED)
            add_relaxed(cancelled[rl::rand(LANES)], 1);
        else
            add_release(cancelled[rl::rand(LANES)], 1);
    }

    /* ---- who runs ---- */

    void bump(int more)
    {
        if (mutant == WORKERS_RELAXED)
            store_relaxed(on_worker, load_relaxed(on_worker) + more);
        else
            store_release(on_worker, load_relaxed(on_worker) + more);
    }

    void count_end()
    {
        if (worker)
            bump(1);
        else if (mutant == EXPIRED_RELAXED)
            add_relaxed(expired[rl::rand(LANES)], 1);
        else
            add_release(expired[rl::rand(LANES)], 1);
    }

    void uncount_end()
    {
        if (worker)
            bump(-1);
        else if (mutant == REARM_SUBTRACTED)
            add_relaxed(expired[rl::rand(LANES)], -1);
        else
            add_relaxed(rearms[rl::rand(LANES)], 1);
    }

    bool change(unsigned i, unsigned from, unsigned to)
    {
        return cas_seq(word[i], from, to);
    }

    void rearm(unsigned i)
    {
        if (mutant == REARM_COUNTED_LATE) {
            if (change(i, RUNNING, ARMED_ANEW))
                uncount_end();
            return;
        }
        uncount_end();
        if (change(i, RUNNING, ARMED_ANEW))
            model_corner(REARMED);
        else
            count_end();
    }

    void run(unsigned i, bool again)
    {
        if (!load_seq(slot[i]) || !change(i, PENDING, RUNNING))
            return;
        count_end();
        if (again)
            rearm(i);
        if (!change(i, ARMED_ANEW, PENDING))
            change(i, RUNNING, EXPIRED);
    }

    /* ---- who counts ---- */

    int sum(rl::atomic<int> *counters)
    {
        int total = 0;

        for (unsigned i = 0; i < LANES; i++)
            total +=
                mutant == ENDS_READ_RELAXED ? load_relaxed(counters[i]) : load_acquire(counters[i]);
        return total;
    }

    int count_expired()
    {
        int again = sum(rearms), before, ended, tries = 0;

        do {
            before = again;
            ended = sum(expired);
            if (mutant != REARMS_READ_FIRST)
                again = sum(rearms);
            if (again != before)
                model_corner(TRIED_AGAIN);
        } while (again != before && ++tries < TRIES);
        if (again && ended > again)
            model_corner(ENDED_AGAIN);
        if (ended < again)
            model_corner(CUT_OFF);
        return ended > again || mutant == NOT_CUT_OFF ? ended - again : 0;
    }

    int read_worker()
    {
        return mutant == ENDS_READ_RELAXED ? load_relaxed(on_worker) : load_acquire(on_worker);
    }

    int count_slots(int *withdrawn)
    {
        int scheduled = 0;

        for (unsigned i = 0; i < TIMEOUTS; i++) {
            unsigned seen = load_acquire(slot[i]);
            scheduled += seen != EMPTY;
            *withdrawn += seen == WITHDRAWN;
        }
        return scheduled;
    }

    /* One is pending all the time. */
    void count_replaced()
    {
        int withdrawn = 0, later = 0, scheduled = count_slots(&withdrawn);

        if (mutant != WITHDRAWN_READ_WITH_SLOTS)
            scheduled = count_slots(&later);
        if (scheduled - withdrawn == 2)
            model_corner(FOUND_BOTH);
        RL_ASSERT(scheduled - withdrawn >= 1);
    }

    void count()
    {
        int none = 0, first = mutant == SLOTS_READ_FIRST ? count_slots(&none) : 0, scheduled = 0;
        int workers = mutant == WORKERS_READ_FIRST ? read_worker() : 0;
        int cancels = mutant == ENDS_READ_BY_LANE ? 0 : sum(cancelled), runs;

        if (mutant != WORKERS_READ_FIRST)
            workers = read_worker();
        runs = workers + count_expired();
        if (mutant == ENDS_READ_BY_LANE) {
            for (unsigned i = 0; i < LANES; i++) {
                cancels += load_acquire(cancelled[i]);
                scheduled += load_acquire(slot[i]) != EMPTY;
            }
        } else {
            scheduled = mutant == SLOTS_READ_FIRST ? first : count_slots(&none);
        }
        if (workers > 0)
            model_corner(ON_WORKER);
        RL_ASSERT(runs >= 0);
        RL_ASSERT(runs + cancels <= scheduled);
    }

    void thread_replacing(unsigned index)
    {
        if (index == 0)
            replace(replacing - 1);
        else if (index == THREADS - 1)
            count_replaced();
    }

    void thread(unsigned index)
    {
        if (replacing) {
            thread_replacing(index);
            return;
        }
        switch (index) {
        case 0:
            for (unsigned i = 0; i < TIMEOUTS; i++)
                schedule(i);
            cancel(rl::rand(TIMEOUTS));
            break;
        case 1:
        case 2:
            for (unsigned i = 0; i < ROUNDS && !(worker && index == 2); i++)
                run(rl::rand(TIMEOUTS), rl::rand(3));
            break;
        default:
            for (unsigned i = 0; i < COUNTS; i++)
                count();
        }
    }
};

int main()
{
    return model_check<ledger>("ledger", mutants, 300000, CORNERS) ? 0 : 1;
}
