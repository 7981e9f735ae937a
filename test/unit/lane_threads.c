/* SPDX-License-Identifier: BSD-2-Clause */
/* Two lanes between two producers, a canceller and a sweeper: every timeout ends once. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "submit.h"
#include "support.h"

#define PRODUCERS 2
#define EACH      LANE_SLOTS
#define LAPS      6

TestSuite(lane_threads, .init = test_arm);

static struct lanes shared;
static hwt_timeout *node;
static atomic_size_t submitted[PRODUCERS]; /* in this lap */
static _Atomic uint8_t *ends;              /* of each node, in this lap */
static _Atomic uint8_t *noticed;           /* the canceller has missed it (C20) */
static _Atomic uint64_t withdrawn_count, swept_count;
static atomic_uint producing;
static atomic_bool double_end;

static void end_once(const hwt_timeout *timeout)
{
    if (atomic_fetch_add(&ends[timeout - node], 1) != 0)
        atomic_store(&double_end, true);
}

static void *produce(void *which)
{
    size_t first = (size_t)(uintptr_t)which * EACH;

    for (size_t i = 0; i < EACH; i++) {
        store_release(&node[first + i].word, word_make(i, WORD_PENDING));
        if (lane_submit(&shared, &node[first + i], i) != 0)
            atomic_store(&double_end, true);
        atomic_store(&submitted[(uintptr_t)which], i + 1);
        if (i % 64 == 0)
            sched_yield();
    }
    atomic_fetch_sub(&producing, 1);
    return NULL;
}

static void withdraw_range(size_t which, size_t *from)
{
    for (size_t end = atomic_load(&submitted[which]); *from < end; ++*from) {
        hwt_timeout *timeout = &node[which * EACH + *from];
        cr_assert(timeout_cancel_pending(timeout));
        if (lane_withdraw(timeout)) {
            end_once(timeout);
            atomic_fetch_add(&withdrawn_count, 1);
        } else {
            atomic_store(&noticed[timeout - node], 1);
        }
    }
}

static void *withdraw_all(void *unused)
{
    size_t from[PRODUCERS] = {0};

    while (from[0] < EACH || from[1] < EACH) {
        for (size_t i = 0; i < PRODUCERS; i++)
            withdraw_range(i, &from[i]);
        sched_yield();
    }
    return unused;
}

static void take_shared(void *unused, hwt_timeout **found, unsigned count)
{
    (void)unused;
    for (unsigned i = 0; i < count; i++)
        end_once(found[i]);
    atomic_fetch_add(&swept_count, count);
}

static void collect_shared(void)
{
    struct segment *segment;
    hwt_timeout *next;
    struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&shared, &i)) != NULL;) {
        exchange_seq(&lane->earliest, UINT64_MAX); /* the worker's: C3 */
        segment = lane->first;
        do {
            exchange_seq(&segment->earliest, UINT64_MAX);
            lane_sweep(segment, 0, LANE_GROUPS, DEADLINE_NEVER, take_shared, NULL);
            segment = segment_next(segment);
        } while (segment != lane->first);
        for (hwt_timeout *timeout = lane_take_spill(lane); timeout; timeout = next) {
            next = lane_next_spilled(timeout);
            take_shared(NULL, &timeout, 1);
        }
    }
}

/* What the worker does when a notice has come. */
static void take_noticed(void)
{
    for (size_t i = 0; i < PRODUCERS * EACH; i++) {
        if (atomic_exchange(&noticed[i], 0) && lane_take_back(&node[i])) {
            end_once(&node[i]);
            atomic_fetch_add(&swept_count, 1);
        }
    }
}

static void one_lap(void)
{
    pthread_t thread[PRODUCERS + 1];

    memset((void *)ends, 0, PRODUCERS * EACH);
    atomic_store(&producing, PRODUCERS);
    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        atomic_store(&submitted[i], 0);
        cr_assert_eq(pthread_create(&thread[i], NULL, produce, (void *)i), 0);
    }
    cr_assert_eq(pthread_create(&thread[PRODUCERS], NULL, withdraw_all, NULL), 0);
    while (atomic_load(&producing)) {
        collect_shared();
        usleep(300);
    }
    for (size_t i = 0; i < COUNT_OF(thread); i++)
        pthread_join(thread[i], NULL);
    collect_shared();
    take_noticed();
}

/* G2, G3, C20: each is withdrawn or swept, exactly once, and the slots have counted it. */
Test(lane_threads, producers_canceller_and_sweeper)
{
    uint64_t scheduled = 0, withdrawn = 0;
    const struct lane *lane;

    cr_assert_eq(lanes_create(&shared, 2, 0), 0);
    node = aligned_alloc(CACHE_LINE, PRODUCERS * EACH * sizeof *node);
    ends = calloc(PRODUCERS * EACH, 1);
    noticed = calloc(PRODUCERS * EACH, 1);
    cr_assert(node && ends && noticed);
    memset((void *)node, 0, PRODUCERS * EACH * sizeof *node);
    for (unsigned lap = 0; lap < LAPS; lap++) {
        one_lap();
        for (size_t i = 0; i < PRODUCERS * EACH; i++)
            cr_assert_eq(atomic_load(&ends[i]), 1);
    }
    for (unsigned i = 0; (lane = lanes_next_made(&shared, &i)) != NULL;) {
        scheduled += lane_count(lane).scheduled;
        withdrawn += lane_count(lane).withdrawn;
    }
    cr_assert_not(atomic_load(&double_end));
    cr_assert_eq(scheduled, (uint64_t)LAPS * PRODUCERS * EACH);
    cr_assert_eq(withdrawn, withdrawn_count);
    cr_assert_eq(scheduled, withdrawn_count + swept_count);
    lanes_destroy(&shared);
    free((void *)ends);
    free((void *)noticed);
    free(node);
}
