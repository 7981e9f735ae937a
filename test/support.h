/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support.h - what the contract tests share: a virtual clock, recording tasks,
 * gates that hold a task, bounded waits, seeds. Nothing here asserts, so all of
 * it may be used on worker threads and in forked children.
 */
#ifndef HWT_TEST_SUPPORT_H
#define HWT_TEST_SUPPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hwt.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A wait that lasts this long has failed; a pass never depends on it. */
#define PATIENCE_S 20

/*
 * Runs the body once per wheel kind, as two tests, because a parameter array
 * would have to survive Criterion's re-execution of the program.
 */
#define WHEEL_TEST(suite, name)                                                                    \
    static void suite##_##name(hwt_wheel_kind wheel);                                              \
    Test(suite, name##_hierarchical)                                                               \
    {                                                                                              \
        suite##_##name(HWT_WHEEL_HIERARCHICAL);                                                    \
    }                                                                                              \
    Test(suite, name##_hashed)                                                                     \
    {                                                                                              \
        suite##_##name(HWT_WHEEL_HASHED);                                                          \
    }                                                                                              \
    static void suite##_##name(hwt_wheel_kind wheel)

/* ---- a suite's init: a hung test dies of SIGALRM instead of blocking the run ---- */
void test_arm(void);
void test_arm_for(unsigned seconds);

/* ---- random numbers: HWT_TEST_SEED=n repeats a run ---- */
uint64_t test_seed(const char *what); /* prints what it chose */
uint64_t test_random(uint64_t *state);
uint64_t test_random_below(uint64_t *state, uint64_t bound);

/* ---- clocks ---- */
typedef struct virtual_clock {
    _Atomic uint64_t now;
} virtual_clock;

uint64_t virtual_now(void *clock);
void virtual_set(virtual_clock *clock, uint64_t now);
void virtual_add(virtual_clock *clock, uint64_t ns);
uint64_t real_now(clockid_t id);
void sleep_ms(unsigned ms);

/* A caller-driven timer under a virtual clock; the config may be changed before rig_open. */
typedef struct rig {
    virtual_clock clock;
    hwt_config config;
    hwt_timer *timer;
} rig;

void rig_prepare(rig *r, hwt_wheel_kind wheel, uint64_t epoch);
int rig_open(rig *r);
int rig_start(rig *r, hwt_wheel_kind wheel, uint64_t epoch); /* both */
int rig_advance_to(rig *r, uint64_t now);
int rig_advance_by(rig *r, uint64_t ns);
void rig_close(rig *r);

extern const uint64_t test_epochs[]; /* 0, 12 days, 30 years */
extern const size_t test_epoch_count;

hwt_stats stats_of(const hwt_timer *timer);

/* A worker-driven timer with all defaults; NULL when creation failed. */
hwt_timer *worker_timer(void);
hwt_timer *timer_of_kind(hwt_wheel_kind wheel); /* the same, on that wheel */
hwt_timer *timer_on(hwt_wheel_kind wheel, hwt_drive drive, clockid_t clock);

/* ---- a task and a hook that record what happened to them ---- */
typedef struct probe {
    atomic_uint runs;
    atomic_uint hooks;
    atomic_uint early;       /* G1: runs that began before the deadline */
    atomic_uint inside;      /* now running */
    atomic_uint overlapped;  /* G14: ran while running */
    _Atomic uint64_t ran_at; /* the timer's clock at the last run */
    _Atomic uint64_t order;  /* position of the last run among all probes */
    atomic_int run_state;    /* hwt_timeout_state inside the last run */
    atomic_int hook_state;   /* the same inside the hook */
    pthread_t run_thread;    /* read after runs says so */
    pthread_t hook_thread;   /* read after hooks says so */
} probe;

void probe_task(hwt_timeout *timeout, void *arg); /* arg: probe */
void probe_hook(hwt_timeout *timeout, void *arg);
void probe_spec(hwt_spec *spec, probe *p, uint64_t delay_ns); /* both, once */

void noop_task(hwt_timeout *timeout, void *arg);
void count_task(hwt_timeout *timeout, void *arg); /* arg: atomic_uint */

/* ---- a gate holds a task until the test lets go ---- */
typedef struct gate {
    atomic_uint entered;
    atomic_uint left;
    atomic_bool open;
} gate;

void gate_task(hwt_timeout *timeout, void *arg); /* arg: gate */
void gate_open(gate *g);

/* ---- an executor for one job at a time, on a thread of its own, which the test joins ---- */
typedef struct job_thread {
    void (*run)(void *job);
    void *job;
    pthread_t thread;
} job_thread;

int run_in_a_thread(void *executor, void (*run)(void *job), void *job); /* executor: job_thread */

/* ---- bounded waits: false after PATIENCE_S ---- */
bool wait_count(const atomic_uint *counter, unsigned at_least);
bool wait_state(const hwt_timeout *timeout, hwt_state state);
bool wait_pending(const hwt_timer *timer, uint64_t pending);
bool wait_threads(unsigned count); /* a thread that was joined is listed a moment longer */

/* ---- the process ---- */
unsigned thread_count(void);
size_t resident_bytes(void);
bool go_to_cpu(unsigned n); /* of those there are, around again; false: there is only one */
bool under_sanitizer(void); /* memory and address-space figures mean nothing there */
bool memory_tells(void);    /* nor is a debug build's, with a note of each block, the library's */

#endif
