/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "platform.h"

#define SHARDS          128u
#define MAGAZINE_MAX    (2 * POOL_BATCH)
#define SLAB_SMALL      ((size_t)64 << 10)
#define SLAB_LARGE      ((size_t)2 << 20)
#define SMALL_SLABS     16 /* then large ones: a process with few timeouts stays small */
#define RESERVE_THREADS 64 /* a reserve allows for this many threads with a full magazine */

/*
 * A batch is a chain of free blocks by `link.next`; its first block holds their number,
 * and in `word` the next batch of the depot: `word` is atomic wherever it is used, so that a
 * late-comer may read it from a block that is no longer free. The depot's head packs the block's
 * address with a tag that counts its changes, against ABA.
 */
#define TAG_BITS 22 /* 64-byte blocks in 48 bits of address leave 42 */

struct depot {
    alignas(CACHE_PAIR) _Atomic uint64_t head;
};

/* Carved from the front, by whole batches; never given back to malloc. */
struct slab {
    struct slab *next; /* under `growth` */
    char *blocks;
    size_t count;        /* blocks in all */
    _Atomic size_t used; /* blocks handed out so far; may run past count */
    size_t free_at_trim; /* under `growth`: pool_trim counts here */
};

static struct depot depots[SHARDS];
static _Atomic uint32_t shard_count; /* power of two covering the CPUs; 0: not yet known */
static _Atomic(struct slab *) current;
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs; /* under `growth`: all */
static size_t slab_count;  /* under `growth` */
_Thread_local struct magazine pool_magazine;

static pthread_once_t flush_once = PTHREAD_ONCE_INIT;
static pthread_key_t flush_key;
static bool flush_key_valid;

/* ---- depots ---- */

static unsigned shards(void)
{
    unsigned count = load_relaxed(&shard_count);

    if (unlikely(count == 0)) {
        for (count = 1; count < platform_cpu_count() && count < SHARDS;)
            count *= 2;
        store_relaxed(&shard_count, count);
    }
    return count;
}

static hwt_timeout *head_block(uint64_t head)
{
    return (hwt_timeout *)(uintptr_t)(head >> TAG_BITS << 6);
}

static uint64_t head_make(const hwt_timeout *block, uint64_t before)
{
    uint64_t tag = (before + 1) & ((UINT64_C(1) << TAG_BITS) - 1);
    return (uint64_t)(uintptr_t)block >> 6 << TAG_BITS | tag;
}

static void depot_push(unsigned shard, hwt_timeout *batch, uint32_t count)
{
    _Atomic uint64_t *head = &depots[shard & (shards() - 1)].head;
    uint64_t seen = load_relaxed(head);

    batch->batch_length = count;
    do { /* release: the batch is complete before it can be popped */
        store_relaxed(&batch->word, (uint64_t)(uintptr_t)head_block(seen));
    } while (!cas_acq_rel(head, &seen, head_make(batch, seen)));
}

static hwt_timeout *depot_pop(unsigned shard)
{
    _Atomic uint64_t *head = &depots[shard].head;
    uint64_t seen = load_acquire(head); /* pairs with depot_push */
    hwt_timeout *batch;

    while ((batch = head_block(seen)) != NULL) {
        uint64_t next = load_relaxed(&batch->word); /* stale if popped meanwhile: the tag tells */
        if (cas_acq_rel(head, &seen, head_make((hwt_timeout *)(uintptr_t)next, seen)))
            return batch;
    }
    return NULL;
}

/* ---- slabs ---- */

static hwt_timeout *slab_carve(struct slab *slab, uint32_t *count)
{
    size_t first;
    hwt_timeout *chain = NULL;

    if (load_acquire(&slab->used) >= slab->count)
        return NULL;
    first = add_acq_rel(&slab->used, POOL_BATCH); /* acquire pairs with vacate */
    for (size_t i = first + POOL_BATCH; i-- > first;) {
        hwt_timeout *block;
        if (i >= slab->count)
            continue;
        block = (hwt_timeout *)(void *)(slab->blocks + i * sizeof *block);
        block->link.next = chain ? &chain->link : NULL;
        poison(block);
        chain = block;
    }
    *count = first < slab->count ? (uint32_t)(slab->count - first) : 0;
    if (*count > POOL_BATCH)
        *count = POOL_BATCH;
    return chain;
}

