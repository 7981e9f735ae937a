#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Run tests that are already built and count them: run-tests.sh WHAT... where WHAT is a folder of
# test/, or one of its files without the suffix (unit/lane, check/header):
#   unit      programs of Criterion
#   again     those of them that choose at random, in turn, for AGAIN_SECONDS
#   valgrind  all of them under valgrind, and the fuzz programs
#   stress    STRESS_SECONDS each (default: their own)
#   fault
#   fuzz      on random input of a seed
#   model     relacy models (.cc) and spin models (.pml)
#   check     scripts
#   sim       the simulator, SIM_SECONDS on every CPU (default: 20)
#   packages  scripts: what packagers do; a minute or two
# or KIND=..., the kind of build for what follows.
# Environment: KIND (kind of build), BUILD (its folder), CC, CXX, MAKE.
#
# The last line is `N passed, N failed`, with `, N skipped` if any were. HWT_TALLY names a file to
# which the three numbers go instead, for a caller that adds up several runs; HWT_FAILURES and
# HWT_ABSENT, files for the names of those that failed, and of what was left out.

set -u
cd "$(dirname "$0")/.." || exit
: "${KIND:=release}" "${BUILD:=build}" "${CC:=gcc}" "${CXX:=g++}" "${MAKE:=make}"
export KIND BUILD CC CXX MAKE LC_ALL=C.UTF-8
# A make that a script starts is not part of the one that started us, and may use all CPUs.
unset MFLAGS MAKELEVEL
MAKEFLAGS=-j$(nproc)
export MAKEFLAGS

passed=0 failed=0 skipped=0
failures=()
absent=()

wrap=()
use_kind() # kind
{
    KIND=$1
    if [ "$KIND" = release ]; then programs=$BUILD/test; else programs=$BUILD/$KIND/test; fi
    logs=$programs/log
    mkdir -p "$logs"
    wrap=()
    # The fixed shadow of older ThreadSanitizers collides with much address randomization.
    if [ "$KIND" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
        wrap=(setarch "$(uname -m)" -R)
    fi
}

# Far beyond what any of them takes: only a hang meets it.
set_limit() # folder
{
    limit=180
    case $KIND in asan | tsan | coverage) limit=400 ;; esac
    case $1 in
    stress) limit=$((limit + 10 * ${STRESS_SECONDS:-0})) ;;
    model) limit=600 ;;
    packages) limit=900 ;;
    valgrind) limit=900 ;;
    sim) limit=$((${SIM_SECONDS:-20} + 200)) ;;
    esac
}

# What goes wrong once in some hundred runs: the wheel and what it is made of, which no clock and no
# other thread disturbs.
again_names='agenda ladder next order virtual virtual_model wheel wheel_cascade wheel_memory
wheel_pause'

prepare_sanitizers()
{
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
}

report() # ok|FAIL|skip name remark
{
    printf '  %-5s %s%s\n' "$1" "$2" "${3:+ ($3)}"
}

pass() # name count remark
{
    passed=$((passed + $2))
    report ok "$1" "$3"
}

skip() # name remark
{
    skipped=$((skipped + 1))
    absent+=("$1: $2")
    report skip "$1" "$2"
}

# What a test that passed has not looked at, in lines `left out: WHAT: WHAT BRINGS IT IN`.
skip_parts() # name log
{
    local line
    while read -r line; do
        skip "$1" "${line#left out: }"
    done < <(grep '^left out: ' "$2")
}

fail() # name count remark log
{
    failed=$((failed + $2))
    failures+=("$1")
    report FAIL "$1" "$3"
    [ -s "$4" ] || return
    # Criterion's own words first: whoever keeps only the beginning of what is printed has them.
    local words='^\[(----|FAIL|ERR)'
    { grep -aE "$words" "$4" | head -n 20; grep -avE "$words" "$4" | tail -n 40; } |
        sed 's/^/        /'
}

# The exit status of a program under a time limit, its output in a log. In the background, so that
# whoever ends this script ends the program too.
child=
trap '[ -n "$child" ] && kill "$child"; exit 143' INT TERM
run() # log command...
{
    local log=$1 status
    shift
    mkdir -p "${log%/*}"
    timeout -k 10 "$limit" "${wrap[@]}" "$@" >"$log" 2>&1 </dev/null &
    child=$!
    wait "$child" 2>/dev/null
    status=$?
    child=
    return $status
}

why() # status
{
    case $1 in
    124 | 137) echo "no end after $limit s" ;;
    *) echo "exit status $1" ;;
    esac
}

# One number of Criterion's line "Synthesis: Tested: 7 | Passing: 7 | Failing: 0 | Crashing: 0".
synthesis() # log what
{
    sed 's/\x1b\[[0-9;]*m//g' "$1" |
        sed -n "s/.*Synthesis:.*$2: *\([0-9]*\).*/\1/p" | tail -n 1
}

# Criterion's children report leaks and errors on their way out, where nobody looks at the status.
tool_reports() # prefix
{
    local f
    for f in "$1".*; do
        [ -s "$f" ] && { echo "$f"; return; }
    done
}

