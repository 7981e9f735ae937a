/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks on a pool of three threads that refuses some jobs at random (G2, G8, G10, G14): the mix of
 * cancel, cancel_sync, moves and re-arms, and stop while jobs are still queued in the pool. What is
 * queued there when stop returns must not run; the pool calls those jobs all the same, before the
 * timer is destroyed or after.
 */
#include "round.h"

enum { POOL_THREADS = 3, POOL_JOBS = 4096, PRODUCERS = 3, CAPACITY = 30000 };

struct job {
    void (*run)(void *job);
    void *job;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct job jobs[POOL_JOBS];
    unsigned first, count;
    bool paused, closed;
    uint64_t refuse_one_in;
    pthread_t threads[POOL_THREADS];
};

static struct pool pool;

static int pool_execute(void *executor, void (*run)(void *job), void *job)
{
    struct pool *p = executor;
    bool accept;

    pthread_mutex_lock(&p->lock);
    accept = p->count < POOL_JOBS && !stress_one_in(p->refuse_one_in);
    if (accept) {
        p->jobs[(p->first + p->count++) % POOL_JOBS] = (struct job){run, job};
        pthread_cond_signal(&p->more);
    }
    pthread_mutex_unlock(&p->lock);
    mix_here.refused = !accept;
    if (!accept)
        atomic_fetch_add(&mix.refusals, 1);
    return accept ? 0 : -EAGAIN;
}

static bool pool_take(struct pool *p, struct job *job)
{
    pthread_mutex_lock(&p->lock);
    while (!p->closed && (p->count == 0 || p->paused))
        pthread_cond_wait(&p->more, &p->lock);
    if (p->count == 0) {
        pthread_mutex_unlock(&p->lock);
        return false;
    }
    *job = p->jobs[p->first];
    p->first = (p->first + 1) % POOL_JOBS;
    p->count--;
    pthread_mutex_unlock(&p->lock);
    return true;
}

static void *pool_thread(void *arg)
{
    struct job job;

    while (pool_take(arg, &job)) {
        job.run(job.job);
        if (stress_one_in(64))
            stress_spin(stress_below(HWT_USEC(50)));
    }
    return NULL;
}

static void pool_open(void)
{
    memset(&pool, 0, sizeof pool);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.more, NULL);
    pool.refuse_one_in = stress_one_in(4) ? 3 : 40;
    for (int i = 0; i < POOL_THREADS; i++)
        pool.threads[i] = stress_thread(pool_thread, &pool);
}

static void pool_pause(bool paused)
{
    pthread_mutex_lock(&pool.lock);
    pool.paused = paused;
    pthread_cond_broadcast(&pool.more);
    pthread_mutex_unlock(&pool.lock);
}

/* Every job is still called, and then the threads end. */
static void pool_close(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.paused = false;
    pool.closed = true;
    pthread_cond_broadcast(&pool.more);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < POOL_THREADS; i++)
        stress_join(pool.threads[i]);
    pthread_cond_destroy(&pool.more);
    pthread_mutex_destroy(&pool.lock);
}

static void open_round(void)
{
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = stress_one_in(2) ? HWT_USEC(10) : HWT_USEC(500);
    config.ticks_per_wheel = UINT32_C(8) << stress_below(6);
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config.execute = pool_execute;
    config.executor = &pool;
    if (stress_one_in(4))
        config.max_pending = 1 + stress_below(1000);
    mix_open(&config, CAPACITY);
}

/* At any time no more has ended than was scheduled, in whichever lanes (G3, C24). */
static void watch_counters(uint64_t end)
{
    while (stress_now() < end) {
        hwt_stats s = stress_stats(mix.timer);

        STRESS_CHECK(
            s.expired <= s.scheduled && s.expired + s.cancelled + s.unprocessed <= s.scheduled,
            "G3: %" PRIu64 " expired, %" PRIu64 " cancelled, %" PRIu64 " unprocessed of %" PRIu64,
            s.expired, s.cancelled, s.unprocessed, s.scheduled);
        stress_pause(stress_below(HWT_USEC(50)));
    }
}

static struct mix_totals play_round(void)
{
    pthread_t producers[PRODUCERS];
    bool late_jobs = stress_one_in(2); /* the pool stands still while the timer stops */
    bool outlive = stress_one_in(2);   /* and calls its jobs when the timer is gone */
    struct mix_totals totals;

    pool_open();
    open_round();
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(mix_producer, NULL);
    watch_counters(stress_now() + stress_below(HWT_MSEC(20)));
    if (late_jobs) {
        atomic_store(&mix.quit, true); /* a cancel_sync may be waiting for the pool */
        for (int i = 0; i < PRODUCERS; i++)
            stress_join(producers[i]);
        pool_pause(true);
        stress_pause(stress_below(HWT_MSEC(2)));
    }
    mix_stop();
    atomic_store(&mix.quit, true);
    for (int i = 0; i < PRODUCERS && !late_jobs; i++)
        stress_join(producers[i]);
    if (!outlive)
        pool_close();
    totals = mix_verify();
    mix_close();
    if (outlive)
        pool_close();
    return totals;
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 3));
    uint64_t rounds = 0, runs = 0, refusals = 0, handed = 0;

    for (; stress_now() < end; rounds++) {
        struct mix_totals t = play_round();

        runs += t.runs;
        handed += t.handed;
        refusals += mix.refusals;
    }
    STRESS_CHECK(refusals > 0 || rounds < 5, "the pool refused nothing");
    return stress_end("stress/executor",
                      "%" PRIu64 " rounds, %" PRIu64 " runs in the pool, %" PRIu64
                      " jobs refused, %" PRIu64 " handed back",
                      rounds, runs, refusals, handed);
}
