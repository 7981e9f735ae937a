/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G12 with real forks: in the child the parent's timers are dead and nothing
 * hangs; timers made in the child work; the parent does not notice.
 *
 * A child makes no Criterion assertion: it returns the line of the check that
 * failed, cut to what an exit code holds, and the parent looks at that.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "timer.h"

TestSuite(fork, .init = test_arm);

/* 1..200: a check failed, at that line modulo 200, plus one. 255: hung (SIGALRM). */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return 1 + (__LINE__ % 200);                                                           \
    } while (0)

typedef int child_body(void *arg);

static int run_child(child_body *body, void *arg)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        alarm(15); /* the parent's alarm is not inherited */
        _exit(body(arg));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

#define expect_child(body, arg)                                                                    \
    do {                                                                                           \
        int code_ = run_child(body, arg);                                                          \
        cr_assert_eq(code_, 0, "child: %s at line %d mod 200",                                     \
                     code_ == 255 ? "killed, perhaps hung" : "check failed", code_ - 1);           \
    } while (0)

/* ---- the parent's timers are dead ---- */

typedef struct heirloom {
    hwt_timer *timer;
    hwt_timeout *pending;
    hwt_timeout *ran;
    probe p;
} heirloom;

static int all_calls_say_echild(void *arg)
{
    heirloom *h = arg;
    hwt_timeout *untouched = (hwt_timeout *)&errno, *timeout = untouched;
    hwt_unprocessed list = {0};
    hwt_stats stats;
    hwt_spec spec;

    probe_spec(&spec, &h->p, 0);
    hwt_stats_init(&stats);
    CHECK(hwt_timer_stats(h->timer, &stats) == -ECHILD);
    CHECK(hwt_new_timeout(h->timer, probe_task, &h->p, 0, &timeout) == -ECHILD);
    CHECK(hwt_new_timeout_at(h->timer, probe_task, &h->p, 0, &timeout) == -ECHILD);
    CHECK(hwt_schedule(h->timer, &spec, &timeout) == -ECHILD);
    CHECK(timeout == untouched);
    CHECK(!hwt_timeout_cancel(h->pending));
    CHECK(hwt_timeout_cancel_sync(h->pending) == -ECHILD);
    CHECK(!hwt_timeout_reschedule(h->pending, 0));
    CHECK(!hwt_timeout_reschedule_at(h->pending, 0));
    CHECK(hwt_timer_start(h->timer) == -ECHILD);
    CHECK(hwt_timer_stop(h->timer, &list) == -ECHILD);
    CHECK(hwt_timer_stop(h->timer, NULL) == -ECHILD);
    hwt_timer_pending(h->timer); /* any answer, but no hang */
    hwt_timer_now(h->timer);
    hwt_timer_is_stopped(h->timer);
    CHECK(hwt_timeout_state(h->ran) == HWT_EXPIRED);
    CHECK(hwt_timeout_arg(h->pending) == &h->p);
    CHECK(hwt_timer_destroy(h->timer) == 0);
    hwt_timeout_unref(h->pending);
    hwt_timeout_unref(h->ran);
    CHECK(h->p.hooks == 0);
    return 0;
}

static void make_heirloom(heirloom *h, hwt_timer *timer)
{
    memset(h, 0, sizeof(*h));
    h->timer = timer;
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &h->p, 0, &h->ran), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &h->p, HWT_MSEC(300), &h->pending), 0);
}

/* The parent's still runs, and ends as it should. */
static void expect_unaffected(heirloom *h)
{
    cr_assert(wait_state(h->pending, HWT_EXPIRED), "the parent is affected");
    cr_assert_eq(h->p.runs, 2);
    cr_assert_eq(h->p.early, 0, "G1");
    hwt_timeout_unref(h->ran);
    hwt_timeout_unref(h->pending);
    cr_assert_eq(hwt_timer_destroy(h->timer), 0);
}

Test(fork, the_parents_timer_is_dead)
{
    heirloom h;

    make_heirloom(&h, worker_timer());
    cr_assert(wait_state(h.ran, HWT_EXPIRED));
    expect_child(all_calls_say_echild, &h);
    expect_unaffected(&h);
}

static int only_destroy(void *arg)
{
    heirloom *h = arg;

    CHECK(hwt_timer_destroy(h->timer) == 0);
    hwt_timeout_unref(h->pending);
    return 0;
}

static int only_exit(void *arg)
{
    (void)arg;
    return 0;
}

Test(fork, children_that_destroy_or_just_exit)
{
    heirloom h;

    make_heirloom(&h, worker_timer());
    cr_assert(wait_state(h.ran, HWT_EXPIRED));
    expect_child(only_destroy, &h);
    expect_child(only_exit, &h);
    expect_unaffected(&h);
}

static int a_caller_driven_one_says_echild(void *arg)
{
    rig *r = arg;

    CHECK(hwt_timer_advance(r->timer) == -ECHILD);
    CHECK(hwt_new_timeout(r->timer, noop_task, NULL, 0, NULL) == -ECHILD);
    CHECK(hwt_timer_stop(r->timer, NULL) == -ECHILD);
    CHECK(hwt_timer_destroy(r->timer) == 0);
    return 0;
}

