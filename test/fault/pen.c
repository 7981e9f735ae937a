/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap,--wrap=pthread_create,--wrap=pthread_key_create,--wrap=eventfd,--wrap=timerfd_create,--wrap=epoll_create1 */
/*
 * Without memory for chunks, where the wheel's pen steps in: what is with an executor is handed
 * back by stop, which does not wait for its turn there (G8), and what a task re-arms for now waits
 * for the next pass (G11); what goes there only because a visitor comes he is shown (C18).
 */
#include "fault/inject.h"

enum { MANY = 20 };

static hwt_timer *timer;
static uint64_t virtual_now;

static uint64_t read_virtual(void *clock)
{
    return *(uint64_t *)clock;
}

static void create(hwt_wheel_kind wheel,
                   int (*execute)(void *executor, void (*run)(void *job), void *job))
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = HWT_DRIVE_CALLER;
    config.now = read_virtual;
    config.clock = &virtual_now;
    config.execute = execute;
    virtual_now = HWT_SEC(1);
    STRESS_OK(hwt_timer_create(&timer, &config));
}

/* ---- with an executor (G8) ---- */
static void (*run_job)(void *job);
static void *jobs[MANY];
static unsigned job_count;
static _Atomic uint64_t stopped;
static size_t handed_back;

static int keep_job(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    STRESS_CHECK(job_count < MANY, "handed over twice");
    run_job = run;
    jobs[job_count++] = job;
    return 0;
}

static void do_nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void *stop(void *arg)
{
    hwt_unprocessed list;

    STRESS_OK(hwt_timer_stop(timer, &list));
    handed_back = list.count;
    for (hwt_timeout *t; (t = hwt_unprocessed_take(&list)) != NULL;)
        hwt_timeout_unref(t);
    atomic_store(&stopped, 1);
    return arg;
}

static void run_all_jobs(void)
{
    while (job_count > 0)
        run_job(jobs[--job_count]);
}

static void stop_beside_an_executor(hwt_wheel_kind wheel)
{
    uint64_t patience;
    pthread_t thread;

    create(wheel, keep_job);
    atomic_store(&stopped, 0);
    for (int i = 0; i < MANY; i++)
        STRESS_OK(hwt_new_timeout(timer, do_nothing, NULL, HWT_MSEC(1), NULL));
    virtual_now += HWT_MSEC(2);
    arm(0, true);
    STRESS_CHECK(hwt_timer_advance(timer) == MANY, "all are handed over");
    injected += atomic_load(&failed);
    disarm();
    thread = stress_thread(stop, NULL);
    patience = stress_now() + HWT_SEC(1);
    while (!atomic_load(&stopped) && stress_now() < patience)
        stress_sleep(100000);
    STRESS_CHECK(atomic_load(&stopped), "G8: stop waits for what still waits with the executor");
    run_all_jobs();
    stress_join(thread);
    STRESS_CHECK(handed_back == MANY, "%zu of %d handed back", handed_back, MANY);
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- re-arming for now (G11) ---- */
static unsigned runs;

static void rearm_for_now(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    if (++runs < 10 * MANY)
        STRESS_CHECK(hwt_timeout_reschedule(timeout, 0), "a re-arm");
}

static void rearm_in_a_pass(hwt_wheel_kind wheel)
{
    create(wheel, NULL);
    runs = 0;
    for (int i = 0; i < MANY; i++)
        STRESS_OK(hwt_new_timeout(timer, rearm_for_now, NULL, 0, NULL));
    arm(0, true);
    hwt_timer_advance(timer);
    injected += atomic_load(&failed);
    disarm();
    STRESS_CHECK(runs == MANY, "G11: %d, re-armed for now, ran %u times in one pass", MANY, runs);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- re-armed for now, and then cancelled, or moved (G2, G6) ---- */
static hwt_timeout *waiting[MANY];

static void rearm_once(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    if (runs++ < MANY)
        STRESS_CHECK(hwt_timeout_reschedule(timeout, 0), "a re-arm");
}

static void end_while_it_waits(hwt_wheel_kind wheel)
{
    create(wheel, NULL);
    runs = 0;
    for (int i = 0; i < MANY; i++)
        STRESS_OK(hwt_new_timeout(timer, rearm_once, NULL, 0, &waiting[i]));
    arm(0, true);
    errno = 0;
    STRESS_CHECK(hwt_timer_advance(timer) == MANY, "all run");
    STRESS_CHECK(errno == 0, "errno is %d after a call that succeeded", errno);
    for (int i = 0; i < MANY; i++) {
        if (i % 2)
            STRESS_CHECK(hwt_timeout_cancel(waiting[i]), "it was pending");
        else
            STRESS_CHECK(hwt_timeout_reschedule_at(waiting[i], HWT_SEC(1) - (uint64_t)i), "too");
        STRESS_CHECK(hwt_timer_next_deadline(timer) == HWT_SEC(1) - (uint64_t)(i / 2 * 2), "next");
        hwt_timeout_unref(waiting[i]);
    }
    STRESS_CHECK(hwt_timer_advance(timer) == MANY / 2, "the others run");
    injected += atomic_load(&failed);
    disarm();
    STRESS_CHECK(hwt_timer_next_deadline(timer) == UINT64_MAX, "nothing is left");
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- a visit (G2, C18) ---- */
enum { SHOWN = 900 };

static void count_shown(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ++*(unsigned *)arg;
}

/*
 * Nobody has a handle to them, and they lie in one slot of the second level, whose time has come:
 * sorted already, from where a visit takes them back.
 */
static void visit_what_was_sorted(hwt_wheel_kind wheel)
{
    const uint64_t slot = HWT_MSEC(2048) * 3;
    unsigned shown = 0;

    create(wheel, NULL);
    for (unsigned i = 0; i < SHOWN; i++)
        STRESS_OK(hwt_new_timeout_at(timer, do_nothing, NULL, slot + HWT_MSEC(1000 + i % 5) + i + 1,
                                     NULL));
    STRESS_OK(hwt_timer_advance(timer));
    STRESS_CHECK(hwt_timer_next_deadline(timer) > slot, "the first");
    virtual_now = slot + HWT_MSEC(10);
    STRESS_OK(hwt_timer_advance(timer));
    arm(0, true);
    STRESS_CHECK(hwt_timer_visit(timer, count_shown, &shown) == SHOWN, "C18: shown %u of %d", shown,
                 SHOWN);
    injected += atomic_load(&failed);
    disarm();
    virtual_now += HWT_SEC(2);
    STRESS_CHECK(hwt_timer_advance(timer) == SHOWN, "G2: not all run");
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv, 1);
    (void)each_failing, (void)nothing; /* here all requests fail, or none */
    for (int wheel = 0; wheel < 2; wheel++) {
        stop_beside_an_executor((hwt_wheel_kind)wheel);
        rearm_in_a_pass((hwt_wheel_kind)wheel);
        end_while_it_waits((hwt_wheel_kind)wheel);
        visit_what_was_sorted((hwt_wheel_kind)wheel);
    }
    return stress_end("fault_pen", "8 scenarios, %" PRIu64 " refusals of memory", injected);
}
