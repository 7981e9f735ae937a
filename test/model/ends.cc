/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One timeout and everybody who may end it (G2, G8, G9; rules C1, C5 and C6): timeout.c, handle.c,
 * run.c, visit.c, and what intake.c and filing.c do with it, followed step by step.
 *
 * Up to three threads with a handle cancel it, wait for its end, or move it; who moves it earlier
 * leaves it in the slot of a lane, if it is in one; takes it out of the wheel's, if he can, and
 * puts it into one of two slots of a lane, or into the spill. The worker takes it in from there, or
 * leaves it there for a while; moves it from slot to slot of its wheel, and into the front of the
 * agenda; runs it, itself or on two threads of an executor, once or periodically; its task may
 * re-arm it. Now and then it shows what it has to a visitor. Then the worker's thread acts as stop.
 *
 * It must end exactly once and be freed exactly once, after everybody's last access (`life` is read
 * at each, written by free, and relacy knows a race when it sees one); its link is used for one
 * queue at a time; no run starts after a cancel has returned, none is on after a cancel_sync; a
 * tour finds what is pending; who puts it into a lane has told that lane what came meanwhile; and
 * after stop has returned nobody touches the timer (`lanes`, in the same way).
 */
#include "ends.h"

struct ends : rl::test_suite<ends, WORKER + 1>, model_timeout {
    enum { LANE_SLOTS = 2, WHEEL_SLOTS = 2, OUT_SLOT = LANE_SLOTS + WHEEL_SLOTS, SLOTS };
    /* a lane's slots count how often they were emptied, but of what the worker had met */
    enum { EMPTY, OURS, OTHER, MARKED, OURS_MET, EMPTIED = 8 };
    enum { NO_SLOT = 0, NOBODY = HANDLES, NEVER = 1000 };
    enum { HALF_BITS = 8 }; /* of `guests` */

    /* the timer */
    rl::var<int> lanes;
    rl::atomic<unsigned> slot[SLOTS]; /* of a lane, of the wheel, of those with the executor */
    rl::atomic<unsigned> spill, notices, guests, half, phase, still, jobs, over;
    /* the timeout's */
    rl::atomic<unsigned> where; /* the slot and 1, or NO_SLOT */
    rl::var<int> at; /* enum place */
    bool spilled, executor;
    /* the worker's own */
    held has;
    bool reclaiming, reclaimed, other;
    int adrift;
    unsigned now, awaited;
    /* the books */
    bool has_handle[HANDLES];
    bool no_more_runs;
    unsigned refilled;                    /* a lane's slot that holds another one; SLOTS: none */
    unsigned hand;                        /* who took it out to put it again; NOBODY */
    unsigned told[HANDLES], owed[HANDLES]; /* to the lane that he put it into */

    void before()
    {
        unsigned handles = 0, in = rl::rand(2) ? 0 : LANE_SLOTS; /* a lane's slot, or the wheel's */

        model_setup setup(WORKER + 1, 40);
        spilled = rl::rand(5) == 0;
        executor = rl::rand(2);
        for (bool &with : has_handle)
            handles += with = rl::rand(4) != 0;
        prepare(handles);
        lanes($) = 1;
        for (auto &s : slot)
            store_relaxed(s, (unsigned)EMPTY);
        if (!spilled)
            store_relaxed(slot[in], (unsigned)OURS);
        store_relaxed(where, spilled ? (unsigned)NO_SLOT : in + 1);
        store_relaxed(spill, spilled ? 1u : 0u);
        for (auto *a : {&notices, &guests, &half, &phase, &still, &jobs, &over})
            store_relaxed(*a, 0u);
        at($) = spilled || in == 0 ? UNMET : BUCKET;
        has = NOWHERE;
        reclaiming = reclaimed = no_more_runs = other = false;
        refilled = SLOTS;
        hand = NOBODY;
        adrift = 0;
        now = awaited = 0;
        for (unsigned i = 0; i < HANDLES; i++)
            told[i] = owed[i] = NEVER;
    }

    void after()
    {
        RL_ASSERT(ended == 1);
        RL_ASSERT(freed == 1);
        RL_ASSERT(running == 0);
        RL_ASSERT(linked($) == 0);
        RL_ASSERT(refilled == SLOTS || slot[refilled]($) % EMPTIED == OTHER);
        for (unsigned i = LANE_SLOTS; i < SLOTS; i++)
            RL_ASSERT(slot[i]($) == (i == LANE_SLOTS && other ? OTHER : EMPTY));
        for (unsigned i = 0; i < HANDLES; i++)
            RL_ASSERT(told[i] <= owed[i]);
    }

