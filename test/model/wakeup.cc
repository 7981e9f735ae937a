/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No lost wake-up (G4; rules C2, C3 and C4): lane_submit, lane_move, put_again, nudge and
 * park_wake_for against lane_sweep, lane_restore_earliest, collect_notices, worker_plan and
 * park_sleep.
 *
 * A lane of two segments, a group of slots in each. Two threads submit to one of them, the second
 * with the later deadline, so that it does not lower `earliest` in the same one; two others move a
 * timeout earlier that lies in a lane or in the wheel, one of them twice (and with that perhaps
 * later than the other): in a slot of the lane it stays; out of the wheel's they put it into a
 * segment, or they queue a nudge. The worker leaves in their slots what is not due soon. Deadlines
 * are moments of the clock, which goes on only while the worker sleeps; a tick is 1. The worker may
 * not sleep past the deadline of a submission that has returned, whatever the other threads are at;
 * nor past that of a move that has returned, but for the first and the last of the known delays
 * (docs/concurrency.md): see check_covered. In half of the runs it sleeps on a timer descriptor
 * instead of a futex, and there this holds whenever nobody has just set the descriptor and not
 * looked yet whether that is still what is wanted.
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
    SEGMENT_NOT_TOLD,
    LANE_NOT_TOLD,
    LANE_TOLD_FIRST,
    NOT_RESTORED,
    FLAG_NOT_RAISED_AGAIN,
    LEFT_NOT_TOLD,
    NOT_READ_AGAIN,
    READ_BEFORE_FILLED,
    READ_AGAIN_BY_LOAD,
    NOT_LOOKED_AGAIN,
    PUT_NOT_COMPARED,
    SLOT_LOOKED_AT,
    SLOT_BEFORE_WORD,
    SLOT_LEFT_UNNOTICED,
    MOVE_SEGMENT_NOT_TOLD,
    MOVE_LANE_NOT_TOLD,
    MOVE_NOT_FRESH,
    MOVE_TOLD_BEFORE_SLOT,
    MOVE_NOT_COMPARED,
    PLANS_WHILE_LOOKING,
    LOOKED_LEFT_NOT_TOLD,
    SOONER_BESIDE_THE_ALARM,
    USED_TOLD_LATE,
    USED_RELAXED,
    NOTICES_NOT_USED,
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
    {SEGMENT_NOT_TOLD, "deadline told to the lane, not to its segment"},
    {LANE_NOT_TOLD, "deadline told to the segment, not to its lane"},
    {LANE_TOLD_FIRST, "deadline told to the lane before its segment"},
    {NOT_RESTORED, "lane's earliest not restored from segments that were not swept"},
    {FLAG_NOT_RAISED_AGAIN, "flag not raised again for what is left in its slot"},
    {LEFT_NOT_TOLD, "what is left at a sweep is not told"},
    {NOT_READ_AGAIN, "mover does not read the word again when he has filled the slot"},
    {READ_BEFORE_FILLED, "mover reads the word again before he fills the slot"},
    {READ_AGAIN_BY_LOAD, "mover reads the word again, but not by a read-modify-write"},
    {NOT_LOOKED_AGAIN, "worker does not look again when he has taken a nudge in"},
    {PUT_NOT_COMPARED, "mover puts it into a slot, and compares nothing"},
    {SLOT_LOOKED_AT, "who moves it in its slot looks there by a mere load"},
    {SLOT_BEFORE_WORD, "... or changes the slot before the word"},
    {SLOT_LEFT_UNNOTICED, "... or does not nudge it when it has left the slot"},
    {MOVE_SEGMENT_NOT_TOLD, "... or tells the lane, not the segment"},
    {MOVE_LANE_NOT_TOLD, "... or tells the segment, not the lane"},
    {MOVE_NOT_FRESH, "... or does not raise the group's flag"},
    {MOVE_TOLD_BEFORE_SLOT, "... or tells before he changes the slot"},
    {MOVE_NOT_COMPARED, "... or compares nothing"},
    {PLANS_WHILE_LOOKING, "worker plans while a segment is being looked through ahead"},
    {LOOKED_LEFT_NOT_TOLD, "what a look ahead leaves is not told"},
    {SOONER_BESIDE_THE_ALARM, "worker sets the descriptor to his own time past what is wanted"},
    {USED_TOLD_LATE, "the lane is used for the first time, and that is told after the deadline"},
    {USED_RELAXED, "... or told relaxed"},
    {NOTICES_NOT_USED, "... or not told with a nudge"},
};

