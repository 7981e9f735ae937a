/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=pthread_mutex_lock */
/*
 * G8 for threads that do not live to see the end of a call: cancelled in stop or destroy, and
 * thread-specific destructors on the worker's thread that call them.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "support.h"

static _Thread_local unsigned locks;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locks++;
    return __real_pthread_mutex_lock(mutex);
}

TestSuite(stop_threads, .init = test_arm);

/* ---- cancelled while it waits ---- */

typedef struct stopper {
    hwt_timer *timer;
    bool destroys;
    atomic_uint entered, returned, cancelled;
    int result;
    pthread_t thread;
} stopper;

static void note_cancelled(void *arg)
{
    atomic_fetch_add(&((stopper *)arg)->cancelled, 1);
}

static void *stop_it(void *arg)
{
    stopper *s = arg;

    pthread_cleanup_push(note_cancelled, s);
    atomic_fetch_add(&s->entered, 1);
    s->result = s->destroys ? hwt_timer_destroy(s->timer) : hwt_timer_stop(s->timer, NULL);
    atomic_fetch_add(&s->returned, 1);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static void begin_stopping(stopper *s, hwt_timer *timer, bool destroys)
{
    *s = (stopper){.timer = timer, .destroys = destroys};
    cr_assert_eq(pthread_create(&s->thread, NULL, stop_it, s), 0);
    cr_assert(wait_count(&s->entered, 1));
    sleep_ms(50); /* by now it waits, in all likelihood */
}

/* Its call was not interrupted; what was asked for happens right after it. */
static void expect_late_cancel(stopper *s)
{
    cr_assert(wait_count(&s->returned, 1), "the call was interrupted");
    cr_assert_eq(pthread_join(s->thread, NULL), 0);
    cr_assert_eq(s->result, 0);
    cr_assert_eq(s->cancelled, 1);
}

static hwt_timer *held_timer(gate *g)
{
    hwt_timer *timer = worker_timer();

    cr_assert_eq(hwt_new_timeout(timer, gate_task, g, 0, NULL), 0);
    cr_assert(wait_count(&g->entered, 1));
    return timer;
}

Test(stop_threads, the_first_stop_is_cancelled)
{
    gate g = {0};
    hwt_timer *timer = held_timer(&g);
    stopper first;

    begin_stopping(&first, timer, false);
    cr_assert_eq(pthread_cancel(first.thread), 0);
    sleep_ms(20);
    gate_open(&g);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0, "G8: a second stop");
    expect_late_cancel(&first);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(stop_threads, the_second_stop_is_cancelled)
{
    gate g = {0};
    hwt_timer *timer = held_timer(&g);
    stopper first, second;

    begin_stopping(&first, timer, false);
    begin_stopping(&second, timer, false);
    cr_assert_eq(pthread_cancel(second.thread), 0);
    sleep_ms(20);
    gate_open(&g);
    expect_late_cancel(&second);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0, "G8: a third stop");
    cr_assert_eq(pthread_join(first.thread, NULL), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(stop_threads, destroy_is_cancelled)
{
    gate g = {0};
    hwt_timer *timer = held_timer(&g);
    stopper only;
    unsigned threads = thread_count();

    begin_stopping(&only, timer, true);
    cr_assert_eq(pthread_cancel(only.thread), 0);
    sleep_ms(20);
    gate_open(&g);
    expect_late_cancel(&only);
    cr_assert(wait_threads(threads - 1), "the worker is gone too");
}

/* With a cancellation that is pending before the call: none of these is a cancellation point. */
static void *call_everything(void *arg)
{
    stopper *s = arg;
    hwt_timeout *timeout = NULL;
    hwt_unprocessed list;
    hwt_config config;

    hwt_config_init(&config);
    config.clock_id = CLOCK_BOOTTIME; /* has a descriptor to close */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    s->result = hwt_timer_create(&s->timer, &config);
    if (s->result == 0)
        s->result = hwt_timer_start(s->timer);
    if (s->result == 0)
        s->result = hwt_new_timeout(s->timer, noop_task, NULL, HWT_SEC(60), &timeout);
    hwt_timeout_reschedule(timeout, HWT_SEC(30));
    hwt_timer_next_deadline(s->timer);
    hwt_timeout_cancel_sync(timeout);
    hwt_timeout_unref(timeout);
    hwt_timer_pending(s->timer);
    stats_of(s->timer);
    if (s->result == 0)
        s->result = hwt_timer_stop(s->timer, &list);
    if (s->result == 0)
        s->result = hwt_timer_destroy(s->timer);
    config.drive = HWT_DRIVE_CALLER;
    if (s->result == 0)
        s->result = hwt_timer_create(&s->timer, &config);
    if (s->result == 0)
        s->result = hwt_timer_fd(s->timer) >= 0 ? 0 : -1;
    if (s->result == 0)
        s->result = hwt_timer_advance(s->timer);
    if (s->result == 0)
        s->result = hwt_new_timeout(s->timer, noop_task, NULL, HWT_SEC(60), &timeout);
    if (s->result == 0)
        s->result = hwt_timer_destroy(s->timer); /* a debug build tells of the handle */
    if (s->result == 0)
        hwt_timeout_unref(timeout);
    atomic_fetch_add(&s->returned, 1);
    return NULL;
}

Test(stop_threads, no_call_is_a_cancellation_point)
{
    stopper s = {.result = -1};

    cr_assert_eq(pthread_create(&s.thread, NULL, call_everything, &s), 0);
    cr_assert_eq(pthread_join(s.thread, NULL), 0);
    cr_assert_eq(s.returned, 1);
    cr_assert_eq(s.result, 0);
}

/* ---- destructors on the worker's thread ---- */

static pthread_key_t key;
static atomic_uint destructors;
static int stop_result, destroy_result;

static void stop_in_destructor(void *timer)
{
    stop_result = hwt_timer_stop(timer, NULL);
    destroy_result = hwt_timer_destroy(timer);
    atomic_fetch_add(&destructors, 1);
}

static void set_key(hwt_timeout *timeout, void *ran)
{
    pthread_setspecific(key, hwt_timeout_timer(timeout));
    atomic_fetch_add((atomic_uint *)ran, 1);
}

/* They run after the worker has returned, and stop waits for them. */
Test(stop_threads, a_destructor_on_the_worker_is_inside)
{
    hwt_timer *timer = worker_timer();
    atomic_uint ran = 0;

    cr_assert_eq(pthread_key_create(&key, stop_in_destructor), 0);
    cr_assert_eq(hwt_new_timeout(timer, set_key, &ran, 0, NULL), 0);
    cr_assert(wait_count(&ran, 1));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0, "G8");
    cr_assert_eq(destructors, 1);
    cr_assert_eq(stop_result, -EDEADLK);
    cr_assert_eq(destroy_result, -EDEADLK);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G7: also what is refused. */
WHEEL_TEST(stop_threads, refusing_takes_no_lock)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    locks = 0;
    for (int i = 0; i < 10; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(1), NULL), -ESHUTDOWN);
    cr_assert_eq(locks, 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_gt(locks, 0, "they are counted");
}
