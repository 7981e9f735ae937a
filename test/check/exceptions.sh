#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tasks that throw C++ exceptions. Through hwt_timer_advance, and an executor: the timer stays
# whole. On the worker: the process ends as C++ says, after the log has been told whose it was.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}" "${CXX:=g++}" "${BUILD:=build}"
. test/toolchain.sh
command -v "${CXX%% *}" >/dev/null ||
    { echo "$CXX is not installed: apt-get install ${CXX%% *}"; exit 77; }
share_a_libc || { echo "$CC and $CXX have not the same C library"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/through.cc" <<'END'
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <hwt.h>
#include <stdexcept>
#include <vector>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static uint64_t now_ns;
static uint64_t read_now(void *)
{
    return now_ns;
}

struct rig {
    hwt_config config;
    hwt_timer *timer = nullptr;

    explicit rig(hwt_wheel_kind wheel)
    {
        hwt_config_init(&config);
        config.wheel = wheel;
        config.drive = HWT_DRIVE_CALLER;
        config.now = read_now;
        now_ns = HWT_SEC(1);
    }
    void open() { CHECK(hwt_timer_create(&timer, &config) == 0); }
    ~rig()
    {
        hwt_stats stats;

        CHECK(hwt_timer_stop(timer, nullptr) == 0);
        hwt_stats_init(&stats);
        CHECK(hwt_timer_stats(timer, &stats) == 0);
        CHECK(stats.scheduled == stats.expired + stats.cancelled + stats.unprocessed); /* G3 */
        CHECK(stats.pending == 0 && hwt_timer_pending(timer) == 0);
        CHECK(hwt_timer_destroy(timer) == 0);
    }
};

static bool throws(hwt_timer *timer)
{
    try {
        hwt_timer_advance(timer);
    } catch (const std::runtime_error &) {
        return true;
    }
    return false;
}

static std::vector<int> order;

static void note(hwt_timeout *, void *arg)
{
    order.push_back((int)(intptr_t)arg);
}

static void throw_it(hwt_timeout *, void *)
{
    throw std::runtime_error("a task");
}

/* G2: what was due with it runs in the next call. */
static void others_run(hwt_wheel_kind wheel)
{
    rig r(wheel);
    hwt_timeout *thrower;

    r.open();
    order.clear();
    for (int i = 0; i < 300; i++)
        CHECK(hwt_new_timeout(r.timer, note, (void *)(intptr_t)i, HWT_USEC(20) * i, nullptr) == 0);
    CHECK(hwt_new_timeout(r.timer, throw_it, nullptr, HWT_USEC(3001), &thrower) == 0);
    CHECK(hwt_new_timeout(r.timer, note, nullptr, HWT_SEC(5), nullptr) == 0);
    now_ns += HWT_MSEC(10);
    CHECK(throws(r.timer));
    CHECK(hwt_timeout_state(thrower) == HWT_EXPIRED);
    CHECK(hwt_timeout_cancel_sync(thrower) == 0);
    hwt_timeout_unref(thrower);
    CHECK(hwt_timer_pending(r.timer) == 301 - order.size());
    CHECK(hwt_timer_next_deadline(r.timer) <= now_ns);
    CHECK(hwt_timer_advance(r.timer) == 300 - (int)order.size() || order.size() == 300);
    CHECK(order.size() == 300);
    CHECK(hwt_timer_next_deadline(r.timer) == HWT_SEC(6));
    CHECK(hwt_timer_advance(r.timer) == 0);
}

static void rearm_and_throw(hwt_timeout *timeout, void *)
{
    CHECK(hwt_timeout_reschedule(timeout, HWT_SEC(1)));
    throw std::runtime_error("re-armed");
}

static int hooks;
static void count_hook(hwt_timeout *, void *)
{
    hooks++;
}

static void cancel_and_throw(hwt_timeout *timeout, void *)
{
    CHECK(hwt_timeout_cancel(timeout));
    throw std::runtime_error("cancelled");
}

static void throwing_hook(hwt_timeout *, void *)
{
    hooks++;
    throw std::runtime_error("a hook");
}

static void cancel_quietly(hwt_timeout *timeout, void *)
{
    hwt_timeout_cancel(timeout);
}

static void schedule(hwt_timer *timer, hwt_task *task, hwt_task *hook, uint64_t period,
                     hwt_timeout **timeout)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = hook;
    spec.period_ns = period;
    CHECK(hwt_schedule(timer, &spec, timeout) == 0);
}

