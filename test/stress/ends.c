/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * G2, G3, G8, G9, G10: many producers schedule, cancel, wait for, move and drop their own and each
 * other's timeouts while stop strikes at a random moment, by one thread or by two at once. Every
 * end is recorded and must be exactly one.
 */
#include "round.h"

enum { PRODUCERS = 4, CAPACITY = 40000 };

static void *second_stop(void *arg)
{
    hwt_unprocessed list = {0};

    (void)arg;
    mix_here.stopping = true;
    STRESS_OK(hwt_timer_stop(mix.timer, &list));
    mix_mark(&mix.stop_returned);
    if (list.count > 0)
        mix_add(&mix.lists);
    for (hwt_timeout *t = hwt_unprocessed_take(&list); t != NULL; t = hwt_unprocessed_take(&list)) {
        mix_add(&((struct mix_probe *)hwt_timeout_arg(t))->handed);
        hwt_timeout_unref(t);
    }
    return NULL;
}

static hwt_config random_config(void)
{
    static const uint64_t ticks[] = {HWT_USEC(1), HWT_USEC(10), HWT_USEC(100), HWT_MSEC(1)};
    hwt_config config;

    hwt_config_init(&config);
    config.tick_ns = ticks[stress_below(4)];
    config.ticks_per_wheel = UINT32_C(4) << stress_below(8);
    config.wheel = stress_one_in(2) ? HWT_WHEEL_HASHED : HWT_WHEEL_HIERARCHICAL;
    if (stress_one_in(4))
        config.max_pending = 1 + stress_below(2000);
    if (stress_one_in(4))
        config.reserve = stress_below(5000);
    return config;
}

static void stop_by_two(void)
{
    pthread_t other = stress_thread(second_stop, NULL);

    mix_stop();
    stress_join(other);
}

static struct mix_totals play_round(void)
{
    hwt_config config = random_config();
    pthread_t producers[PRODUCERS];
    struct mix_totals totals;

    mix_open(&config, CAPACITY);
    mix.stop_null = stress_one_in(4);
    if (stress_one_in(2))
        STRESS_OK(hwt_timer_start(mix.timer));
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = stress_thread(mix_producer, NULL);
    stress_pause(stress_below(stress_one_in(4) ? HWT_USEC(300) : HWT_MSEC(30)));
    if (!mix.stop_null && stress_one_in(4))
        stop_by_two();
    else
        mix_stop();
    atomic_store(&mix.quit, true);
    for (int i = 0; i < PRODUCERS; i++)
        stress_join(producers[i]);
    totals = mix_verify();
    mix_close();
    return totals;
}

int main(int argc, char **argv)
{
    uint64_t end = stress_deadline(stress_begin(argc, argv, 3));
    uint64_t rounds = 0, accepted = 0, expired = 0, cancelled = 0;

    for (; stress_now() < end; rounds++) {
        struct mix_totals t = play_round();

        accepted += t.accepted;
        expired += t.expired;
        cancelled += t.cancels;
    }
    return stress_end("stress/ends",
                      "%" PRIu64 " rounds, %" PRIu64 " timeouts: %" PRIu64 " ran, %" PRIu64
                      " cancelled, the rest ended by stop",
                      rounds, accepted, expired, cancelled);
}
