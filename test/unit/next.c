/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=bucket_find,--wrap=bucket_look_through */
/*
 * hwt_timer_next_deadline: exact where it can be, never later than what a call that returned has
 * established, UINT64_MAX only when nothing is pending; and hwt_timer_advance beside it. What it
 * costs: check/next.sh.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "answer.h"
#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(next, .init = test_arm);

static rig r;

static uint64_t next(void)
{
    return hwt_timer_next_deadline(r.timer);
}

static hwt_timeout *submit_after(uint64_t delay)
{
    hwt_timeout *timeout;

    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, delay, &timeout), 0);
    return timeout;
}

static void submit(uint64_t delay)
{
    hwt_timeout_unref(submit_after(delay));
}

/* ---- outside of tasks: exact ---- */

WHEEL_TEST(next, follows_every_change)
{
    uint64_t epoch = test_epochs[1] + 12345, random = test_seed("next");
    hwt_timeout *handle[64] = {NULL};

    cr_assert_eq(rig_start(&r, wheel, epoch), 0);
    cr_assert_eq(next(), UINT64_MAX);
    for (unsigned step = 0; step < 5000; step++) {
        hwt_timeout **chosen = &handle[test_random_below(&random, COUNT_OF(handle))];
        uint64_t delay = 1 + test_random_below(&random, TICK << test_random_below(&random, 30));
        uint64_t earliest = UINT64_MAX;
        if (!*chosen)
            *chosen = submit_after(delay);
        else if (step % 3 == 0)
            cr_assert(hwt_timeout_cancel(*chosen));
        else
            cr_assert(hwt_timeout_reschedule(*chosen, delay));
        for (size_t i = 0; i < COUNT_OF(handle); i++) {
            if (handle[i] && hwt_timeout_state(handle[i]) != HWT_PENDING) {
                hwt_timeout_unref(handle[i]);
                handle[i] = NULL;
            }
            if (handle[i] && hwt_timeout_deadline(handle[i]) < earliest)
                earliest = hwt_timeout_deadline(handle[i]);
        }
        cr_assert_eq(next(), earliest);
        cr_assert_eq(next(), earliest);
        if (step % 16 == 0 && earliest != UINT64_MAX)
            cr_assert_gt(rig_advance_to(&r, earliest), 0);
        for (size_t i = 0; i < COUNT_OF(handle); i++) {
            if (handle[i] && hwt_timeout_state(handle[i]) != HWT_PENDING) {
                hwt_timeout_unref(handle[i]);
                handle[i] = NULL;
            }
        }
    }
    for (size_t i = 0; i < COUNT_OF(handle); i++)
        hwt_timeout_unref(handle[i]);
    rig_close(&r);
}

/* ---- where many lie together ---- */

static unsigned crowds_looked_through;

__typeof__(bucket_find) __real_bucket_find;
__typeof__(bucket_find) __wrap_bucket_find;

static size_t slots_walked;

struct sighting __wrap_bucket_find(struct bucket *bucket, struct chunk_store *store, uint64_t key,
                                   size_t *walked)
{
    size_t before = *walked;
    struct sighting found = __real_bucket_find(bucket, store, key, walked);

    crowds_looked_through++;
    slots_walked += *walked - before;
    return found;
}

#define CROWD_AT HWT_SEC(8 * 3600)

static uint64_t earliest_of(hwt_timeout *const *handle, size_t count)
{
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < count; i++)
        earliest = min_u64(earliest, hwt_timeout_deadline(handle[i]));
    return earliest;
}

