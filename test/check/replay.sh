#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# hwt-replay, the main job: good files are played and every outcome checked (G1, G2, G3), bad
# ones are refused with the place named, and the exit status tells which it was.
set -u
cd "$(dirname "$0")/../.." || exit 1

replay=${HWT_REPLAY:-${BUILD:-build}/hwt-replay}
trace=bench/data/linux-tcp-timers.csv.xz
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# run STATUS ARGUMENT...: the exit status must be STATUS; stdout and stderr stay in files.
run() {
    wanted=$1
    shift
    timeout 120 "$replay" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" -eq "$wanted" ] && return
    fail "hwt-replay $*: exit status $got, not $wanted"
    sed 's/^/    /' "$work/err"
}

says() {
    grep -qF -- "$2" "$work/$1" && return
    fail "no \"$2\" on std$1, but:"
    head -5 "$work/$1" | sed 's/^/    /'
}

# refused TEXT...: the file $work/bad.csv must be refused with this text on stderr.
refused() {
    run 2 --speed=max --rounds=1 "$work/bad.csv"
    says err "$1"
    [ -s "$work/out" ] && fail "a refused file, yet something on stdout"
}

header=time_ns,op,timer,delay_ns

# bad_line LINE TEXT: refused with TEXT when LINE is the third line.
bad_line() {
    printf '%s\n0,S,0,1000000\n%s\n' "$header" "$1" >"$work/bad.csv"
    refused "bad.csv:3: $2"
}

# The part of the JSON that only the file decides, without the file's name.
counts() {
    grep '"trace"' "$work/out" | sed 's/"path": "[^"]*", //'
}

command -v xz >/dev/null || {
    echo "xz is not installed: apt-get install xz-utils"
    exit 77
}
if [ ! -x "$replay" ] && ! echo '#include <lzma.h>' | ${CC:-gcc} -E - >/dev/null 2>&1; then
    echo "liblzma is not installed: apt-get install liblzma-dev"
    exit 77
fi
# HWT_REPLAY names a program of one's own, sanitized for instance; otherwise build the usual one.
if [ -z "${HWT_REPLAY:-}" ]; then
    ${MAKE:-make} -s "$replay" || exit 1
fi

# ---- what it says about itself ----
run 0 --help
says out "Usage: hwt-replay"
says out "--moves=reschedule|cancel|both"
run 0 --version
says out "libhwt"
run 2 --no-such-option
run 2 --speed=fast
says err "--speed must be real, max or both"
run 2 --producers=0
says err "--producers must be a number from 1 to 64"
run 2 --limit=-1
run 2 one two

# ---- a good file ----
run 0 --speed=max --rounds=1 --quiet "$trace"
says out "VERDICT: good"
says out "balanced"
says out "What hwt_timeout_reschedule saves"
[ -s "$work/err" ] && fail "--quiet, yet something on stderr"

run 0 --speed=max --rounds=1 --json "$trace"
says out '"records": 621228, "timers": 12247, '
says out '"S": 95646, "R": 439445, "C": 85563, "X": 574, "due": 704'
says out '"mismatches": 0'
counts >"$work/from_xz"

# Not compressed, or by another name: the same.
xz -dc "$trace" >"$work/trace.csv"
run 0 --speed=max --rounds=1 --json "$work/trace.csv"
counts >"$work/from_csv"
cmp -s "$work/from_xz" "$work/from_csv" || fail ".csv and .csv.xz are counted differently"
cp "$trace" "$work/compressed.csv"
run 0 --speed=max --rounds=1 --moves=reschedule --json "$work/compressed.csv"
counts | cmp -s - "$work/from_xz" || fail "a compressed file without .xz is counted differently"

# Two .xz streams one behind the other are one file.
head -1000 "$work/trace.csv" | xz >"$work/two.csv.xz"
sed -n 1001,2001p "$work/trace.csv" | xz >>"$work/two.csv.xz"
run 0 --speed=max --rounds=1 --json "$work/two.csv.xz"
says out '"records": 2000'

