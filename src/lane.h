/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: how timeouts and notices travel from any thread to the worker, without a lock and, in the
 * steady state, without a cache line that two producers write.
 *
 * There is a lane per CPU, made when that CPU first uses the timer (lane_make.c): until then its
 * place in the table leads to the common lane, which has no slot that could be filled, so that who
 * submits finds out where he goes the long way anyway.
 *
 * A lane is a ring of segments of slots. Submission puts the timeout into the next slot, if that is
 * empty, with one compare-and-swap; cancellation takes it out again with a store. Such a timeout
 * was withdrawn: the worker never saw it, and its memory is free at once. Because a slot is only
 * ever filled when empty, nothing has to be advanced behind the producers: the positions simply go
 * round, and a long-lived timeout in the way is stepped over.
 *
 * A lane has as many segments as its timeouts need: who finds all of them crowded maps another one
 * and links it into the ring, and goes on there. Nobody waits, and nobody asks the worker. When few
 * are left in a lane, segments retire (segment.h). So a timeout stays where it was put until it
 * ends, or until its time is near.
 *
 * Nor is there a counter that every call would have to raise: a slot counts how often it was
 * emptied, in the bits that its pointer leaves free, and reading the counters adds those up. So
 * scheduling and withdrawing cost two atomic read-modify-writes together: the slot, and the word.
 *
 * The worker looks through a segment when the earliest deadline submitted to it since the last
 * sweep comes up (lane_sweep); where very many are far away he begins earlier, a portion at a time,
 * and hears of it whenever they have become twice as many. What is due soon and what is far away
 * have segments of their own, so that what is near is taken, all of it, without a look at what is
 * far. Of the far ones he takes what has come near, and leaves the others a few times, where many
 * are cancelled from one time to the next. When the timer is stopped he takes all (lane_sweep_all).
 * A flag per group of slots tells which groups hold any that he has left, or not seen. What is
 * cancelled before a sweep costs him nothing at all.
 *
 * A producer that finds no memory for a segment pushes the timeout on the lane's spill, or on the
 * common one's, if its lane is just being made by another thread. Notices (a cancellation that came
 * too late to withdraw, a deadline moved earlier, a run on an executor that is over) go on the
 * notice stack of the lane of the CPU that the sender runs on.
 */
#ifndef HWT_LANE_H
#define HWT_LANE_H

#include "park.h"
#include "segment.h"

#define LANES_MAX    (1u << 16)
#define LANES_A_WORD 64 /* of the map of those that are used */

/* A run on an executor's thread that has been re-armed stands here, or NULL. */
typedef _Atomic(hwt_timeout *) rearmed_place;

struct lane {
    /* written by the producers on this CPU at every submission */
    alignas(CACHE_PAIR) _Atomic(lane_slot *) tail[2]; /* the next one to try, near and far: hints */
    struct survey survey[2]; /* of these segments, once a lap; who gives back clears `leaving` */
    /* only with max_pending (quota.h); written by those who end what was submitted here, too */
    _Atomic uint64_t quota;  /* free places, and how often one was given */
    _Atomic uint32_t lender; /* a hint: the lane that had one when there was none here */

    /* read at every submission; written by the worker's sweeps and by ever earlier deadlines */
    alignas(CACHE_PAIR) _Atomic uint64_t earliest; /* not above that of any of its segments */
    _Atomic uint32_t closed;                       /* by stop or drain, for good */
    struct segment *first;                         /* of the ring; never changes */
    _Atomic uint64_t *used;                        /* its word of lanes.used; never changes */
    uint64_t used_bit;                             /* its own there; never changes */
    uint32_t index;                                /* in the table; never changes */

    /* written by the cancellers on this CPU, when they come too late to withdraw */
    alignas(CACHE_PAIR) ck_stack_t notices;
    _Atomic uint64_t notices_sent;
    hwt_timeout *mail;      /* the worker's: taken from there, not taken in yet; by `link` ... */
    uint64_t mail_earliest; /* ... no nudge among these speaks of an earlier deadline */
    _Atomic uint64_t moved; /* the earliest deadline that the nudges among them speak of */
    _Atomic uint64_t cancelled; /* otherwise than by withdrawing */

