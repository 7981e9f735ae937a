/* SPDX-License-Identifier: BSD-2-Clause */
/* What must hold, at every step. This file is not instrumented: what it does takes no time. */
#include "oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "slab_map.h"
#include "worker.h"

struct oracle oracle;

#define BOOTTIME_AHEAD UINT64_C(5000000000) /* kernel.c */

uint64_t oracle_now(void)
{
    return sim_now + (oracle.world->boottime ? BOOTTIME_AHEAD : oracle.ahead);
}

/* The caller's clock. */
uint64_t oracle_read_clock(void)
{
    unsigned me = sim_current->index;

    oracle.before[me] = oracle.reading[me];
    oracle.reading[me] = oracle_now();
    return oracle.reading[me];
}

/*
 * What this thread knows to have been reached. A caller's clock may go back between the reading for
 * which a timeout was taken and its run, with one more reading between the two.
 */
static uint64_t reached(void)
{
    unsigned me = sim_current->index;

    return oracle.world->callers_clock ? max_u64(oracle.reading[me], oracle.before[me])
                                       : oracle_now();
}

static unsigned number_of(const struct life *life)
{
    return (unsigned)(life - oracle.life);
}

struct life *oracle_life(uint8_t conduct)
{
    struct life *life;

    if (oracle.lives == LIVES_MOST)
        return NULL;
    life = &oracle.life[oracle.lives++];
    life->conduct = conduct;
    life->payload = memory_take(64, 64);
    return life;
}

/* ---- names for addresses ---- */

static bool within(uintptr_t address, const volatile void *object, size_t size)
{
    return address - (uintptr_t)object < size;
}

static const char *block_field(unsigned offset)
{
    static const char *const fields[] = {"word", "where", "link", "task", "arg", "timer", "stamp"};

    if (offset < 56)
        return fields[offset / 8];
    return offset < 60 ? "refs" : offset == 60 ? "run" : offset == 61 ? "withdrawn" : "flags";
}

/* Read as it is, without a point of its own. */
static const struct segment *next_in_ring(const struct segment *segment)
{
    const struct segment *next;

    memcpy((void *)&next, (const void *)&segment->next, sizeof next);
    return next;
}

static bool name_in_ring(const struct segment *first, unsigned lane, uintptr_t address,
                         char *buffer, size_t size)
{
    const struct segment *segment = first;
    unsigned s = 0;

    while (segment && !within(address, segment, sizeof *segment)) {
        segment = next_in_ring(segment);
        if (segment == first)
            return false;
        s++;
    }
    if (!segment)
        return false;
    if (within(address, segment->slot, sizeof segment->slot))
        snprintf(buffer, size, "lane%u.%u.slot[%zu]", lane, s,
                 (size_t)(address - (uintptr_t)segment->slot) / 8);
    else
        snprintf(buffer, size, "lane%u.%u.%s", lane, s,
                 within(address, &segment->earliest, 8)             ? "earliest"
                 : within(address, &segment->next, 8)               ? "next"
                 : within(address, &segment->retired, 4)            ? "retired"
                 : within(address, &segment->groups_used, 4)        ? "groups_used"
                 : within(address, segment->fresh, LANE_GROUPS)     ? "fresh"
                 : within(address, segment->taken, LANE_GROUPS * 8) ? "taken"
                                                                    : "rest");
    return true;
}

static const char *name_in_lane(const hwt_timer *timer, uintptr_t address, char *buffer,
                                size_t size)
{
    for (unsigned i = 0; timer->lanes.room && i <= timer->lanes.count; i++) {
        const struct lane *lane = &timer->lanes.room[i]; /* made or not */
        const struct {
            const volatile void *at;
            size_t size;
            const char *name;
        } fields[] = {
            {&lane->tail, 8, "tail"},         {&lane->earliest, 8, "earliest"},
            {&lane->closed, 4, "closed"},     {&lane->notices, sizeof lane->notices, "notices"},
            {&lane->moved, 8, "moved"},       {&lane->spill, sizeof lane->spill, "spill"},
            {&lane->spilling, 4, "spilling"}, {&lane->rearmed, sizeof lane->rearmed, "rearmed"},
        };
        for (unsigned f = 0; f < sizeof fields / sizeof fields[0]; f++) {
            if (within(address, fields[f].at, fields[f].size)) {
                snprintf(buffer, size, "lane%u.%s", i, fields[f].name);
                return buffer;
            }
        }
        if (within(address, lane, sizeof *lane)) {
            snprintf(buffer, size, "lane%u+%zu", i, (size_t)(address - (uintptr_t)lane));
            return buffer;
        }
        if (lane->first && name_in_ring(lane->first, i, address, buffer, size))
            return buffer;
    }
    return NULL;
}

