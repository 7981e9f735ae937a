/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No lost wake-up (G4; rules C2, C3 and C4): lane_submit, nudge and park_wake_for against
 * lane_sweep, collect_notices, worker_plan and park_sleep.
 *
 * Two threads submit to one group of a lane, the second with the later deadline, so that it does
 * not lower `earliest`; two others move a timeout that the worker has filed already. Deadlines are
 * moments of the clock, which goes on only while the worker sleeps; a tick is 1. The worker may
 * not sleep past the deadline of a submission that has returned, whatever the other threads are at;
 * nor past that of a move when both movers have returned. In half of the runs it sleeps on a timer
 * descriptor instead of a futex, and there this holds whenever nobody has just set the descriptor
 * and not looked yet whether that is still what is wanted.
 */
#include "model.h"

enum {
    EARLIEST_BEFORE_SLOT = 1,
    FLAG_AFTER_EARLIEST,
    NO_SECOND_LOOK,
    LOOK_BEFORE_PLAN,
    FLAG_CLEARED_AFTER_SLOTS,
    EARLIEST_TAKEN_AFTER_SLOTS,
    SLOT_FILLED_WITH_RELEASE,
    PLAN_RELAXED,
    COMPARED_RELAXED,
    COMPARED_BEFORE_ANNOUNCED,
    NUDGE_WITHOUT_FENCE,
    NUDGE_COMPARES_ITS_OWN,
    NO_LOOK_AT_MAIL,
    TIMER_SET_ONCE,
    RELIES_ON_THE_FIRST_WAKER,
    WOKEN_BEFORE_THE_CALL,
    WAKER_WRITES_THE_PLAN,
    RELIES_ON_THE_FIRST_SETTER,
    SLEEPS_ON_ANY_NUMBER,
};

static const model_case mutants[] = {
    {EARLIEST_BEFORE_SLOT, "earliest lowered before the slot is filled"},
    {FLAG_AFTER_EARLIEST, "group flagged after earliest was lowered"},
    {NO_SECOND_LOOK, "no second look after the plan was published"},
    {LOOK_BEFORE_PLAN, "second look before the plan is published"},
    {FLAG_CLEARED_AFTER_SLOTS, "flag cleared after the slots were read"},
    {EARLIEST_TAKEN_AFTER_SLOTS, "earliest taken after the slots were read"},
    {SLOT_FILLED_WITH_RELEASE, "slot filled with release only"},
    {PLAN_RELAXED, "plan published relaxed"},
    {COMPARED_RELAXED, "wake_before compared relaxed"},
    {COMPARED_BEFORE_ANNOUNCED, "wake_before compared before earliest is lowered"},
    {NUDGE_WITHOUT_FENCE, "no order between notice and comparison"},
    {NUDGE_COMPARES_ITS_OWN, "nudge compares the deadline it set, not the word's"},
    {NO_LOOK_AT_MAIL, "second look leaves out the notices"},
    {TIMER_SET_ONCE, "timer descriptor set without looking again"},
    {RELIES_ON_THE_FIRST_WAKER, "second waker relies on the first one's system call"},
    {WOKEN_BEFORE_THE_CALL, "sleep marked as ended before the system call"},
    {WAKER_WRITES_THE_PLAN, "wake_before taken down to 0 by the waker, after the system call"},
    {RELIES_ON_THE_FIRST_SETTER, "whoever finds the time lowered relies on its being set"},
    {SLEEPS_ON_ANY_NUMBER, "worker falls asleep though somebody has ended the sleep"},
};

static const unsigned never = 1000;

enum { SUBMITTERS = 2, MOVERS = 2, WORKER = SUBMITTERS + MOVERS };

struct wakeup : rl::test_suite<wakeup, WORKER + 1> {
    /* one group of a lane */
    rl::atomic<unsigned> slot[SUBMITTERS]; /* a deadline; 0: empty */
    rl::atomic<unsigned> fresh;
    rl::atomic<unsigned> earliest;
    rl::atomic<unsigned> notices; /* 1: the nudge is queued */
    /* the timeout that is moved: its deadline, and from `nudged` on a queued nudge */
    rl::atomic<unsigned> word;
    static const unsigned nudged = 10000;
    /* the park */
    rl::atomic<unsigned> wake_before;
    rl::atomic<unsigned> parked; /* 4 times the number of the sleep, and a state */
    rl::atomic<unsigned> alarm;  /* 4 times the time, 2: plan odd or even, 1: set */
    /* in the kernel */
    rl::atomic<unsigned> wakes; /* system calls */
    rl::atomic<unsigned> timer; /* the descriptor's */
    unsigned setters;           /* have set it, and not looked yet */
    bool timerfd;
    rl::atomic<unsigned> returned[WORKER];
    /* the worker's own */
    unsigned now, filed[SUBMITTERS], moved, bystander;

