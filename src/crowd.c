/* SPDX-License-Identifier: BSD-2-Clause */
#include "crowd.h"

#define WALKS 8 /* through as many as a bucket has, until all are noted */

void crowd_correct(struct crowd *crowd, _Atomic uint64_t *slot, uint64_t packed)
{
    for (unsigned i = crowd->first; i < crowd->count; i++) {
        if (crowd->noted[i].packed == packed)
            crowd->noted[i].slot = slot;
    }
}

static void drop_last(struct crowd *crowd)
{
    crowd->count--;
    crowd->beyond = crowd->noted[crowd->count - 1].deadline;
}

void crowd_note(struct crowd *crowd, struct sighting filed)
{
    struct sighting *noted = crowd->noted;
    unsigned i = crowd->first;

    if (i > 0) { /* those before it move up */
        for (crowd->first--; i < crowd->count && noted[i].deadline <= filed.deadline; i++)
            noted[i - 1] = noted[i];
        noted[i - 1] = filed;
        return;
    }
    if (crowd->count == CROWD_NOTED)
        drop_last(crowd);
    if (filed.deadline >= crowd->beyond)
        return;
    for (i = crowd->count++; i > 0 && noted[i - 1].deadline > filed.deadline; i--)
        noted[i] = noted[i - 1];
    noted[i] = filed;
}

/* The first that is there, and has the deadline that is noted. False: none has. */
static bool find_noted(struct crowd *crowd)
{
    for (; crowd->first < crowd->count; crowd->first++) {
        struct sighting noted = crowd->noted[crowd->first];
        uint64_t deadline = timeout_deadline(packed_timeout(noted.packed)), before = noted.deadline;
        if (deadline < crowd->bucket->earliest || !slot_still_holds(noted.slot, noted.packed))
            continue; /* K3 */
        if (deadline == before)
            return true;
        if (deadline < before || deadline >= crowd->beyond)
            continue;
        noted.deadline = deadline;
        crowd->first++;
        crowd_note(crowd, noted);
        crowd->first--; /* the next is in its place */
    }
    return false;
}

static void note_one(struct crowd *crowd, struct sighting found)
{
    crowd->noted[0] = found;
    crowd->first = 0;
    crowd->count = 1;
    crowd->beyond = found.deadline;
}

static void note_all(struct crowd *crowd, struct bucket *bucket)
{
    crowd->first = 0;
    crowd->count = bucket_lowest(bucket, crowd->noted, CROWD_NOTED);
    crowd->beyond = crowd->count > 0 ? crowd->noted[crowd->count - 1].deadline : 0;
}

/*
 * One is enough when many have the deadline of the one before, and are found soon. But if it was
 * filed last, again and again, all would be gone through each time: then they are noted.
 */
static void look_for_first(struct crowd *crowd, struct bucket *bucket, struct chunk_store *store,
                           uint64_t key)
{
    struct sighting found = {NULL, 0, UINT64_MAX};

    if (crowd->walked <= (size_t)WALKS * bucket_at_most(bucket))
        found = bucket_find(bucket, store, key, &crowd->walked);
    if (found.slot && found.deadline == bucket->earliest) {
        note_one(crowd, found);
        return;
    }
    note_all(crowd, bucket);
    crowd->walked = 0;
}

struct sighting crowd_first(struct crowd *crowd, struct bucket *bucket, struct chunk_store *store,
                            uint64_t key)
{
    struct sighting found;

    if (crowd->bucket != bucket) {
        crowd_forget(crowd);
        crowd->bucket = bucket;
    }
    if (!find_noted(crowd))
        look_for_first(crowd, bucket, store, key);
    found = crowd->first < crowd->count ? crowd->noted[crowd->first]
                                        : (struct sighting){NULL, 0, UINT64_MAX};
    bucket->earliest = found.deadline;
    return found;
}

#ifdef HWT_DEBUG
/* ---- validator ---- */

static bool is_noted(const struct crowd *crowd, const _Atomic uint64_t *slot, uint64_t packed,
                     uint64_t deadline)
{
    for (unsigned i = crowd->first; i < crowd->count; i++) {
        const struct sighting *noted = &crowd->noted[i];
        if (noted->slot == slot && noted->packed == packed && noted->deadline <= deadline)
            return true;
    }
    return false;
}

static void check_slots(const struct crowd *crowd, _Atomic uint64_t *slot, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed = load_acquire(&slot[i]);
        uint64_t word = packed ? load_acquire(&packed_timeout(packed)->word) : 0;
        if (packed && word_code(word) == WORD_PENDING && word_deadline(word) < crowd->beyond)
            hwt_assert(is_noted(crowd, &slot[i], packed, word_deadline(word)) ||
                       !slot_still_holds(&slot[i], packed));
    }
}

void crowd_check(const struct crowd *crowd)
{
    const struct chunk *chunk;

    if (!crowd->bucket)
        return;
    check_slots(crowd, crowd->bucket->slot, BUCKET_INLINE);
    for (chunk = bucket_first_chunk(crowd->bucket); chunk;
         chunk = bucket_next_chunk(crowd->bucket, chunk))
        check_slots(crowd, (_Atomic uint64_t *)(uintptr_t)chunk->slot, ring_used(&chunk->ring));
    for (unsigned i = crowd->first; i < crowd->count; i++)
        hwt_assert(crowd->noted[i].deadline <= crowd->beyond &&
                   (i == crowd->first || crowd->noted[i - 1].deadline <= crowd->noted[i].deadline));
}
#endif
