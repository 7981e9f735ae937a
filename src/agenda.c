/* SPDX-License-Identifier: BSD-2-Clause */
#include "agenda_parts.h"

#include <errno.h>
#include <string.h>

#include "platform.h"

#define TIE_LEVEL 3  /* a part of more is too wide to open all of a tie that belongs there */
#define TIE_STEP  16 /* chunks opened at a time */

int agenda_init(struct agenda *agenda, struct chunk_store *store, uint64_t tick_ns)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(tick_ns);

    memset(agenda, 0, sizeof *agenda);
    agenda->store = store;
    agenda->tick_ns = tick_ns;
    agenda->quantum = bits > KEY_BITS ? bits - KEY_BITS : 0;
    agenda->pad = bits > AGENDA_DIGIT ? AGENDA_DIGIT - 1 - (bits - 1) % AGENDA_DIGIT : 0;
    agenda->bound = RANK_MAX;
    /* mapped: the pages of parts that are never used are never touched */
    agenda->more = platform_map(sizeof *agenda->more, CACHE_LINE);
    if (!agenda->more)
        return -ENOMEM;
    agenda->front = agenda->more->entries;
    return 0;
}

void agenda_destroy(struct agenda *agenda)
{
    platform_unmap(agenda->more, sizeof *agenda->more);
}

/* ---- from the parts to the front ---- */

/* Those from this rank on were moved later: back into the parts. The front is sorted. */
static void send_back_moved(struct agenda *agenda, agenda_rank end)
{
    const struct entry *front = agenda->front;

    while (agenda->hi > agenda->lo && rank_of_entry(agenda, &front[agenda->hi - 1]) >= end) {
        const struct entry *entry = &front[--agenda->hi];
        parts_place(agenda, entry->timeout, rank_of_entry(agenda, entry));
    }
}

uint64_t *agenda_sort_from(const struct agenda *agenda)
{
    return agenda->more->packed[0];
}

void agenda_sort(struct agenda *agenda, unsigned count, uint64_t from, uint64_t range,
                 struct entry *entry)
{
    struct agenda_memory *more = agenda->more;

    entries_sort_packed(more->packed[0], count, from, range, entry, more->spare, more->packed[1]);
}

/* Of packed[0]. Their deadlines are mostly within `range` of `base`. */
static void sort_into_front(struct agenda *agenda, unsigned count, uint64_t base, uint64_t range)
{
    agenda_sort(agenda, count, base >> agenda->quantum, range >> agenda->quantum, agenda->front);
    agenda->lo = 0;
    agenda->hi = count;
}

/* What was moved earlier meanwhile sorts first, whatever part it was in. */
static void fill_front(struct agenda *agenda, unsigned level, unsigned part)
{
    struct agenda_memory *more = agenda->more;
    agenda_rank start = part_start(agenda, level, part), end = part_end(agenda, level, part);
    uint64_t *packed = more->packed[0];
    unsigned count = 0, more_count;

    while ((more_count = bucket_take(&more->part[level][part], agenda->store, packed + count,
                                     AGENDA_FRONT - count, NULL)) > 0) {
        packed_prefetch(packed + count, more_count);
        count += more_count;
    }
    while (count < AGENDA_FRONT && more->listed[level][part])
        packed[count++] = packed_make(fellows_pop(&more->listed[level][part]), 0);
    agenda->last = start;
    agenda->bound = start; /* equal ranks, so many that they do not fit: in any order */
    if (part_is_empty(agenda, level, part)) {
        agenda->occupied[level] &= ~(UINT64_C(1) << part);
        agenda->bound = end;
    }
    sort_into_front(agenda, count, rank_deadline(agenda, start),
                    rank_deadline(agenda, end) - rank_deadline(agenda, start));
    send_back_moved(agenda, end);
}

/* By the timeout's own deadline, wherever that leads. */
static void spread_touched(struct agenda *agenda, hwt_timeout *timeout)
{
    struct entry entry = entry_of(timeout);
    front_add(agenda, timeout, rank_of_entry(agenda, &entry));
}

