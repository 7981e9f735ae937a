/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap,--wrap=pthread_create,--wrap=pthread_key_create,--wrap=eventfd,--wrap=timerfd_create,--wrap=epoll_create1 */
/*
 * Long random walks over all that one thread can do to a timer of many timeouts, under
 * HWT_DRIVE_CALLER, against a plain array: bursts at one deadline or within one tick, moves in all
 * directions of whatever is in whatever place, tasks and hooks that schedule, cancel, move, re-arm,
 * ask for the next deadline and do not return, an executor that runs jobs at once, later, or
 * refuses them, memory that fails, and a clock that jumps ahead and back. What must run, in which
 * order (G1, G2, G15), what comes next, what is pending, and what a stop hands back (G8).
 *
 * A program of this length is for every build; give it minutes: its argument is seconds.
 */
#include "fault/inject.h"

#include <setjmp.h>
#ifdef __EXCEPTIONS /* the library is built for them, too (Makefile: UNWINDING) */
#include <unwind.h>
#endif

enum { ITEMS = 6000, JOBS = 4096 };

enum state { FREE, PENDING, DISPATCHED, RUNNING, OVER };

struct item {
    hwt_timeout *timeout; /* NULL: it has no handle */
    enum state state;
    bool fresh; /* submitted, moved or to run again since the pass began */
    bool hooked, periodic;
    bool rearmed; /* while it runs */
    bool cancelled_in_run;
    uint64_t deadline, order;
};

static struct item items[ITEMS];
static hwt_timer *timer;
static uint64_t now_ns, tick_ns, least_now, pending_count, submissions, runs_seen, rounds;
static uint64_t last_deadline, last_order;
static bool in_pass, fixed_rate, stopping;
static unsigned depth;

/* ---- the executor ---- */
enum executor { NO_EXECUTOR, AT_ONCE, LATER, UNWILLING, EXECUTORS };
static enum executor executor;
static void *jobs[JOBS];
static unsigned job_count;
static void (*run_job)(void *job);

/* ---- a task that does not return ---- */
static jmp_buf landing;
static uintptr_t landing_frame;
static bool may_throw;

static uint64_t read_clock(void *clock)
{
    return *(uint64_t *)clock;
}

static struct item *any_item(void)
{
    return &items[stress_below(ITEMS)];
}

/* One that is pending, if there are many. */
static struct item *some_item(void)
{
    struct item *item = any_item();

    for (unsigned i = 0; i < 20 && (item->state != PENDING || !item->timeout); i++)
        item = any_item();
    return item;
}

static uint64_t deadline_of(const struct item *item)
{
    return item->timeout ? hwt_timeout_deadline(item->timeout) : item->deadline;
}

/* Around now, and on the same nanosecond as others quite often. */
static uint64_t some_deadline(void)
{
    uint64_t tick = now_ns / tick_ns * tick_ns;

    switch (stress_below(12)) {
    case 0: return now_ns;
    case 1: return now_ns - stress_below(now_ns / 2);
    case 2: return tick + tick_ns;
    case 3: return tick + tick_ns + stress_below(tick_ns);
    case 4: return now_ns + stress_below(2 * tick_ns);
    case 5: return tick + stress_below(64) * tick_ns + stress_below(4);
    case 6: return now_ns + stress_below(4096 * tick_ns);
    case 7: return now_ns + (UINT64_C(1) << stress_below(50));
    case 8: return stress_one_in(8) ? 0 : now_ns + 1;
    case 9: return stress_one_in(8) ? UINT64_MAX : tick + 3 * tick_ns;
    default: return now_ns + stress_below(16 * tick_ns);
    }
}

/* ---- what must be ---- */
static void check_next(void)
{
    uint64_t first = UINT64_MAX, next;
    bool unknown = false; /* a periodic one is running: it is the library's to say when next */

    for (unsigned i = 0; i < ITEMS; i++) {
        const struct item *item = &items[i];
        unknown |= item->state == RUNNING && item->periodic;
        if ((item->state == PENDING || item->rearmed) && deadline_of(item) < first)
            first = deadline_of(item);
    }
    next = hwt_timer_next_deadline(timer);
    if (first >= UINT64_C(1) << 60)
        STRESS_CHECK(unknown || next == UINT64_MAX, "next %" PRIu64 ", but nothing comes", next);
    else if (first <= now_ns)
        STRESS_CHECK(next <= now_ns, "next %" PRIu64 ", first %" PRIu64, next, first);
    else
        STRESS_CHECK(next == first || (unknown && next < first),
                     "next %" PRIu64 ", first %" PRIu64 ", now %" PRIu64, next, first, now_ns);
}

