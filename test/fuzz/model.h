/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model that fuzz/api.c holds the library to: a plain list of timeouts, what each must do next,
 * and the ledger. The library's callbacks and the calls that change a timeout are here, each
 * checked against the model on the spot; fuzz/api.c drives them.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "stress/stress.h"

enum { MODELS = 96 };

/* What a task does when it runs. */
enum script {
    DO_NOTHING,
    DO_SUBMIT_NOW,
    DO_CANCEL_OTHER,
    DO_MOVE_OTHER,
    DO_REARM,
    DO_CANCEL_SELF,
    DO_FORBIDDEN,
    DO_LOOK_AHEAD,
    SCRIPTS
};

struct model {
    hwt_timeout *timeout; /* one reference, if it is held: until the slot is used again */
    bool used, held, pending, running, hooked;
    bool unnamed;  /* the reference is dropped at once */
    bool shown;    /* by the visit that is on */
    bool fresh;    /* due only since this pass began: may run in it or in the next ... */
    bool moved;    /* ... by a move, which may have left it where it was */
    bool hook_due; /* cancelled while it ran: its hook follows the task */
    uint64_t deadline, period, rearm_delay;
    uint64_t submission; /* in this order equal deadlines run */
    hwt_period_mode mode;
    enum script script;
    uint8_t other;
    uint32_t hooks;
};

struct input {
    const uint8_t *bytes;
    size_t left;
};

static hwt_timer *timer;
static struct model models[MODELS];
static struct input input;
static hwt_stats expected;
static uint64_t now_ns, tick_ns, max_pending;
static uint64_t submissions;
static bool in_pass, stopping;
static int pass_runs;

/* ---- the input ---- */
static uint8_t byte(void)
{
    if (input.left == 0)
        return 0;
    input.left--;
    return *input.bytes++;
}

/* A duration of any magnitude; with all bits set it is too large for any clock. */
static uint64_t duration(void)
{
    unsigned magnitude = byte() % 64;
    uint64_t value = byte();

    if (magnitude >= 60)
        return UINT64_MAX - value;
    if (magnitude >= 48)
        return value * HWT_USEC(100);
    return ((value << 40) | (uint64_t)byte() << 32) >> (48 - magnitude);
}

static uint64_t read_clock(void *clock)
{
    return *(uint64_t *)clock;
}

/* ---- the model ---- */
static bool is_never(uint64_t deadline)
{
    return deadline >= UINT64_C(1) << 60;
}

static uint64_t after(uint64_t delay)
{
    return delay > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + delay;
}

static uint64_t model_pending(void)
{
    return expected.scheduled - expected.expired - expected.cancelled - expected.unprocessed;
}

static void check_deadline(const struct model *m)
{
    uint64_t deadline = hwt_timeout_deadline(m->timeout);

    STRESS_CHECK(is_never(m->deadline) ? is_never(deadline) : deadline == m->deadline,
                 "deadline %" PRIu64 ", not %" PRIu64, deadline, m->deadline);
}

static void check_state(const struct model *m)
{
    hwt_state state = hwt_timeout_state(m->timeout);

    if (m->running)
        return;
    STRESS_CHECK((state == HWT_PENDING) == m->pending, "state %d, pending %d", (int)state,
                 m->pending);
    STRESS_CHECK(hwt_timeout_is_cancelled(m->timeout) == (state == HWT_CANCELLED), "cancelled?");
    STRESS_CHECK(hwt_timeout_is_expired(m->timeout) == (state == HWT_EXPIRED), "expired?");
    if (m->pending)
        check_deadline(m);
}

static void model_cancelled(struct model *m)
{
    m->pending = false;
    expected.cancelled++;
    if (m->running) {
        m->hook_due = m->hooked;
        return;
    }
    STRESS_CHECK(m->hooks == m->hooked, "G10: %u hooks after cancel", m->hooks);
}

/* ---- what the library calls ---- */
static void submit(uint64_t delay, bool plain);
static void cancel(struct model *m, bool sync);
static void move(struct model *m, uint64_t delay, bool at);
static void check_next(void);

static void hook(hwt_timeout *timeout, void *arg)
{
    struct model *m = arg;

    STRESS_CHECK(m->used && m->timeout == timeout, "G10: the hook of a stranger");
    STRESS_CHECK(m->hooked && m->hooks == 0, "G10: a hook too many");
    STRESS_CHECK(!m->running || m->hook_due, "G10: the hook beside its task");
    STRESS_CHECK(hwt_timeout_is_cancelled(timeout), "G10: not cancelled");
    m->hooks++;
    m->hook_due = m->running = false;
    if (stopping && m->pending) {
        m->pending = false;
        expected.unprocessed++;
    }
}

static void try_forbidden(hwt_timeout *timeout)
{
    hwt_unprocessed list = {0};

    STRESS_CHECK(hwt_timer_advance(timer) == -EDEADLK, "advance inside a task");
    STRESS_CHECK(hwt_timer_stop(timer, &list) == -EDEADLK, "stop inside a task");
    STRESS_CHECK(hwt_timer_destroy(timer) == -EDEADLK, "destroy inside a task");
    STRESS_CHECK(hwt_timeout_cancel_sync(timeout) == -EDEADLK, "cancel_sync inside its task");
}

