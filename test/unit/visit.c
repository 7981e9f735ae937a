/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=run_last_words */
/* hwt_timer_visit, since 1.1: each timeout that is pending, once (G2, G12, C13, C18). */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_frames.h"
#include "support.h"
#include "timer.h"

#define TICK HWT_MSEC(1)

TestSuite(visit, .init = test_arm);

typedef struct guest {
    unsigned shown;
    hwt_timeout *timeout;
} guest;

static unsigned shown_ended;

static void see(hwt_timeout *timeout, void *arg)
{
    guest *g = hwt_timeout_arg(timeout);

    g->shown++;
    shown_ended += hwt_timeout_state(timeout) != HWT_PENDING;
    if (arg)
        atomic_fetch_add((atomic_uint *)arg, 1);
}

static const uint64_t delays[] = {0,          1,           TICK / 2,   TICK,         TICK + 1,
                                  7 * TICK,   99 * TICK,   HWT_SEC(3), HWT_SEC(777), HWT_SEC(86400),
                                  UINT64_MAX, HWT_SEC(999)};

/* In lanes, in every level of the wheel, due but for the nanoseconds of a tick, and never due. */
WHEEL_TEST(visit, each_once)
{
    guest g[6 * COUNT_OF(delays)] = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(g); i++) {
        cr_assert_eq(
            hwt_new_timeout(r.timer, noop_task, &g[i], delays[i % COUNT_OF(delays)], &g[i].timeout),
            0);
        if (i % 7 == 6)
            rig_advance_by(&r, TICK / 3);
    }
    for (int round = 0; round < 5; round++) {
        int64_t pending = 0;

        for (size_t i = 0; i < COUNT_OF(g); i++) {
            if (i % 5 == (size_t)round)
                hwt_timeout_cancel(g[i].timeout);
            else if (i % 3 == 0)
                hwt_timeout_reschedule(g[i].timeout, delays[(i + 4) % COUNT_OF(delays)]);
            g[i].shown = 0;
            pending += hwt_timeout_state(g[i].timeout) == HWT_PENDING;
        }
        cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), pending);
        for (size_t i = 0; i < COUNT_OF(g); i++)
            cr_assert_eq(g[i].shown, hwt_timeout_state(g[i].timeout) == HWT_PENDING);
        cr_assert_eq(hwt_timer_pending(r.timer), (uint64_t)pending);
        rig_advance_by(&r, 3 * TICK + 17);
    }
    cr_assert_eq(shown_ended, 0);
    for (size_t i = 0; i < COUNT_OF(g); i++)
        hwt_timeout_unref(g[i].timeout);
    rig_close(&r);
}

/* What was due keeps its order, and what it was put aside for runs (G15). */
WHEEL_TEST(visit, changes_nothing)
{
    probe p[40] = {0};
    atomic_uint shown = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(hwt_new_timeout_at(r.timer, probe_task, &p[i], 1 + i * 13 % 40, NULL), 0);
    cr_assert_eq(rig_advance_to(&r, 20), 20); /* half of a tick */
    cr_assert_eq(hwt_timer_visit(r.timer, see, &shown), 20);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), 21);
    cr_assert_eq(rig_advance_to(&r, 40), 20);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        for (size_t j = 0; j < COUNT_OF(p); j++)
            cr_assert((i * 13 % 40 < j * 13 % 40) == (p[i].order < p[j].order));
    }
    rig_close(&r);
}

/* ---- a tick that has run in part: what the agenda holds is put off for a visit ---- */

enum { CROWD = 5000 };

typedef struct due {
    hwt_timeout *timeout;
    uint64_t deadline;
    unsigned number; /* in the order of submission */
    bool moved, over;
} due;

static struct {
    rig r;
    due due[CROWD], last; /* to run; in this advance */
    unsigned submitted;
    uint64_t state;
} crowd;

static void run_in_order(hwt_timeout *timeout, void *arg)
{
    due *d = arg, *last = &crowd.last;
    bool in_turn = last->number < d->number || last->moved || d->moved;

    cr_assert(!d->over && d->timeout == timeout);
    cr_assert_leq(d->deadline, crowd.r.clock.now);
    cr_assert(last->deadline < d->deadline || (last->deadline == d->deadline && in_turn), "G15");
    d->over = true;
    *last = *d;
}

