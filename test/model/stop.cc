/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stop against submission (G2, G8; rule C6): lane_submit with its second look at `closed`, the
 * spill with `spilling`, cancel, hwt_timer_advance, begin_stop and reclaim_all.
 *
 * Two threads submit, with or without a handle, and cancel some of it; a third acts as the worker
 * until it sees the stop; the last one stops. Blocks are recycled at once, for whoever comes next.
 * What was accepted must end exactly once (run, cancelled, handed back), what was refused never; no
 * block is used after it was freed (`life`); once stop has returned no cancel touches the lanes
 * (`lanes`; a submission may, because destroy must not come before it returns).
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
};

enum corner {
    REFUSED_AT_ONCE,
    REFUSED_BY_SLOT,
    REFUSED_BY_SPILL,
    ACCEPTED_THOUGH_CLOSED,
    RECYCLED,
    WITHDRAWN,
    NOTICED,
    NOTICE_BEFORE_SPILL,
    RECLAIMED,
    RAN,
    WAITED_FOR_SPILL,
    WAITED_FOR_NOTICE,
    CORNERS,
};

enum { PRODUCERS = 2, WORKER = PRODUCERS, STOPPER, THREADS };
enum { BLOCKS = 4, SUBMISSIONS = 2, SLOTS = 2, SPILL_ORIGIN = SLOTS };
enum { PENDING, EXPIRED, CANCELLED };
enum place { UNMET, FILED, ADRIFT };

struct block {
    rl::atomic<unsigned> word, refs, withdrawn, origin;
    rl::var<unsigned> life, spilled, link, place, noticed; /* two links, as in timeout.h */
    unsigned submission; /* for the books */
};

struct stop : rl::test_suite<stop, THREADS> {
    block blocks[BLOCKS + 1];
    rl::atomic<unsigned> free_block; /* the pool: one block, or 0 */
    /* the lane; a slot holds block * 16 + how often it was emptied */
    rl::atomic<unsigned> slot[SLOTS], fresh, groups_used, closed, spilling, spill, notices;
    rl::var<unsigned> lanes;
    /* the timer */
    rl::atomic<unsigned> phase;
    rl::mutex driving;
    /* the worker's own */
    bool reclaiming;
    unsigned filed[BLOCKS + 1], filed_count, reclaimed;
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
        for (auto *a : {&free_block, &fresh, &groups_used, &closed, &spilling, &spill, &notices,
                        &phase})
            store_relaxed(*a, 0u);
        lanes($) = 1;
        reclaiming = false;
        filed_count = reclaimed = 0;
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
        store_relaxed(blocks[b].word, (unsigned)PENDING);
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

    bool change(unsigned b, unsigned to)
    {
        unsigned seen = PENDING;

        touch(b);
        return load_acquire(blocks[b].word) == PENDING && cas_acq_rel(blocks[b].word, seen, to);
    }

    /* ---- lane.c ---- */

    /* The value that it left in the slot; 0: not empty. */
    unsigned try_slot(unsigned origin, unsigned b)
    {
        unsigned held = load_relaxed(slot[origin]);

        if (held / 16)
            return 0;
        store_relaxed(blocks[b].origin, origin);
        return cas_seq(slot[origin], held, held + b * 16) ? held % 16 + b * 16 : 0;
    }

    bool take_from(unsigned origin, unsigned held)
    {
        return cas_acq_rel(slot[origin], held, held % 16 + 1);
    }

    bool take_back(unsigned b)
    {
        unsigned origin = load_relaxed(blocks[b].origin), held;

        if (origin == SPILL_ORIGIN)
            return false;
        held = load_relaxed(slot[origin]);
        return held / 16 == b && take_from(origin, held);
    }

    void mark_fresh()
    {
        unsigned used = 0;

        if (load_seq(fresh))
            return;
        if (!load_relaxed(groups_used))
            cas_seq(groups_used, used, 1u);
        store_seq(fresh, 1u);
    }

    bool submit_to_spill(unsigned b)
    {
        bool open = mutant == SPILLING_RAISED_LATE && !load_seq(closed);

        add_seq(spilling, 1u);
        if (mutant != SPILLING_RAISED_LATE)
            open = !load_seq(closed);
        if (open) {
            store_relaxed(blocks[b].origin, (unsigned)SPILL_ORIGIN);
            push(spill, b, &block::spilled);
        } else {
            model_corner(REFUSED_BY_SPILL);
        }
        sub_acq_rel(spilling, 1u);
        return open;
    }

    bool settle(unsigned b, unsigned origin, unsigned filled)
    {
        if (mutant == SETTLED_BY_TIMEOUT ? !take_back(b) : !take_from(origin, filled)) {
            model_corner(ACCEPTED_THOUGH_CLOSED);
            return true;
        }
        model_corner(REFUSED_BY_SLOT);
        return false;
    }

