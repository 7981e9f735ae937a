/* SPDX-License-Identifier: BSD-2-Clause */
/* What both kinds of wheel share: overdue timeouts, the pen, filing anew. */
#include "wheel.h"

#include <string.h>

#define EXPECT_MOST 64
#define SPARSE      BUCKET_INLINE /* timeouts in a slot that is worth splitting */

void wheel_init(struct wheel *wheel, const struct wheel_ops *ops, uint64_t tick_ns, uint64_t now)
{
    wheel->ops = ops;
    wheel->tick_ns = tick_ns;
    wheel->reciprocal = (uint64_t)(((unsigned __int128)1 << 64) / tick_ns);
    wheel->current = wheel_tick_floor(wheel, now);
    wheel->pen = NULL;
    memset(&wheel->overdue, 0, sizeof wheel->overdue);
    chunk_store_init(&wheel->store);
}

void wheel_destroy(struct wheel *wheel)
{
    if (!wheel)
        return;
    chunk_store_destroy(&wheel->store);
    wheel->ops->destroy(wheel);
}

/* ---- the pen: slow, but it needs no memory ---- */

static void pen_insert(struct wheel *wheel, hwt_timeout *timeout)
{
    timeout->fellow = wheel->pen;
    timeout->place = PLACE_PEN;
    wheel->pen = timeout;
}

static hwt_timeout *pen_take(hwt_timeout **link)
{
    hwt_timeout *timeout = *link;

    *link = timeout->fellow;
    timeout->fellow = NULL;
    timeout->place = PLACE_ADRIFT;
    return timeout;
}

static void pen_remove(struct wheel *wheel, const hwt_timeout *timeout)
{
    hwt_timeout **link = &wheel->pen;

    while (*link != timeout)
        link = &(*link)->fellow;
    pen_take(link);
}

static void pen_expire(struct wheel *wheel, uint64_t now, struct bucket *due)
{
    hwt_timeout **link = &wheel->pen;

    while (*link) {
        if (timeout_deadline(*link) > now)
            link = &(*link)->fellow;
        else if (!wheel_bucket_insert(wheel, due, pen_take(link)))
            return; /* back in the pen; `due` holds some to go on with */
    }
}

static uint64_t pen_earliest(const struct wheel *wheel)
{
    uint64_t earliest = UINT64_MAX;

    for (const hwt_timeout *timeout = wheel->pen; timeout; timeout = timeout->fellow)
        earliest = min_u64(earliest, timeout_deadline(timeout));
    return earliest;
}

/* ---- filing ---- */

void wheel_insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t tick = wheel_tick_of(wheel, deadline);
    bool filed;

    if (unlikely(tick < wheel->current))
        filed = bucket_insert(&wheel->overdue, &wheel->store, timeout, deadline);
    else
        filed = wheel->ops->insert(wheel, timeout, deadline, tick);
    if (unlikely(!filed))
        pen_insert(wheel, timeout);
}

static const struct bucket *bucket_for(const struct wheel *wheel, const hwt_timeout *timeout)
{
    uint64_t tick = wheel_tick_of(wheel, timeout_deadline(timeout));
    return wheel->ops->bucket_of(wheel, max_u64(tick, wheel->current));
}

void wheel_expect(const struct wheel *wheel, hwt_timeout *const *batch, unsigned count)
{
    const struct bucket *bucket[EXPECT_MOST];

    count = count < EXPECT_MOST ? count : EXPECT_MOST;
    for (unsigned i = 0; i < count; i++) {
        bucket[i] = bucket_for(wheel, batch[i]);
        __builtin_prefetch(bucket[i], 1);
    }
    for (unsigned i = 0; i < count; i++)
        bucket_prefetch_last(bucket[i]);
}

void wheel_remove(struct wheel *wheel, hwt_timeout *timeout)
{
    if (unlikely(timeout->place == PLACE_PEN))
        pen_remove(wheel, timeout);
    else
        bucket_remove(&wheel->store, timeout);
}

bool wheel_bucket_insert(struct wheel *wheel, struct bucket *bucket, hwt_timeout *timeout)
{
    if (likely(bucket_insert(bucket, &wheel->store, timeout, timeout_deadline(timeout))))
        return true;
    pen_insert(wheel, timeout);
    return false;
}

hwt_timeout *wheel_bucket_pop(struct wheel *wheel, struct bucket *bucket)
{
    return bucket_pop(bucket, &wheel->store);
}