static void check_pending(void)
{
    uint64_t pending = hwt_timer_pending(timer);

    STRESS_CHECK(pending == pending_count, "%" PRIu64 " pending, not %" PRIu64, pending,
                 pending_count);
}

/* ---- what tasks and hooks do ---- */
static void task(hwt_timeout *timeout, void *arg);
static void hook(hwt_timeout *timeout, void *arg);
static void submit(uint64_t deadline, bool plain);
static void cancel(struct item *item);
static void move(struct item *item, uint64_t deadline);

#ifdef __EXCEPTIONS
enum { UNWINDS = true };

static _Unwind_Reason_Code stop_unwinding(int version, _Unwind_Action actions,
                                          _Unwind_Exception_Class class,
                                          struct _Unwind_Exception *exception,
                                          struct _Unwind_Context *context, void *arg)
{
    (void)version, (void)class, (void)exception, (void)arg;
    if (actions & _UA_END_OF_STACK || _Unwind_GetCFA(context) > landing_frame)
        longjmp(landing, 1);
    return _URC_NO_REASON;
}

#ifdef __SANITIZE_ADDRESS__
void __asan_handle_no_return(void); /* it knows of throwing, but not of this way to do it */
#else
#define __asan_handle_no_return() ((void)0)
#endif

static void throw(void)
{
    static struct _Unwind_Exception exception;

    __asan_handle_no_return();
    memset(&exception, 0, sizeof exception);
    _Unwind_ForcedUnwind(&exception, stop_unwinding, NULL);
    STRESS_CHECK(false, "nobody caught it");
}
#else
enum { UNWINDS = false };

static void throw(void)
{
}
#endif

static void meddle(void)
{
    if (depth++ == 0) {
        switch (stress_below(8)) {
        case 0: submit(now_ns, true); break;
        case 1: submit(some_deadline(), false); break;
        case 2: cancel(some_item()); break;
        case 3: move(some_item(), now_ns - stress_below(tick_ns)); break;
        case 4:
        case 5: move(some_item(), some_deadline()); break;
        case 6:
            if (stress_one_in(8))
                check_next();
            break;
        default:
            if (stress_one_in(16) && !fixed_rate)
                now_ns += stress_one_in(2) ? stress_below(2 * tick_ns) : -stress_below(2 * tick_ns);
            if (now_ns < least_now)
                least_now = now_ns;
        }
    }
    depth--;
}

static void end(struct item *item)
{
    item->state = OVER;
    pending_count--;
}

static void hook(hwt_timeout *timeout, void *arg)
{
    struct item *item = arg;

    STRESS_CHECK(item->hooked && (!item->timeout || item->timeout == timeout), "a stranger");
    item->hooked = false;
    if (stopping) {
        STRESS_CHECK(item->state == PENDING || item->state == DISPATCHED, "hook of what is over");
        end(item);
        return;
    }
    if (item->state == DISPATCHED && !item->cancelled_in_run)
        end(item); /* refused */
    if (stress_one_in(4))
        meddle();
}

static void check_order(const struct item *item)
{
    if (item->fresh)
        return;
    STRESS_CHECK(item->deadline > last_deadline ||
                     (item->deadline == last_deadline && item->order > last_order),
                 "G15: %" PRIu64 " (%" PRIu64 ") after %" PRIu64 " (%" PRIu64 ")", item->deadline,
                 item->order, last_deadline, last_order);
    last_deadline = item->deadline;
    last_order = item->order;
}

static void rearm(struct item *item, hwt_timeout *timeout)
{
    uint64_t deadline = some_deadline();

    if (!hwt_timeout_reschedule_at(timeout, deadline)) {
        STRESS_CHECK(item->cancelled_in_run, "it cannot be re-armed");
        return;
    }
    STRESS_CHECK(!item->cancelled_in_run, "re-armed after a cancel");
    item->deadline = deadline;
    if (!item->periodic && !item->rearmed)
        pending_count++;
    item->rearmed = true;
}

/* The run is over: as the library will see it when the task has returned. */
static void settle(struct item *item)
{
    if (item->state != RUNNING)
        return;
    if (item->cancelled_in_run) {
        item->state = OVER;
    } else if (item->rearmed || item->periodic) {
        item->state = PENDING;
        item->fresh = true;
    } else {
        item->state = OVER;
    }
    item->rearmed = false;
}

/* What ran before has returned by now: a task is not told when it itself has. */
static struct item *running;

static void settle_running(void)
{
    if (running)
        settle(running);
    running = NULL;
}

