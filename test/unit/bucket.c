/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=aligned_alloc,--wrap=mmap */
/*
 * Buckets: inline slots, chunks, holes and their merging (B1 to B3), moving, the order of chunks,
 * the store of chunks.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bucket.h"
#include "support.h"

#define MANY 20000

enum { BIG_LOT = 4096 }; /* large chunks: 2 MB */

static bool memory_is_short;
static unsigned requests;

void *__real_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    requests++;
    return memory_is_short ? NULL : __real_malloc(size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    requests++;
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    requests++;
    if (!memory_is_short)
        return __real_mmap(at, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
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
    for (size_t i = 0; i < MANY; i++)
        r->node[i].stamp = i << STAMP_LANE_BITS;
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

static uint64_t packed_of(const struct rack *r, size_t i)
{
    return packed_of_key(&r->node[i], i);
}

static bool try_add_to(struct rack *r, struct bucket *bucket, size_t i)
{
    if (!bucket_insert(bucket, &r->store, packed_of(r, i), i))
        return false;
    cr_assert(bucket_holds(&r->node[i]));
    cr_assert_eq(*slot_of_where(load_relaxed(&r->node[i].where)), packed_of(r, i));
    r->inside[i] = true;
    r->count++;
    return true;
}

static void add(struct rack *r, size_t i)
{
    cr_assert(try_add_to(r, &r->bucket, i));
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
    cr_assert_eq(load_relaxed(&r->node[i].where), 0);
    cr_assert_not(bucket_holds(&r->node[i]));
    r->inside[i] = false;
    r->count--;
}

/* ---- what is asked of the system beforehand ---- */

static size_t asked_calls, asked_bytes, asked_most, asked_touched;

int madvise(void *memory, size_t size, int advice)
{
    enum { POPULATE = 23 };

    if (advice == POPULATE) {
        unsigned char in_core = 0;
        mincore(memory, 1, &in_core);
        asked_touched += in_core & 1;
        asked_calls++;
        asked_bytes += size;
        asked_most = size > asked_most ? size : asked_most;
    }
    return (int)syscall(SYS_madvise, memory, size, advice);
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

static size_t chunks_in(const struct bucket *bucket)
{
    size_t count = 0;

    for (const struct ring *ring = ring_next(&bucket->ring); ring && ring != &bucket->ring;
         ring = ring_next(ring))
        count++;
    return count;
}

/* In small ones. */
static size_t room_taken(const struct bucket *bucket)
{
    size_t small = 0;

    for (struct ring *ring = ring_next(&bucket->ring); ring && ring != &bucket->ring;
         ring = ring_next(ring))
        small += chunk_is_large(chunk_of(ring)) ? CHUNK_SPLIT : 1;
    return small;
}

static size_t free_room(const struct chunk_store *store)
{
    return store->small_count + store->large_count * CHUNK_SPLIT + store->fresh;
}

/* `least` is a bound of the stamps, and every slot says what its timeout was filed with. */
static void check_chunks(const struct rack *r, const struct bucket *bucket)
{
    for (struct ring *ring = ring_next(&bucket->ring); ring && ring != &bucket->ring;
         ring = ring_next(ring)) {
        const struct chunk *chunk = chunk_of(ring);
        for (unsigned i = 0; i < ring_used(ring); i++) {
            const hwt_timeout *timeout = packed_timeout(chunk->slot[i]);
            if (!timeout)
                continue;
            cr_assert_geq(timeout->stamp, chunk_least(chunk));
            cr_assert_eq(chunk->slot[i], packed_of(r, (size_t)(timeout - r->node)));
        }
    }
}

static void check(struct rack *r)
{
    cr_assert_eq(bucket_check(&r->bucket), r->count);
    cr_assert_eq(bucket_is_empty(&r->bucket), r->count == 0);
    cr_assert_geq(bucket_at_most(&r->bucket), r->count);
    check_chunks(r, &r->bucket);
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
    cr_assert_eq(r->node[BUCKET_INLINE].place, PLACE_SMALL);
    for (size_t i = BUCKET_INLINE + 1; i < 1000; i++)
        add(r, i);
    cr_assert_eq(r->node[999].place, PLACE_LARGE);
    check(r);
    rack_close(r);
}

Test(bucket, pops_everything_once)
{
    static const size_t counts[] = {
        0, 1, 4, 5, CHUNK_SMALL_ROOM + 4, CHUNK_SMALL_ROOM + 5, CHUNK_LARGE_ROOM + 29, 1000, MANY};
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
    free_count = free_room(&r->store) + room_taken(&r->bucket);
    for (size_t i = 0; i < 5000; i++)
        take_out(r, (i * 7) % 5000);
    check(r);
    cr_assert_eq(chunks_in(&r->bucket), 0);
    cr_assert_eq(free_room(&r->store), free_count);
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
    cr_assert_eq(bucket_at_most(&r->bucket), 1);
    rack_close(r);
}

/* ---- how many at most: what is removed from a chunk is not counted down ---- */

/* In a bucket that never gets empty the count would wrap some day. */
Test(bucket, the_bound_does_not_wrap)
{
    struct rack *r = rack_open();

    fill(r, 100);
    ring_set_live(&r->bucket.ring, UINT32_MAX - 2);
    for (size_t i = 100; i < 110; i++) {
        add(r, i);
        check(r);
        take_out(r, i);
        check(r);
    }
    cr_assert_eq(bucket_at_most(&r->bucket), UINT32_MAX);
    rack_close(r);
}

/* What it has not counted in it must not count out: it knows no more until it is empty. */
Test(bucket, a_full_bound_stays)
{
    struct rack *r = rack_open();
    struct bucket to;
    uint64_t out[50];

    memset(&to, 0, sizeof to);
    fill(r, 200);
    ring_set_live(&r->bucket.ring, UINT32_MAX);
    cr_assert_geq(pop_from(r, &r->bucket), 0);
    for (size_t i = 0; i < BUCKET_INLINE; i++)
        take_out(r, i);
    r->count -= bucket_skim(&r->bucket, &r->store, 0, 50, out);
    check(r);
    cr_assert_eq(bucket_at_most(&r->bucket), UINT32_MAX);
    bucket_move(&to, &r->bucket);
    cr_assert_eq(bucket_at_most(&to), UINT32_MAX);
    while (pop_from(r, &to) >= 0)
        cr_assert(bucket_at_most(&to) == UINT32_MAX || !bucket_has_chunks(&to));
    cr_assert(bucket_insert(&to, &r->store, packed_of(r, 0), 0));
    cr_assert_eq(bucket_at_most(&to), 1, "empty, it starts anew");
    rack_close(r);
}

static atomic_bool moving;

static void *move_to_and_fro(void *arg)
{
    hwt_timeout *timeout = arg;

    while (atomic_load(&moving)) {
        store_relaxed(&timeout->word, word_make(5, WORD_PENDING));
        store_relaxed(&timeout->word, word_make(20, WORD_PENDING));
    }
    return NULL;
}

/* Whatever it finds of one that is being moved later, it finds no bound above the others. */
Test(bucket, scan_beside_a_move)
{
    struct rack *r = rack_open();
    pthread_t thread;

    store_relaxed(&r->node[0].word, word_make(10, WORD_PENDING));
    store_relaxed(&r->node[1].word, word_make(5, WORD_PENDING));
    for (size_t i = 0; i < 2; i++)
        cr_assert(bucket_insert(&r->bucket, &r->store, packed_of_key(&r->node[i], 0), 5));
    atomic_store(&moving, true);
    cr_assert_eq(pthread_create(&thread, NULL, move_to_and_fro, &r->node[1]), 0);
    for (unsigned i = 0; i < 3000000; i++) {
        r->bucket.earliest = 0;
        cr_assert_not_null(bucket_scan(&r->bucket, r->bucket.earliest).slot);
        if (r->bucket.earliest > 10)
            break;
    }
    atomic_store(&moving, false);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_leq(r->bucket.earliest, 10);
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
static void check_density(const struct rack *r)
{
    size_t taken = room_taken(&r->bucket);

    cr_assert_leq(taken, BUCKET_CHUNKS_FOR(r->count), "%zu small ones for %zu", taken, r->count);
}

Test(bucket, random_removals_leave_few_holes)
{
    struct rack *r = rack_open();

    r->random = test_seed("bucket");
    fill(r, MANY);
    check_density(r);
    while (r->count > 0) {
        size_t i = (size_t)test_random_below(&r->random, MANY);
        while (!r->inside[i])
            i = (i + 1) % MANY;
        take_out(r, i);
        check_density(r);
        if (r->count % 64 == 0)
            check(r);
    }
    check(r);
    rack_close(r);
}

/* One left in every chunk's worth: the worst that removal in order can do. */
Test(bucket, thin_chunks_are_merged)
{
    static const size_t periods[] = {5, CHUNK_SMALL_ROOM, CHUNK_LARGE_ROOM, 2 * CHUNK_LARGE_ROOM};

    for (size_t p = 0; p < COUNT_OF(periods); p++) {
        struct rack *r = rack_open();
        fill(r, MANY);
        for (size_t i = 0; i < MANY; i++) {
            if (i % periods[p] != 4)
                take_out(r, i);
        }
        check(r);
        check_density(r);
        rack_close(r);
    }
}

/* Of every other chunk's worth all but `leave`. */
static void thin_every_other(struct rack *r, size_t parity, size_t leave)
{
    for (size_t i = BUCKET_INLINE; i < MANY; i++) {
        size_t at = i - BUCKET_INLINE;
        if (at / CHUNK_LARGE_ROOM % 2 == parity && at % CHUNK_LARGE_ROOM >= leave && r->inside[i])
            take_out(r, i);
    }
}

/* First every other chunk, while its neighbours are too full to take the rest, then those. */
Test(bucket, thin_chunks_between_full_ones)
{
    for (size_t leave = 1; leave < CHUNK_LARGE_ROOM; leave += 3) {
        struct rack *r = rack_open();
        fill(r, MANY);
        thin_every_other(r, 0, leave);
        check(r);
        check_density(r);
        thin_every_other(r, 1, 8);
        check(r);
        check_density(r);
        rack_close(r);
    }
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
        check_density(r);
    }
    rack_close(r);
}

/* ---- many buckets on one store: nothing is allocated beyond what was reserved ---- */

#define SLACK 64 /* chunks that are on their way, and what splitting leaves idle */

struct shelves {
    struct rack *r;
    struct bucket *bucket;
    size_t buckets;
};

static struct shelves shelves_open(size_t buckets, size_t timeouts)
{
    struct shelves s = {rack_open(), NULL, buckets};

    s.bucket = aligned_alloc(CACHE_LINE, buckets * sizeof *s.bucket);
    cr_assert_not_null(s.bucket);
    memset((void *)s.bucket, 0, buckets * sizeof *s.bucket);
    cr_assert_eq(chunk_store_reserve(&s.r->store, BUCKET_CHUNKS_FOR(timeouts) + SLACK), 0);
    s.r->random = test_seed("shelves");
    requests = 0;
    return s;
}

static void shelves_close(struct shelves *s)
{
    size_t count = 0;

    for (size_t i = 0; i < s->buckets; i++) {
        count += bucket_check(&s->bucket[i]);
        check_chunks(s->r, &s->bucket[i]);
    }
    cr_assert_eq(count, s->r->count);
    cr_assert_eq(requests, 0, "%u requests for memory", requests);
    free(s->bucket);
    rack_close(s->r);
}

/* Five in each, the four in the bucket itself removed, refilled with what is left, repeatedly. */
Test(bucket, five_a_bucket_and_one_left)
{
    struct shelves s = shelves_open(MANY / 5, MANY);

    for (size_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < MANY; i++) {
            if (!s.r->inside[i])
                cr_assert(try_add_to(s.r, &s.bucket[(i + round * 7) % s.buckets], i));
        }
        for (size_t i = 0; i < MANY; i++) {
            if (s.r->node[i].place == PLACE_INLINE)
                take_out(s.r, i);
        }
        cr_assert_eq(requests, 0, "round %zu", round);
    }
    shelves_close(&s);
}

/* Inline ones go first: those that are in a chunk should come in for them. */
Test(bucket, the_first_chunk_comes_in)
{
    struct rack *r = rack_open();

    for (size_t n = 5; n < 40; n++) {
        fill(r, n);
        for (size_t i = 0; i < n - 1; i++) {
            take_out(r, i);
            check(r);
            check_density(r);
        }
        cr_assert_eq(r->node[n - 1].place, PLACE_INLINE);
        cr_assert_eq(chunks_in(&r->bucket), 0);
        take_out(r, n - 1);
    }
    rack_close(r);
}

/* Large chunks in which few are left, while the others need many small ones elsewhere. */
Test(bucket, few_in_large_ones_and_five_elsewhere)
{
    enum { WIDE = 39, LEFT = 11 };
    const size_t wide = MANY / WIDE;
    struct shelves s = shelves_open(wide + MANY / 5, wide * WIDE);
    size_t next = wide;

    for (size_t i = 0; i < wide * WIDE; i++)
        cr_assert(try_add_to(s.r, &s.bucket[i % wide], i));
    for (size_t i = 0; i < wide * (WIDE - LEFT); i++)
        take_out(s.r, i);
    for (size_t i = 0; i < wide * (WIDE - LEFT); i++)
        cr_assert(try_add_to(s.r, &s.bucket[next + i / 5], i));
    shelves_close(&s);
}

/* So many in each bucket, whatever the number: the worst is that which needs one more chunk. */
Test(bucket, as_many_in_each)
{
    for (size_t each = 1; each < 200; each++) {
        struct shelves s = shelves_open(MANY / each, MANY / each * each);
        for (size_t i = 0; i < MANY / each * each; i++)
            cr_assert(try_add_to(s.r, &s.bucket[i % s.buckets], i));
        cr_assert_eq(requests, 0, "%zu in each", each);
        shelves_close(&s);
    }
}

/* Any crowd of at most so many, wherever it lies and however it changes. */
static void shuffle_shelves(size_t buckets, size_t timeouts, size_t phases)
{
    struct shelves s = shelves_open(buckets, timeouts);

    for (size_t phase = 0; phase < phases; phase++) {
        size_t narrow = 1 + (size_t)test_random_below(&s.r->random, buckets);
        for (size_t step = 0; step < timeouts; step++) {
            size_t i = (size_t)test_random_below(&s.r->random, timeouts);
            if (!s.r->inside[i])
                cr_assert(try_add_to(s.r, &s.bucket[test_random_below(&s.r->random, narrow)], i));
            else if (phase % 3)
                take_out(s.r, i);
        }
        cr_assert_eq(requests, 0, "phase %zu, %zu live", phase, s.r->count);
    }
    shelves_close(&s);
}

Test(bucket, reserved_for_any_distribution)
{
    shuffle_shelves(1, 3000, 30);
    shuffle_shelves(10, 3000, 30);
    shuffle_shelves(100, 10000, 30);
    shuffle_shelves(3000, MANY, 30);
}

/* From one shape to another: large chunks are split, small ones stand for large ones. */
Test(bucket, from_one_bucket_to_many_and_back)
{
    struct shelves s = shelves_open(MANY / 5, MANY);

    for (size_t round = 0; round < 6; round++) {
        size_t wide = round % 2 ? s.buckets : 1 + round;
        for (size_t i = 0; i < MANY; i++)
            cr_assert(try_add_to(s.r, &s.bucket[i % wide], i));
        cr_assert_eq(requests, 0, "round %zu", round);
        for (size_t i = 0; i < MANY; i++)
            take_out(s.r, (i * 7919) % MANY);
    }
    shelves_close(&s);
}

/* ---- withdrawn: the worker is told nothing ---- */

static void withdraw(struct rack *r, size_t i)
{
    cr_assert(r->inside[i]);
    cr_assert(bucket_withdraw(&r->node[i]));
    cr_assert_not(bucket_withdraw(&r->node[i]), "once");
    r->inside[i] = false;
    r->count--;
}

static void check_holes(struct rack *r)
{
    cr_assert_eq(bucket_check(&r->bucket), r->count);
    cr_assert_geq(bucket_at_most(&r->bucket), r->count);
    check_chunks(r, &r->bucket);
}

Test(bucket, withdrawn_from_anywhere)
{
    static const size_t counts[] = {1, 4, 5, 17, 66, 1000};
    struct rack *r = rack_open();

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        fill(r, counts[i]);
        for (size_t n = 0; n < counts[i]; n++) {
            withdraw(r, n * 7919 % counts[i]);
            check_holes(r);
        }
        cr_assert_null(bucket_scan(&r->bucket, r->bucket.earliest).slot);
        cr_assert_eq(pop_from(r, &r->bucket), -1);
        cr_assert(bucket_is_empty(&r->bucket), "and the chunks are free");
    }
    rack_close(r);
}

Test(bucket, has_any_frees_the_chunks_in_the_way)
{
    struct rack *r = rack_open();

    fill(r, MANY);
    for (size_t i = 0; i < MANY - 1; i++)
        withdraw(r, i);
    cr_assert(bucket_has_any(&r->bucket, &r->store));
    cr_assert_eq(chunks_in(&r->bucket), 1);
    withdraw(r, MANY - 1);
    cr_assert_not(bucket_is_empty(&r->bucket), "nobody knows yet");
    cr_assert_not(bucket_has_any(&r->bucket, &r->store));
    cr_assert(bucket_is_empty(&r->bucket));
    rack_close(r);
}

/* The bound of what a bucket itself holds is exact: a lone one is not held back by what is over. */
Test(bucket, at_most_is_exact_without_chunks)
{
    struct rack *r = rack_open();

    fill(r, BUCKET_INLINE);
    withdraw(r, 0);
    withdraw(r, 2);
    cr_assert_eq(bucket_at_most(&r->bucket), BUCKET_INLINE - 2);
    add(r, 10);
    cr_assert_eq(bucket_at_most(&r->bucket), BUCKET_INLINE - 1);
    rack_close(r);
}

/* Removals, fillings and a walk between the holes. */
Test(bucket, random_steps_with_holes)
{
    static const size_t ranges[] = {6, 70, 600, 4000};
    struct rack *r = rack_open();

    r->random = test_seed("bucket");
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        for (unsigned step = 0; step < 20000; step++) {
            size_t n = (size_t)test_random_below(&r->random, ranges[i]);
            if (r->inside[n] && test_random_below(&r->random, 3))
                withdraw(r, n);
            else
                random_step(r, ranges[i]);
            if (step % 16 == 0)
                check_holes(r);
        }
        while (pop_from(r, &r->bucket) >= 0)
            continue;
        cr_assert(bucket_is_empty(&r->bucket));
    }
    rack_close(r);
}

