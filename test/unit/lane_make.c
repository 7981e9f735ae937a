/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=mmap,--wrap=calloc,--wrap=malloc,--wrap=sysconf,--wrap=platform_nap */
/* LDFLAGS: -Wl,--wrap=segment_create_first */
/*
 * A lane is made at its CPU's first use (C25): not before, without memory that could be refused,
 * and beside others who want the same lane, or stop the timer. On a machine with more CPUs than
 * this one has.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "submit.h"
#include "support.h"
#include "timer.h"

#define MANY 256

static struct lanes lanes;
static hwt_timeout *node;
static size_t node_count;
static unsigned here; /* the lane of the CPU that the test stays on */

/* ---- what is faked ---- */

static atomic_bool no_memory; /* for the library */
static long cpus;             /* so many; 0: as it is */
static atomic_uint naps;
static gate *making; /* who comes to make a lane is held there, once */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
long __real_sysconf(int name);
long __wrap_sysconf(int name);
__typeof__(platform_nap) __real_platform_nap;
__typeof__(platform_nap) __wrap_platform_nap;
__typeof__(segment_create_first) __real_segment_create_first;
__typeof__(segment_create_first) __wrap_segment_create_first;

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return no_memory ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
    return no_memory ? NULL : __real_malloc(size);
}

long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_CONF && cpus ? cpus : __real_sysconf(name);
}

void __wrap_platform_nap(uint64_t ns)
{
    atomic_fetch_add(&naps, 1);
    __real_platform_nap(ns);
}

struct segment *__wrap_segment_create_first(struct segment_store *store, size_t index,
                                            struct lane *lane, bool far)
{
    gate *held = making;

    if (held) {
        making = NULL;
        gate_task(NULL, held);
    }
    return __real_segment_create_first(store, index, lane, far);
}

/* ---- lanes by themselves ---- */

static void open_lanes(size_t reserve)
{
    cr_assert_eq(lanes_create(&lanes, MANY, reserve), 0);
    cr_assert_eq(lanes.count, MANY);
    node_count = reserve + 8;
    node = aligned_alloc(CACHE_LINE, node_count * sizeof *node);
    cr_assert_not_null(node);
    memset((void *)node, 0, node_count * sizeof *node);
    for (size_t i = 0; i < node_count; i++)
        store_relaxed(&node[i].word, word_make(1000 + i, WORD_PENDING));
    go_to_cpu(0);
    here = lanes_index_here(&lanes);
}

static void close_lanes(void)
{
    lanes_destroy(&lanes);
    free(node);
}

TestSuite(lane_make, .init = test_arm);

static bool holds_pending(const struct lane *one)
{
    return lane_first_pending(one) || ck_pr_load_ptr(&one->spill.head);
}

/* The others, besides the common one. */
static unsigned made(const struct lanes *of)
{
    const struct lane *lane;
    unsigned count = 0;

    for (unsigned i = 0; (lane = lanes_next_made(of, &i)) != NULL;)
        count += lane != of->common;
    return count;
}

static const struct lane *lane_of(const hwt_timeout *timeout)
{
    const lane_slot *slot = lane_slot_of_where(load_relaxed(&timeout->where));

    return slot ? segment_of(slot)->lane : NULL;
}

Test(lane_make, none_before_the_first_use)
{
    lane_slot *slot;
    uint64_t empty;
    unsigned first = 0;

    open_lanes(0);
    cr_assert_eq(lanes_next_made(&lanes, &first), lanes.common);
    cr_assert_null(lanes_next_made(&lanes, &first));
    first = 0;
    cr_assert_null(lanes_next_used(&lanes, &first));
    for (unsigned i = 0; i <= MANY; i++)
        cr_assert_eq(lanes_at(&lanes, i), lanes.common);
    for (unsigned far = 0; far < 2; far++)
        cr_assert_not(lane_look(&lanes.common->tail[far], &slot, &empty), "nobody fills it");
    cr_assert_eq(lane_count(lanes.common).scheduled, 0);
    cr_assert_not(holds_pending(lanes.common));
    close_lanes();
}