    void touch_lanes() { RL_ASSERT(lanes($) == 1); }

    /* Whoever has read `half` may be preempted before he signs in there. */
    unsigned sign_in()
    {
        unsigned guest = 1u << HALF_BITS * (rl::rand(3) ? load_relaxed(half) : rl::rand(2));

        add_seq(guests, guest);
        return guest;
    }

    void sign_out(unsigned guest) { sub_acq_rel(guests, guest); }

    /* ---- lane.c ---- */

    static unsigned emptied(unsigned index, unsigned seen)
    {
        if (index >= LANE_SLOTS)
            return EMPTY;
        return seen / EMPTIED * EMPTIED + (seen % EMPTIED == OURS_MET ? 0u : (unsigned)EMPTIED);
    }

    static bool is_ours(unsigned seen)
    {
        return seen % EMPTIED == OURS || seen % EMPTIED == OURS_MET;
    }

    /* By a canceller who has won, from slot 0 on; by a mover who has nudged it, from the wheel. */
    unsigned withdraw(unsigned first)
    {
        unsigned index, seen;

        touch();
        index = load_seq(where);
        if (index <= first)
            return SLOTS;
        touch_lanes();
        seen = load_seq(slot[--index]);
        if (!is_ours(seen) && (mutant != WITHDRAWN_BY_PLACE || seen % EMPTIED == EMPTY))
            return SLOTS;
        if (index < LANE_SLOTS && seen % EMPTIED != OURS_MET)
            empty_own_slot(index, seen);
        else if (!cas_acq_rel(slot[index], seen, emptied(index, seen)))
            return SLOTS;
        if (is_ours(seen))
            fill_again(index, emptied(index, seen));
        return index;
    }

    /* Nobody else does, whose word says that it is cancelled (C20). */
    void empty_own_slot(unsigned index, unsigned seen)
    {
        model_dawdle(10, $);
        touch();
        touch_lanes();
        store_release(slot[index], emptied(index, seen));
    }

    /* By another producer. */
    void fill_again(unsigned index, unsigned empty)
    {
        if (index >= LANE_SLOTS || refilled < SLOTS || reclaiming || rl::rand(4))
            return;
        refilled = index;
        if (!cas_acq_rel(slot[index], empty, empty + OTHER))
            refilled = SLOTS;
    }

    /* `asks`: a canceller may be about to empty it, too. */
    bool take_lane_slot(unsigned index, bool asks)
    {
        unsigned seen = load_seq(slot[index]), mark = seen / EMPTIED * EMPTIED + MARKED;

        if (!is_ours(seen))
            return false;
        if (seen % EMPTIED == OURS_MET) {
            if (!cas_seq(slot[index], seen, emptied(index, seen)))
                return false;
        } else {
            if (!cas_seq(slot[index], seen, mark) || (asks && !keeps_mark(index, mark, seen)))
                return false;
            store_release(slot[index], emptied(index, seen));
        }
        fill_again(index, emptied(index, seen));
        return true;
    }

    bool keeps_mark(unsigned index, unsigned mark, unsigned seen)
    {
        unsigned now = mark;

        if (mutant != MARK_NOT_QUESTIONED && word_code(load_seq(word)) == CANCELLED) {
            if (cas_seq(slot[index], now, seen))
                model_corner(LEFT_TO_CANCELLER);
            return false;
        }
        return load_seq(slot[index]) == mark;
    }

    bool lane_take_back()
    {
        unsigned index;

        touch();
        index = load_seq(where);
        if (index == NO_SLOT || index > LANE_SLOTS)
            return false;
        return mutant == PLACE_BY_ORIGIN || take_lane_slot(index - 1, mutant == NOTICE_QUESTIONED);
    }

    bool try_slot(unsigned index)
    {
        unsigned empty = load_relaxed(slot[index]);

        if (empty % EMPTIED != EMPTY)
            return false;
        store_relaxed(where, index + 1);
        return cas_seq(slot[index], empty, empty + OURS_MET);
    }

    void push_spill()
    {
        unsigned none = 0;

        store_relaxed(where, (unsigned)NO_SLOT);
        hand = NOBODY; /* whoever looks for it there looks at once */
        model_corner(PUT_AGAIN_TO_SPILL);
        rl::atomic_thread_fence(RELEASE);
        RL_ASSERT(cas_relaxed(spill, none, 1u));
        rl::atomic_thread_fence(SEQ);
    }

