/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G6: with one timeout pending an hour away, millions are cancelled: withdrawn at once, or after
 * the
 * worker took them in (an earlier timeout expires in between), in random order, by the thread that
 * made them or by another. Memory stays bounded; the argument is how many per kind and wheel.
 */
#include "stress.h"

enum { BATCH = 20000, WINDOW = 1024 };

static hwt_timer *timer;
static hwt_timeout *batch[BATCH];
static _Atomic uint64_t kicks;
static uint64_t kicked, done;

static void kick(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&kicks, 1);
}

static hwt_timeout *far_away(void)
{
    hwt_timeout *timeout;

    STRESS_OK(hwt_new_timeout(timer, stress_never, NULL,
                              HWT_SEC(1800) + stress_below(HWT_SEC(1800)), &timeout));
    return timeout;
}

static void end_one(hwt_timeout *timeout)
{
    STRESS_CHECK(hwt_timeout_cancel(timeout), "it was not pending");
    hwt_timeout_unref(timeout);
    done++;
}

/* An expiry makes the worker sweep: afterwards it holds whatever was pending. */
static void let_the_worker_collect(void)
{
    STRESS_OK(hwt_new_timeout(timer, kick, NULL, HWT_USEC(100), NULL));
    stress_await(&kicks, ++kicked, "the kick");
}

static void shuffle(void)
{
    for (uint64_t i = BATCH - 1; i > 0; i--) {
        uint64_t j = stress_below(i + 1);
        hwt_timeout *t = batch[i];

        batch[i] = batch[j];
        batch[j] = t;
    }
}

/* ---- the ways to make garbage ---- */
static void withdrawn_at_once(void)
{
    for (int i = 0; i < BATCH; i++)
        end_one(far_away());
}

static void in_a_window(void)
{
    for (int i = 0; i < BATCH; i++) {
        if (i >= WINDOW)
            end_one(batch[i - WINDOW]);
        batch[i] = far_away();
    }
    for (int i = BATCH - WINDOW; i < BATCH; i++)
        end_one(batch[i]);
}

static void after_the_worker_took_them(void)
{
    for (int i = 0; i < BATCH; i++)
        batch[i] = far_away();
    let_the_worker_collect();
    shuffle();
    for (int i = 0; i < BATCH; i++)
        end_one(batch[i]);
}

static void *cancel_batch(void *arg)
{
    for (int i = 0; i < BATCH; i++)
        end_one(batch[i]);
    return arg;
}

static void by_another_thread(void)
{
    for (int i = 0; i < BATCH; i++)
        batch[i] = far_away();
    if (stress_one_in(2))
        let_the_worker_collect();
    stress_join(stress_thread(cancel_batch, NULL));
}

/* Moved before they are cancelled: a nudge may be queued for each when its end comes. */
static void moved_and_cancelled(void)
{
    for (int i = 0; i < BATCH; i++)
        batch[i] = far_away();
    let_the_worker_collect();
    for (int i = 0; i < BATCH; i++) {
        STRESS_CHECK(hwt_timeout_reschedule(batch[i], HWT_SEC(900)), "it did not move");
        end_one(batch[i]);
    }
}

/* The window needs the memory of two of its batches, whatever came before it. */
static void repeat(void (*make)(void), const char *what, uint64_t count)
{
    uint64_t before;

    make();
    make();
    before = stress_resident();
    for (uint64_t made = 0; made < count; made += BATCH) {
        make();
        STRESS_CHECK(hwt_timer_pending(timer) == 1, "G3: %" PRIu64 " pending after %s",
                     hwt_timer_pending(timer), what);
    }
    stress_check_growth(before, 12 << 20, what);
}

static void play(hwt_wheel_kind wheel, uint64_t count)
{
    hwt_timeout *last;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    STRESS_OK(hwt_timer_create(&timer, &config));
    last = far_away();
    repeat(withdrawn_at_once, "withdrawn at once", count);
    repeat(in_a_window, "a window", count);
    repeat(after_the_worker_took_them, "after the worker took them", count);
    repeat(by_another_thread, "cancelled by another thread", count);
    repeat(moved_and_cancelled, "moved and cancelled", count);
    end_one(last);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    double each = stress_begin(argc, argv, 2); /* about seconds: 100,000 of each kind per unit */
    uint64_t before = stress_resident();

    play(HWT_WHEEL_HIERARCHICAL, (uint64_t)(each * 100000));
    play(HWT_WHEEL_HASHED, (uint64_t)(each * 100000));
    stress_check_growth(before, 40 << 20, "all in all");
    return stress_end("stress/garbage", "%" PRIu64 " cancelled beside one pending, %" PRIu64 " MB",
                      done, stress_resident() >> 20);
}
