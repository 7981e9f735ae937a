#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# `make dist`: the same archive twice. It builds, tests and all, without git and whatever else its
# tests can do without (NODEPS=1), and passes those that look for such tools; each of these is named
# with what brings it in. Warnings are no errors there.

set -eu
cd "$(dirname "$0")/../.."
: "${MAKE:=make}"
[ -e .git ] || { echo "this is a release already: git clone"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() # what
{
    echo "$1:"
    grep -A 20 '^  FAIL' "$dir/log" || tail -n 40 "$dir/log"
    exit 1
}

"$MAKE" -s dist BUILD="$dir/one" >"$dir/log" 2>&1 || fail "make dist fails"
sleep 1.1
(umask 077 && TZ=Asia/Tokyo "$MAKE" -s dist BUILD="$dir/two") >"$dir/log" 2>&1 || fail "twice"
archive=$(basename "$dir"/one/libhwt-*.tar.gz)
cmp "$dir/one/$archive" "$dir/two/$archive"
name=${archive%.tar.gz}
tar -tzf "$dir/one/$archive" | grep -v '/$' | sed "s,^$name/,," | LC_ALL=C sort >"$dir/inside"
git ls-tree -r --name-only HEAD | LC_ALL=C sort >"$dir/committed"
diff "$dir/committed" "$dir/inside"

# A machine with a compiler and make.
absent=" git apt-get sudo pkg-config pkgconf valgrind xz redis-server musl-gcc clang clang++ cmake "
mkdir "$dir/bin"
IFS=: read -ra path <<<"$PATH"
for folder in "${path[@]}"; do
    for tool in "$folder"/*; do
        case $absent in *" ${tool##*/} "*) continue ;; esac
        [ ! -x "$tool" ] || [ -e "$dir/bin/${tool##*/}" ] || ln -s "$tool" "$dir/bin"
    done
done

tar -xzf "$dir/one/$archive" -C "$dir"
cd "$dir/$name"
unset BUILD KIND MAKEFLAGS MFLAGS HWT_TALLY
export PATH=$dir/bin STRESS_SECONDS=1
make=${HWT_MAKE:-$MAKE} # not one at a time: what it runs starts others
unset MAKE HWT_MAKE
"$make" -n V=1 >"$dir/log" 2>&1 || fail "make -n"
! grep -q -- '-Werror' "$dir/log" || fail "warnings are errors in a release"
# The programs are the same here as anywhere: of those that run nothing but themselves a token; no
# search.
tested='unit/wheel fuzz stress/ends fault/clock'
checked=$(grep -lE 'left out|\.git|command -v' test/check/*.sh |
    sed 's,^test/\(.*\)\.sh$,\1,' | tr '\n' ' ')
"$make" -j2 check NODEPS=1 TESTED="$tested" CHECKED="$checked" SEARCHED= VALIDATED=unit/wheel \
    >"$dir/log" 2>&1 || fail "make check fails in a release"
tail -n 1 "$dir/log" | grep -qE '^[0-9]+ passed, 0 failed, [0-9]+ skipped$' || fail "its last line"
for part in check/tree.*'git clone' check/replay.*xz-utils check/dlopen.*musl-tools \
    check/instructions.*valgrind check/header.*clang check/cmake.*cmake 'uv_loop.*libuv1-dev' \
    'event_loop.*libevent-dev' 'glib_pool.*libglib2.0-dev' 'lock_watchdog.*libhiredis-dev'; do
    grep -q "^left out: .*$part" "$dir/log" || fail "it does not name ${part/.\*/: }"
done
tail -n 1 "$dir/log"
