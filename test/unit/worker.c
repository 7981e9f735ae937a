/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker in real time: start, G4 and G5, cancel_sync, stop. Orders and
 * never-early are asserted strictly; lateness only against hanging, because the
 * machine that runs this may be busy. Waiting means PATIENCE_S, not a delay.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

TestSuite(worker, .init = test_arm);

/* ---- start ---- */

Test(worker, starts_when_told)
{
    unsigned threads = thread_count();
    hwt_timer *timer = worker_timer();

    cr_assert_eq(thread_count(), threads, "create starts no thread");
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(thread_count(), threads + 1);
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(thread_count(), threads + 1);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert(wait_threads(threads), "stop joins it");
    cr_assert_eq(hwt_timer_start(timer), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(worker, starts_with_the_first_submission)
{
    unsigned threads = thread_count();
    hwt_timer *timer = timer_of_kind(wheel);
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(5), NULL), 0);
    cr_assert_eq(thread_count(), threads + 1);
    cr_assert(wait_count(&p.runs, 1));
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_not(pthread_equal(p.run_thread, pthread_self()));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void *start_thread(void *arg)
{
    return (void *)(intptr_t)hwt_timer_start(arg);
}

Test(worker, many_threads_start_one_worker)
{
    for (unsigned round = 0; round < 50; round++) {
        hwt_timer *timer = worker_timer();
        pthread_t threads[4];

        for (size_t i = 0; i < COUNT_OF(threads); i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, start_thread, timer), 0);
        for (size_t i = 0; i < COUNT_OF(threads); i++) {
            void *result;

            cr_assert_eq(pthread_join(threads[i], &result), 0);
            cr_assert_null(result);
        }
        cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

Test(worker, now_is_the_clock)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};

    for (size_t i = 0; i < COUNT_OF(clocks); i++) {
        hwt_timer *timer;
        hwt_config config;
        uint64_t before, now;
        probe p = {0};

        hwt_config_init(&config);
        config.clock_id = clocks[i];
        cr_assert_eq(hwt_timer_create(&timer, &config), 0);
        before = real_now(clocks[i]);
        now = hwt_timer_now(timer);
        cr_assert_geq(now, before);
        cr_assert_leq(now, real_now(clocks[i]));
        cr_assert_eq(hwt_new_timeout_at(timer, probe_task, &p, now + HWT_MSEC(3), NULL), 0);
        cr_assert(wait_count(&p.runs, 1));
        cr_assert_geq(p.ran_at, now + HWT_MSEC(3), "G1");
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

/* ---- G4, G5 ---- */

WHEEL_TEST(worker, never_early_and_all_run)
{
    static probe p[2000];
    uint64_t seed = test_seed("never_early_and_all_run");
    hwt_timer *timer = timer_of_kind(wheel);

    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p[i],
                                     test_random_below(&seed, HWT_MSEC(600)), NULL),
                     0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert(wait_count(&p[i].runs, 1));
        cr_assert_eq(p[i].early, 0, "G1");
    }
    cr_assert_eq(stats_of(timer).expired, COUNT_OF(p));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G4: ticks in order, in real time too. Spaced by two ticks, whatever their alignment. */
WHEEL_TEST(worker, ticks_in_order)
{
    static probe p[100];
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t base = hwt_timer_now(timer) + HWT_MSEC(30);

    for (size_t i = COUNT_OF(p); i-- > 0;)
        cr_assert_eq(hwt_new_timeout_at(timer, probe_task, &p[i], base + i * HWT_MSEC(2), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert(wait_count(&p[i].runs, 1));
        cr_assert(i == 0 || p[i].order > p[i - 1].order);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G4: an earlier deadline wakes the worker that sleeps towards a later one. */
WHEEL_TEST(worker, an_earlier_deadline_wakes_it)
{
    hwt_timer *timer = timer_of_kind(wheel);

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    for (unsigned round = 0; round < 20; round++) {
        probe p = {0};

        sleep_ms(round % 4 * 5);
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(round % 3), NULL), 0);
        cr_assert(wait_count(&p.runs, 1), "round %u", round);
        cr_assert_eq(p.early, 0, "G1");
    }
    cr_assert_eq(hwt_timer_pending(timer), 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* The same for a deadline that is moved earlier, seen by the worker or not. */
WHEEL_TEST(worker, a_move_to_earlier_wakes_it)
{
    hwt_timer *timer = timer_of_kind(wheel);

    for (unsigned round = 0; round < 20; round++) {
        hwt_timeout *timeout;
        probe p = {0};

        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(3600), &timeout), 0);
        sleep_ms(round % 4 * 5);
        cr_assert(hwt_timeout_reschedule(timeout, HWT_MSEC(round % 3)));
        cr_assert(wait_count(&p.runs, 1), "round %u", round);
        cr_assert_eq(p.early, 0, "G1");
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(worker, a_move_to_later_is_not_run_early)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *timeout;
    probe p = {0};
    uint64_t due = 0;

    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(2), &timeout), 0);
    for (unsigned move = 0; move < 30; move++) {
        due = hwt_timer_now(timer) + HWT_MSEC(100);
        cr_assert(hwt_timeout_reschedule_at(timeout, due));
        sleep_ms(5);
    }
    due = hwt_timer_now(timer) + HWT_MSEC(50);
    if (hwt_timeout_reschedule_at(timeout, due)) /* a stall of this thread may have let it run */
        cr_assert(wait_count(&p.runs, 1) && p.ran_at >= due, "G1");
    cr_assert(wait_state(timeout, HWT_EXPIRED));
    cr_assert_eq(p.runs, 1);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G5: nothing due, nothing stirs: no tick, and no wake-up for later deadlines or their cancel. */
WHEEL_TEST(worker, quiet_while_nothing_is_due)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *later[10];
    uint64_t settled;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    sleep_ms(100);
    settled = stats_of(timer).wakeups;
    for (size_t i = 0; i < COUNT_OF(later); i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3601 + i), &later[i]), 0);
    sleep_ms(200);
    for (size_t i = 0; i < COUNT_OF(later); i++) {
        cr_assert(hwt_timeout_reschedule(later[i], HWT_SEC(4000)));
        cr_assert(hwt_timeout_cancel(later[i]));
        hwt_timeout_unref(later[i]);
    }
    sleep_ms(200);
    cr_assert_eq(stats_of(timer).wakeups, settled, "G5");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(worker, quiet_when_empty_and_when_saturated)
{
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t settled;

    cr_assert_eq(hwt_timer_start(timer), 0);
    sleep_ms(100);
    settled = stats_of(timer).wakeups;
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, UINT64_MAX, NULL), 0);
    sleep_ms(300);
    cr_assert_leq(stats_of(timer).wakeups, settled + 1, "G5");
    cr_assert_eq(hwt_timer_pending(timer), 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- cancel_sync ---- */

static void sync_itself(hwt_timeout *timeout, void *arg)
{
    atomic_int *said = arg;

    atomic_store(said, hwt_timeout_cancel_sync(timeout));
}

Test(worker, cancel_sync_from_its_own_task)
{
    hwt_timer *timer = worker_timer();
    hwt_timeout *timeout;
    atomic_int said = 99;

    cr_assert_eq(hwt_new_timeout(timer, sync_itself, &said, 0, &timeout), 0);
    cr_assert(wait_state(timeout, HWT_EXPIRED));
    cr_assert_eq(said, -EDEADLK);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void end_itself(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    cr_assert(hwt_timeout_cancel(timeout));
}

/* It follows the run, which is not over before. */
Test(worker, cancel_sync_from_its_own_hook)
{
    hwt_timer *timer = worker_timer();
    atomic_int said = 99;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = end_itself;
    spec.cancelled = sync_itself;
    spec.arg = &said;
    spec.period_ns = HWT_SEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    while (atomic_load(&said) == 99)
        sleep_ms(1);
    cr_assert_eq(said, -EDEADLK);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

typedef struct waiter {
    hwt_timeout *timeout;
    gate *gate;
    atomic_uint returned;
    int result;
    bool task_had_left;
} waiter;

static void *sync_thread(void *arg)
{
    waiter *w = arg;

    w->result = hwt_timeout_cancel_sync(w->timeout);
    w->task_had_left = atomic_load(&w->gate->left) == atomic_load(&w->gate->entered);
    atomic_fetch_add(&w->returned, 1);
    return NULL;
}

/* Many wait for one run; none returns before the task has, and one at most was told 1. */
static int sum_of_waiters(hwt_timer *timer, uint64_t period_ns)
{
    gate g = {0};
    waiter w[6] = {0};
    pthread_t threads[COUNT_OF(w)];
    hwt_spec spec;
    int sum = 0;

    hwt_spec_init(&spec);
    spec.task = gate_task;
    spec.arg = &g;
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(timer, &spec, &w[0].timeout), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timer_pending(timer), period_ns ? 1 : 0, "its last run has begun");
    for (size_t i = 0; i < COUNT_OF(w); i++) {
        w[i].timeout = w[0].timeout;
        w[i].gate = &g;
        cr_assert_eq(pthread_create(&threads[i], NULL, sync_thread, &w[i]), 0);
    }
    sleep_ms(50);
    for (size_t i = 0; i < COUNT_OF(w); i++)
        cr_assert_eq(w[i].returned, 0, "returned while the task was running");
    gate_open(&g);
    for (size_t i = 0; i < COUNT_OF(w); i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert(w[i].task_had_left);
        cr_assert_geq(w[i].result, 0);
        sum += w[i].result;
    }
    cr_assert_eq(g.entered, 1);
    hwt_timeout_unref(w[0].timeout);
    return sum;
}

WHEEL_TEST(worker, cancel_sync_many_waiters)
{
    hwt_timer *timer = timer_of_kind(wheel);

    cr_assert_eq(sum_of_waiters(timer, 0), 0, "a last run cannot be cancelled");
    cr_assert_eq(sum_of_waiters(timer, HWT_MSEC(1)), 1, "G2: exactly one caller ended it");
    cr_assert_eq(stats_of(timer).cancelled, 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* cancel_sync as a rule of ownership: after it returned the argument may go away. */
WHEEL_TEST(worker, after_cancel_sync_it_never_runs)
{
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t seed = test_seed("after_cancel_sync");

    for (unsigned round = 0; round < 400; round++) {
        hwt_timeout *timeout;
        probe p = {0};
        unsigned runs;
        hwt_spec spec;

        probe_spec(&spec, &p, test_random_below(&seed, HWT_USEC(300)));
        spec.period_ns = round % 2 ? HWT_USEC(100) : 0;
        cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
        if (round % 3)
            usleep((useconds_t)test_random_below(&seed, 2500));
        cr_assert_geq(hwt_timeout_cancel_sync(timeout), 0);
        runs = p.runs;
        cr_assert_eq(p.inside, 0);
        if (round % 50 == 0)
            sleep_ms(5);
        cr_assert_eq(p.runs, runs);
        cr_assert_eq(p.early + p.overlapped, 0);
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* A task may cancel_sync another timeout of its timer: it is not running, being on one thread. */
typedef struct pair {
    hwt_timeout *other;
    atomic_int said;
} pair;

static void sync_other(hwt_timeout *timeout, void *arg)
{
    pair *p = arg;

    (void)timeout;
    atomic_store(&p->said, hwt_timeout_cancel_sync(p->other));
}

Test(worker, cancel_sync_of_another_from_a_task)
{
    hwt_timer *timer = worker_timer();
    hwt_timeout *timeout;
    pair p = {.said = 99};

    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), &p.other), 0);
    cr_assert_eq(hwt_new_timeout(timer, sync_other, &p, 0, &timeout), 0);
    cr_assert(wait_state(timeout, HWT_EXPIRED));
    cr_assert_eq(p.said, 1);
    hwt_timeout_unref(timeout);
    hwt_timeout_unref(p.other);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- cancel_sync and the hook ---- */

typedef struct owned {
    gate gate;
    atomic_uint hook_began, hook_ended;
    bool rearm;
} owned;

static void owned_task(hwt_timeout *timeout, void *arg)
{
    owned *o = arg;

    if (o->rearm)
        hwt_timeout_reschedule(timeout, HWT_SEC(1));
    gate_task(timeout, &o->gate);
}

static void lingering_hook(hwt_timeout *timeout, void *arg)
{
    owned *o = arg;

    (void)timeout;
    atomic_fetch_add(&o->hook_began, 1);
    sleep_ms(30);
    atomic_fetch_add(&o->hook_ended, 1);
}

static void *open_later(void *arg)
{
    sleep_ms(20);
    gate_open(arg);
    return NULL;
}

/* The hook is handed the argument, too: only after it may the caller of cancel_sync free that. */
static void expect_hook_before_return(hwt_timer *timer, uint64_t period_ns, bool rearm)
{
    owned o = {.rearm = rearm};
    hwt_timeout *timeout;
    pthread_t thread;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = owned_task;
    spec.cancelled = lingering_hook;
    spec.arg = &o;
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
    cr_assert(wait_count(&o.gate.entered, 1));
    cr_assert_eq(pthread_create(&thread, NULL, open_later, &o.gate), 0);
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
    cr_assert_eq(o.gate.left, 1, "the task was running");
    cr_assert_eq(o.hook_ended, 1, "the hook %s", o.hook_began ? "was running" : "was to come");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    hwt_timeout_unref(timeout);
}

WHEEL_TEST(worker, cancel_sync_returns_after_the_hook)
{
    hwt_timer *timer = timer_of_kind(wheel);

    expect_hook_before_return(timer, HWT_MSEC(1), false);
    expect_hook_before_return(timer, 0, true);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- precision ---- */

struct stamp {
    hwt_timer *timer;
    _Atomic uint64_t at;
};

static void put_stamp(hwt_timeout *timeout, void *arg)
{
    struct stamp *stamp = arg;

    (void)timeout;
    atomic_store(&stamp->at, hwt_timer_now(stamp->timer));
}

static uint64_t await_stamp(struct stamp *stamp)
{
    while (atomic_load(&stamp->at) == 0)
        usleep(1000);
    return stamp->at;
}

/* How long after its deadline, which lies a millisecond into the tick after the next. */
static uint64_t lateness_alone(hwt_timer *timer, uint64_t tick_ns)
{
    uint64_t deadline = (hwt_timer_now(timer) / tick_ns + 2) * tick_ns + HWT_MSEC(1);
    struct stamp stamp = {.timer = timer};

    cr_assert_eq(hwt_new_timeout_at(timer, put_stamp, &stamp, deadline, NULL), 0);
    cr_assert_geq(await_stamp(&stamp), deadline, "G1");
    return stamp.at - deadline;
}

/* Of the latest of so many that share a tick. */
#define SHARING_MOST 200
static uint64_t lateness_of(unsigned count, uint64_t spacing, hwt_timer *timer, uint64_t tick_ns)
{
    uint64_t first = (hwt_timer_now(timer) / tick_ns + 2) * tick_ns + HWT_MSEC(1), most = 0, late;
    struct stamp stamp[SHARING_MOST];

    for (size_t i = 0; i < count; i++) {
        stamp[i] = (struct stamp){.timer = timer};
        cr_assert_eq(hwt_new_timeout_at(timer, put_stamp, &stamp[i], first + i * spacing, NULL), 0);
    }
    for (size_t i = 0; i < count; i++) {
        cr_assert_geq(await_stamp(&stamp[i]), first + i * spacing, "G1");
        late = stamp[i].at - first - i * spacing;
        most = late > most ? late : most;
    }
    return most;
}

static uint64_t lateness_of_ten(hwt_timer *timer, uint64_t tick_ns)
{
    return lateness_of(10, HWT_MSEC(4), timer, tick_ns);
}

/* Twice as many as wake-ups are few for: what was saved is used up long before the tick is over. */
static uint64_t lateness_of_many(hwt_timer *timer, uint64_t tick_ns)
{
    return lateness_of(180, HWT_USEC(500), timer, tick_ns);
}

/* One wake-up. */
static uint64_t lateness_of_a_bunch(hwt_timer *timer, uint64_t tick_ns)
{
    return lateness_of(SHARING_MOST, 0, timer, tick_ns);
}

struct chain {
    hwt_timer *timer;
    uint64_t late, done; /* the most of any; so many have run */
    struct stamp end;
};

#define CHAIN 30

/* Each submits the next for a millisecond later, some of which is over by then: one is slow. */
static void next_in_chain(hwt_timeout *timeout, void *arg)
{
    struct chain *chain = arg;
    uint64_t deadline = hwt_timeout_deadline(timeout),
             late = hwt_timer_now(chain->timer) - deadline;

    chain->late = late > chain->late ? late : chain->late;
    if (++chain->done == CHAIN) {
        put_stamp(timeout, &chain->end); /* the chain may be gone by now */
        return;
    }
    cr_assert_eq(
        hwt_new_timeout_at(chain->timer, next_in_chain, chain, deadline + HWT_MSEC(1), NULL), 0);
    if (chain->done == CHAIN / 2)
        usleep(5000);
}

static uint64_t lateness_in_a_chain(hwt_timer *timer, uint64_t tick_ns)
{
    uint64_t first = (hwt_timer_now(timer) / tick_ns + 2) * tick_ns + HWT_MSEC(1);
    struct chain chain = {.timer = timer, .end = {.timer = timer}};

    cr_assert_eq(hwt_new_timeout_at(timer, next_in_chain, &chain, first, NULL), 0);
    await_stamp(&chain.end);
    return chain.late;
}

/* What comes when the worker sleeps until the end of the tick that it is in, or nearly. */
static uint64_t lateness_before_another(hwt_timer *timer, uint64_t tick_ns)
{
    uint64_t begin = (hwt_timer_now(timer) / tick_ns + 2) * tick_ns, now;
    struct stamp stamp = {.timer = timer}, other = {.timer = timer};

    cr_assert_eq(hwt_new_timeout_at(timer, put_stamp, &other, begin + tick_ns - HWT_MSEC(2), NULL),
                 0);
    while ((now = hwt_timer_now(timer)) < begin + HWT_MSEC(2))
        usleep(1000);
    cr_assert_eq(hwt_new_timeout_at(timer, put_stamp, &stamp, now, NULL), 0);
    await_stamp(&other);
    return await_stamp(&stamp) - now;
}

/* G4: while wake-ups are few, nothing is held until the tick is over. */
static void run_in_time(hwt_wheel_kind wheel, clockid_t clock, uint64_t tick,
                        uint64_t (*lateness)(hwt_timer *timer, uint64_t tick_ns))
{
    uint64_t late = UINT64_MAX;
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.tick_ns = tick;
    config.clock_id = clock;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (int i = 0; i < 5 && late > tick / 2; i++) /* this machine may be busy */
        late = lateness(timer, tick);
    cr_assert_leq(late, tick / 2);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(worker, alone_it_runs_at_its_deadline)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(50), lateness_alone);
}

WHEEL_TEST(worker, ten_in_a_tick_run_each_at_its_deadline)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(50), lateness_of_ten);
}

WHEEL_TEST(worker, two_thousand_a_second_need_not_wait_for_the_end_of_a_long_tick)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(200), lateness_of_many);
}

