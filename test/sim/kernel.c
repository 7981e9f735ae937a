/* SPDX-License-Identifier: BSD-2-Clause */
/* What the library asks of the system: clocks, futexes, descriptors, pages. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"
#include "system.h"

#define PC       ((uintptr_t)__builtin_return_address(0))
#define SECOND   UINT64_C(1000000000)
#define COARSE   UINT64_C(4000000)
#define BOOTTIME UINT64_C(5000000000) /* CLOCK_BOOTTIME is so far ahead */
#define PAGE     512                  /* a slab (sizes.h) */
#define PIECE    16                   /* a part of a segment: what goes back at least */

static uint64_t to_ns(const struct timespec *ts)
{
    return (uint64_t)ts->tv_sec * SECOND + (uint64_t)ts->tv_nsec;
}

/* One of the calls that may fail does; or is interrupted. */
static bool fails(void)
{
    return sim_choose(EVENT_FAIL, 1, sim_fail_one_in) > 0;
}

static bool is_interrupted(void)
{
    return fails() || sim_choose(EVENT_FAIL, 1, sim_interrupt_one_in) > 0;
}

/* ---- clocks ---- */

static uint64_t clock_offset(clockid_t id)
{
    return id == CLOCK_BOOTTIME ? BOOTTIME : 0;
}

int sim_clock_gettime(clockid_t id, struct timespec *ts)
{
    uint64_t now;

    sim_point(PC, 0);
    now = sim_now + clock_offset(id);
    if (id == CLOCK_MONOTONIC_COARSE)
        now -= now % COARSE;
    ts->tv_sec = (time_t)(now / SECOND);
    ts->tv_nsec = (long)(now % SECOND);
    if (sim_history && sim_history->tracing)
        trace_add(TRACE_CALL, PC, 0, 0, now, "clock");
    return 0;
}

int sim_sched_yield(void)
{
    sim_yield(PC);
    return 0;
}

int sim_nanosleep(const struct timespec *ts, struct timespec *rest)
{
    (void)rest;
    sim_point(PC, 0);
    SIM_CHECK(sim_current->locks == 0, "sleeps under a lock");
    sim_wait((uintptr_t)ts, sim_now + to_ns(ts), "a nap");
    return 0;
}

void sim_sleep(uint64_t ns)
{
    sim_wait((uintptr_t)&ns, ns > UINT64_MAX - sim_now ? UINT64_MAX : sim_now + ns, "a nap");
}

bool sim_one_cpu, sim_wanders, sim_no_chunks;
unsigned sim_stays, sim_asks;
size_t sim_no_maps_from = SIZE_MAX;
void (*sim_pages_go)(void);

int sim_sched_getcpu(void)
{
    if (!sim_current || sim_one_cpu)
        return 0;
    if (sim_wanders) /* without a rule that calls could keep time with */
        return (int)(++sim_current->asks_cpu * UINT32_C(2654435769) >> 31);
    if (sim_stays)
        return (int)(++sim_asks / sim_stays & 1);
    return (int)(sim_current->index & 1);
}

long sim_sysconf(int name)
{
    return name == _SC_PAGESIZE ? PIECE : 2; /* CPUs */
}

/* ---- futex, and the one write that is made past the C library ---- */

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *until)
{
    memory_drain(sim_current);
    switch (operation & ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)) {
    case FUTEX_WAIT_BITSET:
        SIM_CHECK(sim_current->locks == 0, "waits under a lock");
        if (*(volatile uint32_t *)word != value) {
            errno = EAGAIN;
            return -1;
        }
        if (is_interrupted()) {
            errno = EINTR;
            return -1;
        }
        if (sim_wait((uintptr_t)word, until ? to_ns(until) : UINT64_MAX, "a futex"))
            return 0;
        errno = ETIMEDOUT;
        return -1;
    case FUTEX_WAKE: sim_wake((uintptr_t)word, value == INT_MAX); return 0;
    default: sim_fail("an unknown futex operation: %d", operation);
    }
}

static long ring(int fd);

