/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a delay counts from, told by the CPU's counter: on a counter and a clock that the test
 * moves, then on this machine's own. G1 is the clock's: no task is started by the counter.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#ifdef __x86_64__
/* The source a second time, under other names, with our own counter and clock under it. */
static uint64_t read_counter(void);
static int read_clock(clockid_t id, struct timespec *ts);
static bool counter_is_clock(void);
#define __builtin_ia32_rdtsc      read_counter
#define clock_gettime             read_clock
#define platform_counter_is_clock counter_is_clock
#define counter_window            our_window
#define counter_read              our_read
#define counter_find              our_find
#define counter_after_fork        our_after_fork
#include "../../src/counter.c"
#undef clock_gettime
#endif

#include "support.h"

TestSuite(counter, .init = test_arm);

#ifdef __x86_64__

/* ---- counter and clock ---- */

#define MHZ    2600
#define READ   60 /* counts that it takes to read the clock */
#define USEC   MHZ
#define A_TURN (60 * MHZ / 1000)

static uint64_t counter = UINT64_C(1) << 50;
static uint64_t clock_from = UINT64_C(1) << 50;  /* by the counter: it then was at */
static uint64_t clock_ns = HWT_SEC(86400);       /* and goes by one microsecond in */
static uint64_t speed = MHZ;                     /* so many counts */
static uint64_t interrupt_one_in, interrupt_for; /* while the clock is read */
static uint64_t seed = 1;
static unsigned long clock_reads;
static bool is_clock = true;

static uint64_t true_ns(void)
{
    return clock_ns + (counter - clock_from) * 1000 / speed;
}

static void set_clock(uint64_t ns, uint64_t counts_in_a_microsecond)
{
    clock_ns = ns;
    clock_from = counter;
    speed = counts_in_a_microsecond;
}

static uint64_t read_counter(void)
{
    return counter += 4;
}

static void interrupt(void)
{
    if (interrupt_one_in && test_random_below(&seed, interrupt_one_in) == 0)
        counter += interrupt_for;
}

static int read_clock(clockid_t id, struct timespec *ts)
{
    uint64_t now;

    cr_assert_eq(id, CLOCK_MONOTONIC);
    clock_reads++;
    counter += READ / 5;
    interrupt();
    now = true_ns();
    counter += READ - READ / 5;
    interrupt();
    ts->tv_sec = (time_t)(now / HWT_SEC(1));
    ts->tv_nsec = (long)(now % HWT_SEC(1));
    return 0;
}

static bool counter_is_clock(void)
{
    return is_clock;
}

/* ---- what is told ---- */

static uint64_t last, off_most;

/* Told between what the clock is before and after, but for `off_most`; never back by more. */
static void ask(void)
{
    uint64_t before = true_ns(), now = counter_now(HWT_MSEC(1)), after = true_ns();
    uint64_t off = now < before ? before - now : now > after ? now - after : 0;

    off_most = max_u64(off_most, off);
    cr_assert_geq(now + off_most, last, "by %" PRIu64, last - now);
    last = now;
}

/* Asks for so long, every `counts`. How often the clock was read. */
static unsigned long ask_for(uint64_t ns, uint64_t counts)
{
    uint64_t until = true_ns() + ns;
    unsigned long before = clock_reads;

    off_most = 0;
    while (true_ns() < until) {
        ask();
        counter += counts;
    }
    return clock_reads - before;
}

static void begin(void)
{
    our_find();
    ask_for(HWT_MSEC(5), A_TURN);
    cr_assert_neq(our_window.span, 0);
}

Test(counter, a_window_tells_what_the_clock_would)
{
    unsigned long reads;

    begin();
    reads = ask_for(HWT_SEC(3), 10 * USEC);
    cr_assert_leq(off_most, 2);
    cr_assert_leq(reads, HWT_SEC(3) / HWT_USEC(45));
}

Test(counter, until_the_rate_is_known_the_clock_is_read_once_a_call)
{
    our_find();
    for (uint64_t from = clock_reads, i = 1; i < 1000; i++) {
        ask();
        cr_assert_leq(clock_reads - from, i + 2 * TRIES);
    }
    cr_assert_eq(off_most, 0);
}

Test(counter, who_asks_seldom_reads_the_clock_once_a_call)
{
    begin();
    counter += 2 * SPAN;
    for (uint64_t from = clock_reads, i = 1; i < 1000; i++) {
        ask();
        cr_assert_eq(clock_reads - from, i);
        cr_assert_eq(our_window.span, 0, "nor is there a window that it would not use");
        counter += 2 * SPAN;
    }
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_neq(our_window.span, 0, "and more often again");
}

Test(counter, what_is_due_at_once_counts_from_the_clock)
{
    uint64_t now, opened;

    begin();
    opened = our_window.from;
    cr_assert(counter_tells(HWT_USEC(1), &now));
    cr_assert_not(counter_tells(HWT_USEC(1) - 1, &now));
    for (uint64_t from = clock_reads, i = 1; i < 1000; i++) {
        uint64_t before = true_ns();

        now = counter_now(HWT_USEC(1) - 1);
        cr_assert_geq(now, before);
        cr_assert_leq(now, true_ns());
        cr_assert_eq(clock_reads - from, i);
    }
    cr_assert_eq(our_window.from, opened, "that is no reason for another window");
}

