/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One timeout: its word, its state machine, its references. This file decides who won; what the
 * winner then does with lanes, wheel and counters is his own affair, and happens elsewhere.
 *
 * The word holds deadline (61 bits of nanoseconds) and state (3 bits), so that cancel, reschedule
 * and expiry are one compare-and-swap each and meet in one place.
 *
 *                     ,-- move earlier --.
 *                     |                  v
 *   submitted ---> PENDING <-- taken in - NUDGED <-----------.
 *                   |  |  ^                                   |
 *             claim |  |  |                                   |
 *                   |  |  `-- again, on the worker --.        |
 *                   |  | claim, with an executor     |        | again, on an
 *                   |  v                             |        | executor's thread
 *                   |  DISPATCHED                    |        |
 *                   |  | begin                       |        |
 *                   v  v           re-arm            |        |
 *                  RUNNING ---------------> REARMED -+--------'
 *                   |   | `---- periodic ------------'
 *            cancel |   | the task has returned
 *                   v   v
 *                LAST-->EXPIRED
 *
 *   PENDING, DISPATCHED ---> CANCELLED   cancel, stop; refused by the executor
 *   NUDGED, REARMED, RUNNING (periodic) ---> CANCELLED   cancel alone: stop waits for the nudge, or
 *                                        for the task, which leave it pending
 *   LAST: a cancel that came too late: it ends the re-arming.
 *
 * Ground rules:
 * - NUDGED: exactly one nudge is on its way to the worker or queued there. The worker alone clears
 *   it, and a nudged timeout is filed, fired and buried only by the arrival of its nudge.
 * - CANCELLED from PENDING or DISPATCHED: the canceller withdraws the timeout from its lane or its
 *   bucket, or queues exactly one notice. CANCELLED from NUDGED: the nudge serves as the notice.
 *   CANCELLED from RUNNING or REARMED: whoever runs the task buries it when the task has returned.
 * - The runtime's share of a timeout is given up by exactly one side: by the canceller that
 *   withdrew it, or by the worker (or whoever acts as the worker) that met its notice or its end.
 */
#ifndef HWT_TIMEOUT_H
#define HWT_TIMEOUT_H

#include <ck_stack.h>

#include "atomic.h"
#include "base.h"
#include "hwt.h"

enum word_code {
    WORD_PENDING = 0,
    WORD_NUDGED = 1,
    WORD_DISPATCHED = 2, /* due, handed to the executor, not yet running */
    WORD_RUNNING = 3,
    WORD_REARMED = 4, /* running, and its task has asked for another run */
    WORD_LAST = 5,    /* running, and no re-arm is possible any more */
    WORD_EXPIRED = 6,
    WORD_CANCELLED = 7,
};

#define WORD_CODE_BITS 3
#define WORD_CODE_MASK ((UINT64_C(1) << WORD_CODE_BITS) - 1)

/* The last deadline there is means never: 73 years of nanoseconds. */
#define DEADLINE_NEVER ((UINT64_C(1) << (64 - WORD_CODE_BITS)) - 1)

static inline uint64_t deadline_clamp(uint64_t deadline)
{
    return min_u64(deadline, DEADLINE_NEVER);
}

static inline uint64_t deadline_after(uint64_t now, uint64_t delay)
{
    uint64_t deadline = now + delay;

    return unlikely(deadline < now) ? DEADLINE_NEVER : deadline_clamp(deadline);
}

static inline uint64_t word_make(uint64_t deadline, enum word_code code)
{
    return deadline << WORD_CODE_BITS | (uint64_t)code;
}

static inline uint64_t word_deadline(uint64_t word)
{
    return word >> WORD_CODE_BITS;
}

static inline enum word_code word_code(uint64_t word)
{
    return (enum word_code)(word & WORD_CODE_MASK);
}

enum timeout_flags {
    FLAG_EXTENDED = 1, /* has a struct timeout_extra */
    FLAG_PERIODIC = 2,
    /* which clock its timer goes by, so that a handle that outlives the timer can tell */
    FLAG_BOOTTIME = 4,
    FLAG_CALLERS_CLOCK = 8,
    FLAG_RELEASE = 16, /* whoever needs its argument is counted (release.h) */
};

