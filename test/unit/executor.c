/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks handed to an executor: a small thread pool of this test's own, and a
 * shelf that keeps jobs until the test decides to run, or never to run, them.
 * Refusal, cancel while queued, stop with jobs outstanding, cancel_sync of a run
 * elsewhere, periodic ones (G2, G3, G8, G10, G14).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

TestSuite(executor, .init = test_arm);

/* ---- a pool ---- */

typedef struct job {
    void (*run)(void *job);
    void *arg;
} job;

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    job jobs[4096];
    size_t head, tail;
    bool closing;
    unsigned refuse; /* of 100 */
    uint64_t seed;
    pthread_t threads[4];
} pool;

static void *pool_thread(void *arg)
{
    pool *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->closing || p->head != p->tail) {
        job next;

        if (p->head == p->tail) {
            pthread_cond_wait(&p->filled, &p->lock);
            continue;
        }
        next = p->jobs[p->head++ % COUNT_OF(p->jobs)];
        pthread_mutex_unlock(&p->lock);
        next.run(next.arg);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int pool_execute(void *executor, void (*run)(void *job), void *arg)
{
    pool *p = executor;
    int result = -EAGAIN;

    pthread_mutex_lock(&p->lock);
    if (p->tail - p->head < COUNT_OF(p->jobs) && test_random_below(&p->seed, 100) >= p->refuse) {
        p->jobs[p->tail++ % COUNT_OF(p->jobs)] = (job){run, arg};
        pthread_cond_signal(&p->filled);
        result = 0;
    }
    pthread_mutex_unlock(&p->lock);
    return result;
}

static void pool_open(pool *p)
{
    memset(p, 0, sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->filled, NULL);
    for (size_t i = 0; i < COUNT_OF(p->threads); i++)
        cr_assert_eq(pthread_create(&p->threads[i], NULL, pool_thread, p), 0);
}

static void pool_close(pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->filled);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < COUNT_OF(p->threads); i++)
        pthread_join(p->threads[i], NULL);
}

static pool shared_pool;

static hwt_timer *timer_on_pool(hwt_wheel_kind wheel)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    pool_open(&shared_pool);
    hwt_config_init(&config);
    config.wheel = wheel;
    config.execute = pool_execute;
    config.executor = &shared_pool;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

/* ---- on the pool ---- */

WHEEL_TEST(executor, all_run_once_on_the_pool)
{
    static probe p[1000];
    hwt_timer *timer = timer_on_pool(wheel);
    bool known = false;

    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(hwt_new_timeout(timer, probe_task, &p[i], i * HWT_USEC(100), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert(wait_count(&p[i].runs, 1));
        cr_assert_eq(p[i].early, 0, "G1");
    }
    for (size_t i = 0; i < COUNT_OF(shared_pool.threads); i++)
        known |= pthread_equal(p[0].run_thread, shared_pool.threads[i]) != 0;
    cr_assert(known);
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(stats_of(timer).expired, COUNT_OF(p), "G3");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
    for (size_t i = 0; i < COUNT_OF(p); i++)
        cr_assert_eq(p[i].runs, 1, "G2");
}

/* G2 with refusals: each ran or had its hook called, never both, never neither. */
WHEEL_TEST(executor, random_refusals_end_each_once)
{
    static probe p[2000];
    hwt_timer *timer = timer_on_pool(wheel);
    unsigned refused = 0;
    hwt_stats s;

    shared_pool.refuse = 30;
    shared_pool.seed = test_seed("random_refusals");
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        hwt_spec spec;

        probe_spec(&spec, &p[i], i * HWT_USEC(50));
        cr_assert_eq(hwt_schedule(timer, &spec, NULL), 0);
    }
    cr_assert(wait_pending(timer, 0));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    pool_close(&shared_pool);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        cr_assert_eq(p[i].runs + p[i].hooks, 1, "G2, G10: %u runs, %u hooks", p[i].runs,
                     p[i].hooks);
        refused += p[i].hooks;
    }
    s = stats_of(timer);
    cr_assert_gt(refused, 0);
    cr_assert_eq(s.rejected, refused);
    cr_assert_eq(s.cancelled, refused, "refused counts as cancelled and as rejected");
    cr_assert_eq(s.scheduled, s.expired + s.cancelled + s.unprocessed, "G3");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

