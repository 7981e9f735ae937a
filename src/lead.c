/* SPDX-License-Identifier: BSD-2-Clause */
#include "lead.h"

#define LEAD_MOST UINT64_C(1000000000) /* enough for ten million */

/* Twice what it takes, because the worker hears of growth only when it is twice as much. */
uint64_t lead_for(uint64_t groups)
{
    return min_u64(groups * 2 * GROUP_SLOTS * LOOK_NS, LEAD_MOST);
}

/* Measuring takes a thousandth of that: often enough, and at once when growth was told. */
uint64_t lead_period(uint64_t most)
{
    return most / 16;
}

/* No deadline is told of it, nor is it just being looked through (intake.c): it is empty. */
static bool has_nothing(const struct segment *segment, uint64_t now)
{
    return load_relaxed(&segment->earliest) >= DEADLINE_NEVER && segment->swept != now;
}

/*
 * Slots that were filled once may be empty now: by samples, each in a page of its own, which nobody
 * may have touched for long.
 */
static uint64_t measure(const hwt_timer *timer, uint64_t now)
{
    const struct lane *lane;
    uint64_t taken = 0;

    for (unsigned i = 0; (lane = lanes_next_made(&timer->lanes, &i)) != NULL;) {
        const struct segment *segment = lane->first;
        do {
            if (segment->far && !has_nothing(segment, now))
                taken += segment_sample(segment);
            segment = segment_next(segment);
        } while (segment != lane->first);
    }
    return taken * (LANE_SLOTS / SAMPLES) * 2 * LOOK_NS;
}

uint64_t lead_time(hwt_timer *timer, uint64_t now)
{
    struct lead *lead = &timer->worker.lead;
    uint64_t most = lead_at_most(timer);

    if (most > 0 && (now >= lead->measured + lead_period(lead->most) || most >= 2 * lead->most)) {
        lead->time = measure(timer, now);
        lead->measured = now;
        lead->most = most;
    }
    return min_u64(lead->time, most);
}
