/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "platform.h"

#define MAGAZINE_MAX (2 * POOL_BATCH)

/*
 * A batch is a chain of free blocks by `link.next`; its first block holds their number,
 * and in `word` the next batch of the depot: `word` is atomic wherever it is used, so that a
 * late-comer may read it from a block that is no longer free. The depot's head packs the block's
 * address with a tag that counts its changes, against ABA.
 */
#define TAG_BITS (64 - PLATFORM_ADDRESS_BITS + 6) /* a block's address ends in 6 zeros */

struct depot {
    alignas(CACHE_PAIR) _Atomic uint64_t head;
    _Atomic uint32_t batches; /* in it, but for those on their way */
};

static struct depot depots[DEPOTS];
static _Atomic uint32_t depot_count; /* power of two covering the CPUs; 0: not yet known */
_Thread_local struct magazine pool_magazine;

/* ---- depots ---- */

static unsigned depots_used(void)
{
    unsigned count = load_relaxed(&depot_count);

    if (unlikely(count == 0)) {
        for (count = 1; count < platform_cpu_count() && count < DEPOTS;)
            count *= 2;
        store_relaxed(&depot_count, count);
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

static void depot_push(unsigned depot, hwt_timeout *batch, uint32_t count)
{
    _Atomic uint64_t *head = &depots[depot & (depots_used() - 1)].head;
    uint64_t seen = load_relaxed(head);

    batch->batch_length = count;
    do { /* release: the batch is complete before it can be popped */
        store_release(&batch->word, (uint64_t)(uintptr_t)head_block(seen)); /* C20 */
    } while (!cas_acq_rel(head, &seen, head_make(batch, seen)));
    add_relaxed(&depots[depot & (depots_used() - 1)].batches, 1);
}

static hwt_timeout *depot_pop(unsigned depot)
{
    _Atomic uint64_t *head = &depots[depot].head;
    uint64_t seen = load_acquire(head); /* pairs with depot_push */
    hwt_timeout *batch;

    while ((batch = head_block(seen)) != NULL) {
        uint64_t next = load_relaxed(&batch->word); /* stale if popped meanwhile: the tag tells */
        if (cas_acq_rel(head, &seen, head_make((hwt_timeout *)(uintptr_t)next, seen))) {
            sub_relaxed(&depots[depot].batches, 1);
            return batch;
        }
    }
    return NULL;
}

/* A glimpse; below zero is a pop that was counted before its push. */
static int32_t depot_length(unsigned depot)
{
    return (int32_t)load_relaxed(&depots[depot].batches);
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
    pool_magazine.room = MAGAZINE_MAX - length;
}

static uint32_t magazine_length(void)
{
    return pool_magazine.head ? MAGAZINE_MAX - pool_magazine.room : 0;
}

static void magazine_flush(void)
{
    struct magazine *m = &pool_magazine;

    if (m->head)
        depot_push(platform_cpu(), block_of(m->head), magazine_length());
    m->head = NULL;
    m->room = 0;
}

/*
 * A key's destructor flushes the magazine at the thread's end. Once it has run, there may be no
 * other chance (only so many rounds of destructors are made), and it never comes if there is no key
 * left in the process. Then the thread keeps nothing: it borrows one block at a time, and gives
 * each straight to a depot.
 *
 * The key is deleted when the library is unloaded, because its destructor is then gone. That also
 * happens when the process exits, with other threads still at work: they keep what they have.
 */
#define NO_KEY   UINT64_C(0) /* otherwise the key and 1 */
#define KEY_GONE UINT64_MAX
static _Atomic uint64_t flush_key;

static void at_thread_end(void *mine)
{
    (void)mine;
    magazine_flush();
    pool_magazine.keeping = KEEP_NOTHING;
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

    if (unlikely(m->keeping == KEEP_UNKNOWN)) {
        uint64_t key = load_acquire(&flush_key);
        if (key != NO_KEY && key != KEY_GONE &&
            pthread_setspecific((pthread_key_t)(key - 1), m) == 0)
            m->keeping = KEEP_UNTIL_END;
    }
    return m->keeping == KEEP_UNTIL_END;
}

int pool_prepare(void)
{
    if (unlikely(load_relaxed(&flush_key) == NO_KEY))
        make_key();
    return slab_prepare();
}

/* One block, and no room for it afterwards: the counting in pool_take ends at 0. */
static void borrow(hwt_timeout *batch, uint32_t length)
{
    if (length > 1)
        depot_push(platform_cpu(), next_free(batch), length - 1);
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
        depot_push(depot, carved->first + i * SLAB_BATCH, SLAB_BATCH);
}

/* What came home after it came from the same CPU, mostly: as much of that as would be carved. */
static void keep_fetched(unsigned depot)
{
    struct slab_batches batch;

    for (uint32_t i = 1; i < pool_stretch() && (batch = slab_fetch()).first; i++)
        depot_push(depot, batch.first, batch.length);
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
    if (!batches.first)
        return false;
    if (likely(may_keep()))
        load_magazine(batches.first, batches.length);
    else
        borrow(batches.first, batches.length);
    return true;
}

/* Half of the magazine, the half that has lain longest, goes to the depot. */
static void unload(void)
{
    hwt_timeout *first = block_of(pool_magazine.head), *last = first, *rest;

    for (unsigned i = 1; i < POOL_BATCH; i++)
        last = next_free(last);
    rest = next_free(last);
    last->link.next = NULL;
    depot_push(platform_cpu(), rest, magazine_length() - POOL_BATCH);
    load_magazine(first, POOL_BATCH);
}

void pool_give_slowly(hwt_timeout *block)
{
    if (!may_keep()) {
        block->link.next = NULL;
        depot_push(platform_cpu(), block, 1);
        return;
    }
    if (magazine_length() == MAGAZINE_MAX)
        unload();
    block->link.next = pool_magazine.head;
    load_magazine(block, magazine_length() + 1);
}

void pool_return_add(struct pool_return *batch, unsigned depot, hwt_timeout *block)
{
    block->link.next = batch->head ? &batch->head->link : NULL;
    poison_mark_dead(block);
    poison(block);
    batch->head = block;
    if (++batch->count == POOL_BATCH)
        pool_return_flush(batch, depot);
}

void pool_return_flush(struct pool_return *batch, unsigned depot)
{
    if (batch->head)
        depot_push(depot, batch->head, batch->count);
    batch->head = NULL;
    batch->count = 0;
}

/* ---- bringing home ---- */

/*
 * Fetches every block of these batches. They are walked side by side, so that the wait for the
 * memory of one is spent on the others.
 */
static void fetch(hwt_timeout *const *batches, unsigned count)
{
    const hwt_timeout *at[PORTION];

    memcpy(at, batches, count * sizeof *at);
    while (count > 0) {
        for (unsigned i = 0; i < count;) {
            at[i] = next_free(at[i]);
            __builtin_prefetch(at[i], 1);
            if (at[i])
                i++;
            else
                at[i] = at[--count];
        }
    }
}

/* Batch by batch: what one CPU has used stays together, and apart from what others have. */
static void sort(struct slab_sorter *sorter, hwt_timeout *const *batches, unsigned count)
{
    hwt_timeout *next;

    fetch(batches, count);
    for (unsigned i = 0; i < count; i++) {
        for (hwt_timeout *block = batches[i]; block; block = next) {
            next = next_free(block);
            slab_sort(sorter, block);
        }
    }
}

/* True: the depot may have more. */
static bool sort_portion(struct slab_sorter *sorter, unsigned depot, unsigned portion, size_t *most)
{
    hwt_timeout *batch[PORTION] = {NULL};
    size_t blocks = 0;
    unsigned count = 0;

    while (count < portion && (batch[count] = depot_pop(depot)) != NULL)
        blocks += batch[count++]->batch_length;
    sort(sorter, batch, count);
    slab_sort_end(sorter);
    *most -= blocks < *most ? blocks : *most;
    return count == portion;
}

/* Once what lies in the depots now; others go on filling them, but not for ever. */
static void bring_home(void)
{
    struct slab_sorter sorter = {{NULL}};
    size_t most = slab_total();

    magazine_flush();
    for (unsigned depot = 0; depot < depots_used(); depot++) {
        while (sort_portion(&sorter, depot, PORTION, &most) && most > 0)
            continue;
    }
}

/* ---- reserve and trim ---- */

/* What the CPUs' depots keep, and as much on its way there. */
static size_t kept(void)
{
    return 2 * (size_t)depots_used() * pool_stretch() * SLAB_BATCH;
}

/* Besides: full magazines, a portion that is sorted, a slab being vacated. */
static size_t out_of_reach(void)
{
    return kept() + RESERVE_THREADS * MAGAZINE_MAX + PORTION * MAGAZINE_MAX + SLAB_BLOCKS;
}

static pthread_mutex_t reserving = PTHREAD_MUTEX_INITIALIZER;
static struct pool_reservation *reservations; /* under the lock: those that are open ... */
static _Atomic uint32_t reservation_count;    /* ... and how many, for a glimpse */

static void lock(void)
{
    if (!slab_is_forking())
        pthread_mutex_lock(&reserving);
}

static void unlock(void)
{
    if (!slab_is_forking())
        pthread_mutex_unlock(&reserving);
}

/* Under the lock: what the others may yet take. */
static size_t outstanding(void)
{
    size_t sum = 0;

    for (struct pool_reservation *r = reservations; r; r = r->next) {
        uint64_t pending = r->pending(r->owner);
        sum += r->count - (size_t)min_u64(r->count, pending);
    }
    return sum;
}

/* Under the lock. */
static int see_to(size_t count)
{
    size_t wanted = outstanding() + out_of_reach(), available = slab_available();

    if (count > SIZE_MAX - wanted)
        return -ENOMEM;
    wanted += count;
    return available < wanted ? slab_add(wanted - available) : 0;
}

int pool_reserve(struct pool_reservation *reservation)
{
    int result;

    if (reservation->count == 0)
        return 0;
    bring_home(); /* where it can be counted */
    lock();
    result = see_to(reservation->count);
    if (result == 0) {
        reservation->next = reservations;
        reservations = reservation;
        add_relaxed(&reservation_count, 1);
    }
    unlock();
    if (result == 0)
        slab_populate(reservation->count + kept()); /* takes its time: nobody waits for that */
    return result;
}

void pool_unreserve(struct pool_reservation *reservation)
{
    struct pool_reservation **r = &reservations;

    if (reservation->count == 0)
        return;
    lock();
    while (*r && *r != reservation)
        r = &(*r)->next;
    if (*r) {
        *r = reservation->next;
        sub_relaxed(&reservation_count, 1);
    }
    unlock();
}

void pool_trim(void)
{
    size_t keep;

    bring_home();
    lock();
    keep = outstanding();
    unlock();
    slab_vacate(keep);
}

/* ---- easing ---- */

/*
 * What has lain in the depots unused for a whole window of looks is brought home, a few batches at
 * a time; and the pages of slabs that are all at home by then go back.
 */
static struct {
    _Atomic uint32_t busy; /* somebody is at it: the rest is his, but for a glimpse */
    uint32_t looks;        /* of this window */
    uint32_t least;        /* batches in the depots, in this window ... */
    _Atomic uint32_t todo; /* ... and those of the last one that are to be brought home */
    unsigned depot;        /* the next one */
    struct slab *slab;     /* looked at last */
} ease;

static_assert(EASE_BATCHES <= PORTION, "a piece is a portion, or less");

static uint32_t batches_in_depots(void)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < depots_used(); i++)
        sum += depot_length(i);
    return sum > 0 ? (uint32_t)min_u64((uint64_t)sum, UINT32_MAX) : 0;
}