/* ---- the clock is being set ---- */

/* As adjtime does, by 500 parts in a million: within a window that is 25 ns. */
Test(counter, a_clock_that_is_slewed)
{
    begin();
    ask_for(HWT_SEC(2), 10 * USEC);
    set_clock(true_ns(), MHZ + MHZ / 2000);
    ask_for(HWT_SEC(3), 10 * USEC);
    cr_assert_leq(off_most, 30);
    ask_for(HWT_SEC(1), 10 * USEC);
    cr_assert_leq(off_most, 2, "learned by now");
}

/* As chrony does, by a twelfth: one window is wrong, and the rate is learned at once. */
Test(counter, a_clock_that_is_slewed_at_once_by_much)
{
    unsigned long reads;

    for (int faster = 0; faster < 2; faster++) {
        set_clock(true_ns(), MHZ);
        begin();
        set_clock(true_ns(), faster ? MHZ - MHZ / 12 : MHZ + MHZ / 12);
        ask_for(HWT_USEC(60), A_TURN);
        cr_assert_leq(off_most, HWT_USEC(5));
        last = 0;
        reads = ask_for(HWT_USEC(700), A_TURN);
        cr_assert_leq(off_most, 2);
        cr_assert_geq(reads, 5000, "without a window");
        ask_for(HWT_MSEC(1), A_TURN);
        cr_assert_leq(off_most, 2);
        cr_assert_neq(our_window.span, 0);
    }
}

/* ---- the counter is another one ---- */

static void jump_to(uint64_t where, uint64_t ns, uint64_t its_speed)
{
    counter = where;
    set_clock(ns, its_speed);
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_leq(off_most, 2);
    ask_for(HWT_SEC(2), 10 * USEC);
    cr_assert_leq(off_most, 2);
    cr_assert_neq(our_window.span, 0);
}

/* Restored elsewhere from a checkpoint: another counter, which runs at another speed. */
Test(counter, on_another_machine)
{
    begin();
    jump_to(UINT64_C(1) << 55, true_ns(), 3700);
    jump_to(UINT64_C(1) << 30, true_ns(), 1900);
    jump_to(UINT64_C(1) << 50, true_ns(), MHZ);
    jump_to((UINT64_C(1) << 50) - SPAN / 2, true_ns(), MHZ);
}

/* The machine has slept: the counter went on, the clock stood. Or the counter began anew. */
Test(counter, after_a_sleep)
{
    begin();
    for (uint64_t seconds = 1; seconds < 1000; seconds *= 3) {
        ask_for(HWT_SEC(1), 10 * USEC);
        counter += HWT_SEC(2) / 1000 * MHZ; /* nobody asks */
        jump_to(counter + seconds * HWT_SEC(1) / 1000 * MHZ, true_ns(), MHZ);
    }
    jump_to(1000, true_ns(), MHZ);
}

/* Before the rate was ever learned: what lies between is no measure of it. */
Test(counter, a_sleep_before_the_rate_is_known)
{
    our_find();
    ask_for(HWT_USEC(500), A_TURN);
    cr_assert_eq(our_window.span, 0, "just begun");
    counter += HWT_SEC(2) / 1000 * MHZ;
    jump_to(counter + HWT_SEC(1) / 1000 * MHZ, true_ns(), MHZ);
}

/* ---- what disturbs ---- */

Test(counter, an_interrupt_while_both_are_read)
{
    begin();
    interrupt_one_in = 10;
    for (interrupt_for = 10; interrupt_for < 20 * USEC; interrupt_for *= 2) {
        ask_for(HWT_MSEC(20), A_TURN);
        cr_assert_leq(off_most, READ * 1000 / MHZ, "%" PRIu64, interrupt_for);
    }
}

/* The clock takes longer from now on, as on a CPU that has become slower. */
Test(counter, a_clock_that_takes_longer)
{
    begin();
    interrupt_one_in = 1;
    interrupt_for = READ / 2;
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_leq(off_most, READ * 1000 / MHZ);
    cr_assert_neq(our_window.span, 0);
    interrupt_one_in = 0;
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_leq(off_most, READ * 1000 / MHZ);
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_leq(off_most, 2, "the best again");
}

Test(counter, a_clock_that_is_not_read_by_the_counter)
{
    interrupt_one_in = 1;
    interrupt_for = BRACKET;
    our_find();
    interrupt_one_in = 0;
    ask_for(HWT_MSEC(5), A_TURN);
    cr_assert_eq(our_window.span, 0);
}

/* The kernel does so when it has found that the CPUs' counters differ. */
Test(counter, a_clock_that_begins_to_go_by_something_else)
{
    unsigned long reads, asked;

    begin();
    interrupt_one_in = 1;
    interrupt_for = 4 * BRACKET;
    ask_for(HWT_MSEC(1), A_TURN);
    reads = clock_reads;
    for (asked = 0; asked < 20000; asked++)
        ask();
    cr_assert_eq(our_window.span, 0);
    cr_assert_leq(clock_reads - reads, asked + asked / 100);
}