Test(lane_make, by_the_first_submission)
{
    struct lane *lane;

    open_lanes(0);
    cr_assert_eq(lane_submit(&lanes, &node[0], 1000), 0);
    lane = lanes_at(&lanes, here);
    cr_assert_neq(lane, lanes.common);
    cr_assert_eq(lane_of(&node[0]), lane);
    cr_assert_eq(made(&lanes), 1);
    cr_assert_eq(lane_submit(&lanes, &node[1], 1001), 0);
    cr_assert_eq(lane_of(&node[1]), lane);
    cr_assert_eq(made(&lanes), 1, "once");
    cr_assert_eq(lanes_earliest(&lanes), 1000);
    cr_assert(lane_withdraw(&node[0]));
    cr_assert_eq(lane_count(lane).scheduled, 2);
    cr_assert_eq(lane_count(lane).withdrawn, 1);
    cr_assert_eq(lane_count(lanes.common).scheduled, 0);
    close_lanes();
}

/* Of who counts something there, or leaves a notice, too. */
Test(lane_make, by_whoever_has_something_to_leave)
{
    const struct lane *lane;

    open_lanes(0);
    lane = lanes_here(&lanes);
    cr_assert_neq(lane, lanes.common);
    cr_assert_eq(lane, lanes_at(&lanes, here));
    cr_assert_eq(made(&lanes), 1);
    close_lanes();
}

/* G1: each is a lane by itself, in whatever order they are made. */
Test(lane_make, each_by_itself)
{
    static struct segment *seen[2 * MANY];

    open_lanes(0);
    for (unsigned i = 0; i < MANY; i++) {
        unsigned index = (i * 77 + 5) % MANY;
        const struct lane *lane = lanes_own(&lanes, index);
        cr_assert_eq(lane->index, index);
        cr_assert_eq(made(&lanes), i + 1);
        cr_assert_eq(lanes_own(&lanes, index), lane);
        seen[2 * i] = lane->first;
        seen[2 * i + 1] = segment_next(lane->first);
        cr_assert_not(seen[2 * i]->far);
        cr_assert(seen[2 * i + 1]->far);
        cr_assert_eq(segment_next(seen[2 * i + 1]), lane->first);
        for (unsigned j = 0; j < 2 * i; j++)
            cr_assert(seen[j] != seen[2 * i] && seen[j] != seen[2 * i + 1]);
        cr_assert_eq(seen[2 * i]->lane, lane);
        cr_assert_eq(seen[2 * i + 1]->lane, lane);
    }
    cr_assert_eq(lanes_at(&lanes, MANY), lanes.common);
    close_lanes();
}

/* Those that are not made are passed by, but the common one, and those at the ends of words. */
Test(lane_make, who_goes_through_all_finds_those_that_are_there)
{
    static const unsigned wanted[] = {0, 1, 63, 64, 127, 128, 255};
    const struct lane *lane;
    size_t found = 0;

    open_lanes(0);
    for (size_t i = COUNT_OF(wanted); i-- > 0;)
        lanes_own(&lanes, wanted[i]);
    or_seq(&lanes.claimed[1], UINT64_C(1) << 7); /* somebody is about to make the 71st */
    for (unsigned i = 0; (lane = lanes_next_made(&lanes, &i)) != NULL; found++)
        cr_assert_eq(lane->index, found < COUNT_OF(wanted) ? wanted[found] : MANY);
    cr_assert_eq(found, COUNT_OF(wanted) + 1);
    close_lanes();
}

