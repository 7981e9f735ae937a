/* SPDX-License-Identifier: BSD-2-Clause */
/* What platform_cpu says, and that it is read from memory wherever the C library offers that. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include "clock.h"
#include "platform.h"
#include "support.h"

TestSuite(platform, .init = test_arm);

Test(platform, cpu)
{
    cpu_set_t all, one;

    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    for (unsigned cpu = 0; cpu < platform_cpu_count() && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        cr_assert_eq(platform_cpu(), cpu);
        cr_assert_eq(platform_cpu_slow(), cpu);
    }
}

static void on_alarm(int number)
{
    (void)number;
}

/* No call that sleeps changes errno, interrupted or not. */
Test(platform, a_nap_leaves_errno_alone)
{
    struct itimerval soon = {.it_value = {.tv_usec = 2000}};
    struct sigaction action = {.sa_handler = on_alarm};
    uint64_t before = clock_system_now(CLOCK_MONOTONIC);

    cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
    cr_assert_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
    errno = 4242;
    platform_nap(HWT_SEC(20));
    cr_assert_eq(errno, 4242);
    cr_assert_lt(clock_system_now(CLOCK_MONOTONIC) - before, HWT_SEC(10), "not interrupted");
}

Test(platform, a_nap_lasts)
{
    uint64_t before = clock_system_now(CLOCK_MONOTONIC);

    platform_nap(HWT_MSEC(20));
    cr_assert_geq(clock_system_now(CLOCK_MONOTONIC) - before, HWT_MSEC(20));
}

static void *nap_cancelled(void *napped)
{
    pthread_cancel(pthread_self());
    platform_nap(1000);
    *(bool *)napped = true;
    pthread_testcancel();
    return NULL;
}

/* Nor is it a cancellation point. */
Test(platform, a_nap_is_no_cancellation_point)
{
    pthread_t thread;
    bool napped = false;
    void *result;

    cr_assert_eq(pthread_create(&thread, NULL, nap_cancelled, &napped), 0);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_eq(result, PTHREAD_CANCELED);
    cr_assert(napped);
}

#ifdef PLATFORM_RSEQ
#include <sys/rseq.h>

Test(platform, cpu_from_memory)
{
    cr_assert_eq(platform_rseq_cpu != 0, __rseq_size > 0);
}
#endif