/* Where the worker knows a timeout to be. */
enum timeout_place {
    PLACE_UNMET = 0,   /* in a lane or its spill: the worker has not met it */
    PLACE_INLINE = 1,  /* `where` is the address of the slot that holds it, in a bucket ... */
    PLACE_SMALL = 2,   /* ... or in a small chunk of one ... */
    PLACE_LARGE = 3,   /* ... or in a large one; these three are stale once it is taken out */
    PLACE_LISTED = 4,  /* for want of memory: in a list of the wheel's, by `where` */
    PLACE_AGENDA = 5,  /* in the agenda's front, as the others with a stale place */
    PLACE_LATER = 6,   /* for the next pass; for want of memory in a list, by `where` */
    PLACE_SHELF = 7,   /* with the executor; for want of memory in a list, by `where` */
    PLACE_NOTICED = 8, /* its notice came while it was where it cannot be taken out of at once */
    PLACE_ADRIFT = 9,  /* met, held by nothing: in the worker's hand, or awaiting its notice */
    PLACE_KICKED = 10, /* put aside by the agenda until its pass ends */
};

/* A run is on (1), and somebody waits for its end (2). */
enum timeout_run { RUN_NONE = 0, RUN_ON = 1, RUN_AWAITED = 2 };

/*
 * Among equal deadlines the order of submission (G15): a number that grows with each submission of
 * a thread, and below it the lane, which tells to which depot the block goes back.
 */
#define STAMP_BITS      60
#define STAMP_LANE_BITS 8

/* Of where others of its batch are, in a block that is free: as many as it has room for. */
#define BATCH_NOTES 4

/* One cache line. */
struct hwt_timeout {
    /* shared: everyone with a reference, through the functions below */
    alignas(CACHE_LINE) _Atomic uint64_t word;

    /*
     * Where it is: set by the producer, then changed by the worker; a canceller looks whether it is
     * still in its lane's slot (lane.h: the lowest bit is set) or in a bucket's (bucket_slot.h: the
     * second lowest is). Otherwise an address, whose two lowest bits are clear; handed back by
     * stop, that of who comes out of the list some time later.
     */
    union {
        _Atomic uint64_t where;
        ck_stack_entry_t spilled; /* in a spill: by this */
        struct {                  /* free, the first of a batch (batch.h) */
            uint32_t batch_length, batch_noted;
        };
    };
    /* the one link a timeout is queued by: a notice or a nudge; the list of a stop; free blocks */
    ck_stack_entry_t link;

    union {
        struct { /* set at submission, then never changed */
            hwt_task *task;
            void *arg; /* or its struct timeout_extra */
            hwt_timer *timer;
            uint64_t stamp;
        };
        hwt_timeout *noted[BATCH_NOTES]; /* free: where others of its batch are */
    };

    _Atomic uint32_t refs;     /* handles, and 1 for the runtime's share (see `withdrawn`) */
    _Atomic uint8_t run;       /* enum timeout_run */
    _Atomic uint8_t withdrawn; /* the runtime's share ended without being taken off `refs` */
    uint8_t flags;             /* set at submission: enum timeout_flags */
    uint8_t place;             /* worker: enum timeout_place */
};

/* What it ends with, as one store writes it at submission: nobody else has it yet. */
struct timeout_end {
    uint32_t refs;
    uint8_t run, withdrawn, flags, place;
};
static_assert(offsetof(struct hwt_timeout, refs) + sizeof(struct timeout_end) == CACHE_LINE &&
                  offsetof(struct hwt_timeout, run) == offsetof(struct hwt_timeout, refs) + 4 &&
                  offsetof(struct hwt_timeout, place) == offsetof(struct hwt_timeout, refs) + 7,
              "both end alike");

static_assert(sizeof(struct hwt_timeout) == CACHE_LINE, "one timeout, one cache line");

/* The next one of those that are queued by `link`: notices, or what stop hands back. */
static inline hwt_timeout *timeout_next_linked(const hwt_timeout *timeout)
{
    ck_stack_entry_t *next = timeout->link.next;
    return next ? container_of(next, hwt_timeout, link) : NULL;
}

static inline unsigned timeout_lane(const hwt_timeout *timeout)
{
    return (unsigned)(timeout->stamp & ((1u << STAMP_LANE_BITS) - 1));
}

static inline void timeout_set_where(hwt_timeout *timeout, const void *where,
                                     enum timeout_place place)
{
    store_relaxed(&timeout->where, (uint64_t)(uintptr_t)where);
    timeout->place = (uint8_t)place;
}

