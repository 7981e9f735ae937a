/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lets the Nth request for memory, a thread or a descriptor fail, or the Nth and all that follow.
 * The linker sends the calls here (--wrap, see fault/alloc.c), so that only the library's and the
 * program's own are meant, not libc's.
 */
#ifndef STRESS_INJECT_H
#define STRESS_INJECT_H

#include "stress/stress.h"

#include <sys/mman.h>

static _Atomic bool armed, all_that_follow;
static _Atomic int64_t countdown;
static _Atomic uint64_t asked, asked_memory, failed;

static bool inject(void)
{
    int64_t left;

    atomic_fetch_add(&asked, 1);
    if (!atomic_load(&armed))
        return false;
    left = atomic_fetch_sub(&countdown, 1);
    if (left > 0 || (left < 0 && !atomic_load(&all_that_follow)))
        return false;
    atomic_fetch_add(&failed, 1);
    return true;
}

static bool inject_memory(void)
{
    atomic_fetch_add(&asked_memory, 1);
    return inject();
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static int no_descriptor(void)
{
    errno = EMFILE;
    return -1;
}

#define WRAP_POINTER(name, parameters, arguments)                                                  \
    void *__real_##name parameters;                                                                \
    void *__wrap_##name parameters;                                                                \
    void *__wrap_##name parameters                                                                 \
    {                                                                                              \
        return inject_memory() ? no_memory() : __real_##name arguments;                            \
    }

#define WRAP_INT(name, inject, failure, parameters, arguments)                                     \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        return inject() ? (failure) : __real_##name arguments;                                     \
    }

WRAP_POINTER(malloc, (size_t size), (size))
WRAP_POINTER(calloc, (size_t count, size_t size), (count, size))
WRAP_POINTER(realloc, (void *old, size_t size), (old, size))
WRAP_POINTER(aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP_INT(posix_memalign, inject_memory, ENOMEM, (void **place, size_t alignment, size_t size),
         (place, alignment, size))
WRAP_INT(pthread_create, inject, EAGAIN,
         (pthread_t * thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg),
         (thread, attr, body, arg))
WRAP_INT(pthread_key_create, inject, EAGAIN, (pthread_key_t * key, void (*end)(void *)), (key, end))
WRAP_INT(eventfd, inject, no_descriptor(), (unsigned value, int flags), (value, flags))
WRAP_INT(timerfd_create, inject, no_descriptor(), (int id, int flags), (id, flags))
WRAP_INT(epoll_create1, inject, no_descriptor(), (int flags), (flags))

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (!inject_memory())
        return __real_mmap(at, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

static void arm(uint64_t nth, bool and_all_that_follow)
{
    atomic_store(&failed, 0);
    atomic_store(&countdown, (int64_t)nth);
    atomic_store(&all_that_follow, and_all_that_follow);
    atomic_store(&armed, true);
}

/* What shall fail has not been asked for yet. */
static __attribute__((unused)) bool is_to_come(void)
{
    return atomic_load(&armed) && atomic_load(&countdown) >= 0;
}

static bool disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&failed) > 0;
}

static uint64_t injected;

/* Runs a scenario with its first, second, ... request failing, until it does not ask so often. */
static __attribute__((unused)) void each_failing(void (*scenario)(void), void (*prepare)(void),
                                                 void (*check)(void))
{
    for (int follow = 0; follow < 2; follow++) {
        for (uint64_t nth = 0; nth < 200; nth++) {
            bool hit;

            prepare();
            arm(nth, follow);
            scenario();
            hit = disarm();
            STRESS_CHECK(hit || nth > 0, "the scenario asks for nothing");
            check();
            injected += atomic_load(&failed);
            if (!hit)
                break;
        }
    }
}

static __attribute__((unused)) void nothing(void)
{
}

#endif
