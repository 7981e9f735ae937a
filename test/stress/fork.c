/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G12: the process forks again and again while other threads schedule and cancel, from outside and
 * from inside a task. In the child the parent's timer is dead and says so, a timer of its own
 * works, and nothing hangs; the parent's ledger balances at the end. Before all that a process with
 * one thread forks: under a sanitizer, too, other threads of the child take the locks that were
 * held over the fork.
 */
#include "stress.h"

#include <sys/wait.h>

enum { PRODUCERS = 2, WINDOW = 64, CHILD_TIMEOUTS = 50 };

/*
 * The sanitizers' own runtimes do not survive such a fork: a lock of their allocator may have been
 * held by another thread. There the child only asks what needs no memory, and may hang in them.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CHILD_IS_FRAIL 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CHILD_IS_FRAIL 1
#endif
#endif
#ifndef CHILD_IS_FRAIL
#define CHILD_IS_FRAIL 0
#endif

static hwt_timer *parent_timer;
static hwt_timeout *parent_timeout; /* an hour away */
static _Atomic bool quit;
static _Atomic uint64_t accepted, ran, cancelled, forks_in_task;

static void parent_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

/* ---- the child ---- */
#define CHILD_CHECK(condition, code)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(code);                                                                           \
    } while (0)

static void child_task(hwt_timeout *timeout, void *arg)
{
    _Atomic uint64_t *runs = arg;

    (void)timeout;
    atomic_fetch_add(runs, 1);
}

static void child_checks_parents_timer(void)
{
    hwt_timeout *handle = NULL;
    hwt_unprocessed list = {0};
    hwt_spec spec;

    CHILD_CHECK(hwt_new_timeout(parent_timer, parent_task, NULL, 0, &handle) == -ECHILD, 10);
    CHILD_CHECK(hwt_new_timeout_at(parent_timer, parent_task, NULL, 0, NULL) == -ECHILD, 11);
    hwt_spec_init(&spec);
    spec.task = parent_task;
    CHILD_CHECK(hwt_schedule(parent_timer, &spec, &handle) == -ECHILD, 12);
    CHILD_CHECK(handle == NULL, 13);
    CHILD_CHECK(!hwt_timeout_cancel(parent_timeout), 14);
    CHILD_CHECK(!hwt_timeout_reschedule(parent_timeout, 0), 15);
    CHILD_CHECK(!hwt_timeout_reschedule_at(parent_timeout, 0), 16);
    CHILD_CHECK(hwt_timer_stop(parent_timer, &list) == -ECHILD, 17);
    CHILD_CHECK(list.count == 0, 18);
}

static void child_uses_timer_of_its_own(void)
{
    _Atomic uint64_t runs = 0;
    hwt_timer *timer = NULL;
    hwt_timeout *handle = NULL;

    CHILD_CHECK(hwt_timer_create(&timer, NULL) == 0, 20);
    for (uint64_t i = 0; i < CHILD_TIMEOUTS; i++)
        CHILD_CHECK(hwt_new_timeout(timer, child_task, &runs, HWT_USEC(20 * i), NULL) == 0, 21);
    CHILD_CHECK(hwt_new_timeout(timer, child_task, &runs, HWT_SEC(60), &handle) == 0, 22);
    CHILD_CHECK(hwt_timeout_cancel(handle), 23);
    hwt_timeout_unref(handle);
    while (atomic_load(&runs) < CHILD_TIMEOUTS)
        stress_sleep(100000); /* the child's alarm ends this if it never comes */
    CHILD_CHECK(hwt_timer_stop(timer, NULL) == 0, 24);
    CHILD_CHECK(atomic_load(&runs) == CHILD_TIMEOUTS, 25);
    CHILD_CHECK(hwt_timer_destroy(timer) == 0, 26);
}

__attribute__((noreturn)) static void be_the_child(bool in_task)
{
    sigset_t all;

    sigfillset(&all); /* a worker blocks every signal, and so would the child of its task */
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_IS_FRAIL ? 3 : 60);
    if (!in_task) {
        child_checks_parents_timer();
    } else {
        CHILD_CHECK(hwt_new_timeout(parent_timer, parent_task, NULL, 0, NULL) == -ECHILD, 10);
        CHILD_CHECK(!hwt_timeout_cancel(parent_timeout), 14);
    }
    if (CHILD_IS_FRAIL)
        _exit(0);
    child_uses_timer_of_its_own();
    if (!in_task) {
        CHILD_CHECK(hwt_timer_destroy(parent_timer) == 0, 30);
        CHILD_CHECK(!hwt_timeout_cancel(parent_timeout), 31);
        hwt_timeout_unref(parent_timeout);
    }
    _exit(0);
}