unit_result() # name log status reports
{
    local tested good bad found
    tested=$(synthesis "$2" Tested)
    good=$(synthesis "$2" Passing)
    found=$(tool_reports "$4")
    bad=$((${tested:-0} - ${good:-0}))
    if [ "${tested:-0}" -gt 0 ] && [ "$bad" = 0 ] && [ "$3" = 0 ] && [ -z "$found" ]; then
        pass "$1" "$tested" "$tested tests"
        return
    fi
    passed=$((passed + ${good:-0}))
    [ "$bad" = 0 ] && bad=1
    [ -n "$found" ] && cat "$found" >>"$2"
    if [ -z "$tested" ]; then fail "$1" 1 "$(why "$3")" "$2"
    elif [ -n "$found" ]; then fail "$1" "$bad" "see $found" "$2"
    else fail "$1" "$bad" "${good:-0} of $tested passed, $(why "$3")" "$2"; fi
}

run_reporting() # reports log command...
{
    local reports=$1
    shift
    rm -f "$reports".*
    ASAN_OPTIONS=log_path=$reports${ASAN_OPTIONS:+:$ASAN_OPTIONS} run "$@"
}

unit_program() # name [wrapper...]
{
    local name=$1 log=$logs/$1.log reports=$logs/$1.report
    shift
    run_reporting "$reports" "$log" "$@" "$programs/$name"
    unit_result "$name" "$log" $? "$reports"
}

run_again()
{
    local name log reports status until=$((SECONDS + ${AGAIN_SECONDS:-60})) rounds=0
    export HWT_TEST_LOOK_EVERY=64
    for name in $again_names; do
        unit_absent "unit/$name" && return
    done
    while [ $SECONDS -lt $until ]; do
        for name in $again_names; do
            log=$logs/again/$name.log reports=$logs/again/$name.report
            run_reporting "$reports" "$log" "$programs/unit/$name"
            status=$?
            [ $status = 0 ] && [ -z "$(tool_reports "$reports")" ] && continue
            unit_result "unit/$name, round $((rounds + 1))" "$log" $status "$reports"
            return
        done
        rounds=$((rounds + 1))
    done
    pass again 1 "$rounds rounds"
}

# Each of Criterion's children is a valgrind of its own, which takes its time: VALGRIND_TESTS names
# the unit tests if not all are wanted.
run_valgrind()
{
    local name
    local memcheck=(valgrind -q --trace-children=yes --leak-check=full --fair-sched=try)
    command -v valgrind >/dev/null ||
        { skip valgrind "not installed: apt-get install valgrind"; return; }
    export HWT_VALGRIND=1
    for name in ${VALGRIND_TESTS:-$(names unit)}; do
        name=unit/${name#unit/}
        unit_program "$name" "${memcheck[@]}" --log-file="$logs/$name.report.%p"
    done
    wrap=("${memcheck[@]}" --error-exitcode=99)
    for name in $(names fuzz); do
        plain_program "$name" "$programs/$name" 50
    done
    wrap=()
}

plain_program() # name command...
{
    local name=$1 log=$logs/$1.log status
    shift
    run "$log" "$@"
    status=$?
    case $status in
    0)
        pass "$name" 1 "$(tail -n 1 "$log")"
        skip_parts "$name" "$log"
        ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *) fail "$name" 1 "$(why $status)" "$log" ;;
    esac
}

# A model says what its verifier needs in lines `/* spin: ... */` (compile) and `/* pan: ... */`
# (run). Assertions and deadlocks are one run, each of its ltl formulas another.
spin_option() # file what
{
    sed -n "s,^/\* $2: \(.*\) \*/\$,\1,p" "$1"
}

