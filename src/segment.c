/* SPDX-License-Identifier: BSD-2-Clause */
#include "segment.h"

#include "platform.h"

#define ALL_PARTS ((1u << SEGMENT_PARTS) - 1)

#define MEET_SLOTS (MEET_GROUPS * GROUP_SLOTS)
static_assert(LANE_GROUPS % MEET_GROUPS == 0, "a segment is so many whole pieces");

/*
 * Several pages at once, shortly before the first of them is come to: each would be waited for. But
 * not the first ones of a lane's first segments, which are as many as there are timers with a
 * timeout.
 */
static void meet_piece(struct segment *segment, uint32_t piece)
{
    platform_populate_pages(&segment->slot[piece * MEET_SLOTS], MEET_SLOTS * sizeof(lane_slot));
}

static void meet_pages(struct segment *segment, uint32_t used, uint32_t groups)
{
    uint32_t piece = (groups - 1 + MEET_EARLY) / MEET_GROUPS, first = piece * MEET_GROUPS;

    if (unlikely(piece > 0 && first < LANE_GROUPS && used + MEET_EARLY <= first && !segment->whole))
        meet_piece(segment, piece);
}

/* ---- more ---- */

void segment_link(struct segment *here, struct segment *segment)
{
    struct segment *next = segment_next(here);

    do {
        store_relaxed(&segment->next, next);
    } while (!cas_seq(&here->next, &next, segment));
}

/* In the ring by now: who comes by here fills only what a sweep finds. */
static void link_alike(struct segment *here, struct segment *segment)
{
    struct segment *alike = load_acquire(&here->alike);

    do {
        store_relaxed(&segment->alike, alike);
    } while (!cas_acq_rel(&here->alike, &alike, segment));
}

/* The next one that is as far. */
static struct segment *next_alike(const struct segment *segment)
{
    return load_acquire(&segment->alike); /* pairs with link_alike */
}

struct segment *segment_add(struct segment_store *store, struct segment *here)
{
    struct segment *segment = segment_create(store, here->lane, here->far);

    if (segment) {
        if (!segment->whole)
            meet_piece(segment, 0);
        segment_link(here, segment);
        link_alike(here, segment);
    }
    return segment;
}

static bool count_far(struct segment_store *store, uint32_t more)
{
    uint32_t before = add_seq(&store->far_groups, more); /* before the worker is told, if it is */

    return segment_doubled(before, before + more);
}

bool segment_raise_groups(struct segment *segment, uint32_t groups)
{
    uint32_t used = load_relaxed(&segment->groups_used);

    while (used < groups) {
        if (cas_seq(&segment->groups_used, &used, groups)) { /* C6: lane_sweep_all */
            meet_pages(segment, used, groups);
            return segment->far && count_far(segment->store, groups - used);
        }
    }
    return false;
}

/*
 * A part at a time, as it is come to: all 32 pages of a segment at once took one call 0.2 ms. Its
 * last parts may go while it is used again, or it may retire once more: then a page comes by a
 * fault, or stays a while.
 */
void segment_enter_part(lane_slot *first)
{
    struct segment *segment = segment_of(first);
    uint32_t part = 1u << (uint32_t)(first - segment->slot) / RELEASE_SLOTS % SEGMENT_PARTS;

    if (likely(!(load_relaxed(&segment->released) & part)))
        return;
    and_relaxed(&segment->released, ~part);
    platform_populate_pages(first, PART_SIZE);
}

/* Several may be about to: whoever changes it counts, by what it says. */
static void retire(struct segment *segment)
{
    uint32_t groups = load_relaxed(&segment->groups_used), in_use = 0;

    if (unlikely(load_relaxed(&segment->retired)))
        return;
    store_relaxed(&segment->released, 0);
    if (cas_acq_rel(&segment->retired, &in_use, groups + 1) && segment->far)
        sub_relaxed(&segment->store->far_groups, groups);
}

static void use_again(struct segment *segment)
{
    uint32_t retired = exchange_acq_rel(&segment->retired, 0);

    segment_enter_part(segment->slot);
    if (retired && segment->far)
        add_seq(&segment->store->far_groups, retired - 1); /* as above */
}

/*
 * Each is in a page of its own, which nobody may have touched for long: as few as will do. Those
 * that were never filled have no page, and a look would wait for one: for whoever maps or unmaps
 * something just then, however long the system keeps him from a CPU.
 */
static unsigned sample(const struct segment *segment, unsigned count)
{
    unsigned used = load_relaxed(&segment->groups_used) * GROUP_SLOTS, step = LANE_SLOTS / count;
    unsigned taken = 0;

    for (unsigned at = 0; at < used; at += step)
        taken += packed_timeout(load_relaxed(&segment->slot[at])) != NULL;
    return taken;
}