/* Far away, in one bucket: the earliest ends or moves, and earlier ones come and go. */
WHEEL_TEST(next, follows_every_change_of_a_crowd)
{
    uint64_t random = test_seed("crowd"), crowd, earliest;
    hwt_timeout *handle[400], *near;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    crowd = r.clock.now + CROWD_AT;
    for (size_t i = 0; i < COUNT_OF(handle); i++) {
        cr_assert_eq(hwt_new_timeout_at(r.timer, noop_task, NULL,
                                        crowd + test_random_below(&random, HWT_MSEC(1)),
                                        &handle[i]),
                     0);
    }
    for (unsigned step = 0; step < 6000; step++) {
        size_t i = test_random_below(&random, COUNT_OF(handle));
        uint64_t anew = crowd + test_random_below(&random, HWT_MSEC(1));

        earliest = earliest_of(handle, COUNT_OF(handle));
        cr_assert_eq(next(), earliest);
        near = submit_after(1 + test_random_below(&random, HWT_SEC(5)));
        cr_assert_eq(next(), hwt_timeout_deadline(near));
        cr_assert(hwt_timeout_cancel(near));
        hwt_timeout_unref(near);
        while (step % 2 && hwt_timeout_deadline(handle[i]) != earliest)
            i = (i + 1) % COUNT_OF(handle);
        if (step % 3) {
            cr_assert(hwt_timeout_reschedule_at(handle[i], anew));
            continue;
        }
        cr_assert(hwt_timeout_cancel(handle[i]));
        hwt_timeout_unref(handle[i]);
        cr_assert_eq(hwt_new_timeout_at(r.timer, noop_task, NULL, anew, &handle[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(handle); i++)
        hwt_timeout_unref(handle[i]);
    rig_close(&r);
}

/* As requests are answered while a million sessions lie far away. */
WHEEL_TEST(next, a_crowd_is_looked_through_once)
{
    uint64_t random = test_seed("once"), earliest;
    hwt_timeout *near;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    for (size_t i = 0; i < 20000; i++)
        submit(CROWD_AT + test_random_below(&random, HWT_USEC(10)));
    earliest = next();
    crowds_looked_through = 0;
    for (unsigned i = 0; i < 1000; i++) {
        near = submit_after(HWT_MSEC(1));
        cr_assert_eq(next(), r.clock.now + HWT_MSEC(1));
        if (i % 2)
            cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 1);
        else
            cr_assert(hwt_timeout_cancel(near));
        hwt_timeout_unref(near);
        cr_assert_eq(next(), earliest);
    }
    cr_assert_leq(crowds_looked_through, 1);
    rig_close(&r);
}

/*
 * Many of a bucket, all later: one is armed, asked for and cancelled, always for the same time.
 * What is asked for after that is of another bucket, a crowd as well.
 */
static void arm_again_and_again(size_t later, bool ask_after)
{
    const uint64_t lap = 512 * TICK, turns = 20000;
    hwt_timeout *armed;

    for (size_t i = 0; i < later; i++)
        submit(HWT_SEC(1) + (1 + i % 1000) * lap);
    for (size_t i = 0; i < 20; i++)
        submit(HWT_SEC(1) + 10 * TICK);
    slots_walked = 0;
    for (unsigned i = 0; i < turns; i++) {
        armed = submit_after(HWT_SEC(1));
        cr_assert_eq(next(), r.clock.now + HWT_SEC(1));
        cr_assert(hwt_timeout_cancel(armed));
        hwt_timeout_unref(armed);
        if (ask_after)
            cr_assert_eq(next(), r.clock.now + HWT_SEC(1) + 10 * TICK);
    }
    cr_assert_leq(slots_walked / turns, ask_after ? later + 150 : 1 + later / 100);
}

WHEEL_TEST(next, armed_again_and_again_for_the_same_time)
{
    for (unsigned i = 0; i < 6; i++) {
        cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
        arm_again_and_again(i % 3 == 0 ? 20 : i % 3 == 1 ? 200 : 5000, i >= 3);
        rig_close(&r);
    }
}

static void take_handle_of_earliest(hwt_timeout *timeout, void *taken)
{
    if (hwt_timeout_deadline(timeout) == r.clock.now + CROWD_AT + 1)
        *(hwt_timeout **)taken = hwt_timeout_ref(timeout);
}

/* Nobody holds them until a visitor does: its first is not where it was seen any more. */
WHEEL_TEST(next, of_a_crowd_after_a_visit)
{
    hwt_timeout *first, *taken = NULL;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    first = submit_after(CROWD_AT);
    for (size_t i = 0; i < 400; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, CROWD_AT + 400 - i, NULL), 0);
    cr_assert_eq(next(), hwt_timeout_deadline(first));
    cr_assert(hwt_timeout_cancel(first));
    hwt_timeout_unref(first);
    cr_assert_eq(next(), r.clock.now + CROWD_AT + 1);
    cr_assert_eq(hwt_timer_visit(r.timer, take_handle_of_earliest, &taken), 400);
    cr_assert_not_null(taken);
    cr_assert_eq(next(), r.clock.now + CROWD_AT + 1);
    hwt_timeout_unref(taken);
    rig_close(&r);
}

/* Answered in the order in which they were sent. */
WHEEL_TEST(next, requests_that_are_answered_in_order)
{
    hwt_timeout *sent[2000];
    unsigned turns = 20000;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    for (size_t i = 0; i < COUNT_OF(sent); i++, virtual_add(&r.clock, HWT_USEC(100)))
        sent[i] = submit_after(HWT_SEC(30));
    next();
    crowds_looked_through = 0;
    for (unsigned i = 0; i < turns; i++, virtual_add(&r.clock, HWT_USEC(100))) {
        hwt_timeout **first = &sent[i % COUNT_OF(sent)];

        cr_assert(hwt_timeout_cancel(*first));
        hwt_timeout_unref(*first);
        *first = submit_after(HWT_SEC(30));
        cr_assert_eq(hwt_timer_advance(r.timer), 0);
        cr_assert_eq(next(), hwt_timeout_deadline(sent[(i + 1) % COUNT_OF(sent)]));
    }
    cr_assert_leq(crowds_looked_through, turns / 16);
    for (size_t i = 0; i < COUNT_OF(sent); i++)
        hwt_timeout_unref(sent[i]);
    rig_close(&r);
}

/* What has been looked at before is not believed for ever: its block may be another's by now. */
WHEEL_TEST(next, after_the_earliest_is_gone)
{
    uint64_t epoch = test_epochs[1];

    cr_assert_eq(rig_start(&r, wheel, epoch), 0);
    for (unsigned i = 0; i < 2000; i++) {
        hwt_timeout *timeout = submit_after(HWT_SEC(5) + i);
        cr_assert_eq(next(), r.clock.now + HWT_SEC(5) + i);
        if (i % 3 == 0)
            cr_assert(hwt_timeout_reschedule_at(timeout, epoch / 2));
        if (i % 3 == 1)
            cr_assert_gt(rig_advance_by(&r, HWT_SEC(5) + i), 0);
        if (i % 3 == 2 || i % 2)
            hwt_timeout_cancel(timeout);
        if (i % 3 == 0 && i % 2 == 0)
            cr_assert_eq(next(), epoch / 2, "due now, or before");
        cr_assert_eq(hwt_timer_advance(r.timer), i % 3 == 0 && i % 2 == 0);
        hwt_timeout_unref(timeout);
        cr_assert_eq(next(), UINT64_MAX);
    }
    rig_close(&r);
}

static uint64_t turn(void)
{
    return load_relaxed(&r.timer->answer.turn);
}

/* C22: nobody drives to be told again; what others change is seen all the same. */
WHEEL_TEST(next, asking_again_drives_nobody)
{
    hwt_timeout *first, *second;
    uint64_t before;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    first = submit_after(HWT_SEC(5));
    second = submit_after(HWT_SEC(9));
    cr_assert_eq(next(), HWT_SEC(1005));
    before = turn();
    for (unsigned i = 0; i < 10; i++)
        cr_assert_eq(next(), HWT_SEC(1005));
    hwt_timeout_unref(submit_after(HWT_SEC(7))); /* later: the answer stands */
    cr_assert(hwt_timeout_reschedule(second, HWT_SEC(10)));
    cr_assert_eq(next(), HWT_SEC(1005));
    cr_assert_eq(turn(), before);
    cr_assert(hwt_timeout_reschedule(second, HWT_SEC(4)));
    cr_assert_eq(next(), HWT_SEC(1004));
    cr_assert(hwt_timeout_cancel(second));
    cr_assert_eq(next(), HWT_SEC(1005));
    cr_assert(hwt_timeout_reschedule(first, HWT_SEC(8)));
    cr_assert_eq(next(), HWT_SEC(1007));
    submit(HWT_SEC(1));
    cr_assert_eq(next(), HWT_SEC(1001));
    cr_assert_gt(turn(), before);
    hwt_timeout_unref(first);
    hwt_timeout_unref(second);
    rig_close(&r);
}

static void ask_and_advance(uint64_t second, bool answered, bool leaves)
{
    uint64_t before = turn();

    cr_assert_eq(before % 2 == 0, answered);
    cr_assert_eq(next(), HWT_SEC(1000 + second));
    cr_assert_eq(turn() == before, answered);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1000 + second)), 1);
    cr_assert_eq(turn() % 2 == 0, leaves);
}

