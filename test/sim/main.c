/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hwt-sim: histories of the library as it is shipped, one after another, until one fails or the
 * time is over. See `hwt-sim -h`.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

struct seed {
    const struct world *world;
    enum strategy strategy;
    enum buffering buffering;
    uint64_t number;
};

static struct {
    const struct world *world[64]; /* only these; none: all */
    unsigned worlds;
    double seconds;
    uint64_t histories; /* at most; 0: no limit */
    uint64_t first;     /* numbers go on from here ... */
    unsigned step;      /* ... by so much */
    bool trace, lines, quiet, twice;
    int strategy; /* only this one; -1: all */
} options = {.seconds = 10, .step = 1, .strategy = -1};

static struct {
    uint64_t histories, points, switches;
    uint64_t by_strategy[STRATEGY_COUNT];
    unsigned programs, to_the_end; /* exhaustive: all of their histories, not only the first */
} total;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t hash(uint64_t a, uint64_t b)
{
    struct rng rng = {a * UINT64_C(0x9e3779b97f4a7c15) + b};
    return rng_next(&rng);
}

/* ---- one history ---- */

static unsigned world_index(const struct world *world)
{
    return (unsigned)(world - worlds);
}

static void run(struct history *history, const struct world *world, const struct program *program)
{
    struct run arg = {world, program};

    history->expected = 150 * program->producers * (program->ops + 2); /* about */
    sim_run(history, world_main, &arg);
    total.histories++;
    total.by_strategy[history->strategy]++;
    total.points += history->points;
    total.switches += history->switches;
}

static void make(const struct seed *seed, struct program *program, struct history *history)
{
    program_make(program, seed->world, hash(seed->number, world_index(seed->world)),
                 seed->strategy == STRATEGY_EXHAUSTIVE);
    history->strategy = seed->strategy;
    history->buffering = seed->buffering;
    history->seed = hash(seed->number, 77);
    history->replay = history->tracing = history->choices = false;
}

/* ---- exhaustive: every history of a small program with so many preemptions ---- */

#define PREEMPTIONS    2
#define FREE_CHOICES   2
#define DEVIATIONS     (PREEMPTIONS + FREE_CHOICES)
#define HISTORIES_MOST 4000 /* of a program */

struct deviation {
    struct event event[DEVIATIONS];
    uint8_t count, preemptions;
};

/* True: one has failed; it is in `history`. */
static bool exhaust(const struct world *world, const struct program *program,
                    struct history *history, double until)
{
    static struct deviation *todo;
    static size_t room;
    size_t next = 0, count = 1;

    if (!todo) {
        room = 1 << 16;
        todo = malloc(room * sizeof *todo);
        if (!todo)
            abort();
    }
    todo[0] = (struct deviation){.count = 0};
    for (; next < count && next < HISTORIES_MOST && now() < until; next++) {
        struct deviation at = todo[next];
        unsigned from = 0;
        history->replay = history->choices = true;
        history->events.count = 0;
        for (unsigned i = 0; i < at.count; i++)
            events_add(&history->events, at.event[i]);
        run(history, world, program);
        if (history->failed)
            return true;
        if (at.count > 0) { /* behind the last one */
            const struct event *last = &at.event[at.count - 1];
            while (from < sim_decision_count && (sim_decisions[from].thread != last->thread ||
                                                 sim_decisions[from].step != last->step))
                from++;
            from++;
        }
        for (unsigned i = from; i < sim_decision_count && at.count < DEVIATIONS; i++) {
            const struct decision *decision = &sim_decisions[i];
            if (!decision->free && at.preemptions == PREEMPTIONS)
                continue;
            for (unsigned thread = 0; thread < SIM_THREADS; thread++) {
                if (!(decision->others >> thread & 1) || count == room)
                    continue;
                todo[count] = at;
                todo[count].event[todo[count].count++] = (struct event){
                    decision->step, decision->thread, EVENT_SWITCH, (uint16_t)thread};
                todo[count].preemptions = (uint8_t)(at.preemptions + !decision->free);
                count++;
            }
        }
    }
    total.programs++;
    total.to_the_end += next == count;
    return false;
}

/* ---- seeds ---- */

