/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One timeout and everybody who may end it (G2, G8, G9; rules C1, C5 and C6): timeout.c, handle.c,
 * run.c, and what intake.c and filing.c do with it, followed step by step.
 *
 * Up to three threads with a handle cancel it, wait for its end, or move it. The worker takes it in
 * from a slot or from the spill, and runs it, itself or on two threads of an executor, once or
 * periodically; its task may re-arm it. Then the worker's thread acts as stop. It must end exactly
 * once and be freed exactly once, after everybody's last access (`life` is read at each, written by
 * free, and relacy knows a race when it sees one); its link is used for one queue at a time; no run
 * starts after a cancel has returned, none is on after a cancel_sync; and after stop has returned
 * nobody touches the lanes (`lanes`, in the same way).
 */
#include "ends.h"

struct ends : rl::test_suite<ends, WORKER + 1>, model_timeout {
    /* the timer */
    rl::var<int> lanes;
    rl::atomic<unsigned> slot, spill, notices, guests, jobs, over;
    rl::atomic<unsigned> where; /* the timeout's: ORIGIN, or whatever else */
    bool spilled, executor;
    /* the worker's own */
    place at;
    bucket held;
    bool reclaiming, reclaimed;
    int adrift;
    unsigned now;
    /* the books */
    bool has_handle[HANDLES];
    bool no_more_runs, refilled;

    void before()
    {
        unsigned handles = 0;

        model_setup setup(WORKER + 1, 30);
        spilled = rl::rand(3) == 0;
        executor = rl::rand(2);
        for (bool &has : has_handle)
            handles += has = rl::rand(4) != 0;
        prepare(handles);
        lanes($) = 1;
        store_relaxed(slot, spilled ? (unsigned)SLOT_EMPTY : (unsigned)SLOT_OURS);
        store_relaxed(where, spilled ? 0u : (unsigned)ORIGIN);
        store_relaxed(spill, spilled ? 1u : 0u);
        store_relaxed(notices, 0u);
        store_relaxed(guests, 0u);
        store_relaxed(jobs, 0u);
        store_relaxed(over, 0u);
        at = UNMET;
        held = NOWHERE;
        reclaiming = reclaimed = no_more_runs = refilled = false;
        adrift = 0;
        now = 0;
    }

    void after()
    {
        RL_ASSERT(ended == 1);
        RL_ASSERT(freed == 1);
        RL_ASSERT(running == 0);
        RL_ASSERT(linked($) == 0);
        RL_ASSERT(!refilled || slot($) % 4 == SLOT_OTHER);
    }

    void touch_lanes() { RL_ASSERT(lanes($) == 1); }

    /* ---- lane.c ---- */

    /* Emptied, it counts; then it may be filled with another one. */
    enum { SLOT_EMPTY, SLOT_OURS, SLOT_OTHER, SLOT_EMPTIED = 4 };
    enum { ORIGIN = 1, ELSEWHERE = 2 };

    static unsigned slot_emptied(unsigned seen) { return seen / 4 * 4 + SLOT_EMPTIED; }

    bool take_slot(bool worker)
    {
        unsigned seen;

        touch();
        if (load_relaxed(where) != ORIGIN)
            return false;
        if (mutant == PLACE_BY_ORIGIN && worker)
            return true;
        touch_lanes();
        seen = load_relaxed(slot);
        if (seen % 4 != SLOT_OURS && (mutant != WITHDRAWN_BY_PLACE || worker || seen % 4 == 0))
            return false;
        if (!cas_acq_rel(slot, seen, slot_emptied(seen)))
            return false;
        if (seen % 4 == SLOT_OURS)
            fill_again(slot_emptied(seen));
        return true;
    }

