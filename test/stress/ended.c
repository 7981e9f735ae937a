/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G2, G3, G8 when tasks end their threads: the worker's, while others schedule, cancel and stop;
 * those of an executor; those that drive a timer themselves.
 */
#include "stress.h"

enum { PRODUCERS = 2, WINDOW = 32 };

static hwt_timer *timer;
static _Atomic uint64_t accepted, ran, cancelled, lost_workers, ended_threads, runs_to_go;

static void log_line(void *arg, const char *message)
{
    (void)message;
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
}

/* The one in so many that ends its thread. */
static void run_or_exit(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&ran, 1);
    if (atomic_fetch_sub(&runs_to_go, 1) == 1)
        pthread_exit(NULL);
}

static void begin_round(const hwt_config *config)
{
    atomic_store(&accepted, 0);
    atomic_store(&ran, 0);
    atomic_store(&cancelled, 0);
    atomic_store(&runs_to_go, 1 + stress_below(300));
    STRESS_OK(hwt_timer_create(&timer, config));
}

static void *producer(void *arg)
{
    hwt_timeout *window[WINDOW] = {0};
    int result = 0;

    for (uint64_t i = 0; result == 0; i++) {
        hwt_timeout **place = &window[i % WINDOW];

        if (*place != NULL && !stress_one_in(4) && hwt_timeout_cancel(*place))
            atomic_fetch_add(&cancelled, 1);
        hwt_timeout_unref(*place);
        *place = NULL;
        result = hwt_new_timeout(timer, run_or_exit, NULL, stress_below(HWT_MSEC(1)), place);
        atomic_fetch_add(&accepted, result == 0);
    }
    STRESS_CHECK(result == -EOWNERDEAD || result == -ESHUTDOWN, "%d", result);
    for (int i = 0; i < WINDOW; i++) {
        if (window[i] != NULL && stress_one_in(2))
            STRESS_CHECK(hwt_timeout_cancel_sync(window[i]) >= 0, "cancel_sync");
        hwt_timeout_unref(window[i]);
    }
    return arg;
}

static void check_and_destroy(uint64_t handed_back)
{
    hwt_stats s = stress_stats(timer);

    stress_check_balance(timer);
    STRESS_CHECK(s.runs == atomic_load(&ran), "%" PRIu64 " runs of %" PRIu64, s.runs,
                 atomic_load(&ran));
    STRESS_CHECK(s.unprocessed == handed_back, "%" PRIu64 " handed back of %" PRIu64, handed_back,
                 s.unprocessed);
    STRESS_OK(hwt_timer_destroy(timer));
}

static uint64_t stop_and_count(void)
{
    hwt_unprocessed list;
    uint64_t count = 0;

    STRESS_OK(hwt_timer_stop(timer, &list));
    for (hwt_timeout *t; (t = hwt_unprocessed_take(&list)) != NULL; count++)
        hwt_timeout_unref(t);
    return count;
}

/* ---- the worker's thread ---- */
static void worker_round(void)
{
    pthread_t producers[PRODUCERS];
    _Atomic uint64_t lines = 0;
    bool early = stress_one_in(4);
    uint64_t handed_back;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config.log = log_line;
    config.log_arg = &lines;
    begin_round(&config);
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(producer, NULL);
    if (early)
        stress_sleep(stress_below(HWT_MSEC(2)));
    else
        stress_await(&lines, 1, "the log");
    handed_back = stop_and_count();
    for (int i = 0; i < PRODUCERS; i++)
        stress_join(producers[i]);
    atomic_fetch_add(&lost_workers, atomic_load(&lines));
    STRESS_CHECK(stress_stats(timer).scheduled == atomic_load(&accepted), "scheduled");
    check_and_destroy(handed_back);
}

/* ---- threads that drive it ---- */
static void *drive(void *arg)
{
    while (hwt_timer_pending(timer) > 0)
        hwt_timer_advance(timer);
    atomic_store((_Atomic uint64_t *)arg, 1);
    return arg;
}

static void driven_round(void)
{
    _Atomic uint64_t done = 0;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    begin_round(&config);
    for (int i = 0; i < 500; i++)
        STRESS_OK(hwt_new_timeout(timer, run_or_exit, NULL, stress_below(HWT_MSEC(1)), NULL));
    while (!atomic_load(&done)) {
        pthread_t threads[2];

        for (int i = 0; i < 2; i++)
            threads[i] = stress_thread(drive, &done);
        for (int i = 0; i < 2; i++)
            stress_join(threads[i]);
        atomic_fetch_add(&ended_threads, 1);
        atomic_store(&runs_to_go, 1 + stress_below(300));
    }
    STRESS_CHECK(atomic_load(&ran) == 500, "G2: %" PRIu64 " of 500 ran", atomic_load(&ran));
    check_and_destroy(stop_and_count());
}

/* ---- an executor's threads: one a job ---- */
struct job {
    void (*run)(void *job);
    void *job;
};

static _Atomic uint64_t jobs_begun, jobs_ended;

static void end_job(void *job)
{
    free(job);
    atomic_fetch_add(&jobs_ended, 1);
}

static void *run_job(void *arg)
{
    struct job *job = arg;

    pthread_cleanup_push(end_job, job);
    job->run(job->job);
    pthread_cleanup_pop(1);
    return NULL;
}

static int execute(void *executor, void (*run)(void *job), void *job)
{
    struct job *mine = malloc(sizeof *mine);

    (void)executor;
    STRESS_CHECK(mine != NULL, "malloc");
    *mine = (struct job){run, job};
    atomic_fetch_add(&jobs_begun, 1);
    STRESS_OK(pthread_detach(stress_thread(run_job, mine)));
    return 0;
}

static void executor_round(void)
{
    hwt_config config;

    hwt_config_init(&config);
    config.execute = execute;
    begin_round(&config);
    for (int i = 0; i < 100; i++) {
        atomic_store(&runs_to_go, 1 + stress_below(3));
        STRESS_OK(hwt_new_timeout(timer, run_or_exit, NULL, stress_below(HWT_MSEC(1)), NULL));
    }
    stress_sleep(stress_below(HWT_MSEC(2)));
    check_and_destroy(stop_and_count());
    stress_await(&jobs_ended, atomic_load(&jobs_begun), "jobs");
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2)), rounds = 0;

    for (; stress_now() < end; rounds++) {
        worker_round();
        driven_round();
        executor_round();
    }
    return stress_end("stress_ended",
                      "%" PRIu64 " rounds: %" PRIu64 " workers lost, %" PRIu64
                      " driving threads, %" PRIu64 " jobs",
                      rounds, atomic_load(&lost_workers), atomic_load(&ended_threads),
                      atomic_load(&jobs_ended));
}
