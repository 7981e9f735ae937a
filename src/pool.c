/* SPDX-License-Identifier: BSD-2-Clause */
/* The way of a block between a thread, its CPU and the slabs. The way back is pool_home.c's. */
#include "pool.h"

#include <errno.h>
#include <pthread.h>

#include "depot.h"
#include "platform.h"

_Thread_local struct magazine pool_magazine;

/* ---- a magazine, until its thread's end ---- */

static void load_magazine(hwt_timeout *batch, uint32_t length)
{
    pool_magazine.head = batch ? &batch->link : NULL;
    pool_magazine.room = MAGAZINE_MAX - length;
}

static uint32_t magazine_length(void)
{
    return pool_magazine.head ? MAGAZINE_MAX - pool_magazine.room : 0;
}

static void push(unsigned depot, hwt_timeout *batch, uint32_t length)
{
    batch_set_length(batch, length);
    depot_push(depot, batch);
}

void pool_flush(void)
{
    struct magazine *m = &pool_magazine;

    if (m->head)
        push(platform_cpu(), block_of(m->head), magazine_length());
    m->head = NULL;
    m->room = 0;
}

/*
 * A key's destructor flushes the magazine at the thread's end. Once it has run, there may be no
 * other chance (only so many rounds of destructors are made), and it never comes if there is no key
 * left in the process. Then the thread keeps nothing: it borrows one block at a time, and gives
 * each straight to a depot. So it does at first, too: this may be the last round already, whatever
 * pthread_setspecific says, and who comes in that does little more. And so it does where very many
 * threads keep some already: what all of them keep is nobody's, however many they are (G6). (A
 * thread that sets the key in the last round all the same counts for good, and keeps what it has.)
 *
 * The key is deleted when the library is unloaded, because its destructor is then gone. That also
 * happens when the process exits, with other threads still at work: they keep what they have.
 */
#define NO_KEY   UINT64_C(0) /* otherwise the key and 1 */
#define KEY_GONE UINT64_MAX
static _Atomic uint64_t flush_key;

_Atomic uint32_t pool_keepers;

static void at_thread_end(void *mine)
{
    (void)mine;
    pool_flush();
    pool_magazine.keeping = KEEP_NOTHING;
    sub_relaxed(&pool_keepers, 1);
}

static void make_key(void)
{
    uint64_t none = NO_KEY;
    pthread_key_t key;

    if (pthread_key_create(&key, at_thread_end) == 0 &&
        !cas_acq_rel(&flush_key, &none, (uint64_t)key + 1))
        pthread_key_delete(key); /* somebody else has made one */
}

static __attribute__((destructor)) void delete_key(void)
{
    uint64_t key = exchange_acq_rel(&flush_key, KEY_GONE);

    if (key != NO_KEY && key != KEY_GONE)
        pthread_key_delete((pthread_key_t)(key - 1));
}

static bool may_keep(void)
{
    struct magazine *m = &pool_magazine;

    if (unlikely(m->keeping == KEEP_UNKNOWN) && m->passed_on < PASS_ON_FIRST) {
        m->passed_on++;
    } else if (unlikely(m->keeping == KEEP_UNKNOWN)) {
        uint64_t key = load_acquire(&flush_key);
        int saved = errno; /* it may need malloc, which may try one thing before another */
        if (key != NO_KEY && key != KEY_GONE && load_relaxed(&pool_keepers) < KEEPERS_MOST &&
            pthread_setspecific((pthread_key_t)(key - 1), m) == 0) {
            m->keeping = KEEP_UNTIL_END;
            add_relaxed(&pool_keepers, 1);
        }
        errno = saved;
    }
    return m->keeping == KEEP_UNTIL_END;
}

int pool_prepare(void)
{
    if (unlikely(load_relaxed(&flush_key) == NO_KEY))
        make_key();
    return slab_prepare();
}

/* ---- filling it ---- */

