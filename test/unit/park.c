/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_timerfd_set */
/* Where a worker sleeps: publishing, waking (C4), leaving, on a futex and on a timer descriptor. */
#include <criterion/criterion.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "park.h"
#include "support.h"

#define FAR    HWT_SEC(1000)
#define ROUNDS 3000

TestSuite(park, .init = test_arm);

static struct park park;

static uint64_t now(void)
{
    return real_now(CLOCK_MONOTONIC);
}

static void open_futex(uint64_t slack)
{
    park_init(&park, slack);
    store_relaxed(&park.kind, PARK_FUTEX);
}

static void open_timerfd(clockid_t clock, uint64_t slack)
{
    int fd = platform_timerfd_create(clock);

    cr_assert_geq(fd, 0);
    park_init(&park, slack);
    store_relaxed(&park.fd, fd);
    store_relaxed(&park.kind, PARK_TIMERFD);
}

static bool planned(uint64_t wake_before)
{
    return load_seq(&park.wake_before) == wake_before;
}

/* The futex word: which sleep, and whether somebody has ended it. */
static uint32_t parked(void)
{
    return load_seq(&park.parked);
}

static bool readable_within(int ms)
{
    struct pollfd poll_fd = {.fd = load_relaxed(&park.fd), .events = POLLIN, .revents = 0};

    return poll(&poll_fd, 1, ms) == 1;
}

static uint64_t set_to(void)
{
    struct itimerspec left;

    cr_assert_eq(timerfd_gettime(load_relaxed(&park.fd), &left), 0);
    return now() + HWT_SEC(left.it_value.tv_sec) + (uint64_t)left.it_value.tv_nsec;
}

/* The sleep may end for no reason; then the worker goes back to it. */
static void sleep_until(uint64_t time)
{
    do {
        park_publish(&park, time);
        park_sleep(&park, time);
        park_leave(&park);
    } while (now() < time);
}

/* ---- nobody there ---- */

Test(park, starts_awake)
{
    park_init(&park, 0);
    cr_assert(planned(0));
    park_wake(&park);
    park_wake_for(&park, 0);
    cr_assert(planned(0));
}

/* A caller who drives the timer without a descriptor is never woken. */
Test(park, without_a_sleeper_nothing_is_planned)
{
    park_init(&park, 0);
    park_publish(&park, FAR);
    cr_assert(planned(0));
}

/* ---- futex ---- */

Test(park, sleeps_until_its_time)
{
    uint64_t time = now() + HWT_MSEC(30);

    open_futex(0);
    sleep_until(time);
    cr_assert_geq(now(), time);
    cr_assert_lt(now(), time + HWT_SEC(10));
}

/* What is due a little later wakes it together with the first: it may sleep into its slack. */
Test(park, sleeps_into_its_slack)
{
    uint64_t time = now() + HWT_MSEC(5), slept = 0;

    open_futex(HWT_MSEC(40));
    for (unsigned i = 0; i < 5 && slept < time + HWT_MSEC(40); i++) { /* or for no reason */
        park_publish(&park, time);
        park_sleep(&park, time + HWT_MSEC(40));
        park_leave(&park);
        slept = now();
    }
    cr_assert_geq(slept, time + HWT_MSEC(40));
}

Test(park, a_time_that_has_passed)
{
    open_futex(0);
    park_publish(&park, 1);
    park_sleep(&park, 1);
    park_leave(&park);
    cr_assert(planned(0));
}

Test(park, a_wake_before_the_sleep_ends_it_at_once)
{
    uint64_t until = now() + FAR;

    open_futex(0);
    park_publish(&park, until);
    park_wake(&park);
    park_sleep(&park, until); /* hangs until the alarm otherwise */
    park_leave(&park);
    cr_assert(planned(0));
}

Test(park, only_an_earlier_deadline_wakes)
{
    uint32_t asleep_word, woken_word;

    open_futex(0);
    park_publish(&park, 1000);
    asleep_word = parked();
    park_wake_for(&park, 1001);
    park_wake_for(&park, 1000);
    cr_assert_eq(parked(), asleep_word);
    park_wake_for(&park, 999);
    woken_word = parked();
    cr_assert_neq(woken_word, asleep_word);
    park_wake_for(&park, 0); /* somebody has woken it already */
    cr_assert_eq(parked(), woken_word);
    park_sleep(&park, now() + FAR); /* hangs until the alarm otherwise */
    park_leave(&park);
    cr_assert(planned(0));
}

Test(park, whoever_left_is_not_woken)
{
    uint32_t awake_word;

    open_futex(0);
    park_publish(&park, 1000);
    park_leave(&park);
    awake_word = parked();
    cr_assert(planned(0));
    park_wake_for(&park, 0);
    park_wake(&park);
    cr_assert_eq(parked(), awake_word);
}

static atomic_uint asleep, awake;

static void *sleep_far(void *unused)
{
    uint64_t until = now() + FAR;

    atomic_fetch_add(&asleep, 1);
    while (atomic_load(&asleep) == 1) { /* until the waker says so */
        park_publish(&park, until);
        if (atomic_load(&asleep) == 1)
            park_sleep(&park, until);
        park_leave(&park);
    }
    atomic_fetch_add(&awake, 1);
    return unused;
}

