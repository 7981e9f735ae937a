/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=vsnprintf,--wrap=__vsnprintf_chk */
/* hwt_stats_prometheus and late_ns_sum, since 1.1. check/prometheus.sh asks promtool. */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

TestSuite(prometheus, .init = test_arm);

/* As musl's, which takes no size that an int cannot hold; and what a hardened build calls. */
static bool is_refused(size_t size)
{
    if (size > INT_MAX)
        errno = EOVERFLOW;
    return size > INT_MAX;
}

int __real_vsnprintf(char *buffer, size_t size, const char *format, va_list list);
int __wrap_vsnprintf(char *buffer, size_t size, const char *format, va_list list);
int __wrap_vsnprintf(char *buffer, size_t size, const char *format, va_list list)
{
    return is_refused(size) ? -1 : __real_vsnprintf(buffer, size, format, list);
}

int __real___vsnprintf_chk(char *buffer, size_t size, int flag, size_t room, const char *format,
                           va_list list);
int __wrap___vsnprintf_chk(char *buffer, size_t size, int flag, size_t room, const char *format,
                           va_list list);
int __wrap___vsnprintf_chk(char *buffer, size_t size, int flag, size_t room, const char *format,
                           va_list list)
{
    return is_refused(size) ? -1 : __real___vsnprintf_chk(buffer, size, flag, room, format, list);
}

static char page[16384];

static const char *page_of(const hwt_stats *stats, const char *labels)
{
    int length = hwt_stats_prometheus(stats, labels, page, sizeof(page));

    cr_assert_gt(length, 0);
    cr_assert_lt(length, (int)sizeof(page));
    cr_assert_eq((size_t)length, strlen(page));
    return page;
}

/* The value on the line that begins with this name and labels. */
static double value_of(const char *text, const char *name)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
            return strtod(line + strlen(name), NULL);
    }
    return -1;
}

static hwt_stats some(void)
{
    hwt_stats stats;

    hwt_stats_init(&stats);
    stats.scheduled = 10;
    stats.expired = 4;
    stats.cancelled = 3;
    stats.unprocessed = 1;
    stats.rejected = 7;
    stats.pending = 2;
    stats.runs = 6;
    stats.withdrawn = 2;
    stats.wakeups = 99;
    stats.slow_tasks = UINT64_MAX;
    stats.late_ns_max = HWT_SEC(200) + 5;
    stats.late_log2[0] = 1;
    stats.late_log2[10] = 3;
    stats.late_log2[37] = 2;
    stats.late_ns_sum = HWT_SEC(400) + 12345;
    return stats;
}

Test(prometheus, counters)
{
    hwt_stats stats = some();
    const char *text = page_of(&stats, NULL);

    cr_assert_eq(value_of(text, "hwt_scheduled_total"), 10);
    cr_assert_eq(value_of(text, "hwt_expired"), 4);
    cr_assert_not_null(strstr(text, "# TYPE hwt_expired gauge\n"), "it may fall");
    cr_assert_eq(value_of(text, "hwt_cancelled_total"), 3);
    cr_assert_eq(value_of(text, "hwt_unprocessed_total"), 1);
    cr_assert_eq(value_of(text, "hwt_rejected_total"), 7);
    cr_assert_eq(value_of(text, "hwt_pending"), 2);
    cr_assert_eq(value_of(text, "hwt_runs_total"), 6);
    cr_assert_eq(value_of(text, "hwt_withdrawn_total"), 2);
    cr_assert_eq(value_of(text, "hwt_wakeups_total"), 99);
    cr_assert_not_null(strstr(text, "\nhwt_slow_tasks_total 18446744073709551615\n"));
    cr_assert_not_null(strstr(text, "\nhwt_late_max_seconds 200.000000005\n"));
}

Test(prometheus, lateness)
{
    hwt_stats stats = some();
    const char *text = page_of(&stats, NULL);
    double before = 0, last = 0, le = 0;
    unsigned buckets = 0;

    for (const char *at = text; (at = strstr(at, "_bucket{le=\"")) != NULL; buckets++) {
        at += strlen("_bucket{le=\"");
        cr_assert(*at == '+' || strtod(at, NULL) > le);
        le = strtod(at, NULL);
        last = strtod(strchr(at, ' '), NULL);
        cr_assert_geq(last, before, "cumulative");
        before = last;
    }
    cr_assert_eq(buckets, 29);
    cr_assert_eq(last, 6);
    cr_assert_eq(value_of(text, "hwt_late_seconds_bucket{le=\"0.000001023\"}"), 1);
    cr_assert_eq(value_of(text, "hwt_late_seconds_bucket{le=\"0.000002047\"}"), 4);
    cr_assert_eq(value_of(text, "hwt_late_seconds_bucket{le=\"137.438953471\"}"), 4);
    cr_assert_eq(value_of(text, "hwt_late_seconds_bucket{le=\"+Inf\"}"), 6);
    cr_assert_eq(value_of(text, "hwt_late_seconds_count"), 6);
    cr_assert_not_null(strstr(text, "\nhwt_late_seconds_sum 400.000012345\n"));
}

