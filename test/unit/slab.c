/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=mmap -Wl,--wrap=madvise */
/*
 * Which slab is carved next, and who waits for its pages (C12): the one that a worker has made
 * ready; a spare one of small pages while he has been asked, is at it, or has put it off; any other
 * where nobody was asked. Each test has a process of its own, and so the first slab.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool.h"
#include "slab_word.h"
#include "support_pool.h"

enum { POPULATE = 23 };

#define SLAB    (SLAB_BLOCKS * sizeof(hwt_timeout))
#define STRETCH 32 /* batches */
#define PIECE   ((size_t)32 << 10)

/* ---- the system ---- */

static atomic_size_t map_most = SIZE_MAX, populated, pieces, made_small;
static atomic_bool hold_next, let_go;
static atomic_uint held;

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_madvise(void *memory, size_t size, int advice);
int __wrap_madvise(void *memory, size_t size, int advice);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return size > map_most ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

int __wrap_madvise(void *memory, size_t size, int advice)
{
    pieces += advice == POPULATE && size == PIECE;
    made_small += advice == MADV_NOHUGEPAGE && size == SLAB;
    if (advice == POPULATE && size == SLAB) {
        populated++;
        if (atomic_exchange(&hold_next, false)) {
            atomic_fetch_add(&held, 1);
            while (!let_go)
                sleep_ms(1);
        }
    }
    return __real_madvise(memory, size, advice);
}

static void prepare(void)
{
    test_arm();
    cr_assert_eq(slab_prepare(), 0);
}

TestSuite(slab, .init = prepare);

/* ---- taking ---- */

/* The slab that the next ones came from, and how many blocks there were. */
static struct slab *take(size_t *blocks)
{
    struct slab_batches batches = slab_take(STRETCH);

    cr_assert(batches.first);
    *blocks = batches.length + (size_t)batches.more * SLAB_BATCH;
    return slab_of(batches.first);
}

static struct slab *next_slab(void)
{
    size_t blocks;
    return take(&blocks);
}

static bool is_carved(const struct slab *slab)
{
    return view_of(load_relaxed(&slab->state)).used == slab->batches;
}

static void carve_all_of(const struct slab *slab)
{
    while (!is_carved(slab))
        cr_assert_eq(next_slab(), slab);
}

/* The first one is carved, and that the next one is wanted was said. */
static void carve_the_first(void)
{
    const struct slab *first = slab_newest();

    cr_assert_not(slab_next_is_wanted());
    carve_all_of(first);
    cr_assert(is_first(first));
    cr_assert(slab_next_is_wanted());
}

static void carve_the_first_and_ask(void)
{
    carve_the_first();
    slab_promise_next();
    cr_assert(slab_next_is_wanted(), "until he is at it");
}

Test(slab, where_nobody_is_asked_who_carves_meets_the_pages)
{
    carve_the_first();
    for (unsigned i = 0; i < 3; i++) {
        struct slab *slab = next_slab();
        cr_assert_not(slab->small);
        carve_all_of(slab);
    }
}

/* A page at a time, because each is waited for. */
Test(slab, who_has_asked_takes_small_pages)
{
    const struct slab *spare;
    size_t blocks;

    carve_the_first_and_ask();
    spare = take(&blocks);
    cr_assert(spare->small && !is_first(spare));
    cr_assert_eq(blocks * sizeof(hwt_timeout), 4096);
    carve_all_of(spare); /* half of it does not undo what was promised */
    cr_assert(next_slab()->small);
}

/* There is no end of time for which he may have other work, but of spare slabs there is. */
Test(slab, when_there_is_no_spare_one_left_pages_are_met)
{
    unsigned spares = 0;
    struct slab *slab;

    carve_the_first_and_ask();
    while ((slab = next_slab())->small) {
        carve_all_of(slab);
        spares++;
    }
    cr_assert_eq(spares, SPARES_EACH + 1);
    while (!slab_next_is_wanted() || !is_carved(slab))
        cr_assert_eq(next_slab(), slab);
    cr_assert_not(next_slab()->small, "half of it was carved, and nobody asked since");
}

Test(slab, what_was_made_ready_is_taken_at_once)
{
    const struct slab *spare;
    struct slab *slab;

    carve_the_first_and_ask();
    spare = next_slab();
    slab_make_ready(false);
    cr_assert_not(slab_next_is_wanted());
    slab = next_slab();
    cr_assert(slab != spare && !slab->small && slab->ready);
    carve_all_of(slab);
    cr_assert(slab_next_is_wanted());
    slab_promise_next();
    cr_assert_eq(next_slab(), spare, "what is left of it");
}

Test(slab, it_is_taken_before_a_spare_one)
{
    carve_the_first();
    slab_make_ready(false);
    slab_put_off(); /* by another one, who asks himself whether he has time */
    cr_assert_not(next_slab()->small);
}

Test(slab, none_is_made_ready_but_in_huge_pages)
{
    carve_the_first();
    carve_all_of(next_slab());
    slab_make_ready(false); /* there are spare ones */
    cr_assert(next_slab()->ready);
    cr_assert_not(next_slab()->small);
}

Test(slab, once_is_enough)
{
    carve_the_first();
    slab_make_ready(false);
    cr_assert_eq((size_t)populated, 1);
    slab_make_ready(false);
    cr_assert_eq((size_t)populated, 1);
}