    /* What the lane is told. */
    unsigned submit_again(unsigned deadline)
    {
        unsigned first = rl::rand(LANE_SLOTS), seen;

        touch();
        if (rl::rand(8) == 0 || (!try_slot(first) && !try_slot(1 - first)))
            push_spill();
        if (mutant == NOT_READ_AGAIN)
            return deadline;
        seen = mutant == READ_AGAIN_BY_LOAD ? load_seq(word) : add_acq_rel(word, 0u);
        if (word_code(seen) == CANCELLED)
            return 0;
        return word_deadline(seen) < deadline ? word_deadline(seen) : deadline;
    }

    void lane_notify()
    {
        unsigned none = 0;

        touch();
        touch_lanes();
        RL_ASSERT(linked($) == 0);
        linked($) = 1;
        rl::atomic_thread_fence(RELEASE);
        RL_ASSERT(cas_relaxed(notices, none, 1u));
        rl::atomic_thread_fence(SEQ);
    }

    /* ---- handle.c ---- */

    /* Counted before: who has emptied the slot touches nothing of the timer any more. */
    void cancel_pending()
    {
        unsigned from;

        touch_lanes();
        from = withdraw(0);
        if (from == SLOTS) {
            lane_notify();
            return;
        }
        if (mutant == TIMER_TOUCHED_AFTER)
            touch_lanes();
        if (mutant == WITHDRAWN_DROPPED_TOO)
            drop_and_free();
        store_release(withdrawn, 1u);
        model_corner(from < LANE_SLOTS ? CANCEL_WITHDREW
                     : from < OUT_SLOT ? CANCEL_EMPTIED_WHEEL
                                       : CANCEL_EMPTIED_DISPATCHED);
    }

    bool cancel_as_guest()
    {
        unsigned from, guest = mutant == NOT_A_GUEST ? 0 : sign_in();

        from = cancel_any();
        if (from == PENDING || from == DISPATCHED) {
            cancel_pending();
        } else if (from != CANCELLED) {
            (void)load_relaxed(jobs); /* a step, before it counts in the lane */
            touch_lanes();
            if (mutant == NOTICE_FOR_NUDGED && from == NUDGED)
                lane_notify();
        }
        if (mutant != NOT_A_GUEST)
            sign_out(guest);
        return from != CANCELLED;
    }

    void cancel()
    {
        if (change_from(PENDING, PENDING, CANCELLED)) {
            end();
            cancel_pending();
        } else if (word_code(load_acquire(word)) < EXPIRED) {
            cancel_as_guest();
        }
    }

    bool may_put_again()
    {
        if (mutant != STOP_IGNORED && load_seq(phase)) {
            model_corner(NOT_TAKEN_FOR_STOP);
            return false;
        }
        if (mutant != TOUR_IGNORED && load_seq(still)) {
            model_corner(NOT_TAKEN_FOR_TOUR);
            return false;
        }
        return true;
    }

    /* Nudged, by this caller. */
    bool put_again()
    {
        unsigned self = rl::thread_index(), seen, deadline;

        if (!may_put_again() || withdraw(LANE_SLOTS) == SLOTS)
            return false;
        RL_ASSERT(told[self] <= owed[self]); /* the last time */
        hand = self;
        told[self] = owed[self] = NEVER;
        if (mutant != HAND_LEFT_UNMARKED)
            at($) = UNMET;
        seen = load_acquire(word);
        do {
            deadline = word_deadline(seen);
            if (word_code(seen) != NUDGED) {
                model_corner(CANCELLED_IN_HAND);
                if (mutant == HAND_PUT_AGAIN)
                    break;
                store_release(withdrawn, 1u);
                return true;
            }
            touch_lanes(); /* told to `moved` */
        } while (!change(seen, deadline, PENDING));
        model_corner(PUT_AGAIN_FROM_WHEEL);
        model_dawdle(20, $);
        told[self] = submit_again(deadline);
        return true;
    }

    void nudge()
    {
        lane_notify();
        touch();
        (void)load_seq(word);
    }

    /* The worker has met it. */
    void move_met(unsigned deadline)
    {
        unsigned seen = load_acquire(word);

        for (;;) {
            unsigned from = word_code(seen);
            bool earlier = deadline < word_deadline(seen);
            if (from != PENDING && from != NUDGED)
                return;
            touch();
            if (!cas_seq(word, seen, word_make(deadline, earlier ? (unsigned)NUDGED : from)))
                continue;
            if (earlier && (from == PENDING || mutant == NUDGED_TWICE)) {
                if (!put_again())
                    nudge();
            } else if (!earlier) {
                owe_less(deadline);
            }
            if (from == NUDGED) {
                (void)load_relaxed(jobs); /* a step, before the comparison */
                model_corner(MOVED_WHILE_NUDGED);
            }
            if (earlier || from == NUDGED)
                touch_lanes(); /* the timer is still there */
            return;
        }
    }

