/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer in a libuv loop: a uv_poll_t on the timer's descriptor. */
#include "loop_work.h"

#include <uv.h>

static void timer_ready(uv_poll_t *poll, int status, int events)
{
    struct loop_work *work = poll->data;

    (void)events;
    must(status == 0, "poll the descriptor");
    if (!loop_work_ready(work))
        uv_close((uv_handle_t *)poll, NULL);
}

int main(void)
{
    struct loop_work work = {0};
    uv_loop_t loop;
    uv_poll_t poll;

    must(uv_loop_init(&loop) == 0, "a loop");
    must(uv_poll_init(&loop, &poll, loop_work_start(&work)) == 0, "watch the descriptor");
    poll.data = &work;
    must(uv_poll_start(&poll, UV_READABLE, timer_ready) == 0, "for reading");
    uv_run(&loop, UV_RUN_DEFAULT);

    /* the loop forgets the descriptor before the timer closes it */
    must(uv_loop_close(&loop) == 0, "close the loop");
    loop_work_finish(&work, "uv_loop");
    return 0;
}
