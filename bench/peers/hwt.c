/* SPDX-License-Identifier: BSD-2-Clause */
/* This library. */
#include <hwt.h>

#include "peer.h"

static void run(hwt_timeout *timeout, void *arg)
{
    struct event *event = arg;

    (void)timeout;
    event->fire(event);
}

static void *create(void)
{
    hwt_timer *timer;
    int error = hwt_timer_create(&timer, NULL);

    if (error)
        bench_die("hwt_timer_create", error);
    return timer;
}

static void destroy(void *timer)
{
    hwt_timer_destroy(timer);
}

static void *schedule(void *timer, uint64_t deadline_ns, struct event *event, bool keep)
{
    hwt_timeout *timeout = NULL;
    int error = hwt_new_timeout_at(timer, run, event, deadline_ns, keep ? &timeout : NULL);

    if (error)
        bench_die("hwt_new_timeout_at", error);
    return timeout;
}

static void *schedule_in(void *timer, uint64_t delay_ns, struct event *event, bool keep)
{
    hwt_timeout *timeout = NULL;
    int error = hwt_new_timeout(timer, run, event, delay_ns, keep ? &timeout : NULL);

    if (error)
        bench_die("hwt_new_timeout", error);
    return timeout;
}

static void cancel(void *timer, void *handle)
{
    (void)timer;
    hwt_timeout_cancel(handle);
    hwt_timeout_unref(handle);
}

const struct peer peer_hwt = {
    "hwt", create, destroy, schedule, cancel, NULL, schedule_in,
};
