/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What hwt_timer_next_deadline says beside the worker (rule C15): estimate against take_bound,
 * lane_sweep, receive and worker_plan; lane_tell_moved against the nudges it speaks of; a re-arm on
 * an executor's thread and the end of that run.
 *
 * One thread submits a timeout, two move it earlier when that has returned, a third runs another
 * one on an executor and re-arms it. The worker takes in what comes, files it and plans, over and
 * over; nothing expires. Whoever asks may not be told a later deadline than that of any call that
 * had returned before.
 */
#include "model.h"

enum {
    LOWERED_AFTER_TAKING = 1,
    TAKEN_UNSEEN,
    MOVED_TOLD_FIRST,
    MOVED_TELLS_ITS_OWN,
    MOVED_NOT_TOLD,
    LATER_NOT_TOLD,
    TAKEN_AFTER_NOTICES,
    ASKS_WORKER_FIRST,
    ASKS_ONCE,
    RAISED_BEFORE_FILED,
    RAISED_BESIDE_GUESTS,
    SIGNED_IN_LATE,
    REARMED_FORGOTTEN,
    REARMED_COUNTED_LATE,
    REARMED_UNCOUNTED_EARLY,
    NO_FENCE_AFTER_TAKING,
};

static const model_case mutants[] = {
    {LOWERED_AFTER_TAKING, "bound lowered after it was taken from the lane"},
    {TAKEN_UNSEEN, "bound taken by an exchange, though it may be lower by now"},
    {MOVED_TOLD_FIRST, "`moved` told before the nudge is queued"},
    {MOVED_TELLS_ITS_OWN, "mover tells the deadline it set, not the word's"},
    {MOVED_NOT_TOLD, "second mover relies on the first one's telling"},
    {LATER_NOT_TOLD, "whoever moves a nudged one later tells nobody"},
    {TAKEN_AFTER_NOTICES, "`moved` taken after the notices"},
    {ASKS_WORKER_FIRST, "asker reads next_deadline first, and not again"},
    {ASKS_ONCE, "asker looks once, though a deadline may come back to a lane"},
    {RAISED_BEFORE_FILED, "plan raises the bound before what was taken is filed"},
    {RAISED_BESIDE_GUESTS, "plan raises the bound while a mover has not queued his nudge"},
    {SIGNED_IN_LATE, "mover signs in after he has won the word"},
    {REARMED_FORGOTTEN, "plan leaves out what has been re-armed and runs on"},
    {REARMED_COUNTED_LATE, "re-arm counted after its deadline was told"},
    {REARMED_UNCOUNTED_EARLY, "re-arm counted out before its notice is queued"},
    {NO_FENCE_AFTER_TAKING, "no order between taking `moved` and looking for the notices"},
};

enum { SUBMITTER, MOVER, MOVER_2, RUNNER, WORKER, ASKER, THREADS };
enum { PENDING, NUDGED, RUNNING, REARMED };
enum { LANES = 2, BOTH = 2 };
enum place { UNMET, WHEEL, ADRIFT };

enum corner { SAID_EXACTLY, LEFT_ADRIFT, KEPT_FOR_GUESTS, FOUND_REARMED, CORNERS };

static const unsigned never = 1000, bystander = 20;

struct next : rl::test_suite<next, THREADS> {
    rl::atomic<unsigned> slot;
    rl::atomic<unsigned> earliest[LANES], moved[LANES], notices[LANES]; /* a bit for each timeout */
    rl::atomic<unsigned> word[BOTH];                                    /* deadline, code */
    rl::atomic<unsigned> guests, rearmed, next_deadline;
    rl::atomic<unsigned> returned[THREADS];
    /* the worker's own */
    place where[BOTH];
    unsigned filed[BOTH];
    bool dispatched, runs;

    static unsigned deadline_of(unsigned thread)
    {
        static const unsigned deadline[RUNNER + 1] = {9, 6, 4, 2};
        return deadline[thread];
    }

    static unsigned word_make(unsigned deadline, unsigned code) { return deadline * 4 + code; }

    void before()
    {
        model_setup setup(THREADS, 12);
        store_relaxed(slot, 0u);
        for (unsigned i = 0; i < LANES; i++) {
            store_relaxed(earliest[i], never);
            store_relaxed(moved[i], never);
            store_relaxed(notices[i], 0u);
        }
        store_relaxed(word[0], word_make(9, PENDING));
        store_relaxed(word[1], word_make(1, RUNNING));
        store_relaxed(guests, 0u);
        store_relaxed(rearmed, 0u);
        store_relaxed(next_deadline, bystander);
        for (unsigned i = 0; i < THREADS; i++)
            store_relaxed(returned[i], 0u);
        where[0] = UNMET;
        where[1] = ADRIFT;
        filed[0] = filed[1] = never;
        dispatched = runs = rl::rand(2);
    }