static void set_due(due *d, uint64_t deadline)
{
    d->deadline = deadline;
    d->number = ++crowd.submitted;
    d->moved = d->over = false;
}

static void move_to(due *d, uint64_t deadline)
{
    cr_assert(hwt_timeout_reschedule_at(d->timeout, deadline));
    d->deadline = deadline;
    d->moved = true;
}

/* One that has ended, in the tick that is on. */
static void renew_any(void)
{
    due *d = &crowd.due[test_random_below(&crowd.state, CROWD)];
    uint64_t delay = test_random_below(&crowd.state, TICK / 4);

    if (!d->over)
        return;
    cr_assert_eq(hwt_timeout_renew(&d->timeout, NULL, delay), 0);
    set_due(d, crowd.r.clock.now + delay);
}

static void change_one(hwt_timeout *timeout, void *arg)
{
    due *d = hwt_timeout_arg(timeout);
    uint64_t now = crowd.r.clock.now, left = d->deadline - now;

    (void)arg;
    cr_assert(!d->over);
    switch (test_random_below(&crowd.state, 8)) {
    case 0:
        cr_assert(hwt_timeout_cancel(timeout));
        d->over = true;
        break;
    case 1: move_to(d, now + test_random_below(&crowd.state, left + 1)); break;
    case 2: move_to(d, d->deadline + test_random_below(&crowd.state, TICK / 8)); break;
    case 3: move_to(d, d->deadline + 5 * TICK); break;
    case 4: renew_any(); break;
    default: break;
    }
}

static uint64_t earliest_due(int64_t *pending)
{
    uint64_t earliest = UINT64_MAX;

    *pending = 0;
    for (size_t i = 0; i < CROWD; i++) {
        if (crowd.due[i].over)
            continue;
        ++*pending;
        if (crowd.due[i].deadline < earliest)
            earliest = crowd.due[i].deadline;
    }
    return earliest;
}

static void advance_in_order(uint64_t now)
{
    int64_t before, after;

    crowd.last = (due){0};
    earliest_due(&before);
    cr_assert_geq(rig_advance_to(&crowd.r, now), 0);
    cr_assert_gt(earliest_due(&after), now);
    cr_assert_eq(hwt_timer_pending(crowd.r.timer), (uint64_t)after);
}

/* Whatever is cancelled, moved or renewed while it is put off, or afterwards (G2, G15). */
WHEEL_TEST(visit, what_is_put_off_keeps_its_order)
{
    int64_t pending;

    crowd.state = test_seed("put off");
    cr_assert_eq(rig_start(&crowd.r, wheel, 0), 0);
    for (size_t i = 0; i < CROWD; i++) { /* some alike */
        due *d = &crowd.due[i];
        set_due(d, 100 * (1 + test_random_below(&crowd.state, TICK / 100)));
        cr_assert_eq(hwt_new_timeout_at(crowd.r.timer, run_in_order, d, d->deadline, &d->timeout),
                     0);
    }
    for (unsigned step = 1; step < 8; step++) {
        advance_in_order(step * TICK / 8);
        earliest_due(&pending);
        cr_assert_eq(hwt_timer_visit(crowd.r.timer, change_one, NULL), pending);
        cr_assert_eq(hwt_timer_next_deadline(crowd.r.timer), earliest_due(&pending));
        for (unsigned i = 0; i < CROWD / 100; i++) {
            due *d = &crowd.due[test_random_below(&crowd.state, CROWD)];
            if (!d->over)
                change_one(d->timeout, NULL);
        }
        cr_assert_eq(hwt_timer_next_deadline(crowd.r.timer), earliest_due(&pending));
    }
    for (unsigned step = 2; step < 200; step++)
        advance_in_order(step * TICK / 2);
    cr_assert_eq(earliest_due(&pending), UINT64_MAX, "one is lost");
    for (size_t i = 0; i < CROWD; i++)
        hwt_timeout_unref(crowd.due[i].timeout);
    rig_close(&crowd.r);
}

