/* SPDX-License-Identifier: BSD-2-Clause */
/* The worlds, and how a seed becomes a program. */
#include <stdio.h>
#include <string.h>

#include "world.h"

#define NEAR 0x7f /* up to some ticks */
#define ALL  0x3ff

const struct world worlds[] = {
    {
        .name = "submit",
        .shows = "C2 C3 C4 C6 G1 G2 G4 G7",
        .producers = 3,
        .ops = 5,
        .delays = NEAR,
        .small = true,
        .weight =
            {[OP_SCHEDULE] = 6, [OP_FORGET] = 4, [OP_CANCEL] = 4, [OP_SLEEP] = 2, [OP_DROP] = 2},
        .conduct_weight = {[DOES_NOTHING] = 1},
    },
    {
        .name = "full",
        .shows = "C4 C6 G2 G6 G7",
        .producers = 3,
        .ops = 12,
        .delays = ALL,
        .weight = {[OP_SCHEDULE] = 12,
                   [OP_FORGET] = 2,
                   [OP_CANCEL] = 6,
                   [OP_SLEEP] = 1,
                   [OP_DROP] = 1,
                   [OP_MOVE] = 1,
                   [OP_PENDING] = 1},
        .conduct_weight = {[DOES_NOTHING] = 4, [IS_SLOW] = 1, [SCHEDULES] = 1},
    },
    {
        .name = "cancel",
        .shows = "C1 C5 C6 C7 G2 G3 G9",
        .releases = true,
        .producers = 3,
        .ops = 5,
        .shared = 3,
        .delays = NEAR,
        .small = true,
        .weight = {[OP_CANCEL] = 8,
                   [OP_CANCEL_SYNC] = 2,
                   [OP_DROP] = 3,
                   [OP_REF] = 1,
                   [OP_LOOK] = 1,
                   [OP_SLEEP] = 2,
                   [OP_SCHEDULE] = 2,
                   [OP_STOP] = 1},
        .conduct_weight =
            {[DOES_NOTHING] = 4, [REARMS_NOW] = 1, [REARMS_LATER] = 1, [CANCELS_SHARED] = 1},
    },
    {
        .name = "move",
        .shows = "C1 C4 C5 C6 C15 G1 G4",
        .producers = 3,
        .ops = 5,
        .shared = 2,
        .delays = ALL,
        .small = true,
        .weight = {[OP_MOVE] = 6,
                   [OP_MOVE_AT] = 3,
                   [OP_CANCEL] = 2,
                   [OP_VISIT] = 2,
                   [OP_SLEEP] = 2,
                   [OP_DROP] = 1,
                   [OP_SCHEDULE] = 1,
                   [OP_NEXT] = 2,
                   [OP_STOP] = 1},
        .conduct_weight =
            {[DOES_NOTHING] = 4, [REARMS_NOW] = 1, [REARMS_LATER] = 1, [MOVES_SHARED] = 1},
    },
    {
        .name = "sync",
        .shows = "C7 C8 G2 G8",
        .producers = 3,
        .ops = 4,
        .shared = 2,
        .delays = 0x1f,
        .small = true,
        .weight = {[OP_CANCEL_SYNC] = 6,
                   [OP_CANCEL] = 2,
                   [OP_MOVE] = 2,
                   [OP_SLEEP] = 3,
                   [OP_DROP] = 2,
                   [OP_STOP] = 1},
        .conduct_weight =
            {[DOES_NOTHING] = 2, [IS_SLOW] = 3, [REARMS_NOW] = 2, [REARMS_ONCE_AND_IS_SLOW] = 2},
    },
    {
        .name = "periodic",
        .shows = "G10 G14 C5 C8",
        .releases = true,
        .producers = 2,
        .ops = 5,
        .shared = 1,
        .hooks = true,
        .delays = 0x3f,
        .weight = {[OP_PERIODIC] = 5,
                   [OP_CANCEL] = 3,
                   [OP_CANCEL_SYNC] = 2,
                   [OP_MOVE] = 2,
                   [OP_DRAIN] = 1,
                   [OP_SLEEP] = 4,
                   [OP_DROP] = 1},
        .conduct_weight =
            {[DOES_NOTHING] = 3, [IS_SLOW] = 1, [REARMS_NOW] = 1, [CANCELS_ITSELF] = 1},
    },
    {
        .name = "quota",
        .shows = "G3 G2 C6",
        .producers = 3,
        .ops = 6,
        .shared = 1,
        .max_pending = 3,
        .hooks = true,
        .delays = NEAR,
        .weight = {[OP_SCHEDULE] = 6,
                   [OP_FORGET] = 1,
                   [OP_CANCEL] = 5,
                   [OP_SLEEP] = 2,
                   [OP_MOVE] = 2,
                   [OP_DROP] = 1,
                   [OP_PENDING] = 2},
        .conduct_weight =
            {[DOES_NOTHING] = 3, [REARMS_NOW] = 2, [REARMS_LATER] = 1, [SCHEDULES] = 2},
    },
    {
        .name = "stop",
        .shows = "C6 C7 G2 G3 G8",
        .releases = true,
        .producers = 3,
        .ops = 4,
        .shared = 2,
        .delays = NEAR,
        .small = true,
        .hooks = true,
        .weight = {[OP_STOP] = 4,
                   [OP_SCHEDULE] = 4,
                   [OP_CANCEL] = 4,
                   [OP_MOVE] = 3,
                   [OP_FORGET] = 2,
                   [OP_DROP] = 1,
                   [OP_VISIT] = 2,
                   [OP_DRAIN] = 1,
                   [OP_SLEEP] = 1,
                   [OP_START] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3, [REARMS_NOW] = 1, [SCHEDULES] = 1, [IS_SLOW] = 1},
    },
    {
        .name = "late",
        .shows = "C6 C10 G9",
        .releases = true,
        .producers = 3,
        .handlers = 2,
        .ops = 5,
        .shared = 3,
        .max_pending = 6,
        .delays = 0x1ff,
        .weight = {[OP_CANCEL] = 6,
                   [OP_MOVE] = 6,
                   [OP_MOVE_AT] = 2,
                   [OP_DROP] = 2,
                   [OP_LOOK] = 1,
                   [OP_CANCEL_SYNC] = 1,
                   [OP_SLEEP] = 1,
                   [OP_SCHEDULE] = 2,
                   [OP_STOP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3, [REARMS_NOW] = 1, [REARMS_LATER] = 1},
    },
    {
        .name = "latefd",
        .shows = "C6 C10 C11 G9",
        .producers = 2,
        .handlers = 2,
        .ops = 5,
        .shared = 3,
        .boottime = true,
        .delays = 0x1ff,
        .weight = {[OP_CANCEL] = 3, [OP_MOVE] = 8, [OP_MOVE_AT] = 3, [OP_DROP] = 1, [OP_SLEEP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3, [REARMS_LATER] = 1},
    },
    {
        .name = "executor",
        .shows = "C5 C6 C7 C8 G2 G10",
        .releases = true,
        .producers = 2,
        .ops = 5,
        .shared = 2,
        .executor = EXECUTOR_QUEUES,
        .executor_refuses = true,
        .executor_threads = 2,
        .hooks = true,
        .max_pending = 5,
        .delays = 0x3f,
        .weight = {[OP_SCHEDULE] = 3,
                   [OP_CANCEL] = 4,
                   [OP_CANCEL_SYNC] = 2,
                   [OP_MOVE] = 4,
                   [OP_RENEW] = 2,
                   [OP_VISIT] = 2,
                   [OP_DRAIN] = 1,
                   [OP_SLEEP] = 3,
                   [OP_DROP] = 2,
                   [OP_STOP] = 1,
                   [OP_PERIODIC] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3,
                           [REARMS_NOW] = 2,
                           [REARMS_LATER] = 2,
                           [MOVES_SHARED] = 1,
                           [IS_SLOW] = 1,
                           [CANCELS_ITSELF] = 1},
    },
    {
        .name = "atonce",
        .shows = "C5 C7 C8 C13 G2 G10 G11",
        .releases = true,
        .producers = 2,
        .ops = 5,
        .shared = 2,
        .executor = EXECUTOR_RUNS_AT_ONCE,
        .executor_refuses = true,
        .hooks = true,
        .delays = 0x3f,
        .weight = {[OP_SCHEDULE] = 3,
                   [OP_CANCEL] = 4,
                   [OP_CANCEL_SYNC] = 2,
                   [OP_MOVE] = 4,
                   [OP_SLEEP] = 3,
                   [OP_DROP] = 2,
                   [OP_STOP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3,
                           [REARMS_NOW] = 2,
                           [REARMS_LATER] = 2,
                           [SCHEDULES] = 1,
                           [IS_SLOW] = 1},
    },
    {
        .name = "drive",
        .shows = "C15 C16 G4 G11 G15",
        .producers = 3,
        .ops = 6,
        .shared = 2,
        .drive = HWT_DRIVE_CALLER,
        .delays = 0xff,
        .small = true,
        .weight = {[OP_ADVANCE] = 5,
                   [OP_NEXT] = 4,
                   [OP_SCHEDULE] = 4,
                   [OP_MOVE] = 3,
                   [OP_CANCEL] = 2,
                   [OP_VISIT] = 2,
                   [OP_SLEEP] = 3,
                   [OP_STOP] = 1,
                   [OP_PENDING] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3,
                           [REARMS_NOW] = 1,
                           [REARMS_LATER] = 1,
                           [ASKS_NEXT] = 2,
                           [SCHEDULES] = 1,
                           [MOVES_SHARED] = 1},
    },
    {
        .name = "descriptor",
        .shows = "C4 C11 C16 G4 G5",
        .producers = 2,
        .ops = 5,
        .shared = 2,
        .drive = HWT_DRIVE_CALLER,
        .with_descriptor = true,
        .delays = 0xff,
        .small = true,
        .weight = {[OP_SCHEDULE] = 5,
                   [OP_MOVE] = 5,
                   [OP_CANCEL] = 2,
                   [OP_SLEEP] = 3,
                   [OP_DESCRIPTOR] = 2,
                   [OP_STOP] = 1,
                   [OP_NEXT] = 2},
        .conduct_weight =
            {[DOES_NOTHING] = 3, [REARMS_NOW] = 1, [REARMS_LATER] = 1, [SCHEDULES] = 1},
    },
    {
        .name = "driveexec",
        .shows = "C5 C15 C16 G2",
        .producers = 3,
        .ops = 5,
        .shared = 2,
        .drive = HWT_DRIVE_CALLER,
        .executor = EXECUTOR_QUEUES,
        .executor_threads = 1,
        .delays = 0x3f,
        .weight = {[OP_ADVANCE] = 5,
                   [OP_NEXT] = 5,
                   [OP_MOVE] = 3,
                   [OP_CANCEL] = 1,
                   [OP_SLEEP] = 3,
                   [OP_SCHEDULE] = 1,
                   [OP_STOP] = 1,
                   [OP_DESCRIPTOR] = 1},
        .conduct_weight =
            {[DOES_NOTHING] = 1, [REARMS_NOW] = 2, [REARMS_LATER] = 4, [ASKS_NEXT] = 2},
    },
    {
        .name = "boottime",
        .shows = "C4 G1 G4",
        .producers = 2,
        .ops = 5,
        .shared = 2,
        .boottime = true,
        .delays = 0xff,
        .weight = {[OP_SCHEDULE] = 5, [OP_MOVE] = 4, [OP_CANCEL] = 2, [OP_SLEEP] = 3},
        .conduct_weight = {[DOES_NOTHING] = 3, [REARMS_NOW] = 1, [REARMS_LATER] = 1},
    },
    {
        .name = "pool",
        .shows = "C9 C12 G6",
        .producers = 3,
        .ops = 12,
        .delays = 0x300,
        .weight = {[OP_SCHEDULE] = 8,
                   [OP_CANCEL] = 7,
                   [OP_DROP] = 6,
                   [OP_TRIM] = 4,
                   [OP_OTHER_TIMER] = 1},
        .conduct_weight = {[DOES_NOTHING] = 1},
    },
    {
        .name = "reserve",
        .shows = "C9 C12 G2 G6",
        .producers = 3,
        .ops = 8,
        .reserve = 8,
        .max_pending = 8,
        .delays = 0x300,
        .weight = {[OP_SCHEDULE] = 8,
                   [OP_CANCEL] = 6,
                   [OP_DROP] = 4,
                   [OP_TRIM] = 2,
                   [OP_OTHER_TIMER] = 2},
        .conduct_weight = {[DOES_NOTHING] = 1},
    },
    {
        .name = "faults",
        .shows = "G2 G3 C4",
        .releases = true,
        .producers = 2,
        .ops = 7,
        .shared = 1,
        .faults = true,
        .hooks = true,
        .not_started = true,
        .delays = NEAR,
        .weight = {[OP_SCHEDULE] = 6,
                   [OP_PERIODIC] = 1,
                   [OP_CANCEL] = 3,
                   [OP_MOVE] = 3,
                   [OP_SLEEP] = 3,
                   [OP_DROP] = 1,
                   [OP_START] = 1,
                   [OP_OTHER_TIMER] = 1},
        .conduct_weight = {[DOES_NOTHING] = 3, [REARMS_NOW] = 1, [SCHEDULES] = 1},
    },
    {
        .name = "ends",
        .shows = "C13 G2 G8 G10",
        .releases = true,
        .producers = 2,
        .ops = 5,
        .shared = 2,
        .ends_threads = true,
        .hooks = true,
        .delays = 0x1f,
        .weight = {[OP_SCHEDULE] = 4,
                   [OP_CANCEL] = 3,
                   [OP_CANCEL_SYNC] = 1,
                   [OP_MOVE] = 2,
                   [OP_DRAIN] = 1,
                   [OP_SLEEP] = 3,
                   [OP_STOP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 2, [ENDS_THREAD] = 2, [REARMS_NOW] = 1},
    },
    {
        .name = "fork",
        .shows = "C14 G12",
        .producers = 2,
        .ops = 4,
        .shared = 2,
        .delays = 0x1f,
        .weight = {[OP_FORK] = 3,
                   [OP_SCHEDULE] = 4,
                   [OP_CANCEL] = 3,
                   [OP_MOVE] = 1,
                   [OP_TRIM] = 2,
                   [OP_OTHER_TIMER] = 3,
                   [OP_SLEEP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 1},
    },
    {
        .name = "release",
        .shows = "C17 G16 G10 G2",
        .producers = 3,
        .handlers = 1,
        .ops = 6,
        .shared = 2,
        .hooks = true,
        .releases = true,
        .delays = 0x3f,
        .weight = {[OP_SCHEDULE] = 4,
                   [OP_FORGET] = 2,
                   [OP_CANCEL] = 5,
                   [OP_CANCEL_SYNC] = 1,
                   [OP_MOVE] = 3,
                   [OP_DROP] = 4,
                   [OP_REF] = 1,
                   [OP_RENEW] = 5,
                   [OP_VISIT] = 2,
                   [OP_DRAIN] = 1,
                   [OP_SLEEP] = 2,
                   [OP_STOP] = 1},
        .conduct_weight = {[DOES_NOTHING] = 4,
                           [REARMS_NOW] = 1,
                           [REARMS_LATER] = 1,
                           [CANCELS_ITSELF] = 1,
                           [CANCELS_SHARED] = 1},
    },
};
const unsigned world_count = sizeof worlds / sizeof worlds[0];

/* ---- programs ---- */

static unsigned pick(struct rng *rng, const uint8_t *weight, unsigned count)
{
    unsigned sum = 0, at;

    for (unsigned i = 0; i < count; i++)
        sum += weight[i];
    at = rng_below(rng, sum);
    for (unsigned i = 0; i < count; i++) {
        if (at < weight[i])
            return i;
        at -= weight[i];
    }
    return 0;
}

static uint8_t pick_delay(struct rng *rng, uint32_t delays)
{
    unsigned bit;

    do
        bit = rng_below(rng, 16);
    while (!(delays >> bit & 1));
    return (uint8_t)bit;
}

void program_make(struct program *program, const struct world *world, uint64_t seed, bool small)
{
    struct rng rng = {seed};

    memset(program, 0, sizeof *program);
    program->producers = small ? 2 : 1 + rng_below(&rng, world->producers);
    if (program->producers < world->handlers + 1 && !small)
        program->producers = world->producers;
    program->ops = small ? 1 + rng_below(&rng, 2) : 1 + rng_below(&rng, world->ops);
    program->shared = small && world->shared ? 1 : world->shared;
    program->hashed = rng_below(&rng, 2);
    program->settles = rng_below(&rng, 4) > 0;
    program->hands_back = rng_below(&rng, 2);
    program->second_timer = rng_below(&rng, 2);
    for (unsigned i = 0; i < program->shared; i++) {
        program->shared_delay[i] = pick_delay(&rng, world->delays);
        program->shared_conduct[i] = (uint8_t)pick(&rng, world->conduct_weight, CONDUCT_COUNT);
    }
    for (unsigned p = 0; p < program->producers; p++) {
        for (unsigned i = 0; i < program->ops; i++) {
            struct op *op = &program->op[p][i];
            op->code = (uint8_t)pick(&rng, world->weight, OP_COUNT);
            op->target = (uint8_t)rng_below(&rng, program->shared + i + 1);
            if (program->shared && rng_below(&rng, 2))
                op->target = (uint8_t)rng_below(&rng, program->shared);
            op->delay = pick_delay(&rng, world->delays);
            op->conduct = (uint8_t)pick(&rng, world->conduct_weight, CONDUCT_COUNT);
        }
    }
}

static const char *const op_names[OP_COUNT] = {"nothing",
                                               "schedule",
                                               "schedule without a handle",
                                               "schedule periodic",
                                               "cancel",
                                               "cancel_sync",
                                               "reschedule",
                                               "reschedule_at",
                                               "unref",
                                               "ref, unref",
                                               "look at",
                                               "sleep",
                                               "pending",
                                               "next_deadline",
                                               "stop",
                                               "start",
                                               "trim",
                                               "advance",
                                               "descriptor",
                                               "fork",
                                               "another timer",
                                               "renew",
                                               "visit",
                                               "drain"};
static const char *const conduct_names[CONDUCT_COUNT] = {"",
                                                         "re-arms for now",
                                                         "re-arms",
                                                         "re-arms, slowly",
                                                         "schedules",
                                                         "cancels a shared one",
                                                         "moves a shared one",
                                                         "is slow",
                                                         "asks for the next deadline",
                                                         "cancels itself",
                                                         "ends its thread"};

void program_print(const struct program *program)
{
    printf("  %s wheel, %u shared%s%s%s\n", program->hashed ? "hashed" : "hierarchical",
           program->shared, program->settles ? ", settles" : "",
           program->hands_back ? ", stop hands back" : "",
           program->second_timer ? ", another timer after it" : "");
    for (unsigned i = 0; i < program->shared; i++)
        printf("  shared %u: delay %u; its task %s\n", i, program->shared_delay[i],
               conduct_names[program->shared_conduct[i]]);
    for (unsigned p = 0; p < program->producers; p++) {
        for (unsigned i = 0; i < program->ops; i++) {
            const struct op *op = &program->op[p][i];
            if (!op->removed)
                printf("  producer %u, %u: %s, timeout %u, delay %u%s%s\n", p, i,
                       op_names[op->code], op->target, op->delay, op->conduct ? "; its task " : "",
                       conduct_names[op->conduct]);
        }
    }
}
