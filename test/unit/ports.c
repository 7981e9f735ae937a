/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the test suites of the timers on the JVM ask of their timers, asked of
 * this one. Written anew for this API; each test names the one it follows:
 *   netty:  Netty, io.netty.util.HashedWheelTimerTest
 *   dubbo:  Apache Dubbo, org.apache.dubbo.common.timer.HashedWheelTimerTest
 *   kafka:  Apache Kafka, kafka.utils.timer.TimerTest and TimerTaskListTest
 *   jsr166: the TCK of JSR-166, ScheduledExecutorTest and DelayQueueTest
 * Seconds of sleep there are milliseconds or virtual time here.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

TestSuite(netty, .init = test_arm);
TestSuite(dubbo, .init = test_arm);
TestSuite(kafka, .init = test_arm);
TestSuite(jsr166, .init = test_arm);

static hwt_timer *timer_with(hwt_wheel_kind wheel, uint64_t tick_ns, uint32_t ticks,
                             uint64_t max_pending)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.tick_ns = tick_ns;
    config.ticks_per_wheel = ticks;
    config.max_pending = max_pending;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

static size_t drop_all(hwt_unprocessed *list)
{
    hwt_timeout *timeout;
    size_t count = 0;

    for (; (timeout = hwt_unprocessed_take(list)) != NULL; count++) {
        cr_assert(hwt_timeout_is_cancelled(timeout));
        hwt_timeout_unref(timeout);
    }
    return count;
}

/* ---- Netty ---- */

/* testScheduleTimeoutShouldNotRunBeforeDelay */
WHEEL_TEST(netty, not_before_its_delay)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *timeout;
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(100), &timeout), 0);
    sleep_ms(200);
    cr_assert_not(hwt_timeout_is_expired(timeout));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(p.runs, 0);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testScheduleTimeoutShouldRunAfterDelay */
WHEEL_TEST(netty, runs_after_its_delay)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *timeout;
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(100), &timeout), 0);
    cr_assert(wait_count(&p.runs, 1));
    cr_assert(hwt_timeout_is_expired(timeout));
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testStopTimer, testStopTimerCancelsPendingTasks */
WHEEL_TEST(netty, stop_returns_the_unprocessed_as_cancelled)
{
    hwt_timer *processed = timer_with(wheel, 0, 0, 0);
    hwt_timer *unprocessed = timer_with(wheel, 0, 0, 0);
    hwt_unprocessed list;
    atomic_uint runs = 0;

    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(hwt_new_timeout(processed, count_task, &runs, HWT_MSEC(1), NULL), 0);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(hwt_new_timeout(unprocessed, count_task, &runs, HWT_SEC(50), NULL), 0);
    cr_assert(wait_count(&runs, 3));
    cr_assert_eq(hwt_timer_stop(processed, &list), 0);
    cr_assert_eq(drop_all(&list), 0);
    cr_assert_eq(hwt_timer_stop(unprocessed, &list), 0);
    cr_assert_eq(drop_all(&list), 5);
    cr_assert_eq(hwt_timer_destroy(processed), 0);
    cr_assert_eq(hwt_timer_destroy(unprocessed), 0);
}

/* testTimerShouldThrowExceptionAfterShutdownForNewTimeouts */
WHEEL_TEST(netty, no_new_timeouts_after_stop)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    atomic_uint runs = 0;

    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_MSEC(1), NULL), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testTimerOverflowWheelLength: a delay longer than a lap, submitted again by its own task. */
typedef struct again {
    atomic_uint runs;
    uint64_t delay;
} again;

static void submit_again(hwt_timeout *timeout, void *arg)
{
    again *a = arg;

    atomic_fetch_add(&a->runs, 1);
    hwt_new_timeout(hwt_timeout_timer(timeout), submit_again, a, a->delay, NULL);
}

WHEEL_TEST(netty, longer_than_a_lap_again_and_again)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(1), 32, 0);
    again a = {.delay = HWT_MSEC(50)};
    uint64_t began = hwt_timer_now(timer);

    cr_assert_eq(hwt_new_timeout(timer, submit_again, &a, a.delay, NULL), 0);
    cr_assert(wait_count(&a.runs, 5));
    cr_assert_geq(hwt_timer_now(timer), began + 5 * a.delay, "G1");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testExecutionOnTime: a hundred thousand with one delay, none before it. */
