/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G12, C14: a task, a hook, an executor, a log or a clock forks, and the child destroys the timer
 * there and returns into a call that was using it: it gets out, and the parent does not notice.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(fork_callbacks, .init = test_arm);

#define OUT_WELL 42

static hwt_timer *timer;
static bool is_child;
static atomic_uint forks;
static int child_code = -1;

/* In the parent: what became of the child. In the child: on the way out. */
static void fork_here(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        is_child = true;
        alarm(15);
        if (hwt_timer_destroy(timer) != 0)
            _exit(2);
        return;
    }
    if (child > 0 && waitpid(child, &status, 0) == child)
        child_code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    atomic_fetch_add(&forks, 1);
}

static void fork_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    fork_here();
}

/* After the call that was on at the fork: its result in the child. */
#define end_child(result)                                                                          \
    do {                                                                                           \
        if (is_child)                                                                              \
            _exit((result) ? OUT_WELL : 3);                                                        \
    } while (0)

static void expect_child_out(void)
{
    cr_assert(wait_count(&forks, 1));
    cr_assert_eq(forks, 1);
    cr_assert_eq(child_code, OUT_WELL, "G12: the child: %s, %d",
                 child_code == 255 ? "killed" : "left", child_code);
}

/* G2, G3: all that the parent had is there. */
static void expect_unaffected(void)
{
    hwt_stats s;

    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    s = stats_of(timer);
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void open_rig(rig *r, hwt_wheel_kind wheel)
{
    rig_prepare(r, wheel, HWT_SEC(1));
    cr_assert_eq(rig_open(r), 0);
    timer = r->timer;
}

/* Enough that there is more in hand, in the bucket, and in later ticks. */
static void fill(void)
{
    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_USEC(10 * i), NULL), 0);
}

/* ---- the caller drives ---- */

WHEEL_TEST(fork_callbacks, a_task)
{
    rig r;
    int result;

    open_rig(&r, wheel);
    cr_assert_eq(hwt_new_timeout(timer, fork_task, NULL, 0, NULL), 0);
    fill();
    result = rig_advance_by(&r, HWT_MSEC(2));
    end_child(result == -ECHILD && hwt_timer_advance(timer) == -ECHILD);
    cr_assert_gt(result, 100);
    expect_child_out();
    expect_unaffected();
}

static void slow_log(void *log_arg, const char *message)
{
    (void)log_arg;
    (void)message;
    fork_here();
}

static void slow_task(hwt_timeout *timeout, void *clock)
{
    (void)timeout;
    virtual_add(clock, HWT_MSEC(10));
}

WHEEL_TEST(fork_callbacks, the_log)
{
    rig r;
    int result;

    rig_prepare(&r, wheel, HWT_SEC(1));
    r.config.slow_task_ns = HWT_MSEC(5);
    r.config.log = slow_log;
    cr_assert_eq(rig_open(&r), 0);
    timer = r.timer;
    cr_assert_eq(hwt_new_timeout(timer, slow_task, &r.clock, 0, NULL), 0);
    fill();
    result = rig_advance_by(&r, HWT_MSEC(2));
    end_child(result == -ECHILD);
    cr_assert_gt(result, 100);
    expect_child_out();
    expect_unaffected();
}

static void cancel_itself(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    hwt_timeout_cancel(timeout); /* its hook runs when this has returned */
}

static void schedule_with_hook(hwt_task *task, uint64_t delay_ns, uint64_t period_ns,
                               hwt_timeout **timeout)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = fork_task;
    spec.delay_ns = delay_ns;
    spec.period_ns = period_ns;
    cr_assert_eq(hwt_schedule(timer, &spec, timeout), 0);
}

WHEEL_TEST(fork_callbacks, a_hook_after_its_run)
{
    rig r;
    int result;

    open_rig(&r, wheel);
    schedule_with_hook(cancel_itself, 0, HWT_MSEC(1), NULL);
    fill();
    result = rig_advance_by(&r, HWT_MSEC(2));
    end_child(result == -ECHILD);
    cr_assert_gt(result, 100);
    expect_child_out();
    expect_unaffected();
}

