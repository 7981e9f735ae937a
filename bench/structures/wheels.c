/* SPDX-License-Identifier: BSD-2-Clause */
/* Wheels: hashed and hierarchical with lists as the textbooks have them, and this library's. */
#include "structures.h"

#include <stdlib.h>

#define SLOTS 512

static void destroy_plain(void *self)
{
    free(self);
}

static uint64_t tick_of(uint64_t deadline)
{
    return (deadline + STRUCTURE_TICK - 1) / STRUCTURE_TICK;
}

static void push(struct item **bucket, struct item *item)
{
    item->next = *bucket;
    item->link = bucket;
    if (item->next)
        item->next->link = &item->next;
    *bucket = item;
}

static void unlink_item(struct item *item)
{
    *item->link = item->next;
    if (item->next)
        item->next->link = item->link;
}

static void wheel_cancel(void *self, struct item *item)
{
    (void)self;
    unlink_item(item);
}

/* ---- one level, with rounds (scheme 6; Netty, Dubbo) ---- */
struct hashed {
    uint64_t tick; /* the last one that was looked at */
    struct item *slot[SLOTS];
};

static void *hashed_create(uint64_t capacity)
{
    (void)capacity;
    return bench_alloc(sizeof(struct hashed));
}

static void hashed_insert(void *self, struct item *item)
{
    struct hashed *wheel = self;
    uint64_t tick = tick_of(item->deadline);

    tick = tick > wheel->tick ? tick : wheel->tick + 1;
    item->rounds = (tick - wheel->tick - 1) / SLOTS;
    push(&wheel->slot[tick % SLOTS], item);
}

static uint64_t hashed_look(struct item **bucket)
{
    uint64_t n = 0;

    for (struct item *item = *bucket, *next; item; item = next) {
        next = item->next;
        if (item->rounds > 0) {
            item->rounds--;
            continue;
        }
        unlink_item(item);
        n++;
    }
    return n;
}

static uint64_t hashed_expire(void *self, uint64_t now)
{
    struct hashed *wheel = self;
    uint64_t n = 0;

    while (wheel->tick < now / STRUCTURE_TICK)
        n += hashed_look(&wheel->slot[++wheel->tick % SLOTS]);
    return n;
}

const struct structure list_wheel_hashed = {
    "hashed, lists", "1",          "1",  "n / slots",   hashed_create, destroy_plain, NULL,
    hashed_insert,   wheel_cancel, NULL, hashed_expire,
};

/* ---- levels (scheme 7; Linux until 4.7, Kafka) ---- */
#define HEIGHT 4

struct levels {
    uint64_t tick;
    struct item *slot[HEIGHT][SLOTS];
};

static void *levels_create(uint64_t capacity)
{
    (void)capacity;
    return bench_alloc(sizeof(struct levels));
}

/* The lowest level whose slots are coarse enough to reach that far. */
static void levels_insert(void *self, struct item *item)
{
    struct levels *wheel = self;
    uint64_t tick = tick_of(item->deadline), away;
    unsigned level = 0, shift = 0;

    tick = tick > wheel->tick ? tick : wheel->tick + 1;
    for (away = tick - wheel->tick; away >= SLOTS && level < HEIGHT - 1; away /= SLOTS) {
        level++;
        shift += 9;
    }
    push(&wheel->slot[level][(tick >> shift) % SLOTS], item);
}

static void levels_cascade(struct levels *wheel, unsigned level)
{
    struct item **bucket = &wheel->slot[level][(wheel->tick >> (9 * level)) % SLOTS];
    struct item *item = *bucket, *next;

    *bucket = NULL;
    wheel->tick--; /* what is due at this very tick goes into its slot, not one further */
    for (; item; item = next) {
        next = item->next;
        levels_insert(wheel, item);
    }
    wheel->tick++;
}

static uint64_t levels_tick(struct levels *wheel)
{
    uint64_t tick = ++wheel->tick, n = 0;

    for (unsigned level = 1; level < HEIGHT && tick % (UINT64_C(1) << (9 * level)) == 0; level++)
        levels_cascade(wheel, level);
    for (struct item **bucket = &wheel->slot[0][tick % SLOTS]; *bucket; n++)
        unlink_item(*bucket);
    return n;
}

static uint64_t levels_expire(void *self, uint64_t now)
{
    struct levels *wheel = self;
    uint64_t n = 0;

    while (wheel->tick < now / STRUCTURE_TICK)
        n += levels_tick(wheel);
    return n;
}

const struct structure list_wheel_hierarchical = {
    "hierarchical, lists", "1",          "1",  "1",           levels_create, destroy_plain, NULL,
    levels_insert,         wheel_cancel, NULL, levels_expire,
};

/* ---- this library, driven by the caller through a virtual clock ---- */
struct driven {
    hwt_timer *timer;
    uint64_t now;
};

static uint64_t driven_now(void *clock)
{
    return ((const struct driven *)clock)->now;
}

/* The handle is dropped when the timeout is over, as its owner would do it. */
static void drop(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    hwt_timeout_unref(((struct item *)arg)->handle);
}

static void *driven_create(hwt_wheel_kind kind)
{
    struct driven *driven = bench_alloc(sizeof(*driven));
    hwt_config config;
    int error;

    hwt_config_init(&config);
    config.wheel = kind;
    config.drive = HWT_DRIVE_CALLER;
    config.tick_ns = STRUCTURE_TICK;
    config.ticks_per_wheel = SLOTS;
    config.now = driven_now;
    config.clock = driven;
    error = hwt_timer_create(&driven->timer, &config);
    if (error)
        bench_die("hwt_timer_create", error);
    return driven;
}

static void *driven_create_hashed(uint64_t capacity)
{
    (void)capacity;
    return driven_create(HWT_WHEEL_HASHED);
}

static void *driven_create_hierarchical(uint64_t capacity)
{
    (void)capacity;
    return driven_create(HWT_WHEEL_HIERARCHICAL);
}

static void driven_destroy(void *self)
{
    struct driven *driven = self;

    hwt_timer_destroy(driven->timer);
    free(driven);
}

static void driven_insert(void *self, struct item *item)
{
    struct driven *driven = self;
    int error = hwt_new_timeout_at(driven->timer, drop, item, item->deadline, &item->handle);

    if (error)
        bench_die("hwt_new_timeout_at", error);
}

static void driven_cancel(void *self, struct item *item)
{
    (void)self;
    hwt_timeout_cancel(item->handle);
    hwt_timeout_unref(item->handle);
}

static uint64_t driven_next(void *self)
{
    return hwt_timer_next_deadline(((struct driven *)self)->timer);
}

static uint64_t driven_expire(void *self, uint64_t now)
{
    struct driven *driven = self;
    int n;

    driven->now = now;
    n = hwt_timer_advance(driven->timer);
    return n > 0 ? (uint64_t)n : 0;
}

const struct structure libhwt_hashed = {
    "libhwt hashed", "1",  "1",           "n / slots",   driven_create_hashed,
    driven_destroy,  NULL, driven_insert, driven_cancel, driven_next,
    driven_expire,
};

const struct structure libhwt_hierarchical = {
    "libhwt hierarchical", "1",  "1",           "1",           driven_create_hierarchical,
    driven_destroy,        NULL, driven_insert, driven_cancel, driven_next,
    driven_expire,
};
