#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# No single call has much to do, whatever is pending or was (G7): an instrumented library counts the
# accesses to memory of every call of schedule and of cancel, beside 20,000 and beside 200,000
# timeouts, and while the memory of as many is given back.

set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

bench/count/run.sh waits "$tmp/figures" >"$tmp/rows" ||
    { status=$?; cat "$tmp/rows"; exit $status; }

# Of this metric: each figure, and its limit.
values()
{
    sed -n "s/.*\"metric\":\"$1\".*\"median\":\([0-9.]*\),.*\"limit\":\([0-9.]*\).*/\1 \2/p" \
        "$tmp/figures"
}
calls=$(values 'schedule, most'; values 'cancel, most')
most=$(awk '{ if ($1 > most) most = $1; if ($1 > $2) over = 1 }
    END { print most; exit over || NR != 16 }' <<<"$calls") || { cat "$tmp/rows"; exit 1; }
# It counts at all, and memory was given back.
back=$(values 'back in all')
awk -v most="$most" '$1 > 4096 { some = 1 } END { exit most < 100 || !some }' <<<"$back" ||
    { cat "$tmp/rows"; exit 1; }
echo "at most $most accesses a call"
