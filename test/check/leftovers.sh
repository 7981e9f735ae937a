#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Nothing is left over: the folders and files that the makefiles and scripts name exist, and what
# .ci/deps asks for is used.

set -eu
cd "$(dirname "$0")/../.."
status=0
mapfile -t makefiles < <(printf '%s\n' Makefile ./*/*.mk ./*/*/*.mk | sed 's,^\./,,')
mapfile -t scripts < <(printf '%s\n' .ci/* test/*.sh test/*/*.sh bench/*.sh bench/*/*.sh)

# Whatever stands under our folders, wildcards included.
named=0
while IFS=: read -r file path; do
    case $path in *.\*) continue ;; esac # a regular expression
    named=$((named + 1))
    compgen -G "${path//NAME/*}" >/dev/null ||
        { echo "$file names $path, which does not exist"; status=1; }
done < <(grep -oE '(^|[^a-zA-Z0-9_/.)}-])(src|test|bench|docs|include|\.ci)/[][a-zA-Z0-9_.*/-]*' \
    "${makefiles[@]}" "${scripts[@]}" | sed -E 's/:[^a-z.]/:/; s/[.,]*$//' | sort -u)
[ $named -gt 50 ] || { echo "found only $named names of files"; status=1; }

asked=0
while read -r what; do
    asked=$((asked + 1))
    grep -qwF -e "$what" -r "${makefiles[@]}" "${scripts[@]}" src test bench docs/examples \
        --exclude=deps --exclude=leftovers.sh ||
        { echo ".ci/deps asks for $what, which nothing uses"; status=1; }
done < <({
    grep -oE 'command -v [a-z0-9+-]+' .ci/deps | sed 's/.* //'
    sed -n 's/.*for tool in \(.*\); do/\1/p' .ci/deps | tr ' ' '\n'
    grep -oE 'has_header c(\+\+)? [a-z_/.]+' .ci/deps | sed 's/.* //'
    grep -oE 'has_package_header [a-z0-9.-]+' .ci/deps | sed 's/.* //'
} | grep -vxE 'apt-get|sudo|criterion|liblzma|clang' | sort -u)
[ $asked -gt 15 ] || { echo "found only $asked questions in .ci/deps"; status=1; }

echo "$named names, $asked questions"
exit $status
