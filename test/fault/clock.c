/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=clock_gettime */
/*
 * A clock that jumps ahead by days and steps back by a bit: nothing is lost, nothing is early,
 * nothing runs twice (G1, G2). First a caller's own clock from several epochs, exact; then the
 * worker, whose clock_gettime is bent.
 */
#include "stress/stress.h"

#define DAY  HWT_SEC(86400)
#define YEAR (365 * DAY)

enum { ITEMS = 512 };

struct item {
    uint64_t deadline;
    bool used, pending;
    hwt_timeout *timeout;
};

static hwt_timer *timer;
static uint64_t total_runs;

/* ---- a clock of the caller's ---- */
static uint64_t virtual_now, highest;
static struct item items[ITEMS];

static uint64_t read_virtual(void *clock)
{
    (void)clock;
    return virtual_now;
}

static void run_item(hwt_timeout *timeout, void *arg)
{
    struct item *item = arg;

    (void)timeout;
    STRESS_CHECK(item->pending, "G2: it runs twice, or after its end");
    STRESS_CHECK(item->deadline <= highest,
                 "G1: deadline %" PRIu64 ", the clock never passed %" PRIu64, item->deadline,
                 highest);
    item->pending = false;
    total_runs++;
}

static uint64_t some_distance(void)
{
    switch (stress_below(6)) {
    case 0: return stress_below(HWT_USEC(100));
    case 1: return stress_below(HWT_MSEC(100));
    case 2: return stress_below(HWT_SEC(600));
    case 3: return stress_below(10 * DAY);
    case 4: return stress_below(YEAR);
    default: return 0;
    }
}

static void submit_item(struct item *item)
{
    bool past = stress_one_in(8);
    uint64_t distance = some_distance();

    item->deadline = past ? virtual_now - (distance < virtual_now ? distance : virtual_now)
                          : virtual_now + distance;
    item->pending = true;
    STRESS_OK(hwt_new_timeout_at(timer, run_item, item, item->deadline, &item->timeout));
    item->used = true;
}

static void end_item(struct item *item)
{
    bool cancelled = hwt_timeout_cancel(item->timeout);

    STRESS_CHECK(cancelled == item->pending, "G2: cancel said %d", cancelled);
    hwt_timeout_unref(item->timeout);
    item->used = item->pending = false;
}

static void move_item(struct item *item)
{
    uint64_t deadline = virtual_now + some_distance();
    bool moved = hwt_timeout_reschedule_at(item->timeout, deadline);

    STRESS_CHECK(moved == item->pending, "it moved: %d, pending: %d", moved, item->pending);
    if (moved)
        item->deadline = deadline;
}

static void touch_item(struct item *item)
{
    if (!item->used)
        submit_item(item);
    else if (!item->pending || stress_one_in(2))
        end_item(item);
    else
        move_item(item);
}

/* Mostly ahead, by anything up to a year; sometimes back by up to 20 ms. */
static void bend_clock(void)
{
    if (stress_one_in(3)) {
        uint64_t back = stress_below(HWT_MSEC(20));

        virtual_now -= back < virtual_now ? back : virtual_now;
    } else {
        virtual_now += some_distance();
    }
    if (virtual_now > highest)
        highest = virtual_now;
}

static void advance_and_check(void)
{
    int ran = hwt_timer_advance(timer);

    STRESS_CHECK(ran >= 0, "advance: %d", ran);
    for (int i = 0; i < ITEMS; i++)
        STRESS_CHECK(!items[i].pending || items[i].deadline > virtual_now,
                     "G2: deadline %" PRIu64 " did not run at %" PRIu64, items[i].deadline,
                     virtual_now);
}

static void check_next_deadline(void)
{
    uint64_t next = hwt_timer_next_deadline(timer), first = UINT64_MAX;

    for (int i = 0; i < ITEMS; i++)
        if (items[i].pending && items[i].deadline < first)
            first = items[i].deadline;
    STRESS_CHECK(next <= first || next <= virtual_now, "next %" PRIu64 ", first %" PRIu64, next,
                 first);
}

