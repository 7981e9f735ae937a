/* SPDX-License-Identifier: BSD-2-Clause */
/* A history of a world: its threads, and what each call of a program is. */
#include <errno.h>
#include <string.h>

#include "oracle.h"
#include "pool.h"
#include "system.h"
#include "worker.h"

#define HOUR UINT64_C(3600000000000)
#define SLOW (3 * TICK)

static const uint64_t delays[] = {0,        1,         TICK / 2,   TICK, 2 * TICK + 300,
                                  5 * TICK, 17 * TICK, 300 * TICK, HOUR, UINT64_MAX};

uint64_t sim_wake_ns(void)
{
    return oracle.world && oracle.world->long_ticks ? TICK - 100 : 1000 * TICK;
}

/* ---- what is pending ---- */

/* A thread that counts: so few were known to be pending at one moment of its call. */
static uint64_t fewest[SIM_THREADS];

static bool is_known_pending(const struct life *life)
{
    return life->held && !life->submitter && !life->jobs && !life->running &&
           oracle_is_pending(life);
}

/* Before it is known of one more, so that no moment with fewer is missed. */
static void look_at_pending(void)
{
    uint64_t now = 0;

    for (unsigned i = 0; i < oracle.lives; i++)
        now += is_known_pending(&oracle.life[i]);
    for (unsigned i = 0; i < SIM_THREADS; i++)
        fewest[i] = min_u64(fewest[i], now);
}

/* ---- calls ---- */

static bool accepted(struct life *life, int result)
{
    look_at_pending();
    life->submitter = 0;
    if (result == 0) {
        life->accepted = true;
        oracle.accepted++;
        return true;
    }
    life->refused = true;
    SIM_CHECK(result == -ENOMEM || result == -ENOBUFS || result == -ESHUTDOWN ||
                  result == -EOWNERDEAD || (result == -EAGAIN && oracle.world->faults),
              "a submission fails with %d", result);
    SIM_CHECK(result != -ENOMEM || oracle.world->faults || oracle.world->no_segments,
              "a submission finds no memory");
    SIM_CHECK(result != -ENOBUFS || (oracle.world->max_pending && !oracle.world->all_fit),
              "G3: a submission meets a limit");
    SIM_CHECK(result != -ESHUTDOWN || oracle.stopping, "a submission fails, nobody has stopped");
    SIM_CHECK(result != -EOWNERDEAD || oracle.lost, "a submission fails, the worker is there");
    return false;
}

static void task(hwt_timeout *timeout, void *arg);
static void hook(hwt_timeout *timeout, void *arg);
static void release(void *arg);

/* Everything at this level but the library itself happens at one moment. */
static struct life *schedule(uint8_t conduct, uint64_t delay, bool handle, bool periodic,
                             bool hooked)
{
    struct life *life = oracle_life(conduct);
    hwt_timeout *timeout = NULL;
    uint64_t began = oracle_now(), earliest, latest;
    bool is_over = oracle_worker_is_over(), is_closed;
    unsigned calls;
    int result;

    if (!life || oracle.destroyed)
        return NULL;
    is_closed = load_relaxed(&oracle.timer->phase) >= PHASE_DRAINING;
    life->begun = true;
    life->periodic = periodic;
    life->with_hook = hooked;
    life->armed_in = oracle.advance_of[sim_current->index];
    life->with_release = oracle.world->releases && (oracle.lives & 1);
    life->submitter = sim_current->index + 1;
    life->order = (uint64_t)sim_current->index << 40 | ++oracle.submissions[sim_current->index];
    sim_plain_write(life->payload, 4);
    sim_plain_write(life->payload + 4, 4);
    call_begins(life, handle ? "schedules" : "schedules and forgets", oracle.world->not_started);
    calls = life->calls;
    if (periodic || hooked || life->with_release) {
        hwt_spec spec;
        hwt_spec_init(&spec);
        spec.task = task;
        spec.arg = life;
        spec.cancelled = hooked ? hook : NULL;
        spec.release = life->with_release ? release : NULL;
        spec.delay_ns = delay;
        spec.period_ns = life->period = periodic ? 3 * TICK : 0;
        spec.period_mode = life->mode = (hwt_period_mode)(oracle.lives % 3);
        result = hwt_schedule(oracle.timer, &spec, handle ? &timeout : NULL);
    } else if (delay & 1) {
        result = hwt_new_timeout_at(oracle.timer, task, life,
                                    delay > UINT64_MAX - began ? UINT64_MAX : began + delay,
                                    handle ? &timeout : NULL);
    } else {
        result = hwt_new_timeout(oracle.timer, task, life, delay, handle ? &timeout : NULL);
    }
    if (timeout) {
        oracle_know_block(life, timeout);
        life->held |= (uint8_t)(1u << sim_current->index);
    }
    call_ends(life);
    SIM_CHECK(!is_over || result == -EOWNERDEAD || oracle.stopping,
              "the worker has ended, and a submission says %d", result);
    SIM_CHECK(!is_closed || result == -ESHUTDOWN,
              "G8: the timer is closed, and a submission says %d", result);
    if (!accepted(life, result))
        return life;
    SIM_CHECK(!handle || timeout, "G9: accepted, but no handle");
    earliest = deadline_after(began, delay);
    latest = deadline_after(oracle_now(), delay);
    if (oracle.world->callers_clock) { /* nobody knows what it said meanwhile */
        earliest = 0;
        latest = DEADLINE_NEVER;
    }
    if (timeout)
        earliest = latest = word_deadline(load_relaxed(&timeout->word));
    oracle_established(life, earliest, latest, calls, 0);
    return life;
}

static bool holds(const struct life *life)
{
    return life && life->timeout && life->held >> sim_current->index & 1;
}

static void cancel(struct life *life)
{
    bool won, was_stopped = oracle.stopped;

    call_begins(life, "cancels", false);
    won = hwt_timeout_cancel(life->timeout);
    life->starting = !life->running && load_relaxed(&life->timeout->run) != RUN_NONE;
    call_ends(life);
    trace_say("%s", won ? "won" : "lost");
    life->wins += won;
    life->runs_before_win = oracle.runs;
    SIM_CHECK(life->wins <= 1, "G2: a timeout is cancelled twice");
    SIM_CHECK(!won || !life->back, "G2: a timeout is cancelled that was handed back");
    SIM_CHECK(!won || !was_stopped, "G8: a timeout is cancelled after stop");
    life->no_more = true;
    life->known = false;
}

