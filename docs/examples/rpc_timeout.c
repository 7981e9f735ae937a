/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An RPC client: thousands of requests in flight, each with a deadline that its reply cancels.
 *
 * A call whose deadline passes is tried again a little later (Dubbo's failback), three times in
 * all. It keeps one timeout for its whole life: the task re-arms it, first to wait, then for the
 * next attempt's deadline. So the timeout alone decides how the call ends, however a reply races
 * with the deadline:
 *   - cancel returned true:               the reply won, and the receiver completes the call;
 *   - the task found its re-arm refused:  a reply came while it ran, the task completes the call;
 *   - the task does not re-arm:           the call has failed, a reply is too late.
 */
#include "example.h"

#include <hwt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define DEADLINE HWT_MSEC(120)
#define FAILBACK HWT_MSEC(40)

enum { CALLS = 4000, ATTEMPTS = 3 };

struct call {
    hwt_timeout *timeout;
    unsigned attempts; /* the task's, once it is armed */
    bool waiting;      /* likewise: for a reply, not for the next attempt */
    atomic_uint completed, failed;
};

struct request {
    unsigned id, attempt;
};

static struct call calls[CALLS];
static atomic_uint ended;
static int client, server;

/* The server loses every 10th call's first request, and every 100th call always. */
static bool server_loses(struct request request)
{
    return request.id % 100 == 0 || (request.id % 10 == 0 && request.attempt == 1);
}

static void *server_main(void *unused)
{
    struct request request;

    while (recv(server, &request, sizeof(request), 0) == sizeof(request))
        if (!server_loses(request))
            send(server, &request, sizeof(request), MSG_NOSIGNAL);
    return unused;
}

static void end_call(atomic_uint *how)
{
    atomic_fetch_add(how, 1);
    atomic_fetch_add(&ended, 1);
}

/* Never blocks in a task: what cannot be sent gets no reply, and the deadline sees to that. */
static void send_request(const struct call *call, unsigned attempt, int flags)
{
    struct request request = {.id = (unsigned)(call - calls), .attempt = attempt};

    send(client, &request, sizeof(request), flags | MSG_NOSIGNAL);
}

static void call_timed_out(hwt_timeout *timeout, void *arg)
{
    struct call *call = arg;
    bool waited = call->waiting;

    if (waited && call->attempts == ATTEMPTS) {
        end_call(&call->failed);
        return;
    }
    call->waiting = !waited;
    if (call->waiting)
        send_request(call, ++call->attempts, MSG_DONTWAIT);
    if (!hwt_timeout_reschedule(timeout, waited ? FAILBACK : DEADLINE))
        end_call(&call->completed);
}

static void *receiver_main(void *unused)
{
    struct request reply;

    while (recv(client, &reply, sizeof(reply), 0) == sizeof(reply))
        if (hwt_timeout_cancel(calls[reply.id].timeout))
            end_call(&calls[reply.id].completed);
    return unused;
}

/* Armed before it is sent: a reply must find the handle, and sending may block. */
static void start_call(hwt_timer *timer, struct call *call)
{
    call->waiting = true;
    call->attempts = 1;
    must(hwt_new_timeout(timer, call_timed_out, call, DEADLINE, &call->timeout) == 0, "schedule");
    send_request(call, 1, 0);
}

static void check_calls(void)
{
    unsigned completed = 0, failed = 0;

    for (unsigned id = 0; id < CALLS; id++) {
        must(calls[id].completed + calls[id].failed == 1, "every call ends exactly once");
        must(id % 100 || calls[id].failed, "a call that is never answered fails");
        must(!calls[id].failed || calls[id].attempts == ATTEMPTS, "and not before its last try");
        completed += calls[id].completed;
        failed += calls[id].failed;
        hwt_timeout_unref(calls[id].timeout);
    }
    printf("rpc_timeout: %u calls, %u completed, %u failed\n", CALLS, completed, failed);
}

int main(void)
{
    hwt_timer *timer;
    hwt_unprocessed unprocessed = {0};
    pthread_t threads[2];
    int ends[2];

    give_up_after(20);
    must(hwt_timer_create(&timer, NULL) == 0, "create a timer");
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    client = ends[0];
    server = ends[1];
    must(!pthread_create(&threads[0], NULL, server_main, NULL), "start the server");
    must(!pthread_create(&threads[1], NULL, receiver_main, NULL), "start the receiver");

    for (unsigned id = 0; id < CALLS; id++)
        start_call(timer, &calls[id]);
    while (ended < CALLS)
        sleep_ms(5);

    shutdown(client, SHUT_RDWR);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    must(hwt_timer_stop(timer, &unprocessed) == 0, "stop");
    must(unprocessed.count == 0, "a call that ended has nothing pending");
    check_calls();
    must(hwt_timer_destroy(timer) == 0, "destroy the timer");
    close(client);
    close(server);
    return 0;
}
