/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: the slots of a lane (lane.h), and how they become more and fewer.
 *
 * They stand in a ring, which grows behind a segment whose finder saw none with room. Their
 * addresses stay for as long as the timer lives: a late canceller may look at a slot. When few
 * timeouts are left in a lane, segments retire: producers go past them, and a part of one that is
 * empty gives its pages back. Meanwhile the part's slots are closed, so that none can be filled
 * when its page goes; what is filled afterwards is filled as ever, and found as ever.
 *
 * To look for room and to see whether few are left is the producers' work: a bounded piece of it, a
 * few segments of the ring whenever one has gone through a segment, each going on where the last
 * one ended (struct survey). So no call takes longer because much is pending, or was. To give back
 * is the worker's, or a producer's who has gone through a part (house.h).
 */
#ifndef HWT_SEGMENT_H
#define HWT_SEGMENT_H

#include "timeout.h"

#define LANE_SLOTS  (1u << LANE_BITS)
#define LANE_MASK   (LANE_SLOTS - 1)
#define LANE_GROUPS (LANE_SLOTS / GROUP_SLOTS)
#define FRESH_WORDS ((LANE_GROUPS + 63) / 64)

/*
 * A slot holds the packed address of a timeout, or 0, and with it a count of how often the slot was
 * emptied, which also keeps a late compare-and-swap from mistaking one filling for another.
 *
 * One that the worker has met already may come back to a lane, when it is moved earlier. It was
 * counted when it left its first slot: it is marked, and neither filling nor emptying counts.
 */
#define SLOT_MET        (UINT64_C(1) << 63)
#define SLOT_COUNT_BITS (PACKED_BITS - 1)

static_assert(SLOT_COUNT_MAX >> SLOT_COUNT_BITS == 0, "a slot has so many bits for its count");

static inline uint64_t slot_count(uint64_t slot)
{
    return packed_bits(slot & ~SLOT_MET);
}

static inline uint64_t slot_emptied(uint64_t slot)
{
    /* with ones in place of the address, what the low bits carry gets to the high ones */
    uint64_t count = (slot | PACKED_ADDRESS) & ~SLOT_MET;
    return (count + !(slot & SLOT_MET)) & ~(PACKED_ADDRESS | SLOT_MET);
}

typedef _Atomic uint64_t lane_slot;

/* `where` of a timeout in a slot of a lane: its address, told from others by the lowest bit. */
static inline uint64_t where_of_lane_slot(const lane_slot *slot)
{
    return (uint64_t)(uintptr_t)slot | 1;
}

static inline bool where_is_lane_slot(uint64_t where)
{
    return where & 1;
}

