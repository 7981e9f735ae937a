/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * House-keeping (G6, G7): what a peak needed goes back to the system, and where there is a worker
 * no submission makes the system call for it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "house.h"
#include "pool.h"
#include "slab_word.h"
#include "submit.h"
#include "support.h"

enum { FEW = 256, ROUNDS = 20000, ROUND = 20000 };
enum { BIG_LOT = 4096 /* large chunks: 2 MB */, SMALL_LOTS = 4080 * CHUNK_SPLIT };

TestSuite(house, .init = test_arm);

enum { POPULATE = 23, SLAB = SLAB_BLOCKS * sizeof(hwt_timeout), SMALL_PAGES = 32 << 10 };

/*
 * What goes back to the system goes through here: by the test's own thread, and by others. And what
 * is asked of it beforehand: whole slabs, and stretches of the first one, as they are carved.
 */
static _Thread_local bool producer;
static atomic_size_t by_producer, by_others, calls;
static atomic_size_t slabs_by_producer, slabs_by_others, touched, stretches;
static atomic_bool hold_next; /* whoever asks for a slab ... */
static atomic_uint is_held;
static atomic_bool let_go;           /* ... until then */
static void (*asked_for_slab)(void); /* by the test's own thread */
static void (*asked_for_small)(void);
static bool refuse_small;
static void *last_refused;

int madvise(void *memory, size_t size, int advice)
{
    if (advice == MADV_DONTNEED) {
        atomic_fetch_add(producer ? &by_producer : &by_others, size);
        atomic_fetch_add(&calls, 1);
    }
    if (advice == POPULATE && size == SLAB) {
        unsigned char in_core = 0;
        mincore(memory, 1, &in_core);
        atomic_fetch_add(&touched, in_core & 1);
        atomic_fetch_add(producer ? &slabs_by_producer : &slabs_by_others, 1);
        if (asked_for_slab)
            asked_for_slab();
        if (atomic_exchange(&hold_next, false)) {
            atomic_fetch_add(&is_held, 1);
            while (!let_go)
                sleep_ms(1);
        }
    }
    if (advice == POPULATE && asked_for_small && size == SMALL_PAGES)
        asked_for_small();
    if (advice == POPULATE && refuse_small && size == SMALL_PAGES) {
        last_refused = memory;
        errno = EINVAL;
        return -1;
    }
    if (advice == POPULATE && producer && size == pool_stretch() * SLAB_BATCH * sizeof(hwt_timeout))
        atomic_fetch_add(&stretches, 1);
    return (int)syscall(SYS_madvise, memory, size, advice);
}

static hwt_timer *open_timer(hwt_drive drive, uint64_t max_pending)
{
    hwt_timer *timer = NULL;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = drive;
    config.max_pending = max_pending;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    producer = true;
    return timer;
}

static void schedule(hwt_timer *timer, hwt_timeout **place)
{
    cr_assert_eq(hwt_new_timeout(timer, noop_task, NULL, HWT_SEC(3600), place), 0);
}

static void drop(hwt_timeout *timeout)
{
    cr_assert(hwt_timeout_cancel(timeout));
    hwt_timeout_unref(timeout);
}

/* Under valgrind a few segments will do. */
static size_t many(void)
{
    return getenv("HWT_VALGRIND") ? 3 * LANE_SLOTS : 150000;
}

/*
 * A third of the memory of so many; or half of the slots of one segment. (What the CPUs keep for
 * themselves may lie anywhere, and two slabs of five stay for it.)
 */
static size_t enough(void)
{
    return getenv("HWT_VALGRIND") ? LANE_SLOTS * sizeof(lane_slot) / 2
                                  : many() * (CACHE_LINE + sizeof(lane_slot)) / 3;
}

static void have_a_peak(hwt_timer *timer)
{
    size_t count = many();
    hwt_timeout **handles = calloc(count, sizeof(hwt_timeout *));

    cr_assert(handles);
    for (size_t i = 0; i < count; i++)
        schedule(timer, &handles[i]);
    for (size_t i = 0; i < count; i++)
        drop(handles[i]);
    free(handles);
}