static void wake_a_sleeper(void)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, sleep_far, NULL), 0);
    cr_assert(wait_count(&asleep, 1));
    sleep_ms(20);
    cr_assert_eq(atomic_load(&awake), 0);
    atomic_fetch_add(&asleep, 1);
    park_wake_for(&park, 5);
    cr_assert(wait_count(&awake, 1));
    pthread_join(thread, NULL);
}

Test(park, wakes_a_sleeper_on_a_futex)
{
    open_futex(0);
    wake_a_sleeper();
}

/* ---- timer descriptor ---- */

Test(park, wakes_a_sleeper_on_a_descriptor)
{
    open_timerfd(CLOCK_MONOTONIC, 0);
    wake_a_sleeper();
}

Test(park, a_descriptor_sleeps_until_its_time)
{
    uint64_t time = now() + HWT_MSEC(30);

    open_timerfd(CLOCK_MONOTONIC, 0);
    sleep_until(time);
    cr_assert_geq(now(), time);
    cr_assert(readable_within(0));
}

/* As whoever drives: planned, then set. */
static void publish(uint64_t time)
{
    park_publish(&park, time);
    park_set(&park);
}

static void sooner(uint64_t time)
{
    park_sooner(&park, time);
    park_set(&park);
}

static void fire(void)
{
    park_at_once(&park);
    park_set(&park);
}

Test(park, a_descriptor_follows_the_boot_time_clock)
{
    open_timerfd(CLOCK_BOOTTIME, 0);
    publish(real_now(CLOCK_BOOTTIME) + HWT_MSEC(10));
    cr_assert(readable_within(10000));
}

Test(park, a_descriptor_is_set_to_the_earlier_deadline)
{
    uint64_t until = now() + FAR, sooner = now() + HWT_MSEC(20);

    open_timerfd(CLOCK_MONOTONIC, 0);
    publish(until);
    cr_assert_not(readable_within(0));
    park_wake_for(&park, until + 1);
    cr_assert_gt(set_to(), sooner + HWT_SEC(1));
    park_wake_for(&park, sooner);
    cr_assert_lt(set_to(), sooner + HWT_MSEC(900));
    cr_assert(readable_within(10000));
    cr_assert_geq(now(), sooner);
}

Test(park, a_descriptor_waits_for_its_slack)
{
    uint64_t time = now() + HWT_MSEC(1);

    open_timerfd(CLOCK_MONOTONIC, HWT_MSEC(30));
    publish(time);
    cr_assert(readable_within(10000));
    cr_assert_geq(now(), time + HWT_MSEC(30));
}

/* For whoever waits for the edge: each time anew, and not when it is over (C11). */
Test(park, each_firing_is_an_edge)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int edges = epoll_create1(EPOLL_CLOEXEC);

    open_timerfd(CLOCK_MONOTONIC, 0);
    cr_assert_eq(epoll_ctl(edges, EPOLL_CTL_ADD, load_relaxed(&park.fd), &event), 0);
    for (int i = 0; i < 3; i++) {
        fire();
        cr_assert_eq(epoll_wait(edges, &event, 1, 10000), 1);
        cr_assert_eq(epoll_wait(edges, &event, 1, 0), 0);
    }
    park_end(&park);
    fire();
    cr_assert_eq(epoll_wait(edges, &event, 1, 50), 0);
    cr_assert_not(readable_within(0));
    close(edges);
}

/* While wake-ups are few nothing that is submitted is held back. */
Test(park, a_descriptor_need_not_hold_back)
{
    uint64_t time = now() + FAR;

    open_timerfd(CLOCK_MONOTONIC, HWT_SEC(10));
    park_foresee(&park, 0, 0);
    publish(time + FAR);
    park_wake_for(&park, time);
    cr_assert_lt(set_to(), time + HWT_SEC(1));
    park_foresee(&park, HWT_SEC(10), 0);
    publish(time + FAR);
    park_wake_for(&park, time);
    cr_assert_gt(set_to(), time + HWT_SEC(1));
}

/* Where there has been a crowd: time to look before it is due. */
Test(park, a_descriptor_is_set_ahead_of_a_deadline)
{
    uint64_t time = now() + 2 * FAR;

    open_timerfd(CLOCK_MONOTONIC, HWT_SEC(10));
    park_foresee(&park, HWT_SEC(10), FAR);
    publish(time + FAR);
    park_wake_for(&park, time);
    cr_assert_lt(set_to(), time - FAR + HWT_SEC(1));
    cr_assert_gt(set_to(), time - FAR - HWT_SEC(1));
    cr_assert_not(readable_within(0));
    park_wake_for(&park, FAR / 2);
    cr_assert(readable_within(10000), "there is less time than that");
}

