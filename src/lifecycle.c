/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer's life: create, start, destroy; its end is in stop.c. */
#include "lifecycle.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "house.h"
#include "intake.h"
#include "pool.h"
#include "quota.h"
#include "registry.h"
#include "run.h"
#include "visit.h"
#include "worker.h"

const char *hwt_version(void)
{
    return "1.1.0";
}

/* ---- create ---- */

static int create_wheel(hwt_timer *timer, const hwt_config *config, uint32_t slots)
{
    struct wheel **wheel = &timer->worker.wheel;
    int result = wheel_create(wheel, config->wheel, timer->tick_ns, slots, timer_now(timer));

    return result == 0 && config->reserve ? wheel_reserve(*wheel, config->reserve) : result;
}

static int create_park(hwt_timer *timer)
{
    struct park *park = &timer->park;
    int fd;

    /* the worker wakes for a tick as a whole; the caller's deadlines are exact at first */
    park_init(park, timer->drive == HWT_DRIVE_WORKER ? timer->tick_ns - 1 : 0);
    if (timer->drive == HWT_DRIVE_CALLER)
        return 0;
    if (timer->clock.id == CLOCK_MONOTONIC) {
        store_relaxed(&park->kind, PARK_FUTEX);
        return 0;
    }
    fd = platform_timerfd_create(timer->clock.id); /* a futex cannot follow other clocks */
    if (fd < 0)
        return fd;
    store_relaxed(&park->fd, fd);
    store_relaxed(&park->kind, PARK_TIMERFD);
    park->clock = timer->clock.id;
    park->bell = platform_bell_create();
    return park->bell < 0 ? park->bell : 0;
}

static void init_worker(struct worker *w)
{
    memset(w, 0, sizeof *w);
    store_relaxed(&w->next_deadline, UINT64_MAX);
    w->promised = UINT64_MAX;
}

static uint64_t pending_of(const void *timer)
{
    return hwt_timer_pending(timer);
}

static int reserve(hwt_timer *timer)
{
    timer->reservation =
        (struct pool_reservation){.count = timer->reserved, .pending = pending_of, .owner = timer};
    return pool_reserve(&timer->reservation);
}

static int create_parts(hwt_timer *timer, const hwt_config *config, uint32_t slots)
{
    int result = lanes_create(&timer->lanes, platform_cpu_count(), config->reserve);

    if (config->drive == HWT_DRIVE_WORKER) {
        timer->lanes.ask_keeper = house_ask;
        timer->lanes.keeper = timer;
    }
    if (result == 0) {
        quota_open(timer);
        timer->worker.returns =
            calloc((size_t)timer->lanes.count + 1, sizeof *timer->worker.returns);
        result = timer->worker.returns ? 0 : -ENOMEM;
    }
    if (result == 0) {
        timer->worker.started = timer_now(timer);
        intake_tell_far(timer, timer->worker.started);
        result = create_wheel(timer, config, slots);
    }
    if (result == 0)
        result = reserve(timer);
    if (result == 0)
        result = create_park(timer);
    if (result == 0 && config->thread_attr) {
        result = platform_attr_copy(&timer->attr, config->thread_attr);
        timer->has_attr = result == 0;
    }
    return result;
}

/*
 * Of a timer half-created, too, and in a forked child perhaps twice, or once more from wherever
 * another thread was at the fork: so whatever goes is out of sight before.
 */
static void destroy_parts(hwt_timer *timer)
{
    struct park *park = &timer->park;
    struct wheel *wheel = timer->worker.wheel;
    struct pool_return *returns = timer->worker.returns;
    int fd = load_relaxed(&park->fd), bell = park->bell;
    bool has_attr = timer->has_attr;

    pool_unreserve(&timer->reservation); /* while it can still be asked what is pending */
    timer->worker.wheel = NULL;
    timer->worker.returns = NULL;
    timer->has_attr = false;
    park_init(park, 0);
    wheel_destroy(wheel);
    lanes_destroy(&timer->lanes);
    free(returns);
    if (has_attr)
        pthread_attr_destroy(&timer->attr);
    if (fd >= 0)
        platform_close(fd);
    if (bell >= 0)
        platform_close(bell);
}