    /* written rarely, or by whoever runs tasks on an executor's threads */
    alignas(CACHE_PAIR) ck_stack_t spill;
    _Atomic uint64_t spilled;  /* submitted to the spill without having been in a slot */
    _Atomic uint32_t spilling; /* producers that are about to, or have just done so */
    _Atomic uint64_t rejected; /* refused at max_pending or by the executor */
    _Atomic uint64_t runs;     /* on an executor's threads */
    _Atomic uint64_t expired;  /* on an executor's threads; only ever added to (C24) */
    _Atomic uint64_t rearms;   /* there: of those, on any lane, that are pending again (C24) */
    /* by who is `moving` (C26) */
    unsigned cpu;       /* whose it is */
    lane_slot *seen[2]; /* where its tails were when somebody looked, last ... */
    uint64_t seen_at;   /* ... and since when; by the coarse clock */
    /* by whoever runs there what has been re-armed; read by the worker when he plans (C15) */
    alignas(CACHE_LINE) rearmed_place rearmed[LANE_REARMED];
};

/* What is asked of a worker (house.h). */
enum wish {
    WISH_GIVE_BACK,  /* there is something that nobody needs any more */
    WISH_MAKE_READY, /* more will be needed soon */
};

struct lanes {
    /* by number: each from when it is made, before that the common one, which is the last (C25) */
    _Atomic(struct lane *) *lane;
    /* by CPU: the one with its number from when that is made; later perhaps another (C26) */
    _Atomic(struct lane *) *home;
    struct lane *common;       /* never changes */
    unsigned count;            /* of CPUs' lanes: a power of two */
    _Atomic uint32_t end;      /* of those behind, nothing was told; only ever raised (C21) */
    _Atomic uint64_t *used;    /* by lane: was there ever anything to tell? (C21) */
    _Atomic uint64_t far_from; /* deadlines from here on are far; the worker's, now and then */
    _Atomic uint64_t *claimed; /* by lane: somebody makes it, or has; the common one is (C25) */
    _Atomic uint32_t making;   /* threads that may be about to make one: stop waits (C25) */
    void *memory;              /* of table and maps */
    struct lane *room;         /* for all: pages that nobody has touched; NULL: nothing is there */
    /* set before they are used: asks a worker; NULL: there is none, submissions give back */
    void (*ask_keeper)(void *keeper, enum wish wish);
    void *keeper;
    struct segment_store store; /* of all segments */

    /* written by who finds no room in his lane: not where all read at every submission */
    alignas(CACHE_PAIR) _Atomic uint32_t moving; /* he looks for another one for his CPU (C26) */
    unsigned turn; /* by who is moving: where he goes on to look, a lane's number */
};

/* `reserve`: so many timeouts shall find a slot without more memory. 0 or -ENOMEM. */
int lanes_create(struct lanes *lanes, unsigned cpus, size_t reserve);
void lanes_destroy(struct lanes *lanes);

static inline unsigned lanes_index_here(const struct lanes *lanes)
{
    return platform_cpu() & (lanes->count - 1);
}

/* As it was made (pairs with lane_make), or the common one. */
HOT struct lane *lanes_at(const struct lanes *lanes, unsigned index)
{
    return load_acquire(&lanes->lane[index]);
}

/* The same, by CPU: there may be another one at any time (pairs with lane_make, lane_move_in). */
HOT struct lane *lanes_of_cpu(const struct lanes *lanes, unsigned cpu)
{
    return load_acquire(&lanes->home[cpu]);
}

/*
 * C25: makes it, unless it is there. The common one, where that cannot be: another thread is about
 * to, or the timer is stopped. Waits for nobody, and needs no memory that could be refused.
 */
struct lane *lane_make(struct lanes *lanes, unsigned cpu);

/* For whoever has something to leave there. */
static inline struct lane *lanes_own(struct lanes *lanes, unsigned cpu)
{
    struct lane *lane = lanes_of_cpu(lanes, cpu);

    return likely(lane != lanes->common) ? lane : lane_make(lanes, cpu);
}

static inline struct lane *lanes_here(struct lanes *lanes)
{
    return lanes_own(lanes, lanes_index_here(lanes));
}

/*
 * C26: room for who submits on this CPU, whose lane has none there, in one that few have come to
 * for a while: from now on that is this CPU's. NULL: there is none near.
 */
struct segment *lane_move_in(struct lanes *lanes, struct lane *lane, bool far);

/*
 * The next one that has been made, from *index on, *index being behind it then; NULL: no more. The
 * common one is the last. One that is made later holds nothing of what returned calls have left.
 */
static inline struct lane *lanes_next_made(const struct lanes *lanes, unsigned *index)
{
    while (*index <= lanes->count) {
        uint64_t claimed =
            load_relaxed(&lanes->claimed[*index / LANES_A_WORD]) >> *index % LANES_A_WORD;
        if (claimed) {
            struct lane *lane = lanes_at(lanes, *index += (unsigned)__builtin_ctzll(claimed));
            if (likely(lane != lanes->common) || *index == lanes->count) {
                ++*index;
                return lane;
            }
            ++*index; /* somebody is about to */
        } else {
            *index = (*index / LANES_A_WORD + 1) * LANES_A_WORD;
        }
    }
    return NULL;
}

