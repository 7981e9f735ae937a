/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What hwt_timer_next_deadline says (rules C15, C22): estimate, look_ahead and answer_read against
 * take_bound, lane_sweep, lane_restore_earliest, receive and worker_plan; lane_move, put_again, and
 * lane_tell_moved against the nudges that it speaks of; a re-arm on an executor's thread and the
 * end of that run.
 *
 * One thread submits a timeout, or it is in the wheel; two move it earlier when that has returned:
 * in the slot of a lane it stays; out of the wheel's they put it into a lane, or they queue a
 * nudge. A third runs another one on an executor and re-arms it, or moves the first one, mostly
 * later. The worker takes in what comes, leaves in the lanes what is not due soon, files it and
 * plans, over and over; nothing expires. Whoever asks may not be told a later deadline than that of
 * any call that had returned before: beside the worker, or as the worker, who looks ahead, or by
 * the answer that he has left.
 */
#include "model.h"

enum {
    LOWERED_AFTER_TAKING = 1,
    TAKEN_UNSEEN,
    MOVED_NOT_TOLD,
    LATER_NOT_TOLD,
    ASKS_WORKER_FIRST,
    RAISED_BEFORE_FILED,
    RAISED_BESIDE_GUESTS,
    SIGNED_IN_LATE,
    REARMED_FORGOTTEN,
    RAISED_BESIDE_REARMED,
    REARMED_SHOWN_LATE,
    REARMED_SHOWN_UNUSED,
    REARMED_HIDDEN_EARLY,
    RAISED_BESIDE_NOTICES,
    LANES_SEEN_BEFORE_GUESTS,
    RAISED_ABOVE_LANES,
    TOLD_AFTER_PENDING,
    TOLD_AFTER_TAKING,
    PROMISED_NOT_KEPT,
    MOVED_NOT_AHEAD,
    REARMED_NOT_PROMISED,
    NOT_READ_AGAIN,
    LEFT_NOT_TOLD,
    SEGMENT_NOT_TOLD,
    LANE_NOT_TOLD,
    WHEEL_SEEN_LAST,
    REARMED_SEEN_FIRST,
    TOLD_AFTER_MOVED,
    SLOT_LOOKED_AT,
    SLOT_BEFORE_WORD,
    SLOT_LEFT_UNNOTICED,
    MOVE_SEGMENT_NOT_TOLD,
    MOVE_LANE_NOT_TOLD,
    PLANS_WHILE_LOOKING,
    USED_BY_STORE,
    MOVES_NOT_USED,
    ANSWER_KEPT,
    ANSWER_SEEN_ONCE,
    ANSWER_WITHOUT_LANES,
    ANSWER_WITHOUT_NOTICES,
    ADRIFT_NOT_PROMISED,
};

