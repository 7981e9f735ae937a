/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt_timer_pending by a thread that preempts the worker wherever it happens to be, and lets it not
 * run before it has its answer (a real-time thread on the same CPU): the answer is right (G3) and
 * comes within a few readings of the lanes, but for one in a hundred, which the machine's host may
 * have kept waiting. Whoever waited for the worker would wait for most of a second, when the system
 * takes the CPU away from real-time threads. Then the same with all counters, while very many come
 * and go, so that the worker gives the memory of their slots back, and is preempted in the middle
 * of that (C23). Without the right to be a real-time thread: skipped.
 */
#include "stress.h"

enum { MANY = 12000, CROWD = 40000, PAIRS = 200000 };

#define A_FEW    (STRESS_SANITIZED ? HWT_MSEC(50) : HWT_MSEC(10))
#define FOR_EVER HWT_MSEC(500)

static hwt_timer *timer;
static hwt_timeout *timeouts[MANY];
static _Atomic uint64_t swept;

static void nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void mark(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&swept, 1);
}

/* The worker was created before, and stays an ordinary thread. */
static bool become_real_time(void)
{
    struct sched_param param = {.sched_priority = 1};

    return pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) == 0;
}

/* One that was created since. */
static void become_ordinary(void)
{
    struct sched_param param = {.sched_priority = 0};

    STRESS_OK(pthread_setschedparam(pthread_self(), SCHED_OTHER, &param));
}

/* Fills the lane, then one that is due makes the worker take all out: up to MANY + 1 pend. */
static uint64_t watch_a_sweep(uint64_t *longest, uint64_t *slow)
{
    uint64_t looks = 0, before = atomic_load(&swept);

    for (unsigned i = 0; i < MANY; i++)
        STRESS_OK(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(3600), &timeouts[i]));
    STRESS_OK(hwt_new_timeout(timer, mark, NULL, 0, NULL));
    for (; atomic_load(&swept) == before; looks++) {
        uint64_t start, took, pending;

        stress_sleep(1000 + stress_below(20000)); /* the worker's turn */
        start = stress_now();
        pending = hwt_timer_pending(timer);
        took = stress_now() - start;
        *longest = took > *longest ? took : *longest;
        *slow += took > A_FEW;
        STRESS_CHECK(pending == MANY || pending == MANY + 1, "G3: %" PRIu64 " pending", pending);
    }
    for (unsigned i = 0; i < MANY; i++) {
        STRESS_CHECK(hwt_timeout_cancel(timeouts[i]), "it is pending");
        hwt_timeout_unref(timeouts[i]);
    }
    return looks;
}

/* ---- while memory goes back ---- */

static _Atomic uint64_t begun, accepted, cancelled; /* by the producer */
static _Atomic bool enough;

static void begin_one(hwt_timeout **timeout)
{
    atomic_fetch_add(&begun, 1);
    STRESS_OK(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(3600), timeout));
    atomic_fetch_add(&accepted, 1);
}

static void end_one(hwt_timeout *timeout)
{
    STRESS_CHECK(hwt_timeout_cancel(timeout), "it is pending");
    atomic_fetch_add(&cancelled, 1);
    hwt_timeout_unref(timeout);
}

/* A crowd comes and goes; then so many go round that the lane's segments retire, and are left. */
static void *come_and_go(void *arg)
{
    static hwt_timeout *crowd[CROWD];

    become_ordinary();
    while (!atomic_load(&enough)) {
        for (unsigned i = 0; i < CROWD; i++)
            begin_one(&crowd[i]);
        for (unsigned i = 0; i < CROWD; i++)
            end_one(crowd[i]);
        for (unsigned i = 0; i < PAIRS && !atomic_load(&enough); i++) {
            begin_one(&crowd[0]);
            end_one(crowd[0]);
        }
    }
    return arg;
}

/* What is cancelled may be counted before the call has returned, and what is begun as well. */
static void check_counters(const hwt_stats *before)
{
    uint64_t least = atomic_load(&accepted), ended = atomic_load(&cancelled);
    hwt_stats s = stress_stats(timer);
    uint64_t most = atomic_load(&begun);

    STRESS_CHECK(s.scheduled - before->scheduled >= least &&
                     s.scheduled - before->scheduled <= most,
                 "G3: %" PRIu64 " scheduled, of %" PRIu64 " to %" PRIu64,
                 s.scheduled - before->scheduled, least, most);
    STRESS_CHECK(s.cancelled - before->cancelled >= ended &&
                     s.cancelled - before->cancelled <= most,
                 "G3: %" PRIu64 " cancelled, of %" PRIu64 " to %" PRIu64,
                 s.cancelled - before->cancelled, ended, most);
    STRESS_CHECK(s.withdrawn <= s.cancelled && s.pending <= CROWD,
                 "G3: %" PRIu64 " withdrawn, %" PRIu64 " cancelled, %" PRIu64 " pending",
                 s.withdrawn, s.cancelled, s.pending);
}

static uint64_t watch_memory_go(uint64_t end)
{
    hwt_stats before = stress_stats(timer);
    pthread_t producer = stress_thread(come_and_go, NULL);
    uint64_t looks = 0;

    for (; stress_now() < end; looks++) {
        stress_sleep(1000 + stress_below(200000)); /* the others' turn */
        check_counters(&before);
    }
    atomic_store(&enough, true);
    stress_join(producer);
    return looks;
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 3);
    uint64_t end = stress_deadline(seconds / 2), end_of_all = stress_deadline(seconds);
    uint64_t looks = 0, longest = 0, slow = 0;
    hwt_config config;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    hwt_config_init(&config);
    STRESS_OK(hwt_timer_create(&timer, &config));
    STRESS_OK(hwt_timer_start(timer));
    if (!become_real_time()) {
        printf("stress_count: no right to real-time scheduling\n");
        return 77;
    }
    while (stress_now() < end) {
        looks += watch_a_sweep(&longest, &slow);
        stress_sleep(HWT_MSEC(2)); /* what was cancelled is buried */
    }
    STRESS_CHECK(longest < FOR_EVER, "G3: an answer took %" PRIu64 " us", longest / 1000);
    STRESS_CHECK(slow <= looks / 100, "G3: %" PRIu64 " of %" PRIu64 " were slow", slow, looks);
    looks += watch_memory_go(end_of_all);
    STRESS_OK(hwt_timer_destroy(timer));
    return stress_end("stress_count", "%" PRIu64 " looks, the longest took %" PRIu64 " us", looks,
                      longest / 1000);
}