/* The units of the store that are in use, free ones that were used included. */
static size_t worn(struct rack *r)
{
    size_t fresh = r->store.fresh;

    for (const struct ring *ring = r->store.small; ring; ring = ring_next(ring))
        fresh += ring_used(ring) ? 0 : 1;
    return r->store.total - fresh;
}

/* Filled, nine of ten withdrawn, filed anew elsewhere, again and again: no growth (G6). */
static void collects(size_t buckets)
{
    struct rack *r = rack_open();
    struct bucket *bucket = aligned_alloc(CACHE_LINE, 2 * buckets * sizeof *bucket);
    size_t most = 0;

    cr_assert_not_null(bucket);
    memset((void *)bucket, 0, 2 * buckets * sizeof *bucket);
    r->random = test_seed("bucket");
    for (size_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < MANY; i++) {
            if (!r->inside[i])
                cr_assert(try_add_to(r, &bucket[i % buckets + round % 2 * buckets], i));
        }
        if (round == 0)
            most = worn(r);
        cr_assert_leq(worn(r), most * 4 / 3 + 256, "%zu after %zu", worn(r), most);
        for (size_t i = 0; i < MANY; i++) {
            if (test_random_below(&r->random, 10))
                withdraw(r, i);
        }
    }
    free(bucket);
    rack_close(r);
}