unsigned wheel_bucket_take(struct wheel *wheel, struct bucket *bucket, hwt_timeout **out,
                           unsigned most)
{
    return bucket_take(bucket, &wheel->store, out, most);
}

void wheel_refile(struct wheel *wheel, struct bucket *from, uint64_t now, struct bucket *due)
{
    hwt_timeout *batch[BUCKET_BATCH];
    unsigned count;

    while ((count = bucket_take(from, &wheel->store, batch, BUCKET_BATCH)) > 0) {
        for (unsigned i = 0; i < count; i++) {
            uint64_t deadline = timeout_deadline(batch[i]);
            if (deadline <= now)
                wheel_bucket_insert(wheel, due, batch[i]);
            else
                wheel_insert(wheel, batch[i], deadline);
        }
    }
}

/* ---- expiry ---- */

static bool expire_pen(struct wheel *wheel, uint64_t now, struct bucket *due)
{
    if (likely(!wheel->pen))
        return false;
    wheel->due_limit = now;
    pen_expire(wheel, now, due);
    return !bucket_is_empty(due);
}

bool wheel_expire(struct wheel *wheel, uint64_t now, bool exact, struct bucket *due)
{
    uint64_t limit = wheel_tick_floor(wheel, now);

    if (expire_pen(wheel, now, due) || wheel->ops->expire(wheel, limit, due))
        return true;
    wheel->ops->expire_part(wheel, now, exact ? UINT32_MAX : SPARSE, due);
    wheel->due_limit = now;
    /* what found no memory on its way down lies in the pen only now */
    return !bucket_is_empty(due) || expire_pen(wheel, now, due);
}

bool wheel_is_sparse(const struct wheel *wheel, uint64_t earliest)
{
    return wheel->ops->sharing(wheel, earliest) <= SPARSE;
}

void wheel_take_overdue(struct wheel *wheel, uint64_t limit, struct bucket *due)
{
    uint64_t expired = wheel->current ? wheel_tick_time(wheel, wheel->current - 1) : 0;

    wheel->due_limit = max_u64(limit, expired);
    if (!bucket_is_empty(&wheel->overdue))
        bucket_move(due, &wheel->overdue);
}

/* ---- what comes next ---- */

/* Ends at the first that reaches `bound`, below which there is none. */
static uint64_t scan_slots(hwt_timeout *const *slot, unsigned count, uint64_t bound, uint64_t best)
{
    for (unsigned i = 0; i < count && best > bound; i++) {
        if (slot[i])
            best = min_u64(best, timeout_deadline(slot[i]));
    }
    return best;
}

uint64_t wheel_scan(const struct bucket *bucket)
{
    uint64_t bound = bucket->earliest;
    uint64_t best = scan_slots(bucket->slot, BUCKET_INLINE, bound, UINT64_MAX);

    for (struct block *block = bucket->head.next; block && block != &bucket->head;
         block = block->next)
        best = scan_slots(container_of(block, struct chunk, head)->slot, block->used, bound, best);
    return best;
}

uint64_t wheel_earliest(struct wheel *wheel, bool exact)
{
    uint64_t earliest = wheel->ops->earliest(wheel, exact);

    if (!bucket_is_empty(&wheel->overdue))
        earliest = min_u64(earliest, exact ? wheel_scan(&wheel->overdue) : wheel->overdue.earliest);
    if (unlikely(wheel->pen))
        earliest = min_u64(earliest, pen_earliest(wheel));
    return earliest;
}

uint64_t wheel_next_call(struct wheel *wheel)
{
    return min_u64(wheel_earliest(wheel, false), wheel->ops->prepare(wheel));
}

/* ---- the rest ---- */

hwt_timeout *wheel_pop(struct wheel *wheel)
{
    if (wheel->pen)
        return pen_take(&wheel->pen);
    if (!bucket_is_empty(&wheel->overdue))
        return bucket_pop(&wheel->overdue, &wheel->store);
    return wheel->ops->pop(wheel);
}

size_t wheel_check(struct wheel *wheel)
{
    size_t count = bucket_check(&wheel->overdue) + wheel->ops->check(wheel);

    for (const hwt_timeout *timeout = wheel->pen; timeout; timeout = timeout->fellow) {
        hwt_assert(timeout->place == PLACE_PEN);
        count++;
    }
    return count;
}