unsigned segment_sample(const struct segment *segment)
{
    return sample(segment, SAMPLES);
}

static bool has_given_all(const struct segment *segment)
{
    return load_relaxed(&segment->released) == ALL_PARTS;
}

static bool has_pages(const struct segment *segment)
{
    return !load_relaxed(&segment->retired) || !has_given_all(segment);
}

/* Mostly a few tell. */
static bool has_room(const struct segment *segment)
{
    unsigned taken = sample(segment, SAMPLES_FIRST);

    if (4 * taken <= SAMPLES_FIRST)
        return true;
    return 4 * taken < 3 * SAMPLES_FIRST && segment_sample(segment) < SAMPLES_TAKEN;
}

/*
 * A stretch of the ring: what is found there need not be the nearest, and where nothing is, one
 * more for each stretch is a small part of what there is.
 */
struct segment *segment_with_room(struct survey *survey, struct segment **retired)
{
    struct segment *begin = load_acquire(&survey->at), *segment = begin;
    bool found = false;

    *retired = NULL;
    for (unsigned steps = 0; !found && steps < ROOM_MOST; steps++) {
        segment = next_alike(segment);
        if (unlikely(load_relaxed(&segment->retired)))
            *retired = segment;
        else
            found = has_room(segment);
        if (segment == begin)
            break;
    }
    store_release(&survey->at, segment);
    return found ? segment : NULL;
}

struct segment *segment_more(struct segment_store *store, struct segment *here,
                             struct segment *retired)
{
    if (!retired)
        return segment_add(store, here);
    use_again(retired);
    return retired;
}

/* To fill pages that have gone would be to grow, too. A sample costs as much as several looks. */
struct segment *segment_for_another(const struct segment *here, struct survey *survey,
                                    unsigned *looks)
{
    struct segment *begin = load_acquire(&survey->at), *segment = begin;
    bool found = false;

    if (next_alike(here) == here)
        return NULL;
    for (; !found && *looks > 0; --*looks) {
        segment = next_alike(segment);
        if (segment != here && has_pages(segment)) {
            *looks = *looks > SAMPLES_FIRST ? *looks - SAMPLES_FIRST : 1;
            found = has_room(segment);
        }
        if (segment == begin)
            break;
    }
    store_release(&survey->at, segment);
    if (found && load_relaxed(&segment->retired))
        use_again(segment);
    return found ? segment : NULL;
}

/* ---- fewer ---- */

static void reopen_slots(lane_slot *slot, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        store_release(&slot[i], load_relaxed(&slot[i]) & ~SLOT_CLOSED);
}

/*
 * All slots of a part, if none of them holds anything: their counts, all told. Otherwise those that
 * have been closed are open again.
 */
static bool close_part(lane_slot *slot, uint64_t *counts)
{
    *counts = 0;
    for (unsigned i = 0; i < RELEASE_SLOTS; i++) {
        if (!slot_close(&slot[i], counts)) {
            reopen_slots(slot, i);
            return false;
        }
    }
    return true;
}

/*
 * By who is `releasing`: so many parts, which are closed. Their counts are carried before the pages
 * go, so that at no moment they are counted nowhere, or twice (C23). False: the system has kept
 * some; their slots are as they were closed.
 */
static bool release_closed(struct segment *segment, uint32_t part, unsigned count,
                           const uint64_t *counts)
{
    lane_slot *slot = &segment->slot[part * RELEASE_SLOTS];
    uint32_t kept = 0;
    uint64_t sum = 0;

    for (unsigned i = 0; i < count; i++)
        sum += counts[i];
    segment_carry(segment, ((1u << count) - 1) << part, sum);
    platform_release_pages((void *)(uintptr_t)slot, count * PART_SIZE);
    sum = 0;
    for (unsigned i = 0; i < count; i++) {
        if (slot_is_closed(load_acquire(&slot[i * RELEASE_SLOTS]))) {
            kept |= 1u << i;
            sum += counts[i];
        }
    }
    segment_carry(segment, 0, -sum);
    for (unsigned i = 0; i < count; i++) {
        if (kept & 1u << i)
            reopen_slots(&slot[i * RELEASE_SLOTS], RELEASE_SLOTS);
    }
    return kept == 0;
}

