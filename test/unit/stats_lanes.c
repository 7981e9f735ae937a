/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=lane_count */
/*
 * Counting while timeouts begin in one lane and end in another, or the other way round, when one of
 * the two has been counted, and the other has not: what pends all the time is found (G3, C24).
 */
#include <criterion/criterion.h>

#include "support.h"
#include "timer.h"

enum { MANY = 1000 };

/* Who counts is held here when he has been through this lane for the first, or second, time. */
static _Thread_local gate *held;
static _Thread_local unsigned times;
static const struct lane *held_after;

__typeof__(lane_count) __real_lane_count;
__typeof__(lane_count) __wrap_lane_count;

struct lane_tally __wrap_lane_count(const struct lane *lane)
{
    struct lane_tally tally = __real_lane_count(lane);
    gate *here = held;

    if (here && lane == held_after && --times == 0) {
        held = NULL;
        gate_task(NULL, here);
    }
    return tally;
}

/* An executor that keeps the one job that it is given. */
typedef struct shelf {
    void (*run)(void *job);
    void *job;
    atomic_uint count;
} shelf;

static int keep(void *executor, void (*run)(void *job), void *job)
{
    shelf *s = executor;

    s->run = run;
    s->job = job;
    atomic_fetch_add(&s->count, 1);
    return 0;
}

typedef struct reader {
    hwt_timer *timer;
    gate gate;
    bool all; /* the counters, too */
    unsigned times;
    hwt_stats stats;
    uint64_t pending;
    pthread_t thread;
} reader;

static void *read_counts(void *arg)
{
    reader *r = arg;

    held = &r->gate;
    times = r->times;
    if (r->all) {
        r->stats = stats_of(r->timer);
        r->pending = r->stats.pending;
    } else {
        r->pending = hwt_timer_pending(r->timer);
    }
    return NULL;
}

static shelf on_shelf;
static unsigned cpu[2]; /* to go to: the first one's lane is counted before the other's */
static hwt_timer *timer;

static void go(unsigned which)
{
    cr_assert(go_to_cpu(cpu[which]));
}

static unsigned lane_of_cpu(unsigned n)
{
    return go_to_cpu(n) ? lanes_index_here(&timer->lanes) : 0;
}

static void open_timer(void)
{
    hwt_config config;
    unsigned lane[2];

    test_arm();
    hwt_config_init(&config);
    config.execute = keep;
    config.executor = &on_shelf;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    lane[0] = lane_of_cpu(0);
    lane[1] = lane_of_cpu(1);
    if (lane[0] == lane[1])
        cr_skip_test("there is one CPU");
    cpu[0] = lane[0] > lane[1];
    cpu[1] = !cpu[0];
    held_after = lanes_own(&timer->lanes, (unsigned)min_u64(lane[0], lane[1]));
}

static void close_timer(void)
{
    hwt_stats s;

    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    s = stats_of(timer);
    cr_assert_eq(s.pending, 0);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

TestSuite(stats_lanes, .init = open_timer, .fini = close_timer);

static void begin_counting(reader *r, bool all, unsigned at)
{
    *r = (reader){.timer = timer, .all = all, .times = at};
    cr_assert_eq(pthread_create(&r->thread, NULL, read_counts, r), 0);
    cr_assert(wait_count(&r->gate.entered, 1));
}

static void end_counting(reader *r)
{
    gate_open(&r->gate);
    cr_assert_eq(pthread_join(r->thread, NULL), 0);
    cr_assert_geq(r->pending, MANY, "G3: %llu pending", (unsigned long long)r->pending);
    cr_assert_leq(r->pending, MANY + 1, "G3: %llu pending", (unsigned long long)r->pending);
    cr_assert_leq(r->stats.expired, 1, "%llu expired", (unsigned long long)r->stats.expired);
}

static void await_job(hwt_task *task)
{
    unsigned jobs = on_shelf.count;

    cr_assert_eq(hwt_new_timeout(timer, task, NULL, 0, NULL), 0);
    cr_assert(wait_count(&on_shelf.count, jobs + 1));
}

/* As one that waits for something may go on elsewhere. */
static void rearm_elsewhere(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    go(1);
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(3600)));
}

static void rearms_elsewhere(bool all, unsigned at)
{
    hwt_stats s;
    reader r;

    await_job(rearm_elsewhere);
    begin_counting(&r, all, at);
    go(0);
    on_shelf.run(on_shelf.job);
    end_counting(&r);
    s = stats_of(timer);
    cr_assert_eq(s.expired, 0);
    cr_assert_eq(s.runs, 1);
    cr_assert_eq(s.pending, MANY + 1);
    cr_assert_eq(hwt_timer_pending(timer), MANY + 1);
}

Test(stats_lanes, a_run_begins_here_and_rearms_there)
{
    rearms_elsewhere(true, 2);
}

Test(stats_lanes, a_run_begins_here_and_rearms_there_pending)
{
    rearms_elsewhere(false, 2);
}

Test(stats_lanes, a_run_begins_here_and_rearms_there_at_first)
{
    rearms_elsewhere(true, 1);
}

static void ends_elsewhere(bool all, unsigned at)
{
    reader r;

    begin_counting(&r, all, at);
    go(0);
    await_job(noop_task);
    go(1);
    on_shelf.run(on_shelf.job);
    end_counting(&r);
    cr_assert_eq(hwt_timer_pending(timer), MANY);
    cr_assert_eq(stats_of(timer).expired, 1);
}

Test(stats_lanes, scheduled_here_and_run_there)
{
    ends_elsewhere(true, 2);
}

Test(stats_lanes, scheduled_here_and_run_there_pending)
{
    ends_elsewhere(false, 2);
}

Test(stats_lanes, scheduled_here_and_run_there_at_first)
{
    ends_elsewhere(true, 1);
}

/* One is pending all the time: where it was is looked at when it is there no more. */
static void replaced_elsewhere(bool all, unsigned at)
{
    hwt_timeout *here, *there;
    reader r;

    go(1);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &there), 0);
    begin_counting(&r, all, at);
    go(0);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &here), 0);
    cr_assert(hwt_timeout_cancel(there));
    gate_open(&r.gate);
    cr_assert_eq(pthread_join(r.thread, NULL), 0);
    cr_assert_geq(r.pending, MANY + 1, "G3: %llu pending", (unsigned long long)r.pending);
    cr_assert_leq(r.pending, MANY + 2, "G3: %llu pending", (unsigned long long)r.pending);
    cr_assert_leq(r.stats.withdrawn, r.stats.cancelled);
    cr_assert_eq(hwt_timer_pending(timer), MANY + 1);
    cr_assert_eq(stats_of(timer).withdrawn, 1);
    hwt_timeout_unref(there);
    hwt_timeout_unref(here);
}

Test(stats_lanes, scheduled_here_and_cancelled_there)
{
    replaced_elsewhere(true, 2);
}

Test(stats_lanes, scheduled_here_and_cancelled_there_pending)
{
    replaced_elsewhere(false, 2);
}

Test(stats_lanes, scheduled_here_and_cancelled_there_at_first)
{
    replaced_elsewhere(false, 1);
}
