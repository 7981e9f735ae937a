/* SPDX-License-Identifier: BSD-2-Clause */
/* Fibers, the choice of who goes on, virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "sim.h"
#include "tls.h"

#define STACK_SIZE  ((size_t)256 << 10)
#define POINTS_MOST 60000 /* of a history that ends */
#define NEVER       (UINT64_C(1) << 60)
#define CHANGES     4    /* of priorities (PCT), at most */
#define FAIR_AFTER  6000 /* points: then everyone has his turn, whatever the strategy */

struct history *sim_history;
struct sim_thread *sim_current;
struct sim_thread sim_threads[SIM_THREADS];
unsigned sim_thread_count;
int sim_calm;
unsigned sim_fail_one_in, sim_stay_one_in, sim_interrupt_one_in, sim_time_one_in;
uint64_t sim_now, sim_time_step;
bool sim_clock_jumps;
void (*sim_when_waiting)(void);

void (*sim_all_wait)(void);

struct decision *sim_decisions;
unsigned sim_decision_count;
static unsigned decision_room;

const char *const strategy_names[STRATEGY_COUNT] = {"random", "pct", "straggler", "exhaustive"};
const char *const buffering_names[3] = {"sc", "tso", "pso"};

/* ---- chance ---- */

uint64_t rng_next(struct rng *rng) /* splitmix64 */
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t rng_below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)((rng_next(rng) >> 32) * bound >> 32);
}

static struct rng chance;

/* ---- events ---- */

void events_add(struct event_list *list, struct event event)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 256;
        list->event = realloc(list->event, list->room * sizeof *list->event);
        if (!list->event)
            abort();
    }
    list->event[list->count++] = event;
}

void events_copy(struct event_list *to, const struct event_list *from)
{
    to->count = 0;
    for (unsigned i = 0; i < from->count; i++)
        events_add(to, from->event[i]);
}

/* The next event of each thread in a replay: those of one thread are in the order of its steps. */
static unsigned replay_next[SIM_THREADS];

static void skip_to_thread(unsigned thread)
{
    const struct event_list *list = &sim_history->events;

    while (replay_next[thread] < list->count && list->event[replay_next[thread]].thread != thread)
        replay_next[thread]++;
}

/* What the history says about this step; 0: nothing. */
static unsigned replayed(enum event_kind kind)
{
    unsigned me = sim_current->index, *next = &replay_next[me];
    const struct event_list *list = &sim_history->events;

    for (skip_to_thread(me); *next < list->count; ++*next, skip_to_thread(me)) {
        const struct event *event = &list->event[*next];
        if (event->step > sim_current->step)
            return 0;
        if (event->step == sim_current->step) {
            ++*next;
            return event->kind == kind ? event->value + 1u : 0;
        }
    }
    return 0;
}

static void write_down(enum event_kind kind, unsigned value)
{
    events_add(&sim_history->events, (struct event){sim_current->step, (uint8_t)sim_current->index,
                                                    (uint8_t)kind, (uint16_t)value});
}

unsigned sim_choose(enum event_kind kind, unsigned options, unsigned one_in)
{
    unsigned value;

    if (!sim_current || sim_calm > 0 || options == 0)
        return 0;
    sim_current->step++;
    if (sim_history->replay) {
        value = replayed(kind);
        return value > options ? options : value;
    }
    if (one_in == 0 || (one_in > 1 && rng_below(&chance, one_in) != 0))
        return 0;
    value = rng_below(&chance, options);
    write_down(kind, value);
    return value + 1;
}

/* ---- fibers ---- */

static struct fiber {
    jmp_buf at;
    ucontext_t begin;
    bool begun;
    char *stack;
    char *tls;
} fibers[SIM_THREADS];

static jmp_buf at_home;

static void fiber_main(void)
{
    struct sim_thread *me = sim_current;

    me->result = me->start(me->arg);
    sim_end_thread();
}

static void leave_to(struct sim_thread *to)
{
    struct fiber *fiber = &fibers[to->index];

    sim_current = to;
    memcpy(tls_here(), fiber->tls, tls_size());
    if (fiber->begun)
        _longjmp(fiber->at, 1);
    fiber->begun = true;
    setcontext(&fiber->begin);
    abort();
}