/* What is no answer is not told either: beside stop, nobody else has anything to say then. */
WHEEL_TEST(next, an_answer_that_does_not_stand_is_not_told)
{
    uint64_t told = UINT64_MAX;
    hwt_timeout *first;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    first = submit_after(HWT_SEC(5));
    cr_assert_eq(next(), HWT_SEC(1005));
    cr_assert(answer_read(r.timer, &told));
    cr_assert_eq(told, HWT_SEC(1005));
    cr_assert(hwt_timeout_cancel(first));
    told = UINT64_MAX;
    cr_assert_not(answer_read(r.timer, &told));
    cr_assert_eq(told, UINT64_MAX);
    hwt_timeout_unref(first);
    rig_close(&r);
}

/* Who asks in turns with advancing: the advance leaves the answer, unless much comes in between. */
static hwt_timeout *moved_one;

static void move_to(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    cr_assert(hwt_timeout_reschedule_at(moved_one, *(uint64_t *)arg));
}

/* Moved to the clock's first moments by a task of the pass that had put it off, and cancelled. */
WHEEL_TEST(next, of_none_after_a_move_to_the_beginning)
{
    for (uint64_t at = 0; at < 2; at++) {
        hwt_timeout *first;

        rig_prepare(&r, wheel, HWT_SEC(5));
        r.config.tick_ns = HWT_SEC(1);
        cr_assert_eq(rig_open(&r), 0);
        first = submit_after(1);
        moved_one = submit_after(10);
        cr_assert_eq(hwt_new_timeout(r.timer, move_to, &at, 20, NULL), 0);
        cr_assert_eq(rig_advance_by(&r, 1), 1); /* the others lie ready */
        cr_assert(hwt_timeout_reschedule(moved_one, HWT_SEC(7200)));
        next();
        cr_assert_eq(rig_advance_by(&r, 30), 1);
        cr_assert_eq(next(), at);
        cr_assert(hwt_timeout_cancel(moved_one));
        cr_assert_eq(next(), UINT64_MAX);
        hwt_timeout_unref(first);
        hwt_timeout_unref(moved_one);
        rig_close(&r);
    }
}

/* As beside threads that move others all the time: what has run, or was cancelled, is not next. */
WHEEL_TEST(next, beside_one_who_moves_another)
{
    uint64_t epoch = HWT_SEC(5), guest, told;
    hwt_timeout *soon, *other, *moved;

    cr_assert_eq(rig_start(&r, wheel, epoch), 0);
    submit(HWT_MSEC(5));
    soon = submit_after(HWT_MSEC(7));
    other = submit_after(HWT_SEC(1000));
    moved = submit_after(HWT_SEC(3600));
    guest = timer_sign_in(r.timer);
    cr_assert_eq(next(), epoch + HWT_MSEC(5));
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(5)), 1);
    cr_assert_eq(next(), epoch + HWT_MSEC(7));
    cr_assert(hwt_timeout_cancel(soon));
    cr_assert_eq(next(), epoch + HWT_SEC(1000));
    told = epoch + HWT_SEC(2000);
    cr_assert(hwt_timeout_reschedule_at(moved, told));
    cr_assert_eq(next(), epoch + HWT_SEC(1000));
    cr_assert(hwt_timeout_cancel(other));
    cr_assert_eq(next(), told);
    cr_assert(hwt_timeout_reschedule_at(moved, 2 * told));
    cr_assert_leq(next(), 2 * told);
    timer_sign_out(r.timer, guest);
    cr_assert_eq(next(), 2 * told);
    hwt_timeout_unref(soon);
    hwt_timeout_unref(other);
    hwt_timeout_unref(moved);
    rig_close(&r);
}

