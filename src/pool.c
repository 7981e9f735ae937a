/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool.h"

#include <errno.h>
#include <pthread.h>

#include "platform.h"

#define SHARDS          128u
#define MAGAZINE_MAX    (2 * POOL_BATCH)
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

static struct depot depots[SHARDS];
static _Atomic uint32_t shard_count; /* power of two covering the CPUs; 0: not yet known */
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
    hwt_timeout *batch = NULL;
    uint32_t length = 0;

    if (!pool_magazine.room)
        arrange_flush();
    for (unsigned i = 0; i < count && !batch; i++)
        batch = depot_pop((mine + i) & (count - 1));
    if (batch)
        length = batch->batch_length;
    if (!batch)
        batch = slab_take(&length);
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
        hwt_timeout *batch = slab_take(&length);
        if (!batch)
            return -ENOMEM;
        depot_push(shard++, batch, length);
        have += length;
    }
    return 0;
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

static void count_free(hwt_timeout *batches, const struct slab_survey *survey)
{
    for (hwt_timeout *batch = batches; batch; batch = next_batch(batch)) {
        for (hwt_timeout *block = batch; block; block = next_free(block))
            slab_count_free(survey, block);
    }
}

/* Keeps the blocks of slabs that are in use, drops those of slabs about to be vacated. */
static void sort_out(hwt_timeout *batches, const struct slab_survey *survey)
{
    struct pool_return kept = {NULL, 0};
    unsigned shard = 0;
    hwt_timeout *next, *block;

    for (hwt_timeout *batch = batches; batch; batch = next) {
        next = next_batch(batch);
        while ((block = batch) != NULL) {
            batch = next_free(block);
            if (!slab_is_free(survey, block))
                pool_return_add(&kept, kept.count ? shard : ++shard, block);
        }
    }
    pool_return_flush(&kept, shard);
}

void pool_trim(void)
{
    struct slab_survey survey;
    hwt_timeout *batches;
    size_t total;

    magazine_flush(&pool_magazine);
    slab_lock();
    if (slab_survey_open(&survey)) {
        batches = drain_depots(&total);
        if (!slab_all_free(&survey, total)) { /* otherwise there is no need to look at each */
            count_free(batches, &survey);
            sort_out(batches, &survey);
        }
        slab_survey_close(&survey);
    }
    slab_unlock();
}
