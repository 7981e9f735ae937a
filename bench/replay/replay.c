/* SPDX-License-Identifier: BSD-2-Clause */
/* Options, and which passes to run. replay.h lists the other rooms. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"

#define DEFAULT_TRACE "bench/data/linux-tcp-timers.csv.xz"

enum { MAX_ROUNDS = 99 };

struct options {
    struct settings settings;
    const char *path;
    uint64_t limit;
    bool real, max;          /* speeds */
    bool reschedule, cancel; /* how R is carried out */
    bool json;
};

static const char usage_text[] =
    "Usage: hwt-replay [OPTION]... [FILE]\n"
    "Plays a recorded timer trace through libhwt, worker thread and all, and checks the\n"
    "outcome of every timeout against its deadline. FILE is a .csv or .csv.xz; without\n"
    "one, " DEFAULT_TRACE ".\n"
    "\n"
    "  -s, --speed=real|max|both   in real time, as fast as it goes, or one after the\n"
    "                              other (default both)\n"
    "  -m, --moves=reschedule|cancel|both\n"
    "                              carry out R as hwt_timeout_reschedule, or as cancel\n"
    "                              and schedule; both (default) compares them at full\n"
    "                              speed\n"
    "  -p, --producers=N           threads that play, 1 to 64 (default 3); the trace's\n"
    "                              timers are divided among them\n"
    "  -r, --rounds=N              rounds at full speed, 1 to 99 (default 9); the table\n"
    "                              shows the medians of time and of CPU\n"
    "  -n, --limit=N               only the first N records\n"
    "  -t, --tick=USEC             the timer's tick in microseconds (default 1000)\n"
    "  -w, --wheel=hierarchical|hashed\n"
    "                              kind of wheel (default hierarchical)\n"
    "  -j, --json                  print the result as JSON, not as a table\n"
    "  -a, --ascii                 draw without block characters\n"
    "  -q, --quiet                 no progress\n"
    "  -h, --help                  this text\n"
    "  -V, --version               the library's version\n"
    "\n"
    "A line of the trace is time_ns,op,timer,delay_ns: S starts a timer, R moves its\n"
    "deadline, C cancels it, X is where the recorded kernel ran it.\n"
    "\n"
    "Exit status: 0 when every outcome was right, 1 when one was not, 2 for trouble\n"
    "with the options, the file or the system.\n";

