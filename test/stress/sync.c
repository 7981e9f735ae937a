/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cancel_sync: once it has returned, its argument is poisoned and freed at once; ASan sees a task
 * or a hook that still touches it, the plain build sees the poison, TSan sees that nothing ordered
 * the task's last access before the free (C8). A share that ended twice or too early (C7) is seen
 * by ASan.
 */
#include "stress.h"

enum { THREADS = 3, MAGIC = 0x5eed, POISON = 0xdd };

struct argument {
    uint32_t magic; /* deliberately not atomic */
    uint32_t runs;
    uint64_t spin_ns;
};

static hwt_timer *timer;
static uint64_t end;
static _Atomic uint64_t rounds, waited, cancelled_first;

static void check_alive(const struct argument *arg)
{
    STRESS_CHECK(arg->magic == MAGIC, "its argument was freed: magic %x", arg->magic);
}

static void task(hwt_timeout *timeout, void *arg)
{
    struct argument *a = arg;

    check_alive(a);
    STRESS_CHECK(hwt_timeout_arg(timeout) == arg, "another argument");
    if (stress_one_in(16))
        STRESS_CHECK(hwt_timeout_cancel_sync(timeout) == -EDEADLK, "it waits for itself");
    stress_spin(a->spin_ns);
    a->runs++;
    check_alive(a);
}

static void rearming_task(hwt_timeout *timeout, void *arg)
{
    task(timeout, arg);
    hwt_timeout_reschedule(timeout, stress_below(HWT_USEC(100)));
    check_alive(arg);
}

static void hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    check_alive(arg);
    ((struct argument *)arg)->runs++;
}

static struct argument *new_argument(void)
{
    struct argument *a = malloc(sizeof *a);

    STRESS_CHECK(a != NULL, "no memory");
    *a = (struct argument){.magic = MAGIC, .spin_ns = stress_below(HWT_USEC(30))};
    return a;
}

static void free_argument(struct argument *a)
{
    memset(a, POISON, sizeof *a);
    free(a);
}

static hwt_timeout *schedule(struct argument *a)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = stress_one_in(3) ? rearming_task : task;
    spec.arg = a;
    spec.delay_ns = stress_below(HWT_USEC(200));
    if (stress_one_in(2))
        spec.cancelled = hook; /* runs before cancel_sync returns, whoever runs it */
    if (stress_one_in(3)) {
        spec.period_ns = HWT_USEC(10) + stress_below(HWT_USEC(100));
        spec.period_mode = (hwt_period_mode)stress_below(3);
        spec.task = task;
    }
    STRESS_OK(hwt_schedule(timer, &spec, &timeout));
    return timeout;
}

static void count_result(int result)
{
    STRESS_CHECK(result == 0 || result == 1, "cancel_sync: %d", result);
    atomic_fetch_add(result == 1 ? &cancelled_first : &waited, 1);
}

/* ---- one waiter ---- */
static void *one_waiter(void *arg)
{
    while (stress_now() < end) {
        struct argument *a = new_argument();
        hwt_timeout *timeout = schedule(a);

        stress_spin(stress_below(HWT_USEC(300)));
        count_result(hwt_timeout_cancel_sync(timeout));
        free_argument(a);
        STRESS_CHECK(hwt_timeout_cancel_sync(timeout) == 0, "it ended twice");
        hwt_timeout_unref(timeout);
        atomic_fetch_add(&rounds, 1);
    }
    return arg;
}

/* ---- many waiters: each may rely on its own return ---- */
struct meeting {
    pthread_barrier_t begin, end;
    hwt_timeout *timeout;
    struct argument *argument;
    _Atomic uint32_t wins;
    _Atomic bool over;
};

/* False: that was all. */
static bool wait_together(struct meeting *m)
{
    uint32_t runs;
    int result;

    pthread_barrier_wait(&m->begin);
    if (atomic_load(&m->over))
        return false;
    stress_spin(stress_below(HWT_USEC(250)));
    result = stress_one_in(4) ? hwt_timeout_cancel(m->timeout) : -1;
    if (result == 1)
        atomic_fetch_add(&m->wins, 1);
    result = hwt_timeout_cancel_sync(m->timeout);
    count_result(result);
    if (result == 1)
        atomic_fetch_add(&m->wins, 1);
    runs = m->argument->runs; /* ordered after the last run, for every waiter */
    stress_spin(HWT_USEC(20));
    STRESS_CHECK(m->argument->runs == runs, "it runs after cancel_sync");
    pthread_barrier_wait(&m->end);
    return true;
}

static void *waiter(void *arg)
{
    while (wait_together(arg))
        ;
    return NULL;
}

/* No hook here: it runs on the thread that won, which may be another waiter's. */
static void meet(struct meeting *m)
{
    m->argument = new_argument();
    m->wins = 0;
    if (stress_one_in(2)) {
        STRESS_OK(hwt_new_timeout(timer, stress_one_in(2) ? task : rearming_task, m->argument,
                                  stress_below(HWT_USEC(200)), &m->timeout));
    } else {
        hwt_spec spec;

        hwt_spec_init(&spec);
        spec.task = task;
        spec.arg = m->argument;
        spec.period_ns = HWT_USEC(20);
        STRESS_OK(hwt_schedule(timer, &spec, &m->timeout));
    }
    pthread_barrier_wait(&m->begin);
    pthread_barrier_wait(&m->end);
    STRESS_CHECK(m->wins <= 1, "G2: %u waiters ended it", m->wins);
    STRESS_CHECK(m->wins + m->argument->runs >= 1, "G2: it has no end");
    free_argument(m->argument);
    hwt_timeout_unref(m->timeout);
    atomic_fetch_add(&rounds, 1);
}

static void many_waiters(void)
{
    struct meeting m = {0};
    pthread_t threads[THREADS];

    pthread_barrier_init(&m.begin, NULL, THREADS + 1);
    pthread_barrier_init(&m.end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        threads[i] = stress_thread(waiter, &m);
    while (stress_now() < end)
        meet(&m);
    atomic_store(&m.over, true);
    pthread_barrier_wait(&m.begin);
    for (int i = 0; i < THREADS; i++)
        stress_join(threads[i]);
    pthread_barrier_destroy(&m.begin);
    pthread_barrier_destroy(&m.end);
}

static void play(double seconds, hwt_wheel_kind wheel)
{
    pthread_t threads[THREADS];
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = HWT_USEC(10);
    config.wheel = wheel;
    STRESS_OK(hwt_timer_create(&timer, &config));
    end = stress_deadline(seconds / 2);
    for (int i = 0; i < THREADS; i++)
        threads[i] = stress_thread(one_waiter, NULL);
    for (int i = 0; i < THREADS; i++)
        stress_join(threads[i]);
    end = stress_deadline(seconds / 2);
    many_waiters();
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_CHECK(stress_stats(timer).unprocessed == 0, "cancel_sync left something to stop");
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 3);

    play(seconds / 2, HWT_WHEEL_HIERARCHICAL);
    play(seconds / 2, HWT_WHEEL_HASHED);
    return stress_end("stress/sync",
                      "%" PRIu64 " timeouts, %" PRIu64 " cancelled by cancel_sync, %" PRIu64
                      " times ended before",
                      atomic_load(&rounds), atomic_load(&cancelled_first), atomic_load(&waited));
}
