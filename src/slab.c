/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include <pthread.h>
#include <stdlib.h>

#include "platform.h"
#include "poison.h"

#define SLAB_SMALL  ((size_t)64 << 10)
#define SLAB_LARGE  ((size_t)2 << 20)
#define SMALL_SLABS 16 /* then large ones: a process with few timeouts stays small */

/* Carved from the front, by whole batches; never given back to malloc. */
struct slab {
    struct slab *next; /* under `growth` */
    char *blocks;
    size_t count;        /* blocks in all */
    _Atomic size_t used; /* blocks handed out so far; may run past count */
    size_t free;         /* under `growth`: a survey counts here */
};

static _Atomic(struct slab *) current;
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs; /* under `growth`: all */
static size_t slab_count;  /* under `growth` */

void slab_lock(void)
{
    pthread_mutex_lock(&growth);
}

void slab_unlock(void)
{
    pthread_mutex_unlock(&growth);
}

/* ---- carving ---- */

static hwt_timeout *carve(struct slab *slab, uint32_t *count)
{
    size_t first;
    hwt_timeout *chain = NULL;

    if (load_acquire(&slab->used) >= slab->count)
        return NULL;
    first = add_acq_rel(&slab->used, SLAB_BATCH); /* acquire pairs with slab_survey_close */
    for (size_t i = first + SLAB_BATCH; i-- > first;) {
        hwt_timeout *block;
        if (i >= slab->count)
            continue;
        block = (hwt_timeout *)(void *)(slab->blocks + i * sizeof *block);
        block->link.next = chain ? &chain->link : NULL;
        poison(block);
        chain = block;
    }
    *count = first < slab->count ? (uint32_t)(slab->count - first) : 0;
    if (*count > SLAB_BATCH)
        *count = SLAB_BATCH;
    return chain;
}

/* Under `growth`. */
static struct slab *create(void)
{
    size_t size = slab_count < SMALL_SLABS ? SLAB_SMALL : SLAB_LARGE;
    struct slab *slab = malloc(sizeof *slab);

    if (!slab)
        return NULL;
    slab->blocks = aligned_alloc(size, size);
    if (!slab->blocks) {
        free(slab);
        return NULL;
    }
    if (size == SLAB_LARGE)
        platform_advise_huge(slab->blocks, size);
    slab->count = size / sizeof(hwt_timeout);
    store_relaxed(&slab->used, 0);
    slab->next = slabs;
    slabs = slab;
    slab_count++;
    return slab;
}

/* Under `growth`: one that pool_trim found empty, or that was given up before its end. */
static struct slab *vacant(void)
{
    for (struct slab *slab = slabs; slab; slab = slab->next) {
        if (load_relaxed(&slab->used) < slab->count)
            return slab;
    }
    return NULL;
}

static hwt_timeout *grow(uint32_t *count)
{
    hwt_timeout *chain = NULL;
    struct slab *slab;

    pthread_mutex_lock(&growth);
    do {
        slab = load_relaxed(&current);
        if (!slab || load_relaxed(&slab->used) >= slab->count) {
            slab = vacant();
            if (!slab)
                slab = create();
            if (slab)
                store_release(&current, slab); /* its fields before its use in slab_take */
        }
        if (slab)
            chain = carve(slab, count);
    } while (slab && !chain); /* others may have emptied it meanwhile */
    pthread_mutex_unlock(&growth);
    return chain;
}

hwt_timeout *slab_take(uint32_t *count)
{
    struct slab *slab = load_acquire(&current);
    hwt_timeout *chain = slab ? carve(slab, count) : NULL;

    return chain ? chain : grow(count);
}

/* ---- surveys ---- */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)(*(struct slab *const *)a)->blocks;
    uintptr_t y = (uintptr_t)(*(struct slab *const *)b)->blocks;
    return (x > y) - (x < y);
}

static struct slab *slab_of(const struct slab_survey *survey, const hwt_timeout *block)
{
    size_t low = 0, high = survey->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)survey->sorted[middle]->blocks <= (uintptr_t)block)
            low = middle;
        else
            high = middle;
    }
    return survey->sorted[low];
}

bool slab_survey_open(struct slab_survey *survey)
{
    survey->count = 0;
    survey->sorted = slab_count > SMALL_SLABS ? malloc(slab_count * sizeof(struct slab *)) : NULL;
    if (!survey->sorted)
        return false;
    for (struct slab *slab = slabs; slab; slab = slab->next) {
        slab->free = 0;
        survey->sorted[survey->count++] = slab;
    }
    qsort(survey->sorted, survey->count, sizeof(struct slab *), by_address);
    return true;
}

/* The slab that is being carved, if any, starts anew; unless somebody carves it just now. */
bool slab_all_free(struct slab_survey *survey, size_t free)
{
    struct slab *partial = NULL;
    size_t used = 0, carved = 0;

    for (size_t i = 0; i < survey->count; i++) {
        struct slab *slab = survey->sorted[i];
        size_t here = load_acquire(&slab->used);
        used += here < slab->count ? here : slab->count;
        if (here == 0 || here >= slab->count)
            continue;
        if (partial)
            return false;
        partial = slab;
        carved = here;
    }
    if (used != free || (partial && !cas_acq_rel(&partial->used, &carved, 0)))
        return false;
    for (size_t i = 0; i < survey->count; i++)
        survey->sorted[i]->free = survey->sorted[i]->count;
    return true;
}

void slab_count_free(const struct slab_survey *survey, const hwt_timeout *block)
{
    slab_of(survey, block)->free++;
}

static bool is_free(const struct slab *slab)
{
    return slab->free >= slab->count && load_relaxed(&slab->used) >= slab->count;
}

bool slab_is_free(const struct slab_survey *survey, const hwt_timeout *block)
{
    return is_free(slab_of(survey, block));
}

void slab_survey_close(struct slab_survey *survey)
{
    for (size_t i = 0; i < survey->count; i++) {
        struct slab *slab = survey->sorted[i];
        if (!is_free(slab))
            continue;
        platform_release_pages(slab->blocks, slab->count * sizeof(hwt_timeout));
        store_release(&slab->used, 0);
    }
    free(survey->sorted);
}
