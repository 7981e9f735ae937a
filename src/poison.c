/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Debug builds: who never dropped a handle? Beside each block lies a note. Under AddressSanitizer
 * it holds a piece of memory for as long as the block is in use, so that LeakSanitizer can say
 * where a leaked handle comes from. While the timer lives, the note points to it, and nothing is
 * leaked. When the timer is destroyed, those that still have a handle are counted, and their notes
 * are turned over: then only whoever drops the handle finds the memory again. In other debug builds
 * a note only tells which were counted. A bit of it tells that one share is the executor's.
 */
#include "poison.h"

#ifdef HWT_DEBUG
#include <stdlib.h>
#include <string.h>

#include "slab.h"

#if defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif
#endif
#ifndef VALGRIND_DISABLE_ERROR_REPORTING
#define VALGRIND_DISABLE_ERROR_REPORTING ((void)0)
#define VALGRIND_ENABLE_ERROR_REPORTING  ((void)0)
#endif

/* Of memory's addresses these bits are 0. */
#define TURNED    ((uintptr_t)1)
#define OFFERED   ((uintptr_t)2) /* unless it is turned */
#define NOTE_BITS ((uintptr_t)3)

static bool is_turned(uintptr_t note)
{
    return note & TURNED;
}

void poison_tag(hwt_timeout *block)
{
#ifdef POISON_ASAN
    store_relaxed(slab_note(block), (uintptr_t)strdup("a timeout's handle"));
#else
    (void)block;
#endif
}

void poison_untag(hwt_timeout *block)
{
    _Atomic uintptr_t *place = slab_note(block);
    uintptr_t note = load_relaxed(place) ? exchange_acq_rel(place, 0) : 0;

    free((void *)((is_turned(note) ? ~note : note) & ~NOTE_BITS));
}

void poison_note_job(hwt_timeout *block, bool offered)
{
    if (offered)
        or_seq(slab_note(block), OFFERED);
    else
        and_relaxed(slab_note(block), ~OFFERED);
}

struct count {
    const hwt_timer *timer;
    hwt_task *task;
    size_t handles;
};

/* Blocks that others are using meanwhile are looked at as well, and so is what lies free. */
static __attribute__((no_sanitize("address"))) void count_one(hwt_timeout *block, void *arg)
{
    struct count *count = arg;
    _Atomic uintptr_t *place;
    uintptr_t note;
    uint32_t others;

    place = slab_note(block);
    note = load_relaxed(place);
    /* an executor's job has one, and while it has, the runtime's is counted though it is over */
    others = note & OFFERED ? 1u + load_relaxed(&block->withdrawn) : 0;
    if (load_relaxed(&block->refs) <= others || block->timer != count->timer)
        return;
    if (!is_turned(note) && cas_acq_rel(place, &note, ~note)) {
        count->handles++;
        count->task = block->task;
    }
}

size_t poison_count_handles(const hwt_timer *timer, hwt_task **task)
{
    struct count count = {timer, NULL, 0};

    VALGRIND_DISABLE_ERROR_REPORTING;
    slab_each(count_one, &count);
    VALGRIND_ENABLE_ERROR_REPORTING;
    *task = count.task;
    return count.handles;
}
#endif
