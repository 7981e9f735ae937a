/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much may a single call have to do? Where a histogram of times shows what the machine does to
 * a thread (tail), this counts what the library itself does: each access to memory of each call of
 * schedule and of cancel, beside few and beside many timeouts that stay, and when these have been
 * cancelled and their memory is given back: where there is a worker by him, otherwise on the way of
 * other calls. Like `lines`, it is the library compiled with -fsanitize=thread, with those of
 * hooks.c in place of the sanitizer's.
 */
#include <hwt.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lines.h"
#include "suite/producer.h"

#define DEPTH 1024
/* Of one call: some 25 us where none of the lines is in the cache, and each is waited for. */
#define LIMIT 5000

static _Thread_local bool counting;
static _Thread_local uint64_t accesses, bytes_back;

void line_access(const volatile void *address, size_t size, bool write, const void *place)
{
    (void)write;
    (void)place;
    if (counting && size > 0)
        accesses += ((uintptr_t)address % BENCH_LINE + size - 1) / BENCH_LINE + 1;
}

/* What goes back to the system goes through here. */
int madvise(void *memory, size_t size, int advice)
{
    if (counting && advice == MADV_DONTNEED)
        bytes_back += size;
    return (int)syscall(SYS_madvise, memory, size, advice);
}

/* ---- calls ---- */
struct most {
    uint64_t schedule, cancel, back, all_back;
};

static hwt_timer *timer;
static hwt_timeout *ring[DEPTH];
static unsigned next;

static void ignore(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

static void begin_call(void)
{
    accesses = bytes_back = 0;
    counting = true;
}

static void end_call(uint64_t *most_of_kind, struct most *most)
{
    counting = false;
    *most_of_kind = accesses > *most_of_kind ? accesses : *most_of_kind;
    most->back = bytes_back > most->back ? bytes_back : most->back;
    most->all_back += bytes_back;
}

static void schedule(hwt_timeout **place, struct most *most)
{
    int error;

    begin_call();
    error = hwt_new_timeout(timer, ignore, NULL, HWT_SEC(86400), place);
    end_call(&most->schedule, most);
    if (error)
        bench_die("hwt_new_timeout", error);
}

static void cancel(hwt_timeout *timeout, struct most *most)
{
    begin_call();
    hwt_timeout_cancel(timeout);
    hwt_timeout_unref(timeout);
    end_call(&most->cancel, most);
}

static void pairs(uint64_t count, struct most *most)
{
    for (uint64_t i = 0; i < count; i++) {
        hwt_timeout **place = &ring[next++ % DEPTH];
        cancel(*place, most);
        schedule(place, most);
    }
}

/* ---- a case ---- */
struct scenario {
    uint64_t count;
    bool has_worker;
};

static void report(struct bench *b, const char *what, const struct scenario *s,
                   const struct most *most)
{
    char name[48];
    struct bench_row row = {"hwt", name, 1, s->count, "schedule, most", "accesses", LIMIT};

    snprintf(name, sizeof(name), "%s, %s", what, s->has_worker ? "a worker's" : "a caller's");
    bench_value(b, &row, (double)most->schedule);
    row.metric = "cancel, most";
    bench_value(b, &row, (double)most->cancel);
    row.metric = "back at a time";
    row.unit = "KB";
    row.limit = 0;
    bench_value(b, &row, (double)most->back / 1024);
    row.metric = "back in all";
    bench_value(b, &row, (double)most->all_back / 1024);
}

static void run(struct bench *b, void *arg)
{
    static uint64_t now = 1000000000;
    const struct scenario *s = arg;
    uint64_t count = s->count;
    hwt_timeout **others = bench_alloc(count * sizeof(hwt_timeout *));
    struct most growing = {0}, beside = {0}, going = {0}, after = {0};

    pin_to_cpu(0); /* one lane */
    timer = s->has_worker ? bench_timer(HWT_MSEC(1))
                          : bench_virtual_timer(HWT_WHEEL_HIERARCHICAL, HWT_MSEC(1), &now);
    for (uint64_t i = 0; i < count; i++)
        schedule(&others[i], &growing);
    for (unsigned i = 0; i < DEPTH; i++)
        schedule(&ring[i], &beside);
    pairs(200000, &beside);
    for (uint64_t i = 0; i < count; i++)
        cancel(others[i], &going);
    pairs(20 * count, &after);
    report(b, "scheduled", s, &growing);
    report(b, "pairs beside", s, &beside);
    report(b, "cancelled", s, &going);
    report(b, "pairs afterwards", s, &after);
}

int main(int argc, char **argv)
{
    static uint64_t counts[] = {20000, 200000, 2000000};
    struct bench b;

    bench_open(&b, argc, argv, "what a single call does, counted");
    for (unsigned i = 0; i < 2 * (sizeof(counts) / sizeof(*counts) - (b.quick ? 1 : 0)); i++) {
        struct scenario s = {counts[i / 2], i % 2 == 0};

        bench_progress(&b, "beside %lu", (unsigned long)s.count);
        bench_isolated(&b, run, &s);
    }
    return bench_close(&b);
}
