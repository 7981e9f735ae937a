/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * newTimeout against stop (G2, G8) over thousands of short rounds: producers submit from the moment
 * the timer exists, stop strikes within a few microseconds, and every accepted timeout ran or is
 * handed back (C6). Then destroy against handles that other threads go on using (G9), and which
 * read what is left of the timer (C10).
 */
#include "stress.h"

enum { PRODUCERS = 3, SUBMISSIONS = 400, HANDLES = 64 };

struct end {
    _Atomic uint32_t runs, cancels, handed, hooks;
    bool accepted;
};

static hwt_timer *timer;
static pthread_barrier_t begin, finish;
static struct end ends[PRODUCERS][SUBMISSIONS];
static _Atomic bool stop_returned, quit;
static _Atomic uint64_t refused_by_stop;

static void count_run(hwt_timeout *timeout, void *arg)
{
    struct end *e = arg;

    STRESS_CHECK(!atomic_load(&stop_returned), "G8: runs after stop");
    STRESS_CHECK(hwt_timer_now(timer) >= hwt_timeout_deadline(timeout), "G1: early");
    atomic_fetch_add(&e->runs, 1);
}

static void count_hook(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    atomic_fetch_add(&((struct end *)arg)->hooks, 1);
}

static void await(pthread_barrier_t *barrier)
{
    int result = pthread_barrier_wait(barrier);

    STRESS_CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD, "barrier: %d", result);
}

/* ---- submission against stop ---- */
static uint64_t short_or_long(void)
{
    return stress_one_in(2) ? stress_below(HWT_USEC(200)) : HWT_SEC(3600);
}

static void submit_until_stopped(struct end *mine)
{
    for (int i = 0; i < SUBMISSIONS; i++) {
        hwt_timeout *handle = NULL;
        bool cancel = stress_one_in(4);
        int result =
            hwt_new_timeout(timer, count_run, &mine[i], short_or_long(), cancel ? &handle : NULL);

        if (result != 0) {
            STRESS_CHECK(result == -ESHUTDOWN, "submission: %d", result);
            STRESS_CHECK(handle == NULL, "an error touched the handle");
            atomic_fetch_add(&refused_by_stop, 1);
            return;
        }
        mine[i].accepted = true;
        if (cancel && hwt_timeout_cancel(handle))
            atomic_fetch_add(&mine[i].cancels, 1);
        hwt_timeout_unref(handle);
    }
}

static void *producer(void *arg)
{
    for (;;) {
        await(&begin);
        if (atomic_load(&quit))
            return NULL;
        submit_until_stopped(arg);
        await(&finish);
    }
}

static size_t take_back(hwt_unprocessed *list)
{
    size_t count = 0;
    hwt_timeout *timeout;

    while ((timeout = hwt_unprocessed_take(list)) != NULL) {
        struct end *e = hwt_timeout_arg(timeout);

        atomic_fetch_add(&e->handed, 1);
        STRESS_CHECK(!hwt_timeout_cancel(timeout), "cancelled after it was handed back");
        hwt_timeout_unref(timeout);
        count++;
    }
    return count;
}

static void check_ends(uint64_t *accepted)
{
    uint64_t before = *accepted;

    for (int p = 0; p < PRODUCERS; p++) {
        for (int i = 0; i < SUBMISSIONS; i++) {
            struct end *e = &ends[p][i];
            uint32_t sum = e->runs + e->cancels + e->handed;

            STRESS_CHECK(sum == e->accepted, "G2: producer %d, %d: %u runs, %u cancels, %u back", p,
                         i, e->runs, e->cancels, e->handed);
            *accepted += e->accepted;
        }
    }
    STRESS_CHECK(stress_stats(timer).scheduled == *accepted - before, "scheduled");
}

static void stop_round(uint64_t *accepted)
{
    hwt_unprocessed list = {0};
    hwt_config config;
    size_t count;

    memset(ends, 0, sizeof ends);
    atomic_store(&stop_returned, false);
    hwt_config_init(&config);
    config.tick_ns = HWT_USEC(10);
    config.ticks_per_wheel = 64;
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    STRESS_OK(hwt_timer_create(&timer, &config));
    if (stress_one_in(2))
        STRESS_OK(
            hwt_timer_start(timer)); /* otherwise the first submission does, racing with stop */
    await(&begin);
    stress_spin(stress_below(HWT_USEC(stress_one_in(2) ? 5 : 150)));
    STRESS_OK(hwt_timer_stop(timer, &list));
    atomic_store(&stop_returned, true);
    count = list.count;
    STRESS_CHECK(take_back(&list) == count, "the list is not as long as it says");
    await(&finish);
    check_ends(accepted);
    stress_check_balance(timer);
    STRESS_CHECK(hwt_timer_start(timer) == -ESHUTDOWN, "started again after stop");
    STRESS_OK(hwt_timer_destroy(timer));
}

