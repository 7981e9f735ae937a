/* SPDX-License-Identifier: BSD-2-Clause */
/* Scheduling: the way of a timeout begins here, and goes on in submit.h. */
#include <errno.h>
#include <string.h>

#include "extra.h"
#include "lifecycle.h"
#include "quota.h"
#include "release.h"
#include "struct_size.h"
#include "submit.h"

void hwt_spec_init_size(hwt_spec *spec, size_t size)
{
    struct_init(spec, size, &(hwt_spec){0}, sizeof *spec);
}

void(hwt_spec_init)(hwt_spec *spec)
{
    hwt_spec_init_size(spec, SPEC_SIZE_1_0);
}

/* A block of the pool. */
HOT void fill_in(hwt_timeout *timeout, hwt_timer *timer, hwt_task *task, void *arg,
                 uint64_t deadline, bool with_handle)
{
    struct timeout_end end = {
        .refs = with_handle ? 2 : 1, .run = RUN_NONE, .flags = timer->flags, .place = PLACE_UNMET};

    /* release: a sweep that reads this has lost the slot that it found the block in (C20) */
    store_release(&timeout->word, word_make(deadline, WORD_PENDING));
    timeout->task = task;
    timeout->arg = arg;
    timeout->timer = timer;
    memcpy((void *)&timeout->refs, &end, sizeof end);
}

/* NULL: no memory, which submit says. */
static hwt_timeout *make(hwt_timer *timer, hwt_task *task, void *arg, uint64_t deadline,
                         bool with_handle)
{
    hwt_timeout *timeout = pool_take();

    if (likely(timeout))
        fill_in(timeout, timer, task, arg, deadline, with_handle);
    return timeout;
}

/* ---- the general way: any timer, any lane ---- */

/* `result` is lane_submit's. */
static int conclude(hwt_timer *timer, hwt_timeout *timeout, uint64_t deadline, hwt_timeout **handle,
                    hwt_timeout *before, int result)
{
    if (unlikely(result < 0)) {
        if (handle)
            *handle = before;
        timeout_free(timeout);
        quota_give(timer);
        return result;
    }
    if (unlikely(result == LANE_GROWN))
        deadline = 0; /* covered by no plan: the worker makes another */
    park_wake_for(&timer->park, deadline);
    return 0;
}

/* Admitted, and filled in. */
static __attribute__((noinline)) int submit(hwt_timer *timer, hwt_timeout *timeout,
                                            uint64_t deadline, hwt_timeout **handle)
{
    hwt_timeout *before = NULL;
    int result;

    if (unlikely(!timeout)) {
        quota_give(timer);
        return -ENOMEM;
    }
    if (handle) { /* now, because the task may run, and look at it, before this returns */
        before = *handle;
        *handle = timeout;
    }
    result = lane_submit(&timer->lanes, timeout, deadline);
    return conclude(timer, timeout, deadline, handle, before, result);
}

/* What every submission checks first. */
static int admit(hwt_timer *timer)
{
    int result;

    if (unlikely(!timer_is_ours(timer)))
        return -ECHILD;
    if (unlikely(load_acquire(&timer->phase) != PHASE_RUNNING) &&
        (result = lifecycle_begin(timer)) != 0)
        return result;
    if (likely(quota_take(timer)))
        return 0;
    add_relaxed(&lanes_here(&timer->lanes)->rejected, 1);
    return -ENOBUFS;
}

/* By a call. False: the caller's clock has forked, and this is the child. */
HOT bool due_by_call(hwt_timer *timer, uint64_t delay, uint64_t *deadline)
{
    *deadline = deadline_after(clock_read(&timer->clock, delay), delay);
    return likely(!timer->clock.now) || timer_is_ours(timer);
}

static bool due_in(hwt_timer *timer, uint64_t delay, uint64_t *deadline)
{
    uint64_t now;

    if (!clock_tells(&timer->clock, delay, &now))
        return due_by_call(timer, delay, deadline);
    *deadline = deadline_after(now, delay);
    return true;
}

static __attribute__((noinline)) int schedule_at(hwt_timer *timer, hwt_task *task, void *arg,
                                                 uint64_t deadline, hwt_timeout **handle)
{
    int result = admit(timer);

    if (result != 0)
        return result;
    return submit(timer, make(timer, task, arg, deadline, handle != NULL), deadline, handle);
}

static __attribute__((noinline)) int schedule_in(hwt_timer *timer, hwt_task *task, void *arg,
                                                 uint64_t delay, hwt_timeout **handle)
{
    int result = admit(timer);
    uint64_t deadline;

    if (result != 0)
        return result;
    if (!due_in(timer, delay, &deadline))
        return -ECHILD;
    return submit(timer, make(timer, task, arg, deadline, handle != NULL), deadline, handle);
}

/* ---- at once: mostly ---- */

/* It runs, and nothing needs to be counted. */
HOT bool is_plain(const hwt_timer *timer)
{
    return likely(timer_is_ours(timer)) && likely(load_acquire(&timer->phase) == PHASE_RUNNING) &&
           likely(!timer->max_pending);
}