static const model_case mutants[] = {
    {LOWERED_AFTER_TAKING, "bound lowered after it was taken from the lane"},
    {TAKEN_UNSEEN, "bound taken by an exchange, though it may be lower by now"},
    {MOVED_NOT_TOLD, "second mover relies on the first one's telling"},
    {LATER_NOT_TOLD, "whoever moves a nudged one later tells nobody"},
    {ASKS_WORKER_FIRST, "asker reads next_deadline first"},
    {RAISED_BEFORE_FILED, "plan raises the bound before what was taken is filed"},
    {RAISED_BESIDE_GUESTS, "plan raises the bound while a mover has not queued his nudge"},
    {SIGNED_IN_LATE, "mover signs in after he has won the word"},
    {REARMED_FORGOTTEN, "plan leaves out what has been re-armed and runs on"},
    {RAISED_BESIDE_REARMED, "... or raises the bound though there is no place for it"},
    {REARMED_SHOWN_LATE, "re-arm shown after its deadline was told"},
    {REARMED_SHOWN_UNUSED, "re-arm shown in a lane that was never used"},
    {REARMED_HIDDEN_EARLY, "re-arm hidden by whoever has not signed in, or queued its notice"},
    {RAISED_BESIDE_NOTICES, "plan raises the bound while a nudge is queued"},
    {LANES_SEEN_BEFORE_GUESTS, "plan does not look at the lanes again after the guests"},
    {RAISED_ABOVE_LANES, "plan raises the bound above what the lanes say"},
    {TOLD_AFTER_PENDING, "mover tells `moved` when the word is pending again"},
    {TOLD_AFTER_TAKING, "mover tells `moved` when he has taken it out of its slot"},
    {PROMISED_NOT_KEPT, "who looks ahead forgets what was taken from `moved` while somebody moves"},
    {REARMED_NOT_PROMISED, "... or what was re-armed before"},
    {MOVED_NOT_AHEAD, "... or what `moved` says"},
    {NOT_READ_AGAIN, "mover does not read the word again when he has filled the slot"},
    {LEFT_NOT_TOLD, "what is left at a sweep is not told"},
    {SEGMENT_NOT_TOLD, "deadline told to the lane, not to its segment"},
    {LANE_NOT_TOLD, "deadline told to the segment, not to its lane"},
    {WHEEL_SEEN_LAST, "who looks ahead looks at the wheel after the guests"},
    {REARMED_SEEN_FIRST, "who looks ahead looks for re-armed ones before he takes anything in"},
    {TOLD_AFTER_MOVED, "who moves it in its slot tells `moved` when he has changed the word"},
    {SLOT_LOOKED_AT, "... or looks at the slot by a mere load"},
    {SLOT_BEFORE_WORD, "... or changes the slot before the word"},
    {SLOT_LEFT_UNNOTICED, "... or does not nudge it when it has left the slot"},
    {MOVE_SEGMENT_NOT_TOLD, "... or tells the lane, not the segment"},
    {MOVE_LANE_NOT_TOLD, "... or tells the segment, not the lane"},
    {PLANS_WHILE_LOOKING, "plan raises the bound while a segment is being looked through early"},
    {USED_BY_STORE, "two lanes are used for the first time, which is told by a mere store"},
    {MOVES_NOT_USED, "a lane is used for the first time by a nudge, which is not told"},
    {ANSWER_KEPT, "who drives leaves the last answer standing meanwhile"},
    {ANSWER_SEEN_ONCE, "who reads an answer does not look whether it was withdrawn meanwhile"},
    {ANSWER_WITHOUT_LANES, "an answer is read without a look at the lanes"},
    {ANSWER_WITHOUT_NOTICES, "an answer is read without a look at notices and what was moved"},
    {ADRIFT_NOT_PROMISED, "who meets a nudged one forgets its deadline while somebody moves"},
};

/* The runner, or one who moves it later. */
enum { SUBMITTER, MOVER, MOVER_2, RUNNER, WORKER, ASKER, THREADS };
enum { PENDING, NUDGED, RUNNING, REARMED };
enum { LANES = 2, SEGMENTS = 2, BOTH = 2 };
enum { NO_SLOT, LANE_SLOT, WHEEL_SLOT = LANE_SLOT + LANES * SEGMENTS };
enum place { UNMET, WHEEL, ADRIFT };

enum corner {
    SAID_EXACTLY,
    LEFT_ADRIFT,
    KEPT_FOR_PROMISES,
    KEPT_FOR_REARMED,
    FOUND_REARMED,
    LEFT,
    PUT_FROM_WHEEL,
    MOVED_IN_SLOT,
    MOVED_LATER_IN_SLOT,
    SLOT_LEFT,
    NUDGED_IN_HAND,
    FOUND_AGAIN,
    MOVED_LATER,
    LOOKED_AHEAD,
    SAID_BESIDE_GUESTS,
    LOOKED_EARLY,
    ANSWERED,
    FIRST_USED,
    NOT_USED,
    CORNERS,
};

static const unsigned never = 1000, bystander = 20, later = 7;

struct segment {
    rl::atomic<unsigned> earliest, slot; /* odd: it is here; counts */
};

struct next : rl::test_suite<next, THREADS> {
    segment segments[LANES][SEGMENTS];
    rl::atomic<unsigned> earliest[LANES], moved[LANES], notices[LANES]; /* a bit for each timeout */
    rl::atomic<unsigned> used;                                          /* a bit for each lane */
    rl::atomic<unsigned> word[BOTH];                                    /* deadline, code */
    rl::atomic<unsigned> where, wheel; /* of the first one; the wheel's slot for it */
    rl::atomic<unsigned> guests, next_deadline;
    rl::atomic<unsigned> shown[LANES], rearmed; /* a place in each lane; runs that found none */
    rl::atomic<unsigned> turn, answer, witness; /* odd: there is no answer */
    rl::atomic<unsigned> returned[THREADS];
    place at;
    /* the worker's own */
    unsigned filed[BOTH], promised_to;
    bool dispatched;
    /* what happens in this run */
    bool runs, moves_later, still, met; /* `met`: submitted and filed before */

