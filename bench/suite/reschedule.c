/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does it cost to move a deadline? Later, as a connection does with its idle timeout on every
 * packet, and earlier; while the timeout is still in its lane, and when it is in the wheel.
 */
#include "producer.h"

#include <errno.h>
#include <stdlib.h>

#define HOT 1024

enum { WALL, CPU, RATIO, ALL, FIGURES };

struct crowd {
    hwt_timer *timer;
    uint64_t count;
    uint64_t delay; /* the next move's */
    int64_t step;   /* from move to move: later or earlier */
    hwt_timeout **timeouts;
};

static void submit(struct crowd *crowd, uint64_t delay)
{
    for (uint64_t i = 0; i < crowd->count; i++)
        bench_check(hwt_new_timeout(crowd->timer, bench_ignore, crowd, delay, &crowd->timeouts[i]),
                    "hwt_new_timeout");
    crowd->delay = delay;
}

static void withdraw(struct crowd *crowd)
{
    for (uint64_t i = 0; i < crowd->count; i++) {
        hwt_timeout_cancel(crowd->timeouts[i]);
        hwt_timeout_unref(crowd->timeouts[i]);
    }
}

static void shuffle(struct crowd *crowd)
{
    uint64_t seed = 11;

    for (uint64_t i = crowd->count; i > 1; i--) {
        uint64_t j = rng_between(&seed, 0, i);
        hwt_timeout *kept = crowd->timeouts[i - 1];

        crowd->timeouts[i - 1] = crowd->timeouts[j];
        crowd->timeouts[j] = kept;
    }
}

/* ---- the moves ---- */
static void must_move(bool moved)
{
    if (!moved)
        bench_die("hwt_timeout_reschedule", ECANCELED);
}

static void move_all(struct crowd *crowd)
{
    uint64_t delay = crowd->delay;

    for (uint64_t i = 0; i < crowd->count; i++) {
        delay += (uint64_t)crowd->step;
        must_move(hwt_timeout_reschedule(crowd->timeouts[i], delay));
    }
    crowd->delay = delay;
}

static void read_all(const struct crowd *crowd, volatile uint64_t *sink)
{
    uint64_t last = 0;

    for (uint64_t i = 0; i < crowd->count; i++)
        last += clock_ns();
    *sink = last;
}

struct cost {
    uint64_t wall, cpu, all, clock, moves; /* clock: CPU time of the loop that only reads it */
};

/*
 * The clock loop is measured right beside each turn, so that both see the same machine; compared
 * is CPU time, in which being preempted does not count.
 */
static void measure_turn(struct crowd *crowd, struct cost *cost)
{
    volatile uint64_t sink;
    uint64_t clock = thread_cpu_ns(), cpu, all, wall;

    read_all(crowd, &sink);
    all = process_cpu_ns();
    wall = clock_ns();
    cpu = thread_cpu_ns();
    cost->clock += cpu - clock;
    move_all(crowd);
    cost->cpu += thread_cpu_ns() - cpu;
    cost->wall += clock_ns() - wall;
    cost->all += process_cpu_ns() - all;
    cost->moves += crowd->count;
}

static void add_cost(const struct cost *cost, struct series *f)
{
    double moves = (double)cost->moves;

    series_add(&f[WALL], (double)cost->wall / moves);
    series_add(&f[CPU], (double)cost->cpu / moves);
    series_add(&f[ALL], (double)cost->all / moves);
    series_add(&f[RATIO], (double)cost->cpu / (double)cost->clock);
}

/* ---- the cases ---- */
enum place { IN_LANE, IN_WHEEL };

struct scenario {
    const char *name;
    enum place place;
    uint64_t count;
    int64_t step;
    bool once; /* each timeout is moved a single time, then all start afresh */
    double limit;
};

/*
 * The worker's next wake-up is far earlier than any deadline here, now and after every move: none
 * of them needs to wake it, and a timeout that has just been submitted is still in its lane.
 */
#define FAR HWT_SEC(3600)

static void turns(struct crowd *crowd, const struct scenario *s, uint64_t least, struct cost *cost)
{
    do {
        submit(crowd, FAR);
        if (s->place == IN_WHEEL)
            bench_sync(crowd->timer);
        shuffle(crowd);
        do
            measure_turn(crowd, cost);
        while (!s->once && cost->moves < least);
        withdraw(crowd);
    } while (cost->moves < least);
}

static void one_run(struct bench *b, const struct scenario *s, struct series *f)
{
    struct crowd crowd = {.timer = bench_timer(0), .count = s->count, .step = s->step};
    struct cost cost = {.moves = 0};
    uint64_t least = b->quick ? 200000 : 1000000;

    bench_check(hwt_new_timeout(crowd.timer, bench_ignore, NULL, HWT_SEC(300), NULL),
                "hwt_new_timeout");
    bench_sync(crowd.timer);
    crowd.timeouts = bench_alloc(s->count * sizeof(*crowd.timeouts));
    turns(&crowd, s, s->once ? least / 4 : least, &cost);
    add_cost(&cost, f);
    free(crowd.timeouts);
    hwt_timer_destroy(crowd.timer);
}

static void measure(struct bench *b, const struct scenario *s)
{
    struct series f[FIGURES] = {{.n = 0}};
    struct bench_row row = {"hwt", s->name, 1, s->count, "wall each", "ns", 0};

    if (!bench_wants(b, s->name))
        return;
    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, run %u of %u", s->name, i + 1, b->repeats);
        one_run(b, s, f);
    }
    bench_report(b, &row, &f[WALL]);
    row.metric = "CPU each";
    bench_report(b, &row, &f[CPU]);
    row.metric = "CPU in all";
    bench_report(b, &row, &f[ALL]);
    row.metric = "CPU / clock";
    row.unit = "times";
    row.limit = s->limit;
    bench_report(b, &row, &f[RATIO]);
}

int main(int argc, char **argv)
{
    const uint64_t million = 1000000;
    const struct scenario scenarios[] = {
        {"later, in the lane", IN_LANE, HOT, 1000, false, 1.3},
        {"later, in the wheel", IN_WHEEL, HOT, 1000, false, 1.3},
        {"later, wheel, cold memory", IN_WHEEL, million, 1000, false, 0},
        {"earlier, in the lane", IN_LANE, HOT, -1000, true, 3},
        {"earlier, in the wheel", IN_WHEEL, HOT, -1000, true, 3},
        {"earlier, again and again", IN_WHEEL, HOT, -1000, false, 3},
    };
    struct bench b;

    bench_open(&b, argc, argv, "moving a deadline, beside one clock read");
    for (unsigned i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
        measure(&b, &scenarios[i]);
    return bench_close(&b);
}