enum corner {
    LEFT,
    RESTORED,
    PUT_FROM_WHEEL,
    MOVED_IN_SLOT,
    MOVED_LATER,
    SLOT_LEFT,
    NUDGE_IN_SLOT,
    NUDGE_IN_HAND,
    NUDGE_FOUND_AGAIN,
    NUDGE_IN_WHEEL,
    NUDGE_ADRIFT,
    LOOKED_AHEAD,
    LOOKED_IN_TIME,
    READABLE_SOONER,
    FIRST_USED,
    NOT_USED,
    CORNERS,
};

static const unsigned never = 1000;

enum { SUBMITTERS = 2, MOVERS = 2, WORKER = SUBMITTERS + MOVERS };
enum { MOVES = MOVERS + 1, CALLS = SUBMITTERS + MOVES }; /* the last one has two */

enum { SEGMENTS = 2, MINE = SUBMITTERS, SLOTS = SUBMITTERS + 1 };
enum { NO_SLOT, LANE_SLOT, WHEEL_SLOT = LANE_SLOT + SEGMENTS };
enum place { UNMET, WHEEL, ADRIFT };

struct segment {
    rl::atomic<unsigned> earliest, fresh;
    /* each submitter has one, which holds a deadline, 0: empty; that of the timeout which is moved
       is odd while it holds it, and counts */
    rl::atomic<unsigned> slot[SLOTS];
};

struct wakeup : rl::test_suite<wakeup, WORKER + 1> {
    segment segments[SEGMENTS];
    rl::atomic<unsigned> earliest;
    rl::atomic<unsigned> used;    /* is there anything to tell of the lane? */
    rl::atomic<unsigned> notices; /* 1: the nudge is queued */
    /* the timeout that is moved: its deadline, and from `nudged` on a queued nudge; where it is */
    rl::atomic<unsigned> word, where, wheel;
    static const unsigned nudged = 10000;
    place at;
    /* the park */
    rl::atomic<unsigned> wake_before;
    rl::atomic<unsigned> parked; /* 4 times the number of the sleep, and a state */
    rl::atomic<unsigned> alarm;  /* 4 times the time, 2: plan odd or even, 1: set */
    /* in the kernel */
    rl::atomic<unsigned> wakes; /* system calls */
    rl::atomic<unsigned> timer; /* the descriptor's */
    unsigned setters;           /* have set it, and not looked yet */
    bool timerfd, still;        /* a tour is on all the time: nothing is put again */
    rl::atomic<unsigned> returned[CALLS];
    /* the books: what a move must be covered up to, if others have not moved it later; so many have
       nudged it, and are not done; it was moved in its slot, and not nudged since; the word has
       been changed, and that is not told yet; nobody was told, but those will tell (a bit each) */
    unsigned due[CALLS], promises;
    bool stays[CALLS], half[CALLS];
    unsigned relies_on[CALLS];
    /* the worker's own; `moved`: the deadline that the timeout was filed by */
    unsigned now, filed[SUBMITTERS], moved, bystander;
    segment *looking;    /* is being looked through ahead of its time ... */
    unsigned looked_for; /* ... and this was taken from it */

    static unsigned deadline_of(unsigned call)
    {
        static const unsigned deadline[CALLS] = {5, 7, 12, 9, 8};
        return deadline[call];
    }