/* By its key, if that tells the digit in which it differs from `last`. */
static bool spread_by_key(struct agenda *agenda, uint64_t packed, uint64_t base, uint64_t last)
{
    uint64_t deadline = deadline_of_key(agenda, packed, base), differ = deadline ^ last;
    unsigned level;
    int bit;

    if (unlikely(!differ))
        return false;
    level = (63 - (unsigned)__builtin_clzll(differ) + STAMP_BITS + agenda->pad) / AGENDA_DIGIT;
    bit = rank_level_bit(agenda, level);
    if (unlikely(bit < (int)agenda->quantum))
        return false;
    part_put(agenda, level, (unsigned)(deadline >> bit) & DIGIT_MASK, packed);
    return true;
}

static void spread_batch(struct agenda *agenda, const uint64_t *packed, unsigned count,
                         uint64_t base, bool known)
{
    uint64_t last = rank_deadline(agenda, agenda->last);

    for (unsigned i = 0; i < count; i++) {
        if (!known || !spread_by_key(agenda, packed[i], base, last))
            spread_touched(agenda, packed_timeout(packed[i]));
    }
}

/* A batch is spread while the lines of the next one are on their way. How many they were. */
static size_t spread_bucket(struct agenda *agenda, struct bucket *bucket, uint64_t base, bool known)
{
    uint64_t batch[2][BUCKET_BATCH];
    unsigned here = 0, count = bucket_take(bucket, agenda->store, batch[0], BUCKET_BATCH, NULL);
    size_t total = 0;

    packed_prefetch(batch[0], count);
    while (count > 0) {
        unsigned next = bucket_take(bucket, agenda->store, batch[!here], BUCKET_BATCH, NULL);
        packed_prefetch(batch[!here], next);
        spread_batch(agenda, batch[here], count, base, known);
        total += count;
        count = next;
        here = !here;
    }
    return total;
}

static void spread_part(struct agenda *agenda, unsigned level, unsigned part)
{
    struct agenda_memory *more = agenda->more;
    agenda_rank start = part_start(agenda, level, part);
    /* the keys tell the rest of the deadlines, and there is a rest */
    int bit = rank_level_bit(agenda, level);
    bool known = bit > (int)agenda->quantum && bit <= (int)(KEY_BITS + agenda->quantum);
    hwt_timeout *listed = more->listed[level][part], *timeout;

    bucket_move(&agenda->anew, &more->part[level][part]);
    more->listed[level][part] = NULL;
    agenda->occupied[level] &= ~(UINT64_C(1) << part);
    agenda->last = agenda->bound = start;
    spread_bucket(agenda, &agenda->anew, rank_deadline(agenda, start), known);
    while ((timeout = fellows_pop(&listed)) != NULL)
        spread_touched(agenda, timeout);
}

/* ---- ties: a large bucket, all of one key ---- */

/* What is still closed has no lower rank. */
static agenda_rank tie_rank(const struct agenda *agenda)
{
    const struct bucket *tie = &agenda->tie;
    bool chunks_only = bucket_has_chunks(tie) && bucket_inline_live(tie) == 0;
    uint64_t least = chunks_only ? chunk_least(chunk_of(ring_prev(&tie->ring))) : 0;

    return rank_make(agenda, agenda->tie_deadline, least);
}

static void open_inline(struct agenda *agenda)
{
    for (unsigned i = 0; i < BUCKET_INLINE; i++) {
        hwt_timeout *timeout = packed_timeout(slot_empty(&agenda->tie.slot[i]));
        if (!timeout)
            continue;
        agenda->count++;
        spread_touched(agenda, timeout);
    }
}

/* The next few chunks, those with the lowest stamps, go where each of their timeouts belongs. */
static void open_tie(struct agenda *agenda)
{
    uint64_t *packed = agenda->more->packed[0];
    unsigned count = 0, more, most = (unsigned)(TIE_STEP * CHUNK_LARGE_ROOM);

    open_inline(agenda);
    while (count < most && bucket_has_chunks(&agenda->tie)) {
        more = bucket_take(&agenda->tie, agenda->store, packed + count, most - count, NULL);
        packed_prefetch(packed + count, more);
        count += more;
    }
    agenda->count += count;
    for (unsigned i = 0; i < count; i++)
        spread_touched(agenda, packed_timeout(packed[i]));
}

