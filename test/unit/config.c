/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt_config, the other structs that carry their size, and what every call says
 * to arguments that make no sense.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "support.h"

TestSuite(config, .init = test_arm);

static int refuse_all(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    (void)run;
    (void)job;
    return -EAGAIN;
}

static uint64_t clock_at_zero(void *clock)
{
    (void)clock;
    return 0;
}

/* Creates without a thread, so that only the config is in question. */
static int create_and_destroy(const hwt_config *config)
{
    hwt_timer *timer = NULL;
    int result = hwt_timer_create(&timer, config);

    if (result == 0)
        cr_assert_eq(hwt_timer_destroy(timer), 0);
    return result;
}

static hwt_config good_config(void)
{
    hwt_config config;

    memset(&config, 0xa5, sizeof(config)); /* init must not depend on what was there */
    hwt_config_init(&config);
    return config;
}

Test(config, init_leaves_only_defaults)
{
    hwt_config config = good_config();

    cr_assert_eq(config.struct_size, sizeof(hwt_config));
    cr_assert(config.tick_ns == 0 || config.tick_ns == HWT_MSEC(1));
    cr_assert(config.ticks_per_wheel == 0 || config.ticks_per_wheel == 512);
    cr_assert_eq(config.wheel, HWT_WHEEL_HIERARCHICAL);
    cr_assert_eq(config.drive, HWT_DRIVE_WORKER);
    cr_assert(config.clock_id == 0 || config.clock_id == CLOCK_MONOTONIC);
    cr_assert_eq(config.max_pending, 0);
    cr_assert_null(config.now);
    cr_assert_null(config.execute);
    cr_assert_null(config.executor);
    cr_assert_null(config.thread_attr);
    cr_assert_null(config.log);
    cr_assert_eq(config.slow_task_ns, 0);
    cr_assert_eq(create_and_destroy(&config), 0);
}

Test(config, null_config_means_all_defaults)
{
    cr_assert_eq(create_and_destroy(NULL), 0);
}

Test(config, zero_fields_mean_their_defaults)
{
    hwt_config config;

    memset(&config, 0, sizeof(config));
    config.struct_size = sizeof(config);
    cr_assert_eq(create_and_destroy(&config), 0);
}

Test(config, null_out_pointer)
{
    hwt_config config = good_config();

    cr_assert_eq(hwt_timer_create(NULL, &config), -EINVAL);
    cr_assert_eq(hwt_timer_create(NULL, NULL), -EINVAL);
}

Test(config, tick_is_at_least_a_microsecond)
{
    static const struct {
        uint64_t tick_ns;
        int result;
    } cases[] = {{0, 0}, {1, -EINVAL}, {999, -EINVAL}, {1000, 0}, {1001, 0}, {HWT_SEC(3600), 0}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_config config = good_config();

        config.tick_ns = cases[i].tick_ns;
        cr_expect_eq(create_and_destroy(&config), cases[i].result, "tick_ns %llu",
                     (unsigned long long)cases[i].tick_ns);
    }
}

Test(config, ticks_per_wheel_is_bounded)
{
    static const struct {
        uint32_t ticks;
        int result;
    } cases[] = {{0, 0},
                 {1, 0},
                 {2, 0},
                 {3, 0},
                 {513, 0},
                 {(1u << 20) - 1, 0},
                 {1u << 20, 0},
                 {(1u << 20) + 1, -EINVAL},
                 {1u << 31, -EINVAL},
                 {UINT32_MAX, -EINVAL}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_config config = good_config();

        config.ticks_per_wheel = cases[i].ticks;
        cr_expect_eq(create_and_destroy(&config), cases[i].result, "ticks_per_wheel %u",
                     cases[i].ticks);
    }
}

Test(config, a_lap_fits_in_int64)
{
    hwt_config config = good_config();

    config.ticks_per_wheel = 512;
    config.tick_ns = (uint64_t)INT64_MAX / 512;
    cr_expect_eq(create_and_destroy(&config), 0);
    config.tick_ns++;
    cr_expect_eq(create_and_destroy(&config), -EINVAL);
    config.ticks_per_wheel = 0; /* the default counts too */
    cr_expect_eq(create_and_destroy(&config), -EINVAL);
    config.ticks_per_wheel = 513; /* as it is given, not as it is rounded up */
    config.tick_ns = (uint64_t)INT64_MAX / 513;
    cr_expect_eq(create_and_destroy(&config), 0);
    config.tick_ns++;
    cr_expect_eq(create_and_destroy(&config), -EINVAL);
    config.tick_ns = UINT64_MAX; /* wraps to something small when multiplied carelessly */
    config.ticks_per_wheel = 1u << 20;
    cr_expect_eq(create_and_destroy(&config), -EINVAL);
    config.tick_ns = UINT64_C(1) << 44; /* times 2^20 is exactly 2^64 */
    cr_expect_eq(create_and_destroy(&config), -EINVAL);
}