/*
 * A timeout's address packed with 22 other bits into one word: blocks are 64 bytes, and user
 * addresses have 48 bits (the pool sees to it).
 */
#define PACKED_ADDRESS UINT64_C(0x0000ffffffffffc0)
#define PACKED_LOW     6
#define PACKED_BITS    22

static inline hwt_timeout *packed_timeout(uint64_t packed)
{
    return (hwt_timeout *)(uintptr_t)(packed & PACKED_ADDRESS);
}

static inline uint64_t packed_bits(uint64_t packed)
{
    return packed >> 48 << PACKED_LOW | (packed & ((1u << PACKED_LOW) - 1));
}

/* Of `bits`, the lowest 22. */
static inline uint64_t packed_make(const hwt_timeout *timeout, uint64_t bits)
{
    return (uint64_t)(uintptr_t)timeout | bits >> PACKED_LOW << 48 |
           (bits & ((1u << PACKED_LOW) - 1));
}

/* As it stands; others may be moving it, so nothing else is read on the strength of it. */
static inline uint64_t timeout_deadline(const hwt_timeout *timeout)
{
    return word_deadline(load_relaxed(&timeout->word));
}

/*
 * Every change of the word is acquire, so that whoever wins sees what the one before left behind;
 * release, so that the next one sees what this one did; and in one order with all others, so that a
 * guest who finds it pending comes before stop's look for guests (C6).
 */
static inline bool word_change(hwt_timeout *timeout, uint64_t *word, uint64_t deadline,
                               enum word_code code)
{
    return cas_seq(&timeout->word, word, word_make(deadline, code));
}

/*
 * No handle to it is left, and none can appear but inside its task: then whoever keeps the
 * runtime's share needs no read-modify-write. Acquire shows what was done with the handles before.
 */
static inline bool timeout_is_alone(const hwt_timeout *timeout)
{
    return load_acquire(&timeout->refs) == 1;
}

/* One run, no hook, no release. */
static inline bool timeout_is_plain(const hwt_timeout *timeout)
{
    return !(timeout->flags & (FLAG_EXTENDED | FLAG_PERIODIC | FLAG_RELEASE));
}

/* word_change, by whoever keeps the runtime's share. */
static inline bool word_change_by_keeper(hwt_timeout *timeout, uint64_t *word, uint64_t deadline,
                                         enum word_code code, bool alone)
{
    if (!alone)
        return word_change(timeout, word, deadline, code);
    store_relaxed(&timeout->word, word_make(deadline, code));
    return true;
}

/* ---- cancel: any thread with a reference ---- */
enum cancel_win {
    CANCEL_LOST,    /* ended already, or running for the last time */
    CANCEL_PENDING, /* won: withdraw it, or queue a notice */
    CANCEL_NUDGED,  /* won: its nudge will tell the worker */
    CANCEL_RUNNING, /* won: no further run; whoever runs it buries it */
};
enum cancel_win timeout_cancel(hwt_timeout *timeout);
/* The common case alone: PENDING to CANCELLED. */
static inline bool timeout_cancel_pending(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (likely(word_code(word) == WORD_PENDING)) {
        if (likely(word_change(timeout, &word, word_deadline(word), WORD_CANCELLED)))
            return true;
    }
    return false;
}

/* Expired or cancelled: nothing will change that. */
static inline bool timeout_has_ended(const hwt_timeout *timeout)
{
    return word_code(load_acquire(&timeout->word)) >= WORD_EXPIRED;
}

/* ---- move: any thread with a reference, except from inside its own task ---- */
enum move_win {
    MOVE_LOST,
    MOVE_DONE,    /* later: the worker will see when the old deadline comes up */
    MOVE_NUDGE,   /* earlier: queue a nudge, then compare with the worker's wake-up */
    MOVE_COMPARE, /* a nudge is on its way: only tell, and compare */
};
static inline enum move_win timeout_move(hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        bool earlier = deadline < word_deadline(word);
        enum word_code code = word_code(word);
        enum word_code to = code;
        enum move_win win = MOVE_DONE;

        if (code == WORD_PENDING && earlier) {
            to = WORD_NUDGED;
            win = MOVE_NUDGE;
        } else if (code == WORD_NUDGED) {
            win = MOVE_COMPARE; /* later too: who nudged it may not have told anybody yet (C15) */
        } else if (code != WORD_PENDING) {
            return MOVE_LOST;
        }
        /* seq_cst: the comparison with the wake-up that follows must not come first (C4) */
        if (likely(cas_seq(&timeout->word, &word, word_make(deadline, to))))
            return win;
    }
}