static const char *name_of(uintptr_t address, char *buffer, size_t size)
{
    const hwt_timer *timer = oracle.timer;

    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        if (life->timeout && within(address, life->timeout, 64)) {
            snprintf(buffer, size, "timeout%u.%s", i,
                     block_field((unsigned)(address - (uintptr_t)life->timeout)));
            return buffer;
        }
    }
    if (timer && !oracle.destroyed) {
        const struct {
            const volatile void *at;
            size_t size;
            const char *name;
        } fields[] = {
            {&timer->phase, 4, "phase"},
            {&timer->generation, 4, "generation"},
            {&timer->park.wake_before, 8, "wake_before"},
            {&timer->park.parked, 4, "parked"},
            {&timer->park.alarm, 8, "alarm"},
            {&timer->worker.next_deadline, 8, "next_deadline"},
            {&timer->mutex, sizeof timer->mutex, "mutex"},
            {&timer->driver, 4, "driver"},
            {&timer->guests, 8, "guests"},
            {&timer->half, 4, "half"},
            {&timer->rearmed, 4, "rearmed"},
        };
        for (unsigned f = 0; f < sizeof fields / sizeof fields[0]; f++) {
            if (within(address, fields[f].at, fields[f].size)) {
                snprintf(buffer, size, "%s", fields[f].name);
                return buffer;
            }
        }
        if (within(address, timer, sizeof *timer)) {
            snprintf(buffer, size, "timer+%zu", (size_t)(address - (uintptr_t)timer));
            return buffer;
        }
        if (name_in_lane(timer, address, buffer, size))
            return buffer;
    }
    snprintf(buffer, size, "%#jx", (uintmax_t)address);
    return buffer;
}

/* ---- one history ---- */

static void when_waiting(void);

void oracle_reset(const struct world *world, const struct program *program)
{
    memset(&oracle, 0, sizeof oracle);
    oracle.world = world;
    oracle.program = program;
    oracle.fd = -1;
    trace_name_of = name_of;
    sim_when_waiting = when_waiting;
    oracle.happened = 1;
}

void call_begins(struct life *life, const char *what, bool may_wait)
{
    oracle.calls++;
    oracle.happened++;
    oracle.begun++;
    if (life) {
        life->calls++;
        life->in_flight++;
        oracle.excuses++;
        life->told = UINT64_MAX;
        life->order &= ~(UINT64_C(1) << 63); /* its place in the pass that is on is not known */
    }
    if (sim_history->tracing)
        trace_say("%s timeout %d", what, life ? (int)number_of(life) : -1);
    if (!may_wait && !sim_current->may_not_wait)
        sim_current->may_not_wait = what;
}

void call_ends(struct life *life)
{
    oracle.calls--;
    oracle.happened++;
    if (life)
        life->in_flight--;
    sim_current->may_not_wait = NULL;
    for (unsigned i = 0; !oracle.sleeper && i < sim_thread_count; i++) {
        if (sim_threads[i].start == worker_main && sim_threads[i].arg == oracle.timer)
            oracle.sleeper = &sim_threads[i]; /* it was started by this call, perhaps */
    }
    if (oracle.in_child) /* the call that a callback has forked in was left */
        sim_end_child();
}

void oracle_know_block(struct life *life, hwt_timeout *block)
{
    life->timeout = block;
    life->since = ++oracle.blocks;
}

