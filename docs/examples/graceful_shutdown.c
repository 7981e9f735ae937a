/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replacing a timer, as a server that reloads its configuration does, without losing a timeout.
 *
 * Stop hands back what had not ended. Each carries its task, argument and deadline, so it can be
 * submitted to the successor, where it runs when it would have run. A thread keeps submitting all
 * the while: once the old timer refuses it with -ESHUTDOWN it turns to the new one. With hooks and
 * periods it takes hwt_timeout_renew: see rolling_restart.c.
 */
#include "example.h"

#include <errno.h>
#include <hwt.h>
#include <pthread.h>
#include <stdatomic.h>

enum { JOBS = 20000, BEFORE_RELOAD = 8000, BATCH = 250 };

struct job {
    uint64_t deadline;
    atomic_uint runs;
};

static struct job jobs[JOBS];
static atomic_uint submitted, refused, done;
static hwt_timer *_Atomic current;

static void job_run(hwt_timeout *timeout, void *arg)
{
    struct job *job = arg;

    must(hwt_timer_now(hwt_timeout_timer(timeout)) >= job->deadline, "no job runs early (G1)");
    job->runs++;
    done++;
}

static int submit(struct job *job)
{
    return hwt_new_timeout_at(current, job_run, job, job->deadline, NULL);
}

/* Mostly due after the reload, some before. */
static void *producer_main(void *unused)
{
    unsigned seed = 7;

    for (int i = 0; i < JOBS; i++) {
        int result;

        seed = seed * 1664525u + 1013904223u;
        jobs[i].deadline = hwt_timer_now(current) + HWT_USEC(seed % 500000);
        while ((result = submit(&jobs[i])) == -ESHUTDOWN) {
            refused++;
            sleep_ms(1); /* the successor is about to be published */
        }
        must(result == 0, "submit");
        if (++submitted % BATCH == 0)
            sleep_ms(1);
    }
    return unused;
}

static size_t hand_over(hwt_timer *from, hwt_timer *to)
{
    hwt_unprocessed unprocessed = {0};
    hwt_timeout *timeout;
    size_t count;

    must(hwt_timer_stop(from, &unprocessed) == 0, "stop");
    count = unprocessed.count;
    while ((timeout = hwt_unprocessed_take(&unprocessed))) {
        must(hwt_new_timeout_at(to, hwt_timeout_task(timeout), hwt_timeout_arg(timeout),
                                hwt_timeout_deadline(timeout), NULL) == 0,
             "submit again");
        hwt_timeout_unref(timeout);
    }
    return count;
}

int main(void)
{
    hwt_timer *old_timer, *new_timer;
    hwt_unprocessed none = {0};
    pthread_t producer;
    size_t handed_over;

    give_up_after(20);
    must(hwt_timer_create(&old_timer, NULL) == 0, "create a timer");
    must(hwt_timer_create(&new_timer, NULL) == 0, "create its successor");
    current = old_timer;
    must(!pthread_create(&producer, NULL, producer_main, NULL), "start a producer");
    while (submitted < BEFORE_RELOAD)
        sleep_ms(1);

    handed_over = hand_over(old_timer, new_timer);
    current = new_timer;
    pthread_join(producer, NULL);
    while (done < JOBS)
        sleep_ms(5);

    for (int i = 0; i < JOBS; i++)
        must(jobs[i].runs == 1, "every job runs exactly once (G2)");
    must(handed_over > 0, "something was pending at the reload");
    must(hwt_timer_is_stopped(old_timer) && !hwt_timer_is_stopped(new_timer), "one is stopped");
    must(hwt_timer_stop(new_timer, &none) == 0 && none.count == 0, "nothing is left");
    must(hwt_timer_destroy(old_timer) == 0, "destroy the old timer");
    must(hwt_timer_destroy(new_timer) == 0, "destroy the new timer");
    printf("graceful_shutdown: %u jobs ran once each, %zu handed over, %u refused at first\n", JOBS,
           handed_over, refused);
    return 0;
}