/* ---- in a call of the application's ---- */

WHEEL_TEST(fork_callbacks, a_hook_in_cancel)
{
    hwt_timeout *timeout;
    rig r;
    bool won;

    open_rig(&r, wheel);
    schedule_with_hook(noop_task, HWT_SEC(1), 0, &timeout);
    won = hwt_timeout_cancel(timeout);
    hwt_timeout_unref(timeout);
    end_child(won);
    cr_assert(won);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, a_hook_in_cancel_sync)
{
    hwt_timeout *timeout;
    rig r;
    int result;

    open_rig(&r, wheel);
    schedule_with_hook(noop_task, HWT_SEC(1), 0, &timeout);
    rig_advance_by(&r, 1); /* met: a notice will be queued */
    result = hwt_timeout_cancel_sync(timeout);
    hwt_timeout_unref(timeout);
    end_child(result == -ECHILD);
    cr_assert_eq(result, 1);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, a_hook_in_stop)
{
    rig r;
    int result;

    open_rig(&r, wheel);
    schedule_with_hook(noop_task, HWT_SEC(1), 0, NULL);
    fill();
    result = hwt_timer_stop(timer, NULL);
    end_child(result == -ECHILD);
    cr_assert_eq(result, 0);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, a_hook_in_destroy)
{
    rig r;
    int result;

    open_rig(&r, wheel);
    schedule_with_hook(noop_task, HWT_SEC(1), 0, NULL);
    fill();
    result = hwt_timer_destroy(timer);
    end_child(result == 0);
    cr_assert_eq(result, 0);
    expect_child_out();
}

/* ---- an executor ---- */

static bool execute_forks;

static int run_at_once(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run(job);
    if (execute_forks && atomic_load(&forks) == 0) {
        fork_here();
        return is_child ? -1 : 0;
    }
    return 0;
}

static int refuse_all(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    (void)run;
    (void)job;
    return -1;
}

static void open_executor(rig *r, hwt_wheel_kind wheel,
                          int (*execute)(void *executor, void (*run)(void *job), void *job))
{
    rig_prepare(r, wheel, HWT_SEC(1));
    r->config.execute = execute;
    cr_assert_eq(rig_open(r), 0);
    timer = r->timer;
}

static void advance_and_expect(rig *r, bool refused)
{
    int result = rig_advance_by(r, HWT_MSEC(2));

    end_child(result == -ECHILD);
    cr_assert(refused ? result == 0 : result > 100);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, a_task_on_an_executor)
{
    rig r;

    open_executor(&r, wheel, run_at_once);
    cr_assert_eq(hwt_new_timeout(timer, fork_task, NULL, 0, NULL), 0);
    fill();
    advance_and_expect(&r, false);
}

static struct {
    void (*run)(void *job);
    void *job;
    int fd;
} kept;

static int keep_job(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    kept.run = run;
    kept.job = job;
    return 0;
}

static void fork_and_end(hwt_timeout *timeout, void *arg)
{
    fork_task(timeout, arg);
    if (is_child)
        pthread_exit(NULL);
}

static void expect_closed(void *unused)
{
    (void)unused;
    end_child(fcntl(kept.fd, F_GETFD) == -1);
}

static void *run_kept(void *unused)
{
    pthread_cleanup_push(expect_closed, NULL);
    kept.run(kept.job);
    pthread_cleanup_pop(0);
    return unused;
}

