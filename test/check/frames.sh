#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# FRAME_POINTERS=1: a debugger or profiler that follows frame pointers gets from a task to main,
# through the library; and it costs at most two instructions for each call of a function of the
# library (clang: three), over all hot paths, by callgrind's count.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
frames=$BUILD/frames

"$MAKE" -s KIND=release BUILD="$frames" CC="$CC" FRAME_POINTERS=1 all
flags="-std=gnu11 -O2 -g -Iinclude -pthread"

cat >"$dir/walk.c" <<'END_C'
#include <hwt.h>
#include <stdio.h>

struct frame {
    struct frame *caller;
    void *from;
};

static struct frame *mains;

static __attribute__((noinline)) void task(hwt_timeout *timeout, void *depth)
{
    struct frame *frame = __builtin_frame_address(0);

    (void)timeout;
    for (; frame != mains; frame = frame->caller, ++*(int *)depth)
        if (frame->caller <= frame || frame->caller > mains)
            return; /* not a chain */
    printf("%d frames\n", *(int *)depth);
}

int main(void)
{
    hwt_config config;
    hwt_timer *timer;
    int depth = 0;

    mains = __builtin_frame_address(0);
    hwt_config_init(&config);
    config.drive = HWT_DRIVE_CALLER;
    if (hwt_timer_create(&timer, &config) != 0 ||
        hwt_new_timeout(timer, task, &depth, 0, NULL) != 0 || hwt_timer_advance(timer) != 1)
        return 1;
    return hwt_timer_destroy(timer);
}
END_C
# shellcheck disable=SC2086 # lists of flags
$CC $flags -fno-omit-frame-pointer -fno-optimize-sibling-calls -o "$dir/walk" "$dir/walk.c" \
    "$frames/libhwt.a"
walked=$("$dir/walk")
[ -n "$walked" ] || { echo "there is no way from a task to main"; exit 1; }

if ! { command -v valgrind && echo '#include <valgrind/callgrind.h>' | $CC -E -x c -; } \
    >/dev/null 2>&1; then
    echo "left out: what they cost: apt-get install valgrind"
    echo "$walked from a task to main"
    exit 0
fi

# Lines "operation instructions calls", of all that were counted: callgrind names calls by function.
count() # library
{
    # shellcheck disable=SC2086
    $CC $flags -Wl,--strip-debug,--wrap=sysconf -o "$dir/count" bench/count/instructions.c "$1"
    rm -f "$dir"/calls*
    valgrind --tool=callgrind --separate-threads=yes --compress-strings=no \
        --callgrind-out-file="$dir/calls" "$dir/count" calls >"$dir/out" 2>"$dir/log" ||
        { cat "$dir/out" "$dir/log" >&2; exit 1; }
    nm --defined-only "$1" | awk '$2 ~ /[tT]/ { print $3 }' >"$dir/functions"
    for part in "$dir"/calls.*-01; do
        awk -v functions="$dir/functions" '
            BEGIN { while ((getline name < functions) > 0) ours[name] }
            /^desc: Trigger: Client Request: / { operation = $NF }
            /^totals: / { instructions = $2 }
            /^cfn=/ { called = substr($0, 5) }
            /^calls=/ && (called in ours) { split($1, part, "="); calls += part[2] }
            END {
                if (operation != "" && operation != "other")
                    print operation, instructions, calls
            }' "$part"
    done
}

count "$BUILD/libhwt.a" >"$dir/without"
count "$frames/libhwt.a" >"$dir/with"
[ -s "$dir/with" ] || { echo "nothing was counted"; exit 1; }
limit=2
case $($CC --version) in *clang*) limit=3 ;; esac
paste -d ' ' "$dir/without" "$dir/with" | awk -v limit=$limit '
    { more[$1] += $5 - $2; calls[$1] += $6; all_more += $5 - $2; all_calls += $6 }
    END {
        for (operation in more)
            printf "%-20s %.1f instructions a call\n", operation, more[operation] / calls[operation]
        printf "%.2f instructions a call, at most %d\n", all_more / all_calls, limit
        exit all_more > limit * all_calls
    }' >"$dir/costs" || { cat "$dir/costs"; exit 1; }
cat "$dir/costs"