/* G4: who maps meanwhile waits for one piece. */
Test(slab, small_pages_are_asked_for_piece_by_piece)
{
    struct slab *slab;

    carve_the_first();
    made_small = pieces = 0;
    for (unsigned i = 0; i < 2; i++)
        slab_make_ready(true);
    cr_assert_eq((size_t)made_small, 1);
    cr_assert_eq((size_t)pieces, SLAB / PIECE, "once");
    cr_assert_eq((size_t)populated, 0);
    slab = next_slab();
    cr_assert(slab->ready && !slab->small, "it is no spare one");
}

Test(slab, what_is_put_off_is_not_waited_for)
{
    const struct slab *spare;

    carve_the_first_and_ask();
    slab_put_off();
    cr_assert_not(slab_next_is_wanted());
    spare = next_slab();
    cr_assert(spare->small);
    carve_all_of(spare);
    cr_assert(slab_next_is_wanted(), "he may have time now");
    cr_assert(next_slab()->small, "until he has");
}

static void *make_ready(void *unused)
{
    slab_make_ready(false);
    return unused;
}

static void hold_him(pthread_t *thread)
{
    hold_next = true;
    cr_assert_eq(pthread_create(thread, NULL, make_ready, NULL), 0);
    cr_assert(wait_count(&held, 1));
}

Test(slab, nobody_waits_while_another_one_does)
{
    const struct slab *slab;
    pthread_t thread;

    carve_the_first_and_ask();
    hold_him(&thread);
    cr_assert_not(slab_next_is_wanted(), "he is at it");
    slab = next_slab();
    cr_assert(slab->small);
    carve_all_of(slab);
    cr_assert_not(slab_next_is_wanted(), "he is still at it");
    cr_assert(next_slab()->small);
    let_go = true;
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_not(next_slab()->small);
}

Test(slab, and_nobody_else_is_asked)
{
    struct slab *slab;
    pthread_t thread;

    carve_the_first_and_ask();
    hold_him(&thread);
    while ((slab = next_slab())->small)
        carve_all_of(slab);
    carve_all_of(slab);
    cr_assert_not(slab_next_is_wanted());
    let_go = true;
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

/* ---- pages that have gone again, and some that were there before ---- */

static void bring_home(struct slab *slab)
{
    struct slab_bin bin[4] = {{NULL, 0, {0}}};
    struct slab_sorter sorter = {bin, 4};

    for (size_t i = 0; i < blocks_in(slab); i++)
        slab_sort(&sorter, &slab->blocks[i]);
    slab_sort_end(&sorter);
}

/* One that was ready, and another one, spare, from which they came last; neither is vacant. */
static struct slab *give_one_back(void)
{
    const struct slab *spare;
    struct slab *slab;

    carve_the_first();
    slab_make_ready(false);
    slab = next_slab();
    carve_all_of(slab);
    slab_put_off();
    spare = next_slab();
    bring_home(slab);
    slab_vacate(0);
    cr_assert_eq(view_of(slab->state).used, 0);
    carve_all_of(spare);
    return slab;
}

Test(slab, what_was_given_back_is_not_ready)
{
    give_one_back();
    cr_assert(next_slab()->small);
}

Test(slab, a_reserve_is_ready)
{
    struct pool_reservation reservation = {.count = 1000, .pending = pool_none_pending};
    const struct slab *slab = give_one_back();

    cr_assert_eq(pool_reserve(&reservation), 0);
    cr_assert_eq(next_slab(), slab);
    pool_unreserve(&reservation);
}

/* What is mapped for one has huge pages, all of it. */
Test(slab, a_reserve_has_no_spare_slabs)
{
    struct pool_reservation reservation = {.count = 2 * SLAB_BLOCKS, .pending = pool_none_pending};

    cr_assert_eq(pool_reserve(&reservation), 0);
    for (const struct slab *slab = slab_newest(); !is_first(slab); slab = slab->next)
        cr_assert_not(slab->small);
    pool_unreserve(&reservation);
}

/* ---- little memory ---- */

Test(slab, where_there_is_no_room_for_spare_ones_there_are_none)
{
    carve_the_first_and_ask();
    map_most = 2 * SLAB - 1; /* by which one is aligned */
    cr_assert_not(next_slab()->small);
}

/* G6: what is spare is no reserve: if nothing else is left it is taken. */
Test(slab, the_last_ones_are_spare)
{
    size_t taken = slab_total(), blocks;
    struct slab_batches batches;
    const struct slab *last;

    carve_the_first();
    last = take(&blocks);
    map_most = 0;
    for (taken += blocks; (batches = slab_take(STRETCH)).first; taken += blocks) {
        blocks = batches.length + (size_t)batches.more * SLAB_BATCH;
        last = slab_of(batches.first);
    }
    cr_assert(last->small);
    cr_assert_eq(taken, slab_total());
}

/* ---- a fork ---- */

/* Of the child nobody is at it: so it is wanted when half of the next one is carved. */
static int want_in_the_child(void)
{
    for (size_t i = 0; !slab_next_is_wanted(); i++) {
        if (i > 2 * SLAB_BLOCKS / SLAB_BATCH)
            return 1;
        next_slab();
    }
    return 0;
}

Test(slab, nothing_is_coming_in_a_child)
{
    pthread_t thread;
    pid_t child;
    int status = -1;

    carve_the_first_and_ask();
    hold_him(&thread);
    pool_before_fork();
    child = fork();
    pool_after_fork(child == 0);
    if (child == 0)
        _exit(want_in_the_child());
    let_go = true;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}
