/* SPDX-License-Identifier: BSD-2-Clause */
#include "support.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DAY UINT64_C(86400)

const uint64_t test_epochs[] = {0, HWT_SEC(12 * DAY), HWT_SEC(30 * 365 * DAY)};
const size_t test_epoch_count = COUNT_OF(test_epochs);

/* ---- a suite's init ---- */

void test_arm(void)
{
    test_arm_for(60);
}

void test_arm_for(unsigned seconds)
{
    alarm(seconds);
}

/*
 * In each test's process Criterion starts libgit2, for differences between strings, and that reads
 * all of the machine's certificates: a third of what a test takes. Here it does nothing; a test
 * that compares strings by <criterion/new/assert.h> would want it back.
 */
int git_libgit2_init(void);
int git_libgit2_init(void)
{
    return 1;
}

int git_libgit2_shutdown(void);
int git_libgit2_shutdown(void)
{
    return 0;
}

/* ---- random numbers ---- */

uint64_t test_seed(const char *what)
{
    const char *given = getenv("HWT_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : real_now(CLOCK_REALTIME);

    fprintf(stderr, "%s: HWT_TEST_SEED=%" PRIu64 "\n", what, seed);
    return seed;
}

uint64_t test_random(uint64_t *state)
{
    /* splitmix64: every seed is a good one, 0 included */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t test_random_below(uint64_t *state, uint64_t bound)
{
    return test_random(state) % bound;
}

/* ---- clocks ---- */

uint64_t virtual_now(void *clock)
{
    return atomic_load(&((virtual_clock *)clock)->now);
}

void virtual_set(virtual_clock *clock, uint64_t now)
{
    atomic_store(&clock->now, now);
}

void virtual_add(virtual_clock *clock, uint64_t ns)
{
    atomic_fetch_add(&clock->now, ns);
}

uint64_t real_now(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return HWT_SEC(ts.tv_sec) + (uint64_t)ts.tv_nsec;
}

void sleep_ms(unsigned ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&ts, &ts) != 0)
        ;
}

/* ---- rig ---- */

void rig_prepare(rig *r, hwt_wheel_kind wheel, uint64_t epoch)
{
    memset(r, 0, sizeof(*r));
    virtual_set(&r->clock, epoch);
    hwt_config_init(&r->config);
    r->config.wheel = wheel;
    r->config.drive = HWT_DRIVE_CALLER;
    r->config.now = virtual_now;
    r->config.clock = &r->clock;
}

int rig_open(rig *r)
{
    return hwt_timer_create(&r->timer, &r->config);
}

int rig_start(rig *r, hwt_wheel_kind wheel, uint64_t epoch)
{
    rig_prepare(r, wheel, epoch);
    return rig_open(r);
}

int rig_advance_to(rig *r, uint64_t now)
{
    virtual_set(&r->clock, now);
    return hwt_timer_advance(r->timer);
}

int rig_advance_by(rig *r, uint64_t ns)
{
    virtual_add(&r->clock, ns);
    return hwt_timer_advance(r->timer);
}

void rig_close(rig *r)
{
    hwt_timer_destroy(r->timer);
    r->timer = NULL;
}

hwt_stats stats_of(const hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    hwt_timer_stats(timer, &stats);
    return stats;
}

hwt_timer *worker_timer(void)
{
    hwt_timer *timer = NULL;

    return hwt_timer_create(&timer, NULL) == 0 ? timer : NULL;
}

hwt_timer *timer_on(hwt_wheel_kind wheel, hwt_drive drive, clockid_t clock)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.drive = drive;
    config.clock_id = clock;
    return hwt_timer_create(&timer, &config) == 0 ? timer : NULL;
}

hwt_timer *timer_of_kind(hwt_wheel_kind wheel)
{
    return timer_on(wheel, HWT_DRIVE_WORKER, CLOCK_MONOTONIC);
}

/* ---- probes ---- */

static _Atomic uint64_t next_order;

void probe_task(hwt_timeout *timeout, void *arg)
{
    probe *p = arg;
    uint64_t now = hwt_timer_now(hwt_timeout_timer(timeout));

    if (atomic_fetch_add(&p->inside, 1) != 0)
        atomic_fetch_add(&p->overlapped, 1);
    if (now < hwt_timeout_deadline(timeout))
        atomic_fetch_add(&p->early, 1);
    p->run_thread = pthread_self();
    atomic_store(&p->ran_at, now);
    atomic_store(&p->order, atomic_fetch_add(&next_order, 1));
    atomic_store(&p->run_state, (int)hwt_timeout_state(timeout));
    atomic_fetch_sub(&p->inside, 1);
    atomic_fetch_add(&p->runs, 1);
}