static void go_to(struct sim_thread *to)
{
    struct fiber *mine = &fibers[sim_current->index];

    if (to == sim_current)
        return;
    sim_history->switches++;
    memcpy(mine->tls, tls_here(), tls_size());
    if (_setjmp(mine->at) == 0)
        leave_to(to);
}

static void go_home(void)
{
    _longjmp(at_home, 1);
}

/* Memory of its own for stacks: a guard page below each. */
static void make_fiber(struct fiber *fiber)
{
    if (!fiber->stack) {
        fiber->stack =
            mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fiber->stack == MAP_FAILED || mprotect(fiber->stack, 4096, PROT_NONE) != 0)
            abort();
        fiber->tls = malloc(tls_size() + 1);
    }
    memcpy(fiber->tls, tls_image(), tls_size());
    getcontext(&fiber->begin);
    fiber->begin.uc_stack.ss_sp = fiber->stack;
    fiber->begin.uc_stack.ss_size = STACK_SIZE;
    fiber->begin.uc_link = NULL;
    makecontext(&fiber->begin, fiber_main, 0);
    fiber->begun = false;
}

/* ---- failure ---- */

void sim_fail(const char *format, ...)
{
    va_list list;

    if (!sim_history) {
        fprintf(stderr, "outside a history: %s\n", format);
        abort();
    }
    sim_history->failed = true;
    va_start(list, format);
    vsnprintf(sim_history->message, sizeof sim_history->message, format, list);
    va_end(list);
    go_home();
    abort();
}

/* ---- who goes on ---- */

static unsigned random_one_in;      /* RANDOM: a switch every so many points */
static unsigned flush_one_in;       /* a buffered store leaves every so many points */
static uint64_t change_at[CHANGES]; /* PCT: at these points ... */
static unsigned changes, next_change;
static int lowest;              /* ... the one that runs gets a priority below this */
static struct sim_thread *back; /* STRAGGLER: has just been held back long enough */
static uint64_t calm_points;    /* of them, in which nobody could be changed to */

static bool is_ready(const struct sim_thread *thread)
{
    return thread->state == READY;
}

static unsigned count_ready(unsigned *ready)
{
    unsigned count = 0;

    for (unsigned i = 0; i < sim_thread_count; i++) {
        if (is_ready(&sim_threads[i]))
            ready[count++] = i;
    }
    return count;
}

static struct sim_thread *highest(void)
{
    struct sim_thread *best = NULL;

    for (unsigned i = 0; i < sim_thread_count; i++) {
        struct sim_thread *thread = &sim_threads[i];
        if (is_ready(thread) && (!best || thread->priority > best->priority))
            best = thread;
    }
    return best;
}

/*
 * What a history does where it says nothing: the same thread goes on, or the next one that can.
 * In a replay nobody is held back: there the events say who goes on instead.
 */
static struct sim_thread *by_default(bool of_replay)
{
    unsigned from = sim_current->index;

    for (unsigned i = 0; i < sim_thread_count; i++) {
        struct sim_thread *thread = &sim_threads[(from + i) % sim_thread_count];
        if (is_ready(thread) || (of_replay && thread->state == SUSPENDED))
            return thread;
    }
    return NULL;
}

static struct sim_thread *random_ready(void)
{
    unsigned ready[SIM_THREADS], count = count_ready(ready);

    return count ? &sim_threads[ready[rng_below(&chance, count)]] : NULL;
}

static void note_decision(struct sim_thread *otherwise, uintptr_t address)
{
    unsigned ready[SIM_THREADS], count = count_ready(ready);
    struct decision decision = {sim_current->step, (uint8_t)sim_current->index, 0,
                                !is_ready(sim_current)};

    if (!decision.free && address && !memory_is_shared(address))
        return;
    for (unsigned i = 0; i < count; i++) {
        if (&sim_threads[ready[i]] != otherwise)
            decision.others |= (uint8_t)(1u << ready[i]);
    }
    if (!decision.others)
        return;
    if (sim_decision_count == decision_room) {
        decision_room = decision_room ? 2 * decision_room : 1024;
        sim_decisions = realloc(sim_decisions, decision_room * sizeof *sim_decisions);
        if (!sim_decisions)
            abort();
    }
    sim_decisions[sim_decision_count++] = decision;
}