/* Under `growth`. */
static struct slab *slab_create(void)
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
static struct slab *slab_vacant(void)
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
            slab = slab_vacant();
            if (!slab)
                slab = slab_create();
            if (slab)
                store_release(&current, slab); /* its fields before its use in refill */
        }
        if (slab)
            chain = slab_carve(slab, count);
    } while (slab && !chain); /* others may have emptied it meanwhile */
    pthread_mutex_unlock(&growth);
    return chain;
}

/* ---- magazines ---- */

static hwt_timeout *block_of(ck_stack_entry_t *link)
{
    return link ? container_of(link, hwt_timeout, link) : NULL;
}

static hwt_timeout *next_free(const hwt_timeout *block)
{
    return block_of(block->link.next);
}

static void load_magazine(hwt_timeout *batch, uint32_t length)
{
    pool_magazine.head = batch ? &batch->link : NULL;
    pool_magazine.count = length;
    pool_magazine.room = MAGAZINE_MAX - length;
}

/* At the thread's end. Should the thread give a block back even later, it is arranged again. */
static void magazine_flush(void *mine)
{
    struct magazine *m = mine;

    if (m->head)
        depot_push(platform_cpu(), block_of(m->head), m->count);
    m->head = NULL;
    m->count = m->room = 0;
}

static void flush_key_create(void)
{
    flush_key_valid = pthread_key_create(&flush_key, magazine_flush) == 0;
}

void pool_prepare(void)
{
    pthread_once(&flush_once, flush_key_create);
}

static void arrange_flush(void)
{
    if (flush_key_valid)
        pthread_setspecific(flush_key, &pool_magazine);
}

bool pool_refill(void)
{
    unsigned mine = platform_cpu(), count = shards();
    struct slab *slab = load_acquire(&current);
    hwt_timeout *batch = NULL;
    uint32_t length = 0;

    if (!pool_magazine.room)
        arrange_flush();
    for (unsigned i = 0; i < count && !batch; i++)
        batch = depot_pop((mine + i) & (count - 1));
    if (batch)
        length = batch->batch_length;
    if (!batch && slab)
        batch = slab_carve(slab, &length);
    if (!batch)
        batch = grow(&length);
    load_magazine(batch, length);
    return batch != NULL;
}

/* Half of the magazine, the half that has lain longest, goes to the depot. */
static void unload(void)
{
    hwt_timeout *first = block_of(pool_magazine.head), *last = first, *rest;

    for (unsigned i = 1; i < POOL_BATCH; i++)
        last = next_free(last);
    rest = next_free(last);
    last->link.next = NULL;
    depot_push(platform_cpu(), rest, pool_magazine.count - POOL_BATCH);
    load_magazine(first, POOL_BATCH);
}

void pool_make_room(void)
{
    if (pool_magazine.count >= MAGAZINE_MAX) {
        unload();
    } else { /* the thread's first */
        arrange_flush();
        load_magazine(block_of(pool_magazine.head), pool_magazine.count);
    }
}

void pool_return_add(struct pool_return *batch, unsigned shard, hwt_timeout *block)
{
    block->link.next = batch->head ? &batch->head->link : NULL;
    poison(block);
    batch->head = block;
    if (++batch->count == POOL_BATCH)
        pool_return_flush(batch, shard);
}

void pool_return_flush(struct pool_return *batch, unsigned shard)
{
    if (batch->head)
        depot_push(shard, batch->head, batch->count);
    batch->head = NULL;
    batch->count = 0;
}

/* ---- reserve and trim ---- */

int pool_reserve(size_t count)
{
    size_t wanted = count + (size_t)RESERVE_THREADS * MAGAZINE_MAX;
    unsigned shard = 0;

    if (wanted < count)
        return -ENOMEM;
    for (size_t have = 0; have < wanted;) {
        uint32_t length = 0;
        hwt_timeout *batch = grow(&length);
        if (!batch)
            return -ENOMEM;
        depot_push(shard++, batch, length);
        have += length;
    }
    return 0;
}

static int slab_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)(*(struct slab *const *)a)->blocks;
    uintptr_t y = (uintptr_t)(*(struct slab *const *)b)->blocks;
    return (x > y) - (x < y);
}

static struct slab *slab_of(struct slab **sorted, size_t count, const hwt_timeout *block)
{
    size_t low = 0;

