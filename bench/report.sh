#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Turns the JSON lines of the benchmarks into the tables of a document, so that no figure is typed
# by hand: report.sh DOCUMENT FILE.jsonl...
#
# Whatever stands in the document between `<!-- figures: NAME LAYOUT [CASES] -->` and `<!-- end -->`
# is replaced by the figures of the benchmark NAME: of those cases alone, if there is such a regular
# expression. LAYOUT is one of
#   flat    one table: a row for each case, a column for each figure
#   cases   a table for each case: a row for each timer that was measured
#   counts  a table for each figure: a row for each case, a column for each number of timeouts
# Figures that are not in the files stay as they are in the document.
set -eu

[ $# -ge 2 ] || {
    sed -n '4,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
}
document=$1
shift
new=$(mktemp)
trap 'rm -f "$new"' EXIT

cat "$@" | awk -v document="$document" "$(cat "$(dirname "$0")/json.awk")"'
# Three digits are what these figures are worth.
function pretty(x,    a) {
    a = x < 0 ? -x : x
    if (a == 0) return "0"
    if (a >= 100) return sprintf("%.0f", x)
    if (a >= 10) return sprintf("%.1f", x)
    return sprintf(a >= 0.01 ? "%.2f" : "%.2g", x)
}
function cell(i, plain,    s, over) {
    s = pretty(median[i])
    if (!plain && runs[i] > 1 && pretty(least[i]) != pretty(most[i]))
        s = s " (" pretty(least[i]) " to " pretty(most[i]) ")"
    if (limit[i] > 0)
        s = s (median[i] <= limit[i] ? ", kept: " : ", **over** ") pretty(limit[i])
    else if (limit[i] < 0)
        s = s (most[i] > 0 ? ", **should be none**" : "")
    return s
}
function widen(i) {
    if (!seen_any || line[i] < line_lo) line_lo = line[i]
    if (!seen_any || line[i] > line_hi) line_hi = line[i]
    if (!seen_any || clock[i] < clock_lo) clock_lo = clock[i]
    if (!seen_any || clock[i] > clock_hi) clock_hi = clock[i]
    if (!seen_any || load[i] < load_lo) load_lo = load[i]
    if (!seen_any || load[i] > load_hi) load_hi = load[i]
    if (runs[i] > most_runs) most_runs = runs[i]
    all_cpus = cpus[i]
    if (quick[i]) any_quick = 1
    seen_any = 1
}
# A table of the figures numbered in pick[1..picked]: rows by row(i), columns by column(i).
function table(heading, plain,    i, r, c, n_rows, n_columns, rows, columns, row_at, column_at,
               of, s) {
    for (i = 1; i <= picked; i++) {
        r = row_of[pick[i]]
        c = column_of[pick[i]]
        if (!(r in row_at)) { row_at[r] = ++n_rows; rows[n_rows] = r }
        if (!(c in column_at)) { column_at[c] = ++n_columns; columns[n_columns] = c }
        of[r, c] = pick[i]
        widen(pick[i])
    }
    s = "| " heading " |"
    for (c = 1; c <= n_columns; c++) s = s " " columns[c] " |"
    print s
    s = heading
    gsub(/[^|]+/, " --- ", s)
    s = "|" s "|"
    for (c = 1; c <= n_columns; c++) s = s " ---: |"
    print s
    for (r = 1; r <= n_rows; r++) {
        s = "| " rows[r] " |"
        for (c = 1; c <= n_columns; c++)
            s = s " " ((rows[r], columns[c]) in of ? cell(of[rows[r], columns[c]], plain) : "") " |"
        print s
    }
    print ""
}
function short_unit(i,    u) {
    u = unit[i]
    sub(/,.*/, "", u)
    return u
}
function who(i) {
    return (producers[i] ? producers[i] : "") " | " (count[i] ? count[i] : "")
}
function flat(name,    i) {
    picked = 0
    for (i = 1; i <= n; i++)
        if (bench[i] == name && scenario[i] ~ only) {
            row_of[i] = subject[i] " | " scenario[i] " | " who(i)
            column_of[i] = metric[i] ", " short_unit(i)
            pick[++picked] = i
        }
    table("timer | case | producers | timeouts", 0)
}
function each_case(name,    i, k, cases, known, list) {
    for (i = 1; i <= n; i++)
        if (bench[i] == name && scenario[i] ~ only && !(scenario[i] in known)) {
            known[scenario[i]] = 1
            list[++cases] = scenario[i]
        }
    for (k = 1; k <= cases; k++) {
        picked = 0
        for (i = 1; i <= n; i++)
            if (bench[i] == name && scenario[i] == list[k]) {
                row_of[i] = subject[i] " | " who(i)
                column_of[i] = metric[i] ", " short_unit(i)
                pick[++picked] = i
            }
        print "**" list[k] "**\n"
        table("timer | producers | timeouts", 0)
    }
}
function by_count(name,    i, k, metrics, known, list) {
    for (i = 1; i <= n; i++)
        if (bench[i] == name && scenario[i] ~ only && !(metric[i] in known)) {
            known[metric[i]] = 1
            list[++metrics] = metric[i]
        }
    for (k = 1; k <= metrics; k++) {
        picked = 0
        for (i = 1; i <= n; i++)
            if (bench[i] == name && scenario[i] ~ only && metric[i] == list[k]) {
                order = unit[i]
                sub(/^[^,]*, */, "", order)
                row_of[i] = scenario[i] " | " order
                column_of[i] = count[i]
                pick[++picked] = i
            }
        print "**" list[k] "**, ns\n"
        table("structure | order", 1)
    }
}
function has_any(name,    i) {
    for (i = 1; i <= n; i++)
        if (bench[i] == name && scenario[i] ~ only) return 1
    return 0
}
function figures(name, layout,    i, runs_are) {
    seen_any = most_runs = any_quick = 0
    print ""
    if (layout == "cases") each_case(name)
    else if (layout == "counts") by_count(name)
    else flat(name)
    for (i = 1; i <= skips; i++)
        if (skip_bench[i] == name)
            print skip_who[i] " was skipped: " skip_why[i] ".\n"
    runs_are = most_runs == 1 ? "Single runs" : "Medians of up to " most_runs " runs"
    if (most_runs > 1) runs_are = runs_are ", range in brackets"
    printf "%s%s. " \
           "%d CPUs; a cache line crosses in %s to %s ns, " \
           "a clock read takes %s to %s ns, others kept %s to %s CPUs busy.\n\n",
           runs_are,
           any_quick ? ", short ones (--quick)" : "", all_cpus, pretty(line_lo), pretty(line_hi),
           pretty(clock_lo), pretty(clock_hi), pretty(load_lo), pretty(load_hi)
}
/"skipped":/ {
    skip_bench[++skips] = text("bench")
    skip_who[skips] = text("subject")
    skip_why[skips] = text("skipped")
    next
}
/^\{/ {
    n++
    bench[n] = text("bench"); subject[n] = text("subject"); scenario[n] = text("case")
    metric[n] = text("metric"); unit[n] = text("unit")
    producers[n] = number("producers"); count[n] = number("count")
    median[n] = number("median"); least[n] = number("min"); most[n] = number("max")
    runs[n] = number("runs"); limit[n] = number("limit"); quick[n] = number("quick")
    cpus[n] = number("cpus"); line[n] = number("line_ns"); clock[n] = number("clock_ns")
    load[n] = number("load")
}
END {
    while ((getline row < document) > 0) {
        if (row ~ /^<!-- end -->/)
            inside = 0
        if (!inside)
            print row
        if (row ~ /^<!-- figures: /) {
            split(row, word, " ")
            only = row
            sub(/^<!-- figures: [^ ]* [^ ]* /, "", only)
            sub(/ ?-->.*/, "", only)
            if (only == "") only = "."
            if (has_any(word[3])) {
                inside = 1
                figures(word[3], word[4])
            }
        }
    }
}' >"$new"
cat "$new" >"$document"