static struct sim_thread *search(struct sim_thread *usual)
{
    switch (sim_history->points < FAIR_AFTER ? sim_history->strategy : STRATEGY_RANDOM) {
    case STRATEGY_PCT:
        while (next_change < changes &&
               sim_history->points - calm_points >= change_at[next_change]) {
            next_change++;
            sim_current->priority = lowest--;
        }
        return highest();
    case STRATEGY_STRAGGLER:
        if (is_ready(sim_current) && sim_current->suspend_for &&
            (sim_current->suspend_at_write
                 ? sim_current->writes >= sim_current->suspend_at_write
                 : sim_current->step >= sim_current->suspend_at &&
                       (sim_current->changed || !sim_current->suspend_after_change)))
            sim_current->state = SUSPENDED;
        if (!is_ready(sim_current))
            return random_ready();
        if (back && is_ready(back) && rng_below(&chance, 2)) {
            struct sim_thread *next = back;
            back = NULL;
            return next;
        }
        back = NULL;
        break;
    default: break;
    }
    if (!usual ||
        (sim_history->strategy != STRATEGY_EXHAUSTIVE && rng_below(&chance, random_one_in) == 0))
        return random_ready();
    if (!is_ready(sim_current))
        return random_ready();
    return usual;
}

/* NULL: nobody can. */
static struct sim_thread *choose_next(uintptr_t address)
{
    unsigned ready[SIM_THREADS];
    struct sim_thread *usual = by_default(true), *next = usual;

    if (count_ready(ready) == 0)
        return NULL;
    if (sim_history->replay) {
        unsigned value = replayed(EVENT_SWITCH);
        if (value > 0 && value <= sim_thread_count && is_ready(&sim_threads[value - 1]))
            next = &sim_threads[value - 1];
        if (sim_history->choices)
            note_decision(next, address);
        return next;
    }
    next = search(by_default(false));
    if (next && next != usual)
        write_down(EVENT_SWITCH, next->index);
    return next;
}

/* ---- time ---- */

static void wake_sleepers(void)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        struct sim_thread *thread = &sim_threads[i];
        if (thread->state == WAITING && thread->wait_until <= sim_now) {
            thread->state = READY;
            thread->timed_out = true;
        }
    }
}

/* Sixteenths of a step; the last is a clock that jumps ahead. */
static const uint16_t time_parts[] = {1, 8, 16, 24, 64, 200, 40000};

static void let_time_pass(void)
{
    unsigned which = sim_choose(
        EVENT_TIME, sizeof time_parts / sizeof time_parts[0] - !sim_clock_jumps, sim_time_one_in);

    if (which > 0) {
        sim_now += sim_time_step * time_parts[which - 1] / 16 + 1;
        wake_sleepers();
    }
}

/* Nobody is ready: whoever was held back goes on, or time does. */
static void unblock(void)
{
    uint64_t next = UINT64_MAX;
    bool held = false;

    for (unsigned i = 0; i < sim_thread_count; i++) {
        if (sim_threads[i].state == SUSPENDED) {
            sim_threads[i].state = READY;
            sim_threads[i].suspend_for = 0;
            held = true;
        } else if (sim_threads[i].state == WAITING && sim_threads[i].wait_until < next) {
            next = sim_threads[i].wait_until;
        }
    }
    if (held)
        return;
    if (sim_all_wait)
        sim_all_wait();
    if (next < NEVER) {
        if (next > sim_now)
            sim_now = next;
        wake_sleepers();
        return;
    }
    for (unsigned i = sim_thread_count; i-- > 0;) { /* the last one: the first waits for others */
        if (sim_threads[i].state == WAITING && sim_threads[i].wait_until == UINT64_MAX)
            sim_fail("a thread waits for ever: %u, for %s", i, sim_threads[i].waits_for);
    }
    sim_fail("nobody is left");
}

/* ---- points ---- */

static void flush_some(void)
{
    unsigned which[SIM_THREADS * BUFFERED_MOST], count = 0, chosen;
    struct {
        unsigned char thread, number;
    } all[SIM_THREADS * BUFFERED_MOST];

    for (unsigned i = 0; i < sim_thread_count; i++) {
        unsigned can = sim_threads[i].buffered ? memory_can_flush(&sim_threads[i], which) : 0;
        for (unsigned j = 0; j < can; j++, count++) {
            all[count].thread = (unsigned char)i;
            all[count].number = (unsigned char)which[j];
        }
    }
    chosen = sim_choose(EVENT_FLUSH, count, flush_one_in);
    if (chosen > 0)
        memory_flush_one(&sim_threads[all[chosen - 1].thread], all[chosen - 1].number);
}

