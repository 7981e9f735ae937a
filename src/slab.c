/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include "platform.h"
#include "poison.h"
#include "slab_map.h"

static _Atomic(struct slab *) current; /* where blocks were found last */
/* 1: shall have its pages before it is carved; set by who carves, cleared by a worker; a hint */
static _Atomic uint32_t next_wanted;

/* ---- the word ---- */

#define USED_BITS   11
#define NUMBER_BITS 16
#define CLOSED      ((1u << USED_BITS) - 1)
#define NUMBER_MASK ((1u << NUMBER_BITS) - 1)

#define HOME_AT  USED_BITS
#define FIRST_AT (HOME_AT + NUMBER_BITS)
#define TAG_AT   (FIRST_AT + NUMBER_BITS)

static_assert(SLAB_BLOCKS / SLAB_BATCH < CLOSED && SLAB_BLOCKS <= NUMBER_MASK,
              "the parts of the word are wide enough");

struct view {
    uint32_t used, home, first; /* first: the number of its first block and 1, or 0 */
};

static struct view view_of(uint64_t state)
{
    return (struct view){
        .used = (uint32_t)state & CLOSED,
        .home = (uint32_t)(state >> HOME_AT) & NUMBER_MASK,
        .first = (uint32_t)(state >> FIRST_AT) & NUMBER_MASK,
    };
}

static uint64_t state_after(uint64_t before, struct view v)
{
    return ((before >> TAG_AT) + 1) << TAG_AT | (uint64_t)v.first << FIRST_AT |
           (uint64_t)(v.home & NUMBER_MASK) << HOME_AT | v.used;
}

static bool change(struct slab *slab, uint64_t *seen, struct view to)
{
    return cas_acq_rel(&slab->state, seen, state_after(*seen, to));
}

static bool is_open(struct view v)
{
    return v.used != CLOSED;
}

/* A batch's first block holds in its word the next batch's number, and its own length. */
static uint64_t link_make(uint32_t next, uint32_t length)
{
    return (uint64_t)length << NUMBER_BITS | next;
}

/* ---- blocks and slabs ---- */

static hwt_timeout *block_number(const struct slab *slab, uint32_t number)
{
    return slab->blocks + (number - 1);
}

static uint32_t number_of(const struct slab *slab, const hwt_timeout *block)
{
    return (uint32_t)(block - slab->blocks) + 1;
}

/* The first is small, has small pages, and stays. */
static bool is_first(const struct slab *slab)
{
    return !slab->next;
}

/* ---- carve and fetch ---- */

/* How many are carved: up to the next multiple, so that no page is shared with others. */
static uint32_t carve(const struct slab *slab, uint32_t used, uint32_t at_once)
{
    return (uint32_t)min_u64(at_once - used % at_once, slab->batches - used);
}

static struct slab_batches chain(const struct slab *slab, uint32_t batch, uint32_t batches)
{
    hwt_timeout *first = slab->blocks + (size_t)batch * SLAB_BATCH;

    for (size_t i = 0; i < (size_t)batches * SLAB_BATCH; i++) {
        first[i].link.next = (i + 1) % SLAB_BATCH ? &first[i + 1].link : NULL;
        poison(&first[i]);
    }
    return (struct slab_batches){first, SLAB_BATCH, batches - 1};
}

static void populate(const struct slab *slab, uint32_t batch, uint32_t batches)
{
    platform_populate_pages(slab->blocks + (size_t)batch * SLAB_BATCH,
                            (size_t)batches * SLAB_BATCH * sizeof(hwt_timeout));
}

static void note_carved(const struct slab *slab, uint32_t before, uint32_t used)
{
    uint32_t half = slab->batches / 2;

    if (is_first(slab))
        populate(slab, before, used - before);
    if (before < half && used >= half)
        store_relaxed(&next_wanted, 1);
}

static struct slab_batches take_from(struct slab *slab, uint32_t at_once)
{
    uint64_t seen = load_acquire(&slab->state);

