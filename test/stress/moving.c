/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=platform_cpu_slow,--wrap=sysconf */
/*
 * Loads that go from CPU to CPU, of more than this machine has: bursts of submissions of which most
 * are cancelled, by threads that go on elsewhere after each (C26). What is left runs (G2, G4), and
 * memory is in proportion to what was pending at once, not to what ever was on each CPU (G6).
 */
#include "stress.h"
#include "timer.h"

enum { THREADS = 4, KEPT_ONE_IN = 1000 };
enum { CPUS = STRESS_SANITIZED ? 8 : 64, BURST = STRESS_SANITIZED ? 20000 : 100000 };

static hwt_timer *timer;
static atomic_bool quit;
static _Atomic uint64_t kept, ran, bursts;
static unsigned moved; /* lanes that are another CPU's than at first */
static _Thread_local unsigned cpu;

__typeof__(platform_cpu_slow) __wrap_platform_cpu_slow;
long __real_sysconf(int name);
long __wrap_sysconf(int name);

unsigned __wrap_platform_cpu_slow(void)
{
    return cpu;
}

long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_CONF ? CPUS : __real_sysconf(name);
}

static void run(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

static void submit_one(hwt_timeout **handle)
{
    *handle = NULL;
    if (stress_one_in(KEPT_ONE_IN)) {
        STRESS_OK(hwt_new_timeout(timer, run, NULL, stress_below(HWT_MSEC(30)), NULL));
        atomic_fetch_add(&kept, 1);
        return;
    }
    STRESS_OK(hwt_new_timeout(timer, stress_never, NULL, HWT_SEC(600) + stress_below(HWT_SEC(3600)),
                              handle));
}

/* Mostly each has its CPU for itself; now and then two are on one. */
static void go_elsewhere(unsigned thread)
{
    cpu = stress_one_in(8) ? (unsigned)stress_below(CPUS) : (cpu / THREADS + 1) * THREADS + thread;
    cpu %= CPUS;
}

static void *wander(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg;
    hwt_timeout **handle = calloc(BURST, sizeof(hwt_timeout *));

    STRESS_CHECK(handle, "no memory for handles");
    while (!atomic_load(&quit)) {
        go_elsewhere(thread);
        for (int i = 0; i < BURST; i++)
            submit_one(&handle[i]);
        for (int i = 0; i < BURST; i++) {
            STRESS_CHECK(!handle[i] || hwt_timeout_cancel(handle[i]), "it was not pending");
            hwt_timeout_unref(handle[i]);
        }
        atomic_fetch_add(&bursts, 1);
    }
    free(handle);
    return NULL;
}

static void count_moved(void)
{
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        if (lane == timer->lanes.common)
            continue;
        STRESS_CHECK(lanes_of_cpu(&timer->lanes, lane->cpu) == lane, "C26: %u is no CPU's",
                     lane->index);
        moved += lane->cpu != lane->index;
    }
}

static void play(hwt_wheel_kind wheel, double seconds)
{
    pthread_t thread[THREADS];
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    STRESS_OK(hwt_timer_create(&timer, &config));
    atomic_store(&quit, false);
    for (uintptr_t i = 0; i < THREADS; i++)
        thread[i] = stress_thread(wander, (void *)i);
    stress_pause((uint64_t)(seconds * 1e9));
    atomic_store(&quit, true);
    for (unsigned i = 0; i < THREADS; i++)
        stress_join(thread[i]);
    stress_await(&ran, atomic_load(&kept), "what was left");
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    count_moved();
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 4);
    const uint64_t bound = 100 * THREADS * BURST + (16 << 20) + CPUS * (256 << 10);
    uint64_t before = stress_resident(), held;

#ifdef PLATFORM_RSEQ
    platform_rseq_cpu = 0; /* no CPU without a call */
#endif
    before += sizeof(hwt_timeout *) * THREADS * BURST; /* the threads' own */
    play(HWT_WHEEL_HIERARCHICAL, seconds / 2);
    held = stress_resident();
    stress_check_growth(before, bound, "G6: on 64 CPUs in turn");
    STRESS_OK(hwt_timer_destroy(timer));
    play(HWT_WHEEL_HASHED, seconds / 2);
    stress_check_growth(before, bound, "G6: on 64 CPUs in turn");
    STRESS_OK(hwt_timer_destroy(timer));
    STRESS_CHECK(moved > 0 || atomic_load(&bursts) < 100, "no CPU has taken another's lane");
    return stress_end("stress/moving",
                      "%" PRIu64 " bursts, %u lanes moved, %" PRIu64 " MB of %" PRIu64,
                      atomic_load(&bursts), moved, (held - before) >> 20, bound >> 20);
}
