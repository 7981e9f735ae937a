/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stop against submission (G2, G8; rule C6): lane_submit with its second look at `closed`, the ring
 * of segments, the spill with `spilling`, cancel, put_again, hwt_timer_advance, begin_stop and
 * reclaim_all.
 *
 * Two threads submit, with or without a handle, move some of it in its slot or put it again, and
 * cancel some; a lane has one segment, or two from when the first is found taken, of one slot each.
 * A third thread acts as the worker until it sees the stop; the last one stops. Blocks are recycled
 * at once, for whoever comes next. What was accepted must end exactly once (run, cancelled, handed
 * back), what was refused never; no block is used after it was freed (`life`); once stop has
 * returned no handle touches the timer (`lanes`; a submission may, because destroy must not come
 * before it returns).
 *
 * And drain (C18), in runs of their own: the lanes are closed, the worker goes on until nothing is
 * pending any more, looks through all of them and looks once more, and then stop comes, which
 * leaves what is submitted still to its submitter. Nothing is handed back then. And when the
 * worker has met one that is periodic he knows that there is one.
 */
#include "model.h"

enum {
    CLOSED_SEEN_FIRST = 1,
    CLOSED_SEEN_RELAXED,
    SWEPT_BEFORE_CLOSING,
    SETTLED_BY_TIMEOUT,
    SPILLING_NOT_AWAITED,
    SPILLING_RAISED_LATE,
    GROUPS_USED_ACQUIRE,
    STOP_LEAVES_ADRIFT,
    COLLECTED_AFTER_STOP,
    STOP_IGNORED,
    MOVER_NOT_A_GUEST,
    GUESTS_READ_AFTER,
    GUESTS_READ_BEFORE,
    GUESTS_READ_WITH_SLOTS,
    SLOTS_GONE_ROUND_ONCE,
    RING_READ_ACQUIRE,
    TIMER_TOUCHED_AFTER,
    EMPTY_SEEN_RELAXED,
    MARK_NOT_QUESTIONED,
    MARK_LOOKED_AT_ONCE,
    PUT_BACK_BY_STORE,
    WORD_ANEW_RELAXED,
    CANCELLED_NOT_AWAITED,
    HELD_SEEN_ACQUIRE,
    WORD_ASKED_ACQUIRE,
    EMPTIED_RELAXED,
    NOTICE_QUESTIONED,
    DRAINED_WHILE_OPEN,
    DRAIN_LEAVES_OPEN,
    DRAIN_IGNORES_SPILLING,
    DRAIN_LOOKS_BY_FLAGS,
    DRAIN_LOOKS_ONCE,
    DRAINED_GOES_ON,
    LATE_TAKEN_BY_STOP,
    PERIODIC_TOLD_LATE,
};

static const model_case mutants[] = {
    {CLOSED_SEEN_FIRST, "closed looked at before the slot is filled"},
    {CLOSED_SEEN_RELAXED, "second look at closed is relaxed"},
    {SWEPT_BEFORE_CLOSING, "stop sweeps before it closes the lane"},
    {SETTLED_BY_TIMEOUT, "refused submission taken back by its timeout, not by its slot"},
    {SPILLING_NOT_AWAITED, "stop does not wait for who is on the way to the spill"},
    {SPILLING_RAISED_LATE, "spilling raised after closed was read"},
    {GROUPS_USED_ACQUIRE, "groups_used read with acquire only"},
    {STOP_LEAVES_ADRIFT, "stop does not wait for what is adrift"},
    {COLLECTED_AFTER_STOP, "caller collects without a second look at the phase"},
    {STOP_IGNORED, "mover takes it out of its slot though the timer is being stopped"},
    {MOVER_NOT_A_GUEST, "whoever moves it earlier does not sign in as a guest"},
    {GUESTS_READ_AFTER, "stop looks for guests only after it has taken all in"},
    {GUESTS_READ_BEFORE, "stop looks for guests only before it takes all in"},
    {GUESTS_READ_WITH_SLOTS, "stop looks for guests no more when all slots are empty"},
    {SLOTS_GONE_ROUND_ONCE, "stop waits for guests, but goes round the slots only once"},
    {RING_READ_ACQUIRE, "ring of segments read with acquire only"},
    {TIMER_TOUCHED_AFTER, "canceller touches the timer after he has emptied the slot"},
    {EMPTY_SEEN_RELAXED, "stop finds a slot of the wheel empty without acquire"},
    {MARK_NOT_QUESTIONED, "sweep does not ask the word when it has marked a slot"},
    {MARK_LOOKED_AT_ONCE, "... or asks, but does not look at the slot again"},
    {PUT_BACK_BY_STORE, "... or puts back what is cancelled, by a store"},
    {WORD_ANEW_RELAXED, "word of a block that is used again written relaxed"},
    {CANCELLED_NOT_AWAITED, "stop does not wait for a canceller who is about to empty a slot"},
    {HELD_SEEN_ACQUIRE, "canceller looks at his slot with acquire only"},
    {WORD_ASKED_ACQUIRE, "sweep asks the word with acquire only"},
    {EMPTIED_RELAXED, "canceller empties his slot relaxed"},
    {NOTICE_QUESTIONED, "worker asks the word when a notice has come, too"},
};