Test(bucket, withdrawn_ones_are_collected)
{
    collects(1);
    collects(50);
    collects(1000);
    collects(4000);
}

/* One is withdrawn for each that is filed, for long: what is in use stays in proportion. */
Test(bucket, churn_of_withdrawals_does_not_grow)
{
    enum { STANDING = 6000, BUCKETS = 300 };
    static struct bucket bucket[BUCKETS];
    struct rack *r = rack_open();
    size_t next = 0;

    r->random = test_seed("bucket");
    for (; next < STANDING; next++)
        cr_assert(try_add_to(r, &bucket[next % BUCKETS], next));
    for (size_t step = 0; step < 400000; step++) {
        size_t i = (size_t)test_random_below(&r->random, MANY);
        while (!r->inside[i])
            i = (i + 1) % MANY;
        withdraw(r, i);
        while (r->inside[next % MANY])
            next++;
        cr_assert(try_add_to(r, &bucket[(step / 2000 + next) % BUCKETS], next % MANY));
    }
    cr_assert_leq(worn(r), BUCKET_CHUNKS_FOR(STANDING) * 4 / 3 + 64);
    rack_close(r);
}

/* Reserved, filled, withdrawn, filed elsewhere without memory: what is over needs no room. */
Test(bucket, reserved_beside_holes)
{
    struct shelves s = shelves_open(MANY / 5, 5000);

    memory_is_short = true;
    for (size_t round = 0; round < 40; round++) {
        size_t narrow = 1 + (size_t)test_random_below(&s.r->random, round % 2 ? s.buckets : 20);
        for (size_t i = 0; i < MANY && s.r->count < 5000; i++) {
            size_t n = (i * 7919 + round * 31) % MANY;
            if (!s.r->inside[n])
                cr_assert(try_add_to(s.r, &s.bucket[test_random_below(&s.r->random, narrow)], n),
                          "round %zu, %zu live", round, s.r->count);
        }
        for (size_t i = 0; i < MANY; i++) {
            if (s.r->inside[i] && test_random_below(&s.r->random, 10))
                withdraw(s.r, i);
        }
    }
    memory_is_short = false;
    requests = 0;
    shelves_close(&s);
}

