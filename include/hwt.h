#ifndef HWT_H
#define HWT_H
/* bare signatures from the contract; the documented header follows */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__STRICT_ANSI__) && defined(__linux__)
typedef int clockid_t; /* -std=c11 alone hides the C library's own, identical one */
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define HWT_VERSION_MAJOR 1
#define HWT_VERSION_MINOR 0
#define HWT_VERSION_PATCH 0
#define HWT_USEC(n) ((uint64_t)(n) * UINT64_C(1000))
#define HWT_MSEC(n) ((uint64_t)(n) * UINT64_C(1000000))
#define HWT_SEC(n)  ((uint64_t)(n) * UINT64_C(1000000000))
#pragma GCC visibility push(default)
typedef struct hwt_timer   hwt_timer;
typedef struct hwt_timeout hwt_timeout;
typedef void hwt_task(hwt_timeout *timeout, void *arg);


/* ---- configuration ---- */
typedef enum hwt_wheel_kind { HWT_WHEEL_HIERARCHICAL = 0, HWT_WHEEL_HASHED = 1 } hwt_wheel_kind;
typedef enum hwt_drive      { HWT_DRIVE_WORKER = 0, HWT_DRIVE_CALLER = 1 } hwt_drive;

typedef struct hwt_config {
    size_t         struct_size;      /* set by hwt_config_init */
    uint64_t       tick_ns;          /* granularity of expiry; default 1 ms; at least 1 us */
    uint32_t       ticks_per_wheel;  /* slots per level; default 512; rounded up to a power of two; at most 2^20 */
    hwt_wheel_kind wheel;            /* hierarchical (Kafka, Linux) or single-level with rounds (Netty, Dubbo) */
    uint64_t       max_pending;      /* 0: no limit */
    size_t         reserve;          /* timeouts allocated up front: this many can be pending without malloc */
    hwt_drive      drive;            /* a worker thread, or the caller through hwt_timer_advance */
    clockid_t      clock_id;         /* CLOCK_MONOTONIC (default, and what 0 means; the wall clock is not offered) or CLOCK_BOOTTIME */
    uint64_t     (*now)(void *clock);/* a clock of the caller's; only with HWT_DRIVE_CALLER */
    void          *clock;
    int          (*execute)(void *executor, void (*run)(void *job), void *job); /* where tasks run; NULL: on the worker */
    void          *executor;
    const char    *thread_name;      /* default "hwt-worker" */
    const pthread_attr_t *thread_attr; /* affinity, scheduling, stack of the worker; copied */
    void         (*log)(void *log_arg, const char *message); /* warnings; NULL: none */
    void          *log_arg;
    uint64_t       slow_task_ns;     /* a task that ran longer is counted and logged; 0: never */
} hwt_config;

void hwt_config_init(hwt_config *config);

/* ---- the timer ---- */
int      hwt_timer_create(hwt_timer **timer, const hwt_config *config); /* NULL config: all defaults */
int      hwt_timer_start(hwt_timer *timer);
bool     hwt_timer_is_stopped(const hwt_timer *timer);
int      hwt_timer_destroy(hwt_timer *timer);
uint64_t hwt_timer_pending(const hwt_timer *timer);
uint64_t hwt_timer_now(const hwt_timer *timer);

typedef struct hwt_unprocessed { hwt_timeout *first; size_t count; } hwt_unprocessed;
int          hwt_timer_stop(hwt_timer *timer, hwt_unprocessed *unprocessed);
hwt_timeout *hwt_unprocessed_take(hwt_unprocessed *unprocessed);

/* ---- scheduling, from any thread ---- */
int hwt_new_timeout(hwt_timer *timer, hwt_task *task, void *arg, uint64_t delay_ns, hwt_timeout **timeout);
int hwt_new_timeout_at(hwt_timer *timer, hwt_task *task, void *arg, uint64_t deadline_ns, hwt_timeout **timeout);

typedef enum hwt_period_mode { HWT_FIXED_RATE = 0, HWT_FIXED_RATE_SKIP = 1, HWT_FIXED_DELAY = 2 } hwt_period_mode;
typedef struct hwt_spec {
    size_t          struct_size;     /* set by hwt_spec_init */
    hwt_task       *task;
    hwt_task       *cancelled;       /* called once if the timeout ends without its task having run; may be NULL */
    void           *arg;
    uint64_t        delay_ns;
    uint64_t        period_ns;       /* 0: once */
    hwt_period_mode period_mode;
} hwt_spec;
void hwt_spec_init(hwt_spec *spec);
int  hwt_schedule(hwt_timer *timer, const hwt_spec *spec, hwt_timeout **timeout);

/* ---- one timeout ---- */
typedef enum hwt_state { HWT_PENDING = 0, HWT_RUNNING = 1, HWT_EXPIRED = 2, HWT_CANCELLED = 3 } hwt_state;
bool       hwt_timeout_cancel(hwt_timeout *timeout);
int        hwt_timeout_cancel_sync(hwt_timeout *timeout);
bool       hwt_timeout_reschedule(hwt_timeout *timeout, uint64_t delay_ns);
bool       hwt_timeout_reschedule_at(hwt_timeout *timeout, uint64_t deadline_ns);
hwt_state  hwt_timeout_state(const hwt_timeout *timeout);
bool       hwt_timeout_is_expired(const hwt_timeout *timeout);    /* running or expired */
bool       hwt_timeout_is_cancelled(const hwt_timeout *timeout);
hwt_timer *hwt_timeout_timer(const hwt_timeout *timeout);
hwt_task  *hwt_timeout_task(const hwt_timeout *timeout);
void      *hwt_timeout_arg(const hwt_timeout *timeout);
uint64_t   hwt_timeout_deadline(const hwt_timeout *timeout);
hwt_timeout *hwt_timeout_ref(hwt_timeout *timeout);
void         hwt_timeout_unref(hwt_timeout *timeout);             /* NULL is fine */

/* ---- driving it oneself, and event loops ---- */
int      hwt_timer_advance(hwt_timer *timer);
uint64_t hwt_timer_next_deadline(hwt_timer *timer);               /* UINT64_MAX: nothing pending */
int      hwt_timer_fd(hwt_timer *timer);

/* ---- looking inside ---- */
typedef struct hwt_stats {
    size_t   struct_size;            /* set by hwt_stats_init */
    uint64_t scheduled;              /* accepted by new_timeout and schedule */
    uint64_t expired;                /* ended by having run for the last time */
    uint64_t cancelled;
    uint64_t unprocessed;            /* ended by stop */
    uint64_t rejected;               /* refused at max_pending, or by the executor */
    uint64_t pending;
    uint64_t runs;                   /* task calls, periodic ones each time */
    uint64_t withdrawn;              /* cancelled before the worker ever saw them */
    uint64_t wakeups;                /* times the worker left its sleep */
    uint64_t slow_tasks;
    uint64_t late_ns_max;
    uint64_t late_log2[64];          /* runs by floor(log2(lateness in ns)) */
} hwt_stats;
void hwt_stats_init(hwt_stats *stats);
int  hwt_timer_stats(const hwt_timer *timer, hwt_stats *stats);

const char *hwt_version(void);       /* "1.0.0"; HWT_VERSION_MAJOR, _MINOR, _PATCH beside it */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
