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

    for (unsigned i = 0; i < count; i++)
        at[i] = batches[i];
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

/* Depot by depot: what one CPU has used stays together, and apart from what others have. */
static void sort(const struct slab_sorter *sorter, hwt_timeout *const *batches, unsigned count)
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

/* True: the depot may have more. The bins keep the last ones, until all are the same CPU's. */
static bool sort_portion(const struct slab_sorter *sorter, unsigned depot, unsigned portion,
                         size_t *most)
{
    hwt_timeout *batch[PORTION] = {NULL};
    size_t blocks = 0;
    unsigned count = 0;

    while (count < portion && (batch[count] = depot_pop(depot)) != NULL)
        blocks += batch[count++]->batch_length;
    sort(sorter, batch, count);
    *most -= blocks < *most ? blocks : *most;
    return count == portion;
}

/* ---- one at a time ---- */

/*
 * Whoever brings home a little at a time leaves what is sorted to the next one: a few blocks of
 * each slab would go by themselves otherwise, and be fetched so.
 */
static struct {
    _Atomic uint32_t busy; /* somebody is at it: the rest is his, but for a glimpse */
    struct slab_bin bin[SLAB_BINS];
    uint32_t looks;              /* of this window */
    uint64_t looked;             /* when, the last time that it was by time */
    uint32_t least;              /* batches in the depots, in this window ... */
    _Atomic uint32_t todo;       /* ... and those of the last one that are to be brought home */
    uint32_t again;              /* so many windows more, after one that had many */
    unsigned depot;              /* whose batches go home now, ... */
    uint32_t pieces;             /* ... and how many pieces of them in a row, until that many ... */
    bool sorted;                 /* ... or all are sorted, and what is, is brought home: then ... */
    _Atomic uint32_t looks_left; /* ... come so many looks, at a few slabs each */
    struct slab *slab;           /* looked at last */
} ease;

static const struct slab_sorter ease_sorter = {ease.bin, SLAB_BINS};

static bool begin_easing(void)
{
    return !exchange_acq_rel(&ease.busy, 1);
}

static void end_easing(void)
{
    store_release(&ease.busy, 0);
}

bool pool_bring_sorted(void)
{
    bool brought;

    if (!begin_easing())
        return false;
    brought = slab_sort_end_some(&ease_sorter, EASE_BATCHES);
    end_easing();
    return brought;
}

/* ---- all at once ---- */

static void bring_all_home(const struct slab_sorter *sorter)
{
    size_t most = slab_total();

    for (unsigned depot = 0; depot < depots_used(); depot++) {
        while (sort_portion(sorter, depot, PORTION, &most) && most > 0)
            slab_sort_end(sorter); /* of so many, they are at hand yet */
        slab_sort_end(sorter);
    }
}

/*
 * Once what lies in the depots now; others go on filling them, but not for ever. Beside somebody
 * else who is at it with few bins: nobody waits, and the stack may be small.
 */
static void bring_home(void)
{
    struct slab_bin few[SLAB_BINS_FEW];

    pool_flush();
    if (begin_easing()) {
        bring_all_home(&ease_sorter);
        end_easing();
    } else {
        memset(few, 0, sizeof few);
        bring_all_home(&(struct slab_sorter){few, SLAB_BINS_FEW});
    }
}

/* ---- reserve and trim ---- */

/* What the CPUs' depots keep, and as much on its way there. */
static size_t kept(void)
{
    return 2 * (size_t)depots_used() * pool_stretch() * SLAB_BATCH;
}

/* Besides: full magazines, a portion that is sorted, what is sorted, a slab being vacated. */
static size_t out_of_reach(void)
{
    return kept() + RESERVE_THREADS * MAGAZINE_MAX + PORTION * MAGAZINE_MAX +
           SLAB_BINS * SLAB_BATCH + SLAB_BLOCKS;
}

static pthread_mutex_t reserving = PTHREAD_MUTEX_INITIALIZER;
static struct pool_reservation *reservations; /* under the lock: those that are open ... */
static _Atomic size_t reserved;               /* ... and how many blocks, for a glimpse */

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
        add_relaxed(&reserved, reservation->count);
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
        sub_relaxed(&reserved, reservation->count);
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

/* ---- a little at a time ---- */