WHEEL_TEST(fork, a_caller_driven_timer_is_dead_too)
{
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_MSEC(1), NULL), 0);
    expect_child(a_caller_driven_one_says_echild, &r);
    cr_assert_eq(rig_advance_by(&r, HWT_MSEC(1)), 1);
    rig_close(&r);
}

static int the_fd_says_echild(void *arg)
{
    CHECK(hwt_timer_fd(arg) == -ECHILD);
    CHECK(hwt_timer_advance(arg) == -ECHILD);
    CHECK(hwt_timer_destroy(arg) == 0);
    return 0;
}

/* The descriptor is shared with the child by the kernel; destroy there must not disarm ours. */
Test(fork, the_parents_fd_keeps_working)
{
    hwt_timer *timer;
    hwt_config config;
    probe p = {0};
    uint64_t give_up = real_now(CLOCK_MONOTONIC) + HWT_SEC(PATIENCE_S);

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_geq(hwt_timer_fd(timer), 0);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(100), NULL), 0);
    expect_child(the_fd_says_echild, timer);
    while (p.runs == 0 && real_now(CLOCK_MONOTONIC) < give_up) {
        struct timeval wait = {.tv_sec = PATIENCE_S};
        fd_set set;

        FD_ZERO(&set);
        FD_SET(hwt_timer_fd(timer), &set);
        cr_assert_eq(select(hwt_timer_fd(timer) + 1, &set, NULL, NULL, &wait), 1);
        cr_assert_geq(hwt_timer_advance(timer), 0);
    }
    cr_assert_eq(p.runs, 1);
    cr_assert_eq(p.early, 0, "G1");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static int an_unstarted_one_says_echild(void *arg)
{
    CHECK(hwt_timer_start(arg) == -ECHILD);
    CHECK(hwt_new_timeout(arg, noop_task, NULL, 0, NULL) == -ECHILD);
    CHECK(hwt_timer_destroy(arg) == 0);
    return 0;
}