static const model_case drain_mutants[] = {
    {DRAINED_WHILE_OPEN, "drain closes the lane when the worker has said that all has ended"},
    {DRAIN_LEAVES_OPEN, "... or leaves that to stop"},
    {DRAIN_IGNORES_SPILLING, "who ends a drain does not wait for who is on the way to the spill"},
    {DRAIN_LOOKS_BY_FLAGS, "... or does not look through all slots, told or not"},
    {DRAIN_LOOKS_ONCE, "... or does not ask again what is pending"},
    {DRAINED_GOES_ON, "worker goes on when he has said that all has ended"},
    {LATE_TAKEN_BY_STOP, "stop takes out what was submitted when a drain had ended"},
    {PERIODIC_TOLD_LATE, "that something is periodic is told when it has been submitted"},
};

enum corner {
    REFUSED_AT_ONCE,
    REFUSED_BY_SLOT,
    REFUSED_BY_SPILL,
    ACCEPTED_THOUGH_CLOSED,
    RECYCLED,
    WITHDRAWN,
    NOTICED,
    LEFT_TO_CANCELLER,
    LOST_TO_CANCELLER,
    WAITED_FOR_CANCELLER,
    NOTICE_BEFORE_SPILL,
    RECLAIMED,
    RAN,
    WAITED_FOR_SPILL,
    WAITED_FOR_NOTICE,
    WAITED_FOR_GUEST,
    SEGMENT_ADDED,
    MOVED_IN_SLOT,
    LEFT_SLOT,
    PUT_AGAIN_FROM_WHEEL,
    PUT_AGAIN_THOUGH_CLOSED,
    PUT_AGAIN_TO_SPILL,
    NOT_TAKEN_FOR_STOP,
    NUDGED_ELSEWHERE,
    WHEEL_EMPTIED,
    STOP_CORNERS,
    DRAINED = STOP_CORNERS,
    NOT_DRAINED_YET,
    LATE_AFTER_DRAINED,
    FOUND_AT_THE_END,
    STOPPED_BEFORE_DRAINED,
    CORNERS,
};

enum { PRODUCERS = 2, WORKER = PRODUCERS, STOPPER, THREADS };
enum { BLOCKS = 4, SUBMISSIONS = 2 };
enum { SEGMENTS = 2, WHEEL_SLOT = SEGMENTS, SLOTS = WHEEL_SLOT + BLOCKS, NO_SLOT = SLOTS };
/* What a slot holds: the block, whether the worker had met it, and how often it was emptied. */
enum { COUNT = 15, MET = 16, BLOCK = 32, MARKED = (BLOCKS + 1) * BLOCK };
enum { PENDING, NUDGED, EXPIRED, CANCELLED };
enum { WORKING, DRAINING, DRAINED_PHASE, STOPPING };
enum place { UNMET, FILED, ADRIFT };

struct block {
    rl::atomic<unsigned> word, refs, withdrawn, where, met;
    rl::var<unsigned> life, spilled, link, place, noticed; /* two links, as in timeout.h */
    rl::var<unsigned> periodic;
    unsigned submission; /* for the books */
};