    void before()
    {
        unsigned in = rl::rand(SEGMENTS + 1);

        model_setup setup(WORKER + 1, 16);
        looking = nullptr;
        for (segment &s : segments) {
            store_relaxed(s.earliest, never);
            store_relaxed(s.fresh, 0u);
            for (auto &slot : s.slot)
                store_relaxed(slot, 0u);
        }
        for (unsigned i = 0; i < SUBMITTERS; i++)
            filed[i] = 0;
        store_relaxed(earliest, never);
        store_relaxed(used, in < SEGMENTS || rl::rand(2) ? 1u : 0u);
        store_relaxed(notices, 0u);
        store_relaxed(word, 20u);
        store_relaxed(where, in + 1);
        store_relaxed(wheel, in < SEGMENTS ? 0u : 1u);
        at = in < SEGMENTS ? UNMET : WHEEL;
        if (in < SEGMENTS) {
            store_relaxed(segments[in].slot[MINE], 1u);
            store_relaxed(segments[in].fresh, 1u);
            store_relaxed(segments[in].earliest, 20u);
            store_relaxed(earliest, 20u);
        }
        store_relaxed(wake_before, 0u);
        store_relaxed(parked, 0u);
        store_relaxed(alarm, never * 4 + 1);
        store_relaxed(wakes, 0u);
        store_relaxed(timer, never);
        setters = 0;
        timerfd = rl::rand(2);
        still = rl::rand(3) == 0;
        for (unsigned i = 0; i < CALLS; i++) {
            store_relaxed(returned[i], 0u);
            due[i] = 0;
            stays[i] = half[i] = false;
            relies_on[i] = 0;
        }
        promises = 0;
        now = 0;
        moved = 20;
        bystander = 10; /* another timeout in the wheel: due between the moves */
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

        for (;; wanted = seen) {
            exchange_seq(timer, wanted / 4);
            setters += first;
            first = false;
            wanted = seen = wanted / 2 * 2;
            if (cas_seq(alarm, seen, wanted | 1) || seen == (wanted | 1) ||
                mutant == TIMER_SET_ONCE)
                break;
        }
        setters--;
    }

    bool lower_alarm(unsigned time)
    {
        unsigned seen = load_seq(alarm);
        bool lowered = false;

        while (!lowered && time < seen / 4)
            lowered = cas_seq(alarm, seen, time * 4 + (seen & 2));
        return lowered;
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

        if (deadline >= planned)
            return;
        if (!timerfd)
            wake_sleeper();
        else if (lower_alarm(deadline) ||
                 (mutant != RELIES_ON_THE_FIRST_SETTER && !(load_seq(alarm) & 1)))
            set_alarm();
    }

    /* ---- lane.c: submission ---- */

    void lower(rl::atomic<unsigned> &bound, unsigned deadline)
    {
        unsigned seen = load_seq(bound);

        while (deadline < seen) {
            if (cas_seq(bound, seen, deadline))
                return;
        }
    }

    void use()
    {
        if (load_seq(used))
            return;
        model_corner(FIRST_USED);
        if (mutant == USED_RELAXED)
            or_relaxed(used, 1u);
        else
            or_seq(used, 1u);
    }

    bool is_used()
    {
        if (load_seq(used))
            return true;
        model_corner(NOT_USED);
        return false;
    }

    void lower_lane(unsigned deadline)
    {
        if (deadline >= load_seq(earliest))
            return;
        if (mutant != USED_TOLD_LATE)
            use();
        lower(earliest, deadline);
        if (mutant == USED_TOLD_LATE)
            use();
    }

    void announce(segment &s, unsigned deadline)
    {
        if (mutant == LANE_TOLD_FIRST)
            lower_lane(deadline);
        if (mutant != SEGMENT_NOT_TOLD)
            lower(s.earliest, deadline);
        if (mutant != LANE_TOLD_FIRST && mutant != LANE_NOT_TOLD)
            lower_lane(deadline);
    }

    void fill(segment &s, unsigned index, unsigned deadline)
    {
        unsigned empty = 0;

        if (mutant == SLOT_FILLED_WITH_RELEASE)
            RL_ASSERT(cas_release(s.slot[index], empty, deadline));
        else
            RL_ASSERT(cas_seq(s.slot[index], empty, deadline));
    }

    void mark_fresh(segment &s)
    {
        if (!load_seq(s.fresh))
            store_seq(s.fresh, 1u);
    }