static bool begin_easing(void)
{
    return !load_relaxed(&reservation_count) && !exchange_acq_rel(&ease.busy, 1);
}

static void end_easing(void)
{
    store_release(&ease.busy, 0);
}

static void look_for_more(void)
{
    uint32_t free = batches_in_depots();

    ease.least = ease.looks == 0 || free < ease.least ? free : ease.least;
    if (++ease.looks < EASE_WINDOW)
        return;
    ease.looks = 0;
    store_relaxed(&ease.todo, ease.least > EASE_KEEP ? ease.least - EASE_KEEP : 0);
}

void pool_ease(void)
{
    if (!begin_easing())
        return;
    look_for_more();
    end_easing();
}

/* The next one that holds something, of a few. */
static unsigned next_depot(void)
{
    unsigned depot = 0;

    for (unsigned looks = 0; looks < SURVEY_MOST; looks++) {
        depot = ease.depot++ % depots_used();
        if (depot_length(depot) > 0)
            break;
    }
    return depot;
}

static void bring_some_home(void)
{
    struct slab_sorter sorter = {{NULL}};
    uint32_t todo = load_relaxed(&ease.todo);
    size_t most = SIZE_MAX;

    sort_portion(&sorter, next_depot(), EASE_BATCHES, &most);
    store_relaxed(&ease.todo, todo - (todo < EASE_BATCHES ? todo : EASE_BATCHES));
    slab_vacate_one(&ease.slab);
}

void pool_ease_on(void)
{
    if (likely(load_relaxed(&ease.todo) == 0) || !begin_easing())
        return;
    bring_some_home();
    end_easing();
}

/* ---- fork ---- */

void pool_before_fork(void)
{
    lock();
    slab_before_fork();
}

/* The timers of the parent are dead in the child, and claim nothing. */
void pool_after_fork(bool child)
{
    slab_after_fork(child);
    if (!child) {
        unlock();
        return;
    }
    pthread_mutex_init(&reserving, NULL);
    reservations = NULL;
    store_relaxed(&reservation_count, 0);
    store_relaxed(&ease.busy, 0); /* who was at it is not in the child */
}
