/* SPDX-License-Identifier: BSD-2-Clause */
/* The textbooks' timer structures, and this library, under one interface. Single-threaded. */
#ifndef HWT_BENCH_STRUCTURES_H
#define HWT_BENCH_STRUCTURES_H

#include <hwt.h>

#include "support.h"

#define STRUCTURE_TICK HWT_MSEC(1)
#define LIST_END       UINT64_MAX

/* One timeout. Those of the textbooks are the caller's, so none of them pays for memory. */
struct item {
    uint64_t deadline;
    struct item *next;
    union {
        struct item *prev;     /* sorted list */
        struct item **link;    /* wheels: what points here */
        struct item **forward; /* skip list: the levels above; next is the lowest */
    };
    union {
        uint64_t index;      /* heap */
        uint64_t rounds;     /* hashed wheel */
        unsigned levels;     /* skip list */
        hwt_timeout *handle; /* libhwt */
    };
};

struct structure {
    const char *name;
    const char *schedule_order, *cancel_order, *expire_order; /* as the textbooks have it */
    void *(*create)(uint64_t capacity);
    void (*destroy)(void *self);
    void (*fill)(void *self, struct item **sorted, uint64_t n); /* NULL: inserts them all */
    void (*insert)(void *self, struct item *item);
    void (*cancel)(void *self, struct item *item);
    uint64_t (*next)(
        void *self); /* the earliest deadline; NULL: it has to be looked at each tick */
    uint64_t (*expire)(void *self, uint64_t now); /* removes what is due; how many */
};

extern const struct structure sorted_list, binary_heap, skip_list;
extern const struct structure list_wheel_hashed, list_wheel_hierarchical;
extern const struct structure libhwt_hashed, libhwt_hierarchical;

#endif