static void print_seed(const struct seed *seed)
{
    printf("%s.%s.%s.%" PRIx64, seed->world->name, strategy_names[seed->strategy],
           buffering_names[seed->buffering], seed->number);
}

static int find(const char *name, size_t length, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return (int)i;
    }
    return -1;
}

static const struct world *find_world(const char *name, size_t length)
{
    for (unsigned i = 0; i < world_count; i++) {
        if (strlen(worlds[i].name) == length && strncmp(worlds[i].name, name, length) == 0)
            return &worlds[i];
    }
    return NULL;
}

static bool read_seed(const char *text, struct seed *seed)
{
    const char *dot[3];
    int strategy, buffering;

    for (unsigned i = 0; i < 3; i++) {
        dot[i] = strchr(i ? dot[i - 1] + 1 : text, '.');
        if (!dot[i])
            return false;
    }
    seed->world = find_world(text, (size_t)(dot[0] - text));
    strategy = find(dot[0] + 1, (size_t)(dot[1] - dot[0] - 1), strategy_names, STRATEGY_COUNT);
    buffering = find(dot[1] + 1, (size_t)(dot[2] - dot[1] - 1), buffering_names, 3);
    seed->strategy = (enum strategy)strategy;
    seed->buffering = (enum buffering)buffering;
    seed->number = strtoull(dot[2] + 1, NULL, 16);
    return seed->world && strategy >= 0 && buffering >= 0;
}

/* ---- a failure: shrunk, then shown ---- */

#define TRIES   300 /* other histories of a smaller program */
#define SECONDS 20  /* for all of it */

static double patience; /* until then */

struct failure {
    struct program program;
    struct history history;
    char message[512];
};

/* The same complaint, but for the numbers in it, beside that of a rule before it. */
static bool is_same(const char *message, const char *wanted)
{
    size_t rule = strcspn(wanted, ":"), length;

    rule = wanted[rule] ? rule : 0;
    length = rule + strcspn(wanted + rule, "0123456789");

    return strncmp(message, wanted, length) == 0;
}

static bool fails_again(const struct seed *seed, const struct program *program,
                        struct history *history, const char *wanted)
{
    for (unsigned i = 0; i < TRIES && now() < patience; i++) {
        history->replay = history->choices = false;
        history->seed = hash(seed->number, 1000 + i);
        if (seed->strategy == STRATEGY_EXHAUSTIVE)
            history->strategy = STRATEGY_RANDOM;
        run(history, seed->world, program);
        if (history->failed && is_same(history->message, wanted))
            return true;
    }
    return false;
}

static void keep(struct failure *failure, const struct program *program,
                 const struct history *history)
{
    failure->program = *program;
    events_copy(&failure->history.events, &history->events);
    failure->history.points = history->points;
    memcpy(failure->message, history->message, sizeof failure->message);
}

static bool try_program(const struct seed *seed, struct failure *failure,
                        const struct program *program, struct history *history)
{
    if (!fails_again(seed, program, history, failure->message))
        return false;
    keep(failure, program, history);
    return true;
}

static void shrink_program(const struct seed *seed, struct failure *failure,
                           struct history *history)
{
    struct program smaller = failure->program;

    for (unsigned p = 0; p < smaller.producers; p++) {
        for (unsigned i = 0; i < smaller.ops; i++)
            smaller.op[p][i].removed = true;
        if (!try_program(seed, failure, &smaller, history))
            smaller = failure->program;
    }
    for (unsigned p = 0; p < smaller.producers; p++) {
        for (unsigned i = 0; i < smaller.ops; i++) {
            if (smaller.op[p][i].removed)
                continue;
            smaller.op[p][i].removed = true;
            if (!try_program(seed, failure, &smaller, history))
                smaller = failure->program;
        }
    }
    for (unsigned p = 0; p < smaller.producers; p++) {
        for (unsigned i = 0; i < smaller.ops; i++) {
            if (smaller.op[p][i].removed || !smaller.op[p][i].conduct)
                continue;
            smaller.op[p][i].conduct = 0;
            if (!try_program(seed, failure, &smaller, history))
                smaller = failure->program;
        }
    }
}

