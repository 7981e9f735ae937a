/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a timeout has beside its word: references, of which the runtime's ends once (G9, C7), and
 * the end of a run that others wait for (C8).
 */
#include <criterion/criterion.h>

#include "support.h"
#include "timeout.h"

TestSuite(word_refs, .init = test_arm);

static hwt_timeout subject;

/* ---- references ---- */

static bool drop(uint32_t refs, bool withdrawn)
{
    store_relaxed(&subject.refs, refs);
    store_relaxed(&subject.withdrawn, withdrawn);
    return timeout_drop(&subject);
}

/* With `withdrawn`, one of the references stands for a share that is over. */
Test(word_refs, the_last_reference_frees)
{
    cr_assert(drop(1, false));
    cr_assert_not(drop(2, false));
    cr_assert_eq(load_relaxed(&subject.refs), 1);
    cr_assert(timeout_drop(&subject));
    cr_assert(drop(2, true));
    cr_assert_not(drop(3, true));
    cr_assert_eq(load_relaxed(&subject.refs), 2);
    cr_assert(timeout_drop(&subject));
    cr_assert_not(drop(4, true));
    cr_assert_not(timeout_drop(&subject));
    cr_assert(timeout_drop(&subject));
}

#define DROPPERS 4
#define ROUNDS   3000

static pthread_barrier_t barrier;
static atomic_uint freed;

static void *drop_rounds(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        if (timeout_drop(&subject))
            atomic_fetch_add(&freed, 1);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

/* However many drop at the same moment, exactly one frees. */
static void drop_together(uint32_t shares_that_are_over)
{
    pthread_t thread[DROPPERS];

    pthread_barrier_init(&barrier, NULL, DROPPERS + 1);
    store_relaxed(&subject.withdrawn, shares_that_are_over != 0);
    for (unsigned i = 0; i < DROPPERS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, drop_rounds, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        store_relaxed(&subject.refs, DROPPERS + shares_that_are_over);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        cr_assert_eq(atomic_load(&freed), i + 1);
    }
    for (unsigned i = 0; i < DROPPERS; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
}

Test(word_refs, exactly_one_of_many_frees)
{
    drop_together(0);
}

Test(word_refs, exactly_one_of_many_frees_a_withdrawn_one)
{
    drop_together(1);
}

/* ---- waiting for the end of a run ---- */

#define WAITERS 3

static atomic_uint awaiting, returned;
static bool task_done;

static void *await(void *unused)
{
    atomic_fetch_add(&awaiting, 1);
    timeout_await_run(&subject);
    cr_expect(task_done, "what the task did is not to be seen yet");
    atomic_fetch_add(&returned, 1);
    return unused;
}

Test(word_refs, nobody_waits_without_a_run)
{
    timeout_await_run(&subject);
    cr_assert_eq(load_relaxed(&subject.run), RUN_NONE);
}

Test(word_refs, all_waiters_return_when_the_run_is_over)
{
    pthread_t thread[WAITERS];

    store_relaxed(&subject.refs, 1 + WAITERS);
    store_relaxed(&subject.run, RUN_ON);
    for (unsigned i = 0; i < WAITERS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, await, NULL), 0);
    cr_assert(wait_count(&awaiting, WAITERS));
    sleep_ms(20);
    cr_assert_eq(atomic_load(&returned), 0);
    cr_assert_eq(load_relaxed(&subject.run), RUN_AWAITED);
    task_done = true;
    timeout_run_over(&subject);
    cr_assert(wait_count(&returned, WAITERS));
    for (unsigned i = 0; i < WAITERS; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(load_relaxed(&subject.run), RUN_NONE);
}

/* The waiters come while the run ends: a lost wake-up would hang here. */
static void *await_rounds(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        timeout_await_run(&subject);
        atomic_fetch_add(&returned, 1);
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

Test(word_refs, no_wakeup_is_lost)
{
    pthread_t thread[2];

    pthread_barrier_init(&barrier, NULL, 3);
    store_relaxed(&subject.refs, 3);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, await_rounds, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        store_relaxed(&subject.run, RUN_ON);
        pthread_barrier_wait(&barrier);
        timeout_run_over(&subject);
        pthread_barrier_wait(&barrier);
        cr_assert_eq(load_relaxed(&subject.run), RUN_NONE);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(atomic_load(&returned), 2 * ROUNDS);
    pthread_barrier_destroy(&barrier);
}

/* Without a handle nobody can be waiting, and nothing is woken. */
Test(word_refs, a_run_without_handles)
{
    store_relaxed(&subject.refs, 1);
    store_relaxed(&subject.run, RUN_ON);
    timeout_run_over(&subject);
    cr_assert_eq(load_relaxed(&subject.run), RUN_NONE);
}