    static unsigned deadline_of(unsigned thread)
    {
        static const unsigned deadline[WORKER] = {5, 7, 12, 9};
        return deadline[thread];
    }

    void before()
    {
        model_setup setup(WORKER + 1, 12);
        for (unsigned i = 0; i < SUBMITTERS; i++) {
            store_relaxed(slot[i], 0u);
            filed[i] = 0;
        }
        store_relaxed(fresh, 0u);
        store_relaxed(earliest, never);
        store_relaxed(notices, 0u);
        store_relaxed(word, 20u);
        store_relaxed(wake_before, 0u);
        store_relaxed(parked, 0u);
        store_relaxed(alarm, never * 4 + 1);
        store_relaxed(wakes, 0u);
        store_relaxed(timer, never);
        setters = 0;
        timerfd = rl::rand(2);
        for (unsigned i = 0; i < WORKER; i++)
            store_relaxed(returned[i], 0u);
        now = 0;
        moved = 20;
        bystander = 10; /* another timeout in the wheel: due between the two moves */
    }

    /* ---- park.c, park.h ---- */

    enum { AWAKE, ASLEEP, WAKING, WOKEN };

    void wake_sleeper()
    {
        unsigned sleep = load_seq(parked);
        bool first = false;

        if (sleep % 4 == ASLEEP) {
            first = cas_seq(parked, sleep, sleep / 4 * 4 + WAKING);
            if (first)
                sleep = sleep / 4 * 4 + WAKING;
        }
        if (sleep % 4 != WAKING || (mutant == RELIES_ON_THE_FIRST_WAKER && !first))
            return;
        if (mutant == WOKEN_BEFORE_THE_CALL)
            cas_seq(parked, sleep, sleep / 4 * 4 + WOKEN);
        add_seq(wakes, 1u);
        cas_seq(parked, sleep, sleep / 4 * 4 + WOKEN);
        if (mutant == WAKER_WRITES_THE_PLAN)
            exchange_seq(wake_before, 0u);
    }

    void set_alarm()
    {
        unsigned wanted = load_seq(alarm), seen;
        bool first = true;

        if (wanted & 1)
            return;
        for (;; wanted = seen) {
            exchange_seq(timer, wanted / 4);
            setters += first;
            first = false;
            seen = wanted / 2 * 2;
            if (cas_seq(alarm, seen, wanted | 1) || seen == (wanted | 1) ||
                mutant == TIMER_SET_ONCE)
                break;
        }
        setters--;
    }

    void lower_alarm(unsigned time)
    {
        unsigned seen = load_seq(alarm);
        bool lowered = false;

        while (!lowered && time < seen / 4)
            lowered = cas_seq(alarm, seen, time * 4 + (seen & 2));
        if (lowered || mutant != RELIES_ON_THE_FIRST_SETTER)
            set_alarm();
    }

    void plan_alarm(unsigned time)
    {
        unsigned before = load_seq(alarm);

        while (!cas_seq(alarm, before, time * 4 + (~before & 2)))
            continue;
    }

    void park_wake_for(unsigned deadline)
    {
        unsigned planned =
            mutant == COMPARED_RELAXED ? load_relaxed(wake_before) : load_seq(wake_before);

        if (deadline < planned && timerfd)
            lower_alarm(deadline);
        else if (deadline < planned)
            wake_sleeper();
    }

    /* ---- lane.c: submission ---- */

    void announce(unsigned deadline)
    {
        unsigned seen = load_seq(earliest);

        while (deadline < seen) {
            if (cas_seq(earliest, seen, deadline))
                return;
        }
    }

    void fill(unsigned index, unsigned deadline)
    {
        unsigned empty = 0;

        if (mutant == SLOT_FILLED_WITH_RELEASE)
            RL_ASSERT(cas_release(slot[index], empty, deadline));
        else
            RL_ASSERT(cas_seq(slot[index], empty, deadline));
    }

