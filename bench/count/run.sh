#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For test/check: builds and runs a program that watches an instrumented library, briefly:
# run.sh lines|waits FIGURES, what it prints on standard output, its figures to that file.
# Exit status 77: there is none beside this KIND of build.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}"
unset MAKEFLAGS MFLAGS
if [ "${KIND:-release}" != release ]; then
    echo "the instrumented library stands beside the release build, not beside $KIND"
    exit 77
fi
said=$("$MAKE" -s -j"$(nproc)" NODEPS=1 KIND=release BUILD="$BUILD" CC="$CC" \
    "$BUILD/bench/$1" 2>&1) ||
    { echo "$said"; exit 1; }
"$BUILD/bench/$1" --quick --json "$2" 2>&1