WHEEL_TEST(next, is_answered_by_the_advance_before)
{
    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    for (unsigned i = 1; i <= 20; i++)
        submit(HWT_SEC(i));
    ask_and_advance(1, false, false); /* all of them came */
    ask_and_advance(2, false, true);
    for (uint64_t i = 3; i < 10; i++)
        ask_and_advance(i, true, true);
    cr_assert_eq(rig_advance_to(&r, HWT_SEC(1010)), 1, "nobody has asked ...");
    cr_assert_eq(turn() % 2, 1, "... so there is no answer");
    ask_and_advance(11, false, true);
    submit(HWT_MSEC(500));
    cr_assert_eq(next(), HWT_MSEC(1011500));
    cr_assert_eq(rig_advance_to(&r, HWT_MSEC(1011500)), 1);
    cr_assert_eq(turn() % 2, 1, "this time it would not have been the answer");
    ask_and_advance(12, false, true);
    ask_and_advance(13, true, true);
    rig_close(&r);
}

WHEEL_TEST(next, never_is_not_a_deadline)
{
    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    submit(UINT64_MAX);
    cr_assert_eq(next(), UINT64_MAX);
    submit(HWT_SEC(1));
    cr_assert_eq(next(), r.clock.now + HWT_SEC(1));
    rig_close(&r);
}

/* ---- inside a task: exact too, what is due now counts as now or earlier ---- */

struct scene {
    uint64_t period, delay;
    void (*play)(hwt_timeout *self, uint64_t now);
};

static void play_scene(hwt_timeout *timeout, void *arg)
{
    const struct scene *scene = arg;

    scene->play(timeout, hwt_timer_now(r.timer));
}

static void inside_a_task(hwt_wheel_kind wheel, uint64_t period,
                          void (*play)(hwt_timeout *self, uint64_t now))
{
    struct scene scene = {.period = period, .play = play};
    hwt_spec spec;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1] + 777), 0);
    hwt_spec_init(&spec);
    spec.task = play_scene;
    spec.arg = &scene;
    spec.delay_ns = HWT_SEC(1);
    spec.period_ns = period;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_geq(rig_advance_by(&r, HWT_SEC(1)), 1);
    rig_close(&r);
}

static void nothing_else(hwt_timeout *self, uint64_t now)
{
    (void)self;
    (void)now;
    cr_assert_eq(next(), UINT64_MAX, "it is running, and not pending");
}

static void new_ones(hwt_timeout *self, uint64_t now)
{
    hwt_timeout *timeout;

    (void)self;
    submit(HWT_SEC(3600));
    cr_assert_eq(next(), now + HWT_SEC(3600));
    timeout = submit_after(5);
    cr_assert_eq(next(), now + 5);
    cr_assert(hwt_timeout_reschedule(timeout, 3));
    cr_assert_eq(next(), now + 3, "moved earlier after a look ahead");
    cr_assert(hwt_timeout_reschedule(timeout, TICK));
    cr_assert_eq(next(), now + TICK);
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(next(), now + HWT_SEC(3600));
    hwt_timeout_unref(timeout);
    submit(0);
    cr_assert_leq(next(), now, "due now");
}

/* One that waits for the next pass is cancelled, or goes on with its life. */
static void due_no_more(hwt_timeout *self, uint64_t now)
{
    hwt_timeout *timeout = submit_after(0), *other = submit_after(0);

    (void)self;
    cr_assert_leq(next(), now);
    cr_assert(hwt_timeout_cancel(other));
    cr_assert_leq(next(), now);
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(10)));
    cr_assert_eq(next(), now + HWT_SEC(10));
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(next(), UINT64_MAX);
    hwt_timeout_unref(timeout);
    hwt_timeout_unref(other);
}

static void own_rearm(hwt_timeout *self, uint64_t now)
{
    if (now != test_epochs[1] + 777 + HWT_SEC(1))
        return;
    submit(HWT_SEC(50));
    cr_assert_eq(next(), now + HWT_SEC(50));
    cr_assert(hwt_timeout_reschedule(self, HWT_SEC(20)));
    cr_assert_eq(next(), now + HWT_SEC(20));
    cr_assert(hwt_timeout_reschedule(self, HWT_SEC(60)));
    cr_assert_eq(next(), now + HWT_SEC(50));
    cr_assert(hwt_timeout_reschedule(self, 0));
    cr_assert_leq(next(), now);
    cr_assert(hwt_timeout_cancel(self));
    cr_assert_eq(next(), now + HWT_SEC(50));
}

static void own_period(hwt_timeout *self, uint64_t now)
{
    cr_assert_eq(next(), now + HWT_SEC(7));
    submit(HWT_SEC(9));
    cr_assert_eq(next(), now + HWT_SEC(7));
    cr_assert(hwt_timeout_cancel(self));
    cr_assert_eq(next(), now + HWT_SEC(9));
}

WHEEL_TEST(next, in_a_task)
{
    inside_a_task(wheel, 0, nothing_else);
    inside_a_task(wheel, 0, new_ones);
    inside_a_task(wheel, 0, own_rearm);
    inside_a_task(wheel, HWT_SEC(7), own_period);
}

WHEEL_TEST(next, in_a_task_what_was_due_is_not)
{
    inside_a_task(wheel, 0, due_no_more);
}

static void look_at_next(hwt_timeout *timeout, void *arg)
{
    atomic_uint *left = arg;

    (void)timeout;
    if (atomic_fetch_sub(left, 1) > 1)
        cr_assert_leq(next(), hwt_timer_now(r.timer), "others are due in this pass");
    else
        cr_assert_eq(next(), UINT64_MAX);
}