    void mark_fresh()
    {
        if (!load_seq(fresh))
            store_seq(fresh, 1u);
    }

    void submit(unsigned index)
    {
        unsigned deadline = deadline_of(index);

        if (mutant == EARLIEST_BEFORE_SLOT)
            announce(deadline);
        fill(index, deadline);
        if (mutant != FLAG_AFTER_EARLIEST)
            mark_fresh();
        if (mutant == COMPARED_BEFORE_ANNOUNCED)
            park_wake_for(deadline);
        if (mutant != EARLIEST_BEFORE_SLOT)
            announce(deadline);
        if (mutant == FLAG_AFTER_EARLIEST)
            mark_fresh();
        if (mutant != COMPARED_BEFORE_ANNOUNCED)
            park_wake_for(deadline);
    }

    /* ---- handle.c: moved earlier ---- */

    void nudge(unsigned deadline)
    {
        unsigned none = 0;

        /* ck_stack_push_upmc: an entry's CAS, ordered by fences */
        rl::atomic_thread_fence(RELEASE);
        RL_ASSERT(cas_relaxed(notices, none, 1u));
        if (mutant != NUDGE_WITHOUT_FENCE)
            rl::atomic_thread_fence(SEQ);
        if (mutant == NUDGE_COMPARES_ITS_OWN)
            park_wake_for(deadline);
        else
            park_wake_for(load_seq(word) % nudged);
    }

    void move(unsigned deadline)
    {
        unsigned seen = load_acquire(word);

        while (deadline < seen % nudged) {
            if (!cas_seq(word, seen, nudged + deadline))
                continue;
            if (seen >= nudged)
                park_wake_for(deadline);
            else
                nudge(deadline);
            return;
        }
    }

    /* ---- the worker: what it takes in ---- */

    void collect_notices()
    {
        unsigned seen;

        if (!load_relaxed(notices))
            return;
        exchange_relaxed(notices, 0u);
        rl::atomic_thread_fence(ACQUIRE);
        seen = load_acquire(word);
        while (!cas_acq_rel(word, seen, seen % nudged))
            continue;
        moved = seen % nudged;
    }

    void sweep_slots()
    {
        for (unsigned i = 0; i < SUBMITTERS; i++) {
            unsigned held = load_seq(slot[i]);
            if (held && cas_seq(slot[i], held, 0u))
                filed[i] = held;
        }
    }

    void sweep()
    {
        if (mutant != EARLIEST_TAKEN_AFTER_SLOTS)
            exchange_seq(earliest, never);
        if (load_seq(fresh)) {
            if (mutant != FLAG_CLEARED_AFTER_SLOTS)
                store_seq(fresh, 0u);
            sweep_slots();
            if (mutant == FLAG_CLEARED_AFTER_SLOTS)
                store_seq(fresh, 0u);
        }
        if (mutant == EARLIEST_TAKEN_AFTER_SLOTS)
            exchange_seq(earliest, never);
    }

    void pass()
    {
        collect_notices();
        if (load_seq(earliest) <= now)
            sweep();
        if (bystander <= now)
            bystander = never;
    }

    /* ---- the worker: its plan and its sleep ---- */

    unsigned wheel_next() const
    {
        unsigned next = bystander;

        for (unsigned i = 0; i < SUBMITTERS; i++)
            next = filed[i] > now && filed[i] < next ? filed[i] : next;
        return moved > now && moved < next ? moved : next;
    }

    bool is_urgent(unsigned planned)
    {
        if (mutant == NO_SECOND_LOOK)
            return false;
        rl::atomic_thread_fence(SEQ); /* ck_pr_fence_store_load */
        return (mutant != NO_LOOK_AT_MAIL && load_relaxed(notices)) || load_seq(earliest) < planned;
    }

    void park_publish(unsigned planned)
    {
        if (!timerfd)
            store_relaxed(parked, (load_relaxed(parked) / 4 + 1) * 4 + ASLEEP);
        else
            plan_alarm(planned);
        if (mutant == PLAN_RELAXED)
            store_relaxed(wake_before, planned);
        else
            store_seq(wake_before, planned);
        if (timerfd)
            set_alarm();
    }