static bool replay_fails(const struct seed *seed, const struct program *program,
                         struct history *history, const struct event_list *events,
                         const char *wanted)
{
    history->replay = true;
    history->choices = false;
    events_copy(&history->events, events);
    run(history, seed->world, program);
    return history->failed && is_same(history->message, wanted);
}

/* Leaves out as many events as it can: halves first, then ever smaller pieces. */
static void shrink_events(const struct seed *seed, struct failure *failure, struct history *history)
{
    struct event_list fewer = {NULL, 0, 0};

    for (unsigned piece = (failure->history.events.count + 1) / 2;
         piece > 0 && now() < patience + SECONDS;) {
        bool any = false;
        for (unsigned at = 0; at < failure->history.events.count;) {
            const struct event_list *all = &failure->history.events;
            fewer.count = 0;
            for (unsigned i = 0; i < all->count; i++) {
                if (i < at || i >= at + piece)
                    events_add(&fewer, all->event[i]);
            }
            if (replay_fails(seed, &failure->program, history, &fewer, failure->message)) {
                struct program same = failure->program;
                keep(failure, &same, history);
                any = true;
            } else {
                at += piece;
            }
        }
        if (!any || piece > 1)
            piece /= 2;
    }
    free(fewer.event);
}

static void show(const struct seed *seed, const struct program *program,
                 const struct history *failed)
{
    static struct failure failure;
    struct history history = *failed;

    printf("FAILED after %" PRIu64 " histories (%s): %s\n", total.histories,
           strategy_names[seed->strategy], failed->message);
    printf("  the same again, shrunk and traced: make sim SEED=");
    print_seed(seed);
    printf(" TRACE=1\n");
    fflush(stdout);
    if (!options.trace)
        return;
    failure.history = *failed;
    failure.history.events = (struct event_list){NULL, 0, 0};
    history.events = (struct event_list){NULL, 0, 0};
    keep(&failure, program, failed);
    patience = now() + SECONDS;
    shrink_program(seed, &failure, &history);
    if (replay_fails(seed, &failure.program, &history, &failure.history.events, failure.message)) {
        shrink_events(seed, &failure, &history);
    } else {
        printf("  (not the same without its seed)\n");
    }
    history.tracing = true;
    replay_fails(seed, &failure.program, &history, &failure.history.events, failure.message);
    trace_print();
    printf("%s\n%u events, %" PRIu64 " points; the program:\n", history.message,
           failure.history.events.count, history.points);
    program_print(&failure.program);
    free(history.events.event);
}

/* ---- many ---- */

/* A history by its seed, and the same by its events alone: no difference. */
static bool is_repeatable(const struct seed *seed, const struct program *program,
                          struct history *history)
{
    struct history again = *history;

    again.replay = true;
    again.events = (struct event_list){NULL, 0, 0};
    events_copy(&again.events, &history->events);
    run(&again, seed->world, program);
    free(again.events.event);
    if (!again.failed && again.points == history->points && again.switches == history->switches)
        return true;
    printf("FAILED: a history is not the same again: %" PRIu64 " points and %" PRIu64
           " switches, then %" PRIu64 " and %" PRIu64 "; %s\n",
           history->points, history->switches, again.points, again.switches, again.message);
    print_seed(seed);
    printf("\n");
    return false;
}

static bool run_seed(const struct seed *seed, double until)
{
    static struct history history;
    struct program program;
    bool failed;

    make(seed, &program, &history);
    if (seed->strategy == STRATEGY_EXHAUSTIVE) {
        failed = exhaust(seed->world, &program, &history, until);
    } else {
        run(&history, seed->world, &program);
        failed = history.failed;
    }
    if (failed)
        show(seed, &program, &history);
    else if (options.twice && seed->strategy != STRATEGY_EXHAUSTIVE)
        failed = !is_repeatable(seed, &program, &history);
    return failed;
}

static struct seed seed_of(uint64_t number)
{
    static const enum strategy turns[] = {STRATEGY_RANDOM, STRATEGY_PCT, STRATEGY_STRAGGLER,
                                          STRATEGY_PCT, STRATEGY_STRAGGLER};
    struct seed seed = {.number = number};
    uint64_t h = hash(number, 3);

