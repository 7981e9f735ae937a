/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=mmap */
/*
 * The pool of free timeouts: magazines, depots (C9), threads, reserve, trim, no memory. Criterion
 * gives each test a process of its own, so each starts with an empty pool.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool.h"
#include "support_pool.h"

static _Atomic bool memory_is_short;
static atomic_uint allocations;

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&allocations, 1);
    return atomic_load(&memory_is_short) ? MAP_FAILED
                                         : __real_mmap(at, size, protection, flags, fd, offset);
}

static int reserve(size_t count)
{
    struct pool_reservation *reservation = calloc(1, sizeof *reservation);

    int result;

    *reservation = (struct pool_reservation){.count = count, .pending = pool_none_pending};
    result = pool_reserve(reservation); /* open to the end */
    if (result != 0 || count == 0)
        free(reservation);
    return result;
}

TestSuite(pool, .init = pool_arm);

/* ---- blocks in hand; each carries its owner's mark, so that one handed out twice shows ---- */

struct hand {
    hwt_timeout **block;
    size_t count;
};

static struct hand hand_of(size_t most)
{
    struct hand hand = {calloc(most, sizeof *hand.block), 0};

    cr_assert_not_null(hand.block);
    return hand;
}

static bool take(struct hand *hand)
{
    hwt_timeout *block = pool_take();

    if (!block)
        return false;
    block->arg = &hand->block[hand->count];
    hand->block[hand->count++] = block;
    return true;
}

static void take_many(struct hand *hand, size_t count)
{
    while (count-- > 0)
        cr_assert(take(hand));
}

static bool is_marked(const struct hand *hand, size_t i)
{
    return hand->block[i]->arg == &hand->block[i];
}

static void give_down_to(struct hand *hand, size_t left)
{
    while (hand->count > left) {
        cr_assert(is_marked(hand, --hand->count), "handed out twice");
        pool_give(hand->block[hand->count]);
    }
}

/* ---- one thread ---- */

Test(pool, blocks_are_cache_lines_and_distinct)
{
    struct hand hand = hand_of(5000);

    take_many(&hand, 5000);
    for (size_t i = 0; i < hand.count; i++) {
        cr_assert_eq((uintptr_t)hand.block[i] % CACHE_LINE, 0);
        cr_assert(is_marked(&hand, i), "handed out twice");
    }
    give_down_to(&hand, 0);
    free(hand.block);
}

Test(pool, the_latest_given_is_taken_first)
{
    hwt_timeout *a = pool_take(), *b = pool_take();

    pool_give(a);
    pool_give(b);
    cr_assert_eq(pool_take(), b);
    cr_assert_eq(pool_take(), a);
    pool_give(a);
    pool_give(b);
}