/* A word that is surely there: somebody holds a reference, or it is known to be pending. */
static bool word_of(const struct life *life, uint64_t *word)
{
    if (!life->timeout || !life->held)
        return false;
    *word = load_relaxed(&life->timeout->word);
    return true;
}

bool oracle_is_pending(const struct life *life)
{
    uint64_t word;

    if (!life->accepted || life->wins || life->back || life->no_more)
        return false;
    if (word_of(life, &word))
        return word_code(word) == WORD_PENDING || word_code(word) == WORD_NUDGED;
    return life->runs == 0 && life->calls == 1 && !life->turned_away;
}

/* By when it must have been looked at: the deadline that returned calls have made. */
static bool due_time(const struct life *life, uint64_t *deadline)
{
    uint64_t word;

    if (life->in_flight || life->running || !oracle_is_pending(life))
        return false;
    *deadline = life->latest;
    if (word_of(life, &word))
        *deadline = word_deadline(word);
    else if (!life->known)
        return false;
    return *deadline < DEADLINE_NEVER;
}

void oracle_established(struct life *life, uint64_t deadline, uint64_t latest, unsigned calls,
                        unsigned runs)
{
    life->known = life->in_flight == 0 && life->calls == calls && life->runs == runs;
    life->deadline = min_u64(deadline, DEADLINE_NEVER);
    life->latest = min_u64(latest, DEADLINE_NEVER);
    oracle_check_sleep();
}

/* Until the next deadline: on the futex of its park, or on the descriptor. */
static bool sleeps(const struct sim_thread *thread)
{
    return thread && thread->state == WAITING && !thread->woken &&
           (thread->wait_key == (uintptr_t)&oracle.timer->park.parked ||
            strcmp(thread->waits_for, "a descriptor") == 0);
}

/*
 * Known delays: a descriptor may be set to an older time, by who has not looked yet; or by who
 * looks for the next deadline, and has not returned.
 */
static bool is_being_set(void)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        if (sim_threads[i].setting && sim_threads[i].state != OVER)
            return true;
    }
    return oracle.world->drive == HWT_DRIVE_CALLER && oracle.calls > 0;
}

void oracle_check_sleep(void)
{
    const struct sim_thread *sleeper = oracle.sleeper;
    const hwt_timer *timer = oracle.timer;
    uint64_t deadline, ahead = oracle_now() - sim_now;

    if (!oracle.created || oracle.stopping || oracle.lost || oracle.running || !sleeps(sleeper))
        return;
    if (load_relaxed(&timer->park.kind) == PARK_TIMERFD && is_being_set())
        return;
    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        if (life->jobs) /* known delays: it may have been re-armed, and not be told yet */
            continue;
        if (due_time(life, &deadline) && sleeper->wait_until != UINT64_MAX
                ? sleeper->wait_until + ahead > max_u64(deadline, oracle_now()) + TICK
                : due_time(life, &deadline) && sleeper->wait_until == UINT64_MAX)
            sim_fail("G4: timeout %u is due at %" PRIu64 ", and thread %u sleeps until %" PRIu64, i,
                     deadline, sleeper->index, sleeper->wait_until + ahead);
    }
    if (oracle.calls || oracle.world->drive == HWT_DRIVE_CALLER)
        return;
}

void oracle_check_waits(void)
{
    if (!oracle.created || oracle.destroyed || !sleeps(oracle.sleeper))
        return;
    for (unsigned i = 0; i < sim_thread_count; i++)
        SIM_CHECK(sim_threads[i].state != WAITING ||
                      sim_threads[i].wait_key != (uintptr_t)oracle.sleeper ||
                      oracle.sleeper->start != worker_main,
                  "C4: stop waits, and the worker sleeps");
}

bool oracle_worker_is_over(void)
{
    return oracle.lost && !oracle.stopping && oracle.sleeper && oracle.sleeper->state == OVER;
}

/*
 * What pass.o calls for wheel_check_on: the validators of all of wheel, agenda and buckets after a
 * pass, at one moment; not while something that they look at is still on its way to memory.
 */
