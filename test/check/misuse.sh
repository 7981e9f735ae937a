#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A handle that is used after its last reference was dropped: the debug build ends the process with
# a message, AddressSanitizer reports the block of the pool, and so does valgrind, if it is there.

set -eu
cd "$(dirname "$0")/../.."
: "${CC:=gcc}" "${BUILD:=build}" "${MAKE:=make}"
. test/toolchain.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/misuse.c" <<'END'
#include <hwt.h>

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
}

int main(void)
{
    hwt_timer *timer;
    hwt_timeout *timeout;

    if (hwt_timer_create(&timer, NULL) != 0 ||
        hwt_new_timeout(timer, task, NULL, HWT_SEC(60), &timeout) != 0)
        return 2;
    hwt_timeout_cancel(timeout);
    hwt_timeout_unref(timeout);
    hwt_timeout_unref(timeout); /* dead */
    return 0;
}
END

under=()
dies() # kind message flags...
{
    local kind=$1 message=$2 status=0
    shift 2
    $MAKE --no-print-directory -s KIND="$kind" all
    $CC -Iinclude "$@" -o "$dir/$kind" "$dir/misuse.c" "$BUILD/$kind/libhwt.a" -pthread
    (ulimit -c 0 && exec "${under[@]}" "$dir/$kind") >"$dir/$kind.log" 2>&1 || status=$?
    if [ $status = 0 ] || ! grep -q "$message" "$dir/$kind.log"; then
        echo "$kind: exit status $status"
        head -n 20 "$dir/$kind.log"
        exit 1
    fi
}

dies debug 'after its last reference was dropped'
noticed="the debug build notices"
if can_sanitize address,undefined; then
    dies asan 'use-after-poison' -fsanitize=address,undefined
    noticed="2 builds notice"
else
    echo "left out: AddressSanitizer, which does not run here with $CC"
fi
if command -v valgrind >/dev/null &&
    echo '#include <valgrind/memcheck.h>' | $CC -E - >/dev/null 2>&1; then
    under=(valgrind -q)
    dies debug 'Invalid read' -Wl,-S # valgrind 3.19 gives up over what clang tells debuggers
    noticed="$noticed, valgrind too"
else
    echo "left out: what valgrind notices: apt-get install valgrind"
fi
echo "$noticed"
