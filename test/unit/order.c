/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=aligned_alloc */
/*
 * G15: tasks start in the order of their deadlines, to the nanosecond, those of one thread with the
 * same deadline in the order of submission; whatever way they came through lanes, wheel and agenda.
 * And G1 under a clock that jumps.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define TICK   HWT_MSEC(1)
#define ITEMS  40000
#define SPILLS 20000 /* more than a lane holds */

static _Atomic bool memory_is_short;

void *__real_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return memory_is_short ? NULL : __real_malloc(size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return memory_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

/* ---- a record of what ran ---- */

struct item {
    hwt_timeout *handle;
    unsigned thread;
};

struct run {
    uint64_t deadline;
    const struct item *item;
};

static rig r;
static uint64_t random_state;
static struct item items[ITEMS];
static size_t item_count;
static struct run runs[2 * ITEMS];
static atomic_uint run_count;
static bool executing;

static void start(void)
{
    test_arm();
    random_state = test_seed("order");
}

TestSuite(order, .init = start);

static void record(hwt_timeout *timeout, void *arg)
{
    uint64_t deadline = hwt_timeout_deadline(timeout);
    unsigned at = atomic_load(&run_count);

    cr_assert(executing || hwt_timer_now(hwt_timeout_timer(timeout)) >= deadline, "G1: early");
    runs[at] = (struct run){deadline, arg};
    atomic_store(&run_count, at + 1);
}

static bool in_turn(const struct run *before, const struct run *after)
{
    if (before->deadline != after->deadline)
        return before->deadline < after->deadline;
    /* items of one thread lie in the order of submission; a periodic one may follow itself */
    return before->item->thread != after->item->thread || before->item <= after->item;
}

/* Of equal deadlines two of one thread may have others between them. */
static void check_equal_ones(size_t from)
{
    const struct item *last[2] = {NULL, NULL};

    for (size_t i = from; i < run_count && runs[i].deadline == runs[from].deadline; i++) {
        const struct item *item = runs[i].item;
        cr_assert(!last[item->thread] || last[item->thread] <= item, "G15: equal ones, run %zu", i);
        last[item->thread] = item;
    }
}

static void check_order_from(size_t first)
{
    for (size_t i = first; i < run_count; i++) {
        if (i > first)
            cr_assert(in_turn(&runs[i - 1], &runs[i]), "G15: run %zu", i);
        if (i == first || runs[i].deadline != runs[i - 1].deadline)
            check_equal_ones(i);
    }
}

static void check_order(size_t count)
{
    cr_assert_eq(run_count, count, "%u of %zu ran", run_count, count);
    check_order_from(0);
}

/* ---- submitting ---- */

static void open_rig(hwt_wheel_kind wheel)
{
    item_count = 0;
    run_count = 0;
    executing = false;
    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
}

static void submit_at(uint64_t deadline)
{
    struct item *item = &items[item_count++];

    item->thread = 0;
    cr_assert_eq(hwt_new_timeout_at(r.timer, record, item, deadline, &item->handle), 0);
}

static void close_rig(void)
{
    for (size_t i = 0; i < item_count; i++)
        hwt_timeout_unref(items[i].handle);
    rig_close(&r);
}

static uint64_t below(uint64_t bound)
{
    return test_random_below(&random_state, bound);
}

static void all_in_one_advance(uint64_t ns)
{
    size_t before = run_count;

    cr_assert_eq(rig_advance_by(&r, ns), (int)(item_count - before));
    check_order_from(before);
    check_order(item_count);
}

/* ---- equal deadlines ---- */

static void equal_ones(hwt_wheel_kind wheel, size_t count, uint64_t delay)
{
    open_rig(wheel);
    for (size_t i = 0; i < count; i++)
        submit_at(r.clock.now + delay);
    all_in_one_advance(delay);
    close_rig();
}

WHEEL_TEST(order, five_of_one_delay)
{
    equal_ones(wheel, 5, TICK);
    equal_ones(wheel, 5, 0);
    equal_ones(wheel, 5, HWT_SEC(3600) + 7);
}

WHEEL_TEST(order, two_thousand_of_one_delay)
{
    equal_ones(wheel, 2000, TICK);
    equal_ones(wheel, 2000, TICK / 3);
    equal_ones(wheel, 2000, HWT_SEC(30));
}

/* Moved to one deadline each has the place of its submission; renewed, a new one. */
WHEEL_TEST(order, a_move_keeps_the_place_a_renewal_does_not)
{
    static const size_t expected[] = {0, 2, 3, 1};
    uint64_t deadline;

    open_rig(wheel);
    deadline = r.clock.now + 5 * TICK;
    submit_at(deadline + TICK);
    submit_at(deadline);
    submit_at(deadline - TICK);
    submit_at(deadline);
    cr_assert(hwt_timeout_reschedule_at(items[2].handle, deadline));
    cr_assert(hwt_timeout_reschedule_at(items[0].handle, deadline));
    cr_assert(hwt_timeout_cancel(items[1].handle));
    cr_assert_eq(hwt_timeout_renew(&items[1].handle, NULL, 5 * TICK), 0);
    cr_assert_eq(rig_advance_by(&r, 5 * TICK), 4);
    for (size_t i = 0; i < COUNT_OF(expected); i++)
        cr_assert_eq(runs[i].item, &items[expected[i]], "%zu", i);
    close_rig();
}

/* The spill of a lane hands out the last one first. */
WHEEL_TEST(order, through_the_spill)
{
    equal_ones(wheel, SPILLS, TICK);
    equal_ones(wheel, SPILLS, 0);
    equal_ones(wheel, SPILLS, HWT_SEC(100));
}

/* The same deadlines again and again, with other work between, and holes by cancellations. */
static void equal_among_others(uint64_t apart, size_t count)
{
    size_t cancelled = 0;

    for (size_t i = 0; i < count; i++) {
        submit_at(r.clock.now + TICK + below(3) * apart);
        submit_at(r.clock.now + below(HWT_SEC(5)));
        if (below(4) == 0)
            cancelled += hwt_timeout_cancel(items[below(item_count)].handle);
    }
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(5)), (int)(item_count - cancelled));
    check_order(item_count - cancelled);
}

