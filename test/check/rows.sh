#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the benchmarks print can be read: each row by itself, with what it is about, its unit and the
# state of the machine; the summary of a whole run fits a screen; a document's tables are made of
# them.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$MAKE" -s KIND=release BUILD="$BUILD" CC="$CC" "$BUILD/bench/submit" >"$tmp/log" 2>&1 ||
    { cat "$tmp/log"; exit 1; }
"$BUILD/bench/submit" --quick --repeats 2 --seconds 0.02 --json "$tmp/figures" >"$tmp/rows"

row='^hwt +(delay|deadline), [0-9]+ producers?, [0-9]+ timeouts +[a-zA-Z/ ]+ +[0-9.e+]+ '
row="$row(ns|times|MB|%) +\\([0-9.e+-]+ to [0-9.e+-]+\\) .*\\[line [0-9]+ ns, clock [0-9.]+ ns,"
row="$row load [0-9.]+\\]\$"
if [ "$(grep -c '^hwt ' "$tmp/rows")" = 0 ] || grep '^hwt ' "$tmp/rows" | grep -vE "$row"; then
    echo "rows that cannot be read alone"
    exit 1
fi
grep -qE 'limit 1\.6: (kept|OVER)' "$tmp/rows" || { echo "no row says its limit"; exit 1; }

# As long as a whole run's, and longer.
suite="submit population expire cancel-wheel reschedule lateness idle burst scaling tail lines"
for bench in $suite; do
    for metric in "CPU a pair" "peak memory" "late p50"; do
        sed "s/\"bench\":\"submit\"/\"bench\":\"$bench\"/; s/CPU . clock/$metric/" "$tmp/figures"
    done
done >"$tmp/many"
for file in figures many; do
    bench/summary.sh "$tmp/$file" >"$tmp/summary"
    [ "$(wc -l <"$tmp/summary")" -le 24 ] || { cat "$tmp/summary"; exit 1; }
    if grep -E '.{101}' "$tmp/summary"; then echo "beyond 100 columns"; exit 1; fi
    grep -qE '^[0-9]+ figures, [0-9]+ with a limit: [0-9]+ kept, [0-9]+ OVER' "$tmp/summary" ||
        { cat "$tmp/summary"; exit 1; }
done

printf '%s\n' 'before' '<!-- figures: submit flat -->' 'old' '<!-- end -->' 'after' >"$tmp/document"
bench/report.sh "$tmp/document" "$tmp/figures"
if grep -q '^old' "$tmp/document" || [ "$(grep -cE '^(before|after)$' "$tmp/document")" != 2 ] ||
    ! grep -qE '^\| hwt \| delay \| 1 \| 1024 \| [0-9.]+' "$tmp/document" ||
    ! grep -qE '^Medians of up to 2 runs, .* [0-9]+ CPUs?; a cache line' "$tmp/document"; then
    cat "$tmp/document"
    exit 1
fi
echo "$(grep -c '^hwt ' "$tmp/rows") rows"