static void act(hwt_timeout *timeout, void *arg)
{
    unsigned *n = arg;

    switch ((*n)++ % 4) {
    case 0: cr_assert(hwt_timeout_cancel(timeout)); break;
    case 1: cr_assert(hwt_timeout_reschedule(timeout, 0)); break;
    case 2: cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(50))); break;
    default:
        cr_assert_eq(
            hwt_new_timeout(hwt_timeout_timer(timeout), noop_task, NULL, HWT_SEC(60), NULL), 0);
    }
    hwt_timeout_unref(hwt_timeout_ref(timeout));
    cr_assert_eq(hwt_timer_visit(hwt_timeout_timer(timeout), act, arg), -EDEADLK);
    cr_assert_eq(hwt_timer_stop(hwt_timeout_timer(timeout), NULL), -EDEADLK);
    cr_assert_neq(hwt_timer_next_deadline(hwt_timeout_timer(timeout)), UINT64_MAX);
}

typedef struct tenant {
    unsigned number;
    uint64_t deadline; /* as it was asked for */
    bool ran;
} tenant;

static void run_on_time(hwt_timeout *timeout, void *arg)
{
    tenant *t = arg;

    cr_assert(!t->ran);
    cr_assert_eq(hwt_timer_now(hwt_timeout_timer(timeout)), t->deadline);
    t->ran = true;
}

/* Some later, some earlier, some with a reference that does not stay. */
static void shift(hwt_timeout *timeout, void *arg)
{
    tenant *t = hwt_timeout_arg(timeout);
    bool referred = t->number & 1;

    (void)arg;
    if (t->number % 3 == 2)
        return;
    t->deadline = t->number % 3 ? t->deadline / 2 + HWT_MSEC(1) : t->deadline + HWT_SEC(30);
    if (referred)
        hwt_timeout_ref(timeout);
    cr_assert(hwt_timeout_reschedule_at(timeout, t->deadline));
    if (referred)
        hwt_timeout_unref(timeout);
}

static uint64_t earliest_of(const tenant *t, size_t count)
{
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (!t[i].ran && t[i].deadline < earliest)
            earliest = t[i].deadline;
    }
    return earliest;
}

/* Nobody else could: what was known of it for that reason is so no more (G2, G15). */
WHEEL_TEST(visit, moves_what_nobody_holds)
{
    for (uint32_t slots = 1; slots <= 512; slots *= 8) {
        tenant t[60] = {0};
        rig r;

        rig_prepare(&r, wheel, 0);
        r.config.ticks_per_wheel = slots;
        cr_assert_eq(rig_open(&r), 0);
        for (unsigned i = 0; i < COUNT_OF(t); i++) {
            t[i] = (tenant){.number = i, .deadline = HWT_MSEC(13 * i * i + 2)};
            cr_assert_eq(hwt_new_timeout_at(r.timer, run_on_time, &t[i], t[i].deadline, NULL), 0);
        }
        for (unsigned step = 0; hwt_timer_pending(r.timer) > 0; step++) {
            if (step < 50 && step % 10 == 0)
                cr_assert_geq(hwt_timer_visit(r.timer, shift, NULL), 0);
            cr_assert_eq(hwt_timer_next_deadline(r.timer), earliest_of(t, COUNT_OF(t)));
            rig_advance_to(&r, earliest_of(t, COUNT_OF(t)));
        }
        cr_assert_eq(earliest_of(t, COUNT_OF(t)), UINT64_MAX, "one is lost");
        rig_close(&r);
    }
}

WHEEL_TEST(visit, a_visitor_may_change_all)
{
    unsigned n = 0;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (int i = 0; i < 40; i++) {
        hwt_spec spec;

        probe_spec(&spec, &p, HWT_SEC(i + 1));
        cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    }
    cr_assert_eq(hwt_timer_visit(r.timer, act, &n), 40, "what it schedules is not shown");
    cr_assert_eq(p.hooks, 10);
    cr_assert_eq(hwt_timer_pending(r.timer), 40);
    cr_assert_eq(rig_advance_by(&r, 0), 10);
    cr_assert_eq(hwt_timer_visit(r.timer, act, &n), 30);
    rig_close(&r);
}

