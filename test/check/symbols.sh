#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What libhwt.so exports, what src/hwt.map lists and what hwt.h declares are the same functions,
# each at the version node that the map lists it under: HWT_1.0, or a later one; libhwt.a adds no
# name to a program that does not start with hwt_; what libhwt.so calls of these is its own, also
# where a program has another copy; and nothing that prints or ends a process is called.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Function declarations of the header alone: no system headers, no bodies of structs and enums.
declared()
{
    $CC -std=gnu11 -E -x c include/hwt.h |
        awk '/^# [0-9]+ "/ { ours = index($3, "include/hwt.h") > 0; next } ours' |
        tr '\n' ' ' | sed ':a; s/{[^{}]*}//; ta' | tr ';' '\n' |
        grep -v typedef | sed -n 's/.*\b\(hwt_[a-z_]*\) *(.*/\1/p'
}

mapped() # function@@NODE
{
    awk '/^HWT_/ { node = $1 } /^ *hwt_/ { sub(/;.*/, ""); print $1 "@@" node }' src/hwt.map
}

exported()
{
    nm -D --defined-only --with-symbol-versions "$BUILD/libhwt.so" |
        awk '$2 != "A" { print $3 }'
}

same() # name name
{
    diff "$tmp/$1" "$tmp/$2" || { echo "$1 (<) and $2 (>) differ"; exit 1; }
}

declared | LC_ALL=C sort >"$tmp/declared"
mapped | LC_ALL=C sort >"$tmp/mapped_at"
exported | LC_ALL=C sort >"$tmp/exported_at"
for list in mapped exported; do
    sed 's/@.*//' "$tmp/${list}_at" | LC_ALL=C sort >"$tmp/$list"
done
[ -s "$tmp/declared" ] || { echo "found no declaration in hwt.h"; exit 1; }
same declared mapped
same mapped_at exported_at

nm --defined-only --extern-only "$BUILD/libhwt.a" |
    awk 'NF == 3 { print $3 }' | LC_ALL=C sort >"$tmp/archived"
same mapped archived

if readelf -rW "$BUILD/libhwt.so" | grep ' hwt_'; then
    echo "libhwt.so calls functions of its own, or takes their addresses, by name"
    exit 1
fi

prints='v?[fd]?printf|f?puts|f?putc|putchar|fwrite|write|perror|v?syslog'
ends='abort|_?exit|_Exit|assert_fail|raise|kill'
# clang's own, should an exception leave what runs while another one passes.
case $($CC --version) in *clang*) ends=${ends#abort|} ;; esac
if nm -D --undefined-only "$BUILD/libhwt.so" |
    grep -E " (__)?($prints|$ends)(_chk)?(@|\$)"; then
    echo "the library prints, or ends the process"
    exit 1
fi

soname=$(objdump -p "$BUILD/libhwt.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = libhwt.so.1 ] || { echo "soname is '$soname'"; exit 1; }

echo "$(wc -l <"$tmp/exported") functions"
