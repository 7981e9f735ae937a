/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory in proportion to what lives, and tasks on time, at any load (G4, G6, G7): threads that
 * replace the oldest of the timeouts that they keep, as fast as they can; that schedule, move and
 * cancel at random; the same with the worker held in a long task; and very many that were all
 * scheduled well ahead, and then come due within a second. Beside them a timeout runs every 10 ms.
 *
 * The argument is for how many seconds, all in all. For whoever looks for something: a second
 * argument names a case (loads, mixed, held, crowd, returns) or a load (8x500) to play alone, and
 * with HWT_VERBOSE=1 every row is printed.
 */
#include "load.h"

#include <ctype.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { MOST = 1 << 20, MANY = 1000000, FEW = 1000, THREADS = 64 };
enum { HELD_ROUNDS = LOAD_MEASURED ? 2000000 : 50000, HELD_SAMPLE = 10000, RETURN_PAIRS = 1000000 };
#define RETURN_MOST HWT_SEC(20)
/*
 * The system puts so many new threads off against each other as it likes, the worker too: a bare
 * timer beside 32 threads that begin is a tenth of a second late.
 */
#define SETTLING    HWT_MSEC(LOAD_MEASURED ? 300 : 0)

#define AHEAD_EACH HWT_USEC(LOAD_MEASURED ? 1 : 10) /* time to schedule them in */

enum { MEMORY_RETURNS = 1 }; /* 0: the last case is left out */

/* What the producers keep: touched before memory is measured. */
static hwt_timeout *kept[MOST];

static void count_run(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&load.ran, 1);
}

/* ---- a producer and what it keeps ---- */
struct producer {
    pthread_t thread;
    hwt_timeout **kept;
    unsigned each;
    uint64_t scheduled, cancelled;
};

static void schedule(struct producer *p, unsigned i)
{
    STRESS_OK(hwt_new_timeout(load.timer, stress_never, NULL, HWT_SEC(60), &p->kept[i]));
    p->scheduled++;
}

static void end_one(struct producer *p, unsigned i)
{
    STRESS_CHECK(hwt_timeout_cancel(p->kept[i]), "G2: it was not pending");
    hwt_timeout_unref(p->kept[i]);
    p->cancelled++;
}

static void replace(struct producer *p, unsigned i, bool moved)
{
    if (moved)
        STRESS_CHECK(hwt_timeout_reschedule(p->kept[i], HWT_SEC(30)), "it did not move");
    end_one(p, i);
    schedule(p, i);
}

static void fill(struct producer *p)
{
    for (unsigned i = 0; i < p->each; i++)
        schedule(p, i);
}

static void end_all(struct producer *p)
{
    for (unsigned i = 0; i < p->each; i++)
        end_one(p, i);
}

/* Its counts go to the ledger. */
static void settle(const struct producer *p)
{
    atomic_fetch_add(&load.scheduled, p->scheduled);
    atomic_fetch_add(&load.cancelled, p->cancelled);
    atomic_fetch_add(&load.ended, 1);
}

static void *produce_pairs(void *arg)
{
    struct producer *p = arg;

    stress_await(&load.go, 1, "the beginning");
    fill(p);
    atomic_fetch_add(&load.filled, 1);
    for (unsigned i = 0; !atomic_load(&load.quit); i = (i + 1) % p->each)
        replace(p, i, false);
    end_all(p);
    settle(p);
    return NULL;
}

/* ---- the mixed load: any delay, some short enough to run; moves either way ---- */
static uint64_t some_time(void)
{
    switch (stress_below(8)) {
    case 0: return HWT_MSEC(1) + stress_below(HWT_MSEC(20));
    case 1:
    case 2: return HWT_MSEC(1) + stress_below(HWT_SEC(1));
    default: return HWT_MSEC(1) + stress_below(HWT_SEC(60));
    }
}

static void drop(struct producer *p, hwt_timeout **place)
{
    p->cancelled += hwt_timeout_cancel(*place);
    hwt_timeout_unref(*place);
    *place = NULL;
}

