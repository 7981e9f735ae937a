/* SPDX-License-Identifier: BSD-2-Clause */
/* One case of `inflight`: a timer, how many producers, how many timeouts each has in flight. */
#ifndef HWT_BENCH_INFLIGHT_H
#define HWT_BENCH_INFLIGHT_H

#include "peers/peer.h"

/* ---- what is due every 10 ms, and how late it was ---- */
struct watch;

struct watch *watch_new(void);
/* By this timer; by bare sleeps of a thread of its own if there is none. */
void watch_start(struct watch *watch, const struct peer *peer, void *timer);
void watch_begin(struct watch *watch); /* what runs counts from now on */
void watch_end(struct watch *watch);   /* no longer */
/*
 * The runs of the last such time, sorted: how late each was, in ns; and among them how late the
 * next one was already in the end, if by more than a period. To be asked once.
 */
size_t watch_late(struct watch *watch, const uint64_t **late, size_t *runs);

/* ---- the memory that any timer has to touch ---- */
/* No timer: blocks of 64 bytes that lie in the order of the ring, or in any. */
extern const struct peer walk_in_order, walk_in_any_order;
void walk_lots(uint64_t each); /* how many a thread is going to want, before any thread does */

/* ---- the case ---- */
enum {
    CPU,
    WALL,
    PEAK,
    BYTES,
    BY_WORKER,
    LATE_P50,
    LATE_MAX,
    RUNS,
    SLEEP_P50,
    SLEEP_MAX,
    FIGURES,
};

struct flight {
    const struct peer *peer;
    unsigned producers;
    uint64_t each;
    struct series *f; /* shared with the child */
};

void flight_run(struct bench *b, void *arg); /* for bench_isolated: a struct flight */

#endif