    /* By another producer. */
    void fill_again(unsigned emptied)
    {
        if (reclaiming || rl::rand(3))
            return;
        refilled = cas_acq_rel(slot, emptied, emptied + SLOT_OTHER);
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

    void cancel_pending()
    {
        if (take_slot(false)) {
            if (mutant == WITHDRAWN_DROPPED_TOO)
                drop_and_free();
            store_release(withdrawn, 1u);
            model_corner(CANCEL_WITHDREW);
        } else {
            lane_notify();
        }
    }

    bool cancel_as_guest()
    {
        unsigned from;

        if (mutant != NOT_A_GUEST)
            add_seq(guests, 1u);
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
            sub_acq_rel(guests, 1u);
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

    /* As a guest: the comparison with the wake-up, and the descriptor, come last. */
    void move_as_guest(unsigned deadline)
    {
        unsigned seen;
        bool guest = mutant != MOVER_NOT_A_GUEST;

        if (guest)
            add_seq(guests, 1u);
        seen = load_acquire(word);
        for (;;) {
            unsigned from = word_code(seen);
            bool earlier = deadline < word_deadline(seen);
            if (from != PENDING && from != NUDGED)
                break;
            touch();
            if (!cas_seq(word, seen, word_make(deadline, earlier ? (unsigned)NUDGED : from)))
                continue;
            if (earlier && (from == PENDING || mutant == NUDGED_TWICE)) {
                lane_notify();
                touch();
                (void)load_seq(word);
            } else if (from == NUDGED) {
                (void)load_relaxed(jobs); /* a step, before the comparison */
                model_corner(MOVED_WHILE_NUDGED);
            }
            if (earlier || from == NUDGED)
                touch_lanes(); /* the timer is still there */
            break;
        }
        if (guest)
            sub_acq_rel(guests, 1u);
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
            if (cas_acq_rel(word, seen, word_make(deadline, PENDING)))
                return;
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
        bool guest = again && mutant != REPORTER_NOT_A_GUEST;

        if (guest)
            add_seq(guests, 1u);
        lane_notify();
        if (again) {
            (void)load_seq(word);
            touch_lanes(); /* the timer is still there */
        }
        if (guest)
            sub_acq_rel(guests, 1u);
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

    void dispatch()
    {
        if (mutant != JOB_WITHOUT_SHARE)
            add_relaxed(refs, 1u);
        put(BUCKET);
        held = OUT;
        if (rl::rand(5) != 0) {
            (void)jobs.fetch_add(1u, RELEASE);
            return;
        }
        if (mutant != JOB_WITHOUT_SHARE)
            sub_acq_rel(refs, 1u); /* refused */
        if (cancel_any() == CANCELLED) {
            model_corner(REFUSED_TOO_LATE);
            return;
        }
        model_corner(REFUSED);
        put(ADRIFT);
        held = NOWHERE;
        drop_and_free();
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

    /* ---- filing.c, intake.c ---- */

    void put(place to)
    {
        store_relaxed(where, to == ADRIFT ? 0u : (unsigned)ELSEWHERE);
        at = to;
    }

    void leave_adrift()
    {
        touch();
        put(ADRIFT);
        held = NOWHERE;
        adrift++;
    }

    void file()
    {
        touch();
        if (!reclaiming) {
            bool later = rl::rand(3) == 0; /* due, but this pass had begun */
            put(later ? LATER : BUCKET);
            held = later ? ASIDE : WHEEL;
        } else if (change_from(PENDING, DISPATCHED, CANCELLED)) {
            end();
            if (held == OUT)
                model_corner(RECLAIMED_DISPATCHED);
            held = NOWHERE;
            RL_ASSERT(linked($) == 0);
            linked($) = 1;
            reclaimed = true;
        } else {
            leave_adrift();
        }
    }

    void meet()
    {
        touch();
        if (at == NOTICED) {
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

    void receive()
    {
        bool again = mutant == NUDGE_TAKEN_FIRST && at == UNMET && take_nudge();

        touch();
        if (at == UNMET && !take_slot(true)) {
            if (again || take_nudge()) {
                model_corner(NUDGE_FROM_SPILL);
                return;
            }
            if (mutant == NOTICE_BURIES_UNMET)
                drop_and_free();
            else
                at = NOTICED;
            return;
        }
        if (at == LATER) {
            if (take_nudge()) {
                model_corner(NUDGED_LATER);
                return; /* its turn comes */
            }
            model_corner(NOTICED_LATER);
            at = NOTICED;
            return;
        }
        if (at == ADRIFT)
            RL_ASSERT(--adrift >= 0);
        held = NOWHERE;
        if (!again && !take_nudge()) {
            model_corner(NUDGE_OF_CANCELLED);
            drop_and_free();
            return;
        }
        if (at != BUCKET)
            model_corner(at == UNMET ? NUDGE_FROM_SLOT : NUDGE_WHILE_ADRIFT);
        file();
    }

    /* A pass begins, or stop: what waited for it. */
    void file_later_ones()
    {
        bool over = at == NOTICED && mutant != NOTICED_LOST;

        if (held != ASIDE)
            return;
        held = NOWHERE;
        if (over) {
            drop_and_free();
        } else if (reclaiming) {
            file();
        } else {
            put(BUCKET);
            held = WHEEL;
        }
    }

    void collect()
    {
        unsigned seen;

        if (load_relaxed(notices)) {
            exchange_relaxed(notices, 0u);
            rl::atomic_thread_fence(ACQUIRE);
            linked($) = 0;
            receive();
        }
        if (reclaiming || rl::rand(2)) {
            for (seen = load_seq(slot); seen % 4 == SLOT_OURS;) {
                if (cas_seq(slot, seen, slot_emptied(seen))) {
                    fill_again(slot_emptied(seen));
                    meet();
                    break;
                }
            }
        }
        if ((reclaiming || rl::rand(2)) && load_relaxed(spill)) {
            exchange_relaxed(spill, 0u);
            rl::atomic_thread_fence(ACQUIRE);
            meet();
        }
    }

    void pass()
    {
        collect();
        file_later_ones();
        if (rl::rand(4) == 0)
            pass_turnstile(true);
        if (held != WHEEL || word_deadline(load_relaxed(word)) > now)
            return;
        put(ADRIFT);
        held = HAND;
        if (rl::rand(4) != 0) { /* otherwise stop was asked for, and the hand is put down */
            held = NOWHERE;
            run_due();
        } else if (mutant != HAND_LEFT) {
            put(BUCKET);
        }
    }

    /* ---- stop.c: reclaim_all ---- */

    void stop()
    {
        reclaiming = true;
        for (;;) {
            collect();
            file_later_ones();
            if (held != NOWHERE)
                file();
            if ((adrift == 0 || mutant == STOP_LEAVES_ADRIFT) && load_seq(guests) == 0)
                break;
            rl::yield(1, $);
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
            for (unsigned passes = rl::rand(6); passes > 0; passes--, now += 5)
                pass();
            stop();
        }
    }
};

int main()
{
    return model_check<ends>("one end, one free", mutants, 500000, CORNERS) ? 0 : 1;
}