/* G2: there is nothing that could be refused, nor for what was reserved. */
Test(lane_make, without_memory)
{
    enum { RESERVED = 3 * LANE_SLOTS };

    open_lanes(RESERVED);
    no_memory = true;
    for (size_t i = 0; i < RESERVED; i++) {
        int result = lane_submit(&lanes, &node[i], 1000 + i);
        if (result != 0 || !lane_of(&node[i])) {
            no_memory = false;
            cr_assert_eq(result, 0);
            cr_assert_fail("submission %zu has found no slot", i);
        }
    }
    for (unsigned i = 0; i < MANY; i++)
        (void)lanes_own(&lanes, i);
    no_memory = false;
    cr_assert_eq(made(&lanes), MANY);
    cr_assert_eq(lane_count(lanes_at(&lanes, here)).scheduled, RESERVED);
    close_lanes();
}

static void be_making(struct lanes *of, unsigned index)
{
    or_seq(&of->claimed[index / LANES_A_WORD], UINT64_C(1) << index % LANES_A_WORD);
}

/* G7: by a thread that was preempted: nobody waits for it, and nothing is lost. */
Test(lane_make, by_another_thread_meanwhile)
{
    const struct lane *used;
    unsigned i = 0;

    open_lanes(0);
    be_making(&lanes, here);
    cr_assert_eq(lane_submit(&lanes, &node[0], 1000), 0);
    cr_assert_eq(lane_submit_met(&lanes, &node[1], 1001), 1001);
    cr_assert_eq(made(&lanes), 0);
    cr_assert_eq(lane_count(lanes.common).scheduled, 1, "the other one was counted before");
    cr_assert(holds_pending(lanes.common));
    cr_assert_eq(lanes_earliest(&lanes), 1000);
    used = lanes_next_used(&lanes, &i);
    cr_assert_eq(used, lanes.common);
    cr_assert_null(lanes_next_used(&lanes, &i));
    cr_assert_eq(lane_take_spill(lanes.common), &node[1]);
    cr_assert_eq(lane_next_spilled(&node[1]), &node[0]);
    close_lanes();
}

/* G2: who comes when the timer has been stopped makes none. */
Test(lane_make, not_when_it_is_closed)
{
    open_lanes(0);
    lane_close(lanes.common);
    cr_assert_eq(lane_submit(&lanes, &node[0], 1000), -ESHUTDOWN);
    cr_assert_eq(made(&lanes), 0);
    cr_assert_not(lanes_being_made(&lanes));
    cr_assert_not(holds_pending(lanes.common));
    close_lanes();
}

/* ---- with a timer ---- */

/* Scheduled, moved, cancelled, counted and run, though there is no lane for the CPU. */
WHEEL_TEST(lane_make, another_thread_makes_it_and_all_goes_on)
{
    hwt_timeout *moved, *cancelled, *late;
    atomic_uint ran = 0;
    rig r;

    cpus = MANY;
    go_to_cpu(0);
    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    be_making(&r.timer->lanes, lanes_index_here(&r.timer->lanes));
    cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_MSEC(5), NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_SEC(50), &moved), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_MSEC(5), &cancelled), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_SEC(60), &late), 0);
    cr_assert(hwt_timeout_reschedule(moved, HWT_MSEC(7)));
    cr_assert(hwt_timeout_cancel(cancelled));
    cr_assert_eq(hwt_timer_pending(r.timer), 3);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(1000) + HWT_MSEC(5));
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(10)), 2);
    cr_assert(hwt_timeout_reschedule(late, HWT_MSEC(7))); /* out of the wheel, into a spill */
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(10)), 1);
    cr_assert_eq(ran, 3);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    cr_assert_eq(stats_of(r.timer).scheduled, 4);
    cr_assert_eq(stats_of(r.timer).cancelled, 1);
    cr_assert_eq(made(&r.timer->lanes), 0);
    hwt_timeout_unref(moved);
    hwt_timeout_unref(cancelled);
    hwt_timeout_unref(late);
    rig_close(&r);
}