/* NULL: it is in no slot of a lane. */
static inline lane_slot *lane_slot_of_where(uint64_t where)
{
    return where_is_lane_slot(where) ? (lane_slot *)(uintptr_t)(where - 1) : NULL;
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

/* In place of the address while its count leaves it, or its page goes back: nobody can fill it. */
#define SLOT_CLOSED (UINT64_C(3) << PACKED_LOW)

static inline bool slot_is_closed(uint64_t slot)
{
    return (slot & PACKED_ADDRESS) == SLOT_CLOSED;
}

/* By who is `releasing`, if it is empty: adds what it has counted. False: it is not. */
static inline bool slot_close(_Atomic uint64_t *slot, uint64_t *counts)
{
    uint64_t empty = load_relaxed(slot);

    if ((empty & PACKED_ADDRESS) || !cas_acq_rel(slot, &empty, empty | SLOT_CLOSED))
        return false;
    *counts += slot_count(empty);
    return true;
}

static inline bool slot_is_held(uint64_t slot)
{
    return (slot & PACKED_ADDRESS) > SLOT_CLOSED;
}

/*
 * Slots, and what is known of them. It ends where a region of SEGMENT_SIZE bytes, aligned to that,
 * ends: so it is found by the address of one of its slots, and its end by that of the last.
 */
#define SEGMENT_SIZE ((size_t)1 << SEGMENT_BITS)

struct segment {
    /* read at every submission; written by the worker's sweeps and by ever earlier deadlines */
    alignas(CACHE_PAIR) _Atomic uint64_t earliest; /* of what was left, or submitted since */
    _Atomic(struct segment *) next;                /* the ring; changes when another comes behind */
    _Atomic(struct segment *) alike;               /* the same of those that are as far; a hint */
    _Atomic uint32_t retired;    /* 0, or producers go past it: its groups when it was, and one */
    bool far;                    /* never changes: for what is due much later */
    bool whole;                  /* never changes: all of its pages were there before */
    struct lane *lane;           /* never changes: whose it is */
    struct segment_store *store; /* never changes */

    /* written by the worker, who takes timeouts out of the slots: how many, by group */
    alignas(CACHE_PAIR) _Atomic uint64_t taken[LANE_GROUPS];
    uint64_t swept;             /* the worker's: when, last */
    bool leaves;                /* the worker's: this look leaves what it sees the first time */
    uint8_t looks[LANE_GROUPS]; /* the worker's: sweeps that have left some of the group, ... */
    uint16_t withdrawn[LANE_GROUPS]; /* ... and how many had been withdrawn at the last: low bits */

    /* written once per group and sweep */
    alignas(CACHE_PAIR) _Atomic uint32_t groups_used; /* groups above were never filled */
    _Atomic uint64_t fresh[FRESH_WORDS]; /* by group, a bit: may hold some that a sweep looks for */

    /* written rarely, by who is `releasing`; `released` also by who retires it, or comes there */
    alignas(CACHE_PAIR) _Atomic uint64_t carrying; /* see segment_carry */
    _Atomic uint64_t carried[2];                   /* what the slots do not count; one is valid */
    _Atomic uint32_t releasing;                    /* somebody takes counts out of slots */
    _Atomic uint32_t released;                     /* parts whose pages went: segment_enter_part */
    uint32_t part;                                 /* the next one */

    alignas(CACHE_PAIR) lane_slot slot[LANE_SLOTS];
};

/* Where the slots end, in a region: mostly where it does. */
#define SEGMENT_END                                                                                \
    ((SEGMENT_SIZE - sizeof(struct segment) + offsetof(struct segment, slot) +                     \
      LANE_SLOTS * sizeof(lane_slot)) %                                                            \
     SEGMENT_SIZE)

static inline bool segment_ends_at(const lane_slot *slot)
{
    return ((uintptr_t)slot & (SEGMENT_SIZE - 1)) == SEGMENT_END;
}

/* Slots whose pages go back together; they end where such a piece of memory does. */
#define PART_SIZE     (RELEASE_SLOTS * sizeof(lane_slot))
#define SEGMENT_PARTS (LANE_SLOTS / RELEASE_SLOTS)

static inline bool segment_part_ends_at(const lane_slot *slot)
{
    return ((uintptr_t)slot & (PART_SIZE - 1)) == SEGMENT_END % PART_SIZE;
}

/* How far behind the first slot, and so many times all slots: they are a power of two of bytes. */
static inline size_t segment_bytes_at(const lane_slot *slot)
{
    return (uintptr_t)slot - SEGMENT_END;
}

static inline unsigned segment_group_of(const lane_slot *slot)
{
    return segment_bytes_at(slot) / (GROUP_SLOTS * sizeof *slot) % LANE_GROUPS;
}

static inline struct segment *segment_in(uintptr_t region)
{
    return (struct segment *)(region + SEGMENT_SIZE - sizeof(struct segment));
}

static inline struct segment *segment_of(const lane_slot *slot)
{
    return segment_in((uintptr_t)slot & ~(uintptr_t)(SEGMENT_SIZE - 1));
}

/* ---- the flags of its groups, bits of words: a sweep finds the few that are up (C2) ---- */

static inline bool segment_flag_is_up(const struct segment *segment, unsigned group)
{
    return load_seq(&segment->fresh[group / 64]) >> group % 64 & 1;
}

/* That of this slot's group; in as few steps as can be, because every submission asks. */
static inline bool segment_slot_is_flagged(const lane_slot *slot)
{
    size_t group = segment_bytes_at(slot) / (GROUP_SLOTS * sizeof *slot); /* and whole segments */
    const _Atomic uint64_t *fresh = segment_of(slot)->fresh;

    return load_seq(&fresh[group / 64 % FRESH_WORDS]) >> group % LANE_GROUPS % 64 & 1;
}

static inline void segment_raise_flag(struct segment *segment, unsigned group)
{
    or_seq(&segment->fresh[group / 64], UINT64_C(1) << group % 64);
}

static inline void segment_take_flag_down(struct segment *segment, unsigned group)
{
    and_seq(&segment->fresh[group / 64], ~(UINT64_C(1) << group % 64));
}

/* The first one from `group` on, and before `end`, whose flag is up; or `end`. */
static inline unsigned segment_next_fresh(const struct segment *segment, unsigned group,
                                          unsigned end)
{
    while (group < end) {
        uint64_t up = load_seq(&segment->fresh[group / 64]) >> group % 64;
        if (up)
            return group + (unsigned)__builtin_ctzll(up) < end
                       ? group + (unsigned)__builtin_ctzll(up)
                       : end;
        group = (group / 64 + 1) * 64;
    }
    return end;
}

/*
 * Regions are mapped by the bunch: each time costs the threads that meet pages meanwhile, and pages
 * that nobody meets are only addresses.
 */
struct bunch {
    char *regions; /* never changes, as `count` and `before` */
    size_t count;
    struct bunch *before; /* the one that was mapped before, or NULL */
    _Atomic size_t used;  /* so many of them, or more; raised by producers that need one */
};

static_assert(sizeof(struct bunch) + sizeof(struct segment) <= SEGMENT_SIZE,
              "a segment fits into its region, behind what describes the bunch");

struct segment_store {
    struct bunch first; /* the first segments of all lanes, in their places; what was reserved */
    _Atomic(struct bunch *) newest; /* changed by who finds no region left */
    _Atomic(char *) ready;          /* the worker's: the region that has its pages already, last */

    /* the groups of all far segments that are in use, as far as they were ever filled */
    alignas(CACHE_PAIR) _Atomic uint32_t far_groups; /* written when one is for the first time */
};

/* So many regions, the first ones for the first segments of lanes. 0 or -ENOMEM. */
int segment_store_create(struct segment_store *store, size_t firsts, size_t count);
/* By who destroys the lanes: all segments go with it. */
void segment_store_destroy(struct segment_store *store);

/*
 * The region of the next new segment. Any thread: has it been mapped, and its pages met? A hint.
 * The worker: sees to that. False: it was, or there is no memory.
 */
bool segment_is_ready(const struct segment_store *store);
bool segment_make_ready(struct segment_store *store);

/* A new one, a ring of itself. NULL: no memory. */
struct segment *segment_create(struct segment_store *store, struct lane *lane, bool far);
/* The same in its place among the first ones, by whoever makes that lane. */
struct segment *segment_create_first(struct segment_store *store, size_t index, struct lane *lane,
                                     bool far);
/* Into the ring of `here`, behind it. */
void segment_link(struct segment *here, struct segment *segment);

/* ---- producers ---- */

/* The next one of its ring; one that was linked in before a slot of it was filled is seen (C6). */
static inline struct segment *segment_next(const struct segment *segment)
{
    return load_seq(&segment->next);
}

/*
 * How far the producers of a lane have looked round its near, or its far, segments, a few with each
 * lap; those of a stretch (SURVEY_MOST) are decided on together. Hints, and in the producers' line.
 */
struct survey {
    _Atomic(struct segment *) at;      /* looked at last */
    _Atomic(struct segment *) leaving; /* a retired one that may have pages to give back, or NULL */
    /* of the stretch that is being looked at: so many have been, what they had, one in use */
    _Atomic uint32_t steps, in_use, taken;
    _Atomic(struct segment *) last;
};

/* Those that are as far as `here` alone: a new one, linked in behind it. NULL: no memory. */
struct segment *segment_add(struct segment_store *store, struct segment *here);
/* One of the next few that are in use and have room. NULL: none; one that was retired, or NULL. */
struct segment *segment_with_room(struct survey *survey, struct segment **retired);
/* That one in use again, or a new one behind `here`. NULL: no memory. */
struct segment *segment_more(struct segment_store *store, struct segment *here,
                             struct segment *retired);
/*
 * By who comes from another lane: if the ring has grown, one that has room, and pages, in use;
 * one of *looks, where its survey is, of which those that were looked at are taken off. NULL: none.
 */
struct segment *segment_for_another(const struct segment *here, struct survey *survey,
                                    unsigned *looks);
/* From so many groups of far segments to so many: enough to be told of, once for each doubling? */
static inline bool segment_doubled(uint32_t before, uint32_t groups)
{
    return groups >= AHEAD_FROM && groups > before && (before ^ groups) > before;
}

/* So many groups, from the first on, have been filled by now. True: it is to be told (above). */
bool segment_raise_groups(struct segment *segment, uint32_t groups);
/* By who comes to the first slot of a part: if its pages have gone meanwhile, they come back. */
void segment_enter_part(lane_slot *first);
/* How many slots are taken, of SAMPLES that are looked at. */
unsigned segment_sample(const struct segment *segment);
/* By who has come to this one: is it the middle, and half of them are taken? */
static inline bool segment_is_crowded_so_far(const lane_slot *slot)
{
    const struct segment *segment = segment_of(slot);
    return slot == &segment->slot[LANE_SLOTS / 2] && segment_sample(segment) >= SAMPLES_TAKEN;
}
/* Where to go on after the last slot of `here`; looks whether few are left, a little further. */
struct segment *segment_after(struct segment *here, struct survey *survey);
/* Any thread: is there anything to give back, perhaps? */
static inline bool segment_is_leaving(const struct survey *survey)
{
    return load_acquire(&survey->leaving) != NULL;
}
/* Any thread: gives back up to so many parts of what is leaving. False: none went. */
bool segment_give_back(struct survey *survey, unsigned most);

/* ---- counting: any thread ---- */
struct segment_tally {
    uint64_t emptied, held, taken;
    uint64_t leaving; /* of the taken ones: they may yet be left where they are (C20) */
};

/*
 * By who is `releasing`: so much more is carried (or less, modulo 2^64), and closed slots of these
 * parts count no more; at one moment (C23).
 */
void segment_carry(struct segment *segment, uint32_t parts, uint64_t more);
/*
 * Any thread: an empty slot has counted as far as it can. All empty ones of its part begin anew:
 * those beside it have counted as much. False: somebody else takes counts out of slots.
 */
bool segment_carry_part(const lane_slot *full);
void segment_count(const struct segment *segment, struct segment_tally *sum);
/* Does any slot hold one? */
bool segment_holds_any(const struct segment *segment);
/*
 * Does the slot hold one that has not ended? What is cancelled, and still there, is left to its
 * notice (C20). Any thread: the block may be free by now, but is never unmapped.
 */
bool segment_slot_is_pending(const lane_slot *slot);
/* The first one that does; NULL: none. */
const lane_slot *segment_first_pending(const struct segment *segment);

#endif
