/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * max_pending is exact, wherever its places lie (G3, C27): threads that go from CPU to CPU have one
 * timeout each, and there is a place for each, so none is ever refused: neither a submission right
 * after a cancellation or a run, nor a re-arm, on the worker and on an executor's threads. With one
 * place too few, some are refused, and the ledger balances.
 */
#include "stress.h"

#include <sched.h>

#define THREADS 4

struct holder {
    _Atomic uint64_t ran; /* for the last time, each of its timeouts that was due */
    uint64_t due;
    bool again;
};

static hwt_timer *timer;
static bool all_fit;
static _Atomic uint64_t accepted, refused, rearmed;
static uint64_t end;

/* ---- an executor: whoever asks for the next job runs it ---- */

static struct {
    void (*run)(void *job);
    void *job;
} queue[THREADS];
static unsigned queued;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool over;

static int execute(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    pthread_mutex_lock(&lock);
    STRESS_CHECK(queued < THREADS, "more with the executor than may be pending");
    queue[queued].run = run;
    queue[queued++].job = job;
    pthread_mutex_unlock(&lock);
    return 0;
}

static bool run_one(void)
{
    void (*run)(void *job) = NULL;
    void *job = NULL;

    pthread_mutex_lock(&lock);
    if (queued > 0) {
        run = queue[--queued].run;
        job = queue[queued].job;
    }
    pthread_mutex_unlock(&lock);
    if (run)
        run(job);
    return run != NULL;
}

static void *run_jobs(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        if (!run_one())
            sched_yield();
    }
    while (run_one())
        continue;
    return NULL;
}

/* ---- the holders ---- */

static void task(hwt_timeout *timeout, void *arg)
{
    struct holder *holder = arg;

    if (holder->again) {
        holder->again = false;
        if (hwt_timeout_reschedule(timeout, 0)) {
            atomic_fetch_add_explicit(&rearmed, 1, memory_order_relaxed);
            return;
        }
        STRESS_CHECK(!all_fit, "G3: a re-arm is refused, and there is a place for each");
    }
    atomic_fetch_add(&holder->ran, 1);
}

static void go_elsewhere(void)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(stress_below((uint64_t)sysconf(_SC_NPROCESSORS_ONLN)), &cpus);
    (void)sched_setaffinity(0, sizeof cpus, &cpus); /* not allowed: then it stays */
}

static bool submit(struct holder *holder, uint64_t delay, hwt_timeout **timeout)
{
    int result = hwt_new_timeout(timer, task, holder, delay, timeout);

    STRESS_CHECK(result == 0 || (result == -ENOBUFS && !all_fit),
                 "G3: a submission says %d, and there is a place for each", result);
    atomic_fetch_add_explicit(result == 0 ? &accepted : &refused, 1, memory_order_relaxed);
    return result == 0;
}

static void cancel_one(struct holder *holder)
{
    hwt_timeout *timeout;

    if (!submit(holder, HWT_SEC(3600), &timeout))
        return;
    STRESS_CHECK(hwt_timer_pending(timer) >= 1, "G3: nothing is pending");
    STRESS_CHECK(hwt_timeout_cancel(timeout), "not cancelled");
    hwt_timeout_unref(timeout);
}

static void run_through(struct holder *holder)
{
    holder->again = stress_one_in(2);
    if (submit(holder, stress_below(HWT_USEC(100)), NULL))
        stress_await(&holder->ran, ++holder->due, "its run");
}

static void *hold(void *arg)
{
    struct holder *holder = arg;

    while (stress_now() < end) {
        if (stress_one_in(256))
            go_elsewhere();
        if (stress_one_in(64))
            run_through(holder);
        else
            cancel_one(holder);
        if (stress_one_in(16))
            STRESS_CHECK(hwt_timer_pending(timer) <= THREADS, "G3: more pending than may be");
    }
    return NULL;
}

static void round_of(unsigned round)
{
    pthread_t thread[THREADS + 1];
    struct holder holders[THREADS];
    hwt_config config;

    memset(holders, 0, sizeof holders);
    hwt_config_init(&config);
    config.tick_ns = HWT_USEC(100);
    config.wheel = round & 1 ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config.execute = round & 2 ? execute : NULL;
    all_fit = round % 8 < 6;
    config.max_pending = all_fit ? THREADS : THREADS - 1;
    STRESS_OK(hwt_timer_create(&timer, &config));
    atomic_store(&over, false);
    end = stress_now() + HWT_MSEC(50);
    for (unsigned i = 0; i < THREADS; i++)
        thread[i] = stress_thread(hold, &holders[i]);
    if (config.execute)
        thread[THREADS] = stress_thread(run_jobs, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        stress_join(thread[i]);
    STRESS_CHECK(hwt_timer_pending(timer) == 0, "G3: %" PRIu64 " pending at the end",
                 hwt_timer_pending(timer));
    atomic_store(&over, true);
    if (config.execute)
        stress_join(thread[THREADS]);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    uint64_t last = stress_deadline(stress_begin(argc, argv, 2));
    unsigned rounds = 0;

    for (; rounds < 8 || stress_now() < last; rounds++)
        round_of(rounds);
    STRESS_CHECK(atomic_load(&refused) > 0 && atomic_load(&rearmed) > 0, "nothing was refused");
    return stress_end("stress/limit",
                      "%u rounds, %" PRIu64 " accepted, %" PRIu64 " re-armed, %" PRIu64 " refused",
                      rounds, atomic_load(&accepted), atomic_load(&rearmed), atomic_load(&refused));
}
