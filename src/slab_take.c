/* SPDX-License-Identifier: BSD-2-Clause */
/* Which slab blocks are taken from; and that the next one has its pages before that. */
#include "slab.h"

#include "platform.h"
#include "slab_word.h"

#define SMALL_AT_ONCE 16 /* batches, 32 KB: who maps waits for no more */

static _Atomic(struct slab *) current; /* where blocks were found last */

/* How things stand with the pages of the next slab. A hint. */
enum next {
    NEXT_ENOUGH,
    NEXT_WANTED,  /* who carved says so; maybe there is nobody who would see to it */
    NEXT_ASKED,   /* a worker has been asked ... */
    NEXT_COMING,  /* ... and is at it ... */
    NEXT_PUT_OFF, /* ... or has more urgent things to do */
};
static _Atomic uint32_t next_slab;

/* ---- carved ---- */

static void populate(const struct slab *slab, uint32_t batch, uint32_t batches)
{
    platform_populate_pages(slab->blocks + (size_t)batch * SLAB_BATCH,
                            (size_t)batches * SLAB_BATCH * sizeof(hwt_timeout));
}

/* Whether there is anybody is to be seen anew; but while a spare one is carved there is. */
static void want_next(const struct slab *carved)
{
    uint32_t next = load_relaxed(&next_slab);

    if (!is_spare(carved) && next != NEXT_COMING)
        store_relaxed(&next_slab, NEXT_WANTED);
    else if (is_spare(carved) && next == NEXT_PUT_OFF)
        store_relaxed(&next_slab, NEXT_ASKED);
}

void slab_note_carved(const struct slab *slab, uint32_t before, uint32_t used)
{
    uint32_t half = slab->batches / 2;

    if (is_first(slab))
        populate(slab, before, used - before);
    if (before < half && used >= half)
        want_next(slab);
}

/* ---- where to take from ---- */

struct slab_batches slab_fetch(void)
{
    struct slab *slab = load_acquire(&current);

    return slab ? slab_take_from(slab, 0) : NO_BATCHES;
}

/* Where something new can be begun: the oldest of each kind, or NULL. */
struct choice {
    struct slab *ready, *vacant, *spare;
};

static void consider(struct choice *choice, struct slab *slab)
{
    if (load_relaxed(&slab->ready))
        choice->ready = slab;
    if (is_spare(slab))
        choice->spare = slab;
    else
        choice->vacant = slab;
}

/* Then the worker waits for a huge page, and nobody else does. */
static bool is_spare_called_for(void)
{
    return load_relaxed(&next_slab) >= NEXT_ASKED;
}

static struct slab *choose(const struct choice *choice)
{
    if (choice->ready)
        return choice->ready;
    if (choice->spare && is_spare_called_for())
        return choice->spare;
    return choice->vacant;
}

/* It has begun to be carved. A spare one is to be chosen for each stretch. */
static bool is_begun(const struct slab *slab, struct view v)
{
    return v.used > 0 && !is_spare(slab);
}

static struct slab_batches take_here(struct slab *slab, uint32_t at_once)
{
    struct slab_batches batches = slab ? slab_take_from(slab, at_once) : NO_BATCHES;

    if (batches.first)
        store_release(&current, slab); /* pairs with slab_take */
    return batches;
}

/*
 * In those that are newer than `end` (NULL: in all). What is vacant comes last: whole slabs of free
 * blocks are what can be given back.
 */
static struct slab_batches search(uint32_t at_once, const struct slab *end)
{
    struct choice choice = {NULL, NULL, NULL};
    struct slab_batches batches = NO_BATCHES;

    for (struct slab *slab = slab_newest(); slab != end; slab = slab->next) {
        struct view v = view_of(load_relaxed(&slab->state));
        bool room = has_room(slab, v), begun = room && is_begun(slab, v);
        if (v.first || begun)
            batches = take_here(slab, is_spare(slab) ? 0 : at_once);
        if (batches.first)
            return batches;
        if (room && !begun)
            consider(&choice, slab);
    }
    return take_here(choose(&choice), at_once);
}

/* Nothing more can be mapped: what is spare, too. */
static struct slab_batches take_any(uint32_t at_once)
{
    struct slab_batches batches = NO_BATCHES;

    for (struct slab *slab = slab_newest(); slab && !batches.first; slab = slab->next)
        batches = take_here(slab, at_once);
    return batches;
}

static size_t spares_for(size_t slabs)
{
    return slabs * SPARES_EACH + 1;
}

/*
 * By a part of what there is: each time costs the threads that meet pages meanwhile, and pages that
 * nobody meets are only addresses. Or by what the system still has.
 */