static void move(struct producer *p, hwt_timeout **place, bool later)
{
    uint64_t deadline = hwt_timeout_deadline(*place), now = hwt_timer_now(load.timer);

    if (later)
        deadline += stress_below(HWT_SEC(10));
    else if (deadline > now)
        deadline -= (deadline - now) / 4;
    if (!hwt_timeout_reschedule_at(*place, deadline))
        drop(p, place); /* it has run */
}

static void change(struct producer *p, hwt_timeout **place)
{
    if (*place == NULL) {
        STRESS_OK(hwt_new_timeout(load.timer, count_run, NULL, some_time(), place));
        p->scheduled++;
    } else if (stress_one_in(4)) {
        drop(p, place);
    } else {
        move(p, place, stress_one_in(2));
    }
}

static void *produce_mix(void *arg)
{
    struct producer *p = arg;

    stress_await(&load.go, 1, "the beginning");
    for (unsigned i = 0; i < p->each; i++)
        change(p, &p->kept[i]);
    atomic_fetch_add(&load.filled, 1);
    while (!atomic_load(&load.quit))
        change(p, &p->kept[stress_below(p->each)]);
    for (unsigned i = 0; i < p->each; i++)
        if (p->kept[i] != NULL)
            drop(p, &p->kept[i]);
    settle(p);
    return NULL;
}

static void start_producers(struct producer *producers, const struct load_row *row)
{
    memset(producers, 0, sizeof *producers * row->producers);
    memset(kept, 0, sizeof *kept * row->producers * row->each);
    for (unsigned i = 0; i < row->producers; i++) {
        producers[i].kept = &kept[(size_t)i * row->each];
        producers[i].each = row->each;
        producers[i].thread = stress_thread(row->produce, &producers[i]);
    }
}

static void sample_until_all(const _Atomic uint64_t *producers, unsigned count)
{
    while (atomic_load(producers) < count)
        load_sample_until(0);
}

static int play_load(const struct load_row *row)
{
    static struct producer producers[THREADS];
    int verdict;

    load.busy = row->produce == produce_mix;
    start_producers(producers, row);
    load_open(row);
    atomic_store(&load.go, 1);
    sample_until_all(&load.filled, row->producers);
    load_sample_until(stress_now() + SETTLING);
    load_watch_begin();
    load_sample_until(stress_now() + load_share);
    load_await_progress();
    atomic_store(&load.quit, true);
    sample_until_all(&load.ended, row->producers);
    verdict = load_verdict(row);
    for (unsigned i = 0; i < row->producers; i++)
        stress_join(producers[i].thread);
    load_close(row);
    return verdict;
}

/* ---- the worker held in one long task ---- */
static void hold(hwt_timeout *timeout, void *arg)
{
    count_run(timeout, arg);
    atomic_store(&load.held, 1);
    while (!atomic_load(&load.release))
        stress_sleep(HWT_USEC(100));
}

