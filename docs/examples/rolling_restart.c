/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that makes room for its successor: no new work, what is soon done may end, the rest goes
 * on elsewhere.
 *
 * hwt_timer_visit tells what there is. hwt_timer_drain refuses submissions and waits a while; what
 * has not ended by then is handed back, and what is periodic. hwt_timeout_renew schedules each on
 * the successor with its task, argument, hook, release and period, in exchange for the reference.
 */
#include "example.h"

#include <errno.h>
#include <hwt.h>
#include <stdatomic.h>

enum { QUICK = 300, SLOW = 200, LEASES = 8, MOST = QUICK + SLOW + LEASES };

static atomic_uint answered, beats, hooks, freed;
static hwt_timer *_Atomic runs_on; /* of the latest run */

static void answer(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    runs_on = hwt_timeout_timer(timeout);
    answered++;
}

static void beat(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    beats++;
}

static void ended_early(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    hooks++;
}

static void free_argument(void *arg)
{
    free(arg);
    freed++;
}

/* Each with an argument of its own, which nobody has to keep account of: the release frees it. */
static void schedule(hwt_timer *timer, hwt_task *task, uint64_t delay, uint64_t period)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.arg = malloc(16);
    spec.cancelled = ended_early;
    spec.release = free_argument;
    spec.delay_ns = delay;
    spec.period_ns = period;
    must(hwt_schedule(timer, &spec, NULL) == 0, "schedule");
}

static void count_periodic(hwt_timeout *timeout, void *arg)
{
    unsigned *count = arg;

    *count += hwt_timeout_task(timeout) == beat;
}

static unsigned periodic_on(hwt_timer *timer)
{
    unsigned count = 0;

    must(hwt_timer_visit(timer, count_periodic, &count) >= 0, "visit");
    return count;
}

/* What was due meanwhile is due at once. */
static unsigned go_on_with(hwt_unprocessed *left, hwt_timer *successor)
{
    hwt_timeout *timeout;
    unsigned count = 0;

    while ((timeout = hwt_unprocessed_take(left))) {
        uint64_t deadline = hwt_timeout_deadline(timeout), now = hwt_timer_now(successor);

        must(hwt_timeout_renew(&timeout, successor, deadline > now ? deadline - now : 0) == 0,
             "renew");
        hwt_timeout_unref(timeout);
        count++;
    }
    return count;
}

int main(void)
{
    hwt_timer *timer, *successor;
    hwt_unprocessed left = {0};
    unsigned in_time, renewed, periodic, before;

    give_up_after(20);
    must(hwt_timer_create(&timer, NULL) == 0, "create a timer");
    must(hwt_timer_create(&successor, NULL) == 0, "create its successor");
    for (unsigned i = 0; i < QUICK; i++)
        schedule(timer, answer, HWT_MSEC(1 + i % 100), 0);
    for (unsigned i = 0; i < SLOW; i++)
        schedule(timer, answer, HWT_MSEC(900 + i), 0);
    for (unsigned i = 0; i < LEASES; i++)
        schedule(timer, beat, HWT_MSEC(5), HWT_MSEC(20));
    must(periodic_on(timer) == LEASES, "all leases are shown");

    must(hwt_timer_drain(timer, HWT_MSEC(400), &left) == 0, "drain");
    must(hwt_new_timeout(timer, answer, NULL, 0, NULL) == -ESHUTDOWN, "no new work");
    in_time = answered;
    before = beats;
    renewed = go_on_with(&left, successor);
    must(hwt_timer_destroy(timer) == 0, "destroy the old timer");
    periodic = periodic_on(successor);

    while (answered < QUICK + SLOW || beats < before + LEASES)
        sleep_ms(5);
    must(in_time >= QUICK, "what was soon due has run before");
    must(in_time + renewed == MOST, "the rest was handed back (G8)");
    must(periodic == LEASES, "periods go on");
    must(runs_on == successor, "on the successor");
    must(hooks == 0, "nothing was lost on the way");
    must(hwt_timer_destroy(successor) == 0, "destroy the successor");
    must(hooks == LEASES, "only the leases end early, at the end (G10)");
    must(freed == MOST, "each argument was released once (G16)");
    printf("rolling_restart: %u ran in time, %u renewed, %u of them were periodic\n", in_time,
           renewed, periodic);
    return 0;
}