/*
 * What has lain in the depots unused for a whole window of looks is brought home, a few batches at
 * a time; and the pages of slabs that are all at home by then go back. A few batches may stay, but
 * not when many others have gone: they lie in all of the slabs, and what is fetched then, in few.
 */
static_assert(EASE_BATCHES <= PORTION, "a piece is a portion, or less");

static uint32_t batches_in_depots(void)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < depots_used(); i++)
        sum += depot_length(i);
    return sum > 0 ? (uint32_t)min_u64((uint64_t)sum, UINT32_MAX) : 0;
}

static void look_at_all_slabs(void)
{
    store_relaxed(&ease.looks_left, (uint32_t)(slab_total() / SLAB_BLOCKS / SURVEY_MOST) + 1);
}

static void end_window(void)
{
    uint32_t may_stay = ease.again > 0 ? 0 : EASE_KEEP;
    uint32_t todo = ease.least > may_stay ? ease.least : 0;

    if (ease.least > EASE_KEEP)
        ease.again = EASE_AGAIN;
    else if (ease.again > 0)
        ease.again--;
    ease.looks = 0;
    store_relaxed(&ease.todo, todo);
    if (todo > 0)
        look_at_all_slabs();
}

static void look_for_more(void)
{
    uint32_t free = batches_in_depots();

    ease.least = ease.looks == 0 || free < ease.least ? free : ease.least;
    if (++ease.looks == EASE_WINDOW)
        end_window();
}

void pool_ease(void)
{
    if (!begin_easing())
        return;
    look_for_more();
    end_easing();
}

void pool_ease_by_time(uint64_t coarse)
{
    if (!begin_easing())
        return;
    if (coarse - ease.looked >= EASE_LOOK_NS) {
        ease.looked = coarse;
        look_for_more();
    }
    end_easing();
}

/* To the next one that holds something, of a few. */
static void go_to_next_depot(void)
{
    ease.pieces = 0;
    for (unsigned looks = 0; looks < SURVEY_MOST; looks++) {
        ease.depot = (ease.depot + 1) % depots_used();
        if (depot_length(ease.depot) > 0)
            break;
    }
}

static void sort_some(void)
{
    size_t most = SIZE_MAX;
    bool more = sort_portion(&ease_sorter, ease.depot, EASE_BATCHES, &most);

    ease.sorted = true;
    ease.pieces = more ? ease.pieces + 1 : EASE_TURN;
}

/* Then what comes from the next depot goes apart from that. */
static void bring_some_sorted(void)
{
    ease.sorted = slab_sort_end_some(&ease_sorter, EASE_BATCHES);
    if (!ease.sorted)
        go_to_next_depot();
}

/* Counted as if none of what is reserved were in use: to ask the owners takes its time. */
static size_t kept_for_reservations(void)
{
    size_t count = load_relaxed(&reserved);

    return count > 0 ? count + kept() : 0;
}

static void bring_some_home(void)
{
    uint32_t todo = load_relaxed(&ease.todo);

    if (ease.sorted && (todo == 0 || ease.pieces >= EASE_TURN)) {
        bring_some_sorted();
    } else if (todo > 0) {
        sort_some();
        store_relaxed(&ease.todo, todo - (todo < EASE_BATCHES ? todo : EASE_BATCHES));
    } else {
        store_relaxed(&ease.looks_left, load_relaxed(&ease.looks_left) - 1);
    }
    if (slab_vacate_one(&ease.slab, kept_for_reservations()))
        look_at_all_slabs();
}

bool pool_must_ease(void)
{
    return unlikely(load_relaxed(&ease.todo) > 0 || load_relaxed(&ease.looks_left) > 0);
}

bool pool_ease_on(void)
{
    bool any;

    if (likely(!pool_must_ease()) || !begin_easing())
        return false;
    any = pool_must_ease(); /* still */
    if (any)
        bring_some_home();
    end_easing();
    return any;
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
    unlock();
    if (!child)
        return;
    reservations = NULL;
    store_relaxed(&reserved, 0);
    store_relaxed(&pool_keepers, pool_magazine.keeping == KEEP_UNTIL_END); /* this thread alone */
    if (load_relaxed(&ease.busy)) /* who was at it is not in the child */
        memset(ease.bin, 0, sizeof ease.bin);
    store_relaxed(&ease.busy, 0);
}