static void cancel_sync(struct life *life)
{
    int won;

    call_begins(life, "cancels, and waits,", true);
    won = hwt_timeout_cancel_sync(life->timeout);
    call_ends(life);
    if (won == -EDEADLK)
        return;
    trace_say("%d", won);
    SIM_CHECK(won == 0 || won == 1, "cancel_sync fails with %d", won);
    SIM_CHECK(!life->running, "cancel_sync has returned, and the task runs");
    sim_plain_read(life->payload + 4, 4); /* what the task did */
    life->wins += (unsigned)won;
    SIM_CHECK(life->wins <= 1, "G2: a timeout is cancelled twice");
    life->no_more = life->never_again = true;
    life->known = false;
}

static void move(struct life *life, uint64_t delay, bool to)
{
    uint64_t began = oracle_now(), word;
    uint64_t deadline = delay > UINT64_MAX - began ? UINT64_MAX : began + delay;
    bool moved, was_over = life->no_more;
    unsigned calls, runs = life->runs, rearms = life->rearms;

    life->moves++;
    call_begins(life, "moves", false);
    calls = life->calls;
    moved = to ? hwt_timeout_reschedule_at(life->timeout, deadline)
               : hwt_timeout_reschedule(life->timeout, delay);
    word = load_relaxed(&life->timeout->word);
    call_ends(life);
    trace_say("%s", moved ? "moved" : "not moved");
    if (!moved) {
        SIM_CHECK(!life->known || !oracle_is_pending(life) || oracle.stopping,
                  "a pending timeout cannot be moved");
        return;
    }
    SIM_CHECK(!was_over, "a timeout is moved that was cancelled");
    if (life->rearms != rearms) /* and who was the last of the two, nobody knows */
        life->armed_in = 0;
    if (life->wins) /* cancelled meanwhile: then it was this call's to tell the worker */
        life->runs_before_win = oracle.runs;
    if ((to || oracle_now() == began) && word_deadline(word) == deadline_clamp(deadline))
        life->told = word_deadline(word);
    oracle_established(life, word_deadline(word), word_deadline(word), calls, runs);
}

/* A new life begins with the same argument: by the only one who has a handle. */
static void begin_anew(struct life *life)
{
    oracle.back += life->back;
    life->runs = life->rearms = life->wins = life->hooks = life->back = life->turned_away = 0;
    life->no_more = life->never_again = life->known = life->starting = false;
    life->submitter = sim_current->index + 1;
    life->order = (uint64_t)sim_current->index << 40 | ++oracle.submissions[sim_current->index];
}

/* Only what has ended: what ends while this is on would begin anew unseen. */
static void renew(struct life *life, uint64_t delay)
{
    bool ended = hwt_timeout_state(life->timeout) >= HWT_EXPIRED; /* another may go on here */
    struct life before = *life;
    int result;

    if (!ended || life->held != 1u << sim_current->index || life->in_flight || life->running ||
        life->jobs || (life->with_hook && life->wins && !life->hooks) || oracle.destroyed)
        return;
    begin_anew(life);
    call_begins(life, "renews", false);
    result = hwt_timeout_renew(&life->timeout, NULL, delay);
    call_ends(life);
    look_at_pending();
    life->submitter = 0;
    trace_say("renew: %d", result);
    if (result == 0) {
        oracle.accepted++;
        return;
    }
    SIM_CHECK(life->timeout == before.timeout, "a renewal failed, and the handle has changed");
    SIM_CHECK(result == -ENOBUFS || result == -ESHUTDOWN || result == -EOWNERDEAD,
              "a renewal fails with %d", result);
    before.calls = life->calls;
    oracle.back -= before.back;
    before.back += life->back; /* stop hands it back, or calls its hook, while this was on */
    before.hooks += life->hooks;
    *life = before;
}

static void drop(struct life *life)
{
    life->held &= (uint8_t) ~(1u << sim_current->index);
    call_begins(life, "drops", false);
    hwt_timeout_unref(life->timeout);
    call_ends(life);
}

static void look(struct life *life)
{
    hwt_state state;
    uint64_t deadline;
    bool was_won = life->wins > 0;

    call_begins(life, "looks at", false);
    state = hwt_timeout_state(life->timeout);
    deadline = hwt_timeout_deadline(life->timeout);
    call_ends(life);
    SIM_CHECK(state <= HWT_CANCELLED, "an unknown state");
    SIM_CHECK(!was_won || state == HWT_CANCELLED || state == HWT_RUNNING,
              "a cancelled timeout is %d", (int)state);
    SIM_CHECK(hwt_timeout_arg(life->timeout) == life, "a handle to something else");
    (void)deadline;
}

static uint64_t next(void)
{
    struct next_snapshot snapshot;
    uint64_t answer;

    oracle_before_next(&snapshot);
    call_begins(NULL, "asks for the next deadline, not of", true);
    answer = hwt_timer_next_deadline(oracle.timer);
    call_ends(NULL);
    trace_say("answer: %llu", (unsigned long long)answer);
    if (!oracle.stopping && !oracle.lost)
        oracle_after_next(&snapshot, answer);
    return answer;
}

/* By others; also those that are on their way out. */
static unsigned count_advances(void)
{
    unsigned count = oracle.advances;

    for (unsigned i = 0; i < sim_thread_count; i++)
        count += (oracle.left >> i & 1) && sim_threads[i].state != OVER;
    return count;
}

static uint64_t shown_goes_to; /* by a visitor, after so long */

/* Others may be moving or cancelling it; what nobody has a handle to gets none that lasts. */
static void move_shown(struct life *life, hwt_timeout *timeout)
{
    if (!life->held)
        oracle_know_block(life, timeout);
    if (life->order & 1)
        hwt_timeout_ref(timeout);
    move(life, shown_goes_to, false);
    if (life->order & 1)
        hwt_timeout_unref(timeout);
}

/*
 * Shown what a call that had returned made pending, if it still is; nothing twice. It is moved; or,
 * if nobody has a handle to it, gets one, which is the caller's.
 */
