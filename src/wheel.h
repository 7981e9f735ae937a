/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wheel: a pure data structure. No thread, no clock, no callback, no lock; it is told the time
 * and hands back what is due, in order. One owner at a time: the worker, or whoever acts as the
 * worker.
 *
 * A timeout of deadline d is due at tick ceil(d / tick_ns). Two kinds stand behind one interface:
 * hierarchical (Kafka, Linux) and hashed, one level with rounds (Netty, Dubbo). They tell ticks
 * apart; the order within a tick is the agenda's.
 *
 * Deadlines are lower bounds here: a timeout whose deadline was moved later stays where it is
 * filed, and is filed again when its old deadline comes up.
 *
 *   W1 all that has a deadline up to `covered` is in the agenda, and nothing else but what was
 *      moved later meanwhile.
 *   W2 no timeout is filed for a tick below `current`.
 */
#ifndef HWT_WHEEL_H
#define HWT_WHEEL_H

#include "crowd.h"
#include "pen.h"

struct wheel;

struct wheel_ops {
    /*
     * Makes one; `slots`: a power of two, per level (of very many it has fewer); `current`: as
     * below. NULL: no memory.
     */
    struct wheel *(*create)(uint64_t tick_ns, uint32_t slots, uint64_t current);
    void (*destroy)(struct wheel *wheel);
    /* Files what is packed at `tick`, not before wheel->current. The slot; NULL: no memory. */
    _Atomic uint64_t *(*insert)(struct wheel *wheel, uint64_t packed, uint64_t deadline,
                                uint64_t tick);
    /* Where it would be filed. */
    struct bucket *(*bucket_of)(const struct wheel *wheel, uint64_t tick);
    /* A bucket that has chunks may be filled without `insert`. */
    bool fills_chunks;
    /*
     * Hands the next tick's bucket that is due by `limit` to wheel_cover, and goes on to the tick
     * after it; or covers all up to `limit`. False: there is none, and `current` is the tick after
     * `limit`.
     */
    bool (*expire)(struct wheel *wheel, uint64_t limit);
    /*
     * Where the agenda is empty: the next timeout, if it lies ready, is due, and is the only one in
     * its tick, which is covered then. NULL: the other calls will tell. A kind need not have this.
     */
    hwt_timeout *(*take_lone)(struct wheel *wheel, uint64_t now);
    /* Is something due at the current tick, and has a slot that no more than `most` share? */
    bool (*has_current)(struct wheel *wheel, uint64_t now, uint32_t most);
    /* Hands all that is due at the current tick to wheel_cover, and stays there. */
    void (*take_current)(struct wheel *wheel);
    /*
     * No deadline in the wheel is below it; UINT64_MAX: empty. With `who` no effort is spared: it
     * is exact, and that of *who. Without, it is that of a bucket in which there is something.
     */
    uint64_t (*earliest)(struct wheel *wheel, struct sighting *who);
    /* Do no more than `most` share the slot of the earliest deadline, which is given? */
    bool (*is_sparse)(const struct wheel *wheel, uint64_t deadline, uint32_t most);
    /* The time at which there is work to do ahead of a deadline; UINT64_MAX: none. */
    uint64_t (*prepare_at)(struct wheel *wheel);
    /* Does what work there is ahead now, and fetches what the next calls of `expire` will touch. */
    void (*prepare)(struct wheel *wheel);
    /* Takes out any, as bucket_take does; 0: there is none. */
    unsigned (*pop)(struct wheel *wheel, uint64_t *out, unsigned most);
    void (*visit)(struct wheel *wheel, bucket_see *see, void *context); /* shows each */
    /* Validates slots from *at on, `most` of them, or to the last; counts what is in them. */
    size_t (*check)(struct wheel *wheel, size_t *at, size_t most);
};

struct wheel {
    const struct wheel_ops *ops; /* never changes */
    uint32_t sparse; /* a tick with no more may run before it is over; set by who drives */
    /* never change */
    uint64_t tick_ns;
    uint64_t reciprocal; /* 2^64 / tick_ns, rounded down */

