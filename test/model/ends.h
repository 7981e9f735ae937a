/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The timeout of model/ends.cc: what timeout.c does with its word, its references and its run, the
 * rules that a mutant breaks, and the corners that the model must have been to.
 */
#ifndef HWT_MODEL_ENDS_H
#define HWT_MODEL_ENDS_H

#include "model.h"

enum {
    NOTICE_FOR_NUDGED = 1,
    BURIED_WHEN_MET,
    NUDGE_TAKEN_FIRST,
    NUDGED_FIRES,
    NUDGED_TWICE,
    NOT_A_GUEST,
    MOVER_NOT_A_GUEST,
    REPORTER_NOT_A_GUEST,
    NOTICE_BURIES_UNMET,
    DROPPED_RELAXED,
    DROPPED_THEN_READ,
    HAND_LEFT,
    STOP_LEAVES_ADRIFT,
    RUN_SHOWN_AFTER_CLAIM,
    JOB_WITHOUT_SHARE,
    CANCEL_LEAVES_RUNNING,
    WITHDRAWN_DROPPED_TOO,
    TURNSTILE_READ_LATE,
    TURNSTILE_NOT_RAISED,
    NOTICED_LOST,
    PLACE_BY_ORIGIN,
    WITHDRAWN_BY_PLACE,
    STOP_IGNORED,
    TOUR_IGNORED,
    GUESTS_READ_AFTER,
    GUESTS_READ_BEFORE,
    GUESTS_READ_WITH_SLOTS,
    SLOTS_GONE_ROUND_ONCE,
    LATER_HALF_NOT_AWAITED,
    TURNED_IS_SETTLED,
    NOT_READ_AGAIN,
    READ_AGAIN_BY_LOAD,
    NOT_LOOKED_AGAIN,
    LOOKED_WITHOUT_SHARE,
    HAND_PUT_AGAIN,
    HAND_LEFT_UNMARKED,
    TIMER_TOUCHED_AFTER,
    UNTAKEN_TOUCHED,
    WHEEL_TAKEN_BY_STORE,
    WHEEL_FILLED_RELAXED,
    WHERE_SET_LATE,
    WHEEL_NUDGE_FIRST,
    EMPTY_SEEN_RELAXED,
    REFILLED_UNSEEN,
    REFUSED_SHARE_FIRST,
    SHOWN_IN_SLOT,
    WORD_NOT_LOOKED_AT,
    WORD_LOOKED_AT_FIRST,
    WORD_CHANGED_ACQ_REL,
    LEFT_NUDGED_TWICE,
    LEFT_NUDGED_BLINDLY,
    MARK_NOT_QUESTIONED,
    NOTICE_QUESTIONED,
    CANCELLED_NOT_AWAITED,
};