/* ---- a child of one thread ---- */

/* A reserve of more than there is takes every lock of the process. */
static void *child_thread(void *arg)
{
    hwt_config config;
    hwt_timer *timer = NULL;

    hwt_config_init(&config);
    config.reserve = 100000;
    CHILD_CHECK(hwt_timer_create(&timer, &config) == 0, 40);
    CHILD_CHECK(hwt_timer_destroy(timer) == 0, 41);
    return arg;
}

static void fork_alone(void)
{
    int status = 0;
    pid_t child = fork();

    STRESS_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        alarm(60);
        stress_join(stress_thread(child_thread, NULL));
        child_uses_timer_of_its_own();
        exit(0); /* with what a sanitizer has to say */
    }
    STRESS_CHECK(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
    STRESS_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "G12: a lone thread's child: %#x",
                 (unsigned)status);
}

/* ---- beside other threads ---- */

static void fork_once(bool in_task)
{
    int status = 0;
    pid_t child = fork();

    STRESS_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0)
        be_the_child(in_task);
    while (waitpid(child, &status, 0) < 0)
        STRESS_CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    if (CHILD_IS_FRAIL && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return;
    STRESS_CHECK(WIFEXITED(status), "G12: the child died of signal %d (%s)%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    STRESS_CHECK(WEXITSTATUS(status) == 0, "G12: the child's check %d failed", WEXITSTATUS(status));
}

/* ---- the parent ---- */
static void fork_in_task(hwt_timeout *timeout, void *arg)
{
    fork_once(true);
    atomic_fetch_add(&forks_in_task, 1);
    parent_task(timeout, arg);
}

static void *producer(void *arg)
{
    hwt_timeout *window[WINDOW] = {0};

    for (uint64_t i = 0; !atomic_load(&quit); i++) {
        hwt_timeout **place = &window[i % WINDOW];

        if (*place != NULL && hwt_timeout_cancel(*place))
            atomic_fetch_add(&cancelled, 1);
        hwt_timeout_unref(*place);
        STRESS_OK(
            hwt_new_timeout(parent_timer, parent_task, NULL, stress_below(HWT_MSEC(2)), place));
        atomic_fetch_add(&accepted, 1);
    }
    for (int i = 0; i < WINDOW; i++)
        hwt_timeout_unref(window[i]);
    return arg;
}

static void check_parent(void)
{
    hwt_stats s = stress_stats(parent_timer);

    stress_check_balance(parent_timer);
    STRESS_CHECK(s.scheduled == atomic_load(&accepted), "%" PRIu64 " scheduled", s.scheduled);
    STRESS_CHECK(s.runs == atomic_load(&ran), "%" PRIu64 " runs", s.runs);
    STRESS_CHECK(s.cancelled == atomic_load(&cancelled), "%" PRIu64 " cancelled", s.cancelled);
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2));
    pthread_t producers[PRODUCERS];
    uint64_t forks = 0;

    fork_alone();
    STRESS_OK(hwt_timer_create(&parent_timer, NULL));
    STRESS_OK(hwt_new_timeout(parent_timer, parent_task, NULL, HWT_SEC(3600), &parent_timeout));
    atomic_fetch_add(&accepted, 1);
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(producer, NULL);
    for (; stress_now() < end; forks++) {
        fork_once(false);
        if (stress_one_in(4)) {
            uint64_t before = atomic_load(&forks_in_task);

            STRESS_OK(hwt_new_timeout(parent_timer, fork_in_task, NULL, 0, NULL));
            atomic_fetch_add(&accepted, 1);
            stress_await(&forks_in_task, before + 1, "a fork in a task");
        }
    }
    atomic_store(&quit, true);
    for (int i = 0; i < PRODUCERS; i++)
        stress_join(producers[i]);
    STRESS_OK(hwt_timer_stop(parent_timer, NULL));
    check_parent();
    hwt_timeout_unref(parent_timeout);
    STRESS_OK(hwt_timer_destroy(parent_timer));
    return stress_end("stress/fork",
                      "%" PRIu64 " forks, %" PRIu64 " more in a task, beside %" PRIu64
                      " timeouts of the parent",
                      forks, atomic_load(&forks_in_task), atomic_load(&accepted));
}
