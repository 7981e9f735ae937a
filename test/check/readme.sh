#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The first C program in README.md compiles as it is printed, without a warning, and runs.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

awk '/^```/ { if (inside) exit; inside = $0 == "```c"; next } inside' README.md >"$tmp/readme.c"
grep -q 'main' "$tmp/readme.c" || { echo "README.md has no C program"; exit 1; }
$CC -Wall -Wextra -Werror -Iinclude "$tmp/readme.c" -o "$tmp/static" "$BUILD/libhwt.a" -pthread
$CC -Wall -Wextra -Werror -Iinclude "$tmp/readme.c" -o "$tmp/dynamic" -L"$BUILD" -lhwt -pthread
timeout 30 "$tmp/static" || { echo "the program ended with $?"; exit 1; }
LD_LIBRARY_PATH=$BUILD timeout 30 "$tmp/dynamic" || { echo "the program ended with $?"; exit 1; }
echo "$(wc -l <"$tmp/readme.c") lines"
