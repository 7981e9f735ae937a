#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What README.md says of sanitized libraries: each `make KIND` it names builds one, and the line
# beside it links a program with it, which runs.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}"
. test/toolchain.sh
can_sanitize address,undefined || { echo "$CC's sanitizers do not run here"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk '/^```/ { if (inside) exit; inside = $0 == "```c"; next } inside' README.md >"$dir/program.c"
ran=

# Lines `    make KIND && cc -fsanitize=... program.c build/KIND/libhwt.a -pthread`.
grep -oE '^ +make [a-z]+ +&& cc .*build/[a-z]+/libhwt\.a.*' README.md >"$dir/lines" ||
    { echo "README.md does not say how to link a sanitized library"; exit 1; }
while read -r _ kind _ _ line; do
    "$MAKE" -s BUILD="$BUILD" CC="$CC" "$kind" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    line=${line//program.c/$dir/program.c}
    read -ra line <<<"${line//build\//$BUILD/}"
    $CC -g -o "$dir/program" "${line[@]}" >"$dir/log" 2>&1 ||
        { echo "README.md's line for $kind does not link:"; head -n 5 "$dir/log"; exit 1; }
    run=()
    # The fixed shadow of older ThreadSanitizers collides with much address randomization.
    if [ "$kind" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
        run=(setarch "$(uname -m)" -R)
    fi
    timeout 60 "${run[@]}" "$dir/program" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    ran="$ran $kind"
done <"$dir/lines"
for kind in asan ubsan tsan; do
    [[ " $ran " == *" $kind "* ]] || { echo "README.md says nothing of $kind"; exit 1; }
done
echo "linked as README.md says:$ran"