/* A segment's parts that are not needed any more. Any thread. False: none went. */
bool lanes_give_back(struct lanes *lanes);
/* The worker: what they will need next is mapped, and has its pages. */
void lanes_make_ready(struct lanes *lanes);

/* ---- any thread ---- */

void lane_use_first(struct lane *lane);
/*
 * C21: before anything is told of the lane for the first time. Most lanes of a large machine are of
 * CPUs on which a timer was never used, and nobody who looks for news looks at those.
 */
static inline void lane_use(struct lane *lane)
{
    if (unlikely(!(load_seq(lane->used) & lane->used_bit)))
        lane_use_first(lane);
}

/*
 * The first from *index on of which anything may have been told, *index being behind it then; NULL:
 * no more. What is told of another one later is told after this was called.
 */
static inline struct lane *lanes_next_used(const struct lanes *lanes, unsigned *index)
{
    while (*index < load_seq(&lanes->end)) {
        uint64_t used = load_seq(&lanes->used[*index / LANES_A_WORD]) >> *index % LANES_A_WORD;
        if (likely(used)) {
            *index += (unsigned)__builtin_ctzll(used);
            return lanes_at(lanes, (*index)++);
        }
        *index = (*index / LANES_A_WORD + 1) * LANES_A_WORD;
    }
    return NULL;
}

/*
 * Puts one that the mover has taken out of its bucket into a slot, pending; by a guest, for whom
 * stop waits, so closed or not. Then compares as after lane_submit (submit.h), with the deadline
 * that this returns: others may have moved it meanwhile.
 */
uint64_t lane_submit_met(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline);

/* As it stands: is it in the slot of a lane? */
static inline bool lane_holds(const hwt_timeout *timeout)
{
    const lane_slot *slot = lane_slot_of_where(load_seq(&timeout->where));
    return slot && packed_timeout(load_seq(slot)) == timeout;
}

/*
 * Its deadline was moved earlier: tells the segment that it is in. False: it has left the slot, and
 * who took it out may not have seen the new deadline.
 */
bool lane_move(const hwt_timeout *timeout, uint64_t deadline);

/*
 * By who has won the word: takes it out of the slot that it was submitted to. False: it is not
 * there any more. A store is enough: nobody else empties a slot whose timeout is cancelled, but by
 * its notice (C20).
 */
static inline bool lane_withdraw(const hwt_timeout *timeout)
{
    uint64_t where = load_relaxed(&timeout->where), held;
    lane_slot *slot = lane_slot_of_where(where);

    if (unlikely(!where_is_lane_slot(where)))
        return false;
    held = load_seq(slot); /* after the word was changed: pairs with keeps_mark */
    if (unlikely((held & (PACKED_ADDRESS | SLOT_MET)) != (uint64_t)(uintptr_t)timeout))
        return false;
    /* pairs with who fills it, and with stop */
    store_release(slot, slot_emptied(held & ~SLOT_MET));
    return true;
}
/*
 * The same for one that the worker had met, and that was put into a slot again. In one order with
 * that: who finds it nowhere has changed the word before whoever holds it looks at it once more.
 */
static inline bool lane_withdraw_met(const hwt_timeout *timeout)
{
    lane_slot *slot = lane_slot_of_where(load_seq(&timeout->where));
    uint64_t held;

    if (!slot)
        return false;
    held = load_seq(slot);
    return held & SLOT_MET && packed_timeout(held) == timeout &&
           cas_acq_rel(slot, &held, slot_emptied(held));
}

/* Before a notice is queued. True: they are so many that the caller shall then wake the worker. */
static inline bool lane_count_notice(struct lane *lane)
{
    return (add_relaxed(&lane->notices_sent, 1) + 1) % NOTICES_PER_WAKE == 0;
}

/*
 * Queues the one notice or nudge. Whoever has a deadline then compares it with the planned wake-up.
 */
void lane_notify(struct lane *lane, hwt_timeout *timeout);
/* After a nudge was queued, here or on another lane: somebody has been given this deadline. */
void lane_tell_moved(struct lane *lane, uint64_t deadline);

/*
 * By whoever runs it on an executor's thread, before it is re-armed and its deadline told: shows it
 * to the worker, until its place is set to NULL again, by a guest who has yet to queue its notice
 * (C15). NULL: there is no place left.
 */
