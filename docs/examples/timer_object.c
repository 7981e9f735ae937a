/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A timer as an object: what uv_timer_t is in libuv, an event with a timeout in libevent, Timer in
 * Envoy. It lies in what it belongs to, is armed, armed again while it runs down, disarmed, and all
 * that from its own callback, too. One thread (a loop's) uses it, and drives the hwt_timer. (Moved,
 * it keeps its place among those with the same deadline; for a new one, as libuv gives, cancel and
 * renew.)
 */
#include "example.h"

#include <errno.h>
#include <hwt.h>

#define STEP HWT_MSEC(1)

enum { OBJECTS = 1000, STEPS = 20000 };

/* Begins as zeros, but for the first two. */
struct object {
    hwt_timer *timer;
    void (*callback)(struct object *object);
    hwt_timeout *timeout; /* kept when it is over: to arm it again takes no memory then */
    uint64_t due;         /* as it should be */
    bool armed;
};

static void object_task(hwt_timeout *timeout, void *arg)
{
    struct object *object = arg;

    (void)timeout;
    must(object->armed, "what is disarmed is quiet (G2)");
    object->armed = false;
    object->callback(object);
}

/* 0, or the negative errno of hwt_new_timeout. */
static int object_arm(struct object *object, uint64_t delay)
{
    int result = 0;

    if (!hwt_timeout_reschedule(object->timeout, delay)) /* neither pending nor in its own task */
        result = hwt_timeout_renew(&object->timeout, NULL, delay);
    if (result == -EBUSY || !object->timeout) { /* disarmed in its task, which is still on; new */
        hwt_timeout_unref(object->timeout);
        object->timeout = NULL;
        result = hwt_new_timeout(object->timer, object_task, object, delay, &object->timeout);
    }
    object->armed = result == 0;
    return result;
}

static void object_disarm(struct object *object)
{
    hwt_timeout_cancel(object->timeout);
    object->armed = false;
}

/* Then it may be freed, in its own callback too. */
static void object_close(struct object *object)
{
    object_disarm(object);
    hwt_timeout_unref(object->timeout);
}

/* ---- a loop with a clock of its own, and objects that do what they like ---- */

static struct {
    uint64_t now;
    unsigned seed, armed, disarmed, rang;
} loop;

static uint64_t loop_clock(void *unused)
{
    (void)unused;
    return loop.now;
}

static unsigned any(unsigned below)
{
    loop.seed = loop.seed * 1664525u + 1013904223u;
    return (loop.seed >> 8) % below;
}

static void arm_or_disarm(struct object *object)
{
    for (unsigned times = any(4); times > 0; times--) {
        if (any(2)) {
            object->due = loop.now + any(100) * STEP;
            must(object_arm(object, object->due - loop.now) == 0, "arm");
            loop.armed++;
        } else {
            object_disarm(object);
            loop.disarmed++;
        }
    }
}

static void rings(struct object *object)
{
    must(loop.now == object->due, "at its time, and at no other (G1)");
    loop.rang++;
    arm_or_disarm(object);
}

int main(void)
{
    static struct object objects[OBJECTS];
    hwt_config config;
    hwt_timer *timer;

    give_up_after(20);
    loop.now = HWT_SEC(1000000);
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.now = loop_clock;
    must(hwt_timer_create(&timer, &config) == 0, "create a timer");
    for (int i = 0; i < OBJECTS; i++)
        objects[i] = (struct object){.timer = timer, .callback = rings};

    for (int step = 0; step < STEPS; step++) {
        arm_or_disarm(&objects[any(OBJECTS)]);
        do /* what is armed for now in a callback runs in the next pass (G11) */
            must(hwt_timer_advance(timer) >= 0, "advance");
        while (hwt_timer_next_deadline(timer) <= loop.now);
        for (int i = 0; i < OBJECTS; i++)
            must(!objects[i].armed || objects[i].due > loop.now, "no callback is missing");
        loop.now += STEP;
    }

    for (int i = 0; i < OBJECTS; i++)
        object_close(&objects[i]);
    must(hwt_timer_pending(timer) == 0, "all are closed");
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    printf("timer_object: %d objects armed %u times, disarmed %u times, %u callbacks\n", OBJECTS,
           loop.armed, loop.disarmed, loop.rang);
    return 0;
}
