/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks run by libuv's work queue.
 *
 * The executor is called on the timer's worker, and uv_queue_work may be called on the loop's
 * thread only. So a job goes through a list and uv_async_send, the one call that libuv allows from
 * anywhere; the loop's thread puts it on the work queue.
 */
#include "example.h"

#include <errno.h>
#include <hwt.h>
#include <stdatomic.h>
#include <uv.h>

struct job {
    uv_work_t request;
    struct job *next;
    void (*run)(void *job);
    void *job;
};

struct pool {
    uv_loop_t loop;
    uv_async_t wake;
    uv_thread_t thread;
    uv_mutex_t lock;
    struct job *jobs; /* under the lock; newest first */
    bool closing;     /* under the lock */
};

static void job_work(uv_work_t *request)
{
    struct job *job = request->data;

    job->run(job->job);
}

static void job_done(uv_work_t *request, int status)
{
    must(status == 0, "nobody cancels work");
    free(request->data);
}

static struct job *oldest_first(struct job *newest)
{
    struct job *list = NULL;

    while (newest) {
        struct job *next = newest->next;

        newest->next = list;
        list = newest;
        newest = next;
    }
    return list;
}

/* On the loop's thread. One wake-up may stand for several sends, so take all there is. */
static void pool_wake(uv_async_t *wake)
{
    struct pool *pool = wake->data;
    struct job *job;
    bool closing;

    uv_mutex_lock(&pool->lock);
    job = oldest_first(pool->jobs);
    pool->jobs = NULL;
    closing = pool->closing;
    uv_mutex_unlock(&pool->lock);

    while (job) {
        struct job *next = job->next; /* job_done may free it */

        must(uv_queue_work(&pool->loop, &job->request, job_work, job_done) == 0, "queue work");
        job = next;
    }
    if (closing)
        uv_close((uv_handle_t *)wake, NULL); /* uv_run returns once the work is done */
}

static int pool_execute(void *executor, void (*run)(void *job), void *arg)
{
    struct pool *pool = executor;
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return -ENOMEM;
    job->request.data = job;
    job->run = run;
    job->job = arg;
    uv_mutex_lock(&pool->lock);
    job->next = pool->jobs;
    pool->jobs = job;
    uv_mutex_unlock(&pool->lock);
    uv_async_send(&pool->wake);
    return 0;
}

static void pool_main(void *arg)
{
    struct pool *pool = arg;

    uv_run(&pool->loop, UV_RUN_DEFAULT);
}

static void pool_open(struct pool *pool)
{
    must(uv_loop_init(&pool->loop) == 0, "a loop");
    must(uv_mutex_init(&pool->lock) == 0, "a lock");
    must(uv_async_init(&pool->loop, &pool->wake, pool_wake) == 0, "an async handle");
    pool->wake.data = pool;
    must(uv_thread_create(&pool->thread, pool_main, pool) == 0, "start the loop");
}

/* After the timer has stopped: nothing calls pool_execute any more. */
static void pool_close(struct pool *pool)
{
    uv_mutex_lock(&pool->lock);
    pool->closing = true;
    uv_mutex_unlock(&pool->lock);
    uv_async_send(&pool->wake);
    uv_thread_join(&pool->thread);
    must(uv_loop_close(&pool->loop) == 0, "close the loop");
    uv_mutex_destroy(&pool->lock);
}

/* ---- the pool at work ---- */

enum { TASKS = 60, NEVER = 5 };

static atomic_uint running, together, ran, cancelled;

static void slow_task(hwt_timeout *timeout, void *unused)
{
    unsigned now_running = atomic_fetch_add(&running, 1) + 1;
    unsigned most = together;

    (void)timeout;
    (void)unused;
    while (now_running > most && !atomic_compare_exchange_weak(&together, &most, now_running))
        ;
    sleep_ms(20);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&ran, 1);
}

static void task_cancelled(hwt_timeout *timeout, void *unused)
{
    (void)timeout;
    (void)unused;
    atomic_fetch_add(&cancelled, 1);
}

static void submit(hwt_timer *timer, uint64_t delay)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = slow_task;
    spec.cancelled = task_cancelled;
    spec.delay_ns = delay;
    must(hwt_schedule(timer, &spec, NULL) == 0, "schedule");
}

int main(void)
{
    struct pool pool = {0};
    hwt_config config;
    hwt_timer *timer;

    give_up_after(20);
    pool_open(&pool);
    hwt_config_init(&config);
    config.execute = pool_execute;
    config.executor = &pool;
    must(hwt_timer_create(&timer, &config) == 0, "create a timer");
    for (unsigned i = 0; i < TASKS; i++)
        submit(timer, HWT_MSEC(2) * i);
    for (unsigned i = 0; i < NEVER; i++)
        submit(timer, HWT_SEC(3600));
    while (ran < TASKS)
        sleep_ms(1);
    must(hwt_timer_stop(timer, NULL) == 0, "stop");
    pool_close(&pool);
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");

    must(ran == TASKS && cancelled == NEVER, "each ends exactly once (G2)");
    must(together > 1, "slow tasks run side by side");
    printf("uv_pool: %u tasks of 20 ms, %u at once, %u cancelled by stop\n", ran, together,
           cancelled);
    return 0;
}
