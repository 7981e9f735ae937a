/* SPDX-License-Identifier: BSD-2-Clause */
/* What is counted with the worker and by whoever runs tasks; the lanes count the rest (lane.h). */
#ifndef HWT_STATS_H
#define HWT_STATS_H

#include "atomic.h"
#include "base.h"

/* What the worker counts: written by it alone, read by everyone. */
struct worker_counters {
    _Atomic uint64_t expired;
    _Atomic uint64_t unprocessed;
    _Atomic uint64_t runs;
    _Atomic uint64_t wakeups;
};

/* With an executor several threads write these; the last ones are hints, by who counts. */
struct run_counters {
    _Atomic uint64_t slow_tasks;
    _Atomic uint64_t late_max;
    _Atomic uint64_t late_sum;
    _Atomic uint64_t late_log2[64];
    _Atomic uint64_t met; /* so many the worker had met, at least, when last counted (stats.c) */
    _Atomic(const _Atomic uint64_t *) held; /* the slot of a lane that held one, when last seen */
    _Atomic uint64_t none_from; /* nothing was pending, though this was the bound (drive.c) */
};

/* `shared`: with others who run tasks. */
static inline void count_lateness(struct run_counters *count, uint64_t late, bool shared)
{
    unsigned bin = late ? 63 - (unsigned)__builtin_clzll(late) : 0;
    uint64_t most = load_relaxed(&count->late_max);

    if (!shared) {
        bump_single_writer(&count->late_log2[bin], 1);
        bump_single_writer(&count->late_sum, late);
        if (late > most)
            store_relaxed(&count->late_max, late);
        return;
    }
    add_relaxed(&count->late_log2[bin], 1);
    add_relaxed(&count->late_sum, late);
    while (late > most && !cas_acq_rel(&count->late_max, &most, late))
        continue;
}

/*
 * Is anything pending? Once counted, that costs little until so many have ended as the worker had
 * met by then. Any thread.
 */
bool stats_any_pending(hwt_timer *timer);

#endif
