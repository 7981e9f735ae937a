/* SPDX-License-Identifier: BSD-2-Clause */
/* The result for scripts: one JSON object. */
#include <inttypes.h>
#include <stdio.h>

#include "replay.h"

static void print_string(const char *string)
{
    putchar('"');
    for (; *string; string++) {
        if ((unsigned char)*string < 0x20)
            printf("\\u%04x", (unsigned)(unsigned char)*string);
        else if (*string == '"' || *string == '\\')
            printf("\\%c", *string);
        else
            putchar(*string);
    }
    putchar('"');
}

static void print_number(const char *name, uint64_t value)
{
    printf(", \"%s\": %" PRIu64, name, value);
}

static void print_trace(const struct trace *trace)
{
    fputs("  \"trace\": {\"path\": ", stdout);
    print_string(trace->path);
    print_number("records", trace->count);
    print_number("timers", trace->timers);
    print_number("S", trace->starts);
    print_number("R", trace->moves);
    print_number("C", trace->cancels);
    print_number("X", trace->expiries);
    print_number("due", trace->due);
    print_number("span_ns", trace->span_ns);
    fputs("},\n", stdout);
}

static void print_lateness(const struct result *result)
{
    printf(", \"late_ns\": {\"count\": %zu", result->late_count);
    print_number("p50", result->late.p50);
    print_number("p90", result->late.p90);
    print_number("p99", result->late.p99);
    print_number("p99.9", result->late.p999);
    print_number("max", result->late.max);
    putchar('}');
}

static void print_result(const struct result *result, const char **separator)
{
    if (!result)
        return;
    printf("%s    {\"speed\": \"%s\", \"moves\": \"%s\"", *separator,
           result->speed == SPEED_REAL ? "real" : "max",
           result->moves == MOVES_RESCHEDULE ? "reschedule" : "cancel");
    print_number("operations", result->operations);
    print_number("wall_ns", result->wall_ns);
    print_number("operations_per_second", result->rate);
    print_number("started", result->started);
    print_number("moved", result->moved);
    print_number("cancelled", result->cancelled);
    print_number("withdrawn", result->stats.withdrawn);
    print_number("fired", result->fired);
    print_number("handed_back", result->handed_back);
    print_number("due_fired", result->due_fired);
    print_number("raced", result->raced);
    print_number("mismatches", result->mismatches);
    print_number("cpu_ns", result->cpu_ns);
    print_number("cpu_worker_ns", result->cpu_worker_ns);
    print_number("wakeups", result->stats.wakeups);
    print_number("peak_bytes", result->peak_bytes);
    print_number("library_bytes", result->library_bytes);
    printf(", \"balanced\": %s", result->balanced ? "true" : "false");
    print_lateness(result);
    putchar('}');
    *separator = ",\n";
}

void json_print(const struct report *report)
{
    const char *separator = "";

    puts("{");
    print_trace(report->trace);
    printf("  \"producers\": %u,\n  \"rounds\": %u,\n  \"passes\": [\n",
           report->settings->producers, report->settings->rounds);
    print_result(report->real, &separator);
    print_result(report->fast, &separator);
    print_result(report->cancel, &separator);
    printf("\n  ],\n  \"timeouts\": %" PRIu64 ",\n  \"mismatches\": %" PRIu64 "\n}\n",
           report->timeouts, report->mismatches);
}