    /* ---- lane.c ---- */

    void lower(rl::atomic<unsigned> &bound, unsigned deadline)
    {
        unsigned seen = load_seq(bound);

        while (deadline < seen) {
            if (cas_seq(bound, seen, deadline))
                return;
        }
    }

    void submit()
    {
        unsigned empty = 0;

        RL_ASSERT(cas_seq(slot, empty, 1u));
        lower(earliest[0], deadline_of(SUBMITTER));
    }

    void lane_notify(unsigned lane, unsigned timeout)
    {
        unsigned head = load_relaxed(notices[lane]);

        rl::atomic_thread_fence(RELEASE);
        while (!cas_relaxed(notices[lane], head, head | 1u << timeout))
            continue;
        rl::atomic_thread_fence(SEQ);
    }

    /* ---- handle.c ---- */

    void nudge(unsigned lane, unsigned own)
    {
        if (mutant == MOVED_TOLD_FIRST)
            lower(moved[lane], load_seq(word[0]) / 4);
        lane_notify(lane, 0);
        if (mutant == MOVED_TELLS_ITS_OWN)
            lower(moved[lane], own);
        else if (mutant != MOVED_TOLD_FIRST)
            lower(moved[lane], load_seq(word[0]) / 4);
    }

    void move(unsigned thread)
    {
        unsigned lane = thread % LANES, deadline = deadline_of(thread), seen;

        if (mutant != SIGNED_IN_LATE)
            add_seq(guests, 1u);
        seen = load_acquire(word[0]);
        while (deadline < seen / 4 && !cas_seq(word[0], seen, word_make(deadline, NUDGED)))
            continue;
        if (mutant == SIGNED_IN_LATE)
            add_seq(guests, 1u);
        if (deadline >= seen / 4) {
            /* later than the other's, which is left, so that what is known stays known */
            if (seen % 4 == NUDGED && mutant != LATER_NOT_TOLD)
                lower(moved[lane], deadline);
        } else if (seen % 4 == PENDING) {
            nudge(lane, deadline);
        } else if (mutant != MOVED_NOT_TOLD) {
            lower(moved[lane], deadline);
        }
        sub_acq_rel(guests, 1u);
    }

    /* ---- run.c, on an executor's thread ---- */

    void rearm()
    {
        unsigned seen = load_acquire(word[1]), deadline = deadline_of(RUNNER);

        if (mutant != REARMED_COUNTED_LATE)
            add_seq(rearmed, 1u);
        RL_ASSERT(cas_acq_rel(word[1], seen, word_make(deadline, REARMED)));
        lower(moved[1], deadline);
        if (mutant == REARMED_COUNTED_LATE)
            add_seq(rearmed, 1u);
    }

    void report()
    {
        unsigned seen = load_acquire(word[1]);

        RL_ASSERT(cas_acq_rel(word[1], seen, word_make(seen / 4, NUDGED)));
        add_seq(guests, 1u);
        if (mutant == REARMED_UNCOUNTED_EARLY) {
            sub_acq_rel(rearmed, 1u);
            sub_acq_rel(guests, 1u); /* which would save it */
        }
        lane_notify(1, 1);
        lower(moved[1], load_seq(word[1]) / 4);
        if (mutant != REARMED_UNCOUNTED_EARLY) {
            sub_acq_rel(rearmed, 1u);
            sub_acq_rel(guests, 1u);
        }
    }

    /* ---- filing.c, intake.c ---- */

    void lower_bound(unsigned deadline)
    {
        if (deadline < load_relaxed(next_deadline))
            store_seq(next_deadline, deadline);
    }

    bool take_nudge(unsigned timeout)
    {
        unsigned seen = load_acquire(word[timeout]);

        while (seen % 4 == NUDGED) {
            if (cas_acq_rel(word[timeout], seen, word_make(seen / 4, PENDING)))
                return true;
        }
        return false;
    }

    void file(unsigned timeout)
    {
        filed[timeout] = load_relaxed(word[timeout]) / 4;
        where[timeout] = WHEEL;
        lower_bound(filed[timeout]);
    }

    void meet()
    {
        if (load_acquire(word[0]) % 4 == PENDING) {
            file(0);
        } else {
            where[0] = ADRIFT;
            model_corner(LEFT_ADRIFT);
        }
    }

    bool take_slot()
    {
        unsigned held = load_seq(slot);
        return held == 1 && cas_seq(slot, held, 2u);
    }