    /* A lane's slot; NO_SLOT: it is in none, as it stands. */
    unsigned lane_slot_of()
    {
        unsigned index = load_seq(where);
        return index <= LANE_SLOTS ? index : (unsigned)NO_SLOT;
    }

    bool lane_holds()
    {
        unsigned index = lane_slot_of();

        if (index == NO_SLOT)
            return false;
        touch_lanes();
        return is_ours(load_seq(slot[index - 1]));
    }

    /* Told to its segment and its lane. */
    bool lane_move()
    {
        unsigned index = lane_slot_of(), seen;

        if (index == NO_SLOT)
            return false;
        touch_lanes();
        seen = load_relaxed(slot[index - 1]);
        if (!is_ours(seen) || !cas_seq(slot[index - 1], seen, seen))
            return false;
        (void)load_relaxed(jobs); /* a step */
        touch_lanes();
        model_corner(MOVED_IN_SLOT);
        return true;
    }

    bool timeout_nudge()
    {
        unsigned seen = load_acquire(word);

        model_corner(LEFT_SLOT);
        while (word_code(seen) == PENDING || mutant == LEFT_NUDGED_BLINDLY) {
            touch();
            if (cas_seq(word, seen, word_make(word_deadline(seen), NUDGED)))
                return true;
        }
        model_corner(LEFT_AND_ENDED);
        return mutant == LEFT_NUDGED_TWICE && word_code(seen) == NUDGED;
    }

    void move_unmet(unsigned deadline)
    {
        unsigned seen;

        touch_lanes(); /* told to `moved` */
        seen = load_acquire(word);
        do {
            if (word_code(seen) > NUDGED)
                return;
            touch();
        } while (!cas_seq(word, seen, word_make(deadline, word_code(seen))));
        if (deadline >= word_deadline(seen))
            owe_less(deadline);
        model_dawdle(20, $);
        if (word_code(seen) == PENDING && !lane_move() && timeout_nudge()) {
            if (put_again())
                model_corner(LEFT_AND_PUT_AGAIN);
            else
                nudge();
        }
        (void)load_relaxed(jobs); /* a step, before the comparison */
        touch_lanes();            /* the timer is still there */
    }

    /* A guest may look at a lane's slot when he has found it pending: stop, which ends it first,
       waits for him. */
    bool is_pending()
    {
        return mutant == WORD_NOT_LOOKED_AT || word_code(load_seq(word)) <= NUDGED;
    }

    /* The comparison with the wake-up, and the descriptor, come last. */
    void move_as_guest(unsigned deadline)
    {
        bool pending = mutant == WORD_LOOKED_AT_FIRST && is_pending();
        unsigned guest = mutant == MOVER_NOT_A_GUEST ? 0 : sign_in();

        if (mutant == WORD_LOOKED_AT_FIRST ? !pending : !is_pending())
            model_corner(ENDED_BEFORE_GUEST);
        else if (lane_holds())
            move_unmet(deadline);
        else
            move_met(deadline);
        if (guest)
            sign_out(guest);
    }

    void move(unsigned deadline)
    {
        unsigned seen = load_acquire(word);

        while (word_code(seen) <= NUDGED) {
            if (deadline < word_deadline(seen) || word_code(seen) == NUDGED) {
                move_as_guest(deadline);
                return;
            }
            touch();
            if (cas_acq_rel(word, seen, word_make(deadline, PENDING))) {
                owe_less(deadline);
                return;
            }
        }
    }

    void use_handle()
    {
        for (unsigned i = 1 + rl::rand(2); i > 0; i--) {
            touch();
            switch (rl::rand(5)) {
            case 0:
                cancel();
                no_more_runs = true;
                break;
            case 1:
                cancel();
                await_run();
                RL_ASSERT(!running);
                no_more_runs = true;
                break;
            default:
                move(1 + rl::rand(25));
            }
        }
        drop_and_free();
    }

    /* ---- run.c ---- */

    void task()
    {
        unsigned seen;

        if (rl::rand(2))
            return;
        for (unsigned steps = rl::rand(20); steps > 0; steps--)
            rl::yield(1, $);
        for (seen = load_acquire(word); word_code(seen) == RUNNING || word_code(seen) == REARMED;) {
            if (change(seen, now + 3, REARMED))
                return;
        }
    }

