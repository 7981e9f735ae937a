#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Link-time optimization, the default of Ubuntu, Fedora and openSUSE, by gcc and by clang: both
# libraries have the public symbols and no others, a program of either compiler links with them
# whatever its own functions are called, and the tests' programs build and run. However the option
# is spelled, it does not reach the library.

set -eu
cd "$(dirname "$0")/../.."
: "${MAKE:=make}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
variants=0

# Two of our internal functions, and one of a file that would be its own without them.
cat >"$dir/program.c" <<'END_C'
#include <hwt.h>

int fork_watch(void);
int slab_create(void);

int fork_watch(void)
{
    return 0;
}

int slab_create(void)
{
    return 0;
}

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    *(int *)arg = 1;
}

int main(void)
{
    hwt_timer *timer;
    int ran = 0;

    if (hwt_timer_create(&timer, 0) != 0 || hwt_new_timeout(timer, task, &ran, 0, 0) != 0)
        return 1;
    while (!*(volatile int *)&ran)
        continue;
    return hwt_timer_destroy(timer) + fork_watch() + slab_create();
}
END_C

links() # compiler flags...
{
    "$@" -Iinclude -o "$dir/static" "$dir/program.c" "$dir/build/libhwt.a" -pthread
    "$@" -Iinclude -o "$dir/shared" "$dir/program.c" "$dir/build/libhwt.so" -pthread
    timeout 20 "$dir/static"
    LD_LIBRARY_PATH=$dir/build timeout 20 "$dir/shared"
}

builds() # compiler flags
{
    local cc
    "$MAKE" -s BUILD="$dir/build" CC="$1" CFLAGS="$2" all "$dir/build/hwt-replay" \
        "$dir/build/test/fuzz/api" >"$dir/log" 2>&1 ||
        { echo "$1 $2:"; tail -n 20 "$dir/log"; exit 1; }
    BUILD=$dir/build CC=$1 test/check/symbols.sh >"$dir/log" ||
        { echo "$1 $2:"; tail -n 20 "$dir/log"; exit 1; }
    for cc in gcc clang; do
        if command -v $cc >/dev/null; then links $cc -O2; fi
    done
    links gcc -O2 -flto
    "$dir/build/test/fuzz/api" >"$dir/log" || { echo "$1 $2:"; tail -n 20 "$dir/log"; exit 1; }
    variants=$((variants + 1))
}

asks() # compiler flags
{
    "$MAKE" -n V=1 BUILD="$dir/asked" CC="$1" CFLAGS="$2" all >"$dir/log" 2>&1 ||
        { echo "$1 $2:"; tail -n 20 "$dir/log"; exit 1; }
    grep -E -- ' -c -o | -r -nostdlib | -shared ' "$dir/log" >"$dir/commands"
    if grep -E -- ' -flto| -f[a-z-]*lto-objects' "$dir/commands"; then
        echo "$1 $2 reaches the library"
        exit 1
    fi
    variants=$((variants + 1))
}

builds gcc "-O2 -flto=auto -ffat-lto-objects -g"
asks gcc "-O2 -flto"
asks gcc "-flto=2 -fno-fat-lto-objects -O2"
if command -v clang >/dev/null; then
    builds clang "-O2 -g -flto=thin"
    asks clang "-O2 -g -flto"
    asks clang "-flto=full -ffat-lto-objects"
else
    echo "left out: clang's: apt-get install clang"
fi
echo "$variants spellings"
