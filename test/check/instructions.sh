#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Holds the hot paths to a number of instructions: callgrind counts them, per operation and per
# thread, and each must stay within its bound in test/check/instructions.bounds. The bounds are at
# most 5 % above what was measured when they were set; --update sets them anew. Another compiler,
# which makes something else of the same source, may have 10 % more.
set -eu

cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build}
bounds=test/check/instructions.bounds

skip() {
    echo "$*"
    exit 77
}

command -v valgrind >/dev/null || skip "valgrind is not installed: apt-get install valgrind"
[ "${KIND:-release}" = release ] || skip "the bounds are for the release build, not for $KIND"
[ -e "$BUILD/libhwt.a" ] || skip "$BUILD/libhwt.a is not there"
case ${CFLAGS:--O2 -g} in
'-O2 -g' | '-g -O2' | -O2) ;;
*) skip "the bounds are for CFLAGS='-O2 -g', not for '$CFLAGS'" ;;
esac

compiler=$($CC --version | head -n 1 | sed 's/(.*) *//; s/\.[0-9.]*$//')
compiler="$compiler $(uname -m)"
more=0
if [ "${1-}" != --update ]; then
    [ -e "$bounds" ] || { echo "$bounds is missing; $0 --update writes it"; exit 1; }
    set_with=$(sed -n 's/^compiler: //p' "$bounds")
    [ "${compiler##* }" = "${set_with##* }" ] ||
        skip "the bounds were set for ${set_with##* }, this is ${compiler##* }"
    [ "$compiler" = "$set_with" ] || more=10
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <valgrind/callgrind.h>' |
    $CC -E -x c -o /dev/null - 2>/dev/null ||
    skip "valgrind/callgrind.h is not installed: apt-get install valgrind"
# Without clang's debug information, which older valgrinds cannot read.
$CC -std=gnu11 -O2 -Wall -Wextra -Iinclude -o "$work/instructions" bench/count/instructions.c \
    "$BUILD/libhwt.a" -pthread -Wl,--wrap=sysconf,--strip-debug

count() {
    valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$work/$1" \
        "$work/instructions" "$1" >"$work/$1.out" 2>"$work/$1.err" || {
        cat "$work/$1.out" "$work/$1.err"
        exit 1
    }
    read -r many rounds <"$work/$1.out"
}

# A dump for every part. The least of a name is a warm one, and one in which the rate of the clock
# was not learned, which is once a second.
count calls
part=1
while [ -e "$work/calls.$part-01" ]; do
    name=$(sed -n 's/^desc: Trigger: Client Request: //p' "$work/calls.$part-01")
    total=$(sed -n 's/^totals: //p' "$work/calls.$part-01")
    echo "$name $total $many"
    part=$((part + 1))
done >"$work/dumps"

# The second thread is the worker: all that it executed in its life.
count worker
echo "worker-thread $(sed -n 's/^totals: //p' "$work/worker-02") $((many * rounds))" \
    >>"$work/dumps"

awk '$1 != "" && $1 != "other" && !($1 in cost) { order[++n] = $1; cost[$1] = $2 / $3 }
     $1 in cost && $2 / $3 < cost[$1] { cost[$1] = $2 / $3 }
     END { for (i = 1; i <= n; i++) printf "%s %.1f\n", order[i], cost[order[i]] }' \
    "$work/dumps" >"$work/measured"

# What a line says behind its number is why it rose last: it is kept.
if [ "${1-}" = --update ]; then
    {
        echo "# Instructions per operation, at most, and why they rose last; written by"
        echo "# test/check/instructions.sh --update"
        echo "compiler: $compiler"
        awk -v bounds="$bounds" '
            BEGIN {
                while ((getline line < bounds) > 0) {
                    name = line
                    sub(/ .*/, "", name)
                    if (sub(/^[^ ]+ +[0-9.]+ +/, "", line))
                        why[name] = "  " line
                }
            }
            { printf "%-20s %.1f%s\n", $1, $2 * 1.05, why[$1] }' "$work/measured" >"$work/bounds"
        cat "$work/bounds"
    } >"$work/new"
    cp "$work/new" "$bounds"
fi

awk -v bounds="$bounds" -v more=$more '
    BEGIN {
        while ((getline line < bounds) > 0) {
            split(line, part, " ")
            if (line !~ /^#/ && part[1] != "compiler:")
                bound[part[1]] = sprintf("%.1f", part[2] * (1 + more / 100)) + 0
        }
        printf "%-20s %10s %10s\n", "instructions", "measured", "bound"
    }
    {
        verdict = !($1 in bound) ? "NO BOUND" : $2 > bound[$1] ? "OVER" : "kept"
        bad += verdict != "kept"
        seen[$1] = 1
        printf "%-20s %10.1f %10.1f %s\n", $1, $2, bound[$1], verdict
    }
    END {
        for (name in bound)
            if (!(name in seen)) {
                print name " has a bound but was not measured"
                bad++
            }
        exit bad > 0
    }' "$work/measured"