/* What was to run again has ended all the same. */
static void it_was_the_last_run(hwt_wheel_kind wheel)
{
    rig r(wheel);
    hwt_timeout *rearmed, *periodic, *cancelled;

    r.config.max_pending = 4;
    r.open();
    hooks = 0;
    CHECK(hwt_new_timeout(r.timer, rearm_and_throw, nullptr, 0, &rearmed) == 0);
    schedule(r.timer, throw_it, count_hook, HWT_MSEC(1), &periodic);
    schedule(r.timer, cancel_and_throw, count_hook, HWT_MSEC(1), &cancelled);
    schedule(r.timer, cancel_quietly, throwing_hook, HWT_MSEC(1), nullptr);
    now_ns += HWT_MSEC(1);
    for (int i = 0; i < 4; i++)
        CHECK(throws(r.timer));
    CHECK(!throws(r.timer));
    CHECK(hwt_timeout_state(rearmed) == HWT_EXPIRED);
    CHECK(hwt_timeout_state(periodic) == HWT_EXPIRED);
    CHECK(hwt_timeout_state(cancelled) == HWT_CANCELLED);
    CHECK(hooks == 2); /* G10 */
    CHECK(hwt_timer_pending(r.timer) == 0);
    now_ns += HWT_SEC(5);
    CHECK(hwt_timer_advance(r.timer) == 0);
    hwt_timeout_unref(rearmed);
    hwt_timeout_unref(periodic);
    hwt_timeout_unref(cancelled);
}

/* One timer drives another: the frames of both. */
static hwt_timer *inner;
static void advance_inner(hwt_timeout *timeout, void *)
{
    CHECK(throws(inner));
    CHECK(hwt_timer_advance(hwt_timeout_timer(timeout)) == -EDEADLK);
}

static void nested(hwt_wheel_kind wheel)
{
    rig outer(wheel), inside(wheel);

    outer.open();
    inside.open();
    inner = inside.timer;
    CHECK(hwt_new_timeout(inner, throw_it, nullptr, 0, nullptr) == 0);
    CHECK(hwt_new_timeout(outer.timer, advance_inner, nullptr, 0, nullptr) == 0);
    CHECK(hwt_timer_advance(outer.timer) == 1);
}

/* An executor that runs jobs at once, and catches; one that lets them through; a refusal. */
static int catch_it(void *, void (*run)(void *), void *job)
{
    try {
        run(job);
    } catch (const std::runtime_error &) {
        hooks++;
    }
    return 0;
}

static int let_through(void *, void (*run)(void *), void *job)
{
    run(job);
    return 0;
}

static int refuse(void *, void (*)(void *), void *)
{
    return -1;
}

static void executors(hwt_wheel_kind wheel)
{
    {
        rig r(wheel);
        r.config.execute = catch_it;
        r.open();
        hooks = 0;
        schedule(r.timer, throw_it, nullptr, HWT_MSEC(1), nullptr);
        schedule(r.timer, rearm_and_throw, nullptr, 0, nullptr);
        CHECK(hwt_timer_advance(r.timer) == 2);
        CHECK(hooks == 2);
        CHECK(hwt_timer_pending(r.timer) == 0);
    }
    {
        rig r(wheel);
        r.config.execute = let_through;
        r.open();
        schedule(r.timer, throw_it, nullptr, HWT_MSEC(1), nullptr);
        CHECK(hwt_new_timeout(r.timer, note, nullptr, 0, nullptr) == 0);
        while (!throws(r.timer))
            continue;
        hwt_timer_advance(r.timer);
        CHECK(hwt_timer_pending(r.timer) == 0);
    }
    {
        rig r(wheel);
        r.config.execute = refuse;
        r.open();
        hooks = 0;
        schedule(r.timer, note, throwing_hook, 0, nullptr);
        schedule(r.timer, note, count_hook, 0, nullptr);
        CHECK(throws(r.timer));
        hwt_timer_advance(r.timer);
        CHECK(hooks == 2);
    }
}

