/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a timeout's memory goes, mostly seen from outside: that of the cancelled is there again
 * before a flood of expiries is over (G6), and what a large timer leaves goes back to the system.
 * Addresses are compared, and asked about, after the blocks they name were given back: never looked
 * into.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"
#include "timer.h"

TestSuite(memory, .init = test_arm);

#define EPOCH HWT_SEC(1000)

/* ---- a flood ---- */

enum { FLOOD = 20000, VICTIMS = 4096 };

/*
 * The worker takes 64 due ones at a time. What was cancelled in an early handful must have been
 * taken in, and its memory used again, long before the last one of the same moment runs: without a
 * look at the lanes between handfuls that would be in the next pass.
 */
typedef struct flood {
    rig rig;
    hwt_timeout *due[FLOOD]; /* held, so that no memory but the victims' becomes free */
    hwt_timeout *victim[VICTIMS];
    uintptr_t address[VICTIMS]; /* in order */
    unsigned ran;
    unsigned reused;    /* submissions that got the memory of a victim */
    unsigned reused_at; /* how many had run at the first of these */
} flood;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

    return (x > y) - (x < y);
}

static void flood_task(hwt_timeout *timeout, void *arg)
{
    flood *f = arg;
    hwt_timeout *fresh = NULL;
    uintptr_t address;

    (void)timeout;
    if (f->ran++ == 0) {
        for (unsigned i = 0; i < VICTIMS; i++) {
            cr_assert(hwt_timeout_cancel(f->victim[i]));
            hwt_timeout_unref(f->victim[i]);
        }
    }
    cr_assert_eq(hwt_new_timeout(f->rig.timer, noop_task, NULL, HWT_SEC(3600), &fresh), 0);
    address = (uintptr_t)fresh;
    hwt_timeout_unref(fresh);
    if (!bsearch(&address, f->address, VICTIMS, sizeof(address), by_address))
        return;
    if (f->reused++ == 0)
        f->reused_at = f->ran;
}

static void open_flood(flood *f, hwt_wheel_kind wheel)
{
    cr_assert_eq(rig_start(&f->rig, wheel, EPOCH), 0);
    for (unsigned i = 0; i < VICTIMS; i++) {
        cr_assert_eq(hwt_new_timeout(f->rig.timer, noop_task, NULL, HWT_SEC(60), &f->victim[i]), 0);
        f->address[i] = (uintptr_t)f->victim[i];
    }
    qsort(f->address, VICTIMS, sizeof(f->address[0]), by_address);
    for (unsigned i = 0; i < FLOOD; i++)
        cr_assert_eq(hwt_new_timeout(f->rig.timer, flood_task, f, HWT_MSEC(50), &f->due[i]), 0);
    cr_assert_eq(rig_advance_by(&f->rig, HWT_MSEC(49)), 0);
    cr_assert_neq(hwt_timer_next_deadline(f->rig.timer), 0); /* all of them go into the wheel */
}

WHEEL_TEST(memory, is_used_again_while_a_flood_is_on)
{
    flood *f = calloc(1, sizeof(*f));

    cr_assert(f);
    open_flood(f, wheel);
    cr_assert_eq(rig_advance_by(&f->rig, HWT_MSEC(1)), FLOOD);
    cr_assert_eq(stats_of(f->rig.timer).withdrawn, 0, "the victims were in the wheel");
    cr_assert_gt(f->reused, VICTIMS / 2, "G6: %u reused", f->reused);
    cr_assert_lt(f->reused_at, FLOOD / 2, "the first only after %u", f->reused_at);
    for (unsigned i = 0; i < FLOOD; i++)
        hwt_timeout_unref(f->due[i]);
    rig_close(&f->rig);
    free(f);
}

