/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lane is made at its CPU's first use (C25, C21), and two CPUs may exchange theirs (C26):
 * lane_make, lanes_at, lanes_of_cpu, lane_move_in, lanes_next_made, lane_use_first, and beside them
 * lane_submit, the common lane's spill, close_lanes and intake_all, the look before a sleep, and
 * who counts.
 *
 * Two threads submit, each on any of two CPUs, and count an end on any; some that have a lane leave
 * it for the other CPU's before that. A third one acts as the worker: it publishes its plan and
 * looks once more. A fourth one counts. The last one stops. What was accepted must be found by
 * stop, once, what was refused never; a deadline is seen by the look, or its submitter sees the
 * plan; who counts finds what returned calls have scheduled, and nothing ended that was not; nobody
 * sees a lane that is half made (`first`).
 */
#include "model.h"

enum {
    PUBLISHED_BEFORE_MADE = 1,
    PUBLISHED_RELAXED,
    READ_RELAXED,
    NOT_COUNTED,
    COUNTED_RELAXED,
    CLOSED_READ_FIRST,
    CLOSED_READ_ACQUIRE,
    COUNTED_OUT_FIRST,
    COUNTED_OUT_RELAXED,
    NOT_AWAITED,
    AWAITED_BEFORE_CLOSING,
    FOUND_BEFORE_WAITING,
    TWO_MAKERS,
    CLAIM_TAKEN_BY_STORE,
    CLAIM_SHOWN_LATE,
    CLAIM_TAKEN_FOR_MADE,
    COMMON_LEFT_OUT,
    END_RAISED_LATE,
    END_RAISED_BY_STORE,
    END_READ_ACQUIRE,
    HOME_PUBLISHED_FIRST,
    HOME_PUBLISHED_RELAXED,
    HOME_READ_RELAXED,
    HOME_GIVEN_RELAXED,
};

static const model_case mutants[] = {
    {PUBLISHED_BEFORE_MADE, "lane published before it is made"},
    {PUBLISHED_RELAXED, "lane published relaxed"},
    {READ_RELAXED, "table read relaxed"},
    {NOT_COUNTED, "who makes a lane is not counted"},
    {COUNTED_RELAXED, "... or relaxed"},
    {CLOSED_READ_FIRST, "closed read before who makes a lane is counted"},
    {CLOSED_READ_ACQUIRE, "... or with acquire only"},
    {COUNTED_OUT_FIRST, "maker counted out before he has published the lane"},
    {COUNTED_OUT_RELAXED, "... or relaxed"},
    {NOT_AWAITED, "stop does not wait for who makes a lane"},
    {AWAITED_BEFORE_CLOSING, "... or before it closes the common one"},
    {FOUND_BEFORE_WAITING, "... or closes only the lanes that it found before"},
    {TWO_MAKERS, "lane made by two"},
    {CLAIM_TAKEN_BY_STORE, "lanes claimed by a load and a store: one of two is forgotten"},
    {CLAIM_SHOWN_LATE, "lane shown to those who go through all after it was published"},
    {CLAIM_TAKEN_FOR_MADE, "lane that is claimed looked at without a look at the table"},
    {COMMON_LEFT_OUT, "common lane left out by who goes through all"},
    {END_RAISED_LATE, "end raised after the lane's bit was set"},
    {END_RAISED_BY_STORE, "... or by a store"},
    {END_READ_ACQUIRE, "end raised, and read, without an order"},
    {HOME_PUBLISHED_FIRST, "lane given to its CPU before it is in the table"},
    {HOME_PUBLISHED_RELAXED, "... or relaxed"},
    {HOME_READ_RELAXED, "a CPU's lane read relaxed"},
    {HOME_GIVEN_RELAXED, "a CPU given another's lane relaxed"},
};

enum corner {
    MADE,
    MADE_BY_OTHER,
    BEING_MADE,
    CLOSED_AT_ONCE,
    CLOSED_WHEN_COUNTED,
    REFUSED_BY_SLOT,
    REFUSED_BY_SPILL,
    ACCEPTED_BY_SPILL,
    ACCEPTED_THOUGH_CLOSED,
    MAKER_AWAITED,
    HALF_MADE_PASSED,
    END_FOUND,
    DEADLINE_SEEN,
    PLAN_SEEN,
    MOVED_IN,
    MOVING_BY_OTHER,
    CORNERS,
};

enum { PRODUCERS = 2, WORKER = PRODUCERS, READER, STOPPER, THREADS };
enum { SUBMISSIONS = 2, ALL = PRODUCERS * SUBMISSIONS };
enum { CPUS = 2, COMMON = CPUS, LANES, SLOTS = ALL };
enum { TAKEN = 1 << 4, NEVER = 100 };