Test(counter, a_clock_that_goes_by_something_else)
{
    is_clock = false;
    our_find();
    ask_for(HWT_MSEC(5), A_TURN);
    cr_assert_eq(our_window.span, 0);
    cr_assert_eq(off_most, 0);
}

/* ---- threads and processes ---- */

static void *ask_here(void *arg)
{
    (void)arg;
    last = 0;
    cr_assert_eq(our_window.span, 0, "it has its own");
    ask_for(HWT_MSEC(1), A_TURN);
    cr_assert_leq(off_most, 2);
    cr_assert_neq(our_window.span, 0, "the rate is known");
    return NULL;
}

Test(counter, each_thread_has_its_window_and_the_rate_is_known_to_all)
{
    pthread_t thread;

    begin();
    cr_assert_eq(pthread_create(&thread, NULL, ask_here, NULL), 0);
    pthread_join(thread, NULL);
}

static void expect_learned(const struct pair *from, uint64_t rate)
{
    cr_assert_eq(load_relaxed(&process.rate), rate, "%" PRIu64, load_relaxed(&process.rate));
    cr_assert_eq(load_relaxed(&process.from), from->from);
    cr_assert_eq(load_relaxed(&process.ns), from->ns);
}

/* Who has read both is preempted, and another one learns: what was read before is of no use. */
Test(counter, what_was_read_before_another_has_learned)
{
    struct pair older, newer;
    uint64_t rate;

    begin();
    ask_for(HWT_SEC(3), 10 * USEC);
    rate = load_relaxed(&process.rate);
    for (uint64_t i = 0; i < 4; i++) { /* and he goes on at once, or much later */
        counter += LONG;
        older = read_pair();
        newer = read_pair();
        learn(&newer, false);
        cr_assert(is_near(load_relaxed(&process.rate), rate, rate >> 20));
        rate = load_relaxed(&process.rate);
        counter += i * LONG;
        learn(&older, false);
        expect_learned(&newer, rate);
    }
}

/* Whoever learns the rate has just died, or forked: the others go on with what they have. */
Test(counter, nobody_waits_for_whoever_learns)
{
    begin();
    store_relaxed(&process.learning, true);
    ask_for(HWT_SEC(3), 10 * USEC);
    cr_assert_leq(off_most, 2);
    store_relaxed(&process.learning, false);
    ask_for(HWT_MSEC(100), A_TURN);
    store_relaxed(&process.learning, true);
    our_after_fork();
    cr_assert_eq(our_window.span, 0, "a forked child's clock may be another one");
    set_clock(true_ns() + HWT_MSEC(20), MHZ); /* as in another time namespace */
    ask_for(HWT_SEC(3), 10 * USEC);
    cr_assert_leq(off_most, 2);
    cr_assert_neq(our_window.span, 0);
}

#endif

/* ---- this machine's ---- */

static void none(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

/* Off by a microsecond would be a mistake; it is a few nanoseconds. */
static void check_deadline(uint64_t deadline, uint64_t before, uint64_t after)
{
    cr_assert_gt(deadline + HWT_USEC(1), before + HWT_SEC(60), "by %" PRIu64 " ns",
                 before + HWT_SEC(60) - deadline);
    cr_assert_lt(deadline, after + HWT_SEC(60) + HWT_USEC(1), "by %" PRIu64 " ns",
                 deadline - after - HWT_SEC(60));
}

static void *schedule_and_move(void *arg)
{
    hwt_timer *timer = arg;
    hwt_timeout *timeout;
    uint64_t before, after, deadline, previous = 0;

    for (int i = 0; i < 10000; i++) {
        before = hwt_timer_now(timer);
        cr_assert_eq(hwt_new_timeout(timer, none, NULL, HWT_SEC(60), &timeout), 0);
        after = hwt_timer_now(timer);
        deadline = hwt_timeout_deadline(timeout);
        check_deadline(deadline, before, after);
        cr_assert_geq(deadline, previous, "submitted later, due earlier");
        before = hwt_timer_now(timer);
        cr_assert(hwt_timeout_reschedule(timeout, HWT_SEC(60)));
        check_deadline(previous = hwt_timeout_deadline(timeout), before, hwt_timer_now(timer));
        hwt_timeout_cancel(timeout);
        hwt_timeout_unref(timeout);
    }
    return NULL;
}

/* On several CPUs, which the threads share. */
Test(counter, a_delay_counts_from_the_call)
{
    pthread_t threads[3];
    hwt_timer *timer;

    cr_assert_eq(hwt_timer_create(&timer, NULL), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, schedule_and_move, timer), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}

/* G11: each is due by the time of the next advance. */
Test(counter, no_delay_is_due_at_once)
{
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    cr_assert_eq(hwt_timer_create(&timer, &config), 0);
    for (int i = 0; i < 10000; i++) {
        cr_assert_eq(hwt_new_timeout(timer, none, NULL, 0, NULL), 0);
        cr_assert_eq(hwt_timer_advance(timer), 1, "%d", i);
    }
    cr_assert_eq(hwt_timer_destroy(timer), 0);
}
