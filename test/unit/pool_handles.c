/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Debug builds tell, when a timer is destroyed, how many of its handles were never dropped; other
 * builds say nothing. Under AddressSanitizer such a handle is a leak as soon as its timer is gone.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LEAKS_FOUND() __lsan_do_recoverable_leak_check()
#else
#define LEAKS_FOUND() 0
#endif

#ifdef HWT_DEBUG
#define TOLD 1
#else
#define TOLD 0
#endif

#define MANY 1000

static char said[400];
static unsigned times_said;
static hwt_timeout *kept[MANY];

static void listen(void *arg, const char *message)
{
    (void)arg;
    times_said++;
    snprintf(said, sizeof said, "%s", message);
}

static hwt_timer *create(hwt_wheel_kind wheel)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.wheel = wheel;
    config.log = listen;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    return timer;
}

static void keep_many(hwt_timer *timer)
{
    for (size_t i = 0; i < MANY; i++) {
        hwt_spec spec;
        hwt_spec_init(&spec);
        spec.task = spec.cancelled = noop_task;
        spec.delay_ns = HWT_SEC(3600);
        if (i % 2)
            cr_assert_eq(hwt_schedule(timer, &spec, &kept[i]), 0);
        else
            cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &kept[i]), 0);
    }
}

static void drop_all(void)
{
    for (size_t i = 0; i < MANY; i++)
        hwt_timeout_unref(kept[i]);
}

static void destroy_and_expect(hwt_timer *timer, size_t handles)
{
    char expected[40];

    times_said = 0;
    said[0] = '\0';
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(times_said, TOLD && handles > 0);
    if (times_said == 0)
        return;
    snprintf(expected, sizeof expected, " %zu of its timeouts", handles);
    cr_assert_not_null(strstr(said, expected), "%s", said);
    snprintf(expected, sizeof expected, ": %#jx", (uintmax_t)(uintptr_t)noop_task);
    cr_assert_not_null(strstr(said, expected), "%s", said);
}

TestSuite(leaked, .init = test_arm);

WHEEL_TEST(leaked, cancelled_and_never_dropped_are_told)
{
    hwt_timer *timer = create(wheel);

    keep_many(timer);
    for (size_t i = 0; i < MANY; i++)
        cr_assert(hwt_timeout_cancel(kept[i]));
    destroy_and_expect(timer, MANY);
    destroy_and_expect(create(wheel), 0); /* each is told once, whoever has the shell now */
    drop_all();
}

WHEEL_TEST(leaked, those_of_stopped_timeouts_too)
{
    hwt_timer *timer = create(wheel), *other = create(wheel);

    keep_many(timer);
    destroy_and_expect(other, 0);
    destroy_and_expect(timer, MANY);
    drop_all();
}

WHEEL_TEST(leaked, nothing_is_said_when_all_were_dropped)
{
    hwt_timer *timer = create(wheel);

    keep_many(timer);
    for (size_t i = 0; i < MANY; i += 3)
        cr_assert(hwt_timeout_cancel(kept[i]));
    drop_all();
    for (size_t i = 0; i < MANY; i++)
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, i * 1000, NULL), 0);
    destroy_and_expect(timer, 0);
}

/* G9: while its timer lives, or once it is dropped, however late, nothing has leaked. */
Test(leaked, is_a_leak_only_when_nobody_drops_it)
{
    hwt_timer *timer = create(HWT_WHEEL_HIERARCHICAL);
    void *argument = malloc(1), *seen;
    hwt_timeout *handle;

    cr_assert_eq(hwt_new_timeout(timer, noop_task, argument, HWT_SEC(3600), &handle), 0);
    seen = argument;
    argument = NULL;
    cr_assert_eq(LEAKS_FOUND(), 0);
    destroy_and_expect(timer, 1);
    hwt_timeout_unref(handle);
    cr_assert_eq(LEAKS_FOUND(), 0);
    free(seen);
}