/* Those of this pass that have not run yet are due now. */
WHEEL_TEST(next, in_a_task_with_others_due)
{
    static const uint64_t apart[] = {0, 1, TICK / 3, 700 * TICK};

    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        atomic_uint left = 2000;
        cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
        for (unsigned n = 0; n < 2000; n++)
            cr_assert_eq(hwt_new_timeout(r.timer, look_at_next, &left, n * apart[i], NULL), 0);
        cr_assert_eq(rig_advance_by(&r, 2000 * apart[i]), 2000);
        rig_close(&r);
    }
}

static void submit_for_now_and_ask(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    cr_assert_eq(hwt_new_timeout(r.timer, count_task, arg, 0, NULL), 0);
    cr_assert_leq(next(), hwt_timer_now(r.timer));
}

/* G11: to ask takes in what was submitted in a task, but it is run in a later pass. */
WHEEL_TEST(next, in_a_task_takes_in_for_the_next_pass)
{
    atomic_uint ran = 0;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, submit_for_now_and_ask, &ran, HWT_SEC(1), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1);
    cr_assert_eq(atomic_load(&ran), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(atomic_load(&ran), 1);
    rig_close(&r);
}

/* ---- beside another thread ---- */

static void *ask_once(void *said)
{
    *(uint64_t *)said = next();
    return NULL;
}

/* C15: what the task has been told, others may be told. */
static void own_next_run(hwt_timeout *self, uint64_t now)
{
    bool periodic = hwt_timer_pending(r.timer) > 0; /* one that runs once is not, by now */
    uint64_t said = 0;
    pthread_t thread;

    if (now != test_epochs[1] + 777 + HWT_SEC(1))
        return;
    if (!periodic)
        cr_assert(hwt_timeout_reschedule(self, HWT_SEC(20)));
    cr_assert_eq(next(), now + HWT_SEC(20));
    cr_assert_eq(pthread_create(&thread, NULL, ask_once, &said), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_leq(said, now + HWT_SEC(20), "later than a re-arm that has returned");
}

WHEEL_TEST(next, while_a_task_looks)
{
    inside_a_task(wheel, 0, own_next_run);
    inside_a_task(wheel, HWT_SEC(20), own_next_run);
}

static void *advance_once(void *arg)
{
    *(int *)arg = hwt_timer_advance(r.timer);
    return NULL;
}

/* While another thread is in advance: never later than what a call that returned established. */
WHEEL_TEST(next, while_another_advances)
{
    hwt_timeout *far_one, *near_one;
    gate g = {0};
    pthread_t thread;
    int ran;

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    far_one = submit_after(HWT_SEC(3600));
    cr_assert_eq(hwt_new_timeout(r.timer, gate_task, &g, 0, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_once, &ran), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_leq(next(), r.clock.now + HWT_SEC(3600));
    near_one = submit_after(HWT_SEC(10));
    cr_assert_leq(next(), r.clock.now + HWT_SEC(10));
    cr_assert(hwt_timeout_reschedule(far_one, HWT_SEC(5)));
    cr_assert_leq(next(), r.clock.now + HWT_SEC(5));
    cr_assert(hwt_timeout_reschedule(near_one, HWT_SEC(2)));
    cr_assert_leq(next(), r.clock.now + HWT_SEC(2));
    cr_assert_eq(hwt_timer_advance(r.timer), -EBUSY, "a second advance");
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(ran, 1);
    cr_assert_eq(next(), r.clock.now + HWT_SEC(2));
    hwt_timeout_unref(far_one);
    hwt_timeout_unref(near_one);
    rig_close(&r);
}

static void *ask(void *arg)
{
    *(uint64_t *)arg = hwt_timer_next_deadline(r.timer);
    return NULL;
}

static uint64_t next_elsewhere(void)
{
    uint64_t said = 0;
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, ask, &said), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    return said;
}

/* What a task has re-armed is known to others at once, also if it asks itself meanwhile. */
static void rearm_and_ask(hwt_timeout *self, uint64_t now)
{
    if (now != test_epochs[1] + 777 + HWT_SEC(1))
        return;
    submit(HWT_SEC(50));
    cr_assert(hwt_timeout_reschedule(self, HWT_SEC(20)));
    cr_assert_leq(next_elsewhere(), now + HWT_SEC(20));
    cr_assert_eq(next(), now + HWT_SEC(20));
    cr_assert_leq(next_elsewhere(), now + HWT_SEC(20));
}

WHEEL_TEST(next, while_a_task_has_rearmed)
{
    inside_a_task(wheel, 0, rearm_and_ask);
}

/* ---- with an executor ---- */

static void (*run_handed_over)(void *job);
static void *handed_over;

static int take_over(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run_handed_over = run;
    handed_over = job;
    return 0;
}

/* Nobody is in advance; the worker's part has taken in what the re-arm told it. */
static void rearm_on_executor(hwt_timeout *timeout, void *arg)
{
    uint64_t now = hwt_timer_now(r.timer);

    (void)arg;
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(20)));
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(next(), now + HWT_SEC(20));
        cr_assert_eq(next_elsewhere(), now + HWT_SEC(20));
    }
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(60)));
    cr_assert_eq(next_elsewhere(), now + HWT_SEC(50));
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(30)));
    cr_assert_eq(hwt_timer_advance(r.timer), -EDEADLK);
    cr_assert_eq(next_elsewhere(), now + HWT_SEC(30));
}