WHEEL_TEST(order, equal_ones_among_others)
{
    static const uint64_t apart[] = {1, TICK / 2, 600 * TICK};

    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        open_rig(wheel);
        equal_among_others(apart[i], 6000);
        close_rig();
    }
}

/* ---- different deadlines ---- */

/* Not in the order of submission: to the nanosecond. */
WHEEL_TEST(order, shuffled_within_a_tick)
{
    static const size_t counts[] = {3, 5, 100, 2049, 5000, SPILLS};

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        open_rig(wheel);
        for (size_t n = 0; n < counts[i]; n++)
            submit_at(r.clock.now + 10 * TICK + 1 + below(TICK));
        all_in_one_advance(11 * TICK);
        close_rig();
    }
}

static void far_ones(uint64_t span, uint64_t groups)
{
    uint64_t now = r.clock.now;

    for (size_t i = 0; i < 8000; i++)
        submit_at(now + (groups ? 1 + below(groups) * (span / groups) : below(span)));
}

/* Down through the levels, in one jump, in many steps, and from deadline to deadline. */
static void walk_far_ones(uint64_t span, unsigned how)
{
    uint64_t end = r.clock.now + span;

    while (run_count < item_count) {
        uint64_t next = hwt_timer_next_deadline(r.timer);
        uint64_t now = how == 0 ? end : how == 1 ? next : r.clock.now + 1 + below(span / 50);
        cr_assert_geq(rig_advance_to(&r, now), how == 1);
    }
    check_order(item_count);
}

WHEEL_TEST(order, through_cascades)
{
    static const uint64_t spans[] = {HWT_SEC(1), HWT_SEC(600), HWT_SEC(86400 * 30)};

    for (size_t i = 0; i < COUNT_OF(spans); i++) {
        for (unsigned how = 0; how < 3; how++) {
            open_rig(wheel);
            far_ones(spans[i], i * 20);
            walk_far_ones(spans[i], how);
            close_rig();
        }
    }
}

/*
 * Exactly through one tick: every deadline is a next_deadline, and runs then. (A debug build looks
 * through all that is left with each step.)
 */
WHEEL_TEST(order, stepping_through_a_tick)
{
    enum { COUNT = 5000 };
    unsigned steps = 0;

    open_rig(wheel);
    for (size_t n = 0; n < COUNT; n++)
        submit_at(r.clock.now + HWT_SEC(1) + 1 + below(TICK));
    while (run_count < item_count) {
        uint64_t next = hwt_timer_next_deadline(r.timer);
        cr_assert_eq(rig_advance_to(&r, next - 1), 0, "G1");
        cr_assert_gt(rig_advance_to(&r, next), 0, "next_deadline is exact");
        cr_assert_eq(runs[run_count - 1].deadline, next);
        steps++;
    }
    cr_assert_gt(steps, COUNT * 9 / 10);
    check_order(item_count);
    close_rig();
}

