/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker starved for a second: by a task that keeps it busy, by spinning threads pinned to its
 * CPU, by SIGSTOP to the whole process. Meanwhile deadlines of every kind pass. Nothing is lost,
 * nothing early, nothing twice (G1, G2), and each period mode makes up for it as G14 says.
 */
#include "stress/stress.h"

#include <sys/wait.h>

enum { ONE_SHOTS = 20000, HOGS = 3 };

static hwt_timer *timer;
static uint64_t starve_ns; /* how long each starvation lasts */
static _Atomic bool hogs_end;

/* ---- one-shots: exactly one run each ---- */
static _Atomic uint32_t shots[ONE_SHOTS];
static _Atomic uint64_t shots_ran;

static void shot(hwt_timeout *timeout, void *arg)
{
    STRESS_CHECK(hwt_timer_now(timer) >= hwt_timeout_deadline(timeout), "G1: early");
    STRESS_CHECK(atomic_fetch_add((_Atomic uint32_t *)arg, 1) == 0, "G2: it runs twice");
    atomic_fetch_add(&shots_ran, 1);
}

static void submit_shots(void)
{
    memset(shots, 0, sizeof shots);
    atomic_store(&shots_ran, 0);
    for (int i = 0; i < ONE_SHOTS; i++)
        STRESS_OK(hwt_new_timeout(timer, shot, &shots[i], stress_below(starve_ns * 3 / 2), NULL));
}

/* ---- periodic ones: every run is written down by the worker, read after stop ---- */
struct metronome {
    hwt_period_mode mode;
    uint64_t period, first, count, last_deadline, last_end, skipped;
    hwt_timeout *timeout;
};

static void check_beat(const struct metronome *m, uint64_t deadline)
{
    uint64_t step = deadline - m->last_deadline;

    STRESS_CHECK(deadline > m->last_deadline, "G14: the deadline stays");
    switch (m->mode) {
    case HWT_FIXED_RATE:
        STRESS_CHECK(step == m->period, "G14: fixed rate steps by %" PRIu64, step);
        break;
    case HWT_FIXED_RATE_SKIP:
        STRESS_CHECK(step % m->period == 0, "G14: skip loses its phase: %" PRIu64, step);
        break;
    case HWT_FIXED_DELAY:
        STRESS_CHECK(deadline >= m->last_end + m->period, "G14: a delay too short by %" PRIu64,
                     m->last_end + m->period - deadline);
        break;
    }
}

static void beat(hwt_timeout *timeout, void *arg)
{
    struct metronome *m = arg;
    uint64_t deadline = hwt_timeout_deadline(timeout);

    STRESS_CHECK(hwt_timer_now(timer) >= deadline, "G1: early");
    if (m->count++ == 0)
        m->first = deadline;
    else
        check_beat(m, deadline);
    if (m->count > 1 && m->mode == HWT_FIXED_RATE_SKIP)
        m->skipped += (deadline - m->last_deadline) / m->period - 1;
    m->last_deadline = deadline;
    m->last_end = hwt_timer_now(timer);
}

static void start_metronome(struct metronome *m, hwt_period_mode mode, uint64_t period)
{
    hwt_spec spec;

    *m = (struct metronome){.mode = mode, .period = period};
    hwt_spec_init(&spec);
    spec.task = beat;
    spec.arg = m;
    spec.delay_ns = spec.period_ns = period;
    spec.period_mode = mode;
    STRESS_OK(hwt_schedule(timer, &spec, &m->timeout));
}

/*
 * When it has caught up, no run of a fixed rate is missing, whatever the starvation was. On a CPU
 * that it shares, the scheduler may have let the worker run often enough to miss nothing.
 */