WHEEL_TEST(next, rearmed_on_an_executor)
{
    rig_prepare(&r, wheel, test_epochs[1]);
    r.config.execute = take_over;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, rearm_on_executor, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1);
    submit(HWT_SEC(50));
    run_handed_over(handed_over);
    cr_assert_eq(next(), r.clock.now + HWT_SEC(30));
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    rig_close(&r);
}

/* Nobody has told the worker of it: the run itself knows. */
static void ask_for_its_own(hwt_timeout *timeout, void *arg)
{
    (void)timeout, (void)arg;
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(next(), hwt_timer_now(r.timer) + HWT_SEC(1));
}

WHEEL_TEST(next, of_a_periodic_one_on_an_executor)
{
    hwt_spec spec;

    rig_prepare(&r, wheel, test_epochs[1]);
    r.config.execute = take_over;
    cr_assert_eq(rig_open(&r), 0);
    hwt_spec_init(&spec);
    spec.task = ask_for_its_own;
    spec.delay_ns = spec.period_ns = HWT_SEC(1);
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    submit(HWT_SEC(50));
    for (unsigned asked = 0; asked < 5; asked++) { /* before: an answer may have been left */
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 1);
        for (unsigned i = 0; i < asked; i++)
            cr_assert_eq(next(), test_epochs[1] + HWT_SEC(50), "it is with the executor");
        run_handed_over(handed_over);
        cr_assert_eq(next(), r.clock.now + HWT_SEC(1), "it has come back");
    }
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    rig_close(&r);
}

/* More of them at once than have a place in a lane, one in the other. */
#define DEEP 40

static void *queued[DEEP];
static unsigned queued_count, depth;

static int take_into_queue(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run_handed_over = run;
    queued[queued_count++] = job;
    return 0;
}

/* Whose re-arming the worker can see: in the end none, so that there is room for the next ones. */
static unsigned shown(void)
{
    unsigned count = load_relaxed(&r.timer->rearmed);
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&r.timer->lanes, &i)) != NULL;) {
        for (unsigned place = 0; place < LANE_REARMED; place++)
            count += load_relaxed(&lane->rearmed[place]) != NULL;
    }
    return count;
}

/* Each re-arms for an earlier time than the one outside of it, the last one for a later time. */
static void rearm_and_run_another(hwt_timeout *timeout, void *arg)
{
    uint64_t now = hwt_timer_now(r.timer), mine = HWT_SEC(100 - (int)depth);
    uint64_t all = HWT_SEC(100 - DEEP + 2);

    (void)arg;
    if (depth == DEEP - 1)
        mine = HWT_SEC(1000);
    cr_assert(hwt_timeout_reschedule(timeout, mine));
    depth++;
    cr_assert_eq(shown(), depth);
    cr_assert_eq(next_elsewhere(), now + (mine == HWT_SEC(1000) ? all : mine));
    if (depth < DEEP)
        run_handed_over(queued[depth]);
    cr_assert_eq(next_elsewhere(), now + all, "the others have come back, or run on");
    if (mine == all) { /* moved on, by its own run: then it is the next one's turn */
        cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(2000)));
        cr_assert_eq(next_elsewhere(), now + all + HWT_SEC(1));
        cr_assert(hwt_timeout_reschedule(timeout, all));
    }
}

WHEEL_TEST(next, many_rearmed_on_an_executor)
{
    rig_prepare(&r, wheel, test_epochs[1]);
    r.config.execute = take_into_queue;
    cr_assert_eq(rig_open(&r), 0);
    depth = queued_count = 0;
    for (unsigned i = 0; i < DEEP; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, rearm_and_run_another, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), DEEP);
    run_handed_over(queued[0]);
    cr_assert_eq(shown(), 0);
    cr_assert_eq(hwt_timer_pending(r.timer), DEEP);
    cr_assert_eq(next(), r.clock.now + HWT_SEC(100 - DEEP + 2));
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    rig_close(&r);
}

static atomic_uint times_looked_through;
static atomic_uint handed_to_queue;

void __real_bucket_look_through(struct bucket *bucket, bucket_look *look, void *context);
void __wrap_bucket_look_through(struct bucket *bucket, bucket_look *look, void *context);

void __wrap_bucket_look_through(struct bucket *bucket, bucket_look *look, void *context)
{
    atomic_fetch_add(&times_looked_through, 1);
    __real_bucket_look_through(bucket, look, context);
}

static int take_from_worker(void *executor, void (*run)(void *job), void *job)
{
    unsigned at = atomic_load(&handed_to_queue);

    (void)executor;
    run_handed_over = run;
    if (at < DEEP)
        queued[at] = job;
    atomic_fetch_add(&handed_to_queue, 1);
    return 0;
}

static void await_handed_over(unsigned count)
{
    while (atomic_load(&handed_to_queue) < count)
        sleep_ms(1);
}

/* All are on and re-armed at the end: the worker wakes up and plans again and again. */
static void rearm_beside_a_worker(hwt_timeout *timeout, void *arg)
{
    hwt_timer *timer = arg;

    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(1000)));
    if (++depth < DEEP) {
        run_handed_over(queued[depth]);
        return;
    }
    cr_assert_gt(load_relaxed(&timer->rearmed), 0);
    atomic_store(&times_looked_through, 0);
    for (unsigned i = 0; i < 10; i++) {
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_MSEC(2), NULL), 0);
        await_handed_over(DEEP + i + 1);
        cr_assert_leq(hwt_timer_next_deadline(timer), hwt_timeout_deadline(timeout));
    }
    cr_assert_eq(atomic_load(&times_looked_through), 0);
}

