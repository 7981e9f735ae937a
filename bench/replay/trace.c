/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording: parsed, checked line by line, and divided among the producers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"

static const char column_names[] = "time_ns,op,timer,delay_ns";

/* Producers index arrays by timer number, so a wild one must not ask for all memory. */
#define MAX_TIMER_NUMBER ((UINT64_C(1) << 24) - 1)

/* Nine years: sums of a few such times stay far from the end of any clock. */
#define MAX_NS (UINT64_C(1) << 58)

/* A decimal number up to max; moves *text behind it. */
static bool parse_number(const char **text, uint64_t max, uint64_t *number)
{
    const char *at = *text;
    uint64_t value = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *number = value;
    return true;
}

static bool skip_comma(const char **text)
{
    if (**text != ',')
        return false;
    ++*text;
    return true;
}

static const char *parse_delay(const char *text, struct record *record)
{
    bool wanted = record->op == 'S' || record->op == 'R';

    if (!wanted)
        return *text ? "delay_ns must be empty for C and X" : NULL;
    if (!*text)
        return "delay_ns is missing";
    if (!parse_number(&text, MAX_NS, &record->delay_ns) || *text)
        return "delay_ns is not a number of nanoseconds";
    return NULL;
}

/* What is wrong with a line, or NULL. */
static const char *parse_record(const char *text, struct record *record)
{
    uint64_t timer;

    *record = (struct record){0};
    if (!parse_number(&text, MAX_NS, &record->time_ns))
        return "time_ns is not a number of nanoseconds";
    if (!skip_comma(&text))
        return "a comma is missing after time_ns";
    if (!*text || !strchr("SRCX", *text))
        return "op must be S, R, C or X";
    record->op = *text++;
    if (!skip_comma(&text))
        return "a comma is missing after op";
    if (!parse_number(&text, MAX_TIMER_NUMBER, &timer))
        return "timer is not a number below 2^24";
    record->timer = (uint32_t)timer;
    if (!skip_comma(&text))
        return "a comma is missing after timer";
    return parse_delay(text, record);
}

static bool append(struct trace *trace, size_t *capacity, const struct record *record)
{
    if (trace->count == *capacity) {
        size_t larger = *capacity ? *capacity * 2 : 1 << 16;
        struct record *moved = realloc(trace->records, larger * sizeof *moved);

        if (!moved) {
            fprintf(stderr, "hwt-replay: out of memory after %zu records\n", trace->count);
            return false;
        }
        trace->records = moved;
        *capacity = larger;
    }
    trace->records[trace->count++] = *record;
    return true;
}

static void tally(struct trace *trace, const struct record *record)
{
    switch (record->op) {
    case 'S': trace->starts++; break;
    case 'R': trace->moves++; break;
    case 'C': trace->cancels++; break;
    default: trace->expiries++; break;
    }
    if (record->timer >= trace->timer_numbers)
        trace->timer_numbers = record->timer + 1;
    trace->span_ns = record->time_ns;
}

static bool read_column_names(struct input *input, const char *path)
{
    bool failed = false;
    const char *line = input_line(input, &failed);

    if (failed)
        return false;
    if (line && strcmp(line, column_names) == 0)
        return true;
    fprintf(stderr, "hwt-replay: %s:1: the first line must be \"%s\"\n", path, column_names);
    return false;
}

static bool read_records(struct trace *trace, struct input *input, uint64_t limit)
{
    bool failed = false;
    size_t capacity = 0;
    const char *line;

    while ((limit == 0 || trace->count < limit) && (line = input_line(input, &failed)) != NULL) {
        struct record record;
        const char *wrong = parse_record(line, &record);

        if (!wrong && record.time_ns < trace->span_ns)
            wrong = "the time goes backwards";
        if (wrong) {
            fprintf(stderr, "hwt-replay: %s:%" PRIu64 ": %s: \"%s\"\n", trace->path,
                    input_line_number(input), wrong, line);
            return false;
        }
        if (!append(trace, &capacity, &record))
            return false;
        tally(trace, &record);
    }
    if (!failed && trace->count == 0)
        fprintf(stderr, "hwt-replay: %s: no records in it\n", trace->path);
    return !failed && trace->count > 0;
}

/* What the recording alone says about one timer. */
struct expectation {
    bool seen, pending;
    uint64_t deadline_ns;
};

static void expect(struct trace *trace, struct expectation *timer, const struct record *record)
{
    trace->timers += !timer->seen;
    timer->seen = true;
    trace->due += timer->pending && timer->deadline_ns <= record->time_ns;
    timer->pending = record->op == 'S' || record->op == 'R';
    timer->deadline_ns = record->time_ns + record->delay_ns;
}

/* Counts the timers, and the deadlines that pass before a record touches their timer again. */
static bool work_out_expectations(struct trace *trace)
{
    struct expectation *timers = calloc(trace->timer_numbers, sizeof *timers);

    if (!timers) {
        fprintf(stderr, "hwt-replay: out of memory\n");
        return false;
    }
    for (size_t i = 0; i < trace->count; i++)
        expect(trace, &timers[trace->records[i].timer], &trace->records[i]);
    for (uint32_t i = 0; i < trace->timer_numbers; i++)
        trace->due += timers[i].pending && timers[i].deadline_ns <= trace->span_ns;
    free(timers);
    return true;
}

int trace_read(struct trace *trace, const char *path, uint64_t limit)
{
    struct input *input = input_open(path);
    bool good;

    *trace = (struct trace){.path = path};
    if (!input)
        return -1;
    good = read_column_names(input, path) && read_records(trace, input, limit) &&
           work_out_expectations(trace);
    input_close(input);
    if (!good)
        trace_free(trace);
    return good ? 0 : -1;
}

/* A timer belongs to one producer for good, so its records stay in order. */
int trace_divide(struct trace *trace, unsigned producers)
{
    struct record *divided = malloc(trace->count * sizeof *divided);
    size_t at[REPLAY_MAX_PRODUCERS] = {0};

    if (!divided) {
        fprintf(stderr, "hwt-replay: out of memory\n");
        return -1;
    }
    trace->producers = producers;
    memset(trace->first, 0, sizeof trace->first);
    for (size_t i = 0; i < trace->count; i++)
        trace->first[trace->records[i].timer % producers + 1]++;
    for (unsigned p = 0; p < producers; p++) {
        trace->first[p + 1] += trace->first[p];
        at[p] = trace->first[p];
    }
    for (size_t i = 0; i < trace->count; i++)
        divided[at[trace->records[i].timer % producers]++] = trace->records[i];
    free(trace->records);
    trace->records = divided;
    return 0;
}

void trace_free(struct trace *trace)
{
    free(trace->records);
    trace->records = NULL;
}