void sim_wheel_check(struct wheel *wheel);
void sim_wheel_check(struct wheel *wheel)
{
    struct sim_thread *me = sim_current;

    oracle.advance_waits = oracle.visit_is_late = false;
    if (!me || me->buffered)
        return;
    sim_current = NULL;
    (void)wheel_check(wheel);
    sim_current = me;
}

/*
 * G5: between two sleeps something has happened, or somebody was waited for who has been cancelled
 * or moved later since: the old deadline of such a one is worth one wake-up. Or somebody trims:
 * what he brings home the worker would, and asks now and then whether it is done.
 */
static void check_quiet(void)
{
    if (oracle.happened == oracle.happened_before && sim_current->timed_out_before && !oracle.trims)
        oracle.futile++;
    oracle.happened_before = oracle.happened;
    SIM_CHECK(oracle.futile <= oracle.excuses, "G5: the worker woke %u times for nothing",
              oracle.futile);
}

static void when_waiting(void)
{
    const struct sim_thread *me = sim_current;

    if (oracle.created && me->wait_key == (uintptr_t)&oracle.timer->driver) {
        oracle.advance_waits |= oracle.advance_of[me->index] != 0;
        SIM_CHECK(oracle.stops >> me->index & 1 ||
                      (load_relaxed(&oracle.timer->driver) & 3) == DRIVER_LOOKS,
                  "C16: thread %u waits for a driver that does not only look", me->index);
    }
    if (!oracle.created || oracle.destroyed || sim_current != oracle.sleeper ||
        !sleeps(sim_current))
        return;
    oracle_check_sleep();
    if (oracle.world->drive == HWT_DRIVE_WORKER)
        check_quiet();
}

/* ---- runs ---- */

void oracle_pass_begins(void)
{
    oracle.in_pass = true;
    oracle.pass_began = oracle_now();
    oracle.last = NULL;
    for (unsigned i = 0; i < oracle.lives; i++)
        oracle.life[i].order &= ~(UINT64_C(1) << 63);
    for (unsigned i = 0; i < oracle.lives; i++) {
        if (oracle.life[i].accepted && oracle.life[i].known && !oracle.life[i].in_flight)
            oracle.life[i].order |= UINT64_C(1) << 63; /* its place in this pass is known */
    }
    for (unsigned i = 0; i < oracle.lives; i++) {
        uint64_t deadline;
        oracle.pass_calls[i] = oracle.life[i].calls;
        oracle.pass_deadline[i] =
            due_time(&oracle.life[i], &deadline) && deadline <= oracle_now() ? deadline : 0;
    }
}

static bool goes_by_rate(const struct life *life)
{
    return life->periodic && life->mode == HWT_FIXED_RATE;
}

/* What was due when it began, and nobody has touched since, has run: G14, too. */
static void check_left(void)
{
    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        uint64_t deadline;
        if (!oracle.pass_deadline[i] || life->calls != oracle.pass_calls[i] || life->rearms ||
            !due_time(life, &deadline))
            continue;
        SIM_CHECK(deadline > oracle.pass_deadline[i], "G4: timeout %u was due, and is left", i);
        SIM_CHECK(!goes_by_rate(life) || deadline > oracle.pass_began,
                  "G14: timeout %u has not caught up", i);
    }
}

void oracle_pass_ends(bool done)
{
    if (done && oracle.in_pass && !oracle.stopping && !oracle.world->executor &&
        !oracle.world->callers_clock)
        check_left();
    oracle.in_pass = false;
}

/* G14: which deadline follows another one, if nobody has moved it. */
static void check_period(const struct life *life, uint64_t deadline)
{
    unsigned me = number_of(life);
    uint64_t due = life->last_deadline + life->period;

    if (!life->periodic || life->runs == 0 || life->calls != life->last_calls ||
        !life->last_alone || life->rearms || sim_current->buffered || oracle.world->callers_clock)
        return;
    SIM_CHECK(life->mode != HWT_FIXED_RATE || deadline == due,
              "G14: timeout %u follows %" PRIu64 " at %" PRIu64, me, life->last_deadline, deadline);
    SIM_CHECK(life->mode != HWT_FIXED_RATE_SKIP ||
                  (deadline >= due && (deadline - due) % life->period == 0 &&
                   deadline >= life->run_ended),
              "G14: timeout %u follows %" PRIu64 " at %" PRIu64 ", not in phase", me,
              life->last_deadline, deadline);
    SIM_CHECK(life->mode != HWT_FIXED_DELAY || deadline >= life->run_ended + life->period,
              "G14: timeout %u ended at %" PRIu64 ", and is due at %" PRIu64, me, life->run_ended,
              deadline);
}

