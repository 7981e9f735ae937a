/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The word of a timeout (C1): every function from every state of the diagram in timeout.h.
 * References and the end of a run: unit/word_refs.c.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "timeout.h"

#define DEADLINE 1000
#define CODES    8

TestSuite(word, .init = test_arm);

static hwt_timeout subject;

/* ---- the table ---- */

/* What a function makes of a state. `to` is written as a code; LEFT: the word is as it was. */
#define LEFT    0
#define TO(c)   ((c) + 1)
#define ILLEGAL (-1) /* the state cannot be there when this function is called */

struct step {
    int result;
    int to;
    uint64_t deadline; /* 0: as it was */
};

typedef int transition(hwt_timeout *timeout);

static void check_step(const char *name, transition *function, enum word_code from,
                       const struct step *step)
{
    enum word_code to = step->to == LEFT ? from : (enum word_code)(step->to - 1);
    uint64_t deadline = step->deadline ? step->deadline : DEADLINE;

    store_relaxed(&subject.word, word_make(DEADLINE, from));
    cr_expect_eq(function(&subject), step->result, "%s from %d", name, (int)from);
    cr_expect_eq(word_code(load_relaxed(&subject.word)), to, "%s from %d", name, (int)from);
    cr_expect_eq(word_deadline(load_relaxed(&subject.word)), deadline, "%s from %d", name,
                 (int)from);
}

static void check_row(const char *name, transition *function, const struct step row[CODES])
{
    for (int from = 0; from < CODES; from++) {
        if (row[from].result != ILLEGAL)
            check_step(name, function, (enum word_code)from, &row[from]);
    }
}