/* ---- moves ---- */

/* Rank is by the new deadline; equal ones stay in the order of submission. */
static void move_some(uint64_t now, uint64_t span)
{
    for (size_t i = 0; i < item_count; i++) {
        uint64_t deadline = now + below(span) / 100 * 100;
        if (below(2))
            cr_assert(hwt_timeout_reschedule_at(items[i].handle, deadline));
    }
}

static void moved_ones(hwt_wheel_kind wheel, size_t count, uint64_t span, bool met_before)
{
    open_rig(wheel);
    for (size_t i = 0; i < count; i++)
        submit_at(r.clock.now + 1 + below(span) / 100 * 100);
    if (met_before)
        hwt_timer_next_deadline(r.timer);
    move_some(r.clock.now, span);
    move_some(r.clock.now, span);
    all_in_one_advance(span);
    close_rig();
}

WHEEL_TEST(order, moved_by_calls_that_returned)
{
    static const uint64_t spans[] = {TICK / 2, 3 * TICK, HWT_SEC(5), HWT_SEC(86400)};

    for (size_t i = 0; i < COUNT_OF(spans); i++) {
        moved_ones(wheel, 50, spans[i], i % 2);
        moved_ones(wheel, 3000, spans[i], true);
        moved_ones(wheel, SPILLS, spans[i], false);
    }
}

/* In the middle of a tick, what is left of it is in order already: moves must find their place. */
WHEEL_TEST(order, moved_within_the_tick_that_is_on)
{
    open_rig(wheel);
    for (size_t i = 0; i < 5000; i++)
        submit_at(r.clock.now + TICK + 1 + below(TICK));
    rig_advance_by(&r, TICK + TICK / 2);
    check_order_from(0);
    for (unsigned round = 0; round < 20; round++) {
        size_t before = run_count;
        for (size_t i = 0; i < item_count; i += 7)
            hwt_timeout_reschedule_at(items[i].handle, r.clock.now + 1 + below(2 * TICK));
        rig_advance_by(&r, TICK / 10);
        check_order_from(before);
    }
    rig_advance_by(&r, 2 * TICK);
    cr_assert_eq(run_count, item_count);
    close_rig();
}

/* ---- periodic ones ---- */

static struct item *submit_periodic(uint64_t first, uint64_t period)
{
    struct item *item = &items[item_count++];
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = record;
    spec.arg = item;
    spec.delay_ns = first;
    spec.period_ns = period;
    item->thread = 0;
    cr_assert_eq(hwt_schedule(r.timer, &spec, &item->handle), 0);
    return item;
}

/* Its missed runs take their turn among one-shots, due at the same deadlines and between. */
static void catching_up(hwt_wheel_kind wheel, uint64_t period)
{
    enum { BEATS = 300 };
    uint64_t epoch;

    open_rig(wheel);
    epoch = r.clock.now;
    for (uint64_t i = BEATS; i > 0; i -= 2)
        submit_at(epoch + i * period);
    submit_periodic(period, period);
    for (uint64_t i = 1; i <= BEATS; i++)
        submit_at(epoch + i * period + i % 2);
    cr_assert_eq(rig_advance_to(&r, epoch + BEATS * period + 1), BEATS + (int)item_count - 1);
    check_order(BEATS + item_count - 1);
    close_rig();
}

WHEEL_TEST(order, a_fixed_rate_catches_up_in_turn)
{
    catching_up(wheel, 10 * TICK);
    catching_up(wheel, TICK);
    catching_up(wheel, TICK / 7);
    catching_up(wheel, 2);
}

/* ---- the executor ---- */

static struct {
    void (*run)(void *);
    void *job;
} jobs[ITEMS];
static size_t job_count;

static int queue_job(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    jobs[job_count].run = run;
    jobs[job_count++].job = job;
    return 0;
}