static void look(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void fill_and_hold(struct producer *p, bool taken)
{
    if (taken) {
        fill(p);
        STRESS_CHECK(hwt_timer_visit(load.timer, look, NULL) == (int64_t)p->each + 1, "not all");
    }
    STRESS_OK(hwt_new_timeout(load.timer, hold, NULL, 0, NULL));
    p->scheduled++;
    stress_await(&load.held, 1, "the long task");
    if (!taken)
        fill(p);
}

/* When the worker is released, the watched timeout is soon on time again. */
static int play_held(const struct load_row *row)
{
    struct producer p = {.kept = kept, .each = row->each};
    int verdict;

    memset(kept, 0, sizeof *kept * row->each);
    load_open(row);
    fill_and_hold(&p, row->taken);
    for (unsigned i = 0; i < HELD_ROUNDS; i++) {
        replace(&p, i % p.each, row->moved);
        if (i % HELD_SAMPLE == 0)
            load_sample();
    }
    load_watch_begin();
    atomic_store(&load.release, true);
    load_sample_until(stress_now() + HWT_MSEC(300));
    load_await_progress();
    end_all(&p);
    settle(&p);
    load_sample();
    verdict = load_verdict(row);
    load_close(row);
    return verdict;
}

/* ---- very many, scheduled well ahead: none of them is late ---- */
static void note_run(hwt_timeout *timeout, void *arg)
{
    uint64_t late = load_lateness(timeout);

    if (late > atomic_load(&load.watched.worst_ns))
        atomic_store(&load.watched.worst_ns, late);
    count_run(timeout, arg);
}

static int play_crowd(const struct load_row *row)
{
    uint64_t from;
    int verdict;

    load.busy = true;
    load_open(row);
    from = hwt_timer_now(load.timer) + HWT_MSEC(200) + row->each * AHEAD_EACH;
    for (unsigned i = 0; i < row->each; i++) {
        uint64_t deadline = from + stress_below(HWT_SEC(1));
        STRESS_OK(hwt_new_timeout_at(load.timer, note_run, NULL, deadline, NULL));
    }
    atomic_fetch_add(&load.scheduled, row->each);
    load_watch_begin();
    while (atomic_load(&load.ran) < row->each)
        load_sample_until(stress_now() + LOAD_SAMPLE);
    load_await_progress();
    verdict = load_verdict(row);
    load_close(row);
    return verdict;
}

/* ---- what a peak needed is given back, by the worker: it takes a small part of his time ---- */
static int play_returns(const struct load_row *row)
{
    struct producer p = {.kept = kept, .each = MANY};
    uint64_t extra, left, began = stress_now();
    char line[80];

    memset(kept, 0, sizeof *kept * MANY);
    load_open(row);
    fill(&p);
    extra = load_sample();
    end_all(&p);
    p.each = FEW;
    fill(&p);
    do {
        for (unsigned i = 0; i < RETURN_PAIRS; i++)
            replace(&p, i % FEW, false);
        left = load_sample();
    } while (left >= extra / 3 && stress_now() < began + RETURN_MOST);
    end_all(&p);
    settle(&p);
    load_close(row);
    snprintf(line, sizeof line, "returns: %.1f MB of %.1f, the peak was %.1f", load_mb(left),
             load_mb(extra / 3), load_mb(extra));
    return load_say(left < extra / 3 ? 0 : LOAD_WRONG, "G6: too much is kept", line);
}

/* ---- the table ---- */
#define LOAD(n, in_flight)                                                                         \
    {                                                                                              \
        .what = "loads", .play = play_load, .produce = produce_pairs, .producers = (n),            \
        .each = (in_flight)                                                                        \
    }
#define MIXED(n, in_flight, kind)                                                                  \
    {                                                                                              \
        .what = "mixed", .play = play_load, .produce = produce_mix, .producers = (n),              \
        .each = (in_flight), .wheel = (kind)                                                       \
    }
#define HELD(in_flight, was_taken, is_moved)                                                       \
    {                                                                                              \
        .what = "held", .play = play_held, .producers = 1, .each = (in_flight),                    \
        .taken = (was_taken), .moved = (is_moved)                                                  \
    }

#define CROWD(n, kind, who, which)                                                                 \
    {                                                                                              \
        .what = "crowd", .play = play_crowd, .producers = 1, .each = (n), .wheel = (kind),         \
        .drive = (who), .clock = (which)                                                           \
    }

static const struct load_row rows[] = {
#if LOAD_MEASURED
    LOAD(16, 2000),
    LOAD(16, 4000),
    LOAD(8, 8000),
    LOAD(4, 16000),
    LOAD(2, 65536),
    LOAD(2, 262144),
    LOAD(32, 2000),
    LOAD(32, 4000),
    LOAD(16, 8000),
    LOAD(8, 16000),
    LOAD(4, 65536),
    LOAD(4, 262144),
    MIXED(16, 2000, HWT_WHEEL_HIERARCHICAL),
    MIXED(16, 2000, HWT_WHEEL_HASHED),
    HELD(16384, false, false),
    HELD(65536, false, false), /* more than lanes hold */
    HELD(100, false, true),
    HELD(200000, true, false),
    HELD(200000, true, true),
    CROWD(MANY, HWT_WHEEL_HIERARCHICAL, HWT_DRIVE_WORKER, 0),
    CROWD(MANY, HWT_WHEEL_HASHED, HWT_DRIVE_WORKER, 0),
    CROWD(MANY, HWT_WHEEL_HIERARCHICAL, HWT_DRIVE_CALLER, 0),
    CROWD(MANY, HWT_WHEEL_HASHED, HWT_DRIVE_CALLER, CLOCK_BOOTTIME),
    {.what = "returns", .play = play_returns},
#else
    LOAD(8, 250),
    LOAD(4, 500),
    LOAD(2, 4000),
    MIXED(4, 200, HWT_WHEEL_HIERARCHICAL),
    MIXED(4, 200, HWT_WHEEL_HASHED),
    HELD(2000, false, false),
    HELD(100, false, true),
    HELD(10000, true, false),
    HELD(10000, true, true),
    CROWD(20000, HWT_WHEEL_HIERARCHICAL, HWT_DRIVE_WORKER, 0),
    CROWD(20000, HWT_WHEEL_HASHED, HWT_DRIVE_WORKER, 0),
    CROWD(20000, HWT_WHEEL_HIERARCHICAL, HWT_DRIVE_CALLER, 0),
    CROWD(20000, HWT_WHEEL_HASHED, HWT_DRIVE_CALLER, CLOCK_BOOTTIME),
#endif
};

static bool wanted(const struct load_row *row, const char *only)
{
    return only == NULL ? MEMORY_RETURNS || row->play != play_returns
                        : strcmp(row->what, only) == 0;
}

/* Returns how many rows there were; *missed: how many were not as they should be. */
static unsigned play_table(double seconds, const char *only, unsigned *missed)
{
    unsigned timed = 0, played = 0;

    for (unsigned i = 0; i < LENGTH(rows); i++)
        timed += rows[i].produce != NULL && wanted(&rows[i], only);
    load_share = (uint64_t)(seconds * 1e9) / (timed > 0 ? timed : 1);
    if (load_share < HWT_MSEC(500)) /* for fewer runs nine tenths mean nothing */
        load_share = HWT_MSEC(500);
    for (unsigned i = 0; i < LENGTH(rows); i++) {
        if (!wanted(&rows[i], only))
            continue;
        *missed += !load_play(&rows[i]);
        played++;
    }
    return played;
}

/* A load from the command line: "8x500". */
static unsigned play_given(double seconds, const char *given, unsigned *missed)
{
    char *rest = NULL;
    unsigned n = (unsigned)strtoul(given, &rest, 10);
    unsigned in_flight = *rest == 'x' ? (unsigned)strtoul(rest + 1, &rest, 10) : 0;
    struct load_row row = LOAD(n, in_flight);

    if (*rest != '\0' || n == 0 || n > THREADS || in_flight == 0 || in_flight > MOST / n)
        return 0;
    load_share = (uint64_t)(seconds * 1e9);
    *missed += !load_play(&row);
    return 1;
}

/* Takes the argument that is not the number of seconds, if there is one. */
static const char *take_case(int *argc, char **argv)
{
    const char *last = argv[*argc - 1];

    if (*argc < 2 || (!isalpha((unsigned char)last[0]) && strchr(last, 'x') == NULL))
        return NULL;
    --*argc;
    return last;
}

int main(int argc, char **argv)
{
    const char *only = take_case(&argc, argv);
    double seconds = stress_begin(argc, argv, LOAD_MEASURED ? 21 : 4);
    unsigned missed = 0, played;

    load_totals =
        mmap(NULL, sizeof *load_totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    STRESS_CHECK(load_totals != MAP_FAILED, "mmap: %s", strerror(errno));
    played = only != NULL && isdigit((unsigned char)only[0]) ? play_given(seconds, only, &missed)
                                                             : play_table(seconds, only, &missed);
    STRESS_CHECK(played > 0, "there is no case %s", only);
    STRESS_CHECK(missed == 0, "%u of %u rows", missed, played);
    if (!LOAD_MEASURED)
        return stress_end("stress/load", "%u loads, %" PRIu64 " timeouts; not measured", played,
                          load_totals->scheduled);
    return stress_end("stress/load",
                      "%u loads, %" PRIu64 " timeouts; memory up to %" PRIu64
                      "%% of its bound, late up to %.1f ms; %u not judged",
                      played, load_totals->scheduled, load_totals->memory_percent,
                      (double)load_totals->late_ns / 1e6, load_totals->not_judged);
}
