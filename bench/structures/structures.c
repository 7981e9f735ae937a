/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The textbooks' O() as numbers: schedule, cancel, an event loop's turn (beside few as well) and
 * expire with 10^3 to 10^7 pending, one structure after the other under one interface,
 * single-threaded, deadlines spread over a minute.
 */
#include "structures.h"
#include "suite/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPAN   HWT_SEC(60)
#define SAMPLE 100000
#define FEW    4 /* pending beside an event loop's turn; nothing else is measured beside so few */
#define MANY   1000

static const struct structure *const structures[] = {
    &sorted_list,         &binary_heap,   &skip_list,
    &list_wheel_hashed,   &libhwt_hashed, &list_wheel_hierarchical,
    &libhwt_hierarchical,
};

enum { SCHEDULE, CANCEL, TURN, EXPIRE, OPERATIONS };

/* ---- the population: the same items for every structure ---- */
struct population {
    struct item *items; /* n of them, and as many more as are scheduled later */
    struct item **sorted;
    uint32_t *order; /* in which to cancel */
    uint64_t n, extra;
};

static int by_deadline(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;

    return (x->deadline > y->deadline) - (x->deadline < y->deadline);
}

static void population_reset(struct population *p)
{
    uint64_t seed = 17;

    memset(p->items, 0, (p->n + p->extra) * sizeof(*p->items));
    for (uint64_t i = 0; i < p->n + p->extra; i++)
        p->items[i].deadline = STRUCTURE_TICK + rng_between(&seed, 0, SPAN);
}

static void population_new(struct population *p, uint64_t n)
{
    p->n = n;
    p->extra = n < SAMPLE ? n : SAMPLE;
    p->items = bench_alloc((n + p->extra) * sizeof(*p->items));
    p->sorted = bench_alloc(n * sizeof(*p->sorted));
    p->order = bench_alloc(n * sizeof(*p->order));
    population_reset(p);
    for (uint32_t i = 0; i < n; i++) {
        p->order[i] = i;
        p->sorted[i] = &p->items[i];
    }
    shuffle_u32(p->order, n, 19);
    qsort(p->sorted, n, sizeof(*p->sorted), by_deadline);
}

static void population_free(struct population *p)
{
    free(p->items);
    free(p->sorted);
    free(p->order);
}

/* ---- one run: each operation in turn, none for longer than the cap ---- */
struct run {
    const struct structure *kind;
    void *self;
    struct population *p;
    uint64_t cap_ns;
    struct series *f;
};

static void fill(const struct run *r)
{
    if (r->kind->fill)
        r->kind->fill(r->self, r->p->sorted, r->p->n);
    for (uint64_t i = 0; i < r->p->n && !r->kind->fill; i++)
        r->kind->insert(r->self, &r->p->items[i]);
    r->kind->expire(r->self, 0); /* libhwt takes in what was submitted */
}

/* The clock is looked at every 16 operations (1.5 ns each), and after each of the first ones. */
static bool too_long(const struct run *r, uint64_t done, uint64_t start)
{
    return (done < 16 || done % 16 == 0) && clock_ns() - start > r->cap_ns;
}

static uint64_t schedule_some(const struct run *r)
{
    struct item *item = r->p->items + r->p->n;
    uint64_t start = clock_ns(), done = 0;

    while (done < r->p->extra && !too_long(r, done, start))
        r->kind->insert(r->self, item + done++);
    series_add(&r->f[SCHEDULE], (double)(clock_ns() - start) / (double)done);
    return done;
}

static void cancel_some(const struct run *r, uint64_t many)
{
    uint64_t start = clock_ns(), done = 0;

    while (done < many && !too_long(r, done, start)) {
        r->kind->cancel(r->self, &r->p->items[r->p->order[done]]);
        done++;
    }
    series_add(&r->f[CANCEL], (double)(clock_ns() - start) / (double)done);
}