struct lane_model {
    rl::var<unsigned> first; /* all that never changes */
    rl::atomic<unsigned> slot[SLOTS], earliest, closed, cancelled, spilling, spill;
};

struct making : rl::test_suite<making, THREADS> {
    lane_model lanes[LANES];
    rl::atomic<unsigned> table[CPUS], home[CPUS], moving;
    unsigned cpu_of[CPUS]; /* by who is moving */
    rl::atomic<unsigned> claimed, used, end, making_one, wake_before;
    rl::atomic<unsigned> returned; /* the application's: so many have been accepted */
    rl::atomic<unsigned> claimed_late[CPUS];
    /* the books */
    unsigned seen; /* by the worker's look */
    bool accepted[ALL], woken[ALL];
    unsigned ended[ALL], cancels;

    void init(unsigned l)
    {
        for (auto &s : lanes[l].slot)
            store_relaxed(s, 0u);
        store_relaxed(lanes[l].earliest, unsigned(NEVER));
        for (auto *a : {&lanes[l].closed, &lanes[l].cancelled, &lanes[l].spilling, &lanes[l].spill})
            store_relaxed(*a, 0u);
        lanes[l].first($) = 1 + l;
    }

    void before()
    {
        model_setup setup(THREADS, 20);
        init(COMMON);
        for (unsigned i = 0; i < CPUS; i++) {
            store_relaxed(table[i], unsigned(COMMON));
            store_relaxed(home[i], unsigned(COMMON));
            cpu_of[i] = i;
            store_relaxed(claimed_late[i], 0u);
        }
        store_relaxed(claimed, 1u << COMMON);
        for (auto *a : {&used, &end, &making_one, &moving, &wake_before, &returned})
            store_relaxed(*a, 0u);
        seen = NEVER;
        cancels = 0;
        for (unsigned i = 0; i < ALL; i++) {
            accepted[i] = woken[i] = false;
            ended[i] = 0;
        }
    }

    /* ---- the table ---- */

    unsigned at(unsigned i)
    {
        unsigned l = i == COMMON              ? unsigned(COMMON)
                     : mutant == READ_RELAXED ? load_relaxed(table[i])
                                              : load_acquire(table[i]);

        RL_ASSERT(lanes[l].first($) == 1 + l); /* what never changes may be read */
        return l;
    }

    bool claim(unsigned i)
    {
        unsigned bit = 1u << i, before;

        if (mutant == TWO_MAKERS) {
            or_seq(claimed, bit);
            return load_acquire(table[i]) == COMMON;
        }
        if (mutant == CLAIM_SHOWN_LATE)
            return exchange_seq(claimed_late[i], 1u) == 0;
        if (mutant == CLAIM_TAKEN_BY_STORE) {
            if (exchange_seq(claimed_late[i], 1u))
                return false;
            before = load_seq(claimed);
            store_seq(claimed, before | bit);
            return true;
        }
        return !(or_seq(claimed, bit) & bit);
    }

    unsigned of_cpu(unsigned cpu)
    {
        unsigned l =
            mutant == HOME_READ_RELAXED ? load_relaxed(home[cpu]) : load_acquire(home[cpu]);

        RL_ASSERT(lanes[l].first($) == 1 + l);
        return l;
    }

    void give_home(unsigned cpu, unsigned l)
    {
        if (mutant == HOME_GIVEN_RELAXED)
            store_relaxed(home[cpu], l);
        else
            store_release(home[cpu], l);
    }

    void publish(unsigned i)
    {
        if (mutant == HOME_PUBLISHED_FIRST)
            store_release(home[i], i);
        if (mutant == PUBLISHED_RELAXED)
            store_relaxed(table[i], i);
        else
            store_release(table[i], i);
        if (mutant == HOME_PUBLISHED_RELAXED)
            store_relaxed(home[i], i);
        else if (mutant != HOME_PUBLISHED_FIRST)
            store_release(home[i], i);
    }

    void make_one(unsigned i)
    {
        if (mutant == PUBLISHED_BEFORE_MADE)
            publish(i);
        if (mutant == COUNTED_OUT_FIRST)
            sub_acq_rel(making_one, 1u);
        init(i);
        if (mutant != PUBLISHED_BEFORE_MADE)
            publish(i);
        if (mutant == COUNTED_OUT_FIRST)
            add_seq(making_one, 1u);
        if (mutant == CLAIM_SHOWN_LATE)
            or_seq(claimed, 1u << i);
        model_corner(MADE);
    }

    void count_out()
    {
        if (mutant == COUNTED_OUT_RELAXED)
            making_one.fetch_sub(1u, RELAXED);
        else if (mutant != NOT_COUNTED)
            sub_acq_rel(making_one, 1u);
    }

