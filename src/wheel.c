/* SPDX-License-Identifier: BSD-2-Clause */
/* What both kinds of wheel share: filing, and filing anew, removal, what comes next. */
#include "wheel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_SPARE 64 /* chunks for what is on its way between buckets */

/* A third kind is a file, and a line here. */
extern HIDDEN const struct wheel_ops wheel_hierarchical, wheel_hashed;
static const struct wheel_ops *const kinds[] = {
    [HWT_WHEEL_HIERARCHICAL] = &wheel_hierarchical,
    [HWT_WHEEL_HASHED] = &wheel_hashed,
};

bool wheel_kind_exists(hwt_wheel_kind kind)
{
    return (size_t)kind < sizeof kinds / sizeof kinds[0];
}

void *wheel_alloc(size_t size)
{
    void *memory;

    size = (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    memory = aligned_alloc(CACHE_LINE, size);
    return memory ? memset(memory, 0, size) : NULL;
}

int wheel_create(struct wheel **wheel, hwt_wheel_kind kind, uint64_t tick_ns, uint32_t slots,
                 uint64_t now)
{
    struct wheel *w;

    if (!wheel_kind_exists(kind))
        return -EINVAL;
    w = kinds[kind]->create(tick_ns, slots, now / tick_ns);
    if (!w)
        return -ENOMEM;
    w->ops = kinds[kind];
    w->tick_ns = tick_ns;
    w->sparse = SPARSE;
    w->reciprocal = (uint64_t)(((unsigned __int128)1 << 64) / tick_ns);
    w->current = now / tick_ns;
    w->covered = w->current ? wheel_tick_time(w, w->current - 1) : 0;
    chunk_store_init(&w->store);
    pen_init(&w->pen, tick_ns);
    if (agenda_init(&w->agenda, &w->store, tick_ns) != 0) {
        w->ops->destroy(w);
        return -ENOMEM;
    }
    *wheel = w;
    return 0;
}

void wheel_destroy(struct wheel *wheel)
{
    if (!wheel)
        return;
    agenda_destroy(&wheel->agenda);
    chunk_store_destroy(&wheel->store);
    wheel->ops->destroy(wheel);
}

int wheel_reserve(struct wheel *wheel, size_t timeouts)
{
    return chunk_store_reserve(&wheel->store, BUCKET_CHUNKS_FOR(timeouts) + RESERVE_SPARE);
}

/* ---- filing ---- */

/* W1; W2 (a nudged one that comes down a level while `current` is ahead of `covered`) */
HOT bool is_due(const struct wheel *wheel, uint64_t deadline, uint64_t tick)
{
    return deadline <= wheel->covered || tick < wheel->current;
}

static void set_notable(struct wheel *wheel)
{
    wheel->notable = max_u64(wheel->witness.slot ? wheel->witness.deadline : 0,
                             wheel->crowd.bucket ? wheel->crowd.beyond : 0);
}

static __attribute__((noinline)) void note(struct wheel *wheel, const struct bucket *bucket,
                                           struct sighting filed)
{
    if (wheel->witness.slot && filed.deadline < wheel->witness.deadline)
        wheel->witness = filed;
    if (wheel->crowd.bucket == bucket && filed.deadline < wheel->crowd.beyond)
        crowd_note(&wheel->crowd, filed);
    set_notable(wheel);
}

/* In its slot; or there was no memory for one. */
HOT void note_filed(struct wheel *wheel, const struct bucket *bucket, _Atomic uint64_t *slot,
                    uint64_t packed, uint64_t deadline)
{
    if (unlikely(!slot))
        pen_put(&wheel->pen, packed_timeout(packed), deadline);
    else if (unlikely(deadline < wheel->notable))
        note(wheel, bucket, (struct sighting){slot, packed, deadline});
}

/* Into this bucket, which is its tick's. */
HOT void insert(struct wheel *wheel, struct bucket *bucket, hwt_timeout *timeout, uint64_t deadline,
                uint64_t tick)
{
    _Atomic uint64_t *slot = NULL;
    uint64_t packed;

    if (unlikely(is_due(wheel, deadline, tick))) {
        agenda_add(&wheel->agenda, timeout, deadline);
        return;
    }
    packed = packed_filed(timeout, deadline, wheel_key(wheel, deadline, tick));
    if (likely(wheel->ops->fills_chunks))
        slot = bucket_insert_last(bucket, packed, deadline);
    if (unlikely(!slot))
        slot = wheel->ops->insert(wheel, packed, deadline, tick);
    note_filed(wheel, bucket, slot, packed, deadline);
}

void wheel_insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t tick = wheel_tick_of(wheel, deadline);

    insert(wheel, wheel->ops->bucket_of(wheel, max_u64(tick, wheel->current)), timeout, deadline,
           tick);
}

