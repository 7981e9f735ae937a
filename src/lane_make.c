/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes come to be: the common one when the timer is created, a CPU's own at its first use (C25).
 *
 * Addresses are there for all of them from the beginning, pages only of those that were made. So to
 * make one takes no more than a few pages, which are met as those of any slot are, and there is no
 * memory for it that could be refused (`reserve`).
 */
#include <errno.h>
#include <stdlib.h>

#include "lane.h"
#include "platform.h"

/* A lane is given another segment when its own are half full. */
static size_t segments_for(size_t timeouts)
{
    return timeouts / LANE_SLOTS * 3 + (timeouts % LANE_SLOTS * 3 + LANE_SLOTS - 1) / LANE_SLOTS;
}

/* In zeroed memory. */
static void lane_init(struct lanes *lanes, struct lane *lane, struct segment *near,
                      struct segment *far)
{
    lane->index = (uint32_t)(lane - lanes->room);
    lane->cpu = lane->index;
    lane->first = near;
    store_relaxed(&lane->tail[0], near->slot);
    store_relaxed(&lane->tail[1], far->slot);
    store_relaxed(&lane->survey[0].at, near);
    store_relaxed(&lane->survey[1].at, far);
    store_relaxed(&lane->earliest, UINT64_MAX);
    store_relaxed(&lane->moved, UINT64_MAX);
    lane->mail_earliest = UINT64_MAX;
    lane->used = &lanes->used[lane->index / LANES_A_WORD];
    lane->used_bit = UINT64_C(1) << lane->index % LANES_A_WORD;
    ck_stack_init(&lane->notices);
    ck_stack_init(&lane->spill);
}

/* ---- the common one, and room for the others ---- */

/* Segments of lanes: two for each, and the first one for the common lane. */
static size_t firsts_of(const struct lanes *lanes)
{
    return 2 * (size_t)lanes->count + 1;
}

static size_t room_size(const struct lanes *lanes)
{
    return ((size_t)lanes->count + 1) * sizeof(struct lane);
}

/* Both its tails stay on a slot that is closed for good: whoever comes there goes on elsewhere. */
static void make_common(struct lanes *lanes)
{
    struct segment *segment = segment_create_first(&lanes->store, 0, lanes->common, false);

    store_relaxed(&segment->slot[0], SLOT_CLOSED);
    lane_init(lanes, lanes->common, segment, segment);
    for (unsigned i = 0; i <= lanes->count; i++) {
        store_relaxed(&lanes->lane[i], lanes->common);
        store_relaxed(&lanes->home[i], lanes->common);
    }
    or_seq(&lanes->claimed[lanes->common->index / LANES_A_WORD], lanes->common->used_bit);
}

/* Two tables, and behind them two maps. */
int lanes_create(struct lanes *lanes, unsigned cpus, size_t reserve)
{
    size_t table, map;

    for (lanes->count = 1; lanes->count < cpus && lanes->count * 2 <= LANES_MAX;)
        lanes->count *= 2;
    table = ((size_t)lanes->count + 1) * sizeof *lanes->lane;
    map = (lanes->count / LANES_A_WORD + 1) * sizeof *lanes->used;
    lanes->memory = calloc(1, 2 * table + 2 * map);
    lanes->room = lanes->memory ? platform_map(room_size(lanes), CACHE_PAIR) : NULL;
    if (!lanes->room || segment_store_create(&lanes->store, firsts_of(lanes),
                                             firsts_of(lanes) + segments_for(reserve)) != 0) {
        if (lanes->room)
            platform_unmap(lanes->room, room_size(lanes));
        free(lanes->memory);
        lanes->room = NULL;
        lanes->memory = NULL;
        return -ENOMEM;
    }
    platform_advise_small(lanes->room, room_size(lanes));
    lanes->common = &lanes->room[lanes->count];
    lanes->lane = lanes->memory;
    lanes->home = lanes->lane + lanes->count + 1;
    lanes->used = (_Atomic uint64_t *)(void *)((char *)lanes->memory + 2 * table);
    lanes->claimed = (_Atomic uint64_t *)(void *)((char *)lanes->memory + 2 * table + map);
    store_relaxed(&lanes->end, 0);
    store_relaxed(&lanes->making, 0);
    store_relaxed(&lanes->moving, 0);
    lanes->turn = 0;
    store_relaxed(&lanes->far_from, UINT64_MAX);
    make_common(lanes);
    return 0;
}

void lanes_destroy(struct lanes *lanes)
{
    struct lane *room = lanes->room;
    void *memory = lanes->memory;

    if (!room)
        return;
    lanes->room = NULL;
    lanes->memory = NULL;
    lanes->lane = NULL;
    lanes->home = NULL;
    lanes->used = NULL;
    lanes->claimed = NULL;
    segment_store_destroy(&lanes->store);
    platform_unmap(room, room_size(lanes));
    free(memory);
}

/* ---- a CPU's own ---- */

/* True: by this thread, which now makes it. It is done with before stop counts the lanes. */
static bool claim(struct lanes *lanes, unsigned index)
{
    uint64_t bit = UINT64_C(1) << index % LANES_A_WORD;

    return !(or_seq(&lanes->claimed[index / LANES_A_WORD], bit) & bit);
}

static void make(struct lanes *lanes, unsigned index)
{
    struct lane *lane = &lanes->room[index];
    struct segment *near = segment_create_first(&lanes->store, 2 * index + 1, lane, false);
    struct segment *far = segment_create_first(&lanes->store, 2 * index + 2, lane, true);

    lane_init(lanes, lane, near, far);
    segment_link(near, far);
    store_release(&lanes->lane[index], lane); /* pairs with lanes_at */
    store_release(&lanes->home[index], lane); /* then: who leaves something there is found */
}

__attribute__((noinline)) struct lane *lane_make(struct lanes *lanes, unsigned cpu)
{
    if (load_relaxed(&lanes->common->closed)) /* so that stop does not wait for ever new ones */
        return lanes->common;
    add_seq(&lanes->making, 1); /* before `closed` is read: pairs with lanes_being_made */
    if (!load_seq(&lanes->common->closed) && claim(lanes, cpu))
        make(lanes, cpu);
    sub_acq_rel(&lanes->making, 1);
    return lanes_of_cpu(lanes, cpu);
}