WHEEL_TEST(netty, a_hundred_thousand_on_time)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(20), 0, 0);
    probe p = {0};

    for (unsigned i = 0; i < 100000; i++)
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(125), NULL), 0);
    cr_assert(wait_count(&p.runs, 100000));
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testRejectedExecutionExceptionWhenTooManyTimeoutsAreAddedBackToBack and its two siblings */
WHEEL_TEST(netty, too_many_back_to_back)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(10), 32, 2);
    hwt_timeout *first;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), &first), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(1), NULL), -ENOBUFS);
    cr_assert(hwt_timeout_cancel(first));
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(1), NULL), -ENOBUFS);
    hwt_timeout_unref(first);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(netty, room_again_after_an_expiry)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(10), 4, 2);
    atomic_uint runs = 0;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_MSEC(10), NULL), 0);
    cr_assert(wait_count(&runs, 1));
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), NULL), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* reportPendingTimeouts */
WHEEL_TEST(netty, reports_pending_timeouts)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *t[2];
    atomic_uint runs = 0;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), &t[0]), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(50), &t[1]), 0);
    cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_MSEC(2), NULL), 0);
    cr_assert(wait_count(&runs, 1));
    cr_assert_eq(hwt_timer_pending(timer), 2);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert(hwt_timeout_cancel(t[i]));
        hwt_timeout_unref(t[i]);
    }
    cr_assert_eq(hwt_timer_pending(timer), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testOverflow: the largest delay there is */
WHEEL_TEST(netty, the_largest_delay)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *java, *ours;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, INT64_MAX, &java), 0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, UINT64_MAX, &ours), 0);
    sleep_ms(50);
    cr_assert_not(hwt_timeout_is_expired(java));
    cr_assert_not(hwt_timeout_is_expired(ours));
    cr_assert(hwt_timeout_cancel(java));
    cr_assert(hwt_timeout_cancel(ours));
    hwt_timeout_unref(java);
    hwt_timeout_unref(ours);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* cancelWillCallCallback */
WHEEL_TEST(netty, cancel_calls_the_callback)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *timeout;
    hwt_spec spec;
    probe p = {0};

    probe_spec(&spec, &p, HWT_SEC(50));
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    cr_assert_eq(hwt_timer_pending(timer), 1);
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(p.hooks, 1, "G10");
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* testPendingTimeoutsShouldBeCountedCorrectlyWhenTimeoutCancelledWithinGoalTick */
WHEEL_TEST(netty, pending_is_right_when_cancelled_within_the_goal_tick)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(100), 0, 0);
    hwt_timeout *peers[10];
    gate g = {0};
    uint64_t deadline = hwt_timer_now(timer) + HWT_MSEC(50);
    unsigned cancelled = 0;

    cr_assert_eq(hwt_new_timeout_at(timer, gate_task, &g, deadline, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        cr_assert_eq(hwt_new_timeout_at(timer, noop_task, NULL, deadline, &peers[i]), 0);
    cr_assert(wait_count(&g.entered, 1));
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        cancelled += hwt_timeout_cancel(peers[i]);
    gate_open(&g);
    cr_assert(wait_pending(timer, 0));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_timer_pending(timer), 0, "Netty's went negative here");
    cr_assert_eq(stats_of(timer).cancelled, cancelled);
    cr_assert_eq(stats_of(timer).expired, 11 - cancelled, "G3");
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        hwt_timeout_unref(peers[i]);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- Dubbo ---- */

/* constructorTest, the refusals */
Test(dubbo, constructor)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.tick_ns = INT64_MAX;
    config.ticks_per_wheel = 8;
    cr_assert_eq(hwt_timer_create(&timer, &config), -EINVAL);
    config.tick_ns = HWT_MSEC(100);
    config.ticks_per_wheel = INT32_MAX;
    cr_assert_eq(hwt_timer_create(&timer, &config), -EINVAL);
    config.ticks_per_wheel = 8;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* createTaskTest: a limit of eight, filled and refused; then they all expire. */
WHEEL_TEST(dubbo, create_task)
{
    hwt_timer *timer = timer_with(wheel, HWT_MSEC(10), 8, 8);
    hwt_timeout *timeouts[8], *timeout;
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, NULL, NULL, HWT_SEC(5), NULL), -EINVAL);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(10), &timeout), 0);
    cr_assert(wait_state(timeout, HWT_EXPIRED));
    cr_assert_not(hwt_timeout_cancel(timeout));
    cr_assert_not(hwt_timeout_is_cancelled(timeout));
    cr_assert_eq(hwt_timeout_timer(timeout), timer);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(1000), &timeout), 0);
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert(hwt_timeout_is_cancelled(timeout));
    hwt_timeout_unref(timeout);
    for (size_t i = 0; i < COUNT_OF(timeouts); i++)
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(50), &timeouts[i]), 0);
    cr_assert_eq(hwt_timer_pending(timer), 8);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(1), NULL), -ENOBUFS);
    for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
        cr_assert(hwt_timeout_reschedule(timeouts[i], HWT_MSEC(20)));
        cr_assert(wait_state(timeouts[i], HWT_EXPIRED));
        hwt_timeout_unref(timeouts[i]);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

