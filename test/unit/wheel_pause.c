/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=bucket_take */
/*
 * After a pause of many laps: what has come due meanwhile is taken out of its buckets a few times,
 * however many of its neighbours are due at other ticks, and runs in order across the ticks (G15);
 * also if that is broken off in the middle.
 */
#include <pthread.h>

#include "wheel_oracle.h"

#define TICK     HWT_MSEC(1)
#define CAPACITY 9000
#define MOST     4 /* times that each is taken out of a bucket: filed anew, then part by part */

TestSuite(wheel_pause, .init = test_arm);

static size_t taken;

__typeof__(bucket_take) __real_bucket_take;
__typeof__(bucket_take) __wrap_bucket_take;

unsigned __wrap_bucket_take(struct bucket *bucket, struct chunk_store *store, uint64_t *out,
                            unsigned most, uint64_t *least)
{
    unsigned count = __real_bucket_take(bucket, store, out, most, least);
    taken += count;
    return count;
}

/* ---- the wheel alone ---- */

static uint64_t random_state;

static uint64_t below(uint64_t bound)
{
    return test_random_below(&random_state, bound);
}

static void open_wheel(struct oracle *o, hwt_wheel_kind kind, uint32_t slots)
{
    random_state = test_seed("pause");
    oracle_open(o, kind, TICK, slots, test_epochs[1], CAPACITY);
    o->shuffle = 15;
    o->random = random_state;
}

/* Within `span`, some with the same deadline, some at the very end of a tick. */
static void fill(struct oracle *o, size_t count, uint64_t span)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t deadline = o->now + 1 + below(span);
        if (i % 4 == 0)
            deadline -= deadline % (span / 64);
        else if (i % 4 == 1)
            deadline -= deadline % TICK;
        oracle_insert(o, max_u64(deadline, o->now + 1));
    }
}

/* Half of what is there is due at the end of the first pause, the rest of the second. */
static void two_pauses(hwt_wheel_kind kind, uint32_t slots, uint64_t laps)
{
    uint64_t pause = laps * slots * TICK;
    struct oracle o;

    open_wheel(&o, kind, slots);
    fill(&o, CAPACITY - 1000, 2 * pause);
    for (unsigned i = 1; i <= 2; i++) {
        size_t due = oracle_rank(&o, o.now + pause), there = o.count;
        taken = 0;
        cr_assert_eq(oracle_advance(&o, o.now + pause, true), due);
        cr_log_info("%u slots, %zu due of %zu: %zu taken", slots, due, there, taken);
        if (kind == HWT_WHEEL_HASHED) /* the other one has a level for every factor of `slots` */
            cr_assert_leq(taken, MOST * there);
        oracle_check_exact(&o);
    }
    cr_assert_eq(o.count, 0);
    oracle_close(&o);
}

WHEEL_TEST(wheel_pause, each_is_taken_a_few_times)
{
    static const uint32_t slots[] = {1, 2, 16, 64};

    for (size_t i = 0; i < COUNT_OF(slots); i++) {
        two_pauses(wheel, slots[i], 10000 / slots[i]);
        two_pauses(wheel, slots[i], 300000 / slots[i]);
    }
}

/* A tick that is alone in its bucket goes to the agenda as it is, however late. */
WHEEL_TEST(wheel_pause, ticks_of_one_lap)
{
    struct oracle o;

    open_wheel(&o, wheel, 512);
    fill(&o, 8000, 500 * TICK);
    taken = 0;
    cr_assert_eq(oracle_advance(&o, o.now + HWT_SEC(3600), true), 8000);
    cr_assert_leq(taken, 2 * 8000);
    oracle_close(&o);
}

/* So many of what is due, and no more. */
static void run_some(struct oracle *o, size_t count)
{
    while (count-- > 0) {
        hwt_timeout *timeout = wheel_take_due(o->wheel, o->now, true);
        cr_assert_not_null(timeout);
        oracle_check_turn(o, timeout);
        timeout->place = PLACE_ADRIFT; /* for what follows here: the wheel leaves it stale */
        oracle_forget(o, timeout);
    }
}