/* Shown out of its slot: a canceller finds nothing, and afterwards it is where it was. */
static void see_one(void *context, const hwt_timeout *timeout)
{
    size_t *shown = context;

    cr_assert_not(bucket_withdraw(timeout));
    ++*shown;
}

Test(bucket, visit_keeps_what_it_shows)
{
    static const size_t counts[] = {0, 1, 4, 5, 66, 1000};
    struct rack *r = rack_open();
    struct sighting sighting = {NULL, 0, 0};

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        size_t shown = 0;
        for (size_t n = 0; n < counts[i]; n++) {
            if (!r->inside[n])
                add(r, n);
        }
        bucket_visit(&r->bucket, see_one, &shown, &sighting);
        cr_assert_eq(shown, r->count);
        cr_assert_null(sighting.slot);
        check(r);
    }
    for (size_t i = 0; i < 1000; i++)
        withdraw(r, i);
    rack_close(r);
}

/* ---- alone ---- */

static uint64_t slot_of(const hwt_timeout *timeout)
{
    return load_relaxed(slot_of_where(load_relaxed(&timeout->where)));
}

static void give_handle(void *context, const hwt_timeout *timeout)
{
    hwt_timeout *lucky = context;

    if (timeout == lucky)
        add_relaxed(&lucky->refs, 1);
}

/* S4: in its own slot and in a chunk; not if it has a handle, nor once a visitor gave it one. */
Test(bucket, what_is_alone_is_marked)
{
    struct rack *r = rack_open();
    struct sighting sighting = {NULL, 0, 0};
    const size_t count = 40;

    for (size_t i = 0; i < count; i++) {
        store_relaxed(&r->node[i].refs, 1 + i % 2);
        store_relaxed(&r->node[i].word, word_make(i, WORD_PENDING));
        cr_assert(bucket_insert(&r->bucket, &r->store, packed_filed(&r->node[i], i, i), i));
        cr_assert_eq((slot_of(&r->node[i]) & PACKED_ALONE) != 0, i % 2 == 0);
        cr_assert_eq(packed_key_from(slot_of(&r->node[i]), 0), i);
    }
    for (size_t lucky = 0; lucky < count; lucky += 10)
        bucket_visit(&r->bucket, give_handle, &r->node[lucky], &sighting);
    for (size_t i = 0; i < count; i++) {
        bool marked = (slot_of(&r->node[i]) & PACKED_ALONE) != 0;
        cr_assert_eq(marked, i % 2 == 0 && i % 10 != 0, "%zu", i);
        cr_assert(
            slot_still_holds(slot_of_where(load_relaxed(&r->node[i].where)), slot_of(&r->node[i])));
        if (!marked)
            cr_assert(bucket_withdraw(&r->node[i]));
    }
    bucket_prefetch_arguments(&r->bucket);
    for (size_t left = count / 2 - count / 10; left > 0; left--) {
        const hwt_timeout *timeout = bucket_pop(&r->bucket, &r->store);
        cr_assert(timeout && load_relaxed(&timeout->refs) == 1);
    }
    cr_assert(bucket_is_empty(&r->bucket));
    rack_close(r);
}

