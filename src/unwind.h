/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must happen however a block is left: by its end, or because a callback of the user's did not
 * return to it, but threw a C++ exception or ended its thread (pthread_exit, a cancellation).
 *
 *     struct unwind guard UNWIND;
 *     unwind_begin(&guard, leave, what);
 *
 * From here on leave(what) is called once, at the end of the block or on the way through it. The
 * library is compiled with -fexceptions for this.
 */
#ifndef HWT_UNWIND_H
#define HWT_UNWIND_H

#include <pthread.h>

struct unwind {
    void (*leave)(void *what);
    void *what;
#ifndef __GLIBC__
    struct __ptcb pushed; /* musl's: there a thread that ends runs what was pushed, and unwinds
                             nothing */
#endif
};

#define UNWIND __attribute__((cleanup(unwind_end)))

static inline __attribute__((always_inline)) void
unwind_begin(struct unwind *guard, void (*leave)(void *what), void *what)
{
    guard->leave = leave;
    guard->what = what;
#ifndef __GLIBC__
    _pthread_cleanup_push(&guard->pushed, leave, what);
#endif
}

static inline __attribute__((always_inline)) void unwind_end(struct unwind *guard)
{
#ifndef __GLIBC__
    _pthread_cleanup_pop(&guard->pushed, 0);
#endif
    guard->leave(guard->what);
}

#endif
