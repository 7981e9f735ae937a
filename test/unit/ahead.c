/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many timeouts that are far away: the worker begins to look through them before the first of them
 * is due (src/ahead.c), and sleeps until then; so does an event loop that waits for the descriptor.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ahead.h"
#include "driver.h"
#include "support.h"
#include "timer.h"

/* Builds with validators or checks are too slow to look at all of it in time. */
#if defined(HWT_DEBUG) || defined(HWT_SANITIZED) || !defined(__OPTIMIZE__)
enum { CROWD = 50000, LOOKED = 1, CALLS = 2 };
#else
enum { CROWD = 100000, LOOKED = 2, CALLS = 4 };
#endif
enum { ATTEMPTS = 5 };

TestSuite(ahead, .init = test_arm);

struct gathering {
    uint64_t scheduled; /* when the first of them was */
    atomic_uint looked; /* so many segments were looked through since, before that one was due */
    atomic_uint ran;
};

/* Runs on the worker: so what it has written may be read. */
static void first_of_crowd(hwt_timeout *timeout, void *arg)
{
    const hwt_timer *timer = hwt_timeout_timer(timeout);
    struct gathering *crowd = arg;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        const struct segment *segment = lane->first;
        do {
            if (segment->swept > crowd->scheduled && segment->swept < hwt_timeout_deadline(timeout))
                atomic_fetch_add(&crowd->looked, segment->far);
            segment = segment_next(segment);
        } while (segment != lane->first);
    }
    atomic_fetch_add(&crowd->ran, 1);
}

/* All but the first, over a second: a look leaves some of them. */
static void submit_crowd(hwt_timer *timer, uint64_t first, atomic_uint *ran)
{
    for (uint64_t i = 1; i < CROWD; i++) {
        uint64_t later = i * 7919 % CROWD * 10000;
        cr_assert_eq(hwt_new_timeout_at(timer, count_task, ran, first + later, NULL), 0);
    }
}

static void show(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* On the first CPU there is: one lane, and the second crowd is where the first one was. */
static void stay(bool here)
{
    cpu_set_t cpus;
    static cpu_set_t all;
    int first = 0;

    if (CPU_COUNT(&all) == 0)
        cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET((size_t)first, &all))
        first++;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)first, &cpus);
    cr_assert_eq(sched_setaffinity(0, sizeof cpus, here ? &cpus : &all), 0);
}

/* An event loop as a user writes it. */
static void *loop(void *arg)
{
    hwt_timer *timer = arg;
    struct pollfd wanted = {.fd = hwt_timer_fd(timer), .events = POLLIN, .revents = 0};

    do
        poll(&wanted, 1, -1);
    while (hwt_timer_advance(timer) >= 0);
    return NULL;
}

/* On a busy machine nobody has the CPU when he wants it: then nothing is to be seen. */
static bool sleeps_well(hwt_timer *timer, uint64_t until)
{
    uint64_t late = 0;

    for (uint64_t now = hwt_timer_now(timer), next; now < until; now = next) {
        sleep_ms(1);
        next = hwt_timer_now(timer);
        if (next + HWT_MSEC(50) > until)
            late = max_u64(late, next - now - HWT_MSEC(1));
    }
    return late < HWT_MSEC(4);
}

static bool crowd_is_met_ahead(hwt_timer *timer)
{
    struct gathering crowd = {.scheduled = hwt_timer_now(timer)};
    uint64_t first = crowd.scheduled + HWT_MSEC(400);
    bool quiet;

    cr_assert_eq(hwt_new_timeout_at(timer, first_of_crowd, &crowd, first, NULL), 0);
    stay(true);
    submit_crowd(timer, first, &crowd.ran);
    stay(false);
    quiet = sleeps_well(timer, first);
    cr_assert(wait_count(&crowd.ran, CROWD));
    return atomic_load(&crowd.looked) >= LOOKED || !quiet;
}

/*
 * G4: to look through all when the first comes due would make those late that are due by then. Of
 * the second crowd nobody is told, because it fits where the first one was.
 */
