/* SPDX-License-Identifier: BSD-2-Clause */
/* What a person reads at the end: the table, the histogram, the comparison, the verdict. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replay.h"

enum { CELLS = 16, CELL_SIZE = 40, BAR_COLUMNS = 40 };

/* A string for one printf; the next ones do not overwrite it at once. */
static char *next_cell(void)
{
    static _Thread_local char cells[CELLS][CELL_SIZE];
    static _Thread_local unsigned turn;

    return cells[turn++ % CELLS];
}

const char *commas(uint64_t number)
{
    char digits[24];
    char *cell = next_cell(), *at = cell;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return cell;
}

const char *duration(uint64_t ns)
{
    char *cell = next_cell();
    double value = (double)ns;

    if (ns < 1000)
        snprintf(cell, CELL_SIZE, "%" PRIu64 " ns", ns);
    else if (ns < HWT_MSEC(1))
        snprintf(cell, CELL_SIZE, "%.1f us", value / 1e3);
    else if (ns < HWT_SEC(1))
        snprintf(cell, CELL_SIZE, "%.2f ms", value / 1e6);
    else
        snprintf(cell, CELL_SIZE, "%.3f s", value / 1e9);
    return cell;
}

static const char *megabytes(uint64_t bytes)
{
    char *cell = next_cell();

    snprintf(cell, CELL_SIZE, "%.1f MB", (double)bytes / 1e6);
    return cell;
}

/* ---- the rows ---- */
enum kind { EMPTY, COUNT, TIME, LATE, BYTES, LEDGER, SPEED, MOVES };

static const struct row {
    const char *label;
    enum kind kind;
    size_t offset; /* of the number within a result */
} rows[] = {
    {"played", SPEED, 0},
    {"R carried out as", MOVES, 0},
    {"", EMPTY, 0},
    {"records", COUNT, offsetof(struct result, records)},
    {"operations (S, R, C)", COUNT, offsetof(struct result, operations)},
    {"time", TIME, offsetof(struct result, wall_ns)},
    {"operations per second", COUNT, offsetof(struct result, rate)},
    {"", EMPTY, 0},
    {"timeouts started", COUNT, offsetof(struct result, started)},
    {"moved", COUNT, offsetof(struct result, moved)},
    {"cancelled", COUNT, offsetof(struct result, cancelled)},
    {"  before the worker saw them", COUNT, offsetof(struct result, stats.withdrawn)},
    {"fired", COUNT, offsetof(struct result, fired)},
    {"handed back by stop", COUNT, offsetof(struct result, handed_back)},
    {"ledger: started = ended", LEDGER, 0},
    {"mismatches", COUNT, offsetof(struct result, mismatches)},
    {"", EMPTY, 0},
    {"lateness: median", LATE, offsetof(struct result, late.p50)},
    {"          90 %", LATE, offsetof(struct result, late.p90)},
    {"          99 %", LATE, offsetof(struct result, late.p99)},
    {"          99.9 %", LATE, offsetof(struct result, late.p999)},
    {"          worst", LATE, offsetof(struct result, late.max)},
    {"", EMPTY, 0},
    {"CPU used", TIME, offsetof(struct result, cpu_ns)},
    {"  of it by the worker", TIME, offsetof(struct result, cpu_worker_ns)},
    {"  per operation", TIME, offsetof(struct result, cpu_each_ns)},
    {"worker wake-ups", COUNT, offsetof(struct result, stats.wakeups)},
    {"peak memory", BYTES, offsetof(struct result, peak_bytes)},
    {"  of it by the library", BYTES, offsetof(struct result, library_bytes)},
};

static const char *speed_name(const struct result *result)
{
    return result->speed == SPEED_REAL ? "in real time" : "at full speed";
}

static const char *moves_name(const struct result *result)
{
    return result->moves == MOVES_RESCHEDULE ? "reschedule" : "cancel+schedule";
}

static const char *cell(const struct row *row, const struct result *result)
{
    uint64_t number;

    memcpy(&number, (const char *)result + row->offset, sizeof number);
    switch (row->kind) {
    case COUNT: return commas(number);
    case TIME: return duration(number);
    case LATE: return result->late_count ? duration(number) : "-";
    case BYTES: return megabytes(number);
    case LEDGER: return result->balanced ? "balanced" : "BROKEN";
    case SPEED: return speed_name(result);
    case MOVES: return moves_name(result);
    default: return "";
    }
}

static void print_row(const struct row *row, const struct report *report)
{
    const struct result *columns[] = {report->real, report->fast, report->cancel};

    if (row->kind == EMPTY) {
        putchar('\n');
        return;
    }
    printf("  %-28s", row->label);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        if (columns[i])
            printf(" %15s", cell(row, columns[i]));
    putchar('\n');
}

static void print_table(const struct report *report)
{
    putchar('\n');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        print_row(&rows[i], report);
    if (report->real)
        puts("\n  In real time, CPU includes that the producers sleep until each record's moment.");
}

/* ---- the histogram ---- */

/* Powers of two of a microsecond; the first takes all below one. */
enum { BINS = 24 };

static unsigned bin_of(uint64_t ns)
{
    unsigned bin = 0;

    for (uint64_t us = ns / 1000; us > 0 && bin < BINS - 1; us >>= 1)
        bin++;
    return bin;
}

