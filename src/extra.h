/* SPDX-License-Identifier: BSD-2-Clause */
/* What a timeout with a hook, a period or a release has beside its block: a second one. */
#ifndef HWT_EXTRA_H
#define HWT_EXTRA_H

#include "pool.h"

/* The pool keeps the word and the link of the block to itself. */
struct timeout_extra {
    char pool_word[8];
    _Atomic uint32_t keepers; /* with a release: timeouts that have this, the renewed ones too */
    uint32_t unused;
    char pool_link[8];
    hwt_task *cancelled;
    void *arg;
    uint64_t period_ns;
    void (*release)(void *arg);
    _Atomic uint32_t users; /* of `arg`, if there is a release (release.h) */
    hwt_period_mode mode;
};

static_assert(offsetof(struct hwt_timeout, task) <= offsetof(struct timeout_extra, cancelled) &&
                  sizeof(struct timeout_extra) <= CACHE_LINE,
              "an extra lies in a block of the pool");

static inline struct timeout_extra *timeout_extra(const hwt_timeout *timeout)
{
    return timeout->flags & FLAG_EXTENDED ? timeout->arg : NULL;
}

static inline void *timeout_arg(const hwt_timeout *timeout)
{
    return unlikely(timeout->flags & FLAG_EXTENDED) ? timeout_extra(timeout)->arg : timeout->arg;
}

/* One timeout less that has it. */
static inline void extra_drop(const hwt_timeout *timeout, struct timeout_extra *extra)
{
    if (!(timeout->flags & FLAG_RELEASE) || sub_acq_rel(&extra->keepers, 1) == 1)
        pool_give((hwt_timeout *)(void *)extra);
}

/* The last reference is gone: back to the pool, with what belongs to it. */
static inline void timeout_free(hwt_timeout *timeout)
{
    struct timeout_extra *extra = timeout_extra(timeout);

    if (extra)
        extra_drop(timeout, extra);
    pool_give(timeout);
}

/* A reference is given up; with the last one the timeout goes. */
static inline void timeout_let_go(hwt_timeout *timeout)
{
    if (timeout_drop(timeout))
        timeout_free(timeout);
}

#endif