/* The last one who had this block; NULL: nobody is known to have had it. */
static const struct life *last_with(const hwt_timeout *block)
{
    const struct life *last = NULL;

    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        if (life->timeout == block && (!last || life->since > last->since))
            last = life;
    }
    return last;
}

/* G6: what was cancelled before the last two hands began has been met, and is in no lane. */
static void check_notices(void)
{
    for (unsigned i = 0; i <= oracle.timer->lanes.count; i++) {
        const ck_stack_entry_t *link = oracle.timer->lanes.room[i].notices.head;
        for (; link; link = link->next) {
            const struct life *life = last_with(container_of(link, const hwt_timeout, link));
            SIM_CHECK(!life || !life->wins || !life->runs_before_win || life->in_flight ||
                          oracle.runs - life->runs_before_win < 2 * HAND + 1,
                      "G6: timeout %u was cancelled %u runs ago, and is not met", number_of(life),
                      oracle.runs - life->runs_before_win);
        }
    }
}

static bool out_of_order(const struct life *before, uint64_t deadline, const struct life *after)
{
    if (deadline != after->deadline)
        return deadline > after->deadline;
    return (before->order ^ after->order) >> 40 << 40 == 0 && before->order > after->order;
}

static void check_order(struct life *life)
{
    if (!oracle.in_pass || !(life->order >> 63) || !life->known || life->runs > 0 ||
        life->deadline != life->latest || oracle.world->executor ||
        life->calls != oracle.pass_calls[number_of(life)])
        return;
    SIM_CHECK(!oracle.last || !out_of_order(oracle.last, oracle.last_deadline, life),
              "G15: timeout %u ran before timeout %u", number_of(oracle.last), number_of(life));
    oracle.last = life;
    oracle.last_deadline = life->deadline;
}

void oracle_run_begins(struct life *life, hwt_timeout *timeout)
{
    unsigned me = number_of(life);
    uint64_t deadline = word_deadline(load_relaxed(&timeout->word));

    trace_say("runs timeout %u", me);
    SIM_CHECK(life->begun && !life->refused, "G2: timeout %u runs, and was not accepted", me);
    SIM_CHECK(!life->running, "G14: timeout %u runs while it runs", me);
    SIM_CHECK(!life->no_more || life->starting,
              "G2: timeout %u runs after a cancellation has returned", me);
    SIM_CHECK(!life->never_again, "G2: timeout %u runs after cancel_sync has returned", me);
    SIM_CHECK(!oracle.stopped && !oracle.destroyed, "G8: timeout %u runs after stop", me);
    SIM_CHECK(!life->back, "G8: timeout %u runs, and was handed back", me);
    SIM_CHECK(life->submitter != sim_current->index + 1, "G11: timeout %u runs in its submission",
              me);
    SIM_CHECK(life->periodic || life->runs <= life->rearms,
              "G2: timeout %u runs %u times after %u re-arms", me, life->runs + 1, life->rearms);
    SIM_CHECK(deadline <= reached(), "G1: timeout %u is early: %" PRIu64 " of %" PRIu64, me,
              reached(), deadline);
    SIM_CHECK(!life->known || life->in_flight || life->periodic || life->runs ||
                  life->deadline <= reached(),
              "G1: timeout %u is early, it was moved", me);
    SIM_CHECK(!life->timeout || !life->held || life->timeout == timeout,
              "G9: timeout %u runs with another block", me);
    check_order(life);
    check_period(life, deadline);
    SIM_CHECK(!life->armed_in || life->in_flight || /* another thread moves it, for now perhaps */
                  life->armed_in != oracle.advance_of[sim_current->index],
              "G11: timeout %u runs in the pass in which a task submitted it", me);
    oracle.runs++;
    if (!oracle.world->executor)
        check_notices();
    sim_plain_read(life->payload, 4); /* what was written before its submission */
    sim_plain_write(life->payload + 4, 4);
    life->running = true;
    life->rearmed = false;
    life->told = UINT64_MAX;
    life->starting = false;
    life->known = false;
    life->last_deadline = deadline;
    life->last_calls = life->calls;
    life->last_alone = life->in_flight == 0;
    life->runs++;
    oracle.running++;
    oracle.happened++;
}

