/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: how timeouts and notices travel from any thread to the worker, without a lock and, in the
 * steady state, without a cache line that two producers write.
 *
 * There is a lane per CPU: a ring of slots. Submission puts the timeout into the next slot, if that
 * is empty, with one compare-and-swap; cancellation takes it out again with another one. Such a
 * timeout was withdrawn: the worker never saw it, and its memory is free at once. Because a slot is
 * only ever filled when empty, nothing has to be advanced behind the producers: the positions
 * simply go round, and a long-lived timeout in the way is stepped over.
 *
 * Nor is there a counter that every call would have to raise: a slot counts how often it was
 * emptied, in the bits that its pointer leaves free, and reading the counters adds those up. So
 * scheduling and withdrawing cost three atomic read-modify-writes together: the slot, the word,
 * the slot.
 *
 * The worker empties a lane when
 *  - the earliest deadline submitted to it since the last sweep comes up (lane_sweep),
 *  - a producer found it crowded: then it takes the older half (lane_sweep_older), or
 *  - the timer is stopped (lane_sweep_all);
 * and takes a single timeout out of it whose deadline was moved earlier (lane_take_back).
 * A flag per group of slots tells which groups were filled since the last sweep. What is cancelled
 * before a sweep costs the worker nothing at all.
 *
 * A producer that finds no empty slot in a few steps pushes the timeout on the lane's spill.
 * Notices (a cancellation that came too late to withdraw, a deadline moved earlier, a run on an
 * executor that is over) go on the notice stack of the lane of the CPU that the sender runs on.
 */
#ifndef HWT_LANE_H
#define HWT_LANE_H

#include "park.h"
#include "timeout.h"

#define LANE_SLOTS  (1u << LANE_BITS)
#define LANE_MASK   (LANE_SLOTS - 1)
#define LANE_GROUPS (LANE_SLOTS / GROUP_SLOTS)

#define LANES_MAX (1u << (31 - LANE_BITS))

/*
 * A slot holds the packed address of a timeout, or 0, and with it a count of how often the slot was
 * emptied, which also keeps a late compare-and-swap from mistaking one filling for another.
 */
static inline uint64_t slot_emptied(uint64_t slot)
{
    return packed_make(NULL, packed_bits(slot) + 1);
}

/* `where` of a timeout in a slot: lane and slot, told from an address by the lowest bit. */
static inline uint64_t where_of_origin(uint32_t origin)
{
    return (uint64_t)origin << 1 | 1;
}

/* False: it is in no slot of a lane. */
static inline bool origin_of_where(uint64_t where, uint32_t *origin)
{
    *origin = (uint32_t)(where >> 1);
    return where & 1;
}

/*
 * In place of the address while the worker is between taking a timeout out and counting that: the
 * low bit of its group's count before. No timeout lies at so low an address.
 */
static inline uint64_t slot_being_taken(uint64_t emptied, uint64_t taken)
{
    return emptied | ((taken & 1) + 1) << PACKED_LOW;
}

/* Being taken, and not among so many yet? */
static inline bool slot_is_beyond(uint64_t slot, uint64_t taken)
{
    return (slot & PACKED_ADDRESS) == ((taken & 1) + 1) << PACKED_LOW;
}

static inline bool slot_is_held(uint64_t slot)
{
    return (slot & PACKED_ADDRESS) > UINT64_C(2) << PACKED_LOW;
}

struct lane {
    /* written by the producers on this CPU at every submission */
    alignas(CACHE_PAIR) _Atomic uint64_t tail; /* the next position; a hint, which may go astray */
    _Atomic uint64_t *ring;                    /* never changes */

    /* read at every submission; written by the worker's sweeps and by ever earlier deadlines */
    alignas(CACHE_PAIR) _Atomic uint64_t earliest; /* of what was submitted since the last sweep */
    _Atomic uint32_t closed;                       /* by stop, for good */
    _Atomic uint32_t crowded;                      /* producers ask for space */

    /* written by the cancellers on this CPU, when they come too late to withdraw */
    alignas(CACHE_PAIR) ck_stack_t notices;
    _Atomic uint64_t notices_sent;
    _Atomic uint64_t moved;     /* the earliest deadline that the nudges among them speak of */
    _Atomic uint64_t cancelled; /* otherwise than by withdrawing */