long sim_syscall(long number, ...)
{
    va_list list;
    long result;

    va_start(list, number);
    if (number == SYS_futex) {
        uint32_t *word = va_arg(list, uint32_t *);
        int operation = va_arg(list, int);
        uint32_t value = va_arg(list, uint32_t);
        const struct timespec *until = va_arg(list, const struct timespec *);
        sim_write_point(PC, (uintptr_t)word);
        if (sim_history->tracing)
            trace_add(TRACE_CALL, PC, (uintptr_t)word, value, until ? to_ns(until) : 0,
                      (operation & 127) == FUTEX_WAKE ? "futex wake" : "futex wait");
        result = futex(word, operation, value, until);
    } else if (number == SYS_write) {
        sim_point(PC, 0);
        result = ring(va_arg(list, int));
    } else {
        sim_fail("an unknown system call: %ld", number);
    }
    va_end(list);
    return result;
}

/* ---- descriptors ---- */

#define FIRST_FD 100

static struct descriptor {
    bool open, bell;
    uint64_t rings;
    uint64_t fires; /* in this clock's time; UINT64_MAX: not set */
    clockid_t clock;
    unsigned settings, edge; /* how often it was set; the last setting whose edge was taken */
} descriptors[64];
static unsigned descriptor_count;
static const char readers; /* whose address those who poll wait for */

void kernel_reset(void)
{
    memset(descriptors, 0, sizeof descriptors);
    descriptor_count = 0;
}

static struct descriptor *descriptor_of(int fd)
{
    unsigned index = (unsigned)(fd - FIRST_FD);

    if (fd < FIRST_FD || index >= descriptor_count)
        sim_fail("no descriptor: %d", fd);
    SIM_CHECK(descriptors[index].open, "a closed descriptor is used: %d", fd);
    return &descriptors[index];
}

static int open_descriptor(struct descriptor descriptor)
{
    if (descriptor_count == 64)
        sim_fail("too many descriptors for the simulator");
    descriptor.open = true;
    descriptors[descriptor_count] = descriptor;
    return FIRST_FD + (int)descriptor_count++;
}

int sim_timerfd_create(int clock, int flags)
{
    (void)flags;
    sim_point(PC, 0);
    if (fails()) {
        errno = EMFILE;
        return -1;
    }
    return open_descriptor((struct descriptor){.fires = UINT64_MAX, .clock = clock});
}

int sim_eventfd(unsigned value, int flags)
{
    (void)flags;
    sim_point(PC, 0);
    if (fails()) {
        errno = EMFILE;
        return -1;
    }
    return open_descriptor((struct descriptor){.bell = true, .rings = value, .fires = UINT64_MAX});
}

int sim_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
    uint64_t fires = to_ns(&when->it_value);

    (void)flags;
    (void)old;
    sim_write_point(PC, 0);
    memory_drain(sim_current);
    if (sim_history->tracing)
        trace_add(TRACE_CALL, PC, 0, (uint64_t)fd, fires, "timerfd_settime");
    descriptor_of(fd)->fires = fires ? fires : UINT64_MAX;
    descriptor_of(fd)->settings++;
    sim_current->setting = 3; /* the look, and, if that says so, the next one */
    sim_wake((uintptr_t)&readers, true);
    return 0;
}

static long ring(int fd)
{
    descriptor_of(fd)->rings++;
    sim_wake((uintptr_t)&readers, true);
    return 8;
}