/* Can it be moved? Seq_cst: by a guest, who has signed in before (C6). */
static inline bool timeout_is_pending(const hwt_timeout *timeout)
{
    return word_code(load_seq(&timeout->word)) <= WORD_NUDGED;
}

/* In the slot of a lane: pending it stays, then MOVE_DONE. Otherwise MOVE_LOST or MOVE_COMPARE. */
static inline enum move_win timeout_move_unmet(hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) <= WORD_NUDGED) {
        enum move_win win = word_code(word) == WORD_NUDGED ? MOVE_COMPARE : MOVE_DONE;
        if (likely(cas_seq(&timeout->word, &word, word_make(deadline, word_code(word)))))
            return win;
    }
    return MOVE_LOST;
}
/* It has left the slot meanwhile. True: the caller owes a nudge. */
static inline bool timeout_nudge(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_PENDING) {
        if (cas_seq(&timeout->word, &word, word_make(word_deadline(word), WORD_NUDGED)))
            return true;
    }
    return false;
}

/* ---- the worker (or whoever acts as the worker) ---- */
enum claim {
    CLAIM_WON,   /* the word is RUNNING (or DISPATCHED) now */
    CLAIM_LATER, /* its deadline was moved: file it again */
    CLAIM_LEFT,  /* cancelled or nudged: its notice or nudge is on its way */
};
static inline enum claim timeout_claim(hwt_timeout *timeout, uint64_t now, enum word_code code)
{
    bool alone = timeout_is_alone(timeout);
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        if (unlikely(word_code(word) != WORD_PENDING))
            return CLAIM_LEFT;
        if (unlikely(word_deadline(word) > now))
            return CLAIM_LATER;
        if (likely(word_change_by_keeper(timeout, &word, word_deadline(word), code, alone)))
            return CLAIM_WON;
    }
}
/*
 * Takes a nudge in, if its word still is *word; otherwise that is what it is now: it may have been
 * moved once more, or cancelled. From then on it may be moved later by who tells nobody (C15).
 */
bool timeout_take_nudge(hwt_timeout *timeout, uint64_t *word);
/* Ends it for stop. False: somebody else ended it, or its notice or nudge must arrive first. */
bool timeout_reclaim(hwt_timeout *timeout);

/* ---- whoever runs the task ---- */
/* DISPATCHED to RUNNING. False: cancelled meanwhile. */
bool timeout_begin(hwt_timeout *timeout);
/* From inside the task: RUNNING or REARMED to REARMED. */
bool timeout_rearm(hwt_timeout *timeout, uint64_t deadline);
enum finish {
    FINISH_EXPIRED,
    FINISH_AGAIN,     /* pending again (word code `again`) */
    FINISH_CANCELLED, /* cancelled while it ran */
};
/* `next`: the deadline of a periodic one's next run. */
enum finish timeout_finish(hwt_timeout *timeout, uint64_t next, enum word_code again);

/* The run is over: let cancel_sync go on. The runner still holds a reference. */
void timeout_run_over(hwt_timeout *timeout);
/* Returns when no run is on. The caller holds a reference. */
void timeout_await_run(hwt_timeout *timeout);

/* ---- references ---- */
/* Drops one; true: it was the last, the caller frees the block. */
static inline bool timeout_drop(hwt_timeout *timeout)
{
    /*
     * Alone, nobody else can touch it: no read-modify-write is needed. Acquire pairs with the
     * release of those who dropped before. `withdrawn` stands for a share of the runtime that is
     * over but still counted in `refs`; whoever sets it holds a reference, so it is settled when
     * only two are left. All is read before the reference is given up: after that the block may be
     * somebody else's.
     */
    uint32_t refs = load_acquire(&timeout->refs);

    do {
        if (refs == 1 || (refs == 2 && load_acquire(&timeout->withdrawn)))
            return true;
    } while (!cas_acq_rel(&timeout->refs, &refs, refs - 1));
    return false;
}

#endif
