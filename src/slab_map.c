/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab_map.h"

#include <errno.h>
#include <pthread.h>

#define GRANULE    ((size_t)1 << GRANULE_BITS)
#define FIRST_SIZE (GRANULE / 2) /* a process with few timeouts stays small */
#define LEAF_SIZE  (sizeof(struct slab) << LEAF_BITS)

static_assert(SLAB_BLOCKS * sizeof(hwt_timeout) == GRANULE, "a slab fills its granule");

_Atomic(struct slab *) slab_list;
_Atomic(struct slab *) slab_root[1 << ROOT_BITS];

static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static size_t added; /* under it: of slabs, but the first */
static _Thread_local bool forking;

void slab_map_lock(void)
{
    if (!forking)
        pthread_mutex_lock(&growth);
}

void slab_map_unlock(void)
{
    if (!forking)
        pthread_mutex_unlock(&growth);
}

/* ---- mapping: all under the lock ---- */

static void *map_for_good(size_t size, size_t alignment)
{
    void *memory = platform_map(size, alignment);

    if (memory)
        platform_tell_leak_checker(memory, size);
    return memory;
}

static bool make_leaf(const hwt_timeout *block)
{
    _Atomic(struct slab *) *place = &slab_root[slab_granule(block) >> LEAF_BITS];
    struct slab *leaf = load_relaxed(place);

    if (!leaf) {
        leaf = map_for_good(LEAF_SIZE, alignof(struct slab));
        store_release(place, leaf);
    }
    return leaf != NULL;
}

static bool make_notes(struct slab *slab, size_t blocks)
{
#ifdef HWT_DEBUG
    slab->notes = map_for_good(blocks * sizeof *slab->notes, alignof(uintptr_t));
    return slab->notes != NULL;
#else
    (void)slab;
    (void)blocks;
    return true;
#endif
}

/* The memory becomes a slab. */
static bool enter(char *memory, size_t size, bool small)
{
    hwt_timeout *blocks = (hwt_timeout *)(void *)memory;
    size_t count = size / sizeof *blocks;
    struct slab *slab;

    if (!make_leaf(blocks))
        return false;
    slab = slab_of(blocks);
    if (!make_notes(slab, count))
        return false;
    slab->blocks = blocks;
    slab->batches = (uint32_t)(count / SLAB_BATCH);
    slab->small = small;
    slab->next = load_relaxed(&slab_list);
    store_release(&slab_list, slab); /* pairs with slab_newest */
    added += slab->next != NULL;
    return true;
}

/*
 * The first slab is small, and no huge page: its pages are touched in order, as they are needed.
 * What could not be entered is unmapped again: nobody has seen it.
 */
int slab_map_more(size_t slabs, size_t spare)
{
    bool first = !load_relaxed(&slab_list);
    size_t size = first ? FIRST_SIZE : GRANULE, done = 0;
    char *memory;

    if (slabs > (size_t)1 << (PLATFORM_ADDRESS_BITS - 2 - GRANULE_BITS))
        return -ENOMEM;
    if (first) {
        slabs = 0;
        spare = 1;
    }
    memory = platform_map((slabs + spare) * size, size);
    if (!memory)
        return -ENOMEM;
    platform_advise_huge(memory, slabs * size);
    platform_advise_small(memory + slabs * size, spare * size);
    slabs += spare;
    while (done < slabs && enter(memory + done * size, size, done + spare >= slabs))
        done++;
    if (done > 0) /* a pending timeout's argument is no leak */
        platform_tell_leak_checker(memory, done * size);
    if (done < slabs)
        platform_unmap(memory + done * size, (slabs - done) * size);
    return done < slabs ? -ENOMEM : 0;
}

size_t slab_count(void)
{
    return added;
}

int slab_prepare(void)
{
    int result = 0;

    if (likely(slab_newest() != NULL))
        return 0;
    slab_map_lock();
    if (!slab_newest())
        result = slab_map_more(1, 0);
    slab_map_unlock();
    return result;
}

int slab_add(size_t blocks)
{
    int result;

    slab_map_lock();
    result = slab_map_more(blocks / SLAB_BLOCKS + 1, 0);
    slab_map_unlock();
    return result;
}

/* ---- fork ---- */

bool slab_is_forking(void)
{
    return forking;
}

void slab_before_fork(void)
{
    slab_map_lock();
    forking = true;
}

void slab_after_fork(bool child)
{
    forking = false;
    slab_map_unlock();
    if (!child)
        return;
    slab_reopen_all();
    slab_promise_nothing();
}