/* Whoever gave up the last handle meanwhile may have ended it, or moved it: a notice will come. */
Test(bucket, what_has_changed_since_it_was_met_is_not_marked)
{
    struct rack *r = rack_open();
    hwt_timeout *timeout = &r->node[0];

    store_relaxed(&timeout->refs, 1);
    store_relaxed(&timeout->word, word_make(5, WORD_PENDING));
    cr_assert(packed_filed(timeout, 5, 5) & PACKED_ALONE);
    store_relaxed(&timeout->word, word_make(5, WORD_CANCELLED));
    cr_assert_not(packed_filed(timeout, 5, 5) & PACKED_ALONE);
    store_relaxed(&timeout->word, word_make(4, WORD_NUDGED));
    cr_assert_not(packed_filed(timeout, 5, 5) & PACKED_ALONE);
    store_relaxed(&timeout->word, word_make(9, WORD_PENDING));
    cr_assert_not(packed_filed(timeout, 5, 5) & PACKED_ALONE);
    rack_close(r);
}

/* A chunk of which nobody but the worker takes anything need not be looked through: until it is. */
Test(bucket, a_chunk_is_shared_once_somebody_may_withdraw)
{
    struct rack *r = rack_open();
    struct sighting sighting = {NULL, 0, 0};
    const size_t count = BUCKET_INLINE + CHUNK_SMALL_ROOM + 1;
    struct chunk *first, *second;
    size_t moved = 0;

    for (size_t i = 0; i < count; i++) {
        store_relaxed(&r->node[i].refs, i + 1 < count ? 1 : 2);
        store_relaxed(&r->node[i].word, word_make(i, WORD_PENDING));
        cr_assert(bucket_insert(&r->bucket, &r->store, packed_filed(&r->node[i], i, i), i));
    }
    first = bucket_first_chunk(&r->bucket);
    second = bucket_next_chunk(&r->bucket, first);
    cr_assert_not(ring_is_shared(&first->ring));
    cr_assert(second && ring_is_shared(&second->ring), "the last one has a handle");
    bucket_visit(&r->bucket, give_handle, &r->node[0], &sighting);
    cr_assert_not(ring_is_shared(&first->ring), "that one lies in the bucket itself");
    bucket_visit(&r->bucket, give_handle, &r->node[count - 2], &sighting);
    cr_assert(ring_is_shared(&first->ring));
    cr_assert_eq(bucket_check(&r->bucket), count);

    cr_assert(bucket_withdraw(&r->node[0]) && bucket_withdraw(&r->node[count - 2]));
    for (size_t i = BUCKET_INLINE; i + 6 < count; i++, moved++) /* merged with the second one */
        bucket_remove(&r->store, &r->node[i]);
    first = bucket_first_chunk(&r->bucket);
    cr_assert_null(bucket_next_chunk(&r->bucket, first));
    cr_assert(ring_is_shared(&first->ring));
    cr_assert_eq(bucket_check(&r->bucket), count - moved - 2);
    rack_close(r);
}

/* ---- stale places ---- */

/* What was taken out untouched still says where it was; nobody may believe it. */
Test(bucket, a_stale_place_holds_nothing)
{
    struct rack *r = rack_open();
    uint64_t packed[BUCKET_BATCH];
    unsigned count;

    fill(r, 2000);
    for (size_t done = 0; done < 2000; done += count) {
        count = bucket_take(&r->bucket, &r->store, packed, BUCKET_BATCH, NULL);
        for (unsigned i = 0; i < count; i++) {
            cr_assert_neq(packed_timeout(packed[i])->place, PLACE_ADRIFT);
            cr_assert_not(bucket_holds(packed_timeout(packed[i])));
            cr_assert_not(bucket_withdraw(packed_timeout(packed[i])));
        }
    }
    r->count = 0;
    for (size_t i = 2000; i < 4000; i++) /* where the others were */
        add(r, i);
    for (size_t i = 0; i < 2000; i++)
        cr_assert_not(bucket_holds(&r->node[i]) || bucket_withdraw(&r->node[i]));
    check(r);
    rack_close(r);
}

static void place_in(hwt_timeout *timeout, _Atomic uint64_t *slot)
{
    store_relaxed(&timeout->where, where_of_slot(slot));
    timeout->place = PLACE_LARGE;
}

/* A chunk that was split has its heads where slots were: no word there may look like a timeout. */
Test(bucket, a_stale_place_in_the_head_of_a_chunk)
{
    static const size_t slots[] = {12, 13, 14, 15, 28, 31, 44, 47}; /* where heads come to lie */
    struct rack *r = rack_open();
    struct chunk *large = chunk_take(&r->store, true);
    struct bucket bucket[200];
    size_t next = 0;

    cr_assert(chunk_is_large(large));
    for (size_t i = 0; i < COUNT_OF(slots); i++)
        place_in(&r->node[i], &large->slot[slots[i]]);
    memset((void *)bucket, 0, sizeof bucket);
    chunk_give(&r->store, large);
    for (size_t i = COUNT_OF(slots); i < 5 * 200; i++) {
        r->node[i].stamp = (uint64_t)(uintptr_t)&r->node[(next++ / 5 + 1) % COUNT_OF(slots)];
        cr_assert(bucket_insert(&bucket[i / 5], &r->store, packed_of(r, i), 0));
        for (size_t j = 0; j < COUNT_OF(slots); j++)
            cr_assert_not(bucket_holds(&r->node[j]) || bucket_withdraw(&r->node[j]));
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

/* ---- order ---- */

/* In groups of a chunk's size the stamps are shuffled; then the chunks come in their order. */
static void sorted_chunks(struct rack *r, size_t count, size_t step)
{
    uint64_t packed[BUCKET_BATCH], least, bound = 0;
    unsigned taken;

    for (size_t i = 0; i < count; i++)
        add(r, i * step % count);
    bucket_sort_chunks(&r->bucket);
    check(r);
    while (bucket_has_chunks(&r->bucket)) {
        taken = bucket_take(&r->bucket, &r->store, packed, BUCKET_BATCH, &least);
        cr_assert_geq(least, bound, "the lowest stamps come first");
        bound = least;
        for (unsigned i = 0; i < taken; i++)
            cr_assert_geq(packed_timeout(packed[i])->stamp, least);
        r->count -= taken;
    }
    cr_assert_eq(bucket_take(&r->bucket, &r->store, packed, BUCKET_BATCH, &least),
                 count < BUCKET_INLINE ? count : BUCKET_INLINE);
    cr_assert_eq(least, 0, "nothing is known of those in the bucket itself");
    r->count = 0;
}

Test(bucket, chunks_by_their_stamps)
{
    static const size_t counts[] = {1, 4, 5, 17, 29, 100, 1001, 7001, 19997};
    static const size_t steps[] = {1, 3, 7919};
    struct rack *r = rack_open();

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t j = 0; j < COUNT_OF(steps); j++)
            sorted_chunks(r, counts[i], steps[j]);
        sorted_chunks(r, counts[i], counts[i] - 1);
    }
    rack_close(r);
}