Test(prometheus, labels)
{
    hwt_stats stats = some();
    const char *text = page_of(&stats, "timer=\"rpc\",zone=\"a\"");

    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        cr_assert(*line == '#' || strncmp(strchr(line, '{'), "{timer=\"rpc\",zone=\"a\"", 21) == 0);
    cr_assert_eq(value_of(text, "hwt_runs_total{timer=\"rpc\",zone=\"a\"}"), 6);
    cr_assert_eq(value_of(text, "hwt_late_seconds_bucket{timer=\"rpc\",zone=\"a\",le=\"+Inf\"}"),
                 6);
    cr_assert_not_null(strstr(page_of(&stats, ""), "\nhwt_runs_total 6\n"));
}

Test(prometheus, as_snprintf)
{
    hwt_stats stats = some();
    int needed = hwt_stats_prometheus(&stats, "a=\"b\"", NULL, 0);
    char whole[sizeof(page)];

    cr_assert_gt(needed, 0);
    strcpy(whole, page_of(&stats, "a=\"b\""));
    cr_assert_eq((size_t)needed, strlen(whole));
    for (size_t size = 0; size <= (size_t)needed + 1; size += size < 40 ? 1 : 97) {
        memset(page, 'x', sizeof(page));
        cr_assert_eq(hwt_stats_prometheus(&stats, "a=\"b\"", page, size), needed);
        cr_assert_eq(page[size], 'x', "not a byte more than %zu", size);
        if (size > 0) {
            cr_assert_eq(strlen(page), size - 1);
            cr_assert_eq(strncmp(page, whole, size - 1), 0);
        }
    }
}

/* A size that says only that there is room enough. */
Test(prometheus, any_size_that_is_large_enough)
{
    const size_t sizes[] = {INT_MAX, (size_t)INT_MAX + 1, SIZE_MAX};
    hwt_stats stats = some();
    char whole[sizeof(page)];

    strcpy(whole, page_of(&stats, "a=\"b\""));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        memset(page, 'x', sizeof(page));
        cr_assert_eq(hwt_stats_prometheus(&stats, "a=\"b\"", page, sizes[i]), (int)strlen(whole));
        cr_assert_str_eq(page, whole);
    }
}

Test(prometheus, errors)
{
    hwt_stats stats = some();

    cr_assert_eq(hwt_stats_prometheus(NULL, NULL, page, sizeof(page)), -EINVAL);
    cr_assert_eq(hwt_stats_prometheus(&stats, NULL, NULL, 1), -EINVAL);
    stats.struct_size += 4;
    cr_assert_eq(hwt_stats_prometheus(&stats, NULL, page, sizeof(page)), -EINVAL);
    stats.struct_size = 608; /* of 1.0: its sum is not known */
    cr_assert_not_null(strstr(page_of(&stats, NULL), "\nhwt_late_seconds_sum 0.000000000\n"));
}

Test(prometheus, in_any_locale)
{
    hwt_stats stats = some();
    char plain[sizeof(page)];

    strcpy(plain, page_of(&stats, NULL));
    for (int i = 0; i < 2; i++) /* whichever is installed */
        if (setlocale(LC_ALL, i ? "de_DE.UTF-8" : "fr_FR.UTF-8") != NULL)
            cr_assert_str_eq(page_of(&stats, NULL), plain);
}

/* Of each run, also of a periodic one that catches up. */
WHEEL_TEST(prometheus, sum_of_lateness)
{
    hwt_spec spec;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, 0), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(3), NULL), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_MSEC(5)), 2);
    cr_assert_eq(stats_of(r.timer).late_ns_sum, HWT_MSEC(4 + 2));
    hwt_spec_init(&spec);
    spec.task = noop_task;
    spec.delay_ns = spec.period_ns = HWT_MSEC(1);
    cr_assert_eq(hwt_schedule(r.timer, &spec, NULL), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_MSEC(8)), 3);
    cr_assert_eq(stats_of(r.timer).late_ns_sum, HWT_MSEC(6 + 2 + 1));
    rig_close(&r);
}

static int at_once(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run(job);
    return 0;
}

WHEEL_TEST(prometheus, sum_on_an_executor)
{
    rig r;

    rig_prepare(&r, wheel, 0);
    r.config.execute = at_once;
    cr_assert_eq(rig_open(&r), 0);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(1), NULL), 0);
    cr_assert_eq(rig_advance_to(&r, HWT_MSEC(5)), 1);
    cr_assert_eq(stats_of(r.timer).late_ns_sum, HWT_MSEC(4));
    rig_close(&r);
}