/* An event loop's: one that is the earliest, the time until then, and it is cancelled. */
static void turn_some(const struct run *r)
{
    uint64_t start = clock_ns(), done = 0;
    struct item item = {.deadline = 0};

    while (r->kind->next && done < SAMPLE && !too_long(r, done, start)) {
        item.deadline = STRUCTURE_TICK / 2; /* earlier than all others */
        r->kind->insert(r->self, &item);
        if (r->kind->next(r->self) != STRUCTURE_TICK / 2)
            bench_die("the earliest is not the next one", EINVAL);
        r->kind->cancel(r->self, &item);
        done++;
    }
    if (done)
        series_add(&r->f[TURN], (double)(clock_ns() - start) / (double)done);
}

static uint64_t next_look(const struct run *r, uint64_t now)
{
    uint64_t next = now + STRUCTURE_TICK;

    if (r->kind->next)
        next = r->kind->next(r->self);
    if (next > SPAN + 2 * STRUCTURE_TICK)
        return UINT64_MAX;
    return (next + STRUCTURE_TICK - 1) / STRUCTURE_TICK * STRUCTURE_TICK;
}

static void expire_all(const struct run *r)
{
    uint64_t start = clock_ns(), done = 0, now = 0;

    for (uint64_t looks = 1; (now = next_look(r, now)) != UINT64_MAX; looks++) {
        done += r->kind->expire(r->self, now);
        if (too_long(r, looks, start))
            break;
    }
    if (done)
        series_add(&r->f[EXPIRE], (double)(clock_ns() - start) / (double)done);
}

static void one_run(struct bench *b, const struct structure *kind, struct population *p,
                    struct series *f)
{
    struct run r = {kind, NULL, p, (uint64_t)(b->seconds * 2e9), f};

    population_reset(p);
    r.self = kind->create(p->n + p->extra);
    fill(&r);
    cancel_some(&r, schedule_some(&r));
    turn_some(&r);
    expire_all(&r);
    kind->destroy(r.self);
}

static void measure(struct bench *b, const struct structure *kind, struct population *p)
{
    const char *const operations[OPERATIONS] = {"schedule", "cancel", "turn", "expire"};
    const char *const orders[OPERATIONS] = {
        [SCHEDULE] = kind->schedule_order,
        [CANCEL] = kind->cancel_order,
        [TURN] = kind->schedule_order,
        [EXPIRE] = kind->expire_order,
    };
    struct series f[OPERATIONS] = {{.n = 0}};
    char unit[40];

    for (unsigned i = 0; i < b->repeats; i++) {
        bench_progress(b, "%s, %llu pending, run %u of %u", kind->name, (unsigned long long)p->n,
                       i + 1, b->repeats);
        one_run(b, kind, p, f);
    }
    for (unsigned i = 0; i < OPERATIONS; i++) {
        struct bench_row row = {strncmp(kind->name, "libhwt", 6) ? "textbook" : "hwt",
                                kind->name,
                                0,
                                p->n,
                                operations[i],
                                unit,
                                0};

        snprintf(unit, sizeof(unit), "ns, O(%s)", orders[i]);
        if (f[i].n && (p->n >= MANY || i == TURN))
            bench_report(b, &row, &f[i]);
    }
}

/* Every structure has a process of its own for each population, and so the same fresh memory. */
struct request {
    const struct structure *kind;
    uint64_t n;
};

static void isolated(struct bench *b, void *arg)
{
    const struct request *request = arg;
    struct population p;

    population_new(&p, request->n);
    measure(b, request->kind, &p);
    population_free(&p);
}

int main(int argc, char **argv)
{
    struct bench b;

    bench_open(&b, argc, argv, "the structures of the field, single-threaded");
    if (b.repeats > 3)
        b.repeats = 3;
    for (uint64_t n = FEW; n <= (b.quick ? 100000 : 10000000); n = n == FEW ? MANY : n * 10)
        for (unsigned i = 0; i < sizeof(structures) / sizeof(*structures); i++) {
            struct request request = {structures[i], n};

            if (bench_wants(&b, structures[i]->name))
                bench_isolated(&b, isolated, &request);
        }
    return bench_close(&b);
}