WHEEL_TEST(order, handed_over_in_order)
{
    item_count = 0;
    run_count = 0;
    job_count = 0;
    rig_prepare(&r, wheel, test_epochs[1]);
    r.config.execute = queue_job;
    cr_assert_eq(rig_open(&r), 0);
    for (size_t i = 0; i < SPILLS; i++)
        submit_at(r.clock.now + 1 + below(3) * TICK + below(500));
    cr_assert_eq(rig_advance_by(&r, 4 * TICK), SPILLS);
    for (size_t i = 0; i < job_count; i++)
        jobs[i].run(jobs[i].job);
    check_order(SPILLS);
    close_rig();
}

/* ---- between CPUs ---- */

static void migrating(hwt_wheel_kind wheel, uint64_t delay, size_t count, size_t stay)
{
    open_rig(wheel);
    for (size_t i = 0; i < count; i++) {
        if (i % stay == 0 && !go_to_cpu((unsigned)(i / stay)))
            cr_skip_test("there is one CPU");
        submit_at(r.clock.now + delay + below(2));
    }
    all_in_one_advance(delay + 1);
    close_rig();
}

WHEEL_TEST(order, from_cpu_to_cpu)
{
    migrating(wheel, TICK, 3000, 1);
    migrating(wheel, HWT_SEC(2), 3000, 17);
    migrating(wheel, 0, ITEMS, 5000);
}

/* ---- without memory ---- */

WHEEL_TEST(order, without_memory)
{
    static const uint64_t spans[] = {2, TICK / 2, 40 * TICK, HWT_SEC(600)};

    for (size_t i = 0; i < COUNT_OF(spans); i++) {
        uint64_t end;
        open_rig(wheel);
        end = r.clock.now + spans[i];
        for (size_t n = 0; n < 3000; n++)
            submit_at(r.clock.now + 1 + below(spans[i]));
        memory_is_short = true;
        if (i % 2)
            walk_far_ones(spans[i] * 50, 2);
        else
            cr_assert_eq(rig_advance_to(&r, end), 3000);
        memory_is_short = false;
        check_order(3000);
        close_rig();
    }
}

/* ---- beside a worker ---- */

#define PRODUCERS 2
#define EACH      6000

static hwt_timer *timer;
static uint64_t first_deadline;

static void *produce(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg;
    struct item *item = &items[thread * EACH];
    uint64_t state = random_state + thread;

    for (size_t i = 0; i < EACH; i++, item++) {
        uint64_t deadline = first_deadline + test_random_below(&state, HWT_MSEC(3)) / 1000 * 1000;
        item->thread = thread;
        if (hwt_new_timeout_at(timer, record, item, deadline, &item->handle) != 0)
            return "not accepted";
    }
    return NULL;
}

static void two_producers(void)
{
    pthread_t thread[PRODUCERS];
    void *failure;

    for (uintptr_t i = 0; i < PRODUCERS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, produce, (void *)i), 0);
    for (size_t i = 0; i < PRODUCERS; i++) {
        cr_assert_eq(pthread_join(thread[i], &failure), 0);
        cr_assert_null(failure);
    }
}

static void wait_until(uint64_t deadline)
{
    while (hwt_timer_now(timer) < deadline)
        sleep_ms(1);
}

/* All is submitted while the worker is in a task; then its next pass has all of it. */
WHEEL_TEST(order, a_pass_of_the_worker)
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (unsigned round = 0; round < 5; round++) {
        gate g = {0};
        run_count = 0;
        cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
        cr_assert(wait_count(&g.entered, 1));
        first_deadline = hwt_timer_now(timer) + HWT_MSEC(5) * (round % 2);
        two_producers();
        wait_until(first_deadline + HWT_MSEC(5));
        gate_open(&g);
        cr_assert(wait_count(&run_count, PRODUCERS * EACH));
        check_order(PRODUCERS * EACH);
        for (size_t i = 0; i < PRODUCERS * EACH; i++)
            hwt_timeout_unref(items[i].handle);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- a clock that jumps (G1) ---- */

/* Far ahead, back again: what is scheduled then waits as long as the clock says. */
WHEEL_TEST(order, the_clock_goes_ahead_and_back)
{
    uint64_t now;

    for (unsigned advanced = 0; advanced < 2; advanced++) {
        open_rig(wheel);
        now = r.clock.now;
        submit_at(now + HWT_SEC(900));
        if (advanced)
            cr_assert_eq(rig_advance_to(&r, now + HWT_SEC(1800)), 1);
        else
            virtual_set(&r.clock, now + HWT_SEC(1800));
        virtual_set(&r.clock, now);
        for (unsigned i = 0; i < 3; i++)
            submit_at(now + HWT_SEC(10));
        submit_at(now + HWT_SEC(10) - 1);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), now + HWT_SEC(10) - 1);
        cr_assert_eq(hwt_timer_advance(r.timer), 0, "G1: early");
        cr_assert_eq(rig_advance_to(&r, now + HWT_SEC(10) - 2), 0, "G1: early");
        cr_assert_eq(rig_advance_to(&r, now + HWT_SEC(10) - 1), 1);
        cr_assert_eq(hwt_timer_next_deadline(r.timer), now + HWT_SEC(10));
        cr_assert_eq(rig_advance_to(&r, now + HWT_SEC(10)), 3);
        check_order_from(advanced);
        rig_advance_to(&r, now + HWT_SEC(900));
        cr_assert_eq(run_count, item_count);
        close_rig();
    }
}

