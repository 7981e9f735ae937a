/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The manners of the worker thread (G13): signals, name, timer slack, the given
 * attributes; and what the library says through the log.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(worker_thread, .init = test_arm);

/* What a task sees of the thread that it runs on. */
typedef struct view {
    atomic_uint done;
    char name[64];
    sigset_t mask;
    int slack;
    size_t stack;
    cpu_set_t cpus;
    int policy;
} view;

static void look_around(hwt_timeout *timeout, void *arg)
{
    view *v = arg;
    struct sched_param param;
    pthread_attr_t attr;

    (void)timeout;
    pthread_getname_np(pthread_self(), v->name, sizeof(v->name));
    pthread_sigmask(SIG_BLOCK, NULL, &v->mask);
    v->slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    pthread_getaffinity_np(pthread_self(), sizeof(v->cpus), &v->cpus);
    pthread_getschedparam(pthread_self(), &v->policy, &param);
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstacksize(&attr, &v->stack);
        pthread_attr_destroy(&attr);
    }
    atomic_fetch_add(&v->done, 1);
}

static void look_from(const hwt_config *config, view *v)
{
    hwt_timer *timer;

    memset(v, 0, sizeof(*v));
    cr_assert_eq(hwt_timer_create(&timer, config), 0);
    cr_assert_eq(hwt_new_timeout(timer, look_around, v, 0, NULL), 0);
    cr_assert(wait_count(&v->done, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static bool is_blockable(int signal)
{
    return signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN);
}

Test(worker_thread, blocks_all_signals)
{
    sigset_t before, after;
    view v;

    pthread_sigmask(SIG_BLOCK, NULL, &before);
    look_from(NULL, &v);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        if (!is_blockable(signal))
            continue;
        cr_expect(sigismember(&v.mask, signal), "G13: signal %d", signal);
        cr_expect_eq(sigismember(&before, signal), sigismember(&after, signal),
                     "the starter's own mask, signal %d", signal);
    }
}

static volatile sig_atomic_t delivered;
static pthread_t delivered_to;

static void note_signal(int signal)
{
    (void)signal;
    delivered_to = pthread_self();
    delivered = 1;
}

/* G13: signals of the process reach its own threads and leave the timer working. */
Test(worker_thread, signals_go_elsewhere)
{
    struct sigaction action = {.sa_handler = note_signal}, now_set;
    hwt_timer *timer = worker_timer();
    probe p = {0};
    hwt_spec spec;

    cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
    probe_spec(&spec, &p, 0);
    spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    for (unsigned i = 0; i < 200; i++) {
        cr_assert_eq(kill(getpid(), SIGUSR1), 0);
        usleep(200);
    }
    cr_assert(wait_count(&p.runs, 20));
    cr_assert(delivered && pthread_equal(delivered_to, pthread_self()));
    cr_assert_eq(sigaction(SIGUSR1, NULL, &now_set), 0);
    cr_assert_eq(now_set.sa_handler, note_signal);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(worker_thread, name)
{
    static const char long_name[] = "a-name-longer-than-linux-takes";
    hwt_config config;
    view v;

    look_from(NULL, &v);
    cr_expect_str_eq(v.name, "hwt-worker");
    hwt_config_init(&config);
    config.thread_name = "my-timer";
    look_from(&config, &v);
    cr_expect_str_eq(v.name, "my-timer");
    config.thread_name = long_name;
    look_from(&config, &v);
    cr_expect_eq(strncmp(v.name, long_name, 15), 0, "cut, not dropped: %s", v.name);
}

Test(worker_thread, timer_slack)
{
    int mine = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    view v;

    look_from(NULL, &v);
    cr_assert_leq(v.slack, 1000, "G13: %d ns", v.slack);
    cr_assert_eq(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), mine);
}

/* ---- attributes ---- */

/* The attributes are copied by create: gone before the thread starts. */
Test(worker_thread, stack_size)
{
    const size_t size = 3u << 20;
    hwt_timer *timer;
    hwt_config config;
    pthread_attr_t attr;
    view v = {0};

    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setstacksize(&attr, size), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(pthread_attr_destroy(&attr), 0);
    memset(&attr, 0xff, sizeof(attr));
    cr_assert_eq(hwt_new_timeout(timer, look_around, &v, 0, NULL), 0);
    cr_assert(wait_count(&v.done, 1));
    cr_assert(v.stack >= size && v.stack < size + (1u << 20), "%zu", v.stack);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Crowded ticks, which are sorted on it, cancellations and moves: as deep as it goes. */
static void keep_busy(hwt_timer *timer)
{
    enum { MANY = 100000 };

    for (uint64_t i = 0; i < MANY; i++) {
        hwt_timeout *timeout = NULL;
        uint64_t spread = i * 2654435761u % HWT_MSEC(40);

        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL,
                                     i % 2 ? spread : HWT_MSEC(60) + spread % 1000, &timeout),
                     0);
        if (i % 3 == 0)
            hwt_timeout_cancel(timeout);
        if (i % 7 == 0)
            hwt_timeout_reschedule(timeout, spread / 10);
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(hwt_timer_drain(timer, HWT_SEC(PATIENCE_S), NULL), 0);
}

WHEEL_TEST(worker_thread, stack_that_it_takes_itself)
{
    enum { SIZE = 1 << 20, UNUSED = 0xa5 };
    unsigned char *stack;
    hwt_timer *timer;
    hwt_config config;
    pthread_attr_t attr;
    size_t untouched = 0;

    if (under_sanitizer()) /* whose frames are larger */
        return;
    stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(stack, MAP_FAILED);
    memset(stack, UNUSED, SIZE);
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setstack(&attr, stack, SIZE), 0);
    hwt_config_init(&config);
    config.wheel = wheel;
    config.thread_attr = &attr;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    keep_busy(timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    while (untouched < SIZE && stack[untouched] == UNUSED)
        untouched++;
    cr_assert_leq(SIZE - untouched, 24 << 10, "%zu bytes", SIZE - untouched);
    cr_assert_eq(pthread_attr_destroy(&attr), 0);
    munmap(stack, SIZE);
}

Test(worker_thread, affinity)
{
    cpu_set_t mine, one;
    hwt_config config;
    pthread_attr_t attr;
    view v;
    size_t cpu = 0;

    cr_assert_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setaffinity_np(&attr, sizeof(one), &one), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    look_from(&config, &v);
    cr_assert(CPU_EQUAL(&v.cpus, &one));
    pthread_attr_destroy(&attr);
}

/* All that a cpu_set_t has room for is something else than nothing. */
Test(worker_thread, affinity_of_all)
{
    cpu_set_t mine, some;
    hwt_config config;
    pthread_attr_t attr;
    view v;

    cr_assert_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    if (CPU_COUNT(&mine) < 2)
        cr_skip_test("a single CPU");
    cr_assert_eq(pthread_attr_init(&attr), 0);
    memset(&some, 0xff, sizeof(some));
    cr_assert_eq(pthread_attr_setaffinity_np(&attr, sizeof(some), &some), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    CPU_ZERO(&some);
    for (size_t cpu = 0; CPU_COUNT(&some) == 0; cpu++) {
        if (CPU_ISSET(cpu, &mine))
            CPU_SET(cpu, &some);
    }
    cr_assert_eq(sched_setaffinity(0, sizeof(some), &some), 0);
    look_from(&config, &v);
    cr_assert(CPU_EQUAL(&v.cpus, &mine));
    pthread_attr_destroy(&attr);
}

/* A machine with so many may have it. */
Test(worker_thread, affinity_beyond_a_cpu_set_t)
{
    cpu_set_t cpus[2] = {0};
    hwt_config config;
    hwt_timer *timer;
    pthread_attr_t attr;

    CPU_SET_S(CPU_SETSIZE + 1, sizeof(cpus), cpus);
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setaffinity_np(&attr, sizeof(cpus), cpus), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pthread_attr_destroy(&attr);
}

/* What is inherited need not fit together: nobody looks at it. */
Test(worker_thread, a_policy_that_is_not_asked_for)
{
    hwt_config config;
    pthread_attr_t attr;
    view v;

    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED), 0);
    cr_assert_eq(pthread_attr_setschedpolicy(&attr, SCHED_FIFO), 0); /* its priority is 0 */
    hwt_config_init(&config);
    config.thread_attr = &attr;
    look_from(&config, &v);
    cr_assert_eq(v.policy, SCHED_OTHER);
    pthread_attr_destroy(&attr);
}