Test(bucket, one_key)
{
    static const size_t counts[] = {1, 4, 5, 6, 20, 200};
    struct rack *r = rack_open();
    uint64_t packed;

    cr_assert_not(bucket_one_key(&r->bucket, &packed), "it is empty");
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t odd = 0; odd <= counts[i]; odd++) {
            struct bucket bucket;
            memset(&bucket, 0, sizeof bucket);
            for (size_t n = 0; n < counts[i]; n++)
                bucket_insert(&bucket, &r->store,
                              packed_of_key(&r->node[n], n == odd ? 70 : 0xabcde), 0);
            cr_assert_eq(bucket_one_key(&bucket, &packed), odd == counts[i] || counts[i] == 1);
            if (odd == counts[i])
                cr_assert_eq(packed_bits(packed), 0xabcde);
            while (bucket_pop(&bucket, &r->store))
                continue;
        }
    }
    rack_close(r);
}

/* The exact earliest, and the bound becomes exact with it. */
Test(bucket, scan)
{
    struct rack *r = rack_open();

    cr_assert_null(bucket_scan(&r->bucket, r->bucket.earliest).slot);
    for (size_t i = 0; i < 1000; i++) {
        store_relaxed(&r->node[i].word, word_make(i, WORD_PENDING));
        add(r, i);
    }
    for (size_t i = 0; i < 1000; i++) {
        cr_assert_eq(packed_timeout(bucket_scan(&r->bucket, r->bucket.earliest).packed),
                     &r->node[i]);
        cr_assert_eq(r->bucket.earliest, i);
        if (i % 2)
            take_out(r, i);
        else
            store_relaxed(&r->node[i].word, word_make(5000 + i, WORD_PENDING));
    }
    cr_assert_eq(packed_timeout(bucket_scan(&r->bucket, r->bucket.earliest).packed), &r->node[0]);
    rack_close(r);
}

/* The others' words say something that could not be, so that a look at one would tell. */
Test(bucket, scan_touches_the_earliest_only)
{
    struct rack *r = rack_open();

    for (size_t i = 1; i <= 1000; i++)
        add(r, i * 7 % 1009);
    r->bucket.earliest = 1;
    store_relaxed(&r->node[1].word, word_make(1, WORD_PENDING));
    cr_assert_eq(packed_timeout(bucket_scan(&r->bucket, 1).packed), &r->node[1]);
    cr_assert_eq(r->bucket.earliest, 1);
    rack_close(r);
}

/* Keys are of 21 bits, and what was moved keeps its own. */
Test(bucket, scan_is_not_misled_by_a_key)
{
    struct rack *r = rack_open();
    const uint64_t deadline[] = {UINT64_C(9) << KEY_BITS | 5, UINT64_C(8) << KEY_BITS | 5,
                                 UINT64_C(7) << KEY_BITS | 6, UINT64_C(7) << KEY_BITS | 7};

    for (size_t i = 0; i < 4; i++) {
        store_relaxed(&r->node[i].word, word_make(deadline[i], WORD_PENDING));
        cr_assert(bucket_insert(&r->bucket, &r->store, packed_of_key(&r->node[i], deadline[i]),
                                deadline[i]));
    }
    r->bucket.earliest = UINT64_C(7) << KEY_BITS | 5; /* of one that was there */
    for (size_t i = 2; i < 6; i++) {
        struct sighting found = bucket_scan(&r->bucket, r->bucket.earliest);
        size_t wanted = i < 4 ? i : 5 - i; /* 2, 3, 1, 0 */
        cr_assert_eq(packed_timeout(found.packed), &r->node[wanted]);
        cr_assert_eq(found.deadline, deadline[wanted]);
        store_relaxed(&r->node[wanted].word, word_make(DEADLINE_NEVER - 1, WORD_PENDING));
    }
    rack_close(r);
}

/* ---- memory ---- */

Test(bucket, insertion_without_memory_changes_nothing)
{
    struct rack *r = rack_open();

    fill(r, BUCKET_INLINE);
    memory_is_short = true;
    cr_assert_not(bucket_insert(&r->bucket, &r->store, packed_of(r, MANY - 1), 0));
    cr_assert_null(bucket_put(&r->bucket, &r->store, packed_of(r, MANY - 1)));
    cr_assert_eq(r->node[MANY - 1].place, PLACE_UNMET);
    check(r);
    memory_is_short = false;
    chunk_ask_again(&r->store);
    add(r, MANY - 1);
    check(r);
    rack_close(r);
}

