/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include <errno.h>
#include <pthread.h>

#include "platform.h"
#include "poison.h"

#define GRANULE_BITS 21 /* 2 MB: a huge page, and no two slabs lie in one */
#define GRANULE      ((size_t)1 << GRANULE_BITS)
#define FIRST_SIZE   (GRANULE / 2) /* a process with few timeouts stays small */

struct slab {
    alignas(CACHE_LINE) _Atomic uint64_t state; /* see slab.h */
    /* never change */
    hwt_timeout *blocks;
    uint32_t batches;  /* that can be carved */
    struct slab *next; /* the one before it: there is always one more until the first */
#ifdef HWT_DEBUG
    _Atomic uintptr_t *notes; /* one for each block */
#endif
};

/* A slab's descriptor, by its address: the root is always there, leaves as they are needed. */
#define LEAF_BITS 14
#define ROOT_BITS (PLATFORM_ADDRESS_BITS - GRANULE_BITS - LEAF_BITS)
#define LEAF_SIZE (sizeof(struct slab) << LEAF_BITS)
static _Atomic(struct slab *) root[1 << ROOT_BITS];

static _Atomic(struct slab *) newest;  /* of the list of all, which only grows */
static _Atomic(struct slab *) current; /* where blocks were found last */
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool forking;

static void lock(void)
{
    if (!forking)
        pthread_mutex_lock(&growth);
}

static void unlock(void)
{
    if (!forking)
        pthread_mutex_unlock(&growth);
}

/* ---- the word ---- */

#define USED_BITS   11
#define NUMBER_BITS 16
#define CLOSED      ((1u << USED_BITS) - 1)
#define NUMBER_MASK ((1u << NUMBER_BITS) - 1)

#define HOME_AT  USED_BITS
#define FIRST_AT (HOME_AT + NUMBER_BITS)
#define TAG_AT   (FIRST_AT + NUMBER_BITS)

static_assert(SLAB_BLOCKS * sizeof(hwt_timeout) == GRANULE, "a slab fills its granule");
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

static _Atomic(struct slab *) *leaf_of(uint64_t address)
{
    return &root[address >> (GRANULE_BITS + LEAF_BITS)];
}

/* Whoever has a block in hand has got it after its slab was added: relaxed is enough. */
static struct slab *slab_of(const hwt_timeout *block)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    struct slab *leaf = load_relaxed(leaf_of(address));

    return leaf + (address >> GRANULE_BITS & ((1u << LEAF_BITS) - 1));
}

/* ---- carve and fetch ---- */

static hwt_timeout *chain(const struct slab *slab, uint32_t batch)
{
    hwt_timeout *first = slab->blocks + (size_t)batch * SLAB_BATCH;

    for (unsigned i = 0; i < SLAB_BATCH; i++) {
        first[i].link.next = i + 1 < SLAB_BATCH ? &first[i + 1].link : NULL;
        poison(&first[i]);
    }
    return first;
}

static hwt_timeout *take_from(struct slab *slab, uint32_t *count)
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
            *count = length;
            if (change(slab, &seen, to))
                return batch;
        } else if (v.used < slab->batches) {
            to.used++;
            *count = SLAB_BATCH;
            if (change(slab, &seen, to))
                return chain(slab, v.used);
        } else { /* or closed */
            return NULL;
        }
    }
}

/* Those that are vacant come last: whole slabs of free blocks are what can be given back. */
static hwt_timeout *search(uint32_t *count)
{
    struct slab *found, *vacant = NULL;
    hwt_timeout *batch = NULL;

    for (found = load_acquire(&newest); found; found = found->next) {
        if (view_of(load_relaxed(&found->state)).used == 0)
            vacant = found;
        else if ((batch = take_from(found, count)) != NULL)
            break;
    }
    if (!batch && vacant && (batch = take_from(vacant, count)) != NULL)
        found = vacant;
    if (batch)
        store_release(&current, found); /* pairs with slab_take */
    return batch;
}

/* ---- growth ---- */

/* Under the lock. */
static bool make_leaf(uint64_t address)
{
    struct slab *leaf = load_relaxed(leaf_of(address));

    if (!leaf) {
        leaf = platform_map(LEAF_SIZE, alignof(struct slab));
        store_release(leaf_of(address), leaf);
    }
    return leaf != NULL;
}

static bool make_notes(struct slab *slab, size_t blocks)
{
#ifdef HWT_DEBUG
    slab->notes = platform_map(blocks * sizeof *slab->notes, alignof(uintptr_t));
    return slab->notes != NULL;
#else
    (void)slab;
    (void)blocks;
    return true;
#endif
}

/* Under the lock. The memory becomes a slab, which a block of its own is taken from first. */
static bool enter(char *memory, size_t size, hwt_timeout **own, uint32_t *count)
{
    struct slab *slab;

    if (!make_leaf((uint64_t)(uintptr_t)memory))
        return false;
    slab = slab_of((hwt_timeout *)(void *)memory);
    if (!make_notes(slab, size / sizeof(hwt_timeout)))
        return false;
    slab->blocks = (hwt_timeout *)(void *)memory;
    slab->batches = (uint32_t)(size / sizeof(hwt_timeout) / SLAB_BATCH);
    slab->next = load_relaxed(&newest);
    if (own)
        *own = take_from(slab, count);
    store_release(&newest, slab); /* its fields before its use; pairs with search */
    if (own)
        store_release(&current, slab);
    return true;
}