static void rearm(struct model *m)
{
    bool possible = m->period == 0;

    if (!possible)
        return; /* what a move in its own task means to a periodic one is not the model's affair */
    STRESS_CHECK(hwt_timeout_reschedule(m->timeout, m->rearm_delay), "it cannot be re-armed");
    m->deadline = after(m->rearm_delay);
    m->pending = m->fresh = true;
}

static void play_script(struct model *m)
{
    struct model *other = &models[m->other % MODELS];

    switch (m->script) {
    case DO_SUBMIT_NOW: submit(0, true); break;
    case DO_CANCEL_OTHER:
        if (other->held && other != m)
            cancel(other, m->other & 128);
        break;
    case DO_MOVE_OTHER:
        if (other->held && other != m)
            move(other, m->rearm_delay, false);
        break;
    case DO_REARM: rearm(m); break;
    case DO_CANCEL_SELF: cancel(m, false); break;
    case DO_FORBIDDEN: try_forbidden(m->timeout); break;
    case DO_LOOK_AHEAD:
        if (m->period == 0 || m->mode != HWT_FIXED_RATE_SKIP) /* see settle_skip */
            check_next();
        break;
    default: break;
    }
}

/* Called as the task of a periodic one begins, so that its script sees what others see. */
static void expect_next_run(struct model *m)
{
    uint64_t missed = now_ns - m->deadline;

    switch (m->mode) {
    case HWT_FIXED_RATE: m->deadline += m->period; break;
    case HWT_FIXED_RATE_SKIP: /* of a run due just now either may be meant: see settle_skip */
        m->deadline += (missed / m->period + 1) * m->period;
        break;
    case HWT_FIXED_DELAY: m->deadline = after(m->period); break;
    }
    m->fresh = true;
}

/* A deadline that falls on this very moment is not missed yet: both answers keep G14. */
static void settle_skip(struct model *m)
{
    uint64_t deadline = hwt_timeout_deadline(m->timeout);

    if (m->period > 0 && m->mode == HWT_FIXED_RATE_SKIP && deadline == now_ns &&
        m->deadline == now_ns + m->period)
        m->deadline = deadline;
}

/* Exact, in a task too; but what is due now may be said to be due at any time before. */
static void check_next(void)
{
    uint64_t next = hwt_timer_next_deadline(timer), first = UINT64_MAX;

    for (int i = 0; i < MODELS; i++) {
        if (models[i].pending && models[i].held && !models[i].running)
            settle_skip(&models[i]);
        if (models[i].pending && models[i].deadline < first)
            first = models[i].deadline;
    }
    if (!is_never(first))
        STRESS_CHECK(next == first || (first <= now_ns && next <= now_ns),
                     "next %" PRIu64 ", first %" PRIu64, next, first);
    if (model_pending() == 0)
        STRESS_CHECK(next == UINT64_MAX, "nothing is pending, next %" PRIu64, next);
}

static bool runs_before(const struct model *a, const struct model *b)
{
    return a->deadline < b->deadline ||
           (a->deadline == b->deadline && a->submission < b->submission);
}

/* Of all that was accepted or moved before the pass it is the first that is left. */
static void check_order(const struct model *m)
{
    STRESS_CHECK(in_pass, "a task outside of advance");
    STRESS_CHECK(m->pending, "G2: a task that should not run");
    STRESS_CHECK(m->deadline <= now_ns, "G1: %" PRIu64 " ns early", m->deadline - now_ns);
    if (m->fresh)
        return;
    for (const struct model *other = models; other < models + MODELS; other++)
        STRESS_CHECK(!other->pending || other->fresh || !runs_before(other, m),
                     "G15: %" PRIu64 " before %" PRIu64, m->deadline, other->deadline);
}

/* What a task made for "now" comes after everything that was due (G11). */
static void check_overtaking(const struct model *m)
{
    if (!m->fresh || m->moved || m->period > 0)
        return;
    for (int i = 0; i < MODELS; i++)
        STRESS_CHECK(!models[i].pending || models[i].fresh || models[i].deadline > now_ns,
                     "G11: a task made just now overtook one that was due");
}

static void task(hwt_timeout *timeout, void *arg)
{
    struct model *m = arg;

    STRESS_CHECK(m->used && m->timeout == timeout, "the task of a stranger");
    settle_skip(m);
    check_deadline(m);
    check_order(m);
    check_overtaking(m);
    m->running = true;
    expected.runs++;
    pass_runs++;
    if (m->period == 0) {
        m->pending = false;
        expected.expired++;
    } else {
        expect_next_run(m);
    }
    STRESS_CHECK(hwt_timer_pending(timer) == model_pending(), "G3: pending in a task");
    if (m->script == DO_REARM && m->period == 0)
        expected.expired--; /* it goes on */
    play_script(m);
    m->running = m->hook_due;
}

