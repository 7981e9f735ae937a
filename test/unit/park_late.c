/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_futex_wake_all,--wrap=platform_timerfd_set */
/*
 * A wake-up does not depend on a thread that is preempted between having undertaken it and the
 * system call (G4): whoever comes meanwhile makes the call himself, and whoever comes after it was
 * made makes none. The preemption is a gate in front of the system call.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <sched.h>
#include <sys/timerfd.h>

#include "park.h"
#include "support.h"

#define FAR HWT_SEC(1000)

TestSuite(park_late, .init = test_arm);

static struct park park;

static uint64_t now(void)
{
    return real_now(CLOCK_MONOTONIC);
}

/* ---- the gate: one thread is held there, all others pass ---- */

static _Thread_local bool preempted;
static atomic_uint held, system_calls;
static atomic_bool let_go;

static void pass_gate(void)
{
    if (preempted) {
        atomic_fetch_add(&held, 1);
        while (!atomic_load(&let_go))
            sched_yield();
    }
    atomic_fetch_add(&system_calls, 1);
}

__typeof__(platform_futex_wake_all) __real_platform_futex_wake_all;
__typeof__(platform_futex_wake_all) __wrap_platform_futex_wake_all;
void __wrap_platform_futex_wake_all(_Atomic uint32_t *word)
{
    pass_gate();
    __real_platform_futex_wake_all(word);
}

__typeof__(platform_timerfd_set) __real_platform_timerfd_set;
__typeof__(platform_timerfd_set) __wrap_platform_timerfd_set;
int __wrap_platform_timerfd_set(int fd, uint64_t deadline_ns)
{
    pass_gate();
    return __real_platform_timerfd_set(fd, deadline_ns);
}

static void *wake_and_be_preempted(void *deadline)
{
    preempted = true;
    park_wake_for(&park, *(uint64_t *)deadline);
    return NULL;
}

static pthread_t start_waker(uint64_t *deadline)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, wake_and_be_preempted, deadline), 0);
    cr_assert(wait_count(&held, 1));
    return thread;
}

static void finish_waker(pthread_t thread)
{
    atomic_store(&let_go, true);
    pthread_join(thread, NULL);
}

/* ---- futex ---- */

static atomic_uint awake;
static atomic_bool woken;

static void *sleep_once(void *until)
{
    while (!atomic_load(&woken)) { /* a sleep may end for no reason */
        park_publish(&park, *(uint64_t *)until);
        if (!atomic_load(&woken))
            park_sleep(&park, *(uint64_t *)until);
        park_leave(&park);
    }
    atomic_fetch_add(&awake, 1);
    return NULL;
}

Test(park_late, a_second_waker_makes_the_system_call)
{
    uint64_t until = now() + FAR, first = until - 1;
    pthread_t sleeper, waker;

    park_init(&park, 0);
    store_relaxed(&park.kind, PARK_FUTEX);
    cr_assert_eq(pthread_create(&sleeper, NULL, sleep_once, &until), 0);
    for (int i = 0; i < 20000 && load_relaxed(&park.wake_before) == 0; i++)
        sleep_ms(1);
    sleep_ms(30); /* to be asleep, most times */
    waker = start_waker(&first);
    sleep_ms(30);
    cr_assert_eq(atomic_load(&awake), 0);
    atomic_store(&woken, true);
    park_wake_for(&park, until - 2);
    cr_assert(wait_count(&awake, 1), "G4: it relied on the one who was preempted");
    finish_waker(waker);
    pthread_join(sleeper, NULL);
}

Test(park_late, no_system_call_once_it_was_made)
{
    park_init(&park, 0);
    store_relaxed(&park.kind, PARK_FUTEX);
    park_publish(&park, FAR); /* and has not run yet */
    for (uint64_t i = 1; i <= 100; i++)
        park_wake_for(&park, FAR - i);
    park_wake(&park);
    cr_assert_eq(atomic_load(&system_calls), 1);
    park_leave(&park);
    park_publish(&park, FAR);
    park_wake(&park);
    cr_assert_eq(atomic_load(&system_calls), 2, "the next sleep is another one");
}