# ---- in real time, both ways to move, both wheels, few and many producers ----
run 0 --speed=real --limit=60000 "$trace"
says out "VERDICT: good"
says out "Lateness of the"
run 0 --speed=real --moves=cancel --wheel=hashed --producers=1 --limit=40000 "$trace"
run 0 --speed=max --wheel=hashed --tick=100 --producers=64 --rounds=2 --json "$trace"
says out '"moves": "cancel"'
says out '"producers": 64'

# Everything fires: nothing touches these again.
awk -v header="$header" 'BEGIN {
    print header
    for (i = 0; i < 2000; i++)
        print i * 10000 ",S," i "," (i * 7919) % 50 * 1000000
    print "100000000,S,2000,0"
}' >"$work/all_fire.csv"
run 0 --speed=real --json "$work/all_fire.csv"
says out '"due": 2001'
says out '"fired": 2001, "handed_back": 0, "due_fired": 2001'

# ---- bad files ----
run 2 "$work/nothing.csv"
says err "cannot open $work/nothing.csv: No such file"
run 2 "$work"
says err "$work: "

size=$(wc -c <"$trace")
for bytes in 100 $((size / 2)) $((size - 1)); do
    head -c "$bytes" "$trace" >"$work/short.csv.xz"
    run 2 --speed=max "$work/short.csv.xz"
    says err "short.csv.xz: truncated: the compressed data stops at byte $bytes, after line"
    [ -s "$work/out" ] && fail "a truncated file, yet something on stdout"
done
{
    head -c $((size / 2)) "$trace"
    head -c 64 /dev/zero
    tail -c +$((size / 2 + 65)) "$trace"
} >"$work/damaged.csv.xz"
run 2 --speed=max "$work/damaged.csv.xz"
says err "damaged.csv.xz: damaged .xz data at byte"
cp "$work/trace.csv" "$work/liar.csv.xz"
run 2 "$work/liar.csv.xz"
says err "liar.csv.xz: not an .xz file"

: >"$work/bad.csv"
refused "bad.csv: the file is empty"
echo "$header" >"$work/bad.csv"
refused "bad.csv: no records in it"
echo "0,S,0,1000000" >"$work/bad.csv"
refused "bad.csv:1: the first line must be"
printf '%s\n0,S,0,1000' "$header" >"$work/bad.csv"
refused "bad.csv:2: the file ends in the middle of a line"

bad_line "" "time_ns is not a number"
bad_line "5" "a comma is missing after time_ns"
bad_line "-5,S,1,40000000" "time_ns is not a number"
bad_line "99999999999999999999,C,0," "time_ns is not a number"
bad_line "5,Q,1,40000000" "op must be S, R, C or X"
bad_line "5,SR,1,40000000" "a comma is missing after op"
bad_line "5,S,one,40000000" "timer is not a number"
bad_line "5,S,16777216,40000000" "timer is not a number below 2^24"
bad_line "5,S,1" "a comma is missing after timer"
bad_line "5,R,0," "delay_ns is missing"
bad_line "5,R,0,4.5" "delay_ns is not a number"
bad_line "5,S,1,40000000,1" "delay_ns is not a number"
bad_line "5,C,0,40000000" "delay_ns must be empty"
bad_line "$(printf '%0300d' 0)" "the line is too long"
printf '%s\n5,S,0,1000000\n4,C,0,\n' "$header" >"$work/bad.csv"
refused "bad.csv:3: the time goes backwards"

# ---- a result that nobody can read is no success ----
if [ -c /dev/full ]; then
    timeout 60 "$replay" --speed=max --rounds=1 --limit=1000 -q "$trace" >/dev/full 2>/dev/null
    [ $? -eq 2 ] || fail "stdout full, yet not exit status 2"
fi

if [ "$failures" -ne 0 ]; then
    echo "replay: $failures failures"
    exit 1
fi
echo "replay: good"