#define CHECK_ROW(function, ...)                                                                   \
    check_row(#function, function, (const struct step[CODES])__VA_ARGS__)

/* ---- cancel ---- */

static int cancel(hwt_timeout *timeout)
{
    return (int)timeout_cancel(timeout);
}

static int cancel_pending(hwt_timeout *timeout)
{
    return timeout_cancel_pending(timeout);
}

Test(word, cancel_once)
{
    CHECK_ROW(cancel, {[WORD_PENDING] = {CANCEL_PENDING, TO(WORD_CANCELLED), 0},
                       [WORD_NUDGED] = {CANCEL_NUDGED, TO(WORD_CANCELLED), 0},
                       [WORD_DISPATCHED] = {CANCEL_PENDING, TO(WORD_CANCELLED), 0},
                       [WORD_RUNNING] = {CANCEL_LOST, TO(WORD_LAST), 0},
                       [WORD_REARMED] = {CANCEL_RUNNING, TO(WORD_CANCELLED), 0},
                       [WORD_LAST] = {CANCEL_LOST, LEFT, 0},
                       [WORD_EXPIRED] = {CANCEL_LOST, LEFT, 0},
                       [WORD_CANCELLED] = {CANCEL_LOST, LEFT, 0}});
}

Test(word, cancel_periodic)
{
    subject.flags = FLAG_EXTENDED | FLAG_PERIODIC;
    CHECK_ROW(cancel, {[WORD_PENDING] = {CANCEL_PENDING, TO(WORD_CANCELLED), 0},
                       [WORD_NUDGED] = {CANCEL_NUDGED, TO(WORD_CANCELLED), 0},
                       [WORD_DISPATCHED] = {CANCEL_PENDING, TO(WORD_CANCELLED), 0},
                       [WORD_RUNNING] = {CANCEL_RUNNING, TO(WORD_CANCELLED), 0},
                       [WORD_REARMED] = {CANCEL_RUNNING, TO(WORD_CANCELLED), 0},
                       [WORD_LAST] = {CANCEL_LOST, LEFT, 0},
                       [WORD_EXPIRED] = {CANCEL_LOST, LEFT, 0},
                       [WORD_CANCELLED] = {CANCEL_LOST, LEFT, 0}});
}

Test(word, cancel_pending)
{
    CHECK_ROW(cancel_pending, {[WORD_PENDING] = {true, TO(WORD_CANCELLED), 0}});
}

Test(word, has_ended)
{
    for (int code = 0; code < CODES; code++) {
        store_relaxed(&subject.word, word_make(DEADLINE, (enum word_code)code));
        cr_expect_eq(timeout_has_ended(&subject), code == WORD_EXPIRED || code == WORD_CANCELLED);
    }
}

/* ---- move ---- */

static int move_later(hwt_timeout *timeout)
{
    return (int)timeout_move(timeout, DEADLINE + 1);
}

static int move_nowhere(hwt_timeout *timeout)
{
    return (int)timeout_move(timeout, DEADLINE);
}

static int move_earlier(hwt_timeout *timeout)
{
    return (int)timeout_move(timeout, DEADLINE - 1);
}

static int move_to_never(hwt_timeout *timeout)
{
    return (int)timeout_move(timeout, DEADLINE_NEVER);
}

static int move_to_the_beginning(hwt_timeout *timeout)
{
    return (int)timeout_move(timeout, 0);
}

Test(word, move)
{
    CHECK_ROW(move_later, {[WORD_PENDING] = {MOVE_DONE, LEFT, DEADLINE + 1},
                           [WORD_NUDGED] = {MOVE_COMPARE, LEFT, DEADLINE + 1}});
    CHECK_ROW(move_nowhere,
              {[WORD_PENDING] = {MOVE_DONE, LEFT, 0}, [WORD_NUDGED] = {MOVE_COMPARE, LEFT, 0}});
    CHECK_ROW(move_earlier, {[WORD_PENDING] = {MOVE_NUDGE, TO(WORD_NUDGED), DEADLINE - 1},
                             [WORD_NUDGED] = {MOVE_COMPARE, LEFT, DEADLINE - 1}});
    CHECK_ROW(move_to_never, {[WORD_PENDING] = {MOVE_DONE, LEFT, DEADLINE_NEVER},
                              [WORD_NUDGED] = {MOVE_COMPARE, LEFT, DEADLINE_NEVER}});
}

Test(word, move_to_the_beginning_of_time)
{
    store_relaxed(&subject.word, word_make(DEADLINE_NEVER, WORD_PENDING));
    cr_assert_eq(move_to_the_beginning(&subject), MOVE_NUDGE);
    cr_assert_eq(load_relaxed(&subject.word), word_make(0, WORD_NUDGED));
    cr_assert_eq(move_to_the_beginning(&subject), MOVE_COMPARE, "the nudge may not be told yet");
}

/* ---- the worker ---- */

static int claim_in_time(hwt_timeout *timeout)
{
    return (int)timeout_claim(timeout, DEADLINE, WORD_RUNNING);
}

static int claim_early(hwt_timeout *timeout)
{
    return (int)timeout_claim(timeout, DEADLINE - 1, WORD_RUNNING);
}

static int claim_for_executor(hwt_timeout *timeout)
{
    return (int)timeout_claim(timeout, DEADLINE + 1, WORD_DISPATCHED);
}

#define ALL_LEFT(result)                                                                           \
    [WORD_NUDGED] = {result, LEFT, 0}, [WORD_DISPATCHED] = {result, LEFT, 0},                      \
    [WORD_RUNNING] = {result, LEFT, 0}, [WORD_REARMED] = {result, LEFT, 0},                        \
    [WORD_LAST] = {result, LEFT, 0}, [WORD_EXPIRED] = {result, LEFT, 0},                           \
    [WORD_CANCELLED] = {result, LEFT, 0}

Test(word, claim)
{
    CHECK_ROW(claim_in_time,
              {[WORD_PENDING] = {CLAIM_WON, TO(WORD_RUNNING), 0}, ALL_LEFT(CLAIM_LEFT)});
    CHECK_ROW(claim_for_executor,
              {[WORD_PENDING] = {CLAIM_WON, TO(WORD_DISPATCHED), 0}, ALL_LEFT(CLAIM_LEFT)});
    CHECK_ROW(claim_early, {[WORD_PENDING] = {CLAIM_LATER, LEFT, 0}, ALL_LEFT(CLAIM_LEFT)});
}

static int take_nudge(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    return timeout_take_nudge(timeout, &word);
}

static int reclaim(hwt_timeout *timeout)
{
    return timeout_reclaim(timeout);
}

Test(word, take_nudge)
{
    CHECK_ROW(take_nudge, {[WORD_NUDGED] = {true, TO(WORD_PENDING), 0}});
}

Test(word, reclaim)
{
    CHECK_ROW(reclaim, {[WORD_PENDING] = {true, TO(WORD_CANCELLED), 0},
                        [WORD_DISPATCHED] = {true, TO(WORD_CANCELLED), 0}});
}

/* ---- whoever runs the task ---- */

static int begin(hwt_timeout *timeout)
{
    return timeout_begin(timeout);
}

static int rearm(hwt_timeout *timeout)
{
    return timeout_rearm(timeout, DEADLINE + 50);
}

static int finish(hwt_timeout *timeout)
{
    return (int)timeout_finish(timeout, DEADLINE + 70, WORD_PENDING);
}

static int finish_elsewhere(hwt_timeout *timeout)
{
    return (int)timeout_finish(timeout, DEADLINE + 70, WORD_NUDGED);
}

Test(word, begin)
{
    CHECK_ROW(begin, {[WORD_DISPATCHED] = {true, TO(WORD_RUNNING), 0}});
}

Test(word, rearm)
{
    CHECK_ROW(rearm, {[WORD_RUNNING] = {true, TO(WORD_REARMED), DEADLINE + 50},
                      [WORD_REARMED] = {true, LEFT, DEADLINE + 50}});
}

/* Only a run that is on can finish. */
#define NOT_RUNNING                                                                                \
    [WORD_PENDING] = {ILLEGAL, 0, 0}, [WORD_NUDGED] = {ILLEGAL, 0, 0},                             \
    [WORD_DISPATCHED] = {ILLEGAL, 0, 0}, [WORD_EXPIRED] = {ILLEGAL, 0, 0}

Test(word, finish_once)
{
    CHECK_ROW(finish, {[WORD_RUNNING] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                       [WORD_REARMED] = {FINISH_AGAIN, TO(WORD_PENDING), 0},
                       [WORD_LAST] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                       [WORD_CANCELLED] = {FINISH_CANCELLED, LEFT, 0},
                       NOT_RUNNING});
    CHECK_ROW(finish_elsewhere, {[WORD_RUNNING] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                                 [WORD_REARMED] = {FINISH_AGAIN, TO(WORD_NUDGED), 0},
                                 [WORD_LAST] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                                 [WORD_CANCELLED] = {FINISH_CANCELLED, LEFT, 0},
                                 NOT_RUNNING});
}

/* A periodic one goes on by itself, unless its task gave another deadline. */
Test(word, finish_periodic)
{
    subject.flags = FLAG_EXTENDED | FLAG_PERIODIC;
    CHECK_ROW(finish, {[WORD_RUNNING] = {FINISH_AGAIN, TO(WORD_PENDING), DEADLINE + 70},
                       [WORD_REARMED] = {FINISH_AGAIN, TO(WORD_PENDING), 0},
                       [WORD_LAST] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                       [WORD_CANCELLED] = {FINISH_CANCELLED, LEFT, 0},
                       NOT_RUNNING});
    CHECK_ROW(finish_elsewhere, {[WORD_RUNNING] = {FINISH_AGAIN, TO(WORD_NUDGED), DEADLINE + 70},
                                 [WORD_REARMED] = {FINISH_AGAIN, TO(WORD_NUDGED), 0},
                                 [WORD_LAST] = {FINISH_EXPIRED, TO(WORD_EXPIRED), 0},
                                 [WORD_CANCELLED] = {FINISH_CANCELLED, LEFT, 0},
                                 NOT_RUNNING});
}

/* ---- the word itself ---- */

Test(word, holds_every_deadline_and_code)
{
    const uint64_t deadlines[] = {0, 1, HWT_SEC(1), DEADLINE_NEVER - 1, DEADLINE_NEVER};

    for (size_t i = 0; i < COUNT_OF(deadlines); i++) {
        for (int code = 0; code < CODES; code++) {
            uint64_t word = word_make(deadlines[i], (enum word_code)code);
            cr_assert_eq(word_deadline(word), deadlines[i]);
            cr_assert_eq(word_code(word), (enum word_code)code);
        }
    }
    cr_assert_gt(DEADLINE_NEVER / HWT_SEC(86400 * 365), 70, "years until never");
}

/* ---- the packed word of lanes and buckets ---- */

Test(word, packs_an_address_and_22_bits)
{
    hwt_timeout *const highest = (hwt_timeout *)(uintptr_t)PACKED_ADDRESS;
    hwt_timeout *const timeouts[] = {NULL, &subject, highest};
    const uint64_t bits[] = {0, 1, 63, 64, 65, 0x155555, 0x2aaaaa, (1u << PACKED_BITS) - 1};

    for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
        for (size_t j = 0; j < COUNT_OF(bits); j++) {
            uint64_t packed = packed_make(timeouts[i], bits[j]);
            cr_assert_eq(packed_timeout(packed), timeouts[i]);
            cr_assert_eq(packed_bits(packed), bits[j]);
            cr_assert_eq(packed_make(timeouts[i], bits[j] + (7ull << PACKED_BITS)), packed,
                         "the lowest 22 bits of more");
        }
    }
}
