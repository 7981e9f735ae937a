/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a timeout ends and what its handle says before, during and after: states,
 * accessors, cancel in every state, G8 (the unprocessed list), G9 (handles), all
 * under the virtual clock. The hook (G10) has its own file.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "support.h"

#define TICK HWT_MSEC(1)

TestSuite(handles, .init = test_arm);

/* ---- states ---- */

WHEEL_TEST(handles, a_life_that_ends_by_running)
{
    hwt_timeout *timeout;
    probe p = {.run_state = -1};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, &timeout), 0);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_PENDING);
    cr_assert_not(hwt_timeout_is_expired(timeout));
    cr_assert_not(hwt_timeout_is_cancelled(timeout));
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(p.run_state, HWT_RUNNING);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert(hwt_timeout_is_expired(timeout));
    cr_assert_not(hwt_timeout_is_cancelled(timeout));
    cr_assert_not(hwt_timeout_cancel(timeout));
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    cr_assert_not(hwt_timeout_reschedule(timeout, TICK));
    cr_assert_not(hwt_timeout_reschedule_at(timeout, HWT_SEC(99)));
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1000)), 0);
    cr_assert_eq(p.runs, 1);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(handles, a_life_that_ends_by_cancel)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    for (int seen_by_wheel = 0; seen_by_wheel < 2; seen_by_wheel++) {
        cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
        cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(1), &timeout), 0);
        if (seen_by_wheel)
            cr_assert_eq(rig_advance_by(&r, HWT_SEC(1) - 1), 0);
        cr_assert(hwt_timeout_cancel(timeout));
        cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
        cr_assert(hwt_timeout_is_cancelled(timeout));
        cr_assert_not(hwt_timeout_is_expired(timeout));
        cr_assert_not(hwt_timeout_cancel(timeout), "G2: ended twice");
        cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
        cr_assert_not(hwt_timeout_reschedule(timeout, TICK));
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(1000)), 0);
        cr_assert_eq(p.runs, 0);
        hwt_timeout_unref(timeout);
        rig_close(&r);
    }
}

WHEEL_TEST(handles, cancel_sync_ends_it_too)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(1), &timeout), 0);
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 1);
    cr_assert_eq(hwt_timeout_cancel_sync(timeout), 0);
    cr_assert(hwt_timeout_is_cancelled(timeout));
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(2)), 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(handles, accessors)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK + 1, &timeout), 0);
    for (int pass = 0; pass < 2; pass++) {
        cr_expect_eq(hwt_timeout_timer(timeout), r.timer);
        cr_expect_eq(hwt_timeout_task(timeout), probe_task);
        cr_expect_eq(hwt_timeout_arg(timeout), &p);
        cr_expect_eq(hwt_timeout_deadline(timeout), HWT_SEC(1) + TICK + 1);
        cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), pass == 0 ? 1 : 0);
    }
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

WHEEL_TEST(handles, accessors_of_a_schedule_with_a_hook)
{
    hwt_timeout *timeout;
    hwt_spec spec;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    probe_spec(&spec, &p, TICK);
    cr_assert_eq(hwt_schedule(r.timer, &spec, &timeout), 0);
    cr_expect_eq(hwt_timeout_timer(timeout), r.timer);
    cr_expect_eq(hwt_timeout_task(timeout), probe_task);
    cr_expect_eq(hwt_timeout_arg(timeout), &p);
    cr_expect_eq(hwt_timeout_deadline(timeout), HWT_SEC(1) + TICK);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

/* ---- what a task may do to itself and its peers ---- */

typedef struct self_cancel {
    int cancelled;
    int synced;
} self_cancel;

static void cancel_itself(hwt_timeout *timeout, void *arg)
{
    self_cancel *s = arg;

    s->cancelled = hwt_timeout_cancel(timeout);
    s->synced = hwt_timeout_cancel_sync(timeout);
}

/* A one-shot is running for the last time: there is nothing left to cancel. */
WHEEL_TEST(handles, a_task_cannot_cancel_its_own_last_run)
{
    self_cancel s = {.cancelled = -1, .synced = 99};
    hwt_timeout *timeout;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, cancel_itself, &s, 0, &timeout), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_eq(s.cancelled, 0);
    cr_assert_eq(s.synced, -EDEADLK);
    cr_assert_eq(hwt_timeout_state(timeout), HWT_EXPIRED);
    cr_assert_eq(stats_of(r.timer).expired, 1);
    cr_assert_eq(stats_of(r.timer).cancelled, 0);
    hwt_timeout_unref(timeout);
    rig_close(&r);
}

