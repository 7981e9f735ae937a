/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whom a crowded bucket has first. To look through it costs some nanoseconds for each that it
 * holds: too much for every change of its first, as when requests are answered in the order in
 * which they were sent. So the first of them all are noted in one go, and who is filed before the
 * last of these is noted, too. The worker's own, as the wheel is.
 *
 *   K1 Of what the bucket holds, all that is due before `beyond` is noted, unless it has been
 *      nudged: then it is filed again.
 *   K2 A deadline that is noted is the one it has, or it has been moved later since.
 *   K3 What is noted may have left since: then its slot does not hold it (S3). Or it does, but is
 *      another bucket's by now: then it is due before this one's bound; or whoever asks finds it as
 *      the earliest of all, which it is, under the wrong name.
 */
#ifndef HWT_CROWD_H
#define HWT_CROWD_H

#include "bucket.h"

struct crowd {
    struct bucket *bucket;              /* NULL: none */
    uint64_t beyond;                    /* K1 */
    size_t walked;                      /* slots, to find one at a time, since all were noted */
    unsigned first, count;              /* of ... */
    struct sighting noted[CROWD_NOTED]; /* ... these, by deadline */
};

static inline void crowd_forget(struct crowd *crowd)
{
    crowd->bucket = NULL;
    crowd->first = crowd->count = 0;
    crowd->walked = 0;
}

void crowd_correct(struct crowd *crowd, _Atomic uint64_t *slot, uint64_t packed);
/* One that is about to be in this slot. */
static inline void crowd_follow(struct crowd *crowd, _Atomic uint64_t *slot, uint64_t packed)
{
    if (crowd->bucket && timeout_deadline(packed_timeout(packed)) <= crowd->beyond)
        crowd_correct(crowd, slot, packed);
}

/* Filed into its bucket, and due before `beyond`. */
void crowd_note(struct crowd *crowd, struct sighting filed);
/*
 * Whom the bucket has with its earliest deadline, and that is exact from then on; `key`: that of
 * the bound so far.
 */
struct sighting crowd_first(struct crowd *crowd, struct bucket *bucket, struct chunk_store *store,
                            uint64_t key);

/* Debug builds: K1 and K2. */
void crowd_check(const struct crowd *crowd);

#endif
