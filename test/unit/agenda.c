/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=aligned_alloc,--wrap=mmap */
/*
 * The agenda against a sorted array, under everything that wheel and worker do to it: single
 * timeouts, buckets of every size and shape, moves, notices, removals; the order to the nanosecond
 * and to the stamp (G15), with memory and without. HWT_TEST_SEED=n repeats a run.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agenda.h"
#include "support.h"

static bool memory_is_short;

void *__real_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
    return memory_is_short ? NULL : __real_malloc(size);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return memory_is_short ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

TestSuite(agenda, .init = test_arm);

/* As coarse as they come: a key tells the nanosecond up to 2.1 ms. */
static const uint64_t ticks[] = {HWT_USEC(1),  HWT_MSEC(1), (1u << 21) - 1, 1u << 21,
                                 HWT_MSEC(10), HWT_SEC(1),  HWT_SEC(3600)};

struct play {
    struct chunk_store store;
    struct agenda agenda;
    struct bucket due; /* as long-lived as a wheel's: stale places lead there */
    uint64_t tick_ns, base, random, submissions, shuffle;
    hwt_timeout *node;
    hwt_timeout **spare, **sorted; /* not in use; in the agenda, in their order */
    size_t capacity, spares, count, noticed, taken;
};

static struct play *play_open(uint64_t tick_ns, size_t capacity)
{
    struct play *p = aligned_alloc(CACHE_LINE, (sizeof *p + 63) & ~(size_t)63);

    cr_assert_not_null(p);
    memset((void *)p, 0, sizeof *p);
    p->capacity = p->spares = capacity;
    p->node = aligned_alloc(CACHE_LINE, capacity * sizeof *p->node);
    p->spare = calloc(capacity, sizeof *p->spare);
    p->sorted = calloc(capacity, sizeof *p->sorted);
    cr_assert(p->node && p->spare && p->sorted);
    memset((void *)p->node, 0, capacity * sizeof *p->node);
    for (size_t i = 0; i < capacity; i++)
        p->spare[i] = &p->node[capacity - 1 - i];
    p->tick_ns = tick_ns;
    p->base = test_epochs[1] / tick_ns * tick_ns;
    p->random = test_seed("agenda");
    p->shuffle = 63;
    chunk_store_init(&p->store);
    cr_assert_eq(agenda_init(&p->agenda, &p->store, tick_ns), 0);
    return p;
}

static void play_close(struct play *p)
{
    memory_is_short = false;
    agenda_destroy(&p->agenda);
    chunk_store_destroy(&p->store);
    free(p->node);
    free(p->spare);
    free(p->sorted);
    free(p);
}

static uint64_t pick(struct play *p, uint64_t bound)
{
    return test_random_below(&p->random, bound);
}

/* ---- the sorted array ---- */

static int compare(const void *left, const void *right)
{
    const hwt_timeout *a = *(hwt_timeout *const *)left, *b = *(hwt_timeout *const *)right;

    if (timeout_deadline(a) != timeout_deadline(b))
        return timeout_deadline(a) < timeout_deadline(b) ? -1 : 1;
    return (a->stamp > b->stamp) - (a->stamp < b->stamp);
}

/* How many come before it. */
static size_t rank(const struct play *p, hwt_timeout *timeout)
{
    size_t low = 0, high = p->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&p->sorted[middle], &timeout) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void list(struct play *p, hwt_timeout *timeout)
{
    size_t at = rank(p, timeout);

    memmove(&p->sorted[at + 1], &p->sorted[at], (p->count - at) * sizeof p->sorted[0]);
    p->sorted[at] = timeout;
    p->count++;
}

static void unlist(struct play *p, hwt_timeout *timeout)
{
    size_t at = rank(p, timeout);

    while (p->sorted[at] != timeout)
        at++;
    p->count--;
    memmove(&p->sorted[at], &p->sorted[at + 1], (p->count - at) * sizeof p->sorted[0]);
}

static hwt_timeout *make(struct play *p, uint64_t deadline)
{
    hwt_timeout *timeout = p->spare[--p->spares];

    timeout->stamp = (++p->submissions ^ (test_random(&p->random) & p->shuffle)) << STAMP_LANE_BITS;
    timeout->place = PLACE_ADRIFT;
    store_relaxed(&timeout->refs, 1 + (uint32_t)(p->submissions & 1)); /* every other one alone */
    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
    return timeout;
}

static void set_deadline(hwt_timeout *timeout, uint64_t deadline)
{
    store_relaxed(&timeout->word, word_make(deadline, WORD_PENDING));
}

/* ---- what wheel and worker do ---- */

static void add(struct play *p, uint64_t deadline)
{
    hwt_timeout *timeout = make(p, deadline);

    agenda_add(&p->agenda, timeout, deadline);
    list(p, timeout);
}