static void visitor(hwt_timeout *timeout, void *caller)
{
    struct life *life = hwt_timeout_arg(timeout);

    trace_say("visits");
    SIM_CHECK(!oracle.visit_is_late || oracle.stopping,
              "C16: a visit gets ahead of an advance that had waited before");
    SIM_CHECK(life->begun && !life->refused, "a timeout is shown that was not accepted");
    SIM_CHECK(life->shown++ == 0, "a timeout is shown twice");
    SIM_CHECK(!life->releases, "G16: a timeout is shown that was released");
    SIM_CHECK(!life->back, "a timeout is shown that was handed back");
    sim_plain_read(life->payload, 4);
    if (life->submitter)
        return;
    if (oracle.world->visitors_move) {
        move_shown(life, timeout);
    } else if (!life->held) {
        look_at_pending();
        oracle_know_block(life, hwt_timeout_ref(timeout));
        life->held = (uint8_t)(1u << (uintptr_t)caller);
    }
}

/* One at a time, so that what is shown is known. */
static bool visiting;

/* Somebody may be moving it. */
static unsigned refused_so_far(void)
{
    unsigned refused = 0;

    for (unsigned i = 0; i < oracle.lives; i++)
        refused += oracle.life[i].refused;
    return refused;
}

/*
 * G3: never less than what calls had made so that had returned, nor more than calls may have made
 * so by now; what is withdrawn may be seen late, but not be seen no more.
 */
static void check_stats(void)
{
    unsigned accepted = oracle.accepted, refused = refused_so_far();
    uint64_t *cancelled = &oracle.cancelled[sim_current->index], most;
    hwt_stats stats;

    hwt_stats_init(&stats);
    call_begins(NULL, "counts all", true);
    SIM_CHECK(hwt_timer_stats(oracle.timer, &stats) == 0, "stats fail");
    call_ends(NULL);
    most = oracle.lives - refused; /* or more: refused since, or to be */
    SIM_CHECK(stats.scheduled >= accepted && stats.scheduled <= most,
              "G3: %llu scheduled, %u accepted, %u begun", (unsigned long long)stats.scheduled,
              accepted, (unsigned)most);
    SIM_CHECK(stats.cancelled >= *cancelled && stats.cancelled <= stats.scheduled,
              "G3: %llu cancelled, and before %llu", (unsigned long long)stats.cancelled,
              (unsigned long long)*cancelled);
    SIM_CHECK(stats.expired <= stats.scheduled &&
                  stats.expired + stats.cancelled + stats.unprocessed <= stats.scheduled,
              "G3: %llu expired, %llu cancelled, %llu unprocessed of %llu",
              (unsigned long long)stats.expired, (unsigned long long)stats.cancelled,
              (unsigned long long)stats.unprocessed, (unsigned long long)stats.scheduled);
    *cancelled = stats.cancelled;
}

/* One that runs and is re-armed meanwhile had ended while it ran. */
static void check_pending(void)
{
    uint64_t pending, *least = &fewest[sim_current->index];

    *least = UINT64_MAX;
    look_at_pending();
    call_begins(NULL, "counts", true);
    pending = hwt_timer_pending(oracle.timer);
    call_ends(NULL);
    look_at_pending();
    SIM_CHECK(pending >= *least && pending <= oracle.lives, "G3: %llu pending, of at least %llu",
              (unsigned long long)pending, (unsigned long long)*least);
    SIM_CHECK(!oracle.world->max_pending || pending <= oracle.world->max_pending,
              "G3: %llu pending, beyond the limit", (unsigned long long)pending);
    if (oracle.world->counts)
        check_stats();
}

static void visit(uint64_t goes_to)
{
    struct next_snapshot before;
    unsigned runs[LIVES_MOST];
    bool was[LIVES_MOST] = {false};
    unsigned advances, advances_begun;
    int64_t shown, count = 0;

    if (visiting)
        return;
    visiting = true;
    shown_goes_to = goes_to;
    for (unsigned i = 0; i < oracle.lives; i++) {
        oracle.life[i].shown = 0;
        runs[i] = oracle.life[i].runs;
        was[i] = is_known_pending(&oracle.life[i]);
    }
    oracle_before_next(&before);
    advances = count_advances();
    advances_begun = oracle.advances_begun;
    oracle.visit_is_late = oracle.advance_waits;
    call_begins(NULL, "visits, not", true);
    shown = hwt_timer_visit(oracle.timer, visitor, (void *)(uintptr_t)sim_current->index);
    call_ends(NULL);
    visiting = false;
    SIM_CHECK(shown != -EBUSY || advances || oracle.advances_begun != advances_begun,
              "C16: nobody advances, and visit says -EBUSY");
    trace_say("shown: %lld", (long long)shown);
    SIM_CHECK(shown >= 0 || shown == -EBUSY || shown == -EOWNERDEAD || shown == -ESHUTDOWN ||
                  shown == -EDEADLK,
              "visit fails with %lld", (long long)shown);
    for (unsigned i = 0; i < oracle.lives; i++)
        count += oracle.life[i].shown;
    SIM_CHECK(shown < 0 || shown == count, "%lld shown, %lld counted", (long long)count,
              (long long)shown);
    for (unsigned i = 0; shown >= 0 && i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        SIM_CHECK(
            ((before.deadline[i] == UINT64_MAX || before.calls[i] != life->calls) && !was[i]) ||
                !oracle_is_pending(life) || life->in_flight || life->shown ||
                life->runs != runs[i] || life->jobs,
            "timeout %u is pending, and was not shown", i);
    }
}

static int advance(void)
{
    unsigned others = count_advances(), begun = ++oracle.advances_begun;
    int ran;

    oracle.advances++;
    oracle.advance_of[sim_current->index] = begun;
    call_begins(NULL, "advances", true);
    if (!oracle.in_pass && !others) /* otherwise one may be on, of which nothing is known */
        oracle_pass_begins();
    ran = hwt_timer_advance(oracle.timer);
    if (ran != -EBUSY)
        oracle_pass_ends(ran >= 0 && others == 0 && oracle.advances_begun == begun);
    oracle.advances--;
    oracle.advance_of[sim_current->index] = 0;
    SIM_CHECK(ran != -EBUSY || others || oracle.advances_begun != begun,
              "C16: nobody else advances, and advance says -EBUSY");
    SIM_CHECK(!oracle.in_child || ran == -ECHILD, "G12: advance in the child: %d", ran);
    call_ends(NULL);
    trace_say("advance: %d", ran);
    if (ran == -ESHUTDOWN)
        sim_end_edges(&oracle.told);
    SIM_CHECK(ran >= 0 || ran == -EBUSY || ran == -ESHUTDOWN || ran == -EDEADLK,
              "advance fails with %d", ran);
    return ran;
}