static void init_shell(hwt_timer *timer)
{
    store_relaxed(&timer->lives, load_relaxed(&timer->lives) + 1);
    init_worker(&timer->worker);
    memset(&timer->run_count, 0, sizeof timer->run_count);
    memset(&timer->lanes, 0, sizeof timer->lanes);
    memset(&timer->reservation, 0, sizeof timer->reservation);
    store_relaxed(&timer->phase, PHASE_CREATED); /* `guests` stays: a late handle may be in it */
    store_relaxed(&timer->asked, 0);
    store_relaxed(&timer->untidy, 0);
    store_relaxed(&timer->still, 0);
    store_relaxed(&timer->periodic, 0);
    timer->visits = NULL;
    timer->drains = 0;
    park_init(&timer->park, 0);
    timer->has_attr = timer->has_thread = timer->introduced = timer->forsaken = false;
    pthread_mutex_init(&timer->mutex, NULL);
    store_relaxed(&timer->driver, DRIVER_NONE);
    store_relaxed(&timer->answer.turn, load_relaxed(&timer->answer.turn) | 1);
    store_relaxed(&timer->answer.wanted, false);
    pthread_cond_init(&timer->stopped, NULL);
}

static int create(hwt_timer **timer, const hwt_config *config)
{
    hwt_config whole;
    hwt_timer *created;
    uint32_t slots = 0;
    int result;

    if (!timer || !config_take(&whole, config))
        return -EINVAL;
    fork_settle();
    if (!fork_watch())
        return -ENOMEM;
    counter_find();
    if (pool_prepare() != 0)
        return -ENOMEM;
    created = registry_take();
    if (!created)
        return -ENOMEM;
    init_shell(created);
    result = config_apply(created, &whole, &slots);
    if (result == 0)
        result = create_parts(created, &whole, slots);
    if (result != 0) {
        destroy_parts(created);
        registry_give(created);
        return result;
    }
    store_release(&created->generation, load_relaxed(&fork_page.generation));
    if (registry_enter(created->log != NULL) && created->log)
        created->log(created->log_arg, "hwt: more than 64 timers are alive; one serves a process");
    *timer = created;
    return 0;
}

int hwt_timer_create(hwt_timer **timer, const hwt_config *config)
{
    int saved = errno, result = create(timer, config);

    if (result == 0)
        errno = saved; /* malloc may have tried one thing before another */
    return result;
}

/* ---- start ---- */

