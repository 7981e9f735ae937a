/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=mmap,--wrap=munmap,--wrap=platform_populate_pages */
/*
 * The reserve as a user sees it, and as the pool counts it: what is mapped for it, once, however
 * often timers come and go; nothing mapped while so many are pending, whoever schedules them; and
 * addresses that the library cannot use.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "platform.h"
#include "pool.h"
#include "support.h"

static _Atomic size_t mapped;
static _Atomic uint64_t address_bits; /* what the system's addresses have beside their own */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t size);
int __wrap_munmap(void *memory, size_t size);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *memory = __real_mmap(at, size, protection, flags, fd, offset);

    if (memory == MAP_FAILED)
        return memory;
    atomic_fetch_add(&mapped, size);
    return (void *)((uintptr_t)memory | (uintptr_t)atomic_load(&address_bits));
}

int __wrap_munmap(void *memory, size_t size)
{
    atomic_fetch_sub(&mapped, size);
    return __real_munmap((void *)((uintptr_t)memory & ~(uintptr_t)atomic_load(&address_bits)),
                         size);
}

static _Atomic size_t asked_for; /* bytes whose pages were */

__typeof__(platform_populate_pages) __real_platform_populate_pages;
__typeof__(platform_populate_pages) __wrap_platform_populate_pages;

void __wrap_platform_populate_pages(void *memory, size_t size)
{
    atomic_fetch_add(&asked_for, size);
    __real_platform_populate_pages(memory, size);
}

static hwt_timer *timer_with(size_t reserve)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.reserve = reserve;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

static void submit(hwt_timer *timer, size_t count)
{
    while (count-- > 0)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
}

TestSuite(reserve, .init = test_arm);

/* ---- what it costs ---- */

static void cycles_cost_once(size_t reserve, size_t use)
{
    size_t settled = 0;

    for (unsigned round = 0; round < 20; round++) {
        hwt_timer *timer = timer_with(reserve);
        submit(timer, use);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
        if (round == 0)
            settled = atomic_load(&mapped);
    }
    cr_assert_eq(atomic_load(&mapped), settled, "%zu bytes more", mapped - settled);
}

/* Page by page it would take ten times as long. */
Test(reserve, small_pages_come_several_at_once)
{
    const size_t reserve = 10000;

    cr_assert_eq(hwt_timer_destroy(timer_with(reserve)), 0);
    cr_assert_geq(atomic_load(&asked_for), reserve * sizeof(hwt_timeout));
}

/* Their slots: the worker need not wait for these when all are filed. */
Test(reserve, the_pages_of_the_wheel_too)
{
    const size_t reserve = 300000;

    cr_assert_eq(hwt_timer_destroy(timer_with(reserve)), 0);
    cr_assert_geq(atomic_load(&asked_for), reserve * sizeof(uint64_t)); /* huge pages are touched */
}

/* G6 */
Test(reserve, a_cycle_with_one_leaves_nothing)
{
    cycles_cost_once(1, 1);
}

/* G6 */
Test(reserve, a_cycle_with_many_leaves_nothing)
{
    cycles_cost_once(10000, 0);
    cycles_cost_once(10000, 10000);
    cycles_cost_once(300000, 1000);
    cycles_cost_once(300000, 300000);
}