/*
 * Until so much has gone back, some forty rounds; on a machine that does other things meanwhile ten
 * times as many, for he pauses by how long a piece took. Not for ever: a minute.
 */
static void go_on(hwt_timer *timer)
{
    static hwt_timeout *ring[FEW];

    for (size_t i = 0; i < FEW; i++)
        schedule(timer, &ring[i]);
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ROUND; i++) {
            drop(ring[i % FEW]);
            schedule(timer, &ring[i % FEW]);
        }
        if (atomic_load(&by_producer) + atomic_load(&by_others) >= enough())
            break;
        sleep_ms(2);
    }
    for (size_t i = 0; i < FEW; i++)
        drop(ring[i]);
}

Test(house, it_is_the_worker_who_gives_back)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);
    uint64_t wakeups;

    have_a_peak(timer);
    go_on(timer);
    cr_assert_eq(by_producer, 0, "a submission gave memory back");
    cr_assert_geq(by_others, enough(), "only %zu of %zu", (size_t)by_others, enough());
    for (unsigned tries = 0; load_acquire(&timer->untidy); tries++) {
        cr_assert_lt(tries, 1000, "he never ends");
        sleep_ms(10);
    }
    wakeups = stats_of(timer).wakeups;
    sleep_ms(100);
    cr_assert_leq(stats_of(timer).wakeups, wakeups + 1, "he goes on waking up");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* He does so once a second. So that a test need not wait for three windows of that: */
static void look_as_if_later(void)
{
    static uint64_t later;

    later = max_u64(later, clock_coarse());
    for (unsigned looks = 0; looks < EASE_WINDOW; looks++)
        pool_ease_by_time(later += EASE_LOOK_NS);
}

/* Nothing is submitted after the peak: one period is enough. */
Test(house, while_he_wakes_up_for_others)
{
    enum { WINDOWS = 3, TENTHS = 600 };
    const size_t third = many() * sizeof(hwt_timeout) / 3;
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);
    hwt_spec period;

    have_a_peak(timer);
    pool_flush();
    hwt_spec_init(&period);
    period.task = noop_task;
    period.period_ns = HWT_MSEC(10);
    cr_assert_eq(hwt_schedule(timer, &period, NULL), 0);
    for (unsigned tries = 0; by_others < third && !getenv("HWT_VALGRIND"); tries++) {
        cr_assert_lt(tries, TENTHS, "only %zu of %zu", (size_t)by_others, third);
        if (tries < WINDOWS)
            look_as_if_later();
        sleep_ms(100);
    }
    cr_assert_eq(by_producer, 0, "a look gave memory back");
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* Whatever way a submission goes: here each has its place counted. */
Test(house, he_is_asked_by_all_submissions)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 1000000);

    have_a_peak(timer);
    go_on(timer);
    cr_assert_eq(by_producer, 0, "a submission gave memory back");
    cr_assert_geq(by_others, enough(), "only %zu of %zu", (size_t)by_others, enough());
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* What is reserved keeps its memory, and no more. */
Test(house, beside_a_reserve_too)
{
    hwt_timer *reserved = NULL, *timer;
    hwt_config config;

    hwt_config_init(&config);
    config.reserve = 1000;
    cr_assert_eq(hwt_timer_create(&reserved, &config), 0);
    timer = open_timer(HWT_DRIVE_WORKER, 0);
    have_a_peak(timer);
    go_on(timer);
    cr_assert_geq(by_others, enough(), "only %zu of %zu", (size_t)by_others, enough());
    cr_assert_eq(hwt_timer_destroy(timer), 0);
    cr_assert_eq(hwt_timer_destroy(reserved), 0);
}