    while (count - low > 1) {
        size_t middle = low + (count - low) / 2;
        if ((uintptr_t)sorted[middle]->blocks <= (uintptr_t)block)
            low = middle;
        else
            count = middle;
    }
    return sorted[low];
}

/* Everything that lies in the depots: batches linked by `word`. */
static hwt_timeout *drain_depots(size_t *total)
{
    hwt_timeout *all = NULL, *batch;
    unsigned count = shards();

    *total = 0;
    for (unsigned shard = 0; shard < count; shard++) {
        while ((batch = depot_pop(shard)) != NULL) {
            store_relaxed(&batch->word, (uint64_t)(uintptr_t)all);
            *total += batch->batch_length;
            all = batch;
        }
    }
    return all;
}

static hwt_timeout *next_batch(hwt_timeout *batch)
{
    return (hwt_timeout *)(uintptr_t)load_relaxed(&batch->word);
}

/*
 * Under `growth`: true, if the drained blocks are all that were ever handed out. Then the slab that
 * is being carved, if any, starts anew; unless somebody carves it just now.
 */
static bool nothing_in_use(size_t drained)
{
    struct slab *partial = NULL;
    size_t used = 0, carved = 0;

    for (struct slab *slab = slabs; slab; slab = slab->next) {
        size_t here = load_acquire(&slab->used);
        used += here < slab->count ? here : slab->count;
        if (here == 0 || here >= slab->count)
            continue;
        if (partial)
            return false;
        partial = slab;
        carved = here;
    }
    return used == drained && (!partial || cas_acq_rel(&partial->used, &carved, 0));
}

static bool slab_all_free(const struct slab *slab)
{
    return slab->free_at_trim >= slab->count && load_relaxed(&slab->used) >= slab->count;
}

static void vacate(struct slab **sorted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!slab_all_free(sorted[i]))
            continue;
        platform_release_pages(sorted[i]->blocks, sorted[i]->count * sizeof(hwt_timeout));
        store_release(&sorted[i]->used, 0);
    }
}

static void count_free(hwt_timeout *batches, struct slab **sorted, size_t count)
{
    for (hwt_timeout *batch = batches; batch; batch = next_batch(batch)) {
        for (hwt_timeout *block = batch; block; block = next_free(block))
            slab_of(sorted, count, block)->free_at_trim++;
    }
}

/* Keeps the blocks of slabs that are in use, drops those of slabs about to be vacated. */
static void sort_out(hwt_timeout *batches, struct slab **sorted, size_t count)
{
    struct pool_return kept = {NULL, 0};
    unsigned shard = 0;
    hwt_timeout *next, *block;

    for (hwt_timeout *batch = batches; batch; batch = next) {
        next = next_batch(batch);
        while ((block = batch) != NULL) {
            batch = next_free(block);
            if (!slab_all_free(slab_of(sorted, count, block)))
                pool_return_add(&kept, kept.count ? shard : ++shard, block);
        }
    }
    pool_return_flush(&kept, shard);
}

static size_t sort_slabs(struct slab **sorted)
{
    size_t count = 0;

    for (struct slab *slab = slabs; slab; slab = slab->next) {
        slab->free_at_trim = 0;
        sorted[count++] = slab;
    }
    qsort(sorted, count, sizeof *sorted, slab_order);
    return count;
}

void pool_trim(void)
{
    struct slab **sorted;
    hwt_timeout *batches;
    size_t count, total;

    magazine_flush(&pool_magazine);
    pthread_mutex_lock(&growth);
    sorted = slab_count > SMALL_SLABS ? malloc(slab_count * sizeof *sorted) : NULL;
    if (sorted) {
        count = sort_slabs(sorted);
        batches = drain_depots(&total);
        if (nothing_in_use(total)) { /* no need to look at each */
            for (size_t i = 0; i < count; i++)
                sorted[i]->free_at_trim = sorted[i]->count;
        } else {
            count_free(batches, sorted, count);
            sort_out(batches, sorted, count);
        }
        vacate(sorted, count);
        free(sorted);
    }
    pthread_mutex_unlock(&growth);
}

/* ---- fork ---- */

void pool_before_fork(void)
{
    pthread_mutex_lock(&growth);
}

void pool_after_fork(void)
{
    pthread_mutex_unlock(&growth);
}