    void submit(unsigned index)
    {
        unsigned deadline = deadline_of(index);
        segment &s = segments[rl::rand(SEGMENTS)];

        if (mutant == EARLIEST_BEFORE_SLOT)
            announce(s, deadline);
        fill(s, index, deadline);
        if (mutant != FLAG_AFTER_EARLIEST)
            mark_fresh(s);
        if (mutant == COMPARED_BEFORE_ANNOUNCED)
            park_wake_for(deadline);
        if (mutant != EARLIEST_BEFORE_SLOT)
            announce(s, deadline);
        if (mutant == FLAG_AFTER_EARLIEST)
            mark_fresh(s);
        if (mutant != COMPARED_BEFORE_ANNOUNCED)
            park_wake_for(deadline);
    }

    unsigned read_again(unsigned deadline)
    {
        unsigned seen =
            (mutant == READ_AGAIN_BY_LOAD ? load_seq(word) : add_acq_rel(word, 0u)) % nudged;
        return seen < deadline ? seen : deadline;
    }

    unsigned submit_again(unsigned deadline)
    {
        unsigned in = rl::rand(SEGMENTS), empty = load_relaxed(segments[in].slot[MINE]);

        if (mutant == READ_BEFORE_FILLED)
            deadline = read_again(deadline);
        store_relaxed(where, LANE_SLOT + in);
        RL_ASSERT(empty % 2 == 0 && cas_seq(segments[in].slot[MINE], empty, empty + 1));
        model_dawdle(20, $); /* others may find it there, and move it */
        mark_fresh(segments[in]);
        if (mutant != NOT_READ_AGAIN && mutant != READ_BEFORE_FILLED)
            deadline = read_again(deadline);
        announce(segments[in], deadline);
        return deadline;
    }

    bool lane_holds()
    {
        unsigned in = load_seq(where);
        return in >= LANE_SLOT && in < WHEEL_SLOT &&
               load_seq(segments[in - LANE_SLOT].slot[MINE]) % 2;
    }

    bool change_slot()
    {
        unsigned in = load_seq(where), held;

        if (in < LANE_SLOT || in >= WHEEL_SLOT)
            return false;
        rl::atomic<unsigned> &slot = segments[in - LANE_SLOT].slot[MINE];
        held = mutant == SLOT_LOOKED_AT ? load_seq(slot) : load_relaxed(slot);
        return held % 2 && (mutant == SLOT_LOOKED_AT || cas_seq(slot, held, held));
    }

    void tell_move(segment &s, unsigned deadline)
    {
        if (mutant != MOVE_NOT_FRESH)
            mark_fresh(s);
        if (mutant == MOVE_SEGMENT_NOT_TOLD)
            lower_lane(deadline);
        else if (mutant == MOVE_LANE_NOT_TOLD)
            lower(s.earliest, deadline);
        else
            announce(s, deadline);
    }

    bool lane_move(unsigned deadline)
    {
        unsigned in = load_seq(where);

        if (in < LANE_SLOT || in >= WHEEL_SLOT)
            return false;
        segment &s = segments[in - LANE_SLOT];
        if (mutant == MOVE_TOLD_BEFORE_SLOT)
            tell_move(s, deadline);
        if (mutant != SLOT_BEFORE_WORD && !change_slot())
            return false;
        if (mutant != MOVE_TOLD_BEFORE_SLOT)
            tell_move(s, deadline);
        return true;
    }

    /* ---- handle.c: moved ---- */

    /* The word has this deadline from this moment on. */
    void changed(unsigned call, unsigned deadline)
    {
        for (unsigned &other : due)
            other = other > deadline ? other : deadline;
        due[call] = deadline;
        half[call] = true;
    }

    void told_nobody(unsigned call)
    {
        model_corner(MOVED_LATER);
        for (unsigned i = 0; i < CALLS; i++)
            relies_on[call] |= half[i] && i != call ? 1u << i : 0;
    }

    bool waits_for_others(unsigned call)
    {
        for (unsigned i = 0; i < CALLS; i++) {
            if (half[i] && relies_on[call] >> i & 1)
                return true;
        }
        return promises > 0 && !stays[call];
    }

    /* The word is NUDGED from this moment on. */
    void promise()
    {
        promises++;
        for (bool &at_rest : stays)
            at_rest = false;
    }

