#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The top level holds what it should and nothing else; every source names its licence, keeps to 100
# columns and leaves nothing marked for later; every row of a document's table has its cells.

set -eu
shopt -s lastpipe # complain, at the end of a pipe, sets our status
cd "$(dirname "$0")/../.."
status=0

complain() # what, then the lines on standard input, if there are any
{
    local lines
    lines=$(cat)
    [ -z "$lines" ] && return
    printf '%s:\n%s\n' "$1" "$lines"
    status=1
}

# Files of the project: those git knows or would add; without git (a release archive) all of them;
# but for what is built.
built=$(realpath -m --relative-to=. "${BUILD:-build}")
project_files()
{
    if [ -e .git ] && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -co --exclude-standard --exclude="/$built/" | while IFS= read -r f; do
            [ -e "$f" ] && echo "$f"
        done
    else
        find . -type f ! -path "./$built/*" | sed 's,^\./,,'
    fi
}

[ -e .git ] || echo "left out: what git knows of the tree: this is a release, see git clone"

mapfile -t files < <(project_files)
mapfile -t texts < <(printf '%s\n' "${files[@]}" | grep -vE '\.(xz|png|svg|csv|json)$')
mapfile -t sources < <(printf '%s\n' "${files[@]}" |
    grep -E '(\.([ch]|cc|hpp|pml|sh|map|mk)|^Makefile|^\.ci/.*)$')
mapfile -t code < <(printf '%s\n' "${files[@]}" | grep -E '(\.([ch]|cc|hpp|sh)|^\.ci/.*)$')

printf '%s\n' "${files[@]}" | sed 's,/.*,,' | sort -u |
    grep -vxE 'Makefile|include|src|test|bench|docs|README\.md|LICENSE|\..+' |
    complain "not at the top level" || :
for f in Makefile include src test bench docs README.md LICENSE; do
    [ -e "$f" ] || echo "$f"
done | complain "missing at the top level"

# Spelled so that this file does not hold what it looks for.
later='TO''DO|FIX''ME|XX''X'
outside='\.\./sha''red'
{ grep -nE "\\b($later)\\b" "${texts[@]}" || :; } | complain "marked for later"
{ grep -nE "$outside" "${texts[@]}" || :; } | complain "refers to something outside the project"

awk '/SPDX-License-Identifier: BSD-2-Clause/ && FNR <= 3 { licensed[FILENAME] = 1 }
    END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in licensed)) print ARGV[i] }' \
    "${sources[@]}" | complain "without a licence line"
{ grep -nE '.{101}' "${code[@]}" | grep -v 'LDFLAGS:' || :; } | complain "beyond 100 columns"
{ grep -nE '[[:blank:]]+$' "${code[@]}" Makefile || :; } | complain "blanks at the end of a line"
{ grep -lP '\t' "${code[@]}" || :; } | complain "with tabs"
for f in test/*.sh test/*/*.sh bench/*.sh bench/*/*.sh .ci/*; do
    case $(head -c 2 "$f") in
    '#!') [ -x "$f" ] || echo "$f" ;;
    *) [ ! -x "$f" ] || echo "$f" ;;
    esac
done | complain "executable without a line #!, or the other way round"

# A row with a cell too many loses its last one where it is shown.
mapfile -t documents < <(printf '%s\n' "${files[@]}" | grep -E '\.md$')
awk '!/^\|/ { cells = 0; next }
    { row = $0; gsub(/`[^`]*`|\\\|/, "x", row); n = gsub(/\|/, "", row) }
    !cells { cells = n }
    n != cells { print FILENAME ":" FNR ": " $0 }' "${documents[@]}" |
    complain "rows of a table that are not as long as its first"

echo "${#files[@]} files"
exit $status