/* ---- the rest: a large bucket, of which the lowest have been skimmed off into the front ---- */

static void spread_rest(struct agenda *agenda)
{
    agenda->count += spread_bucket(agenda, &agenda->rest, agenda->rest_base, true);
}

/*
 * The front is empty. False: nothing else is to come by `limit`. What is later is not sorted: while
 * others move it faster than that, it would not end.
 */
static bool refill(struct agenda *agenda, uint64_t limit)
{
    unsigned level = 0, part = 0;

    agenda->lo = agenda->hi = 0;
    if (unlikely(!bucket_is_empty(&agenda->rest)))
        spread_rest(agenda);
    while (agenda->lo == agenda->hi) {
        bool any = part_lowest(agenda, &level, &part);
        bool tied = unlikely(!bucket_is_empty(&agenda->tie)) &&
                    (!any || tie_rank(agenda) < part_end(agenda, level, part));

        if (!any && !tied) {
            hwt_assert(agenda->noticed == 0);
            agenda->count = 0; /* the others have been withdrawn */
            agenda->crowded = false;
            agenda->bound = RANK_MAX;
            return false;
        }
        if (!tied && rank_deadline(agenda, part_start(agenda, level, part)) > limit)
            return false;
        if (tied &&
            (!any || level <= TIE_LEVEL || tie_rank(agenda) < part_start(agenda, level, part)))
            open_tie(agenda);
        else if (!tied && (level == 0 || part_fits(agenda, level, part)))
            fill_front(agenda, level, part);
        else
            spread_part(agenda, level, part);
    }
    return true;
}

/* ---- a tick's bucket ---- */

static void take_into_front(struct agenda *agenda, struct bucket *bucket, uint64_t base)
{
    uint64_t *packed = agenda->more->packed[0];
    unsigned count = 0, more;
    bool chunks;

    do { /* chunk by chunk, then what the bucket itself holds: they fit */
        chunks = bucket_has_chunks(bucket);
        more = bucket_take(bucket, agenda->store, packed + count, AGENDA_FRONT - count, NULL);
        packed_prefetch(packed + count, more);
        count += more;
    } while (chunks && more > 0);
    sort_into_front(agenda, count, base, agenda->tick_ns);
    agenda->count = count;
    agenda->bound = RANK_MAX;
}

/* A sparse tick: what it holds is compared with each other. */
static void take_few_into_front(struct agenda *agenda, struct bucket *bucket)
{
    unsigned count = 0;

    for (unsigned filled = bucket_inline_filled(bucket); filled;) {
        uint64_t packed = slot_empty(&bucket->slot[take_lowest_bit(&filled)]);
        if (likely(packed != 0))
            entry_enter(agenda->front, count++, entry_of(packed_timeout(packed)));
    }
    agenda->lo = 0;
    agenda->hi = count;
    agenda->count = count;
    agenda->bound = RANK_MAX;
}

static void add_each(struct agenda *agenda, struct bucket *bucket)
{
    uint64_t batch[BUCKET_BATCH];
    unsigned count;

    while ((count = bucket_take(bucket, agenda->store, batch, BUCKET_BATCH, NULL)) > 0) {
        packed_prefetch(batch, count);
        for (unsigned i = 0; i < count; i++) {
            hwt_timeout *timeout = packed_timeout(batch[i]);
            agenda_add(agenda, timeout, timeout_deadline(timeout));
        }
    }
}

/* The front goes back into the parts, which are to hold everything from this rank on. */
static void retreat(struct agenda *agenda, agenda_rank rank)
{
    const struct entry *front = agenda->front;

    if (front_length(agenda) > 0 && rank_of_entry(agenda, &front[agenda->lo]) < rank)
        rank = rank_of_entry(agenda, &front[agenda->lo]);
    if (!bucket_is_empty(&agenda->tie) && tie_rank(agenda) < rank)
        rank = tie_rank(agenda);
    parts_admit(agenda, rank);
    agenda->bound = agenda->last;
    for (unsigned i = agenda->lo; i < agenda->hi; i++)
        parts_place(agenda, front[i].timeout, rank_of_entry(agenda, &front[i]));
    agenda->lo = agenda->hi = 0;
}

