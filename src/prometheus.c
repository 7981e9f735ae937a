/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters in the text format that Prometheus reads. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "struct_size.h"

/* Lateness from a microsecond to a good two minutes, a bucket for each power of two. */
#define FIRST_BIN 9
#define LAST_BIN  36

/* As snprintf: what does not fit is counted only. */
struct page {
    char *buffer;
    size_t size; /* INT_MAX at most: vsnprintf may refuse more (musl), and no page is longer */
    uint64_t length;
    const char *labels; /* as they were given, perhaps empty */
};

static __attribute__((format(printf, 2, 3))) void put(struct page *page, const char *format, ...)
{
    size_t left = page->length < page->size ? page->size - (size_t)page->length : 0;
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(left ? page->buffer + page->length : NULL, left, format, list);
    va_end(list);
    page->length += length >= 0 ? (uint64_t)length : UINT32_MAX; /* longer than an int can tell */
}

static void put_head(struct page *page, const char *name, const char *type, const char *help)
{
    put(page, "# HELP hwt_%s %s\n# TYPE hwt_%s %s\n", name, help, name, type);
}

static void put_name(struct page *page, const char *name)
{
    if (*page->labels)
        put(page, "hwt_%s{%s} ", name, page->labels);
    else
        put(page, "hwt_%s ", name);
}

/* No floating point: it would be rounded, and its point is the locale's. */
static void put_seconds(struct page *page, uint64_t ns)
{
    put(page, "%" PRIu64 ".%09" PRIu64, ns / HWT_SEC(1), ns % HWT_SEC(1));
}

static void put_count(struct page *page, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    put_head(page, name, type, help);
    put_name(page, name);
    put(page, "%" PRIu64 "\n", value);
}

static void put_counters(struct page *page, const hwt_stats *stats)
{
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"scheduled_total", "Timeouts accepted.", stats->scheduled},
        {"cancelled_total", "Timeouts cancelled, or refused by the executor.", stats->cancelled},
        {"unprocessed_total", "Timeouts ended by stop.", stats->unprocessed},
        {"rejected_total", "Refused at max_pending, or by the executor.", stats->rejected},
        {"runs_total", "Task calls, of periodic timeouts each one.", stats->runs},
        {"withdrawn_total", "Cancelled before the worker ever saw them.", stats->withdrawn},
        {"wakeups_total", "Times the worker left its sleep.", stats->wakeups},
        {"slow_tasks_total", "Runs that took longer than the limit.", stats->slow_tasks},
    };

    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        put_count(page, counters[i].name, "counter", counters[i].help, counters[i].value);
    /* No counter: it falls when a task arms its timeout anew, and a rate would take that for a
       restart. */
    put_count(page, "expired", "gauge", "Timeouts that have run for the last time, as it looks.",
              stats->expired);
    put_count(page, "pending", "gauge", "Timeouts accepted that have not ended.", stats->pending);
}

static void put_bucket(struct page *page, uint64_t up_to, uint64_t count)
{
    put(page, "hwt_late_seconds_bucket{%s%sle=\"", page->labels, *page->labels ? "," : "");
    if (up_to == UINT64_MAX)
        put(page, "+Inf");
    else
        put_seconds(page, up_to);
    put(page, "\"} %" PRIu64 "\n", count);
}

static void put_lateness(struct page *page, const hwt_stats *stats, uint64_t sum)
{
    uint64_t count = 0;

    put_head(page, "late_seconds", "histogram", "From deadline to the start of the task.");
    for (unsigned bin = 0; bin < 64; bin++) {
        count += stats->late_log2[bin];
        if (bin >= FIRST_BIN && bin <= LAST_BIN)
            put_bucket(page, (UINT64_C(2) << bin) - 1, count);
    }
    put_bucket(page, UINT64_MAX, count);
    put_name(page, "late_seconds_sum");
    put_seconds(page, sum);
    put(page, "\n");
    put_name(page, "late_seconds_count");
    put(page, "%" PRIu64 "\n", count);
    put_head(page, "late_max_seconds", "gauge", "The longest from deadline to start so far.");
    put_name(page, "late_max_seconds");
    put_seconds(page, stats->late_ns_max);
    put(page, "\n");
}

int hwt_stats_prometheus(const hwt_stats *stats, const char *labels, char *buffer, size_t size)
{
    struct page page = {buffer, (size_t)min_u64(size, INT_MAX), 0, labels ? labels : ""};

    if (!stats || !stats_size_known(stats->struct_size) || (!buffer && size > 0))
        return -EINVAL;
    put_counters(&page, stats);
    put_lateness(&page, stats, stats->struct_size > STATS_SIZE_1_0 ? stats->late_ns_sum : 0);
    return page.length <= INT_MAX ? (int)page.length : -EINVAL;
}