/* In its slot, and there is more to do than to see that there is nothing. */
static __attribute__((noinline)) int tell(hwt_timer *timer, lane_slot *slot, uint64_t filled,
                                          uint64_t deadline, hwt_timeout **handle,
                                          hwt_timeout *before)
{
    struct lane *lane = segment_of(slot)->lane;
    int result = lane_publish(lane, slot, filled, deadline);

    result = conclude(timer, packed_timeout(filled), deadline, handle, before, result);
    if (segment_part_ends_at(slot + 1))
        lane_turn(lane, slot);
    return result;
}

/* The slot was not to be had: the general way. */
static __attribute__((noinline)) int submit_again(hwt_timer *timer, hwt_timeout *timeout,
                                                  uint64_t deadline, hwt_timeout **handle,
                                                  hwt_timeout *before)
{
    if (handle)
        *handle = before;
    return submit(timer, timeout, deadline, handle);
}

/*
 * The same as submit where nothing rare has to be done: an empty slot at the lane's tail, a
 * deadline that nobody needs to be told of. Then nothing is called, so that no registers have to
 * be saved, which took a fifth of the time of a pair. Whatever is not so is left to the general
 * way, with a call in place of the return.
 */
HOT int submit_at_once(hwt_timer *timer, unsigned cpu, hwt_timeout *timeout, uint64_t deadline,
                       hwt_timeout **handle)
{
    unsigned index = cpu & (timer->lanes.count - 1);
    hwt_timeout *before = NULL;
    _Atomic(lane_slot *) *tail;
    lane_slot *slot;
    uint64_t empty;

    timeout->stamp = lane_stamp(index);
    tail = lane_tail_for(&timer->lanes, lanes_of_cpu(&timer->lanes, index), deadline);
    if (unlikely(!lane_look(tail, &slot, &empty)))
        return submit(timer, timeout, deadline, handle);
    if (handle) { /* now, because the task may run, and look at it, before this returns */
        before = *handle;
        *handle = timeout;
    }
    lane_pass(tail, slot);
    if (unlikely(!lane_fill(slot, timeout, empty, 0)))
        return submit_again(timer, timeout, deadline, handle, before);
    if (unlikely(!lane_is_told(slot, deadline)))
        return tell(timer, slot, slot_filled(empty, timeout, 0), deadline, handle, before);
    park_wake_for(&timer->park, deadline);
    return 0;
}

/* Where it takes a call to know the CPU. */
static __attribute__((noinline)) int submit_by_call(hwt_timer *timer, hwt_timeout *timeout,
                                                    uint64_t deadline, hwt_timeout **handle)
{
    return submit_at_once(timer, platform_cpu_slow(), timeout, deadline, handle);
}

HOT int schedule_at_once(hwt_timer *timer, hwt_task *task, void *arg, uint64_t deadline,
                         hwt_timeout **handle)
{
    hwt_timeout *timeout = pool_take_here();
    int cpu;

    if (unlikely(!timeout))
        return schedule_at(timer, task, arg, deadline, handle);
    fill_in(timeout, timer, task, arg, deadline, handle != NULL);
    if (unlikely((cpu = platform_cpu_at_once()) < 0))
        return submit_by_call(timer, timeout, deadline, handle);
    return submit_at_once(timer, (unsigned)cpu, timeout, deadline, handle);
}

int hwt_new_timeout_at(hwt_timer *timer, hwt_task *task, void *arg, uint64_t deadline_ns,
                       hwt_timeout **timeout)
{
    deadline_ns = deadline_clamp(deadline_ns);
    if (unlikely(!timer) || unlikely(!task))
        return -EINVAL;
    if (unlikely(!is_plain(timer)))
        return schedule_at(timer, task, arg, deadline_ns, timeout);
    return schedule_at_once(timer, task, arg, deadline_ns, timeout);
}

/* Where it takes a call to know the time. */
static __attribute__((noinline)) int schedule_by_call(hwt_timer *timer, hwt_task *task, void *arg,
                                                      uint64_t delay, hwt_timeout **timeout)
{
    uint64_t deadline;

    if (unlikely(!due_by_call(timer, delay, &deadline)))
        return -ECHILD;
    return schedule_at_once(timer, task, arg, deadline, timeout);
}

int hwt_new_timeout(hwt_timer *timer, hwt_task *task, void *arg, uint64_t delay_ns,
                    hwt_timeout **timeout)
{
    uint64_t now;

    if (unlikely(!timer) || unlikely(!task))
        return -EINVAL;
    if (unlikely(!is_plain(timer)))
        return schedule_in(timer, task, arg, delay_ns, timeout);
    if (unlikely(!clock_tells(&timer->clock, delay_ns, &now)))
        return schedule_by_call(timer, task, arg, delay_ns, timeout);
    return schedule_at_once(timer, task, arg, deadline_after(now, delay_ns), timeout);
}

/* ---- with a period, a hook or a release ---- */

/* A spec of 1.0 has none. */
static void (*spec_release(const hwt_spec *spec))(void *arg)
{
    return spec->struct_size > SPEC_SIZE_1_0 ? spec->release : NULL;
}

