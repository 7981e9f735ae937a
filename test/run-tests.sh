#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Run tests that are already built and count them: run-tests.sh SECTION...
#   unit      Criterion programs test/test_*.c
#   valgrind  the same under valgrind, and test/fuzz_*.c
#   stress    test/stress_*.c, STRESS_SECONDS each (default: their own)
#   fault     test/fault_*.c
#   fuzz      test/fuzz_*.c, on random input of a seed
#   model     relacy models test/model_*.cc and spin models test/*.pml
#   scripts   test/check_*.sh
# Environment: KIND (kind of build), BUILD (its folder), CC, CXX, MAKE.
#
# The last line is `N passed, N failed`, with `, N skipped` if any were. HWT_TALLY names a file to
# which the three numbers go instead, for a caller that adds up several runs.

set -u
cd "$(dirname "$0")/.." || exit
: "${KIND:=release}" "${BUILD:=build}" "${CC:=gcc}" "${CXX:=g++}" "${MAKE:=make}"
export BUILD CC CXX MAKE
# A make that a script starts is not part of the one that started us.
unset MAKEFLAGS MFLAGS MAKELEVEL

if [ "$KIND" = release ]; then programs=$BUILD/test; else programs=$BUILD/$KIND/test; fi
logs=$programs/log
passed=0 failed=0 skipped=0
failures=()

# Far beyond what any of them takes: only a hang meets it.
limit=180
case $KIND in asan | tsan | coverage) limit=400 ;; esac

wrap=()
prepare_sanitizer()
{
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
    # The fixed shadow of older ThreadSanitizers collides with much address randomization.
    if [ "$KIND" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
        wrap=(setarch "$(uname -m)" -R)
    fi
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
    report skip "$1" "$2"
}

fail() # name count remark log
{
    failed=$((failed + $2))
    failures+=("$1")
    report FAIL "$1" "$3"
    [ -s "$4" ] && tail -n 60 "$4" | sed 's/^/        /'
}

# The exit status of a program under a time limit, its output in a log. In the background, so that
# whoever ends this script ends the program too.
child=
trap '[ -n "$child" ] && kill "$child"; exit 143' INT TERM
run() # log command...
{
    local log=$1 status
    shift
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

unit_program() # name [wrapper...]
{
    local name=$1 log=$logs/$1.log reports=$logs/$1.report status
    shift
    rm -f "$reports".*
    ASAN_OPTIONS=log_path=$reports${ASAN_OPTIONS:+:$ASAN_OPTIONS} \
        run "$log" "$@" "$programs/$name"
    status=$?
    unit_result "$name" "$log" "$status" "$reports"
}

section_unit()
{
    local f
    for f in test/test_*.c; do
        [ -e "$f" ] && unit_program "$(basename "$f" .c)"
    done
}

# Each of Criterion's children is a valgrind of its own, which takes its time: VALGRIND_TESTS names
# the programs if not all are wanted.
section_valgrind()
{
    local f name
    local memcheck=(valgrind -q --trace-children=yes --leak-check=full --fair-sched=try)
    command -v valgrind >/dev/null || { skip valgrind "not installed"; return; }
    limit=900
    export HWT_VALGRIND=1
    for f in test/test_*.c; do
        [ -e "$f" ] || continue
        name=$(basename "$f" .c)
        case " ${VALGRIND_TESTS:-$name} " in
        *" $name "*) unit_program "$name" "${memcheck[@]}" --log-file="$logs/$name.report.%p" ;;
        esac
    done
    wrap=("${memcheck[@]}" --error-exitcode=99)
    for f in test/fuzz_*.c; do
        [ -e "$f" ] && plain_program "$(basename "$f" .c)" 50
    done
    wrap=()
}

plain_program() # name arguments...
{
    local name=$1 log=$logs/$1.log status
    shift
    run "$log" "$programs/$name" "$@"
    status=$?
    case $status in
    0) pass "$name" 1 "$(tail -n 1 "$log")" ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *) fail "$name" 1 "$(why $status)" "$log" ;;
    esac
}

plain_programs() # prefix
{
    local f
    for f in test/"$1"_*.c; do
        [ -e "$f" ] && plain_program "$(basename "$f" .c)" ${STRESS_SECONDS:+"$STRESS_SECONDS"}
    done
}

section_stress()
{
    limit=$((limit + 10 * ${STRESS_SECONDS:-0}))
    plain_programs stress
}

section_fault()
{
    plain_programs fault
}

section_fuzz()
{
    local STRESS_SECONDS=
    plain_programs fuzz
}

section_scripts()
{
    local f name log status
    for f in test/check_*.sh; do
        [ -e "$f" ] || continue
        name=$(basename "$f")
        log=$logs/$name.log
        run "$log" "$f"
        status=$?
        case $status in
        0) pass "$name" 1 "$(tail -n 1 "$log")" ;;
        77) skip "$name" "$(tail -n 1 "$log")" ;;
        *) fail "$name" 1 "$(why $status)" "$log" ;;
        esac
    done
}

# A model says what its verifier needs in lines `/* spin: ... */` (compile) and `/* pan: ... */`
# (run). Assertions and deadlocks are one run, each of its ltl formulas another.
spin_option() # file what
{
    sed -n "s,^/\* $2: \(.*\) \*/\$,\1,p" "$1"
}

spin_model() # file
{
    local name source log dir claim compile
    name=$(basename "$1")
    source=$PWD/$1 log=$PWD/$logs/$name.log dir=$programs/spin_${name%.pml}
    read -ra compile <<<"$(spin_option "$1" spin)"
    mkdir -p "$dir"
    if ! (cd "$dir" && spin -a "$source" && gcc -O2 -w "${compile[@]}" -o claims pan.c &&
        gcc -O2 -w "${compile[@]}" -DNOCLAIM -o plain pan.c) >"$log" 2>&1; then
        fail "$name" 1 "does not compile" "$log"
        return
    fi
    spin_run "$name" "$dir/plain" "$log" "$(spin_option "$1" pan)"
    while read -r claim; do
        spin_run "$name $claim" "$dir/claims" "$log" "$(spin_option "$1" pan)" -N "$claim"
    done < <(sed -n 's/^ltl  *\([A-Za-z0-9_]*\).*/\1/p' "$1")
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

section_model()
{
    local f
    limit=600
    for f in test/model_*.cc; do
        [ -e "$f" ] || continue
        f=$(basename "$f" .cc)
        if [ -x "$programs/$f" ]; then plain_program "$f"
        else skip "$f" "relacy is not installed"; fi
    done
    for f in test/*.pml; do
        [ -e "$f" ] || continue
        if command -v spin >/dev/null; then spin_model "$f"
        else skip "$(basename "$f")" "spin is not installed"; fi
    done
}

tally()
{
    if [ -n "${HWT_TALLY:-}" ]; then
        echo "$passed $failed $skipped" >>"$HWT_TALLY"
        return
    fi
    [ ${#failures[@]} -gt 0 ] && printf 'failed: %s\n' "${failures[@]}"
    echo "$passed passed, $failed failed$([ $skipped -gt 0 ] && echo ", $skipped skipped")"
}

mkdir -p "$logs"
prepare_sanitizer
for section in "$@"; do
    echo "$section, $KIND build:"
    "section_$section"
done
tally
[ $failed -eq 0 ]