typedef struct slow_beat {
    atomic_uint runs, inside, overlapped;
} slow_beat;

static void slow_beat_task(hwt_timeout *timeout, void *arg)
{
    slow_beat *b = arg;

    (void)timeout;
    if (atomic_fetch_add(&b->inside, 1) != 0)
        atomic_fetch_add(&b->overlapped, 1);
    sleep_ms(3);
    atomic_fetch_sub(&b->inside, 1);
    atomic_fetch_add(&b->runs, 1);
}

/* G14: a run longer than the period does not meet the next one, however many threads. */
WHEEL_TEST(executor, a_periodic_one_never_overlaps_itself)
{
    static const hwt_period_mode modes[] = {HWT_FIXED_RATE, HWT_FIXED_RATE_SKIP, HWT_FIXED_DELAY};
    hwt_timer *timer = timer_on_pool(wheel);
    hwt_timeout *timeouts[COUNT_OF(modes)];
    slow_beat beats[COUNT_OF(modes)] = {0};

    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        hwt_spec spec;

        hwt_spec_init(&spec);
        spec.task = slow_beat_task;
        spec.arg = &beats[m];
        spec.period_ns = HWT_MSEC(1);
        spec.period_mode = modes[m];
        cr_assert_eq(hwt_schedule(timer, &spec, &timeouts[m]), 0);
    }
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        cr_assert(wait_count(&beats[m].runs, 20));
        cr_assert_eq(hwt_timeout_cancel_sync(timeouts[m]), 1);
        cr_assert_eq(beats[m].inside, 0, "cancel_sync waits for the run elsewhere");
        cr_assert_eq(beats[m].overlapped, 0, "G14");
        hwt_timeout_unref(timeouts[m]);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
}

typedef struct sync_call {
    hwt_timeout *timeout;
    atomic_uint returned;
    int result;
} sync_call;

static void *sync_thread(void *arg)
{
    sync_call *c = arg;

    c->result = hwt_timeout_cancel_sync(c->timeout);
    atomic_fetch_add(&c->returned, 1);
    return NULL;
}

WHEEL_TEST(executor, cancel_sync_waits_for_the_pool)
{
    hwt_timer *timer = timer_on_pool(wheel);
    gate g = {0};
    sync_call c[3] = {0};
    pthread_t threads[COUNT_OF(c)];

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, &c[0].timeout), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(hwt_timeout_state(c[0].timeout), HWT_RUNNING);
    for (size_t i = 0; i < COUNT_OF(c); i++) {
        c[i].timeout = c[0].timeout;
        cr_assert_eq(pthread_create(&threads[i], NULL, sync_thread, &c[i]), 0);
    }
    sleep_ms(50);
    for (size_t i = 0; i < COUNT_OF(c); i++)
        cr_assert_eq(c[i].returned, 0);
    gate_open(&g);
    for (size_t i = 0; i < COUNT_OF(c); i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert_eq(c[i].result, 0);
    }
    cr_assert_eq(g.left, 1);
    hwt_timeout_unref(c[0].timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
}

typedef struct verdicts {
    atomic_int sync, stop, destroy;
    atomic_uint done;
} verdicts;

static void wait_for_itself(hwt_timeout *timeout, void *arg)
{
    verdicts *v = arg;

    atomic_store(&v->sync, hwt_timeout_cancel_sync(timeout));
    atomic_store(&v->stop, hwt_timer_stop(hwt_timeout_timer(timeout), NULL));
    atomic_store(&v->destroy, hwt_timer_destroy(hwt_timeout_timer(timeout)));
    atomic_fetch_add(&v->done, 1);
}

/* On a pool thread, too, a task cannot wait for itself: told so instead of hanging. */
Test(executor, a_task_on_the_pool_cannot_wait_for_itself)
{
    hwt_timer *timer = timer_on_pool(HWT_WHEEL_HIERARCHICAL);
    verdicts v = {0};

    cr_assert_eq(hwt_new_timeout(timer, wait_for_itself, &v, 0, NULL), 0);
    cr_assert(wait_count(&v.done, 1), "hung");
    cr_assert_eq(v.sync, -EDEADLK);
    cr_assert_eq(v.stop, -EDEADLK);
    cr_assert_eq(v.destroy, -EDEADLK);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
}

