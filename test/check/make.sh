#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The Makefile as a stranger meets it: from another folder, asked what it would do and what there
# is, without pkg-config, without Concurrency Kit's headers.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${MAKE:=make}"
unset MAKEFLAGS MFLAGS
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$PWD

fail() # what
{
    echo "$1; make said:"
    head -n 20 "$tmp/log"
    exit 1
}

mk()
{
    "$MAKE" BUILD="$tmp/build" CC="$CC" LDCONFIG=: "$@" >"$tmp/log" 2>&1
}

says() # extended regular expression
{
    grep -qE -- "$1" "$tmp/log"
}

# ---- from another folder, as make -C does it ----
(cd "$tmp" && mk -j2 -f "$root/Makefile") || fail "make -f elsewhere/Makefile fails"
[ -e "$tmp/build/libhwt.so" ] || fail "make -f elsewhere/Makefile builds nothing"
mkdir "$tmp/a place"
ln -s "$root"/* "$tmp/a place/"
rm "$tmp/a place/build" 2>/dev/null || :
(cd "$tmp" && mk -j2 -f "$tmp/a place/Makefile") || fail "make -f \"a place/Makefile\" fails"
(cd "$tmp" && mk -j2 -f "$root/Makefile" install prefix="$tmp/usr" uninstall) ||
    fail "make -f elsewhere/Makefile takes no goals"
says REMOVE || fail "make -f elsewhere/Makefile takes no goals"

# ---- when all is built, nothing is to be done ----
mk -n all || fail "make -n fails"
if says ' -c -o | -r -nostdlib | -shared '; then fail "make -n after make builds"; fi
mk --question all || fail "make -q after make has something to do"
mk -n all CFLAGS=-O1 || fail "make -n with another flag fails"
says '-O1.* -c -o ' || fail "make -n with another flag has nothing to do"
mk -n all || fail "make -n fails"
if says ' -c -o '; then fail "make -n changes what make knows of the flags"; fi

# ---- no pkg-config: nothing complains ----
mk PKG_CONFIG="$tmp/no-pkg-config" -n all || fail "it needs pkg-config"
if says 'no-pkg-config|not found'; then fail "the first lines are about pkg-config"; fi

# ---- help: groups, the two commands first, nothing left out ----
mk help || fail "make help fails"
[ "$(sed -n '2,3s/^  \([a-z]*\) .*/\1/p;4{/./q}' "$tmp/log" | xargs)" = "demo check" ] ||
    fail "the two commands are not the first"
[ "$(grep -c '^$' "$tmp/log")" -ge 4 ] || fail "there are no groups"
if says '.{101}'; then fail "a line beyond 100 columns"; fi
sed -n 's/^\.PHONY: //p' Makefile ./*/*.mk ./*/*/*.mk | tr ' ' '\n' | while read -r target; do
    case $target in FORCE | no-* | there | tsan-library) continue ;; esac
    says "^  $target " || fail "help does not name $target"
done

# ---- no headers of Concurrency Kit: one line, that says what to do ----
mkdir "$tmp/without"
echo '#error "as if it were not there"' >"$tmp/without/ck_stack.h"
mk BUILD="$tmp/bare" CPPFLAGS="-I$tmp/without" && fail "it builds without Concurrency Kit"
[ "$(wc -l <"$tmp/log")" = 1 ] || fail "it does not say in one line what to do"
says 'make deps.*apt-get install libck-dev' || fail "it does not say what to do"
mk BUILD="$tmp/bare" CPPFLAGS="-I$tmp/without" help || fail "no help without Concurrency Kit"

# ---- no folder with a blank to build in ----
mk BUILD="$tmp/a build" && fail "it builds in a folder with a blank"
says 'BUILD .*blanks' || fail "it does not say what is wrong with BUILD"

# ---- no compiler: that is what it says ----
for cc in "$tmp/no-compiler" "$CC -no-such-flag"; do
    mk BUILD="$tmp/bare" CC="$cc" && fail "it builds without a compiler"
    [ "$(wc -l <"$tmp/log")" = 1 ] || fail "it does not say in one line what is wrong"
    says 'does not compile' || fail "it does not say what is wrong"
done

echo "a stranger's make"