void wheel_insert_batch(struct wheel *wheel, const struct wheel_batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++)
        bucket_prefetch_last(batch->bucket[i]);
    for (unsigned i = 0; i < batch->count; i++)
        insert(wheel, batch->bucket[i], batch->timeout[i], batch->deadline[i], batch->tick[i]);
}

/*
 * Of a later tick than the one that is over, where it lies in its slot: of another round, or it was
 * moved, which its key tells, and goes over the agenda, for it may be kicked.
 */
static bool may_be_kicked(const struct wheel *wheel, uint64_t packed, uint64_t deadline,
                          uint64_t over)
{
    return deadline - over <= KICK_SPAN &&
           packed_key_from(packed, agenda_key(&wheel->agenda, deadline)) != 0;
}

/* False: no memory for a slot. */
HOT bool put_due(struct wheel *wheel, struct bucket *due, hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t key = agenda_key(&wheel->agenda, deadline);

    return bucket_insert(due, &wheel->store, packed_filed(timeout, deadline, key), deadline);
}

void wheel_refile(struct wheel *wheel, struct bucket *from, uint64_t limit, struct bucket *due)
{
    uint64_t batch[BUCKET_BATCH];
    unsigned count;

    while ((count = bucket_take(from, &wheel->store, batch, BUCKET_BATCH, NULL)) > 0) {
        packed_prefetch(batch, count);
        for (unsigned i = 0; i < count; i++) {
            hwt_timeout *timeout = packed_timeout(batch[i]);
            uint64_t deadline = timeout_deadline(timeout);
            if (!due || (deadline > limit && !may_be_kicked(wheel, batch[i], deadline, limit)))
                wheel_insert(wheel, timeout, deadline);
            else if (deadline > limit || unlikely(!put_due(wheel, due, timeout, deadline)))
                agenda_add(&wheel->agenda, timeout, deadline);
        }
    }
}

/* ---- out of the pen, once there is memory ---- */

#define PEN_PORTION 16384 /* at a time: a millisecond or two */

#define PATIENCE 1023 /* removals: to ask the system in vain may take milliseconds */

void wheel_leave_pen(struct wheel *wheel)
{
    struct pen *pen = &wheel->pen;

    chunk_ask_again(&wheel->store);
    for (unsigned filed = 0; !pen_is_empty(pen) && filed < PEN_PORTION; filed++) {
        hwt_timeout *timeout = pen_pop(pen);
        size_t left = pen->count;

        wheel_insert(wheel, timeout, timeout_deadline(timeout));
        if (pen->count > left)
            return;
    }
}

/* After each time that was in vain half as often. */
static void leave_pen_patiently(struct wheel *wheel)
{
    struct pen *pen = &wheel->pen;

    if (pen->wait > 0) {
        pen->wait--;
        return;
    }
    wheel_leave_pen(wheel);
    pen->patience =
        wheel->store.refused > 0 ? (unsigned)min_u64(2 * pen->patience + 1, PATIENCE) : 0;
    pen->wait = pen->patience;
}

/* False: it is not there. It is looked for only as long as there is no memory to leave it. */
static bool remove_from_pen(struct wheel *wheel, hwt_timeout *timeout)
{
    if (pen_is_empty(&wheel->pen) || timeout->place != PLACE_LISTED)
        return false;
    leave_pen_patiently(wheel);
    if (!bucket_holds(timeout))
        return timeout->place == PLACE_LISTED && pen_remove(&wheel->pen, timeout);
    bucket_remove(&wheel->store, timeout);
    return true;
}

/* ---- removal ---- */

bool wheel_remove_slowly(struct wheel *wheel, hwt_timeout *timeout)
{
    if (remove_from_pen(wheel, timeout))
        return true;
    agenda_notice(&wheel->agenda, timeout);
    return false;
}

void wheel_remove(struct wheel *wheel, hwt_timeout *timeout)
{
    if (bucket_holds(timeout))
        wheel_remove_over(wheel, timeout);
    else if (!remove_from_pen(wheel, timeout))
        agenda_extract(&wheel->agenda, timeout);
}

/* ---- what comes next ---- */

bool wheel_is_sparse(const struct wheel *wheel, uint64_t earliest)
{
    /* the pen waits for the end of the tick, whatever else is due */
    if (unlikely(!pen_is_empty(&wheel->pen)))
        return false;
    if (earliest <= wheel->covered && !agenda_has_at_most(&wheel->agenda, wheel->sparse))
        return false;
    return wheel->ops->is_sparse(wheel, earliest, wheel->sparse);
}

struct sighting wheel_bucket_scan(struct wheel *wheel, struct bucket *bucket, uint64_t tick)
{
    uint64_t key = wheel_key(wheel, bucket->earliest, tick);
    struct sighting found;