/* stop joins the worker, whatever the attributes say about that. */
Test(worker_thread, detached_attribute)
{
    hwt_config config;
    pthread_attr_t attr;
    unsigned threads = thread_count();
    view v;

    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    look_from(&config, &v);
    cr_assert(wait_threads(threads));
    pthread_attr_destroy(&attr);
}

static void set_fifo(pthread_attr_t *attr, hwt_config *config)
{
    struct sched_param param = {.sched_priority = 1};

    pthread_attr_init(attr);
    pthread_attr_setinheritsched(attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(attr, SCHED_FIFO);
    pthread_attr_setschedparam(attr, &param);
    hwt_config_init(config);
    config->thread_attr = attr;
}

/* In a child that gave up its privileges: the exit code names the check that failed. */
static int refused_fifo(void)
{
    hwt_timeout *const untouched = (hwt_timeout *)&errno;
    hwt_timeout *timeout = untouched;
    hwt_timer *timer;
    hwt_config config;
    pthread_attr_t attr;

    set_fifo(&attr, &config);
    if (geteuid() == 0 && setuid(65534) != 0)
        return 1;
    if (hwt_timer_create(&timer, &config) != 0)
        return 2;
    if (hwt_timer_start(timer) != -EPERM || hwt_timer_start(timer) != -EPERM)
        return 3;
    if (hwt_new_timeout(timer, noop_task, NULL, 0, &timeout) != -EPERM || timeout != untouched)
        return 4;
    if (hwt_timer_pending(timer) != 0 || stats_of(timer).scheduled != 0)
        return 5;
    if (hwt_timer_is_stopped(timer) || hwt_timer_destroy(timer) != 0)
        return 6;
    return 0;
}

Test(worker_thread, fifo_refused_is_a_clear_error)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(20);
        _exit(refused_fifo());
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    cr_assert_eq(WEXITSTATUS(status), 0, "check %d", WEXITSTATUS(status));
}