Test(config, unknown_wheel_or_drive)
{
    static const int unknown[] = {2, 3, -1, INT_MAX, INT_MIN};

    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        hwt_config config = good_config();

        config.wheel = (hwt_wheel_kind)unknown[i];
        cr_expect_eq(create_and_destroy(&config), -EINVAL, "wheel %d", unknown[i]);
        config = good_config();
        config.drive = (hwt_drive)unknown[i];
        cr_expect_eq(create_and_destroy(&config), -EINVAL, "drive %d", unknown[i]);
    }
}

Test(config, clocks)
{
    static const struct {
        clockid_t id;
        int result;
    } cases[] = {{0, 0},
                 {CLOCK_REALTIME, 0}, /* which is 0 */
                 {CLOCK_MONOTONIC, 0},
                 {CLOCK_BOOTTIME, 0},
                 {CLOCK_PROCESS_CPUTIME_ID, -EINVAL},
                 {CLOCK_THREAD_CPUTIME_ID, -EINVAL},
                 {CLOCK_MONOTONIC_RAW, -EINVAL},
                 {CLOCK_MONOTONIC_COARSE, -EINVAL},
                 {CLOCK_REALTIME_COARSE, -EINVAL},
                 {12345, -EINVAL},
                 {-1, -EINVAL}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        hwt_config config = good_config();

        config.clock_id = cases[i].id;
        cr_expect_eq(create_and_destroy(&config), cases[i].result, "clock %d", (int)cases[i].id);
    }
}

Test(config, a_clock_of_ones_own_needs_caller_drive)
{
    hwt_config config = good_config();

    config.now = clock_at_zero;
    cr_assert_eq(create_and_destroy(&config), -EINVAL);
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(create_and_destroy(&config), 0);
}

Test(config, an_executor_needs_execute)
{
    hwt_config config = good_config();
    int pool;

    config.executor = &pool;
    cr_assert_eq(create_and_destroy(&config), -EINVAL);
    config.execute = refuse_all;
    cr_assert_eq(create_and_destroy(&config), 0);
    config.executor = NULL; /* one that needs no context */
    cr_assert_eq(create_and_destroy(&config), 0);
}

Test(config, struct_size_must_be_known)
{
    static const size_t sizes[] = {0, 1, sizeof(hwt_config) - 1, sizeof(hwt_config) + 4, SIZE_MAX};

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        hwt_config config = good_config();

        config.struct_size = sizes[i];
        cr_expect_eq(create_and_destroy(&config), -EINVAL, "struct_size %zu", sizes[i]);
    }
}

/* An impossible reserve must fail by arithmetic or malloc, not by eating the machine. */
Test(config, an_impossible_reserve_is_enomem)
{
    static const size_t reserves[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 64, SIZE_MAX / 64 + 1,
                                      SIZE_MAX / 128};
    struct rlimit limit = {.rlim_cur = 1u << 30, .rlim_max = 1u << 30};

    if (under_sanitizer())
        cr_skip_test("a sanitizer aborts on such sizes, and needs the address space");
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    for (size_t i = 0; i < COUNT_OF(reserves); i++) {
        hwt_config config = good_config();

        config.reserve = reserves[i];
        cr_expect_eq(create_and_destroy(&config), -ENOMEM, "reserve %zu", reserves[i]);
    }
}

Test(config, a_reserve_is_accepted)
{
    hwt_config config = good_config();

    config.reserve = 10000;
    cr_assert_eq(create_and_destroy(&config), 0);
}

/* The caller's struct is only read during create. */
Test(config, the_config_is_copied)
{
    rig r;
    probe p = {0};
    hwt_spec spec;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    memset(&r.config, 0xff, sizeof(r.config));
    probe_spec(&spec, &p, HWT_MSEC(3));
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    memset(&spec, 0xff, sizeof(spec)); /* and so is the spec */
    cr_assert_eq(rig_advance_to(&r, HWT_MSEC(3)), 1);
    cr_assert_eq(p.runs, 1);
    rig_close(&r);
}

Test(config, every_wheel_size_works)
{
    for (uint32_t ticks = 1; ticks <= 1030; ticks += ticks < 20 ? 1 : 101) {
        for (int kind = 0; kind < 2; kind++) {
            rig r;
            probe p = {0};

            rig_prepare(&r, (hwt_wheel_kind)kind, HWT_SEC(5));
            r.config.ticks_per_wheel = ticks;
            cr_assert_eq(rig_open(&r), 0);
            cr_assert_eq(hwt_new_timeout(r.timer, probe_task, &p, HWT_SEC(2), NULL), 0);
            cr_expect_eq(rig_advance_to(&r, HWT_SEC(7) - 1), 0, "%u ticks, G1", ticks);
            cr_expect_eq(rig_advance_to(&r, HWT_SEC(7)), 1, "%u ticks", ticks);
            cr_assert_eq(p.early, 0);
            rig_close(&r);
        }
    }
}