/* G6: out of the wheel by who cancels it, without the worker: its block is the next one's. */
WHEEL_TEST(memory, is_used_again_at_once)
{
    static const uint64_t delays[] = {HWT_USEC(100), HWT_MSEC(5), HWT_SEC(3), HWT_SEC(86400)};
    hwt_timeout *crowd[200], *next = NULL;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, EPOCH), 0);
    for (size_t i = 0; i < 200; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, delays[i % 4], &crowd[i]), 0);
    cr_assert_eq(hwt_timer_next_deadline(r.timer), EPOCH + HWT_USEC(100)); /* takes all in */
    for (size_t i = 0; i < 200; i++) {
        uintptr_t address = (uintptr_t)crowd[i];
        cr_assert(hwt_timeout_cancel(crowd[i]));
        hwt_timeout_unref(crowd[i]);
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(9), &next), 0);
        cr_assert_eq((uintptr_t)next, address);
        cr_assert(hwt_timeout_cancel(next));
        hwt_timeout_unref(next);
        cr_assert_eq(hwt_timer_pending(r.timer), 199 - i);
    }
    cr_assert_eq(stats_of(r.timer).cancelled, 400);
    cr_assert_eq(stats_of(r.timer).withdrawn, 200, "the others were in the wheel");
    cr_assert_eq(hwt_timer_next_deadline(r.timer), UINT64_MAX);
    cr_assert_eq(rig_advance_by(&r, HWT_SEC(100000)), 0);
    rig_close(&r);
}

/* ---- what waits for the next pass ---- */

enum { WAITING = 200 };

typedef struct waiting {
    rig rig;
    hwt_timeout *timeout[WAITING];
    unsigned ran;
} waiting;

/* All but the first `from`: each out of its bucket by this thread, and its block is the next's. */
static void reuse_at_once(waiting *w, unsigned from)
{
    for (unsigned i = from; i < WAITING; i++) {
        uintptr_t address = (uintptr_t)w->timeout[i];
        hwt_timeout *next = NULL;
        cr_assert(hwt_timeout_cancel(w->timeout[i]));
        hwt_timeout_unref(w->timeout[i]);
        cr_assert_eq(hwt_new_timeout(w->rig.timer, noop_task, NULL, HWT_SEC(9), &next), 0);
        cr_assert_eq((uintptr_t)next, address, "G6: of number %u", i);
        cr_assert(hwt_timeout_cancel(next));
        hwt_timeout_unref(next);
    }
    cr_assert_eq(hwt_timer_pending(w->rig.timer), 0);
}

/* In the agenda: half of a tick has run, the other half is not due yet. */
static void open_half_a_tick(waiting *w, hwt_wheel_kind wheel)
{
    hwt_timeout *due = NULL;

    cr_assert_eq(rig_start(&w->rig, wheel, EPOCH), 0);
    for (unsigned i = 0; i < WAITING; i++)
        cr_assert_eq(hwt_new_timeout(w->rig.timer, noop_task, w, 10 + i % 7, &w->timeout[i]), 0);
    cr_assert_eq(hwt_new_timeout(w->rig.timer, noop_task, NULL, 1, &due), 0);
    cr_assert_eq(rig_advance_by(&w->rig, 5), 1);
    hwt_timeout_unref(due);
}

static void pass_by(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* G6: put off for a visit, which has returned, or is on. */
WHEEL_TEST(memory, is_used_again_where_a_visit_has_put_it)
{
    waiting w = {0};

    open_half_a_tick(&w, wheel);
    cr_assert_eq(hwt_timer_visit(w.rig.timer, pass_by, NULL), WAITING);
    reuse_at_once(&w, 0);
    cr_assert_eq(hwt_timer_next_deadline(w.rig.timer), UINT64_MAX);
    cr_assert_eq(rig_advance_by(&w.rig, HWT_SEC(10)), 0);
    rig_close(&w.rig);
}

/* The one that is shown is out of its bucket meanwhile. */
static void reuse_others(hwt_timeout *timeout, void *arg)
{
    waiting *w = arg;
    unsigned shown = 0;

    while (w->timeout[shown] != timeout)
        shown++;
    w->timeout[shown] = w->timeout[0];
    w->timeout[0] = timeout;
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
    reuse_at_once(w, 1);
}

WHEEL_TEST(memory, is_used_again_while_a_visit_is_on)
{
    waiting w = {0};

    open_half_a_tick(&w, wheel);
    cr_assert_eq(hwt_timer_visit(w.rig.timer, reuse_others, &w), 1);
    cr_assert_eq(rig_advance_by(&w.rig, HWT_SEC(10)), 0);
    rig_close(&w.rig);
}

/* The last of them takes its time. */
static void rearm_for_now(hwt_timeout *timeout, void *arg)
{
    waiting *w = arg;

    if (++w->ran < WAITING) {
        cr_assert(hwt_timeout_reschedule(timeout, 0));
        return;
    }
    cr_assert_eq(timeout, w->timeout[0]);
    hwt_timeout_unref(timeout);
    reuse_at_once(w, 1);
}

/* G6: re-armed for now, while a task is on. */
WHEEL_TEST(memory, is_used_again_when_rearmed_in_the_pass)
{
    waiting w = {0};

    cr_assert_eq(rig_start(&w.rig, wheel, EPOCH), 0);
    for (unsigned i = WAITING; i-- > 0;)
        cr_assert_eq(hwt_new_timeout(w.rig.timer, rearm_for_now, &w, HWT_MSEC(5), &w.timeout[i]),
                     0);
    cr_assert_eq(rig_advance_by(&w.rig, HWT_MSEC(5)), WAITING);
    cr_assert_eq(rig_advance_by(&w.rig, HWT_SEC(10)), 0);
    rig_close(&w.rig);
}

/* ---- a large table ---- */

/* G6: it has gone round, with a timeout for each page that so many buckets would take. */
WHEEL_TEST(memory, of_the_largest_table)
{
    enum { SLOTS = 1 << 20, STEP = 64, TIMEOUTS = 2 * SLOTS / STEP, PARTS = 4 };
    size_t before = resident_bytes();
    rig r;

    rig_prepare(&r, wheel, EPOCH);
    r.config.tick_ns = HWT_USEC(1);
    r.config.ticks_per_wheel = SLOTS;
    cr_assert_eq(rig_open(&r), 0);
    for (uint64_t i = 1; i <= TIMEOUTS; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_USEC(i * STEP), NULL), 0);
    for (unsigned part = 0; part < PARTS; part++)
        cr_assert_eq(rig_advance_by(&r, HWT_USEC(TIMEOUTS / PARTS * STEP)), TIMEOUTS / PARTS);
    if (memory_tells())
        cr_assert_lt(resident_bytes() - before, ((size_t)16 << 20) + 100 * (size_t)TIMEOUTS);
    rig_close(&r);
}