static uint64_t bin_begin(unsigned bin)
{
    return bin ? HWT_USEC(1) << (bin - 1) : 0;
}

static const char *bin_edge(unsigned bin)
{
    uint64_t us = bin_begin(bin) / 1000;
    char *cell = next_cell();

    if (us < 1000)
        snprintf(cell, CELL_SIZE, "%" PRIu64 " us", us);
    else if (us < 1000000)
        snprintf(cell, CELL_SIZE, "%.1f ms", (double)us / 1e3);
    else
        snprintf(cell, CELL_SIZE, "%.1f s", (double)us / 1e6);
    return cell;
}

/* A bar in eighths of a column; the least of anything is one eighth. */
static void print_bar(uint64_t count, uint64_t most, bool ascii)
{
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    uint64_t eighths = count * BAR_COLUMNS * 8 / most;

    if (count > 0 && eighths == 0)
        eighths = 1;
    for (uint64_t i = 0; i < eighths / 8; i++)
        fputs(ascii ? "#" : "█", stdout);
    if (ascii)
        fputs(eighths < 8 && eighths > 0 ? "." : "", stdout);
    else
        fputs(part[eighths % 8], stdout);
}

static void print_histogram(const struct result *result, bool ascii)
{
    uint64_t counts[BINS] = {0}, most = 1;
    unsigned first = BINS, last = 0;

    for (size_t i = 0; i < result->late_count; i++) {
        unsigned bin = bin_of(result->late_ns[i]);

        counts[bin]++;
        most = counts[bin] > most ? counts[bin] : most;
        first = bin < first ? bin : first;
        last = bin > last ? bin : last;
    }
    printf("\n  Lateness of the %s that fired %s, each row twice the one above\n\n",
           commas(result->late_count), speed_name(result));
    for (unsigned bin = first; bin <= last; bin++) {
        printf("  %9s to %-9s %6s  ", bin_edge(bin), bin_edge(bin + 1), commas(counts[bin]));
        print_bar(counts[bin], most, ascii);
        putchar('\n');
    }
}

/* ---- what it comes to ---- */
static void print_due(const struct report *report)
{
    const struct result *real = report->real;

    if (!real)
        return;
    printf("\n  By the recording, %s deadlines come before anything touches their timer again:\n"
           "    %s fired\n",
           commas(report->trace->due), commas(real->due_fired));
    if (real->raced)
        printf("    %s were moved or cancelled just before the worker came (at most %s late)\n",
               commas(real->raced), duration(real->raced_ns_max));
}

static void print_savings(const struct report *report)
{
    const struct result *fast = report->fast, *cancel = report->cancel;

    if (!fast || !cancel || !fast->rate || !cancel->rate || !cancel->cpu_ns)
        return;
    double faster = (double)fast->rate / (double)cancel->rate;
    double less = 100.0 * (1.0 - (double)fast->cpu_ns / (double)cancel->cpu_ns);

    printf("\n  What hwt_timeout_reschedule saves against cancel and schedule (medians of %u):\n"
           "    %.2f times the operations per second\n"
           "    %.0f %% %s CPU (%s against %s per operation)\n",
           report->settings->rounds, faster, less < 0 ? -less : less, less < 0 ? "more" : "less",
           duration(fast->cpu_each_ns), duration(cancel->cpu_each_ns));
    if (cancel->started > fast->started)
        printf("    %s timeouts that need not be started\n",
               commas(cancel->started - fast->started));
}

static void print_verdict(const struct report *report)
{
    if (report->mismatches)
        printf("\n  VERDICT: FAILED, %s mismatches.\n", commas(report->mismatches));
    else
        printf("\n  VERDICT: good. Each of %s timeouts ended exactly once, none of them early,\n"
               "  none lost, at the deadline last asked for; the ledger balances.\n",
               commas(report->timeouts));
}

void report_title(const struct trace *trace, const struct settings *settings)
{
    const hwt_config *config = &settings->config;

    printf("hwt-replay: a Linux kernel's own timers, played through libhwt %s\n\n", hwt_version());
    printf("  trace   %s\n", trace->path);
    printf("          %s records of %s timers in %s\n", commas(trace->count), commas(trace->timers),
           duration(trace->span_ns));
    printf("          %s started (S), %s moved (R), %s cancelled (C), %s run (X)\n",
           commas(trace->starts), commas(trace->moves), commas(trace->cancels),
           commas(trace->expiries));
    printf("  timer   %s wheel, tick %s, %s slots%s\n",
           config->wheel == HWT_WHEEL_HASHED ? "hashed" : "hierarchical", duration(config->tick_ns),
           commas(config->ticks_per_wheel), config->wheel == HWT_WHEEL_HASHED ? "" : " a level");
    printf("  threads %u producer%s and the timer's worker\n", settings->producers,
           settings->producers == 1 ? "" : "s");
    fflush(stdout);
}

void report_print(const struct report *report)
{
    const struct result *shown = report->real   ? report->real
                                 : report->fast ? report->fast
                                                : report->cancel;

    print_table(report);
    if (shown->late_count)
        print_histogram(shown, report->settings->ascii);
    print_due(report);
    print_savings(report);
    print_verdict(report);
}
