/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc */
/* LDFLAGS: -Wl,--wrap=pthread_create,--wrap=pthread_setspecific */
/*
 * A call that succeeds leaves errno alone, though malloc, which may try one thing before another,
 * changes it when it succeeds; and though signals interrupt what waits.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/time.h>

#include "support.h"

#define UNTOUCHED 4242

static _Thread_local bool noisy;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    if (noisy)
        errno = ENOMEM;
    return __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    if (noisy)
        errno = ENOMEM;
    return __real_calloc(count, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    if (noisy)
        errno = ENOMEM;
    return __real_aligned_alloc(alignment, size);
}

/* These may need malloc. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    if (noisy)
        errno = ENOMEM;
    return __real_pthread_create(thread, attr, run, arg);
}

int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    if (noisy)
        errno = ENOMEM;
    return __real_pthread_setspecific(key, value);
}

TestSuite(errno_, .init = test_arm);

/* Chunks for thousands at one tick, and a timer's parts. */
WHEEL_TEST(errno_, beside_a_malloc_that_changes_it)
{
    rig r;

    rig_prepare(&r, wheel, 0);
    noisy = true;
    errno = UNTOUCHED;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(errno, UNTOUCHED, "create");
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(errno, UNTOUCHED, "new_timeout");
    cr_assert_neq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    cr_assert_eq(errno, UNTOUCHED, "next_deadline");
    r.clock.now += HWT_SEC(2);
    cr_assert_eq(hwt_timer_advance(r.timer), 5000);
    cr_assert_eq(errno, UNTOUCHED, "advance");
    cr_assert_eq(hwt_timer_destroy(r.timer), 0);
    cr_assert_eq(errno, UNTOUCHED, "destroy");
    noisy = false;
}

typedef struct verdict {
    hwt_timer *timer;
    int start, submission;
} verdict;

static void *first_use(void *arg)
{
    verdict *v = arg;

    noisy = true;
    errno = UNTOUCHED;
    cr_assert_eq(hwt_timer_start(v->timer), 0);
    v->start = errno;
    cr_assert_eq(hwt_new_timeout(v->timer, noop_task, NULL, HWT_SEC(100), NULL), 0);
    v->submission = errno;
    noisy = false;
    return NULL;
}

/* The worker's thread, and what any thread keeps for its end. */
Test(errno_, of_a_threads_first_use)
{
    pthread_t thread;
    verdict v;

    cr_assert_eq(hwt_timer_create(&v.timer, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, first_use, &v), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(v.start, UNTOUCHED, "start");
    cr_assert_eq(v.submission, UNTOUCHED, "new_timeout");
    cr_assert_eq(hwt_timer_destroy(v.timer), 0);
}

static void on_alarm(int number)
{
    (void)number;
}

static void storm(bool on)
{
    struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = on * 500}};
    struct sigaction action = {.sa_handler = on_alarm};

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

Test(errno_, beside_signals_that_interrupt)
{
    hwt_timer *timer;

    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(100), NULL), 0);
    storm(true);
    errno = UNTOUCHED;
    cr_assert_eq(hwt_timer_drain(timer, HWT_MSEC(50), NULL), 0);
    cr_assert_eq(errno, UNTOUCHED, "drain");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(errno, UNTOUCHED, "destroy");
    storm(false);
}
