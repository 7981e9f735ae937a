/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libhwt: a thread-safe hashed-wheel timer runtime.
 *
 * hwt_timer is Netty's HashedWheelTimer, hwt_timeout its Timeout, hwt_task its TimerTask. Any
 * number of threads schedule, cancel and move timeouts without a lock; one worker thread (or the
 * caller's own, see hwt_timer_advance) runs the tasks of those that are due.
 *
 * Conventions
 *   Every duration, delay and deadline is a uint64_t count of nanoseconds on the timer's own clock.
 *   What can fail returns 0 (or a count) or a negative errno. On an error nothing has changed and
 *   output arguments are untouched. Nothing here prints, aborts or changes errno on success; but a
 *   debug build prints what it finds where there is no `log`, and aborts where it is misused.
 *   NULL for a timer or a handle does no harm. Where a call can fail it is -EINVAL. Otherwise the
 *   answer is that of a timer that is stopped and empty, or of a handle whose deadline is never;
 *   its state is HWT_CANCELLED, but hwt_timeout_is_cancelled says false.
 *   A size or enum field left 0, and a tick_ns of 0, mean the default.
 *   "Any thread" includes tasks and hooks, on the worker too, and the destructors of a thread's own
 *   data, but no signal handler. "On the worker" is in hwt_timer_advance if the caller drives.
 *   A struct with a struct_size grows at its end from release to release. Each size that a released
 *   header had is known: fields that it lacks have their defaults. Any other is -EINVAL, 0 too.
 *   What a thread did before it scheduled, renewed or moved a timeout is seen by its task; what a
 *   run did, by the next one, by the release, by who has waited for its end (cancel_sync, stop,
 *   drain), has renewed it after that, or has read the state HWT_EXPIRED.
 *   No call is a cancellation point: a thread that is cancelled while it waits here is so when the
 *   call has returned (a callback of yours may be one, except a hook that stop or destroy runs).
 *
 * Which calls may run at the same time (row against column, on the same timer):
 *
 *                                           schedule  cancel,     advance,       stop     destroy
 *                                                     reschedule  next_deadline
 *   schedule, renew, start, fd, pending,
 *   stats, visit                              yes       yes         yes          yes      NO
 *   cancel, cancel_sync, reschedule, state    yes       yes         yes          yes      yes (a)
 *   advance, next_deadline                    yes       yes         yes (b)      yes      NO
 *   stop                                      yes       yes         yes          yes (c)  NO
 *   drain                                     yes       yes         yes          yes (c)  yes (d)
 *   destroy                                   NO        yes (a)     NO           NO       NO
 *
 *   What is not named goes with stats if it takes a timer, with state if it takes a handle.
 *   (a) With a handle that holds a reference, before, during and after destroy (G9). The one
 *       exception: with a clock of the caller's, hwt_timeout_reschedule reads that clock, so the
 *       clock and the timer must still be there; hwt_timeout_reschedule_at needs neither.
 *   (b) A second advance gets -EBUSY. Advance waits for a next_deadline, and both for a visit; but
 *       who calls these while an advance waits is not let in before it, as if it were on already.
 *   (c) The later one waits for the first, and is handed back nothing.
 *   (d) One that has begun before: destroy cuts it short, and waits until it has returned.
 *   A fork may happen beside any of them, and inside a callback. In the child the parent's timers
 *   are dead (G12): calls say -ECHILD, or false; so does an advance, stop or submission that is on
 *   when a callback of it forks. Fork handlers may create, use and destroy timers.
 *   hwt_timeout_unref needs a reference that nobody else drops; everything else on one handle may
 *   be called by several threads at once. An hwt_unprocessed list belongs to one thread at a time.
 *
 * A handle is dead once the reference it stands for was dropped. Using a dead one is a mistake that
 * a release build does not look for: it may act on another timeout. A debug build (make debug) ends
 * the process with a message; AddressSanitizer and valgrind report it (make asan).
 *
 * The guarantees G1 to G16 that comments speak of are listed in docs/guarantees.md.
 */
#ifndef HWT_H
#define HWT_H

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
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define HWT_VERSION_MAJOR 1
#define HWT_VERSION_MINOR 1
#define HWT_VERSION_PATCH 0

/* The library's version at run time, "1.1.0". */
const char *hwt_version(void);

/*
 * Nanoseconds in n microseconds, milliseconds, seconds. A fraction, as 0.5, does not compile. They
 * are plain multiplications: n is not to be negative, which would be centuries away or never, nor
 * the product beyond 64 bits (584 years).
 */
#define HWT_USEC(n) (HWT_WHOLE(n) * UINT64_C(1000))
#define HWT_MSEC(n) (HWT_WHOLE(n) * UINT64_C(1000000))
#define HWT_SEC(n)  (HWT_WHOLE(n) * UINT64_C(1000000000))
#ifdef __cplusplus
#define HWT_WHOLE(n) static_cast<uint64_t>((n) | 0)
#else
#define HWT_WHOLE(n) ((uint64_t)((n) | 0))
#endif

typedef struct hwt_timer hwt_timer;
typedef struct hwt_timeout hwt_timeout;

/*
 * What a timeout runs, and what a `cancelled` hook is. `timeout` is valid during the call without
 * a reference; to keep it, take one (hwt_timeout_ref). It should be short, because the worker runs
 * one task at a time. It may do anything, except
 *   wait for its own timer: where that would deadlock it gets -EDEADLK;
 *   end the worker's thread (pthread_exit, pthread_cancel): that was its last run, `log` is told,
 *     submissions fail with -EOWNERDEAD, nothing runs any more, and stop hands back what had not;
 *   throw an exception on the worker's thread: as on any, the process ends by std::terminate;
 *     `log` is told whose it was;
 *   leave by longjmp.
 * On the worker's own thread all signals are blocked (G13): a fault there (SIGSEGV) ends the
 * process past its handler. Threads and processes that a task starts inherit the mask, and a timer
 * slack of 1 ns; worker_start may set both as it likes (pthread_sigmask, prctl), and that holds.
 * Out of hwt_timer_advance, of stop and destroy (a hook), or to an executor, a C++ exception may
 * pass, and a thread may be ended there: the timer stays whole. That was the last run of the
 * timeout, even if it is periodic or re-armed; what was due with it runs in the next pass. On the
 * way out the hooks and releases that are owed are called; one of them may throw, too, and then
 * that is what passes. The exception before it is not destroyed then: let few of them throw. (A
 * library that a musl-gcc around a glibc compiler has built has no unwinding: nothing may throw out
 * of a callback there. In one that clang has built, what throws on the way out of another exception
 * ends the process.)
 */
typedef void hwt_task(hwt_timeout *timeout, void *arg);

/* ---- configuration ---- */

typedef enum hwt_wheel_kind {
    HWT_WHEEL_HIERARCHICAL = 0, /* levels of wheels, as in Kafka and Linux */
    HWT_WHEEL_HASHED = 1,       /* a single level with rounds, as in Netty and Dubbo */
} hwt_wheel_kind;

typedef enum hwt_drive {
    HWT_DRIVE_WORKER = 0, /* a thread of the timer's own */
    HWT_DRIVE_CALLER = 1, /* the caller's threads, through hwt_timer_advance */
} hwt_drive;

/*
 * How a timer is made. Set up by hwt_config_init, read by hwt_timer_create only: everything it
 * points to but `clock`, `executor`, `log_arg` and `worker_arg` is copied.
 */
typedef struct hwt_config {
    size_t struct_size; /* set by hwt_config_init */
    /* Granularity of wake-ups; default 1 ms; at least 1 us. A fine one costs nothing when idle. */
    uint64_t tick_ns;
    /*
     * Slots per level, the lowest two may have more; default 512; rounded up to 2^n; at most 2^20,
     * of which more than 2^15 count as 2^15 (hashed: 2^17): the table stays small (G6).
     */
    uint32_t ticks_per_wheel;
    hwt_wheel_kind wheel;
    /*
     * More are refused with -ENOBUFS; 0: no limit. With one a pair of schedule and cancel takes two
     * more atomic operations.
     */
    uint64_t max_pending;
    /*
     * Timeouts allocated up front: this many can be pending without malloc (those with a hook, a
     * period or a release count twice). Free timeouts are shared by all timers of the process, and
     * as many as these have reserved together keep their memory. That of the others goes back to
     * the system: when a large timer is destroyed, and little by little while a worker is awake for
     * others, or many are submitted.
     */
    size_t reserve;
    hwt_drive drive;
    /*
     * CLOCK_MONOTONIC (default, and what 0 means), or CLOCK_BOOTTIME, which counts suspend too. The
     * wall clock is not offered: CLOCK_REALTIME is 0, and so means the default.
     */
    clockid_t clock_id;
    /*
     * A clock of the caller's, read by any thread that schedules; it returns, and does not throw;
     * it may go back, and nothing runs early for that; only with HWT_DRIVE_CALLER. Deadlines have
     * 61 bits, and the last means never: a reading of 2^61 - 2 ns or more counts as that, and makes
     * due all but what is never due.
     */
    uint64_t (*now)(void *clock);
    void *clock; /* its argument */
    /*
     * Where tasks run; NULL: on the worker. Called on the worker; it must see to it that run(job)
     * is called once, soon, on any thread, and return 0; anything else is a refusal, which ends the
     * timeout as cancelled, a periodic one, too (its hook may renew it). A due timeout that still
     * waits there can be cancelled, and stop hands it back; run(job) must be called all the same,
     * at any time later, also after destroy. What a task throws passes through run(job), and
     * through execute if that calls it; execute throws nothing else.
     */
    int (*execute)(void *executor, void (*run)(void *job), void *job);
    void *executor;          /* its first argument */
    const char *thread_name; /* default "hwt-worker"; 15 bytes are used */
    /*
     * Affinity, scheduling, stack of the worker; copied, but for the memory of a stack that is the
     * caller's, who keeps it until the timer is stopped. A signal mask in it does not count. What
     * it leaves open, and NULL leaves all open, the worker inherits from the thread that starts it:
     * by default the first that schedules, and if that is bound to a CPU, so is the worker. Call
     * hwt_timer_start on a thread that has it right. Of the stack the worker takes up to 24 KB
     * itself, and so does hwt_timer_advance: a task has the rest.
     */
    const pthread_attr_t *thread_attr;
    /*
     * Warnings: a slow task, one that ended the worker's thread or threw on it, more than 64 timers
     * at once, handles that nobody dropped (debug builds). Called on the thread that ran the task,
     * in create or in destroy, under no lock; it returns, too.
     */
    void (*log)(void *log_arg, const char *message);
    void *log_arg;
    uint64_t slow_task_ns; /* a task that ran longer is counted and logged after it; 0: never */
    /*
     * Since 1.1, on the worker's own thread: before its first pass, and after its last, also when a
     * task has ended that thread: to attach it to a JVM or a Python interpreter once and not for
     * each task, bind it to a node, name it to a tracer. Submissions do not wait for worker_start;
     * a worker_exit is over when stop has returned. To wait for its timer in there is -EDEADLK. A
     * caller that drives has no such thread. NULL: none.
     */
    void (*worker_start)(void *worker_arg);
    void (*worker_exit)(void *worker_arg);
    void *worker_arg;
} hwt_config;

/* Fills in the defaults. NULL is fine. */
void hwt_config_init(hwt_config *config);
/*
 * Since 1.1 the macro below calls this, with the size in bytes that the struct has in the program.
 * It writes so many and no more: struct_size, the defaults, and zeroes for all else. NULL, or a
 * size that struct_size does not fit into, is left alone; whether a size is known is said by the
 * call that takes the struct. The function of the other name is for programs that were compiled
 * with 1.0, and knows that size only: what came later (worker_start and worker_exit, a spec's
 * release, late_ns_sum) is left out. So it is with the three that end in _init: a binding that
 * looks names up in the library (dlsym, ctypes, JNA) calls those that end in _init_size. Any
 * thread.
 */
void hwt_config_init_size(hwt_config *config, size_t size);
#define hwt_config_init(config) hwt_config_init_size((config), sizeof(hwt_config))

/* ---- the timer ---- */

/*
 * Creates a timer; it does not run yet. One serves a whole process. A NULL config means all
 * defaults. The caller owns *timer and gives it to hwt_timer_destroy, before main returns: nothing
 * else stops its worker, which would run tasks beside atexit handlers and destructors of static
 * objects. It is of the process that created it, started or not: a program that goes to the
 * background creates it afterwards. Any thread.
 *
 * 0; -EINVAL: a NULL out pointer, tick_ns under 1 us, more than 2^20 ticks per wheel, their product
 * beyond INT64_MAX, an unknown enum, clock or struct_size, `now` without HWT_DRIVE_CALLER,
 * `executor` without `execute`, a system clock that stands at 2^61 - 2 ns or more (a time namespace
 * can do that); -ENOMEM; the errno of copying thread_attr; for a worker on CLOCK_BOOTTIME that of
 * timerfd_create, timerfd_settime or eventfd (say, -EMFILE, or -EPERM in a sandbox).
 */
int hwt_timer_create(hwt_timer **timer, const hwt_config *config);

/*
 * Starts the worker, if it is not the caller who drives. Not needed: the first submission does it.
 * Any thread.
 *
 * 0, also when it runs already, or has no worker; -ESHUTDOWN once stopped; -EOWNERDEAD after a task
 * has ended the worker's thread; -ECHILD in a forked child; the negative errno of pthread_create
 * (say, -EPERM for a scheduling policy that is not permitted), after which it can be started again.
 */
int hwt_timer_start(hwt_timer *timer);

/* True once stop, or a drain, has begun. Any thread. */
bool hwt_timer_is_stopped(const hwt_timer *timer);

/*
 * Stops the timer if it runs, as hwt_timer_stop does with NULL for the list, and frees it. Handles
 * stay valid (G9); no other thread may still be calling with the timer itself. NULL is fine.
 *
 * 0; -EDEADLK where hwt_timer_stop says that: then nothing is freed, and destroy is still owed. In
 * a forked child it frees what it can; called there by a callback of the timer, when that has
 * returned.
 */
int hwt_timer_destroy(hwt_timer *timer);

/*
 * Timeouts that were accepted and have not ended. Exact while nothing changes. The last run of one
 * ends it when it begins: with 0 a task may still be running. Stop, drain and
 * hwt_timeout_cancel_sync wait for that. With max_pending it reads a word for each CPU that
 * schedules. Without, it takes some 40 us for each, and a few milliseconds for each million that
 * has been in flight at once, also when they are over: for monitoring, not for every call. Any
 * thread.
 */
uint64_t hwt_timer_pending(const hwt_timer *timer);

/* The timer's clock, in nanoseconds. Any thread. */
uint64_t hwt_timer_now(const hwt_timer *timer);

/*
 * What stop hands back, each with a reference that the caller drops (hwt_timeout_unref). Begin with
 * {0}: a stop that fails leaves it as it was. `count` is of what is still in it. It outlives the
 * timer. What is not taken out is leaked, and its release never called; its hook is not called in
 * any case.
 */
typedef struct hwt_unprocessed {
    hwt_timeout *first;
    size_t count;
} hwt_unprocessed;

/*
 * Ends the worker, after the task that is running has returned, and marks every timeout that has
 * not ended as cancelled. These are handed back in *unprocessed, in no particular order; with NULL
 * for it, their `cancelled` hooks run here instead. New submissions get -ESHUTDOWN; one that races
 * with stop either fails or is handed back (G8). With an executor, this waits for tasks that are
 * running there, not for those that still wait. Follows Netty's HashedWheelTimer.stop.
 *
 * Hold no lock that a callback takes (task, hook, release, visitor), an interpreter's (Python's
 * GIL) included: this waits for them, and so do drain, destroy and visit. If the caller drives,
 * advance, next_deadline and the first hwt_timer_fd wait for another thread's visitor.
 *
 * 0; a second stop waits for the first and gets an empty list; -EDEADLK from one of its own tasks
 * or visitors, a hook or release that follows a run or that stop calls, and whatever else runs on
 * the worker's thread (worker_start, worker_exit, a destructor); -ECHILD in a forked child. Any
 * other thread.
 */
int hwt_timer_stop(hwt_timer *timer, hwt_unprocessed *unprocessed);

/*
 * Since 1.1, for a worker-driven timer: refuses submissions from now on, ends what is periodic,
 * after the run that is on, waits up to max_ns for all else to end, and then stops: what has not
 * ended by then, and what is periodic, is handed back as by hwt_timer_stop, or its hook called.
 * What is pending runs meanwhile, and may be cancelled, moved, and re-armed by its task. If the
 * timer ever had anything periodic, what is due then waits once, for a look at all that is pending:
 * some 40 to 110 ms for each million. What is never due holds it up for all of max_ns: cancel it
 * first. As the JDK's shutdown and awaitTermination.
 *
 * 0 and the errors of hwt_timer_stop; -EINVAL on a caller-driven timer. From its start
 * hwt_timer_is_stopped is true. A stop or destroy by another thread cuts it short, and is the one
 * that is handed the list; a second drain waits for the first and gets an empty list.
 */
int hwt_timer_drain(hwt_timer *timer, uint64_t max_ns, hwt_unprocessed *unprocessed);

/* Takes the next one out of the list, with its reference; NULL: that was all, or no list. */
hwt_timeout *hwt_unprocessed_take(hwt_unprocessed *unprocessed);

/* ---- scheduling ---- */

/*
 * Runs task(timeout, arg) once, on the worker or the executor, when the timer's clock has reached
 * now + delay_ns, and within a tick of it if the worker is free (G1, G4). What is due runs in the
 * order of deadlines, to the nanosecond; of what one thread has submitted for the same deadline,
 * or moved to it since, the first submitted comes first (G15); between two threads there is no such
 * order, though one's call had returned before the other's began. Too large a delay means never.
 * This thread does not run it before this has returned (G11). Any thread, without a lock (G7).
 *
 * With `timeout` not NULL, *timeout is a handle whose reference the caller drops with
 * hwt_timeout_unref, whatever becomes of the timeout; it is stored before the task can run. With
 * NULL there is nothing to drop. No other thread, nor the task of another timeout, may read
 * *timeout before this has returned: if two need each other's handles, schedule the first for
 * never, then the second, then move the first.
 *
 * 0; -EINVAL: no timer or task; -ESHUTDOWN once stop began; -ENOBUFS at max_pending; -ENOMEM;
 * -EOWNERDEAD after a task has ended the worker's thread; -ECHILD in a forked child;
 * pthread_create's errno, if this was to start the worker.
 */
int hwt_new_timeout(hwt_timer *timer, hwt_task *task, void *arg, uint64_t delay_ns,
                    hwt_timeout **timeout);

/* The same with a deadline on the timer's clock: it saves reading the clock. */
int hwt_new_timeout_at(hwt_timer *timer, hwt_task *task, void *arg, uint64_t deadline_ns,
                       hwt_timeout **timeout);

/*
 * When a periodic timeout runs again (G14); as ScheduledExecutorService and Go name them. With an
 * executor, a missed run is handed over when the one before has come back. At a fixed rate that its
 * task cannot keep up with, one falls further and further behind: skip what is missed.
 */
typedef enum hwt_period_mode {
    HWT_FIXED_RATE = 0,      /* at first + k * period, missed runs one after another */
    HWT_FIXED_RATE_SKIP = 1, /* the same phase, missed runs dropped; one that is due now is not */
    HWT_FIXED_DELAY = 2,     /* period after the end of the run before */
} hwt_period_mode;

typedef struct hwt_spec {
    size_t struct_size; /* set by hwt_spec_init */
    hwt_task *task;
    /*
     * Called once, if the timeout ends otherwise than by its last run and is not handed back by
     * stop: in the thread that cancelled it, in stop or destroy, or where the executor refused it
     * (G10). If it is cancelled while its task is running, then as soon as the task has returned,
     * on the task's thread. NULL: none.
     */
    hwt_task *cancelled;
    void *arg;
    uint64_t delay_ns;  /* for a deadline: never (UINT64_MAX), then hwt_timeout_reschedule_at */
    uint64_t period_ns; /* 0: once */
    hwt_period_mode period_mode; /* of no account without a period */
    /*
     * Since 1.1: called once, when `arg` is no longer needed: the timeout has ended, its task and
     * hook have returned, and the last reference to it is dropped (G16). By whoever did the last of
     * these, at once, under no lock: it may use the library as a hook may. A submission that fails
     * does not call it. NULL: none. An `arg` that holds a handle of its own timeout is not released
     * before that is dropped: by its last run, say, or its hook.
     */
    void (*release)(void *arg);
} hwt_spec;

/*
 * Zeroes all but struct_size. NULL is fine. Instead of it {.struct_size = sizeof(hwt_spec), ...}
 * will do; without that, struct_size is 0, and the spec is refused.
 */
void hwt_spec_init(hwt_spec *spec);
void hwt_spec_init_size(hwt_spec *spec, size_t size);
#define hwt_spec_init(spec) hwt_spec_init_size((spec), sizeof(hwt_spec))

/*
 * hwt_new_timeout with a hook, a period or a release. The spec is copied. A periodic timeout is
 * pending until it is cancelled, and never runs concurrently with itself. Results as for
 * hwt_new_timeout, and -EINVAL for an unknown period_mode or struct_size. Any thread.
 */
int hwt_schedule(hwt_timer *timer, const hwt_spec *spec, hwt_timeout **timeout);

/* ---- one timeout: any thread that holds a reference, or its own task ---- */

typedef enum hwt_state {
    HWT_PENDING = 0,
    HWT_RUNNING = 1,
    HWT_EXPIRED = 2,   /* ran for the last time */
    HWT_CANCELLED = 3, /* by cancel, by stop, or refused by the executor */
} hwt_state;

/*
 * True: this call ended it, its task will not start (a periodic or re-armed one: not again), and
 * its place under max_pending is free. False: it was running for the last time, or had ended.
 * Whatever it returns, no run starts after it. It does not wait for a run that is on. If there is
 * none, it calls the hook itself: hold no lock that the hook takes.
 */
bool hwt_timeout_cancel(hwt_timeout *timeout);

/*
 * The same, and waits until neither its task nor, after it, its hook is running: on return it never
 * will again, and what the task uses can be freed. As Linux's timer_shutdown_sync. Hold no lock
 * that the task or its hook takes, and let no two tasks wait for each other. A hook that another
 * thread's hwt_timeout_cancel is calling just now, on that thread, is not waited for: then this
 * returns 0, and that thread has won. Nor is one that stop or destroy calls, or the worker whose
 * executor refused it.
 *
 * 1 as for true above, 0 as for false; -EDEADLK from inside that very task, or the hook that
 * follows it; -ECHILD in a forked child.
 */
int hwt_timeout_cancel_sync(hwt_timeout *timeout);

/*
 * Moves the deadline to now + delay_ns. True: that is its deadline now. False: it has run, been
 * cancelled, or is due and with the executor. Inside its own task: re-arms it for another run;
 * false, if it was cancelled during this run, whatever that said, or its place under max_pending
 * has been taken meanwhile. From another thread while it runs: false. When a task moves
 * another timeout to now, that runs after all that is due: mostly in the next pass, in this one if
 * it was due in it anyway and the clock has not gone on. Moved to a time before now it may be the
 * next to run.
 * Among equal deadlines it keeps the place of its submission. A periodic one goes on from the new
 * deadline: its phase moves along. At a fixed rate a deadline long ago has it catch up on every
 * period since, in a row: to run it now, use a delay of 0. Moving it later, on every packet say, is
 * one compare-and-swap and wakes nobody. What is moved to now all the time, faster than anybody
 * comes to it, runs all the same, though seldom; on a clock of yours maybe not before that ends.
 *
 * A false from another thread does not say whether the run that is on, or just over, came too soon.
 * Who must not lose a push keeps the deadline in `arg`, too, under a lock that the task takes: the
 * task looks, and re-arms itself if its time has not come.
 */
bool hwt_timeout_reschedule(hwt_timeout *timeout, uint64_t delay_ns);
bool hwt_timeout_reschedule_at(hwt_timeout *timeout, uint64_t deadline_ns);

hwt_state hwt_timeout_state(const hwt_timeout *timeout);
/* Running or expired: a periodic one is, during each run, and is not between them. */
bool hwt_timeout_is_expired(const hwt_timeout *timeout);
bool hwt_timeout_is_cancelled(const hwt_timeout *timeout);

/* As it was scheduled. The timer may have been destroyed meanwhile. */
hwt_timer *hwt_timeout_timer(const hwt_timeout *timeout);
hwt_task *hwt_timeout_task(const hwt_timeout *timeout);
void *hwt_timeout_arg(const hwt_timeout *timeout);
/* The deadline in force, on the timer's clock; of what has ended, the last; UINT64_MAX: never. */
uint64_t hwt_timeout_deadline(const hwt_timeout *timeout);

/* One more reference; returns its argument. */
hwt_timeout *hwt_timeout_ref(hwt_timeout *timeout);
/*
 * Drops one. Does not cancel. NULL is fine. The last one of what has ended calls the release: hold
 * no lock that this takes.
 */
void hwt_timeout_unref(hwt_timeout *timeout);

/*
 * Since 1.1: *timeout has ended; its task, arg, hook, release and period are scheduled anew on
 * `timer`, due in delay_ns by the clock of that. NULL for the timer means its own, which must not
 * have been destroyed.
 * What stop has handed back goes on in a successor this way. The caller's reference moves along:
 * *timeout is the new handle, before the task can run, and what others hold is still the old one,
 * which has ended. The release is called for the last one only. What was cancelled while it ran
 * (and cancel said true: it was periodic or re-armed) has ended too, even while that run goes on;
 * what runs for the last time, when its task has returned. A run that goes on is none of the new
 * timeout's: the two may overlap (on an executor, or on another timer), and hwt_timeout_cancel_sync
 * of the new handle does not wait for it; to have none that overlaps, call that with the old handle
 * first. It is submitted now, as to its place among equal deadlines. As Go's Reset of a timer that
 * has fired.
 *
 * 0; -EBUSY: it has not ended (hwt_timeout_reschedule moves it; not while its last run is on: then
 * schedule another one, or wait for that by hwt_timeout_cancel_sync); -EINVAL: no handle; else as
 * for hwt_schedule. One thread at a time for each reference.
 */
int hwt_timeout_renew(hwt_timeout **timeout, hwt_timer *timer, uint64_t delay_ns);

/* ---- driving it oneself, and event loops: HWT_DRIVE_CALLER ---- */

/*
 * Runs on this thread, or hands to the executor, every task whose deadline has been reached, in
 * order (G15), and returns how many. What these tasks submit for now runs in the next call (G11);
 * periodic ones catch up within this one. (With an executor in a later one, when the run before
 * has come back from there.) Any thread, one at a time. Several loops may wait for the descriptor:
 * who is refused need not come again, since it becomes readable anew if anything is left to do.
 *
 * -EINVAL on a worker-driven timer; -EDEADLK from inside one of its tasks; -EBUSY while another
 * thread is in it; -ESHUTDOWN once stopped; -ECHILD in a forked child, that of a task included.
 */
int hwt_timer_advance(hwt_timer *timer);

/*
 * When hwt_timer_advance next has something to run, in nanoseconds on the timer's clock;
 * UINT64_MAX: nothing is pending but what is never due, or is with the executor, or the timer is
 * stopped (whether all has ended says hwt_timer_pending). Exact for a timer that the caller
 * drives, inside a task of its too: what is due now is now or earlier, and the task's own next run
 * counts. While another thread is in advance, and for a worker-driven timer, it is a lower bound:
 * never later than a deadline that a call which has returned has set. What is with the executor
 * counts again when it comes back from there, or has been re-armed there: which the descriptor
 * tells, so with an executor a loop waits for that. It costs next to nothing while nothing changes,
 * whatever is pending; but while more than eight runs that have re-armed their timeouts on one CPU
 * are on at an executor, it looks through what is with that. Any thread.
 */
uint64_t hwt_timer_next_deadline(hwt_timer *timer);

/*
 * A descriptor for poll, epoll and the like, readable when hwt_timer_advance has something to do,
 * also when another thread has submitted an earlier deadline. While there is something due more
 * than four thousand times a second it is so up to a quarter of a millisecond late, and no more
 * than a tick, so that one advance does for many. Where very many are far away, that something may
 * be to look through a portion of them ahead of their time, and no task runs. Once the timer is
 * stopped it is readable until the next hwt_timer_advance has said -ESHUTDOWN, and never again: a
 * loop hears of the stop and does not spin (of several one does, and tells the others); a duplicate
 * is so no more when the timer is destroyed. Owned by the timer; nothing is to be read from it:
 * advance makes it unreadable again, and who waits for its edge (EPOLLET) need call that once for
 * each. Linux: a timerfd, which whoever submits an earlier deadline sets; a sandbox that is entered
 * later must go on allowing timerfd_settime.
 *
 * -EINVAL on a worker-driven timer; -ENOTSUP with a clock of the caller's; -ECHILD in a forked
 * child; the errno of timerfd_create or timerfd_settime.
 */
int hwt_timer_fd(hwt_timer *timer);

/* ---- looking inside ---- */

typedef struct hwt_stats {
    size_t struct_size;   /* set by hwt_stats_init */
    uint64_t scheduled;   /* accepted by new_timeout and schedule */
    uint64_t expired;     /* ended by having run for the last time (counted as that run starts) */
    uint64_t cancelled;   /* by a call, or because the executor refused it */
    uint64_t unprocessed; /* ended by stop */
    uint64_t rejected;    /* refused at max_pending, or by the executor */
    uint64_t pending;
    uint64_t runs;          /* task calls, periodic ones each time */
    uint64_t withdrawn;     /* cancelled before the worker ever saw them; part of cancelled */
    uint64_t wakeups;       /* times the worker left its sleep */
    uint64_t slow_tasks;    /* ran longer than slow_task_ns */
    uint64_t late_ns_max;   /* from deadline to the start of the task */
    uint64_t late_log2[64]; /* runs by floor(log2(lateness in ns)); 0 ns counts in [0] */
    uint64_t late_ns_sum;   /* since 1.1: over all runs */
} hwt_stats;

/* Zeroes all but struct_size. NULL is fine. */
void hwt_stats_init(hwt_stats *stats);
void hwt_stats_init_size(hwt_stats *stats, size_t size);
#define hwt_stats_init(stats) hwt_stats_init_size((stats), sizeof(hwt_stats))

/*
 * Fills *stats. After stop, scheduled == expired + cancelled + unprocessed (G3). Costs what
 * hwt_timer_pending costs without max_pending. Lateness is measured against a clock reading that is
 * at most a few milliseconds old while many tasks run in a row. 0; -EINVAL: NULL or an unknown
 * struct_size; -ECHILD in a forked child. Any thread.
 */
int hwt_timer_stats(const hwt_timer *timer, hwt_stats *stats);

/*
 * Since 1.1: the counters in Prometheus' text format, as a page for its scraper. Counters are
 * hwt_X_total, of scheduled, cancelled, unprocessed, rejected, runs, withdrawn, wakeups and
 * slow_tasks; gauges hwt_expired, hwt_pending and hwt_late_max_seconds; lateness is a histogram,
 * hwt_late_seconds with _bucket, _sum and _count, from a microsecond by powers of two. hwt_expired
 * is a gauge, since it falls when a task arms its timeout anew; for rates there is hwt_runs_total.
 * `labels` are put on each line as they are, so escaped: timer="rpc", commas between several; NULL:
 * none. Of stats of the 1.0 size the sum is 0. Of several timers each is a page of its own;
 * docs/examples/metrics.c puts them together. It does not depend on the locale.
 *
 * As snprintf: writes at most `size` bytes with the NUL at their end, and returns the length that
 * is needed without it; -EINVAL: no stats, an unknown struct_size, or no buffer for a size. Any
 * thread; it reads *stats only.
 */
int hwt_stats_prometheus(const hwt_stats *stats, const char *labels, char *buffer, size_t size);

/* Since 1.1: is shown a timeout, which is valid during the call without a reference. */
typedef void hwt_visitor(hwt_timeout *timeout, void *arg);

/*
 * Since 1.1: calls visit(timeout, arg) for every timeout that was pending when this was called, and
 * still is, each once, in no particular order; and returns how many. On the worker, after the task
 * that is running, whatever else is due by then, and this waits for it. (Right after another visit
 * up to 64 due tasks run first; and tasks run for as long as another thread is in the middle of
 * moving a timeout.) While timeouts are shown none runs: some 10 to 60 ms for each million. On
 * this thread if the caller drives: then advance and the like of other threads wait for it. `visit`
 * may look at the timeout, take a reference and drop it, cancel or move it, and schedule; nothing
 * else. What it schedules is not shown. A visitor may end its thread, or throw, as a task may.
 *
 * -EINVAL: no timer or visitor; -EDEADLK from one of its own tasks, hooks or visitors; -ESHUTDOWN
 * once a stop or drain has begun; -EBUSY while another thread is in advance; -EOWNERDEAD after a
 * task, or this visitor, has ended the worker's thread; -ECHILD in a forked child. Any other
 * thread.
 */
int64_t hwt_timer_visit(hwt_timer *timer, hwt_visitor *visit, void *arg);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
