/* SPDX-License-Identifier: BSD-2-Clause */
#include "park.h"

#include "clock.h"

/* ---- futex: the number of the sleep, and one of these ---- */

enum {
    AWAKE = 0,
    ASLEEP = 1,
    WAKING = 2, /* somebody has undertaken to end it; the system call may still be to come */
    WOKEN = 3,  /* the system call has been made */
    STATES = 4,
};

static uint32_t in_state(uint32_t sleep, uint32_t state)
{
    return sleep - sleep % STATES + state;
}

/*
 * Whoever comes while another one is between his two steps takes the second himself, instead of
 * relying on a thread that may be preempted. A sleep with a later number was prepared after the
 * caller had published what is urgent, so the worker has seen that.
 */
static void wake_sleeper(struct park *park)
{
    uint32_t sleep = load_seq(&park->parked);

    if (sleep % STATES == ASLEEP && cas_seq(&park->parked, &sleep, in_state(sleep, WAKING)))
        sleep = in_state(sleep, WAKING);
    if (sleep % STATES != WAKING)
        return;
    platform_futex_wake_all(&park->parked);
    cas_seq(&park->parked, &sleep, in_state(sleep, WOKEN));
}

/* ---- timer descriptor: a time in 61 bits, the number of the plan, and whether it is set ---- */

#define ALARM_BITS 3
#define ALARM_SET  UINT64_C(1)
#define ALARM_LAST (UINT64_MAX >> ALARM_BITS)
#define AT_ONCE    UINT64_C(1) /* a time that has passed on every clock */

/* Tells a time that was wanted in one plan from the same time in the next. */
#define ALARM_PLAN     UINT64_C(6)
#define ALARM_PLAN_ONE UINT64_C(2)

/* Nothing is earlier, and it is set: what comes too late changes nothing. */
#define ALARM_OVER ALARM_SET

static uint64_t alarm_time(uint64_t alarm)
{
    return alarm >> ALARM_BITS;
}

/* When the descriptor shall fire: for this deadline, and so much later. */
static uint64_t alarm_for(uint64_t deadline, uint64_t slack)
{
    return min_u64(max_u64(deadline, AT_ONCE) + slack, ALARM_LAST);
}

static int set_timer(const struct park *park, uint64_t time)
{
    if (time == alarm_time(ALARM_OVER) || time == ALARM_LAST)
        time = UINT64_MAX; /* never */
    return platform_timerfd_set(load_relaxed(&park->fd), time);
}

/*
 * What is wanted now, and whatever is wanted when that is done. So nobody else's setting is undone
 * for good: who has set an older time finds that it is not wanted any more. 0, or a negative errno.
 */
static int set_alarm(struct park *park)
{
    uint64_t alarm = load_seq(&park->alarm), seen;
    int result;

    for (;; alarm = seen) {
        result = set_timer(park, alarm_time(alarm));
        alarm &= ~ALARM_SET;
        seen = alarm;
        if (cas_seq(&park->alarm, &seen, alarm | ALARM_SET) || seen == (alarm | ALARM_SET))
            return result;
    }
}

static bool alarm_is_set(const struct park *park)
{
    return load_seq(&park->alarm) & ALARM_SET;
}

/*
 * False: it is as early already. Otherwise who has changed it sets it, whatever it says by then: a
 * thread that has wanted this very time four plans ago may come by just now and say that it is set.
 */
static bool lower_alarm(struct park *park, uint64_t time)
{
    uint64_t alarm = load_seq(&park->alarm), lower;

    while (time < alarm_time(alarm)) {
        lower = time << ALARM_BITS | (alarm & ALARM_PLAN);
        if (cas_seq(&park->alarm, &alarm, lower))
            return true;
    }
    return false;
}

/* The next plan's time; to be set, likewise. */
static void plan_alarm(struct park *park, uint64_t time)
{
    uint64_t alarm = load_seq(&park->alarm), planned;

    do {
        if (alarm == ALARM_OVER)
            return;
        planned = time << ALARM_BITS | ((alarm + ALARM_PLAN_ONE) & ALARM_PLAN);
    } while (!cas_seq(&park->alarm, &alarm, planned));
}