    void receive(unsigned timeout)
    {
        if (timeout == 1)
            dispatched = false;
        else if (where[0] == UNMET)
            RL_ASSERT(take_slot());
        RL_ASSERT(take_nudge(timeout));
        file(timeout);
    }

    bool take_bound(rl::atomic<unsigned> &bound)
    {
        unsigned seen = load_seq(bound);

        while (seen < never) {
            if (mutant != LOWERED_AFTER_TAKING)
                lower_bound(seen);
            if (mutant == TAKEN_UNSEEN)
                exchange_seq(bound, never);
            else if (!cas_seq(bound, seen, never))
                continue;
            if (mutant == LOWERED_AFTER_TAKING)
                lower_bound(seen);
            return true;
        }
        return false;
    }

    void take_notices(unsigned lane)
    {
        unsigned head;

        if (!load_relaxed(notices[lane]))
            return;
        head = exchange_relaxed(notices[lane], 0u);
        rl::atomic_thread_fence(ACQUIRE);
        for (unsigned i = 0; i < BOTH; i++) {
            if (head >> i & 1)
                receive(i);
        }
    }

    void collect(unsigned lane)
    {
        if (mutant != TAKEN_AFTER_NOTICES && take_bound(moved[lane]) &&
            mutant != NO_FENCE_AFTER_TAKING)
            rl::atomic_thread_fence(SEQ);
        take_notices(lane);
        if (mutant == TAKEN_AFTER_NOTICES)
            take_bound(moved[lane]);
        if (lane == 0 && rl::rand(2) && take_bound(earliest[0])) {
            if (mutant == RAISED_BEFORE_FILED)
                plan();
            if (take_slot())
                meet();
        }
    }

    /* ---- worker.c ---- */

    unsigned rearmed_earliest()
    {
        unsigned seen;

        if (mutant == REARMED_FORGOTTEN || load_seq(rearmed) == 0 || !dispatched)
            return never;
        seen = load_acquire(word[1]);
        if (seen % 4 != REARMED && seen % 4 != NUDGED)
            return never;
        model_corner(FOUND_REARMED);
        return seen / 4;
    }

    static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

    void plan()
    {
        unsigned deadline = least(bystander, least(filed[0], filed[1]));

        for (unsigned i = 0; i < LANES; i++)
            deadline = least(deadline, load_seq(earliest[i]));
        deadline = least(deadline, rearmed_earliest());
        if (deadline < load_relaxed(next_deadline) || mutant == RAISED_BESIDE_GUESTS ||
            load_seq(guests) == 0)
            store_seq(next_deadline, deadline);
        else
            model_corner(KEPT_FOR_GUESTS);
    }

    void work()
    {
        for (unsigned passes = 2 + rl::rand(4); passes > 0; passes--) {
            for (unsigned i = 0; i < LANES; i++)
                collect(i);
            plan();
        }
    }

    /* ---- drive.c ---- */

    unsigned estimate_once()
    {
        unsigned said = mutant == ASKS_WORKER_FIRST ? load_seq(next_deadline) : never;

        for (unsigned i = 0; i < LANES; i++) {
            said = least(said, load_seq(earliest[i]));
            said = least(said, load_seq(moved[i]));
        }
        return mutant == ASKS_WORKER_FIRST ? said : least(said, load_seq(next_deadline));
    }

    unsigned estimate()
    {
        unsigned said = estimate_once();
        if (mutant == ASKS_ONCE || mutant == ASKS_WORKER_FIRST)
            return said;
        return least(said, estimate_once());
    }

    void ask()
    {
        for (unsigned times = 4; times > 0; times--) {
            unsigned known = bystander, said;
            for (unsigned i = SUBMITTER; i <= RUNNER; i++) {
                if (load_acquire(returned[i]))
                    known = least(known, deadline_of(i));
            }
            said = estimate();
            RL_ASSERT(said <= known);
            if (said == known && known < bystander)
                model_corner(SAID_EXACTLY);
            for (unsigned steps = rl::rand(12); steps > 0; steps--)
                rl::yield(1, $);
        }
    }

    void thread(unsigned index)
    {
        switch (index) {
        case SUBMITTER: submit(); break;
        case MOVER:
        case MOVER_2: /* by a handle, which they have when it was submitted */
            while (!load_acquire(returned[SUBMITTER]))
                rl::yield(1, $);
            move(index);
            break;
        case RUNNER:
            if (!runs)
                return;
            rearm();
            break;
        case WORKER: work(); break;
        default: ask(); break;
        }
        store_release(returned[index], 1u);
        if (index == RUNNER) {
            model_dawdle(20, $);
            report();
        }
    }
};

int main()
{
    return model_check<next>("no later deadline than one that is known", mutants, 200000, CORNERS)
               ? 0
               : 1;
}