Test(house, where_the_caller_drives_submissions_do_it)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_CALLER, 0);

    have_a_peak(timer);
    go_on(timer);
    cr_assert_geq(by_producer, enough());
    cr_assert_eq(by_others, 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* ---- a worker's time: the clock is the test's ---- */

static void begin(rig *r, hwt_wheel_kind wheel)
{
    cr_assert_eq(rig_start(r, wheel, HWT_SEC(1000)), 0);
    r->timer->lanes.ask_keeper = house_ask;
    r->timer->lanes.keeper = r->timer;
    timer_act(r->timer);
}

static uint64_t now_of(const rig *r)
{
    return timer_now(r->timer);
}

static void set_now(rig *r, uint64_t now)
{
    virtual_set(&r->clock, now);
}

static void ask_to_give_back(hwt_timer *timer)
{
    house_ask(timer, WISH_GIVE_BACK);
    cr_assert_eq(exchange_seq(&timer->asked, 0), ASKED_HOUSE);
    house_ask(timer, WISH_GIVE_BACK);
    cr_assert_eq(load_seq(&timer->asked), 0, "he has been");
    house_begin(timer);
}

/* A near segment retires, or a far one. */
static void leave(struct lane *lane, bool far)
{
    struct segment *here = far ? segment_next(lane->first) : lane->first;
    struct segment *segment = segment_add(here->store, here);

    cr_assert(segment && segment->far == far);
    store_relaxed(&segment->retired, 1);
    store_release(&lane->survey[far].leaving, segment);
}

WHEEL_TEST(house, one_piece_then_a_pause)
{
    static hwt_timeout held;
    struct house *house;
    struct lane *lane;
    lane_slot *slot;
    uint64_t pause;
    rig r;

    begin(&r, wheel);
    house = &r.timer->worker.house;
    lane = lanes_own(&r.timer->lanes, 0);
    lane_use(lane);
    leave(lane, false);
    slot = &lane->survey[0].leaving->slot[RELEASE_SLOTS + 1];
    store_relaxed(slot, packed_make(&held, 0));
    cr_assert_eq(house_time(r.timer), UINT64_MAX);
    house_keep(r.timer);
    cr_assert_eq(calls, 0, "nobody has asked");
    ask_to_give_back(r.timer);
    house_keep(r.timer); /* this clock stands still: all that can go is one piece */
    cr_assert_eq(calls, 2, "parts that lie side by side go together");
    cr_assert_eq(by_others, (SEGMENT_PARTS - 1) * PART_SIZE);
    cr_assert_gt(house_time(r.timer), now_of(&r));
    store_relaxed(slot, 0);
    house_keep(r.timer);
    cr_assert_eq(calls, 2, "not before the pause is over");
    set_now(&r, house_time(r.timer));
    house_keep(r.timer);
    cr_assert_eq(calls, 3);
    cr_assert(house->open && load_relaxed(&r.timer->untidy));

    set_now(&r, house_time(r.timer));
    house_keep(r.timer);
    cr_assert(!house->open && !load_relaxed(&r.timer->untidy), "nothing is left");
    cr_assert_eq(house_time(r.timer), UINT64_MAX, "nobody is woken for it");
    for (unsigned i = 0; i < 20; i++) { /* of no use */
        pause = house->pause;
        set_now(&r, house->next);
        ask_to_give_back(r.timer);
        house_keep(r.timer);
        cr_assert(!house->open);
        cr_assert(house->pause == 2 * pause || house->pause == HWT_SEC(1));
        cr_assert_eq(house->next, now_of(&r) + house->pause);
    }
    cr_assert_eq(house->pause, HWT_SEC(1));
    rig_close(&r);
}

/* Whoever goes through a part asks, once; and nothing happens while nothing is to be done. */
WHEEL_TEST(house, the_end_of_a_part_asks)
{
    struct lane *lane;
    rig r;

    begin(&r, wheel);
    for (size_t i = 0; i < 2 * RELEASE_SLOTS; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(load_relaxed(&r.timer->asked), 0);
    for (unsigned i = 0; (lane = lanes_next_used(&r.timer->lanes, &i)) != NULL;)
        leave(lane, true);
    for (size_t i = 0; i < 2 * RELEASE_SLOTS * r.timer->lanes.count; i++)
        cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_SEC(1), NULL), 0);
    cr_assert_eq(load_relaxed(&r.timer->asked), ASKED_HOUSE);
    cr_assert_eq(load_relaxed(&r.timer->untidy), 1);
    cr_assert_eq(calls, 0);
    rig_close(&r);
}

/* ---- more memory, before it is needed ---- */

static void pause_for_him(hwt_timer *timer)
{
    do
        sleep_ms(1);
    while (load_seq(&timer->asked) & ASKED_READY);
}

