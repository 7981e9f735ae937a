/* SPDX-License-Identifier: BSD-2-Clause */
/* The way of free blocks back to their slabs: for a reserve, for a trim, or a little at a time. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "depot.h"
#include "pool.h"

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

    pool_flush();
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

bool pool_must_ease(void)
{
    return unlikely(load_relaxed(&ease.todo) > 0) && !load_relaxed(&reservation_count);
}

bool pool_ease_on(void)
{
    if (likely(load_relaxed(&ease.todo) == 0) || !begin_easing())
        return false;
    bring_some_home();
    end_easing();
    return true;
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
