/* SPDX-License-Identifier: BSD-2-Clause */
#include "timeout.h"

#include "platform.h"

/*
 * Every change of the word is acquire-release: acquire, so that whoever wins sees what the one
 * before left behind; release, so that the next one sees what this one did.
 */
static bool word_change(hwt_timeout *timeout, uint64_t *word, uint64_t deadline,
                        enum word_code code)
{
    return cas_acq_rel(&timeout->word, word, word_make(deadline, code));
}

bool timeout_cancel_pending(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (likely(word_code(word) == WORD_PENDING)) {
        if (likely(word_change(timeout, &word, word_deadline(word), WORD_CANCELLED)))
            return true;
    }
    return false;
}

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
            if (timeout->kind & KIND_PERIODIC)
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

enum move_win timeout_move(hwt_timeout *timeout, uint64_t deadline)
{
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        bool earlier = deadline < word_deadline(word);
        enum word_code code = word_code(word);
        enum word_code to = code;
        enum move_win win = MOVE_DONE;

        if (code == WORD_PENDING && earlier) {
            to = WORD_NUDGED;
            win = MOVE_NUDGE;
        } else if (code == WORD_NUDGED && earlier) {
            win = MOVE_COMPARE;
        } else if (code != WORD_PENDING && code != WORD_NUDGED) {
            return MOVE_LOST;
        }
        /* seq_cst: the comparison with the wake-up that follows must not come first (C4) */
        if (likely(cas_seq(&timeout->word, &word, word_make(deadline, to))))
            return win;
    }
}

enum claim timeout_claim(hwt_timeout *timeout, uint64_t now, enum word_code code)
{
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        if (unlikely(word_code(word) != WORD_PENDING))
            return CLAIM_LEFT;
        if (unlikely(word_deadline(word) > now))
            return CLAIM_LATER;
        if (likely(word_change(timeout, &word, word_deadline(word), code)))
            return CLAIM_WON;
    }
}

bool timeout_take_nudge(hwt_timeout *timeout)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_NUDGED) {
        if (word_change(timeout, &word, word_deadline(word), WORD_PENDING))
            return true;
    }
    return false;
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

bool timeout_rearm(hwt_timeout *timeout, uint64_t deadline, bool *was_running)
{
    uint64_t word = load_acquire(&timeout->word);

    while (word_code(word) == WORD_RUNNING || word_code(word) == WORD_REARMED) {
        *was_running = word_code(word) == WORD_RUNNING;
        if (word_change(timeout, &word, deadline, WORD_REARMED))
            return true;
    }
    return false;
}

enum finish timeout_finish(hwt_timeout *timeout, uint64_t next, enum word_code again)
{
    uint64_t word = load_acquire(&timeout->word);

    for (;;) {
        enum finish finish = FINISH_EXPIRED;
        enum word_code to = WORD_EXPIRED;
        uint64_t deadline = word_deadline(word);

        if (unlikely(word_code(word) == WORD_CANCELLED))
            return FINISH_CANCELLED;
        if (unlikely(word_code(word) == WORD_REARMED ||
                     (word_code(word) == WORD_RUNNING && timeout->kind & KIND_PERIODIC))) {
            finish = FINISH_AGAIN;
            to = again;
            if (word_code(word) == WORD_RUNNING)
                deadline = next;
        }
        if (likely(word_change(timeout, &word, deadline, to)))
            return finish;
    }
}

void timeout_run_over(hwt_timeout *timeout)
{
    /* Without a handle nobody can wait; a handle cannot appear out of nothing. */
    if (load_acquire(&timeout->refs) == 1) {
        store_relaxed(&timeout->run, RUN_NONE);
        return;
    }
    /* Releases what the task did to timeout_await_run. */
    if (unlikely(exchange_acq_rel(&timeout->run, RUN_NONE) == RUN_AWAITED))
        platform_futex_wake_all(&timeout->run);
}

void timeout_await_run(hwt_timeout *timeout)
{
    uint32_t run;

    while ((run = load_acquire(&timeout->run)) != RUN_NONE) { /* pairs with timeout_run_over */
        if (run == RUN_ON && !cas_acq_rel(&timeout->run, &run, (uint32_t)RUN_AWAITED))
            continue;
        platform_futex_wait(&timeout->run, RUN_AWAITED, UINT64_MAX);
    }
}

bool timeout_drop(hwt_timeout *timeout)
{
    /*
     * Alone, nobody else can touch it: no read-modify-write is needed. Acquire pairs with the
     * release of those who dropped before. `withdrawn` stands for a share of the runtime that is
     * over but still counted in `refs`; whoever sets it holds a reference, so it is settled when
     * only two are left. All is read before the reference is given up: after that the block may be
     * somebody else's.
     */
    uint32_t refs = load_acquire(&timeout->refs);

    do {
        if (refs == 1 || (refs == 2 && load_acquire(&timeout->withdrawn)))
            return true;
    } while (!cas_acq_rel(&timeout->refs, &refs, refs - 1));
    return false;
}