static void stop(void)
{
    hwt_unprocessed list = {NULL, 0};
    int result;

    oracle.stopping = true;
    oracle.ends++;
    sim_forbidden_lock = NULL; /* who comes too late is told so under the lock */
    call_begins(NULL, "stops, not", true);
    oracle.stops |= 1u << sim_current->index;
    result = hwt_timer_stop(oracle.timer, oracle.program->hands_back ? &list : NULL);
    oracle.stops &= ~(1u << sim_current->index);
    SIM_CHECK(!oracle.in_child || result == -ECHILD, "G12: stop in the child: %d", result);
    call_ends(NULL);
    SIM_CHECK(result == 0, "stop fails with %d", result);
    SIM_CHECK(oracle.running == 0 || oracle.world->executor, "G8: stop has returned, a task runs");
    oracle.stopped = true;
    if (oracle.program->hands_back)
        oracle_handed_back(&list);
}

/* A drain that had time, and nobody but it has ended the timer: what was accepted has run. */
static void check_drained(void)
{
    for (unsigned i = 0; i < oracle.lives; i++)
        SIM_CHECK(!oracle.life[i].back || oracle.life[i].periodic,
                  "C18: timeout %u is handed back by a drain that had time for it", i);
}

/* All has ended when it returns, or comes back; it may also come back from a stop beside it. */
static void drain(uint64_t max)
{
    hwt_unprocessed list = {NULL, 0};
    uint64_t until = deadline_after(oracle_now(), max);
    bool alone = !oracle.stopping && !oracle.lost;
    int result;

    if (oracle.world->drive == HWT_DRIVE_CALLER)
        return;
    oracle.stopping = true;
    oracle.ends++;
    sim_forbidden_lock = NULL;
    call_begins(NULL, "drains, not", true);
    result = hwt_timer_drain(oracle.timer, max, oracle.program->hands_back ? &list : NULL);
    call_ends(NULL);
    SIM_CHECK(result == 0, "drain fails with %d", result);
    SIM_CHECK(oracle.running == 0 || oracle.world->executor, "G8: drain has returned, a task runs");
    SIM_CHECK(hwt_timer_is_stopped(oracle.timer), "drained, and not stopped");
    oracle.stopped = true;
    if (oracle.program->hands_back)
        oracle_handed_back(&list);
    if (alone && oracle.ends == 1 && !oracle.lost && oracle_now() < until)
        check_drained();
}

/* ---- tasks and hooks ---- */

static struct life *shared(unsigned index)
{
    return oracle.program->shared ? &oracle.life[index % oracle.program->shared] : NULL;
}

static void rearm(struct life *life, hwt_timeout *timeout, uint64_t delay)
{
    if (life->runs >= 3)
        return;
    life->rearms++; /* it may be cancelled, but not run, before this returns */
    life->armed_in = oracle.advance_of[sim_current->index];
    if (!hwt_timeout_reschedule(timeout, delay))
        life->rearms--;
    else
        life->rearmed = true;
}

/* Its own next run counts, too (C15). */
static void rearm_and_ask(struct life *life, hwt_timeout *timeout)
{
    uint64_t word, answer;

    rearm(life, timeout, 2 * TICK);
    word = load_relaxed(&timeout->word);
    answer = next();
    SIM_CHECK(word_code(word) != WORD_REARMED || word != load_relaxed(&timeout->word) ||
                  answer <= word_deadline(word) || oracle.stopping,
              "C15: a task is re-armed for %llu, next is %llu",
              (unsigned long long)word_deadline(word), (unsigned long long)answer);
}

/* The history's first thread has it from now on. */
static void take_handle(struct life *life, hwt_timeout *timeout)
{
    if (life->held || life->submitter)
        return;
    look_at_pending();
    oracle_know_block(life, hwt_timeout_ref(timeout));
    life->held = 1;
}

static void drop_all(void);
static void fork_here(const struct life *life);

/* A thread that advances, but not the history's first, ends in a task. */
static void end_driver(struct life *life)
{
    if (sim_current->index == 0)
        return;
    look_at_pending();
    oracle_run_ends(life);
    oracle_pass_ends(false);
    oracle.calls--;
    oracle.advances--;
    oracle.advance_waits = oracle.visit_is_late = false;
    oracle.left |= (uint8_t)(1u << sim_current->index);
    drop_all();
    sim_pthread_exit(NULL);
}

static void behave(struct life *life, hwt_timeout *timeout)
{
    struct life *other;

    switch ((enum conduct)life->conduct) {
    case REARMS_NOW: rearm(life, timeout, 0); break;
    case REARMS_LATER: rearm(life, timeout, 2 * TICK); break;
    case REARMS_ONCE_AND_IS_SLOW:
        if (life->runs == 1)
            rearm(life, timeout, TICK);
        sim_sleep(SLOW);
        break;
    case SCHEDULES: schedule(DOES_NOTHING, life->runs & 1 ? 0 : TICK, false, false, false); break;
    case CANCELS_SHARED:
        other = shared(life->runs);
        if (other && other != life && other->held && holds(other))
            cancel(other);
        break;
    case MOVES_SHARED:
        other = shared(life->runs);
        if (other && other != life && holds(other))
            move(other, TICK / 2, false);
        break;
    case IS_SLOW: sim_sleep(SLOW); break;
    case ASKS_NEXT: next(); break;
    case CANCELS_ITSELF:
        if (life->runs == 2 || !life->periodic) {
            bool won = hwt_timeout_cancel(timeout);
            life->wins += won;
            life->no_more = true;
            SIM_CHECK(life->wins <= 1, "G2: a timeout is cancelled twice");
        }
        break;
    case ENDS_THREAD:
        if (oracle.world->drive == HWT_DRIVE_CALLER) {
            end_driver(life);
        } else if (!oracle.lost) {
            oracle.lost = true;
            sim_forbidden_lock = NULL;
            look_at_pending();
            oracle_run_ends(life);
            sim_pthread_exit(NULL);
        }
        break;
    case DAWDLES:
        for (unsigned i = 0; i < 40; i++)
            sim_point((uintptr_t)behave, 0);
        break;
    case FORKS: fork_here(life); break;
    case REARMS_AND_ASKS: rearm_and_ask(life, timeout); break;
    case TAKES_HANDLE: take_handle(life, timeout); break;
    case HOOK_ENDS_THREAD:
        rearm(life, timeout, 2 * TICK);
        sim_sleep(SLOW);
        break;
    case DOES_NOTHING:
    case CONDUCT_COUNT: break;
    }
}

