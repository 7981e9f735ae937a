/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=madvise,--wrap=mmap */
/*
 * The pool over a fork (G12): what a fork handler of the application's does on the forking thread,
 * after ours and before, finds no lock in its way; other threads' growth waits; and in the child
 * the slabs are whole, even one that a thread of the parent was just giving back.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool.h"
#include "support_pool.h"

#define CROWD 150000

static _Atomic bool hold_next, let_go, memory_is_short;
static atomic_uint held;

int __real_madvise(void *memory, size_t size, int advice);
int __wrap_madvise(void *memory, size_t size, int advice);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

int __wrap_madvise(void *memory, size_t size, int advice)
{
    if (advice == MADV_DONTNEED && atomic_exchange(&hold_next, false)) {
        atomic_fetch_add(&held, 1);
        while (!atomic_load(&let_go))
            sleep_ms(1);
    }
    return __real_madvise(memory, size, advice);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return atomic_load(&memory_is_short) ? MAP_FAILED
                                         : __real_mmap(at, size, protection, flags, fd, offset);
}

TestSuite(pool_fork, .init = pool_arm);

/* True: all could be had, and are back. */
static bool take_and_give(size_t count)
{
    hwt_timeout *taken = NULL, *block;
    size_t have = 0;

    for (; have < count && (block = pool_take()) != NULL; have++) {
        block->arg = taken;
        taken = block;
    }
    while ((block = taken) != NULL) {
        taken = block->arg;
        pool_give(block);
    }
    return have == count;
}

static bool reserve_and_use(size_t count)
{
    struct pool_reservation reservation = {.count = count, .pending = pool_none_pending};
    bool good = pool_reserve(&reservation) == 0 && take_and_give(count);

    pool_unreserve(&reservation);
    pool_trim();
    return good;
}

/* ---- what an application's own handlers do, in the middle of ours ---- */

static void *grow(void *grown)
{
    atomic_fetch_add((atomic_uint *)grown, take_and_give(CROWD));
    return NULL;
}

static void fork_in_mind(bool child)
{
    atomic_uint grown = 0;
    pthread_t thread;

    pool_before_fork();
    cr_assert(reserve_and_use(CROWD), "a handler of the application's");
    cr_assert_eq(pthread_create(&thread, NULL, grow, &grown), 0);
    sleep_ms(20);
    if (child) { /* where that thread would not be */
        pool_after_fork(false);
        cr_assert_eq(pthread_join(thread, NULL), 0);
        pool_before_fork();
    }
    pool_after_fork(child);
    if (!child)
        cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(grown, 1);
    cr_assert(reserve_and_use(2 * CROWD));
}

Test(pool_fork, handlers_of_the_application_may_use_it)
{
    fork_in_mind(false);
    fork_in_mind(false);
}

Test(pool_fork, and_in_the_child)
{
    fork_in_mind(true);
    fork_in_mind(true);
}

/* ---- a slab that is being given back at the fork ---- */

static void *trim(void *unused)
{
    pool_trim();
    return unused;
}

static int exit_status_of(pid_t child)
{
    int status = -1;

    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(pool_fork, a_slab_that_was_being_vacated_is_whole_in_the_child)
{
    pthread_t trimmer;
    pid_t child;

    cr_assert(take_and_give(CROWD));
    pool_trim(); /* all is at home, but for what the next line takes */
    cr_assert(take_and_give(CROWD));
    atomic_store(&hold_next, true);
    cr_assert_eq(pthread_create(&trimmer, NULL, trim, NULL), 0);
    cr_assert(wait_count(&held, 1));
    pool_trim(); /* the other thread keeps one slab, and nothing else */
    pool_before_fork();
    child = fork();
    pool_after_fork(child == 0);
    if (child == 0) {
        atomic_store(&memory_is_short, true);
        _exit(slab_available() != slab_total() ? 1 : take_and_give(slab_total()) ? 0 : 2);
    }
    atomic_store(&let_go, true);
    cr_assert_eq(exit_status_of(child), 0);
    cr_assert_eq(pthread_join(trimmer, NULL), 0);
    pool_trim();
    cr_assert_eq(slab_available(), slab_total());
}
