/* SPDX-License-Identifier: BSD-2-Clause */
#include "timeout.h"

#include "platform.h"

enum cancel_win timeout_cancel(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        enum word_code to = WORD_CANCELLED;
        enum cancel_win win = CANCEL_LOST;

        switch (word_code(word)) {
        case WORD_PENDING:
        case WORD_DISPATCHED: win = CANCEL_PENDING; break;
        case WORD_NUDGED: win = CANCEL_NUDGED; break;
        case WORD_REARMED: win = CANCEL_RUNNING; break;
        case WORD_RUNNING:
            if (timeout->flags & FLAG_PERIODIC)
                win = CANCEL_RUNNING;
            else
                to = WORD_LAST; /* lost, but it shall not be re-armed either */
            break;
        case WORD_LAST:
        case WORD_EXPIRED:
        case WORD_CANCELLED: return CANCEL_LOST;
        }
        if (likely(word_change(timeout, &word, word_deadline(word), to)))
            return win;
    }
}

bool timeout_take_nudge(hwt_timeout *timeout, uint64_t *word)
{
    return word_code(*word) == WORD_NUDGED &&
           word_change(timeout, word, word_deadline(*word), WORD_PENDING);
}

bool timeout_reclaim(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_PENDING || word_code(word) == WORD_DISPATCHED) {
        if (word_change(timeout, &word, word_deadline(word), WORD_CANCELLED))
            return true;
    }
    return false;
}

bool timeout_begin(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_DISPATCHED) {
        if (word_change(timeout, &word, word_deadline(word), WORD_RUNNING))
            return true;
    }
    return false;
}

bool timeout_rearm(hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_RUNNING || word_code(word) == WORD_REARMED) {
        if (word_change(timeout, &word, deadline, WORD_REARMED))
            return true;
    }
    return false;
}

enum finish timeout_finish(hwt_timeout *timeout, uint64_t next, enum word_code again)
{
    bool alone = timeout_is_alone(timeout);
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        enum finish finish = FINISH_EXPIRED;
        enum word_code to = WORD_EXPIRED;
        uint64_t deadline = word_deadline(word);

        if (unlikely(word_code(word) == WORD_CANCELLED))
            return FINISH_CANCELLED;
        if (unlikely(word_code(word) == WORD_REARMED ||
                     (word_code(word) == WORD_RUNNING && timeout->flags & FLAG_PERIODIC))) {
            finish = FINISH_AGAIN;
            to = again;
            if (word_code(word) == WORD_RUNNING)
                deadline = next;
        }
        if (likely(word_change_by_keeper(timeout, &word, deadline, to, alone)))
            return finish;
    }
}

/*
 * Who waits for the end of a run sleeps on one of these, found by the timeout's address: a futex
 * word has 32 bits, which a timeout cannot spare. Each end of an awaited run raises it.
 */
static _Atomic uint32_t turnstile[TURNSTILES];

static _Atomic uint32_t *turnstile_of(const hwt_timeout *timeout)
{
    return &turnstile[(uintptr_t)timeout / sizeof *timeout % TURNSTILES];
}

void timeout_run_over(hwt_timeout *timeout)
{
    _Atomic uint32_t *word = turnstile_of(timeout);

    /* Without a handle nobody can wait; a handle cannot appear out of nothing. */
    if (timeout_is_alone(timeout)) {
        store_relaxed(&timeout->run, RUN_NONE);
        return;
    }
    /* Releases what the task did to timeout_await_run. */
    if (likely(exchange_acq_rel(&timeout->run, RUN_NONE) != RUN_AWAITED))
        return;
    add_acq_rel(word, 1);
    platform_futex_wake_all(word);
}

void timeout_await_run(hwt_timeout *timeout)
{
    _Atomic uint32_t *word = turnstile_of(timeout);

    for (;;) {
        uint32_t seen = load_acquire(word); /* before `run`: pairs with timeout_run_over */
        uint8_t run = load_acquire(&timeout->run);

        if (run == RUN_NONE)
            return;
        if (run == RUN_AWAITED || cas_acq_rel(&timeout->run, &run, (uint8_t)RUN_AWAITED))
            platform_futex_wait(word, seen, UINT64_MAX);
    }
}