static const model_case mutants[] = {
    {NOTICE_FOR_NUDGED, "cancel queues a notice although a nudge is queued"},
    {BURIED_WHEN_MET, "worker buries a cancelled one that it meets"},
    {NUDGE_TAKEN_FIRST, "nudge taken in before the timeout is out of its slot"},
    {NUDGED_FIRES, "worker fires a nudged one"},
    {NUDGED_TWICE, "second move queues a second nudge"},
    {NOT_A_GUEST, "cancel does not sign in as a guest"},
    {MOVER_NOT_A_GUEST, "whoever moves it earlier does not sign in as a guest"},
    {REPORTER_NOT_A_GUEST, "the end of a run that goes on does not sign in as a guest"},
    {NOTICE_BURIES_UNMET, "notice buries one that is still in the spill"},
    {DROPPED_RELAXED, "last reference dropped without acquire"},
    {DROPPED_THEN_READ, "`withdrawn` read after the reference was given up"},
    {HAND_LEFT, "stop takes notices for what is in the worker's hand"},
    {STOP_LEAVES_ADRIFT, "stop does not wait for what is adrift"},
    {RUN_SHOWN_AFTER_CLAIM, "run shown only after the claim"},
    {JOB_WITHOUT_SHARE, "job on an executor holds no reference"},
    {CANCEL_LEAVES_RUNNING, "cancel that lost lets the task re-arm"},
    {WITHDRAWN_DROPPED_TOO, "withdrawing takes the runtime's share off the count as well"},
    {TURNSTILE_READ_LATE, "waiter reads the turnstile after `run`"},
    {TURNSTILE_NOT_RAISED, "end of a run wakes, but does not raise the turnstile"},
    {NOTICED_LOST, "filing what waits for the next pass forgets that its notice has come"},
    {PLACE_BY_ORIGIN, "worker believes `where` that it is in its slot, without looking there"},
    {WITHDRAWN_BY_PLACE, "canceller believes `where`, and empties the slot whatever it holds"},
    {STOP_IGNORED, "mover takes it out of its slot though the timer is being stopped"},
    {TOUR_IGNORED, "mover takes it out of its slot during a tour"},
    {GUESTS_READ_AFTER, "stop and tour look for guests only after they have taken all in"},
    {GUESTS_READ_BEFORE, "stop and tour look for guests only before they take all in"},
    {GUESTS_READ_WITH_SLOTS, "stop looks for guests no more when all slots are empty"},
    {SLOTS_GONE_ROUND_ONCE, "stop waits for guests, but goes round the slots only once"},
    {LATER_HALF_NOT_AWAITED, "tour waits for the movers in one half only"},
    {TURNED_IS_SETTLED, "tour waits for nobody when it has turned the halves"},
    {NOT_READ_AGAIN, "mover does not read the word again when he has put it into a slot"},
    {READ_AGAIN_BY_LOAD, "... or reads it, but not by a read-modify-write"},
    {NOT_LOOKED_AGAIN, "worker does not look again when he has taken a nudge in"},
    {LOOKED_WITHOUT_SHARE, "... or looks, but holds no reference"},
    {HAND_PUT_AGAIN, "mover puts one again that was cancelled while nudged"},
    {HAND_LEFT_UNMARKED, "mover does not say that the worker has not met it"},
    {TIMER_TOUCHED_AFTER, "canceller touches the timer after he has emptied the slot"},
    {UNTAKEN_TOUCHED, "worker touches what it has not taken out of its slot"},
    {WHEEL_TAKEN_BY_STORE, "worker empties a slot of the wheel by a store"},
    {WHEEL_FILLED_RELAXED, "slot of the wheel filled relaxed"},
    {WHERE_SET_LATE, "`where` set after a slot of the wheel was filled"},
    {WHEEL_NUDGE_FIRST, "nudge taken in before the timeout is out of the wheel"},
    {EMPTY_SEEN_RELAXED, "stop finds a slot of the wheel empty without acquire"},
    {REFILLED_UNSEEN, "slot of the wheel filled again, found empty without acquire"},
    {REFUSED_SHARE_FIRST, "refused job's share given up before the word is won or lost"},
    {SHOWN_IN_SLOT, "tour shows one that is in its slot"},
    {WORD_NOT_LOOKED_AT, "whoever moves it looks at the lane's slot, but not at the word before"},
    {WORD_LOOKED_AT_FIRST, "... or looks at the word before he signs in as a guest"},
    {WORD_CHANGED_ACQ_REL, "... or finds it pending still: it was changed by acquire-release"},
    {LEFT_NUDGED_TWICE, "one that has left the slot is nudged again though it is nudged"},
    {LEFT_NUDGED_BLINDLY, "... or nudged whatever has become of it"},
    {MARK_NOT_QUESTIONED, "sweep does not ask the word when it has marked a slot"},
    {NOTICE_QUESTIONED, "... or asks it when a notice has come, too"},
    {CANCELLED_NOT_AWAITED, "stop does not wait for a canceller who is about to empty a slot"},
};

enum { HANDLES = 3, EXECUTORS = 2, WORKER = HANDLES + EXECUTORS };
enum { PENDING, NUDGED, DISPATCHED, RUNNING, REARMED, LAST, EXPIRED, CANCELLED };
enum place { UNMET, BUCKET, LATER, AGENDA, NOTICED, ADRIFT };
enum held { NOWHERE, ASIDE, FRONT, HAND }; /* by the worker, in no slot */
enum { RUN_NONE, RUN_ON, RUN_AWAITED };
enum { PERIOD = 5 };

enum corner {
    CANCEL_FROM, /* ... each of the codes below LAST */
    CANCEL_WITHDREW = CANCEL_FROM + LAST,
    CANCEL_LOST_TO_RUN,
    LEFT_TO_CANCELLER,
    WAITED_FOR_CANCELLER,
    MOVED_WHILE_NUDGED,
    MOVED_IN_SLOT,
    LEFT_SLOT,
    LEFT_AND_PUT_AGAIN,
    LEFT_AND_ENDED,
    ENDED_BEFORE_GUEST,
    NUDGE_FROM_SLOT,
    NUDGE_FROM_SPILL,
    NUDGE_WHILE_ADRIFT,
    NUDGE_OF_CANCELLED,
    NOTICE_BEFORE_SPILL,
    RAN_AGAIN,
    RAN_REARMED,
    RAN_EXPIRED,
    JOB_CAME_TOO_LATE,
    JOB_RAN_INTO_STOP,
    REFUSED,
    REFUSED_TOO_LATE,
    WAITED,
    SHARED_TURNSTILE,
    NOTICED_LATER,
    NUDGED_LATER,
    RECLAIMED_DISPATCHED,
    CANCEL_EMPTIED_WHEEL,
    CANCEL_EMPTIED_DISPATCHED,
    PUT_AGAIN_FROM_WHEEL,
    PUT_AGAIN_TO_SPILL,
    CANCELLED_IN_HAND,
    NOTICED_IN_HAND,
    NUDGED_IN_HAND,
    FOUND_AGAIN,
    CASCADED,
    LEFT_AT_SWEEP,
    NOTICED_IN_AGENDA,
    NUDGED_IN_AGENDA,
    NOT_TAKEN_FOR_STOP,
    NOT_TAKEN_FOR_TOUR,
    TOUR_PUT_OFF,
    GUESTS_IN_BOTH,
    SHOWN,
    CORNERS,
};