void probe_hook(hwt_timeout *timeout, void *arg)
{
    probe *p = arg;

    p->hook_thread = pthread_self();
    atomic_store(&p->hook_state, (int)hwt_timeout_state(timeout));
    atomic_fetch_add(&p->hooks, 1);
}

void probe_spec(hwt_spec *spec, probe *p, uint64_t delay_ns)
{
    hwt_spec_init(spec);
    spec->task = probe_task;
    spec->cancelled = probe_hook;
    spec->arg = p;
    spec->delay_ns = delay_ns;
}

void noop_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

void count_task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* ---- gates ---- */

void gate_task(hwt_timeout *timeout, void *arg)
{
    gate *g = arg;

    (void)timeout;
    atomic_fetch_add(&g->entered, 1);
    while (!atomic_load(&g->open))
        sleep_ms(1);
    atomic_fetch_add(&g->left, 1);
}

void gate_open(gate *g)
{
    atomic_store(&g->open, true);
}

/* ---- an executor for one job at a time ---- */

static void *run_job_here(void *arg)
{
    job_thread *one = arg;

    one->run(one->job);
    return arg;
}

int run_in_a_thread(void *executor, void (*run)(void *job), void *job)
{
    job_thread *one = executor;

    one->run = run;
    one->job = job;
    return pthread_create(&one->thread, NULL, run_job_here, one);
}

/* ---- bounded waits ---- */

typedef bool wait_condition(const void *subject, uint64_t wanted);

static bool wait_until(wait_condition *holds, const void *subject, uint64_t wanted)
{
    uint64_t give_up = real_now(CLOCK_MONOTONIC) + HWT_SEC(PATIENCE_S);

    while (!holds(subject, wanted)) {
        if (real_now(CLOCK_MONOTONIC) > give_up)
            return false;
        usleep(200);
    }
    return true;
}

static bool counted(const void *subject, uint64_t wanted)
{
    return atomic_load((const atomic_uint *)subject) >= wanted;
}

static bool in_state(const void *subject, uint64_t wanted)
{
    return hwt_timeout_state(subject) == (hwt_state)wanted;
}

static bool has_pending(const void *subject, uint64_t wanted)
{
    return hwt_timer_pending(subject) == wanted;
}

bool wait_count(const atomic_uint *counter, unsigned at_least)
{
    return wait_until(counted, counter, at_least);
}

bool wait_state(const hwt_timeout *timeout, hwt_state state)
{
    return wait_until(in_state, timeout, state);
}

bool wait_pending(const hwt_timer *timer, uint64_t pending)
{
    return wait_until(has_pending, timer, pending);
}

static bool has_threads(const void *subject, uint64_t wanted)
{
    (void)subject;
    return thread_count() == wanted;
}

bool wait_threads(unsigned count)
{
    return wait_until(has_threads, NULL, count);
}

/* ---- the process ---- */

unsigned thread_count(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned count = 0;

    if (!tasks)
        return 0;
    while ((entry = readdir(tasks)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* As the pages say: the counters of statm lag behind, by some for each CPU. */
size_t resident_bytes(void)
{
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[160];
    size_t kb = 0;

    while (rollup && fgets(line, sizeof line, rollup)) {
        if (sscanf(line, "Rss: %zu kB", &kb) == 1)
            break;
    }
    if (rollup)
        fclose(rollup);
    return kb << 10;
}

bool go_to_cpu(unsigned n)
{
    static cpu_set_t all;
    cpu_set_t one;
    size_t cpu = 0;

    if (CPU_COUNT(&all) == 0 && sched_getaffinity(0, sizeof all, &all) != 0)
        return false;
    for (n %= (unsigned)CPU_COUNT(&all); !CPU_ISSET(cpu, &all) || n-- > 0; cpu++)
        continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return CPU_COUNT(&all) > 1 && sched_setaffinity(0, sizeof one, &one) == 0;
}

bool under_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

bool memory_tells(void)
{
#ifdef HWT_DEBUG
    return false;
#else
    return !under_sanitizer();
#endif
}