static void play_virtual(hwt_wheel_kind wheel, uint64_t epoch, uint64_t steps)
{
    hwt_config config;

    memset(items, 0, sizeof items);
    virtual_now = highest = epoch;
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.now = read_virtual;
    config.wheel = wheel;
    config.tick_ns = stress_one_in(2) ? HWT_MSEC(1) : HWT_USEC(1) + stress_below(HWT_MSEC(1));
    config.ticks_per_wheel = UINT32_C(2) << stress_below(10);
    STRESS_OK(hwt_timer_create(&timer, &config));
    for (uint64_t i = 0; i < steps && virtual_now < 60 * YEAR; i++) {
        for (uint64_t n = stress_below(16); n > 0; n--)
            touch_item(&items[stress_below(ITEMS)]);
        bend_clock();
        check_next_deadline();
        advance_and_check();
    }
    for (int i = 0; i < ITEMS; i++)
        if (items[i].used)
            end_item(&items[i]);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
}

/* ---- the worker's clock: real time, plus days, minus a jitter ---- */
static _Atomic uint64_t ahead, jitter, highest_read;
static _Atomic uint64_t worker_runs;

int __real_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
    int result = __real_clock_gettime(id, time);
    uint64_t now = (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
    uint64_t seen = atomic_load(&highest_read);

    now += atomic_load(&ahead);
    if (atomic_load(&jitter) > 0)
        now -= stress_below(atomic_load(&jitter));
    while (now > seen && !atomic_compare_exchange_weak(&highest_read, &seen, now))
        ;
    time->tv_sec = (time_t)(now / 1000000000u);
    time->tv_nsec = (long)(now % 1000000000u);
    return result;
}

static void run_worker_item(hwt_timeout *timeout, void *arg)
{
    STRESS_CHECK(hwt_timeout_deadline(timeout) <= atomic_load(&highest_read), "G1: early");
    STRESS_CHECK(atomic_fetch_add((_Atomic uint32_t *)arg, 1) == 0, "G2: it runs twice");
    atomic_fetch_add(&worker_runs, 1);
}

static void poked(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/*
 * The kernel does not know of the bent clock: the worker may sleep far too long. A deadline in the
 * past is earlier than any wake-up it can have planned, and gets it to look at its clock.
 */
static void await_worker(uint64_t runs)
{
    for (int i = 0; i < 30000 && atomic_load(&worker_runs) < runs; i++) {
        STRESS_OK(hwt_new_timeout_at(timer, poked, NULL, 0, NULL));
        usleep(1000);
    }
    STRESS_CHECK(atomic_load(&worker_runs) >= runs, "G2: %" PRIu64 " of %" PRIu64 " ran",
                 atomic_load(&worker_runs), runs);
}

/* Half due within 10 ms, half within a day: the jump brings them all at once. */
static void jump_once(uint64_t count)
{
    _Atomic uint32_t *ran = calloc(count, sizeof *ran);
    uint64_t before = atomic_load(&worker_runs);

    STRESS_CHECK(ran != NULL, "no memory");
    for (uint64_t i = 0; i < count; i++)
        STRESS_OK(hwt_new_timeout(timer, run_worker_item, &ran[i],
                                  stress_below(i % 2 ? HWT_MSEC(10) : DAY), NULL));
    if (stress_one_in(2))
        await_worker(before + count / 2);
    atomic_fetch_add(&ahead, DAY + stress_below(20 * DAY));
    await_worker(before + count);
    free(ran);
}

static uint64_t play_worker(hwt_wheel_kind wheel, double seconds)
{
    uint64_t jumps = 0, begin, end;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.tick_ns = HWT_USEC(100);
    atomic_store(&jitter, HWT_USEC(50));
    STRESS_OK(hwt_timer_create(&timer, &config));
    begin = stress_now() - atomic_load(&ahead);
    end = begin + (uint64_t)(seconds * 1e9);
    for (; stress_now() - atomic_load(&ahead) < end && jumps < 500; jumps++)
        jump_once(200);
    STRESS_OK(hwt_timer_stop(timer, NULL));
    stress_check_balance(timer);
    STRESS_OK(hwt_timer_destroy(timer));
    atomic_store(&jitter, 0);
    return jumps;
}

int main(int argc, char **argv)
{
    static const uint64_t epochs[] = {0, 12 * DAY, 30 * YEAR, 1000};
    double amount = stress_begin(argc, argv, 2);
    uint64_t jumps = 0;

    for (int wheel = 0; wheel < 2; wheel++) {
        for (int i = 0; i < 4; i++)
            play_virtual((hwt_wheel_kind)wheel, epochs[i], (uint64_t)(amount * 500));
        jumps += play_worker((hwt_wheel_kind)wheel, amount / 4);
    }
    return stress_end("fault/clock",
                      "%" PRIu64 " runs under a bent clock, %" PRIu64 " jumps of a worker's clock",
                      total_runs + atomic_load(&worker_runs), jumps);
}
