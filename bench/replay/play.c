/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The producers. Each plays the records of its own timers in order.
 *
 * In real time a record waits for its moment and names its deadline absolutely, so the deadline
 * is exactly the recording's. At full speed nothing waits and delays are relative; the clock is
 * read once in REPLAY_BATCH records, and two readings enclose what the library made of a delay, but
 * for what the CPU's counter may be off by (docs/guarantees.md).
 *
 * The library's wheel is finer than the recorded kernel's, so a timeout may have fired when the
 * recording still moves or cancels it, and it may be a moment from firing when X says that the
 * kernel ran it. None of this is a mismatch: R after the end is a fresh start, C after the end
 * does nothing, and X leaves the timeout to its own deadline.
 */
#include <inttypes.h>

#include "replay.h"

#define COUNTER_OFF HWT_USEC(4) /* for a moment, when the clock begins to be slewed */

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static bool in_real_time(const struct player *player)
{
    return player->pass->speed == SPEED_REAL;
}

/* The task of every timeout. */
static void ran(hwt_timeout *timeout, void *arg)
{
    struct outcome *outcome = arg;

    atomic_store_explicit(&outcome->ran_ns, hwt_timer_now(hwt_timeout_timer(timeout)),
                          memory_order_relaxed);
    /* Release: whoever sees the run sees its time (settle in pass.c, the checks). */
    atomic_fetch_add_explicit(&outcome->runs, 1, memory_order_release);
}

/* The deadline that a record asks for; at full speed its lower bound. */
static uint64_t wanted_deadline(const struct player *player, const struct record *record)
{
    uint64_t from = in_real_time(player) ? player->pass->base_ns + record->time_ns : player->now_ns;

    return from + record->delay_ns;
}

/* In real time the deadline is known exactly and there is time to look at once. */
static void note_asked(struct player *player, struct outcome *outcome, uint64_t delay_ns)
{
    if (in_real_time(player))
        check_exact_deadline(player->pass, outcome);
    else
        player->asked[player->asked_count++] = (struct asked){outcome, delay_ns};
}

/* Holds the deadlines of the last batch against the readings of the clock on both sides. */
static void check_asked(struct player *player, uint64_t before_ns, uint64_t after_ns)
{
    for (unsigned i = 0; i < player->asked_count; i++) {
        const struct outcome *outcome = player->asked[i].outcome;
        uint64_t least = before_ns + player->asked[i].delay_ns;
        uint64_t most = after_ns + player->asked[i].delay_ns;

        /* Cancelled since, or moved again, which is an entry of its own. */
        if (!outcome->handle || outcome->deadline_ns != least)
            continue;
        uint64_t deadline = hwt_timeout_deadline(outcome->handle);

        if (deadline + COUNTER_OFF < least || deadline > most + COUNTER_OFF)
            complain(&player->pass->complaints,
                     "timer %" PRIu32 ": the deadline is %" PRIu64 ", asked for was %" PRIu64
                     " to %" PRIu64,
                     outcome->timer, deadline, least, most);
    }
    player->asked_count = 0;
}

static void read_clock(struct player *player)
{
    uint64_t now = hwt_timer_now(player->pass->timer);

    check_asked(player, player->now_ns, now);
    player->now_ns = now;
}