/* What is with the executor may be very much: no plan looks through it. */
WHEEL_TEST(next, many_rearmed_beside_a_worker)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.execute = take_from_worker;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    depth = 0;
    for (unsigned i = 0; i < DEEP; i++)
        cr_assert_eq(hwt_new_timeout(timer, rearm_beside_a_worker, timer, 0, NULL), 0);
    await_handed_over(DEEP);
    run_handed_over(queued[0]);
    cr_assert_eq(load_relaxed(&timer->rearmed), 0);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static atomic_bool looking;

static void *look_all_the_time(void *arg)
{
    while (atomic_load(&looking))
        hwt_timer_next_deadline(r.timer);
    return arg;
}

/* It waits for one who only looks (C16). */
WHEEL_TEST(next, advance_beside_those_who_look)
{
    pthread_t thread[2];

    cr_assert_eq(rig_start(&r, wheel, test_epochs[1]), 0);
    atomic_store(&looking, true);
    for (size_t i = 0; i < COUNT_OF(thread); i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, look_all_the_time, NULL), 0);
    for (unsigned i = 0; i < 5000; i++) {
        submit(TICK);
        cr_assert_eq(rig_advance_by(&r, TICK), 1, "no -EBUSY for them");
    }
    atomic_store(&looking, false);
    for (size_t i = 0; i < COUNT_OF(thread); i++)
        cr_assert_eq(pthread_join(thread[i], NULL), 0);
    rig_close(&r);
}

/* ---- beside a worker ---- */

struct told {
    hwt_timer *timer;
    uint64_t random;
    uint64_t failures;
};

static uint64_t told_by(struct told *t, hwt_timeout *timeout)
{
    uint64_t deadline = hwt_timeout_deadline(timeout);
    uint64_t said = hwt_timer_next_deadline(t->timer);

    /* it may have run meanwhile */
    t->failures += said > deadline && hwt_timeout_state(timeout) == HWT_PENDING;
    return deadline;
}

static void *schedule_and_ask(void *arg)
{
    struct told *t = arg;

    for (unsigned i = 0; i < 1000; i++) {
        uint64_t delay = 1 + test_random_below(&t->random, HWT_MSEC(1) << (i % 14));
        hwt_timeout *timeout;
        if (hwt_new_timeout(t->timer, noop_task, NULL, delay, &timeout) != 0) {
            t->failures++;
            continue;
        }
        told_by(t, timeout);
        if (i % 2 && hwt_timeout_reschedule(timeout, delay / 2))
            told_by(t, timeout);
        if (i % 3 == 0 && hwt_timeout_reschedule(timeout, delay * 2))
            told_by(t, timeout);
        if (i % 4)
            hwt_timeout_cancel(timeout);
        hwt_timeout_unref(timeout);
    }
    return NULL;
}

WHEEL_TEST(next, beside_a_worker)
{
    struct told told[2];
    pthread_t thread[2];
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
    for (size_t i = 0; i < 2; i++) {
        told[i] = (struct told){timer, test_seed("told") + i, 0};
        cr_assert_eq(pthread_create(&thread[i], NULL, schedule_and_ask, &told[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(pthread_join(thread[i], NULL), 0);
        cr_assert_eq(told[i].failures, 0, "later than what is pending");
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* A bound that was cancelled may be said for a while; with nothing pending there is none. */
WHEEL_TEST(next, beside_a_worker_with_nothing_pending)
{
    hwt_timer *timer = worker_timer();
    hwt_timeout *timeout;

    (void)wheel;
    cr_assert_not_null(timer);
    for (unsigned i = 0; i < 200; i++) {
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(5), &timeout), 0);
        cr_assert_leq(hwt_timer_next_deadline(timer), hwt_timeout_deadline(timeout));
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void see(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ++*(size_t *)arg;
}

/* After it the worker has met all: some lie in the wheel, and the lanes are empty. */
static void let_him_meet(hwt_timer *timer, size_t pending)
{
    size_t seen = 0;

    cr_assert_eq(hwt_timer_visit(timer, see, &seen), (int64_t)pending);
    cr_assert_eq(seen, pending);
}

static void schedule_for_an_hour(hwt_timer *timer, hwt_timeout **handle, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &handle[i]), 0);
}

static void cancel_all(hwt_timeout **handle, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cr_assert(hwt_timeout_cancel(handle[i]));
        hwt_timeout_unref(handle[i]);
    }
}

static bool bound_says_none(hwt_timer *timer)
{
    return load_seq(&timer->worker.next_deadline) >= DEADLINE_NEVER &&
           lanes_bound(&timer->lanes) >= DEADLINE_NEVER;
}

static uint64_t wakeups_of(hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    cr_assert_eq(hwt_timer_stats(timer, &stats), 0);
    return stats.wakeups;
}

/* All are cancelled: who asks twice sees to it that the bound says so, and wakes nobody then. */
static void see_the_bound_rise(hwt_timer *timer)
{
    uint64_t wakeups;

    for (unsigned tries = 0; !bound_says_none(timer) && tries < 5000; tries++) {
        cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
        sleep_ms(1);
    }
    cr_assert(bound_says_none(timer));
    sleep_ms(20);
    wakeups = wakeups_of(timer);
    for (unsigned i = 0; i < 100; i++)
        cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
    sleep_ms(20);
    cr_assert_leq(wakeups_of(timer), wakeups + 10); /* for the house, perhaps */
}

WHEEL_TEST(next, beside_a_worker_after_a_peak)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *handle[2000];

    cr_assert_not_null(timer);
    for (unsigned round = 0; round < 4; round++) {
        schedule_for_an_hour(timer, handle, COUNT_OF(handle));
        if (round % 2)
            let_him_meet(timer, COUNT_OF(handle));
        cancel_all(handle, COUNT_OF(handle));
        see_the_bound_rise(timer);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/*
 * Its slot is where the next look begins; it tells nothing when it is empty, or another's. The
 * worker, who would empty it, is in a task meanwhile.
 */
WHEEL_TEST(next, beside_a_worker_with_one_left)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *handle[2000], *last;
    gate busy = {0};
    uint64_t held;

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &busy, 0, NULL), 0);
    cr_assert(wait_count(&busy.entered, 1));
    for (unsigned round = 0; round < 3; round++) {
        schedule_for_an_hour(timer, handle, COUNT_OF(handle));
        schedule_for_an_hour(timer, &last, 1);
        cancel_all(handle, COUNT_OF(handle));
        cr_assert_leq(hwt_timer_next_deadline(timer), hwt_timeout_deadline(last));
        held = load_seq(load_seq(&timer->run_count.held));
        cr_assert_eq(packed_timeout(held), last);
        cancel_all(&last, 1);
        cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
    }
    gate_open(&busy);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* As if the worker were between taking it out and counting that. What was there. */
static uint64_t mark_as_being_taken(lane_slot *slot)
{
    uint64_t held = load_seq(slot), taken = segment_of(slot)->taken[segment_group_of(slot)];

    store_seq(slot, slot_being_taken(slot_emptied(held), taken));
    return held;
}

/*
 * Cancelled while the worker was about to take it: he leaves it in its slot, to the notice (C20),
 * for which nobody wakes him. It is not pending any more.
 */
WHEEL_TEST(next, beside_a_worker_with_a_notice_owed)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *timeout[2];
    gate busy = {0};

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &busy, 0, NULL), 0);
    cr_assert(wait_count(&busy.entered, 1));
    schedule_for_an_hour(timer, timeout, 2);
    for (unsigned i = 0; i < 2; i++) {
        lane_slot *slot = lane_slot_of_where(load_seq(&timeout[i]->where));
        uint64_t held = mark_as_being_taken(slot);

        cr_assert(hwt_timeout_cancel(timeout[i]));
        store_seq(slot, held);
        cr_assert_eq(hwt_timer_next_deadline(timer) == UINT64_MAX, i == 1);
        cr_assert_eq(hwt_timer_pending(timer), 1 - i);
    }
    gate_open(&busy);
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(60), NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        hwt_timeout_unref(timeout[i]);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/*
 * Counted while the worker was about to take it; but it had been cancelled before that, and he left
 * it to its canceller (C20). So it has not been met.
 */