enum shape { EVEN, CLUSTERS, ONE_DEADLINE, ONE_KEY, TWO_DEADLINES, ENDS, SHAPES };

static uint64_t shaped(struct play *p, enum shape shape)
{
    uint64_t keys = UINT64_C(1) << p->agenda.quantum;

    switch (shape) {
    case CLUSTERS: return p->base + 1 + pick(p, 4) * (p->tick_ns / 4) + pick(p, 3);
    case ONE_DEADLINE: return p->base + p->tick_ns / 3 + 1;
    case ONE_KEY: return (p->base + p->tick_ns / 3) / keys * keys + keys + pick(p, keys);
    case TWO_DEADLINES: return p->base + 1 + pick(p, 2) * (p->tick_ns - 1);
    case ENDS: return p->base + (pick(p, 2) ? 1 + pick(p, 2) : p->tick_ns - pick(p, 2));
    default: return p->base + 1 + pick(p, p->tick_ns);
    }
}

/* Those of a tick; without memory for a chunk one at a time. */
static void add_tick(struct play *p, size_t count, enum shape shape, bool sort_later)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t deadline = shaped(p, shape);
        hwt_timeout *timeout = make(p, deadline);
        uint64_t packed = packed_filed(timeout, deadline, agenda_key(&p->agenda, deadline));
        if (!bucket_insert(&p->due, &p->store, packed, deadline))
            agenda_add(&p->agenda, timeout, deadline);
        if (sort_later)
            p->sorted[p->count++] = timeout;
        else
            list(p, timeout);
    }
    if (sort_later)
        qsort(p->sorted, p->count, sizeof p->sorted[0], compare);
    if (!bucket_is_empty(&p->due))
        agenda_add_bucket(&p->agenda, &p->due, p->base);
    cr_assert(bucket_is_empty(&p->due));
}

/* Those that were sorted elsewhere, beside whatever is here. */
static void add_sorted(struct play *p, size_t count, enum shape shape)
{
    struct entry *entry = calloc(count, sizeof *entry), *spare = calloc(count, sizeof *entry);

    cr_assert(entry && spare);
    for (size_t i = 0; i < count; i++) {
        hwt_timeout *timeout = make(p, shaped(p, shape));
        entry[i] = entry_of(timeout);
        list(p, timeout);
    }
    entries_sort(entry, (unsigned)count, spare);
    agenda_add_sorted(&p->agenda, entry, (unsigned)count);
    free(entry);
    free(spare);
}

static hwt_timeout *any(struct play *p)
{
    return p->sorted[pick(p, 3) ? pick(p, p->count) : pick(p, min_u64(p->count, 50))];
}

static void release(struct play *p, hwt_timeout *timeout)
{
    p->spare[p->spares++] = timeout;
}

/* As wheel_remove does. */
static void take_out(struct play *p, hwt_timeout *timeout)
{
    if (bucket_holds(timeout)) /* in a tie that is closed */
        bucket_remove(&p->store, timeout);
    else
        agenda_extract(&p->agenda, timeout);
    cr_assert_eq(timeout->place, PLACE_ADRIFT);
}

static void take_dropped(struct play *p)
{
    hwt_timeout *timeout;

    while ((timeout = agenda_take_dropped(&p->agenda)) != NULL) {
        cr_assert_eq(timeout->place, PLACE_NOTICED);
        cr_assert_gt(p->noticed, 0);
        p->noticed--;
        release(p, timeout);
    }
}

/* As wheel_remove_over does. */
static void notice(struct play *p, hwt_timeout *timeout)
{
    unlist(p, timeout);
    if (bucket_holds(timeout)) {
        bucket_remove(&p->store, timeout);
        release(p, timeout);
        return;
    }
    agenda_notice(&p->agenda, timeout);
    p->noticed++;
    take_dropped(p);
}

static void extract(struct play *p, hwt_timeout *timeout)
{
    unlist(p, timeout);
    take_out(p, timeout);
    release(p, timeout);
}

static void move_later(struct play *p, hwt_timeout *timeout)
{
    unlist(p, timeout);
    set_deadline(timeout, timeout_deadline(timeout) + pick(p, 3) * pick(p, p->tick_ns));
    list(p, timeout);
}

static void move_earlier(struct play *p, hwt_timeout *timeout)
{
    uint64_t deadline = timeout_deadline(timeout) - pick(p, p->tick_ns + 1);

    unlist(p, timeout);
    set_deadline(timeout, deadline);
    take_out(p, timeout);
    agenda_add(&p->agenda, timeout, deadline);
    list(p, timeout);
}