    for (;;) {
        struct view v = view_of(seen), to = v;

        if (v.first) {
            hwt_timeout *batch = block_number(slab, v.first);
            uint64_t word = load_relaxed(&batch->word); /* stale if fetched meanwhile: the tag */
            uint32_t length = (uint32_t)(word >> NUMBER_BITS);
            to.home -= length;
            to.first = (uint32_t)word & NUMBER_MASK;
            if (change(slab, &seen, to))
                return (struct slab_batches){batch, length, 0};
        } else if (at_once > 0 && v.used < slab->batches) {
            to.used += carve(slab, v.used, at_once);
            if (change(slab, &seen, to)) {
                note_carved(slab, v.used, to.used);
                return chain(slab, v.used, to.used - v.used);
            }
        } else { /* or closed, or nothing is to be carved */
            return (struct slab_batches){NULL, 0, 0};
        }
    }
}

struct slab_batches slab_fetch(void)
{
    struct slab *slab = load_acquire(&current);

    return slab ? take_from(slab, 0) : (struct slab_batches){NULL, 0, 0};
}

/* Those that are vacant come last: whole slabs of free blocks are what can be given back. */
static struct slab_batches search(uint32_t at_once)
{
    struct slab *found, *vacant = NULL;
    struct slab_batches batches = {NULL, 0, 0};

    for (found = slab_newest(); found; found = found->next) {
        if (view_of(load_relaxed(&found->state)).used == 0)
            vacant = found;
        else if ((batches = take_from(found, at_once)).first != NULL)
            break;
    }
    if (!batches.first && vacant && (batches = take_from(vacant, at_once)).first != NULL)
        found = vacant;
    if (batches.first)
        store_release(&current, found); /* pairs with slab_take */
    return batches;
}

/*
 * By a part of what there is: each time costs the threads that meet pages meanwhile, and pages that
 * nobody meets are only addresses. Or by what the system still has.
 */
static bool map_more(void)
{
    size_t ahead = slab_total() / SLAB_BLOCKS / GROW_PART;

    if (ahead > GROW_MOST)
        ahead = GROW_MOST;
    return (ahead > 1 && slab_map_more(ahead) == 0) || slab_map_more(1) == 0;
}

/* Until somebody else has not taken all of what was added. */
static struct slab_batches grow(uint32_t at_once)
{
    struct slab_batches batches;

    slab_map_lock();
    while ((batches = search(at_once)).first == NULL && map_more())
        continue;
    slab_map_unlock();
    return batches;
}

struct slab_batches slab_take(uint32_t at_once)
{
    struct slab *slab = load_acquire(&current);
    struct slab_batches batches =
        slab ? take_from(slab, at_once) : (struct slab_batches){NULL, 0, 0};

    if (!batches.first)
        batches = search(at_once);
    return batches.first ? batches : grow(at_once);
}

/* ---- coming home ---- */

static void bring(hwt_timeout *batch)
{
    struct slab *slab = slab_of(batch);
    uint32_t length = batch->batch_length;
    uint64_t seen = load_relaxed(&slab->state);
    struct view to;

    do { /* release: the batch is complete before it can be fetched */
        to = view_of(seen);
        hwt_assert(is_open(to));
        store_release(&batch->word, link_make(to.first, length)); /* C20 */
        to.first = number_of(slab, batch);
        to.home += length;
    } while (!change(slab, &seen, to));
}

void slab_sort(struct slab_sorter *sorter, hwt_timeout *block)
{
    hwt_timeout **bin = &sorter->bin[slab_granule(block) % SLAB_BINS], *head = *bin;
    uint32_t length = 1;

    if (head && slab_granule(head) != slab_granule(block)) {
        bring(head);
        head = NULL;
    }
    if (head)
        length += head->batch_length;
    block->link.next = head ? &head->link : NULL;
    block->batch_length = length;
    *bin = block;
    if (length == SLAB_BATCH) {
        bring(block);
        *bin = NULL;
    }
}

void slab_sort_end(struct slab_sorter *sorter)
{
    for (unsigned i = 0; i < SLAB_BINS; i++) {
        if (sorter->bin[i])
            bring(sorter->bin[i]);
        sorter->bin[i] = NULL;
    }
}