void oracle_run_ends(struct life *life)
{
    sim_plain_write(life->payload + 4, 4);
    life->running = false;
    life->run_ended = oracle_now();
    oracle.running--;
}

void oracle_hook(struct life *life, hwt_timeout *timeout)
{
    unsigned me = number_of(life);

    (void)timeout;
    trace_say("hook of timeout %u", me);
    SIM_CHECK(life->with_hook, "G10: a hook is called that there is not");
    SIM_CHECK(!life->releases, "G16: the hook of timeout %u is called after its release", me);
    SIM_CHECK(life->hooks++ == 0, "G10: the hook of timeout %u is called twice", me);
    SIM_CHECK(!life->back, "G10: timeout %u is handed back, and its hook is called", me);
    SIM_CHECK(!life->running, "G10: the hook of timeout %u is called while it runs", me);
    SIM_CHECK(sim_current->locks == 0, "G10: a hook is called under a lock");
    sim_plain_read(life->payload + 4, 4);
}

/* G16: once and last; who used the argument has made that known to who releases it. */
void oracle_release(struct life *life)
{
    unsigned me = number_of(life);

    trace_say("release of timeout %u", me);
    SIM_CHECK(life->with_release && life->begun && !life->refused,
              "G16: timeout %u is released, and was not accepted", me);
    SIM_CHECK(life->releases++ == 0, "G16: timeout %u is released twice", me);
    SIM_CHECK(!life->running, "G16: timeout %u is released while it runs", me);
    SIM_CHECK(!life->held, "G16: timeout %u is released, and has handles", me);
    SIM_CHECK(life->runs || life->wins || life->hooks || life->back || life->turned_away ||
                  life->no_more || oracle.stopping,
              "G16: timeout %u is released, and has not ended", me);
    SIM_CHECK(sim_current->locks == 0, "G16: a release is called under a lock");
    sim_plain_write(life->payload, 4);
    sim_plain_write(life->payload + 4, 4);
    life->never_again = true;
}

/* ---- the next deadline ---- */

/*
 * The same for what is asked; also of a run that is on, when it has been re-armed. Of what nobody
 * has a handle to, and is due, nobody knows whether it has been taken to be run.
 */
static bool next_time(const struct life *life, uint64_t *deadline)
{
    uint64_t word;

    if (!word_of(life, &word))
        return due_time(life, deadline) && *deadline > oracle_now();
    *deadline = word_deadline(word);
    if (*deadline >= DEADLINE_NEVER)
        return false;
    if (life->running)
        return life->rearmed && word_code(word) == WORD_REARMED;
    /* Others may be moving it: then it is what the last one who has returned made it. */
    if (life->in_flight)
        return oracle_is_pending(life) && life->told == *deadline;
    return due_time(life, deadline);
}

void oracle_before_next(struct next_snapshot *snapshot)
{
    snapshot->begun = oracle.begun;
    snapshot->calls_on = oracle.calls;
    for (unsigned i = 0; i < LIVES_MOST; i++) {
        snapshot->deadline[i] = UINT64_MAX;
        if (i < oracle.lives) {
            if (!next_time(&oracle.life[i], &snapshot->deadline[i]))
                snapshot->deadline[i] = UINT64_MAX;
            snapshot->calls[i] = oracle.life[i].calls;
            snapshot->moves[i] = oracle.life[i].moves;
            snapshot->runs[i] = oracle.life[i].runs;
        }
    }
}

