#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the library is not for is refused in words: 32-bit platforms, and headers of Concurrency Kit
# that are configured for another architecture than the compiler's.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}"
. test/toolchain.sh
has_header ck_md.h || { echo "$CC does not find Concurrency Kit by itself"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
seen=0
flags="-std=gnu11 -D_GNU_SOURCE= -Iinclude -Isrc -fsyntax-only"

compiles() # compiler flags...
{
    local cc=$1
    shift
    printf '#include <assert.h>\n#include <pthread.h>\n' | $cc "$@" -fsyntax-only -x c - 2>/dev/null
}

# The first error is the refusal.
refused() # what message compiler flags...
{
    local what=$1 message=$2 cc=$3
    shift 3
    # shellcheck disable=SC2086 # lists
    if $cc "$@" $flags src/lane.c 2>"$tmp/log"; then
        echo "$what: it compiles"
        exit 1
    fi
    if ! grep -m 1 'error' "$tmp/log" | grep -q "$message"; then
        echo "$what: the first error is not about that:"
        head -n 5 "$tmp/log"
        exit 1
    fi
    seen=$((seen + 1))
}

# shellcheck disable=SC2086
$CC $flags src/lane.c

for model in -m32 -mx32; do
    if compiles "$CC" $model; then refused $model 'for 64-bit platforms' "$CC" $model; fi
done

case $($CC -dumpmachine) in
x86_64*)
    # As on another architecture: of the two names only the one from pkg-config is there.
    refused "pkg-config's flags" 'pkg-config ck' "$CC" -U__amd64__
    for cross in aarch64 riscv64 s390x powerpc64le; do
        cross=$cross-linux-gnu-gcc
        compiles "$cross" || continue # it may have come without a C library
        mkdir -p "$tmp/ck"
        ln -sf /usr/include/ck_*.h /usr/include/gcc "$tmp/ck"
        refused "$cross" 'Concurrency Kit are for x86-64' "$cross" -isystem "$tmp/ck"
        refused "$cross, pkg-config's flags" 'pkg-config ck' "$cross" -D__x86_64__ \
            -isystem "$tmp/ck"
    done
    ;;
esac
[ $seen -gt 0 ] || { echo "nothing to try here"; exit 77; }
echo "$seen targets refused"