Test(config, version)
{
    int major, minor, patch;

    cr_assert_str_eq(hwt_version(), "1.1.0");
    cr_assert_eq(sscanf(hwt_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    cr_assert_eq(major, HWT_VERSION_MAJOR);
    cr_assert_geq(minor, HWT_VERSION_MINOR, "the header is of this release, or an older one");
}

Test(config, duration_macros_do_not_overflow_int)
{
    int n = 100000;

    cr_assert_eq(HWT_USEC(n), UINT64_C(100000000));
    cr_assert_eq(HWT_MSEC(n), UINT64_C(100000000000));
    cr_assert_eq(HWT_SEC(n), UINT64_C(100000000000000));
    cr_assert_eq(HWT_SEC(n + 1), UINT64_C(100001000000000)); /* an expression as argument */
}

Test(config, enum_values_are_fixed)
{
    cr_assert(HWT_PENDING == 0 && HWT_RUNNING == 1 && HWT_EXPIRED == 2 && HWT_CANCELLED == 3);
    cr_assert(HWT_FIXED_RATE == 0 && HWT_FIXED_RATE_SKIP == 1 && HWT_FIXED_DELAY == 2);
    cr_assert(HWT_WHEEL_HIERARCHICAL == 0 && HWT_WHEEL_HASHED == 1);
    cr_assert(HWT_DRIVE_WORKER == 0 && HWT_DRIVE_CALLER == 1);
}

Test(config, stats_init_and_a_fresh_timer)
{
    hwt_stats stats, zero;
    rig r;

    memset(&stats, 0xa5, sizeof(stats));
    hwt_stats_init(&stats);
    memset(&zero, 0, sizeof(zero));
    zero.struct_size = sizeof(hwt_stats);
    cr_assert_eq(memcmp(&stats, &zero, sizeof(stats)), 0);
    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, HWT_SEC(1)), 0);
    cr_assert_eq(hwt_timer_stats(r.timer, &stats), 0);
    cr_assert_eq(memcmp(&stats, &zero, sizeof(stats)), 0);
    rig_close(&r);
}

Test(config, stats_struct_size_must_be_known)
{
    hwt_stats stats;
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    hwt_stats_init(&stats);
    stats.struct_size = 0;
    cr_assert_eq(hwt_timer_stats(r.timer, &stats), -EINVAL);
    stats.struct_size = sizeof(stats) + 4;
    cr_assert_eq(hwt_timer_stats(r.timer, &stats), -EINVAL);
    cr_assert_eq(hwt_timer_stats(r.timer, NULL), -EINVAL);
    rig_close(&r);
}

Test(config, null_init)
{
    hwt_config_init(NULL);
    hwt_spec_init(NULL);
    hwt_stats_init(NULL);
}

Test(config, spec_init)
{
    hwt_spec spec;

    memset(&spec, 0xa5, sizeof(spec));
    hwt_spec_init(&spec);
    cr_assert_eq(spec.struct_size, sizeof(hwt_spec));
    cr_assert_null(spec.task);
    cr_assert_null(spec.cancelled);
    cr_assert_null(spec.arg);
    cr_assert_eq(spec.delay_ns, 0);
    cr_assert_eq(spec.period_ns, 0);
    cr_assert_eq(spec.period_mode, HWT_FIXED_RATE);
}

/* On any error *timeout is untouched and nothing is scheduled. */
/* An initializer does as well as hwt_spec_init, if it sets the size. */
Test(config, spec_by_an_initializer)
{
    hwt_spec with = {.struct_size = sizeof with, .task = noop_task}, without = {.task = noop_task};
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    cr_assert_eq(hwt_schedule(r.timer, &without, NULL), -EINVAL);
    cr_assert_eq(hwt_schedule(r.timer, &with, NULL), 0);
    cr_assert_eq(hwt_timer_advance(r.timer), 1);
    rig_close(&r);
}

