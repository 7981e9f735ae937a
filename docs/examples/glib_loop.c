/* SPDX-License-Identifier: BSD-2-Clause */
/* A timer in a GLib main loop, as GTK programs run it: a source on the timer's descriptor. */
#include "loop_work.h"

#include <glib-unix.h>
#include <glib.h>

struct on_loop {
    struct loop_work work;
    GMainLoop *loop;
};

static gboolean timer_ready(gint fd, GIOCondition condition, gpointer arg)
{
    struct on_loop *on_loop = arg;

    (void)fd;
    (void)condition;
    if (loop_work_ready(&on_loop->work))
        return G_SOURCE_CONTINUE;
    g_main_loop_quit(on_loop->loop);
    return G_SOURCE_REMOVE;
}

int main(void)
{
    struct on_loop on_loop = {0};

    on_loop.loop = g_main_loop_new(NULL, FALSE);
    g_unix_fd_add(loop_work_start(&on_loop.work), G_IO_IN, timer_ready, &on_loop);
    g_main_loop_run(on_loop.loop);
    g_main_loop_unref(on_loop.loop);
    loop_work_finish(&on_loop.work, "glib_loop");
    return 0;
}