static void add_tie(struct agenda *agenda, struct bucket *bucket, uint64_t deadline)
{
    agenda->tie_deadline = deadline;
    retreat(agenda, rank_make(agenda, deadline, 0));
    agenda->crowded = true;
    bucket_move(&agenda->tie, bucket);
    bucket_sort_chunks(&agenda->tie);
}

/*
 * So that the first need not wait until all are spread: two walks over the keys, one to find how
 * many of the lowest fit into the front, one to take these out.
 */
static void add_skimmed(struct agenda *agenda, struct bucket *bucket, uint64_t base)
{
    uint64_t from = base >> agenda->quantum, limit;
    unsigned count;

    limit = bucket_key_limit(bucket, from, agenda->tick_ns >> agenda->quantum, AGENDA_FRONT);
    count = bucket_skim(bucket, agenda->store, from, limit, agenda->more->packed[0]);
    agenda->crowded = true;
    bucket_move(&agenda->rest, bucket);
    agenda->rest_base = base;
    sort_into_front(agenda, count, base, limit << agenda->quantum);
    agenda->count = count;
    agenda->last = agenda->bound =
        rank_make(agenda, (from + limit) << agenda->quantum, 0); /* the rest's keys are not below */
    send_back_moved(agenda, agenda->bound);
}

static __attribute__((noinline)) void add_more(struct agenda *agenda, struct bucket *bucket,
                                               uint64_t base)
{
    bool empty = agenda_is_empty(agenda);
    uint64_t packed;

    if (bucket_at_most(bucket) <= AGENDA_FRONT && empty)
        take_into_front(agenda, bucket, base);
    else if (!empty)
        add_each(agenda, bucket);
    else if (bucket_one_key(bucket, &packed)) /* both are lower bounds of all of them */
        add_tie(agenda, bucket, max_u64(bucket->earliest, deadline_of_key(agenda, packed, base)));
    else
        add_skimmed(agenda, bucket, base);
}

void agenda_add_bucket(struct agenda *agenda, struct bucket *bucket, uint64_t base)
{
    if (!bucket_has_chunks(bucket) && agenda_is_empty(agenda))
        take_few_into_front(agenda, bucket);
    else
        add_more(agenda, bucket, base);
}

/* ---- taking out ---- */

/* It was moved, to soon after the limit; and there is room: who has none has its turn later. */
static bool goes_aside(const struct agenda *agenda, uint64_t deadline, uint64_t limit)
{
    return deadline > limit && deadline - limit <= KICK_SPAN && agenda->aside < AGENDA_FRONT;
}

const struct entry *agenda_find_first(struct agenda *agenda, uint64_t limit, bool in_pass)
{
    size_t moved = 0;

    while (agenda->lo < agenda->hi || (!agenda_is_empty(agenda) && refill(agenda, limit))) {
        struct entry *first = &agenda->front[agenda->lo];
        hwt_timeout *timeout = first->timeout;
        uint64_t deadline = timeout_deadline(timeout);

        if (unlikely(timeout->place == PLACE_NOTICED)) {
            agenda->lo++;
            agenda_drop(agenda, timeout);
            continue;
        }
        if (likely(deadline <= first->deadline))
            return first;
        if (in_pass && goes_aside(agenda, deadline, limit)) {
            agenda->lo++;
            agenda_put_aside(agenda, timeout, deadline);
            continue;
        }
        if (!in_pass && moved++ > agenda->count) /* some of them more than once */
            return first;
        if (first->deadline > limit) /* and so is all that is here */
            return first;
        agenda->lo++;
        front_add(agenda, timeout, rank_make(agenda, deadline, timeout->stamp));
    }
    return NULL;
}