spin_model() # name
{
    local name=$1 source=$PWD/test/$1.pml log=$logs/$1.log dir=$programs/$1.spin
    local claim claims compile
    [[ $log == /* ]] || log=$PWD/$log
    read -ra compile <<<"$(spin_option "$source" spin)"
    mkdir -p "$dir" "${log%/*}"
    claims=$(sed -n 's/^ltl  *\([A-Za-z0-9_]*\).*/\1/p' "$source")
    if ! (cd "$dir" && spin -a "$source" &&
        gcc -O2 -w "${compile[@]}" -DNOCLAIM -o plain pan.c &&
        { [ -z "$claims" ] || gcc -O2 -w "${compile[@]}" -o claims pan.c; }) >"$log" 2>&1; then
        fail "$name" 1 "does not compile" "$log"
        return
    fi
    spin_run "$name" "$dir/plain" "$log" "$(spin_option "$source" pan)"
    for claim in $claims; do
        spin_run "$name $claim" "$dir/claims" "$log" "$(spin_option "$source" pan)" -N "$claim"
    done
}

spin_run() # name verifier log options arguments...
{
    local name=$1 verifier=$2 log=$3 status options
    read -ra options <<<"${4:--m1000000}"
    shift 4
    (cd "${verifier%/*}" && timeout -k 10 "$limit" ./"${verifier##*/}" -a "${options[@]}" "$@") \
        >"$log" 2>&1
    status=$?
    if [ $status = 0 ] && grep -q 'errors: 0' "$log" &&
        ! grep -qi 'search not completed\|max search depth too small' "$log"; then
        pass "$name" 1 "$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1 states/p' "$log")"
    else
        fail "$name" 1 "$(why $status)" "$log"
    fi
}

model() # name
{
    if [ -e "test/$1.pml" ]; then
        if command -v spin >/dev/null; then spin_model "$1"
        else skip "$1" "spin is not installed: apt-get install spin"; fi
    elif [ -x "$programs/$1" ] ||
        echo '#include <relacy/relacy.hpp>' | $CXX -x c++ -E - >/dev/null 2>&1; then
        plain_program "$1" "$programs/$1"
    else
        skip "$1" "relacy is not installed: apt-get install relacy-dev"
    fi
}

# What there is in a folder of test/, as folder/name: one line each.
names() # folder
{
    local f
    for f in "test/$1"/*.{c,cc,pml,sh}; do
        [ -e "$f" ] && f=${f#test/} && echo "${f%.*}"
    done
}

# Without Criterion (NODEPS=1) no unit test was built: one line says so for all of them.
unit_absent() # name
{
    [ ! -x "$programs/$1" ] &&
        ! echo '#include <criterion/criterion.h>' | $CC -E - >/dev/null 2>&1 || return 1
    [ "$told" = "$KIND" ] ||
        skip "unit, $KIND build" "Criterion is not installed: apt-get install libcriterion-dev"
    told=$KIND
}
told=

run_one() # folder/name
{
    set_limit "${1%%/*}"
    case $1 in
    unit/*) unit_absent "$1" || unit_program "$1" ;;
    stress/* | fault/*) plain_program "$1" "$programs/$1" ${STRESS_SECONDS:+"$STRESS_SECONDS"} ;;
    fuzz/*) plain_program "$1" "$programs/$1" ;;
    model/*) model "$1" ;;
    check/* | packages/*) plain_program "$1" "test/$1.sh" ;;
    *) fail "$1" 1 "no folder of tests" /dev/null ;;
    esac
}

# Where no test looks at the clock: as many at a time as there are CPUs, each a run of this script.
# Each must report, in a file of its own: of one that does not, nobody knows what it would say.
side_by_side() # names on standard input
{
    local p f s dir name all
    mapfile -t all
    if ! dir=$(mktemp -d) || ! mkdir "$dir/${all[0]%%/*}"; then
        fail "${all[0]%%/*}" ${#all[@]} "no folder for its results" /dev/null
        return
    fi
    touch "$dir/failures" "$dir/absent"
    lines "${all[@]}" | xargs -P "$(nproc)" -I{} env MAKE="$PWD/test/make-alone.sh" \
        HWT_MAKE="${HWT_MAKE:-$MAKE}" HWT_TALLY="$dir/{}" HWT_FAILURES="$dir/failures" \
        HWT_ABSENT="$dir/absent" HWT_ANNOUNCED="$announced" test/run-tests.sh {}
    for name in "${all[@]}"; do
        if ! read -r p f s 2>/dev/null <"$dir/$name"; then
            fail "$name" 1 "it did not report" /dev/null
            continue
        fi
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    mapfile -t -O ${#failures[@]} failures < <(sort "$dir/failures")
    mapfile -t -O ${#absent[@]} absent < <(sort "$dir/absent")
    rm -rf "$dir"
}

run_folder() # folder
{
    local name
    for name in $(names "$1"); do
        run_one "$name"
    done
}

lines() # words...
{
    [ $# = 0 ] || printf '%s\n' "$@"
}

tally()
{
    if [ -n "${HWT_TALLY:-}" ]; then
        echo "$passed $failed $skipped" >>"$HWT_TALLY"
        lines "${failures[@]}" >>"${HWT_FAILURES:-/dev/null}"
        lines "${absent[@]}" >>"${HWT_ABSENT:-/dev/null}"
        return
    fi
    lines "${absent[@]}" | sed 's/^/left out: /'
    lines "${failures[@]}" | sed 's/^/failed: /'
    echo "$passed passed, $failed failed$([ $skipped -gt 0 ] && echo ", $skipped skipped")"
}

use_kind "$KIND"
prepare_sanitizers
announced=${HWT_ANNOUNCED:-}
for what in "$@"; do
    case $what in
    KIND=*) use_kind "${what#KIND=}" && continue ;;
    esac
    # Files of one folder stand under one line.
    [ "$announced" = "${what%%/*} $KIND" ] || echo "${what%%/*}, $KIND build:"
    announced="${what%%/*} $KIND"
    case $what in
    again) set_limit unit && run_again ;;
    valgrind) set_limit valgrind && run_valgrind ;;
    sim) set_limit sim && plain_program sim/search env SIM="$BUILD/sim/hwt-sim" test/sim/run.sh ;;
    model) side_by_side < <(names model | tac) ;; # spin's first: they take the longest
    check) side_by_side < <(names check) ;;
    packages) side_by_side < <(names packages | tac) ;; # same_bytes and release first
    */*) run_one "$what" ;;
    *) run_folder "$what" ;;
    esac
done
tally
[ $failed -eq 0 ]
