/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who acts as the worker with HWT_DRIVE_CALLER (driver.c; rule C16): two threads in
 * hwt_timer_advance, two that look for the next deadline, one that stops. One at a time, who sees
 * what the one before did; stop gives up for nobody; nobody waits for ever (relacy calls it a
 * livelock), though the one who stops waits for one who looks: in a task on an executor's thread.
 * Nobody who begins to look gets ahead of an advance that sleeps; in the end none is waited for.
 */
#include "model.h"

enum {
    TAKEN_RELAXED = 1,
    ENDED_RELAXED,
    ENDED_BY_STORE,
    AWAITED_NOT_SAID,
    AWAITED_STORED,
    SLEEPS_UNSEEN,
    AWAITED_TAKEN_FOR_ANOTHER,
    STOP_GIVES_UP,
    WAITS_FOR_STOP,
    LOOKS_AHEAD,
    WANTED_LOST,
    WANTED_KEPT,
};

static const model_case mutants[] = {
    {TAKEN_RELAXED, "driver's place taken without acquire"},
    {ENDED_RELAXED, "driver's place left without release"},
    {ENDED_BY_STORE, "driver's place left without looking whether it is awaited"},
    {AWAITED_NOT_SAID, "waiter sleeps without having said so"},
    {AWAITED_STORED, "waiter says so by a store"},
    {SLEEPS_UNSEEN, "waiter sleeps whatever the word says by then"},
    {AWAITED_TAKEN_FOR_ANOTHER, "an advance that is awaited is not known as one"},
    {STOP_GIVES_UP, "stop does not wait for an advance"},
    {WAITS_FOR_STOP, "who looks waits for stop, which waits for him"},
    {LOOKS_AHEAD, "who looks gets ahead of an advance that waits"},
    {WANTED_LOST, "the end of a look forgets that an advance waits"},
    {WANTED_KEPT, "an advance still waits when it has the driver's place"},
};

enum { ADVANCERS = 2, LOOKERS = 2, STOPPER = ADVANCERS + LOOKERS, THREADS };
enum { NONE, LOOKS, ADVANCES, STOPS, AWAITED, WANTED = 8 };

enum corner { GAVE_UP, GAVE_WAY, SLEPT, STOP_SLEPT, CORNERS };

struct driver : rl::test_suite<driver, THREADS> {
    rl::atomic<unsigned> word;
    rl::var<unsigned> wheel; /* whatever the worker owns */
    /* in the kernel, and the books */
    bool asleep[THREADS];
    unsigned inside;
    bool an_advance_sleeps; /* or has, since one got in */
    bool task_is_over;

    void before()
    {
        model_setup setup(THREADS, 8);
        store_relaxed(word, (unsigned)NONE);
        wheel($) = 0;
        for (bool &sleeps : asleep)
            sleeps = false;
        inside = 0;
        an_advance_sleeps = task_is_over = false;
    }

    void futex_wait(unsigned expected)
    {
        unsigned me = rl::thread_index();

        if (mutant != SLEEPS_UNSEEN && (MODEL_STEP, word.fetch_add(0u, SEQ)) != expected)
            return;
        asleep[me] = true;
        if (me < ADVANCERS)
            an_advance_sleeps = true;
        model_corner(me == STOPPER ? STOP_SLEPT : SLEPT);
        while (asleep[me])
            rl::yield(1, $);
    }

    static unsigned role_of(unsigned seen)
    {
        return seen & ~(unsigned)(mutant == AWAITED_TAKEN_FOR_ANOTHER ? WANTED : WANTED | AWAITED);
    }

    bool take(unsigned &seen, unsigned as)
    {
        unsigned taken = mutant == WANTED_KEPT && as == ADVANCES ? as | (seen & WANTED) : as;

        if (!(mutant == TAKEN_RELAXED ? cas_relaxed(word, seen, taken)
                                      : cas_acq_rel(word, seen, taken)))
            return false;
        RL_ASSERT(as != LOOKS || !an_advance_sleeps);
        an_advance_sleeps = false;
        return true;
    }

    void wait_for_end(unsigned seen, unsigned as)
    {
        unsigned says = as == ADVANCES ? WANTED | AWAITED : AWAITED;

        if (mutant == AWAITED_STORED) {
            store_seq(word, seen | says);
            futex_wait(seen | says);
        } else if (mutant == AWAITED_NOT_SAID) {
            futex_wait(seen);
        } else if ((seen & says) == says || cas_acq_rel(word, seen, seen | says)) {
            futex_wait(seen | says);
        }
    }

    bool begin(unsigned as)
    {
        unsigned seen = load_acquire(word);

        for (;;) {
            if (seen == NONE || (seen == WANTED && (as != LOOKS || mutant == LOOKS_AHEAD))) {
                if (take(seen, as))
                    return true;
                continue;
            }
            if (role_of(seen) == ADVANCES && (as != STOPS || mutant == STOP_GIVES_UP)) {
                RL_ASSERT(as != STOPS);
                model_corner(GAVE_UP);
                return false;
            }
            if ((seen & STOPS) == STOPS && mutant != WAITS_FOR_STOP)
                return false;
            if (as == LOOKS && seen & WANTED && mutant != LOOKS_AHEAD) {
                model_corner(GAVE_WAY);
                return false;
            }
            if (mutant == AWAITED_TAKEN_FOR_ANOTHER)
                RL_ASSERT(as == STOPS || (seen & STOPS) != ADVANCES);
            wait_for_end(seen, as);
            seen = load_acquire(word);
        }
    }

    void end()
    {
        unsigned seen = load_relaxed(word);

        if (mutant == ENDED_BY_STORE)
            store_release(word, (unsigned)NONE);
        else
            while (!leave(seen))
                continue;
        if (seen & AWAITED) {
            (void)load_relaxed(word); /* a step, before the system call */
            for (bool &sleeps : asleep)
                sleeps = false;
        }
    }

    bool leave(unsigned &seen)
    {
        unsigned left = mutant == WANTED_LOST ? (unsigned)NONE : seen & WANTED;

        return mutant == ENDED_RELAXED ? cas_relaxed(word, seen, left)
                                       : cas_acq_rel(word, seen, left);
    }

    void act(unsigned as)
    {
        RL_ASSERT(++inside == 1);
        wheel($) = wheel($) + 1;
        for (unsigned steps = rl::rand(4); steps > 0; steps--)
            (void)load_relaxed(word);
        while (as == STOPS && !task_is_over)
            rl::yield(1, $);
        inside--;
    }

    void drive(unsigned as)
    {
        if (!begin(as))
            return;
        act(as);
        end();
    }

    void thread(unsigned index)
    {
        for (unsigned times = index == STOPPER ? 1 : 1 + rl::rand(2); times > 0; times--)
            drive(index < ADVANCERS ? ADVANCES : index < STOPPER ? LOOKS : STOPS);
        if (index == ADVANCERS)
            task_is_over = true;
    }

    void after()
    {
        RL_ASSERT(load_relaxed(word) == NONE);
    }
};

int main()
{
    return model_check<driver>("one driver at a time", mutants, 200000, CORNERS) ? 0 : 1;
}
