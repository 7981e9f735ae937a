/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's sizes (src/sizes.h) for the simulator: every corner is near. */
#ifndef SIM_SIZES_H
#define SIM_SIZES_H

#include <stdint.h>

#define LANE_BITS        1
#define SEGMENT_BITS     11
#define BUNCH            2
#define GROUP_SLOTS      2u
#define PROBES           2
#define STEPS            1
#define SEGMENT_TRIES    2
#define SAMPLES          2u
#define SAMPLES_TAKEN    2u
#define SAMPLES_FIRST    2u
#define FEW_BELOW        2u
#define RELEASE_SLOTS    2u
#define SURVEY_MOST      2u
#define ROOM_MOST        2u
#define LAP_MOST         2u
#define MEET_GROUPS      1u
#define MEET_EARLY       0u
#define LOOK_SAMPLES     2u
#define LOOKS            1
#define LOOK_NS          6000 /* three segments: a look 72 ticks ahead */
#define AHEAD_FROM       3u
#define AHEAD_GROUPS     1u
#define NOTICES_PER_WAKE 2u
#define NOTICES_PER_PASS 2u
#define LANE_REARMED     1u
#define DESERTED_NS      1
#define DESERTED_SLOTS   1

#define PASS_ON_FIRST   2
#define KEEPERS_MOST    4
#define SLAB_BATCH      2
#define CARVE_MOST      2
#define CARVE_ALL       4
#define CARVE_LEAST     1
#define CARVE_SPARE     1
#define SLAB_BLOCKS     8
#define SLAB_BINS       4
#define SLAB_BINS_FEW   2
#define GROW_PART       2
#define GROW_MOST       3
#define SPARES_EACH     0
#define GRANULE_BITS    9 /* kernel.c: PAGE */
#define LEAF_BITS       10
#define DEPOTS          2u
#define PORTION         2
#define EASE_WINDOW     2
#define EASE_LOOK_NS    20000
#define EASE_KEEP       1
#define EASE_AGAIN      1
#define EASE_BATCHES    2
#define EASE_TURN       2
#define RESERVE_THREADS 2
#define POOL_TRIM_ABOVE 4

uint64_t sim_wake_ns(void); /* by the world */
#define WAKE_NS sim_wake_ns()

#define PLATFORM_ADDRESS_BITS 32
#define SLOT_COUNT_MAX        2u

#define HAND          2
#define SPARSE        4
#define WAKES_SAVED   1
#define AGENDA_FRONT  8
#define LADDER_BOTTOM 8
#define LADDER_DIGIT  6
#define CROWD_NOTED   2
#define LOT_FIRST     1
#define KICK_SPAN     1000000
#define KICK_TRIES    2
#define KICK_NEAR     1000
#define KICK_LOOKS    2
#define TURNSTILES    2

#endif