    unsigned finish(unsigned again)
    {
        unsigned seen = load_acquire(word);

        for (;;) {
            unsigned code = word_code(seen), to = EXPIRED;
            if (code == CANCELLED)
                return CANCELLED;
            if (code == REARMED || (code == RUNNING && periodic))
                to = again;
            if (!change(seen, word_deadline(seen) + (code == RUNNING ? (unsigned)PERIOD : 0), to))
                continue;
            if (to == EXPIRED)
                end();
            model_corner(to == EXPIRED ? RAN_EXPIRED : code == REARMED ? RAN_REARMED : RAN_AGAIN);
            return to;
        }
    }

    void started()
    {
        RL_ASSERT(!running && !no_more_runs);
        running = 1;
    }

    void run_here()
    {
        unsigned result;

        touch();
        task();
        running = 0;
        result = finish(PENDING);
        run_over();
        if (result == PENDING)
            file();
        else
            drop_and_free();
    }

    void report()
    {
        bool again = word_code(load_acquire(word)) == NUDGED;
        unsigned guest = again && mutant != REPORTER_NOT_A_GUEST ? sign_in() : 0;

        lane_notify();
        if (again) {
            (void)load_seq(word);
            touch_lanes(); /* the timer is still there */
        }
        if (guest)
            sign_out(guest);
    }

    void run_job()
    {
        touch();
        store_relaxed(run, (unsigned)RUN_ON);
        if (change_from(DISPATCHED, DISPATCHED, RUNNING)) {
            started();
            task();
            if (reclaiming)
                model_corner(JOB_RAN_INTO_STOP);
            running = 0;
            finish(NUDGED);
            run_over();
            report();
            if (mutant != JOB_WITHOUT_SHARE)
                touch();
        } else {
            model_corner(JOB_CAME_TOO_LATE);
            run_over();
        }
        if (mutant != JOB_WITHOUT_SHARE)
            drop_and_free();
    }

    void execute()
    {
        while (!load_acquire(over) || load_acquire(jobs)) {
            unsigned queued = load_acquire(jobs);
            if (queued && cas_acq_rel(jobs, queued, queued - 1))
                run_job();
            else
                rl::yield(1, $);
        }
    }

    /* The job's share is given up last: whoever cancelled it may have taken it out of its slot. */
    void refuse()
    {
        bool shares = mutant != JOB_WITHOUT_SHARE && mutant != REFUSED_SHARE_FIRST;

        if (mutant == REFUSED_SHARE_FIRST) {
            sub_acq_rel(refs, 1u);
            model_dawdle(60, $);
        }
        if (cancel_any() == CANCELLED) {
            model_corner(REFUSED_TOO_LATE);
        } else {
            model_corner(REFUSED);
            RL_ASSERT(take_wheel_slot(OUT_SLOT));
            drop_and_free();
        }
        if (shares)
            drop_and_free();
    }

    /* In a slot it may be cancelled, and be over: only the job's share keeps it. */
    void dispatch()
    {
        if (mutant != JOB_WITHOUT_SHARE)
            add_relaxed(refs, 1u);
        fill_wheel_slot(OUT_SLOT);
        if (rl::rand(5) != 0)
            (void)jobs.fetch_add(1u, RELEASE);
        else
            refuse();
    }

    void run_due()
    {
        unsigned seen;

        touch();
        if (!executor && mutant != RUN_SHOWN_AFTER_CLAIM)
            store_relaxed(run, (unsigned)RUN_ON);
        for (seen = load_acquire(word);
             word_code(seen) == PENDING || (mutant == NUDGED_FIRES && word_code(seen) == NUDGED);) {
            if (word_deadline(seen) > now) {
                if (!executor)
                    run_over();
                file();
                return;
            }
            if (!change(seen, word_deadline(seen), executor ? DISPATCHED : RUNNING))
                continue;
            if (executor) {
                dispatch();
                return;
            }
            started();
            if (mutant == RUN_SHOWN_AFTER_CLAIM)
                store_relaxed(run, (unsigned)RUN_ON);
            run_here();
            return;
        }
        if (!executor)
            run_over();
        leave_adrift();
    }

    /* ---- the worker's slots ---- */