/* G8, G10: stop is finished, with every hook. */
static void in_stop(hwt_wheel_kind wheel)
{
    rig r(wheel);
    bool thrown = false;

    r.open();
    hooks = 0;
    for (int i = 0; i < 10; i++)
        schedule(r.timer, note, i == 4 ? throwing_hook : count_hook, HWT_SEC(1), nullptr);
    try {
        hwt_timer_stop(r.timer, nullptr);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(hooks == 10);
    CHECK(hwt_timer_is_stopped(r.timer));
}

static int releases;
static void throwing_release(void *)
{
    releases++;
    throw std::runtime_error("a release");
}

static void count_release(void *)
{
    releases++;
}

static void schedule_owed(hwt_timer *timer, hwt_task *task, hwt_task *hook, void (*release)(void *),
                          uint64_t period, hwt_timeout **timeout)
{
    hwt_spec spec;

    hwt_spec_init(&spec);
    spec.task = task;
    spec.cancelled = hook;
    spec.release = release;
    spec.period_ns = period;
    CHECK(hwt_schedule(timer, &spec, timeout) == 0);
}

/* G8, G10, G16: all throw, one on the way out of the one before. */
static void all_in_stop(hwt_wheel_kind wheel)
{
    rig r(wheel);
    bool thrown = false;

    r.open();
    hooks = releases = 0;
    for (int i = 0; i < 20; i++)
        schedule_owed(r.timer, note, throwing_hook, i % 2 ? throwing_release : count_release,
                      HWT_SEC(1), nullptr);
    try {
        hwt_timer_stop(r.timer, nullptr);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(hooks == 20);
    CHECK(releases == 20);
    CHECK(hwt_timer_is_stopped(r.timer));
}

/* What is owed to a run that threw throws, too: nobody waits for it, and the timer is whole. */
static void owed(hwt_wheel_kind wheel, int (*execute)(void *, void (*)(void *), void *),
                 hwt_task *task, hwt_task *hook, void (*release)(void *))
{
    rig r(wheel);
    hwt_timeout *timeout;

    r.config.execute = execute;
    r.open();
    hooks = releases = 0;
    order.clear();
    schedule_owed(r.timer, task, hook, release, HWT_MSEC(1), &timeout);
    CHECK(throws(r.timer));
    CHECK(hwt_timeout_cancel_sync(timeout) == 0);
    CHECK(hooks == (task == cancel_and_throw));
    CHECK(releases == 0);
    CHECK(hwt_new_timeout(r.timer, note, nullptr, 0, nullptr) == 0);
    CHECK(!throws(r.timer));
    CHECK(order.size() == 1);
    CHECK(hwt_timer_next_deadline(r.timer) == UINT64_MAX);
    CHECK(hwt_timer_pending(r.timer) == 0);
    try {
        hwt_timeout_unref(timeout);
    } catch (const std::runtime_error &) {
    }
    CHECK(releases == 1);
}

/* The same without a handle: its release is called as the run is left. */
static void owed_at_once(hwt_wheel_kind wheel, int (*execute)(void *, void (*)(void *), void *))
{
    rig r(wheel);

    r.config.execute = execute;
    r.open();
    hooks = releases = 0;
    order.clear();
    schedule_owed(r.timer, cancel_and_throw, throwing_hook, throwing_release, HWT_MSEC(1), nullptr);
    CHECK(throws(r.timer));
    CHECK(hooks == 1);
    CHECK(releases == 1);
    CHECK(hwt_new_timeout(r.timer, note, nullptr, 0, nullptr) == 0);
    CHECK(!throws(r.timer));
    CHECK(order.size() == 1);
    CHECK(hwt_timer_pending(r.timer) == 0);
}

static void show_and_throw(hwt_timeout *timeout, void *)
{
    hwt_timeout_cancel(timeout);
    throw std::runtime_error("a visitor");
}

/* So may a visitor, and then the release of what it has cancelled. */
static void owed_in_a_visit(hwt_wheel_kind wheel)
{
    rig r(wheel);
    bool thrown = false;

    r.open();
    releases = 0;
    for (int i = 0; i < 5; i++)
        schedule_owed(r.timer, note, nullptr, throwing_release, 0, nullptr);
    try {
        hwt_timer_visit(r.timer, show_and_throw, nullptr);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(releases == 1);
    order.clear();
    while (throws(r.timer))
        continue;
    CHECK(order.size() == 4);
    CHECK(releases == 5);
}

/* What is owed on the way out throws, too. */
static void on_the_way_out(hwt_wheel_kind wheel)
{
    all_in_stop(wheel);
    for (auto execute : {(int (*)(void *, void (*)(void *), void *)) nullptr, &let_through}) {
        owed(wheel, execute, cancel_and_throw, throwing_hook, count_release);
        owed(wheel, execute, cancel_and_throw, throwing_hook, throwing_release);
        owed_at_once(wheel, execute);
    }
    owed_in_a_visit(wheel);
}

int main(int argc, char **)
{
    for (hwt_wheel_kind wheel : {HWT_WHEEL_HIERARCHICAL, HWT_WHEEL_HASHED}) {
        if (argc == 1)
            on_the_way_out(wheel);
        owed(wheel, nullptr, throw_it, throwing_hook, throwing_release);
        owed(wheel, let_through, throw_it, throwing_hook, throwing_release);
        others_run(wheel);
        it_was_the_last_run(wheel);
        nested(wheel);
        executors(wheel);
        in_stop(wheel);
    }
    return 0;
}
END

cat >"$dir/worker.cc" <<'END'
#include <cstdint>
#include <cstdio>
#include <hwt.h>
#include <stdexcept>
#include <unistd.h>

static void caught_inside(hwt_timeout *, void *)
{
    try {
        throw std::runtime_error("caught");
    } catch (const std::runtime_error &) {
    }
}

static void throw_it(hwt_timeout *, void *)
{
    throw std::runtime_error("escaped");
}

static void log_line(void *, const char *message)
{
    std::fprintf(stderr, "log: %s\n", message);
}

int main()
{
    hwt_timer *timer;
    hwt_config config;

    hwt_config_init(&config);
    config.log = log_line;
    std::fprintf(stderr, "expected: 0x%lx\n", (unsigned long)(uintptr_t)&throw_it);
    if (hwt_timer_create(&timer, &config) != 0 ||
        hwt_new_timeout(timer, caught_inside, nullptr, 0, nullptr) != 0 ||
        hwt_new_timeout(timer, throw_it, nullptr, HWT_MSEC(20), nullptr) != 0)
        return 2;
    for (;;)
        pause();
}
END

fail()
{
    echo "$*"
    exit 1
}

# The worker's program ends by std::terminate where it was thrown, after one line in the log.
worker()
{
    local status=0 address
    bash -c 'ulimit -c 0; timeout 20 "$1"; exit $?' - "$1" 2>"$dir/worker.log" || status=$?
    [ $status = 134 ] || fail "the worker's program ended with $status: $(cat "$dir/worker.log")"
    grep -q "what():  *escaped" "$dir/worker.log" ||
        fail "not by terminate: $(cat "$dir/worker.log")"
    address=$(sed -n 's/^expected: //p' "$dir/worker.log")
    if $told; then
        [ "$(grep -c '^log: ' "$dir/worker.log")" = 1 ] || fail "$(cat "$dir/worker.log")"
        grep -q "^log: .*$address.*exception" "$dir/worker.log" ||
            fail "the log does not name the task: $(cat "$dir/worker.log")"
    fi
}

case $(uname -m) in
x86_64 | aarch64) told=true ;;
*) told=false ;; # src/uncaught.h
esac

# In what clang has built of C, an exception that leaves a cleanup ends the process (guarantees.md).
without=()
if $CC --version | grep -q clang; then
    without=(what is owed on the way out)
    echo "left out: exceptions out of callbacks on the way out of others': CC=gcc"
fi

flags=(-std=c++17 -O2 -g -Wall -Wextra -Iinclude -pthread)
for library in libhwt.a libhwt.so; do
    for name in through worker; do
        $CXX "${flags[@]}" -o "$dir/$name" "$dir/$name.cc" "$BUILD/$library" \
            -Wl,-rpath,"$(realpath "$BUILD")"
    done
    timeout 60 "$dir/through" "${without[@]}" || fail "$library: an exception through advance: $?"
    worker "$dir/worker"
done
echo "2 programs with 2 libraries"