/* What is due, and what is not, moved either way, cancelled, filed. */
static void stir(struct oracle *o, uint64_t span)
{
    for (unsigned i = 0; i < 300; i++) {
        hwt_timeout *timeout = o->sorted[below(o->count)];
        switch (i % 5) {
        case 0: oracle_remove_over(o, timeout); break;
        case 1: oracle_remove(o, timeout); break;
        case 2: oracle_move_later(o, timeout, oracle_deadline(timeout) + below(span)); break;
        case 3:
            oracle_move_earlier(o, timeout, oracle_deadline(timeout) - below(span / 2));
            oracle_take_nudge(o);
            break;
        default: oracle_insert(o, o->now - span / 2 + below(span)); break;
        }
    }
    oracle_take_noticed(o);
}

/* As a visit does, and the pass after it. */
static void put_agenda_off(struct oracle *o)
{
    static hwt_timeout *off[CAPACITY];
    size_t count = 0;

    while ((off[count] = wheel_take_on_agenda(o->wheel)) != NULL)
        count++;
    cr_assert_geq(count, oracle_rank(o, o->wheel->covered), "W1");
    while (count-- > 0)
        wheel_insert(o->wheel, off[count], oracle_deadline(off[count]));
}

WHEEL_TEST(wheel_pause, broken_off)
{
    for (uint32_t slots = 1; slots <= 64; slots *= 8) {
        uint64_t pause = 20000 * TICK;
        struct oracle o;

        open_wheel(&o, wheel, slots);
        o.handles = true;
        fill(&o, 6000, 2 * pause);
        o.now += pause;
        for (unsigned round = 0; round < 4; round++) {
            run_some(&o, 400);
            oracle_check_exact(&o);
            stir(&o, pause);
            oracle_check_exact(&o);
            if (round % 2)
                put_agenda_off(&o);
            o.now += round * TICK;
        }
        oracle_advance(&o, o.now + pause / 2, true);
        oracle_check_exact(&o);
        run_some(&o, oracle_rank(&o, o.now));
        if (slots == 1)
            oracle_advance(&o, o.now + 3 * pause, true);
        oracle_drain(&o);
        oracle_close(&o);
    }
}

/* ---- a timer ---- */

#define ITEMS 4000
#define DUE   3000 /* of these */

static struct {
    rig r;
    hwt_timeout *handle[ITEMS];
    bool is_over[ITEMS]; /* cancelled, or moved in the pass: it need not run in order */
    unsigned ran, stop_after;
    uint64_t last;
    bool meddling;
} t;

/*
 * By turns a task cancels what is due, moves it either way, and schedules for now, which waits for
 * the next pass (G11).
 */
static void meddle(const hwt_timeout *own)
{
    size_t i = below(DUE);

    if (t.handle[i] == own) /* that would be re-arming */
        return;
    if (t.ran % 3 == 0)
        t.is_over[i] = hwt_timeout_cancel(t.handle[i]) || t.is_over[i];
    else if (t.ran % 3 == 1)
        t.is_over[i] = hwt_timeout_reschedule_at(t.handle[i], t.r.clock.now - HWT_SEC(50) +
                                                                  below(HWT_SEC(100))) ||
                       t.is_over[i];
    else
        cr_assert_eq(hwt_new_timeout(t.r.timer, noop_task, NULL, 0, NULL), 0);
}

static void check_run(hwt_timeout *timeout, void *arg)
{
    uint64_t deadline = hwt_timeout_deadline(timeout);
    const bool *is_over = arg;

    cr_assert_leq(deadline, t.r.clock.now, "G1");
    if (!*is_over) {
        cr_assert_geq(deadline, t.last, "G15");
        t.last = deadline;
    }
    if (++t.ran == t.stop_after)
        pthread_exit(NULL);
    if (t.meddling)
        meddle(timeout);
}

static void open_timer(hwt_wheel_kind wheel)
{
    uint64_t start = test_epochs[1];

    memset(&t, 0, sizeof t);
    random_state = test_seed("pause");
    rig_prepare(&t.r, wheel, start);
    t.r.config.ticks_per_wheel = 64;
    cr_assert_eq(rig_open(&t.r), 0);
    for (size_t i = 0; i < ITEMS; i++) {
        uint64_t deadline = start + 1 + below(HWT_SEC(100)) + (i < DUE ? 0 : HWT_SEC(100));
        cr_assert_eq(
            hwt_new_timeout_at(t.r.timer, check_run, &t.is_over[i], deadline, &t.handle[i]), 0);
    }
    hwt_timer_next_deadline(t.r.timer); /* all are in the wheel */
}

