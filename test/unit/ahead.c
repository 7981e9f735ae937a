/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many timeouts that are far away: the worker begins to look through them before the first of them
 * is due (src/ahead.c), and sleeps until then.
 */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "support.h"
#include "timer.h"

enum { CROWD = 100000, ATTEMPTS = 5 };

/* Builds with validators or checks are too slow to look at all of it in time. */
#if defined(HWT_DEBUG) || defined(HWT_SANITIZED) || !defined(__OPTIMIZE__)
enum { LOOKED = 1 };
#else
enum { LOOKED = CROWD / LANE_SLOTS };
#endif

TestSuite(ahead, .init = test_arm);

struct crowd {
    uint64_t scheduled; /* when the first of them was */
    atomic_uint looked; /* so many segments were looked through since, before that one was due */
    atomic_uint ran;
};

/* Runs on the worker: so what it has written may be read. */
static void first_of_crowd(hwt_timeout *timeout, void *arg)
{
    const hwt_timer *timer = hwt_timeout_timer(timeout);
    struct crowd *crowd = arg;

    for (unsigned i = 0; i < timer->lanes.count; i++) {
        const struct segment *first = timer->lanes.lane[i].first, *segment = first;
        do {
            if (segment->swept > crowd->scheduled && segment->swept < hwt_timeout_deadline(timeout))
                atomic_fetch_add(&crowd->looked, segment->far);
            segment = segment_next(segment);
        } while (segment != first);
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

static bool crowd_is_met_ahead(hwt_timer *timer)
{
    struct crowd crowd = {.scheduled = hwt_timer_now(timer)};
    uint64_t first = crowd.scheduled + HWT_MSEC(400);

    cr_assert_eq(hwt_new_timeout_at(timer, first_of_crowd, &crowd, first, NULL), 0);
    submit_crowd(timer, first, &crowd.ran);
    cr_assert(wait_count(&crowd.ran, CROWD));
    return atomic_load(&crowd.looked) >= LOOKED;
}

/*
 * G4: to look through all when the first comes due would make those late that are due by then. Of
 * the second crowd nobody is told, because it fits where the first one was. A worker that has no
 * CPU for all that time cannot look ahead: hence several attempts.
 */
WHEEL_TEST(ahead, what_is_far_is_met_ahead)
{
    bool ahead = false;

    for (unsigned i = 0; i < ATTEMPTS && !ahead; i++) {
        hwt_timer *timer = timer_of_kind(wheel);

        ahead = crowd_is_met_ahead(timer) && crowd_is_met_ahead(timer);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
    cr_assert(ahead);
}

static void show(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
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
