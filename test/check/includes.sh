#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Includes in src/ point down: a file includes only headers that stand above it in the reading order
# of docs/design.md, or beside it in its row. The table lists every file of src/ once, and the tests
# that it names for them exist.

set -eu
shopt -s lastpipe # complain, at the end of a pipe, sets our status
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

complain() # what to do about it, then the lines on standard input, if there are any
{
    local lines
    lines=$(cat)
    [ -z "$lines" ] && return
    printf '%s:\n' "$1"
    printf '%s\n' "$lines" | sed 's/^/  /'
    status=1
}

# The names in backquotes of one column of the table, each with the number of its row.
column() # number
{
    awk -F'|' -v column="$1" '
        /^## / { inside = $0 == "## Reading order" }
        inside && /^\| *`/ {
            row++
            n = split($(column + 1), part, "`")
            for (i = 2; i <= n; i += 2)
                print row, part[i]
        }' docs/design.md
}

column 1 >"$tmp/files"
column 3 >"$tmp/tests"
[ -s "$tmp/files" ] || { echo "docs/design.md has no table under '## Reading order'"; exit 1; }

sed 's/^[0-9]* //' "$tmp/files" | sort >"$tmp/listed"
(cd src && printf '%s\n' *.[ch]) | sort >"$tmp/there"
uniq -d "$tmp/listed" | complain "twice in the table of docs/design.md"
sort -u "$tmp/listed" | comm -13 - "$tmp/there" |
    complain "in src/, but not in the table of docs/design.md: add each where it is to be read"
sort -u "$tmp/listed" | comm -23 - "$tmp/there" |
    complain "in the table of docs/design.md, but not in src/: take it out"

while read -r _ name; do
    [ -e "test/$name" ] || echo "test/$name"
done <"$tmp/tests" | complain "tests in the table of docs/design.md that do not exist"
awk 'NR == FNR { tested[$1]; next } $2 ~ /\.c$/ && !($1 in tested) { print $2 }' \
    "$tmp/tests" "$tmp/files" | complain "sources without a test in the table's third column"

# Lines "file header" of all that src/ includes of its own.
grep -HoE '^ *# *include *"[^"]*"' src/*.[ch] | sed 's,^src/\([^:]*\):.*"\(.*\)",\1 \2,' |
    grep -v ' hwt\.h$' >"$tmp/includes"
awk 'NR == FNR { row[$2] = $1; next }
     !($2 in row) { print $1 " includes " $2 ", which the table does not have"; next }
     ($1 in row) && row[$2] > row[$1] { print $1 " includes " $2 ", which stands below it" }' \
    "$tmp/files" "$tmp/includes" | complain "includes that do not point down"

echo "$(wc -l <"$tmp/includes") includes in $(wc -l <"$tmp/files") files"
exit $status
