#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# What a run of the benchmarks comes to, on one screen: summary.sh FILE.jsonl... says for each
# figure that has a limit how many cases keep it and which is the furthest from it, then what was
# left out, and in what state the machine was.
set -eu

[ $# -ge 1 ] || {
    echo "summary.sh FILE.jsonl..."
    exit 2
}

cat "$@" | awk "$(cat "$(dirname "$0")/json.awk")"'
function span(key, value) {
    if (!(key in least) || value < least[key]) least[key] = value
    if (!(key in most) || value > most[key]) most[key] = value
}
/"skipped":/ {
    skipped++
    next
}
/^\{/ {
    figures++
    span("line", number("line_ns"))
    span("clock", number("clock_ns"))
    span("load", number("load"))
    limit = number("limit")
    if (limit == 0)
        next
    group = sprintf("%-13s %-18s", text("bench"), text("metric"))
    if (!(group in cases))
        order[++groups] = group
    cases[group]++
    median = number("median")
    good = limit > 0 ? median <= limit : number("max") <= 0
    kept[group] += good
    all_kept += good
    limited++
    distance = limit > 0 ? median / limit : number("max")
    if (!(group in furthest) || distance > furthest[group]) {
        furthest[group] = distance
        worst[group] = sprintf("%.3g %s of %s", median, text("unit"),
            limit > 0 ? sprintf("%.3g", limit) : "none")
        where[group] = text("case") (number("producers") ? ", " number("producers") " prod." : "")
    }
}
END {
    if (!figures) {
        print "no figures"
        exit 1
    }
    print ""
    for (i = 1; i <= groups && i <= 18; i++)
        printf "%s %2d of %2d kept; furthest: %-20s %s\n", order[i], kept[order[i]],
            cases[order[i]], worst[order[i]], substr(where[order[i]], 1, 26)
    if (groups > 18)
        printf "... and %d figures more\n", groups - 18
    printf "%d figures, %d with a limit: %d kept, %d OVER%s\n", figures, limited, all_kept,
        limited - all_kept, (skipped ? "; " skipped " left out" : "")
    printf "the machine: line %.0f to %.0f ns, clock read %.0f to %.0f ns, ",
        least["line"], most["line"], least["clock"], most["clock"]
    printf "%.1f to %.1f CPUs busy\n", least["load"], most["load"]
}'
