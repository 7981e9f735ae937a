/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer in a plain epoll loop, here next to a pipe. */
#include "loop_work.h"

#include <sys/epoll.h>

static void watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "watch a descriptor");
}

int main(void)
{
    struct loop_work work = {0};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int timer_fd, pipe_ends[2];
    bool timer_busy = true, pipe_busy = true;

    must(epoll >= 0 && pipe(pipe_ends) == 0, "epoll and a pipe");
    timer_fd = loop_work_start(&work);
    watch(epoll, timer_fd);
    watch(epoll, pipe_ends[0]);
    must(write(pipe_ends[1], "x", 1) == 1, "write to the pipe");

    while (timer_busy || pipe_busy) {
        struct epoll_event events[8];
        int ready = epoll_wait(epoll, events, 8, -1);

        for (int i = 0; i < ready; i++) {
            char byte;

            if (events[i].data.fd == timer_fd)
                timer_busy = loop_work_ready(&work);
            else
                pipe_busy = read(pipe_ends[0], &byte, 1) != 1;
        }
    }
    loop_work_finish(&work, "epoll_loop");
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(epoll);
    return 0;
}