static uint64_t stop_rounds(uint64_t until, uint64_t *accepted)
{
    pthread_t producers[PRODUCERS];
    uint64_t rounds = 0;

    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(producer, ends[i]);
    for (; stress_now() < until; rounds++)
        stop_round(accepted);
    atomic_store(&quit, true);
    await(&begin);
    for (int i = 0; i < PRODUCERS; i++)
        stress_join(producers[i]);
    return rounds;
}

/* ---- destroy against handles ---- */
static hwt_timeout *handles[PRODUCERS][HANDLES];

static void use_handle(hwt_timeout *timeout)
{
    struct end *e = hwt_timeout_arg(timeout);

    switch (stress_below(6)) {
    case 0:
        if (hwt_timeout_cancel(timeout))
            atomic_fetch_add(&e->cancels, 1);
        break;
    case 1:
        if (hwt_timeout_cancel_sync(timeout) == 1)
            atomic_fetch_add(&e->cancels, 1);
        break;
    case 2: hwt_timeout_reschedule_at(timeout, stress_random()); break;
    case 3: hwt_timeout_unref(hwt_timeout_ref(timeout)); break;
    case 4: STRESS_CHECK(hwt_timeout_task(timeout) == count_run, "another task"); break;
    default: STRESS_CHECK(hwt_timeout_deadline(timeout) > 0, "no deadline");
    }
}

static void *handle_user(void *arg)
{
    hwt_timeout **mine = arg;

    await(&begin);
    while (!atomic_load(&quit))
        use_handle(mine[stress_below(HANDLES)]);
    for (int i = 0; i < HANDLES; i++) {
        STRESS_CHECK(!hwt_timeout_cancel(mine[i]), "cancelled after destroy");
        STRESS_CHECK(!hwt_timeout_reschedule(mine[i], 0), "moved after destroy");
        hwt_timeout_unref(mine[i]);
    }
    return NULL;
}

/* Every thread gets a reference to each timeout, so that they also contend with each other. */
static void schedule_shared(void)
{
    for (int i = 0; i < HANDLES; i++) {
        hwt_spec spec;

        hwt_spec_init(&spec);
        spec.task = count_run;
        spec.cancelled = count_hook;
        spec.arg = &ends[0][i];
        spec.delay_ns = short_or_long();
        STRESS_OK(hwt_schedule(timer, &spec, &handles[0][i]));
        for (int p = 1; p < PRODUCERS; p++)
            handles[p][i] = hwt_timeout_ref(handles[0][i]);
    }
}

static void destroy_round(void)
{
    pthread_t users[PRODUCERS];
    hwt_config config;

    memset(ends, 0, sizeof ends);
    atomic_store(&quit, false);
    atomic_store(&stop_returned, false);
    hwt_config_init(&config);
    config.tick_ns = HWT_USEC(10);
    STRESS_OK(hwt_timer_create(&timer, &config));
    schedule_shared();
    for (int p = 0; p < PRODUCERS; p++)
        users[p] = stress_thread(handle_user, handles[p]);
    await(&begin);
    stress_spin(stress_below(HWT_USEC(100)));
    STRESS_OK(hwt_timer_destroy(timer));
    atomic_store(&stop_returned, true);
    stress_spin(stress_below(HWT_USEC(100)));
    atomic_store(&quit, true);
    for (int p = 0; p < PRODUCERS; p++)
        stress_join(users[p]);
    for (int i = 0; i < HANDLES; i++)
        STRESS_CHECK(ends[0][i].runs + ends[0][i].hooks == 1 && ends[0][i].cancels <= 1,
                     "G2: %u runs, %u hooks, %u cancels", ends[0][i].runs, ends[0][i].hooks,
                     ends[0][i].cancels);
}

int main(int argc, char **argv)
{
    double seconds = stress_begin(argc, argv, 3);
    uint64_t stops, destroys = 0, accepted = 0, end;

    STRESS_OK(pthread_barrier_init(&begin, NULL, PRODUCERS + 1));
    STRESS_OK(pthread_barrier_init(&finish, NULL, PRODUCERS + 1));
    stops = stop_rounds(stress_deadline(seconds * 2 / 3), &accepted);
    for (end = stress_deadline(seconds / 3); stress_now() < end; destroys++)
        destroy_round();
    return stress_end("stress/stop",
                      "%" PRIu64 " stops against %" PRIu64 " submissions (%" PRIu64
                      " came too late), %" PRIu64 " destroys against handles",
                      stops, accepted, atomic_load(&refused_by_stop), destroys);
}