static bool map_more(void)
{
    size_t ahead = slab_count() / GROW_PART;

    if (ahead > GROW_MOST)
        ahead = GROW_MOST;
    return (ahead > 1 && slab_map_more(ahead, spares_for(ahead)) == 0) ||
           slab_map_more(1, spares_for(1)) == 0 || slab_map_more(1, 0) == 0;
}

/* Until somebody else has not taken all of what was added since; older ones were looked through. */
static struct slab_batches grow(uint32_t at_once, const struct slab *seen)
{
    struct slab_batches batches;

    slab_map_lock();
    while ((batches = search(at_once, seen)).first == NULL) {
        seen = slab_newest();
        if (!map_more())
            break;
    }
    slab_map_unlock();
    return batches.first ? batches : take_any(at_once);
}

struct slab_batches slab_take(uint32_t at_once)
{
    struct slab *slab = load_acquire(&current), *newest;
    struct slab_batches batches = NO_BATCHES;

    if (slab && (!is_spare(slab) || is_spare_called_for()))
        batches = slab_take_from(slab, at_once);
    if (batches.first)
        return batches;
    newest = slab_newest();
    batches = search(at_once, NULL);
    return batches.first ? batches : grow(at_once, newest);
}

/* ---- looking ahead ---- */

/*
 * Touches by writing what is there: whoever carves the block meanwhile is not disturbed. (To add
 * nothing would be a read for clang, and a read does not make a page resident.)
 */
static void touch(struct slab *slab, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i += SLAB_BATCH) {
        uint64_t seen = load_relaxed(&slab->blocks[i].word);
        cas_acq_rel(&slab->blocks[i].word, &seen, seen);
    }
}

/* From the oldest slab on, as they are carved: what is beyond is passed over first. */
void slab_populate(size_t blocks)
{
    size_t available = slab_available(),
           beyond = available - (blocks < available ? blocks : available);

    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        struct view v = view_of(load_relaxed(&slab->state));
        size_t free = is_open(v) ? uncarved(slab, v) : 0;
        size_t pass = beyond < free ? beyond : free;
        size_t first = blocks_in(slab) - free, count = free - pass;
        if (slab->small && count > 0) /* several at once */
            platform_populate_pages(&slab->blocks[first], count * sizeof(hwt_timeout));
        touch(slab, first, count);
        if (count > 0)
            store_relaxed(&slab->ready, 1);
        beyond -= pass;
    }
}

bool slab_next_is_wanted(void)
{
    uint32_t next = load_relaxed(&next_slab);

    return unlikely(next == NEXT_WANTED || next == NEXT_ASKED);
}

void slab_promise_next(void)
{
    if (load_relaxed(&next_slab) == NEXT_WANTED)
        store_relaxed(&next_slab, NEXT_ASKED);
}

/* The one that is carved next: see search. */
static struct slab *next_vacant(void)
{
    struct slab *vacant = NULL;

    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        if (view_of(load_relaxed(&slab->state)).used == 0 && !is_spare(slab))
            vacant = slab;
    }
    return vacant;
}

static struct slab *find_next(void)
{
    struct slab *slab;

    slab_map_lock();
    while ((slab = next_vacant()) == NULL && map_more())
        continue;
    slab_map_unlock();
    return slab;
}

void slab_put_off(void)
{
    store_relaxed(&next_slab, NEXT_PUT_OFF);
}

/*
 * A huge page comes by a touch, which unlike asking for pages keeps nobody from mapping meanwhile.
 * If it was none, the rest is asked for.
 */
static void bring_huge(struct slab *slab)
{
    touch(slab, 0, 1);
    populate(slab, 0, slab->batches);
}

/* Under some hypervisors the first touch of what the system has brought takes longer than that. */
static void bring_small(struct slab *slab)
{
    platform_advise_small(slab->blocks, blocks_in(slab) * sizeof(hwt_timeout));
    for (uint32_t batch = 0; batch < slab->batches; batch += SMALL_AT_ONCE) {
        uint32_t batches = (uint32_t)min_u64(SMALL_AT_ONCE, slab->batches - batch);
        populate(slab, batch, batches);
        touch(slab, (size_t)batch * SLAB_BATCH, (size_t)batches * SLAB_BATCH);
    }
}

void slab_make_ready(bool small)
{
    struct slab *next;

    store_relaxed(&next_slab, NEXT_COMING);
    next = find_next();
    if (next && !load_relaxed(&next->ready)) {
        if (small)
            bring_small(next);
        else
            bring_huge(next);
        store_relaxed(&next->ready, 1);
    }
    store_relaxed(&next_slab, NEXT_ENOUGH);
}

void slab_promise_nothing(void)
{
    store_relaxed(&next_slab, NEXT_ENOUGH);
}