/* In the child the task does not return: the timer's parts go then. */
WHEEL_TEST(fork_callbacks, a_task_on_an_executor_that_ends_its_thread)
{
    pthread_t thread;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = HWT_DRIVE_CALLER;
    config.execute = keep_job;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    kept.fd = hwt_timer_fd(timer);
    cr_assert_geq(kept.fd, 0);
    cr_assert_eq(hwt_new_timeout(timer, fork_and_end, NULL, 0, NULL), 0);
    while (!kept.job)
        cr_assert_geq(hwt_timer_advance(timer), 0);
    cr_assert_eq(pthread_create(&thread, NULL, run_kept, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, the_executor_itself)
{
    rig r;

    execute_forks = true;
    open_executor(&r, wheel, run_at_once);
    schedule_with_hook(noop_task, 0, 0, NULL);
    fill();
    advance_and_expect(&r, false);
}

WHEEL_TEST(fork_callbacks, a_hook_after_a_refusal)
{
    rig r;

    open_executor(&r, wheel, refuse_all);
    schedule_with_hook(noop_task, 0, 0, NULL);
    fill();
    advance_and_expect(&r, true);
}

/* ---- a clock ---- */

static bool clock_forks;

static uint64_t forking_clock(void *clock)
{
    if (clock_forks) {
        clock_forks = false;
        fork_here();
    }
    return virtual_now(clock);
}

static void open_clock(rig *r, hwt_wheel_kind wheel)
{
    rig_prepare(r, wheel, HWT_SEC(1));
    r->config.now = forking_clock;
    cr_assert_eq(rig_open(r), 0);
    timer = r->timer;
}

WHEEL_TEST(fork_callbacks, a_clock_in_advance)
{
    rig r;

    open_clock(&r, wheel);
    fill();
    clock_forks = true;
    advance_and_expect(&r, false);
}

static unsigned readings, fork_at, runs_in_child;
static bool advances;

static uint64_t clock_that_forks_once(void *clock)
{
    readings += advances;
    if (advances && readings == fork_at)
        fork_here();
    return virtual_now(clock);
}

static void note_child(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    runs_in_child += is_child;
}

static void advance_with_forks(rig *r)
{
    int result;

    cr_assert_eq(rig_open(r), 0);
    timer = r->timer;
    forks = 0;
    for (unsigned i = 0; i < 6; i++)
        cr_assert_eq(hwt_new_timeout_at(timer, note_child, NULL, r->clock.now + i, NULL), 0);
    readings = 0;
    advances = true;
    result = rig_advance_by(r, HWT_MSEC(2));
    advances = false;
    end_child(result == -ECHILD && runs_in_child == 0);
    cr_assert_eq(result, 6);
    fork_at = readings < fork_at ? 0 : fork_at + 1;
    if (fork_at)
        expect_child_out();
    expect_unaffected();
}

/* Whenever it is read. No task of the parent's runs in the child. */
static void every_reading_forks(rig *r)
{
    r->config.now = clock_that_forks_once;
    for (fork_at = 1; fork_at;)
        advance_with_forks(r);
}

WHEEL_TEST(fork_callbacks, a_clock_whenever_it_is_read)
{
    rig r;

    rig_prepare(&r, wheel, HWT_SEC(1));
    every_reading_forks(&r);
    r.config.slow_task_ns = 1;
    every_reading_forks(&r);
    r.config.execute = run_at_once;
    every_reading_forks(&r);
}

WHEEL_TEST(fork_callbacks, a_clock_in_a_submission)
{
    rig r;
    int result;

    open_clock(&r, wheel);
    clock_forks = true;
    result = hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(1), NULL);
    end_child(result == -ECHILD);
    cr_assert_eq(result, 0);
    expect_child_out();
    expect_unaffected();
}

WHEEL_TEST(fork_callbacks, a_clock_in_reschedule)
{
    hwt_timeout *timeout;
    rig r;
    bool moved;

    open_clock(&r, wheel);
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(1), &timeout), 0);
    clock_forks = true;
    moved = hwt_timeout_reschedule(timeout, 1);
    hwt_timeout_unref(timeout);
    end_child(!moved);
    cr_assert(moved);
    expect_child_out();
    expect_unaffected();
}

/* ---- a worker: the child's thread ends, after its destructors ---- */

static pthread_key_t key;

static void leave(void *result)
{
    (void)result;
    _exit(is_child ? OUT_WELL : 4);
}

static void fork_on_the_worker(hwt_timeout *timeout, void *arg)
{
    fork_task(timeout, arg);
    if (is_child)
        pthread_setspecific(key, &key);
}

WHEEL_TEST(fork_callbacks, a_task_on_the_worker)
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    cr_assert_eq(pthread_key_create(&key, leave), 0);
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, fork_on_the_worker, NULL, 0, NULL), 0);
    fill();
    expect_child_out();
    expect_unaffected();
}
