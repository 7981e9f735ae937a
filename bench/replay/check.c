/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each timeout's end against the arithmetic of its deadline (G1), exactly one end (G2), and the
 * counts of this program against the timer's own ledger (G3).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "replay.h"

enum { SHOWN_MISMATCHES = 10 };

void complain(struct complaints *complaints, const char *format, ...)
{
    uint64_t earlier = atomic_fetch_add(&complaints->count, 1);
    va_list arguments;

    if (earlier > SHOWN_MISMATCHES)
        return;
    pthread_mutex_lock(&complaints->lock);
    progress_close();
    if (earlier == SHOWN_MISMATCHES) {
        fputs("MISMATCH: more of them, only counted from here\n", stderr);
    } else {
        va_start(arguments, format);
        fputs("MISMATCH: ", stderr);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
    pthread_mutex_unlock(&complaints->lock);
}

/* ---- what stop hands back ---- */
void check_hand_back(struct pass *pass, hwt_unprocessed *unprocessed)
{
    size_t announced = unprocessed->count, found = 0;
    hwt_timeout *timeout;

    while ((timeout = hwt_unprocessed_take(unprocessed)) != NULL) {
        struct outcome *outcome = hwt_timeout_arg(timeout);

        outcome->handed_back++;
        if (!hwt_timeout_is_cancelled(timeout))
            complain(&pass->complaints, "timer %" PRIu32 ": handed back, but not as cancelled",
                     outcome->timer);
        hwt_timeout_unref(timeout);
        found++;
    }
    if (found != announced)
        complain(&pass->complaints, "stop announced %zu timeouts and handed back %zu", announced,
                 found);
}

/* ---- one timeout ---- */
static void check_run(struct pass *pass, struct result *result, const struct outcome *outcome)
{
    uint64_t ran = atomic_load(&outcome->ran_ns);
    uint64_t deadline = hwt_timeout_deadline(outcome->handle);

    if (ran < outcome->deadline_ns || ran < deadline) {
        complain(
            &pass->complaints, "timer %" PRIu32 ": ran %s before its deadline", outcome->timer,
            duration((deadline > outcome->deadline_ns ? deadline : outcome->deadline_ns) - ran));
        return;
    }
    if (!hwt_timeout_is_expired(outcome->handle))
        complain(&pass->complaints, "timer %" PRIu32 ": ran, but is not expired", outcome->timer);
    result->late_ns[result->late_count++] = ran - deadline;
}

static void check_not_run(struct pass *pass, const struct outcome *outcome)
{
    /* Settling gave everything due by then the time to run. */
    if (outcome->handed_back && outcome->deadline_ns <= pass->end_ns)
        complain(&pass->complaints, "timer %" PRIu32 ": due %s before the end, but did not run",
                 outcome->timer, duration(pass->end_ns - outcome->deadline_ns));
    if (outcome->handle && hwt_timeout_is_expired(outcome->handle))
        complain(&pass->complaints, "timer %" PRIu32 ": expired, but did not run", outcome->timer);
    if (outcome->due)
        complain(&pass->complaints, "timer %" PRIu32 ": had to fire, but did not", outcome->timer);
}

void check_exact_deadline(struct pass *pass, const struct outcome *outcome)
{
    uint64_t deadline = hwt_timeout_deadline(outcome->handle);

    if (deadline != outcome->deadline_ns)
        complain(&pass->complaints,
                 "timer %" PRIu32 ": the deadline is %" PRIu64 ", last asked for was %" PRIu64,
                 outcome->timer, deadline, outcome->deadline_ns);
}

static void check_one(struct pass *pass, struct result *result, struct outcome *outcome)
{
    unsigned runs = atomic_load(&outcome->runs);
    unsigned ends = runs + outcome->cancelled + outcome->handed_back;

    if (ends != 1)
        complain(&pass->complaints,
                 "timer %" PRIu32 ": ended %u times: ran %u, cancelled %u, handed back %u",
                 outcome->timer, ends, runs, (unsigned)outcome->cancelled,
                 (unsigned)outcome->handed_back);
    result->fired += runs;
    result->cancelled += outcome->cancelled;
    result->handed_back += outcome->handed_back;
    result->due += outcome->due;
    result->due_fired += outcome->due && runs;
    if (runs && outcome->handle)
        check_run(pass, result, outcome);
    else
        check_not_run(pass, outcome);
    /* At full speed the exact deadline was enclosed by the producer's readings of the clock. */
    if (pass->speed == SPEED_REAL && outcome->handle)
        check_exact_deadline(pass, outcome);
    hwt_timeout_unref(outcome->handle);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static uint64_t percentile(const struct result *result, unsigned per_mille)
{
    size_t rank = (result->late_count * per_mille + 999) / 1000;

    return result->late_count ? result->late_ns[rank - 1] : 0;
}

static void rank_lateness(struct result *result)
{
    qsort(result->late_ns, result->late_count, sizeof *result->late_ns, compare_u64);
    result->late = (struct lateness){
        .p50 = percentile(result, 500),
        .p90 = percentile(result, 900),
        .p99 = percentile(result, 990),
        .p999 = percentile(result, 999),
        .max = percentile(result, 1000),
    };
}

int check_outcomes(struct pass *pass, struct result *result)
{
    result->late_ns = malloc((result->started + 1) * sizeof *result->late_ns);
    if (!result->late_ns)
        return -ENOMEM;
    for (unsigned p = 0; p < pass->trace->producers; p++)
        for (size_t i = 0; i < pass->players[p].used; i++)
            check_one(pass, result, &pass->players[p].outcomes[i]);
    rank_lateness(result);
    return 0;
}

/* ---- the sums ---- */
static void check_equal(struct pass *pass, const char *what, uint64_t timer_says, uint64_t counted)
{
    if (timer_says != counted)
        complain(&pass->complaints, "%s: the timer says %" PRIu64 ", counted %" PRIu64, what,
                 timer_says, counted);
}

/* Whatever the recording leaves to its deadline fired, or was touched while the worker was late. */
static void check_due(struct pass *pass, const struct result *result)
{
    if (pass->speed == SPEED_REAL && result->due + result->raced != pass->trace->due)
        complain(&pass->complaints,
                 "by the recording %" PRIu64 " deadlines come due, but %" PRIu64 " did and %" PRIu64
                 " were touched in time",
                 pass->trace->due, result->due, result->raced);
}

void check_ledger(struct pass *pass, struct result *result)
{
    const hwt_stats *stats = &result->stats;
    uint64_t lateness_entries = 0;

    for (size_t i = 0; i < sizeof stats->late_log2 / sizeof stats->late_log2[0]; i++)
        lateness_entries += stats->late_log2[i];
    result->balanced = stats->scheduled == stats->expired + stats->cancelled + stats->unprocessed &&
                       stats->pending == 0;
    if (!result->balanced)
        complain(&pass->complaints,
                 "the ledger is broken: %" PRIu64 " scheduled, %" PRIu64 " expired, %" PRIu64
                 " cancelled, %" PRIu64 " unprocessed, %" PRIu64 " pending",
                 stats->scheduled, stats->expired, stats->cancelled, stats->unprocessed,
                 stats->pending);
    check_equal(pass, "scheduled", stats->scheduled, result->started);
    check_equal(pass, "expired", stats->expired, result->fired);
    check_equal(pass, "runs", stats->runs, result->fired);
    check_equal(pass, "cancelled", stats->cancelled, result->cancelled);
    check_equal(pass, "unprocessed", stats->unprocessed, result->handed_back);
    check_equal(pass, "rejected", stats->rejected, 0);
    check_equal(pass, "pending after stop", hwt_timer_pending(pass->timer), 0);
    check_equal(pass, "runs by lateness", lateness_entries, result->fired);
    check_due(pass, result);
}
