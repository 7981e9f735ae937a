/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many timeouts due at the very same tick: how long does the worker take over them, and what does
 * a producer notice that submits, cancels and waits for timeouts of its own meanwhile?
 */
#include "producer.h"

#include <semaphore.h>
#include <stdlib.h>

enum { DRAIN, EACH, CALL_P50, CALL_P99, CALL_MAX, PROBE_P50, PROBE_MAX, AFTER, FIGURES };

#define CALLS_MAX  (1 << 20)
#define PROBES_MAX 4096

struct probe {
    struct burst *burst;
    uint64_t deadline;
    uint64_t at;
};

struct burst {
    uint64_t count;
    _Atomic uint64_t first, last; /* when the first and the last of them ran */
    _Atomic uint64_t ran;
    _Atomic uint64_t probes_ran;
    uint64_t *calls; /* how long a schedule + cancel took while the burst was on */
    size_t n_calls;
    struct probe probes[PROBES_MAX];
    size_t n_probes;
};

static void one_of_many(hwt_timeout *timeout, void *arg)
{
    struct burst *burst = arg;
    uint64_t now = clock_ns();
    uint64_t ran = atomic_load_explicit(&burst->ran, memory_order_relaxed);

    (void)timeout;
    if (ran == 0)
        atomic_store_explicit(&burst->first, now, memory_order_relaxed);
    atomic_store_explicit(&burst->last, now, memory_order_relaxed);
    atomic_store_explicit(&burst->ran, ran + 1, memory_order_release);
}

static void probe_ran(hwt_timeout *timeout, void *arg)
{
    struct probe *probe = arg;

    (void)timeout;
    probe->at = clock_ns();
    atomic_fetch_add_explicit(&probe->burst->probes_ran, 1, memory_order_release);
}

static uint64_t burst_ran(struct burst *burst)
{
    return atomic_load_explicit(&burst->ran, memory_order_acquire);
}

/* A pair as any producer makes it, and now and then a timeout that is due in a moment. */
static void bother(hwt_timer *timer, struct burst *burst, uint64_t turn)
{
    hwt_timeout *timeout;
    uint64_t start = clock_ns();

    bench_check(hwt_new_timeout(timer, bench_ignore, NULL, HWT_SEC(30), &timeout),
                "hwt_new_timeout");
    hwt_timeout_cancel(timeout);
    hwt_timeout_unref(timeout);
    if (burst->n_calls < CALLS_MAX)
        burst->calls[burst->n_calls++] = clock_ns() - start;
    if (turn % 1024 == 0 && burst->n_probes < PROBES_MAX) {
        struct probe *probe = &burst->probes[burst->n_probes++];

        probe->burst = burst;
        probe->deadline = clock_ns() + HWT_USEC(100);
        bench_check(hwt_new_timeout_at(timer, probe_ran, probe, probe->deadline, NULL),
                    "hwt_new_timeout_at");
    }
}

static uint64_t submit_burst(hwt_timer *timer, struct burst *burst)
{
    uint64_t at = hwt_timer_now(timer) + burst->count * 200 + HWT_MSEC(100);

    for (uint64_t i = 0; i < burst->count; i++)
        bench_check(hwt_new_timeout_at(timer, one_of_many, burst, at, NULL), "hwt_new_timeout_at");
    return at;
}

static void probe_figures(struct burst *burst, struct series *f)
{
    uint64_t late[PROBES_MAX];

    for (size_t i = 0; i < burst->n_probes; i++)
        late[i] = burst->probes[i].at - burst->probes[i].deadline;
    sort_u64(late, burst->n_probes);
    series_add(&f[PROBE_P50], (double)percentile(late, burst->n_probes, 50) / 1e3);
    series_add(&f[PROBE_MAX], (double)percentile(late, burst->n_probes, 100) / 1e3);
}

static void figures(struct burst *burst, uint64_t at, struct series *f)
{
    double drain = (double)(atomic_load(&burst->last) - atomic_load(&burst->first));

    series_add(&f[DRAIN], drain / 1e6);
    series_add(&f[EACH], drain / (double)burst->count);
    sort_u64(burst->calls, burst->n_calls);
    series_add(&f[CALL_P50], (double)percentile(burst->calls, burst->n_calls, 50));
    series_add(&f[CALL_P99], (double)percentile(burst->calls, burst->n_calls, 99));
    series_add(&f[CALL_MAX], (double)percentile(burst->calls, burst->n_calls, 100) / 1e3);
    probe_figures(burst, f);
    series_add(&f[AFTER], (double)(atomic_load(&burst->first) - at) / 1e3);
}

static void one_run(uint64_t count, struct series *f)
{
    struct burst *burst = bench_alloc(sizeof(*burst));
    hwt_timer *timer = bench_timer(0);
    uint64_t at, now;

    burst->count = count;
    burst->calls = bench_alloc(CALLS_MAX * sizeof(uint64_t));
    at = submit_burst(timer, burst);
    now = clock_ns();
    sleep_ns(at > now + HWT_MSEC(2) ? at - now - HWT_MSEC(2) : 0);
    while (burst_ran(burst) == 0)
        ;
    for (uint64_t turn = 0; burst_ran(burst) < count || turn < 1024; turn++)
        bother(timer, burst, turn);
    while (atomic_load_explicit(&burst->probes_ran, memory_order_acquire) < burst->n_probes)
        sleep_ns(HWT_MSEC(1));
    hwt_timer_destroy(timer);
    figures(burst, at, f);
    free(burst->calls);
    free(burst);
}

static void measure(struct bench *b, uint64_t count)
{
    static const struct {
        const char *metric, *unit;
    } what[FIGURES] = {
        [DRAIN] = {"drained in", "ms"},         [EACH] = {"wall each", "ns"},
        [CALL_P50] = {"pair p50", "ns"},        [CALL_P99] = {"pair p99", "ns"},
        [CALL_MAX] = {"pair max", "us"},        [PROBE_P50] = {"probe late p50", "us"},
        [PROBE_MAX] = {"probe late max", "us"}, [AFTER] = {"first late", "us"},
    };
    struct series f[FIGURES] = {{.n = 0}};

    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%llu at once, run %u of %u", (unsigned long long)count, i + 1,
                       b->repeats);
        one_run(count, f);
    }
    for (unsigned i = 0; i < FIGURES; i++) {
        struct bench_row row = {"hwt",          "all at one tick", 1, count,
                                what[i].metric, what[i].unit,      0};

        bench_report(b, &row, &f[i]);
    }
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "many due at one tick, and a producer beside them");
    for (uint64_t count = 1000; count <= (b.quick ? 100000 : 1000000); count *= 10)
        measure(&b, count);
    return bench_close(&b);
}