rearmed_place *lane_show_rearmed(struct lane *lane, hwt_timeout *timeout);

/* ---- the worker ---- */

/*
 * What was found in a group of slots goes to `take`, which files it. The timeouts' lines are being
 * fetched and have not been touched.
 */
typedef void lane_take(void *context, hwt_timeout **found, unsigned count);

/* Any thread: has something been sent to the worker that he has not taken from there? */
static inline bool lane_has_sent(const struct lane *lane)
{
    return ck_pr_load_ptr(&lane->notices.head) != NULL || ck_pr_load_ptr(&lane->spill.head) != NULL;
}

static inline bool lane_has_notices(const struct lane *lane)
{
    return lane->mail || ck_pr_load_ptr(&lane->notices.head) != NULL;
}
/* Or spill. */
static inline bool lane_has_mail(const struct lane *lane)
{
    return lane_has_notices(lane) || ck_pr_load_ptr(&lane->spill.head) != NULL;
}
hwt_timeout *lane_take_notice(struct lane *lane); /* any one; NULL: there is none */
hwt_timeout *lane_take_spill(struct lane *lane);  /* a chain by `spilled` */
hwt_timeout *lane_next_spilled(const hwt_timeout *timeout);
/* Its notice has come: out of its slot, if it is in one. */
bool lane_take_back(hwt_timeout *timeout);
/* What is due from this time on is far away: it mostly will be cancelled before. */
void lanes_set_far(struct lanes *lanes, uint64_t deadline);
/*
 * After the segment's `earliest` was taken (C3): looks through `count` groups from `first` on, and
 * takes what is due up to `near`, and of what is far what it has left too often, or what nobody
 * seems to cancel. The earliest of what it leaves.
 */
uint64_t lane_sweep(struct segment *segment, unsigned first, unsigned count, uint64_t near,
                    lane_take *take, void *context);
/* All of the segment has been looked through since, and this is the earliest that was left. */
void lane_tell_left(struct segment *segment, uint64_t left);
/* The lane's `earliest` was taken: what is in segments that were not swept, it says again. */
void lane_restore_earliest(struct lane *lane);

/* Nothing in a slot is due before. */
static inline uint64_t lanes_earliest(const struct lanes *lanes)
{
    uint64_t earliest = UINT64_MAX;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(lanes, &i)) != NULL;)
        earliest = min_u64(earliest, load_seq(&lane->earliest));
    return earliest;
}

/* Nor what was moved, by what is told of that. */
static inline uint64_t lanes_bound(const struct lanes *lanes)
{
    uint64_t earliest = UINT64_MAX;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(lanes, &i)) != NULL;) {
        earliest = min_u64(earliest, load_seq(&lane->earliest));
        earliest = min_u64(earliest, load_seq(&lane->moved));
    }
    return earliest;
}

/*
 * As lanes_earliest; 0: there is something else, mail or a moved deadline. Any thread, which does
 * not know what the worker has taken from there and left for later; he does (`worker`).
 */
HOT uint64_t lanes_told(const struct lanes *lanes, bool worker)
{
    uint64_t earliest = UINT64_MAX;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(lanes, &i)) != NULL;) {
        if (load_seq(&lane->moved) <= DEADLINE_NEVER || lane_has_sent(lane) ||
            (worker && lane->mail))
            return 0;
        earliest = min_u64(earliest, load_seq(&lane->earliest));
    }
    return earliest;
}

/* ---- stop ---- */
void lane_close(struct lane *lane);
/* The common one is closed: may somebody still be making another one? (C25) */
static inline bool lanes_being_made(const struct lanes *lanes)
{
    return load_seq(&lanes->making) > 0;
}
/*
 * Every slot. False, look again: a producer is still on its way to the spill, or somebody about to
 * empty his slot. `ended`: so has all that was accepted; what is submitted is left to its producer,
 * who takes it back.
 */
bool lane_sweep_all(struct lane *lane, bool ended, lane_take *take, void *context);

/* ---- counting: any thread; looks at every slot that was ever used ---- */
struct lane_tally {
    uint64_t scheduled; /* accepted */
    uint64_t withdrawn; /* cancelled before the worker saw them; part of the above */
    uint64_t met;       /* seen by him, or on their way in the spill; part of the first, too */
};
struct lane_tally lane_count(const struct lane *lane);
/*
 * The slot of the first timeout in it that is pending; NULL: there is none, but for what has been
 * spilled.
 */
const lane_slot *lane_first_pending(const struct lane *lane);

#endif