    /* Nobody else fills it; what is in it is not the worker's any more. */
    void fill_wheel_slot(unsigned index)
    {
        touch();
        RL_ASSERT(see_wheel_slot(index) == EMPTY);
        if (mutant != WHERE_SET_LATE)
            store_relaxed(where, index + 1);
        at($) = BUCKET;
        has = NOWHERE;
        if (mutant == WHEEL_FILLED_RELAXED)
            store_relaxed(slot[index], (unsigned)OURS);
        else
            store_release(slot[index], (unsigned)OURS);
        if (mutant == WHERE_SET_LATE) {
            touch();
            store_relaxed(where, index + 1);
        }
    }

    /* Acquire: who emptied it is done with the timer. */
    unsigned see_wheel_slot(unsigned index)
    {
        return (mutant == EMPTY_SEEN_RELAXED && reclaiming) || mutant == REFILLED_UNSEEN
                   ? load_relaxed(slot[index])
                   : load_acquire(slot[index]);
    }

    bool take_wheel_slot(unsigned index)
    {
        unsigned seen = see_wheel_slot(index);

        if (seen != OURS)
            return false;
        if (mutant == UNTAKEN_TOUCHED)
            touch();
        if (mutant == WHEEL_TAKEN_BY_STORE)
            store_release(slot[index], (unsigned)EMPTY);
        else if (!cas_acq_rel(slot[index], seen, (unsigned)EMPTY))
            return false;
        return true;
    }

    unsigned empty_wheel_slot()
    {
        unsigned index = LANE_SLOTS + rl::rand(WHEEL_SLOTS);
        return index == LANE_SLOTS && other ? index + 1 : index;
    }

    /* Another timeout's, from now on. */
    void fill_with_other()
    {
        if (other || rl::rand(8) || see_wheel_slot(LANE_SLOTS) != EMPTY)
            return;
        other = true;
        store_release(slot[LANE_SLOTS], (unsigned)OTHER);
    }

    /* Into another slot, or because it is due into the front, which has no slots. */
    void cascade()
    {
        for (unsigned i = LANE_SLOTS; i < OUT_SLOT; i++) {
            if (!rl::rand(2) || !take_wheel_slot(i))
                continue;
            touch();
            if (word_deadline(load_relaxed(word)) > now || rl::rand(3) == 0) {
                model_corner(CASCADED);
                fill_wheel_slot(empty_wheel_slot());
            } else {
                at($) = AGENDA;
                has = FRONT;
            }
            return;
        }
    }

    /* ---- filing.c, intake.c ---- */

    void leave_adrift()
    {
        touch();
        store_relaxed(where, (unsigned)NO_SLOT);
        at($) = ADRIFT;
        has = NOWHERE;
        adrift++;
    }

    void file()
    {
        touch();
        if (reclaiming)
            reclaim();
        else if (rl::rand(3)) {
            fill_wheel_slot(empty_wheel_slot());
        } else { /* due, but this pass had begun */
            store_relaxed(where, (unsigned)NO_SLOT);
            at($) = LATER;
            has = ASIDE;
        }
    }

    void reclaim()
    {
        if (!change_from(PENDING, DISPATCHED, CANCELLED)) {
            leave_adrift();
            return;
        }
        end();
        has = NOWHERE;
        RL_ASSERT(linked($) == 0);
        linked($) = 1;
        reclaimed = true;
    }

    void meet()
    {
        touch();
        hand = NOBODY;
        if (at($) == NOTICED) {
            model_corner(NOTICE_BEFORE_SPILL);
            drop_and_free();
        } else if (word_code(load_acquire(word)) == PENDING) {
            file();
        } else if (mutant == BURIED_WHEN_MET && word_code(load_acquire(word)) == CANCELLED) {
            drop_and_free();
        } else {
            leave_adrift();
        }
    }

    bool take_nudge()
    {
        return change_from(NUDGED, NUDGED, PENDING);
    }

    /* Who has it in his hand tells the lane, though he cannot know that the worker relies on it. */
    void owe(unsigned deadline)
    {
        if (hand == NOBODY)
            return;
        model_corner(deadline ? NUDGED_IN_HAND : NOTICED_IN_HAND);
        if (deadline < owed[hand])
            owed[hand] = deadline;
    }

    /* It was moved later: what is owed was for an earlier one. */
    void owe_less(unsigned deadline)
    {
        if (hand != NOBODY && owed[hand] < deadline && owed[hand] > 0)
            owed[hand] = deadline;
    }

