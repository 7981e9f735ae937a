/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Debug builds mark the blocks that lie free in the pool, so that AddressSanitizer and valgrind
 * report whoever still uses one. The fields before `task` stay open: the pool itself links by them.
 */
#ifndef HWT_POISON_H
#define HWT_POISON_H

#include "timeout.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISON_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON_ASAN 1
#endif
#endif

#ifdef POISON_ASAN
#include <sanitizer/asan_interface.h>
#define poison_mark(p, size)   ASAN_POISON_MEMORY_REGION((p), (size))
#define poison_unmark(p, size) ASAN_UNPOISON_MEMORY_REGION((p), (size))
#define poison_lift(p, size)   ASAN_UNPOISON_MEMORY_REGION((p), (size))
#elif defined(HWT_DEBUG) && defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define poison_mark(p, size)   VALGRIND_MAKE_MEM_NOACCESS((p), (size))
#define poison_unmark(p, size) VALGRIND_MAKE_MEM_UNDEFINED((p), (size))
#define poison_lift(p, size)   VALGRIND_MAKE_MEM_DEFINED((p), (size))
#endif
#endif

#ifdef poison_mark
static inline void poison(hwt_timeout *block)
{
    poison_mark(&block->task, sizeof *block - offsetof(hwt_timeout, task));
}

static inline void unpoison(hwt_timeout *block)
{
    poison_unmark(&block->task, sizeof *block - offsetof(hwt_timeout, task));
}

/* For a moment, with what the pool has written there. */
static inline void poison_open(hwt_timeout *block)
{
    poison_lift(&block->task, sizeof *block - offsetof(hwt_timeout, task));
}
#else
static inline void poison(hwt_timeout *block)
{
    (void)block;
}

static inline void unpoison(hwt_timeout *block)
{
    (void)block;
}

static inline void poison_open(hwt_timeout *block)
{
    (void)block;
}
#endif

#ifdef HWT_DEBUG
/* poison.c: under a leak checker, each block has a tag for as long as it is in use. */
void poison_tag(hwt_timeout *block);
void poison_untag(hwt_timeout *block);
void poison_note_job(hwt_timeout *block, bool offered);
#endif

/* Taken from the pool. */
static inline void poison_mark_born(hwt_timeout *block)
{
#ifdef HWT_DEBUG
    poison_tag(block);
#else
    (void)block;
#endif
}

/* The executor has a share in it, which it may keep for longer than the timer lives. */
static inline void poison_mark_offered(hwt_timeout *block)
{
#ifdef HWT_DEBUG
    poison_note_job(block, true);
#else
    (void)block;
#endif
}

/* That share is about to be dropped. */
static inline void poison_mark_taken_up(hwt_timeout *block)
{
#ifdef HWT_DEBUG
    poison_note_job(block, false);
#else
    (void)block;
#endif
}

/* From here on a handle to it is dead. */
static inline void poison_mark_dead(hwt_timeout *block)
{
#ifdef HWT_DEBUG
    store_relaxed(&block->refs, 0);
    poison_untag(block);
#else
    (void)block;
#endif
}

/* Debug builds: the caller's handle has a reference. */
static inline void poison_check_alive(const hwt_timeout *timeout)
{
#ifdef HWT_DEBUG
    if (load_relaxed(&timeout->refs) == 0)
        base_fail("a handle was used after its last reference was dropped", __FILE__, __LINE__);
#else
    (void)timeout;
#endif
}

/*
 * Debug builds: how many timeouts of this timer have handles that were never dropped, and the task
 * of one of them. Each is told once. For when the runtime has no share in any of them any more.
 */
size_t poison_count_handles(const hwt_timer *timer, hwt_task **task);

#endif
