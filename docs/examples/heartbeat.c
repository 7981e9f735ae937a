/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heartbeats and reconnection as Dubbo's remoting layer does them.
 *
 * Two periodic timeouts per channel. One sends a ping when the channel has been quiet for a
 * heartbeat. The other declares the channel dead when nothing was read for three heartbeats: the
 * peer may hang while its TCP connection still stands, so no error ever arrives. It only shuts the
 * socket down; connecting again is slow work, so the thread that reads does that, not the timer's.
 *
 * The first peer answers five pings and then hangs; its successor behaves.
 */
#include "example.h"

#include <hwt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define HEARTBEAT  HWT_MSEC(30)
#define DEAD_AFTER (3 * HEARTBEAT)

enum { PONGS_BEFORE_HANGING = 5, PONGS_WANTED = 12, MAX_CONNECTIONS = 10 };

struct peer {
    pthread_t thread;
    int fd;
    unsigned answers; /* and no more */
};

struct channel {
    int fd;
    _Atomic uint64_t last_read, last_write;
    hwt_timeout *heartbeat, *watch;
    struct peer peer;
};

static void *peer_main(void *arg)
{
    struct peer *peer = arg;
    char ping;

    while (recv(peer->fd, &ping, 1, 0) == 1)
        if (peer->answers && peer->answers--)
            send(peer->fd, &ping, 1, MSG_NOSIGNAL);
    close(peer->fd);
    return NULL;
}

static void send_heartbeat(hwt_timeout *timeout, void *arg)
{
    struct channel *channel = arg;
    uint64_t now = hwt_timer_now(hwt_timeout_timer(timeout));

    if (since(now, channel->last_read) < HEARTBEAT && since(now, channel->last_write) < HEARTBEAT)
        return;
    if (send(channel->fd, "p", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        channel->last_write = now;
}

static void watch_channel(hwt_timeout *timeout, void *arg)
{
    struct channel *channel = arg;
    uint64_t now = hwt_timer_now(hwt_timeout_timer(timeout));

    if (since(now, channel->last_read) >= DEAD_AFTER)
        shutdown(channel->fd, SHUT_RDWR); /* the reader sees end of file */
}

/* A third of the interval, so that a channel is never overdue by more than that. */
static hwt_timeout *every_third(hwt_timer *timer, hwt_task *task, void *arg, uint64_t interval)
{
    hwt_timeout *timeout = NULL;
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.arg = arg;
    spec.delay_ns = interval / 3;
    spec.period_ns = interval / 3;
    spec.period_mode = HWT_FIXED_DELAY;
    must(hwt_schedule(timer, &spec, &timeout) == 0, "schedule a periodic timeout");
    return timeout;
}

static void channel_open(struct channel *channel, hwt_timer *timer, unsigned answers)
{
    int ends[2];

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    channel->fd = ends[0];
    channel->peer.fd = ends[1];
    channel->peer.answers = answers;
    must(!pthread_create(&channel->peer.thread, NULL, peer_main, &channel->peer), "start a peer");
    channel->last_read = channel->last_write = hwt_timer_now(timer);
    channel->heartbeat = every_third(timer, send_heartbeat, channel, HEARTBEAT);
    channel->watch = every_third(timer, watch_channel, channel, DEAD_AFTER);
}

/* After cancel_sync neither task is running, so the descriptor can be closed and reused. */
static void channel_close(struct channel *channel)
{
    hwt_timeout_cancel_sync(channel->heartbeat);
    hwt_timeout_cancel_sync(channel->watch);
    hwt_timeout_unref(channel->heartbeat);
    hwt_timeout_unref(channel->watch);
    close(channel->fd);
    pthread_join(channel->peer.thread, NULL);
}

/* Reads until the channel is dead or has answered `wanted` times; returns the answers. */
static unsigned channel_read(struct channel *channel, hwt_timer *timer, unsigned wanted)
{
    unsigned pongs = 0;
    char pong;

    while (pongs < wanted && recv(channel->fd, &pong, 1, 0) == 1) {
        channel->last_read = hwt_timer_now(timer);
        pongs++;
    }
    return pongs;
}

int main(void)
{
    struct channel channel;
    hwt_timer *timer;
    unsigned connections = 0, pongs;

    give_up_after(20);
    must(hwt_timer_create(&timer, NULL) == 0, "create a timer");
    do {
        channel_open(&channel, timer, connections++ ? UINT32_MAX : PONGS_BEFORE_HANGING);
        pongs = channel_read(&channel, timer, PONGS_WANTED);
        uint64_t silence = since(hwt_timer_now(timer), channel.last_read);

        printf("connection %u: %u answers", connections, pongs);
        printf(pongs < PONGS_WANTED ? ", dead after %.0f ms of silence\n" : "\n", to_ms(silence));
        must(pongs == PONGS_WANTED || silence >= DEAD_AFTER, "no channel is given up early");
        channel_close(&channel);
    } while (pongs < PONGS_WANTED && connections < MAX_CONNECTIONS);

    must(pongs == PONGS_WANTED && connections > 1, "a hanging peer is replaced by one that works");
    must(hwt_timer_pending(timer) == 0, "closed channels leave nothing behind");
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    printf("heartbeat: reconnected, %u connections\n", connections);
    return 0;
}