Test(visit, beside_a_worker)
{
    hwt_timer *timer = worker_timer();
    atomic_uint shown = 0;
    guest g[300] = {0};
    gate hold = {0};

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_timer_visit(timer, see, NULL), 0, "not started");
    for (size_t i = 0; i < COUNT_OF(g); i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, &g[i], HWT_SEC(60 + i), NULL), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(hwt_timer_visit(timer, see, &shown), 300);
    cr_assert_eq(shown, 900);
    for (size_t i = 0; i < COUNT_OF(g); i++)
        cr_assert_eq(g[i].shown, 3);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &hold, 0, NULL), 0);
    cr_assert(wait_count(&hold.entered, 1));
    gate_open(&hold);
    cr_assert_eq(hwt_timer_visit(timer, see, &shown), 300);
    cr_assert_eq(hold.left, 1, "after the task that was running");
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(hwt_timer_visit(timer, see, NULL), -ESHUTDOWN);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- while there is much to do ---- */

static void *visit_once(void *timer)
{
    atomic_uint shown = 0;
    int64_t answer = hwt_timer_visit(timer, see, &shown);

    cr_assert_eq(answer, (int64_t)shown);
    return (void *)(uintptr_t)shown;
}

static bool wait_for_flag(const _Atomic uint32_t *word, uint32_t flag)
{
    for (int i = 0; i < 20000; i++) {
        if (load_relaxed(word) & flag)
            return true;
        sleep_ms(1);
    }
    return false;
}

static bool wait_until_asked(hwt_timer *timer)
{
    return wait_for_flag(&timer->asked, ASKED_VISIT);
}

/* Whatever else is due by then: it need not wait for a pass that has fallen behind. */
Test(visit, after_the_task_that_is_running)
{
    hwt_timer *timer = worker_timer();
    gate before = {0}, hold = {0};
    guest g[100] = {0};
    pthread_t thread;
    void *shown;

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &before, 0, NULL), 0);
    cr_assert(wait_count(&before.entered, 1));
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &hold, 0, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(g); i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, &g[i], 0, NULL), 0);
    gate_open(&before);
    cr_assert(wait_count(&hold.entered, 1)); /* the others are due in the same pass */
    cr_assert_eq(pthread_create(&thread, NULL, visit_once, timer), 0);
    cr_assert(wait_until_asked(timer));
    gate_open(&hold);
    cr_assert_eq(pthread_join(thread, &shown), 0);
    cr_assert_eq((size_t)(uintptr_t)shown, COUNT_OF(g));
    cr_assert_eq(hwt_timer_drain(timer, UINT64_MAX, NULL), 0);
    cr_assert_eq(stats_of(timer).expired, COUNT_OF(g) + 2);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static atomic_uint ends;

static void end_when_asked(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    cr_assert(wait_until_asked(hwt_timeout_timer(timeout)));
    ends++;
}

/* Whoever visits again and again does not keep tasks from running. */
Test(visit, beside_visits_tasks_go_on)
{
    hwt_timer *timer = worker_timer();
    guest g[5 * HAND] = {0};
    unsigned visits = 0;
    gate before = {0};

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, gate_task, &before, 0, NULL), 0);
    cr_assert(wait_count(&before.entered, 1));
    for (size_t i = 0; i < COUNT_OF(g); i++)
        cr_assert_eq(hwt_new_timeout(timer, end_when_asked, &g[i], 0, NULL), 0);
    sleep_ms(3); /* their tick is over, before which no pass would run so many */
    gate_open(&before);
    for (; ends < COUNT_OF(g); visits++)
        cr_assert_geq(hwt_timer_visit(timer, see, NULL), 0);
    cr_assert_leq(visits, COUNT_OF(g) / HAND + 2);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- beside threads that move timeouts ---- */

static void wait_until_turned(hwt_timer *timer, uint64_t from)
{
    for (int i = 0; i < 20000; i++) {
        if (load_relaxed(&timer->still) && guest_in(load_relaxed(&timer->half)) != from)
            return;
        sleep_ms(1);
    }
    cr_assert_fail("nobody visits");
}