/* What was given is used again, from the magazine and from the depots alike. */
Test(pool, what_was_given_needs_no_memory)
{
    struct hand hand = hand_of(5000);
    unsigned before;

    take_many(&hand, 5000);
    before = atomic_load(&allocations);
    for (unsigned round = 0; round < 20; round++) {
        give_down_to(&hand, round * 13);
        take_many(&hand, 5000 - hand.count);
    }
    cr_assert_eq(atomic_load(&allocations), before);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* Every size of a magazine on either side of its limits. */
Test(pool, magazines_of_every_size)
{
    struct hand hand = hand_of(400);
    unsigned before;

    take_many(&hand, 400);
    before = atomic_load(&allocations);
    for (size_t left = 400; left-- > 0;) {
        give_down_to(&hand, left);
        take_many(&hand, 400 - left);
    }
    cr_assert_eq(atomic_load(&allocations), before);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* ---- across threads ---- */

static void in_another_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, function, argument), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

static void *give_all(void *hand)
{
    give_down_to(hand, 0);
    return NULL;
}

static void *take_1000(void *hand)
{
    take_many(hand, 1000);
    return NULL;
}

/* The thread's magazine, too, is there for others when it has ended. */
Test(pool, a_thread_that_ends_leaves_its_blocks)
{
    struct hand hand = hand_of(1000);

    take_many(&hand, 1000);
    in_another_thread(give_all, &hand);
    atomic_store(&memory_is_short, true);
    take_many(&hand, 1000);
    atomic_store(&memory_is_short, false);
    give_down_to(&hand, 0);
    free(hand.block);
}

static void *see_if_kept(void *kept)
{
    struct hand hand = hand_of(1000);

    take_many(&hand, 1000);
    give_down_to(&hand, 0);
    free(hand.block);
    *(bool *)kept = pool_magazine.head != NULL;
    return NULL;
}

/*
 * G6: of very many threads not all keep blocks, however many there are; when some have ended others
 * do.
 */
Test(pool, many_threads_keep_no_more_than_some)
{
    bool kept = false;

    in_another_thread(see_if_kept, &kept);
    cr_assert(kept);
    cr_assert_eq(load_relaxed(&pool_keepers), 0, "it has ended");
    store_relaxed(&pool_keepers, KEEPERS_MOST);
    in_another_thread(see_if_kept, &kept);
    cr_assert_not(kept);
    cr_assert_eq(load_relaxed(&pool_keepers), KEEPERS_MOST);
    see_if_kept(&kept);
    cr_assert_not(kept);
    store_relaxed(&pool_keepers, KEEPERS_MOST - 1);
    see_if_kept(&kept);
    cr_assert(kept);
    cr_assert_eq(load_relaxed(&pool_keepers), KEEPERS_MOST);
    in_another_thread(see_if_kept, &kept);
    cr_assert_not(kept);
    pool_before_fork();
    pool_after_fork(true);
    cr_assert_eq(load_relaxed(&pool_keepers), 1, "this one is alone in a child");
}

/* Taken here, given there, again and again: goes round instead of growing (G6). */
Test(pool, one_way_traffic_goes_round)
{
    struct hand hand = hand_of(1000);
    unsigned settled = 0;

    for (unsigned round = 0; round < 100; round++) {
        take_many(&hand, 1000);
        in_another_thread(give_all, &hand);
        in_another_thread(take_1000, &hand);
        give_down_to(&hand, 0);
        if (round == 3)
            settled = atomic_load(&allocations);
    }
    cr_assert_eq(atomic_load(&allocations), settled);
    free(hand.block);
}

/* As the worker gives back: batch by batch to the depot of a lane. */
Test(pool, a_worker_returns_batches)
{
    struct pool_return batch = {NULL, 0};
    struct hand hand = hand_of(1000);

    take_many(&hand, 1000);
    for (size_t i = 0; i < 1000; i++)
        pool_return_add(&batch, (unsigned)(i / 100), hand.block[i]);
    cr_assert_lt(batch.count, POOL_BATCH);
    pool_return_flush(&batch, 3);
    cr_assert_null(batch.head);
    cr_assert_eq(batch.count, 0);
    pool_return_flush(&batch, 3);
    hand.count = 0;
    atomic_store(&memory_is_short, true);
    in_another_thread(take_1000, &hand);
    atomic_store(&memory_is_short, false);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* ---- across CPUs ---- */

#define STRETCH ((size_t)pool_stretch() * SLAB_BATCH)

static void to_cpu(unsigned n)
{
    if (!go_to_cpu(n))
        cr_skip_test("there is one CPU");
}

/* Turn about, a batch at a time: what was never used comes by stretches, each for one CPU. */
Test(pool, cpus_share_no_page_of_new_blocks)
{
    struct hand hand[2] = {hand_of(4 * STRETCH), hand_of(4 * STRETCH)};

    for (unsigned i = 0; i < 8 * pool_stretch(); i++) {
        to_cpu(i % 2);
        take_many(&hand[i % 2], SLAB_BATCH);
    }
    for (size_t i = 0; i < 8 * STRETCH; i++) {
        const struct hand *mine = &hand[i % 2];
        const hwt_timeout *first = mine->block[i / 2 / STRETCH * STRETCH];
        cr_assert_eq((uintptr_t)first % (STRETCH * sizeof *first), 0);
        cr_assert_eq(mine->block[i / 2], first + i / 2 % STRETCH);
    }
    for (unsigned i = 0; i < 2; i++) {
        give_down_to(&hand[i], 0);
        free(hand[i].block);
    }
}

/* How many of them lie where more of the other hand's do. */
static size_t mixed(const struct hand *hand, const struct hand *other)
{
    size_t count = 0;

    for (size_t i = 0; i < hand->count; i++) {
        uintptr_t here = (uintptr_t)hand->block[i] / (STRETCH * sizeof **hand->block);
        long more = 0;
        for (size_t j = 0; j < hand->count; j++)
            more += (uintptr_t)hand->block[j] / (STRETCH * sizeof **hand->block) == here;
        for (size_t j = 0; j < other->count; j++)
            more -= (uintptr_t)other->block[j] / (STRETCH * sizeof **hand->block) == here;
        count += more < 0;
    }
    return count;
}

/*
 * Each CPU gives back what it had; one block of each stretch stays out, so that nothing is carved
 * anew. Turn about they take it again, and find it by stretches, but for where one ends: a
 * sixth of all. With either half of what sees to that undone it is more than four tenths.
 */
Test(pool, cpus_share_no_page_of_what_has_come_home)
{
    struct hand hand[2] = {hand_of(2 * STRETCH), hand_of(2 * STRETCH)};
    size_t carved;

    for (unsigned i = 0; i < 2; i++) {
        to_cpu(i);
        take_many(&hand[i], 2 * STRETCH);
    }
    for (unsigned i = 0; i < 2; i++) {
        to_cpu(i);
        give_down_to(&hand[i], STRETCH + 1);
        hand[i].count = STRETCH; /* one stays out */
        give_down_to(&hand[i], 1);
        hand[i].count = 0;
    }
    carved = slab_total() - slab_available();
    pool_trim();
    cr_assert_lt(slab_total() - slab_available(), carved, "nothing has come home");
    for (unsigned i = 0; i < 4 * pool_stretch() - 4; i++) {
        to_cpu(i % 2);
        take_many(&hand[i % 2], SLAB_BATCH);
    }
    cr_assert_lt(mixed(&hand[0], &hand[1]), STRETCH / 4);
    cr_assert_lt(mixed(&hand[1], &hand[0]), STRETCH / 4);
    for (unsigned i = 0; i < 2; i++) {
        give_down_to(&hand[i], 0);
        free(hand[i].block);
    }
}

/* G6: no more is left to a CPU than one stretch, and that only as long as there is other memory. */
Test(pool, what_lies_with_one_cpu_is_there_for_all)
{
    struct hand hand = hand_of(STRETCH * 500);
    size_t most;

    to_cpu(0);
    take_many(&hand, 50 * STRETCH);
    give_down_to(&hand, 0);
    most = slab_available();
    to_cpu(1);
    take_many(&hand, 49 * STRETCH - 2 * POOL_BATCH);
    cr_assert_eq(slab_available(), most, "carved, with more than a stretch in the depot");
    atomic_store(&memory_is_short, true);
    while (take(&hand))
        continue;
    atomic_store(&memory_is_short, false);
    cr_assert_eq(slab_available(), 0);
    cr_assert_eq(hand.count, slab_total(), "not all can be had");
    give_down_to(&hand, 0);
    free(hand.block);
}

/* ---- many threads at once ---- */

#define THREADS 4
#define AT_MOST 300

static _Atomic bool trimming, failed;

static void *take_and_give(void *seed)
{
    struct hand hand = {calloc(AT_MOST, sizeof *hand.block), 0};
    uint64_t random = (uint64_t)(uintptr_t)seed;

    for (unsigned step = 0; step < 2000; step++) {
        size_t left = (size_t)test_random_below(&random, AT_MOST);
        while (hand.count < left && take(&hand))
            continue;
        for (; hand.count > left; pool_give(hand.block[hand.count])) {
            if (!is_marked(&hand, --hand.count))
                atomic_store(&failed, true);
        }
    }
    while (hand.count > 0)
        pool_give(hand.block[--hand.count]);
    free(hand.block);
    return NULL;
}

static void *trim_often(void *unused)
{
    while (atomic_load(&trimming)) {
        pool_trim();
        sleep_ms(1);
    }
    return unused;
}

static void run_threads(uint64_t seed)
{
    pthread_t thread[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, take_and_give, (void *)(uintptr_t)(seed + i)),
                     0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

Test(pool, no_block_is_handed_out_twice)
{
    run_threads(test_seed("pool"));
    cr_assert_not(atomic_load(&failed));
    cr_assert_leq(atomic_load(&allocations), 4, "grew without need");
}

/* With more slabs than are kept, so that trimming gives some back while they are asked for. */
Test(pool, trimming_disturbs_nobody)
{
    struct hand hand = hand_of(60000);
    pthread_t trimmer;

    take_many(&hand, 60000);
    give_down_to(&hand, 100);
    atomic_store(&trimming, true);
    cr_assert_eq(pthread_create(&trimmer, NULL, trim_often, NULL), 0);
    run_threads(test_seed("pool"));
    atomic_store(&trimming, false);
    pthread_join(trimmer, NULL);
    cr_assert_not(atomic_load(&failed));
    give_down_to(&hand, 0);
    free(hand.block);
}

/* ---- reserve ---- */

Test(pool, reserved_blocks_need_no_memory)
{
    struct hand hand = hand_of(50000);

    cr_assert_eq(reserve(50000), 0);
    atomic_store(&memory_is_short, true);
    allocations = 0;
    take_many(&hand, 50000);
    cr_assert_eq(atomic_load(&allocations), 0);
    atomic_store(&memory_is_short, false);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* Many threads, each with a batch that it does not use up. */
static struct hand shares[50];
static pthread_barrier_t barrier;

static void *take_share(void *hand)
{
    for (unsigned i = 0; i < 101 && !atomic_load(&failed); i++) {
        if (!take(hand))
            atomic_store(&failed, true);
    }
    pthread_barrier_wait(&barrier);
    while (((struct hand *)hand)->count > 0)
        pool_give(((struct hand *)hand)->block[--((struct hand *)hand)->count]);
    return NULL;
}

Test(pool, a_reserve_serves_many_threads)
{
    pthread_t thread[COUNT_OF(shares)];

    cr_assert_eq(reserve(COUNT_OF(shares) * 101), 0);
    pthread_barrier_init(&barrier, NULL, COUNT_OF(shares));
    for (size_t i = 0; i < COUNT_OF(shares); i++)
        shares[i] = hand_of(101);
    atomic_store(&memory_is_short, true);
    for (size_t i = 0; i < COUNT_OF(shares); i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, take_share, &shares[i]), 0);
    for (size_t i = 0; i < COUNT_OF(shares); i++)
        pthread_join(thread[i], NULL);
    atomic_store(&memory_is_short, false);
    cr_assert_not(atomic_load(&failed));
    for (size_t i = 0; i < COUNT_OF(shares); i++)
        free(shares[i].block);
}

Test(pool, a_reserve_that_cannot_be)
{
    cr_assert_eq(reserve(SIZE_MAX), -ENOMEM);
    cr_assert_eq(reserve(0), 0);
    atomic_store(&memory_is_short, true);
    cr_assert_eq(reserve(1000000), -ENOMEM);
    atomic_store(&memory_is_short, false);
    cr_assert_eq(reserve(1000), 0);
}

/* ---- no memory ---- */

Test(pool, no_memory)
{
    struct hand hand = hand_of(100000);

    atomic_store(&memory_is_short, true);
    while (take(&hand))
        continue;
    cr_assert_geq(hand.count, POOL_BATCH);
    cr_assert_null(pool_take());
    give_down_to(&hand, hand.count - 1);
    cr_assert(take(&hand));
    cr_assert_null(pool_take());
    atomic_store(&memory_is_short, false);
    take_many(&hand, 5000);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* Trimming needs no memory for its own work, and loses nothing. */
Test(pool, trim_without_memory)
{
    struct hand hand = hand_of(60000);

    take_many(&hand, 60000);
    give_down_to(&hand, 0);
    atomic_store(&memory_is_short, true);
    pool_trim();
    take_many(&hand, 60000);
    atomic_store(&memory_is_short, false);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* What is half sorted (pool_home.c) is not out of reach. */
Test(pool, ease_without_memory)
{
    struct hand hand = hand_of(60000);
    size_t total;

    take_many(&hand, 60000);
    for (size_t i = 0; i < 60000; i++) /* here and there */
        pool_give(hand.block[i * 7919 % 60000]);
    for (unsigned i = 0; i < EASE_WINDOW; i++)
        pool_ease();
    for (unsigned i = 0; i < 30; i++)
        cr_assert(pool_ease_on());
    atomic_store(&memory_is_short, true);
    total = slab_total();
    free(hand.block);
    hand = hand_of(total);
    take_many(&hand, total);
    atomic_store(&memory_is_short, false);
    give_down_to(&hand, 0);
    free(hand.block);
}

/* ---- trim ---- */

#define CROWD 300000 /* 18 MB */

Test(pool, trim_gives_pages_back)
{
    struct hand hand = hand_of(CROWD);
    size_t full;

    take_many(&hand, CROWD);
    give_down_to(&hand, 0);
    full = resident_bytes();
    pool_trim();
    if (!under_sanitizer())
        cr_assert_leq(resident_bytes() + CROWD * sizeof(hwt_timeout) * 3 / 4, full);
    free(hand.block);
}

/* And the blocks are used again afterwards: the addresses were kept. */
Test(pool, trimmed_blocks_are_used_again)
{
    struct hand hand = hand_of(CROWD);
    unsigned before;

    take_many(&hand, CROWD);
    before = atomic_load(&allocations);
    for (unsigned round = 0; round < 3; round++) {
        give_down_to(&hand, 0);
        pool_trim();
        take_many(&hand, CROWD);
    }
    cr_assert_leq(atomic_load(&allocations), before);
    give_down_to(&hand, 0);
    free(hand.block);
}

/*
 * G9: a handle outlives its timer, so what is in use stays, whatever lies beside it; and what lies
 * free beside it is not lost.
 */
Test(pool, trim_keeps_what_is_in_use)
{
    struct hand all = hand_of(CROWD), kept = hand_of(CROWD);
    unsigned before;

    take_many(&all, CROWD);
    for (size_t i = 0; i < CROWD; i++) {
        if (i % 50000 != 7) {
            pool_give(all.block[i]);
            continue;
        }
        all.block[i]->arg = &kept.block[kept.count];
        kept.block[kept.count++] = all.block[i];
    }
    before = atomic_load(&allocations);
    pool_trim();
    all.count = 0;
    take_many(&all, CROWD - kept.count);
    cr_assert_leq(atomic_load(&allocations), before, "free blocks were lost");
    for (size_t i = 0; i < kept.count; i++)
        cr_assert(is_marked(&kept, i), "given away, or its page was");
    give_down_to(&all, 0);
    give_down_to(&kept, 0);
    free(all.block);
    free(kept.block);
}