static void task(hwt_timeout *timeout, void *arg)
{
    struct life *life = arg;
    const char *before = sim_current->may_not_wait;

    sim_current->may_not_wait = NULL;
    oracle_run_begins(life, timeout);
    behave(life, timeout);
    look_at_pending();
    oracle_run_ends(life);
    sim_current->may_not_wait = before;
}

static void hook(hwt_timeout *timeout, void *arg)
{
    const struct life *life = arg;

    oracle_hook(arg, timeout);
    if (life->conduct == FORKS)
        fork_here(life);
    if (life->conduct == HOOK_ENDS_THREAD && !oracle.lost && oracle.sleeper == sim_current) {
        oracle.lost = true;
        sim_forbidden_lock = NULL;
        sim_pthread_exit(NULL);
    }
}

static void release(void *arg)
{
    oracle_release(arg);
}

/* ---- the executor ---- */

static struct {
    void (*run[LIVES_MOST])(void *job);
    void *job[LIVES_MOST];
    unsigned first, count;
    bool quit;
    uint32_t *lock; /* what its own lock would make known */
} queue;

/*
 * NULL: it has ended, and its argument may have been released. A look that nobody notices: an
 * executor has no right to it.
 */
static struct life *life_of(void *job)
{
    struct sim_thread *me = sim_current;
    const hwt_timeout *timeout = job;
    struct life *life = NULL;

    sim_current = NULL;
    if (word_code(load_relaxed(&timeout->word)) < WORD_EXPIRED)
        life = hwt_timeout_arg(timeout);
    sim_current = me;
    return life;
}

static int execute(void *executor, void (*run)(void *job), void *job)
{
    struct life *life;

    (void)executor;
    oracle.happened++;
    if (oracle.world->executor_refuses && sim_choose(EVENT_CHOICE, 1, 6) > 0) {
        life = life_of(job);
        if (life)
            life->turned_away++;
        trace_say("the executor refuses");
        return -1;
    }
    if (oracle.world->executor == EXECUTOR_RUNS_AT_ONCE) {
        run(job);
        return 0;
    }
    SIM_CHECK(queue.count < LIVES_MOST, "the world's executor is full");
    queue.run[(queue.first + queue.count) % LIVES_MOST] = run;
    queue.job[(queue.first + queue.count) % LIVES_MOST] = job;
    queue.count++;
    memory_release((uintptr_t)queue.lock);
    sim_wake((uintptr_t)queue.lock, true);
    return 0;
}

static void *executor_main(void *arg)
{
    struct life *life;

    (void)arg;
    for (;;) {
        unsigned at = queue.first;
        if (queue.count == 0) {
            if (queue.quit)
                return NULL;
            sim_wait((uintptr_t)queue.lock, UINT64_MAX, "a job");
            continue;
        }
        queue.first = (queue.first + 1) % LIVES_MOST;
        queue.count--;
        memory_acquire((uintptr_t)queue.lock);
        sim_point((uintptr_t)executor_main, 0);
        life = life_of(queue.job[at]);
        if (life)
            life->jobs++;
        queue.run[at](queue.job[at]);
        look_at_pending();
        if (life)
            life->jobs--;
        if (oracle.in_child) /* in which there is no other thread */
            sim_end_child();
        oracle_check_sleep();
    }
}

/* ---- a timer ---- */

static uint64_t callers_clock(void *clock)
{
    static const uint64_t jumps[] = {5 * TICK, 9 * TICK, -(5 * TICK), -(9 * TICK)};
    unsigned jump;

    (void)clock;
    sim_point((uintptr_t)callers_clock, 0);
    jump = sim_choose(EVENT_CHOICE, sizeof jumps / sizeof jumps[0], 5);
    if (jump > 0) {
        oracle.ahead += jumps[jump - 1];
        trace_say("the clock jumps to %llu", (unsigned long long)oracle_now());
    }
    return oracle_read_clock();
}

