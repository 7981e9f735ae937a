/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt-replay plays a recorded timer trace through libhwt and checks every outcome.
 *
 *   replay.c    options, and which passes to run
 *   input.c     lines of text out of a .csv or .csv.xz file
 *   trace.c     records out of lines, and their division among the producers
 *   play.c      the producers: S, R, C and X carried out on the timer, each in its thread
 *   pass.c      one pass: timer, producers, settling, stop, what it cost
 *   check.c     each timeout's end against the arithmetic of its deadline
 *   progress.c  the line that moves while a pass runs
 *   report.c    the table, the histogram, the comparison and the verdict
 *   json.c      the same for scripts
 */
#ifndef HWT_BENCH_REPLAY_H
#define HWT_BENCH_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hwt.h"

#define REPLAY_MAX_PRODUCERS 64

/* An overdue timeout is late up to here; beyond it counts as lost. */
#define REPLAY_LOST_NS HWT_SEC(2)

/* ---- exit codes ---- */
enum { REPLAY_OK = 0, REPLAY_MISMATCH = 1, REPLAY_TROUBLE = 2 };

/* ---- input.c: lines of a file, compressed or not ---- */
struct input;

struct input *input_open(const char *path);
/*
 * The next line without its newline; NULL at the end. Trouble is told on stderr and sets *failed.
 */
const char *input_line(struct input *input, bool *failed);
uint64_t input_line_number(const struct input *input);
void input_close(struct input *input);

/* ---- trace.c: the recording ---- */
struct record {
    uint64_t time_ns;  /* since the first record of the recording */
    uint64_t delay_ns; /* for S and R */
    uint32_t timer;
    char op; /* S R C X */
};

struct trace {
    const char *path;
    struct record *records; /* grouped by producer, in time order within each */
    size_t count;
    size_t first[REPLAY_MAX_PRODUCERS + 1]; /* where each producer's records begin */
    unsigned producers;
    uint32_t timer_numbers; /* highest number + 1 */
    uint32_t timers;        /* numbers that occur */
    uint64_t span_ns;       /* time of the last record */
    uint64_t starts, moves, cancels, expiries;
    uint64_t due; /* deadlines that come before anything touches their timer again */
};

/* 0, or -1 after telling on stderr what is wrong and where. limit 0: everything. */
int trace_read(struct trace *trace, const char *path, uint64_t limit);
int trace_divide(struct trace *trace, unsigned producers);
void trace_free(struct trace *trace);

/* ---- what a pass is asked to do ---- */
enum replay_speed { SPEED_REAL, SPEED_MAX };
enum replay_moves { MOVES_RESCHEDULE, MOVES_CANCEL };

struct settings {
    hwt_config config;
    unsigned producers;
    unsigned rounds;
    bool quiet; /* no progress */
    bool ascii;
};

/* ---- one timeout's life; the producer writes it, except what its task does ---- */
struct outcome {
    hwt_timeout *handle;     /* NULL once cancelled and dropped */
    uint64_t deadline_ns;    /* the last one asked for; at full speed its lower bound */
    _Atomic uint64_t ran_ns; /* task: when it ran */
    _Atomic uint16_t runs;   /* task: how often */
    uint8_t cancelled;       /* cancellations that returned true */
    uint8_t handed_back;     /* by stop */
    uint8_t due;             /* by the recording, nothing touched it before its deadline */
    uint32_t timer;
};

/* ---- mismatches of a pass, told as they are found ---- */
struct complaints {
    pthread_mutex_t lock;
    _Atomic uint64_t count;
};

void complain(struct complaints *complaints, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- play.c: the producers ---- */
struct pass;

/* Deadlines asked for between two readings of the clock, to be held against the second. */
enum { REPLAY_BATCH = 32 };
struct asked {
    struct outcome *outcome;
    uint64_t delay_ns;
};

struct player {
    struct pass *pass;
    pthread_t thread;
    const struct record *records;
    size_t count;
    struct outcome **live; /* by timer number / producers: pending as far as the trace says */
    size_t live_count;
    struct outcome *outcomes; /* room for every start that may come */
    size_t used, capacity;
    _Atomic size_t played;

    uint64_t now_ns; /* the last reading of the timer's clock */
    struct asked asked[REPLAY_BATCH];
    unsigned asked_count;

    uint64_t moved; /* R that moved a pending timeout */
    uint64_t raced; /* moved or cancelled when already due: the worker was on its way */
    uint64_t raced_ns_max;
    uint64_t begin_ns, end_ns, cpu_ns;
};

void *player_main(void *player);

/* ---- pass.c ---- */
struct lateness {
    uint64_t p50, p90, p99, p999, max; /* nearest rank: values that did occur */
};

struct result {
    enum replay_speed speed;
    enum replay_moves moves;
    uint64_t records, operations;
    uint64_t wall_ns;
    uint64_t started, moved, cancelled, fired, handed_back;
    uint64_t due, due_fired, raced, raced_ns_max; /* in real time only */
    hwt_stats stats;
    uint64_t rate; /* operations per second */
    uint64_t cpu_ns, cpu_worker_ns, cpu_each_ns;
    uint64_t peak_bytes, library_bytes;
    uint64_t *late_ns; /* of each that fired, sorted */
    size_t late_count;
    struct lateness late;
    uint64_t mismatches;
    bool balanced;
};

struct pass {
    const struct trace *trace;
    const struct settings *settings;
    enum replay_speed speed;
    enum replay_moves moves;
    const char *title; /* for the progress line */
    hwt_timer *timer;
    uint64_t base_ns;      /* timer's time of the trace's beginning */
    int64_t offset_ns;     /* CLOCK_MONOTONIC minus the timer's clock */
    uint64_t memory_bytes; /* resident without the library */
    uint64_t end_ns;       /* timer's time when the last producer was done */
    pthread_barrier_t barrier;
    _Atomic unsigned playing;
    struct player *players;
    struct complaints complaints;
};

/* 0 also with mismatches, which the result counts; -1 when the pass could not be run. */
int pass_run(const struct trace *trace, const struct settings *settings, enum replay_speed speed,
             enum replay_moves moves, const char *title, struct result *result);
void result_free(struct result *result);

/* ---- check.c ---- */
void check_exact_deadline(struct pass *pass, const struct outcome *outcome); /* in real time */
void check_hand_back(struct pass *pass, hwt_unprocessed *unprocessed);
int check_outcomes(struct pass *pass, struct result *result);
void check_ledger(struct pass *pass, struct result *result);

/* ---- progress.c ---- */
void progress_show(const struct pass *pass);
void progress_pass_ends(const struct pass *pass);
void progress_close(void); /* before anything else is written to a terminal */

/* ---- report.c, json.c ---- */
struct report {
    const struct trace *trace;
    const struct settings *settings;
    const struct result *real, *fast, *cancel; /* NULL: not run */
    uint64_t mismatches;                       /* of every round */
    uint64_t timeouts;                         /* started, in every round */
};

void report_title(const struct trace *trace, const struct settings *settings);
void report_print(const struct report *report);
void json_print(const struct report *report);

/* Decimal with commas; the buffer is one of a few in turn. */
const char *commas(uint64_t number);
const char *duration(uint64_t ns);

#endif