WHEEL_TEST(worker, two_hundred_of_one_deadline_do_not_wait_for_the_end_of_their_tick)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(50), lateness_of_a_bunch);
}

WHEEL_TEST(worker, an_earlier_one_in_the_same_tick_wakes_it)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(50), lateness_before_another);
}

/* G4: it was due when it was submitted. */
WHEEL_TEST(worker, what_a_task_behind_submits_does_not_wait_for_the_end_of_the_tick)
{
    run_in_time(wheel, CLOCK_MONOTONIC, HWT_MSEC(200), lateness_in_a_chain);
}

/* There the worker sleeps on a descriptor, which whoever submits sets. */
WHEEL_TEST(worker, by_boot_time_they_run_at_their_deadlines)
{
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(50), lateness_alone);
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(50), lateness_of_ten);
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(200), lateness_of_many);
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(50), lateness_of_a_bunch);
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(50), lateness_before_another);
    run_in_time(wheel, CLOCK_BOOTTIME, HWT_MSEC(200), lateness_in_a_chain);
}

/*
 * Three in each millisecond, which is a tick: in the long run one wake-up for each, after some that
 * were saved. On a busy machine there are fewer still.
 */
WHEEL_TEST(worker, many_share_the_wake_up_of_their_tick)
{
    enum { TICKS = 400 };
    hwt_timer *timer = timer_of_kind(wheel);
    uint64_t first = hwt_timer_now(timer) + HWT_MSEC(20), begin, took;

    for (unsigned i = 0; i < 3 * TICKS; i++)
        cr_assert_eq(hwt_new_timeout_at(timer, noop_task, NULL, first + i * HWT_USEC(333), NULL),
                     0);
    begin = hwt_timer_now(timer);
    cr_assert(wait_pending(timer, 0));
    took = (hwt_timer_now(timer) - begin) / HWT_MSEC(1);
    cr_assert_leq(stats_of(timer).wakeups, took + 50, "%lu wake-ups in %lu ms",
                  (unsigned long)stats_of(timer).wakeups, (unsigned long)took);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- periodic ---- */

WHEEL_TEST(worker, periodic_in_real_time)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};
    hwt_timer *timer = timer_of_kind(wheel);

    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        hwt_timeout *timeout;
        probe p = {0};
        hwt_spec spec;
        uint64_t first;

        probe_spec(&spec, &p, HWT_MSEC(2));
        spec.period_ns = HWT_MSEC(2);
        spec.period_mode = modes[m];
        first = hwt_timer_now(timer) + HWT_MSEC(2);
        cr_assert_eq(hwt_schedule(timer, &spec, &timeout), 0);
        cr_assert(wait_count(&p.runs, 25));
        cr_assert_geq(hwt_timer_now(timer), first + 24 * HWT_MSEC(2), "G1, G14");
        cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
        cr_assert_eq(p.early + p.overlapped, 0, "G14");
        cr_assert_eq(p.hooks, 1);
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