static void ignore(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

static int create(hwt_timer **timer, const struct world *world, bool hashed)
{
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = TICK;
    config.ticks_per_wheel = world->narrow ? 2 : 4;
    config.wheel = hashed ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    config.drive = world->drive;
    config.max_pending = world->max_pending;
    config.reserve = world->reserve;
    if (world->boottime)
        config.clock_id = CLOCK_BOOTTIME;
    config.log = ignore;
    if (world->callers_clock)
        config.now = callers_clock;
    if (world->executor)
        config.execute = execute;
    return hwt_timer_create(timer, &config);
}

static void nothing(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* A timer of its own, from beginning to end, beside the other. */
static void another_timer(void)
{
    static const struct world plain = {.drive = HWT_DRIVE_CALLER};
    hwt_timer *timer;
    hwt_timeout *timeout = NULL;

    if (create(&timer, &plain, false) != 0)
        return;
    if (hwt_new_timeout(timer, nothing, NULL, TICK, &timeout) == 0) {
        hwt_timer_advance(timer);
        hwt_timeout_cancel(timeout);
        hwt_timeout_unref(timeout);
    }
    SIM_CHECK(hwt_timer_destroy(timer) == 0, "destroy fails");
}

/* ---- the pool alone ---- */

#define BLOCKS_MOST 16

static struct taken {
    hwt_timeout *block[BLOCKS_MOST];
    unsigned count;
} taken[PRODUCERS_MOST];

static void take_blocks(unsigned producer, unsigned count)
{
    for (; count > 0 && taken[producer].count < BLOCKS_MOST; count--) {
        hwt_timeout *block = pool_take();
        if (!block)
            return;
        sim_plain_write(&block->link, offsetof(hwt_timeout, refs) - offsetof(hwt_timeout, link));
        store_relaxed(&block->word, word_make(sim_now, WORD_PENDING)); /* at no point */
        taken[producer].block[taken[producer].count++] = block;
    }
}

/* The last ones, but of these the one at `first` before the others. */
static void give_blocks(unsigned producer, unsigned count, unsigned first)
{
    struct taken *mine = &taken[producer];

    for (; count > 0 && mine->count > 0; count--) {
        hwt_timeout **last = &mine->block[--mine->count], *block = *last;
        if (first < mine->count) {
            *last = mine->block[first];
            mine->block[first] = block;
            block = *last;
        }
        pool_give(block);
    }
}

/* Its handle, for others; their own reference to it is taken at one moment. */
static hwt_timeout *round_handle;

static void do_round(void)
{
    static const struct world plain = {.drive = HWT_DRIVE_CALLER};
    hwt_timeout *timeout = NULL, *before;
    hwt_timer *timer;

    if (create(&timer, &plain, false) != 0)
        return;
    if (hwt_new_timeout(timer, nothing, NULL, HOUR, &timeout) == 0) {
        memory_release((uintptr_t)queue.lock);
        memory_acquire((uintptr_t)queue.lock);
        before = round_handle;
        round_handle = timeout;
        hwt_timeout_unref(before);
    }
    SIM_CHECK(hwt_timer_destroy(timer) == 0, "destroy fails");
}

static void move_round(uint64_t delay)
{
    hwt_timeout *timeout;

    if (!round_handle)
        return;
    sim_calm++;
    memory_acquire((uintptr_t)queue.lock);
    timeout = hwt_timeout_ref(round_handle);
    sim_calm--;
    hwt_timeout_reschedule_at(timeout, oracle_now() + delay);
    hwt_timeout_unref(timeout);
}

/* ---- forks ---- */

static void in_child(void *arg)
{
    struct life *life = shared(0);

    (void)arg;
    trace_say("the child");
    oracle_check_slabs();
    if (oracle.destroyed) {
        another_timer();
        return;
    }
    SIM_CHECK(hwt_new_timeout(oracle.timer, nothing, NULL, 0, NULL) == -ECHILD,
              "G12: the parent's timer takes a timeout");
    SIM_CHECK(hwt_timer_stop(oracle.timer, NULL) == -ECHILD, "G12: the parent's timer is stopped");
    if (life && holds(life)) {
        SIM_CHECK(!hwt_timeout_cancel(life->timeout), "G12: the parent's timeout is cancelled");
        SIM_CHECK(!hwt_timeout_reschedule(life->timeout, 0), "G12: the parent's timeout is moved");
    }
    another_timer();
    SIM_CHECK(hwt_timer_destroy(oracle.timer) == 0, "G12: destroy fails in the child");
    another_timer();
    if (life && holds(life))
        SIM_CHECK(!hwt_timeout_cancel(life->timeout), "G12: a dead timer's timeout is cancelled");
    pool_trim();
    another_timer();
}

/* In the child of a task or hook, when the call that it returned to has been left. */
static void after_callback(void)
{
    if (!oracle.destroyed)
        SIM_CHECK(hwt_timer_destroy(oracle.timer) == 0, "G12: destroy fails in the child");
    another_timer();
}

static void fork_here(const struct life *life)
{
    if (!sim_fork_here(after_callback))
        return;
    trace_say("the child, in a callback");
    oracle.in_child = true;
    SIM_CHECK(hwt_new_timeout(oracle.timer, nothing, NULL, 0, NULL) == -ECHILD,
              "G12: the parent's timer takes a timeout");
    SIM_CHECK(hwt_timer_stop(oracle.timer, NULL) == -ECHILD, "G12: the parent's timer is stopped");
    if (holds(life))
        SIM_CHECK(!hwt_timeout_cancel(life->timeout), "G12: the parent's timeout is cancelled");
    another_timer();
    if (sim_choose(EVENT_CHOICE, 1, 2) > 0) {
        oracle.destroyed = true;
        SIM_CHECK(hwt_timer_destroy(oracle.timer) == 0, "G12: destroy fails in a callback");
        another_timer();
    }
}

/* ---- producers ---- */

static struct life *own_life[SIM_THREADS][OPS_MOST]; /* by producer */

static bool is_handler(unsigned producer)
{
    return producer + oracle.world->handlers >= oracle.program->producers &&
           oracle.program->producers > oracle.world->handlers;
}

static struct life *target_of(unsigned producer, const struct op *op)
{
    unsigned target = op->target;

    if (target < oracle.program->shared)
        return &oracle.life[target];
    return own_life[producer][(target - oracle.program->shared) % OPS_MOST];
}

static bool needs_timer(const struct op *op)
{
    switch ((enum op_code)op->code) {
    case OP_CANCEL:
    case OP_CANCEL_SYNC:
    case OP_MOVE:
    case OP_MOVE_AT:
    case OP_DROP:
    case OP_REF:
    case OP_LOOK:
    case OP_SLEEP:
    case OP_TRIM:
    case OP_TAKE:
    case OP_GIVE:
    case OP_SHUFFLE:
    case OP_BLOCKS:
    case OP_ROUND:
    case OP_MOVE_ROUND:
    case OP_FORK:
    case OP_OTHER_TIMER: return false;
    default: return true;
    }
}

static void with_handle(struct life *life, const struct op *op)
{
    if (!holds(life))
        return;
    switch ((enum op_code)op->code) {
    case OP_CANCEL: cancel(life); break;
    case OP_CANCEL_SYNC: cancel_sync(life); break;
    case OP_MOVE: move(life, delays[op->delay], false); break;
    case OP_MOVE_AT: move(life, delays[op->delay], true); break;
    case OP_RENEW: renew(life, delays[op->delay]); break;
    case OP_DROP: drop(life); break;
    case OP_REF:
        hwt_timeout_ref(life->timeout);
        hwt_timeout_unref(life->timeout);
        break;
    default: look(life); break;
    }
}

static void trim(void)
{
    call_begins(NULL, "trims, not", true);
    oracle.trimming = oracle.calls == 1 ? oracle.begun : 0;
    oracle.trims++;
    pool_trim();
    oracle.trims--;
    call_ends(NULL);
}

static void cycle_blocks(unsigned count)
{
    hwt_timeout *block[LIVES_MOST];

    call_begins(NULL, "takes blocks, not", true);
    for (unsigned i = 0; i < count; i++) {
        block[i] = pool_take();
        SIM_CHECK(block[i], "no block of the pool");
        sim_plain_write(&block[i]->task, sizeof block[i]->task);
    }
    for (unsigned i = 0; i < count; i++) {
        sim_plain_write(&block[i]->task, sizeof block[i]->task);
        pool_give(block[i]);
    }
    call_ends(NULL);
}

/* The worker, perhaps; no time passes for that. */
static void let_others(void)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        bool can = sim_threads[i].state == READY || sim_threads[i].state == SUSPENDED;
        if (can && &sim_threads[i] != sim_current) {
            sim_yield((uintptr_t)let_others);
            return;
        }
    }
}