/* Of one that nobody but this thread does anything to: has it ended, or when is it due? */
static bool is_certain(const struct life *life, uint64_t *deadline)
{
    uint64_t word;

    *deadline = UINT64_MAX;
    if (life->refused || !life->begun)
        return true;
    if (life->in_flight || life->running || !word_of(life, &word))
        return false;
    if (word_code(word) == WORD_PENDING)
        *deadline = word_deadline(word);
    return word_code(word) == WORD_PENDING || word_code(word) >= WORD_EXPIRED;
}

/*
 * An exact answer is not earlier than all that is pending, either: if nobody else has a call, or is
 * still on the way out of one that a task has ended.
 */
static void check_exact(const struct next_snapshot *snapshot, uint64_t answer)
{
    uint64_t least = UINT64_MAX, deadline;

    if (oracle.world->drive != HWT_DRIVE_CALLER || oracle.world->executor ||
        oracle.world->ends_threads || oracle.running || snapshot->calls_on || oracle.calls ||
        oracle.begun != snapshot->begun + 1)
        return;
    for (unsigned i = 0; i < oracle.lives; i++) {
        if (!is_certain(&oracle.life[i], &deadline))
            return;
        least = min_u64(least, deadline);
    }
    SIM_CHECK(answer >= (least >= DEADLINE_NEVER ? UINT64_MAX : least),
              "C15: nothing is due before %" PRIu64 ", and next is %" PRIu64, least, answer);
}

/* Nobody has touched it meanwhile, or one alone moves it: earlier, if it is due earlier now. */
static bool stays(const struct life *life, unsigned calls, unsigned moves, uint64_t *deadline)
{
    uint64_t word;

    if (calls == life->calls)
        return next_time(life, deadline);
    if (life->calls != calls + 1 || life->moves != moves + 1 || life->running ||
        !word_of(life, &word) || !oracle_is_pending(life))
        return false;
    *deadline = word_deadline(word);
    return true;
}

void oracle_after_next(const struct next_snapshot *snapshot, uint64_t answer)
{
    uint64_t deadline;

    check_exact(snapshot, answer);
    for (unsigned i = 0; i < oracle.lives; i++) {
        const struct life *life = &oracle.life[i];
        if (snapshot->deadline[i] == UINT64_MAX || snapshot->runs[i] != life->runs ||
            !stays(life, snapshot->calls[i], snapshot->moves[i], &deadline) ||
            deadline > snapshot->deadline[i])
            continue;
        deadline = snapshot->deadline[i];
        SIM_CHECK(answer <= deadline, "C15: timeout %u is due at %" PRIu64 ", next is %" PRIu64, i,
                  deadline, answer);
    }
}

/* ---- the pool ---- */

#define SLAB_CLOSED 2047 /* slab.c */

/*
 * A reserve's pages stay: by who trims, if nobody else has had a call meanwhile. But what runs is
 * no longer pending and not yet free, and some free ones are in others' magazines.
 */
#define ABOUT 16 /* blocks */

void oracle_pages_go(void)
{
    size_t home = 0, wanted = oracle.world->reserve;

    if (!oracle.created || oracle.destroyed || oracle.calls != 1 || !oracle.trimming ||
        oracle.trimming != oracle.begun)
        return;
    for (const struct slab *slab = slab_newest(); slab; slab = slab->next)
        home += (load_relaxed(&slab->state) >> 11) & 0xffff;
    wanted -= min_u64(wanted, hwt_timer_pending(oracle.timer));
    SIM_CHECK(home + (size_t)memory_blocks_alive + ABOUT >= wanted,
              "C12: %zu blocks are reserved, and %zu are at home", wanted, home);
}

void oracle_check_slabs(void)
{
    for (const struct slab *slab = slab_newest(); slab; slab = slab->next)
        SIM_CHECK((load_relaxed(&slab->state) & SLAB_CLOSED) != SLAB_CLOSED,
                  "C14: a slab stays closed in the child");
}

/* ---- the end ---- */

