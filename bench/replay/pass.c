/* SPDX-License-Identifier: BSD-2-Clause */
/* One pass over the recording: a timer, the producers, the settling, stop, and what it cost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "replay.h"

/* How long all threads have to reach the start in real time. */
#define LEAD_NS HWT_MSEC(20)

static uint64_t clock_ns(clockid_t clock_id)
{
    struct timespec now;

    clock_gettime(clock_id, &now);
    return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / HWT_SEC(1)), (long)(ns % HWT_SEC(1))};

    nanosleep(&pause, NULL);
}

/* ---- what it costs ---- */
struct cost {
    uint64_t cpu_ns;  /* of all threads */
    uint64_t main_ns; /* of this one, which only watches and checks */
};

static uint64_t timeval_ns(struct timeval time)
{
    return HWT_SEC(time.tv_sec) + HWT_USEC(time.tv_usec);
}

static struct cost cost_now(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (struct cost){timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime),
                         clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

static uint64_t peak_memory(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* The second number of statm: resident pages. */
static uint64_t memory_now(void)
{
    char line[128], *resident = NULL;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file)
        return 0;
    if (fgets(line, sizeof line, file))
        resident = strchr(line, ' ');
    fclose(file);
    return resident ? strtoull(resident, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/*
 * What trace and notes take, before the library takes anything. Its pool keeps memory from one
 * pass for the next, so this is read once: later passes would count that as ours.
 */
static uint64_t memory_without_library(void)
{
    static uint64_t bytes;

    if (bytes == 0)
        bytes = memory_now();
    return bytes;
}

/* Lets each pass have a peak of its own; where the kernel refuses, peaks only grow. */
static void forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    if (file) {
        fputs("5", file);
        fclose(file);
    }
}

/* ---- producers ---- */

/* Every S and R may turn out to be a start. */
static size_t count_starts(const struct record *records, size_t count)
{
    size_t starts = 0;

    for (size_t i = 0; i < count; i++)
        starts += records[i].op == 'S' || records[i].op == 'R';
    return starts;
}

static size_t outcomes_size(size_t capacity)
{
    return (capacity + 1) * sizeof(struct outcome); /* no producer may have none to map */
}

/* Populated now: no page of it shall be faulted in while the clock runs. */
static struct outcome *map_outcomes(size_t capacity)
{
    void *memory = mmap(NULL, outcomes_size(capacity), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static bool prepare_player(struct pass *pass, struct player *player, unsigned number)
{
    const struct trace *trace = pass->trace;

    *player = (struct player){.pass = pass};
    player->records = trace->records + trace->first[number];
    player->count = trace->first[number + 1] - trace->first[number];
    player->live_count = trace->timer_numbers / trace->producers + 1;
    player->capacity = count_starts(player->records, player->count);
    player->live = calloc(player->live_count, sizeof(struct outcome *));
    player->outcomes = map_outcomes(player->capacity);
    return player->live && player->outcomes;
}

static void free_players(struct pass *pass)
{
    for (unsigned i = 0; pass->players && i < pass->trace->producers; i++) {
        struct player *player = &pass->players[i];

        free(player->live);
        if (player->outcomes)
            munmap(player->outcomes, outcomes_size(player->capacity));
    }
    free(pass->players);
}

static int prepare_players(struct pass *pass)
{
    pass->players = calloc(pass->trace->producers, sizeof *pass->players);
    if (!pass->players)
        return -ENOMEM;
    for (unsigned i = 0; i < pass->trace->producers; i++)
        if (!prepare_player(pass, &pass->players[i], i))
            return -ENOMEM;
    return 0;
}

/* Threads that wait at the barrier cannot be called back, so failure here is final. */
static void start_players(struct pass *pass)
{
    unsigned producers = pass->trace->producers;

    atomic_store(&pass->playing, producers);
    pthread_barrier_init(&pass->barrier, NULL, producers + 1);
    for (unsigned i = 0; i < producers; i++) {
        int error = pthread_create(&pass->players[i].thread, NULL, player_main, &pass->players[i]);

        if (error) {
            fprintf(stderr, "hwt-replay: cannot start a producer: %s\n", strerror(error));
            exit(REPLAY_TROUBLE);
        }
    }
    uint64_t now = hwt_timer_now(pass->timer);

    pass->offset_ns = (int64_t)(clock_ns(CLOCK_MONOTONIC) - now);
    pass->base_ns = now + (pass->speed == SPEED_REAL ? LEAD_NS : 0);
    pthread_barrier_wait(&pass->barrier);
}

/* Shows progress until the last producer is done; none needs this thread meanwhile. */
static void watch_players(struct pass *pass)
{
    uint64_t pause = HWT_MSEC(1);

    while (atomic_load_explicit(&pass->playing, memory_order_acquire) > 0) {
        sleep_ns(pause);
        if (pause < HWT_MSEC(50))
            pause *= 2;
        progress_show(pass);
    }
    for (unsigned i = 0; i < pass->trace->producers; i++)
        pthread_join(pass->players[i].thread, NULL);
    pthread_barrier_destroy(&pass->barrier);
    progress_pass_ends(pass);
}

/* ---- the end of a pass ---- */
static bool owes_a_run(const struct outcome *outcome, uint64_t now_ns)
{
    return outcome->handle && outcome->deadline_ns <= now_ns &&
           atomic_load_explicit(&outcome->runs, memory_order_acquire) == 0;
}

static bool all_have_run(const struct pass *pass, uint64_t now_ns)
{
    for (unsigned p = 0; p < pass->trace->producers; p++)
        for (size_t i = 0; i < pass->players[p].used; i++)
            if (owes_a_run(&pass->players[p].outcomes[i], now_ns))
                return false;
    return true;
}

/* What was due when the producers ended must run; stop shall only find what was not. */
static void settle(struct pass *pass)
{
    pass->end_ns = hwt_timer_now(pass->timer);
    while (!all_have_run(pass, pass->end_ns)) {
        if (hwt_timer_now(pass->timer) > pass->end_ns + REPLAY_LOST_NS)
            return; /* the checks will name them */
        sleep_ns(HWT_MSEC(1));
    }
}

static void count_players(const struct pass *pass, struct result *result)
{
    uint64_t begin = UINT64_MAX, end = 0;

    for (unsigned i = 0; i < pass->trace->producers; i++) {
        const struct player *player = &pass->players[i];

        begin = player->begin_ns < begin ? player->begin_ns : begin;
        end = player->end_ns > end ? player->end_ns : end;
        result->started += player->used;
        result->moved += player->moved;
        result->raced += player->raced;
        if (player->raced_ns_max > result->raced_ns_max)
            result->raced_ns_max = player->raced_ns_max;
    }
    result->wall_ns = end - (pass->speed == SPEED_REAL ? pass->base_ns : begin);
    if (result->wall_ns)
        result->rate = (uint64_t)((double)result->operations * 1e9 / (double)result->wall_ns);
}

static void count_cost(const struct pass *pass, struct result *result, struct cost before)
{
    struct cost after = cost_now();
    uint64_t players = 0, main_ns = after.main_ns - before.main_ns;

    for (unsigned i = 0; i < pass->trace->producers; i++)
        players += pass->players[i].cpu_ns;
    result->cpu_ns = after.cpu_ns - before.cpu_ns;
    result->cpu_ns -= main_ns < result->cpu_ns ? main_ns : result->cpu_ns;
    result->cpu_each_ns = result->operations ? result->cpu_ns / result->operations : 0;
    result->cpu_worker_ns = result->cpu_ns > players ? result->cpu_ns - players : 0;
}

static int judge(struct pass *pass, struct result *result, hwt_unprocessed *unprocessed)
{
    check_hand_back(pass, unprocessed);
    hwt_stats_init(&result->stats);
    if (hwt_timer_stats(pass->timer, &result->stats) != 0)
        complain(&pass->complaints, "the statistics cannot be read");
    count_players(pass, result);
    int error = check_outcomes(pass, result);

    if (error == 0)
        check_ledger(pass, result);
    return error;
}

static int play_pass(struct pass *pass, struct result *result)
{
    struct cost before = cost_now();
    hwt_unprocessed unprocessed = {0};

    start_players(pass);
    watch_players(pass);
    settle(pass);
    int error = hwt_timer_stop(pass->timer, &unprocessed);

    if (error) {
        fprintf(stderr, "hwt-replay: the timer cannot be stopped: %s\n", strerror(-error));
        exit(REPLAY_TROUBLE); /* its worker may still write what we would free */
    }
    count_cost(pass, result, before);
    result->peak_bytes = peak_memory();
    if (result->peak_bytes > pass->memory_bytes)
        result->library_bytes = result->peak_bytes - pass->memory_bytes;
    return judge(pass, result, &unprocessed);
}

static int run_prepared(struct pass *pass, struct result *result)
{
    int error = hwt_timer_create(&pass->timer, &pass->settings->config);

    if (error)
        return error;
    error = hwt_timer_start(pass->timer);
    if (error == 0)
        error = play_pass(pass, result);
    hwt_timer_destroy(pass->timer);
    return error;
}

int pass_run(const struct trace *trace, const struct settings *settings, enum replay_speed speed,
             enum replay_moves moves, const char *title, struct result *result)
{
    struct pass pass = {
        .trace = trace, .settings = settings, .speed = speed, .moves = moves, .title = title};
    int error;

    *result = (struct result){.speed = speed, .moves = moves, .records = trace->count};
    result->operations = trace->count - trace->expiries;
    pthread_mutex_init(&pass.complaints.lock, NULL);
    error = prepare_players(&pass);
    pass.memory_bytes = memory_without_library();
    forget_peak();
    if (error == 0)
        error = run_prepared(&pass, result);
    free_players(&pass);
    pthread_mutex_destroy(&pass.complaints.lock);
    result->mismatches = atomic_load(&pass.complaints.count);
    if (error)
        fprintf(stderr, "hwt-replay: %s: %s\n", title, strerror(-error));
    return error ? -1 : 0;
}

void result_free(struct result *result)
{
    free(result->late_ns);
    result->late_ns = NULL;
}
