/* SPDX-License-Identifier: BSD-2-Clause */
/* The progress of a pass: one line that moves on a terminal, one a second anywhere else. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "replay.h"

enum { BAR_WIDTH = 20 };

static uint64_t shown_ns; /* when the last line came, or the pass began; 0: no pass yet */
static bool shown_any;
static atomic_bool line_is_open; /* on a terminal: the next line of anything must end it first */

static uint64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static size_t records_played(const struct pass *pass)
{
    size_t played = 0;

    for (unsigned i = 0; i < pass->trace->producers; i++)
        played += atomic_load_explicit(&pass->players[i].played, memory_order_relaxed);
    return played;
}

static void print_bar(const struct pass *pass, size_t played)
{
    size_t full = played * BAR_WIDTH / pass->trace->count;

    for (size_t i = 0; i < BAR_WIDTH; i++)
        fputs(i >= full ? "." : pass->settings->ascii ? "#" : "█", stderr);
}

static void print_line(const struct pass *pass)
{
    size_t played = records_played(pass);
    hwt_stats stats;

    hwt_stats_init(&stats);
    (void)hwt_timer_stats(pass->timer, &stats);
    fprintf(stderr, "  %-19s ", pass->title);
    print_bar(pass, played);
    fprintf(stderr, " %3zu %%  pending %7s  fired %6s", played * 100 / pass->trace->count,
            commas(stats.pending), commas(stats.runs));
}

void progress_show(const struct pass *pass)
{
    uint64_t now = monotonic_ns();

    if (pass->settings->quiet)
        return;
    if (isatty(STDERR_FILENO)) {
        /* An empty line below the title; then each line writes over the one before. */
        fputs(shown_any ? "\r" : "\n", stderr);
        print_line(pass);
        fflush(stderr);
        shown_any = true;
        line_is_open = true;
        return;
    }
    if (shown_ns == 0)
        shown_ns = now;
    if (now - shown_ns < HWT_SEC(1))
        return;
    shown_ns = now;
    print_line(pass);
    fputc('\n', stderr);
}

void progress_pass_ends(const struct pass *pass)
{
    shown_ns = 0;
    if (line_is_open)
        progress_show(pass);
}

void progress_close(void)
{
    if (atomic_exchange(&line_is_open, false))
        fputc('\n', stderr);
}