static void check_first(struct play *p)
{
    const struct entry *first = agenda_first(&p->agenda, UINT64_MAX);

    take_dropped(p);
    cr_assert_eq(first != NULL, p->count > 0, "lost or made up (G2)");
    if (!first)
        return;
    cr_assert_eq(first->deadline, timeout_deadline(p->sorted[0]), "G15: out of turn");
    cr_assert_eq(first->stamp, p->sorted[0]->stamp, "G15: equal deadlines out of turn");
    cr_assert_eq(first->deadline, timeout_deadline(first->timeout));
}

static void take_first(struct play *p)
{
    hwt_timeout *timeout;

    check_first(p);
    if (p->count == 0)
        return;
    timeout = agenda_take(&p->agenda);
    agenda_prefetch(&p->agenda, 3, 2);
    cr_assert_not(bucket_holds(timeout));
    unlist(p, timeout);
    release(p, timeout);
    p->taken++;
}

static void check(struct play *p)
{
    cr_assert_eq(agenda_check(&p->agenda, AGENDA_LEVELS), p->count);
    cr_assert_eq(agenda_check(&p->agenda, AGENDA_LEVELS) + p->noticed + p->spares, p->capacity);
}

static void drain(struct play *p)
{
    while (p->count > 0)
        take_first(p);
    check_first(p);
    take_dropped(p);
    cr_assert_eq(p->noticed, 0, "they would keep their memory (G6)");
    check(p);
}

/* ---- random plays ---- */

static void add_some(struct play *p)
{
    static const size_t most[] = {5, 100, AGENDA_FRONT, 2 * AGENDA_FRONT, 4 * AGENDA_FRONT};
    size_t count = 1 + (size_t)pick(p, most[pick(p, COUNT_OF(most))]);

    if (count + 100 > p->spares)
        return;
    p->shuffle = UINT64_C(0x3fff) >> pick(p, 15);
    if (pick(p, 3) == 0)
        add_sorted(p, min_u64(count, AGENDA_FRONT), (enum shape)pick(p, SHAPES));
    else
        add_tick(p, count, (enum shape)pick(p, SHAPES), false);
}

static void change_one(struct play *p)
{
    switch (pick(p, 5)) {
    case 0: notice(p, any(p)); break;
    case 1: extract(p, any(p)); break;
    case 2: move_earlier(p, any(p)); break;
    default: move_later(p, any(p)); break;
    }
}

/* What the store had in hand is given up, so that it has to ask again. */
static void lose_memory(struct play *p)
{
    memory_is_short = pick(p, 2);
    if (!memory_is_short)
        return;
    p->store.large = p->store.small = NULL;
    p->store.large_count = p->store.small_count = p->store.fresh = 0;
    p->store.opening = NULL;
}

static void random_step(struct play *p, bool short_at_times)
{
    uint64_t what = pick(p, 1000);

    if (short_at_times && what < 20)
        lose_memory(p);
    else if (what < 30 || p->count == 0)
        add_some(p);
    else if (what < 32)
        p->base += p->tick_ns; /* with the rest of the tick before still there */
    else if (what < 150 && p->spares)
        add(p, shaped(p, EVEN));
    else if (what < 200 && p->spares) /* of a call that came late */
        add(p, p->base - pick(p, 3 * p->tick_ns));
    else if (what < 500)
        change_one(p);
    else
        take_first(p);
}

static void notice_half(struct play *p)
{
    for (size_t n = p->count / 2 + 100; n > 0 && p->count > 0; n--)
        notice(p, any(p));
}

static void random_play(uint64_t tick_ns, unsigned steps, bool short_at_times)
{
    struct play *p = play_open(tick_ns, 8000);

    for (unsigned i = 0; i < steps; i++) {
        random_step(p, short_at_times);
        if (i % 1000 == 999)
            notice_half(p);
        if (i % 4 == 0)
            check(p);
    }
    cr_assert_gt(p->taken, steps / 10);
    memory_is_short = false;
    drain(p);
    play_close(p);
}

/* The front gives up what is over when that is half of it. */
Test(agenda, over_in_the_front)
{
    struct play *p = play_open(ticks[0], 2000);

    add_tick(p, 1000, EVEN, true);
    check_first(p);
    while (p->count > 0) {
        notice(p, any(p));
        cr_assert_leq(p->noticed, max_u64(64, p->agenda.count / 2), "G6: never purged");
    }
    drain(p);
    play_close(p);
}

Test(agenda, random)
{
    for (size_t i = 0; i < COUNT_OF(ticks); i++)
        random_play(ticks[i], 6000, false);
}

Test(agenda, random_without_memory)
{
    for (size_t i = 0; i < COUNT_OF(ticks); i++)
        random_play(ticks[i], 6000, true);
}

/* ---- ties ---- */

