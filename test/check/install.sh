#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# make install, into a prefix and under DESTDIR: a program finds the library through pkg-config and
# runs, linked dynamically and statically; make uninstall leaves no file behind. PREFIX is prefix,
# by the name that others give it; folders with blanks are staged into, or refused in words.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}" "${PKG_CONFIG:=pkg-config}"
unset DESTDIR PREFIX prefix libdir includedir
command -v "$PKG_CONFIG" >/dev/null ||
    { echo "pkg-config is not installed: apt-get install pkg-config"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/x.c" <<'END'
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static sem_t rang;

static void ring(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    *(int *)arg += 1;
    sem_post(&rang);
}

int main(void)
{
    hwt_timer *timer;
    int rings = 0;

    sem_init(&rang, 0, 0);
    if (strcmp(hwt_version(), "1.1.0") != 0 || hwt_timer_create(&timer, NULL) != 0)
        return 1;
    if (hwt_new_timeout(timer, ring, &rings, HWT_MSEC(5), NULL) != 0)
        return 2;
    while (sem_wait(&rang) != 0 && errno == EINTR)
        ;
    if (hwt_timer_stop(timer, NULL) != 0 || hwt_timer_destroy(timer) != 0)
        return 3;
    printf("%d\n", rings);
    return rings == 1 ? 0 : 4;
}
END

fail()
{
    echo "$*"
    exit 1
}

files() # folder
{
    (cd "$1" && find . ! -type d | LC_ALL=C sort)
}

mk()
{
    "$MAKE" -s KIND=release BUILD="$BUILD" CC="$CC" LDCONFIG=: "$@"
}

use() # prefix libdir
{
    local flags
    export PKG_CONFIG_PATH=$2/pkgconfig
    [ "$("$PKG_CONFIG" --modversion hwt)" = 1.1.0 ] || fail "hwt.pc has the wrong version"
    read -ra flags <<<"$("$PKG_CONFIG" --cflags --libs hwt)"
    $CC "$tmp/x.c" "${flags[@]}" -o "$tmp/dynamic"
    LD_LIBRARY_PATH=$2 timeout 20 "$tmp/dynamic" >/dev/null || fail "the dynamic program: $?"
    $CC "$tmp/x.c" "${flags[@]}" --static -o "$tmp/static"
    timeout 20 "$tmp/static" >/dev/null || fail "the static program: $?"
    read -ra flags <<<"$("$PKG_CONFIG" --static --cflags --libs hwt)"
    $CC -static "$tmp/x.c" "${flags[@]}" -o "$tmp/static"
    objdump -p "$tmp/dynamic" | grep -q 'NEEDED *libhwt\.so\.1$' || fail "needs no libhwt.so.1"
}

# A plain prefix.
mk install prefix="$tmp/usr"
for f in include/hwt.h lib/libhwt.a lib/libhwt.so lib/libhwt.so.1 lib/libhwt.so.1.1.0 \
    lib/pkgconfig/hwt.pc lib/cmake/hwt/hwt-config.cmake \
    lib/cmake/hwt/hwt-config-version.cmake; do
    [ -e "$tmp/usr/$f" ] || fail "$f is not installed"
done
use "$tmp/usr" "$tmp/usr/lib"
files "$tmp/usr" >"$tmp/plain"
mv "$tmp/usr" "$tmp/moved" # pkg-config goes by where hwt.pc lies, if it is told to
read -ra flags <<<"$(PKG_CONFIG_PATH=$tmp/moved/lib/pkgconfig \
    "$PKG_CONFIG" --define-prefix --cflags --libs hwt)"
$CC "$tmp/x.c" "${flags[@]}" -o "$tmp/dynamic" || fail "hwt.pc cannot be moved: ${flags[*]}"
mv "$tmp/moved" "$tmp/usr"
mk uninstall prefix="$tmp/usr"
[ -z "$(files "$tmp/usr")" ] || fail "uninstall left $(files "$tmp/usr")"
[ ! -e "$tmp/usr/lib/cmake/hwt" ] || fail "uninstall left a folder that is the library's alone"

# Folders of one's own.
mk install prefix="$tmp/own" libdir="$tmp/own/lib64/deep" includedir="$tmp/own/headers"
use "$tmp/own" "$tmp/own/lib64/deep"
mk uninstall prefix="$tmp/own" libdir="$tmp/own/lib64/deep" includedir="$tmp/own/headers"
[ -z "$(files "$tmp/own")" ] || fail "uninstall left $(files "$tmp/own")"

# A package's staging folder: the same files, and no trace of DESTDIR in them.
mk install DESTDIR="$tmp/stage" prefix=/usr
files "$tmp/stage/usr" | diff "$tmp/plain" - || fail "DESTDIR installs other files"
! grep -r "$tmp" "$tmp/stage/usr/lib/pkgconfig" "$tmp/stage/usr/lib/cmake" ||
    fail "DESTDIR is in what is installed"
mk uninstall DESTDIR="$tmp/stage" prefix=/usr
[ -z "$(files "$tmp/stage")" ] || fail "uninstall left $(files "$tmp/stage")"

# The same with a blank, and what else a shell would take for itself, in its name.
stage="$tmp/my stage's (folder)"
mk install DESTDIR="$stage" prefix=/usr
files "$stage/usr" | diff "$tmp/plain" - || fail "a DESTDIR with a blank gets other files"
mk uninstall DESTDIR="$stage" prefix=/usr
[ -z "$(files "$stage")" ] || fail "uninstall left $(files "$stage")"

# As others spell it, on the command line and in the environment; ours goes before it.
mk install PREFIX="$tmp/upper"
files "$tmp/upper" | diff "$tmp/plain" - || fail "PREFIX is not taken as prefix"
PREFIX="$tmp/upper" mk uninstall
[ -z "$(files "$tmp/upper")" ] || fail "uninstall left $(files "$tmp/upper")"
mk install PREFIX="$tmp/upper" prefix="$tmp/lower"
files "$tmp/lower" | diff "$tmp/plain" - || fail "PREFIX wins over prefix"

# hwt.pc could not say such a name.
if mk install prefix="$tmp/with blank" >"$tmp/log" 2>&1 || ! grep -q 'blank' "$tmp/log"; then
    fail "a prefix with a blank: $(cat "$tmp/log")"
fi
for f in "$tmp"/with*; do
    [ ! -e "$f" ] || fail "it was refused, but half installed"
done

echo "$(wc -l <"$tmp/plain") files"
