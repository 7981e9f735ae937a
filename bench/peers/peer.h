/* SPDX-License-Identifier: BSD-2-Clause */
/* Other timers, and this one, behind one interface. */
#ifndef HWT_BENCH_PEER_H
#define HWT_BENCH_PEER_H

#include "suite/harness.h"

/* What a timeout is called with; the caller's, and part of something larger. */
struct event {
    void (*fire)(struct event *event);
};

struct peer {
    const char *name;
    void *(*create)(void);
    void (*destroy)(void *timer);
    /*
     * From any thread. With `keep` the handle is returned, and will be cancelled before it
     * expires; without, nobody is going to ask for this timeout again.
     */
    void *(*schedule)(void *timer, uint64_t deadline_ns, struct event *event, bool keep);
    void (*cancel)(void *timer, void *handle);
    uint64_t (*most)(void); /* how many can be pending at all; NULL: no limit of its own */
    /* The same with a delay. NULL: it takes deadlines only, and its user reads the clock. */
    void *(*schedule_in)(void *timer, uint64_t delay_ns, struct event *event, bool keep);
};

static inline void *peer_schedule_in(const struct peer *peer, void *timer, uint64_t delay_ns,
                                     struct event *event, bool keep)
{
    return peer->schedule_in ? peer->schedule_in(timer, delay_ns, event, keep)
                             : peer->schedule(timer, clock_ns() + delay_ns, event, keep);
}

extern const struct peer peer_hwt, peer_heap, peer_timerfd, peer_posix;
extern const struct peer peer_four_shards, peer_stack_heap, peer_brpc_like; /* written for this */
#ifdef HAVE_libuv
extern const struct peer peer_libuv;
#endif
#ifdef HAVE_libevent_pthreads
extern const struct peer peer_libevent;
#endif

/*
 * Runs a program that measures another language's timer in the same way and prints a JSON line
 * for each figure, with the values of all runs; reports them among its own.
 */
void peer_foreign(struct bench *b, const char *name, const char *command);

/* The same for any command, whose figures are handed to the caller. False: it failed. */
typedef void peer_figure(struct bench *b, const struct bench_row *row, const struct series *s,
                         void *arg);
bool peer_figures(struct bench *b, const char *name, const char *call, peer_figure *figure,
                  void *arg);

void *peer_alloc(size_t bytes); /* malloc that does not fail */
struct timespec peer_timespec(uint64_t ns);

#endif