    /*
     * In the spill, or in a mover's hand, who may have put it down before the nudge was taken in,
     * and read the word before: so the slot is looked at again. The worker holds a reference.
     */
    void receive_elsewhere(bool again)
    {
        if (mutant != LOOKED_WITHOUT_SHARE)
            add_relaxed(refs, 1u);
        again = again || take_nudge();
        if (mutant != NOT_LOOKED_AGAIN && lane_take_back()) {
            model_corner(FOUND_AGAIN);
            hand = NOBODY;
            if (again)
                file();
            else
                drop_and_free();
        } else if (again) {
            model_corner(NUDGE_FROM_SPILL);
            owe(word_deadline(load_relaxed(word)));
        } else if (mutant == NOTICE_BURIES_UNMET) {
            drop_and_free();
        } else {
            at($) = NOTICED;
            owe(0);
        }
        if (mutant != LOOKED_WITHOUT_SHARE)
            drop_and_free();
    }

    void receive_later()
    {
        if (take_nudge()) {
            model_corner(NUDGED_LATER);
            return; /* its turn comes */
        }
        model_corner(NOTICED_LATER);
        at($) = NOTICED;
    }

    void receive_in_agenda()
    {
        if (take_nudge()) {
            model_corner(NUDGED_IN_AGENDA);
            file();
        } else if (rl::rand(2)) {
            model_corner(NOTICED_IN_AGENDA);
            at($) = NOTICED;
        } else {
            has = NOWHERE;
            drop_and_free();
        }
    }

    void receive()
    {
        unsigned in = NO_SLOT;
        bool again = false;
        int found;

        touch();
        found = at($);
        if ((mutant == NUDGE_TAKEN_FIRST && found == UNMET) ||
            (mutant == WHEEL_NUDGE_FIRST && found == BUCKET))
            again = take_nudge();
        if (found == UNMET && !lane_take_back()) {
            receive_elsewhere(again);
        } else if (found == LATER) {
            receive_later();
        } else if (found == AGENDA) {
            receive_in_agenda();
        } else {
            hand = NOBODY;
            if (found == BUCKET)
                in = load_relaxed(where);
            if (found == BUCKET)
                RL_ASSERT(in != NO_SLOT && take_wheel_slot(in - 1));
            else if (found == ADRIFT)
                RL_ASSERT(--adrift >= 0);
            has = NOWHERE;
            if (!again && !take_nudge()) {
                model_corner(NUDGE_OF_CANCELLED);
                drop_and_free();
                return;
            }
            if (found != BUCKET)
                model_corner(found == UNMET ? NUDGE_FROM_SLOT : NUDGE_WHILE_ADRIFT);
            file();
        }
    }

    /* A pass begins, or stop: what waited for it. */
    void file_later_ones()
    {
        bool over;

        if (has != ASIDE)
            return;
        over = at($) == NOTICED && mutant != NOTICED_LOST;
        if (over)
            bury_held();
        else if (reclaiming)
            file();
        else
            fill_wheel_slot(empty_wheel_slot());
    }

    void bury_held()
    {
        has = NOWHERE;
        drop_and_free();
    }

    void collect_notices()
    {
        if (load_relaxed(notices)) {
            exchange_relaxed(notices, 0u);
            rl::atomic_thread_fence(ACQUIRE);
            linked($) = 0;
            receive();
        }
    }

    void collect(bool all)
    {
        collect_notices();
        for (unsigned i = 0; i < LANE_SLOTS; i++) {
            if (all || rl::rand(2))
                sweep_slot(i, all);
        }
        if ((all || rl::rand(2)) && load_relaxed(spill)) {
            exchange_relaxed(spill, 0u);
            rl::atomic_thread_fence(ACQUIRE);
            meet();
        }
    }

    void sweep_slot(unsigned index, bool all)
    {
        if (!all && rl::rand(3) == 0) { /* not due soon: its word is read, and no more */
            model_corner(LEFT_AT_SWEEP);
            (void)load_relaxed(word);
        } else if (take_lane_slot(index, true)) {
            meet();
        }
    }

    void run_front()
    {
        if (at($) == NOTICED) {
            bury_held();
            return;
        }
        at($) = ADRIFT;
        has = HAND;
        if (rl::rand(4) != 0) { /* otherwise stop was asked for, and the hand is put down */
            has = NOWHERE;
            run_due();
        } else if (mutant != HAND_LEFT) {
            at($) = AGENDA;
            has = FRONT;
        }
    }

    void pass()
    {
        collect(false);
        file_later_ones();
        if (rl::rand(4) == 0)
            pass_turnstile(true);
        fill_with_other();
        if (has == NOWHERE)
            cascade();
        if (has == FRONT && rl::rand(2))
            run_front();
        if (has != HAND && (load_relaxed(still) ? rl::rand(2) : rl::rand(6) == 0))
            tour();
    }