typedef struct verdict {
    atomic_uint done;
    atomic_int result;
} verdict;

static void try_stop(hwt_timeout *timeout, void *arg)
{
    verdict *v = arg;

    atomic_store(&v->result, hwt_timer_stop(hwt_timeout_timer(timeout), NULL));
    atomic_fetch_add(&v->done, 1);
}

/* stopTaskTest: stop from a task is refused; afterwards it stops as usual */
WHEEL_TEST(dubbo, stop_task)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    verdict v = {0};

    cr_assert_eq(hwt_new_timeout(timer, try_stop, &v, HWT_MSEC(10), NULL), 0);
    cr_assert(wait_count(&v.done, 1));
    cr_assert_eq(v.result, -EDEADLK);
    for (unsigned i = 0; i < 8; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, 0, NULL), 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert(hwt_timer_is_stopped(timer));
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(5), NULL), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- Kafka ---- */

/* TimerTest.testAlreadyExpiredTask: delays of -5 to -1 ms */
WHEEL_TEST(kafka, already_expired)
{
    probe p[5] = {0};
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(50));
    r.config.ticks_per_wheel = 3;
    cr_assert_eq(rig_open(&r), 0);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(
            hwt_new_timeout_at(r.timer, probe_task, &p[i], HWT_SEC(50) - HWT_MSEC(i + 1), NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 5);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(p[i].runs, 1);
    rig_close(&r);
}

/* TimerTest.testTaskExpiration: a tick of 1 ms, a wheel of 3, delays up to 500 ms, some twice */
WHEEL_TEST(kafka, task_expiration_in_order)
{
    static probe p[2][500];
    unsigned added = 0;
    uint64_t last = 0;
    rig r;

    memset(p, 0, sizeof(p));
    rig_prepare(&r, wheel, HWT_SEC(50));
    r.config.ticks_per_wheel = 3;
    cr_assert_eq(rig_open(&r), 0);
    for (unsigned ms = 0; ms < 500; ms++)
        for (unsigned copy = 0; copy < (ms >= 10 && ms < 100 ? 2 : 1) && (ms < 5 || ms >= 10);
             copy++, added++)
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[copy][ms], HWT_MSEC(ms), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(2)), (int)added);
    for (unsigned ms = 0; ms < 500; ms++)
        for (unsigned copy = 0; copy < 2; copy++) {
            if (p[copy][ms].runs == 0)
                continue;
            cr_assert(p[copy][ms].order >= last, "%u ms out of order", ms);
            if (copy == 1 || p[1][ms].runs == 0)
                last = p[0][ms].order > p[1][ms].order ? p[0][ms].order : p[1][ms].order;
        }
    rig_close(&r);
}

/* TimerTaskListTest.testAll: added to one list, re-added to others, then removed */
WHEEL_TEST(kafka, task_list_all)
{
    hwt_timeout *t[10];
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(50)), 0);
    for (unsigned i = 0; i < 10; i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), &t[i]), 0);
        cr_assert_eq(hwt_timer_pending(r.timer), i + 1);
    }
    for (unsigned i = 0; i < 10; i++) {
        cr_assert(hwt_timeout_reschedule(t[i], HWT_SEC(1 + i % 3)));
        cr_assert_eq(hwt_timer_pending(r.timer), 10, "re-adding keeps the count");
    }
    for (unsigned i = 0; i < 10; i++) {
        cr_assert(hwt_timeout_cancel(t[i]));
        cr_assert_eq(hwt_timer_pending(r.timer), 9 - i);
        hwt_timeout_unref(t[i]);
    }
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(10)), 0);
    rig_close(&r);
}

