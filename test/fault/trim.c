/* SPDX-License-Identifier: BSD-2-Clause */
/* LDFLAGS: -Wl,--wrap=madvise */
/*
 * A large timer is destroyed, and the thread that gives its memory back is held up in the middle
 * of it, by the system. Meanwhile other threads schedule, fork, create, reserve and destroy: none
 * of them waits (G7), and none is given a block whose page is about to go (C12, G2, G9).
 */
#include "stress/stress.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { LARGE = 200000, BURST = 32768, BURSTS = 3, HELD_S = 10 };

/* ---- the hold: the first that gives pages back after hold() stays where it is ---- */
static _Atomic bool hold_next, let_go;
static _Atomic uint64_t held, releases;
static uint64_t holds, expected; /* by the main thread */

int __real_madvise(void *memory, size_t size, int advice);
int __wrap_madvise(void *memory, size_t size, int advice);

int __wrap_madvise(void *memory, size_t size, int advice)
{
    if (advice == MADV_DONTNEED) {
        atomic_fetch_add(&releases, 1);
        if (atomic_exchange(&hold_next, false)) {
            atomic_fetch_add(&held, 1);
            while (!atomic_load(&let_go))
                stress_sleep(100000);
        }
    }
    return __real_madvise(memory, size, advice);
}

/* ---- timers and what they carry ---- */
static hwt_timeout *burst[BURSTS * BURST];
static hwt_timer *other;
static _Atomic uint64_t finished;

static void never(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    stress_fail(__FILE__, __LINE__, "an hour away", "it ran, with %p", arg);
}

static hwt_timer *create(size_t reserve)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.reserve = reserve;
    STRESS_OK(hwt_timer_create(&timer, &config));
    return timer;
}

static void fill(hwt_timer *timer, int count)
{
    for (int i = 0; i < count; i++)
        STRESS_OK(hwt_new_timeout(timer, never, NULL, HWT_SEC(3600), NULL));
}

static void *destroy(void *timer)
{
    STRESS_OK(hwt_timer_destroy(timer));
    return NULL;
}

/* ---- what the others do meanwhile, each in a thread of its own ---- */
static void *schedule_bursts(void *unused)
{
    for (int i = 0; i < BURSTS * BURST; i++)
        STRESS_OK(hwt_new_timeout(other, never, &burst[i], HWT_SEC(3600), &burst[i]));
    atomic_fetch_add(&finished, 1);
    return unused;
}

static void use_and_end(void)
{
    hwt_timer *timer = create(1000);

    fill(timer, BURST);
    STRESS_OK(hwt_timer_destroy(timer));
}

static void *fork_one(void *unused)
{
    pid_t child = fork();
    int status;

    STRESS_CHECK(child >= 0, "fork");
    if (child == 0) {
        if (!STRESS_SANITIZED) /* their own runtimes do not survive such a fork */
            use_and_end();
        _exit(0);
    }
    STRESS_CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
    atomic_fetch_add(&finished, 1);
    return unused;
}

static void *reserve_and_destroy(void *unused)
{
    hwt_timer *timer = create(BURST);

    fill(timer, BURST);
    STRESS_OK(hwt_timer_destroy(timer));
    atomic_fetch_add(&finished, 1);
    return unused;
}

static void await_or_name(const char *who)
{
    uint64_t end = stress_now() + HWT_SEC(HELD_S);

    expected++;
    while (atomic_load(&finished) < expected) {
        STRESS_CHECK(stress_now() < end, "G7: %s waits for who gives memory back", who);
        stress_sleep(100000);
    }
}

/* What was scheduled while pages were given back is as it was made. */
static void check_bursts(void)
{
    uint64_t overwritten = 0;

    for (int i = 0; i < BURSTS * BURST; i++) {
        hwt_timeout *timeout = burst[i];

        overwritten += hwt_timeout_arg(timeout) != &burst[i] ||
                       hwt_timeout_task(timeout) != never ||
                       hwt_timeout_state(timeout) != HWT_PENDING;
    }
    STRESS_CHECK(overwritten == 0, "G9: %" PRIu64 " of %d were overwritten", overwritten,
                 BURSTS * BURST);
    for (int i = 0; i < BURSTS * BURST; i++) {
        STRESS_CHECK(hwt_timeout_cancel(burst[i]), "G2: it has ended already");
        hwt_timeout_unref(burst[i]);
    }
}

static void play(void)
{
    hwt_timer *large = create(0);
    pthread_t destroyer, scheduler, forker, reserver;

    other = create(0);
    fill(large, LARGE);
    atomic_store(&let_go, false);
    atomic_store(&hold_next, true);
    destroyer = stress_thread(destroy, large);
    stress_await(&held, ++holds, "pages given back");
    scheduler = stress_thread(schedule_bursts, NULL);
    await_or_name("a submission");
    forker = stress_thread(fork_one, NULL);
    await_or_name("fork");
    reserver = stress_thread(reserve_and_destroy, NULL);
    await_or_name("a timer with a reserve");
    atomic_store(&let_go, true);
    stress_join(destroyer);
    stress_join(scheduler);
    stress_join(forker);
    stress_join(reserver);
    check_bursts();
    STRESS_OK(hwt_timer_destroy(other));
}

int main(int argc, char **argv)
{
    double rounds = stress_begin(argc, argv, 3);

    for (int i = 0; i < (int)rounds; i++)
        play();
    return stress_end("fault_trim", "%" PRIu64 " times held, %" PRIu64 " slabs given back",
                      atomic_load(&held), atomic_load(&releases));
}
