/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The work that epoll_loop.c, uv_loop.c, event_loop.c and glib_loop.c put on their loops; what
 * differs, and what there is to see, is how each of them watches hwt_timer_fd().
 *
 * The loop sleeps towards a timeout an hour away. Meanwhile another thread submits earlier ones and
 * moves distant ones close. A loop that missed one would sleep for the hour; a loop that were woken
 * without need would show in its count of wake-ups.
 */
#ifndef LOOP_WORK_H
#define LOOP_WORK_H

#include "example.h"

#include <hwt.h>
#include <pthread.h>

enum { LOOP_SUBMITTED = 30, LOOP_MOVED = 10, LOOP_TASKS = LOOP_SUBMITTED + LOOP_MOVED };

struct loop_work {
    hwt_timer *timer;
    pthread_t submitter;
    unsigned wakeups, ran; /* the loop thread's */
    uint64_t late_max;
};

static inline void loop_task(hwt_timeout *timeout, void *arg)
{
    struct loop_work *work = (struct loop_work *)arg;
    uint64_t now = hwt_timer_now(work->timer), deadline = hwt_timeout_deadline(timeout);

    must(now >= deadline, "no task runs early (G1)");
    if (now - deadline > work->late_max)
        work->late_max = now - deadline;
    work->ran++;
}

static inline void loop_submit(struct loop_work *work, uint64_t delay, hwt_timeout **timeout)
{
    must(hwt_new_timeout(work->timer, loop_task, work, delay, timeout) == 0, "schedule");
}

/* From here every call wakes the loop, which is asleep until its hour-long timeout. */
static inline void *loop_submitter(void *arg)
{
    struct loop_work *work = (struct loop_work *)arg;

    for (int i = 0; i < LOOP_TASKS; i++) {
        hwt_timeout *distant = NULL;

        if (i < LOOP_SUBMITTED) {
            loop_submit(work, HWT_MSEC(4), NULL);
        } else {
            loop_submit(work, HWT_SEC(1800), &distant);
            must(hwt_timeout_reschedule(distant, HWT_MSEC(4)), "move a deadline closer");
            hwt_timeout_unref(distant);
        }
        sleep_ms(12);
    }
    return NULL;
}

/* Returns the descriptor to watch for reading. */
static inline int loop_work_start(struct loop_work *work)
{
    hwt_config config;
    int fd;

    give_up_after(20);
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    must(hwt_timer_create(&work->timer, &config) == 0, "create a timer");
    fd = hwt_timer_fd(work->timer);
    must(fd >= 0, "a descriptor for the loop");
    loop_submit(work, HWT_SEC(3600), NULL);
    must(!pthread_create(&work->submitter, NULL, loop_submitter, work), "start the submitter");
    return fd;
}

/* Called by the loop when the descriptor is readable; nothing must be read from it. */
static inline bool loop_work_ready(struct loop_work *work)
{
    work->wakeups++;
    must(hwt_timer_advance(work->timer) >= 0, "advance");
    return work->ran < LOOP_TASKS;
}

static inline void loop_work_finish(struct loop_work *work, const char *name)
{
    pthread_join(work->submitter, NULL);
    must(work->ran == LOOP_TASKS, "every task ran");
    must(hwt_timer_pending(work->timer) == 1, "but for the one an hour away");
    must(work->late_max < HWT_SEC(1), "in time");
    must(work->wakeups <= 4 * LOOP_TASKS, "without busy wake-ups (G5)");
    must(hwt_timer_destroy(work->timer) == 0, "destroy the timer");
    printf("%s: %u tasks, %u wake-ups, at most %.2f ms late\n", name, work->ran, work->wakeups,
           to_ms(work->late_max));
}

#endif
