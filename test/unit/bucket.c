/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=aligned_alloc */
/* Buckets: inline slots, chunks, holes and their merging, moving, the store of chunks. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "support.h"

#define MANY 20000

static bool memory_is_short;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

TestSuite(bucket, .init = test_arm);

struct rack {
    struct chunk_store store;
    struct bucket bucket;
    hwt_timeout *node;
    bool *inside;
    size_t count; /* of them inside */
    uint64_t random;
};

static struct rack *rack_open(void)
{
    struct rack *r = aligned_alloc(CACHE_LINE, (sizeof *r + 63) & ~(size_t)63);

    cr_assert_not_null(r);
    memset((void *)r, 0, sizeof *r);
    r->node = aligned_alloc(CACHE_LINE, MANY * sizeof *r->node);
    r->inside = calloc(MANY, sizeof *r->inside);
    cr_assert(r->node && r->inside);
    memset((void *)r->node, 0, MANY * sizeof *r->node);
    chunk_store_init(&r->store);
    return r;
}

static void rack_close(struct rack *r)
{
    chunk_store_destroy(&r->store);
    free(r->node);
    free(r->inside);
    free(r);
}

static void add(struct rack *r, size_t i)
{
    cr_assert(bucket_insert(&r->bucket, &r->store, &r->node[i], i));
    cr_assert_eq(*r->node[i].where, &r->node[i]);
    r->inside[i] = true;
    r->count++;
}

static void fill(struct rack *r, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add(r, i);
}

static void take_out(struct rack *r, size_t i)
{
    cr_assert(r->inside[i]);
    bucket_remove(&r->store, &r->node[i]);
    cr_assert_eq(r->node[i].place, PLACE_ADRIFT);
    cr_assert_null(r->node[i].where);
    r->inside[i] = false;
    r->count--;
}

/* Who came out; -1: nobody. */
static long pop_from(struct rack *r, struct bucket *bucket)
{
    hwt_timeout *timeout = bucket_pop(bucket, &r->store);
    long i = timeout ? timeout - r->node : -1;

    if (i >= 0) {
        cr_assert(r->inside[i], "popped twice");
        cr_assert_eq(timeout->place, PLACE_ADRIFT);
        r->inside[i] = false;
        r->count--;
    }
    return i;
}

static void check(const struct rack *r)
{
    cr_assert_eq(bucket_check(&r->bucket), r->count);
    cr_assert_eq(bucket_is_empty(&r->bucket), r->count == 0);
}

static size_t chunks_in(const struct bucket *bucket)
{
    size_t count = 0;

    for (const struct block *block = bucket->head.next; block && block != &bucket->head;
         block = block->next)
        count++;
    return count;
}

/* ---- in and out ---- */

Test(bucket, the_first_lie_in_the_bucket_itself)
{
    struct rack *r = rack_open();

    memory_is_short = true;
    fill(r, BUCKET_INLINE);
    for (size_t i = 0; i < BUCKET_INLINE; i++)
        cr_assert_eq(r->node[i].place, PLACE_INLINE);
    cr_assert_eq(chunks_in(&r->bucket), 0);
    memory_is_short = false;
    add(r, BUCKET_INLINE);
    cr_assert_eq(r->node[BUCKET_INLINE].place, PLACE_CHUNK);
    check(r);
    rack_close(r);
}

Test(bucket, pops_everything_once)
{
    static const size_t counts[] = {0, 1, 4, 5, CHUNK_SLOTS + 4, CHUNK_SLOTS + 5, 1000, MANY};
    struct rack *r = rack_open();

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        fill(r, counts[i]);
        check(r);
        for (size_t left = counts[i]; left > 0; left--)
            cr_assert_geq(pop_from(r, &r->bucket), 0);
        cr_assert_eq(pop_from(r, &r->bucket), -1);
        check(r);
        cr_assert_eq(chunks_in(&r->bucket), 0);
    }
    rack_close(r);
}

Test(bucket, an_emptied_bucket_frees_its_chunks)
{
    struct rack *r = rack_open();
    size_t free_count;

    fill(r, 5000);
    free_count = r->store.free_count + chunks_in(&r->bucket);
    for (size_t i = 0; i < 5000; i++)
        take_out(r, (i * 7) % 5000);
    check(r);
    cr_assert_eq(chunks_in(&r->bucket), 0);
    cr_assert_eq(r->store.free_count, free_count);
    rack_close(r);
}

/* No deadline is below `earliest`, and an emptied bucket starts anew. */
Test(bucket, earliest)
{
    struct rack *r = rack_open();

    for (size_t i = 100; i > 50; i--)
        add(r, i);
    cr_assert_eq(r->bucket.earliest, 51);
    take_out(r, 51);
    cr_assert_leq(r->bucket.earliest, 52);
    while (pop_from(r, &r->bucket) >= 0)
        continue;
    add(r, 900);
    cr_assert_eq(r->bucket.earliest, 900);
    cr_assert_eq(r->bucket.head.live, 1);
    rack_close(r);
}

static void random_step(struct rack *r, size_t range)
{
    size_t i = (size_t)test_random_below(&r->random, range);

    if (r->inside[i])
        take_out(r, i);
    else if (test_random_below(&r->random, 8) == 0)
        pop_from(r, &r->bucket);
    else
        add(r, i);
}