static void fleeting(const struct op *op)
{
    struct life *life = schedule(op->conduct, delays[op->delay], true, false, false);

    if (life && holds(life))
        cancel(life);
    if (life && holds(life))
        drop(life);
}

static void do_op(unsigned producer, unsigned i)
{
    const struct op *op = &oracle.program->op[producer][i];

    if (op->removed || (is_handler(producer) && needs_timer(op)))
        return;
    switch ((enum op_code)op->code) {
    case OP_SCHEDULE:
    case OP_FORGET:
    case OP_PERIODIC:
        own_life[producer][i] =
            schedule(op->conduct, delays[op->delay], op->code != OP_FORGET, op->code == OP_PERIODIC,
                     oracle.world->hooks && (op->target & 1));
        break;
    case OP_FLEETING: fleeting(op); break;
    case OP_SLEEP: sim_sleep(op->delay < 7 ? delays[op->delay] + 1 : 20 * TICK); break;
    case OP_PENDING: check_pending(); break;
    case OP_NEXT:
        if (op->delay & 1)
            let_others();
        next();
        break;
    case OP_VISIT: visit(delays[op->delay]); break;
    case OP_DRAIN: drain(delays[op->delay]); break;
    case OP_STOP: stop(); break;
    case OP_START: hwt_timer_start(oracle.timer); break;
    case OP_TRIM: trim(); break;
    case OP_ADVANCE: advance(); break;
    case OP_DESCRIPTOR:
        call_begins(NULL, "takes the descriptor, not of", true);
        hwt_timer_fd(oracle.timer);
        call_ends(NULL);
        break;
    case OP_FORK: sim_fork(in_child, NULL); break;
    case OP_OTHER_TIMER: another_timer(); break;
    case OP_TAKE: take_blocks(producer, op->delay % 4u + 1); break;
    case OP_GIVE: give_blocks(producer, op->delay % 4u + 1, op->target); break;
    case OP_SHUFFLE:
        take_blocks(producer, op->delay % 4u + 1);
        give_blocks(producer, op->delay % 4u + 1, op->target);
        pool_trim();
        break;
    case OP_BLOCKS: cycle_blocks(op->delay + 1); break;
    case OP_ROUND: do_round(); break;
    case OP_MOVE_ROUND: move_round(HOUR / 2 - delays[op->delay]); break;
    case OP_NONE:
    case OP_COUNT: break;
    default: with_handle(target_of(producer, op), op); break;
    }
}

static void drop_all(void)
{
    for (unsigned i = 0; i < oracle.lives; i++) {
        if (holds(&oracle.life[i]))
            drop(&oracle.life[i]);
    }
}

static void *producer_main(void *arg)
{
    unsigned producer = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; i < oracle.program->ops; i++)
        do_op(producer, i);
    give_blocks(producer, BLOCKS_MOST, 0);
    drop_all();
    return NULL;
}

/* ---- whoever drives, by the descriptor ---- */

/* Not by who drives: by others' submissions, while somebody does; there are no more of these. */
#define IN_VAIN 20

static void *loop_main(void *arg)
{
    int ran;

    (void)arg;
    do {
        oracle.fd = hwt_timer_fd(oracle.timer);
        if (oracle.fd < 0) {
            SIM_CHECK(oracle.stopping || oracle.world->faults, "no descriptor: %d", oracle.fd);
            ran = advance();
            sim_yield((uintptr_t)loop_main);
            continue;
        }
        if (oracle.world->loops == 1)
            sim_wait_readable(oracle.fd, UINT64_MAX);
        else if (!sim_wait_edge(oracle.fd, &oracle.told))
            break;
        ran = advance();
        if (ran == -EBUSY && oracle.world->loops == 1)
            sim_yield((uintptr_t)loop_main);
        SIM_CHECK(oracle.world->loops == 1 || ran != -EBUSY || ++oracle.in_vain <= IN_VAIN,
                  "C16: woken in vain again and again");
    } while (ran != -ESHUTDOWN);
    SIM_CHECK(oracle.world->loops > 1 || !sim_is_readable(oracle.fd),
              "C11: the descriptor is readable after the stop");
    return NULL;
}

/* ---- the whole ---- */

/* A thread of the history shares what is there from the beginning. */
static void share_with(unsigned thread)
{
    for (unsigned i = 0; i < oracle.program->shared; i++) {
        struct life *life = &oracle.life[i];
        if (!life->accepted)
            continue;
        hwt_timeout_ref(life->timeout);
        life->held |= (uint8_t)(1u << thread);
    }
}

static void settle(void)
{
    for (unsigned i = 0; i < 6; i++) {
        if (oracle.world->drive == HWT_DRIVE_CALLER && oracle.world->loops == 0) {
            uint64_t at = next();
            if (at != UINT64_MAX && at > oracle_now() && at < oracle_now() + HOUR / 2)
                sim_sleep(at - oracle_now());
            advance();
        } else {
            sim_sleep(10 * TICK);
        }
    }
    if (oracle.stopping || oracle.lost || oracle.world->executor || oracle.running ||
        oracle.advances || !oracle.sleeper || oracle.sleeper->state != WAITING)
        return;
    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        SIM_CHECK(!life->accepted || !life->known || life->in_flight || life->periodic ||
                      !oracle_is_pending(life) || life->latest + 8 * TICK > oracle_now(),
                  "G4: timeout %u was due, and has not run", i);
    }
}

/* So that what is taken later comes from other slabs than the first. */
static struct {
    hwt_timeout *block[256];
    unsigned count;
} held;

static void hold_blocks(unsigned count)
{
    for (held.count = 0; held.count < count; held.count++) {
        held.block[held.count] = pool_take();
        SIM_CHECK(held.block[held.count], "no block of the pool");
    }
}

static void release_blocks(void)
{
    while (held.count > 0)
        pool_give(held.block[--held.count]);
}

