#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Programs compiled against an older header run with this library unchanged: the unit tests of the
# public calls and two examples, with each header of test/compat/, linked to libhwt.so. The tests
# fail if a struct is read or written beyond the size that it had then (unit/struct_size: at the end
# of a page); a symbol that the older library did not have would show in the program.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}"
. test/toolchain.sh
tests="config contract executor fd handles hooks periodic reschedule struct_size virtual
    virtual_limits worker worker_stop"
examples="rpc_timeout graceful_shutdown"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -e "$BUILD/libhwt.so" ] || { echo "skipped: $BUILD/libhwt.so is not there"; exit 77; }
[ "${KIND:-release}" = release ] || { echo "skipped: for the release build"; exit 77; }
has_header criterion/criterion.h ||
    { echo "Criterion is not installed for $CC: apt-get install libcriterion-dev"; exit 77; }
library=$(cd "$BUILD" && pwd)

compile() # release output sources...
{
    local release=$1 output=$2
    shift 2
    $CC -std=gnu11 -D_GNU_SOURCE= -O1 -pthread -fno-pie -no-pie "-Itest/compat/$release" -Itest \
        -Idocs/examples -o "$output" "$@" -L"$library" -Wl,-rpath,"$library" -lhwt -lcriterion -lm
}

only_knows() # release program
{
    local later
    later=$(nm -D --undefined-only --with-symbol-versions "$2" | grep -o 'hwt_.*@HWT_.*' |
        grep -v "@HWT_$1\$") || return 0
    echo "${2##*/}, compiled against $1, asks for $later"
    return 1
}

for folder in test/compat/*/; do
    release=$(basename "$folder")
    $CC -std=gnu11 -D_GNU_SOURCE= -O1 -pthread -fno-pie "-I$folder" -Itest -c \
        -o "$tmp/support.o" test/support.c
    for name in $tests; do
        compile "$release" "$tmp/$name" "test/unit/$name.c" "$tmp/support.o"
        only_knows "$release" "$tmp/$name"
        "$tmp/$name" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    done
    for name in $examples; do
        compile "$release" "$tmp/$name" "docs/examples/$name.c"
        only_knows "$release" "$tmp/$name"
        "$tmp/$name" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    done
    # shellcheck disable=SC2086 # lists
    set -- $tests $examples
    echo "$release: $# programs"
done
