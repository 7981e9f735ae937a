#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Who builds it, where and when does not show: in two folders, with one and with two jobs, another
# umask, locale and time zone, each compiler makes the same libraries, byte by byte.

set -eu
cd "$(dirname "$0")/../.."
: "${MAKE:=make}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
compilers=

copy() # folder
{
    mkdir -p "$1"
    cp -R Makefile include src test bench docs .ci "$1"
}

copy "$dir/here"
copy "$dir/a/longer name/of another depth"
for cc in gcc clang; do
    command -v $cc >/dev/null || { echo "left out: $cc's: apt-get install $cc"; continue; }
    (cd "$dir/here" && umask 022 && LC_ALL=C TZ=UTC "$MAKE" -s -j1 CC=$cc BUILD=$cc all)
    (cd "$dir/a/longer name/of another depth" && umask 077 && LC_ALL=C.UTF-8 TZ=Asia/Tokyo \
        HOME=/nonexistent "$MAKE" -s -j2 CC=$cc BUILD="$dir/out/$cc" all)
    for library in libhwt.a libhwt.so; do
        if ! cmp "$dir/here/$cc/$library" "$dir/out/$cc/$library"; then
            echo "$cc: $library depends on where it is built; what it says of folders:"
            strings "$dir/here/$cc/$library" | grep -m 5 "$dir/here"
            exit 1
        fi
    done
    compilers="$compilers $cc"
done
echo "the same bytes by$compilers"