static void check_metronome(struct metronome *m, uint64_t until, bool shared_cpu)
{
    STRESS_CHECK(hwt_timeout_cancel_sync(m->timeout) == 1, "it was not pending");
    hwt_timeout_unref(m->timeout);
    STRESS_CHECK(m->count > 0, "it never ran");
    if (m->mode == HWT_FIXED_RATE)
        STRESS_CHECK(m->count >= (until - m->first) / m->period, "G14: %" PRIu64 " of %" PRIu64,
                     m->count, (until - m->first) / m->period);
    if (m->mode == HWT_FIXED_RATE_SKIP && !shared_cpu)
        STRESS_CHECK(m->skipped >= starve_ns * 8 / 10 / m->period,
                     "G14: %" PRIu64 " missed runs were dropped", m->skipped);
}

/* ---- the three starvations; each returns when it is over ---- */
static void sit_on_worker(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    stress_spin(starve_ns);
}

static void busy_task(void)
{
    STRESS_OK(hwt_new_timeout(timer, sit_on_worker, NULL, 0, NULL));
    stress_sleep(starve_ns + starve_ns / 10);
}

/* The worker by its hook, not by attributes: musl's have no CPUs. */
static void pin_to_first_cpu(void *arg)
{
    cpu_set_t cpus;
    size_t cpu = 0;

    (void)arg;
    STRESS_CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0, "sched_getaffinity");
    while (!CPU_ISSET(cpu, &cpus))
        cpu++;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    STRESS_OK(pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus));
}

static void *hog(void *arg)
{
    pin_to_first_cpu(NULL);
    while (!atomic_load(&hogs_end))
        ;
    return arg;
}

static void pinned_hogs(void)
{
    pthread_t threads[HOGS];

    atomic_store(&hogs_end, false);
    for (int i = 0; i < HOGS; i++)
        threads[i] = stress_thread(hog, NULL);
    stress_sleep(starve_ns);
    atomic_store(&hogs_end, true);
    for (int i = 0; i < HOGS; i++)
        stress_join(threads[i]);
}

/* A child stops this whole process and lets it go on: sleeps end, time has passed. */
static void stopped_process(void)
{
    pid_t parent = getpid(), child = fork();
    int status;

    STRESS_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        for (int i = 0; i < 4; i++) {
            kill(parent, SIGSTOP);
            stress_sleep(starve_ns / 4);
            kill(parent, SIGCONT);
            stress_sleep(HWT_MSEC(10));
        }
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0)
        STRESS_CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    STRESS_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child: %d", status);
}

/* ---- a round ---- */
static void create_pinned(hwt_wheel_kind wheel)
{
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.tick_ns = HWT_USEC(500);
    config.worker_start = pin_to_first_cpu;
    STRESS_OK(hwt_timer_create(&timer, &config));
}

static uint64_t play(void (*starve)(void), hwt_wheel_kind wheel)
{
    struct metronome rate, skip, delay;
    uint64_t beats, until;

    create_pinned(wheel);
    start_metronome(&rate, HWT_FIXED_RATE, HWT_MSEC(5));
    start_metronome(&skip, HWT_FIXED_RATE_SKIP, HWT_MSEC(7));
    start_metronome(&delay, HWT_FIXED_DELAY, HWT_MSEC(3));
    stress_sleep(HWT_MSEC(15));
    submit_shots();
    starve();
    until = hwt_timer_now(timer);
    stress_await(&shots_ran, ONE_SHOTS, "timeouts after a starvation");
    stress_sleep(HWT_MSEC(100)); /* enough for the fixed rate to catch up */
    check_metronome(&rate, until, starve == pinned_hogs);
    check_metronome(&skip, until, starve == pinned_hogs);
    check_metronome(&delay, until, starve == pinned_hogs);
    beats = rate.count + skip.count + delay.count;
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
    return beats;
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 3);
    uint64_t beats = 0;

    starve_ns = (uint64_t)(seconds / 3 * 1e9);
    beats += play(busy_task, HWT_WHEEL_HIERARCHICAL);
    beats += play(stopped_process, HWT_WHEEL_HASHED);
    beats += play(pinned_hogs, HWT_WHEEL_HIERARCHICAL);
    return stress_end("fault/starved", "3 starvations of %" PRIu64 " ms, %" PRIu64 " periodic runs",
                      starve_ns / 1000000, beats);
}