    unsigned make(unsigned i)
    {
        unsigned closed;

        if (load_relaxed(lanes[COMMON].closed)) {
            model_corner(CLOSED_AT_ONCE);
            return COMMON;
        }
        closed = mutant == CLOSED_READ_FIRST ? load_seq(lanes[COMMON].closed) : 0;
        if (mutant == COUNTED_RELAXED)
            add_relaxed(making_one, 1u);
        else if (mutant != NOT_COUNTED)
            add_seq(making_one, 1u);
        if (mutant == CLOSED_READ_ACQUIRE)
            closed = load_acquire(lanes[COMMON].closed);
        else if (mutant != CLOSED_READ_FIRST)
            closed = load_seq(lanes[COMMON].closed);
        if (closed)
            model_corner(CLOSED_WHEN_COUNTED);
        else if (claim(i))
            make_one(i);
        else
            model_corner(load_relaxed(home[i]) == COMMON ? BEING_MADE : MADE_BY_OTHER);
        count_out();
        return of_cpu(i);
    }

    unsigned own(unsigned i)
    {
        unsigned l = of_cpu(i);

        return l == COMMON ? make(i) : l;
    }

    /* There is no room in this lane: the other one, if it is there, or the same. */
    unsigned move_in(unsigned l)
    {
        unsigned other = !l, cpu;

        if (exchange_acq_rel(moving, 1u)) {
            model_corner(MOVING_BY_OTHER);
            return l;
        }
        if (at(other) == other) {
            cpu = cpu_of[l];
            cpu_of[l] = cpu_of[other];
            cpu_of[other] = cpu;
            give_home(cpu_of[l], l);
            give_home(cpu_of[other], other);
            model_corner(MOVED_IN);
        } else {
            other = l;
        }
        store_release(moving, 0u);
        return other;
    }

    /* ---- submission ---- */

    void raise_end(unsigned l)
    {
        unsigned seen_end = load_relaxed(end);

        if (mutant == END_RAISED_BY_STORE) {
            if (seen_end <= l)
                store_seq(end, l + 1);
            return;
        }
        if (mutant == END_READ_ACQUIRE) {
            while (seen_end <= l && !cas_relaxed(end, seen_end, l + 1))
                continue;
            return;
        }
        while (seen_end <= l && !cas_seq(end, seen_end, l + 1))
            continue;
    }

    void use(unsigned l)
    {
        if (load_seq(used) & 1u << l)
            return;
        if (mutant != END_RAISED_LATE)
            raise_end(l);
        or_seq(used, 1u << l);
        if (mutant == END_RAISED_LATE)
            raise_end(l);
    }

    void announce(unsigned l, unsigned deadline)
    {
        unsigned earliest = load_seq(lanes[l].earliest);

        if (deadline >= earliest)
            return;
        use(l);
        while (deadline < earliest && !cas_seq(lanes[l].earliest, earliest, deadline))
            continue;
    }

    bool submit_aside(unsigned id)
    {
        lane_model &lane = lanes[COMMON];
        bool open;

        add_seq(lane.spilling, 1u);
        open = !load_seq(lane.closed);
        if (open)
            or_seq(lane.spill, 1u << id);
        model_corner(open ? ACCEPTED_BY_SPILL : REFUSED_BY_SPILL);
        sub_acq_rel(lane.spilling, 1u);
        announce(COMMON, id);
        return open;
    }

    bool submit_to(unsigned l, unsigned id)
    {
        unsigned filled = id + 1, empty = 0, s = 0;

        if (rl::rand(2))
            l = move_in(l);

        while (!cas_seq(lanes[l].slot[s], empty, filled)) {
            RL_ASSERT(++s < SLOTS);
            empty = 0;
        }
        announce(l, id);
        if (load_seq(lanes[l].closed)) {
            if (cas_acq_rel(lanes[l].slot[s], filled, 0u)) {
                model_corner(REFUSED_BY_SLOT);
                return false;
            }
            model_corner(ACCEPTED_THOUGH_CLOSED);
        }
        return true;
    }

    void produce(unsigned id)
    {
        unsigned l = own(rl::rand(CPUS));

        accepted[id] = l == COMMON ? submit_aside(id) : submit_to(l, id);
        if (!accepted[id])
            return;
        woken[id] = load_seq(wake_before) > id; /* its deadline is its number */
        if (woken[id])
            model_corner(PLAN_SEEN);
        add_release(returned, 1u);
        if (rl::rand(2)) {
            cancels++;
            add_release(lanes[own(rl::rand(CPUS))].cancelled, 1u);
        }
    }

    /* ---- the worker ---- */

