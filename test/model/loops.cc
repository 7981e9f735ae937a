/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several event loops share a timer that the caller drives (driver.c, worker.c worker_hand_over,
 * park.c; rules C4 and C16): three threads wait for the edge of its descriptor, one submits. Who is
 * refused has had an edge: what is due is run all the same, and nobody is told for nothing once all
 * has been run.
 */
#include "model.h"

enum {
    NOT_SAID = 1,
    SAID_FIRST,
    SAID_TO_NOBODY,
    NOT_PLANNED_ANEW,
    SET_AND_NO_MORE,
    END_BY_STORE,
    RELIES_ON_WHO_SAYS_SET,
};

static const model_case mutants[] = {
    {NOT_SAID, "who is refused says nothing"},
    {SAID_FIRST, "who is refused says so, and then unsets the descriptor"},
    {SAID_TO_NOBODY, "who is refused does not look whether the driver has gone meanwhile"},
    {NOT_PLANNED_ANEW, "driver does not plan anew for who was refused"},
    {SET_AND_NO_MORE, "descriptor set without looking again"},
    {END_BY_STORE, "driver's place left without looking whether somebody was refused"},
    {RELIES_ON_WHO_SAYS_SET, "driver leaves a plan that somebody says is set"},
};

enum { LOOPS = 3, SUBMITTER = LOOPS, THREADS };
enum { NONE, ADVANCES, MISSED };                    /* the driver's word; the last one is a flag */
enum { AT_ONCE = 0, NEVER = 4, PLAN = 2, SET = 1 }; /* the alarm's */

enum corner { REFUSED, TOO_LATE, ANEW, CORNERS };

struct loops : rl::test_suite<loops, THREADS> {
    rl::atomic<unsigned> word, alarm, timer, wake_before, due;
    rl::var<unsigned> wheel; /* whatever the worker owns */
    /* in the kernel, and the books */
    unsigned settings, taken, waiting, run;
    bool readable, all_submitted, is_over;

    void before()
    {
        model_setup setup(THREADS, 12);
        store_relaxed(word, (unsigned)NONE);
        store_relaxed(alarm, (unsigned)AT_ONCE | SET);
        store_relaxed(timer, (unsigned)AT_ONCE);
        store_relaxed(wake_before, 0u);
        store_relaxed(due, 0u);
        wheel($) = 0;
        settings = 1;
        taken = waiting = run = 0;
        readable = true;
        all_submitted = is_over = false;
    }

    /* ---- park.c ---- */

    void set_alarm()
    {
        unsigned wanted = load_seq(alarm), seen;

        for (;; wanted = seen) {
            exchange_seq(timer, wanted & NEVER);
            readable = !(wanted & NEVER);
            settings++;
            wanted = seen = wanted & ~(unsigned)SET;
            if (cas_seq(alarm, seen, wanted | SET) || seen == (wanted | SET) ||
                mutant == SET_AND_NO_MORE)
                return;
        }
    }

    void plan_alarm(unsigned time)
    {
        unsigned seen = load_seq(alarm);

        while (!cas_seq(alarm, seen, time | (~seen & PLAN)))
            continue;
    }

    void wake()
    {
        unsigned seen;
        bool lowered = false;

        if (load_seq(wake_before) == 0)
            return;
        seen = load_seq(alarm);
        while (!lowered && (seen & NEVER))
            lowered = cas_seq(alarm, seen, AT_ONCE | (seen & PLAN));
        if (lowered || !(load_seq(alarm) & SET))
            set_alarm();
    }

    /* ---- driver.c ---- */

    bool say_missed(unsigned &seen)
    {
        model_corner(REFUSED);
        if (mutant == SAID_FIRST && !cas_acq_rel(word, seen, seen | MISSED))
            return false;
        plan_alarm(NEVER);
        set_alarm();
        if (mutant == NOT_SAID || mutant == SAID_FIRST || cas_acq_rel(word, seen, seen | MISSED) ||
            mutant == SAID_TO_NOBODY)
            return true;
        model_corner(TOO_LATE);
        return false;
    }

    bool begin()
    {
        unsigned seen = load_acquire(word);

        for (;;) {
            if (seen != NONE) {
                if (say_missed(seen))
                    return false;
            } else if (cas_acq_rel(word, seen, (unsigned)ADVANCES)) {
                return true;
            }
        }
    }

    bool end_unless_missed()
    {
        unsigned seen = load_relaxed(word);

        if (mutant == END_BY_STORE) {
            store_release(word, (unsigned)NONE);
            return true;
        }
        while (!(seen & MISSED) || mutant == NOT_PLANNED_ANEW) {
            if (cas_acq_rel(word, seen, (unsigned)NONE))
                return true;
        }
        model_corner(ANEW);
        while (!cas_acq_rel(word, seen, seen & ~(unsigned)MISSED))
            continue;
        return false;
    }

    /* ---- worker.c ---- */

    void plan()
    {
        plan_alarm(NEVER);
        store_seq(wake_before, 1u);
        if (load_seq(due) == run)
            return;
        store_relaxed(wake_before, 0u);
        plan_alarm(AT_ONCE);
    }

    void advance()
    {
        if (!begin())
            return;
        store_relaxed(wake_before, 0u);
        wheel($) = wheel($) + 1;
        run = load_acquire(due);
        do
            plan();
        while (!end_unless_missed());
        if (mutant != RELIES_ON_WHO_SAYS_SET || !(load_seq(alarm) & SET))
            set_alarm();
    }

    /* Not, if nobody has anything to do any more: then nothing is left to run. */
    bool wait_for_edge()
    {
        waiting++;
        while (!readable || settings == taken) {
            if (waiting == LOOPS && all_submitted)
                is_over = true;
            if (is_over) {
                RL_ASSERT(load_seq(due) == run);
                return false;
            }
            rl::yield(1, $);
        }
        taken = settings;
        waiting--;
        return true;
    }

    void thread(unsigned index)
    {
        if (index == SUBMITTER) {
            for (unsigned times = 1 + rl::rand(2); times > 0; times--) {
                add_seq(due, 1u);
                wake();
            }
            all_submitted = true;
            return;
        }
        while (wait_for_edge())
            advance();
    }
};

int main()
{
    return model_check<loops>("loops that share a timer", mutants, 200000, CORNERS) ? 0 : 1;
}