static unsigned word_make(unsigned deadline, unsigned code)
{
    return deadline << 3 | code;
}
static unsigned word_deadline(unsigned word)
{
    return word >> 3;
}
static unsigned word_code(unsigned word)
{
    return word & 7;
}

struct model_timeout {
    rl::atomic<unsigned> word, refs, run, withdrawn;
    rl::var<int> life, linked;
    bool periodic, awaiting[HANDLES];
    rl::atomic<unsigned> turnstile; /* other timeouts' runs end at it, too */
    /* the books */
    unsigned ended, freed, running;

    void prepare(unsigned handles)
    {
        store_relaxed(word, word_make(10, PENDING));
        store_relaxed(refs, 1 + handles);
        store_relaxed(run, (unsigned)RUN_NONE);
        store_relaxed(withdrawn, 0u);
        life($) = 1;
        linked($) = 0;
        periodic = rl::rand(3) == 0;
        store_relaxed(turnstile, 0u);
        for (bool &waits : awaiting)
            waits = false;
        ended = freed = running = 0;
    }

    void touch()
    {
        RL_ASSERT(life($) == 1);
    }
    void end()
    {
        RL_ASSERT(++ended == 1);
    }

    bool change(unsigned &seen, unsigned deadline, unsigned code)
    {
        touch();
        return mutant == WORD_CHANGED_ACQ_REL ? cas_acq_rel(word, seen, word_make(deadline, code))
                                              : cas_seq(word, seen, word_make(deadline, code));
    }

    bool change_from(unsigned code, unsigned alternative, unsigned to)
    {
        unsigned seen = load_acquire(word);

        while (word_code(seen) == code || word_code(seen) == alternative) {
            if (change(seen, word_deadline(seen), to))
                return true;
        }
        return false;
    }

    /* The code that it was cancelled from; CANCELLED: lost. */
    unsigned cancel_any()
    {
        unsigned seen = load_acquire(word);

        for (;;) {
            unsigned from = word_code(seen), to = CANCELLED;
            if (from >= LAST)
                return CANCELLED;
            if (from == RUNNING && !periodic)
                to = mutant == CANCEL_LEAVES_RUNNING ? RUNNING : LAST;
            if (!change(seen, word_deadline(seen), to))
                continue;
            if (to != CANCELLED) {
                model_corner(CANCEL_LOST_TO_RUN);
                return CANCELLED;
            }
            end();
            model_corner(CANCEL_FROM + from);
            return from;
        }
    }

    bool is_last(unsigned seen)
    {
        touch();
        return seen == 1 || (seen == 2 && load_acquire(withdrawn));
    }

    bool drop()
    {
        unsigned seen;

        touch();
        seen = mutant == DROPPED_RELAXED ? load_relaxed(refs) : load_acquire(refs);
        if (mutant == DROPPED_THEN_READ && !is_last(seen))
            return is_last(sub_acq_rel(refs, 1u));
        while (!is_last(seen)) {
            touch();
            if (cas_acq_rel(refs, seen, seen - 1))
                return false;
        }
        return true;
    }

    void drop_and_free()
    {
        if (!drop())
            return;
        RL_ASSERT(life($) == 1);
        life($) = 2;
        freed++;
    }

    void run_over()
    {
        touch();
        running = 0;
        if (load_acquire(refs) == 1) {
            store_relaxed(run, (unsigned)RUN_NONE);
        } else if (exchange_acq_rel(run, (unsigned)RUN_NONE) == RUN_AWAITED) {
            pass_turnstile(mutant != TURNSTILE_NOT_RAISED);
        }
    }

    /* An awaited run is over, of this timeout or of another one. */
    void pass_turnstile(bool raise)
    {
        if (raise)
            add_acq_rel(turnstile, 1u);
        for (unsigned i = 0; i < HANDLES; i++)
            awaiting[i] = false; /* futex_wake_all */
    }

    void await_run()
    {
        for (;;) {
            unsigned seen = load_acquire(turnstile), on = load_acquire(run);
            if (on == RUN_NONE)
                return;
            if (on == RUN_ON && !cas_acq_rel(run, on, (unsigned)RUN_AWAITED))
                continue;
            if (mutant == TURNSTILE_READ_LATE) {
                model_dawdle(60, $);
                seen = load_acquire(turnstile);
            }
            if (turnstile.fetch_add(0u, SEQ) != seen) { /* futex_wait */
                model_corner(SHARED_TURNSTILE);
                continue;
            }
            awaiting[rl::thread_index()] = true;
            model_corner(WAITED);
            while (awaiting[rl::thread_index()])
                rl::yield(1, $);
        }
    }
};

#endif