    if (!bucket_has_chunks(bucket) || bucket_at_most(bucket) <= WHEEL_SCAN_UP_TO)
        return bucket_scan(bucket, key);
    wheel->store.crowd = &wheel->crowd;
    found = crowd_first(&wheel->crowd, bucket, &wheel->store, key);
    set_notable(wheel);
    return found;
}

uint64_t wheel_earliest(struct wheel *wheel)
{
    uint64_t earliest = wheel_agenda_earliest(wheel);

    if (earliest != UINT64_MAX) /* all else is beyond `covered` */
        return earliest;
    earliest = wheel->ops->earliest(wheel, NULL);
    return likely(pen_is_empty(&wheel->pen)) ? earliest
                                             : min_u64(earliest, pen_earliest(&wheel->pen));
}

/* The slot last (S3). */
bool wheel_still_has(const struct sighting *sighting)
{
    return sighting->slot &&
           timeout_deadline(packed_timeout(sighting->packed)) == sighting->deadline &&
           slot_still_holds(sighting->slot, sighting->packed);
}

static uint64_t earliest_filed(struct wheel *wheel)
{
    uint64_t earliest = wheel_agenda_earliest(wheel);
    struct sighting *witness = &wheel->witness;

    if (earliest != UINT64_MAX)
        return earliest;
    if (!wheel_still_has(witness)) {
        *witness = (struct sighting){NULL, 0, UINT64_MAX};
        wheel->ops->earliest(wheel, witness);
        set_notable(wheel);
    }
    earliest = witness->deadline;
    return likely(pen_is_empty(&wheel->pen)) ? earliest
                                             : min_u64(earliest, pen_earliest(&wheel->pen));
}

uint64_t wheel_earliest_exact(struct wheel *wheel)
{
    uint64_t earliest = earliest_filed(wheel);

    return likely(wheel->agenda.aside == 0)
               ? earliest
               : min_u64(earliest, agenda_earliest_aside(&wheel->agenda));
}

uint64_t wheel_next_call(struct wheel *wheel)
{
    return min_u64(wheel_earliest(wheel), wheel->ops->prepare_at(wheel));
}

/* ---- the rest ---- */

/* One that lies in no bucket; NULL: there is none. */
static hwt_timeout *pop_outside(struct wheel *wheel)
{
    hwt_timeout *noticed = wheel_take_noticed(wheel);

    if (noticed)
        return noticed;
    if (agenda_first(&wheel->agenda, UINT64_MAX))
        return agenda_take(&wheel->agenda);
    noticed = wheel_take_noticed(wheel); /* agenda_first may have met the last ones */
    if (noticed)
        return noticed;
    return pen_is_empty(&wheel->pen) ? NULL : pen_pop(&wheel->pen);
}

unsigned wheel_pop(struct wheel *wheel, hwt_timeout **out)
{
    uint64_t packed[WHEEL_POP];
    unsigned count;

    wheel->witness.slot = NULL;
    if ((*out = pop_outside(wheel)) != NULL)
        return 1;
    count = wheel->ops->pop(wheel, packed, WHEEL_POP);
    packed_prefetch(packed, count);
    for (unsigned i = 0; i < count; i++)
        out[i] = packed_timeout(packed[i]);
    return count;
}

hwt_timeout *wheel_take_on_agenda(struct wheel *wheel)
{
    return agenda_first(&wheel->agenda, UINT64_MAX) ? agenda_take(&wheel->agenda) : NULL;
}

void wheel_visit(struct wheel *wheel, bucket_see *see, void *context)
{
    crowd_forget(&wheel->crowd); /* a mark may go */
    wheel->ops->visit(wheel, see, context);
    /* afterwards: what was put back for the visit may have come here, for want of memory */
    pen_show(&wheel->pen, see, context);
}

/* The slots from *at on, `most` of them at most, and what is beside them (agenda_check: `idle`). */
static size_t check(struct wheel *wheel, size_t *at, size_t most, unsigned idle)
{
    size_t count = agenda_check(&wheel->agenda, idle) + wheel->ops->check(wheel, at, most);

#ifdef HWT_DEBUG
    crowd_check(&wheel->crowd);
#endif
    hwt_assert(bucket_is_empty(&wheel->anew));
    return count + pen_check(&wheel->pen);
}

size_t wheel_check(struct wheel *wheel)
{
    size_t at = 0;

    return check(wheel, &at, SIZE_MAX, AGENDA_LEVELS);
}

#ifdef HWT_DEBUG
/*
 * To walk all slots, and all parts of the agenda, takes longer than a pass: with a short period, or
 * a clock of the caller's, a program would do little else. What goes wrong stays wrong, and is
 * found when its turn has come.
 */
void wheel_check_on(struct wheel *wheel)
{
    if (wheel->checked++ < CHECK_ALL)
        (void)wheel_check(wheel);
    else
        (void)check(wheel, &wheel->check_at, CHECK_SLOTS,
                    (unsigned)(wheel->checked % AGENDA_LEVELS));
}
#endif