typedef struct batch {
    hwt_timeout *peers[64];
    unsigned ran;
    unsigned cancelled;
} batch;

/* Whoever runs first cancels all others of its batch. */
static void cancel_peers(hwt_timeout *timeout, void *arg)
{
    batch *b = arg;

    b->ran++;
    for (size_t i = 0; i < COUNT_OF(b->peers); i++)
        if (b->peers[i] != timeout)
            b->cancelled +=
                i % 2 ? hwt_timeout_cancel(b->peers[i]) : hwt_timeout_cancel_sync(b->peers[i]) == 1;
}

WHEEL_TEST(handles, a_task_may_cancel_peers_that_are_due_with_it)
{
    batch b = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(b.peers); i++)
        cr_assert_eq(hwt_new_timeout(r.timer, cancel_peers, &b, TICK, &b.peers[i]), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(b.ran, 1);
    cr_assert_eq(b.cancelled, COUNT_OF(b.peers) - 1);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    for (size_t i = 0; i < COUNT_OF(b.peers); i++)
        hwt_timeout_unref(b.peers[i]);
    rig_close(&r);
}

/* ---- G8: stop hands back what had not ended ---- */

WHEEL_TEST(handles, stop_hands_back_each_once)
{
    static hwt_timeout *handles[1000];
    static unsigned char seen[COUNT_OF(handles)];
    hwt_unprocessed list;
    hwt_timeout *timeout;
    size_t taken = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    for (size_t i = 0; i < COUNT_OF(handles); i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &seen[i], 1 + i * HWT_SEC(1), &handles[i]),
                     0);
    cr_assert_eq(rig_advance_by(&r, 1), 1);
    cr_assert(hwt_timeout_cancel(handles[1]));
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, COUNT_OF(handles) - 2);
    while ((timeout = hwt_unprocessed_take(&list)) != NULL) {
        ++*(unsigned char *)hwt_timeout_arg(timeout);
        cr_assert_eq(hwt_timeout_state(timeout), HWT_CANCELLED);
        hwt_timeout_unref(timeout);
        taken++;
        cr_assert_eq(list.count, COUNT_OF(handles) - 2 - taken);
    }
    cr_assert_eq(taken, COUNT_OF(handles) - 2);
    cr_assert_null(list.first);
    for (size_t i = 0; i < COUNT_OF(handles); i++) {
        cr_assert_eq(seen[i], i < 2 ? 0 : 1, "G2");
        cr_assert_not(hwt_timeout_cancel(handles[i]));
        cr_assert_not(hwt_timeout_reschedule(handles[i], 0));
        hwt_timeout_unref(handles[i]);
    }
    rig_close(&r);
}

/* The reference on the list is the only one for whoever scheduled with NULL. */
WHEEL_TEST(handles, the_list_holds_references_of_its_own)
{
    hwt_unprocessed list;
    hwt_timeout *timeout;
    int arg;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &arg, TICK, NULL), 0);
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 1);
    rig_close(&r);
    timeout = hwt_unprocessed_take(&list);
    cr_assert_not_null(timeout);
    cr_assert_eq(hwt_timeout_arg(timeout), &arg);
    cr_assert_eq(hwt_timeout_task(timeout), noop_task);
    cr_assert(hwt_timeout_is_cancelled(timeout));
    hwt_timeout_unref(timeout);
}

WHEEL_TEST(handles, a_second_stop_hands_back_nothing)
{
    hwt_unprocessed list;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, TICK, NULL), 0);
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 1);
    hwt_timeout_unref(hwt_unprocessed_take(&list));
    memset(&list, 0xa5, sizeof(list));
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 0);
    cr_assert_null(list.first);
    cr_assert_eq(hwt_timer_stop(r.timer, NULL), 0);
    cr_assert_eq(stats_of(r.timer).unprocessed, 1);
    rig_close(&r);
}

/* What is overdue when stop comes was not lost either: it is handed back, not run. */
WHEEL_TEST(handles, stop_hands_back_the_overdue)
{
    hwt_unprocessed list;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, NULL), 0);
    virtual_add(&r.clock, HWT_SEC(1));
    cr_assert_eq(hwt_timer_stop(r.timer, &list), 0);
    cr_assert_eq(list.count, 1);
    cr_assert_eq(p.runs, 0);
    hwt_timeout_unref(hwt_unprocessed_take(&list));
    rig_close(&r);
}

