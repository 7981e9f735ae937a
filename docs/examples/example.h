/* SPDX-License-Identifier: BSD-2-Clause */
/* What the examples share: each of them checks itself and fails loudly. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* _exit, because the other threads may be in the middle of anything. */
static inline void must(bool ok, const char *what)
{
    if (ok)
        return;
    fflush(stdout);
    fprintf(stderr, "failed: %s\n", what);
    _exit(EXIT_FAILURE);
}

/* A lost wake-up would look like an example that waits forever: SIGALRM ends it instead. */
static inline void give_up_after(unsigned seconds)
{
    alarm(seconds);
}

static inline void sleep_ms(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

/* Nanoseconds from then to now; 0 when another thread set `then` a moment after `now` was read. */
static inline uint64_t since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static inline double to_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

#endif