    bool lane_submit(unsigned b)
    {
        unsigned origin = rl::rand(SLOTS + 1), filled = 0;
        bool shut = mutant == CLOSED_SEEN_FIRST && load_seq(closed);

        for (unsigned probe = 0; !filled && origin < SLOTS && probe < SLOTS; probe++) {
            origin = (origin + probe) % SLOTS;
            filled = try_slot(origin, b);
        }
        if (!filled)
            return submit_to_spill(b);
        mark_fresh();
        model_dawdle(40, $);
        if (mutant == CLOSED_SEEN_RELAXED)
            shut = load_relaxed(closed);
        else if (mutant != CLOSED_SEEN_FIRST)
            shut = load_seq(closed);
        return !shut || settle(b, origin, filled);
    }

    /* ---- the producers ---- */

    void cancel(unsigned b)
    {
        if (!change(b, CANCELLED))
            return;
        end(b);
        touch_lanes();
        if (take_back(b)) {
            store_release(blocks[b].withdrawn, 1u);
            model_corner(WITHDRAWN);
        } else {
            touch_lanes();
            push(notices, b, &block::link);
            model_corner(NOTICED);
        }
    }

    void submit(unsigned submission)
    {
        bool handle = rl::rand(2);
        unsigned b;

        if (load_acquire(phase)) {
            model_corner(REFUSED_AT_ONCE);
            return;
        }
        b = take_block(submission, handle);
        if (!lane_submit(b)) {
            free_it(b);
            return;
        }
        accepted[submission] = 1;
        if (!handle)
            return;
        if (rl::rand(4))
            cancel(b);
        drop(b);
    }

    /* ---- the worker ---- */

    void leave_adrift(unsigned b)
    {
        blocks[b].place($) = ADRIFT;
        adrift++;
    }

    void file(unsigned b)
    {
        if (!reclaiming) {
            blocks[b].place($) = FILED;
            filed[filed_count++] = b;
        } else if (change(b, CANCELLED)) {
            blocks[b].link($) = reclaimed;
            reclaimed = b;
        } else {
            leave_adrift(b);
        }
    }

    void meet(unsigned b)
    {
        touch(b);
        if (blocks[b].noticed($)) {
            model_corner(NOTICE_BEFORE_SPILL);
            drop(b);
        } else if (load_acquire(blocks[b].word) == PENDING) {
            file(b);
        } else {
            leave_adrift(b);
        }
    }

    void unfile(unsigned b)
    {
        unsigned i = 0;

        while (filed[i] != b)
            RL_ASSERT(++i < filed_count);
        filed[i] = filed[--filed_count];
    }

    void receive(unsigned b)
    {
        touch(b);
        if (blocks[b].place($) == UNMET && !take_back(b)) {
            blocks[b].noticed($) = 1;
            return;
        }
        if (blocks[b].place($) == FILED)
            unfile(b);
        else if (blocks[b].place($) == ADRIFT)
            RL_ASSERT(--adrift >= 0);
        drop(b);
    }

    void sweep()
    {
        for (auto &s : slot) {
            unsigned held = load_seq(s);
            while (held / 16) {
                unsigned b = held / 16;
                if (cas_seq(s, held, held % 16 + 1)) {
                    meet(b);
                    break;
                }
            }
        }
    }

    /* False: somebody is on the way to the spill. */
    bool collect()
    {
        bool quiet = true;
        unsigned b, next;

        for (b = pop_all(notices); b; b = next) {
            next = blocks[b].link($);
            receive(b);
        }
        if (reclaiming) {
            quiet = load_seq(spilling) == 0 || mutant == SPILLING_NOT_AWAITED;
            if (mutant == GROUPS_USED_ACQUIRE ? load_acquire(groups_used) : load_seq(groups_used))
                sweep();
        } else if (load_seq(fresh)) {
            store_seq(fresh, 0u);
            sweep();
        }
        for (b = pop_all(spill); b; b = next) {
            next = blocks[b].spilled($);
            meet(b);
        }
        return quiet;
    }

    void expire()
    {
        for (unsigned due = filed_count; due > 0; due--) {
            unsigned b = filed[--filed_count];
            touch(b);
            if (change(b, EXPIRED)) {
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
            collect();
            if (rl::rand(2))
                expire();
        }
        driving.unlock($);
    }

    /* ---- lifecycle.c ---- */

    void reclaim_all()
    {
        bool quiet;

        reclaiming = true;
        for (;;) {
            quiet = collect();
            while (filed_count > 0)
                file(filed[--filed_count]);
            if (quiet && (adrift == 0 || mutant == STOP_LEAVES_ADRIFT))
                return;
            model_corner(quiet ? WAITED_FOR_NOTICE : WAITED_FOR_SPILL);
            rl::yield(1, $);
        }
    }

    void stop_it()
    {
        model_dawdle(60, $);
        store_seq(phase, 1u);
        if (mutant != SWEPT_BEFORE_CLOSING)
            store_seq(closed, 1u);
        model_dawdle(20, $);
        driving.lock($);
        reclaim_all();
        driving.unlock($);
        if (mutant == SWEPT_BEFORE_CLOSING)
            store_seq(closed, 1u);
        lanes($) = 2;
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
    return model_check<stop>("nothing lost to stop", mutants, 500000, CORNERS) ? 0 : 1;
}
