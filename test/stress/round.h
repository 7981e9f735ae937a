/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A round of the mix (stress/mix.h): open a timer, let producers at it, stop it, account for every
 * timeout, close it.
 */
#ifndef STRESS_ROUND_H
#define STRESS_ROUND_H

#include "mix.h"

static inline void mix_check_quota(void)
{
    uint64_t pending = hwt_timer_pending(mix.timer);

    STRESS_CHECK(pending <= mix.max_pending, "G3: %" PRIu64 " pending of at most %" PRIu64, pending,
                 mix.max_pending);
}

static inline void *mix_producer(void *arg)
{
    (void)arg;
    while (!atomic_load(&mix.quit)) {
        if (stress_one_in(2))
            mix_submit();
        else
            mix_poke(false);
        if (mix.max_pending > 0 && stress_one_in(64))
            mix_check_quota();
        if (stress_one_in(4096))
            stress_pause(stress_below(HWT_USEC(200)));
    }
    return NULL;
}

static inline void mix_open(const hwt_config *config, uint32_t capacity)
{
    struct mix_probe *probes = mix.probes;

    if (probes == NULL)
        probes = malloc(capacity * sizeof *probes);
    STRESS_CHECK(probes != NULL, "no memory for probes");
    memset(probes, 0, capacity * sizeof *probes);
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&probes[i].floor, UINT64_MAX);
    memset(&mix, 0, sizeof mix);
    mix.probes = probes;
    mix.capacity = capacity;
    mix.max_pending = config->max_pending;
    mix.pooled = config->execute != NULL;
    STRESS_OK(hwt_timer_create(&mix.timer, config));
}

/* G8: stops, takes what is handed back and finds a second stop's list empty. */
static inline void mix_stop(void)
{
    hwt_unprocessed list = {0};
    size_t taken = 0;

    mix_here.stopping = true;
    STRESS_OK(hwt_timer_stop(mix.timer, mix.stop_null ? NULL : &list));
    mix_mark(&mix.stop_returned);
    STRESS_CHECK(hwt_timer_is_stopped(mix.timer), "not stopped after stop");
    if (list.count > 0)
        mix_add(&mix.lists);
    for (size_t count = list.count; taken < count; taken++) {
        hwt_timeout *timeout = hwt_unprocessed_take(&list);

        STRESS_CHECK(timeout != NULL, "the list of %zu ends at %zu", count, taken);
        STRESS_CHECK(hwt_timeout_is_cancelled(timeout), "handed back, not cancelled");
        STRESS_CHECK(!hwt_timeout_cancel(timeout), "cancelled after it was handed back");
        mix_add(&((struct mix_probe *)hwt_timeout_arg(timeout))->handed);
        hwt_timeout_unref(timeout);
    }
    STRESS_CHECK(hwt_unprocessed_take(&list) == NULL, "more than the count of %zu", taken);
    STRESS_OK(hwt_timer_stop(mix.timer, &list));
    STRESS_CHECK(list.count == 0 && list.first == NULL, "a second stop handed back %zu",
                 list.count);
    STRESS_CHECK(mix_submit() == -ESHUTDOWN || mix.used >= mix.capacity, "accepted after stop");
    mix_here.stopping = false;
}

struct mix_totals {
    uint64_t accepted, runs, expired, cancels, hooks, hookless, handed, unseen;
};