void oracle_handed_back(hwt_unprocessed *list)
{
    hwt_timeout *timeout;
    size_t count = list->count;

    while ((timeout = hwt_unprocessed_take(list)) != NULL) {
        struct life *life = hwt_timeout_arg(timeout);
        SIM_CHECK(count-- > 0, "G8: more are handed back than counted");
        SIM_CHECK(life->back++ == 0, "G8: timeout %u is handed back twice", number_of(life));
        SIM_CHECK(life->wins == 0, "G2: timeout %u is handed back, and was cancelled",
                  number_of(life));
        SIM_CHECK(hwt_timeout_is_cancelled(timeout), "G8: timeout %u is handed back uncancelled",
                  number_of(life));
        hwt_timeout_unref(timeout);
    }
    SIM_CHECK(count == 0, "G8: fewer are handed back than counted");
}

static void check_life(const struct life *life)
{
    unsigned me = number_of(life);
    bool ended_by_hook = life->hooks && !life->wins;

    if (!life->accepted)
        return;
    SIM_CHECK(life->releases == life->with_release, "G16: timeout %u is released %u times", me,
              life->releases);
    SIM_CHECK(!life->running || oracle.lost, "timeout %u is still running", me);
    SIM_CHECK(life->wins + life->back <= 1, "G2: timeout %u ended %u times", me,
              life->wins + life->back);
    if (!life->with_hook && life->turned_away)
        return;
    if (life->wins == 0 && life->back == 0 && !ended_by_hook && !life->periodic &&
        (life->with_hook || oracle.program->hands_back))
        SIM_CHECK(life->runs == life->rearms + 1 || oracle.lost,
                  "G2: timeout %u is lost: %u runs, %u re-arms", me, life->runs, life->rearms);
    if (life->with_hook)
        SIM_CHECK(life->hooks == (life->wins || ended_by_hook ? 1u : 0u),
                  "G10: timeout %u: %u hooks, %u cancellations", me, life->hooks, life->wins);
}

void oracle_check_stopped(void)
{
    hwt_stats stats;
    unsigned back = oracle.back, wins = 0;

    hwt_stats_init(&stats);
    SIM_CHECK(hwt_timer_stats(oracle.timer, &stats) == 0, "stats fail");
    for (unsigned i = 0; i < oracle.lives; i++) {
        back += oracle.life[i].back;
        wins += oracle.life[i].wins;
    }
    SIM_CHECK(stats.scheduled == stats.expired + stats.cancelled + stats.unprocessed,
              "G3: %" PRIu64 " scheduled, but %" PRIu64 " + %" PRIu64 " + %" PRIu64,
              stats.scheduled, stats.expired, stats.cancelled, stats.unprocessed);
    SIM_CHECK(stats.scheduled == oracle.accepted, "G3: %" PRIu64 " counted, %u accepted",
              stats.scheduled, oracle.accepted);
    SIM_CHECK(hwt_timer_pending(oracle.timer) == 0, "G3: %" PRIu64 " pending after stop",
              hwt_timer_pending(oracle.timer));
    SIM_CHECK(stats.cancelled >= wins, "G3: %" PRIu64 " cancelled of %u", stats.cancelled, wins);
    SIM_CHECK(!oracle.program->hands_back || stats.unprocessed == back,
              "G3: %" PRIu64 " unprocessed, %u handed back", stats.unprocessed, back);
}

/*
 * All threads but this one have ended: so each block that there is can be taken, once, when there
 * is no other memory.
 */
static void check_pool(void)
{
    size_t total = slab_total();

    sim_calm++;
    sim_no_maps_from = 0;
    for (size_t i = 0; i < total; i++)
        SIM_CHECK(pool_take(), "C12: the pool has lost %zu of its %zu blocks", total - i, total);
    SIM_CHECK(!pool_take(), "C12: the pool has a block twice");
    sim_calm--;
}

void oracle_check_end(void)
{
    for (unsigned i = 0; i < oracle.lives; i++)
        check_life(&oracle.life[i]);
    SIM_CHECK(memory_blocks_alive == 0, "G6: %ld blocks are not given back", memory_blocks_alive);
    check_pool();
}
