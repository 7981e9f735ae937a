/* SPDX-License-Identifier: BSD-2-Clause */
#include "bucket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_FIRST 16   /* chunks */
#define SLAB_MOST  4096 /* 2 MB */
#define MERGE_LIVE 7    /* a full chunk with no more left is merged ... */
#define MERGE_INTO 40   /* ... into a neighbour with no more than these */

struct chunk_slab {
    struct chunk_slab *next;
    size_t count;
    void *chunks;
};

/* ---- chunks ---- */

void chunk_store_init(struct chunk_store *store)
{
    memset(store, 0, sizeof *store);
    store->next_slab = SLAB_FIRST;
}

void chunk_store_destroy(struct chunk_store *store)
{
    struct chunk_slab *next;

    for (struct chunk_slab *slab = store->slabs; slab; slab = next) {
        next = slab->next;
        free(slab->chunks);
        free(slab);
    }
    store->slabs = NULL;
    store->free = NULL;
    store->free_count = 0;
}

static void chunk_free(struct chunk_store *store, struct chunk *chunk)
{
    chunk->head.next = store->free;
    store->free = &chunk->head;
    store->free_count++;
}

static bool store_grow(struct chunk_store *store, size_t count)
{
    struct chunk_slab *slab = malloc(sizeof *slab);
    struct chunk *chunks;

    if (!slab)
        return false;
    chunks = aligned_alloc(CHUNK_SIZE, count * CHUNK_SIZE);
    if (!chunks) {
        free(slab);
        return false;
    }
    slab->chunks = chunks;
    slab->count = count;
    slab->next = store->slabs;
    store->slabs = slab;
    while (count-- > 0)
        chunk_free(store, &chunks[count]);
    return true;
}

int chunk_store_reserve(struct chunk_store *store, size_t chunks)
{
    if (chunks > SIZE_MAX / CHUNK_SIZE)
        return -ENOMEM;
    if (store->free_count >= chunks)
        return 0;
    return store_grow(store, chunks - store->free_count) ? 0 : -ENOMEM;
}

static struct chunk *chunk_take(struct chunk_store *store)
{
    struct block *first;

    if (unlikely(!store->free) && store_grow(store, store->next_slab) &&
        store->next_slab < SLAB_MOST)
        store->next_slab *= 2;
    first = store->free;
    if (unlikely(!first))
        return NULL;
    store->free = first->next;
    store->free_count--;
    return container_of(first, struct chunk, head);
}

/* ---- the ring of a bucket and its chunks ---- */

static struct chunk *chunk_of(struct block *block)
{
    return container_of(block, struct chunk, head);
}

static bool is_chunk(const struct block *block)
{
    return block->used != 0;
}

static struct block *last_block(struct bucket *bucket)
{
    return bucket->head.prev ? bucket->head.prev : &bucket->head;
}

static void link_last(struct bucket *bucket, struct chunk *chunk)
{
    struct block *head = &bucket->head, *last = last_block(bucket);

    chunk->head.prev = last;
    chunk->head.next = head;
    last->next = &chunk->head;
    head->prev = &chunk->head;
}

static void unlink_chunk(struct chunk_store *store, struct chunk *chunk)
{
    chunk->head.prev->next = chunk->head.next;
    chunk->head.next->prev = chunk->head.prev;
    chunk_free(store, chunk);
}

/* ---- insertion ---- */

void bucket_prefetch_last(const struct bucket *bucket)
{
    if (bucket_has_chunks(bucket))
        __builtin_prefetch(bucket->head.prev, 1);
}

static void put(hwt_timeout **slot, hwt_timeout *timeout, enum timeout_place place)
{
    *slot = timeout;
    timeout->where = slot;
    timeout->place = (uint8_t)place;
}

static hwt_timeout **inline_slot(struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (!bucket->slot[i])
            return &bucket->slot[i];
    }
    return NULL;
}

static hwt_timeout **chunk_slot(struct bucket *bucket, struct chunk_store *store)
{
    struct block *last = last_block(bucket);
    struct chunk *chunk;

    if (!is_chunk(last) || last->used == CHUNK_SLOTS) {
        chunk = chunk_take(store);
        if (!chunk)
            return NULL;
        chunk->head.live = 0;
        chunk->head.used = 0;
        link_last(bucket, chunk);
        last = &chunk->head;
    }
    chunk = chunk_of(last);
    chunk->head.live++;
    return &chunk->slot[chunk->head.used++];
}

bool bucket_insert(struct bucket *bucket, struct chunk_store *store, hwt_timeout *timeout,
                   uint64_t deadline)
{
    bool first = bucket_is_empty(bucket);
    enum timeout_place place = PLACE_INLINE;
    hwt_timeout **slot = bucket_has_chunks(bucket) ? NULL : inline_slot(bucket);

    if (!slot) {
        place = PLACE_CHUNK;
        slot = chunk_slot(bucket, store);
    }
    if (unlikely(!slot))
        return false;
    put(slot, timeout, place);
    if (first) {
        bucket->earliest = deadline;
        bucket->head.live = 0;
    } else if (deadline < bucket->earliest) {
        bucket->earliest = deadline;
    }
    bucket->head.live++;
    return true;
}

/* ---- removal ---- */

static void merge(struct chunk_store *store, struct chunk *from, struct chunk *into)
{
    unsigned hole = 0;

    for (unsigned i = 0; i < from->head.used; i++) {
        if (!from->slot[i])
            continue;
        while (hole < into->head.used && into->slot[hole])
            hole++;
        if (hole == into->head.used)
            into->head.used++;
        put(&into->slot[hole], from->slot[i], PLACE_CHUNK);
        into->head.live++;
    }
    unlink_chunk(store, from);
}

