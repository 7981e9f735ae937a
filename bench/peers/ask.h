/* SPDX-License-Identifier: BSD-2-Clause */
/* What each peer is asked, once: in a process of its own (bench_isolated), with a struct ask. */
#ifndef HWT_BENCH_ASK_H
#define HWT_BENCH_ASK_H

#include "peer.h"

#define ASK_DEPTH   1024 /* outstanding, of each producer */
#define ASK_FIGURES 6    /* at most, of one question */

struct ask {
    const struct peer *peer;
    unsigned producers;
    uint64_t count, others; /* timeouts that it is about; and that are there besides */
    struct series *figures; /* shared with the child; in the order given below */
};

typedef void ask_question(struct bench *b, void *ask);

/* The question of that name, as the tables call it; NULL: there is none. */
ask_question *ask_named(const char *name);

/* Schedule + cancel: CPU and wall a pair in ns, peak memory in MB. */
ask_question ask_pairs;
/* Scheduling only: CPU with taking them in, and wall, each in ns; bytes each. */
ask_question ask_build;
/*
 * Due within a second: CPU each in ns, without scheduling; how many were early; late p50, p99,
 * p99.9 in us; CPU in ns to schedule.
 */
ask_question ask_expire;
/*
 * As many again with the same timer, whose memory lies as the first ones left it: CPU in ns, to
 * schedule the first and these, and of the rest of these.
 */
ask_question ask_again;
/*
 * One at a time, due in 1 to 20 ms, in turn with bare sleeps: late p50, p99; the sleeps' p50, p99,
 * in us; how many were early.
 */
ask_question ask_lone;
/* By two threads, none cancelled: to schedule, wall and CPU; CPU of all, in ns; bytes each. */
ask_question ask_bulk;

#endif