static void go_on(uintptr_t address)
{
    struct sim_thread *next;

    sim_current->step++;
    while (!(next = choose_next(address)))
        unblock();
    if (next != sim_current)
        trace_reached(sim_current->pc, true);
    go_to(next);
}

/* Straggler: when, from now on, and for how long; most often soon, and not for long. */
static void hold_back(struct sim_thread *thread)
{
    uint32_t most = sim_history->expected * 2 >> rng_below(&chance, 6);

    if (rng_below(&chance, 3) == 0) { /* anywhere, and for long */
        thread->suspend_at = thread->step + rng_below(&chance, 8u << rng_below(&chance, 10));
        thread->suspend_at_write = 0;
        thread->suspend_after_change = false;
        thread->suspend_for = rng_below(&chance, 3) ? 1 + rng_below(&chance, 2000) : UINT32_MAX;
        return;
    }
    thread->suspend_at = thread->step + rng_below(&chance, most + 10);
    thread->suspend_at_write =
        rng_below(&chance, 2) ? thread->writes + 1 + rng_below(&chance, most / 32 + 4) : 0;
    thread->suspend_after_change = rng_below(&chance, 2);
    thread->suspend_for =
        rng_below(&chance, 3) ? 1 + rng_below(&chance, 2000u >> rng_below(&chance, 7)) : UINT32_MAX;
}

/* Straggler: those who were held back long enough go on. */
static void release_suspended(void)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        struct sim_thread *thread = &sim_threads[i];
        if (thread->state == SUSPENDED &&
            ((thread->suspend_for != UINT32_MAX && --thread->suspend_for == 0) ||
             sim_history->points > FAIR_AFTER)) {
            thread->suspend_for = 0;
            thread->state = READY;
            back = thread;
            if (rng_below(&chance, 4) > 0)
                hold_back(thread); /* some other time again */
        }
    }
}

void sim_point(uintptr_t pc, uintptr_t address)
{
    if (!sim_current)
        return;
    sim_current->pc = pc;
    trace_reached(pc, false);
    if (++sim_history->points > POINTS_MOST)
        sim_fail("no end after %d points", POINTS_MOST);
    if (sim_calm > 0) {
        calm_points++;
        return;
    }
    let_time_pass();
    if (sim_history->buffering != BUFFER_NONE)
        flush_some();
    if (sim_history->strategy == STRATEGY_STRAGGLER && !sim_history->replay)
        release_suspended();
    go_on(address);
    sim_current->changed = false;
    if (sim_current->setting)
        sim_current->setting--;
}

void sim_write_point(uintptr_t pc, uintptr_t address)
{
    if (sim_current)
        sim_current->writes++;
    sim_point(pc, address);
}

void sim_yield(uintptr_t pc)
{
    struct sim_thread *me = sim_current;
    uint64_t next = UINT64_MAX;
    unsigned ready[SIM_THREADS];

    me->pc = pc;
    memory_drain(me);
    if (++sim_history->points > POINTS_MOST)
        sim_fail("no end after %d points", POINTS_MOST);
    me->priority = lowest--;
    me->state = WAITING; /* but only for this one choice */
    me->wait_until = UINT64_MAX;
    me->wait_key = 0;
    me->waits_for = "others";
    if (count_ready(ready) == 0) { /* all others wait for time to pass, or for this one */
        for (unsigned i = 0; i < sim_thread_count; i++) {
            if (sim_threads[i].state == SUSPENDED) {
                unblock();
                break;
            }
        }
    }
    if (count_ready(ready) > 0) {
        struct sim_thread *to;
        me->step++;
        while (!(to = choose_next(0)))
            unblock();
        me->state = READY;
        go_to(to);
        return;
    }
    for (unsigned i = 0; i < sim_thread_count; i++) {
        if (sim_threads[i].state == WAITING && sim_threads[i].wait_until < next)
            next = sim_threads[i].wait_until;
    }
    me->state = READY;
    if (next != UINT64_MAX && next > sim_now)
        sim_now = next;
    wake_sleepers();
}