Test(fork, a_timer_never_started_is_dead_too)
{
    hwt_timer *timer = worker_timer();
    probe p = {0};

    expect_child(an_unstarted_one_says_echild, timer);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0);
    cr_assert(wait_count(&p.runs, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- timers of the child ---- */

static int a_new_timer_works(void *arg)
{
    hwt_timer *timer;
    hwt_timeout *timeout;
    probe p = {0};

    (void)arg;
    CHECK(hwt_timer_create(&timer, NULL) == 0);
    for (unsigned i = 0; i < 500; i++) {
        CHECK(hwt_new_timeout(timer, probe_task, &p, HWT_SEC(30), &timeout) == 0);
        CHECK(hwt_timeout_cancel(timeout));
        hwt_timeout_unref(timeout);
    }
    CHECK(hwt_new_timeout(timer, probe_task, &p, HWT_MSEC(2), NULL) == 0);
    CHECK(wait_count(&p.runs, 1));
    CHECK(p.early == 0);
    CHECK(hwt_timer_stop(timer, NULL) == 0);
    CHECK(stats_of(timer).scheduled == 501);
    CHECK(hwt_timer_destroy(timer) == 0);
    return 0;
}

Test(fork, a_new_timer_works_in_the_child)
{
    heirloom h;

    expect_child(a_new_timer_works, NULL); /* before the parent ever used the library */
    make_heirloom(&h, worker_timer());
    if (under_sanitizer()) /* whose allocator would stay locked, if the worker is just starting */
        cr_assert(wait_state(h.ran, HWT_EXPIRED));
    expect_child(a_new_timer_works, NULL);
    expect_unaffected(&h);
}

/* A late handle may be signed in with a shell that is free (C10); who held it stays behind. */
Test(fork, a_guest_of_a_free_shell)
{
    hwt_timer *timer = worker_timer();
    uint64_t guest;

    cr_assert_not_null(timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    guest = timer_sign_in(timer);
    expect_child(a_new_timer_works, NULL);
    timer_sign_out(timer, guest);
}

/* For a child's own timer, its child is what this one was for ours. */
static int a_grandchild(void *arg)
{
    heirloom h = {.timer = worker_timer()};

    (void)arg;
    CHECK(h.timer != NULL);
    CHECK(hwt_new_timeout(h.timer, probe_task, &h.p, 0, &h.ran) == 0);
    CHECK(hwt_new_timeout(h.timer, probe_task, &h.p, HWT_MSEC(200), &h.pending) == 0);
    CHECK(wait_state(h.ran, HWT_EXPIRED));
    CHECK(run_child(all_calls_say_echild, &h) == 0);
    CHECK(run_child(a_new_timer_works, NULL) == 0);
    CHECK(wait_state(h.pending, HWT_EXPIRED));
    CHECK(hwt_timer_destroy(h.timer) == 0);
    return 0;
}

Test(fork, a_grandchild)
{
    expect_child(a_grandchild, NULL);
}

/* ---- forks at a bad moment ---- */

typedef struct noise {
    hwt_timer *timer;
    atomic_bool stop;
    atomic_uint pairs;
    atomic_uint failures;
    uint64_t seed;
} noise;

static void *make_noise(void *arg)
{
    noise *n = arg;
    hwt_timeout *timeout;
    uint64_t seed = n->seed + (uint64_t)gettid();

    while (!atomic_load(&n->stop)) {
        uint64_t delay = test_random_below(&seed, HWT_MSEC(2));

        timeout = NULL;
        if (hwt_new_timeout(n->timer, noop_task, NULL, delay, &timeout) != 0)
            atomic_fetch_add(&n->failures, 1);
        if (delay & 1)
            hwt_timeout_cancel(timeout);
        hwt_timeout_unref(timeout);
        /* A debug build's worker runs fewer than they schedule: each fork would take longer. */
        if (atomic_fetch_add(&n->pairs, 1) % 1024 == 0 && hwt_timer_pending(n->timer) > 20000)
            sleep_ms(1);
    }
    return NULL;
}

static int works_and_lets_go(void *arg)
{
    int result = a_new_timer_works(NULL);

    CHECK(result == 0);
    CHECK(hwt_new_timeout(arg, noop_task, NULL, 0, NULL) == -ECHILD);
    CHECK(hwt_timer_destroy(arg) == 0);
    return a_new_timer_works(NULL);
}

static void skip_where_malloc_forks_badly(void)
{
    if (under_sanitizer())
        cr_skip_test("this sanitizer's allocator stays locked in a child of such a fork");
}

/* Whatever other threads of the parent are doing in the library at the fork. */
Test(fork, while_other_threads_schedule)
{
    noise n = {.timer = worker_timer(), .seed = test_seed("while_other_threads_schedule")};
    pthread_t threads[2];
    hwt_stats s;

    skip_where_malloc_forks_badly();
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, make_noise, &n), 0);
    for (unsigned round = 0; round < 40; round++)
        expect_child(works_and_lets_go, n.timer);
    atomic_store(&n.stop, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    cr_assert_eq(n.failures, 0, "the parent is affected");
    cr_assert_eq(hwt_timer_stop(n.timer, NULL), 0);
    s = stats_of(n.timer);
    cr_assert_eq(s.scheduled, n.pairs);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    cr_assert_eq(hwt_timer_destroy(n.timer), 0);
}

typedef struct timer_maker {
    atomic_bool stop;
    atomic_uint failures;
} timer_maker;

static void *make_timers(void *arg)
{
    timer_maker *m = arg;

    while (!atomic_load(&m->stop)) {
        hwt_timer *timer = worker_timer();

        if (!timer || hwt_new_timeout(timer, noop_task, NULL, 0, NULL) != 0)
            atomic_fetch_add(&m->failures, 1);
        hwt_timer_destroy(timer);
    }
    return NULL;
}

Test(fork, while_other_threads_create_and_destroy_timers)
{
    timer_maker m = {0};
    pthread_t thread;

    skip_where_malloc_forks_badly();
    cr_assert_eq(pthread_create(&thread, NULL, make_timers, &m), 0);
    for (unsigned round = 0; round < 40; round++)
        expect_child(a_new_timer_works, NULL);
    atomic_store(&m.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(m.failures, 0);
}

typedef struct inner_fork {
    atomic_int code;
    atomic_uint done;
} inner_fork;

static void fork_in_task(hwt_timeout *timeout, void *arg)
{
    inner_fork *f = arg;

    (void)timeout;
    atomic_store(&f->code, run_child(a_new_timer_works, NULL));
    atomic_fetch_add(&f->done, 1);
}

/* A task forks, as one that starts a program does. */
Test(fork, from_inside_a_task)
{
    hwt_timer *timer = worker_timer();
    inner_fork f = {.code = -1};
    probe p = {0};

    cr_assert_eq(hwt_new_timeout(timer, fork_in_task, &f, 0, NULL), 0);
    cr_assert(wait_count(&f.done, 1));
    cr_assert_eq(f.code, 0, "child: %d", f.code);
    cr_assert_eq(hwt_new_timeout(timer, probe_task, &p, 0, NULL), 0);
    cr_assert(wait_count(&p.runs, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static int a_running_one_says_echild(void *arg)
{
    heirloom *h = arg;

    CHECK(!hwt_timeout_cancel(h->pending));
    CHECK(hwt_timeout_cancel_sync(h->pending) == -ECHILD); /* its task will never return here */
    CHECK(hwt_timer_stop(h->timer, NULL) == -ECHILD);
    CHECK(hwt_timer_destroy(h->timer) == 0);
    return 0;
}

/* Forked while a task runs on the worker: the child must not wait for its return. */
Test(fork, while_a_task_runs)
{
    heirloom h = {.timer = worker_timer()};
    gate g = {0};

    cr_assert_eq(hwt_new_timeout(h.timer, gate_task, &g, 0, &h.pending), 0);
    cr_assert(wait_count(&g.entered, 1));
    expect_child(a_running_one_says_echild, &h);
    gate_open(&g);
    cr_assert(wait_state(h.pending, HWT_EXPIRED));
    hwt_timeout_unref(h.pending);
    cr_assert_eq(hwt_timer_destroy(h.timer), 0);
}