    void look()
    {
        store_seq(wake_before, unsigned(NEVER));
        for (unsigned i = 0; i < (mutant == END_READ_ACQUIRE ? load_acquire(end) : load_seq(end));
             i++) {
            if (load_seq(used) & 1u << i) {
                unsigned l = at(i), earliest = load_seq(lanes[l].earliest);
                RL_ASSERT(l == i); /* nothing is told of what was not made */
                seen = earliest < seen ? earliest : seen;
            }
        }
        if (seen < NEVER)
            model_corner(DEADLINE_SEEN);
    }

    /* ---- who goes through all ---- */

    bool next_made(unsigned &i, unsigned &l)
    {
        for (; i < LANES; i++) {
            if (!(load_relaxed(claimed) & 1u << i) || (mutant == COMMON_LEFT_OUT && i == COMMON))
                continue;
            if (mutant == CLAIM_TAKEN_FOR_MADE) {
                RL_ASSERT(lanes[i].first($) == 1 + i);
                l = i++;
                return true;
            }
            l = at(i);
            if (l != COMMON || i == COMMON) {
                i++;
                return true;
            }
            model_corner(HALF_MADE_PASSED);
        }
        return false;
    }

    /* What stop has taken from a spill is marked there by a second bit. */
    unsigned scheduled()
    {
        unsigned count = 0, l;

        for (unsigned i = 0; next_made(i, l);) {
            for (auto &s : lanes[l].slot)
                count += load_acquire(s) != 0;
            for (unsigned id = 0; id < ALL; id++)
                count += load_acquire(lanes[l].spill) >> id & 1;
        }
        return count;
    }

    void count()
    {
        unsigned ends = 0, before = load_acquire(returned), l;

        for (unsigned i = 0; next_made(i, l);)
            ends += load_acquire(lanes[l].cancelled);
        if (ends)
            model_corner(END_FOUND);
        RL_ASSERT(scheduled() >= (ends > before ? ends : before));
    }

    /* ---- stop ---- */

    void take_all(unsigned l)
    {
        for (auto &s : lanes[l].slot) {
            unsigned held = load_seq(s);
            if (held && !(held & TAKEN) && cas_acq_rel(s, held, held | TAKEN))
                ended[held - 1]++;
        }
        for (unsigned id = 0; id < ALL; id++) {
            unsigned held = load_acquire(lanes[l].spill);
            if (held & 1u << id && !(held & 1u << (id + ALL))) {
                or_seq(lanes[l].spill, 1u << (id + ALL));
                ended[id]++;
            }
        }
    }

    void await_makers()
    {
        while (mutant != NOT_AWAITED && load_seq(making_one) > 0) {
            model_corner(MAKER_AWAITED);
            rl::yield(1, $);
        }
    }

    void stop()
    {
        unsigned found[LANES], count = 0, l;
        bool quiet;

        if (mutant == AWAITED_BEFORE_CLOSING)
            await_makers();
        store_seq(lanes[COMMON].closed, 1u);
        for (unsigned i = 0; mutant == FOUND_BEFORE_WAITING && next_made(i, l);)
            found[count++] = l;
        if (mutant != AWAITED_BEFORE_CLOSING)
            await_makers();
        for (unsigned i = 0; mutant != FOUND_BEFORE_WAITING && next_made(i, l);)
            found[count++] = l;
        for (unsigned i = 0; i < count; i++)
            store_seq(lanes[found[i]].closed, 1u);
        do {
            quiet = true;
            for (unsigned i = 0; next_made(i, l);) {
                quiet = load_seq(lanes[l].spilling) == 0 && quiet;
                take_all(l);
            }
            if (!quiet)
                rl::yield(1, $);
        } while (!quiet);
    }

    void thread(unsigned index)
    {
        if (index < PRODUCERS) {
            for (unsigned i = 0; i < SUBMISSIONS; i++)
                produce(index * SUBMISSIONS + i);
        } else if (index == WORKER) {
            look();
        } else if (index == READER) {
            count();
            count();
        } else {
            stop();
        }
    }

    void after()
    {
        unsigned count_accepted = 0, ends = 0, l;

        for (unsigned id = 0; id < ALL; id++) {
            RL_ASSERT(ended[id] == accepted[id]);
            RL_ASSERT(!accepted[id] || woken[id] || seen <= id);
            count_accepted += accepted[id];
        }
        for (unsigned i = 0; next_made(i, l);)
            ends += load_acquire(lanes[l].cancelled);
        RL_ASSERT(ends == cancels && (mutant || scheduled() == count_accepted));
    }
};

int main()
{
    return model_check<making>("a lane at first use", mutants, 300000, CORNERS) ? 0 : 1;
}