Test(bucket, reserved_chunks_need_no_memory)
{
    struct rack *r = rack_open();
    size_t count = 0;

    cr_assert_eq(chunk_store_reserve(&r->store, 100), 0);
    cr_assert_geq(free_room(&r->store), 100);
    memory_is_short = true;
    cr_assert_eq(chunk_store_reserve(&r->store, 100), 0);
    cr_assert_eq(chunk_store_reserve(&r->store, 101), -ENOMEM);
    cr_assert_eq(chunk_store_reserve(&r->store, SIZE_MAX), -ENOMEM);
    cr_assert_eq(chunk_store_reserve(&r->store, SIZE_MAX / CHUNK_LARGE_SIZE + 1), -ENOMEM);
    while (count < MANY && try_add_to(r, &r->bucket, count))
        count++;
    cr_assert_geq(count, BUCKET_INLINE + 100 * CHUNK_SMALL_ROOM, "the room of 100 small ones");
    cr_assert_eq(free_room(&r->store), 0);
    check(r);
    memory_is_short = false;
    rack_close(r);
}

/* It never grows while any chunk is free, large or small. */
Test(bucket, the_store_uses_what_it_has)
{
    struct rack *r = rack_open();
    struct chunk *taken[64];

    cr_assert_eq(chunk_store_reserve(&r->store, 4), 0);
    memory_is_short = true;
    taken[0] = chunk_take(&r->store, false);
    cr_assert(taken[0] && !chunk_is_large(taken[0]));
    cr_assert_eq(r->store.small_count, CHUNK_SPLIT - 1, "a large one was split");
    for (size_t i = 1; i < CHUNK_SPLIT; i++) {
        taken[i] = chunk_take(&r->store, true);
        cr_assert(taken[i] && !chunk_is_large(taken[i]), "a small one instead");
    }
    cr_assert_null(chunk_take(&r->store, true));
    cr_assert_null(chunk_take(&r->store, false));
    cr_assert_null(chunk_take_free_small(&r->store));
    for (size_t i = 0; i < CHUNK_SPLIT; i++)
        chunk_give(&r->store, taken[i]);
    cr_assert_eq(free_room(&r->store), CHUNK_SPLIT);
    memory_is_short = false;
    chunk_ask_again(&r->store);
    for (size_t i = 0; i < COUNT_OF(taken); i++)
        cr_assert_not_null(chunk_take(&r->store, i % 2));
    rack_close(r);
}

/* The system is not asked for each of very many, but again after some. */
Test(bucket, a_refusal_holds_for_a_while)
{
    struct rack *r = rack_open();
    unsigned asked = 0;

    memory_is_short = true;
    for (unsigned i = 0; i < 10000; i++) {
        cr_assert_null(chunk_take(&r->store, false));
        asked += r->store.refused == 256;
    }
    cr_assert(asked > 10 && asked < 100, "%u times", asked);
    memory_is_short = false;
    for (unsigned i = 0; i < 1000 && !chunk_take(&r->store, false); i++)
        cr_assert_lt(i, 999);
    rack_close(r);
}

/* The cursor meets each that is in use, once a round. */
static size_t met_in_a_round(struct chunk_store *store)
{
    size_t met = 0, units;

    do {
        met += chunk_cursor_next(store, &units) != NULL;
    } while (store->at);
    return met;
}

/* G6: 16 MB, of which a quarter is touched before it is taken; and all goes back. */
Test(bucket, a_large_lot_is_opened_as_it_is_used)
{
    struct rack *r = rack_open();
    size_t count = 32768, before = resident_bytes();
    char **taken = malloc(count * sizeof *taken);

    cr_assert_not_null(taken);
    cr_assert_eq(chunk_store_reserve(&r->store, 10), 0);
    cr_assert_eq(chunk_store_reserve(&r->store, count * CHUNK_SPLIT), 0);
    cr_assert_lt(resident_bytes(), before + (9 << 20), "most of it is not touched");
    requests = 0;
    cr_assert_eq(met_in_a_round(&r->store), 0);
    for (size_t i = 0; i < count; i++) {
        taken[i] = (char *)chunk_take(&r->store, true);
        cr_assert(taken[i] && (uintptr_t)taken[i] % CHUNK_LARGE_SIZE == 0);
        memset(taken[i] + sizeof(struct chunk), 0xff, CHUNK_LARGE_SIZE - sizeof(struct chunk));
        if (i == 1 || i == count / 2)
            cr_assert_eq(met_in_a_round(&r->store), i + 1);
    }
    cr_assert_eq(requests, 0);
    cr_assert_eq(met_in_a_round(&r->store), count);
    for (size_t i = 0; i < count; i++)
        chunk_give(&r->store, (struct chunk *)(void *)taken[i]);
    cr_assert_eq(met_in_a_round(&r->store), 0, "all are free");
    cr_assert(!chunk_next_is_fresh(&r->store));
    cr_assert_gt(resident_bytes(), before + 16 * CHUNK_LARGE_SIZE * 1024);
    free(taken);
    rack_close(r);
    cr_assert_lt(resident_bytes(), before + (4 << 20), "it has gone back");
}

/* G2: what is there stays as it is. */
Test(bucket, a_large_lot_without_memory)
{
    struct rack *r = rack_open();
    size_t total;

    cr_assert_eq(chunk_store_reserve(&r->store, 10), 0);
    total = r->store.total;
    memory_is_short = true;
    cr_assert_eq(chunk_store_reserve(&r->store, 1 << 20), -ENOMEM);
    memory_is_short = false;
    cr_assert_eq(r->store.total, total);
    cr_assert_geq(free_room(&r->store), 10);
    errno = EXDEV;
    cr_assert_eq(chunk_store_reserve(&r->store, 1 << 20), 0);
    cr_assert_eq(errno, EXDEV, "left alone where it went well");
    rack_close(r);
}

/* B2 waits for small ones: until then the large one stays, and nothing is lost. */
Test(bucket, shrinks_when_there_are_small_ones)
{
    struct rack *r = rack_open();
    struct chunk *hoard[1000], *last;
    size_t held = 0;

    fill(r, 70);
    for (size_t i = 0; i < 40; i++)
        take_out(r, i);
    cr_assert(chunk_is_large(chunk_of(ring_next(&r->bucket.ring))));
    memory_is_short = true;
    while (held < COUNT_OF(hoard) && (last = chunk_take(&r->store, false)) != NULL)
        hoard[held++] = last;
    for (size_t i = 40; i < 56; i++)
        take_out(r, i);
    cr_assert_eq(room_taken(&r->bucket), CHUNK_SPLIT, "14, and no small one is free");
    chunk_give(&r->store, hoard[--held]);
    take_out(r, 56);
    cr_assert_eq(room_taken(&r->bucket), CHUNK_SPLIT, "13 need two small ones");
    check(r);
    chunk_give(&r->store, hoard[--held]);
    chunk_give(&r->store, hoard[--held]);
    take_out(r, 57);
    check(r);
    check_density(r);
    cr_assert_lt(room_taken(&r->bucket), CHUNK_SPLIT);
    memory_is_short = false;
    rack_close(r);
}