    seed.world =
        options.worlds ? options.world[number % options.worlds] : &worlds[number % world_count];
    seed.strategy = turns[h % 5];
    seed.buffering = (enum buffering)(h / 16 % 3);
    if (seed.world->small && h / 64 % 2000 == 0) {
        seed.strategy = STRATEGY_EXHAUSTIVE;
        seed.buffering = BUFFER_NONE;
    }
    if (options.strategy >= 0)
        seed.strategy = (enum strategy)options.strategy;
    return seed;
}

static int run_many(void)
{
    double began = now(), until = began + options.seconds;
    int failures = 0;

    for (uint64_t number = options.first;
         (total.histories % 16 || now() < until) &&
         (!options.histories || total.histories < options.histories);
         number += options.step) {
        struct seed seed = seed_of(number);
        if ((seed.world->weight[OP_FORK] || seed.world->conduct_weight[FORKS]) &&
            number / world_count % 64 && !options.worlds)
            continue; /* a hundred times as slow as the others */
        if (run_seed(&seed, until)) {
            failures = 1;
            break;
        }
    }
    if (!options.quiet) {
        printf("%" PRIu64 " histories, %" PRIu64 " points, %" PRIu64
               " switches, %.3g states, %.1f s",
               total.histories, total.points, total.switches, trace_states(), now() - began);
        for (unsigned i = 0; i < STRATEGY_COUNT; i++)
            printf("%s%s %" PRIu64, i ? ", " : "; ", strategy_names[i], total.by_strategy[i]);
        if (total.programs)
            printf(" (%u programs, %u to the end)", total.programs, total.to_the_end);
        printf("\n");
        trace_report(options.lines);
    }
    return failures;
}

static int help(void)
{
    printf("hwt-sim [-w world,...] [-s seconds] [-n histories] [-f first] [-j step] [-S strategy]\n"
           "        [-l] [-q] [-r] [-t] [seed ...]\n"
           "  -l  say which points were never reached, or never left for another thread\n"
           "  -r  replay each by its events: it must be the same\n"
           "  -t  shrink and trace a failure\n"
           "worlds:\n");
    for (unsigned i = 0; i < world_count; i++)
        printf("  %-12s %s\n", worlds[i].name, worlds[i].shows);
    return 2;
}

static void catch_wild_accesses(void);

/* Of the library's: a history that has failed, as any other. */
static void wild_access(int number)
{
    signal(number, SIG_DFL);
    if (!sim_history)
        return;
    catch_wild_accesses();
    sim_fail("a wild access");
}

static void catch_wild_accesses(void)
{
    struct sigaction action = {.sa_handler = wild_access, .sa_flags = SA_NODEFER};

    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static bool choose_worlds(const char *list)
{
    while (*list && options.worlds < 64) {
        size_t length = strcspn(list, ",");
        options.world[options.worlds] = find_world(list, length);
        if (!options.world[options.worlds++])
            return false;
        list += length + (list[length] == ',');
    }
    return options.worlds > 0;
}

int main(int argc, char **argv)
{
    int option, failures = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    while ((option = getopt(argc, argv, "w:s:n:f:j:S:lqrth")) != -1) {
        switch (option) {
        case 'w':
            if (!choose_worlds(optarg))
                return help();
            break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'n': options.histories = strtoull(optarg, NULL, 0); break;
        case 'f': options.first = strtoull(optarg, NULL, 0); break;
        case 'j': options.step = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'S':
            options.strategy = find(optarg, strlen(optarg), strategy_names, STRATEGY_COUNT);
            break;
        case 'l': options.lines = true; break;
        case 'q': options.quiet = true; break;
        case 'r': options.twice = true; break;
        case 't': options.trace = true; break;
        default: return help();
        }
    }
    catch_wild_accesses();
    trace_set_up();
    memory_set_up();
    pthread_set_up();
    if (optind == argc)
        return run_many();
    for (; optind < argc; optind++) {
        struct seed seed;
        if (!read_seed(argv[optind], &seed))
            return help();
        failures += run_seed(&seed, now() + 3600);
    }
    return failures > 0;
}