static void task(hwt_timeout *timeout, void *arg)
{
    struct item *item = arg;

    settle_running();
    STRESS_CHECK(!item->timeout || item->timeout == timeout, "the task of a stranger");
    STRESS_CHECK(item->state == (executor ? DISPATCHED : PENDING), "G2: state %d",
                 (int)item->state);
    if (!executor) {
        if (item->timeout)
            item->deadline = hwt_timeout_deadline(timeout);
        STRESS_CHECK(in_pass && item->deadline <= now_ns, "G1");
        check_order(item);
    }
    item->state = RUNNING;
    item->rearmed = item->cancelled_in_run = false;
    running = item;
    if (!item->periodic)
        pending_count--;
    runs_seen++;
    if (stress_one_in(5))
        meddle();
    if (stress_one_in(8) && (!item->periodic || !fixed_rate))
        rearm(item, timeout);
    if (stress_one_in(16) && item->timeout)
        cancel(item);
    if (stress_one_in(16) && item->timeout)
        rearm(item, timeout);
    if (stress_one_in(100))
        check_next();
    if (stress_one_in(300))
        STRESS_CHECK(hwt_timer_advance(timer) == (in_pass || executor ? -EDEADLK : -EINVAL),
                     "advance in a task");
    if (may_throw && stress_one_in(500)) {
        if ((item->periodic || item->rearmed) && !item->cancelled_in_run)
            pending_count--;
        item->state = OVER;
        item->rearmed = false;
        running = NULL;
        throw();
    }
}

/* ---- the executor ---- */
static void hand_over(struct item *item)
{
    settle_running();
    if (item->timeout)
        item->deadline = hwt_timeout_deadline(item->timeout);
    STRESS_CHECK(item->state == PENDING && item->deadline <= now_ns, "handed over: %d",
                 (int)item->state);
    check_order(item);
    item->state = DISPATCHED;
    item->cancelled_in_run = false;
}

static int execute(void *argument, void (*run)(void *job), void *job)
{
    struct item *item = hwt_timeout_arg(job); /* a job is its timeout */

    (void)argument;
    run_job = run;
    hand_over(item);
    if (executor == AT_ONCE || stress_one_in(8)) {
        run(job);
        settle_running();
        return 0;
    }
    if (job_count == JOBS || (executor == UNWILLING && stress_one_in(3))) {
        if (!item->hooked)
            end(item);
        return -1;
    }
    jobs[job_count++] = job;
    return 0;
}

static void run_jobs(unsigned most)
{
    while (job_count > 0 && most-- > 0) {
        unsigned which = (unsigned)stress_below(job_count);
        void *job = jobs[which];
        jobs[which] = jobs[--job_count];
        run_job(job);
        settle_running();
    }
}

/* ---- calls ---- */
static struct item *free_item(void)
{
    struct item *item = any_item();

    for (unsigned i = 0; i < 8 && (item->state == PENDING || item->state == RUNNING ||
                                   item->state == DISPATCHED || item == running);
         i++)
        item = any_item();
    if (item->state == PENDING || item->state == RUNNING || item->state == DISPATCHED ||
        item == running)
        return NULL;
    hwt_timeout_unref(item->timeout);
    *item = (struct item){.state = FREE};
    return item;
}

static int call_schedule(struct item *item, uint64_t deadline, hwt_timeout **handle)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = item->hooked ? hook : NULL;
    spec.arg = item;
    spec.delay_ns = deadline > now_ns ? deadline - now_ns : 0;
    if (item->periodic) {
        spec.period_mode = (hwt_period_mode)stress_below(3);
        spec.period_ns = 1 + stress_below(8 * tick_ns);
        if (spec.period_mode == HWT_FIXED_RATE && !fixed_rate)
            spec.period_mode = HWT_FIXED_RATE_SKIP;
        else if (spec.period_mode == HWT_FIXED_RATE)
            spec.period_ns += tick_ns;
    }
    item->deadline = now_ns + spec.delay_ns;
    return hwt_schedule(timer, &spec, handle);
}

static void submit(uint64_t deadline, bool plain)
{
    struct item *item = free_item();
    bool with_handle = !stress_one_in(4);
    hwt_timeout **handle = item && with_handle ? &item->timeout : NULL;
    int result;

    if (!item)
        return;
    item->periodic = !plain && stress_one_in(10) && with_handle;
    item->hooked = !plain && stress_one_in(4);
    item->fresh = true;
    item->deadline = deadline;
    item->order = ++submissions;
    if (item->periodic || item->hooked)
        result = call_schedule(item, deadline, handle);
    else
        result = hwt_new_timeout_at(timer, task, item, deadline, handle);
    if (result != 0) {
        STRESS_CHECK(result == -ENOMEM && atomic_load(&armed), "submission: %d", result);
        *item = (struct item){.state = FREE};
        return;
    }
    item->state = PENDING;
    pending_count++;
}

