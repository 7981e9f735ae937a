#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# G9: a handle that nobody drops. The debug build says so when the timer is destroyed, LeakSanitizer
# says where the timeout was scheduled. What is still pending, or dropped in the end, is no leak,
# nor is what a pending timeout's argument points to: in no build of the library, shared or not.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}" "${BUILD:=build}" "${MAKE:=make}"
. test/toolchain.sh
can_sanitize address,undefined || { echo "$CC's sanitizers do not run here"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/leak.c" <<'END_C'
#include <hwt.h>
#include <stdlib.h>
#include <string.h>

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    free(arg);
}

static __attribute__((noinline)) hwt_timeout *schedule_here(hwt_timer *timer)
{
    hwt_timeout *timeout;

    if (hwt_new_timeout(timer, task, malloc(100), HWT_SEC(60), &timeout) != 0)
        exit(2);
    return timeout;
}

static __attribute__((noinline)) void play(const char *how)
{
    hwt_timer *timer;
    hwt_timeout *timeout;

    if (hwt_timer_create(&timer, NULL) != 0)
        exit(2);
    timeout = schedule_here(timer);
    if (strcmp(how, "pending") == 0)
        return;
    free(hwt_timeout_arg(timeout));
    hwt_timeout_cancel(timeout);
    if (strcmp(how, "dropped") == 0)
        hwt_timeout_unref(timeout);
    hwt_timer_destroy(timer);
    if (strcmp(how, "late") == 0)
        hwt_timeout_unref(timeout);
}

static void (*run_kept)(void *job);
static void *kept;

static int keep_job(void *executor, void (*run)(void *job), void *job)
{
    (void)executor;
    run_kept = run;
    kept = job;
    return 0;
}

/* The executor is still to call it when the timer is destroyed. */
static __attribute__((noinline)) void play_with_executor(const char *how)
{
    hwt_timer *timer;
    hwt_timeout *timeout;
    hwt_config config;

    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    config.execute = keep_job;
    if (hwt_timer_create(&timer, &config) != 0 ||
        hwt_new_timeout(timer, task, NULL, 0, &timeout) != 0)
        exit(2);
    if (strcmp(how, "job") == 0)
        hwt_timeout_unref(timeout);
    while (!kept)
        hwt_timer_advance(timer);
    if (strncmp(how, "job-cancelled", 13) == 0)
        hwt_timeout_cancel(timeout);
    if (strcmp(how, "job-cancelled") == 0)
        hwt_timeout_unref(timeout);
    hwt_timer_destroy(timer);
    run_kept(kept);
    if (strcmp(how, "job-late") == 0)
        hwt_timeout_unref(timeout);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "job", 3) == 0)
        play_with_executor(argv[1]);
    else
        play(argc > 1 ? argv[1] : "");
    return 0;
}
END_C

build() # name library flags...
{
    local name=$1 library=$2
    shift 2
    $CC -g -Iinclude "$@" -o "$dir/$name" "$dir/leak.c" "$library" -pthread
}

expect() # name how status [text...]
{
    local name=$1 how=$2 wanted=$3 status=0 text
    shift 3
    LD_LIBRARY_PATH=$BUILD ASAN_OPTIONS=exitcode=23 "$dir/$name" "$how" >"$dir/log" 2>&1 ||
        status=$?
    if [ $status != "$wanted" ]; then
        echo "$name, $how: exit status $status, not $wanted"
        head -n 40 "$dir/log"
        exit 1
    fi
    for text in "$@"; do
        grep -q "$text" "$dir/log" || { echo "$name, $how: no '$text'"; cat "$dir/log"; exit 1; }
    done
    [ $# -gt 0 ] || [ ! -s "$dir/log" ] || { echo "$name, $how:"; cat "$dir/log"; exit 1; }
}

$MAKE --no-print-directory -s KIND=debug all
$MAKE --no-print-directory -s KIND=asan all
build debug "$BUILD/debug/libhwt.a"
build asan "$BUILD/asan/libhwt.a" -fsanitize=address,undefined
build asan-of-user "$BUILD/libhwt.a" -fsanitize=address
build asan-of-user-shared "$BUILD/libhwt.so.1" -fsanitize=address

expect debug kept 0 'and 1 of its timeouts have handles that were not dropped'
expect asan kept 23 LeakSanitizer schedule_here 'and 1 of its timeouts'
expect asan late 0 'and 1 of its timeouts'
expect asan-of-user kept 0
expect debug job-kept 0 'and 1 of its timeouts'
expect asan job-kept 23 LeakSanitizer play_with_executor 'and 1 of its timeouts'
expect asan job-late 0 'and 1 of its timeouts'
expect debug job-cancelled-kept 0 'and 1 of its timeouts'
expect asan job-cancelled-kept 23 LeakSanitizer play_with_executor 'and 1 of its timeouts'
for name in debug asan asan-of-user asan-of-user-shared; do
    for how in pending dropped job job-cancelled; do
        expect $name $how 0
    done
done
echo "4 builds tell a leak"
