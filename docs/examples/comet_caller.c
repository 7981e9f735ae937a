/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A Comet server's client table on a wheel without a thread of its own.
 *
 * A long-polling client comes back every half minute or so; one that has not come back for a
 * minute is gone. The server has a thread that looks at everything once a step anyway, so it
 * drives the wheel itself: no second thread, no locking in the task, and the time is whatever the
 * server says it is. Here it says that a quarter of an hour passes within a second.
 */
#include "example.h"

#include <hwt.h>

#define STEP          HWT_MSEC(100)
#define SIMULATED     HWT_SEC(900)
#define GONE_AFTER    HWT_SEC(60)
#define COMES_BACK    HWT_SEC(25) /* at the earliest, and at the latest twice that */
#define LEAVES_ONE_IN 40

enum { CLIENTS = 5000 };

struct client {
    hwt_timeout *gone_timeout;
    uint64_t last_seen;
    uint64_t comes_back; /* UINT64_MAX: never again */
    bool gone;
};

struct comet {
    uint64_t now;
    unsigned seed, reconnects, left, gone;
    struct client clients[CLIENTS];
};

static struct comet comet;

static uint64_t comet_clock(void *clock)
{
    return ((struct comet *)clock)->now;
}

static unsigned comet_random(unsigned below)
{
    comet.seed = comet.seed * 1664525u + 1013904223u;
    return (comet.seed >> 8) % below;
}

static void client_gone(hwt_timeout *timeout, void *arg)
{
    struct client *client = arg;

    must(client->comes_back == UINT64_MAX, "who comes back in time is not given up (G1)");
    must(comet.now - client->last_seen < GONE_AFTER + STEP, "who does not is, within a step");
    must(timeout == client->gone_timeout, "the task is called with the client's own timeout");
    client->gone = true;
    comet.gone++;
}

static void client_seen(struct client *client)
{
    client->last_seen = comet.now;
    client->comes_back = comet.now + COMES_BACK + comet_random(250) * STEP;
    if (comet_random(LEAVES_ONE_IN) == 0) {
        client->comes_back = UINT64_MAX;
        comet.left++;
    }
}

static void comet_step(hwt_timer *timer)
{
    comet.now += STEP;
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &comet.clients[i];

        if (comet.now < client->comes_back)
            continue;
        must(hwt_timeout_reschedule(client->gone_timeout, GONE_AFTER), "move a deadline");
        client_seen(client);
        comet.reconnects++;
    }
    must(hwt_timer_advance(timer) >= 0, "advance");
}

static void comet_open(hwt_timer **timer)
{
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.now = comet_clock;
    config.clock = &comet;
    config.tick_ns = STEP;
    must(hwt_timer_create(timer, &config) == 0, "create a timer");
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &comet.clients[i];

        must(hwt_new_timeout(*timer, client_gone, client, GONE_AFTER, &client->gone_timeout) == 0,
             "schedule");
        client_seen(client);
    }
}

int main(void)
{
    hwt_timer *timer;

    give_up_after(20);
    comet.now = HWT_SEC(1000000);
    comet_open(&timer);
    for (uint64_t step = 0; step < SIMULATED / STEP; step++)
        comet_step(timer);

    must(hwt_timer_pending(timer) == CLIENTS - comet.gone, "who is not gone is pending");
    must(comet.gone > 0 && comet.gone <= comet.left, "only who left is gone");
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *client = &comet.clients[i];

        must(client->gone || comet.now - client->last_seen < GONE_AFTER, "nobody is forgotten");
        hwt_timeout_unref(client->gone_timeout);
    }
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    printf("comet_caller: %u clients, %u reconnects in %u simulated seconds, %u gone\n", CLIENTS,
           comet.reconnects, (unsigned)(SIMULATED / HWT_SEC(1)), comet.gone);
    return 0;
}