/* ---- a large timer ---- */

enum { LARGE = 400000 };

static size_t resident_of(const uintptr_t *address, size_t count)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t resident = 0;

    for (size_t i = 0; i < count; i++) {
        unsigned char in_core = 0;
        if (mincore((void *)(address[i] / page * page), page, &in_core) == 0)
            resident += in_core & 1;
    }
    return resident;
}

static void large_timer(uintptr_t *address, hwt_drive drive)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = drive;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (size_t i = 0; i < LARGE; i++) {
        hwt_timeout *timeout = NULL;
        cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), &timeout), 0);
        address[i] = (uintptr_t)timeout;
        hwt_timeout_unref(timeout);
    }
    cr_assert_eq(resident_of(address, LARGE), LARGE);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Twice: what was given back is there again when it is needed, and is given back again. */
static void gives_back(hwt_drive drive)
{
    uintptr_t *address = calloc(LARGE, sizeof(*address));

    cr_assert(address);
    for (unsigned round = 0; round < 2; round++) {
        large_timer(address, drive);
        cr_assert_lt(resident_of(address, LARGE), LARGE / 10, "destroyed, its memory kept");
    }
    free(address);
}

Test(memory, of_a_large_timer_goes_back)
{
    gives_back(HWT_DRIVE_WORKER);
}

Test(memory, of_a_large_timer_of_the_callers_goes_back)
{
    gives_back(HWT_DRIVE_CALLER);
}

Test(memory, of_a_large_timer_goes_back_beside_a_reserve)
{
    hwt_timer *other = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.reserve = 1000;
    cr_assert_eq(hwt_timer_create(&other, &config), 0);
    gives_back(HWT_DRIVE_WORKER);
    cr_assert_eq(hwt_timer_destroy(other), 0);
}

/* G6: the blocks of what has run go home with the pass, but for a few. */
WHEEL_TEST(memory, what_has_run_goes_home)
{
    enum { FEW = 8 };
    atomic_uint ran = 0;
    rig r;

    cr_assert_eq(rig_start(&r, wheel, HWT_SEC(1000)), 0);
    for (unsigned many = 1; many < 4 * FEW; many++) {
        for (unsigned i = 0; i < many; i++)
            cr_assert_eq(hwt_new_timeout(r.timer, count_task, &ran, HWT_MSEC(5), NULL), 0);
        cr_assert_eq(rig_advance_by(&r, HWT_MSEC(10)), (int)many);
        for (unsigned i = 0; i < r.timer->lanes.count; i++)
            cr_assert_lt(r.timer->worker.returns[i].count, FEW, "of %u", many);
    }
    rig_close(&r);
}
