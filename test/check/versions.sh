#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A library that was built beside a newer glibc loads beside an older one: of no library does it
# need a version of symbols that RHEL 9 (glibc 2.34) lacks, except by weak references, without which
# the loader goes on.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}"
. test/toolchain.sh
newest=2.34
library=$BUILD/libhwt.so

# Lines "version flags" of the section of needed versions.
needed()
{
    readelf -V --wide "$library" |
        sed -n '/version_r/,$s/.*Name: \(.*\) *Flags: \([A-Za-z]*\).*/\1 \2/p'
}

[ "$(libc_of c "$CC")" = glibc ] || { echo "the library is not linked with glibc"; exit 77; }
highest=$(needed | sed -n 's/^GLIBC_\([0-9.]*\) *none$/\1/p' | sort -V | tail -n 1)
[ -n "$highest" ] || { echo "$library names no version of glibc that it needs"; exit 1; }
if [ "$(printf '%s\n' "$highest" $newest | sort -V | tail -n 1)" != $newest ]; then
    echo "it does not load beside glibc $newest; what is newer:"
    objdump -T "$library" | grep "GLIBC_$highest"
    exit 1
fi
echo "glibc $highest is enough"
