/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes as calls of the public API, under HWT_DRIVE_CALLER and a virtual clock, with both wheels,
 * against a model that is a plain list: what must be pending, with which deadline, what may run now
 * and in which order, and every counter of the ledger (G1, G2, G3, G8, G10, G11, G14, G15, C18).
 *
 * With -DFUZZ_TARGET it is a target for libFuzzer or AFL++:
 *   clang -fsanitize=fuzzer,address,undefined -DFUZZ_TARGET -D_GNU_SOURCE -Iinclude -Itest
 *   test/fuzz/api.c build/asan/libhwt.a, the library built by clang with -fsanitize=fuzzer-no-link.
 * Otherwise it has a main() that makes up byte strings from a seed; its argument is how many.
 */
#include "model.h"

enum { MAX_BYTES = 600 };

/* ---- passes ---- */
static void settle_pass(int ran)
{
    STRESS_CHECK(ran == pass_runs, "advance says %d, %d ran", ran, pass_runs);
    for (int i = 0; i < MODELS; i++) {
        struct model *m = &models[i];

        STRESS_CHECK(!m->running, "G10: the hook of one cancelled in its task never came");
        if (m->pending && m->held)
            settle_skip(m);
        STRESS_CHECK(!m->pending || m->fresh || m->deadline > now_ns,
                     "G2: %" PRIu64 " did not run at %" PRIu64, m->deadline, now_ns);
    }
}

static void advance(void)
{
    int ran;

    for (int i = 0; i < MODELS; i++)
        models[i].fresh = models[i].moved = false;
    pass_runs = 0;
    in_pass = true;
    ran = hwt_timer_advance(timer);
    in_pass = false;
    settle_pass(ran);
}

static void move_clock(void)
{
    uint64_t step = duration();

    now_ns += step < UINT64_C(1) << 52 ? step : tick_ns;
}

static void check_ledger(void)
{
    hwt_stats s = stress_stats(timer);

    expected.pending = model_pending();
    STRESS_CHECK(s.scheduled == expected.scheduled, "scheduled %" PRIu64, s.scheduled);
    STRESS_CHECK(s.expired == expected.expired, "expired %" PRIu64, s.expired);
    STRESS_CHECK(s.cancelled == expected.cancelled, "cancelled %" PRIu64, s.cancelled);
    STRESS_CHECK(s.unprocessed == expected.unprocessed, "unprocessed %" PRIu64, s.unprocessed);
    STRESS_CHECK(s.rejected == expected.rejected, "rejected %" PRIu64, s.rejected);
    STRESS_CHECK(s.runs == expected.runs, "runs %" PRIu64 " of %" PRIu64, s.runs, expected.runs);
    STRESS_CHECK(s.pending == expected.pending, "pending %" PRIu64, s.pending);
    STRESS_CHECK(hwt_timer_pending(timer) == expected.pending, "hwt_timer_pending");
}

static void play_byte(uint8_t op)
{
    struct model *m = &models[byte() % MODELS];

    switch (op % 14) {
    case 0:
    case 1:
    case 2:
    case 3: submit(duration(), false); break;
    case 4:
    case 5:
        if (m->held)
            cancel(m, op & 128);
        break;
    case 6:
    case 7:
        if (m->held)
            move(m, duration(), op & 128);
        break;
    case 8:
    case 9:
        move_clock();
        advance();
        break;
    case 10:
        advance();
        check_next();
        break;
    case 11:
        if (m->held && m->pending)
            let_go(m);
        break;
    case 12: visit(); break;
    default:
        check_ledger();
        if (m->held)
            check_state(m);
    }
}

/* ---- the end ---- */
static void take_back(hwt_unprocessed *list)
{
    size_t count = list->count;

    STRESS_CHECK(count == model_pending(), "G8: %zu handed back of %" PRIu64, count,
                 model_pending());
    for (hwt_timeout *t; (t = hwt_unprocessed_take(list)) != NULL; count--) {
        struct model *m = hwt_timeout_arg(t);

        STRESS_CHECK(m->timeout == t && m->pending, "G8: a stranger was handed back");
        STRESS_CHECK(hwt_timeout_is_cancelled(t) && m->hooks == 0, "G8: handed back, not marked");
        m->pending = false;
        expected.unprocessed++;
        hwt_timeout_unref(t);
    }
    STRESS_CHECK(count == 0, "G8: the list is not as long as it says");
}

static void stop(bool with_list)
{
    hwt_unprocessed list = {0};

    stopping = true;
    STRESS_OK(hwt_timer_stop(timer, with_list ? &list : NULL));
    stopping = false;
    if (with_list)
        take_back(&list);
    for (int i = 0; i < MODELS; i++) {
        if (!models[i].pending)
            continue;
        STRESS_CHECK(!models[i].hooked, "G8: stop ended it without its hook");
        models[i].pending = false;
        expected.unprocessed++;
    }
    check_ledger();
    stress_check_balance(timer);
    STRESS_CHECK(hwt_timer_advance(timer) == -ESHUTDOWN, "advance after stop");
}

static void play(const uint8_t *bytes, size_t count, hwt_wheel_kind wheel)
{
    static const uint64_t epochs[] = {0, HWT_SEC(86400) * 12, HWT_SEC(86400) * 365 * 30, 1};
    hwt_config config;
    uint8_t last;

    input = (struct input){bytes, count};
    memset(models, 0, sizeof models);
    memset(&expected, 0, sizeof expected);
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.wheel = wheel;
    config.now = read_clock;
    config.clock = &now_ns;
    now_ns = epochs[byte() % 4];
    tick_ns = config.tick_ns = HWT_USEC(1) << byte() % 12;
    config.ticks_per_wheel = UINT32_C(1) << byte() % 11;
    max_pending = config.max_pending = byte() % 4 == 0 ? byte() : 0;
    last = byte();
    STRESS_OK(hwt_timer_create(&timer, &config));
    while (input.left > 0)
        play_byte(byte());
    stop(last % 2);
    for (int i = 0; i < MODELS; i++)
        if (models[i].held && i % 2)
            hwt_timeout_unref(models[i].timeout);
    STRESS_OK(hwt_timer_destroy(timer));
    for (int i = 0; i < MODELS; i += 2)
        if (models[i].held)
            hwt_timeout_unref(models[i].timeout); /* G9: outlives its timer */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    play(bytes, count, HWT_WHEEL_HIERARCHICAL);
    play(bytes, count, HWT_WHEEL_HASHED);
    return 0;
}

#ifndef FUZZ_TARGET
int main(int argc, char **argv)
{
    uint64_t strings = (uint64_t)stress_begin(argc, argv, 3000);
    uint8_t bytes[MAX_BYTES];
    uint64_t seed = *stress_seed(), runs = 0;

    for (uint64_t i = 0; i < strings; i++) {
        size_t count = 8 + stress_below(MAX_BYTES - 8);

        for (size_t n = 0; n < count; n++)
            bytes[n] = (uint8_t)stress_random();
        LLVMFuzzerTestOneInput(bytes, count);
        runs += expected.runs;
    }
    *stress_seed() = seed;
    return stress_end("fuzz/api", "%" PRIu64 " strings on both wheels, %" PRIu64 " runs", strings,
                      runs);
}
#endif
