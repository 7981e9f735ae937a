#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# What hwt_timer_next_deadline costs does not grow with what is pending, when nothing has changed
# since the last call: callgrind counts its instructions beside 1,000 and beside 200,000 timeouts,
# for both wheels: far ones, spread out or all of one deadline; due ones that wait at an executor,
# while one there has been re-armed; and far ones beside a worker, in a lane yet or taken in; nor
# with what was pending, when all of it has been cancelled, in a lane (peak) or taken in (gone), or
# all but the last (kept).
set -eu

cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build}

skip() {
    echo "$*"
    exit 77
}

command -v valgrind >/dev/null || skip "valgrind is not installed: apt-get install valgrind"
[ "${KIND:-release}" = release ] || skip "the bound is for the release build, not for $KIND"
[ -e "$BUILD/libhwt.a" ] || skip "$BUILD/libhwt.a is not there"
echo '#include <valgrind/callgrind.h>' |
    $CC -E -x c -o /dev/null - 2>/dev/null ||
    skip "valgrind/callgrind.h is not installed: apt-get install valgrind"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/next.c" <<'END'
#include <hwt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <valgrind/callgrind.h>

static uint64_t now = HWT_SEC(1000000);

static uint64_t read_now(void *clock)
{
    return *(uint64_t *)clock;
}

static void ask(hwt_timer *timer, bool any)
{
    volatile uint64_t said = hwt_timer_next_deadline(timer);

    CALLGRIND_ZERO_STATS;
    for (int i = 0; i < 100; i++)
        said = hwt_timer_next_deadline(timer);
    CALLGRIND_DUMP_STATS_AT("next");
    if ((said != UINT64_MAX) != any)
        exit(1);
}

static void task(hwt_timeout *timeout, void *arg)
{
    if (!hwt_timeout_reschedule(timeout, HWT_SEC(1)))
        exit(1);
    ask(arg, true);
}

static void (*run_one)(void *job);
static void *last;

static int queue(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run_one = run;
    last = job;
    return 0;
}

static void see(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    ++*(long *)arg;
}

static void take_in(hwt_timer *timer, long count)
{
    long seen = 0;

    if (hwt_timer_visit(timer, see, &seen) < 0 || seen != count)
        exit(1);
}

/* Whoever asks first pays for it, and the worker does his part meanwhile. */
static void ask_after_a_peak(hwt_timer *timer, hwt_timeout **handle, long cancelled, bool any)
{
    struct timespec pause = {0, 20000000};

    for (long i = 0; i < cancelled; i++) {
        if (!hwt_timeout_cancel(handle[i]))
            exit(1);
        hwt_timeout_unref(handle[i]);
    }
    for (int i = 0; i < 20; i++) {
        hwt_timer_next_deadline(timer);
        nanosleep(&pause, NULL);
    }
    ask(timer, any);
}

int main(int argc, char **argv)
{
    long count = atol(argv[argc - 1]);
    int kind = atoi(argv[1]);
    char how = argv[2][0];
    bool over = how == 'p' || how == 'g' || how == 'k';
    bool spread = how != 'o' && how != 'e', worker = how == 'w' || how == 'l' || over;
    hwt_timeout **handle = calloc((size_t)count, sizeof *handle);
    hwt_config config;
    hwt_timer *timer;

    hwt_config_init(&config);
    config.wheel = (hwt_wheel_kind)kind;
    if (!worker) {
        config.drive = HWT_DRIVE_CALLER;
        config.now = read_now;
        config.clock = &now;
    }
    config.execute = how == 'e' ? queue : NULL;
    if (!handle || hwt_timer_create(&timer, &config) != 0)
        return 1;
    for (long i = 0; i < count; i++) {
        uint64_t delay = HWT_SEC(100) + (spread ? (uint64_t)i * HWT_MSEC(1) : 0);
        if (hwt_new_timeout(timer, task, timer, delay, over ? &handle[i] : NULL) != 0)
            return 1;
    }
    if (how == 'w' || how == 'g')
        take_in(timer, count);
    if (over)
        ask_after_a_peak(timer, handle, how == 'k' ? count - 1 : count, how == 'k');
    else if (how != 'e')
        ask(timer, true);
    if (how != 'e')
        return 0;
    now += HWT_SEC(100);
    if (hwt_timer_advance(timer) != count)
        return 1;
    run_one(last);
    return 0;
}
END
# -S: valgrind 3.19 gives up over what clang tells debuggers
$CC -std=gnu11 -O2 -Iinclude -Wl,-S -o "$work/next" "$work/next.c" "$BUILD/libhwt.a" -pthread

count() { # wheel how timeouts
    rm -f "$work"/out*
    valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$work/out" \
        "$work/next" "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
    sed -n 's/^totals: //p' "$work/out.1-01"
}

bad=0
for wheel in 0 1; do
    for how in spread one executor lane worker peak gone kept; do
        few=$(count $wheel $how 1000)
        many=$(count $wheel $how 200000)
        echo "wheel $wheel, $how: $((few / 100)) and $((many / 100)) instructions"
        [ "$few" -gt 0 ] && [ "$many" -le $((2 * few)) ] || bad=1
    done
done
exit $bad