Test(worker_thread, fifo_where_permitted)
{
    hwt_timer *timer;
    hwt_config config;
    pthread_attr_t attr;
    view v = {0};
    int result;

    set_fifo(&attr, &config);
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    result = hwt_timer_start(timer);
    cr_assert(result == 0 || result == -EPERM, "%d", result);
    if (result == 0) {
        cr_assert_eq(hwt_new_timeout(timer, look_around, &v, 0, NULL), 0);
        cr_assert(wait_count(&v.done, 1));
        cr_assert_eq(v.policy, SCHED_FIFO);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pthread_attr_destroy(&attr);
}

/* ---- the log ---- */

typedef struct journal {
    atomic_uint lines;
    char last[512];
} journal;

static void write_journal(void *log_arg, const char *message)
{
    journal *j = log_arg;

    snprintf(j->last, sizeof(j->last), "%s", message);
    atomic_fetch_add(&j->lines, 1);
}

static void slow_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    sleep_ms(30);
}

Test(worker_thread, a_slow_task_is_counted_and_logged)
{
    journal j = {0};
    char address[32];
    hwt_timer *timer;
    hwt_config config;

    hwt_config_init(&config);
    config.slow_task_ns = HWT_MSEC(20);
    config.log = write_journal;
    config.log_arg = &j;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, slow_task, NULL, 0, NULL), 0);
    cr_assert(wait_count(&j.lines, 1));
    snprintf(address, sizeof(address), "%lx", (unsigned long)(uintptr_t)slow_task);
    cr_assert_not_null(strstr(j.last, address), "the task's address is missing: %s", j.last);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(stats_of(timer).slow_tasks, 1);
    cr_assert_eq(j.lines, 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Neither below the limit, nor at all when there is none. A missing log is no trouble. */
Test(worker_thread, slow_tasks_only_beyond_the_limit)
{
    static const struct {
        uint64_t limit;
        unsigned slow;
    } cases[] = {{0, 0}, {HWT_SEC(100), 0}, {HWT_MSEC(10), 1}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_timer *timer;
        hwt_config config;

        hwt_config_init(&config);
        config.drive = HWT_DRIVE_CALLER;
        config.slow_task_ns = cases[i].limit;
        cr_assert_eq(hwt_timer_create(&timer, &config), 0);
        cr_assert_eq(hwt_new_timeout(timer, slow_task, NULL, 0, NULL), 0);
        cr_assert_eq(hwt_timer_advance(timer), 1);
        cr_expect_eq(stats_of(timer).slow_tasks, cases[i].slow);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
}

Test(worker_thread, more_than_64_timers_is_worth_a_warning)
{
    hwt_timer *timers[66];
    journal j = {0};
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.log = write_journal;
    config.log_arg = &j;
    for (size_t i = 0; i < COUNT_OF(timers); i++) {
        cr_assert_eq(hwt_timer_create(&timers[i], &config), 0);
        cr_assert(i >= 64 ? j.lines > 0 : j.lines == 0, "timer %zu: %u lines", i + 1, j.lines);
    }
    for (size_t i = 0; i < COUNT_OF(timers); i++)
        cr_assert_eq(hwt_timer_destroy(timers[i]), 0);
}

/* The count is of living timers: thousands one after another are no reason to complain. */
Test(worker_thread, dead_timers_are_not_counted)
{
    journal j = {0};
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.log = write_journal;
    config.log_arg = &j;
    for (unsigned i = 0; i < 1000; i++) {
        hwt_timer *timer;

        cr_assert_eq(hwt_timer_create(&timer, &config), 0);
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    }
    cr_assert_eq(j.lines, 0);
}
