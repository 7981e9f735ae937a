#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# No single call has much to do, whatever is pending or was (G7): an instrumented library counts the
# accesses to memory of every call of schedule and of cancel, beside 20,000 and beside 200,000
# timeouts, and while the memory of as many is given back: where there is a worker by no call, and
# otherwise on the way of calls.

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
    END { print most; exit over || NR != 32 }' <<<"$calls") || { cat "$tmp/rows"; exit 1; }
# It counts at all; and by calls memory was given back, but not where there is a worker.
back()
{
    sed -n "s/.*, $1's\".*\"metric\":\"back in all\".*\"median\":\([0-9.]*\),.*/\1/p" "$tmp/figures"
}
if [ "$most" -lt 100 ] ||
    ! back 'a caller' | awk '$1 > 4096 { some = 1 } END { exit !some }' ||
    ! back 'a worker' | awk '$1 > 0 { some = 1 } END { exit some || NR != 8 }'; then
    cat "$tmp/rows"
    exit 1
fi
echo "at most $most accesses a call"
