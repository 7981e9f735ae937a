#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Cross compiling: CC=aarch64-linux-gnu-gcc is all there is to say; archiver and objcopy are that
# compiler's, not the host's. With qemu a program runs, and those that stress the library do for a
# second each.

set -eu
cd "$(dirname "$0")/../.."
: "${MAKE:=make}"
cc=aarch64-linux-gnu-gcc
programs='fuzz/api fault/walk stress/caller stress/ends stress/executor stress/fork stress/ledger
stress/release stress/reschedule stress/stop stress/sync'
command -v $cc >/dev/null || { echo "no $cc: apt-get install gcc-aarch64-linux-gnu"; exit 77; }
echo '#include <stdio.h>' | $cc -fsyntax-only -x c - 2>/dev/null ||
    { echo "$cc has no C library: apt-get install libc6-dev-arm64-cross"; exit 77; }
ck=$(echo '#include <ck_md.h>' | gcc -E - | sed -n 's,^# 1 "\(.*\)/ck_md.h".*,\1,p')
[ -d "$ck/gcc/aarch64" ] || { echo "Concurrency Kit's aarch64 is not there"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# As they are in that architecture's package: only the configuration differs.
mkdir -p "$dir/include" "$dir/bin"
ln -s "$ck"/ck_*.h "$ck/gcc" "$dir/include"
rm "$dir/include/ck_md.h"
sed 's/CK_MD_TSO/CK_MD_RMO/; s/CK_MD_SSE_ENABLE/CK_MD_SSE_DISABLE/' "$ck/ck_md.h" \
    >"$dir/include/ck_md.h"

# The host's know nothing of it.
for tool in ar objcopy ranlib strip ld; do
    printf '#!/bin/sh\necho "%s is the host'"'"'s" >&2\nexit 1\n' $tool >"$dir/bin/$tool"
done
chmod +x "$dir"/bin/*

cross() { # make's arguments
    PATH=$dir/bin:$PATH "$MAKE" -s BUILD="$dir/build" CC=$cc CPPFLAGS="-isystem $dir/include" "$@" \
        >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; exit 1; }
}

cross all
for library in libhwt.a libhwt.so; do
    readelf -h "$dir/build/$library" | grep -q 'Machine: *AArch64' ||
        { echo "$library is not for aarch64"; exit 1; }
done
BUILD=$dir/build CC=$cc test/check/symbols.sh

cat >"$dir/program.c" <<'END_C'
#include <hwt.h>

static void task(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    *(volatile int *)arg = 1;
}

int main(void)
{
    volatile int ran = 0;
    hwt_timer *timer;

    if (hwt_timer_create(&timer, 0) != 0 || hwt_new_timeout(timer, task, (void *)&ran, 0, 0) != 0)
        return 1;
    while (!ran)
        continue;
    return hwt_timer_destroy(timer);
}
END_C
$cc -O2 -Iinclude -static -o "$dir/program" "$dir/program.c" "$dir/build/libhwt.a" -pthread
# Newer releases of qemu have only the second, as static as the first.
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || {
    echo "left out: a run: apt-get install qemu-user-static, or qemu-user"
    echo "for aarch64"
    exit
}
timeout 60 "$qemu" "$dir/program"
ran=1
for program in $programs; do
    set -- "$@" "$dir/build/test/$program"
done
cross LDFLAGS=-static "$@"
for program in $programs; do
    timeout 100 "$qemu" "$dir/build/test/$program" 1 >"$dir/log" 2>&1 ||
        { echo "$program:"; tail -n 20 "$dir/log"; exit 1; }
    ran=$((ran + 1))
done
echo "for aarch64, where $ran programs ran"