/* One block, and no room for it afterwards: the counting in pool_take ends at 0. */
static void borrow(hwt_timeout *batch, uint32_t length)
{
    if (length > 1)
        push(platform_cpu(), next_free(batch), length - 1);
    batch->link.next = NULL;
    load_magazine(batch, 1);
    pool_magazine.room = UINT32_MAX;
}

uint32_t pool_stretch(void)
{
    uint32_t share = CARVE_ALL / depots_used();

    return share > CARVE_MOST ? CARVE_MOST : share < CARVE_LEAST ? CARVE_LEAST : share;
}

static struct slab_batches from_depot(unsigned depot)
{
    hwt_timeout *batch = depot_pop(depot);

    return (struct slab_batches){batch, batch ? batch->batch_length : 0, 0};
}

static struct slab_batches from_others(unsigned mine, int32_t keep)
{
    unsigned count = depots_used();
    struct slab_batches batches = {NULL, 0, 0};

    for (unsigned i = 1; i < count && !batches.first; i++) {
        unsigned depot = (mine + i) & (count - 1);
        if (keep == 0 || depot_length(depot) > keep)
            batches = from_depot(depot);
    }
    return batches;
}

/* The first batch is used at once. What lies behind it is taken from the depot in order. */
static void keep_carved(unsigned depot, const struct slab_batches *carved)
{
    for (size_t i = carved->more; i > 0; i--)
        depot_push(depot, carved->first + i * SLAB_BATCH);
}

/* What came home after it came from the same CPU, mostly: as much of that as would be carved. */
static void keep_fetched(unsigned depot)
{
    struct slab_batches batch;

    for (uint32_t i = 1; i < pool_stretch() && (batch = slab_fetch()).first; i++)
        depot_push(depot, batch.first);
}

static struct slab_batches from_slabs(unsigned mine)
{
    struct slab_batches batches = slab_take(pool_stretch());

    if (batches.more > 0)
        keep_carved(mine, &batches);
    else if (batches.first)
        keep_fetched(mine);
    return batches;
}

/* What was taken for another CPU is left to it, as long as there is other memory. */
bool pool_refill(void)
{
    unsigned mine = platform_cpu() & (depots_used() - 1);
    struct slab_batches batches = from_depot(mine);

    if (!batches.first)
        batches = from_others(mine, (int32_t)pool_stretch());
    if (!batches.first)
        batches = from_slabs(mine);
    if (!batches.first)
        batches = from_others(mine, 0);
    if (!batches.first && pool_bring_sorted())
        batches = from_slabs(mine);
    if (!batches.first)
        return false;
    if (likely(may_keep())) {
        batch_fetch(batches.first);
        load_magazine(batches.first, batches.length);
    } else {
        borrow(batches.first, batches.length);
    }
    return true;
}

/* ---- emptying it ---- */

/* Half of the magazine goes to the depot: those given last, who are at hand to be noted. */
static void unload(void)
{
    hwt_timeout *first = block_of(pool_magazine.head), *last = batch_note(first, POOL_BATCH);
    hwt_timeout *rest = next_free(last);

    last->link.next = NULL;
    depot_push(platform_cpu(), first);
    load_magazine(rest, magazine_length() - POOL_BATCH);
}

void pool_give_slowly(hwt_timeout *block)
{
    if (!may_keep()) {
        block->link.next = NULL;
        push(platform_cpu(), block, 1);
        return;
    }
    if (magazine_length() == MAGAZINE_MAX)
        unload();
    block->link.next = pool_magazine.head;
    load_magazine(block, magazine_length() + 1);
}

/* ---- past it: a worker's ---- */

void pool_return_flush(struct pool_return *batch, unsigned depot)
{
    if (batch->head) {
        batch_note(batch->head, batch->count);
        depot_push(depot, batch->head);
    }
    batch->head = NULL;
    batch->count = 0;
}