static void thin_out(struct chunk_store *store, struct chunk *chunk)
{
    struct block *next = chunk->head.next, *prev = chunk->head.prev;

    if (chunk->head.live == 0)
        unlink_chunk(store, chunk);
    else if (chunk->head.live > MERGE_LIVE || chunk->head.used < CHUNK_SLOTS)
        return;
    else if (is_chunk(next) && next->live <= MERGE_INTO)
        merge(store, chunk, chunk_of(next));
    else if (is_chunk(prev) && prev->live <= MERGE_INTO)
        merge(store, chunk, chunk_of(prev));
}

static struct chunk *chunk_holding(hwt_timeout **slot)
{
    return (struct chunk *)((uintptr_t)slot & ~(uintptr_t)(CHUNK_SIZE - 1));
}

static void set_adrift(hwt_timeout *timeout)
{
    timeout->where = NULL;
    timeout->place = PLACE_ADRIFT;
}

void bucket_remove(struct chunk_store *store, hwt_timeout *timeout)
{
    hwt_timeout **slot = timeout->where;

    hwt_assert(*slot == timeout);
    *slot = NULL;
    if (timeout->place == PLACE_CHUNK) {
        struct chunk *chunk = chunk_holding(slot);
        chunk->head.live--;
        thin_out(store, chunk);
    }
    set_adrift(timeout);
}

/* ---- taking out ---- */

static void prefetch_before(const struct chunk *chunk)
{
    const struct block *before = chunk->head.prev;

    __builtin_prefetch(before);
    if (is_chunk(before))
        __builtin_prefetch(&container_of(before, const struct chunk, head)->slot[CHUNK_SLOTS - 1]);
}

/* From the end of the last chunk; frees it when it is empty. */
static unsigned take_from_chunk(struct chunk_store *store, struct chunk *chunk, hwt_timeout **out,
                                unsigned most)
{
    unsigned count = 0;

    prefetch_before(chunk);
    while (count < most && chunk->head.live > 0) {
        hwt_timeout *timeout = chunk->slot[--chunk->head.used];
        if (!timeout)
            continue;
        __builtin_prefetch(timeout, 1);
        out[count++] = timeout;
        chunk->head.live--;
    }
    if (chunk->head.live == 0)
        unlink_chunk(store, chunk);
    return count;
}

static unsigned take_inline(struct bucket *bucket, hwt_timeout **out, unsigned most)
{
    unsigned count = 0;

    for (unsigned i = 0; i < BUCKET_INLINE && count < most; i++) {
        if (!bucket->slot[i])
            continue;
        __builtin_prefetch(bucket->slot[i], 1);
        out[count++] = bucket->slot[i];
        bucket->slot[i] = NULL;
    }
    return count;
}

unsigned bucket_take(struct bucket *bucket, struct chunk_store *store, hwt_timeout **out,
                     unsigned most)
{
    unsigned count = 0;

    while (count < most && bucket_has_chunks(bucket))
        count += take_from_chunk(store, chunk_of(bucket->head.prev), out + count, most - count);
    if (count < most)
        count += take_inline(bucket, out + count, most - count);
    bucket->head.live -= count;
    return count;
}

void bucket_prefetch_timeouts(const struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (bucket->slot[i])
            __builtin_prefetch(bucket->slot[i], 1);
    }
}

void bucket_prefetch_arguments(const struct bucket *bucket)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        if (bucket->slot[i])
            __builtin_prefetch(bucket->slot[i]->arg, 1);
    }
}

hwt_timeout *bucket_pop(struct bucket *bucket, struct chunk_store *store)
{
    hwt_timeout *timeout;

    if (bucket_take(bucket, store, &timeout, 1) == 0)
        return NULL;
    set_adrift(timeout);
    return timeout;
}

void bucket_move(struct bucket *to, struct bucket *from)
{
    hwt_assert(bucket_is_empty(to));
    to->earliest = from->earliest;
    to->head = from->head;
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        to->slot[i] = NULL;
        if (from->slot[i])
            put(&to->slot[i], from->slot[i], PLACE_INLINE);
        from->slot[i] = NULL;
    }
    if (bucket_has_chunks(from)) {
        to->head.next->prev = &to->head;
        to->head.prev->next = &to->head;
    } else {
        to->head.next = to->head.prev = NULL;
    }
    from->head.next = from->head.prev = NULL;
    from->head.live = 0;
}

/* ---- validator ---- */

static size_t check_slots(hwt_timeout *const *slot, unsigned count, enum timeout_place place)
{
    size_t live = 0;

    for (unsigned i = 0; i < count; i++) {
        if (!slot[i])
            continue;
        hwt_assert(slot[i]->where == &slot[i] && slot[i]->place == place);
        live++;
    }
    (void)place;
    return live;
}

size_t bucket_check(const struct bucket *bucket)
{
    size_t total = check_slots(bucket->slot, BUCKET_INLINE, PLACE_INLINE);

    for (struct block *block = bucket->head.next; block && block != &bucket->head;
         block = block->next) {
        size_t live = check_slots(chunk_of(block)->slot, block->used, PLACE_CHUNK);
        hwt_assert(is_chunk(block) && block->used <= CHUNK_SLOTS);
        hwt_assert(live == block->live && live > 0);
        hwt_assert(block->next->prev == block && block->prev->next == block);
        total += live;
    }
    hwt_assert(total == 0 || bucket->head.live >= total);
    return total;
}