/* ---- both ---- */

void park_init(struct park *park, uint64_t slack)
{
    store_relaxed(&park->wake_before, 0);
    park_foresee(park, slack, 0);
    store_relaxed(&park->parked, AWAKE);
    store_relaxed(&park->alarm, ALARM_LAST << ALARM_BITS | ALARM_SET);
    store_relaxed(&park->kind, PARK_NONE);
    store_relaxed(&park->fd, -1);
    park->bell = -1;
    park->clock = CLOCK_MONOTONIC;
    park->slack = slack;
}

/* Whoever reads `wake_before` sees what was stored before; pairs with park_wake_for (C4). */
void park_publish(struct park *park, uint64_t wake_before)
{
    int kind = load_relaxed(&park->kind);

    if (kind == PARK_FUTEX) {
        store_relaxed(&park->parked, in_state(load_relaxed(&park->parked) + STATES, ASLEEP));
        store_seq(&park->wake_before, wake_before);
    } else if (kind == PARK_TIMERFD) {
        plan_alarm(park, alarm_for(wake_before, park->slack));
        store_seq(&park->wake_before, wake_before);
    }
}

void park_sooner(struct park *park, uint64_t time)
{
    lower_alarm(park, alarm_for(time, 0));
}

void park_at_once(struct park *park)
{
    plan_alarm(park, AT_ONCE);
}

void park_set(struct park *park)
{
    set_alarm(park);
}

static void sleep_on_timer(struct park *park, uint64_t until)
{
    uint64_t now, most = UINT64_MAX;
    bool denied;

    park_sooner(park, until);
    denied = set_alarm(park) != 0;
    if (unlikely(denied)) {
        now = clock_system_now(park->clock);
        most = until > now ? until - now : 0;
    }
    platform_timerfd_wait(denied ? -1 : load_relaxed(&park->fd), park->bell, most);
}

void park_sleep(struct park *park, uint64_t until)
{
    if (load_relaxed(&park->kind) == PARK_TIMERFD)
        sleep_on_timer(park, until);
    else /* not this value: somebody has ended it already */
        platform_futex_wait(&park->parked, in_state(load_relaxed(&park->parked), ASLEEP), until);
}

void park_leave(struct park *park)
{
    store_relaxed(&park->wake_before, 0);
    store_relaxed(&park->parked, in_state(load_relaxed(&park->parked), AWAKE));
}

/* As the plan said that is being slept for, or one before. */
static uint64_t alarm_meanwhile(const struct park *park, uint64_t deadline)
{
    uint64_t lead = load_relaxed(&park->lead);

    if (deadline <= lead) /* at once, too, if it is urgent beside all deadlines: 0 */
        return AT_ONCE;
    return lead ? alarm_for(deadline - lead, 0)
                : alarm_for(deadline, load_relaxed(&park->held_back));
}

void park_wake_at(struct park *park, uint64_t deadline)
{
    if (load_acquire(&park->kind) != PARK_TIMERFD) { /* pairs with the store when it is created */
        wake_sleeper(park);
        return;
    }
    if (!lower_alarm(park, alarm_meanwhile(park, deadline)) && alarm_is_set(park))
        return;
    if (set_alarm(park) != 0 && park->bell >= 0)
        platform_bell_ring(park->bell);
}

void park_wake(struct park *park)
{
    park_wake_for(park, 0);
}

void park_hush(struct park *park)
{
    if (load_acquire(&park->kind) != PARK_TIMERFD) /* as above */
        return;
    plan_alarm(park, ALARM_LAST);
    set_alarm(park);
}

void park_end(struct park *park)
{
    exchange_seq(&park->alarm, ALARM_OVER);
    if (load_relaxed(&park->fd) >= 0) /* otherwise whoever creates it finds that it is over */
        set_timer(park, alarm_time(ALARM_OVER));
}