/* From the next part on, as many as lie side by side and can go, `most` of them. How many went. */
static unsigned release_next_parts(struct segment *segment, unsigned most)
{
    uint64_t counts[SEGMENT_PARTS];
    uint32_t part, bits;
    unsigned count = 0;

    if (exchange_acq_rel(&segment->releasing, 1))
        return 0;
    part = segment->part;
    while (count < most && part + count < SEGMENT_PARTS &&
           !(load_relaxed(&segment->released) & 1u << (part + count)) &&
           close_part(&segment->slot[(part + count) * RELEASE_SLOTS], &counts[count]))
        count++;
    bits = ((1u << count) - 1) << part;
    if (count > 0 && release_closed(segment, part, count, counts))
        or_seq(&segment->released, bits);
    else
        count = 0;
    segment->part = (part + (count > 0 ? count : 1)) % SEGMENT_PARTS;
    store_release(&segment->releasing, 0);
    return count;
}

static bool is_leaving(const struct segment *segment)
{
    return load_relaxed(&segment->retired) && has_pages(segment);
}

/* Of the next few, or NULL. */
static struct segment *next_leaving(struct segment *segment)
{
    for (unsigned steps = 0; steps < SURVEY_MOST; steps++) {
        segment = next_alike(segment);
        if (is_leaving(segment))
            return segment;
    }
    return NULL;
}

bool segment_give_back(struct survey *survey, unsigned most)
{
    struct segment *segment = load_acquire(&survey->leaving);

    if (likely(!segment))
        return false;
    if (!is_leaving(segment)) {
        store_release(&survey->leaving, next_leaving(segment));
        return false;
    }
    return release_next_parts(segment, most) > 0;
}

/* What is known of the stretch that is being looked at: a few segments with each lap. */
struct stretch {
    uint32_t steps, in_use, taken;
    struct segment *last; /* in use, or NULL */
};

static struct stretch stretch_so_far(const struct survey *survey, const struct segment *here)
{
    struct stretch stretch = {load_relaxed(&survey->steps), load_relaxed(&survey->in_use),
                              load_relaxed(&survey->taken), load_acquire(&survey->last)};

    return stretch.steps > 0 ? stretch : (struct stretch){0, 1, sample(here, SAMPLES_FIRST), NULL};
}

/* The producers' own was, when the stretch began. */
static void look_at(struct stretch *stretch, struct segment *segment, const struct segment *here)
{
    if (segment == here)
        return;
    stretch->taken += sample(segment, SAMPLES_FIRST);
    stretch->in_use++;
    stretch->last = segment;
}

static void keep_stretch(struct survey *survey, struct stretch stretch)
{
    store_relaxed(&survey->steps, stretch.steps);
    store_relaxed(&survey->in_use, stretch.in_use);
    store_relaxed(&survey->taken, stretch.taken);
    store_release(&survey->last, stretch.last);
}

/* The next one that is in use, if it is not far off. */
static struct segment *next_in_use(struct segment *here)
{
    struct segment *next = next_alike(here);

    for (unsigned steps = 0; steps < SURVEY_MOST && next != here;
         steps++, next = next_alike(next)) {
        if (!load_relaxed(&next->retired))
            return next;
    }
    if (unlikely(load_relaxed(&here->retired)))
        use_again(here);
    return here;
}

/*
 * Where few are left in all of it, one retires. Looks and producers may go round in step, so that
 * only these have been met: then the next one that they would come to.
 */
static void end_stretch(struct stretch *stretch, struct segment *here)
{
    if (!stretch->last)
        look_at(stretch, next_in_use(here), here);
    if (stretch->last && stretch->taken * FEW_BELOW < stretch->in_use * SAMPLES_FIRST &&
        has_room(stretch->last)) /* still: it may have been seen laps ago */
        retire(stretch->last);
    stretch->steps = 0;
}

/* A few segments on; what had retired before has pages to give back. */
static void look_on(struct segment *here, struct survey *survey)
{
    struct segment *begin = load_acquire(&survey->at), *segment = begin, *leaving = NULL;
    struct stretch stretch = stretch_so_far(survey, here);

    for (unsigned looks = 0; looks < LAP_MOST; looks++) {
        segment = next_alike(segment);
        stretch.steps++;
        if (likely(!load_relaxed(&segment->retired)))
            look_at(&stretch, segment, here);
        else if (!has_given_all(segment))
            leaving = segment;
        if (segment == begin) {
            stretch.steps = SURVEY_MOST; /* these are all */
            break;
        }
    }
    store_release(&survey->at, segment);
    if (leaving)
        store_release(&survey->leaving, leaving);
    if (stretch.steps >= SURVEY_MOST && stretch.last != here) /* or a lap later */
        end_stretch(&stretch, here);
    keep_stretch(survey, stretch);
}

/* Rather round the same one again than into one that is crowded. */
struct segment *segment_after(struct segment *here, struct survey *survey)
{
    struct segment *next;

    if (likely(next_alike(here) == here))
        return here;
    look_on(here, survey);
    next = next_in_use(here);
    return next != here && !has_room(next) && has_room(here) ? here : next;
}
