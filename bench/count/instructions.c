/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs each hot path many times under callgrind, which is told where each begins and ends: timings
 * do not repeat on a busy machine, instruction counts do. See test/check/instructions.sh.
 */
#define _GNU_SOURCE /* sched_getcpu, sched_setaffinity */
#include <hwt.h>

#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#define MANY   4096
#define ROUNDS 3

static hwt_timeout *timeouts[MANY];
static uint64_t delays[MANY];
static uint64_t virtual_now = HWT_SEC(1000);

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "instructions: %s\n", what);
    exit(1);
}

static void nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void post(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    sem_post(arg);
}

/* ---- what is counted ---- */
static void count_from_here(void)
{
    CALLGRIND_ZERO_STATS;
}

/* Writes down what this thread has executed since; the script reads it by that name. */
static void count_to_here(const char *name)
{
    CALLGRIND_DUMP_STATS_AT(name);
}

static void schedule(hwt_timer *timer)
{
    count_from_here();
    for (int i = 0; i < MANY; i++)
        must(hwt_new_timeout(timer, nothing, timer, delays[i], &timeouts[i]) == 0, "schedule");
    count_to_here("schedule");
}

static void schedule_at(hwt_timer *timer, uint64_t now)
{
    count_from_here();
    for (int i = 0; i < MANY; i++)
        must(hwt_new_timeout_at(timer, nothing, timer, now + delays[i], &timeouts[i]) == 0,
             "schedule-at");
    count_to_here("schedule-at");
}

static void cancel(const char *name)
{
    count_from_here();
    for (int i = 0; i < MANY; i++) {
        must(hwt_timeout_cancel(timeouts[i]), name);
        hwt_timeout_unref(timeouts[i]);
    }
    count_to_here(name);
}

static void reschedule(const char *name, uint64_t later)
{
    count_from_here();
    for (int i = 0; i < MANY; i++)
        must(hwt_timeout_reschedule(timeouts[i], delays[i] + later), name);
    count_to_here(name);
}

static void advance(const char *name, hwt_timer *timer, int runs)
{
    count_from_here();
    must(hwt_timer_advance(timer) == runs, name);
    count_to_here(name);
}

/* ---- a timer whose worker sleeps: the producers' paths ---- */
static void sync_with(hwt_timer *timer)
{
    sem_t ran;

    sem_init(&ran, 0, 0);
    must(hwt_new_timeout(timer, post, &ran, 0, NULL) == 0, "sync");
    while (sem_wait(&ran) != 0)
        ;
    sem_destroy(&ran);
}

static void see(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* A visit brings all that is in the lanes there first. */
static void into_the_wheel(hwt_timer *timer)
{
    must(hwt_timer_visit(timer, see, NULL) >= MANY, "visit");
}

/* Everything here is due long after what the worker sleeps towards: nothing wakes it. */
static void fill_delays(void)
{
    uint64_t x = 88172645463325252u;

    for (int i = 0; i < MANY; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        delays[i] = HWT_SEC(2000) + x % HWT_SEC(2000);
    }
}

static hwt_timer *sleeping_timer(void)
{
    hwt_timer *timer;

    must(hwt_timer_create(&timer, NULL) == 0, "create");
    must(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(1000), NULL) == 0, "far timeout");
    sync_with(timer);
    return timer;
}

static uint64_t withdrawn(hwt_timer *timer)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    must(hwt_timer_stats(timer, &stats) == 0, "stats");
    return stats.withdrawn;
}

/* The first round warms up: memory, magazines, lazy binding. The script takes the least. */
static void producers_paths(void)
{
    hwt_timer *timer = sleeping_timer();

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = withdrawn(timer);

        schedule(timer);
        reschedule("reschedule", HWT_SEC(10));
        cancel("withdraw-cancel");
        must(withdrawn(timer) == before + MANY, "all should have been withdrawn");
        schedule_at(timer, hwt_timer_now(timer));
        into_the_wheel(timer);
        before = withdrawn(timer);
        cancel("wheel-cancel");
        must(withdrawn(timer) == before, "none should have been withdrawn");
        sync_with(timer);
    }
    hwt_timer_destroy(timer);
}

static void earlier_path(void)
{
    hwt_timer *timer = sleeping_timer();

    for (int round = 0; round < ROUNDS; round++) {
        schedule(timer);
        into_the_wheel(timer);
        reschedule("reschedule-wheel", HWT_SEC(10));
        reschedule("reschedule-earlier", 0);
        cancel("other");
        sync_with(timer);
    }
    hwt_timer_destroy(timer);
}

/* ---- the worker's side, without a thread and with a clock that stands still ---- */
static uint64_t virtual_clock(void *clock)
{
    return *(uint64_t *)clock;
}

