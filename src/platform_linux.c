/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC  UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define FAR_OFF       (UINT64_C(1) << 61) /* 73 years */

unsigned platform_cpu_count(void)
{
    int saved = errno; /* without /sys the C library tries this and that */
    long count = sysconf(_SC_NPROCESSORS_CONF);

    errno = saved;
    return count > 0 ? (unsigned)count : 1;
}

#ifdef PLATFORM_RSEQ
/*
 * Weak, and read once: beside a C library that does not have them (glibc 2.34, say) the library
 * loads, and asks for the CPU by a call.
 */
#include <sys/rseq.h>
#pragma weak __rseq_offset
#pragma weak __rseq_size

ptrdiff_t platform_rseq_cpu;

static __attribute__((constructor(101))) void find_rseq(void)
{
    const ptrdiff_t *offset = &__rseq_offset;
    const unsigned *size = &__rseq_size;

    if (offset && size && *size > 0)
        platform_rseq_cpu = *offset + (ptrdiff_t)offsetof(struct rseq, cpu_id);
}
#endif

unsigned platform_cpu_slow(void)
{
    int cpu = sched_getcpu();
    return cpu >= 0 ? (unsigned)cpu : 0;
}

#if PLATFORM_COUNTER
/* These are read from memory that the kernel shares, by this counter: only where all CPUs agree. */
static bool counts(const char *name)
{
    static const char *const those[] = {"tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"};

    for (size_t i = 0; i < sizeof those / sizeof *those; i++) {
        if (strcmp(name, those[i]) == 0)
            return true;
    }
    return false;
}

bool platform_counter_is_clock(void)
{
    char name[64] = "";
    int saved = errno, state, fd;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
              O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, name, sizeof name - 1) < 0)
            name[0] = '\0';
        close(fd);
    }
    pthread_setcancelstate(state, NULL);
    errno = saved;
    return counts(name);
}
#endif

static struct timespec to_timespec(uint64_t ns)
{
    struct timespec ts;
    ts.tv_sec = (time_t)(ns / NSEC_PER_SEC);
    ts.tv_nsec = (long)(ns % NSEC_PER_SEC);
    return ts;
}

void platform_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    struct timespec until = to_timespec(until_ns);
    int saved = errno;

    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
            until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    errno = saved;
}

void platform_futex_wake_all(_Atomic uint32_t *word)
{
    int saved = errno;

    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = saved;
}

void platform_nap(uint64_t ns)
{
    struct timespec nap = {.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                           .tv_nsec = (long)(ns % NSEC_PER_SEC)};
    int saved = errno, state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    nanosleep(&nap, NULL);
    pthread_setcancelstate(state, NULL);
    errno = saved;
}

void platform_close(int fd)
{
    int saved = errno, state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    close(fd);
    pthread_setcancelstate(state, NULL);
    errno = saved;
}

int platform_timerfd_create(clockid_t clock_id)
{
    int saved = errno;
    int fd = timerfd_create(clock_id, TFD_NONBLOCK | TFD_CLOEXEC), result;

    if (fd < 0) {
        fd = -errno;
    } else if ((result = platform_timerfd_set(fd, FAR_OFF)) != 0 ||
               (result = platform_timerfd_set(fd, UINT64_MAX)) != 0) {
        platform_close(fd);
        fd = result;
    }
    errno = saved;
    return fd;
}

int platform_timerfd_set(int fd, uint64_t deadline_ns)
{
    struct itimerspec when = {.it_interval = {0, 0}, .it_value = {0, 0}};
    int saved = errno;
    int result = 0;

    if (deadline_ns != UINT64_MAX)
        when.it_value = to_timespec(deadline_ns ? deadline_ns : 1); /* 0 would disarm it */
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        result = -errno;
    errno = saved;
    return result;
}

