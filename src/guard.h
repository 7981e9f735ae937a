/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must happen however a block is left: by its end, or because a callback of the user's did not
 * return to it, but threw a C++ exception or ended its thread (pthread_exit, a cancellation).
 *
 *     struct guard guard GUARDED = {.leave = leave, .what = what};
 *     guard_begin(&guard);
 *
 * From here on leave(what) is called once, at the end of the block or on the way through it. The
 * library is compiled with -fexceptions for this, where the compiler's unwinder allows it.
 */
#ifndef HWT_GUARD_H
#define HWT_GUARD_H

#include <pthread.h>

struct guard {
    void (*leave)(void *what);
    void *what;
#ifndef __GLIBC__
    struct __ptcb pushed; /* musl's: there a thread that ends runs what was pushed, and unwinds
                             nothing */
#endif
};

#define GUARDED __attribute__((cleanup(guard_end)))

static inline __attribute__((always_inline)) void guard_begin(struct guard *guard)
{
#ifndef __GLIBC__
    _pthread_cleanup_push(&guard->pushed, guard->leave, guard->what);
#else
    (void)guard;
#endif
}

static inline __attribute__((always_inline)) void guard_end(struct guard *guard)
{
#ifndef __GLIBC__
    _pthread_cleanup_pop(&guard->pushed, 0);
#endif
    guard->leave(guard->what);
}

#endif
