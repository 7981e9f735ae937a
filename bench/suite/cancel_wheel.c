/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does it cost to cancel what already sits in the wheel? One million of them, in random
 * order, beside a random read of the very same memory in which each address depends on the last.
 */
#include "producer.h"

#include <stdlib.h>

#define EARLIEST HWT_SEC(60)
#define LATEST   HWT_SEC(3600)

enum { CANCEL_WALL, CANCEL_CPU, CPU_ALL, READ, FIGURES };

struct crowd {
    uint64_t count;
    hwt_timeout **timeouts; /* in random order, so that walking the array jumps about */
};

/* They are submitted in the order of their memory, and kept in another one. */
static void submit(hwt_timer *timer, struct crowd *crowd, uint64_t seed)
{
    uint32_t *order = bench_alloc(crowd->count * sizeof(*order));

    for (uint32_t i = 0; i < crowd->count; i++)
        order[i] = i;
    shuffle_u32(order, crowd->count, seed);
    for (uint64_t i = 0; i < crowd->count; i++)
        bench_check(hwt_new_timeout(timer, bench_ignore, crowd,
                                    rng_between(&seed, EARLIEST, LATEST),
                                    &crowd->timeouts[order[i]]),
                    "hwt_new_timeout");
    free(order);
    bench_sync(timer);
}

/* `nothing` is 0, which the compiler cannot know: the next address waits for the last value. */
static double dependent_read(const struct crowd *crowd, volatile uint64_t *nothing)
{
    uint64_t mask = *nothing, last = 0;
    uint64_t start = thread_cpu_ns();

    for (uint64_t i = 0; i < crowd->count; i++)
        last = hwt_timeout_deadline(crowd->timeouts[i + (last & mask)]);
    return (double)(thread_cpu_ns() - start) / (double)crowd->count;
}

static void cancel_all(hwt_timer *timer, struct crowd *crowd, struct series *f)
{
    double n = (double)crowd->count;
    uint64_t all = process_cpu_ns();
    uint64_t wall = clock_ns();
    uint64_t mine = thread_cpu_ns();

    for (uint64_t i = 0; i < crowd->count; i++) {
        hwt_timeout_cancel(crowd->timeouts[i]);
        hwt_timeout_unref(crowd->timeouts[i]);
    }
    series_add(&f[CANCEL_WALL], (double)(clock_ns() - wall) / n);
    series_add(&f[CANCEL_CPU], (double)(thread_cpu_ns() - mine) / n);
    bench_sync(timer);
    series_add(&f[CPU_ALL], (double)(process_cpu_ns() - all) / n);
}

static void one_run(struct crowd *crowd, uint64_t seed, struct series *f)
{
    volatile uint64_t nothing = 0;
    hwt_timer *timer = bench_timer(0);

    submit(timer, crowd, seed);
    series_add(&f[READ], dependent_read(crowd, &nothing));
    cancel_all(timer, crowd, f);
    hwt_timer_destroy(timer);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *metric;
        double limit;
    } what[FIGURES] = {
        [CANCEL_WALL] = {"canceller wall", 0},
        [CANCEL_CPU] = {"canceller CPU", 150},
        [CPU_ALL] = {"CPU in all", 250},
        [READ] = {"dependent read", 0},
    };
    struct series f[FIGURES] = {{.n = 0}};
    struct crowd crowd = {.count = 1000000};
    struct bench b;

    bench_open(&b, argc, argv, "cancelling, in random order, what sits in the wheel");
    crowd.timeouts = bench_alloc(crowd.count * sizeof(*crowd.timeouts));
    for (unsigned i = 0; i < b.repeats; i++) {
        bench_progress(&b, "run %u of %u", i + 1, b.repeats);
        one_run(&crowd, i + 1, f);
    }
    for (unsigned i = 0; i < FIGURES; i++) {
        struct bench_row row = {"hwt", "random order", 1, crowd.count, what[i].metric,
                                "ns",  what[i].limit};

        bench_report(&b, &row, &f[i]);
    }
    free(crowd.timeouts);
    return bench_close(&b);
}