static const struct option long_options[] = {
    {"speed", required_argument, NULL, 's'},
    {"moves", required_argument, NULL, 'm'},
    {"producers", required_argument, NULL, 'p'},
    {"rounds", required_argument, NULL, 'r'},
    {"limit", required_argument, NULL, 'n'},
    {"tick", required_argument, NULL, 't'},
    {"wheel", required_argument, NULL, 'w'},
    {"json", no_argument, NULL, 'j'},
    {"ascii", no_argument, NULL, 'a'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* ---- options ---- */
static _Noreturn void usage_error(void)
{
    fputs("Try hwt-replay --help\n", stderr);
    exit(REPLAY_TROUBLE);
}

static uint64_t number_option(const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most) {
        fprintf(stderr,
                "hwt-replay: --%s must be a number from %" PRIu64 " to %" PRIu64 ", not \"%s\"\n",
                name, least, most, text);
        usage_error();
    }
    return value;
}

/* Which of two words, or "both" where that is allowed: 1, 2 or 3. */
static unsigned choice_option(const char *name, const char *text, const char *first,
                              const char *second, bool both)
{
    if (strcmp(text, first) == 0)
        return 1;
    if (strcmp(text, second) == 0)
        return 2;
    if (both && strcmp(text, "both") == 0)
        return 3;
    fprintf(stderr, "hwt-replay: --%s must be %s%s %s%s, not \"%s\"\n", name, first,
            both ? "," : " or", second, both ? " or both" : "", text);
    usage_error();
}

static void take_speed(struct options *options, const char *text)
{
    unsigned chosen = choice_option("speed", text, "real", "max", true);

    options->real = chosen & 1;
    options->max = chosen & 2;
}

static void take_moves(struct options *options, const char *text)
{
    unsigned chosen = choice_option("moves", text, "reschedule", "cancel", true);

    options->reschedule = chosen & 1;
    options->cancel = chosen & 2;
}

static void take_wheel(struct options *options, const char *text)
{
    unsigned chosen = choice_option("wheel", text, "hierarchical", "hashed", false);

    options->settings.config.wheel = chosen == 1 ? HWT_WHEEL_HIERARCHICAL : HWT_WHEEL_HASHED;
}

static void take_option(struct options *options, int option, const char *text)
{
    struct settings *settings = &options->settings;

    switch (option) {
    case 's': take_speed(options, text); break;
    case 'm': take_moves(options, text); break;
    case 'w': take_wheel(options, text); break;
    case 'p':
        settings->producers = (unsigned)number_option("producers", text, 1, REPLAY_MAX_PRODUCERS);
        break;
    case 'r': settings->rounds = (unsigned)number_option("rounds", text, 1, MAX_ROUNDS); break;
    case 'n': options->limit = number_option("limit", text, 1, UINT64_C(1000000000)); break;
    case 't':
        settings->config.tick_ns = HWT_USEC(number_option("tick", text, 1, UINT64_C(1000000)));
        break;
    case 'j': options->json = true; break;
    case 'a': settings->ascii = true; break;
    case 'q': settings->quiet = true; break;
    case 'h': fputs(usage_text, stdout); exit(REPLAY_OK);
    case 'V': printf("hwt-replay, libhwt %s\n", hwt_version()); exit(REPLAY_OK);
    default: usage_error();
    }
}

/* The library has these defaults too; stated here, the title can name them. */
static void set_defaults(struct options *options)
{
    *options = (struct options){
        .path = DEFAULT_TRACE, .real = true, .max = true, .reschedule = true, .cancel = true};
    options->settings.producers = 3;
    options->settings.rounds = 9;
    hwt_config_init(&options->settings.config);
    options->settings.config.tick_ns = HWT_MSEC(1);
    options->settings.config.ticks_per_wheel = 512;
}

static void read_options(struct options *options, int argc, char **argv)
{
    int option;

    set_defaults(options);
    while ((option = getopt_long(argc, argv, "s:m:p:r:n:t:w:jaqhV", long_options, NULL)) != -1)
        take_option(options, option, optarg);
    if (optind < argc)
        options->path = argv[optind++];
    if (optind < argc) {
        fprintf(stderr, "hwt-replay: one FILE at a time, not also \"%s\"\n", argv[optind]);
        usage_error();
    }
}

/* ---- passes ---- */
struct run {
    const struct options *options;
    struct trace trace;
    struct result real;
    struct result fast[MAX_ROUNDS], cancel[MAX_ROUNDS];
    struct report report;
};

static int add_pass(struct run *run, enum replay_speed speed, enum replay_moves moves,
                    const char *title, struct result *result)
{
    int error = pass_run(&run->trace, &run->options->settings, speed, moves, title, result);

    run->report.mismatches += result->mismatches;
    run->report.timeouts += result->started;
    return error;
}

static int real_pass(struct run *run)
{
    enum replay_moves moves = run->options->reschedule ? MOVES_RESCHEDULE : MOVES_CANCEL;

    int error = add_pass(run, SPEED_REAL, moves, "in real time", &run->real);

    run->report.real = &run->real;
    progress_close(); /* its last line stays; those at full speed write over each other */
    return error;
}

static int compare_wall(const void *a, const void *b)
{
    uint64_t left = ((const struct result *)a)->wall_ns;
    uint64_t right = ((const struct result *)b)->wall_ns;

    return (left > right) - (left < right);
}

static int compare_cpu(const void *a, const void *b)
{
    uint64_t left = ((const struct result *)a)->cpu_ns;
    uint64_t right = ((const struct result *)b)->cpu_ns;

    return (left > right) - (left < right);
}

/* The round with the median time; its CPU figures become those of the round with median CPU. */
static const struct result *median(struct result *results, unsigned rounds)
{
    struct result *middle = &results[rounds / 2];
    struct result cpu;

    qsort(results, rounds, sizeof *results, compare_cpu);
    cpu = *middle;
    qsort(results, rounds, sizeof *results, compare_wall);
    middle->cpu_ns = cpu.cpu_ns;
    middle->cpu_worker_ns = cpu.cpu_worker_ns;
    middle->cpu_each_ns = cpu.cpu_each_ns;
    return middle;
}

static int full_speed_pass(struct run *run, enum replay_moves moves, unsigned round,
                           struct result *result)
{
    char title[40];

    snprintf(title, sizeof title, "%s %u/%u", moves == MOVES_RESCHEDULE ? "reschedule" : "cancel",
             round + 1, run->options->settings.rounds);
    return add_pass(run, SPEED_MAX, moves, title, result);
}

/* The two ways of moving take turns, so that whatever else the machine does meets both. */
static int full_speed_passes(struct run *run)
{
    const struct options *options = run->options;
    unsigned rounds = options->settings.rounds;

    for (unsigned i = 0; i < rounds; i++) {
        if (options->reschedule && full_speed_pass(run, MOVES_RESCHEDULE, i, &run->fast[i]) != 0)
            return -1;
        if (options->cancel && full_speed_pass(run, MOVES_CANCEL, i, &run->cancel[i]) != 0)
            return -1;
    }
    progress_close();
    if (options->reschedule)
        run->report.fast = median(run->fast, rounds);
    if (options->cancel)
        run->report.cancel = median(run->cancel, rounds);
    return 0;
}

static int run_passes(struct run *run)
{
    if (run->options->real && real_pass(run) != 0)
        return -1;
    return run->options->max ? full_speed_passes(run) : 0;
}

static void free_results(struct run *run)
{
    result_free(&run->real);
    for (unsigned i = 0; i < MAX_ROUNDS; i++) {
        result_free(&run->fast[i]);
        result_free(&run->cancel[i]);
    }
}

static int replay(struct run *run)
{
    const struct options *options = run->options;

    run->report.trace = &run->trace;
    run->report.settings = &options->settings;
    if (trace_divide(&run->trace, options->settings.producers) != 0)
        return REPLAY_TROUBLE;
    if (!options->json)
        report_title(&run->trace, &options->settings);
    if (run_passes(run) != 0)
        return REPLAY_TROUBLE;
    if (options->json)
        json_print(&run->report);
    else
        report_print(&run->report);
    return run->report.mismatches ? REPLAY_MISMATCH : REPLAY_OK;
}

int main(int argc, char **argv)
{
    static struct run run;
    struct options options;
    int status = REPLAY_TROUBLE;

    read_options(&options, argc, argv);
    run.options = &options;
    if (trace_read(&run.trace, options.path, options.limit) == 0) {
        status = replay(&run);
        free_results(&run);
        trace_free(&run.trace);
    }
    /* A table that never reached its reader is no success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "hwt-replay: cannot write the result: %s\n", strerror(errno));
        status = REPLAY_TROUBLE;
    }
    return status;
}
