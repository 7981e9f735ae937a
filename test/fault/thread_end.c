/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=pthread_key_create */
/*
 * Threads that end with free blocks in hand: thousands of short-lived ones, whose own key's
 * destructor goes on using the timer in every round of destructors there is, or uses it first in
 * the last of them, or in a process that has no keys left. Nothing of a thread stays behind when it
 * is gone (G6).
 */
#include "stress/stress.h"

#include <limits.h>

enum { THREADS = 2000, EACH = 40, FEW = 8, BOUND = 1 << 20 };

static _Atomic bool no_keys;

int __real_pthread_key_create(pthread_key_t *key, void (*end)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*end)(void *));

int __wrap_pthread_key_create(pthread_key_t *key, void (*end)(void *))
{
    return atomic_load(&no_keys) ? EAGAIN : __real_pthread_key_create(key, end);
}

static hwt_timer *timer;
static pthread_key_t own_key, patient_key;
static _Atomic uint64_t destructor_calls;

static void never(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    stress_fail(__FILE__, __LINE__, "an hour away", "fired at %" PRIu64,
                hwt_timeout_deadline(timeout));
}

static void use_timer_so_often(int times)
{
    hwt_timeout *timeouts[EACH];

    for (int i = 0; i < times; i++)
        STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), &timeouts[i]));
    for (int i = 0; i < times; i++) {
        STRESS_CHECK(hwt_timeout_cancel(timeouts[i]), "it was not pending");
        hwt_timeout_unref(timeouts[i]);
    }
}

static void use_timer(void)
{
    use_timer_so_often(EACH);
}

static void *use_and_end(void *unused)
{
    use_timer();
    return unused;
}

/* In each round of destructors; in the last ones the sanitizers' runtimes have ended themselves. */
enum { ROUNDS = STRESS_SANITIZED ? 1 : PTHREAD_DESTRUCTOR_ITERATIONS };

static void use_at_end(void *mine)
{
    use_timer();
    atomic_fetch_add(&destructor_calls, 1);
    if (ROUNDS > 1)
        STRESS_OK(pthread_setspecific(own_key, mine));
}

static void *use_and_end_late(void *unused)
{
    STRESS_OK(pthread_setspecific(own_key, &own_key));
    use_timer();
    return unused;
}

/* Only uses the timer when its destructors run. */
static void *use_late(void *unused)
{
    STRESS_OK(pthread_setspecific(own_key, &own_key));
    return unused;
}

/* As threads do that want to be the last: another round, until there is none. */
static _Thread_local int round_of_ends;

static void use_in_the_last_round(void *mine)
{
    if (++round_of_ends < ROUNDS) {
        STRESS_OK(pthread_setspecific(patient_key, mine));
        return;
    }
    use_timer_so_often(FEW);
    atomic_fetch_add(&destructor_calls, 1);
}

static void *use_last(void *unused)
{
    STRESS_OK(pthread_setspecific(patient_key, &patient_key));
    return unused;
}

static void play(void *(*body)(void *), const char *what)
{
    uint64_t before = 0;

    for (int i = 0; i < THREADS + THREADS / 10; i++) {
        if (i == THREADS / 10)
            before = stress_resident();
        stress_join(stress_thread(body, NULL));
    }
    stress_check_growth(before, BOUND, what);
}

static void open_timer(void)
{
    STRESS_OK(hwt_timer_create(&timer, NULL));
    STRESS_OK(hwt_timer_start(timer));
}

static void close_timer(void)
{
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv, 1);
    atomic_store(&no_keys, true);
    open_timer();
    play(use_and_end, "threads in a process without keys");
    close_timer();
    atomic_store(&no_keys, false); /* from the next timer on it has one */
    open_timer();
    play(use_and_end, "threads");
    STRESS_OK(__real_pthread_key_create(&own_key, use_at_end)); /* later: its turn comes after */
    play(use_and_end_late, "threads whose destructors use the timer again");
    play(use_late, "threads whose destructors use the timer first");
    STRESS_OK(__real_pthread_key_create(&patient_key, use_in_the_last_round));
    play(use_last, "threads who first use the timer in their last round of destructors");
    close_timer();
    STRESS_CHECK(atomic_load(&destructor_calls) >= 2 * THREADS * ROUNDS + THREADS,
                 "only %" PRIu64 " destructors", atomic_load(&destructor_calls));
    return stress_end("fault_thread_end", "%d threads", 5 * THREADS);
}