/* A small lot's pages come by pieces, none twice, each before its first chunk is used. */
Test(bucket, pages_come_by_pieces)
{
    enum { PIECE = 32 << 10, PAGE_MOST = 64 << 10 };
    struct rack *r = rack_open();
    size_t used;

    asked_calls = asked_bytes = asked_most = 0;
    for (size_t i = 0; i < MANY; i++)
        cr_assert(try_add_to(r, &r->bucket, i));
    used = chunks_in(&r->bucket) * CHUNK_LARGE_SIZE;
    cr_assert_geq(used, 4 * PIECE, "too few of them for pieces");
    cr_assert_geq(asked_bytes, used);
    cr_assert_leq(asked_bytes, r->store.total * CHUNK_SMALL_SIZE + asked_calls * PAGE_MOST);
    cr_assert_leq(asked_most, PIECE + PAGE_MOST);
    rack_close(r);
}

static size_t take_until_low(struct chunk_store *store)
{
    size_t taken = 0;

    for (; !store->half_open; taken++) {
        cr_assert_lt(taken, 10 * BIG_LOT, "another lot is never wanted");
        cr_assert_not_null(chunk_take(store, true));
    }
    return taken;
}

/* G4: half of the youngest lot is left when the next one is wanted, and that has its pages then. */
Test(bucket, a_lot_can_be_had_before_it_is_needed)
{
    struct chunk_store store;

    chunk_store_init(&store);
    take_until_low(&store);
    for (unsigned i = 0; i < 3; i++) {
        size_t total = store.total, fresh = store.fresh;

        asked_calls = asked_bytes = asked_touched = 0;
        chunk_make_ready(&store, false);
        cr_assert_eq(store.total, total + BIG_LOT * CHUNK_SPLIT);
        cr_assert_eq(store.fresh, fresh + BIG_LOT * CHUNK_SPLIT);
        cr_assert_eq(asked_calls, 1);
        cr_assert_eq(asked_bytes, BIG_LOT * CHUNK_LARGE_SIZE);
        cr_assert_eq(asked_touched, 1, "a huge page has come by then");
        cr_assert_eq(take_until_low(&store), fresh / CHUNK_SPLIT + BIG_LOT / 2);
        cr_assert_eq(store.fresh, BIG_LOT * CHUNK_SPLIT / 2);
    }
    chunk_store_destroy(&store);
}

/* In small pages by pieces, beforehand or as they are come to. */
Test(bucket, a_lot_of_small_pages_comes_piece_by_piece)
{
    enum { PIECE = 32 << 10, LOT = BIG_LOT * CHUNK_LARGE_SIZE };
    struct chunk_store store;
    size_t total;

    chunk_store_init(&store);
    take_until_low(&store);
    chunk_make_ready(&store, false);
    take_until_low(&store);
    asked_calls = asked_bytes = asked_most = 0;
    chunk_make_ready(&store, true);
    cr_assert_eq(asked_calls, LOT / PIECE);
    cr_assert_eq(asked_bytes, LOT);
    cr_assert_eq(asked_most, PIECE);
    asked_calls = 0;
    for (total = store.total; store.total == total;)
        cr_assert_not_null(chunk_take(&store, true));
    cr_assert_eq(asked_calls, 1, "of the lot after it, which nobody had made ready");
    cr_assert_eq(asked_most, PIECE);
    chunk_store_destroy(&store);
}

/* What has come back is as good; when it is in use again another lot is wanted all the same. */
Test(bucket, no_lot_is_wanted_while_as_much_is_free)
{
    enum { HALF = BIG_LOT / 2 };
    static struct chunk *taken[HALF];
    struct chunk_store store;
    size_t count = 0;

    chunk_store_init(&store);
    for (; !store.half_open; count++)
        cr_assert_not_null(taken[count % HALF] = chunk_take(&store, true));
    cr_assert_geq(count, HALF);
    count = HALF - store.fresh / CHUNK_SPLIT; /* as many more, and half a lot is free */
    for (unsigned i = 0; i < 2; i++) {
        for (size_t j = 0; j < count; j++)
            chunk_give(&store, taken[j]);
        cr_assert(chunk_runs_low(&store));
        chunk_give(&store, taken[count]);
        cr_assert_not(chunk_runs_low(&store));
        for (size_t j = 0; j <= count; j++)
            cr_assert_not_null(taken[j] = chunk_take(&store, true));
        cr_assert(chunk_runs_low(&store));
    }
    chunk_store_destroy(&store);
}

/* Whoever takes a chunk without it gets a lot as ever, which is then the youngest. */
Test(bucket, a_lot_that_is_not_had_before_comes_when_it_is_needed)
{
    struct chunk_store store;
    size_t total, left;

    chunk_store_init(&store);
    take_until_low(&store);
    total = store.total;
    memory_is_short = true;
    chunk_make_ready(&store, false);
    memory_is_short = false;
    cr_assert_not(store.half_open, "it is not tried again and again");
    cr_assert_eq(store.total, total);
    left = store.fresh / CHUNK_SPLIT;
    cr_assert_eq(take_until_low(&store), left + BIG_LOT / 2);
    cr_assert_eq(store.total, total + BIG_LOT * CHUNK_SPLIT);
    left = store.fresh / CHUNK_SPLIT;
    for (size_t i = 0; i <= left; i++)
        cr_assert_not_null(chunk_take(&store, true));
    cr_assert_not(store.half_open, "there is one");
    chunk_store_destroy(&store);
}

/* No memory is asked for in silence where all of it was asked for before. */
Test(bucket, what_was_reserved_wants_no_more)
{
    struct chunk_store store;

    chunk_store_init(&store);
    cr_assert_eq(chunk_store_reserve(&store, 2 * BIG_LOT * CHUNK_SPLIT), 0);
    while (store.fresh > 0)
        cr_assert_not_null(chunk_take(&store, true));
    cr_assert_not(store.half_open);
    chunk_store_destroy(&store);
}