Test(config, schedule_refuses_what_it_does_not_know)
{
    hwt_timeout *const untouched = (hwt_timeout *)&errno;
    hwt_timeout *timeout = untouched;
    hwt_spec spec;
    probe p = {0};
    rig r;

    cr_assert_eq(rig_start(&r, HWT_WHEEL_HIERARCHICAL, 0), 0);
    probe_spec(&spec, &p, 0);
    cr_expect_eq(hwt_schedule(NULL, &spec, &timeout), -EINVAL);
    cr_expect_eq(hwt_schedule(r.timer, NULL, &timeout), -EINVAL);
    spec.task = NULL;
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -EINVAL);
    probe_spec(&spec, &p, 0);
    spec.period_ns = HWT_MSEC(1);
    spec.period_mode = (hwt_period_mode)3;
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -EINVAL);
    spec.period_mode = (hwt_period_mode)-1;
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -EINVAL);
    probe_spec(&spec, &p, 0);
    spec.struct_size = 0;
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -EINVAL);
    spec.struct_size = sizeof(spec) + 4;
    cr_expect_eq(hwt_schedule(r.timer, &spec, &timeout), -EINVAL);
    cr_expect_eq(hwt_new_timeout(NULL, probe_task, &p, 0, &timeout), -EINVAL);
    cr_expect_eq(hwt_new_timeout(r.timer, NULL, &p, 0, &timeout), -EINVAL);
    cr_expect_eq(hwt_new_timeout_at(NULL, probe_task, &p, 0, &timeout), -EINVAL);
    cr_expect_eq(hwt_new_timeout_at(r.timer, NULL, &p, 0, &timeout), -EINVAL);
    cr_assert_eq(timeout, untouched);
    cr_assert_eq(hwt_timer_pending(r.timer), 0);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(1)), 0);
    cr_assert_eq(p.runs + p.hooks, 0);
    cr_assert_eq(stats_of(r.timer).scheduled, 0);
    rig_close(&r);
}

Test(config, null_timer)
{
    hwt_unprocessed list = {0};
    hwt_stats stats;

    hwt_stats_init(&stats);
    cr_expect_eq(hwt_timer_start(NULL), -EINVAL);
    cr_expect_eq(hwt_timer_stop(NULL, &list), -EINVAL);
    cr_expect_eq(hwt_timer_stop(NULL, NULL), -EINVAL);
    cr_expect_eq(hwt_timer_destroy(NULL), 0);
    cr_expect_eq(hwt_timer_advance(NULL), -EINVAL);
    cr_expect_eq(hwt_timer_fd(NULL), -EINVAL);
    cr_expect_eq(hwt_timer_stats(NULL, &stats), -EINVAL);
    cr_expect_eq(hwt_timer_pending(NULL), 0);
    cr_expect_eq(hwt_timer_now(NULL), 0);
    cr_expect_eq(hwt_timer_next_deadline(NULL), UINT64_MAX);
    cr_expect(hwt_timer_is_stopped(NULL));
}

Test(config, null_handle)
{
    cr_expect_not(hwt_timeout_cancel(NULL));
    cr_expect_eq(hwt_timeout_cancel_sync(NULL), -EINVAL);
    cr_expect_not(hwt_timeout_reschedule(NULL, 0));
    cr_expect_not(hwt_timeout_reschedule_at(NULL, 0));
    cr_expect_not(hwt_timeout_is_expired(NULL));
    cr_expect_not(hwt_timeout_is_cancelled(NULL));
    cr_expect_eq(hwt_timeout_state(NULL), HWT_CANCELLED);
    cr_expect_null(hwt_timeout_timer(NULL));
    cr_expect_eq(hwt_timeout_task(NULL), NULL);
    cr_expect_null(hwt_timeout_arg(NULL));
    cr_expect_eq(hwt_timeout_deadline(NULL), UINT64_MAX);
    cr_expect_null(hwt_timeout_ref(NULL));
    hwt_timeout_unref(NULL);
    cr_expect_null(hwt_unprocessed_take(NULL));
}

/* A call that succeeds leaves errno alone, whatever it does inside. */
Test(config, success_does_not_touch_errno)
{
    hwt_timer *timer;
    hwt_timeout *timeout;
    hwt_stats stats;

    errno = 4242;
    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    cr_expect_eq(errno, 4242, "create");
    cr_assert_eq(hwt_timer_start(timer), 0);
    cr_expect_eq(errno, 4242, "start");
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(9), &timeout), 0);
    cr_expect_eq(errno, 4242, "new_timeout");
    cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(5)));
    cr_expect_eq(errno, 4242, "reschedule");
    cr_assert(hwt_timeout_cancel(timeout));
    cr_expect_eq(errno, 4242, "cancel");
    hwt_timeout_unref(timeout);
    hwt_stats_init(&stats);
    cr_assert_eq(hwt_timer_stats(timer, &stats), 0);
    cr_expect_eq(errno, 4242, "stats");
    cr_assert_eq(hwt_timer_stop(timer, NULL), 0);
    cr_expect_eq(errno, 4242, "stop");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_expect_eq(errno, 4242, "destroy");
}
