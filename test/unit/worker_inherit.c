/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the manners of the worker's thread (G13) mean for a task: faults in it, the threads and
 * processes that it starts; and that worker_start may change them. What it has from who starts it.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(worker_inherit, .init = test_arm);

enum { OWN_SLACK = 70000 };

/* Of the thread that looks: does it block SIGTERM, how late may it be woken. */
typedef struct manners {
    int blocks;
    int slack;
} manners;

static manners look(void)
{
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return (manners){sigismember(&mask, SIGTERM), prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)};
}

typedef struct family {
    manners task, thread;
    int child; /* the exit code of one that finds the manners of the task in itself is 0 */
    atomic_uint done;
} family;

static void *look_from_thread(void *arg)
{
    *(manners *)arg = look();
    return NULL;
}

static void start_a_family(hwt_timeout *timeout, void *arg)
{
    family *f = arg;
    pthread_t thread;
    pid_t child;

    (void)timeout;
    f->task = look();
    if (pthread_create(&thread, NULL, look_from_thread, &f->thread) == 0)
        pthread_join(thread, NULL);
    child = fork();
    if (child == 0) {
        manners own = look();
        _exit(own.blocks == f->task.blocks && own.slack == f->task.slack ? 0 : 1);
    }
    waitpid(child, &f->child, 0);
    atomic_fetch_add(&f->done, 1);
}

static family family_of(const hwt_config *config)
{
    hwt_timer *timer;
    family f = {.child = -1};

    cr_assert_eq(hwt_timer_create(&timer, config), 0);
    cr_assert_eq(hwt_new_timeout(timer, start_a_family, &f, 0, NULL), 0);
    cr_assert(wait_count(&f.done, 1));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_expect_eq(f.thread.blocks, f.task.blocks);
    cr_expect_eq(f.thread.slack, f.task.slack);
    cr_expect_eq(f.child, 0);
    return f;
}

Test(worker_inherit, threads_and_processes_of_a_task)
{
    family f = family_of(NULL);

    cr_expect_eq(f.task.blocks, 1);
    cr_expect_eq(f.task.slack, 1);
}

static void set_manners(void *unused)
{
    sigset_t none;

    (void)unused;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_TIMERSLACK, OWN_SLACK, 0, 0, 0);
}

Test(worker_inherit, worker_start_sets_both)
{
    hwt_config config;
    family f;

    hwt_config_init(&config);
    config.worker_start = set_manners;
    f = family_of(&config);
    cr_expect_eq(f.task.blocks, 0);
    cr_expect_eq(f.task.slack, OWN_SLACK);
}

/* musl has no mask in its attributes, and glibc has one since 2.32. */
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 32)
Test(worker_inherit, a_mask_in_the_attributes_does_not_count)
{
    hwt_config config;
    pthread_attr_t attr;
    sigset_t none;

    sigemptyset(&none);
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setsigmask_np(&attr, &none), 0);
    hwt_config_init(&config);
    config.thread_attr = &attr;
    cr_expect_eq(family_of(&config).task.blocks, 1);
    pthread_attr_destroy(&attr);
}
#endif

/* ---- CPUs and policy, where no attributes set them ---- */

typedef struct place {
    int cpus, policy;
    atomic_uint done;
} place;

static int cpus_of_this_thread(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : -1;
}

static int policy_of_this_thread(void)
{
    struct sched_param unused;
    int policy;

    return pthread_getschedparam(pthread_self(), &policy, &unused) == 0 ? policy : -1;
}

static void look_where(hwt_timeout *timeout, void *arg)
{
    place *p = arg;

    (void)timeout;
    p->cpus = cpus_of_this_thread();
    p->policy = policy_of_this_thread();
    atomic_fetch_add(&p->done, 1);
}

/* A thread bound to one CPU, with a policy of its own, schedules the first timeout. */
static void *schedule_bound(void *timer)
{
    struct sched_param none = {0};
    cpu_set_t one;
    place *p = calloc(1, sizeof *p);

    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(pthread_setschedparam(pthread_self(), SCHED_BATCH, &none), 0);
    cr_assert_eq(hwt_new_timeout(timer, look_where, p, 0, NULL), 0);
    cr_assert(wait_count(&p->done, 1));
    return p;
}

static place where_it_runs(bool start)
{
    hwt_timer *timer;
    pthread_t thread;
    void *seen;
    place p;

    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    if (start)
        cr_assert_eq(hwt_timer_start(timer), 0);
    cr_assert_eq(pthread_create(&thread, NULL, schedule_bound, timer), 0);
    cr_assert_eq(pthread_join(thread, &seen), 0);
    p = *(place *)seen;
    free(seen);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    return p;
}

Test(worker_inherit, affinity_and_policy_of_who_starts_it)
{
    place lazy = where_it_runs(false), started = where_it_runs(true);

    cr_expect_eq(lazy.cpus, 1);
    cr_expect_eq(lazy.policy, SCHED_BATCH);
    cr_expect_eq(started.cpus, cpus_of_this_thread());
    cr_expect_eq(started.policy, policy_of_this_thread());
}

/* ---- faults ---- */

static char *page; /* closed until its fault is handled */

static void open_page(int signal)
{
    (void)signal;
    mprotect(page, 1, PROT_READ | PROT_WRITE);
}

static void touch_page(hwt_timeout *timeout, void *touched)
{
    (void)timeout;
    *(volatile char *)page = 1;
    atomic_fetch_add((atomic_uint *)touched, 1);
}

/* In a child of its own: how that ends. */
static int fault_in_a_task(void (*worker_start)(void *))
{
    struct sigaction action = {.sa_handler = open_page};
    atomic_uint touched = 0;
    hwt_config config;
    hwt_timer *timer;
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        alarm(PATIENCE_S);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* no core */
        page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sigaction(SIGSEGV, &action, NULL);
        hwt_config_init(&config);
        config.worker_start = worker_start;
        if (hwt_timer_create(&timer, &config) != 0 ||
            hwt_new_timeout(timer, touch_page, &touched, 0, NULL) != 0)
            _exit(2);
        _exit(wait_count(&touched, 1) && hwt_timer_destroy(timer) == 0 ? 0 : 3);
    }
    waitpid(child, &status, 0);
    return status;
}

Test(worker_inherit, a_fault_passes_the_handler)
{
    int status;

    if (getenv("HWT_VALGRIND")) /* which reports what is meant to be */
        return;
    status = fault_in_a_task(NULL);
    cr_assert(WIFSIGNALED(status), "%#x", status);
    cr_assert_eq(WTERMSIG(status), SIGSEGV);
}

Test(worker_inherit, a_fault_that_worker_start_lets_through)
{
    if (!getenv("HWT_VALGRIND"))
        cr_assert_eq(fault_in_a_task(set_manners), 0);
}
