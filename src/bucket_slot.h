/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A slot of a bucket (bucket.h): the worker fills it, and he or a canceller empties it.
 *
 * It packs a timeout's address with 21 bits of its deadline, the `key`, so that what is due can
 * be brought into a rough order without touching the timeouts (agenda.h).
 *
 * A timeout's `where` is the address of the slot that holds it. By that a canceller who has won the
 * word takes it out himself (bucket_withdraw): its block is free at once, and the worker is told
 * nothing. All else here is the worker's. The rules:
 *   S1 Only the worker fills a slot, last of all that he does with the timeout.
 *   S2 A slot is emptied by one atomic exchange or compare-and-swap, by the worker or a canceller.
 *      Whoever emptied it has the timeout; nobody else touches it, but for a look at its word. Who
 *      finds it empty does so with acquire: stop, which then frees what it lies in, has waited for
 *      the canceller that way.
 *   S3 What such a look has read counts only if the slot still holds the timeout afterwards. Then,
 *      by S1, it was there all the time. (A block is never unmapped.)
 *   S4 A timeout that is alone (timeout_is_alone) when it is filed, and still as it was met, is
 *      marked in its slot. It gets a handle in its own task, when it is in no slot, or from a
 *      visitor, who is shown it out of its slot, and may move it without one: either way it comes
 *      back without the mark. So nobody but the worker empties a slot with a mark, or changes the
 *      word, whose deadline is the key's; he needs no read-modify-write for it, nor for a look; and
 *      on a rung of the ladder its `where` may be stale (ladder.h). With an executor a task runs
 *      while its timeout lies in a bucket: there is no mark in that one.
 */
#ifndef HWT_BUCKET_SLOT_H
#define HWT_BUCKET_SLOT_H

#include "timeout.h"

/* ---- what stands there ---- */

/*
 * The bits are a key, the lowest 21 bits of what is given, and this one: nobody but the worker will
 * empty the slot (S4).
 */
#define PACKED_ALONE UINT64_C(0x8000000000000000)
#define KEY_BITS     (PACKED_BITS - 1)

static inline uint64_t packed_of_key(const hwt_timeout *timeout, uint64_t key)
{
    return packed_make(timeout, key) & ~PACKED_ALONE;
}

/* The key as a number that counts from `from`, modulo 2^21. */
static inline uint64_t packed_key_from(uint64_t packed, uint64_t from)
{
    return (packed_bits(packed) - from) & ((UINT64_C(1) << KEY_BITS) - 1);
}

/*
 * S4, of one that is filed by that deadline. The references first: whoever gave up his may have
 * cancelled or moved it since the worker met it.
 */
static inline bool deserves_mark(const hwt_timeout *timeout, uint64_t deadline)
{
    return timeout_is_alone(timeout) &&
           load_relaxed(&timeout->word) == word_make(deadline, WORD_PENDING);
}

/* What is filed by that deadline, with the mark if that is due. */
static inline uint64_t packed_filed(const hwt_timeout *timeout, uint64_t deadline, uint64_t key)
{
    return packed_of_key(timeout, key) | (deserves_mark(timeout, deadline) ? PACKED_ALONE : 0);
}

/* ---- filling, emptying, looking ---- */

/* `where` of a timeout in a bucket's slot. Of one in a lane's the lowest bit is set (lane.h). */
static inline uint64_t where_of_slot(_Atomic uint64_t *slot)
{
    return (uint64_t)(uintptr_t)slot | 2;
}

/* NULL: it is in none. */
static inline _Atomic uint64_t *slot_of_where(uint64_t where)
{
    return (where & 3) == 2 ? (_Atomic uint64_t *)(uintptr_t)(where & ~UINT64_C(3)) : NULL;
}

/* S1. From here on the timeout may be gone at any moment. */
static inline void slot_fill(_Atomic uint64_t *slot, uint64_t packed, enum timeout_place place)
{
    hwt_timeout *timeout = packed_timeout(packed);

    timeout->place = (uint8_t)place;
    store_release(&timeout->where, where_of_slot(slot)); /* with it, the chunk's memory */
    store_release(slot, packed);                         /* pairs with whoever empties it */
}

/* S2. The packed timeout, which is the caller's from here on; 0: it was a hole. */
static inline uint64_t slot_empty(_Atomic uint64_t *slot)
{
    uint64_t packed = load_acquire(slot);

    if (!(packed & PACKED_ALONE))
        return packed ? exchange_acq_rel(slot, 0) : 0;
    store_relaxed(slot, 0); /* S4 */
    return packed;
}

/*
 * S3. A look at the slot alone would not do: a read-modify-write comes before the emptying, or
 * finds it, and if it comes before, so does all that was read until now. A look that finds it
 * emptied acquires that, too: the worker may find the bucket empty by it, and stop go by that (C6).
 */
static inline bool slot_still_holds(_Atomic uint64_t *slot, uint64_t packed)
{
    uint64_t held = packed;

    if (load_acquire(slot) != packed)
        return false;
    return packed & PACKED_ALONE || cas_acq_rel(slot, &held, packed); /* S4 */
}

/* A timeout as it was seen in its slot: slot_still_holds tells whether it is there still. */
struct sighting {
    _Atomic uint64_t *slot; /* NULL: of none */
    uint64_t packed;
    uint64_t deadline;
};

/*
 * Any thread that has won the word from PENDING or DISPATCHED: takes it out of its bucket. False:
 * it is in none, or on its way from one slot to another. True: the worker has no part in it any
 * more, and nothing of the timer may be touched (C6).
 */
static inline bool bucket_withdraw(const hwt_timeout *timeout)
{
    _Atomic uint64_t *slot = slot_of_where(load_acquire(&timeout->where));
    uint64_t held;

    if (unlikely(!slot))
        return false;
    held = load_relaxed(slot);
    return packed_timeout(held) == timeout && cas_acq_rel(slot, &held, 0);
}

#endif
