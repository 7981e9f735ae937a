/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G16: `release` is called when nobody needs the argument any more. That is counted apart from the
 * references that keep a timeout's block, because the worker may hold on to the block of one that
 * was cancelled until it has time for the notice: the argument shall not wait for that.
 *
 * A user of the argument is each handle, and the runtime until the timeout has ended. Its share is
 * given up by whoever ended it, when its hook has returned: the canceller, or whoever ran it if it
 * was cancelled meanwhile, or if it has run for the last time. What stop hands back, it hands back
 * with the share, which is a handle's from then on. Who holds on to the block alone may look at the
 * extra, but not at the argument, unless he becomes a user while there still are others.
 */
#ifndef HWT_RELEASE_H
#define HWT_RELEASE_H

#include "extra.h"

/* What is left to do; without `call` nothing is. */
struct release {
    void (*call)(void *arg);
    void *arg;
};

static inline bool has_release(const hwt_timeout *timeout)
{
    return unlikely(timeout->flags & FLAG_RELEASE);
}

/* One more, by who is one. */
static inline void release_add_user(const hwt_timeout *timeout)
{
    add_relaxed(&timeout_extra(timeout)->users, 1);
}

/* One less. What it returns is called when nothing is half-done, as the last of all. */
static inline struct release release_drop_user(const hwt_timeout *timeout)
{
    struct timeout_extra *extra = timeout_extra(timeout);
    struct release release = {extra->release, extra->arg};

    /* acquire-release: what all users did with the argument comes before its release */
    return sub_acq_rel(&extra->users, 1) == 1 ? release : (struct release){NULL, NULL};
}

/* One more, by who keeps the block alone. False: there is none any more. */
static inline bool release_join_users(const hwt_timeout *timeout)
{
    _Atomic uint32_t *users = &timeout_extra(timeout)->users;
    uint32_t count = load_relaxed(users);

    while (count > 0 && !cas_acq_rel(users, &count, count + 1))
        continue;
    return count > 0;
}

/* The same, whether it has one or not. */
static inline struct release release_drop_user_of(const hwt_timeout *timeout)
{
    return has_release(timeout) ? release_drop_user(timeout) : (struct release){NULL, NULL};
}

static inline void release_call(struct release release)
{
    if (release.call)
        release.call(release.arg);
}

#endif