/* ---- JSR-166 ---- */

/* ScheduledExecutorTest.testFixedRateSequence, testFixedDelaySequence */
WHEEL_TEST(jsr166, fixed_sequences)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_DELAY};

    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        hwt_timer *timer = timer_with(wheel, 0, 0, 0);
        hwt_timeout *timeout;
        hwt_spec spec;
        probe p = {0};
        uint64_t began = hwt_timer_now(timer);

        probe_spec(&spec, &p, 0);
        spec.period_ns = HWT_MSEC(5);
        spec.period_mode = modes[m];
        cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
        cr_assert(wait_count(&p.runs, 11));
        cr_assert_geq(hwt_timer_now(timer), began + 10 * HWT_MSEC(5), "G14: more often than asked");
        cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
        hwt_timeout_unref(timeout);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

/* ScheduledExecutorTest.testShutdownNow_delayedTasks: all kinds come back, none runs later */
WHEEL_TEST(jsr166, shutdown_now_hands_back_delayed_and_periodic)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_unprocessed list;
    probe p = {0};

    for (unsigned i = 0; i < 15; i++) {
        hwt_spec spec;

        probe_spec(&spec, &p, HWT_SEC(50));
        spec.period_ns = i % 3 ? HWT_SEC(60) : 0;
        spec.period_mode = i % 3 == 2 ? HWT_FIXED_DELAY : HWT_FIXED_RATE;
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    }
    cr_assert_eq(hwt_timer_stop(timer, &list), 0);
    cr_assert(hwt_timer_is_stopped(timer));
    cr_assert_eq(drop_all(&list), 15);
    cr_assert_eq(p.runs + p.hooks, 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ScheduledExecutorTest.testGetQueue, testRemove: what waits behind a running task is there */
WHEEL_TEST(jsr166, what_waits_behind_a_running_task_can_be_removed)
{
    hwt_timer *timer = timer_with(wheel, 0, 0, 0);
    hwt_timeout *waiting[5];
    gate g = {0};
    atomic_uint runs = 0;

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
    cr_assert(wait_count(&g.entered, 1));
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(hwt_new_timeout(timer, count_task, &runs, HWT_USEC(1), &waiting[i]), 0);
    sleep_ms(20);
    cr_assert_eq(hwt_timer_pending(timer), 5);
    cr_assert(hwt_timeout_cancel(waiting[4]));
    cr_assert_not(hwt_timeout_cancel(waiting[4]));
    cr_assert(hwt_timeout_cancel(waiting[0]));
    cr_assert_eq(hwt_timer_pending(timer), 3);
    gate_open(&g);
    cr_assert(wait_count(&runs, 3));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(runs, 3);
    for (unsigned i = 0; i < 5; i++)
        hwt_timeout_unref(waiting[i]);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* DelayQueueTest.testDelay: inserted in any order, taken in the order of expiry */
WHEEL_TEST(jsr166, delays_are_taken_in_order)
{
    static probe p[20];
    uint64_t last = 0;
    rig r;

    memset(p, 0, sizeof(p));
    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(9)), 0);
    for (unsigned i = 0; i < 20; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p[i], HWT_MSEC(20 - i), NULL), 0);
    for (unsigned i = 20; i-- > 0;) {
        cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(9) + HWT_MSEC(20 - i));
        cr_assert_eq(rig_advance_to(&r, HWT_SEC(9) + HWT_MSEC(20 - i)), 1);
        cr_assert_eq(p[i].runs, 1);
        cr_assert(p[i].order >= last);
        last = p[i].order;
    }
    rig_close(&r);
}

/* DelayQueueTest.testPeekDelayed, testPollDelayed: nothing comes before its time */
WHEEL_TEST(jsr166, nothing_to_poll_before_its_time)
{
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(3600), NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), HWT_SEC(3600));
    cr_assert_eq(p.runs, 0);
    rig_close(&r);
}