    void park_leave()
    {
        store_relaxed(wake_before, 0u);
        store_relaxed(parked, load_relaxed(parked) / 4 * 4 + AWAKE);
    }

    bool plan(unsigned *until)
    {
        unsigned seen = load_seq(earliest), next = wheel_next();
        bool urgent = false;

        *until = seen < next ? seen : next;
        if (mutant == LOOK_BEFORE_PLAN)
            urgent = is_urgent(*until);
        park_publish(*until);
        if (mutant != LOOK_BEFORE_PLAN)
            urgent = is_urgent(*until);
        if (urgent)
            park_leave();
        return !urgent;
    }

    /*
     * Asleep: what has returned must be covered, or the system call have been made. What the other
     * threads are at does not matter, but that the second mover relies on the first one's nudge.
     */
    bool all_returned(unsigned until, unsigned before)
    {
        unsigned back = 0, moves = 0;
        bool submitted[SUBMITTERS];

        for (unsigned i = 0; i < SUBMITTERS; i++)
            back += submitted[i] = load_acquire(returned[i]);
        for (unsigned i = SUBMITTERS; i < WORKER; i++)
            moves += load_acquire(returned[i]);
        if (load_seq(wakes) != before)
            return false;
        for (unsigned i = 0; i < SUBMITTERS; i++)
            RL_ASSERT(!submitted[i] || filed[i] || deadline_of(i) >= until);
        if (moves == MOVERS)
            RL_ASSERT(moved <= now || load_seq(word) % nudged >= until);
        return back + moves == WORKER;
    }

    /* On a descriptor the timer itself must be right, unless somebody is about to look at it. */
    bool sleep_on_timer()
    {
        for (;;) {
            unsigned until, back = 0, moves = 0, moved_to = load_seq(word) % nudged;
            bool submitted[SUBMITTERS];

            for (unsigned i = 0; i < SUBMITTERS; i++)
                back += submitted[i] = load_acquire(returned[i]);
            for (unsigned i = SUBMITTERS; i < WORKER; i++)
                moves += load_acquire(returned[i]);
            if (moves == MOVERS)
                moved_to = load_seq(word) % nudged;
            until = load_seq(timer); /* and `setters` at the same moment */
            for (unsigned i = 0; i < SUBMITTERS; i++)
                RL_ASSERT(!submitted[i] || setters > 0 || filed[i] || deadline_of(i) >= until);
            if (moves == MOVERS)
                RL_ASSERT(setters > 0 || moved <= now || moved_to >= until);
            if (back + moves == WORKER || (until < 20 && rl::rand(4) == 0)) {
                if (until != never && until > now)
                    now = until;
                return until != never;
            }
            rl::yield(1, $);
        }
    }

    /*
     * Returns when woken (false: for good, nothing is left), or when the time has come: at once, or
     * when everybody else is done. The timeout that is moved does not expire before that.
     */
    bool sleep(unsigned until)
    {
        unsigned before = load_seq(wakes); /* the kernel looks at the word, and then counts it in */
        unsigned seen = load_seq(parked);

        if (seen % 4 != ASLEEP && mutant != SLEEPS_ON_ANY_NUMBER)
            return true;
        while (load_seq(wakes) == before) {
            bool over = all_returned(until, before);
            if (over || (until < 20 && rl::rand(4) == 0)) {
                if (until != never)
                    now = until;
                return until != never || load_seq(wakes) != before;
            }
            rl::yield(1, $);
        }
        return true;
    }

    void work()
    {
        bool more = true;
        unsigned until;

        while (more) {
            pass();
            if (!plan(&until))
                continue;
            if (until > now)
                more = timerfd ? sleep_on_timer() : sleep(until);
            park_leave();
        }
        for (unsigned i = 0; i < SUBMITTERS; i++)
            RL_ASSERT(filed[i] == deadline_of(i));
        RL_ASSERT(moved == deadline_of(WORKER - 1));
    }

    void thread(unsigned index)
    {
        if (index == WORKER) {
            work();
            return;
        }
        if (index < SUBMITTERS)
            submit(index);
        else
            move(deadline_of(index));
        store_release(returned[index], 1u);
    }
};

int main()
{
    return model_check<wakeup>("no lost wake-up", mutants, 300000) ? 0 : 1;
}