/* As one who is preempted half-way through a move; and as others, who come later, all the time. */
static void visit_beside_movers(hwt_timer *timer)
{
    for (int round = 0; round < 3; round++) {
        uint64_t before = timer_sign_in(timer), later;
        pthread_t thread;
        void *shown;

        cr_assert_eq(pthread_create(&thread, NULL, visit_once, timer), 0);
        wait_until_turned(timer, before);
        later = timer_sign_in(timer);
        cr_assert_neq(later, before);
        if (timer->drive == HWT_DRIVE_WORKER) {
            for (int i = 0; i < 5; i++) { /* G4: what is due runs, visit or not */
                atomic_uint ran = 0;
                cr_assert_eq(hwt_new_timeout(timer, count_task, &ran, 0, NULL), 0);
                cr_assert(wait_count(&ran, 1));
            }
        }
        cr_assert_eq(load_relaxed(&timer->still), 1, "the first one is waited for");
        timer_sign_out(timer, before);
        cr_assert_eq(pthread_join(thread, &shown), 0);
        cr_assert_eq((size_t)(uintptr_t)shown, 3);
        cr_assert_eq(load_relaxed(&timer->still), 0);
        timer_sign_out(timer, later);
    }
}

Test(visit, movers_keep_no_worker)
{
    hwt_timer *timer = worker_timer();
    guest g = {0};

    for (int i = 0; i < 3; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, &g, HWT_SEC(3600), NULL), 0);
    visit_beside_movers(timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

WHEEL_TEST(visit, movers_who_come_later_are_not_waited_for)
{
    guest g = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &g, HWT_SEC(3600), NULL), 0);
    visit_beside_movers(r.timer);
    rig_close(&r);
}

/* ---- from where it cannot be called ---- */

static int64_t result;

static void visit_in_task(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    result = hwt_timer_visit(hwt_timeout_timer(timeout), see, NULL);
}

WHEEL_TEST(visit, errors)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;
    int status;
    pid_t child;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_timer_visit(NULL, see, NULL), -EINVAL);
    cr_assert_eq(hwt_timer_visit(r.timer, NULL, NULL), -EINVAL);
    hwt_spec_init(&spec);
    spec.task = spec.cancelled = visit_in_task;
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(result, -EDEADLK);
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    result = 0;
    cr_assert(hwt_timeout_cancel(timeout));
    cr_assert_eq(result, -EDEADLK, "in a hook, on this thread");
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), 0);
    child = fork();
    if (child == 0)
        _exit(hwt_timer_visit(r.timer, see, NULL) == -ECHILD ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), -ESHUTDOWN);
    rig_close(&r);
}

/* Its timer ends, and the next one has the same place in memory. */
static void begin_the_next_timer(rig *r)
{
    hwt_timer *timer = r->timer;

    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(rig_start(r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    cr_assert_eq(r->timer, timer, "or this asks nothing");
}

static bool ends_before_the_hook;

/* Another thread does, when this one has won the timeout and taken it away. */
__typeof__(run_last_words) __real_run_last_words;
__typeof__(run_last_words) __wrap_run_last_words;
void __wrap_run_last_words(hwt_timeout *timeout, uint32_t life)
{
    if (ends_before_the_hook)
        begin_the_next_timer(hwt_timeout_arg(timeout));
    __real_run_last_words(timeout, life);
}

static void visit_the_next_timer(hwt_timeout *timeout, void *arg)
{
    rig *r = arg;

    (void)timeout;
    if (!ends_before_the_hook)
        begin_the_next_timer(r);
    result = hwt_timer_visit(r->timer, see, NULL);
}

/* C10 */
WHEEL_TEST(visit, a_hook_is_not_inside_the_next_timer)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;
    rig r;

    for (int way = 0; way < 4; way++) {
        ends_before_the_hook = way & 1;
        cr_assert_eq(rig_start(&r, wheel, 0), 0);
        hwt_spec_init(&spec);
        spec.task = noop_task;
        spec.cancelled = visit_the_next_timer;
        spec.arg = &r;
        spec.delay_ns = HWT_SEC(60);
        cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
        if (way & 2) /* the wheel has it */
            cr_assert_eq(rig_advance_by(&r, HWT_SEC(59)), 0);
        result = 1;
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(result, 0, "way %d: %d", way, (int)result);
        hwt_timeout_unref(timeout);
        ends_before_the_hook = false;
        rig_close(&r);
    }
}

static void *advance_main(void *arg)
{
    rig_advance_by(arg, 0);
    return NULL;
}

WHEEL_TEST(visit, while_another_advances)
{
    pthread_t thread;
    gate hold = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, gate_task, &hold, 0, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, advance_main, &r), 0);
    cr_assert(wait_count(&hold.entered, 1));
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), -EBUSY);
    gate_open(&hold);
    pthread_join(thread, NULL);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), 0);
    rig_close(&r);
}

