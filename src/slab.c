/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include "batch.h"
#include "platform.h"
#include "slab_word.h"

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

/* ---- carve and fetch ---- */

/*
 * How many are carved: up to the next multiple, so that no page is shared with others. Of a spare
 * slab a page: each takes its time.
 */
static uint32_t carve(const struct slab *slab, uint32_t used, uint32_t at_once)
{
    if (is_spare(slab))
        at_once = CARVE_SPARE;
    return (uint32_t)min_u64(at_once - used % at_once, slab->batches - used);
}

static struct slab_batches chain(const struct slab *slab, uint32_t batch, uint32_t batches)
{
    hwt_timeout *first = slab->blocks + (size_t)batch * SLAB_BATCH;

    for (size_t i = 0; i < (size_t)batches * SLAB_BATCH; i++) {
        first[i].link.next = (i + 1) % SLAB_BATCH ? &first[i + 1].link : NULL;
        if (i % SLAB_BATCH == 0)
            batch_set_length(&first[i], SLAB_BATCH);
        poison(&first[i]);
    }
    return (struct slab_batches){first, SLAB_BATCH, batches - 1};
}

struct slab_batches slab_take_from(struct slab *slab, uint32_t at_once)
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
                slab_note_carved(slab, v.used, to.used);
                return chain(slab, v.used, to.used - v.used);
            }
        } else { /* or closed, or nothing is to be carved */
            return NO_BATCHES;
        }
    }
}

/* ---- coming home ---- */

/* Each of them is waited for at the same time. */
static hwt_timeout *link_all(const struct slab_bin *bin)
{
    hwt_timeout *next = NULL;

    for (uint32_t i = 0; i < bin->length; i++)
        __builtin_prefetch(block_number(bin->slab, bin->number[i]), 1);
    for (uint32_t i = 0; i < bin->length; i++) {
        hwt_timeout *block = block_number(bin->slab, bin->number[i]);
        block->link.next = next ? &next->link : NULL;
        next = block;
    }
    batch_note(next, bin->length);
    return next;
}

static void bring(struct slab_bin *bin)
{
    struct slab *slab = bin->slab;
    uint32_t length = bin->length;
    hwt_timeout *batch = link_all(bin);
    uint64_t seen = load_relaxed(&slab->state);
    struct view to;

    do { /* release: the batch is complete before it can be fetched */
        to = view_of(seen);
        hwt_assert(is_open(to));
        store_release(&batch->word, link_make(to.first, length)); /* C20 */
        to.first = number_of(slab, batch);
        to.home += length;
    } while (!change(slab, &seen, to));
    bin->length = 0;
}

void slab_sort(const struct slab_sorter *sorter, hwt_timeout *block)
{
    struct slab *slab = slab_of(block);
    struct slab_bin *bin = &sorter->bin[slab_granule(block) & (sorter->bins - 1)];

    if (bin->length > 0 && bin->slab != slab)
        bring(bin);
    bin->slab = slab;
    bin->number[bin->length++] = (uint16_t)number_of(slab, block);
    if (bin->length == SLAB_BATCH)
        bring(bin);
}

bool slab_sort_end_some(const struct slab_sorter *sorter, unsigned most)
{
    unsigned brought = 0;

    for (unsigned i = 0; i < sorter->bins && brought < most; i++) {
        if (sorter->bin[i].length > 0) {
            bring(&sorter->bin[i]);
            brought++;
        }
    }
    return brought > 0;
}

void slab_sort_end(const struct slab_sorter *sorter)
{
    (void)slab_sort_end_some(sorter, sorter->bins);
}

/* ---- vacating ---- */

/* All that was carved of it, and that is something, is at home. */
static bool is_whole(struct view v)
{
    return v.used != 0 && is_open(v) && v.home == v.used * SLAB_BATCH;
}

static bool claim(struct slab *slab)
{
    uint64_t seen = load_acquire(&slab->state);

    return is_whole(view_of(seen)) && change(slab, &seen, (struct view){.used = CLOSED});
}

/* By whoever claimed it: nobody else changes the word of a closed slab. */
static void reopen(struct slab *slab)
{
    store_release(&slab->state, state_after(load_relaxed(&slab->state), (struct view){.used = 0}));
}

void slab_reopen_all(void)
{
    for (struct slab *slab = slab_newest(); slab; slab = slab->next) {
        if (!is_open(view_of(load_relaxed(&slab->state))))
            reopen(slab);
    }
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
    store_relaxed(&slab->ready, 0);
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

/* All are counted only for one that could go. */
static bool may_go(const struct slab *slab, size_t keep)
{
    struct view v = view_of(load_relaxed(&slab->state));

    return is_whole(v) && (keep == 0 || at_home() >= keep + v.home);
}

bool slab_vacate_one(struct slab **at, size_t keep)
{
    bool done = false;

    for (unsigned looks = 0; !done && looks < SURVEY_MOST; looks++) {
        *at = *at && (*at)->next ? (*at)->next : slab_newest();
        done = may_go(*at, keep) && vacate(*at);
    }
    return done;
}

/* ---- counted ---- */

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