WHEEL_TEST(next, beside_a_worker_who_leaves_one)
{
    hwt_timer *timer = timer_of_kind(wheel);
    hwt_timeout *timeout;
    gate busy = {0};
    lane_slot *slot;
    uint64_t held;

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &busy, 0, NULL), 0);
    cr_assert(wait_count(&busy.entered, 1));
    schedule_for_an_hour(timer, &timeout, 1);
    slot = lane_slot_of_where(load_seq(&timeout->where));
    held = mark_as_being_taken(slot);
    cr_assert_leq(hwt_timer_next_deadline(timer), hwt_timeout_deadline(timeout));
    store_seq(slot, held);
    cancel_all(&timeout, 1);
    cr_assert_eq(hwt_timer_pending(timer), 0);
    cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
    gate_open(&busy);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Met, withdrawn before that, cancelled after: nothing is pending when as many have ended. */
WHEEL_TEST(next, beside_a_worker_as_long_as_any_is_pending)
{
    uint64_t random = test_seed("any");
    hwt_timeout *handle[16] = {NULL};
    size_t pending = 0;
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (unsigned step = 0; step < 20000; step++) {
        hwt_timeout **chosen = &handle[test_random_below(&random, COUNT_OF(handle))];
        /* by turns more go than come */
        bool fill = test_random_below(&random, 5) < (step / 100 % 2 ? 1 : 4);
        if (fill && !*chosen) {
            cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), chosen), 0);
            pending++;
        } else if (!fill && *chosen) {
            cr_assert(hwt_timeout_cancel(*chosen));
            hwt_timeout_unref(*chosen);
            *chosen = NULL;
            pending--;
        }
        if (step % 16 == 0)
            let_him_meet(timer, pending);
        if (test_random_below(&random, 2)) {
            bool none = hwt_timer_next_deadline(timer) == UINT64_MAX;
            cr_assert_eq(none, pending == 0, "%zu are pending", pending);
        }
    }
    for (size_t i = 0; i < COUNT_OF(handle); i++)
        hwt_timeout_unref(handle[i]);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* What was remembered of a timer says nothing of the one that has its place. */
Test(next, beside_the_worker_of_another_timer)
{
    for (unsigned i = 0; i < 3; i++) {
        hwt_timer *timer = worker_timer();
        hwt_timeout *timeout;

        cr_assert_not_null(timer);
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &timeout), 0);
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(hwt_timer_next_deadline(timer), UINT64_MAX);
        for (unsigned j = 0; j < 10; j++)
            cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
        let_him_meet(timer, 10);
        cr_assert_neq(hwt_timer_next_deadline(timer), UINT64_MAX);
        hwt_timeout_unref(timeout);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

Test(next, of_none)
{
    cr_assert_eq(hwt_timer_next_deadline(NULL), UINT64_MAX);
    cr_assert_eq(hwt_timer_advance(NULL), -EINVAL);
}