static void wait_for(struct player *player, uint64_t time_ns)
{
    while (player->now_ns < time_ns) {
        player->now_ns = hwt_timer_now(player->pass->timer);
        if (player->now_ns >= time_ns)
            return;
        uint64_t until = time_ns + (uint64_t)player->pass->offset_ns;
        struct timespec at = {(time_t)(until / HWT_SEC(1)), (long)(until % HWT_SEC(1))};

        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

static struct outcome *start(struct player *player, const struct record *record)
{
    hwt_timer *timer = player->pass->timer;
    struct outcome *outcome = &player->outcomes[player->used];
    int error;

    outcome->timer = record->timer;
    outcome->deadline_ns = wanted_deadline(player, record);
    if (in_real_time(player))
        error = hwt_new_timeout_at(timer, ran, outcome, outcome->deadline_ns, &outcome->handle);
    else
        error = hwt_new_timeout(timer, ran, outcome, record->delay_ns, &outcome->handle);
    if (error) {
        complain(&player->pass->complaints, "timer %" PRIu32 ": could not be scheduled: error %d",
                 record->timer, error);
        return NULL;
    }
    player->used++;
    note_asked(player, outcome, record->delay_ns);
    return outcome;
}

/* Nothing in the recording touched it before its deadline, this record comes after. */
static bool is_due(const struct player *player, const struct record *record,
                   const struct outcome *outcome)
{
    return in_real_time(player) && outcome->deadline_ns <= player->pass->base_ns + record->time_ns;
}

/* It was due, yet a record came first: the worker is late, which has a limit. */
static void note_race(struct player *player, uint32_t timer, uint64_t deadline_ns)
{
    uint64_t behind = hwt_timer_now(player->pass->timer) - deadline_ns;

    player->raced++;
    if (behind > player->raced_ns_max)
        player->raced_ns_max = behind;
    if (behind > REPLAY_LOST_NS)
        complain(&player->pass->complaints,
                 "timer %" PRIu32 ": still pending %s after its deadline", timer, duration(behind));
}

static bool cancel(struct player *player, const struct record *record, struct outcome *outcome)
{
    bool due = is_due(player, record, outcome);

    if (!hwt_timeout_cancel(outcome->handle)) {
        outcome->due = due;
        return false; /* the handle stays for the check of how it ended */
    }
    if (due)
        note_race(player, outcome->timer, outcome->deadline_ns);
    outcome->cancelled++;
    hwt_timeout_unref(outcome->handle);
    outcome->handle = NULL;
    return true;
}

static bool reschedule(struct player *player, const struct record *record, struct outcome *outcome)
{
    bool due = is_due(player, record, outcome);
    uint64_t old = outcome->deadline_ns, deadline = wanted_deadline(player, record);
    bool moved = in_real_time(player) ? hwt_timeout_reschedule_at(outcome->handle, deadline)
                                      : hwt_timeout_reschedule(outcome->handle, record->delay_ns);

    if (!moved) {
        outcome->due = due;
        return false;
    }
    if (due)
        note_race(player, outcome->timer, old);
    outcome->deadline_ns = deadline;
    note_asked(player, outcome, record->delay_ns);
    return true;
}

/* Returns what is pending for the timer afterwards. */
static struct outcome *move(struct player *player, const struct record *record,
                            struct outcome *outcome)
{
    if (player->pass->moves == MOVES_RESCHEDULE) {
        if (reschedule(player, record, outcome)) {
            player->moved++;
            return outcome;
        }
    } else if (cancel(player, record, outcome)) {
        player->moved++;
    }
    return start(player, record);
}

static void play(struct player *player, const struct record *record)
{
    struct outcome **live = &player->live[record->timer / player->pass->trace->producers];

    switch (record->op) {
    case 'S':
    case 'R': *live = *live ? move(player, record, *live) : start(player, record); break;
    case 'C':
        if (*live)
            cancel(player, record, *live);
        *live = NULL;
        break;
    default: /* X */
        if (*live)
            (*live)->due = is_due(player, record, *live);
        *live = NULL;
    }
}

/* What is still pending at the end of the recording, though its deadline came before. */
static void mark_due_at_end(struct player *player)
{
    uint64_t end = player->pass->base_ns + player->pass->trace->span_ns;

    for (size_t i = 0; in_real_time(player) && i < player->live_count; i++)
        if (player->live[i] && player->live[i]->deadline_ns <= end)
            player->live[i]->due = true;
}

static void play_all(struct player *player)
{
    for (size_t i = 0; i < player->count; i++) {
        if (in_real_time(player))
            wait_for(player, player->pass->base_ns + player->records[i].time_ns);
        else if (i % REPLAY_BATCH == 0)
            read_clock(player);
        play(player, &player->records[i]);
        atomic_store_explicit(&player->played, i + 1, memory_order_relaxed);
    }
    read_clock(player);
}

void *player_main(void *arg)
{
    struct player *player = arg;

    pthread_barrier_wait(&player->pass->barrier);
    uint64_t cpu = thread_cpu_ns();

    player->begin_ns = player->now_ns = hwt_timer_now(player->pass->timer);
    play_all(player);
    player->end_ns = player->now_ns;
    mark_due_at_end(player);
    player->cpu_ns = thread_cpu_ns() - cpu;
    atomic_fetch_sub_explicit(&player->pass->playing, 1, memory_order_release);
    return NULL;
}