/* Each has what it reserves. */
static void reserve_twice(const struct world *world)
{
    hwt_timer *timer;

    SIM_CHECK(create(&timer, world, false) == 0, "create fails");
    SIM_CHECK(slab_available() >= 2 * world->reserve, "C12: %zu blocks for two reserves of %zu",
              slab_available(), world->reserve);
    SIM_CHECK(hwt_timer_destroy(timer) == 0, "destroy fails");
}

/* Nobody else is there yet. */
static void have_met(unsigned count)
{
    sim_calm--;
    SIM_CHECK(hwt_timer_visit(oracle.timer, nothing, NULL) <= count, "more than there are");
    sim_calm++;
}

static void begin(unsigned *producers, unsigned *others, unsigned *other_count)
{
    const struct world *world = oracle.world;
    const struct program *program = oracle.program;

    sim_calm++;
    sim_one_cpu = world->one_cpu;
    sim_wanders = world->wanders;
    sim_stays = world->stays;
    sim_no_maps_from = SIZE_MAX;
    sim_no_chunks = false;
    sim_pages_go = oracle_pages_go;
    sim_all_wait = oracle_check_waits;
    SIM_CHECK(create(&oracle.timer, world, program->hashed) == 0, "create fails");
    if (!world->not_started)
        SIM_CHECK(hwt_timer_start(oracle.timer) == 0, "start fails");
    if (world->reserve && program->second_timer)
        reserve_twice(world);
    oracle.created = true;
    sim_no_maps_from = world->no_segments ? SEGMENT_SIZE : SIZE_MAX;
    sim_no_chunks = world->no_chunks;
    sim_forbidden_lock = world->not_started ? NULL : &oracle.timer->mutex;
    take_blocks(0, world->blocks);
    give_blocks(0, world->blocks, 0);
    if (world->weight[OP_SHUFFLE])
        pool_trim();
    for (unsigned i = 0; i < program->shared; i++)
        schedule(program->shared_conduct[i], delays[program->shared_delay[i]], true, false,
                 world->hooks && i == 0);
    if (world->met)
        have_met(program->shared);
    if (world->still)
        store_seq(&oracle.timer->still, 1);
    for (unsigned i = 0; i < world->crowd; i++)
        schedule(world->crowd_is_due ? IS_SLOW : DOES_NOTHING,
                 world->crowd_is_due ? i / 3 * 2 : HOUR, false, false, false);
    hold_blocks(world->held_blocks);
    if (world->blocks_free)
        release_blocks();
    for (unsigned i = 0; i < program->producers; i++) {
        producers[i] = sim_start(producer_main, (void *)(uintptr_t)i);
        share_with(producers[i]);
    }
    for (unsigned i = 0; i < world->executor_threads; i++)
        others[(*other_count)++] = sim_start(executor_main, NULL);
    for (unsigned i = 0; i < world->loops; i++) {
        others[*other_count] = sim_start(loop_main, NULL);
        oracle.sleeper = &sim_threads[others[(*other_count)++]];
    }
    sim_calm--;
    sim_fail_one_in = world->faults ? 12 : 0;
    sim_stay_one_in = world->pages_stay ? 3 : 0;
    sim_interrupt_one_in = 30;
    sim_time_one_in = world->quick ? 2000 : 40;
    sim_time_step = TICK;
    sim_clock_jumps = world->weight[OP_PERIODIC] == 0; /* thousands of runs to catch up on */
}

/* What goes on with the shell of a timer that is no more (C10). */
static void second_timer(void)
{
    hwt_timer *timer;
    hwt_timeout *timeout = NULL;
    uint64_t pending;

    if (create(&timer, oracle.world, oracle.program->hashed) != 0)
        return;
    if (hwt_new_timeout(timer, nothing, NULL, HOUR, &timeout) == 0) {
        pending = hwt_timer_pending(timer);
        SIM_CHECK(pending == 1, "G3: %llu pending of 1", (unsigned long long)pending);
        SIM_CHECK(hwt_timeout_cancel(timeout), "the second timer's timeout is over");
        pending = hwt_timer_pending(timer);
        SIM_CHECK(pending == 0, "G3: %llu pending of 0", (unsigned long long)pending);
        hwt_timeout_unref(timeout);
    }
    SIM_CHECK(hwt_timer_destroy(timer) == 0, "destroy fails");
}

static void end_others(const unsigned *others, unsigned count)
{
    oracle.quit = queue.quit = true;
    sim_wake((uintptr_t)queue.lock, true);
    for (unsigned i = 0; i < count; i++)
        sim_join(others[i]);
}

void world_main(void *arg)
{
    const struct run *run = arg;
    unsigned producers[PRODUCERS_MOST], others[4], other_count = 0;

    oracle_reset(run->world, run->program);
    sim_forbidden_lock = NULL;
    memset(own_life, 0, sizeof own_life);
    memset(taken, 0, sizeof taken);
    visiting = false;
    memset(&queue, 0, sizeof queue);
    round_handle = NULL;
    queue.lock = memory_take(64, 64);
    begin(producers, others, &other_count);
    if (run->world->hasty && !run->world->handlers && run->program->second_timer)
        stop();
    for (unsigned i = 0; i < run->program->producers; i++) {
        if (!is_handler(i))
            sim_join(producers[i]);
    }
    if (run->program->settles)
        settle();
    sim_fail_one_in = 0;
    sim_no_maps_from = SIZE_MAX;
    sim_no_chunks = false;
    stop();
    while (other_count > run->world->executor_threads) /* the loop; jobs outlive the timer */
        sim_join(others[--other_count]);
    oracle_check_stopped();
    SIM_CHECK(oracle.fd < 0 || !sim_is_readable(oracle.fd), "C11: readable after the stop");
    call_begins(NULL, "destroys, not", true);
    oracle.destroyed = true;
    SIM_CHECK(hwt_timer_destroy(oracle.timer) == 0, "destroy fails");
    call_ends(NULL);
    if (!run->world->late_jobs)
        end_others(others, other_count);
    for (unsigned i = 0; i < (run->program->second_timer ? 1 + run->world->handlers : 0); i++)
        second_timer();
    for (unsigned i = 0; i < run->program->producers; i++) {
        if (is_handler(i))
            sim_join(producers[i]);
    }
    if (run->world->late_jobs)
        end_others(others, other_count);
    release_blocks();
    hwt_timeout_unref(round_handle);
    drop_all();
    oracle_check_end();
}