/* Not before that time has passed. */
static int to_milliseconds(uint64_t ns)
{
    uint64_t ms = ns / NSEC_PER_MSEC + 1;

    if (ns == UINT64_MAX)
        return -1;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

void platform_timerfd_wait(int fd, int bell, uint64_t most_ns)
{
    struct pollfd poll_fd[2] = {
        {.fd = fd, .events = POLLIN, .revents = 0},
        {.fd = bell, .events = POLLIN, .revents = 0},
    };
    uint64_t rings;
    int saved = errno;

    if (poll(poll_fd, 2, to_milliseconds(most_ns)) > 0 && poll_fd[1].revents & POLLIN) {
        while (read(bell, &rings, sizeof rings) > 0)
            continue;
    }
    errno = saved;
}

int platform_bell_create(void)
{
    int saved = errno;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    if (fd < 0) {
        fd = -errno;
        errno = saved;
    }
    return fd;
}

void platform_bell_ring(int bell)
{
    const uint64_t once = 1;
    int saved = errno;

    /* full: it rings already; not by write, which is a cancellation point */
    while (syscall(SYS_write, bell, &once, sizeof once) < 0 && errno == EINTR)
        continue;
    errno = saved;
}

void platform_name_worker(const char *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

static int attr_copy_scheduling(pthread_attr_t *to, const pthread_attr_t *from)
{
    struct sched_param param;
    int policy, inherit, scope, error;

    if ((error = pthread_attr_getscope(from, &scope)) != 0 ||
        (error = pthread_attr_setscope(to, scope)) != 0 ||
        (error = pthread_attr_getinheritsched(from, &inherit)) != 0 ||
        (error = pthread_attr_setinheritsched(to, inherit)) != 0)
        return error;
    if (inherit != PTHREAD_EXPLICIT_SCHED) /* then the rest need not even fit together */
        return 0;
    if ((error = pthread_attr_getschedpolicy(from, &policy)) != 0 ||
        (error = pthread_attr_getschedparam(from, &param)) != 0 ||
        (error = pthread_attr_setschedpolicy(to, policy)) != 0)
        return error;
    return pthread_attr_setschedparam(to, &param);
}

static int attr_copy_stack(pthread_attr_t *to, const pthread_attr_t *from)
{
    size_t guard, size;
    void *stack = NULL;
    int error;

    if ((error = pthread_attr_getguardsize(from, &guard)) != 0 ||
        (error = pthread_attr_setguardsize(to, guard)) != 0)
        return error;
    /* A stack of the caller's own is one with an address; without one getstack may also fail. */
    if (pthread_attr_getstack(from, &stack, &size) == 0 && stack && (uintptr_t)stack + size > size)
        return pthread_attr_setstack(to, stack, size);
    if ((error = pthread_attr_getstacksize(from, &size)) != 0)
        return error;
    return size ? pthread_attr_setstacksize(to, size) : 0;
}

static int attr_copy_affinity(pthread_attr_t *to, const pthread_attr_t *from)
{
#ifdef __GLIBC__
    cpu_set_t cpus[8]; /* more than Linux has */
    int error = pthread_attr_getaffinity_np(from, sizeof cpus, cpus);

    if (error != 0)
        return error;
    if (CPU_COUNT_S(sizeof cpus, cpus) == 8 * (int)sizeof cpus) /* an attribute without affinity */
        return 0;
    return pthread_attr_setaffinity_np(to, sizeof cpus, cpus);
#else
    (void)to;
    (void)from;
    return 0; /* musl keeps no affinity in an attribute */
#endif
}

int platform_attr_copy(pthread_attr_t *to, const pthread_attr_t *from)
{
    int error = pthread_attr_init(to);

    if (error != 0)
        return -error;
    if ((error = attr_copy_scheduling(to, from)) == 0 && (error = attr_copy_stack(to, from)) == 0 &&
        (error = attr_copy_affinity(to, from)) == 0)
        return 0;
    pthread_attr_destroy(to);
    return -error;
}

static bool is_plain(const char *memory, size_t size)
{
    return ((uint64_t)(uintptr_t)memory + size) >> PLATFORM_ADDRESS_BITS == 0;
}

/* The aligned part of what is longer by `alignment`; the rest goes back. */
static char *trim_to(char *memory, size_t size, size_t alignment)
{
    size_t before = (size_t)(-(uintptr_t)memory & (alignment - 1));

    if (before)
        munmap(memory, before);
    if (before < alignment)
        munmap(memory + before + size, alignment - before);
    return memory + before;
}

static char *map_some(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *platform_map(size_t size, size_t alignment)
{
    int saved = errno;
    char *memory = map_some(size);

    if (memory && is_plain(memory, size) && ((uintptr_t)memory & (alignment - 1)) != 0) {
        munmap(memory, size); /* the next one often is aligned: slabs lie side by side */
        memory = map_some(size + alignment);
        if (memory && is_plain(memory, size + alignment))
            memory = trim_to(memory, size, alignment);
    }
    if (memory && !is_plain(memory, size)) {
        munmap(memory, size);
        memory = NULL;
    }
    errno = saved;
    return memory;
}

void platform_unmap(void *memory, size_t size)
{
    int saved = errno;

    munmap(memory, size);
    errno = saved;
}

/* Since Linux 4.14. */
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

void platform_wipe_on_fork(void *pages, size_t size)
{
    int saved = errno;

    if (size % (size_t)sysconf(_SC_PAGESIZE) == 0)
        (void)madvise(pages, size, MADV_WIPEONFORK);
    errno = saved;
}

static pid_t forking;

void platform_before_fork(void)
{
    forking = getpid();
}

/* Not where both are the first process of their PID namespaces. */
bool platform_is_forked(void)
{
    return getpid() != forking;
}

/* What a leak checker reads as well, if the process has one: LeakSanitizer's own name for it. */
extern void __lsan_register_root_region(const void *memory, size_t size) __attribute__((weak));

void platform_tell_leak_checker(const void *memory, size_t size)
{
    if (__lsan_register_root_region)
        __lsan_register_root_region(memory, size);
}

void platform_advise_small(void *memory, size_t size)
{
    int saved = errno;

    madvise(memory, size, MADV_NOHUGEPAGE);
    errno = saved;
}

void platform_advise_huge(void *memory, size_t size)
{
    int saved = errno;

    madvise(memory, size, MADV_HUGEPAGE);
    errno = saved;
}

/* Since Linux 5.14; otherwise whoever touches them first waits for them, as ever. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

void platform_populate_pages(void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory & ~(uintptr_t)(page - 1);
    int saved = errno;

    madvise((void *)first, (uintptr_t)memory + size - first, MADV_POPULATE_WRITE);
    errno = saved;
}

void platform_release_pages(void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(uintptr_t)(page - 1);
    uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(page - 1);
    int saved = errno;

    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
    errno = saved;
}
