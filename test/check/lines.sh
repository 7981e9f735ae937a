#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# No cache line goes from one producer to another in the steady state, however many there are, with
# max_pending or without: an instrumented library is watched access by access, as a machine of 2 and
# of 16 CPUs would see it.

set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

bench/count/run.sh lines "$tmp/figures" >"$tmp/rows" ||
    { status=$?; cat "$tmp/rows"; exit $status; }

shared='"metric":"shared lines","unit":"lines","median":'
rows=$(grep -c "$shared" "$tmp/figures" || true)
none=$(grep -c "${shared}0," "$tmp/figures" || true)
if [ "$rows" != 4 ] || [ "$none" != 4 ]; then
    cat "$tmp/rows"
    exit 1
fi
# It watches at all.
grep -qE '"metric":"writes","unit":"/pair","median":[1-9]' "$tmp/figures" ||
    { cat "$tmp/rows"; exit 1; }
echo "0 lines shared"
