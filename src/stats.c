/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters lie where they are written, per lane and with the worker; reading adds them up. */
#include <errno.h>

#include "quota.h"
#include "struct_size.h"

#define EXPIRED_TRIES 4 /* readings, if runs are re-armed meanwhile */

void hwt_stats_init_size(hwt_stats *stats, size_t size)
{
    struct_init(stats, size, &(hwt_stats){0}, sizeof *stats);
}

void(hwt_stats_init)(hwt_stats *stats)
{
    hwt_stats_init_size(stats, STATS_SIZE_1_0);
}

static uint64_t count_rearms(const struct lanes *lanes)
{
    const struct lane *lane;
    uint64_t rearms = 0;

    for (unsigned i = 0; (lane = lanes_next_made(lanes, &i)) != NULL;)
        rearms += load_acquire(&lane->rearms);
    return rearms;
}

/*
 * On an executor's threads. As it was at one moment, if none was re-armed while this looked, which
 * is worth a few tries: this thread may have been preempted. Otherwise what is re-armed may be seen
 * so without the end that came before.
 */
static uint64_t count_expired(const struct lanes *lanes)
{
    uint64_t rearms = count_rearms(lanes), before, ended;
    const struct lane *lane;
    unsigned tries = 0;

    do {
        before = rearms;
        ended = 0;
        for (unsigned i = 0; (lane = lanes_next_made(lanes, &i)) != NULL;)
            ended += load_acquire(&lane->expired);
        rearms = count_rearms(lanes);
    } while (rearms != before && ++tries < EXPIRED_TRIES);
    return ended > rearms ? ended - rearms : 0;
}

/*
 * C24: of all lanes, what has ended before what was scheduled, and in between what is pending again
 * after it had ended; with the worker one counter tells both. So nothing is found ended that is not
 * found scheduled, and pending is never too low. The slots are gone through twice: beside one that
 * has ended ahead of who counts, what took its place may lie behind him.
 */
static void add_ends(hwt_stats *stats, const hwt_timer *timer)
{
    const struct lane *lane;

    stats->unprocessed = load_acquire(&timer->worker.count.unprocessed);
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        stats->cancelled += load_acquire(&lane->cancelled);
        stats->withdrawn += lane_count(lane).withdrawn;
    }
    stats->cancelled += stats->withdrawn;
    stats->expired = load_acquire(&timer->worker.count.expired) + count_expired(&timer->lanes);
}

static struct lane_tally add_lane(hwt_stats *stats, const struct lane *lane)
{
    struct lane_tally tally;

    stats->runs += load_relaxed(&lane->runs);
    stats->rejected += load_relaxed(&lane->rejected);
    tally = lane_count(lane);
    stats->scheduled += tally.scheduled;
    return tally;
}

/*
 * What keeps the balance: scheduled, expired, cancelled, unprocessed, pending. Returns how many the
 * worker has met, not one too many.
 */
static uint64_t count_ledger(const hwt_timer *timer, hwt_stats *stats)
{
    uint64_t ended, met = 0;
    const struct lane *lane;

    add_ends(stats, timer);
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;)
        met += add_lane(stats, lane).met;
    ended = stats->expired + stats->cancelled + stats->unprocessed;
    stats->pending = stats->scheduled > ended ? stats->scheduled - ended : 0;
    if (timer->max_pending) /* a sum taken while others schedule may be a little off */
        stats->pending = min_u64(stats->pending, timer->max_pending);
    return met;
}

uint64_t hwt_timer_pending(const hwt_timer *timer)
{
    hwt_stats stats;

    if (!timer || !timer_is_ours(timer))
        return 0;
    if (timer->max_pending) /* then there is a counter anyway, and it never shows more than that */
        return quota_used(timer);
    hwt_stats_init(&stats);
    count_ledger(timer, &stats);
    return stats.pending;
}

/*
 * Those that the worker had met. Who cancels one before that counts it nowhere but in its slot. In
 * no order with anything: a number that comes late makes something pending for longer, or all be
 * counted.
 */
static uint64_t count_ended(const hwt_timer *timer)
{
    uint64_t ended =
        load_relaxed(&timer->worker.count.expired) + load_relaxed(&timer->worker.count.unprocessed);
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        ended += load_relaxed(&lane->cancelled) + load_relaxed(&lane->expired) -
                 load_relaxed(&lane->rearms);
    }
    return ended;
}

/* First where there was one the last time: it may be the only one in a million slots. */
static bool any_in_a_slot(hwt_timer *timer)
{
    const lane_slot *found = load_acquire(&timer->run_count.held);
    const struct lane *lane;

    if (found && segment_slot_is_pending(found))
        return true;
    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        found = lane_first_pending(lane);
        if (found) {
            store_release(&timer->run_count.held, found);
            return true;
        }
    }
    return false;
}

/* What lies in a lane; or what the worker has met, if fewer have ended. Else all are counted. */
bool stats_any_pending(hwt_timer *timer)
{
    hwt_stats stats;

    if (timer->max_pending)
        return quota_used(timer) > 0;
    if (count_ended(timer) < load_relaxed(&timer->run_count.met) || any_in_a_slot(timer))
        return true;
    hwt_stats_init(&stats);
    store_relaxed(&timer->run_count.met, count_ledger(timer, &stats));
    return stats.pending > 0;
}

static void fill_in(const hwt_timer *timer, hwt_stats *stats)
{
    count_ledger(timer, stats);
    stats->runs += load_relaxed(&timer->worker.count.runs);
    stats->wakeups = load_relaxed(&timer->worker.count.wakeups);
    stats->slow_tasks = load_relaxed(&timer->run_count.slow_tasks);
    stats->late_ns_max = load_relaxed(&timer->run_count.late_max);
    stats->late_ns_sum = load_relaxed(&timer->run_count.late_sum);
    for (unsigned i = 0; i < 64; i++)
        stats->late_log2[i] = load_relaxed(&timer->run_count.late_log2[i]);
}

int hwt_timer_stats(const hwt_timer *timer, hwt_stats *stats)
{
    hwt_stats whole = {0};

    if (!timer || !stats || !stats_size_known(stats->struct_size))
        return -EINVAL;
    if (!timer_is_ours(timer))
        return -ECHILD;
    whole.struct_size = stats->struct_size;
    fill_in(timer, &whole);
    memcpy(stats, &whole, stats->struct_size);
    return 0;
}