ssize_t sim_read(int fd, void *buffer, size_t size)
{
    struct descriptor *descriptor = descriptor_of(fd);

    sim_point(PC, 0);
    if (!descriptor->bell || descriptor->rings == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(buffer, &descriptor->rings, size < 8 ? size : 8);
    descriptor->rings = 0;
    return 8;
}

int sim_close(int fd)
{
    sim_point(PC, 0);
    descriptor_of(fd)->open = false;
    sim_wake((uintptr_t)&readers, true);
    return 0;
}

uint64_t sim_readable_at(int fd)
{
    const struct descriptor *descriptor = descriptor_of(fd);
    uint64_t offset = clock_offset(descriptor->clock);

    if (descriptor->rings)
        return 0;
    if (descriptor->fires == UINT64_MAX)
        return UINT64_MAX;
    return descriptor->fires > offset ? descriptor->fires - offset : 0;
}

bool sim_is_readable(int fd)
{
    return sim_readable_at(fd) <= sim_now;
}

/* The descriptors of this set that are readable; and when the first one will be. */
static int look_at(struct pollfd *poll_fd, unsigned long count, uint64_t *when)
{
    int readable = 0;

    *when = UINT64_MAX;
    for (unsigned long i = 0; i < count; i++) {
        uint64_t at = poll_fd[i].fd >= 0 ? sim_readable_at(poll_fd[i].fd) : UINT64_MAX;
        poll_fd[i].revents = at <= sim_now ? POLLIN : 0;
        readable += at <= sim_now;
        if (at < *when)
            *when = at;
    }
    return readable;
}

static int wait_for(struct pollfd *poll_fd, unsigned long count, uint64_t until)
{
    uint64_t when;
    int readable;

    while ((readable = look_at(poll_fd, count, &when)) == 0 && sim_now < until)
        sim_wait((uintptr_t)&readers, when < until ? when : until, "a descriptor");
    return readable;
}

int sim_poll(struct pollfd *poll_fd, unsigned long count, int milliseconds)
{
    uint64_t until = milliseconds < 0 ? UINT64_MAX : sim_now + (uint64_t)milliseconds * 1000000;

    sim_point(PC, 0);
    SIM_CHECK(sim_current->locks == 0, "polls under a lock");
    if (is_interrupted()) {
        errno = EINTR;
        return -1;
    }
    return wait_for(poll_fd, count, until);
}

bool sim_wait_readable(int fd, uint64_t until)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN, .revents = 0};
    return wait_for(&poll_fd, 1, until) > 0;
}

bool sim_wait_edge(int fd, const bool *over)
{
    struct descriptor *descriptor = descriptor_of(fd);

    while (!*over && (descriptor->edge == descriptor->settings || !sim_is_readable(fd)))
        sim_wait((uintptr_t)&readers,
                 descriptor->edge == descriptor->settings ? UINT64_MAX : sim_readable_at(fd),
                 "an edge of a descriptor");
    descriptor->edge = descriptor->settings;
    return !*over;
}

void sim_end_edges(bool *over)
{
    *over = true;
    sim_wake((uintptr_t)&readers, true);
}

int sim_prctl(int option, ...)
{
    (void)option;
    return 0;
}

/* ---- memory ---- */

void *sim_malloc(size_t size)
{
    sim_point(PC, 0);
    return fails() ? NULL : memory_take(size, 16);
}

void *sim_calloc(size_t count, size_t size)
{
    sim_point(PC, 0);
    return fails() ? NULL : memory_take(count * size, 16); /* nothing is used twice: zeros */
}

void *sim_aligned_alloc(size_t alignment, size_t size)
{
    sim_point(PC, 0);
    return sim_no_chunks || fails() ? NULL : memory_take(size, alignment);
}

void sim_free(void *memory)
{
    sim_point(PC, 0);
    memory_give(memory);
}

void *sim_mmap(void *at, size_t size, int protection, int flags, int fd, long offset)
{
    (void)at;
    (void)protection;
    (void)flags;
    (void)fd;
    (void)offset;
    sim_point(PC, 0);
    if (size >= sim_no_maps_from || fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return memory_take((size + 63) & ~(size_t)63, PAGE); /* goes as it came: by whole lines */
}

int sim_munmap(void *memory, size_t size)
{
    sim_point(PC, 0);
    memory_unmap(memory, size);
    return 0;
}

int sim_madvise(void *memory, size_t size, int advice)
{
    sim_point(PC, 0);
    if (advice == MADV_DONTNEED && !sim_choose(EVENT_FAIL, 1, sim_stay_one_in)) {
        memory_clear_pages(memory, size);
        if (sim_pages_go)
            sim_pages_go();
    }
    return 0;
}

void sim_abort(void)
{
    sim_fail("aborted");
}

/* A debug build's assertions and validators, instead of base.c. */
void base_fail(const char *what, const char *file, int line);
void base_fail(const char *what, const char *file, int line)
{
    const char *slash = strrchr(file, '/');

    sim_fail("%s (%s:%d)", what, slash ? slash + 1 : file, line);
}

/* What a debug build ties to a block; nobody looks for leaks with it here. */
char *sim_strdup(const char *text)
{
    (void)text;
    return NULL;
}
