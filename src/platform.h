/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything that only Linux offers. To be ported: platform_linux.c, and platform_linux.h with what
 * is too short to be called.
 */
#ifndef HWT_PLATFORM_H
#define HWT_PLATFORM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <ck_md.h>

#include "base.h"

/*
 * Concurrency Kit's headers are configured for one architecture, and on another they leave out
 * barriers without a word. pkg-config ck even says which to the compiler, in one of its own macros.
 */
#if defined(__x86_64__) && !defined(__amd64__)
#error "-D__x86_64__ (from pkg-config ck?) does not belong on this architecture"
#elif defined(CK_MD_TSO) && !defined(__amd64__)
#error "these headers of Concurrency Kit are for x86-64: install those for the target architecture"
#endif

/* CPUs that may ever be there, at least 1. */
unsigned platform_cpu_count(void);

/*
 * The CPU this thread runs on, as a hint: it may be another one by the time the caller uses it.
 */
static inline unsigned platform_cpu(void);
/* The same, by a call. */
unsigned platform_cpu_slow(void);

/*
 * Sleep while *word is expected, until the absolute CLOCK_MONOTONIC time (UINT64_MAX: no limit).
 * May return early at any time: the caller looks again.
 */
void platform_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns);
void platform_futex_wake_all(_Atomic uint32_t *word);
/* Sleep for so long at most, where there is nothing to wait on. No cancellation point. */
void platform_nap(uint64_t ns);

/*
 * Timer descriptors; all return a descriptor or 0, or a negative errno. One that was created can
 * also be set, though a sandbox that is entered later may forbid that.
 */
int platform_timerfd_create(clockid_t clock_id);
int platform_timerfd_set(int fd, uint64_t deadline_ns); /* UINT64_MAX disarms */
/*
 * Until it has fired, the bell was rung, or so long (UINT64_MAX: no limit). -1: there is no such
 * descriptor, or no bell.
 */
void platform_timerfd_wait(int fd, int bell, uint64_t most_ns);
void platform_close(int fd); /* no cancellation point, as no call of ours is one */

/* A descriptor that ends somebody's platform_timerfd_wait: it, or a negative errno. */
int platform_bell_create(void);
void platform_bell_ring(int bell);

/* The calling thread becomes a worker: name (of at most 15 bytes), finest timer slack. */
void platform_name_worker(const char *name);

/* Copies the attributes that matter to a worker. 0 or a negative errno. */
int platform_attr_copy(pthread_attr_t *to, const pthread_attr_t *from);

/* The largest page that there is. */
#ifdef __x86_64__
#define PLATFORM_PAGE 4096
#else
#define PLATFORM_PAGE 65536
#endif
/* A forked child finds these pages of static storage zeroed, if the kernel can do that. */
void platform_wipe_on_fork(void *pages, size_t size);
/* By who is about to fork, one at a time. Then: whether this is the child, by its number. */
void platform_before_fork(void);
bool platform_is_forked(void);

/* Zeroed, within PLATFORM_ADDRESS_BITS, aligned (to a power of two). NULL: none. */
void *platform_map(size_t size, size_t alignment);
void platform_unmap(void *memory, size_t size);
/* Tells a leak checker, if there is one, to look for pointers there: what is never unmapped. */
void platform_tell_leak_checker(const void *memory, size_t size);

/*
 * Ask for huge pages, or none; for pages now, before they are touched, whoever writes there
 * meanwhile; give the pages back and keep the addresses. All are only advice.
 */
void platform_advise_huge(void *memory, size_t size);
void platform_advise_small(void *memory, size_t size);
void platform_populate_pages(void *memory, size_t size);
void platform_release_pages(void *memory, size_t size);

#include "platform_linux.h"

#endif