static void set_clock_back(hwt_timeout *timeout, void *arg)
{
    record(timeout, arg);
    virtual_set(&r.clock, r.clock.now - HWT_SEC(1));
}

/* In the middle of a pass: what was due is not any more. */
WHEEL_TEST(order, a_task_sets_the_clock_back)
{
    uint64_t now;

    open_rig(wheel);
    now = r.clock.now;
    items[0].thread = 0;
    cr_assert_eq(
        hwt_new_timeout_at(r.timer, set_clock_back, &items[0], now + TICK, &items[0].handle), 0);
    item_count = 1;
    for (unsigned i = 0; i < 2000; i++)
        submit_at(now + TICK + i % 3);
    cr_assert_eq(rig_advance_to(&r, now + HWT_SEC(1) / 2), 1, "G1: early");
    cr_assert_eq(hwt_timer_advance(r.timer), 0, "G1: early");
    cr_assert_eq(rig_advance_to(&r, now + TICK), 667, "those that are due again");
    cr_assert_eq(rig_advance_to(&r, now + TICK + 2), 2000 - 667);
    check_order(item_count);
    close_rig();
}

/* Jumps ahead of any size run all in between, in order. */
WHEEL_TEST(order, the_clock_jumps_ahead)
{
    for (uint64_t jump = 1000; jump < HWT_SEC(86400 * 3650); jump *= 37) {
        open_rig(wheel);
        for (unsigned i = 0; i < 500; i++)
            submit_at(r.clock.now + 1 + below(jump));
        all_in_one_advance(jump);
        close_rig();
    }
}

/* ---- a task that moves others which are due, too ---- */

static hwt_timeout *overtaken[4];
static unsigned started[4], start_count;

static void note_start(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    started[start_count++] = (unsigned)((hwt_timeout **)arg - overtaken);
}

static void move_two(hwt_timeout *timeout, void *arg)
{
    note_start(timeout, arg);
    cr_assert(hwt_timeout_reschedule(overtaken[2], 0));
    cr_assert(hwt_timeout_reschedule(overtaken[1], 0));
}

/*
 * What it moves to "now" has a later deadline than all that is due in this pass, and comes after
 * that, whether in this pass or the next; Envoy's TimerOrderAndReschedule asks for it.
 */
WHEEL_TEST(order, what_a_task_moves_to_now_comes_after_what_is_due)
{
    static const unsigned expected[4] = {0, 3, 2, 1};

    for (uint64_t tick = HWT_USEC(10); tick <= HWT_MSEC(100); tick *= 10) {
        hwt_config config;

        hwt_config_init(&config);
        config.wheel = wheel;
        config.drive = HWT_DRIVE_CALLER;
        config.tick_ns = tick;
        start_count = 0;
        cr_assert_eq(hwt_timer_create(&timer, &config), 0);
        for (unsigned i = 0; i < 4; i++)
            cr_assert_eq(hwt_new_timeout(timer, i ? note_start : move_two, &overtaken[i],
                                         i * HWT_MSEC(1) / 2, &overtaken[i]),
                         0);
        sleep_ms(2);
        while (start_count < 4)
            cr_assert_geq(hwt_timer_advance(timer), 0);
        cr_assert_arr_eq(started, expected, sizeof expected);
        for (unsigned i = 0; i < 4; i++)
            hwt_timeout_unref(overtaken[i]);
        hwt_timer_destroy(timer);
    }
}
