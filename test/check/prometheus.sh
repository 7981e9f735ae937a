#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What hwt_stats_prometheus writes, of a timer that has run, is what Prometheus reads: its own tool
# finds nothing to say, with labels and without, and of several on one page (an example).

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}"
command -v promtool >/dev/null || { echo "promtool is not installed (make deps-full)"; exit 77; }
[ "${KIND:-release}" = release ] || { echo "for the release build"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/page.c" <<'END'
#include <hwt.h>
#include <stdio.h>

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

int main(int argc, char **argv)
{
    hwt_timer *timer;
    hwt_stats stats;
    char page[16384];

    if (hwt_timer_create(&timer, NULL) != 0)
        return 1;
    for (int i = 0; i < 1000; i++) {
        if (hwt_new_timeout(timer, task, NULL, HWT_USEC(i), NULL) != 0)
            return 2;
    }
    while (hwt_timer_pending(timer) > 0)
        continue;
    hwt_timer_stop(timer, NULL);
    hwt_stats_init(&stats);
    hwt_timer_stats(timer, &stats);
    hwt_timer_destroy(timer);
    if (hwt_stats_prometheus(&stats, argc > 1 ? argv[1] : NULL, page, sizeof page) <= 0)
        return 3;
    fputs(page, stdout);
    return 0;
}
END
$CC -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude -o "$tmp/page" "$tmp/page.c" "$BUILD/libhwt.a" \
    -pthread
"$tmp/page" >"$tmp/plain"
"$tmp/page" 'timer="rpc",zone="a"' >"$tmp/labelled"
$CC -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude -o "$tmp/metrics" docs/examples/metrics.c \
    "$BUILD/libhwt.a" -pthread
"$tmp/metrics" "$tmp/several"
for page in plain labelled several; do
    promtool check metrics <"$tmp/$page" >"$tmp/said" 2>&1 || { cat "$tmp/said"; exit 1; }
    [ ! -s "$tmp/said" ] || { cat "$tmp/said"; exit 1; }
done
echo "$(grep -vc '^#' "$tmp/labelled") lines"