    bool take_out()
    {
        unsigned held = 1;

        if (load_acquire(where) != WHEEL_SLOT || !load_relaxed(wheel))
            return false;
        if (!cas_acq_rel(wheel, held, 0u))
            return false;
        model_corner(PUT_FROM_WHEEL);
        return true;
    }

    bool put_again()
    {
        unsigned seen, deadline;

        if (still || !take_out())
            return false;
        at = UNMET;
        seen = load_acquire(word);
        while (!cas_acq_rel(word, seen, seen % nudged))
            continue;
        model_dawdle(20, $);
        deadline = submit_again(seen % nudged);
        if (mutant != PUT_NOT_COMPARED)
            park_wake_for(deadline);
        return true;
    }

    void nudge(unsigned deadline)
    {
        unsigned none = 0;

        if (mutant != NOTICES_NOT_USED)
            use();
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

    void put_or_nudge(unsigned deadline)
    {
        if (!put_again())
            nudge(deadline);
        promises--;
    }

    void move_met(unsigned call, unsigned deadline)
    {
        unsigned seen = load_acquire(word), to;

        do {
            to = seen >= nudged || deadline < seen ? nudged + deadline : deadline;
        } while (!cas_seq(word, seen, to));
        changed(call, deadline);
        if (seen >= nudged) {
            park_wake_for(deadline);
        } else if (to >= nudged) {
            promise();
            put_or_nudge(deadline);
        } else {
            told_nobody(call);
        }
    }

    bool timeout_nudge()
    {
        unsigned seen = load_acquire(word);

        model_corner(SLOT_LEFT);
        if (mutant == SLOT_LEFT_UNNOTICED)
            return false;
        while (seen < nudged) {
            if (!cas_seq(word, seen, nudged + seen))
                continue;
            promise();
            return true;
        }
        return false;
    }

    void move_unmet(unsigned call, unsigned deadline)
    {
        unsigned seen;

        if (mutant == SLOT_BEFORE_WORD && !change_slot()) {
            move_met(call, deadline);
            return;
        }
        seen = load_acquire(word);
        while (!cas_seq(word, seen, seen / nudged * nudged + deadline))
            continue;
        changed(call, deadline);
        stays[call] = seen < nudged;
        model_dawdle(20, $);
        if (seen < nudged && lane_move(deadline)) {
            model_corner(MOVED_IN_SLOT);
        } else if (seen < nudged) {
            stays[call] = false;
            if (timeout_nudge())
                put_or_nudge(deadline);
        }
        if (mutant != MOVE_NOT_COMPARED)
            park_wake_for(deadline);
    }

    void move(unsigned call)
    {
        unsigned deadline = deadline_of(call), seen = load_acquire(word);

        while (seen < nudged && deadline >= seen) {
            if (!cas_acq_rel(word, seen, deadline))
                continue;
            changed(call, deadline);
            told_nobody(call);
            half[call] = false;
            return;
        }
        if (lane_holds())
            move_unmet(call, deadline);
        else
            move_met(call, deadline);
        half[call] = false;
    }

    /* ---- the worker: what it takes in ---- */

    bool take_slot(segment &s)
    {
        unsigned held = load_seq(s.slot[MINE]);
        return held % 2 && cas_seq(s.slot[MINE], held, held + 1);
    }

    bool lane_take_back()
    {
        unsigned in = load_seq(where);
        return in >= LANE_SLOT && in < WHEEL_SLOT && take_slot(segments[in - LANE_SLOT]);
    }

    void file()
    {
        moved = load_relaxed(word) % nudged;
        RL_ASSERT(!load_acquire(wheel));
        store_relaxed(where, (unsigned)WHEEL_SLOT);
        at = WHEEL;
        store_release(wheel, 1u);
    }

    void meet()
    {
        if (load_acquire(word) < nudged) {
            file();
        } else {
            store_relaxed(where, (unsigned)NO_SLOT);
            at = ADRIFT;
        }
    }

    void take_nudge()
    {
        unsigned seen = load_acquire(word);

        while (!cas_acq_rel(word, seen, seen % nudged))
            continue;
    }

    void receive()
    {
        unsigned held = 1;
        bool here = at != UNMET || lane_take_back();

        if (at == WHEEL)
            RL_ASSERT(cas_acq_rel(wheel, held, 0u));
        model_corner(!here         ? NUDGE_IN_HAND
                     : at == UNMET ? NUDGE_IN_SLOT
                     : at == WHEEL ? NUDGE_IN_WHEEL
                                   : NUDGE_ADRIFT);
        take_nudge();
        if (!here && mutant != NOT_LOOKED_AGAIN && lane_take_back()) {
            model_corner(NUDGE_FOUND_AGAIN);
            here = true;
        }
        if (here)
            file();
    }

    void collect_notices()
    {
        if (!load_relaxed(notices))
            return;
        exchange_relaxed(notices, 0u);
        rl::atomic_thread_fence(ACQUIRE);
        receive();
    }

    /* The earliest that was left. */
    unsigned sweep_slots(segment &s, unsigned near)
    {
        unsigned left = never;

        for (unsigned i = 0; i < SUBMITTERS; i++) {
            unsigned held = load_seq(s.slot[i]);
            if (held > near)
                left = held < left ? held : left;
            else if (held && cas_seq(s.slot[i], held, 0u))
                filed[i] = held;
        }
        if (load_seq(s.slot[MINE]) % 2) {
            unsigned deadline = load_relaxed(word) % nudged;
            if (deadline > near)
                left = deadline < left ? deadline : left;
            else if (take_slot(s))
                meet();
        }
        return left;
    }

    /* The earliest that was left. */
    unsigned look_through(segment &s, unsigned near)
    {
        unsigned left = never;

        if (load_seq(s.fresh)) {
            if (mutant != FLAG_CLEARED_AFTER_SLOTS)
                store_seq(s.fresh, 0u);
            left = sweep_slots(s, near);
            if (mutant == FLAG_CLEARED_AFTER_SLOTS)
                store_seq(s.fresh, 0u);
            if (left < never && mutant != FLAG_NOT_RAISED_AGAIN)
                store_seq(s.fresh, 1u);
        }
        return left;
    }

    /* What is due soon is taken with what is due. */
    void sweep(segment &s)
    {
        unsigned left, near = now + rl::rand(4) * 3;

        if (mutant != EARLIEST_TAKEN_AFTER_SLOTS)
            exchange_seq(s.earliest, never);
        left = look_through(s, near);
        if (mutant == EARLIEST_TAKEN_AFTER_SLOTS)
            exchange_seq(s.earliest, never);
        if (left == never)
            return;
        model_corner(LEFT);
        if (mutant != LEFT_NOT_TOLD)
            announce(s, left);
    }

    void look_on()
    {
        segment &s = *looking;
        unsigned from = looked_for > now ? looked_for : now;
        unsigned left = look_through(s, from + rl::rand(4) * 3);

        if (left < never && mutant != LOOKED_LEFT_NOT_TOLD)
            announce(s, left);
        looking = nullptr;
    }

    /* A segment ahead of its time, with a pass in between; not while the worker sleeps. */
    void look_ahead()
    {
        segment &s = segments[rl::rand(SEGMENTS)];

        if (load_seq(s.earliest) == never)
            return;
        looking = &s;
        looked_for = exchange_seq(s.earliest, never);
        model_corner(LOOKED_AHEAD);
        if (rl::rand(2))
            pass();
        if (looking && mutant != PLANS_WHILE_LOOKING)
            look_on();
    }

    void restore_earliest()
    {
        unsigned least = never;

        for (segment &s : segments) {
            unsigned seen = load_seq(s.earliest);
            least = seen < least ? seen : least;
        }
        if (least < never)
            model_corner(RESTORED);
        lower(earliest, least);
    }

    void pass()
    {
        if (looking && looked_for <= now) {
            model_corner(LOOKED_IN_TIME);
            look_on();
        }
        if (is_used())
            collect_notices();
        if (is_used() && load_seq(earliest) <= now) {
            exchange_seq(earliest, never);
            for (segment &s : segments) {
                if (load_seq(s.earliest) <= now)
                    sweep(s);
            }
            if (mutant != NOT_RESTORED)
                restore_earliest();
        }
        if (bystander <= now)
            bystander = never;
    }

    /* ---- the worker: its plan and its sleep ---- */

    unsigned wheel_next()
    {
        unsigned next = bystander;

        for (unsigned i = 0; i < SUBMITTERS; i++)
            next = filed[i] > now && filed[i] < next ? filed[i] : next;
        return load_acquire(wheel) && moved > now && moved < next ? moved : next;
    }

    bool is_urgent(unsigned planned)
    {
        if (mutant == NO_SECOND_LOOK)
            return false;
        rl::atomic_thread_fence(SEQ); /* ck_pr_fence_store_load */
        if (!is_used())
            return false;
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
    }

    /* What was planned; or sooner, to look ahead, or because wake-ups are few. */
    void park_set(unsigned time)
    {
        if (time < never && mutant != SOONER_BESIDE_THE_ALARM)
            lower_alarm(time);
        set_alarm();
        if (time < never)
            model_corner(READABLE_SOONER);
        if (mutant == SOONER_BESIDE_THE_ALARM && time < load_seq(alarm) / 4)
            exchange_seq(timer, time);
    }

    void park_leave()
    {
        store_relaxed(wake_before, 0u);
        store_relaxed(parked, load_relaxed(parked) / 4 * 4 + AWAKE);
    }

    bool plan(unsigned *until)
    {
        unsigned seen = is_used() ? load_seq(earliest) : never, next = wheel_next();
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

    /* The worker has what is moved, and it is due. */
    bool is_run() const
    {
        return at == WHEEL && moved <= now;
    }

    /* What has returned; how many calls. */
    unsigned look_who_is_back(bool (&back)[CALLS])
    {
        unsigned count = 0;

        for (unsigned i = 0; i < CALLS; i++)
            count += back[i] = load_acquire(returned[i]);
        return count;
    }

    /*
     * What has returned must be covered. What the other threads are at does not matter, but for the
     * known delays: somebody has nudged it and is not done; or has moved it in its slot, earlier
     * still, and not told that when this one moved it later, and told nobody.
     */
    void check_covered(const bool (&back)[CALLS], unsigned until)
    {
        for (unsigned i = 0; i < SUBMITTERS; i++)
            RL_ASSERT(!back[i] || filed[i] || deadline_of(i) >= until);
        for (unsigned i = SUBMITTERS; i < CALLS; i++)
            RL_ASSERT(!back[i] || waits_for_others(i) || is_run() || due[i] >= until);
    }

    /* Asleep: or the system call has been made. */
    bool all_returned(unsigned until, unsigned before)
    {
        bool back[CALLS];
        unsigned count = look_who_is_back(back);

        if (load_seq(wakes) != before)
            return false;
        check_covered(back, until);
        return count == CALLS;
    }

    /* On a descriptor the timer itself must be right, unless somebody is about to look at it. */
    bool sleep_on_timer()
    {
        for (;;) {
            bool back[CALLS];
            unsigned count = look_who_is_back(back), until = load_seq(timer);

            if (setters == 0)
                check_covered(back, until);
            if (count == CALLS || (until < 20 && rl::rand(4) == 0)) {
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
            if (!looking && rl::rand(3) == 0)
                look_ahead();
            if (!plan(&until))
                continue;
            if (timerfd && until > now)
                park_set(rl::rand(3) ? never : now + 1 + rl::rand(until < 20 ? until - now : 4));
            if (until > now)
                more = timerfd ? sleep_on_timer() : sleep(until);
            park_leave();
        }
        for (unsigned i = 0; i < SUBMITTERS; i++)
            RL_ASSERT(filed[i] == deadline_of(i));
        RL_ASSERT(at == WHEEL && moved <= load_seq(word));
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
            move(index);
        store_release(returned[index], 1u);
        if (index == WORKER - 1) {
            move(WORKER);
            store_release(returned[WORKER], 1u);
        }
    }
};

int main()
{
    return model_check<wakeup>("no lost wake-up", mutants, 300000, CORNERS) ? 0 : 1;
}