static inline void mix_count(const struct mix_probe *probe, struct mix_totals *t)
{
    uint32_t cancels = mix_get(&probe->cancels), hooks = mix_get(&probe->hooks);
    uint32_t handed = mix_get(&probe->handed);
    uint32_t expired = (probe->flags & MIX_PERIODIC) != 0 ? 0 : probe->runs - probe->rearms;
    uint32_t ends = expired + handed + ((probe->flags & MIX_HOOK) != 0 ? hooks : cancels);
    /* Only stop without a list, or a refusal, ends a timeout that has no hook without a trace. */
    bool may_be_unseen = (probe->flags & MIX_HOOK) == 0 && (mix.stop_null || mix.pooled);
    bool unseen = probe->accepted && ends == 0 && may_be_unseen;

    STRESS_CHECK(ends == (probe->accepted && !unseen),
                 "G2: %u ends: runs %u, rearms %u, cancels %u, hooks %u, handed %u, flags %u, "
                 "accepted %d",
                 ends, probe->runs, probe->rearms, cancels, hooks, handed, probe->flags,
                 probe->accepted);
    STRESS_CHECK(cancels <= 1 && (hooks >= cancels || (probe->flags & MIX_HOOK) == 0),
                 "G10: %u cancels, %u hooks", cancels, hooks);
    t->accepted += probe->accepted;
    t->runs += probe->runs;
    t->expired += expired;
    t->cancels += cancels;
    t->hooks += hooks;
    t->hookless += (probe->flags & MIX_HOOK) == 0 ? cancels : 0;
    t->handed += handed;
    t->unseen += unseen;
}

/*
 * After stop, the producers being home: every end against every probe, then against the ledger,
 * which knows also of others that the program had run without a probe.
 */
static inline struct mix_totals mix_verify_with(uint64_t others)
{
    struct mix_totals t = {.accepted = others, .runs = others, .expired = others};
    hwt_stats s = stress_stats(mix.timer);
    uint64_t refused = s.rejected - mix.no_buffers;

    for (uint32_t i = 0; i < mix.used && i < mix.capacity; i++)
        mix_count(&mix.probes[i], &t);
    stress_check_balance(mix.timer);
    STRESS_CHECK(mix.lists <= 1, "G8: %u stops handed something back", mix.lists);
    STRESS_CHECK(s.scheduled == t.accepted, "%" PRIu64 " scheduled of %" PRIu64, s.scheduled,
                 t.accepted);
    STRESS_CHECK(s.runs == t.runs, "%" PRIu64 " runs of %" PRIu64, s.runs, t.runs);
    STRESS_CHECK(s.expired == t.expired, "%" PRIu64 " expired of %" PRIu64, s.expired, t.expired);
    STRESS_CHECK(refused <= mix.refusals, "%" PRIu64 " refused of %" PRIu64, refused, mix.refusals);
    STRESS_CHECK(s.cancelled == t.cancels + refused,
                 "%" PRIu64 " cancelled, %" PRIu64 " cancels, %" PRIu64 " refused", s.cancelled,
                 t.cancels, refused);
    STRESS_CHECK(s.cancelled + s.unprocessed == t.hooks + t.hookless + t.handed + t.unseen,
                 "%" PRIu64 " ended, %" PRIu64 " seen", s.cancelled + s.unprocessed,
                 t.hooks + t.hookless + t.handed + t.unseen);
    if (!mix.stop_null)
        STRESS_CHECK(s.unprocessed == t.handed, "%" PRIu64 " unprocessed, %" PRIu64 " handed",
                     s.unprocessed, t.handed);
    return t;
}

static inline struct mix_totals mix_verify(void)
{
    return mix_verify_with(0);
}

/* Drops the shared handles, half of them after the timer is gone (G9). */
static inline void mix_drop(int from, int step)
{
    for (int i = from; i < MIX_SLOTS; i += step) {
        hwt_timeout *timeout = atomic_exchange(&mix.slots[i], NULL);

        if (timeout == NULL)
            continue;
        STRESS_CHECK(!hwt_timeout_cancel(timeout), "cancelled after stop");
        STRESS_CHECK(!hwt_timeout_reschedule(timeout, 0), "moved after stop");
        STRESS_CHECK(hwt_timeout_cancel_sync(timeout) == 0, "cancelled after stop");
        STRESS_CHECK(hwt_timeout_is_cancelled(timeout) || hwt_timeout_is_expired(timeout),
                     "state %d after stop", (int)hwt_timeout_state(timeout));
        hwt_timeout_unref(timeout);
    }
}

static inline void mix_close(void)
{
    mix_drop(0, 2);
    STRESS_OK(hwt_timer_destroy(mix.timer));
    mix_drop(1, 2);
}

#endif