typedef struct rearm {
    atomic_uint runs;
    unsigned left;
} rearm;

static void rearm_task(hwt_timeout *timeout, void *arg)
{
    rearm *r = arg;

    if (r->left > 0 && r->left--)
        hwt_timeout_reschedule(timeout, HWT_USEC(500));
    atomic_fetch_add(&r->runs, 1);
}

WHEEL_TEST(executor, a_task_on_the_pool_rearms_itself)
{
    hwt_timer *timer = timer_on_pool(wheel);
    hwt_timeout *timeout;
    rearm r = {.left = 30};

    cr_assert_eq(hwt_new_timeout(timer, rearm_task, &r, 0, &timeout), 0);
    cr_assert(wait_count(&r.runs, 31));
    cr_assert(wait_state(timeout, HWT_EXPIRED));
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_assert_eq(stats_of(timer).runs, 31);
    cr_assert_eq(stats_of(timer).expired, 1);
    hwt_timeout_unref(timeout);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
}

typedef struct stop_call {
    hwt_timer *timer;
    hwt_unprocessed list;
    atomic_uint returned;
} stop_call;

static void *stop_thread(void *arg)
{
    stop_call *c = arg;

    hwt_timer_stop(c->timer, &c->list);
    atomic_fetch_add(&c->returned, 1);
    return NULL;
}

/* G8: stop returns after the running task has returned, wherever it runs. */
WHEEL_TEST(executor, stop_waits_for_a_run_on_the_pool)
{
    hwt_timer *timer = timer_on_pool(wheel);
    gate g = {0};
    stop_call c = {.timer = timer};
    pthread_t thread;

    cr_assert_eq(hwt_new_timeout(timer, gate_task, &g, 0, NULL), 0);
    cr_assert(wait_count(&g.entered, 1));
    cr_assert_eq(pthread_create(&thread, NULL, stop_thread, &c), 0);
    sleep_ms(50);
    cr_assert_eq(c.returned, 0, "G8");
    gate_open(&g);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(g.left, 1);
    cr_assert_eq(c.list.count, 0);
    cr_assert_eq(stats_of(timer).expired, 1);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    pool_close(&shared_pool);
}

/* ---- what has run elsewhere does not lie about until the next deadline ---- */

enum { MANY = 5 * 4096 };

typedef struct heap_of_jobs {
    void (*run[MANY])(void *);
    void *job[MANY];
    atomic_uint count;
} heap_of_jobs;

static int put_on_heap(void *executor, void (*run)(void *), void *one)
{
    heap_of_jobs *heap = executor;
    unsigned count = atomic_load(&heap->count);

    heap->run[count] = run;
    heap->job[count] = one;
    atomic_store(&heap->count, count + 1);
    return 0;
}

static void do_nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* G6: the worker sleeps towards an hour away, but not with any number of them to bury. */
Test(executor, finished_runs_are_buried_while_nothing_is_due)
{
    static heap_of_jobs heap;
    hwt_config config;
    hwt_timer *timer;
    uint64_t before;

    hwt_config_init(&config);
    config.execute = put_on_heap;
    config.executor = &heap;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    cr_assert_eq(hwt_new_timeout(timer, do_nothing, NULL, HWT_SEC(3600), NULL), 0);
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_eq(hwt_new_timeout(timer, do_nothing, NULL, 0, NULL), 0);
    for (unsigned i = 0; i < 5000 && atomic_load(&heap.count) < MANY; i++)
        sleep_ms(2);
    cr_assert_eq(atomic_load(&heap.count), MANY);
    sleep_ms(100); /* the worker is asleep, or it will wake up by itself: then this proves less */
    before = stats_of(timer).wakeups;
    for (unsigned i = 0; i < MANY; i++)
        heap.run[i](heap.job[i]);
    for (unsigned i = 0; i < 5000 && stats_of(timer).wakeups == before; i++)
        sleep_ms(2);
    cr_assert_gt(stats_of(timer).wakeups, before, "nobody woke the worker");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