/* ---- while an advance waits for it ---- */

enum { LOOKS_MOST = 100 };

/* Of one timeout, which is shown until the advance has run it. */
typedef struct held {
    rig r;
    gate hold;
    atomic_uint looks, ran;
    bool ends_thread;
    pthread_t visitor, caller;
} held;

/* The first visit lasts until the test lets go, others so long that who was woken is awake. */
static void look_long(hwt_timeout *timeout, void *arg)
{
    held *h = arg;

    if (atomic_fetch_add(&h->looks, 1) > 0) {
        sleep_ms(1);
        return;
    }
    gate_task(timeout, &h->hold);
    if (h->ends_thread)
        pthread_exit(NULL);
}

static void *visit_until_it_ran(void *arg)
{
    held *h = arg;

    while (!atomic_load(&h->ran) && atomic_load(&h->looks) < LOOKS_MOST) {
        if (hwt_timer_visit(h->r.timer, look_long, h) < 0)
            sched_yield();
    }
    return NULL;
}

static void *advance_once(void *timer)
{
    return (void *)(intptr_t)(hwt_timer_advance(timer) != 1);
}

static void *ask_for_next(void *timer)
{
    hwt_timer_next_deadline(timer);
    return NULL;
}

static void *ask_for_fd(void *timer)
{
    return (void *)(intptr_t)(hwt_timer_fd(timer) < 0);
}

static void begin_held(held *h, void *(*call)(void *timer))
{
    cr_assert_eq(hwt_new_timeout(h->r.timer, count_task, &h->ran, 0, NULL), 0);
    cr_assert_eq(pthread_create(&h->visitor, NULL, visit_until_it_ran, h), 0);
    cr_assert(wait_count(&h->hold.entered, 1));
    cr_assert_eq(pthread_create(&h->caller, NULL, call, h->r.timer), 0);
    cr_assert(wait_for_flag(&h->r.timer->driver, DRIVER_AWAITED));
}

static void end_held(held *h)
{
    void *failed;

    cr_assert_eq(h->hold.left, 0, "the visit is on");
    gate_open(&h->hold);
    pthread_join(h->visitor, NULL);
    pthread_join(h->caller, &failed);
    cr_assert_null(failed);
    cr_assert_eq(h->looks, 1, "%u visits before the call", h->looks);
    cr_assert_eq(load_relaxed(&h->r.timer->driver), DRIVER_NONE);
}

/* Whoever visits again and again does not keep an advance waiting (C16). */
WHEEL_TEST(visit, no_other_before_an_advance_that_waits)
{
    for (int way = 0; way < 2; way++) {
        held h = {.ends_thread = way};

        cr_assert_eq(rig_start(&h.r, wheel, 0), 0);
        begin_held(&h, advance_once);
        end_held(&h);
        cr_assert_eq(h.ran, 1);
        cr_assert_eq(hwt_timer_visit(h.r.timer, see, NULL), 0);
        rig_close(&h.r);
    }
}

/* Another thread is in advance, to whoever comes. */
WHEEL_TEST(visit, while_an_advance_waits)
{
    held h = {0};

    cr_assert_eq(rig_start(&h.r, wheel, 0), 0);
    begin_held(&h, advance_once);
    cr_assert_eq(hwt_timer_visit(h.r.timer, see, NULL), -EBUSY);
    cr_assert_leq(hwt_timer_next_deadline(h.r.timer), h.r.clock.now);
    end_held(&h);
    rig_close(&h.r);
}

