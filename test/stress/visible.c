/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is seen by whom, as hwt.h promises it, in data that nothing else orders: TSan judges, and on
 * a machine that reorders the values tell. On the worker, and on an executor's threads, of which
 * each runs one job.
 */
#include "stress.h"

struct data {
    uint64_t before, after; /* deliberately not atomic */
};

static hwt_timer *timer;
static _Atomic uint64_t released, added;

static void copy(hwt_timeout *timeout, void *arg)
{
    struct data *d = arg;

    (void)timeout;
    d->after = d->before + 1;
}

static void add(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ((struct data *)arg)->after++;
    atomic_fetch_add_explicit(&added, 1, memory_order_relaxed);
}

static void release(void *arg)
{
    struct data *d = arg;

    d->before = 0;
    free(d);
    atomic_fetch_add(&released, 1);
}

/* ---- an executor ---- */
struct job {
    void (*run)(void *job);
    void *job;
};

static void *run_job(void *arg)
{
    struct job job = *(struct job *)arg;

    free(arg);
    job.run(job.job);
    return NULL;
}

static int execute(void *executor, void (*run)(void *job), void *job)
{
    struct job *mine = malloc(sizeof *mine);

    (void)executor;
    STRESS_CHECK(mine != NULL, "malloc");
    *mine = (struct job){run, job};
    STRESS_OK(pthread_detach(stress_thread(run_job, mine)));
    return 0;
}

/* ---- each promise ---- */

static hwt_timeout *schedule(hwt_task *task, struct data *d, uint64_t delay_ns, uint64_t period_ns)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.arg = d;
    spec.delay_ns = delay_ns;
    spec.period_ns = period_ns;
    STRESS_OK(hwt_schedule(timer, &spec, &timeout));
    return timeout;
}

static void await_state(hwt_timeout *timeout, hwt_state state)
{
    while (hwt_timeout_state(timeout) != state)
        sched_yield();
}

/* Before a schedule: its run; before a move: the run that follows; a run: who sees its end. */
static void moved_and_expired(uint64_t value)
{
    struct data d = {.before = value};
    hwt_timeout *timeout = schedule(copy, &d, HWT_SEC(100), 0);

    d.before = value + 7;
    STRESS_CHECK(hwt_timeout_reschedule(timeout, 0), "not moved");
    await_state(timeout, HWT_EXPIRED);
    STRESS_CHECK(d.after == value + 8, "%" PRIu64 " of %" PRIu64, d.after, value + 8);
    hwt_timeout_unref(timeout);
}

/* A run: who has renewed it. Before that: the next run. */
static void renewed(uint64_t value)
{
    struct data d = {.before = value};
    hwt_timeout *timeout = schedule(copy, &d, 0, 0);
    int result;

    while ((result = hwt_timeout_renew(&timeout, NULL, HWT_SEC(100))) == -EBUSY)
        sched_yield();
    STRESS_OK(result);
    STRESS_CHECK(d.after == value + 1, "%" PRIu64 " of %" PRIu64, d.after, value + 1);
    d.before = value + 5;
    STRESS_CHECK(hwt_timeout_reschedule(timeout, 0), "not moved");
    await_state(timeout, HWT_EXPIRED);
    STRESS_CHECK(d.after == value + 6, "%" PRIu64 " of %" PRIu64, d.after, value + 6);
    hwt_timeout_unref(timeout);
}

/* A run: the next one, on whatever thread; the last: who has waited for it. */
static void periodic(void)
{
    struct data d = {0};
    hwt_timeout *timeout;

    atomic_store(&added, 0);
    timeout = schedule(add, &d, 0, HWT_USEC(50));
    stress_sleep(HWT_MSEC(1));
    STRESS_CHECK(hwt_timeout_cancel_sync(timeout) == 1, "not cancelled");
    STRESS_CHECK(d.after == added, "%" PRIu64 " of %" PRIu64, d.after, atomic_load(&added));
    hwt_timeout_unref(timeout);
}

/* All of them: the release. */
static void given_up(uint64_t value)
{
    struct data *d = calloc(1, sizeof *d);
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    STRESS_CHECK(d != NULL, "calloc");
    hwt_spec_init(&spec);
    spec.task = copy;
    spec.release = release;
    spec.arg = d;
    spec.delay_ns = value % 7 * HWT_USEC(10);
    d->before = value;
    STRESS_OK(hwt_schedule(timer, &spec, &timeout));
    if (value % 2)
        hwt_timeout_cancel(timeout);
    hwt_timeout_unref(timeout);
}

/* A run: who has stopped or drained the timer. */
static void stopped(bool drained)
{
    struct data d[16] = {{0}};
    uint64_t ran = 0;

    for (unsigned i = 0; i < 16; i++)
        hwt_timeout_unref(schedule(copy, &d[i], drained ? HWT_USEC(30 * i) : 0, 0));
    if (drained)
        STRESS_OK(hwt_timer_drain(timer, HWT_SEC(100), NULL));
    else
        STRESS_OK(hwt_timer_stop(timer, NULL));
    for (unsigned i = 0; i < 16; i++)
        ran += d[i].after;
    STRESS_CHECK(!drained || ran == 16, "%" PRIu64 " ran", ran);
}

static void round_of(uint64_t value, bool with_executor)
{
    hwt_config config;

    hwt_config_init(&config);
    if (with_executor)
        config.execute = execute;
    config.wheel = value & 4 ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    STRESS_OK(hwt_timer_create(&timer, &config));
    atomic_store(&released, 0);
    for (unsigned i = 0; i < 20; i++) {
        moved_and_expired(value + i);
        renewed(value + i);
        periodic();
        given_up(value + i);
    }
    stress_await(&released, 20, "releases");
    stopped(value & 1);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2)), rounds = 0;

    for (; stress_now() < end; rounds++)
        round_of(rounds, rounds & 2);
    return stress_end("stress_visible", "%" PRIu64 " rounds", rounds);
}