/*
 * Under the lock: `slabs` more. The first one is small, and no huge page: its pages are touched in
 * order, as they are needed. What could not be entered is unmapped again: nobody has seen it.
 */
static int add(size_t slabs, hwt_timeout **own, uint32_t *count)
{
    bool first = !load_relaxed(&newest);
    size_t size = first ? FIRST_SIZE : GRANULE, done = 0;
    char *memory;

    if (first)
        slabs = 1;
    if (slabs > ((size_t)1 << (PLATFORM_ADDRESS_BITS - 1 - GRANULE_BITS)))
        return -ENOMEM;
    memory = platform_map(slabs * size, size);
    if (!memory)
        return -ENOMEM;
    if (first)
        platform_advise_small(memory, size);
    else
        platform_advise_huge(memory, slabs * size);
    while (done < slabs && enter(memory + done * size, size, done ? NULL : own, count))
        done++;
    if (done < slabs)
        platform_unmap(memory + done * size, (slabs - done) * size);
    return done < slabs ? -ENOMEM : 0;
}

static hwt_timeout *grow(uint32_t *count)
{
    hwt_timeout *batch;

    lock();
    batch = search(count); /* others may have grown it meanwhile */
    if (!batch && add(1, &batch, count) != 0)
        batch = NULL;
    unlock();
    return batch;
}

hwt_timeout *slab_take(uint32_t *count)
{
    struct slab *slab = load_acquire(&current);
    hwt_timeout *batch = slab ? take_from(slab, count) : NULL;

    if (!batch)
        batch = search(count);
    return batch ? batch : grow(count);
}

int slab_prepare(void)
{
    int result = 0;

    if (likely(load_relaxed(&newest) != NULL))
        return 0;
    lock();
    if (!load_relaxed(&newest))
        result = add(1, NULL, NULL);
    unlock();
    return result;
}

int slab_add(size_t blocks)
{
    int result;

    lock();
    result = add(blocks / SLAB_BLOCKS + 1, NULL, NULL);
    unlock();
    return result;
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
        store_relaxed(&batch->word, link_make(to.first, length));
        to.first = number_of(slab, batch);
        to.home += length;
    } while (!change(slab, &seen, to));
}

static uint64_t granule(const hwt_timeout *block)
{
    return (uint64_t)(uintptr_t)block >> GRANULE_BITS;
}

void slab_sort(struct slab_sorter *sorter, hwt_timeout *block)
{
    hwt_timeout **bin = &sorter->bin[granule(block) % SLAB_BINS], *head = *bin;
    uint32_t length = 1;

    if (head && granule(head) != granule(block)) {
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

    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next)
        sum += view_of(load_relaxed(&slab->state)).home;
    return sum;
}

void slab_vacate(size_t keep)
{
    size_t home = at_home();

    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next) {
        size_t here = view_of(load_relaxed(&slab->state)).home;
        if (home < keep + here)
            return;
        if (!slab->next || !claim(slab)) /* the first is small, and stays */
            continue;
        home -= here < home ? here : home;
        platform_release_pages(slab->blocks, blocks_in(slab) * sizeof(hwt_timeout));
        reopen(slab);
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

    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next) {
        struct view v = view_of(load_relaxed(&slab->state));
        sum += v.home + uncarved(slab, v);
    }
    return sum;
}

size_t slab_total(void)
{
    size_t sum = 0;

    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next)
        sum += blocks_in(slab);
    return sum;
}

/* Touches by adding nothing: whoever carves the block meanwhile is not disturbed. */
static void touch(struct slab *slab, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i += SLAB_BATCH)
        add_relaxed(&slab->blocks[i].word, 0);
}

/* From the oldest slab on, as they are carved: what is beyond is passed over first. */
void slab_populate(size_t blocks)
{
    size_t available = slab_available(),
           beyond = available - (blocks < available ? blocks : available);

    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next) {
        struct view v = view_of(load_relaxed(&slab->state));
        size_t free = is_open(v) ? uncarved(slab, v) : 0;
        size_t pass = beyond < free ? beyond : free;
        touch(slab, blocks_in(slab) - free, free - pass);
        beyond -= pass;
    }
}

/* ---- fork ---- */

bool slab_is_forking(void)
{
    return forking;
}

void slab_before_fork(void)
{
    lock();
    forking = true;
}

/* In the child nobody is left who would reopen what he claimed. */
static void reopen_all(void)
{
    for (struct slab *slab = load_relaxed(&newest); slab; slab = slab->next) {
        if (!is_open(view_of(load_relaxed(&slab->state))))
            reopen(slab);
    }
}

void slab_after_fork(bool child)
{
    forking = false;
    if (!child) {
        unlock();
        return;
    }
    pthread_mutex_init(&growth, NULL);
    reopen_all();
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
    for (struct slab *slab = load_acquire(&newest); slab; slab = slab->next) {
        struct view v = view_of(load_acquire(&slab->state));
        size_t carved = blocks_in(slab) - uncarved(slab, v);
        for (size_t i = 0; i < carved; i++)
            visit(&slab->blocks[i], arg);
    }
}
#endif