static void cancel(struct item *item)
{
    bool ends, result;

    if (!item->timeout)
        return;
    ends = item->state == PENDING || item->state == DISPATCHED;
    if (item->state == RUNNING && !item->cancelled_in_run)
        ends = item->periodic || item->rearmed;
    /* before the call: its hook looks */
    if (ends && item->state == RUNNING) {
        item->cancelled_in_run = true;
        item->rearmed = false;
        pending_count--;
    } else if (ends) {
        item->cancelled_in_run = item->state == DISPATCHED;
        end(item);
    } else if (item->state == RUNNING) {
        item->cancelled_in_run = true; /* no run follows */
    }
    result = hwt_timeout_cancel(item->timeout);
    STRESS_CHECK(result == ends, "cancel: %d, state %d", result, (int)item->state);
    if (ends && item->state == OVER)
        STRESS_CHECK(!item->hooked, "G10: cancelled, and no hook");
}

static void move(struct item *item, uint64_t deadline)
{
    bool moved;

    if (!item->timeout || item == running || (item->periodic && fixed_rate && deadline < now_ns))
        return;
    moved = hwt_timeout_reschedule_at(item->timeout, deadline);
    STRESS_CHECK(moved == (item->state == PENDING), "moved: %d, state %d", moved, (int)item->state);
    if (moved) {
        item->deadline = deadline;
        item->fresh = true;
    }
}

/* ---- passes ---- */
static __attribute__((noinline)) int land_or_advance(void)
{
    landing_frame = (uintptr_t)__builtin_frame_address(0);
    if (setjmp(landing))
        return -1;
    return hwt_timer_advance(timer);
}

static void advance(void)
{
    uint64_t began = now_ns;
    int ran;

    for (unsigned i = 0; i < ITEMS; i++)
        items[i].fresh = false;
    last_deadline = last_order = 0;
    least_now = now_ns;
    in_pass = true;
    ran = land_or_advance();
    in_pass = false;
    depth = 0;
    settle_running();
    if (ran < 0)
        return;
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct item *item = &items[i];
        STRESS_CHECK(item->state != PENDING || item->fresh || deadline_of(item) > began ||
                         deadline_of(item) > least_now,
                     "G2: %" PRIu64 " did not run at %" PRIu64, deadline_of(item), began);
    }
}

static void step_clock(void)
{
    uint64_t next;

    switch (stress_below(10)) {
    case 0: break;
    case 1: now_ns += 1; break;
    case 2: now_ns += stress_below(tick_ns); break;
    case 3: now_ns += tick_ns; break;
    case 4: now_ns = now_ns / tick_ns * tick_ns + tick_ns; break;
    case 5: now_ns += stress_below(100 * tick_ns); break;
    case 6:
        if (!fixed_rate)
            now_ns -= stress_below(3 * tick_ns);
        break;
    case 7:
        if (!fixed_rate && stress_one_in(4))
            now_ns += stress_below(UINT64_C(1) << stress_below(46));
        break;
    default:
        next = hwt_timer_next_deadline(timer);
        if (next < UINT64_C(1) << 60 && next > now_ns &&
            (!fixed_rate || next - now_ns < 64 * tick_ns))
            now_ns = next;
    }
}

static void burst(void)
{
    unsigned count =
        stress_one_in(12) ? 1 + (unsigned)stress_below(3000) : 1 + (unsigned)stress_below(40);
    uint64_t base = some_deadline(), spread;
    unsigned shape = (unsigned)stress_below(4);

    spread = shape == 0 ? 1 : shape == 1 ? 1 + tick_ns / 64 : shape == 2 ? tick_ns : 8 * tick_ns;
    for (unsigned i = 0; i < count; i++)
        submit(shape == 3 && stress_one_in(2) ? some_deadline()
               : base > UINT64_MAX - spread   ? base
                                              : base + stress_below(spread),
               false);
}