static void meet_crowds_ahead(hwt_wheel_kind wheel, hwt_drive drive, clockid_t clock)
{
    bool ahead = false;

    for (unsigned i = 0; i < ATTEMPTS && !ahead; i++) {
        hwt_timer *timer = timer_on(wheel, drive, clock);
        pthread_t thread;

        if (drive == HWT_DRIVE_CALLER)
            cr_assert_eq(pthread_create(&thread, NULL, loop, timer), 0);
        ahead = crowd_is_met_ahead(timer);
        sleep_ms(20); /* then nothing is planned, and nobody is awake */
        ahead = ahead && crowd_is_met_ahead(timer);
        cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
        if (drive == HWT_DRIVE_CALLER)
            cr_assert_eq(pthread_join(thread, NULL), 0);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
    cr_assert(ahead);
}

WHEEL_TEST(ahead, what_is_far_is_met_ahead)
{
    meet_crowds_ahead(wheel, HWT_DRIVE_WORKER, CLOCK_MONOTONIC);
}

/* Which a futex cannot follow: the worker sleeps on a descriptor. */
WHEEL_TEST(ahead, on_the_boot_time_clock)
{
    meet_crowds_ahead(wheel, HWT_DRIVE_WORKER, CLOCK_BOOTTIME);
}

WHEEL_TEST(ahead, in_an_event_loop)
{
    meet_crowds_ahead(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);
}

/* Leaves a segment for the next call only when it has taken long enough for this one. */
static bool looks_on(hwt_timer *timer)
{
    uint64_t before = hwt_timer_now(timer);

    if (hwt_timer_advance(timer) != 0)
        return false;
    if (timer->worker.look.segment)
        cr_assert_geq(hwt_timer_now(timer) - before, HWT_USEC(100));
    return true;
}

/* By how many calls ahead of the first: the descriptor says when. */
static unsigned calls_for_a_crowd(hwt_timer *timer)
{
    struct pollfd wanted = {.fd = hwt_timer_fd(timer), .events = POLLIN, .revents = 0};
    uint64_t first = hwt_timer_now(timer) + HWT_MSEC(400);
    atomic_uint ran = 0;
    unsigned calls = 0;

    submit_crowd(timer, first, &ran);
    while (poll(&wanted, 1, PATIENCE_S * 1000) == 1 && looks_on(timer))
        calls++;
    cr_assert_gt(atomic_load(&ran), 0);
    cr_assert_eq(hwt_timer_visit(timer, show, NULL), CROWD - 1 - atomic_load(&ran));
    return calls;
}

/* No call takes all in; what is looked through is there. */
WHEEL_TEST(ahead, a_loop_looks_some_portions_at_a_time)
{
    unsigned calls = 0;

    for (unsigned i = 0; i < ATTEMPTS && calls < CALLS; i++) {
        hwt_timer *timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);

        calls = calls_for_a_crowd(timer);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
    cr_assert_geq(calls, CALLS);
}

/* Portions are small beside what a turn of a loop costs: so there are some to a turn. */
WHEEL_TEST(ahead, a_loop_looks_on_until_it_has_taken_so_long)
{
    hwt_timer *timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);
    const struct look *look = &timer->worker.look;
    atomic_uint ran = 0;

    cr_assert_geq(hwt_timer_fd(timer), 0);
    cr_assert_eq(hwt_timer_advance(timer), 0); /* tells what is far */
    submit_crowd(timer, hwt_timer_now(timer) + HWT_MSEC(100), &ran);
    sleep_ms(100); /* or more: then it is time */
    cr_assert(driver_begin(timer, DRIVER_LOOKS));
    timer->worker.passed = hwt_timer_now(timer);
    ahead_look_on(timer, 0);
    cr_assert_not_null(look->segment);
    cr_assert_eq(look->group, AHEAD_GROUPS, "one at least, and at most if it has been so long");
    ahead_look_on(timer, HWT_SEC(3600));
    cr_assert_null(look->segment);
    cr_assert_not(ahead_look(timer), "and no more than there are");
    driver_end(timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Each call that leaves more to do is told of anew: an edge for each (G4). */
WHEEL_TEST(ahead, in_an_edge_triggered_loop)
{
    hwt_timer *timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int loop_fd = epoll_create1(EPOLL_CLOEXEC), ended = 0;
    atomic_uint ran = 0;

    cr_assert_eq(epoll_ctl(loop_fd, EPOLL_CTL_ADD, hwt_timer_fd(timer), &event), 0);
    submit_crowd(timer, hwt_timer_now(timer) + HWT_MSEC(400), &ran);
    while (ended >= 0 && atomic_load(&ran) < CROWD - 1) {
        cr_assert_eq(epoll_wait(loop_fd, &event, 1, 5000), 1, "no edge, and %u of %u have run",
                     atomic_load(&ran), CROWD - 1);
        ended = hwt_timer_advance(timer);
    }
    cr_assert_eq(atomic_load(&ran), CROWD - 1);
    close(loop_fd);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Mostly while a segment is being looked through, of which nobody else knows what it holds. */
static void visit_crowd(hwt_wheel_kind wheel, uint64_t before)
{
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t first = hwt_timer_now(timer) + HWT_MSEC(200);
    atomic_uint ran = 0;
    int64_t shown;

    submit_crowd(timer, first, &ran);
    while (hwt_timer_now(timer) < first - before)
        continue;
    shown = hwt_timer_visit(timer, show, NULL);
    if (hwt_timer_now(timer) < first)
        cr_assert_eq(shown, CROWD - 1, "%ld shown, %" PRIu64 " us before", (long)shown,
                     before / 1000);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G4, C18: what is asked of all that is pending finds all, a look that is broken off or not. */
WHEEL_TEST(ahead, a_visit_in_the_middle)
{
    for (uint64_t before = HWT_MSEC(20); before > HWT_MSEC(10); before -= HWT_USEC(700))
        visit_crowd(wheel, before);
}

/* G5: it is told of what grows, and then sleeps on. */
Test(ahead, what_is_far_costs_few_wake_ups)
{
    hwt_timer *timer = worker_timer();
    uint64_t settled;

    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    sleep_ms(50);
    settled = stats_of(timer).wakeups;
    cr_assert_leq(settled, 20);
    sleep_ms(200);
    cr_assert_eq(stats_of(timer).wakeups, settled);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(ahead, what_is_far_keeps_no_loop_awake)
{
    hwt_timer *timer = timer_on(HWT_WHEEL_HIERARCHICAL, HWT_DRIVE_CALLER, CLOCK_MONOTONIC);
    struct pollfd wanted = {.fd = hwt_timer_fd(timer), .events = POLLIN, .revents = 0};
    unsigned calls = 0;

    for (unsigned i = 0; i < CROWD; i++) {
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
        while (poll(&wanted, 1, 0) == 1) {
            cr_assert_eq(hwt_timer_advance(timer), 0);
            calls++;
        }
    }
    cr_assert_leq(calls, 20);
    cr_assert_eq(poll(&wanted, 1, 200), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/*
 * G4: what is due together in an upper level's slot comes down before that, a portion with each
 * pass, and who comes when there is such work has less of it afterwards: he does not go round.
 */
Test(ahead, a_crowded_slot_comes_down_pass_by_pass)
{
    atomic_uint ran = 0;
    unsigned passes = 0;
    uint64_t first, next;
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(1000)), 0);
    first = HWT_SEC(1020);
    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_eq(hwt_new_timeout_at(r.timer, count_task, &ran, first, NULL), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), first); /* takes all in */
    while ((next = wheel_next_call(r.timer->worker.wheel)) < first) {
        cr_assert_eq(rig_advance_to(&r, max_u64(next, hwt_timer_now(r.timer))), 0);
        cr_assert_leq(++passes, CROWD / 512);
    }
    cr_assert_geq(passes, CROWD / 2048);
    cr_assert_eq(rig_advance_to(&r, first), CROWD);
    rig_close(&r);
}

static void forget_deadlines(hwt_timer *timer)
{
    struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        struct segment *segment = lane->first;
        do {
            store_seq(&segment->earliest, UINT64_MAX);
            segment = segment_next(segment);
        } while (segment != lane->first);
    }
}

/* What has been taken in is not sampled: its pages may not have been touched for long. */
Test(ahead, only_where_a_deadline_is_told_is_measured)
{
    hwt_timer *timer;
    hwt_config config;
    uint64_t now;

    hwt_config_init(&config);
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    now = hwt_timer_now(timer);
    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    timer_act(timer);
    cr_assert_gt(lead_time(timer, now), 0);
    forget_deadlines(timer);
    cr_assert_eq(lead_time(timer, now + HWT_SEC(1)), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* What is far away is told again as time goes by, and again when a clock has gone back. */
WHEEL_TEST(ahead, what_is_far_is_told_again)
{
    const uint64_t steps[] = {HWT_SEC(1), HWT_SEC(60), HWT_SEC(3600)};
    uint64_t now = HWT_SEC(1000);
    rig r;

    cr_assert_eq(rig_start(&r, wheel, now), 0);
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        uint64_t before = load_relaxed(&r.timer->lanes.far_from);
        now += steps[i];
        cr_assert_eq(rig_advance_to(&r, now), 0);
        cr_assert_gt(load_relaxed(&r.timer->lanes.far_from), now);
        cr_assert_eq(load_relaxed(&r.timer->lanes.far_from), before + steps[i]);
    }
    cr_assert_eq(rig_advance_to(&r, now - HWT_SEC(60)), 0);
    cr_assert_lt(load_relaxed(&r.timer->lanes.far_from), now);
    rig_close(&r);
}

static unsigned retired_of(const hwt_timer *timer)
{
    const struct lane *lane;
    unsigned count = 0;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        const struct segment *segment = lane->first;
        do {
            count += load_relaxed(&segment->retired) != 0;
            segment = segment_next(segment);
        } while (segment != lane->first);
    }
    return count;
}

/* G2, G4: where few are left segments retire; those few run in time all the same. */
WHEEL_TEST(ahead, those_in_retired_segments_run)
{
    enum { EACH = LANE_SLOTS / 4, ODD = 7, PAIRS = 100 * LANE_SLOTS }; /* not where samples are */
    enum { KEPT = (CROWD - ODD + EACH - 1) / EACH };
    static hwt_timeout *handle[CROWD];
    atomic_uint ran = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    stay(true);
    for (unsigned i = 0; i < CROWD; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_SEC(60) + i, &handle[i]), 0);
    for (unsigned i = 0; i < CROWD; i++) {
        if (i % EACH != ODD)
            cr_assert(hwt_timeout_cancel(handle[i]));
        hwt_timeout_unref(handle[i]);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_SEC(60), &handle[0]), 0);
        cr_assert(hwt_timeout_cancel(handle[0]));
        hwt_timeout_unref(handle[0]);
    }
    cr_assert_geq(retired_of(r.timer), 1);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(60) + CROWD), KEPT);
    cr_assert_eq(atomic_load(&ran), KEPT);
    rig_close(&r);
}