/* So many that four slabs are carved, at least; with a pause now and then. Nothing is due. */
static void grow(hwt_timer *timer, bool pauses)
{
    for (size_t i = 0; i < 4 * SLAB_BLOCKS; i++) {
        schedule(timer, NULL);
        if (pauses && i % RELEASE_SLOTS == RELEASE_SLOTS - 1)
            pause_for_him(timer);
    }
}

static size_t added_ready(const hwt_timer *timer, size_t *added)
{
    size_t ready = 0;
    const struct lane *lane;

    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        const struct segment *segment = lane->first;
        for (; (segment = segment_next(segment)) != lane->first; ++*added)
            ready += segment->whole;
    }
    return ready;
}

/* In one huge page, or in small ones, where that takes its time. */
static size_t slabs_ready(void)
{
    size_t sum = 0;

    for (const struct slab *slab = slab_newest(); slab; slab = slab->next)
        sum += load_relaxed(&slab->ready);
    return sum;
}

/* G4: nothing is due, and he has time: then he comes before the submissions do. */
Test(house, it_is_the_worker_who_makes_ready)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);
    size_t added = 0, ready;

    grow(timer, true);
    ready = added_ready(timer, &added);
    cr_assert_geq(2 * ready, added, "%zu of %zu segments", ready, added);
    for (int i = 0; i < 20000 && slabs_ready() < 2; i++)
        sleep_ms(1); /* he has been asked, and may be in the middle of it */
    cr_assert_geq(slabs_ready(), 2);
    cr_assert_eq((size_t)slabs_by_producer, 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* So many that a huge page would be met if there were no other ones. */
static void go_on_in_small_pages(hwt_timer *timer)
{
    size_t spare = 0, met = 0;
    hwt_timeout *timeout;

    for (size_t i = 0; i < SLAB_BLOCKS; i++) {
        schedule(timer, &timeout);
        spare += is_spare(slab_of(timeout));
        met += !slab_of(timeout)->small;
        hwt_timeout_unref(timeout);
    }
    cr_assert_geq(spare, SLAB_BLOCKS / 4);
    cr_assert_eq(met, 0);
}

/* As long as he is at it, submissions go on in small pages: they do not wait with him. */
Test(house, who_submits_does_not_wait_with_him)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);

    hold_next = true;
    while (!slab_next_is_wanted())
        schedule(timer, NULL);
    for (size_t i = 0; i < 2 * RELEASE_SLOTS; i++) /* in one lane or another he is asked by then */
        schedule(timer, NULL);
    cr_assert(wait_count(&is_held, 1));
    go_on_in_small_pages(timer);
    let_go = true;
    pause_for_him(timer);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void wait_to_be_let_go(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    atomic_fetch_add(&is_held, 1);
    while (!let_go)
        sleep_ms(1);
}

/* Nor as long as he has been asked, and a task keeps him. */
Test(house, nor_while_a_task_keeps_him)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);

    cr_assert_eq(hwt_new_timeout(timer, wait_to_be_let_go, NULL, 0, NULL), 0);
    cr_assert(wait_count(&is_held, 1));
    go_on_in_small_pages(timer);
    let_go = true;
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* But pages come several at once: all of the first slab's, half as large as others. */
Test(house, where_the_caller_drives_nobody_does)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_CALLER, 0);
    size_t added = 0;

    grow(timer, false);
    cr_assert_eq(added_ready(timer, &added), 0);
    cr_assert_geq(added, 1);
    cr_assert_eq((size_t)slabs_by_others + (size_t)slabs_by_producer, 0);
    cr_assert_eq((size_t)stretches, SLAB_BLOCKS / 2 / (pool_stretch() * SLAB_BATCH));
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

static void carve_half_a_slab(rig *r)
{
    for (size_t i = 0; !slab_next_is_wanted(); i++) {
        cr_assert_lt(i, 2 * SLAB_BLOCKS, "nobody wants the next one");
        cr_assert_eq(hwt_new_timeout(r->timer, noop_task, NULL, HWT_SEC(3600), NULL), 0);
    }
}