static int spec_check(const hwt_timer *timer, const hwt_spec *spec)
{
    if (!timer || !spec || !spec_size_known(spec->struct_size) || !spec->task)
        return -EINVAL;
    if (spec->period_mode != HWT_FIXED_RATE && spec->period_mode != HWT_FIXED_RATE_SKIP &&
        spec->period_mode != HWT_FIXED_DELAY)
        return -EINVAL;
    return 0;
}

static int schedule_extended(hwt_timer *timer, const hwt_spec *spec, uint64_t deadline,
                             hwt_timeout **handle)
{
    hwt_timeout *block = pool_take();
    struct timeout_extra *extra = (struct timeout_extra *)(void *)block;
    hwt_timeout *timeout = block ? make(timer, spec->task, extra, deadline, handle != NULL) : NULL;

    if (!timeout) {
        if (block)
            pool_give(block);
        quota_give(timer);
        return -ENOMEM;
    }
    extra->cancelled = spec->cancelled;
    extra->arg = spec->arg;
    extra->period_ns = spec->period_ns;
    extra->mode = spec->period_mode;
    extra->release = spec_release(spec);
    store_relaxed(&extra->users, handle ? 2 : 1);
    store_relaxed(&extra->keepers, 1);
    timeout->flags |= FLAG_EXTENDED;
    if (extra->release)
        timeout->flags |= FLAG_RELEASE;
    if (spec->period_ns) {
        timeout->flags |= FLAG_PERIODIC;
        timer_tell_periodic(timer);
    }
    return submit(timer, timeout, deadline, handle);
}

int hwt_schedule(hwt_timer *timer, const hwt_spec *spec, hwt_timeout **timeout)
{
    int result = spec_check(timer, spec);
    uint64_t deadline;

    if (result != 0 || (result = admit(timer)) != 0)
        return result;
    if (!due_in(timer, spec->delay_ns, &deadline))
        return -ECHILD;
    if (!spec->period_ns && !spec->cancelled && !spec_release(spec))
        return submit(timer, make(timer, spec->task, spec->arg, deadline, timeout != NULL),
                      deadline, timeout);
    return schedule_extended(timer, spec, deadline, timeout);
}

/* ---- again, when it has ended ---- */

/* As `ended` has it; with a release both have the same, which then is called for the last one. */
static void *arg_again(const hwt_timeout *ended)
{
    struct timeout_extra *extra = timeout_extra(ended), *copy;

    if (!extra)
        return ended->arg;
    if (has_release(ended)) {
        release_add_user(ended); /* the new one's runtime; its handle is the caller's of now */
        add_relaxed(&extra->keepers, 1);
        return extra;
    }
    copy = (struct timeout_extra *)(void *)pool_take();
    if (copy) {
        copy->cancelled = extra->cancelled;
        copy->arg = extra->arg;
        copy->period_ns = extra->period_ns;
        copy->release = NULL;
        copy->mode = extra->mode;
    }
    return copy;
}

static int renew(hwt_timer *timer, hwt_timeout *ended, uint64_t deadline, hwt_timeout **handle)
{
    uint8_t kind = ended->flags & (FLAG_EXTENDED | FLAG_PERIODIC | FLAG_RELEASE);
    void *arg = arg_again(ended);
    hwt_timeout *timeout = NULL;
    int result = -ENOMEM;

    if (arg || !(kind & FLAG_EXTENDED))
        timeout = make(timer, ended->task, arg, deadline, true);
    if (timeout) {
        timeout->flags |= kind;
        if (kind & FLAG_PERIODIC)
            timer_tell_periodic(timer);
        result = submit(timer, timeout, deadline, handle);
    } else {
        if (arg && kind & FLAG_EXTENDED)
            extra_drop(ended, arg);
        quota_give(timer);
    }
    if (result == 0) {
        timeout_let_go(ended);
    } else if (has_release(ended)) {
        release_drop_user(ended); /* not the last one: the caller's handle is */
    }
    return result;
}

/* A timer that is gone, or that a forked child has inherited, must not be waited for. */
static int renewable(const hwt_timer *timer, const hwt_timeout *ended)
{
    if (!timeout_has_ended(ended))
        return timer_is_ours(ended->timer) ? -EBUSY : -ECHILD;
    if (!timer_is_ours(timer))
        return -ECHILD;
    return load_acquire(&timer->phase) >= PHASE_DRAINING ? -ESHUTDOWN : 0;
}

int hwt_timeout_renew(hwt_timeout **timeout, hwt_timer *timer, uint64_t delay_ns)
{
    uint64_t deadline;
    int result;

    if (!timeout || !*timeout)
        return -EINVAL;
    poison_check_alive(*timeout);
    if (!timer)
        timer = (*timeout)->timer;
    if ((result = renewable(timer, *timeout)) != 0 || (result = admit(timer)) != 0)
        return result;
    if (!due_in(timer, delay_ns, &deadline))
        return -ECHILD;
    return renew(timer, *timeout, deadline, timeout);
}
