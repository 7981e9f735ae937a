#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the project promises is tested, and the tests say so. Every guarantee of docs/guarantees.md
# and every rule of docs/concurrency.md is cited by its number in a file of test/. Every sentence of
# the comments in include/hwt.h has an entry in test/check/promises.txt, which explains itself;
# --sentences prints what counts as one.

set -eu
cd "$(dirname "$0")/../.."
export LC_ALL=C.UTF-8
header=include/hwt.h
promises=test/check/promises.txt
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
wrong=0

complain() # lines...
{
    printf '%s\n' "$@"
    wrong=$((wrong + 1))
}

# The comments of a header, a sentence a line, blanks squeezed. It ends with a full stop, with a
# semicolon (lists of results) or with its paragraph; a line of a table (gaps of three blanks) is
# one by itself.
sentences() # file
{
    awk '
        function flush() {
            sub(/\.$/, "", sentence)
            if (length(sentence) > 1 && sentence !~ /^----|^SPDX/)
                print sentence
            sentence = ""
        }
        function paragraph_line(text,    n, i, word) {
            sub(/^ *\*? ?/, "", text)
            sub(/^ +/, "", text)
            sub(/ +$/, "", text)
            if (text == "" || text ~ /   /)
                flush()
            n = split(text, word, / +/)
            for (i = 1; i <= n; i++) {
                if (word[i] == "")
                    continue
                if (sentence ~ /;$/ ||
                    (sentence ~ /\.\)?$/ && word[i] ~ /^([A-Z(*0-9`"-]|hwt_)/)) {
                    sub(/;$/, "", sentence)
                    flush()
                }
                sentence = sentence (sentence == "" ? "" : " ") word[i]
            }
            if (text ~ /   /)
                flush()
        }
        {
            rest = $0
            while (rest != "" || inside) {
                if (!inside) {
                    if (!(at = index(rest, "/*")))
                        break
                    rest = substr(rest, at + 2)
                    inside = 1
                }
                if (!(at = index(rest, "*/"))) {
                    paragraph_line(rest)
                    break
                }
                paragraph_line(substr(rest, 1, at - 1))
                flush()
                rest = substr(rest, at + 2)
                inside = 0
            }
        }' "$1"
}

sentences $header | sort -u >"$tmp/sentences" # two of the same words are one
[ -s "$tmp/sentences" ] || { echo "found no comment in $header"; exit 1; }
if [ "${1-}" = --sentences ]; then
    cat "$tmp/sentences"
    exit
fi

# ---- the numbers ----

cited() # number
{
    grep -rqE --include='*.[ch]' --include='*.cc' --include='*.pml' --include='*.sh' \
        --exclude=citations.sh "\\b$1\\b" test
}

numbers() # letter document
{
    grep -oE "\\*\\*$1[0-9]+ " "$2" | tr -d '* '
}

numbers G docs/guarantees.md >"$tmp/numbers"
numbers C docs/concurrency.md >>"$tmp/numbers"
for first in G1 C1; do
    grep -qx $first "$tmp/numbers" || complain "found no definition of $first in docs/"
done
while read -r number; do
    cited "$number" || complain "no file of test/ cites $number: name it beside the test that" \
        "    would fail without it"
done <"$tmp/numbers"

# ---- the sentences ----

# The tests that Criterion knows by name, as unit/FILE:TEST.
grep -oE '^(WHEEL_TEST|Test)\([a-z_0-9]+, [a-z_0-9]+' test/unit/*.c |
    sed -E 's,^test/(unit/[a-z_0-9]+)\.c:.*\, ,\1:,' >"$tmp/tests"

# Is there such a test? folder/name, or folder/name:test, which Criterion knows by that name, or
# which is a function of a program.
exists() # test
{
    local file name=${1#*:}
    for file in "test/${1%%:*}".{c,cc,pml,sh} ''; do
        [ ! -e "$file" ] || break
    done
    [ -n "$file" ] || return
    [ "$1" = "$name" ] && return
    case $file in
    test/unit/*) [ -n "${tests[$1]-}" ] ;;
    *) grep -qE "\\b$name\\(" "$file" ;;
    esac
}

declare -A tests
while read -r name; do
    tests[$name]=1
done <"$tmp/tests"
line=0
while IFS= read -r entry; do
    line=$((line + 1))
    case $entry in '' | '#'*) continue ;; esac
    fragment=${entry%% => *} shown=${entry#* => }
    if [ "$fragment" = "$entry" ] || [ -z "$shown" ]; then
        complain "$promises:$line: not of the form 'words of hwt.h => tests'" >&2
        continue
    fi
    printf '%s\t%s\n' "$line" "$fragment"
    case $shown in
    'no promise: '?*) continue ;;
    esac
    for test in ${shown//,/ }; do
        exists "$test" ||
            complain "$promises:$line: there is no test $test (as in unit/handles:accessors" \
                "    or stress/stop). Name the one that shows this now: \"$fragment\"." >&2
    done
done <$promises >"$tmp/fragments" 2>"$tmp/missing"
cat "$tmp/missing"

# The whole of a sentence stands for itself alone, a part of one for the only one that has it.
awk -F'\t' '
    FILENAME == ARGV[1] { fragment[$1] = $2; next }
    { sentence[++n] = $0; whole[$0] = n }
    END {
        for (line in fragment) {
            found = 0
            if (fragment[line] in whole)
                covered[whole[fragment[line]]] = ++found
            else
                for (i = 1; i <= n; i++)
                    if (index(sentence[i], fragment[line])) {
                        covered[i] = 1
                        found++
                    }
            if (found != 1)
                print (found ? "several" : "stale") "\t" line "\t" fragment[line]
        }
        for (i = 1; i <= n; i++)
            if (!(i in covered))
                print "uncovered\t0\t" sentence[i]
    }' "$tmp/fragments" "$tmp/sentences" | sort -t "$(printf '\t')" -k1,1 -k2,2n >"$tmp/verdicts"

while IFS=$'\t' read -r verdict line words; do
    case $verdict in
    stale)
        complain "$promises:$line: hwt.h no longer says \"$words\"." \
            "    If it says the same in other words, quote those, and see that the test still" \
            "    shows it. If it does not say it any more, take the entry out."
        ;;
    several)
        complain "$promises:$line: several sentences of hwt.h say \"$words\":" \
            "    quote more of the one that is meant."
        ;;
    uncovered)
        complain "hwt.h says \"$words\"," \
            "    and $promises has no entry with words of it. Add the line" \
            "        a few of its words => unit/FILE:TEST" \
            "    with a test that fails if it is not so (write it if there is none), or, if it" \
            "    promises nothing," \
            "        a few of its words => no promise: why"
        ;;
    esac
done <"$tmp/verdicts"

echo "$(wc -l <"$tmp/numbers") numbers, $(wc -l <"$tmp/sentences") sentences, $wrong not in order"
[ $wrong -eq 0 ]