    /* a slot's key lacks the agenda's quantum of bits, or this from one tick on: */
    unsigned far_quantum; /* never changes */
    uint64_t far_from;    /* UINT64_MAX: none does */

    uint64_t current; /* ticks below have been expired */
    uint64_t covered; /* W1 */
    struct chunk_store store;
    struct agenda agenda;
    struct bucket anew;      /* on its way to other buckets; otherwise empty */
    struct pen pen;          /* filed without memory for a chunk */
    struct sighting witness; /* of the exact earliest deadline of all that `ops` files, or of none;
                                it may have been moved, or withdrawn, since */
    struct sighting shown;   /* out of its slot, for a visitor */
    struct crowd crowd;
    uint64_t notable; /* who is filed before that may be for the witness or the crowd to note */
#ifdef HWT_DEBUG
    size_t checked, check_at; /* passes; the slot to go on at (wheel_check_on) */
#endif
};

/* What is to be filed together: what filing one touches is fetched while others are looked at. */
#define WHEEL_BATCH 64
struct wheel_batch {
    unsigned count;
    hwt_timeout *timeout[WHEEL_BATCH];
    uint64_t deadline[WHEEL_BATCH], tick[WHEEL_BATCH];
    struct bucket *bucket[WHEEL_BATCH];
};

/* 0, -ENOMEM, or -EINVAL for a kind that there is not. `slots`: a power of two, per level. */
int wheel_create(struct wheel **wheel, hwt_wheel_kind kind, uint64_t tick_ns, uint32_t slots,
                 uint64_t now);
bool wheel_kind_exists(hwt_wheel_kind kind);
/* NULL is fine. The timeouts in it are forgotten. */
void wheel_destroy(struct wheel *wheel);
/* So many timeouts can be in it, or beside it, without malloc. 0 or -ENOMEM. */
int wheel_reserve(struct wheel *wheel, size_t timeouts);

/*
 * Memory for more will soon be needed: to have it ready is a good idea, and takes long. `small`: in
 * small pages.
 */
static inline bool wheel_runs_low(const struct wheel *wheel)
{
    return chunk_runs_low(&wheel->store);
}
static inline void wheel_make_ready(struct wheel *wheel, bool small)
{
    chunk_make_ready(&wheel->store, small);
}
/* There is no time for that: of this kind is what it takes when it needs it. */
static inline void wheel_choose_pages(struct wheel *wheel, bool small)
{
    chunk_choose_pages(&wheel->store, small);
}

/* Never fails: without memory it gets slower (the pen), but nothing is lost. */
void wheel_insert(struct wheel *wheel, hwt_timeout *timeout, uint64_t deadline);
/* A batch is filed in the order in which it was gathered, each by the deadline that it had then. */
void wheel_insert_batch(struct wheel *wheel, const struct wheel_batch *batch);
/*
 * Takes out one that wheel_insert filed, nothing else took, and nobody can withdraw; PLACE_ADRIFT
 * afterwards. May take long for one whose time has come.
 */
void wheel_remove(struct wheel *wheel, hwt_timeout *timeout);
/*
 * The same for one that is over. False: it is marked, and comes back from wheel_take_noticed,
 * PLACE_NOTICED, at the latest when its turn would have come.
 */
bool wheel_remove_slowly(struct wheel *wheel, hwt_timeout *timeout);
static inline bool wheel_remove_over(struct wheel *wheel, hwt_timeout *timeout)
{
    if (unlikely(!bucket_holds(timeout)))
        return wheel_remove_slowly(wheel, timeout);
    bucket_remove(&wheel->store, timeout);
    return true;
}

static inline hwt_timeout *wheel_take_noticed(struct wheel *wheel)
{
    return agenda_take_dropped(&wheel->agenda);
}
static inline bool wheel_has_noticed(const struct wheel *wheel)
{
    return unlikely(wheel->agenda.dropped != NULL);
}

/*
 * The next that is due at `now`, in order, its place stale; NULL: nothing is. The tick that is not
 * over yet counts as far as its deadlines are reached, if its slot is sparse, or with `exact`. What
 * is moved to "now" while the pass is on may be handed out after all others, with a deadline after
 * `now` (agenda.h).
 */