/* Sooner than what was published, never later. */
Test(park, a_descriptor_is_readable_sooner)
{
    uint64_t time = now() + FAR;

    open_timerfd(CLOCK_MONOTONIC, HWT_SEC(10));
    publish(time);
    sooner(time + FAR);
    cr_assert_gt(set_to(), time + HWT_SEC(1));
    cr_assert_lt(set_to(), time + FAR);
    sooner(time);
    cr_assert_lt(set_to(), time + HWT_SEC(1));
    cr_assert(planned(time), "what is below is covered as before");
    park_wake_for(&park, time - 1);
    sooner(now() + HWT_MSEC(1));
    cr_assert(readable_within(10000));
}

Test(park, a_descriptor_fires_at_once)
{
    open_timerfd(CLOCK_MONOTONIC, HWT_MSEC(30));
    publish(now() + FAR);
    park_wake(&park);
    cr_assert(readable_within(10000));
    publish(now() + FAR);
    cr_assert_not(readable_within(0));
    fire();
    cr_assert(readable_within(10000));
    publish(now() + FAR);
    park_wake_for(&park, 0);
    cr_assert(readable_within(10000));
}

/* An advance that is refused: no more until it is planned anew, or something is urgent. */
Test(park, a_descriptor_is_hushed)
{
    uint64_t time = now() + FAR;

    open_timerfd(CLOCK_MONOTONIC, 0);
    fire();
    cr_assert(readable_within(10000));
    park_hush(&park);
    cr_assert_not(readable_within(0));
    publish(time);
    park_hush(&park);
    park_wake_for(&park, time);
    cr_assert_eq(set_to() / HWT_SEC(1), now() / HWT_SEC(1), "what is covered sets nothing");
    park_wake_for(&park, 1);
    cr_assert(readable_within(10000));
    park_end(&park);
    park_hush(&park);
    cr_assert_not(readable_within(0));
}

/* Between the plan and its setting anyone sets it: whoever has something urgent, or only looks. */
Test(park, a_plan_that_is_not_set_yet)
{
    uint64_t time = now() + FAR;

    open_timerfd(CLOCK_MONOTONIC, 0);
    park_publish(&park, time + FAR);
    cr_assert_leq(set_to(), now(), "nothing is set");
    park_wake_for(&park, time);
    cr_assert_geq(set_to() + HWT_SEC(1), time);
    cr_assert_lt(set_to(), time + HWT_SEC(1));
    park_set(&park);
    cr_assert_lt(set_to(), time + HWT_SEC(1), "nothing later");
}

/* Several set it at once: in the end it is set to the earliest of all. */
#define SETTERS 3

__typeof__(platform_timerfd_set) __real_platform_timerfd_set;
__typeof__(platform_timerfd_set) __wrap_platform_timerfd_set;

static _Atomic bool hesitant; /* between knowing a deadline and setting it, others set theirs */

int __wrap_platform_timerfd_set(int fd, uint64_t deadline_ns)
{
    if (atomic_load(&hesitant))
        usleep((useconds_t)(deadline_ns % 7 * 5));
    return __real_platform_timerfd_set(fd, deadline_ns);
}

static pthread_barrier_t barrier;
static uint64_t base;

static void *lower_rounds(void *mine)
{
    uint64_t random = (uint64_t)(uintptr_t)mine;

    for (unsigned i = 0; i < ROUNDS / 10; i++) {
        pthread_barrier_wait(&barrier);
        for (unsigned step = 8; step > 0; step--)
            park_wake_for(&park, base + HWT_SEC(test_random_below(&random, step * 10)) + step);
        park_wake_for(&park, base);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

Test(park, the_earliest_of_many_is_set)
{
    pthread_t thread[SETTERS];

    open_timerfd(CLOCK_MONOTONIC, 0);
    base = now() + FAR;
    base -= base % 7;
    atomic_store(&hesitant, true);
    pthread_barrier_init(&barrier, NULL, SETTERS + 1);
    for (uintptr_t i = 0; i < SETTERS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, lower_rounds, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < ROUNDS / 10; i++) {
        publish(base + FAR);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        cr_assert_lt(set_to(), base + HWT_MSEC(900));
    }
    for (unsigned i = 0; i < SETTERS; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
}

/* ---- no wake-up is lost: what is published before the comparison is seen ---- */

static _Atomic uint64_t mail;
static atomic_uint seen;

static void *receive_rounds(void *unused)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (load_seq(&mail) != i) {
            uint64_t until = now() + FAR;
            park_publish(&park, until);
            if (load_seq(&mail) != i)
                park_sleep(&park, until);
            park_leave(&park);
        }
        atomic_store(&seen, (unsigned)i);
    }
    return unused;
}

static void send_rounds(void)
{
    uint64_t random = test_seed("park");
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, receive_rounds, NULL), 0);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        store_seq(&mail, i);
        park_wake_for(&park, 0);
        while (atomic_load(&seen) != i)
            sched_yield();
        for (uint64_t pause = test_random_below(&random, 2000); pause > 0; pause--)
            __asm__ volatile("");
    }
    pthread_join(thread, NULL);
}

Test(park, no_wakeup_is_lost_on_a_futex)
{
    open_futex(0);
    send_rounds();
}

Test(park, no_wakeup_is_lost_on_a_descriptor)
{
    open_timerfd(CLOCK_MONOTONIC, 0);
    send_rounds();
}
