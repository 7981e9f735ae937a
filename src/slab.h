/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the pool's blocks come from: slabs, each carved from the front by whole batches. Their
 * addresses are never unmapped; a slab of which every block is free again can be vacated: its pages
 * go back to the system, and it is carved anew.
 */
#ifndef HWT_SLAB_H
#define HWT_SLAB_H

#include "timeout.h"

#define SLAB_BATCH 32

/* A chain by `link.next` of up to SLAB_BATCH blocks, *count in all; NULL: no memory. Any thread. */
hwt_timeout *slab_take(uint32_t *count);

/* Nobody grows or surveys meanwhile: around a survey, and a fork. */
void slab_lock(void);
void slab_unlock(void);

/* Which slabs are all free? Under the lock; the caller holds every free block in hand. */
struct slab_survey {
    struct slab **sorted; /* by address; all there are */
    size_t count;
};
/* False: so few slabs that it is not worth while, or no memory for it. */
bool slab_survey_open(struct slab_survey *survey);
/* True: the free ones are all that was ever handed out, so every slab is free. */
bool slab_all_free(struct slab_survey *survey, size_t free);
/* Otherwise, of each of them: counts it; then, with all counted: is its whole slab free? */
void slab_count_free(const struct slab_survey *survey, const hwt_timeout *block);
bool slab_is_free(const struct slab_survey *survey, const hwt_timeout *block);
/* Vacates the free slabs: their blocks must be forgotten. */
void slab_survey_close(struct slab_survey *survey);

#endif