/* Under `mutex`. The worker inherits a mask with every signal blocked (G13). */
static int start_thread(hwt_timer *timer)
{
    sigset_t all, before;
    int error, saved = errno; /* malloc may have tried one thing before another */

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error =
        pthread_create(&timer->thread, timer->has_attr ? &timer->attr : NULL, worker_main, timer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    timer->has_thread = error == 0;
    return -error;
}

/* 0: it is, or may be started. */
static int refusal(uint32_t phase)
{
    if (phase >= PHASE_DRAINING)
        return -ESHUTDOWN;
    return phase == PHASE_LOST ? -EOWNERDEAD : 0;
}

/* Under `mutex`. */
static int start(hwt_timer *timer)
{
    uint32_t phase = load_relaxed(&timer->phase);
    int result = refusal(phase);

    if (result != 0 || phase != PHASE_CREATED)
        return result;
    if (timer->drive == HWT_DRIVE_WORKER)
        result = start_thread(timer);
    if (result == 0)
        store_release(&timer->phase, PHASE_RUNNING);
    return result;
}

int lifecycle_begin(hwt_timer *timer)
{
    int result;

    if (!timer_is_ours_now(timer))
        return -ECHILD;
    result = refusal(load_acquire(&timer->phase)); /* there is no way back from these: no lock */
    if (result != 0)
        return result;
    pthread_mutex_lock(&timer->mutex);
    result = start(timer);
    pthread_mutex_unlock(&timer->mutex);
    return result;
}

void lifecycle_close_lost(hwt_timer *timer)
{
    pthread_mutex_lock(&timer->mutex); /* start may not be done yet; stop may have begun */
    if (load_relaxed(&timer->phase) < PHASE_DRAINING)
        store_release(&timer->phase, PHASE_LOST);
    else if (load_relaxed(&timer->phase) == PHASE_DRAINING)
        store_release(&timer->phase, PHASE_DRAINED);
    pthread_mutex_unlock(&timer->mutex);
}

void lifecycle_lose_worker(hwt_timer *timer)
{
    lifecycle_close_lost(timer);
    visit_refuse_all(timer, -EOWNERDEAD);
    if (timer->worker.escaped)
        run_tell(timer, timer->worker.escaped,
                 "has ended the worker's thread: nothing runs any more, submissions fail");
    else if (timer->log)
        timer->log(timer->log_arg, "hwt: the worker's thread was ended: nothing runs any more, "
                                   "submissions fail");
}

int hwt_timer_start(hwt_timer *timer)
{
    return timer ? lifecycle_begin(timer) : -EINVAL;
}

bool hwt_timer_is_stopped(const hwt_timer *timer)
{
    return !timer || !timer_is_ours(timer) || load_acquire(&timer->phase) >= PHASE_DRAINING;
}

uint64_t hwt_timer_now(const hwt_timer *timer)
{
    return timer ? timer_now(timer) : 0;
}

/* ---- destroy ---- */

/*
 * In a forked child: the worker is not there, its timeouts may be half-way anywhere. The shell
 * stays: it tells late handles that they are dead. A callback that has forked, and destroys the
 * timer in the child, will return to a call that uses the parts: they go when that one is left.
 */
static int destroy_inherited(hwt_timer *timer)
{
    timer->forsaken = run_is_inside(timer);
    if (!timer->forsaken)
        destroy_parts(timer);
    return 0;
}

int lifecycle_leave_in_child(hwt_timer *timer)
{
    if (timer->forsaken)
        destroy_inherited(timer);
    return -ECHILD;
}

/* Did it carry so much that giving memory back to the system is worth a look at all of it? */
static bool was_large(const hwt_timer *timer)
{
    uint64_t carried = timer->reserved;
    const struct lane *lane;

    for (unsigned i = 0; carried <= POOL_TRIM_ABOVE && (lane = lanes_next_made(&timer->lanes, &i));)
        carried += lane_count(lane).scheduled;
    return carried > POOL_TRIM_ABOVE;
}

/* Debug builds: a reference that nobody dropped is a leak, or soon will be (G9). */
static void tell_leaked_handles(const hwt_timer *timer)
{
#ifdef HWT_DEBUG
    hwt_task *task;
    size_t handles = poison_count_handles(timer, &task);
    char message[160];
    int state;

    if (handles == 0)
        return;
    snprintf(message, sizeof message,
             "hwt: a timer is destroyed, and %zu of its timeouts have handles that were not "
             "dropped; the task of one: %#jx",
             handles, (uintmax_t)(uintptr_t)task);
    if (timer->log) {
        timer->log(timer->log_arg, message);
        return;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* stdio is a cancellation point */
    fprintf(stderr, "%s\n", message);
    pthread_setcancelstate(state, NULL);
#else
    (void)timer;
#endif
}

int hwt_timer_destroy(hwt_timer *timer)
{
    bool large;
    int result;

    if (!timer)
        return 0;
    if (!timer_is_ours_now(timer))
        return destroy_inherited(timer);
    result = hwt_timer_stop(timer, NULL);
    if (result == -ECHILD) /* a hook has forked */
        return destroy_inherited(timer);
    if (result != 0)
        return result;
    stop_await_drains(timer);
    park_end(&timer->park); /* a duplicate of its descriptor would be readable for ever */
    pthread_mutex_destroy(&timer->mutex);
    pthread_cond_destroy(&timer->stopped);
    large = was_large(timer);
    destroy_parts(timer);
    tell_leaked_handles(timer);
    registry_leave();
    registry_give(timer);
    if (large)
        pool_trim();
    return 0;
}