bool sim_wait(uintptr_t key, uint64_t until, const char *what)
{
    struct sim_thread *me = sim_current;

    SIM_CHECK(!me->may_not_wait, "G7: %s waits for %s", me->may_not_wait, what);
    memory_drain(me);
    me->state = WAITING;
    me->wait_key = key;
    me->wait_until = until;
    me->waits_for = what;
    me->timed_out_before = me->timed_out;
    me->woken = me->timed_out = false;
    me->setting = 0;
    if (until <= sim_now)
        wake_sleepers();
    if (sim_when_waiting)
        sim_when_waiting();
    while (me->state != READY)
        go_on(0);
    return me->woken;
}

void sim_wake(uintptr_t key, bool all)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        struct sim_thread *thread = &sim_threads[i];
        if (thread->state != WAITING || thread->wait_key != key || key == 0)
            continue;
        thread->state = READY;
        thread->woken = true;
        if (!all)
            return;
    }
}

/* ---- threads ---- */

struct sim_thread *sim_spawn(void *(*start)(void *), void *arg)
{
    struct sim_thread *thread;

    if (sim_thread_count == SIM_THREADS)
        return NULL;
    thread = &sim_threads[sim_thread_count];
    memset(thread, 0, sizeof *thread);
    thread->index = sim_thread_count++;
    thread->start = start;
    thread->arg = arg;
    thread->priority = (int)rng_below(&chance, 1000) + 1;
    if (sim_history->strategy == STRATEGY_STRAGGLER && rng_below(&chance, 2))
        hold_back(thread);
    make_fiber(&fibers[thread->index]);
    memory_fork_clock(thread);
    return thread;
}

void sim_end_thread(void)
{
    struct sim_thread *me = sim_current;

    pthread_run_destructors();
    sim_end_child();
    memory_drain(me);
    me->state = OVER;
    sim_wake((uintptr_t)me, true);
    if (me->index == 0)
        go_home();
    for (;;)
        go_on(0);
}

void sim_alone(void)
{
    for (unsigned i = 0; i < sim_thread_count; i++) {
        if (&sim_threads[i] == sim_current)
            continue;
        memory_join_clock(&sim_threads[i]); /* it sees all there is */
        sim_threads[i].state = OVER;
    }
}

/* ---- a history ---- */

static void prepare_strategy(void)
{
    static const unsigned rates[] = {2, 4, 8, 20, 60}, flush_rates[] = {2, 6, 20, 100};
    unsigned within;

    flush_one_in = flush_rates[rng_below(&chance, 4)];
    random_one_in = rates[rng_below(&chance, 5)];
    lowest = 0;
    back = NULL;
    changes = rng_below(&chance, CHANGES + 1);
    calm_points = 0;
    next_change = 0;
    within = (sim_history->expected >> rng_below(&chance, 3)) + 20;
    for (unsigned i = 0; i < changes; i++)
        change_at[i] = rng_below(&chance, within);
    for (unsigned i = 0; i < changes; i++) { /* few */
        for (unsigned j = i + 1; j < changes; j++) {
            uint64_t at = change_at[i];
            if (change_at[j] < at) {
                change_at[i] = change_at[j];
                change_at[j] = at;
            }
        }
    }
}

static void *start_main(void *arg)
{
    void (*const *const main)(void *) = arg;

    (*main)(((void **)arg)[1]);
    return NULL;
}

void sim_run(struct history *history, void (*main)(void *arg), void *arg)
{
    static void *call[2];

    sim_history = history;
    history->points = history->switches = 0;
    history->failed = false;
    history->message[0] = '\0';
    if (!history->replay)
        history->events.count = 0;
    chance.state = history->seed;
    memset(replay_next, 0, sizeof replay_next);
    sim_thread_count = 0;
    sim_decision_count = 0;
    sim_calm = 0;
    sim_fail_one_in = sim_stay_one_in = sim_interrupt_one_in = sim_time_one_in = 0;
    sim_time_step = 1000;
    sim_clock_jumps = true;
    sim_one_cpu = sim_wanders = false;
    sim_stays = sim_asks = 0;
    sim_now = UINT64_C(1000000000);
    memory_reset();
    kernel_reset();
    pthread_reset();
    trace_reset();
    prepare_strategy();
    memcpy(&call[0], &main, sizeof main);
    call[1] = arg;
    sim_spawn(start_main, call);
    if (_setjmp(at_home) == 0)
        leave_to(&sim_threads[0]);
    pthread_end_child();
    sim_current = NULL;
    sim_history = NULL;
}