    /* ---- stop.c and visit.c ---- */

    /* Whoever may have it in his hand was there before the slots were looked at, or is still. */
    bool reclaim_slots()
    {
        bool before = mutant != GUESTS_READ_AFTER && load_seq(guests) > 0;

        collect(true);
        reclaim_all();
        if (mutant != CANCELLED_NOT_AWAITED && segment_holds_any())
            return false;
        return mutant == SLOTS_GONE_ROUND_ONCE ||
               (!before && (mutant == GUESTS_READ_BEFORE || load_seq(guests) == 0));
    }

    /* Its notice is owed, or somebody touches the timer when he has queued that. */
    bool somebody_is_left()
    {
        if (adrift > 0 && mutant != STOP_LEAVES_ADRIFT)
            return true;
        return mutant != GUESTS_READ_BEFORE && mutant != GUESTS_READ_WITH_SLOTS &&
               load_seq(guests) > 0;
    }

    /* A canceller is about to empty its slot. */
    bool segment_holds_any()
    {
        for (unsigned i = 0; i < LANE_SLOTS; i++) {
            if (is_ours(load_acquire(slot[i]))) {
                model_corner(WAITED_FOR_CANCELLER);
                return true;
            }
        }
        return false;
    }

    void reclaim_all()
    {
        file_later_ones();
        if (has != NOWHERE && at($) == NOTICED)
            bury_held();
        else if (has != NOWHERE)
            file();
        for (unsigned i = LANE_SLOTS; i < SLOTS; i++) {
            if (!take_wheel_slot(i))
                continue;
            if (i == OUT_SLOT)
                model_corner(RECLAIMED_DISPATCHED);
            file();
        }
    }

    /* Out of its slot while it is shown. */
    bool show(unsigned index)
    {
        if (mutant == SHOWN_IN_SLOT ? see_wheel_slot(index) != OURS : !take_wheel_slot(index))
            return false;
        model_corner(SHOWN);
        touch();
        (void)load_acquire(word);
        touch();
        if (mutant != SHOWN_IN_SLOT)
            fill_wheel_slot(index);
        return true;
    }

    bool movers_have_left()
    {
        unsigned seen = load_seq(guests), here = load_relaxed(half);

        if (seen && mutant == LATER_HALF_NOT_AWAITED)
            awaited &= ~(1u << !here);
        for (unsigned i = 0; i < 2; i++) {
            if ((seen >> HALF_BITS * i) % (1u << HALF_BITS) == 0)
                awaited &= ~(1u << i);
        }
        if (awaited == 1u << here) {
            store_relaxed(half, !here);
            if (mutant == TURNED_IS_SETTLED)
                awaited = 0;
        }
        if (awaited && seen >> HALF_BITS && seen % (1u << HALF_BITS))
            model_corner(GUESTS_IN_BOTH);
        return awaited == 0;
    }

    /* False: the tour is put off; passes come in between. */
    bool settle()
    {
        if (!load_relaxed(still)) {
            store_seq(still, 1u);
            awaited = 3;
        }
        if (mutant == GUESTS_READ_AFTER)
            collect(true);
        if (!movers_have_left()) {
            model_corner(TOUR_PUT_OFF);
            return false;
        }
        if (mutant != GUESTS_READ_AFTER)
            collect(true);
        return adrift == 0;
    }

    void tour()
    {
        bool found;

        if (!settle())
            return;
        found = has != NOWHERE;
        for (unsigned i = LANE_SLOTS; i < SLOTS; i++)
            found = show(i) || found;
        RL_ASSERT(found || word_code(load_acquire(word)) >= EXPIRED);
        store_release(still, 0u);
    }

    void stop()
    {
        store_seq(phase, 1u);
        reclaiming = true;
        while (!reclaim_slots())
            rl::yield(1, $);
        while (somebody_is_left()) {
            rl::yield(1, $);
            collect_notices();
        }
        lanes($) = 2;
        if (reclaimed) {
            linked($) = 0;
            drop_and_free(); /* by the caller of stop */
        }
        store_release(over, 1u);
    }

    void thread(unsigned index)
    {
        if (index < HANDLES) {
            if (has_handle[index])
                use_handle();
        } else if (index < WORKER) {
            if (executor)
                execute();
        } else {
            for (unsigned passes = rl::rand(7); passes > 0; passes--, now += 5)
                pass();
            stop();
        }
    }
};

int main()
{
    return model_check<ends>("one end, one free", mutants, 400000, CORNERS) ? 0 : 1;
}