hwt_timeout *wheel_find_due(struct wheel *wheel, uint64_t now, bool exact);
static inline hwt_timeout *wheel_take_due(struct wheel *wheel, uint64_t now, bool exact)
{
    const struct entry *first = agenda_first_due(&wheel->agenda, now);

    if (likely(first && first->deadline <= wheel->covered)) {
        if (first->deadline <= now)
            return agenda_take(&wheel->agenda);
    } else if (first || now > wheel->covered) { /* W1 */
        return wheel_find_due(wheel, now, exact);
    }
    return agenda_take_kicked(&wheel->agenda);
}

/* Fetches what the tasks of the next that are due will be called with. */
HOT void wheel_prefetch_due(const struct wheel *wheel, unsigned from, unsigned count)
{
    agenda_prefetch(&wheel->agenda, from, count);
}
/* And what follows that, a few runs later (agenda.h). */
HOT void wheel_prefetch_due_further(const struct wheel *wheel, unsigned from, unsigned count)
{
    agenda_prefetch_further(&wheel->agenda, from, count);
}

/* The pass ends before wheel_take_due has found nothing. */
static inline void wheel_break_off(struct wheel *wheel)
{
    agenda_put_aside_back(&wheel->agenda);
}
/* Between passes nothing is kept for the end of one. */
static inline bool wheel_has_ended_pass(const struct wheel *wheel)
{
    return wheel->agenda.aside == 0;
}
/* After the last wheel_take_due of a pass: what is to be done ahead, and fetched. */
static inline void wheel_prepare(struct wheel *wheel)
{
    wheel->ops->prepare(wheel);
}

/* A lower bound of all deadlines; UINT64_MAX: empty. */
uint64_t wheel_earliest(struct wheel *wheel);
/* The earliest deadline. Costs nothing again until that one changes or is taken out. */
uint64_t wheel_earliest_exact(struct wheel *wheel);
/* When wheel_take_due should next be called: a deadline, or work ahead of one. */
uint64_t wheel_next_call(struct wheel *wheel);
/*
 * Would wheel_take_due hand back what has this deadline, the earliest, before its tick is over, and
 * with no more beside it?
 */
bool wheel_is_sparse(const struct wheel *wheel, uint64_t earliest);

/* A bucket beside the wheel, of its chunks. The slot; NULL: no memory for one, nothing happened. */
_Atomic uint64_t *wheel_put_beside(struct wheel *wheel, struct bucket *bucket,
                                   hwt_timeout *timeout);
hwt_timeout *wheel_pop_beside(struct wheel *wheel, struct bucket *bucket);
/* All of it into the wheel. */
void wheel_file_beside(struct wheel *wheel, struct bucket *bucket);
/* The one with the earliest deadline; UINT64_MAX: it is empty. */
struct sighting wheel_first_beside(struct wheel *wheel, struct bucket *bucket);
/* Is what was found there or in the wheel in its slot, with that deadline? */
bool wheel_still_has(const struct sighting *sighting);
/* Looks as far as the first. */
bool wheel_has_beside(struct wheel *wheel, struct bucket *bucket);

/* What was on its way to being run, in any order, its place stale; NULL: nothing is. */
hwt_timeout *wheel_take_on_agenda(struct wheel *wheel);
/* Shows all that is not. Nothing is filed or removed meanwhile. */
void wheel_visit(struct wheel *wheel, bucket_see *see, void *context);
/* The same for a bucket beside it. */
static inline void wheel_visit_beside(struct wheel *wheel, struct bucket *bucket, bucket_see *see,
                                      void *context)
{
    bucket_visit(bucket, see, context, &wheel->shown);
}
/* However `see` was left: what was shown last is where it was. */
static inline void wheel_end_show(struct wheel *wheel)
{
    bucket_end_show(&wheel->shown);
}
/*
 * Takes some out, any, their places stale: how many, 0 when there is none left. Those that are
 * noticed are handed out as such. The lines of several are being fetched.
 */