/* G4: what takes long is not done while something may come due meanwhile; but tried some time. */
WHEEL_TEST(house, a_slab_is_made_ready_when_there_is_time)
{
    struct house *house;
    hwt_timeout *soon;
    rig r;

    begin(&r, wheel);
    house = &r.timer->worker.house;
    carve_half_a_slab(&r);
    house_make_ready(r.timer);
    cr_assert_eq((size_t)slabs_by_others, 1);
    cr_assert_eq((size_t)touched, 1, "a huge page has come by then, and nobody waited to map");
    cr_assert_not(slab_next_is_wanted());
    house_make_ready(r.timer);
    cr_assert_eq((size_t)slabs_by_others, 1, "once");

    house->took = HWT_MSEC(4);
    carve_half_a_slab(&r);
    house_make_ready(r.timer);
    cr_assert_eq((size_t)slabs_by_others, 2, "nothing is due");
    cr_assert_eq(house->took, 0, "by this clock, which stands still");

    house->took = HWT_MSEC(4);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(2), &soon), 0);
    for (unsigned i = 0; i < 2; i++) {
        carve_half_a_slab(&r);
        house_make_ready(r.timer);
        cr_assert_not(slab_next_is_wanted());
        cr_assert_eq((size_t)slabs_by_others, 2 + i, "something is due soon");
        cr_assert_eq(house->took, i == 0 ? HWT_MSEC(2) : 0);
    }
    hwt_timeout_unref(soon);
    rig_close(&r);
}

static rig *dear_for;

static void take_three_milliseconds(void)
{
    set_now(dear_for, now_of(dear_for) + HWT_MSEC(3));
}

static void take_fifty_microseconds(void)
{
    set_now(dear_for, now_of(dear_for) + HWT_USEC(50));
}

/* The next slab is made ready: in a huge page? */
static bool comes_huge(rig *r)
{
    size_t before = slabs_by_others;

    carve_half_a_slab(r);
    house_make_ready(r->timer);
    return slabs_by_others > before;
}

/* Where the host has to find a huge page; a huge one is tried again some time. */
WHEEL_TEST(house, a_slab_comes_in_small_pages_where_a_huge_one_was_dear)
{
    enum { TIMES = 16 };
    const struct house *house;
    rig r;

    begin(&r, wheel);
    house = &r.timer->worker.house;
    dear_for = &r;
    asked_for_slab = take_three_milliseconds;
    for (unsigned i = 0; i < 2 * (TIMES + 1); i++) {
        unsigned turn = i % (TIMES + 1);
        cr_assert_eq(comes_huge(&r), turn == 0, "%u", i);
        cr_assert_eq(house->small, TIMES - (int)turn);
    }
    asked_for_slab = NULL;
    cr_assert(comes_huge(&r));
    cr_assert(comes_huge(&r));
    cr_assert_eq(house->small, 0, "it took no time");
    rig_close(&r);
}

/* Where a hypervisor makes small ones as dear: one is tried, then huge ones, then one once more. */
WHEEL_TEST(house, a_slab_stays_huge_where_small_pages_are_dear_too)
{
    enum { TIMES = 16 };
    const struct house *house;
    rig r;

    begin(&r, wheel);
    house = &r.timer->worker.house;
    dear_for = &r;
    asked_for_slab = take_three_milliseconds;
    asked_for_small = take_fifty_microseconds; /* a slab has 64 of these */
    for (unsigned i = 0; i < 2 * (TIMES + 2); i++) {
        unsigned turn = i % (TIMES + 2);
        cr_assert_eq(comes_huge(&r), turn != 1, "%u", i);
        cr_assert_eq(house->small, turn == 0 ? TIMES : (int)turn - 1 - TIMES, "%u", i);
    }
    asked_for_slab = asked_for_small = NULL;
    rig_close(&r);
}

/* Who brings them meets them first: where the system cannot bring any (Linux before 5.14), too. */
WHEEL_TEST(house, small_pages_are_touched)
{
    unsigned char in_core[SMALL_PAGES / 4096] = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    rig r;

    begin(&r, wheel);
    r.timer->worker.house.small = 1;
    refuse_small = true;
    cr_assert_not(comes_huge(&r));
    refuse_small = false;
    cr_assert_not_null(last_refused);
    cr_assert_eq(mincore(last_refused, SMALL_PAGES, in_core), 0);
    for (size_t i = 0; i < SMALL_PAGES / page; i++)
        cr_assert(in_core[i] & 1, "page %zu", i);
    rig_close(&r);
}