Test(bucket, random_steps)
{
    static const size_t ranges[] = {6, 70, 600};
    struct rack *r = rack_open();

    r->random = test_seed("bucket");
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        for (unsigned step = 0; step < 5000; step++) {
            random_step(r, ranges[i]);
            check(r);
        }
        while (pop_from(r, &r->bucket) >= 0)
            continue;
    }
    rack_close(r);
}

/* ---- holes (G6) ---- */

/* Chunks stay in proportion to what is live, whatever was removed. */
static void check_holes(const struct rack *r)
{
    cr_assert_leq(chunks_in(&r->bucket), r->count / 4 + 2, "%zu chunks for %zu",
                  chunks_in(&r->bucket), r->count);
}

Test(bucket, random_removals_leave_few_holes)
{
    struct rack *r = rack_open();

    r->random = test_seed("bucket");
    fill(r, MANY);
    while (r->count > 0) {
        size_t i = (size_t)test_random_below(&r->random, MANY);
        while (!r->inside[i])
            i = (i + 1) % MANY;
        take_out(r, i);
        if (r->count % 64 == 0) {
            check(r);
            check_holes(r);
        }
    }
    check(r);
    rack_close(r);
}

/* One left in every chunk's worth: the worst that removal in order can do. */
Test(bucket, thin_chunks_are_merged)
{
    struct rack *r = rack_open();

    fill(r, MANY);
    for (size_t i = 0; i < MANY; i++) {
        if (i % CHUNK_SLOTS != 20)
            take_out(r, i);
    }
    check(r);
    check_holes(r);
    cr_assert_leq(chunks_in(&r->bucket), r->count / 7 + 2);
    rack_close(r);
}

static void thin_every_other(struct rack *r, size_t parity, size_t leave)
{
    for (size_t i = BUCKET_INLINE; i < MANY; i++) {
        size_t at = i - BUCKET_INLINE;
        if (at / CHUNK_SLOTS % 2 == parity && at % CHUNK_SLOTS >= leave && r->inside[i])
            take_out(r, i);
    }
}

/* First every other chunk, while its neighbours are too full to take the rest, then those. */
Test(bucket, thin_chunks_between_full_ones)
{
    struct rack *r = rack_open();

    fill(r, MANY);
    thin_every_other(r, 0, 1);
    check(r);
    thin_every_other(r, 1, 8);
    check(r);
    check_holes(r);
    rack_close(r);
}

/* Bounded over time too: a standing crowd that changes all the time. */
Test(bucket, churn_does_not_grow)
{
    struct rack *r = rack_open();

    fill(r, 1000);
    for (size_t round = 0; round < 50; round++) {
        for (size_t i = 0; i < 1000; i++) {
            take_out(r, (round * 1000 + i) % MANY);
            add(r, (round * 1000 + i + 1000) % MANY);
        }
        check(r);
        check_holes(r);
        cr_assert_leq(chunks_in(&r->bucket), 60);
    }
    rack_close(r);
}

/* ---- moving ---- */

/* Both buckets work on: one of `to` is removed, the rest popped, then the other is emptied. */
static void empty_both(struct rack *r, struct bucket *to)
{
    if (r->count > 1)
        take_out(r, 0);
    while (pop_from(r, to) >= 0)
        continue;
    cr_assert_eq(r->count, 1);
    check(r);
    cr_assert_eq(pop_from(r, &r->bucket), MANY - 1);
}

Test(bucket, moves_all_of_it)
{
    static const size_t counts[] = {0, 1, 4, 5, 66, 1000};
    struct rack *r = rack_open();
    struct bucket to;

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        memset(&to, 0, sizeof to);
        fill(r, counts[i]);
        bucket_move(&to, &r->bucket);
        cr_assert(bucket_is_empty(&r->bucket));
        cr_assert_eq(bucket_check(&r->bucket), 0);
        cr_assert_eq(bucket_check(&to), counts[i]);
        add(r, MANY - 1); /* the one it came from goes on */
        empty_both(r, &to);
    }
    rack_close(r);
}

/* ---- memory ---- */

Test(bucket, insertion_without_memory_changes_nothing)
{
    struct rack *r = rack_open();

    fill(r, BUCKET_INLINE);
    memory_is_short = true;
    cr_assert_not(bucket_insert(&r->bucket, &r->store, &r->node[MANY - 1], 0));
    cr_assert_eq(r->node[MANY - 1].place, PLACE_UNMET);
    check(r);
    memory_is_short = false;
    add(r, MANY - 1);
    check(r);
    rack_close(r);
}

Test(bucket, reserved_chunks_need_no_memory)
{
    struct rack *r = rack_open();

    cr_assert_eq(chunk_store_reserve(&r->store, 100), 0);
    cr_assert_geq(r->store.free_count, 100);
    memory_is_short = true;
    cr_assert_eq(chunk_store_reserve(&r->store, 100), 0);
    cr_assert_eq(chunk_store_reserve(&r->store, 101), -ENOMEM);
    cr_assert_eq(chunk_store_reserve(&r->store, SIZE_MAX), -ENOMEM);
    cr_assert_eq(chunk_store_reserve(&r->store, SIZE_MAX / CHUNK_SIZE + 1), -ENOMEM);
    fill(r, BUCKET_INLINE + 100 * CHUNK_SLOTS);
    cr_assert_not(bucket_insert(&r->bucket, &r->store, &r->node[MANY - 1], 0));
    check(r);
    memory_is_short = false;
    rack_close(r);
}