    static unsigned deadline_of(unsigned thread)
    {
        static const unsigned deadline[RUNNER + 1] = {9, 6, 4, 2};
        return deadline[thread];
    }

    static unsigned word_make(unsigned deadline, unsigned code)
    {
        return deadline * 4 + code;
    }
    static unsigned least(unsigned a, unsigned b)
    {
        return a < b ? a : b;
    }

    void before()
    {
        unsigned kind = rl::rand(4);

        model_setup setup(THREADS, 20);
        for (unsigned i = 0; i < LANES; i++) {
            for (segment &s : segments[i]) {
                store_relaxed(s.earliest, never);
                store_relaxed(s.slot, 0u);
            }
            store_relaxed(earliest[i], never);
            store_relaxed(moved[i], never);
            store_relaxed(notices[i], 0u);
            store_relaxed(shown[i], 0u);
        }
        store_relaxed(used, rl::rand(1u << LANES));
        store_relaxed(word[0], word_make(9, PENDING));
        store_relaxed(word[1], word_make(1, RUNNING));
        store_relaxed(where, (unsigned)NO_SLOT);
        store_relaxed(wheel, 0u);
        store_relaxed(guests, 0u);
        store_relaxed(rearmed, 0u);
        store_relaxed(next_deadline, bystander);
        store_relaxed(turn, 1u);
        store_relaxed(answer, 0u);
        store_relaxed(witness, 0u);
        for (unsigned i = 0; i < THREADS; i++)
            store_relaxed(returned[i], 0u);
        at = UNMET;
        filed[0] = filed[1] = promised_to = never;
        dispatched = runs = kind == 0;
        moves_later = kind == 1;
        if ((met = rl::rand(2))) {
            store_relaxed(where, (unsigned)WHEEL_SLOT);
            store_relaxed(wheel, 1u);
            store_relaxed(next_deadline, 9u);
            at = WHEEL;
            filed[0] = 9;
        }
        still = rl::rand(4) == 0; /* a tour is on all the time: nothing is put again */
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

    void use(unsigned lane)
    {
        unsigned seen = load_seq(used);

        if (seen & 1u << lane)
            return;
        model_corner(FIRST_USED);
        if (mutant == USED_BY_STORE)
            store_seq(used, seen | 1u << lane);
        else
            or_seq(used, 1u << lane);
    }

    bool is_used(unsigned lane)
    {
        if (load_seq(used) & 1u << lane)
            return true;
        model_corner(NOT_USED);
        return false;
    }

    void lower_lane(unsigned lane, unsigned deadline)
    {
        if (deadline >= load_seq(earliest[lane]))
            return;
        use(lane);
        lower(earliest[lane], deadline);
    }

    void tell_moved(unsigned lane, unsigned deadline)
    {
        if (mutant != MOVES_NOT_USED)
            use(lane);
        lower(moved[lane], deadline);
    }

    void announce(unsigned lane, segment &s, unsigned deadline)
    {
        if (mutant != SEGMENT_NOT_TOLD)
            lower(s.earliest, deadline);
        if (mutant != LANE_NOT_TOLD)
            lower_lane(lane, deadline);
    }

    segment &fill(unsigned lane)
    {
        unsigned index = rl::rand(SEGMENTS);
        segment &s = segments[lane][index];
        unsigned empty = load_relaxed(s.slot);

        store_relaxed(where, LANE_SLOT + lane * SEGMENTS + index);
        RL_ASSERT(empty % 2 == 0 && cas_seq(s.slot, empty, empty + 1));
        return s;
    }

    void submit()
    {
        announce(0, fill(0), deadline_of(SUBMITTER));
    }

    void submit_again(unsigned lane, unsigned deadline)
    {
        segment &s = fill(lane);

        if (mutant != NOT_READ_AGAIN)
            deadline = least(deadline, add_acq_rel(word[0], 0u) / 4);
        announce(lane, s, deadline);
    }

    void lane_notify(unsigned lane, unsigned timeout)
    {
        unsigned head;

        use(lane);
        head = load_relaxed(notices[lane]);
        rl::atomic_thread_fence(RELEASE);
        while (!cas_relaxed(notices[lane], head, head | 1u << timeout))
            continue;
        rl::atomic_thread_fence(SEQ);
    }

    rl::atomic<unsigned> &lane_slot(unsigned in)
    {
        return segments[(in - LANE_SLOT) / SEGMENTS][(in - LANE_SLOT) % SEGMENTS].slot;
    }

    bool lane_holds()
    {
        unsigned in = load_seq(where);

        model_dawdle(20, $);
        return in >= LANE_SLOT && in < WHEEL_SLOT && load_seq(lane_slot(in)) % 2;
    }

    bool change_slot(unsigned in)
    {
        unsigned held;

        if (mutant == SLOT_LOOKED_AT)
            return load_seq(lane_slot(in)) % 2;
        held = load_relaxed(lane_slot(in));
        return held % 2 && cas_seq(lane_slot(in), held, held);
    }

    bool lane_move(unsigned deadline)
    {
        unsigned in = load_seq(where);

        if (in < LANE_SLOT || in >= WHEEL_SLOT || (mutant != SLOT_BEFORE_WORD && !change_slot(in)))
            return false;
        segment &s = segments[(in - LANE_SLOT) / SEGMENTS][(in - LANE_SLOT) % SEGMENTS];
        if (mutant != MOVE_SEGMENT_NOT_TOLD)
            lower(s.earliest, deadline);
        if (mutant != MOVE_LANE_NOT_TOLD)
            lower_lane((in - LANE_SLOT) / SEGMENTS, deadline);
        return true;
    }

    /* ---- handle.c ---- */

    bool take_out()
    {
        unsigned held;

        if (load_acquire(where) != WHEEL_SLOT)
            return false;
        held = load_relaxed(wheel);
        if (!held || !cas_acq_rel(wheel, held, 0u))
            return false;
        model_corner(PUT_FROM_WHEEL);
        return true;
    }

    bool put_again(unsigned lane)
    {
        unsigned seen;

        if (still)
            return false;
        seen = load_acquire(word[0]);
        if (mutant != TOLD_AFTER_TAKING && mutant != TOLD_AFTER_PENDING)
            tell_moved(lane, seen / 4);
        if (!take_out())
            return false;
        model_dawdle(20, $);
        at = UNMET;
        if (mutant == TOLD_AFTER_TAKING)
            tell_moved(lane, seen / 4);
        while (!cas_acq_rel(word[0], seen, word_make(seen / 4, PENDING))) {
            if (mutant != TOLD_AFTER_PENDING)
                tell_moved(lane, seen / 4);
        }
        model_dawdle(20, $);
        if (mutant == TOLD_AFTER_PENDING)
            tell_moved(lane, seen / 4);
        submit_again(lane, seen / 4);
        return true;
    }

    void nudge(unsigned lane)
    {
        lane_notify(lane, 0);
        tell_moved(lane, load_seq(word[0]) / 4);
    }

    void put_or_nudge(unsigned lane)
    {
        if (!put_again(lane))
            nudge(lane);
    }

    /*
     * One that would move it later than another one has leaves it, so that what is known stays
     * known: unless it is for that (`to_later`). What the word was before; LEFT_ALONE: nothing is
     * left to do.
     */
    enum { LEFT_ALONE = 4 };

    unsigned change(unsigned deadline, bool to_later, bool in_slot)
    {
        unsigned seen = load_acquire(word[0]), to, was;

        do {
            if (deadline >= seen / 4 && !to_later) {
                was = seen % 4 == NUDGED ? (unsigned)NUDGED : (unsigned)LEFT_ALONE;
                break;
            }
            was = seen % 4;
            to = seen % 4 == NUDGED || (deadline < seen / 4 && !in_slot) ? NUDGED : PENDING;
        } while (!cas_seq(word[0], seen, word_make(deadline, to)));
        if (mutant == SIGNED_IN_LATE)
            add_seq(guests, 1u);
        if (was == PENDING && deadline >= seen / 4) {
            model_corner(in_slot ? MOVED_LATER_IN_SLOT : MOVED_LATER);
            return in_slot ? (unsigned)PENDING : (unsigned)LEFT_ALONE;
        }
        return was;
    }

    void move_met(unsigned lane, unsigned deadline, bool to_later)
    {
        unsigned was = change(deadline, to_later, false);

        model_dawdle(40, $);
        if (was == PENDING)
            put_or_nudge(lane);
        else if (was == NUDGED && mutant != (to_later ? LATER_NOT_TOLD : MOVED_NOT_TOLD))
            tell_moved(lane, deadline);
    }

    bool timeout_nudge()
    {
        unsigned seen = load_acquire(word[0]);

        model_corner(SLOT_LEFT);
        while (mutant != SLOT_LEFT_UNNOTICED && seen % 4 == PENDING) {
            if (cas_seq(word[0], seen, word_make(seen / 4, NUDGED)))
                return true;
        }
        return false;
    }

    /* The second telling is for the mail that a pass leaves: here a pass leaves none. */
    void move_unmet(unsigned lane, unsigned deadline, bool to_later)
    {
        unsigned in = load_seq(where), was;

        if (mutant != TOLD_AFTER_MOVED)
            tell_moved(lane, deadline);
        if (mutant == SLOT_BEFORE_WORD &&
            (in < LANE_SLOT || in >= WHEEL_SLOT || !change_slot(in))) {
            move_met(lane, deadline, to_later);
            return;
        }
        was = change(deadline, to_later, true);
        model_dawdle(20, $);
        if (mutant == TOLD_AFTER_MOVED)
            tell_moved(lane, deadline);
        if (was == PENDING) {
            if (lane_move(deadline))
                model_corner(MOVED_IN_SLOT);
            else if (timeout_nudge())
                put_or_nudge(lane);
        } else if (was == NUDGED) {
            tell_moved(lane, deadline);
        }
    }

    void move_as_guest(unsigned lane, unsigned deadline, bool to_later)
    {
        if (mutant != SIGNED_IN_LATE)
            add_seq(guests, 1u);
        if (lane_holds())
            move_unmet(lane, deadline, to_later);
        else
            move_met(lane, deadline, to_later);
        sub_acq_rel(guests, 1u);
    }

    void move(unsigned thread)
    {
        unsigned deadline = deadline_of(thread), seen = load_acquire(word[0]);

        if (deadline < seen / 4 || seen % 4 == NUDGED)
            move_as_guest(thread % LANES, deadline, false);
    }

    /* Whatever it is by now; while it is pending nobody is told. */
    void move_later()
    {
        unsigned seen = load_acquire(word[0]);

        while (seen % 4 == PENDING && later >= seen / 4) {
            if (!cas_acq_rel(word[0], seen, word_make(later, PENDING)))
                continue;
            model_corner(MOVED_LATER);
            return;
        }
        move_as_guest(1, later, true);
    }

    /* ---- run.c, on an executor's thread ---- */

    void show_rearmed(unsigned place)
    {
        unsigned none = 0;

        if (place < LANES) {
            if (mutant != REARMED_SHOWN_UNUSED)
                use(place);
            RL_ASSERT(cas_acq_rel(shown[place], none, 1u));
        } else {
            add_seq(rearmed, 1u);
        }
    }

    void hide_rearmed(unsigned place)
    {
        if (place < LANES)
            store_release(shown[place], 0u);
        else
            sub_acq_rel(rearmed, 1u);
    }

    void rearm(unsigned place)
    {
        unsigned seen = load_acquire(word[1]), deadline = deadline_of(RUNNER);

        if (mutant != REARMED_SHOWN_LATE)
            show_rearmed(place);
        RL_ASSERT(cas_acq_rel(word[1], seen, word_make(deadline, REARMED)));
        tell_moved(rl::rand(LANES), deadline);
        if (mutant == REARMED_SHOWN_LATE)
            show_rearmed(place);
    }

    void report(unsigned place)
    {
        unsigned seen = load_acquire(word[1]), lane = rl::rand(LANES);

        RL_ASSERT(cas_acq_rel(word[1], seen, word_make(seen / 4, NUDGED)));
        if (mutant == REARMED_HIDDEN_EARLY)
            hide_rearmed(place);
        add_seq(guests, 1u);
        if (mutant != REARMED_HIDDEN_EARLY)
            hide_rearmed(place);
        lane_notify(lane, 1);
        tell_moved(lane, load_seq(word[1]) / 4);
        sub_acq_rel(guests, 1u);
    }

    /* ---- filing.c, intake.c ---- */

    void lower_bound(unsigned deadline)
    {
        if (deadline < load_relaxed(next_deadline))
            store_seq(next_deadline, deadline);
    }

    void take_nudge(unsigned timeout)
    {
        unsigned seen = load_acquire(word[timeout]);

        do {
            RL_ASSERT(seen % 4 == NUDGED);
            lower_bound(seen / 4);
            promised_to = least(promised_to, seen / 4);
        } while (!cas_acq_rel(word[timeout], seen, word_make(seen / 4, PENDING)));
    }

    void file(unsigned timeout)
    {
        filed[timeout] = load_relaxed(word[timeout]) / 4;
        lower_bound(filed[timeout]);
        if (timeout == 1)
            return;
        RL_ASSERT(!load_acquire(wheel));
        store_relaxed(where, (unsigned)WHEEL_SLOT);
        at = WHEEL;
        store_release(wheel, 1u);
    }

    void meet()
    {
        unsigned seen = load_acquire(word[0]);

        if (seen % 4 == PENDING) {
            file(0);
        } else {
            if (mutant != ADRIFT_NOT_PROMISED)
                promised_to = least(promised_to, seen / 4);
            store_relaxed(where, (unsigned)NO_SLOT);
            at = ADRIFT;
            model_corner(LEFT_ADRIFT);
        }
    }

    bool take_slot(rl::atomic<unsigned> &slot)
    {
        unsigned held = load_seq(slot);
        return held % 2 && cas_seq(slot, held, held + 1);
    }

    bool lane_take_back()
    {
        unsigned in = load_seq(where);
        return in >= LANE_SLOT && in < WHEEL_SLOT && take_slot(lane_slot(in));
    }

    void receive_rearmed()
    {
        dispatched = false;
        take_nudge(1);
        file(1);
    }

    void receive()
    {
        bool here = at != UNMET || lane_take_back();
        unsigned held = 1;

        if (at == WHEEL)
            RL_ASSERT(cas_acq_rel(wheel, held, 0u));
        take_nudge(0);
        if (!here) {
            model_corner(NUDGED_IN_HAND);
            here = lane_take_back();
            if (here)
                model_corner(FOUND_AGAIN);
        }
        if (here)
            file(0);
    }

    bool take_bound(rl::atomic<unsigned> &bound, unsigned horizon, unsigned *taken = nullptr)
    {
        unsigned seen = load_seq(bound);

        while (seen <= horizon) {
            if (mutant != LOWERED_AFTER_TAKING)
                lower_bound(seen);
            if (mutant == TAKEN_UNSEEN)
                exchange_seq(bound, never);
            else if (!cas_seq(bound, seen, never))
                continue;
            if (mutant == LOWERED_AFTER_TAKING)
                lower_bound(seen);
            if (taken)
                *taken = seen;
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
        if (head & 1)
            receive();
        if (head & 2)
            receive_rearmed();
    }

    void sweep(unsigned lane, segment &s, unsigned near)
    {
        unsigned deadline;

        if (load_seq(s.slot) % 2 == 0)
            return;
        deadline = load_relaxed(word[0]) / 4;
        if (deadline <= near) {
            if (take_slot(s.slot)) {
                model_dawdle(20, $);
                meet();
            }
        } else {
            model_corner(LEFT);
            if (mutant != LEFT_NOT_TOLD)
                announce(lane, s, deadline);
        }
    }

    void restore_earliest(unsigned lane)
    {
        unsigned deadline = never;

        for (segment &s : segments[lane])
            deadline = least(deadline, load_seq(s.earliest));
        lower(earliest[lane], deadline);
    }

    void collect(unsigned lane, unsigned horizon, unsigned near)
    {
        unsigned taken = never;

        if (take_bound(moved[lane], never - 1, &taken))
            rl::atomic_thread_fence(SEQ);
        if (mutant != PROMISED_NOT_KEPT)
            promised_to = least(promised_to, taken);
        take_notices(lane);
        if (!take_bound(earliest[lane], horizon))
            return;
        for (segment &s : segments[lane]) {
            if (!take_bound(s.earliest, horizon))
                continue;
            if (mutant == RAISED_BEFORE_FILED)
                plan();
            sweep(lane, s, near);
        }
        restore_earliest(lane);
    }

    void intake(unsigned horizon, unsigned near)
    {
        for (unsigned i = 0; i < LANES; i++) {
            if (is_used(i))
                collect(i, horizon, near);
        }
    }

    /* ahead_look: a segment whose time has not come, perhaps with a pass in between. */
    void look_early(unsigned horizon, unsigned near)
    {
        unsigned lane = rl::rand(LANES);
        segment &s = segments[lane][rl::rand(SEGMENTS)];

        if (!take_bound(s.earliest, horizon))
            return;
        model_corner(LOOKED_EARLY);
        if (rl::rand(2))
            intake(horizon, near);
        if (mutant == PLANS_WHILE_LOOKING)
            plan();
        sweep(lane, s, near);
    }

    /* ---- worker.c, filing.c ---- */

    bool any_rearmed(bool all)
    {
        for (unsigned i = 0; i < LANES; i++) {
            if (is_used(i) && load_acquire(shown[i])) {
                RL_ASSERT(dispatched); /* its notice has not been taken in */
                return true;
            }
        }
        return all && load_acquire(rearmed) > 0 && dispatched;
    }

    unsigned rearmed_earliest(bool all)
    {
        unsigned seen;

        if (mutant == REARMED_FORGOTTEN || !any_rearmed(all))
            return never;
        seen = load_acquire(word[1]);
        if (seen % 4 != REARMED && seen % 4 != NUDGED)
            return never;
        model_corner(FOUND_REARMED);
        return seen / 4;
    }

    /* What a mover has taken out of its slot the wheel does not know. */
    unsigned wheel_next()
    {
        return least(bystander, least(filed[1], load_acquire(wheel) ? filed[0] : never));
    }

    /* Of `earliest`, or `moved`. */
    unsigned told_by_lanes(rl::atomic<unsigned> *of)
    {
        unsigned deadline = never;

        for (unsigned i = 0; i < LANES; i++) {
            if (is_used(i))
                deadline = least(deadline, load_seq(of[i]));
        }
        return deadline;
    }

    unsigned lanes_earliest()
    {
        return mutant == RAISED_ABOVE_LANES ? never : told_by_lanes(earliest);
    }

    unsigned lanes_moved()
    {
        return mutant == MOVED_NOT_AHEAD ? never : told_by_lanes(moved);
    }

    bool more_is_promised()
    {
        bool more = mutant != RAISED_BESIDE_GUESTS && load_seq(guests) > 0;

        for (unsigned i = 0; !more && mutant != RAISED_BESIDE_NOTICES && i < LANES; i++)
            more = is_used(i) && load_relaxed(notices[i]);
        return more;
    }

    /* The lanes last: who is no guest any more has told his lane. */
    void raise_bound(unsigned deadline)
    {
        unsigned bound = load_relaxed(next_deadline);

        if (deadline > bound && mutant != RAISED_BESIDE_REARMED && load_acquire(rearmed) > 0) {
            model_corner(KEPT_FOR_REARMED);
            return;
        }
        if (deadline > bound && more_is_promised()) {
            model_corner(KEPT_FOR_PROMISES);
            return;
        }
        if (deadline > bound && mutant != LANES_SEEN_BEFORE_GUESTS)
            deadline = least(deadline, lanes_earliest());
        set_bound(deadline);
    }

    void set_bound(unsigned deadline)
    {
        unsigned bound = load_relaxed(next_deadline);

        if (deadline > bound)
            store_release(next_deadline, deadline);
        else if (deadline < bound)
            store_seq(next_deadline, deadline);
    }

    void plan()
    {
        unsigned deadline = wheel_next();

        deadline = least(deadline, lanes_earliest());
        raise_bound(least(deadline, rearmed_earliest(false)));
    }

    void work()
    {
        static const unsigned horizons[] = {4, 6, 9, never - 1};

        for (unsigned passes = 2 + rl::rand(5); passes > 0; passes--) {
            unsigned horizon = horizons[rl::rand(4)];
            withdraw_answer();
            if (rl::rand(4) == 0) {
                look_ahead(true);
            } else {
                intake(horizon, rl::rand(2) ? horizon : horizons[rl::rand(4)]);
                if (rl::rand(3) == 0)
                    look_early(horizons[rl::rand(4)], horizons[rl::rand(4)]);
                plan();
                if (rl::rand(2))
                    look_ahead(false);
            }
        }
    }

    /* ---- drive.c ---- */

    unsigned known()
    {
        unsigned deadline = bystander;

        for (unsigned i = SUBMITTER; i <= RUNNER; i++) {
            if (load_acquire(returned[i]))
                deadline = least(deadline, moves_later && i > SUBMITTER ? later : deadline_of(i));
        }
        return deadline;
    }

    /* 0: something is told that is no deadline in a slot. */
    unsigned lanes_told()
    {
        unsigned deadline = never;

        if (mutant == RAISED_ABOVE_LANES)
            return never;
        for (unsigned i = 0; i < LANES; i++) {
            if (!is_used(i))
                continue;
            if (load_seq(moved[i]) < never || load_relaxed(notices[i]))
                return 0;
            deadline = least(deadline, load_seq(earliest[i]));
        }
        return deadline;
    }

    /* `takes`: all that is there. Otherwise after a pass, for the answer alone. */
    void look_ahead(bool takes)
    {
        unsigned known_before = known(), said = never, shown_to, told;
        bool promised = load_seq(guests) > 0;

        if (mutant == REARMED_SEEN_FIRST)
            said = rearmed_earliest(true);
        if (takes)
            intake(never - 1, never - 1);
        if (mutant != REARMED_SEEN_FIRST)
            said = rearmed_earliest(true);
        shown_to = said;
        if (mutant != WHEEL_SEEN_LAST)
            said = least(said, wheel_next());
        if (mutant != RAISED_BESIDE_GUESTS && load_seq(guests) > 0)
            promised = true;
        told = lanes_told();
        if (promised || told == 0)
            said = least(said, promised_to);
        else
            promised_to = mutant == REARMED_NOT_PROMISED ? never : shown_to;
        if (promised || told == 0)
            told = least(lanes_earliest(), lanes_moved());
        if (promised && said > load_relaxed(next_deadline))
            model_corner(SAID_BESIDE_GUESTS);
        said = least(said, told);
        if (mutant == WHEEL_SEEN_LAST)
            said = least(said, wheel_next());
        RL_ASSERT(!takes || said <= known_before);
        if (said < bystander)
            model_corner(LOOKED_AHEAD);
        set_bound(said);
        leave_answer(said);
    }

    /* ---- answer.h ---- */

    void withdraw_answer()
    {
        unsigned seen = load_relaxed(turn);

        if (seen % 2 || mutant == ANSWER_KEPT)
            return;
        store_relaxed(turn, seen + 1);
    }

    /* Nobody else takes the other two out of the wheel here. */
    void leave_answer(unsigned said)
    {
        unsigned seen = load_relaxed(turn);
        bool first = said != bystander && said != filed[1];

        if (seen % 2 == 0 || (first && (!load_acquire(wheel) || load_relaxed(word[0]) / 4 != said)))
            return;
        store_release(witness, (unsigned)first);
        store_release(answer, said);
        store_release(turn, seen + 1);
    }

    bool read_answer(unsigned &said)
    {
        unsigned seen = load_acquire(turn), told;

        if (seen % 2)
            return false;
        said = load_acquire(answer);
        if (load_acquire(witness) && (load_acquire(word[0]) / 4 != said || !load_acquire(wheel)))
            return false;
        told = mutant == ANSWER_WITHOUT_NOTICES ? lanes_earliest() : lanes_told();
        if (mutant != ANSWER_WITHOUT_LANES && told < said)
            return false;
        if (mutant != ANSWER_SEEN_ONCE && load_relaxed(turn) != seen)
            return false;
        if (said < bystander)
            model_corner(ANSWERED);
        return true;
    }

    /* One look; the code takes another one. */
    unsigned estimate()
    {
        unsigned said = mutant == ASKS_WORKER_FIRST ? load_seq(next_deadline) : never;

        for (unsigned i = 0; i < LANES; i++) {
            if (!is_used(i))
                continue;
            said = least(said, load_seq(earliest[i]));
            said = least(said, load_seq(moved[i]));
        }
        return mutant == ASKS_WORKER_FIRST ? said : least(said, load_seq(next_deadline));
    }

    void ask()
    {
        for (unsigned times = 4; times > 0; times--) {
            unsigned told = known(), said;
            if (!read_answer(said))
                said = estimate();
            RL_ASSERT(said <= told);
            if (said == told && told < bystander)
                model_corner(SAID_EXACTLY);
            for (unsigned steps = rl::rand(12); steps > 0; steps--)
                rl::yield(1, $);
        }
    }

    /* By a handle, which they have when it was submitted. */
    void await_handle()
    {
        while (!load_acquire(returned[SUBMITTER]))
            rl::yield(1, $);
    }

    void thread(unsigned index)
    {
        unsigned place = rl::rand(LANES + 1);

        switch (index) {
        case SUBMITTER:
            if (!met)
                submit();
            break;
        case MOVER:
        case MOVER_2:
            await_handle();
            move(index);
            break;
        case RUNNER:
            if (runs) {
                rearm(place);
            } else if (moves_later) {
                await_handle();
                move_later();
            } else {
                return;
            }
            break;
        case WORKER: work(); break;
        default: ask(); break;
        }
        store_release(returned[index], 1u);
        if (index == RUNNER && runs) {
            model_dawdle(20, $);
            report(place);
        }
    }
};

int main()
{
    return model_check<next>("no later deadline than one that is known", mutants, 200000, CORNERS)
               ? 0
               : 1;
}
