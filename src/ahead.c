/* SPDX-License-Identifier: BSD-2-Clause */
#include "ahead.h"

#include "intake.h"

/* From when on, if at all: not soon again, because what was submitted meanwhile is hardly much. */
static uint64_t look_time(const struct segment *segment, uint64_t lead)
{
    uint64_t earliest = load_seq(&segment->earliest);

    if (!segment->far || earliest >= DEADLINE_NEVER)
        return UINT64_MAX;
    return max_u64(earliest > lead ? earliest - lead : 0, segment->swept + lead);
}

/* Behind the one before, so that not all are asked each time. */
static bool begin_one(hwt_timer *timer, struct lane *lane, uint64_t now, uint64_t lead)
{
    uint64_t until = deadline_after(now, lead);
    struct segment *last = timer->worker.look.last;
    struct segment *first = last && last->lane == lane ? segment_next(last) : lane->first;
    struct segment *segment = first;

    if (load_seq(&lane->earliest) > until)
        return false;
    do {
        if (look_time(segment, lead) <= now && intake_begin_look(timer, segment, now, until))
            return true;
        segment = segment_next(segment);
    } while (segment != first);
    return false;
}

bool ahead_look_now(hwt_timer *timer)
{
    bool found = timer->worker.look.segment != NULL;
    uint64_t now, lead;
    struct lane *lane;

    timer_check_acting(timer);
    if (!found && lead_at_most(timer) > 0) {
        now = timer_now(timer);
        lead = lead_time(timer, now);
        for (unsigned i = 0; lead > 0 && !found && (lane = lanes_next_used(&timer->lanes, &i));)
            found = begin_one(timer, lane, now, lead);
    }
    if (found)
        intake_look_on(timer, AHEAD_GROUPS);
    return found;
}

void ahead_look_on_now(hwt_timer *timer, uint64_t ns)
{
    uint64_t end = deadline_after(timer->worker.passed, ns);

    while (ahead_look_now(timer) && timer_now(timer) < end)
        continue;
}

/* When there just is time enough to look, and after half of the time that is left. */
static uint64_t measure_time(const struct segment *segment, uint64_t now, uint64_t most)
{
    uint64_t earliest = load_seq(&segment->earliest), left;

    if (!segment->far || earliest >= DEADLINE_NEVER || earliest <= now)
        return UINT64_MAX;
    left = earliest - now;
    if (left > most)
        return earliest - most;
    return left / 2 > lead_period(most) ? now + left / 2 : UINT64_MAX;
}

/*
 * Where there are more segments than one to a lane, there has been a crowd, and another one may
 * gather of which nobody tells, because it fits where the first was.
 */
static bool had_a_crowd(const struct lanes *lanes)
{
    return load_relaxed(&lanes->store.far_groups) > lanes->count * LANE_GROUPS;
}

uint64_t ahead_warning(const hwt_timer *timer)
{
    return had_a_crowd(&timer->lanes) ? lead_at_most(timer) : 0;
}

uint64_t ahead_time(hwt_timer *timer, uint64_t until)
{
    uint64_t most = lead_at_most(timer), now, lead, at = UINT64_MAX;
    const struct lane *lane;
    bool measures;

    if (most == 0)
        return UINT64_MAX;
    measures = had_a_crowd(&timer->lanes);
    now = timer_now(timer);
    lead = lead_time(timer, now);
    for (unsigned i = 0; (lane = lanes_next_used(&timer->lanes, &i)) != NULL;) {
        const struct segment *segment = lane->first;
        if (load_seq(&lane->earliest) > deadline_after(until, most))
            continue;
        do {
            if (measures)
                at = min_u64(at, measure_time(segment, now, most));
            if (lead > 0)
                at = min_u64(at, look_time(segment, lead));
            segment = segment_next(segment);
        } while (segment != lane->first);
    }
    return at < until ? at : UINT64_MAX;
}