/* So whoever calls these holds no lock that a visitor takes. */
WHEEL_TEST(visit, is_waited_for_where_the_caller_drives)
{
    void *(*const calls[])(void *timer) = {advance_once, ask_for_next, ask_for_fd};

    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        held h = {.r.timer = timer_on(wheel, HWT_DRIVE_CALLER, CLOCK_MONOTONIC),
                  .ends_thread = true};

        cr_assert_not_null(h.r.timer);
        begin_held(&h, calls[i]);
        end_held(&h);
        cr_assert_eq(hwt_timer_destroy(h.r.timer), 0);
    }
}

/* ---- a visitor that does not return ---- */

static int said;

static void end_thread(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    pthread_exit(NULL);
}

static void visitor_ends_the_worker(void)
{
    hwt_timer *timer = worker_timer();

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL), 0);
    cr_assert_eq(hwt_timer_visit(timer, end_thread, NULL), -EOWNERDEAD);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), NULL), -EOWNERDEAD);
    cr_assert_eq(hwt_timer_start(timer), -EOWNERDEAD);
    cr_assert_eq(hwt_timer_visit(timer, see, NULL), -EOWNERDEAD);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Who has been told so is not told otherwise by the next call. */
Test(visit, a_visitor_ends_the_worker)
{
    for (int i = 0; i < 50; i++)
        visitor_ends_the_worker();
}

static void submit_again(void *arg)
{
    said = hwt_new_timeout(arg, noop_task, NULL, HWT_SEC(60), NULL);
}

static void cancel_and_leave(hwt_timeout *timeout, void *arg)
{
    cr_assert(hwt_timeout_cancel(timeout));
    end_thread(timeout, arg);
}

/* The last user of its argument is the visit: so it is released on the way out. */
Test(visit, what_a_release_submits_behind_a_visitor_that_ends_the_worker)
{
    hwt_timer *timer = worker_timer();
    hwt_spec spec;

    cr_assert_not_null(timer);
    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.arg = timer;
    spec.delay_ns = HWT_SEC(60);
    spec.release = submit_again;
    said = 1;
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    cr_assert_eq(hwt_timer_visit(timer, cancel_and_leave, NULL), -EOWNERDEAD);
    cr_assert_eq(said, -EOWNERDEAD, "said %d", said);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void *visit_main(void *arg)
{
    hwt_timer_visit(((rig *)arg)->timer, end_thread, NULL);
    return NULL;
}

WHEEL_TEST(visit, a_visitor_ends_its_thread)
{
    pthread_t thread;
    guest g = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &g, TICK, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, visit_main, &r), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), 1);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    rig_close(&r);
}

static void fork_in_visit(hwt_timeout *timeout, void *arg)
{
    hwt_timer *timer = hwt_timeout_timer(timeout);

    if (*(pid_t *)arg == 0)
        *(pid_t *)arg = fork();
    if (*(pid_t *)arg == 0 && hwt_timer_destroy(timer) != 0)
        _exit(2);
}

WHEEL_TEST(visit, a_visitor_forks)
{
    pid_t self = getpid(), child = 0;
    int64_t visited;
    int status;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
    visited = hwt_timer_visit(r.timer, fork_in_visit, &child);
    if (getpid() != self)
        _exit(visited == -ECHILD ? 0 : 1);
    cr_assert_eq(visited, 5);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_close(&r);
}

/* ---- with an executor: what is due there and has not begun is pending ---- */

static void (*shelf_run)(void *job);
static void *shelf_job;

static int put_on_shelf(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    shelf_run = run;
    shelf_job = job;
    return 0;
}

WHEEL_TEST(visit, with_the_executor)
{
    guest g = {0};
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.execute = put_on_shelf;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &g, 0, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, 0), 1);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), 1);
    cr_assert_eq(g.shown, 1);
    shelf_run(shelf_job);
    cr_assert_eq(hwt_timer_visit(r.timer, see, NULL), 0);
    rig_close(&r);
}

/* ---- beside cancellers ---- */

enum { CANCELLED = 3000 };

struct cancelling {
    hwt_timer *timer;
    hwt_timeout *timeout[CANCELLED];
    guest g[CANCELLED];
    atomic_bool begin;
};