/* ---- G9: handles ---- */

WHEEL_TEST(handles, outlive_expiry_cancel_stop_and_the_timer)
{
    hwt_timeout *ran, *cancelled, *stopped;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, &ran), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(1), &cancelled), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(2), &stopped), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert(hwt_timeout_cancel(cancelled));
    rig_close(&r);
    cr_assert_eq(hwt_timeout_state(ran), HWT_EXPIRED);
    cr_assert_eq(hwt_timeout_state(cancelled), HWT_CANCELLED);
    cr_assert_eq(hwt_timeout_state(stopped), HWT_CANCELLED);
    cr_assert_eq(hwt_timeout_deadline(ran), HWT_SEC(1) + TICK);
    cr_assert_eq(hwt_timeout_deadline(cancelled), HWT_SEC(2));
    cr_assert_eq(hwt_timeout_deadline(stopped), HWT_SEC(3));
    cr_assert_eq(hwt_timeout_task(stopped), probe_task);
    cr_assert_eq(hwt_timeout_arg(stopped), &p);
    cr_assert_not(hwt_timeout_cancel(stopped));
    cr_assert_eq(hwt_timeout_cancel_sync(stopped), 0);
    cr_assert_eq(hwt_timeout_cancel_sync(ran), 0);
    cr_assert_not(hwt_timeout_reschedule_at(stopped, HWT_SEC(99)));
    cr_assert_eq(hwt_timeout_ref(stopped), stopped);
    hwt_timeout_unref(stopped);
    hwt_timeout_unref(ran);
    hwt_timeout_unref(cancelled);
    hwt_timeout_unref(stopped);
}

/* A handle dropped by one does not disturb another, nor what comes to use the memory. */
WHEEL_TEST(handles, memory_is_not_reused_while_a_handle_lives)
{
    static hwt_timeout *held[500];
    int args[COUNT_OF(held)];
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, &args[i], i % 3, &held[i]), 0);
        if (i % 2)
            cr_assert(hwt_timeout_cancel(held[i]));
    }
    cr_assert_eq(rig_advance_by(&r, TICK), COUNT_OF(held) / 2);
    for (unsigned i = 0; i < 5000; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, i, NULL), 0);
    cr_assert_eq(rig_advance_by(&r, TICK), 5000);
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        cr_assert_eq(hwt_timeout_arg(held[i]), &args[i]);
        cr_assert_eq(hwt_timeout_state(held[i]), i % 2 ? HWT_CANCELLED : HWT_EXPIRED);
        hwt_timeout_unref(held[i]);
    }
    rig_close(&r);
}

WHEEL_TEST(handles, dropping_the_handle_does_not_cancel)
{
    hwt_timeout *timeout;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, TICK, &timeout), 0);
    hwt_timeout_unref(timeout);
    cr_assert_eq(rig_advance_by(&r, TICK), 1);
    cr_assert_eq(p.runs, 1);
    rig_close(&r);
}

static void keep_reference(hwt_timeout *timeout, void *arg)
{
    *(hwt_timeout **)arg = hwt_timeout_ref(timeout);
}

/* Scheduled with NULL, a task may still take a reference of its own timeout. */
WHEEL_TEST(handles, a_task_may_keep_its_argument)
{
    hwt_timeout *kept = NULL;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, keep_reference, &kept, 0, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    cr_assert_not_null(kept);
    cr_assert_eq(hwt_timeout_state(kept), HWT_EXPIRED);
    rig_close(&r);
    cr_assert_eq(hwt_timeout_arg(kept), &kept);
    hwt_timeout_unref(kept);
}

static void drop_handle(hwt_timeout *timeout, void *arg)
{
    hwt_timeout **handle = arg;

    hwt_timeout_unref(*handle);
    *handle = NULL;
    hwt_timeout_unref(hwt_timeout_ref(timeout)); /* still valid for this call */
}

WHEEL_TEST(handles, a_task_may_drop_the_last_handle)
{
    hwt_timeout *handle;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    for (unsigned i = 0; i < 1000; i++) {
        cr_assert_eq(hwt_new_timeout(r.timer, drop_handle, &handle, 0, &handle), 0);
        cr_assert_eq(hwt_timer_advance(r.timer), 1);
        cr_assert_null(handle);
    }
    rig_close(&r);
}