/* ---- calls ---- */
static void fill(struct model *m, uint64_t delay, bool plain)
{
    uint8_t form = plain ? 0 : byte();

    *m = (struct model){.deadline = after(delay), .script = DO_NOTHING};
    if (plain)
        return;
    m->hooked = form & 1;
    m->unnamed = form & 8;
    m->script = (enum script)((form >> 4) % SCRIPTS);
    m->other = byte();
    m->rearm_delay = duration() % HWT_SEC(1000);
    if ((form & 6) == 6) {
        m->mode = (hwt_period_mode)(byte() % 3);
        m->period = 1 + duration() % HWT_SEC(100);
        if (m->mode == HWT_FIXED_RATE)
            m->period += HWT_SEC(600); /* the clock may jump by a day: that many runs to catch up */
    }
}

static int call_schedule(struct model *m, uint64_t delay)
{
    hwt_spec spec;

    if (!m->hooked && m->period == 0 && m->other % 2)
        return hwt_new_timeout(timer, task, m, delay, &m->timeout);
    if (!m->hooked && m->period == 0)
        return hwt_new_timeout_at(timer, task, m, m->deadline, &m->timeout);
    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = m->hooked ? hook : NULL;
    spec.arg = m;
    spec.delay_ns = delay;
    spec.period_ns = m->period;
    spec.period_mode = m->mode;
    return hwt_schedule(timer, &spec, &m->timeout);
}

static struct model *free_model(void)
{
    for (int i = 0; i < MODELS; i++) {
        struct model *m = &models[i];

        if (m->used && (m->pending || m->running))
            continue;
        if (m->held)
            hwt_timeout_unref(m->timeout);
        m->used = m->held = false;
        return m;
    }
    return NULL;
}

/* From here on nobody has a handle; but what a skipped run is takes a look at it (settle_skip). */
static void let_go(struct model *m)
{
    if (m->period > 0 && m->mode == HWT_FIXED_RATE_SKIP)
        return;
    hwt_timeout_unref(m->timeout);
    m->held = false;
}

static void submit(uint64_t delay, bool plain)
{
    bool full = max_pending > 0 && model_pending() >= max_pending;
    struct model *m = free_model();
    int result;

    if (m == NULL)
        return;
    fill(m, delay, plain);
    result = call_schedule(m, delay);
    STRESS_CHECK(result == (full ? -ENOBUFS : 0), "submission: %d, full %d", result, full);
    if (result != 0) {
        STRESS_CHECK(m->timeout == NULL, "an error touched the handle");
        expected.rejected++;
        return;
    }
    m->used = m->held = m->pending = m->fresh = true;
    m->submission = ++submissions;
    expected.scheduled++;
    check_deadline(m);
    if (m->unnamed)
        let_go(m);
}

static void cancel(struct model *m, bool sync)
{
    bool ends = m->pending;
    int result = sync ? hwt_timeout_cancel_sync(m->timeout) : hwt_timeout_cancel(m->timeout);

    STRESS_CHECK(result == ends, "G2: cancel said %d, pending %d", result, ends);
    if (ends)
        model_cancelled(m);
    check_state(m);
}

static void move(struct model *m, uint64_t delay, bool at)
{
    uint64_t deadline = after(delay);
    bool moved;

    if (m->running)
        return;
    if (at && m->period > 0 && m->mode == HWT_FIXED_RATE)
        at = false; /* from far in the past it would have decades to catch up on */
    if (at)
        moved = hwt_timeout_reschedule_at(m->timeout, deadline = delay);
    else
        moved = hwt_timeout_reschedule(m->timeout, delay);
    STRESS_CHECK(moved == m->pending, "it moved: %d, pending: %d", moved, m->pending);
    if (moved) {
        m->deadline = deadline;
        m->fresh = m->moved = true;
        check_deadline(m);
    }
}

static void move_referred(struct model *m)
{
    hwt_timeout *timeout = hwt_timeout_ref(m->timeout);

    move(m, duration(), false);
    hwt_timeout_unref(timeout);
}

/* Of what nobody has a handle to, too. */
static void visitor(hwt_timeout *timeout, void *arg)
{
    struct model *m = hwt_timeout_arg(timeout);

    (void)arg;
    STRESS_CHECK(m->used && m->timeout == timeout && m->pending, "C18: a stranger is shown");
    STRESS_CHECK(!m->shown, "C18: shown twice");
    m->shown = true;
    check_deadline(m);
    switch (byte() % 8) {
    case 0: move(m, duration(), false); break;
    case 1: move_referred(m); break;
    case 2: cancel(m, false); break;
    case 3:
        if (!m->held)
            hwt_timeout_ref(timeout);
        m->held = true;
        break;
    default: break;
    }
}

static void visit(void)
{
    uint64_t pending = model_pending();
    int64_t shown;

    for (int i = 0; i < MODELS; i++)
        models[i].shown = false;
    shown = hwt_timer_visit(timer, visitor, NULL);
    STRESS_CHECK(shown == (int64_t)pending, "C18: %" PRIi64 " shown, %" PRIu64 " pending", shown,
                 pending);
}

#endif
