#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# hwt.h by itself: clean as C11 and C++17 under every warning, its macros in use too, with every
# name of the contract in its exact type, the same layout whatever the user defines, and no header
# pulled in but five.

set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
compilers=0

cat >"$tmp/alone.c" <<'END'
#include <hwt.h>
#include <hwt.h>
END

# Each line fails to compile if a name is missing or has another type.
cat >"$tmp/contract.c" <<'END'
#include <hwt.h>

#ifdef __cplusplus
template <typename a, typename b> constexpr bool same = false;
template <typename a> constexpr bool same<a, a> = true;
#define FIELD(type, structure, name) static_assert(same<type, decltype(structure::name)>, #name)
#define VALUE(name, value) static_assert(name == value, #name)
#else
#define FIELD(type, structure, name)                                                               \
    _Static_assert(_Generic(&((structure *)0)->name, type *: 1, default: 0), #name)
#define VALUE(name, value) _Static_assert(name == value, #name)
#endif

typedef uint64_t clock_function(void *clock);
typedef int execute_function(void *executor, void (*run)(void *job), void *job);
typedef void log_function(void *log_arg, const char *message);
typedef void release_function(void *arg);
typedef uint64_t histogram[64];

FIELD(size_t, hwt_config, struct_size);
FIELD(uint64_t, hwt_config, tick_ns);
FIELD(uint32_t, hwt_config, ticks_per_wheel);
FIELD(hwt_wheel_kind, hwt_config, wheel);
FIELD(uint64_t, hwt_config, max_pending);
FIELD(size_t, hwt_config, reserve);
FIELD(hwt_drive, hwt_config, drive);
FIELD(clockid_t, hwt_config, clock_id);
FIELD(clock_function *, hwt_config, now);
FIELD(void *, hwt_config, clock);
FIELD(execute_function *, hwt_config, execute);
FIELD(void *, hwt_config, executor);
FIELD(const char *, hwt_config, thread_name);
FIELD(const pthread_attr_t *, hwt_config, thread_attr);
FIELD(log_function *, hwt_config, log);
FIELD(void *, hwt_config, log_arg);
FIELD(uint64_t, hwt_config, slow_task_ns);

FIELD(release_function *, hwt_config, worker_start);
FIELD(release_function *, hwt_config, worker_exit);
FIELD(void *, hwt_config, worker_arg);

FIELD(size_t, hwt_spec, struct_size);
FIELD(hwt_task *, hwt_spec, task);
FIELD(hwt_task *, hwt_spec, cancelled);
FIELD(void *, hwt_spec, arg);
FIELD(uint64_t, hwt_spec, delay_ns);
FIELD(uint64_t, hwt_spec, period_ns);
FIELD(hwt_period_mode, hwt_spec, period_mode);
FIELD(release_function *, hwt_spec, release);

FIELD(size_t, hwt_stats, struct_size);
FIELD(uint64_t, hwt_stats, scheduled);
FIELD(uint64_t, hwt_stats, expired);
FIELD(uint64_t, hwt_stats, cancelled);
FIELD(uint64_t, hwt_stats, unprocessed);
FIELD(uint64_t, hwt_stats, rejected);
FIELD(uint64_t, hwt_stats, pending);
FIELD(uint64_t, hwt_stats, runs);
FIELD(uint64_t, hwt_stats, withdrawn);
FIELD(uint64_t, hwt_stats, wakeups);
FIELD(uint64_t, hwt_stats, slow_tasks);
FIELD(uint64_t, hwt_stats, late_ns_max);
FIELD(histogram, hwt_stats, late_log2);
FIELD(uint64_t, hwt_stats, late_ns_sum);

FIELD(hwt_timeout *, hwt_unprocessed, first);
FIELD(size_t, hwt_unprocessed, count);

VALUE(HWT_WHEEL_HIERARCHICAL, 0);
VALUE(HWT_WHEEL_HASHED, 1);
VALUE(HWT_DRIVE_WORKER, 0);
VALUE(HWT_DRIVE_CALLER, 1);
VALUE(HWT_FIXED_RATE, 0);
VALUE(HWT_FIXED_RATE_SKIP, 1);
VALUE(HWT_FIXED_DELAY, 2);
VALUE(HWT_PENDING, 0);
VALUE(HWT_RUNNING, 1);
VALUE(HWT_EXPIRED, 2);
VALUE(HWT_CANCELLED, 3);
VALUE(HWT_VERSION_MAJOR, 1);
VALUE(HWT_VERSION_MINOR, 1);
VALUE(HWT_VERSION_PATCH, 0);
VALUE(HWT_USEC(3), UINT64_C(3000));
VALUE(HWT_MSEC(3), UINT64_C(3000000));
VALUE(HWT_SEC(1 + 2), UINT64_C(3000000000));

void (*config_init)(hwt_config *) = hwt_config_init;
void (*config_init_size)(hwt_config *, size_t) = hwt_config_init_size;
int (*create)(hwt_timer **, const hwt_config *) = hwt_timer_create;
int (*start)(hwt_timer *) = hwt_timer_start;
bool (*is_stopped)(const hwt_timer *) = hwt_timer_is_stopped;
int (*destroy)(hwt_timer *) = hwt_timer_destroy;
uint64_t (*pending)(const hwt_timer *) = hwt_timer_pending;
uint64_t (*now)(const hwt_timer *) = hwt_timer_now;
int (*stop)(hwt_timer *, hwt_unprocessed *) = hwt_timer_stop;
int (*drain)(hwt_timer *, uint64_t, hwt_unprocessed *) = hwt_timer_drain;
hwt_timeout *(*take)(hwt_unprocessed *) = hwt_unprocessed_take;
int (*new_timeout)(hwt_timer *, hwt_task *, void *, uint64_t, hwt_timeout **) =
    hwt_new_timeout;
int (*new_timeout_at)(hwt_timer *, hwt_task *, void *, uint64_t, hwt_timeout **) =
    hwt_new_timeout_at;
void (*spec_init)(hwt_spec *) = hwt_spec_init;
void (*spec_init_size)(hwt_spec *, size_t) = hwt_spec_init_size;
int (*schedule)(hwt_timer *, const hwt_spec *, hwt_timeout **) = hwt_schedule;
bool (*cancel)(hwt_timeout *) = hwt_timeout_cancel;
int (*cancel_sync)(hwt_timeout *) = hwt_timeout_cancel_sync;
bool (*reschedule)(hwt_timeout *, uint64_t) = hwt_timeout_reschedule;
bool (*reschedule_at)(hwt_timeout *, uint64_t) = hwt_timeout_reschedule_at;
hwt_state (*state)(const hwt_timeout *) = hwt_timeout_state;
bool (*is_expired)(const hwt_timeout *) = hwt_timeout_is_expired;
bool (*is_cancelled)(const hwt_timeout *) = hwt_timeout_is_cancelled;
hwt_timer *(*timer_of)(const hwt_timeout *) = hwt_timeout_timer;
hwt_task *(*task_of)(const hwt_timeout *) = hwt_timeout_task;
void *(*arg_of)(const hwt_timeout *) = hwt_timeout_arg;
uint64_t (*deadline_of)(const hwt_timeout *) = hwt_timeout_deadline;
hwt_timeout *(*ref)(hwt_timeout *) = hwt_timeout_ref;
void (*unref)(hwt_timeout *) = hwt_timeout_unref;
int (*renew)(hwt_timeout **, hwt_timer *, uint64_t) = hwt_timeout_renew;
int (*advance)(hwt_timer *) = hwt_timer_advance;
uint64_t (*next_deadline)(hwt_timer *) = hwt_timer_next_deadline;
int (*fd)(hwt_timer *) = hwt_timer_fd;
void (*stats_init)(hwt_stats *) = hwt_stats_init;
void (*stats_init_size)(hwt_stats *, size_t) = hwt_stats_init_size;
int (*stats)(const hwt_timer *, hwt_stats *) = hwt_timer_stats;
int (*prometheus)(const hwt_stats *, const char *, char *, size_t) = hwt_stats_prometheus;
int64_t (*visit_all)(hwt_timer *, hwt_visitor *, void *) = hwt_timer_visit;
const char *(*version)(void) = hwt_version;

/* The macros, as a program uses them. */
static uint64_t used(int n, unsigned char small, bool flag);
static uint64_t used(int n, unsigned char small, bool flag)
{
    hwt_config config;
    hwt_spec spec;
    hwt_stats counters;

    hwt_config_init(&config);
    hwt_spec_init(&spec);
    hwt_stats_init(&counters);
    return HWT_USEC(n) + HWT_MSEC(small) + HWT_SEC(flag) + HWT_SEC(config.tick_ns) + spec.delay_ns +
           counters.runs + HWT_SEC(-n);
}
uint64_t (*use)(int, unsigned char, bool) = used;
END

# A fraction of a second would be cut off: it does not compile.
cat >"$tmp/fraction.c" <<'END'
#include <hwt.h>
uint64_t half = HWT_SEC(0.5);
END

# The layout of every public structure, as an object file's sizes.
cat >"$tmp/layout.c" <<'END'
#include <hwt.h>
char config_size[sizeof(hwt_config)], spec_size[sizeof(hwt_spec)], stats_size[sizeof(hwt_stats)];
char unprocessed_size[sizeof(hwt_unprocessed)];
char histogram_at[offsetof(hwt_stats, late_log2)], slow_at[offsetof(hwt_config, slow_task_ns)];
END

warnings="-Wall -Wextra -pedantic -Wshadow -Wundef -Wconversion -Wcast-qual -Werror -Iinclude"

everything() # compiler: clang has a switch for all warnings, of which some are about taste
{
    [ "$($1 -dM -E -x c /dev/null | grep -c __clang__)" = 0 ] && return
    echo "-Weverything -Wno-padded -Wno-documentation -Wno-documentation-unknown-command" \
        "-Wno-reserved-identifier -Wno-c++98-compat -Wno-c++98-compat-pedantic"
}

refused() # compiler language...
{
    ! "$@" -Iinclude -c -o "$tmp/o" "$tmp/fraction.c" 2>"$tmp/said" ||
        { echo "$1 compiles HWT_SEC(0.5)"; exit 1; }
}

as_c() # compiler
{
    local extra flags
    extra=$(everything "$1")
    for flags in -std=c11 -std=gnu11 "-std=c11 -D_GNU_SOURCE" "-std=gnu17 -O2"; do
        # shellcheck disable=SC2086 # lists of flags
        $1 -x c $flags $warnings -Wstrict-prototypes $extra -c -o "$tmp/o" "$tmp/alone.c"
        # shellcheck disable=SC2086
        $1 -x c $flags $warnings -c -o "$tmp/o" "$tmp/contract.c"
        refused "$1" -x c
    done
    compilers=$((compilers + 1))
}

as_cxx() # compiler
{
    local extra flags
    extra=$(everything "$1")
    for flags in -std=c++17 -std=gnu++17; do
        # shellcheck disable=SC2086
        $1 -x c++ $flags $warnings $extra -c -o "$tmp/o" "$tmp/alone.c"
        # shellcheck disable=SC2086
        $1 -x c++ $flags $warnings -Wold-style-cast -Wno-invalid-offsetof -c -o "$tmp/o" \
            "$tmp/contract.c"
        refused "$1" -x c++
    done
    compilers=$((compilers + 1))
}

layout() # flags...
{
    ${CC:-gcc} -std=gnu11 -Iinclude "$@" -c -o "$tmp/layout.o" "$tmp/layout.c"
    nm -S --size-sort "$tmp/layout.o" | sed 's/^[0-9a-f]* //' | sort
}

for cc in gcc clang; do
    if command -v $cc >/dev/null; then as_c $cc
    else echo "left out: the header for $cc: apt-get install $cc"; fi
done
for cxx in g++ clang++; do
    if command -v $cxx >/dev/null; then as_cxx $cxx
    else echo "left out: the header for $cxx: apt-get install ${cxx/clang++/clang}"; fi
done
[ $compilers -gt 0 ] || { echo "no compiler found"; exit 1; }

layout >"$tmp/plain"
layout -D_GNU_SOURCE -DHWT_DEBUG -DNDEBUG -D_FILE_OFFSET_BITS=64 -O2 >"$tmp/defined"
diff "$tmp/plain" "$tmp/defined" || { echo "the layout depends on the user's macros"; exit 1; }

others=$(sed -n 's/^ *# *include *//p' include/hwt.h |
    grep -vE '^<(pthread|stdbool|stddef|stdint|time)\.h>' || :)
[ -z "$others" ] || { echo "hwt.h includes $others"; exit 1; }

echo "$compilers compilers"
