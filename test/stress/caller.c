/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HWT_DRIVE_CALLER with one driving thread while others submit, cancel and move (G2, G3, G8), and a
 * rival who tries to advance too and is told -EBUSY. Then an event loop that sleeps on hwt_timer_fd
 * while another thread submits earlier deadlines: none is missed (G4), and it does not spin (G5).
 */
#include "round.h"

#include <poll.h>

enum { PRODUCERS = 2, CAPACITY = 30000, PINGS = 200 };

/* ---- the mix, driven by one thread and disturbed by another ---- */
static _Atomic uint64_t advances, busy;

static bool advance_once(void)
{
    int ran = hwt_timer_advance(mix.timer);

    STRESS_CHECK(ran >= 0 || ran == -EBUSY || ran == -ESHUTDOWN, "advance: %d", ran);
    atomic_fetch_add(ran == -EBUSY ? &busy : &advances, 1);
    return ran != -ESHUTDOWN;
}

static void *driver(void *arg)
{
    bool sleeps = arg != NULL;
    struct pollfd poller = {.fd = sleeps ? hwt_timer_fd(mix.timer) : -1, .events = POLLIN};

    STRESS_CHECK(!sleeps || poller.fd >= 0, "hwt_timer_fd: %d", poller.fd);
    while (advance_once())
        if (sleeps)
            poll(&poller, 1, 1);
    return NULL;
}

static void see(hwt_timeout *timeout, void *arg)
{
    atomic_fetch_add((_Atomic uint64_t *)arg, hwt_timeout_deadline(timeout) > 0);
}

static void visit_once(void)
{
    _Atomic uint64_t shown = 0;
    int64_t visited = hwt_timer_visit(mix.timer, see, &shown);

    STRESS_CHECK(visited < 0 ? visited == -EBUSY || visited == -ESHUTDOWN
                             : visited == (int64_t)shown,
                 "visit: %d, of %d", (int)visited, (int)shown);
}

static void *rival(void *arg)
{
    while (advance_once()) {
        hwt_timer_next_deadline(mix.timer);
        if (stress_one_in(4))
            visit_once();
        stress_spin(stress_below(HWT_USEC(50)));
    }
    return arg;
}

static void play_round(uint64_t *runs)
{
    pthread_t threads[PRODUCERS + 2];
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.tick_ns = stress_one_in(2) ? HWT_USEC(10) : HWT_MSEC(1);
    config.ticks_per_wheel = UINT32_C(8) << stress_below(6);
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    mix_open(&config, CAPACITY);
    mix.stop_null = stress_one_in(4);
    threads[0] = stress_thread(driver, stress_one_in(2) ? &mix : NULL);
    threads[1] = stress_thread(rival, NULL);
    for (int i = 0; i < PRODUCERS; i++)
        threads[i + 2] = stress_thread(mix_producer, NULL);
    stress_pause(stress_below(HWT_MSEC(20)));
    mix_stop();
    atomic_store(&mix.quit, true);
    for (int i = 0; i < PRODUCERS + 2; i++)
        stress_join(threads[i]);
    *runs += mix_verify().runs;
    mix_close();
}

/* ---- one thread inside: the others are told so ---- */
static _Atomic uint64_t inside, tried;

static void wait_inside(hwt_timeout *timeout, void *arg)
{
    STRESS_CHECK(hwt_timer_advance(arg) == -EDEADLK, "advance from inside a task");
    STRESS_CHECK(hwt_timeout_state(timeout) == HWT_RUNNING, "not running");
    atomic_store(&inside, 1);
    stress_await(&tried, 1, "the rival's attempt");
}

static void *try_from_outside(void *arg)
{
    int result;

    stress_await(&inside, 1, "the driver to be inside");
    result = hwt_timer_advance(arg);
    STRESS_CHECK(result == -EBUSY, "advance beside another thread: %d", result);
    atomic_store(&tried, 1);
    return NULL;
}

static void check_busy(void)
{
    hwt_config config;
    hwt_timer *timer;
    pthread_t thread;
    int ran;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    STRESS_OK(hwt_timer_create(&timer, &config));
    thread = stress_thread(try_from_outside, timer);
    STRESS_OK(hwt_new_timeout(timer, wait_inside, timer, 0, NULL));
    ran = hwt_timer_advance(timer);
    STRESS_CHECK(ran == 1, "advance ran %d", ran);
    stress_join(thread);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    STRESS_CHECK(hwt_timer_advance(timer) == -ESHUTDOWN, "advance after stop");
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- an event loop asleep on the descriptor ---- */
static _Atomic uint64_t pongs, polls;

static void pong(hwt_timeout *timeout, void *arg)
{
    STRESS_CHECK(hwt_timer_now(arg) >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&pongs, 1);
}

static void *event_loop(void *arg)
{
    struct pollfd poller = {.fd = hwt_timer_fd(arg), .events = POLLIN};

    STRESS_CHECK(poller.fd >= 0, "hwt_timer_fd: %d", poller.fd);
    while (hwt_timer_advance(arg) >= 0 && atomic_load(&pongs) < PINGS) {
        STRESS_CHECK(poll(&poller, 1, 30000) == 1, "G4: the descriptor stayed silent");
        atomic_fetch_add(&polls, 1);
    }
    return NULL;
}

static void never(hwt_timeout *timeout, void *arg)
{
    (void)arg;
    stress_fail(__FILE__, __LINE__, "an hour", "fired at %" PRIu64, hwt_timeout_deadline(timeout));
}

/* The loop sleeps towards an hour from now; each ping comes earlier, by schedule or by a move. */
static void ping(hwt_timer *timer, uint64_t number)
{
    uint64_t delay = stress_below(HWT_MSEC(2));
    hwt_timeout *timeout;

    if (stress_one_in(2)) {
        STRESS_OK(hwt_new_timeout(timer, pong, timer, delay, NULL));
    } else {
        STRESS_OK(hwt_new_timeout(timer, pong, timer, HWT_SEC(1800), &timeout));
        STRESS_CHECK(hwt_timeout_reschedule(timeout, delay), "it did not move");
        hwt_timeout_unref(timeout);
    }
    stress_await(&pongs, number, "the event loop");
}

static void check_descriptor(hwt_wheel_kind wheel)
{
    hwt_config config;
    hwt_timer *timer;
    pthread_t thread;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.wheel = wheel;
    STRESS_OK(hwt_timer_create(&timer, &config));
    STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), NULL));
    atomic_store(&pongs, 0);
    atomic_store(&polls, 0);
    thread = stress_thread(event_loop, timer);
    for (uint64_t i = 1; i <= PINGS; i++)
        ping(timer, i);
    STRESS_CHECK(atomic_load(&polls) <= 8 * PINGS, "G5: %" PRIu64 " wake-ups for %d timeouts",
                 atomic_load(&polls), PINGS);
    stress_join(thread);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 3));
    uint64_t rounds = 0, runs = 0;

    check_busy();
    check_descriptor(HWT_WHEEL_HIERARCHICAL);
    check_descriptor(HWT_WHEEL_HASHED);
    for (; stress_now() < end; rounds++)
        play_round(&runs);
    return stress_end("stress/caller",
                      "%" PRIu64 " rounds, %" PRIu64 " runs in %" PRIu64 " advances, %" PRIu64
                      " times busy, %" PRIu64 " polls for the last %d pings",
                      rounds, runs, atomic_load(&advances), atomic_load(&busy), atomic_load(&polls),
                      PINGS);
}