static void change_many(void)
{
    unsigned count = 1 + (unsigned)stress_below(stress_one_in(8) ? 2000 : 40);
    unsigned what = (unsigned)stress_below(5);

    for (unsigned i = 0; i < count; i++) {
        struct item *item = some_item();
        uint64_t deadline = item->state == PENDING ? deadline_of(item) : 0;
        switch (what) {
        case 0: cancel(item); break;
        case 1: move(item, some_deadline()); break;
        case 2: /* a little earlier */
            if (deadline > now_ns)
                move(item, deadline - stress_below(deadline - now_ns + 1) / 16);
            break;
        case 3: /* a little later */
            if (deadline > 0 && deadline < UINT64_C(1) << 58)
                move(item, deadline + stress_below(4 * tick_ns));
            break;
        default: /* away and back */
            if (deadline > 0 && deadline < UINT64_C(1) << 58) {
                move(item, deadline + 5 * tick_ns);
                if (stress_one_in(2))
                    check_pending();
                move(item, deadline);
            }
        }
    }
}

static void play(void)
{
    switch (stress_below(10)) {
    case 0:
    case 1: burst(); break;
    case 2:
    case 3: change_many(); break;
    case 4: check_next(); break;
    case 5: run_jobs((unsigned)stress_below(2 * job_count + 1)); break;
    case 6:
        if (disarm())
            injected += atomic_load(&failed);
        if (stress_one_in(2))
            arm(stress_below(20), stress_one_in(2));
        break;
    default:
        step_clock();
        advance();
        check_pending();
        if (stress_one_in(3))
            check_next();
    }
}

/* ---- a round ---- */
static void take_back(hwt_unprocessed *list)
{
    hwt_timeout *timeout;

    STRESS_CHECK(list->count == pending_count, "G8: %zu of %" PRIu64, list->count, pending_count);
    while ((timeout = hwt_unprocessed_take(list)) != NULL) {
        struct item *item = hwt_timeout_arg(timeout);
        STRESS_CHECK(item->state == PENDING || item->state == DISPATCHED, "G8: handed back: %d",
                     (int)item->state);
        end(item);
        hwt_timeout_unref(timeout);
    }
}

static void stop(void)
{
    hwt_unprocessed list = {0};

    stopping = true;
    if (stress_one_in(2)) {
        STRESS_OK(hwt_timer_stop(timer, &list));
        take_back(&list);
        STRESS_CHECK(pending_count == 0, "G8: %" PRIu64 " are missing", pending_count);
    } else {
        STRESS_OK(hwt_timer_stop(timer, NULL));
    }
    stopping = false;
    stress_check_balance(timer);
    run_jobs(JOBS); /* too late, all of them */
}

static void configure(hwt_config *config)
{
    static const uint64_t ticks[] = {HWT_USEC(1), HWT_USEC(100), HWT_MSEC(1), (1u << 22) - 1,
                                     1u << 22,    HWT_MSEC(10),  HWT_SEC(1),  HWT_SEC(3600)};

    hwt_config_init(config);
    config->drive = HWT_DRIVE_CALLER;
    config->now = read_clock;
    config->clock = &now_ns;
    config->wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config->tick_ns = tick_ns = ticks[stress_below(sizeof ticks / sizeof ticks[0])];
    config->ticks_per_wheel = UINT32_C(1) << stress_below(11);
    if (rounds % 64 == 1)
        config->ticks_per_wheel = UINT32_C(1) << 20;
    executor = stress_one_in(2) ? NO_EXECUTOR : (enum executor)stress_below(EXECUTORS);
    may_throw = UNWINDS && executor == NO_EXECUTOR && stress_one_in(2);
    fixed_rate = stress_one_in(3);
    if (executor)
        config->execute = execute;
    now_ns = stress_one_in(4) ? tick_ns * 200000
                              : HWT_SEC(86400) * stress_below(4000) + tick_ns * 200000;
}

static void play_round(void)
{
    hwt_config config;
    unsigned steps = rounds % 64 == 1 ? 20 : 50 + (unsigned)stress_below(250);

    memset(items, 0, sizeof items);
    pending_count = 0;
    job_count = 0;
    configure(&config);
    STRESS_OK(hwt_timer_create(&timer, &config));
    while (steps-- > 0)
        play();
    if (disarm())
        injected += atomic_load(&failed);
    stop();
    for (unsigned i = 0; i < ITEMS; i++)
        hwt_timeout_unref(items[i].timeout);
    STRESS_OK(hwt_timer_destroy(timer));
    rounds++;
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 5);
    uint64_t end_at = stress_now() + (uint64_t)(seconds * 1e9), base = *stress_seed();

    while (rounds == 0 || stress_now() < end_at)
        play_round();
    *stress_seed() = base;
    return stress_end("fault/walk",
                      "%" PRIu64 " rounds, %" PRIu64 " runs, %" PRIu64 " requests failed", rounds,
                      runs_seen, injected);
}