/* He wakes up late, and the worker is in its next sleep: a wake-up for nothing, none lost. */
Test(park_late, a_waker_of_an_earlier_sleep_ends_no_later_one_for_others)
{
    uint64_t first = FAR - 1;
    pthread_t waker;
    unsigned before;

    park_init(&park, 0);
    store_relaxed(&park.kind, PARK_FUTEX);
    park_publish(&park, FAR);
    waker = start_waker(&first);
    park_leave(&park);
    park_publish(&park, FAR);
    finish_waker(waker);
    before = atomic_load(&system_calls);
    park_wake_for(&park, FAR - 2);
    cr_assert_eq(atomic_load(&system_calls), before + 1, "G4: this sleep has not been ended");
}

/* ---- timer descriptor ---- */

static void open_timerfd(void)
{
    int fd = platform_timerfd_create(CLOCK_MONOTONIC);

    cr_assert_geq(fd, 0);
    park_init(&park, 0);
    store_relaxed(&park.fd, fd);
    store_relaxed(&park.kind, PARK_TIMERFD);
}

static bool readable_within(int ms)
{
    struct pollfd poll_fd = {.fd = load_relaxed(&park.fd), .events = POLLIN, .revents = 0};

    return poll(&poll_fd, 1, ms) == 1;
}

/* As whoever drives: planned, then set. */
static void publish(uint64_t time)
{
    park_publish(&park, time);
    park_set(&park);
}

static void fire(void)
{
    park_at_once(&park);
    park_set(&park);
}

/* The first lowers it to 100 ms from now, and does not set it; the second has 200 ms in mind. */
Test(park_late, a_second_mover_sets_the_descriptor)
{
    uint64_t first, second;
    pthread_t waker;

    open_timerfd();
    publish(now() + FAR);
    first = now() + HWT_MSEC(100);
    second = first + HWT_MSEC(100);
    waker = start_waker(&first);
    park_wake_for(&park, second);
    cr_assert(readable_within(10000), "G4: it relied on the one who was preempted");
    cr_assert_geq(now(), first);
    finish_waker(waker);
}

Test(park_late, a_descriptor_that_is_set_is_left_alone)
{
    uint64_t sooner = now() + FAR / 2;
    unsigned before;

    open_timerfd();
    publish(now() + FAR);
    park_wake_for(&park, sooner);
    before = atomic_load(&system_calls);
    for (uint64_t i = 0; i < 100; i++)
        park_wake_for(&park, sooner + i);
    cr_assert_eq(atomic_load(&system_calls), before);
}

/* What he wanted in one plan does not undo the next. */
Test(park_late, a_mover_of_an_earlier_plan_leaves_the_next_one_set)
{
    uint64_t first = now() + FAR / 2, planned = now() + FAR;
    struct itimerspec left;
    pthread_t waker;

    open_timerfd();
    publish(planned);
    waker = start_waker(&first);
    park_leave(&park);
    publish(now() + FAR / 4);
    finish_waker(waker);
    cr_assert_eq(timerfd_gettime(load_relaxed(&park.fd), &left), 0);
    cr_assert_lt(left.it_value.tv_sec, 1000 / 4 + 1, "G4");
}

Test(park_late, over_is_over)
{
    uint64_t first = 1;
    pthread_t waker;

    open_timerfd();
    publish(now() + FAR);
    waker = start_waker(&first); /* wants it at once, is preempted */
    fire();
    cr_assert(readable_within(10000));
    park_end(&park);
    cr_assert_not(readable_within(0));
    finish_waker(waker);
    cr_assert_not(readable_within(20));
    park_wake(&park);
    fire();
    publish(1);
    cr_assert_not(readable_within(20));
}
