/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the pool's blocks come from, and where free ones gather until a whole slab of them can be
 * given back. A slab is a stretch of memory, carved from the front by whole batches. Its addresses
 * are never unmapped; only its pages go back to the system.
 *
 * One word of a slab says everything about it, so that every step is one compare-and-swap:
 *
 *    used    how many batches are carved; CLOSED: somebody is vacating it
 *    home    how many of its blocks lie in its own list, in batches: they have come home
 *    first   the first batch of that list
 *    tag     how often the word was changed (C9)
 *
 * Blocks in circulation (in use, in a magazine, in a depot, in the hands of who sorts them) are
 * those carved and not at home: used * SLAB_BATCH - home. The steps, and who takes them:
 *
 *    carve   used + n             any thread: the new batches are in circulation, and its own
 *    fetch   home - n, next one   any thread: so is that one
 *    bring   home + n             whoever sorts free blocks: his to give
 *    claim   only if home == used * SLAB_BATCH: CLOSED, home and first 0
 *    reopen  used = 0             whoever claimed
 *
 * Why a claim is safe: at that very change of the word no block of the slab is in circulation, and
 * a closed slab is not carved, and has nothing to fetch or, with no block in circulation, to bring.
 * So from the claim to the reopening the word is the claimer's, and so is all of the memory. Every
 * change is acquire-release, and each reads the one before it: what an owner wrote into a block
 * before he gave it away comes before the claim, the claim before the pages go, and the reopening
 * (release) before the next carving (acquire). Too late is only who has read `first` and now reads
 * that block's word: it is atomic wherever it is used, its address stays readable, and his
 * compare-and-swap fails by the tag. test/model/slab.cc holds all of this.
 */
#ifndef HWT_SLAB_H
#define HWT_SLAB_H

#include "timeout.h"

struct slab;

/* Maps the first slab, unless that is done. 0 or -ENOMEM. */
int slab_prepare(void);

/*
 * Free blocks, for one CPU: a chain of them by `link.next`, and so many more chains, of SLAB_BATCH
 * each, that lie behind it in memory. What was never used comes by whole pages: where those of two
 * CPUs take turns in a page, each fetches lines ahead that the other one is about to write.
 */
struct slab_batches {
    hwt_timeout *first; /* NULL: no memory */
    uint32_t length;
    uint32_t more;
};
/* Any thread. `at_once`: how many batches are carved, if any are; a power of two. */
struct slab_batches slab_take(uint32_t at_once);
/* Any thread: one batch more, if there is one at home where the last ones were found. */
struct slab_batches slab_fetch(void);

/*
 * Brings free blocks home: a few at a time, so that never many are out of everybody's reach. Any
 * number of threads may do so, each with its own (zeroed) bins, a power of two of them. A bin is a
 * batch of one slab in the making; until it is made its blocks are not touched, and then all at the
 * same time: they lie anywhere.
 */
struct slab_bin {
    struct slab *slab;
    uint32_t length;
    uint16_t number[SLAB_BATCH];
};
struct slab_sorter {
    struct slab_bin *bin;
    unsigned bins;
};
void slab_sort(const struct slab_sorter *sorter, hwt_timeout *block);
void slab_sort_end(const struct slab_sorter *sorter);
/* So many bins at most. False: there is nothing in any of them. */
bool slab_sort_end_some(const struct slab_sorter *sorter, unsigned most);

/*
 * Gives back the pages of slabs all of whose blocks have come home, but leaves `keep` blocks with
 * pages at home. Any thread, no lock held.
 */
void slab_vacate(size_t keep);
/*
 * Those of one at most, of the few that come after *at (NULL: the newest), where it goes on; with
 * the same `keep`. Is there one?
 */
bool slab_vacate_one(struct slab **at, size_t keep);

/* How many blocks are at home or not yet carved; how many there are in all. A glimpse. */
size_t slab_available(void);
size_t slab_total(void);
/* Maps slabs for so many more blocks at once, or nothing. 0 or -ENOMEM. */
int slab_add(size_t blocks);
/* Sees to it that this many of the available blocks have pages. */
void slab_populate(size_t blocks);
/*
 * Where half of a slab is carved the next one will be wanted. Any thread: is that so? Then: a
 * worker has been asked. The worker of any timer: sees to it that there is one, with pages; or puts
 * it off. From when he has been asked until it is there nobody else waits for a huge page, as long
 * as there is a spare slab: there are two of small pages for each of the others. `small`: he asks
 * for small pages instead, several at once; the slab keeps those.
 */
bool slab_next_is_wanted(void);
void slab_promise_next(void);
void slab_make_ready(bool small);
void slab_put_off(void);

/*
 * Around a fork, which finds the slabs whole: nobody adds one meanwhile but the forking thread
 * itself, in a fork handler of the application's.
 */
void slab_before_fork(void);
void slab_after_fork(bool child);
bool slab_is_forking(void); /* this thread is between the two */

#ifdef HWT_DEBUG
/* Debug builds: a word beside each block (poison.c). */
_Atomic uintptr_t *slab_note(const hwt_timeout *block);
/* Each block that is not known to be free. */
void slab_each(void (*visit)(hwt_timeout *block, void *arg), void *arg);
#endif

#endif
