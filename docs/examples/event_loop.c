/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer in a libevent loop: a persistent read event on the timer's descriptor. */
#include "loop_work.h"

#include <event2/event.h>

struct on_loop {
    struct loop_work work;
    struct event_base *base;
};

static void timer_ready(evutil_socket_t fd, short events, void *arg)
{
    struct on_loop *on_loop = arg;

    (void)fd;
    (void)events;
    if (!loop_work_ready(&on_loop->work))
        event_base_loopbreak(on_loop->base);
}

int main(void)
{
    struct on_loop on_loop = {0};
    struct event *event;
    int fd;

    on_loop.base = event_base_new();
    must(on_loop.base, "an event base");
    fd = loop_work_start(&on_loop.work);
    event = event_new(on_loop.base, fd, EV_READ | EV_PERSIST, timer_ready, &on_loop);
    must(event && event_add(event, NULL) == 0, "watch the descriptor");
    must(event_base_dispatch(on_loop.base) == 0, "run the loop");

    /* the loop forgets the descriptor before the timer closes it */
    event_free(event);
    event_base_free(on_loop.base);
    loop_work_finish(&on_loop.work, "event_loop");
    return 0;
}