/* What others left free counts. */
Test(reserve, what_is_free_counts)
{
    hwt_timer *timer = timer_with(0);
    size_t total, before;

    submit(timer, 200000);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    total = slab_total();
    timer = timer_with(100000);
    before = atomic_load(&mapped);
    submit(timer, 100000);
    cr_assert_eq(atomic_load(&mapped), before);
    cr_assert_eq(slab_total(), total);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(reserve, a_million_costs_what_a_million_timeouts_cost)
{
    hwt_timer *timer = timer_with(1000000);

    cr_assert_leq(slab_total() * sizeof(hwt_timeout), (size_t)70 << 20);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(reserve, that_cannot_be_is_refused_and_leaves_nothing)
{
    hwt_timer *timer = NULL;
    hwt_config config;
    size_t total;

    cr_assert_eq(pool_prepare(), 0);
    total = slab_total();
    for (size_t reserve = SIZE_MAX; reserve > (size_t)1 << 42; reserve /= 2) {
        struct pool_reservation reservation = {.count = reserve};
        cr_assert_eq(pool_reserve(&reservation), -ENOMEM);
    }
    cr_assert_eq(slab_total(), total);
    hwt_config_init(&config);
    config.reserve = SIZE_MAX;
    cr_assert_eq(hwt_timer_create(&timer, &config), -ENOMEM);
    cr_assert_eq(slab_total(), total);
}

/* ---- what it is good for ---- */

/* Reserves add up: each timer's is there for it, whichever is used first. */
Test(reserve, of_several_timers_at_once)
{
    hwt_timer *timer[4];
    size_t total;

    for (size_t i = 0; i < COUNT_OF(timer); i++)
        timer[i] = timer_with(100000);
    total = slab_total();
    cr_assert_geq(total, 400000);
    for (size_t i = 0; i < COUNT_OF(timer); i++)
        submit(timer[i], 100000);
    cr_assert_eq(slab_total(), total);
    for (size_t i = 0; i < COUNT_OF(timer); i++)
        cr_assert_eq(hwt_timer_destroy(timer[i]), 0);
}

/* What an earlier one has in use already is not put by for it a second time. */
Test(reserve, in_use_is_not_put_by_again)
{
    hwt_timer *timer[4];

    for (size_t i = 0; i < COUNT_OF(timer); i++) {
        timer[i] = timer_with(200000);
        submit(timer[i], 200000);
    }
    cr_assert_leq(slab_total(), 4 * 200000 + 3 * SLAB_BLOCKS);
    for (size_t i = 0; i < COUNT_OF(timer); i++)
        cr_assert_eq(hwt_timer_destroy(timer[i]), 0);
}

#define THREADS 16
#define SHARE   5000

static pthread_barrier_t all_have;
static atomic_uint refused;

static void *use_share(void *unused)
{
    hwt_timeout **mine = calloc(SHARE, sizeof *mine);

    for (unsigned round = 0; round < 10; round++) {
        for (size_t i = 0; i < SHARE; i++) {
            mine[i] = pool_take();
            if (!mine[i])
                atomic_fetch_add(&refused, 1);
        }
        pthread_barrier_wait(&all_have);
        for (size_t i = 0; i < SHARE; i++)
            pool_give(mine[i]);
        pthread_barrier_wait(&all_have);
    }
    free(mine);
    return unused;
}

static _Atomic bool trimming;

static void *trim_all_the_time(void *unused)
{
    while (atomic_load(&trimming))
        pool_trim();
    return unused;
}

/* Magazines that are not used up, and a trim that is on: no block of the reserve is missed. */
Test(reserve, serves_many_threads_beside_a_trim)
{
    hwt_timer *timer = timer_with((size_t)THREADS * SHARE);
    pthread_t thread[THREADS], trimmer;
    size_t total;

    pthread_barrier_init(&all_have, NULL, THREADS);
    total = slab_total();
    atomic_store(&trimming, true);
    cr_assert_eq(pthread_create(&trimmer, NULL, trim_all_the_time, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, use_share, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&trimming, false);
    pthread_join(trimmer, NULL);
    cr_assert_eq(refused, 0);
    cr_assert_eq(slab_total(), total, "more was mapped");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- small processes ---- */

/* The pages of the first slab are touched in order: few timeouts, few pages. */
Test(reserve, few_timeouts_take_little)
{
    hwt_timer *timer = timer_with(0);
    size_t before;

    submit(timer, 1);
    before = resident_bytes();
    submit(timer, 1000);
    if (!under_sanitizer())
        cr_assert_leq(resident_bytes() - before, (size_t)512 << 10);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/*
 * The same for a small reserve: what is put by beside it, more than 2 MB, is not touched. Some
 * pages of code come in meanwhile.
 */
Test(reserve, a_small_reserve_takes_little)
{
    size_t before;

    cr_assert_eq(pool_prepare(), 0);
    before = resident_bytes();
    cr_assert_eq(pool_reserve(&(struct pool_reservation){.count = 1000}), 0);
    if (!under_sanitizer())
        cr_assert_leq(resident_bytes() - before, (size_t)1024 << 10);
}

/* Its pages are there from the start, and stay when others' go. */
Test(reserve, keeps_its_pages)
{
    hwt_timer *reserved = timer_with(300000), *large;
    size_t before = resident_bytes();

    for (unsigned round = 0; round < 3; round++) {
        large = timer_with(0);
        submit(large, 300000);
        cr_assert_eq(hwt_timer_destroy(large), 0);
    }
    if (!under_sanitizer())
        cr_assert_geq(resident_bytes() + ((size_t)4 << 20), before);
    cr_assert_geq(before, 300000 * sizeof(hwt_timeout));
    cr_assert_eq(hwt_timer_destroy(reserved), 0);
    if (!under_sanitizer())
        cr_assert_leq(resident_bytes(), before - 200000 * sizeof(hwt_timeout));
}

/* ---- addresses: 48 bits of them can be packed ---- */

static void no_timer_with(uint64_t bits)
{
    hwt_timer *timer = NULL;
    size_t before = atomic_load(&mapped);

    atomic_store(&address_bits, bits);
    cr_assert_eq(hwt_timer_create(&timer, NULL), -ENOMEM);
    cr_assert_null(timer);
    cr_assert_eq(atomic_load(&mapped), before, "what cannot be used was kept");
    atomic_store(&address_bits, 0);
}

Test(reserve, addresses_that_are_wider_or_tagged)
{
    hwt_timer *timer;

    no_timer_with(UINT64_C(1) << 48); /* five levels of page tables */
    no_timer_with(UINT64_C(1) << 55);
    no_timer_with(UINT64_C(0xb4) << 56); /* tags in the top byte */
    timer = timer_with(0);
    submit(timer, 10000);
    atomic_store(&address_bits, UINT64_C(1) << 52); /* and later, when it grows */
    while (hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL) == 0)
        continue;
    atomic_store(&address_bits, 0);
    submit(timer, 100);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
