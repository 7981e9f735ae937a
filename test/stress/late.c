/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_timerfd_set */
/*
 * The last step of a call on a handle may be to set the timer's descriptor, and its thread may be
 * preempted just before. Its timer is stopped and destroyed meanwhile, and the number of the
 * descriptor given to a stranger: that one is left alone (G9, rule C6).
 *
 * The preemption is a gate in front of the system call. It opens when the timer is gone, or after
 * a while, which is what stop has to wait for.
 */
#include "stress.h"

#include <sys/timerfd.h>

#define PATIENCE HWT_MSEC(60)
#define FAR      HWT_SEC(86400)

enum { NOTICES_PER_WAKE = 4096 };

static hwt_timer *timer;
static uint64_t checks;

/* ---- the gate ---- */
static _Thread_local bool preempted;
static _Atomic uint64_t held, gone, passed;

int __real_platform_timerfd_set(int fd, uint64_t deadline_ns);
int __wrap_platform_timerfd_set(int fd, uint64_t deadline_ns);
int __wrap_platform_timerfd_set(int fd, uint64_t deadline_ns)
{
    if (preempted) {
        uint64_t end = stress_now() + PATIENCE;

        atomic_fetch_add(&held, 1);
        while (!atomic_load(&gone) && stress_now() < end)
            sched_yield();
        STRESS_CHECK(!atomic_load(&gone), "G9, C6: a late handle sets descriptor %d", fd);
        preempted = false;
        atomic_fetch_add(&passed, 1);
    }
    return __real_platform_timerfd_set(fd, deadline_ns);
}

/* ---- what is done with the handle ---- */
static hwt_timeout *timeout;

static void nothing(hwt_timeout *ended, void *arg)
{
    (void)ended;
    (void)arg;
}

static void *move_earlier(void *arg)
{
    preempted = true;
    STRESS_CHECK(hwt_timeout_reschedule(timeout, FAR / 4), "it is pending");
    return arg;
}

static void (*pool_run)(void *job);
static void *pool_job[NOTICES_PER_WAKE];
static unsigned pool_jobs;

static int keep_job(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    pool_run = run;
    pool_job[pool_jobs++] = job;
    return 0;
}

static void *run_job(void *arg)
{
    preempted = true;
    pool_run(pool_job[--pool_jobs]);
    return arg;
}

/* So many notices ask for the worker: the last of them sets the descriptor. */
static void *cancel_last(void *arg)
{
    while (pool_jobs > 0)
        pool_run(pool_job[--pool_jobs]);
    preempted = true;
    STRESS_CHECK(hwt_timeout_cancel(timeout), "it is pending");
    return arg;
}

/* ---- one round ---- */
static void open_timer(bool executor, uint64_t tick_ns)
{
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.tick_ns = tick_ns;
    config.execute = executor ? keep_job : NULL;
    STRESS_OK(hwt_timer_create(&timer, &config));
    STRESS_CHECK(hwt_timer_fd(timer) >= 0, "no descriptor");
}

/* Takes the number that the timer's descriptor had. */
static void check_stranger(int fd)
{
    struct itimerspec left;
    int stranger = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

    STRESS_CHECK(stranger == fd, "got %d instead of %d", stranger, fd);
    atomic_store(&gone, 1);
    stress_sleep(HWT_MSEC(5));
    STRESS_CHECK(timerfd_gettime(stranger, &left) == 0, "errno %d", errno);
    STRESS_CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0, "it was set");
    close(stranger);
}

static void destroy_meanwhile(void *(*body)(void *), const char *what)
{
    int fd = hwt_timer_fd(timer);
    pthread_t thread;

    atomic_store(&held, 0);
    atomic_store(&gone, 0);
    thread = stress_thread(body, NULL);
    stress_await(&held, 1, what);
    STRESS_OK(hwt_timer_destroy(timer));
    check_stranger(fd);
    stress_join(thread);
    checks++;
}