static void *cancel_all(void *arg)
{
    struct cancelling *c = arg;

    while (!atomic_load(&c->begin))
        sched_yield();
    for (size_t i = 0; i < CANCELLED; i++) {
        if (i % 2)
            continue;
        cr_assert(hwt_timeout_cancel(c->timeout[i]));
        hwt_timeout_unref(c->timeout[i]); /* and its block is somebody else's */
        cr_assert_eq(hwt_new_timeout(c->timer, noop_task, &c->g[i], HWT_SEC(4000), NULL), 0);
    }
    return NULL;
}

static void see_slowly(hwt_timeout *timeout, void *arg)
{
    atomic_store((atomic_bool *)arg, true);
    see(timeout, NULL);
}

/* What is cancelled meanwhile is shown or not; what is not is shown once, and stays (C18). */
WHEEL_TEST(visit, beside_cancellers)
{
    struct cancelling *c = calloc(1, sizeof *c);
    hwt_config config;
    pthread_t thread;
    int64_t shown;

    cr_assert_not_null(c);
    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(hwt_timer_create(&c->timer, &config), 0);
    for (size_t i = 0; i < CANCELLED; i++)
        cr_assert_eq(
            hwt_new_timeout(c->timer, noop_task, &c->g[i], HWT_SEC(3000 + i % 7), &c->timeout[i]),
            0);
    cr_assert_eq(pthread_create(&thread, NULL, cancel_all, c), 0);
    shown = hwt_timer_visit(c->timer, see_slowly, &c->begin);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(shown >= CANCELLED / 2 && shown <= CANCELLED, "%" PRId64, shown);
    for (size_t i = 1; i < CANCELLED; i += 2)
        cr_assert_eq(c->g[i].shown, 1);
    cr_assert_eq(hwt_timer_pending(c->timer), CANCELLED);
    shown_ended = 0; /* they may be while they are shown */
    cr_assert_eq(hwt_timer_visit(c->timer, see, NULL), CANCELLED);
    cr_assert_eq(shown_ended, 0);
    for (size_t i = 1; i < CANCELLED; i += 2) {
        cr_assert(hwt_timeout_cancel(c->timeout[i]));
        hwt_timeout_unref(c->timeout[i]);
    }
    cr_assert_eq(hwt_timer_pending(c->timer), CANCELLED / 2);
    cr_assert_eq(hwt_timer_destroy(c->timer), 0);
    free(c);
}

/* ---- and what it has cancelled is released on the way out (G16) ---- */

static struct {
    rig r;
    atomic_uint released;
    int advanced, stopped;
    int64_t visited;
    uint64_t next;
} left;

static void ask_on_the_way_out(void *arg)
{
    (void)arg;
    left.next = hwt_timer_next_deadline(left.r.timer);
    left.advanced = hwt_timer_advance(left.r.timer);
    left.visited = hwt_timer_visit(left.r.timer, see, NULL);
    left.stopped = hwt_timer_stop(left.r.timer, NULL);
    atomic_fetch_add(&left.released, 1);
}

static void cancel_and_end_thread(hwt_timeout *timeout, void *arg)
{
    cr_assert(hwt_timeout_cancel(timeout));
    end_thread(timeout, arg);
}

static void *cancel_in_a_visit(void *arg)
{
    (void)arg;
    hwt_timer_visit(left.r.timer, cancel_and_end_thread, NULL);
    return NULL;
}

/* As in any release inside of a visit: it does not wait for itself. */
WHEEL_TEST(visit, released_on_the_way_out)
{
    pthread_t thread;
    hwt_spec spec;

    cr_assert_eq(rig_start(&left.r, wheel, 0), 0);
    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.delay_ns = HWT_SEC(60);
    spec.release = ask_on_the_way_out;
    cr_assert_eq(hwt_schedule(left.r.timer, &spec, NULL), 0);
    cr_assert_eq(pthread_create(&thread, NULL, cancel_in_a_visit, NULL), 0);
    cr_assert(wait_count(&left.released, 1), "it waits for itself");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(left.next, UINT64_MAX);
    cr_assert_eq(left.advanced, -EDEADLK);
    cr_assert_eq(left.visited, -EDEADLK);
    cr_assert_eq(left.stopped, -EDEADLK);
    cr_assert_eq(rig_advance_by(&left.r, HWT_SEC(60)), 0);
    rig_close(&left.r);
}
