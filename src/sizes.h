/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sizes on which no behaviour depends but how often its corners are met: a build may bring its
 * own (HWT_SIZES, the name of a file to be included instead). The simulator's are as small as they
 * can be (test/sim/sizes.h).
 */
#ifndef HWT_SIZES_H
#define HWT_SIZES_H

/* lanes */
#define LANE_BITS        14  /* slots of a segment of a lane */
#define SEGMENT_BITS     18  /* addresses of a segment: twice its slots' */
#define BUNCH            8   /* segments that are mapped at a time */
#define GROUP_SLOTS      64u /* of which so many share a flag */
#define PROBES           10  /* more slots tried before another segment is looked for ... */
#define STEPS            2   /* ... of which so many one after another, then leaps: a lap in all */
#define SEGMENT_TRIES    3   /* segments, the last of them a new one */
#define SAMPLES          16u /* slots that tell whether a segment is crowded: */
#define SAMPLES_TAKEN    8u
#define SAMPLES_FIRST    4u /* so many are enough, if most agree, or for one of many segments */
#define FEW_BELOW        8u /* a lane with less than this part of its slots taken becomes smaller */
#define RELEASE_SLOTS    1024u /* whose pages go back together; a power of two */
#define SURVEY_MOST      16u   /* segments, slabs or depots that are looked at in one call ... */
#define ROOM_MOST        4u    /* ... but of segments, when a slot is wanted, only so many, ... */
#define LAP_MOST         2u    /* ... and so many with each lap, until it is a stretch */
#define MEET_GROUPS      64u   /* groups whose pages are asked for together: 32 KB, ... */
#define MEET_EARLY       8u    /* ... so many groups before: not with a stretch of blocks */
#define LOOK_SAMPLES     8u    /* groups that tell whether their segment is cancelled much */
#define LOOKS            3     /* sweeps that leave a timeout that is not due soon in its slot */
#define LOOK_NS          100   /* what a slot may cost the worker: to look, and to file */
#define AHEAD_FROM       16u   /* groups that are far: fewer are not worth a look ahead */
#define AHEAD_GROUPS     8u    /* a portion of that, for which other work waits: some 50 us */
#define NOTICES_PER_WAKE 4096u /* the worker is woken for so many; they can wait otherwise */
#define NOTICES_PER_PASS 1024u /* a portion, of each lane: some tenths of a millisecond */
#define LANE_REARMED     8u    /* runs on an executor's threads that stand in a lane: a line */
#define DESERTED_NS      10000000 /* few came to a lane for so long: another CPU may have it ... */
#define DESERTED_SLOTS   64       /* ... less than so many */

/* pool and slabs */
#define SLAB_BATCH      32    /* blocks that go round together */
#define PASS_ON_FIRST   32    /* blocks that a thread takes and gives before it keeps any */
#define KEEPERS_MOST    2048  /* threads that keep some: 8 MB */
#define CARVE_MOST      32    /* of which so many are carved at once for a CPU: 64 KB ... */
#define CARVE_ALL       512   /* ... as long as it is not more for all the CPUs together, ... */
#define CARVE_LEAST     8     /* ... but so many anyway */
#define CARVE_SPARE     2     /* of a spare slab: a page */
#define SLAB_BLOCKS     32768 /* but for the first slab, which is smaller */
#define SLAB_BINS       256
#define SLAB_BINS_FEW   16
#define GROW_PART       2    /* slabs are mapped for so large a part of what there is ... */
#define GROW_MOST       16   /* ... and not more at a time */
#define SPARES_EACH     2    /* spare slabs for each of these, and one more */
#define GRANULE_BITS    21   /* 2 MB: a huge page, and no two slabs lie in one */
#define LEAF_BITS       14   /* slabs' descriptors lie in leaves, mapped as they are needed */
#define DEPOTS          128u /* at most */
#define PORTION         64   /* batches out of reach at a time, while they are sorted */
#define EASE_WINDOW     8    /* looks, in which what is not used is not needed ... */
#define EASE_KEEP       256  /* ... but so many batches, which stay, ... */
#define EASE_AGAIN      2    /* ... but for so many windows after one with more ... */
#define EASE_BATCHES    6    /* ... and so many go home at a time, ... */
#define EASE_TURN       64   /* ... so many times from one depot before it is the next one's turn */
#define RESERVE_THREADS 64   /* whose magazines may be full */
#define POOL_TRIM_ABOVE 16384

/* A worker who is awake anyway looks what the depots have so often at most; a second. */
#define EASE_LOOK_NS 1000000000

/* A worker wakes up seldom: once in so long, which is what it is worth (worker.c). */
#define WAKE_NS 1000000

/*
 * Addresses of memory from the system have no more bits than this, and no tag: so they can be
 * packed with something else in 64 bits. Where the system has only others to offer, there is none.
 */
#define PLATFORM_ADDRESS_BITS 48

/* A slot of a lane counts so far; then its count leaves it. In the bits that an address leaves. */
#define SLOT_COUNT_MAX 2097151u

/* the worker, the wheel, the agenda */
#define HAND          64      /* tasks, until others are taken in */
#define SPARSE        1024    /* timeouts of a tick that may run before it is over */
#define WAKES_SAVED   32      /* wake-ups that may come in a row before they are many */
#define AGENDA_FRONT  2048    /* timeouts that are sorted at once, of a tick ... */
#define LADDER_BOTTOM 1024    /* ... and of what is alone */
#define LADDER_DIGIT  7       /* bits: a slot of the second level is spread over so many parts */
#define CROWD_NOTED   128     /* of a crowded bucket, when its first is asked for */
#define LOT_FIRST     16      /* large chunks that a wheel asks malloc for the first time */
#define KICK_SPAN     1000000 /* ns after the limit of a pass: what is moved there may run in it */
#define KICK_TRIES    4       /* claims of what was moved, each by a clock read of its own ... */
#define KICK_NEAR     1000    /* ns: ... and so far behind that, at most */
#define KICK_LOOKS    64      /* at what was moved in a pass, whether it is so once more */
#define TURNSTILES    64      /* words that those sleep on who wait for the end of a run */

#endif
