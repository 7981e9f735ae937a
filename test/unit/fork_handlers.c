/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G12, C14 with an application that has fork handlers of its own, and uses timers in them: those
 * that were registered before the library's, and those that were registered after.
 */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(fork_handlers, .init = test_arm);

#define HANDLERS 2 /* before the library's, after them */

static bool handlers_act, child_alone; /* only in the child */
static bool wipes_pages;               /* the kernel; since Linux 4.14 */
static hwt_timer *parents;
static hwt_timeout *parents_pending, *parents_first;
static unsigned prepared, parented, childed, failures;
static hwt_timer *made_in_child[HANDLERS];

static void expect_that(bool holds)
{
    failures += !holds;
}

static void make_and_unmake(void)
{
    hwt_timer *timer = NULL;
    hwt_timeout *timeout = NULL;

    expect_that(hwt_timer_create(&timer, NULL) == 0);
    expect_that(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(60), &timeout) == 0);
    expect_that(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    expect_that(hwt_timer_destroy(timer) == 0);
}

static void in_prepare(void)
{
    if (!handlers_act || child_alone)
        return;
    make_and_unmake();
    prepared++;
}

static void in_parent(void)
{
    if (!handlers_act || child_alone)
        return;
    make_and_unmake();
    parented++;
}

/* Of these none waits for anything, nor has the library been told of the fork before the first. */
static void the_parents_is_dead(void)
{
    hwt_timeout *timeout = NULL;
    hwt_stats stats;

    hwt_stats_init(&stats);
    expect_that(hwt_new_timeout(parents, noop_task, NULL, 0, &timeout) == -ECHILD && !timeout);
    expect_that(!hwt_timeout_cancel(parents_pending));
    expect_that(!hwt_timeout_reschedule(parents_pending, 0));
    expect_that(hwt_timeout_renew(&parents_first, NULL, 0) == -ECHILD);
    expect_that(hwt_timer_stats(parents, &stats) == -ECHILD);
    expect_that(hwt_timer_pending(parents) == 0 && hwt_timer_is_stopped(parents));
}

static void in_child(unsigned which)
{
    hwt_unprocessed list = {0};

    if (!handlers_act)
        return;
    if (wipes_pages || which > 0)
        the_parents_is_dead();
    expect_that(hwt_timer_stop(parents, &list) == -ECHILD);
    expect_that(hwt_timeout_cancel_sync(parents_pending) == -ECHILD);
    expect_that(hwt_timer_start(parents) == -ECHILD);
    expect_that(hwt_new_timeout(parents, noop_task, NULL, 0, NULL) == -ECHILD);
    make_and_unmake();
    expect_that(hwt_timer_create(&made_in_child[which], NULL) == 0);
    expect_that(hwt_new_timeout(made_in_child[which], noop_task, NULL, HWT_SEC(60), NULL) == 0);
    childed++;
}

static void early_in_child(void)
{
    in_child(0);
}

static void late_in_child(void)
{
    in_child(1);
}

/* This object comes before the library's in the program, and so does its constructor. */
__attribute__((constructor(101))) static void register_early(void)
{
    pthread_atfork(in_prepare, in_parent, early_in_child);
}

static int check_child(void)
{
    atomic_uint runs = 0;

    if (failures > 0 || childed != HANDLERS)
        return 1;
    for (unsigned i = 0; i < HANDLERS; i++) {
        if (hwt_new_timeout(made_in_child[i], count_task, &runs, 0, NULL) != 0)
            return 2;
        if (!wait_count(&runs, i + 1))
            return 3;
        if (hwt_timer_destroy(made_in_child[i]) != 0)
            return 4;
    }
    handlers_act = false;
    return hwt_timer_destroy(parents) == 0 ? 0 : 5;
}

static int in_child_process(int (*check)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        alarm(15);
        _exit(check());
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/*
 * A worker that has begun, and has nothing left to allocate or to free: AddressSanitizer's locks,
 * which a thread takes that begins or frees, are in the child as they were.
 */
static bool make_parents(void)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_uint runs = 0;

    wipes_pages = page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0;
    munmap(page, 4096);
    parents = worker_timer();
    return parents &&
           hwt_new_timeout(parents, noop_task, NULL, HWT_SEC(60), &parents_pending) == 0 &&
           hwt_new_timeout(parents, count_task, &runs, 0, &parents_first) == 0 &&
           wait_count(&runs, 1);
}

Test(fork_handlers, that_use_timers)
{
    atomic_uint runs = 0;

    alarm(30);
    pthread_atfork(in_prepare, in_parent, late_in_child);
    cr_assert(make_parents());
    handlers_act = true;
    for (unsigned round = 1; round <= 3; round++) {
        cr_assert_eq(in_child_process(check_child), 0, "G12");
        cr_assert_eq(prepared, round * HANDLERS);
        cr_assert_eq(parented, round * HANDLERS);
        cr_assert_eq(failures, 0);
    }
    handlers_act = false;
    cr_assert_eq(hwt_new_timeout(parents, count_task, &runs, 0, NULL), 0);
    cr_assert(wait_count(&runs, 1), "the parent is affected");
    hwt_timeout_cancel(parents_pending);
    hwt_timeout_unref(parents_pending);
    hwt_timeout_unref(parents_first);
    cr_assert_eq(hwt_timer_destroy(parents), 0);
}

/* By the system call, or _Fork: nobody's handlers are called. */
Test(fork_handlers, that_are_not_called)
{
    hwt_timer *timer = NULL;
    int status = 0;
    long child;

    cr_assert(make_parents());
    if (!wipes_pages)
        cr_skip_test("before Linux 4.14");
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        hwt_config config;
        the_parents_is_dead();
        hwt_config_init(&config);
        config.drive = HWT_DRIVE_CALLER;
        expect_that(hwt_timer_create(&timer, &config) == 0);
        expect_that(hwt_new_timeout(timer, noop_task, NULL, 0, NULL) == 0);
        expect_that(hwt_timer_advance(timer) == 1);
        the_parents_is_dead();
        expect_that(hwt_timer_destroy(timer) == 0);
        _exit((int)failures);
    }
    cr_assert(child > 0 && waitpid((pid_t)child, &status, 0) == child);
    cr_assert_eq(status, 0, "G12");
    cr_assert(hwt_timeout_cancel(parents_pending));
    hwt_timeout_unref(parents_pending);
    hwt_timeout_unref(parents_first);
    cr_assert_eq(hwt_timer_destroy(parents), 0);
}

#define NOT_PERMITTED 77

static void give_up(int number)
{
    (void)number;
    _exit(99);
}

/* Process 1, whose child is process 1 of another namespace; from then on it starts no threads. */
static int be_first_and_fork(void)
{
    if (!make_parents())
        return 98;
    if (getpid() != 1 || unshare(CLONE_NEWPID) != 0)
        return NOT_PERMITTED;
    handlers_act = child_alone = true;
    return in_child_process(check_child);
}

static int enter_namespace(void)
{
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        return NOT_PERMITTED;
    return in_child_process(be_first_and_fork);
}

Test(fork_handlers, in_a_child_with_the_number_of_its_parent)
{
    int result;

    signal(SIGALRM, give_up); /* which process 1 survives otherwise */
    pthread_atfork(in_prepare, in_parent, late_in_child);
    result = in_child_process(enter_namespace);
    if (result == NOT_PERMITTED)
        cr_skip_test("no PID namespaces here");
    cr_assert_eq(result, 0, "G12, C14: %d", result);
}