typedef struct submitter {
    hwt_timer *timer;
    int result;
    pthread_t thread;
} submitter;

static void *submit_one(void *arg)
{
    submitter *s = arg;

    go_to_cpu(0);
    s->result = hwt_new_timeout(s->timer, noop_task, NULL, HWT_SEC(3600), NULL);
    return NULL;
}

typedef struct stopper {
    hwt_timer *timer;
    hwt_unprocessed list;
    atomic_uint stopped;
    pthread_t thread;
} stopper;

static void *stop_it(void *arg)
{
    stopper *s = arg;

    hwt_timer_stop(s->timer, &s->list);
    atomic_fetch_add(&s->stopped, 1);
    return NULL;
}

/*
 * G2, G7, G8: one thread makes a lane, and is held; another one on that CPU goes on; stop waits for
 * the first one, and hands back both.
 */
WHEEL_TEST(lane_make, beside_stop)
{
    static gate held;
    submitter maker, other;
    hwt_timeout *back;
    unsigned handed = 0, before;
    const struct lane *lane;
    stopper stop = {0};

    maker.timer = other.timer = stop.timer = timer_of_kind(wheel);
    cr_assert_not_null(stop.timer);
    cr_assert_eq(hwt_timer_start(stop.timer), 0);
    memset(&held, 0, sizeof held);
    making = &held;
    cr_assert_eq(pthread_create(&maker.thread, NULL, submit_one, &maker), 0);
    cr_assert(wait_count(&held.entered, 1));
    cr_assert_eq(pthread_create(&other.thread, NULL, submit_one, &other), 0);
    cr_assert_eq(pthread_join(other.thread, NULL), 0);
    cr_assert_eq(other.result, 0);
    cr_assert_eq(hwt_timer_pending(stop.timer), 1);
    before = naps;
    cr_assert_eq(pthread_create(&stop.thread, NULL, stop_it, &stop), 0);
    cr_assert(wait_count(&naps, before + 3));
    cr_assert_eq(stop.stopped, 0);
    cr_assert_eq(made(&stop.timer->lanes), 0);
    gate_open(&held);
    cr_assert_eq(pthread_join(maker.thread, NULL), 0);
    cr_assert_eq(pthread_join(stop.thread, NULL), 0);
    while ((back = hwt_unprocessed_take(&stop.list)) != NULL) {
        hwt_timeout_unref(back);
        handed++;
    }
    cr_assert(maker.result == 0 || maker.result == -ESHUTDOWN);
    cr_assert_eq(handed, 1 + (maker.result == 0), "%u of them, %d", handed, maker.result);
    cr_assert_eq(hwt_timer_pending(stop.timer), 0);
    cr_assert_eq(made(&stop.timer->lanes), 1);
    for (unsigned i = 0; (lane = lanes_next_made(&stop.timer->lanes, &i)) != NULL;)
        cr_assert(load_seq(&lane->closed), "lane %u", lane->index);
    cr_assert_eq(hwt_timer_destroy(stop.timer), 0);
}

/* G6: what a timer holds does not grow with the CPUs that do not use it. */
static size_t held_by_one(long of, bool used)
{
    size_t before;
    hwt_timer *timer;
    hwt_config config;
    size_t bytes;

    cpus = of;
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    before = resident_bytes();
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    if (used)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    bytes = resident_bytes() - before;
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    return bytes;
}

Test(lane_make, memory_of_a_large_machine)
{
    if (under_sanitizer())
        cr_skip_test("pages are the sanitizer's");
    (void)held_by_one(2, true); /* the pool's, and this program's own */
    for (unsigned used = 0; used < 2; used++) {
        size_t many = held_by_one(256, used), more = held_by_one(2048, used);
        cr_assert_lt(many, 200 << 10, "%zu bytes with 256 CPUs", many);
        cr_assert_lt(more, 400 << 10, "%zu bytes with 2,048 CPUs", more);
    }
}