/* ---- vacating ---- */

static bool claim(struct slab *slab)
{
    uint64_t seen = load_acquire(&slab->state);
    struct view v = view_of(seen);

    return v.used != 0 && is_open(v) && v.home == v.used * SLAB_BATCH &&
           change(slab, &seen, (struct view){.used = CLOSED});
}

/* By whoever claimed it: nobody else changes the word of a closed slab. */
static void reopen(struct slab *slab)
{
    store_release(&slab->state, state_after(load_relaxed(&slab->state), (struct view){.used = 0}));
}

static size_t blocks_in(const struct slab *slab)
{
    return (size_t)slab->batches * SLAB_BATCH;
}

static size_t at_home(void)
{
    size_t sum = 0;

    for (struct slab *slab = slab_newest(); slab; slab = slab->next)
        sum += view_of(load_relaxed(&slab->state)).home;
    return sum;
}

static bool vacate(struct slab *slab)
{
    if (is_first(slab) || !claim(slab))
        return false;
    platform_release_pages(slab->blocks, blocks_in(slab) * sizeof(hwt_timeout));
    reopen(slab);
    return true;
}

void slab_vacate(size_t keep)
{
    size_t home = at_home();

    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        size_t here = view_of(load_relaxed(&slab->state)).home;
        if (home < keep + here)
            return;
        if (vacate(slab))
            home -= here < home ? here : home;
    }
}

void slab_vacate_one(struct slab **at)
{
    bool done = false;

    for (unsigned looks = 0; !done && looks < SURVEY_MOST; looks++) {
        *at = *at && (*at)->next ? (*at)->next : slab_newest();
        done = vacate(*at);
    }
}

/* ---- looking ahead ---- */

static size_t uncarved(const struct slab *slab, struct view v)
{
    return is_open(v) ? blocks_in(slab) - (size_t)v.used * SLAB_BATCH : blocks_in(slab);
}

size_t slab_available(void)
{
    size_t sum = 0;

    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        struct view v = view_of(load_relaxed(&slab->state));
        sum += v.home + uncarved(slab, v);
    }
    return sum;
}

size_t slab_total(void)
{
    size_t sum = 0;

    for (struct slab *slab = slab_newest(); slab; slab = slab->next)
        sum += blocks_in(slab);
    return sum;
}

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
        if (is_first(slab) && count > 0) /* small pages, several at once */
            platform_populate_pages(&slab->blocks[first], count * sizeof(hwt_timeout));
        touch(slab, first, count);
        beyond -= pass;
    }
}

bool slab_next_is_wanted(void)
{
    return unlikely(load_relaxed(&next_wanted));
}

/* The one that is carved next: see search. */
static struct slab *next_vacant(void)
{
    struct slab *vacant = NULL;

    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        if (view_of(load_relaxed(&slab->state)).used == 0)
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

void slab_do_without(void)
{
    store_relaxed(&next_wanted, 0);
}

/*
 * A huge page comes by a touch, which unlike asking for pages keeps nobody from mapping meanwhile.
 * If it was none, the rest is asked for.
 */
void slab_make_ready(void)
{
    struct slab *next;

    slab_do_without();
    next = find_next();
    if (next) {
        touch(next, 0, 1);
        populate(next, 0, next->batches);
    }
}

void slab_reopen_all(void)
{
    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        if (!is_open(view_of(load_relaxed(&slab->state))))
            reopen(slab);
    }
}

/* ---- debug builds ---- */

#ifdef HWT_DEBUG
_Atomic uintptr_t *slab_note(const hwt_timeout *block)
{
    struct slab *slab = slab_of(block);
    return &slab->notes[number_of(slab, block) - 1];
}

void slab_each(void (*visit)(hwt_timeout *block, void *arg), void *arg)
{
    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        struct view v = view_of(load_acquire(&slab->state));
        size_t carved = blocks_in(slab) - uncarved(slab, v);
        for (size_t i = 0; i < carved; i++)
            visit(&slab->blocks[i], arg);
    }
}
#endif
