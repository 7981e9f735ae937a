/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several timers on one page for Prometheus.
 *
 * hwt_stats_prometheus writes the page of one timer. A scraper wants each metric's heading once,
 * and then the lines of all timers that have it: since each page names the same metrics in the same
 * order, they are put together metric by metric. What tells the timers apart is the label.
 */
#include "example.h"

#include <hwt.h>
#include <string.h>

enum { TIMERS = 3, TIMEOUTS = 500 };

static const char *const labels[TIMERS] = {"timer=\"rpc\"", "timer=\"heartbeat\"",
                                           "timer=\"retry\""};

/* To be freed. It asks for the length first. */
static char *page_of(const hwt_timer *timer, const char *label)
{
    hwt_stats stats;
    char *page;
    int length;

    hwt_stats_init(&stats);
    must(hwt_timer_stats(timer, &stats) == 0, "stats");
    length = hwt_stats_prometheus(&stats, label, NULL, 0);
    must(length > 0, "the length of a page");
    page = malloc((size_t)length + 1);
    must(page != NULL, "memory for a page");
    must(hwt_stats_prometheus(&stats, label, page, (size_t)length + 1) == length, "a page");
    return page;
}

static const char *metric_end(const char *metric)
{
    const char *next = strstr(metric + 1, "# HELP ");

    return next ? next : metric + strlen(metric);
}

/* Behind the two lines of its heading. */
static const char *metric_lines(const char *metric)
{
    return strchr(strchr(metric, '\n') + 1, '\n') + 1;
}

static void write_metric(const char *from, const char *to, FILE *out)
{
    fwrite(from, 1, (size_t)(to - from), out);
}

static void write_page(hwt_timer *const *timer, FILE *out)
{
    char *page[TIMERS];
    const char *at[TIMERS];

    for (int i = 0; i < TIMERS; i++)
        at[i] = page[i] = page_of(timer[i], labels[i]);
    while (*at[0]) {
        write_metric(at[0], metric_lines(at[0]), out);
        for (int i = 0; i < TIMERS; i++) {
            const char *end = metric_end(at[i]);
            write_metric(metric_lines(at[i]), end, out);
            at[i] = end;
        }
    }
    for (int i = 0; i < TIMERS; i++) {
        must(!*at[i], "all pages have the same metrics");
        free(page[i]);
    }
}

static void task_noop(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void use(hwt_timer *timer)
{
    for (unsigned i = 0; i < TIMEOUTS; i++)
        must(hwt_new_timeout(timer, task_noop, NULL, HWT_USEC(20) * i, NULL) == 0, "schedule");
    while (hwt_timer_pending(timer) > 0)
        sleep_ms(1);
}

/* How many lines begin like this. */
static unsigned count_lines(const char *page, const char *beginning)
{
    unsigned count = 0;

    for (const char *line = page; *line; line = strchr(line, '\n') + 1)
        count += strncmp(line, beginning, strlen(beginning)) == 0;
    return count;
}

int main(int argc, char **argv)
{
    hwt_timer *timer[TIMERS];
    char *page = NULL, *single;
    size_t size;
    FILE *out;

    give_up_after(20);
    for (int i = 0; i < TIMERS; i++) {
        must(hwt_timer_create(&timer[i], NULL) == 0, "create a timer");
        use(timer[i]);
    }
    out = open_memstream(&page, &size);
    must(out != NULL, "a stream in memory");
    write_page(timer, out);
    must(fclose(out) == 0, "the whole page");

    single = page_of(timer[0], labels[0]);
    must(count_lines(page, "# ") == count_lines(single, "# "), "each heading once");
    must(count_lines(page, "hwt_") == TIMERS * count_lines(single, "hwt_"), "each timer's lines");
    must(strstr(page, "hwt_runs_total{timer=\"retry\"} 500\n") != NULL, "what the last one ran");
    if (argc > 1) {
        out = fopen(argv[1], "w");
        must(out && fputs(page, out) >= 0 && fclose(out) == 0, "write the page to a file");
    }
    printf("metrics: %d timers on one page, %u lines of each\n", TIMERS,
           count_lines(single, "hwt_"));
    free(single);
    free(page);
    for (int i = 0; i < TIMERS; i++)
        must(hwt_timer_destroy(timer[i]) == 0, "destroy a timer");
    return 0;
}
