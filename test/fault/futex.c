/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=syscall,--wrap=poll */
/*
 * Sleeps that end for no reason and sleeps that signals interrupt, for the worker and for whoever
 * waits in cancel_sync and stop, under the whole mix: the guarantees stand (G1, G2, G8, G9). The
 * worker itself blocks every signal (G13), so the storm never reaches it.
 */
#include "stress/round.h"

#include <dirent.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>

enum { PRODUCERS = 3, CAPACITY = 30000 };

/* ---- waits that lie ---- */
static _Atomic uint64_t waits, lies;

/* -1: wait as asked. */
static int lie(void)
{
    atomic_fetch_add(&waits, 1);
    if (!stress_one_in(3))
        return -1;
    atomic_fetch_add(&lies, 1);
    return stress_one_in(2) ? 0 : EINTR;
}

static int answer(int error)
{
    errno = error;
    return error != 0 ? -1 : 0;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;
    int lied = -1;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex &&
        ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET))
        lied = lie();
    return lied >= 0 ? answer(lied) : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
    int lied = lie();

    return lied >= 0 ? answer(lied) : __real_poll(fds, count, timeout);
}

/* ---- the storm ---- */
static _Atomic bool calm;
static _Atomic uint64_t thrown, caught;
static _Thread_local bool is_worker;

static void catch_signal(int number)
{
    (void)number;
    if (is_worker)
        _exit(4); /* G13: a signal on the worker */
    atomic_fetch_add(&caught, 1);
}

static void throw_at_all(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;

    STRESS_CHECK(tasks != NULL, "/proc/self/task");
    while ((entry = readdir(tasks)) != NULL) {
        int thread = atoi(entry->d_name);

        if (thread > 0 && thread != (int)__real_syscall(SYS_gettid))
            thrown += __real_syscall(SYS_tgkill, getpid(), thread, SIGUSR1) == 0;
    }
    closedir(tasks);
}

static void *storm(void *arg)
{
    while (!atomic_load(&calm)) {
        throw_at_all();
        stress_spin(stress_below(HWT_USEC(100)));
    }
    return arg;
}

/* Without SA_RESTART, so that every interrupted wait shows. */
static void prepare_signals(void)
{
    struct sigaction action = {.sa_handler = catch_signal};

    STRESS_CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
}

/* ---- G13: the worker's mask, as the kernel sees it ---- */
static _Atomic uint64_t looked;

static void look_at_mask(hwt_timeout *timeout, void *arg)
{
    sigset_t mask;

    (void)timeout;
    (void)arg;
    STRESS_OK(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            STRESS_CHECK(sigismember(&mask, number) == 1, "G13: signal %d is open", number);
    is_worker = true;
    atomic_fetch_add(&looked, 1);
}

static void play_round(uint64_t *runs)
{
    uint64_t before = atomic_load(&looked);
    pthread_t producers[PRODUCERS];
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = HWT_USEC(50);
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    if (stress_one_in(3))
        config.clock_id = CLOCK_BOOTTIME; /* its worker sleeps in poll */
    mix_open(&config, CAPACITY);
    mix.stop_null = stress_one_in(4);
    STRESS_OK(hwt_new_timeout(mix.timer, look_at_mask, NULL, 0, NULL));
    stress_await(&looked, before + 1, "a look at the worker's mask");
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(mix_producer, NULL);
    stress_pause(stress_below(HWT_MSEC(20)));
    mix_stop();
    atomic_store(&mix.quit, true);
    for (int i = 0; i < PRODUCERS; i++)
        stress_join(producers[i]);
    *runs += mix_verify_with(1).runs; /* the look at the mask has no probe */
    mix_close();
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 2));
    uint64_t rounds = 0, runs = 0;
    pthread_t thrower;

    prepare_signals();
    thrower = stress_thread(storm, NULL);
    for (; stress_now() < end; rounds++)
        play_round(&runs);
    atomic_store(&calm, true);
    stress_join(thrower);
    STRESS_CHECK(atomic_load(&lies) > 0 && atomic_load(&caught) > 0, "nothing was disturbed");
    return stress_end("fault/futex",
                      "%" PRIu64 " rounds, %" PRIu64 " runs, %" PRIu64 " of %" PRIu64
                      " waits ended at once, %" PRIu64 " signals caught",
                      rounds, runs, atomic_load(&lies), atomic_load(&waits), atomic_load(&caught));
}