/* ---- more room in the wheel ---- */

static void show(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* Once the small ones are used up: less than half of a large one is left. */
static bool is_low(const hwt_timer *timer)
{
    const struct chunk_store *store = &timer->worker.wheel->store;

    return store->total > SMALL_LOTS && store->fresh < BIG_LOT * CHUNK_SPLIT / 2;
}

/* Files all that is pending; then he has his pass. A worker may be asked again before that. */
static bool is_low_when_all_is_in(hwt_timer *timer)
{
    bool low = true;

    for (unsigned i = 0; low && i < (timer->drive == HWT_DRIVE_WORKER ? 5000 : 1); i++) {
        if (i > 0)
            sleep_ms(1);
        cr_assert_geq(hwt_timer_visit(timer, show, NULL), 0);
        if (timer->drive == HWT_DRIVE_CALLER)
            cr_assert_geq(hwt_timer_advance(timer), 0);
        low = is_low(timer);
    }
    return low;
}

/* How often, with ever more of which nothing is due. */
static unsigned times_low(hwt_timer *timer)
{
    enum { AT_ONCE = 10000, TIMES = 40 };
    unsigned low = 0;

    for (unsigned i = 0; i < TIMES; i++) {
        for (unsigned j = 0; j < AT_ONCE; j++)
            schedule(timer, NULL);
        low += is_low_when_all_is_in(timer);
    }
    cr_assert_geq(timer->worker.wheel->store.total, SMALL_LOTS + BIG_LOT * CHUNK_SPLIT);
    return low;
}

/* G4: he would wait for its pages while something is due. */
Test(house, the_worker_has_room_in_the_wheel_ready)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_WORKER, 0);

    cr_assert_eq(times_low(timer), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(house, an_event_loop_has_room_in_the_wheel_ready)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_CALLER, 0);

    cr_assert_geq(hwt_timer_fd(timer), 0);
    cr_assert_eq(times_low(timer), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

Test(house, who_comes_when_he_likes_gets_room_when_he_needs_it)
{
    hwt_timer *timer = open_timer(HWT_DRIVE_CALLER, 0);

    cr_assert_gt(times_low(timer), 0);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* It is he who needs it: so there is no haste, and what is due is not late by it. */
WHEEL_TEST(house, room_is_made_ready_when_nothing_is_due_for_a_while)
{
    struct chunk_store *store;
    hwt_timeout *soon;
    size_t total;
    rig r;

    begin(&r, wheel);
    store = &r.timer->worker.wheel->store;
    while (!store->half_open)
        cr_assert_not_null(chunk_take(store, true));
    total = store->total;
    house_look_to_wheel(r.timer);
    cr_assert_eq(store->total, total, "nobody waits for a descriptor");

    store_relaxed(&r.timer->park.kind, PARK_FUTEX);
    cr_assert_eq(hwt_new_timeout(r.timer, noop_task, NULL, HWT_MSEC(9), &soon), 0);
    house_look_to_wheel(r.timer);
    cr_assert_eq(store->total, total, "something is due soon");
    cr_assert_not(store->small_pages);
    r.timer->worker.house.small = 1;
    house_look_to_wheel(r.timer);
    cr_assert(store->small_pages, "a huge one would be waited for");
    r.timer->worker.house.small = 0;
    cr_assert(store->half_open, "but it may be done later");
    set_now(&r, now_of(&r) - HWT_MSEC(2));
    house_look_to_wheel(r.timer);
    cr_assert_eq(store->total, total + BIG_LOT * CHUNK_SPLIT);
    house_look_to_wheel(r.timer);
    cr_assert_eq(store->total, total + BIG_LOT * CHUNK_SPLIT, "once");
    store_relaxed(&r.timer->park.kind, PARK_NONE);
    hwt_timeout_unref(soon);
    rig_close(&r);
}
