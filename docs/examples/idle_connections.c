/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that closes connections which stay silent, as every proxy and broker does.
 *
 * Each packet moves its connection's idle deadline. Moving it later is one compare-and-swap and
 * wakes nobody, so it costs about as much as noting the time, and there is no sweep over all
 * connections. The idle task shuts the socket down; the server's thread, which owns the
 * connection, then sees the end of file and frees it.
 */
#include "example.h"

#include <hwt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define IDLE HWT_MSEC(150)

enum { CONNECTIONS = 90, PACKETS = 30 };

struct connection {
    int fd;
    hwt_timeout *idle;
    _Atomic uint64_t last_packet; /* the last that moved the deadline */
};

struct server {
    hwt_timer *timer;
    int epoll;
    unsigned open, moves, hung_up;
    struct connection connections[CONNECTIONS];
};

static atomic_uint idled;

static void connection_idle(hwt_timeout *timeout, void *arg)
{
    struct connection *connection = arg;
    uint64_t now = hwt_timer_now(hwt_timeout_timer(timeout));

    must(now - connection->last_packet >= IDLE, "a packet keeps its connection open (G1)");
    atomic_fetch_add(&idled, 1);
    shutdown(connection->fd, SHUT_RDWR);
}

static void server_accept(struct server *server, struct connection *connection, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

    connection->fd = fd;
    connection->last_packet = hwt_timer_now(server->timer);
    must(hwt_new_timeout(server->timer, connection_idle, connection, IDLE, &connection->idle) == 0,
         "schedule an idle timeout");
    must(epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0, "watch a connection");
    server->open++;
}

/* cancel_sync: the idle task may be at its shutdown, and the descriptor will be reused. */
static void server_close(struct server *server, struct connection *connection)
{
    if (hwt_timeout_cancel_sync(connection->idle) == 1)
        server->hung_up++;
    hwt_timeout_unref(connection->idle);
    close(connection->fd);
    server->open--;
}

static void server_packet(struct server *server, struct connection *connection)
{
    uint64_t now = hwt_timer_now(server->timer);

    if (hwt_timeout_reschedule(connection->idle, IDLE)) {
        connection->last_packet = now;
        server->moves++;
    } /* else it is being closed already */
}

static void *server_main(void *arg)
{
    struct server *server = arg;
    struct epoll_event events[16];
    char packet[64];

    while (server->open) {
        int ready = epoll_wait(server->epoll, events, 16, -1);

        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;

            if (recv(connection->fd, packet, sizeof(packet), 0) > 0)
                server_packet(server, connection);
            else
                server_close(server, connection);
        }
    }
    return NULL;
}

/* A third talks for a while, a third hangs up, a third never says a word. */
static void clients_run(int *fds)
{
    for (int i = 1; i < CONNECTIONS; i += 3)
        shutdown(fds[i], SHUT_RDWR);
    for (int packet = 0; packet < PACKETS; packet++) {
        for (int i = 0; i < CONNECTIONS; i += 3)
            send(fds[i], "packet", 6, MSG_NOSIGNAL);
        sleep_ms(10);
    }
}

int main(void)
{
    static struct server server;
    int clients[CONNECTIONS];
    pthread_t thread;

    give_up_after(20);
    must(hwt_timer_create(&server.timer, NULL) == 0, "create a timer");
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < CONNECTIONS; i++) {
        int ends[2];

        must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
        clients[i] = ends[0];
        server_accept(&server, &server.connections[i], ends[1]);
    }
    must(!pthread_create(&thread, NULL, server_main, &server), "start the server");
    clients_run(clients);
    pthread_join(thread, NULL); /* returns when the last connection is closed */

    must(idled + server.hung_up == CONNECTIONS, "each connection is closed once (G2)");
    must(idled >= CONNECTIONS / 3, "silent connections are closed");
    must(server.moves > 0, "packets move the deadline");
    must(hwt_timer_pending(server.timer) == 0, "a closed connection leaves nothing behind");
    must(hwt_timer_destroy(server.timer) == 0, "destroy the timer");
    printf("idle_connections: %u closed as idle, %u hung up, %u packets moved a deadline\n", idled,
           server.hung_up, server.moves);
    for (int i = 0; i < CONNECTIONS; i++)
        close(clients[i]);
    close(server.epoll);
    return 0;
}