/* `shuffle`: how far their stamps are out of order. */
static struct play *tie_open(uint64_t tick_ns, size_t count, enum shape shape, uint64_t shuffle)
{
    struct play *p = play_open(tick_ns, count + 1000);

    p->shuffle = shuffle;
    add_tick(p, count, shape, true);
    check(p);
    return p;
}

/* G15: equal ones as they were submitted, others, at wide ticks, by deadline. */
static void run_ties(enum shape shape)
{
    static const size_t counts[] = {1000, AGENDA_FRONT + 1, 3000, 200000};
    static const uint64_t shuffles[] = {0, 63, 4095, UINT64_C(0xffffff)};

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t j = 0; j < COUNT_OF(shuffles); j++) {
            struct play *p =
                tie_open(ticks[(i + j) % COUNT_OF(ticks)], counts[i], shape, shuffles[j]);
            for (size_t n = 0; n < counts[i]; n++) {
                const struct entry *first = agenda_first(&p->agenda, UINT64_MAX);
                cr_assert(first && first->stamp == p->sorted[n]->stamp, "G15: %zu", n);
                agenda_take(&p->agenda);
            }
            cr_assert_null(agenda_first(&p->agenda, UINT64_MAX));
            play_close(p);
        }
    }
}

Test(agenda, ties_in_the_order_of_submission)
{
    run_ties(ONE_DEADLINE);
    run_ties(ONE_KEY);
}

/* It is opened as far as needed: what is still in it has not been touched. */
Test(agenda, a_tie_is_opened_as_far_as_needed)
{
    for (size_t j = 0; j < COUNT_OF(ticks); j++) {
        struct play *p = tie_open(ticks[j], 200000, ONE_DEADLINE, 63);
        agenda_first(&p->agenda, UINT64_MAX);
        cr_assert_geq(bucket_at_most(&p->agenda.tie), 200000 - 2 * AGENDA_FRONT, "a tick of %lu ns",
                      (unsigned long)ticks[j]);
        check(p);
        play_close(p);
    }
}

/* Others of the tick come, those of the tie go or move, while it is still closed. */
Test(agenda, ties_that_change)
{
    for (size_t i = 0; i < 4; i++) {
        struct play *p =
            tie_open(ticks[i], 6000, i % 2 ? ONE_KEY : ONE_DEADLINE, UINT64_C(0xff) << 4 * i);
        for (unsigned step = 0; step < 6000; step++) {
            uint64_t what = pick(p, 10);
            if (what < 2 && p->spares)
                add(p, shaped(p, pick(p, 2) ? EVEN : ONE_DEADLINE));
            else if (what < 6 && p->count)
                change_one(p);
            else
                take_first(p);
            if (step % 8 == 0)
                check(p);
        }
        drain(p);
        play_close(p);
    }
}

/* First submissions of many threads: stamps that are equal too, more than the front takes. */
Test(agenda, equal_in_everything)
{
    for (size_t i = 0; i < COUNT_OF(ticks); i++) {
        struct play *p = play_open(ticks[i], 5000);
        p->shuffle = 0;
        for (size_t n = 0; n < 4000; n++) {
            p->submissions = 0;
            add(p, p->base + 1);
        }
        for (size_t n = 0; n < 300; n++)
            move_later(p, any(p));
        drain(p);
        play_close(p);
    }
}

/* ---- the front ---- */

/* Each before all that is there already: front and parts go back again and again. */
Test(agenda, ever_earlier)
{
    for (size_t i = 0; i < COUNT_OF(ticks); i++) {
        struct play *p = play_open(ticks[i], 8000);
        for (unsigned n = 0; n < 6000; n++)
            add(p, p->base + p->tick_ns - n % p->tick_ns);
        check(p);
        drain(p);
        play_close(p);
    }
}

/* A large tick on top of what is left of an earlier one, and of a later one. */
Test(agenda, ticks_on_top_of_each_other)
{
    for (size_t i = 0; i < COUNT_OF(ticks); i++) {
        struct play *p = play_open(ticks[i], 20000);
        for (unsigned n = 0; n < 6; n++) {
            add_tick(p, 2500, (enum shape)(n % SHAPES), false);
            check(p);
            for (unsigned left = 0; left < 700; left++)
                take_first(p);
            p->base += n % 2 ? p->tick_ns : -p->tick_ns;
        }
        check(p);
        drain(p);
        play_close(p);
    }
}

Test(agenda, creation_without_memory)
{
    struct chunk_store store;
    struct agenda agenda;

    chunk_store_init(&store);
    memory_is_short = true;
    cr_assert_eq(agenda_init(&agenda, &store, HWT_MSEC(1)), -ENOMEM);
    memory_is_short = false;
}