    /* written rarely, or by whoever runs tasks on an executor's threads */
    alignas(CACHE_PAIR) ck_stack_t spill;
    _Atomic uint64_t spilled;  /* submitted to the spill without having been in a slot */
    _Atomic uint32_t spilling; /* producers that are about to, or have just done so */
    _Atomic uint64_t carried;  /* what the slots' counts could not hold */
    _Atomic uint64_t refused;  /* emptied by their own submitter, because the lane was closed */
    _Atomic uint64_t rejected; /* refused at max_pending or by the executor */
    _Atomic uint64_t runs;     /* on an executor's threads */
    _Atomic uint64_t expired;  /* on an executor's threads */

    /* written by the worker, who takes timeouts out of the slots: how many, by group */
    alignas(CACHE_PAIR) _Atomic uint64_t taken[LANE_GROUPS];

    /* written once per group and sweep */
    alignas(CACHE_PAIR) _Atomic uint32_t groups_used; /* groups above were never filled */
    _Atomic uint8_t fresh[LANE_GROUPS];               /* 1: filled since the last sweep */
};

struct lanes {
    struct lane *lane; /* never changes */
    unsigned count;    /* a power of two */
    void *memory;
};

int lanes_create(struct lanes *lanes, unsigned cpus);
void lanes_destroy(struct lanes *lanes);

static inline unsigned lanes_index_here(const struct lanes *lanes)
{
    return platform_cpu() & (lanes->count - 1);
}

static inline struct lane *lanes_here(const struct lanes *lanes)
{
    return &lanes->lane[lanes_index_here(lanes)];
}

/* ---- any thread ---- */

/*
 * Submits; the timeout is the worker's from here on. 0, or -ESHUTDOWN when closed. The caller then
 * compares the deadline with the planned wake-up (park_wake_for). *crowded: also wake the worker.
 */
int lane_submit(struct lanes *lanes, hwt_timeout *timeout, uint64_t deadline, bool *crowded);

/* Takes it out of the slot that it was submitted to. False: it is not there any more. */
static inline bool lane_withdraw(const struct lanes *lanes, const hwt_timeout *timeout)
{
    _Atomic uint64_t *slot;
    uint64_t held;
    uint32_t origin;

    if (unlikely(!origin_of_where(load_relaxed(&timeout->where), &origin)))
        return false;
    slot = &lanes->lane[origin >> LANE_BITS].ring[origin & LANE_MASK];
    held = load_relaxed(slot);
    return packed_timeout(held) == timeout && cas_acq_rel(slot, &held, slot_emptied(held));
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

/* ---- the worker ---- */

/*
 * What was found in a group of slots goes to `take`, which files it. The timeouts' lines are being
 * fetched and have not been touched.
 */
typedef void lane_take(void *context, hwt_timeout **found, unsigned count);

bool lane_has_mail(const struct lane *lane); /* notices or spill */
bool lane_has_notices(const struct lane *lane);
hwt_timeout *lane_take_notices(struct lane *lane); /* a chain by `link` */
hwt_timeout *lane_take_spill(struct lane *lane);   /* a chain by `spilled` */
hwt_timeout *lane_next_spilled(const hwt_timeout *timeout);
/* What lane_withdraw does, for the worker. */
bool lane_take_back(struct lanes *lanes, hwt_timeout *timeout);
/* After `earliest` was taken (C3). */
void lane_sweep(struct lane *lane, lane_take *take, void *context);
void lane_sweep_older(struct lane *lane, lane_take *take, void *context);

/* ---- stop ---- */
void lane_close(struct lane *lane);
/* Every slot. False: a producer is still on its way to the spill, look again. */
bool lane_sweep_all(struct lane *lane, lane_take *take, void *context);

/* ---- counting: any thread; looks at every slot that was ever used ---- */
struct lane_tally {
    uint64_t scheduled; /* accepted */
    uint64_t withdrawn; /* cancelled before the worker saw them; part of the above */
};
struct lane_tally lane_count(const struct lane *lane);
/* Does it hold a timeout that the worker has not met? Looks as far as the first one. */
bool lane_holds_any(const struct lane *lane);

#endif