static void play_nudge(void)
{
    open_timer(false, 0);
    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, FAR, &timeout));
    STRESS_CHECK(hwt_timer_advance(timer) == 0, "nothing is due");
    destroy_meanwhile(move_earlier, "a nudge");
    hwt_timeout_unref(timeout);
}

/* Its nudge is queued already: this mover only compares. */
static void play_compare(void)
{
    open_timer(false, 0);
    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, FAR, &timeout));
    STRESS_CHECK(hwt_timer_advance(timer) == 0, "nothing is due");
    STRESS_CHECK(hwt_timeout_reschedule(timeout, FAR / 2), "it is pending");
    destroy_meanwhile(move_earlier, "a comparison");
    hwt_timeout_unref(timeout);
}

/*
 * The one that is cancelled is of the tick that is on, and lies in the agenda's front, where it
 * cannot be withdrawn; the notices before it are of runs that are over. They go to the lane of the
 * CPU that they are queued on: only one, to count.
 */
static void play_cancel(void)
{
    open_timer(true, 200 * HWT_SEC(86400));
    for (unsigned i = 0; i < NOTICES_PER_WAKE - 1; i++)
        STRESS_OK(hwt_new_timeout(timer, nothing, NULL, 0, NULL));
    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, FAR, &timeout));
    STRESS_CHECK(hwt_timer_advance(timer) == NOTICES_PER_WAKE - 1, "all but one are due");
    STRESS_CHECK(hwt_timer_next_deadline(timer) != UINT64_MAX, "that one is next");
    destroy_meanwhile(cancel_last, "the last notice");
    hwt_timeout_unref(timeout);
}

static void play_report(void)
{
    hwt_spec spec;

    open_timer(true, 0);
    hwt_spec_init(&spec);
    spec.task = nothing;
    spec.period_ns = FAR / 2;
    STRESS_OK(hwt_schedule(timer, &spec, &timeout));
    STRESS_CHECK(hwt_timer_advance(timer) == 1, "it is due");
    destroy_meanwhile(run_job, "the end of a run");
    hwt_timeout_unref(timeout);
}

/* ---- many at once: the timer comes and goes under movers, as the sanitizer sees it ---- */
enum { MOVERS = 2 };
static _Atomic uint64_t ready;

static void *move_about(void *arg)
{
    hwt_timeout *mine = arg;

    atomic_fetch_add(&ready, 1);
    for (uint64_t delay = FAR; hwt_timeout_reschedule(mine, delay); delay -= HWT_MSEC(1))
        continue;
    return NULL;
}

static void play_storm(hwt_drive drive)
{
    pthread_t threads[MOVERS];
    hwt_timeout *moved;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = drive;
    config.clock_id = stress_one_in(2) ? CLOCK_BOOTTIME : CLOCK_MONOTONIC;
    STRESS_OK(hwt_timer_create(&timer, &config));
    if (drive == HWT_DRIVE_CALLER)
        STRESS_CHECK(hwt_timer_fd(timer) >= 0, "no descriptor");
    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, FAR, &moved));
    atomic_store(&ready, 0);
    for (unsigned i = 0; i < MOVERS; i++)
        threads[i] = stress_thread(move_about, moved);
    stress_await(&ready, MOVERS, "movers");
    stress_spin(stress_below(HWT_USEC(300)));
    STRESS_OK(hwt_timer_destroy(timer));
    for (unsigned i = 0; i < MOVERS; i++)
        stress_join(threads[i]);
    hwt_timeout_unref(moved);
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2));
    uint64_t storms = 0;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one); /* one lane takes all notices */
    play_nudge();
    play_compare();
    play_report();
    play_cancel();
    CPU_SET(1, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (; stress_now() < end; storms++)
        play_storm(stress_one_in(2) ? HWT_DRIVE_CALLER : HWT_DRIVE_WORKER);
    return stress_end("stress_late",
                      "%" PRIu64 " late steps waited for, %" PRIu64 " timers gone under movers",
                      checks, storms);
}