#define WHEEL_POP BUCKET_BATCH
unsigned wheel_pop(struct wheel *wheel, hwt_timeout **out);
/* Validator of debug builds and tests: counts the timeouts that are not noticed. */
size_t wheel_check(struct wheel *wheel);
#ifdef HWT_DEBUG
/* After a pass: all of it after the first few, then what is short, and the slots by and by. */
#define CHECK_ALL   256 /* passes */
#define CHECK_SLOTS 64  /* after each other one */
void wheel_check_on(struct wheel *wheel);
#endif

/* The tick at which a deadline is due; the time of a tick. */
static inline uint64_t wheel_tick_floor(const struct wheel *wheel, uint64_t ns)
{
    uint64_t tick = (uint64_t)((unsigned __int128)ns * wheel->reciprocal >> 64);

    if (ns - tick * wheel->tick_ns >= wheel->tick_ns) /* the rounding costs at most one */
        tick++;
    return tick;
}

static inline uint64_t wheel_tick_of(const struct wheel *wheel, uint64_t deadline)
{
    uint64_t tick = (uint64_t)((unsigned __int128)deadline * wheel->reciprocal >> 64);
    uint64_t beyond = deadline - tick * wheel->tick_ns; /* less than two ticks */

    return tick + (beyond > 0) + (beyond > wheel->tick_ns);
}

static inline uint64_t wheel_tick_time(const struct wheel *wheel, uint64_t tick)
{
    return tick * wheel->tick_ns;
}

/* Into a batch that has room; the line of its bucket is on its way from here on. */
HOT void wheel_gather_for(struct wheel_batch *batch, hwt_timeout *timeout, uint64_t deadline,
                          uint64_t tick, struct bucket *bucket)
{
    unsigned at = batch->count++;

    hwt_assert(at < WHEEL_BATCH);
    __builtin_prefetch(bucket, 1);
    batch->timeout[at] = timeout;
    batch->deadline[at] = deadline;
    batch->tick[at] = tick;
    batch->bucket[at] = bucket;
}

HOT void wheel_gather(const struct wheel *wheel, struct wheel_batch *batch, hwt_timeout *timeout,
                      uint64_t deadline)
{
    uint64_t tick = wheel_tick_of(wheel, deadline);

    wheel_gather_for(batch, timeout, deadline, tick,
                     wheel->ops->bucket_of(wheel, max_u64(tick, wheel->current)));
}

/* ---- for the kinds ---- */

/* What a slot keeps of a deadline that is filed for that tick. */
HOT uint64_t wheel_key(const struct wheel *wheel, uint64_t deadline, uint64_t tick)
{
    return deadline >> (tick < wheel->far_from ? wheel->agenda.quantum : wheel->far_quantum);
}

/*
 * Whom the bucket has with its earliest deadline, and that is exact from then on. `tick`: one that
 * it was filled for, or UINT64_MAX, which is as good as any that was far.
 */
struct sighting wheel_bucket_scan(struct wheel *wheel, struct bucket *bucket, uint64_t tick);

/*
 * All that is due at this tick is in `due` (NULL: nothing is), or in the pen: into the agenda with
 * it. The bucket is empty afterwards.
 */
void wheel_cover(struct wheel *wheel, uint64_t tick, struct bucket *due);
/*
 * The earliest of the agenda, what was moved beyond `covered` put back; UINT64_MAX: it has nothing
 * but what was put aside.
 */
uint64_t wheel_agenda_earliest(struct wheel *wheel);
/* A portion out of the pen; the first that finds no memory is there again, and ends that. */
void wheel_leave_pen(struct wheel *wheel);
/*
 * Files those of `from` that are due at `limit` into `due` (NULL: none), the others anew: of what
 * was moved to soon after it, where there is a `due`, into the agenda, which knows what is kicked.
 */
void wheel_refile(struct wheel *wheel, struct bucket *from, uint64_t limit, struct bucket *due);
/* What a bucket with more is not looked through for, unless that is asked for. */
#define WHEEL_SCAN_UP_TO 16

/* `size` bytes for the kind's own struct, zeroed, aligned to cache lines; NULL: no memory. */
void *wheel_alloc(size_t size);

#endif