static void close_timer(void)
{
    for (size_t i = 0; i < ITEMS; i++)
        hwt_timeout_unref(t.handle[i]);
    rig_close(&t.r);
}

static void *advance(void *unused)
{
    (void)unused;
    rig_advance_by(&t.r, HWT_SEC(100));
    return NULL;
}

/* By a task that ends the thread. */
static void break_off_after(unsigned runs)
{
    pthread_t thread;

    t.stop_after = runs;
    cr_assert_eq(pthread_create(&thread, NULL, advance, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(t.ran, runs);
    t.stop_after = 0;
}

static uint64_t earliest_pending(void)
{
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < ITEMS; i++) {
        if (hwt_timeout_state(t.handle[i]) == HWT_PENDING)
            earliest = min_u64(earliest, hwt_timeout_deadline(t.handle[i]));
    }
    return earliest;
}

static void count_shown(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ++*(unsigned *)arg;
}

WHEEL_TEST(wheel_pause, a_task_ends_the_thread)
{
    unsigned cancelled = 0, shown = 0;

    open_timer(wheel);
    break_off_after(1000);
    cr_assert_eq(hwt_timer_next_deadline(t.r.timer), earliest_pending());
    for (size_t i = 0; i < ITEMS; i += 3)
        cancelled += hwt_timeout_cancel(t.handle[i]);
    cr_assert_eq(hwt_timer_next_deadline(t.r.timer), earliest_pending());
    cr_assert_eq(hwt_timer_visit(t.r.timer, count_shown, &shown), ITEMS - t.ran - cancelled);
    cr_assert_eq(shown, ITEMS - t.ran - cancelled);
    cr_assert_eq(hwt_timer_next_deadline(t.r.timer), earliest_pending());
    for (size_t i = 1; i < DUE; i += 3)
        hwt_timeout_reschedule_at(t.handle[i], t.r.clock.now + 1 + below(HWT_SEC(100)));
    t.last = 0;
    rig_advance_by(&t.r, 0);
    cr_assert_eq(hwt_timer_next_deadline(t.r.timer), earliest_pending());
    rig_advance_by(&t.r, HWT_SEC(100));
    cr_assert_eq(t.ran, ITEMS - cancelled);
    close_timer();
}

WHEEL_TEST(wheel_pause, stopped_in_the_middle)
{
    hwt_unprocessed list;
    unsigned left = 0;

    open_timer(wheel);
    break_off_after(700);
    cr_assert_eq(hwt_timer_stop(t.r.timer, &list), 0);
    for (size_t i = 0; i < ITEMS; i++)
        left += hwt_timeout_state(t.handle[i]) == HWT_CANCELLED;
    cr_assert_eq(left, ITEMS - 700);
    cr_assert_eq(list.count, left, "G2");
    for (hwt_timeout *back; (back = hwt_unprocessed_take(&list)) != NULL; left--)
        hwt_timeout_unref(back);
    cr_assert_eq(left, 0);
    close_timer();
}

WHEEL_TEST(wheel_pause, a_task_meddles)
{
    unsigned cancelled = 0;

    open_timer(wheel);
    t.meddling = true;
    cr_assert_leq(rig_advance_by(&t.r, HWT_SEC(100)), DUE);
    cr_assert_leq(hwt_timer_next_deadline(t.r.timer), t.r.clock.now, "some were for now");
    t.meddling = false;
    t.last = 0;
    rig_advance_by(&t.r, HWT_SEC(150));
    for (size_t i = 0; i < ITEMS; i++) {
        cancelled += hwt_timeout_state(t.handle[i]) == HWT_CANCELLED;
        cr_assert_neq(hwt_timeout_state(t.handle[i]), HWT_PENDING, "G4");
    }
    cr_assert_gt(cancelled, 0);
    cr_assert_eq(t.ran, ITEMS - cancelled, "G2");
    close_timer();
}