/* `Drains`: by a drain first. */
template <bool Drains> struct stop : rl::test_suite<stop<Drains>, THREADS> {
    block blocks[BLOCKS + 1];
    rl::atomic<unsigned> free_block; /* the pool: one block, or 0 */
    /* the lane; then those of the wheel */
    rl::atomic<unsigned> slot[SLOTS], fresh[SEGMENTS], groups_used[SEGMENTS];
    rl::atomic<unsigned> next; /* behind the first segment: itself, or the second one */
    rl::atomic<unsigned> closed, spilling, spill, notices;
    rl::var<unsigned> lanes;
    /* the timer */
    rl::atomic<unsigned> phase, guests, asked, periodic;
    rl::mutex driving;
    /* the worker's own */
    bool reclaiming, ended_all;
    unsigned reclaimed;
    int adrift;
    /* the books */
    unsigned accepted[PRODUCERS * SUBMISSIONS], ended[PRODUCERS * SUBMISSIONS];

    void before()
    {
        model_setup setup(THREADS, 20);
        for (block &b : blocks)
            b.life($) = 0;
        for (auto &s : slot)
            store_relaxed(s, 0u);
        for (auto *a : {&free_block, &fresh[0], &fresh[1], &groups_used[0], &groups_used[1], &next,
                        &closed, &spilling, &spill, &notices, &phase, &guests, &asked, &periodic})
            store_relaxed(*a, 0u);
        for (block &b : blocks)
            store_relaxed(b.met, 0u);
        lanes($) = 1;
        reclaiming = ended_all = false;
        reclaimed = 0;
        adrift = 0;
        for (unsigned i = 0; i < PRODUCERS * SUBMISSIONS; i++)
            accepted[i] = ended[i] = 0;
    }

    void after()
    {
        for (unsigned i = 0; i < PRODUCERS * SUBMISSIONS; i++)
            RL_ASSERT(ended[i] == accepted[i]);
    }

    void touch(unsigned b) { RL_ASSERT(blocks[b].life($) == 1); }
    void touch_lanes() { RL_ASSERT(lanes($) == 1); }
    void end(unsigned b) { ended[blocks[b].submission]++; }

    /* ---- ck_stack: push_upmc, batch_pop_upmc ---- */

    void push(rl::atomic<unsigned> &head, unsigned b, rl::var<unsigned> block::*next)
    {
        unsigned seen = load_relaxed(head);

        do {
            (blocks[b].*next)($) = seen;
            rl::atomic_thread_fence(RELEASE);
        } while (!cas_relaxed(head, seen, b));
        rl::atomic_thread_fence(SEQ);
    }

    unsigned pop_all(rl::atomic<unsigned> &head)
    {
        unsigned first;

        if (!load_relaxed(head))
            return 0;
        first = exchange_relaxed(head, 0u);
        rl::atomic_thread_fence(ACQUIRE);
        return first;
    }

    /* ---- blocks ---- */

    /* By the worker; and by who takes the block, before anybody else knows of it. */
    void set_met(unsigned b, unsigned met)
    {
        if (Drains)
            store_relaxed(blocks[b].met, met);
    }

    unsigned take_block(unsigned submission, bool handle)
    {
        unsigned b = exchange_acq_rel(free_block, 0u);

        if (b)
            model_corner(RECYCLED);
        else
            b = 1 + submission;
        blocks[b].life($) = 1;
        blocks[b].place($) = UNMET;
        blocks[b].noticed($) = 0;
        blocks[b].submission = submission;
        set_met(b, 0);
        if (mutant == WORD_ANEW_RELAXED)
            store_relaxed(blocks[b].word, (unsigned)PENDING);
        else
            store_release(blocks[b].word, (unsigned)PENDING);
        store_relaxed(blocks[b].refs, handle ? 2u : 1u);
        store_relaxed(blocks[b].withdrawn, 0u);
        return b;
    }

    void free_it(unsigned b)
    {
        touch(b);
        blocks[b].life($) = 2;
        exchange_acq_rel(free_block, b);
    }

    /* timeout_drop: whether it is the last one is decided while the share is still held. */
    bool is_last(unsigned b, unsigned refs)
    {
        touch(b);
        return refs == 1 || (refs == 2 && load_acquire(blocks[b].withdrawn));
    }

    void drop(unsigned b)
    {
        unsigned refs;

        touch(b);
        refs = load_acquire(blocks[b].refs);
        while (!is_last(b, refs)) {
            if (cas_acq_rel(blocks[b].refs, refs, refs - 1))
                return;
        }
        free_it(b);
    }

    bool change(unsigned b, unsigned from, unsigned to)
    {
        unsigned seen = from;

        touch(b);
        return load_acquire(blocks[b].word) == from && cas_seq(blocks[b].word, seen, to);
    }

    /* ---- lane.c ---- */

    /* The value that it left in the slot; 0: not empty. */
    unsigned try_slot(unsigned index, unsigned b, unsigned met = 0)
    {
        unsigned held = load_relaxed(slot[index]), filled = held + b * BLOCK + met;

        if (held / BLOCK)
            return 0;
        store_relaxed(blocks[b].where, index);
        return cas_seq(slot[index], held, filled) ? filled : 0;
    }

    static unsigned emptied(unsigned index, unsigned held)
    {
        return index < SEGMENTS ? held % MET + !(held & MET) : 0;
    }

    bool take_from(unsigned index, unsigned held)
    {
        return cas_acq_rel(slot[index], held, emptied(index, held));
    }

    /* By a mover from the wheel. NO_SLOT: not there. */
    unsigned take_back(unsigned b, unsigned first = SEGMENTS)
    {
        unsigned index, held;

        touch(b);
        index = load_seq(blocks[b].where);
        if (index < first || index >= SLOTS)
            return NO_SLOT;
        held = load_seq(slot[index]);
        return held / BLOCK == b && take_from(index, held) ? index : (unsigned)NO_SLOT;
    }

    /* By a canceller who has won (C20). */
    unsigned withdraw(unsigned b)
    {
        unsigned index, held;

        touch(b);
        index = load_seq(blocks[b].where);
        if (index >= SEGMENTS)
            return take_back(b);
        held = mutant == HELD_SEEN_ACQUIRE ? load_acquire(slot[index]) : load_seq(slot[index]);
        if (held / BLOCK != b)
            return NO_SLOT;
        if (held & MET)
            return take_from(index, held) ? index : (unsigned)NO_SLOT;
        model_dawdle(10, $);
        touch_lanes();
        if (mutant == EMPTIED_RELAXED)
            store_relaxed(slot[index], emptied(index, held));
        else
            store_release(slot[index], emptied(index, held));
        return index;
    }

    /* By the worker: marked first. `asks`: whether a canceller may be about to empty it, too. */
    bool take_slot(unsigned index, unsigned &held, bool asks)
    {
        unsigned now = emptied(index, held), mark = MARKED + now;

        if (held & MET)
            return cas_seq(slot[index], held, now);
        if (!cas_seq(slot[index], held, mark))
            return false;
        if (asks && mutant != MARK_NOT_QUESTIONED && !keeps_mark(index, mark, held))
            return false;
        store_release(slot[index], now);
        return true;
    }

    bool keeps_mark(unsigned index, unsigned mark, unsigned &held)
    {
        auto &word = blocks[held / BLOCK].word;
        unsigned seen = mark;

        if ((mutant == WORD_ASKED_ACQUIRE ? load_acquire(word) : load_seq(word)) == CANCELLED) {
            if (mutant == PUT_BACK_BY_STORE)
                store_release(slot[index], held);
            else if (cas_seq(slot[index], seen, held))
                model_corner(LEFT_TO_CANCELLER);
            held = 0;
            return false;
        }
        seen = load_seq(slot[index]);
        if (seen == mark || mutant == MARK_LOOKED_AT_ONCE)
            return true;
        model_corner(LOST_TO_CANCELLER);
        held = seen;
        return false;
    }

    /* By the worker, to whom its notice or nudge has come. */
    bool lane_take_back(unsigned b)
    {
        unsigned index, held;

        touch(b);
        index = load_seq(blocks[b].where);
        if (index >= SEGMENTS)
            return false;
        held = load_seq(slot[index]);
        return held / BLOCK == b && take_slot(index, held, mutant == NOTICE_QUESTIONED);
    }

    void mark_fresh(unsigned segment)
    {
        unsigned used = 0;

        if (load_seq(fresh[segment]))
            return;
        if (!load_relaxed(groups_used[segment]))
            cas_seq(groups_used[segment], used, 1u);
        store_seq(fresh[segment], 1u);
    }

    /* The second segment is there from now on. */
    void add_segment()
    {
        unsigned none = 0;

        if (cas_seq(next, none, 1u))
            model_corner(SEGMENT_ADDED);
    }

    /* The slot, and what it holds then. NO_SLOT: none is empty. */
    unsigned find_slot(unsigned b, unsigned &filled, unsigned met = 0)
    {
        if (rl::rand(6) == 0)
            return NO_SLOT; /* no memory */
        if (!load_seq(next) || rl::rand(2)) {
            if ((filled = try_slot(0, b, met)))
                return 0;
            if (!load_seq(next))
                add_segment();
        }
        return (filled = try_slot(1, b, met)) ? 1 : (unsigned)NO_SLOT;
    }

    bool submit_to_spill(unsigned b)
    {
        bool open = mutant == SPILLING_RAISED_LATE && !load_seq(closed);

        add_seq(spilling, 1u);
        if (mutant != SPILLING_RAISED_LATE)
            open = !load_seq(closed);
        if (open) {
            store_relaxed(blocks[b].where, (unsigned)NO_SLOT);
            push(spill, b, &block::spilled);
        } else {
            model_corner(REFUSED_BY_SPILL);
        }
        sub_acq_rel(spilling, 1u);
        return open;
    }

    bool settle_by(unsigned b)
    {
        unsigned index = load_seq(blocks[b].where), held;

        if (index >= SEGMENTS)
            return false;
        held = load_seq(slot[index]);
        return held / BLOCK == b && take_from(index, held);
    }

    bool settle(unsigned b, unsigned index, unsigned filled)
    {
        if (mutant == SETTLED_BY_TIMEOUT ? !settle_by(b)
                                         : !cas_acq_rel(slot[index], filled, filled % BLOCK)) {
            model_corner(ACCEPTED_THOUGH_CLOSED);
            return true;
        }
        model_corner(REFUSED_BY_SLOT);
        if (load_relaxed(phase) == DRAINED_PHASE)
            model_corner(LATE_AFTER_DRAINED);
        return false;
    }

    bool lane_submit(unsigned b)
    {
        unsigned filled = 0, index;
        bool shut = mutant == CLOSED_SEEN_FIRST && load_seq(closed);

        index = find_slot(b, filled);
        if (index == NO_SLOT)
            return submit_to_spill(b);
        mark_fresh(index);
        model_dawdle(40, $);
        if (mutant == CLOSED_SEEN_RELAXED)
            shut = load_relaxed(closed);
        else if (mutant != CLOSED_SEEN_FIRST)
            shut = load_seq(closed);
        return !shut || settle(b, index, filled);
    }

    /* By a guest: closed or not. */
    void submit_again(unsigned b)
    {
        unsigned filled = 0, index = find_slot(b, filled, MET);

        if (index < NO_SLOT) {
            mark_fresh(index);
        } else {
            model_corner(PUT_AGAIN_TO_SPILL);
            store_relaxed(blocks[b].where, (unsigned)NO_SLOT);
            push(spill, b, &block::spilled);
        }
        if (closed.load(SEQ))
            model_corner(PUT_AGAIN_THOUGH_CLOSED);
        touch_lanes(); /* read again, told and compared */
    }

    /* ---- the producers ---- */

    void cancel(unsigned b)
    {
        unsigned from;

        if (!change(b, PENDING, CANCELLED)) {
            cancel_nudged(b);
            return;
        }
        end(b);
        touch_lanes();
        from = withdraw(b);
        if (from < NO_SLOT) {
            if (mutant == TIMER_TOUCHED_AFTER)
                touch_lanes();
            store_release(blocks[b].withdrawn, 1u);
            model_corner(from < SEGMENTS ? WITHDRAWN : WHEEL_EMPTIED);
        } else {
            touch_lanes();
            push(notices, b, &block::link);
            model_corner(NOTICED);
        }
    }

    /* The nudge is the notice. */
    void cancel_nudged(unsigned b)
    {
        add_seq(guests, 1u);
        if (change(b, NUDGED, CANCELLED)) {
            end(b);
            touch_lanes();
        } else if (change(b, PENDING, CANCELLED)) { /* taken in meanwhile */
            end(b);
            touch_lanes();
            if (withdraw(b) < NO_SLOT)
                store_release(blocks[b].withdrawn, 1u);
            else
                push(notices, b, &block::link);
        }
        sub_acq_rel(guests, 1u);
    }

    bool put_again(unsigned b)
    {
        if (mutant != STOP_IGNORED && load_seq(phase) == STOPPING) {
            model_corner(NOT_TAKEN_FOR_STOP);
            return false;
        }
        if (take_back(b) == NO_SLOT)
            return false;
        model_corner(PUT_AGAIN_FROM_WHEEL);
        blocks[b].place($) = UNMET;
        touch_lanes(); /* told to `moved` */
        RL_ASSERT(change(b, NUDGED, PENDING)); /* nobody else has a handle */
        model_dawdle(40, $);
        submit_again(b);
        return true;
    }

    void nudge(unsigned b)
    {
        unsigned seen = PENDING;

        if (cas_seq(blocks[b].word, seen, (unsigned)NUDGED) && !put_again(b)) {
            touch_lanes();
            push(notices, b, &block::link);
            touch_lanes(); /* compared with the wake-up */
        }
    }

    /* Of a lane, and it is there. */
    unsigned lane_slot_of(unsigned b)
    {
        unsigned index = load_seq(blocks[b].where);

        if (index >= SEGMENTS)
            return NO_SLOT;
        touch_lanes();
        return load_seq(slot[index]) / BLOCK == b ? index : (unsigned)NO_SLOT;
    }

    bool lane_move(unsigned b)
    {
        unsigned index = lane_slot_of(b), held;

        if (index == NO_SLOT)
            return false;
        held = load_relaxed(slot[index]);
        if (held / BLOCK != b || !cas_seq(slot[index], held, held))
            return false;
        mark_fresh(index);
        touch_lanes(); /* told */
        return true;
    }

    void move_unmet(unsigned b)
    {
        unsigned seen = PENDING;

        touch_lanes(); /* told to `moved` */
        if (!cas_seq(blocks[b].word, seen, (unsigned)PENDING))
            return;
        if (lane_move(b)) {
            model_corner(MOVED_IN_SLOT);
        } else {
            model_corner(LEFT_SLOT);
            nudge(b);
        }
        touch_lanes(); /* compared with the wake-up */
    }

    /* Earlier. */
    void move(unsigned b)
    {
        if (mutant != MOVER_NOT_A_GUEST)
            add_seq(guests, 1u);
        touch(b);
        if (load_seq(blocks[b].word) <= NUDGED) {
            if (lane_slot_of(b) == NO_SLOT)
                nudge(b);
            else
                move_unmet(b);
        }
        if (mutant != MOVER_NOT_A_GUEST)
            sub_acq_rel(guests, 1u);
    }

    void submit(unsigned submission)
    {
        bool handle = rl::rand(2), repeats = Drains && rl::rand(2);
        unsigned b;

        if (load_acquire(phase)) {
            model_corner(REFUSED_AT_ONCE);
            return;
        }
        b = take_block(submission, handle);
        if (Drains)
            blocks[b].periodic($) = repeats;
        if (repeats && mutant != PERIODIC_TOLD_LATE)
            store_relaxed(periodic, 1u);
        if (!lane_submit(b)) {
            free_it(b);
            return;
        }
        if (repeats && mutant == PERIODIC_TOLD_LATE)
            store_relaxed(periodic, 1u);
        accepted[submission] = 1;
        if (!handle)
            return;
        for (unsigned moves = rl::rand(3); moves > 0; moves--)
            move(b);
        if (rl::rand(2))
            cancel(b);
        drop(b);
    }

    /* ---- the worker ---- */

    void leave_adrift(unsigned b)
    {
        blocks[b].place($) = ADRIFT;
        adrift++;
    }

    unsigned see_wheel_slot(unsigned index)
    {
        return mutant == EMPTY_SEEN_RELAXED && reclaiming ? load_relaxed(slot[index])
                                                          : load_acquire(slot[index]);
    }

    void file(unsigned b)
    {
        if (!reclaiming) {
            unsigned index = WHEEL_SLOT;
            while (see_wheel_slot(index))
                RL_ASSERT(++index < SLOTS);
            blocks[b].place($) = FILED;
            store_relaxed(blocks[b].where, index);
            store_release(slot[index], b * BLOCK);
        } else if (change(b, PENDING, CANCELLED)) {
            blocks[b].link($) = reclaimed;
            reclaimed = b;
        } else {
            leave_adrift(b);
        }
    }

    /* 0: it is empty, or somebody else has emptied it. */
    unsigned take_wheel_slot(unsigned index)
    {
        unsigned held = see_wheel_slot(index);
        return held && take_from(index, held) ? held / BLOCK : 0;
    }

    void meet(unsigned b)
    {
        touch(b);
        RL_ASSERT(!Drains || !blocks[b].periodic($) || load_relaxed(periodic));
        set_met(b, 1);
        if (blocks[b].noticed($)) {
            model_corner(NOTICE_BEFORE_SPILL);
            drop(b);
        } else if (load_acquire(blocks[b].word) == PENDING) {
            file(b);
        } else {
            leave_adrift(b);
        }
    }

    /* In the spill, or in a mover's hand: looked at again when the nudge was taken in. */
    void receive_elsewhere(unsigned b)
    {
        bool nudged;

        model_corner(NUDGED_ELSEWHERE);
        add_relaxed(blocks[b].refs, 1u);
        nudged = change(b, NUDGED, PENDING);
        if (lane_take_back(b)) {
            if (nudged)
                file(b);
            else
                drop(b);
        } else if (!nudged) {
            blocks[b].noticed($) = 1;
        }
        drop(b);
    }

    void receive(unsigned b)
    {
        touch(b);
        if (blocks[b].place($) == UNMET && !lane_take_back(b)) {
            receive_elsewhere(b);
            return;
        }
        if (blocks[b].place($) == FILED)
            RL_ASSERT(take_wheel_slot(load_relaxed(blocks[b].where)) == b);
        else if (blocks[b].place($) == ADRIFT)
            RL_ASSERT(--adrift >= 0);
        if (change(b, NUDGED, PENDING))
            file(b);
        else
            drop(b);
    }

    /* `met`: only what a mover has put there. */
    void sweep(unsigned index, bool met)
    {
        unsigned held = load_seq(slot[index]);

        while (held / BLOCK && (!met || held & MET)) {
            unsigned b = held / BLOCK;
            if (take_slot(index, held, true)) {
                meet(b);
                return;
            }
        }
    }

    bool is_left(unsigned index)
    {
        return mutant != CANCELLED_NOT_AWAITED && load_acquire(slot[index]) / BLOCK;
    }

    bool has_segment(unsigned index)
    {
        if (index == 0)
            return true;
        return mutant == RING_READ_ACQUIRE ? load_acquire(next) : load_seq(next);
    }

    void sweep_segment(unsigned index, bool all)
    {
        if (!all) {
            if (!load_seq(fresh[index]))
                return;
            store_seq(fresh[index], 0u);
            sweep(index, false);
        } else if (mutant == GROUPS_USED_ACQUIRE ? load_acquire(groups_used[index])
                                                 : load_seq(groups_used[index])) {
            sweep(index, ended_all && mutant != LATE_TAKEN_BY_STOP);
        }
    }

    void collect_notices()
    {
        for (unsigned b = pop_all(notices), next; b; b = next) {
            next = blocks[b].link($);
            receive(b);
        }
    }

    /* `all`: told or not. False: somebody is on the way to the spill, or about to empty a slot. */
    bool collect(bool all)
    {
        bool quiet = true;
        unsigned b, next;

        collect_notices();
        if (all)
            quiet = load_seq(spilling) == 0 || mutant == SPILLING_NOT_AWAITED ||
                    (mutant == DRAIN_IGNORES_SPILLING && !reclaiming);
        for (unsigned i = 0; i < SEGMENTS && has_segment(i); i++) {
            sweep_segment(i, all);
            if (all && is_left(i)) {
                model_corner(WAITED_FOR_CANCELLER);
                quiet = false;
            }
        }
        for (b = pop_all(spill); b; b = next) {
            next = blocks[b].spilled($);
            meet(b);
        }
        return quiet;
    }

    void expire()
    {
        for (unsigned i = WHEEL_SLOT; i < SLOTS; i++) {
            unsigned b = take_wheel_slot(i);
            if (!b)
                continue;
            touch(b);
            if (change(b, PENDING, EXPIRED)) {
                model_corner(RAN);
                end(b);
                drop(b);
            } else {
                leave_adrift(b);
            }
        }
    }

    /* hwt_timer_advance; a worker's thread does the same, and stop joins it instead of locking. */
    void advance()
    {
        if (load_acquire(phase))
            return;
        driving.lock($);
        if (mutant == COLLECTED_AFTER_STOP || !load_acquire(phase)) {
            collect(false);
            if (rl::rand(2))
                expire();
        }
        driving.unlock($);
    }

    /* ---- a worker that is to drain: worker.c ---- */

    /* A count goes over the slots; of what the worker has met, he knows what has ended. */
    bool any_pending()
    {
        for (unsigned i = 0; i < SEGMENTS && (i == 0 || load_acquire(next)); i++) {
            unsigned held = load_acquire(slot[i]);
            if (held / BLOCK)
                return true;
        }
        if (load_relaxed(spill))
            return true;
        for (unsigned b = 1; b <= BLOCKS; b++) {
            if (load_relaxed(blocks[b].met) && load_acquire(blocks[b].word) <= NUDGED)
                return true;
        }
        return false;
    }

    bool look_through()
    {
        return collect(mutant != DRAIN_LOOKS_BY_FLAGS);
    }

    void attend_drain()
    {
        if (any_pending() || !look_through()) {
            model_corner(NOT_DRAINED_YET);
            return;
        }
        if (mutant != DRAIN_LOOKS_ONCE && any_pending()) {
            model_corner(FOUND_AT_THE_END);
            return;
        }
        if (load_relaxed(phase) == DRAINING) { /* both under the timer's mutex */
            unsigned draining = DRAINING;
            model_corner(DRAINED);
            ended_all = true;
            if (!cas_acq_rel(phase, draining, (unsigned)DRAINED_PHASE))
                ended_all = false;
        }
    }

    void work()
    {
        driving.lock($);
        while (load_relaxed(phase) < (mutant == DRAINED_GOES_ON ? STOPPING : DRAINED_PHASE)) {
            collect(false);
            expire();
            if (load_seq(asked))
                attend_drain();
            rl::yield(1, $);
        }
        driving.unlock($);
    }

    /* ---- stop.c ---- */

    bool reclaim_slots()
    {
        bool before = mutant != GUESTS_READ_AFTER && load_seq(guests) > 0,
             quiet = collect(true);

        for (unsigned i = WHEEL_SLOT; i < SLOTS; i++) {
            unsigned b = take_wheel_slot(i);
            if (b)
                file(b);
        }
        if (quiet && mutant == SLOTS_GONE_ROUND_ONCE)
            return true;
        if (quiet && !before && (mutant == GUESTS_READ_BEFORE || load_seq(guests) == 0))
            return true;
        model_corner(quiet ? WAITED_FOR_GUEST : WAITED_FOR_SPILL);
        return false;
    }

    /* Those who owe a notice, and those who touch the timer when they have queued it. */
    bool some_are_left()
    {
        if (adrift > 0 && mutant != STOP_LEAVES_ADRIFT) {
            model_corner(WAITED_FOR_NOTICE);
            return true;
        }
        return mutant != GUESTS_READ_BEFORE && mutant != GUESTS_READ_WITH_SLOTS &&
               load_seq(guests) > 0;
    }

    void reclaim_all()
    {
        reclaiming = true;
        while (!reclaim_slots())
            rl::yield(1, $);
        while (some_are_left()) {
            rl::yield(1, $);
            collect_notices();
        }
    }

    void drain()
    {
        bool in_time = rl::rand(4) > 0;

        store_seq(phase, (unsigned)DRAINING);
        if (mutant != DRAINED_WHILE_OPEN && mutant != DRAIN_LEAVES_OPEN)
            store_seq(closed, 1u);
        store_seq(asked, 1u);
        while (in_time && load_acquire(phase) == DRAINING)
            rl::yield(1, $);
        if (mutant == DRAINED_WHILE_OPEN)
            store_seq(closed, 1u);
        model_dawdle(60, $);
        if (!in_time)
            model_corner(STOPPED_BEFORE_DRAINED);
    }

    void stop_it()
    {
        model_dawdle(60, $);
        if (Drains)
            drain();
        store_seq(phase, (unsigned)STOPPING);
        if (mutant != SWEPT_BEFORE_CLOSING)
            store_seq(closed, 1u);
        model_dawdle(20, $);
        driving.lock($);
        reclaim_all();
        driving.unlock($);
        if (mutant == SWEPT_BEFORE_CLOSING)
            store_seq(closed, 1u);
        lanes($) = 2;
        RL_ASSERT(!ended_all || !reclaimed);
        for (unsigned b = reclaimed, next; b; b = next) {
            next = blocks[b].link($);
            model_corner(RECLAIMED);
            end(b);
            drop(b);
        }
    }

    void thread(unsigned index)
    {
        if (index < PRODUCERS) {
            for (unsigned i = 0; i < SUBMISSIONS; i++)
                submit(index * SUBMISSIONS + i);
        } else if (index == WORKER && Drains) {
            work();
        } else if (index == WORKER) {
            for (unsigned i = 0; i < 2; i++)
                advance();
        } else {
            stop_it();
        }
    }
};

int main()
{
    bool drained = model_check<stop<true>>("nothing handed back by a drain", drain_mutants, 200000,
                                           CORNERS, STOP_CORNERS);
    bool stopped =
        model_check<stop<false>>("nothing lost to stop", mutants, 400000, STOP_CORNERS);

    return drained && stopped ? 0 : 1;
}