static hwt_timer *driven_timer(void)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.now = virtual_clock;
    config.clock = &virtual_now;
    must(hwt_timer_create(&timer, &config) == 0, "create");
    return timer;
}

static void schedule_many(hwt_timer *timer, uint64_t apart, bool handles)
{
    for (int i = 0; i < MANY; i++)
        must(hwt_new_timeout(timer, nothing, timer, HWT_SEC(1) + (uint64_t)i * apart,
                             handles ? &timeouts[i] : NULL) == 0,
             "schedule");
}

/* To tell the next deadline, all that is in the lanes is taken in first. */
static void collect(const char *name, hwt_timer *timer)
{
    count_from_here();
    must(hwt_timer_next_deadline(timer) != UINT64_MAX, name);
    count_to_here(name);
}

static void workers_paths(void)
{
    hwt_timer *timer = driven_timer();

    for (int round = 0; round < ROUNDS; round++) {
        schedule_many(timer, HWT_MSEC(1), true);
        collect("collect", timer);
        cancel("other");
        schedule_many(timer, HWT_USEC(100), true);
        collect("other", timer);
        virtual_now += HWT_SEC(10);
        advance("expire", timer, MANY);
        for (int i = 0; i < MANY; i++)
            hwt_timeout_unref(timeouts[i]);
    }
    hwt_timer_destroy(timer);
}

/* The library asks this program (--wrap=sysconf) how large the machine is. */
static long cpus; /* 0: as large as it is */

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_CONF && cpus > 0 ? cpus : __real_sysconf(name);
}

/* So that a timer is used on one CPU. */
static void stay_here(void)
{
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET((unsigned)sched_getcpu(), &here);
    must(sched_setaffinity(0, sizeof here, &here) == 0, "affinity");
}

/*
 * As rarely as one in a few ticks: to ask for the next deadline, and to run what is due then. On a
 * large machine, most of whose CPUs have nothing to do with it.
 */
static void turns(const char *name, bool handles)
{
    hwt_timer *timer;

    cpus = 128;
    stay_here();
    timer = driven_timer();
    schedule_many(timer, HWT_USEC(3600), handles);
    collect("other", timer);
    count_from_here();
    for (int i = 0; i < MANY; i++) {
        virtual_now = (hwt_timer_next_deadline(timer) / HWT_MSEC(1) + 1) * HWT_MSEC(1);
        must(hwt_timer_advance(timer) == 1, name);
    }
    count_to_here(name);
    for (int i = 0; handles && i < MANY; i++)
        hwt_timeout_unref(timeouts[i]);
    hwt_timer_destroy(timer);
}

/* An event loop's: a timeout that is the earliest, asked for, and cancelled before it is due. */
static void turns_cancelled(void)
{
    hwt_timer *timer = driven_timer();
    hwt_timeout *timeout = NULL;

    must(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(1000), NULL) == 0, "far timeout");
    must(hwt_new_timeout(timer, nothing, NULL, HWT_SEC(1), &timeout) == 0, "schedule");
    must(hwt_timeout_cancel(timeout), "turn-cancelled");
    count_from_here();
    for (int i = 0; i < MANY; i++) {
        must(hwt_timeout_renew(&timeout, NULL, HWT_SEC(1)) == 0, "renew");
        must(hwt_timer_next_deadline(timer) == virtual_now + HWT_SEC(1), "turn-cancelled");
        must(hwt_timeout_cancel(timeout), "turn-cancelled");
    }
    count_to_here("turn-cancelled");
    hwt_timeout_unref(timeout);
    hwt_timer_destroy(timer);
}

/* ---- and all of it on a worker thread, from its lanes to the end of its tasks ---- */
static void worker_thread(void)
{
    hwt_timer *timer = sleeping_timer();
    sem_t ran;

    sem_init(&ran, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = hwt_timer_now(timer) + HWT_MSEC(500);

        for (int i = 0; i < MANY; i++)
            must(hwt_new_timeout_at(timer, nothing, NULL, start + (uint64_t)i * HWT_USEC(10),
                                    NULL) == 0,
                 "schedule");
        must(hwt_new_timeout_at(timer, post, &ran, start + HWT_MSEC(600), NULL) == 0, "schedule");
        while (sem_wait(&ran) != 0)
            ;
    }
    hwt_timer_destroy(timer);
    sem_destroy(&ran);
}

/* The worker of the last part has a process of its own, and so a count of its own. */
int main(int argc, char **argv)
{
    must(argc == 2, "which part? calls, or worker");
    fill_delays();
    if (strcmp(argv[1], "worker") == 0) {
        worker_thread();
    } else {
        producers_paths();
        earlier_path();
        workers_paths();
        turns("turn", true);
        turns("turn-alone", false);
        turns_cancelled();
    }
    printf("%d %d\n", MANY, ROUNDS);
    return 0;
}
