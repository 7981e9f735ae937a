#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The flags of distributions: Debian's and Ubuntu's as dpkg-buildflags says them, Fedora's,
# openSUSE's and Arch's as their packages are built. Everything compiles without a warning; what the
# builder sets wins over what the Makefile sets; a release's users do not see warnings as errors.

set -eu
cd "$(dirname "$0")/../.."
: "${MAKE:=make}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seen=0

fail() # what
{
    echo "$1:"
    tail -n 20 "$dir/log"
    exit 1
}

# As packages are built: what there is to say is in the environment.
builds() # distribution
{
    export CFLAGS CPPFLAGS LDFLAGS
    "$MAKE" BUILD="$dir/build" V=1 all "$dir/build/hwt-replay" "$dir/build/test/fuzz/api" \
        >"$dir/log" 2>&1 || fail "$1"
    ! grep -q 'warning:' "$dir/log" || fail "$1, with warnings"
    BUILD=$dir/build test/check/symbols.sh >"$dir/log" || fail "$1"
    "$dir/build/test/fuzz/api" >"$dir/log" || fail "$1"
    seen=$((seen + 1))
    rm -rf "$dir/build"
}

if command -v dpkg-buildflags >/dev/null; then
    eval "$(DEB_BUILD_MAINT_OPTIONS='hardening=+all optimize=+lto' \
        dpkg-buildflags --export=sh)"
    builds "dpkg-buildflags"
else
    echo "left out: Debian's: apt-get install dpkg-dev"
fi

rpm="-O2 -flto=auto -ffat-lto-objects -fexceptions -g -grecord-gcc-switches -pipe -Wall"
rpm="$rpm -Werror=format-security -fstack-protector-strong -fasynchronous-unwind-tables"
rpm="$rpm -fstack-clash-protection"
CFLAGS="$rpm -Wno-complain-wrong-lang -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3"
CFLAGS="$CFLAGS -Wp,-D_GLIBCXX_ASSERTIONS"
CPPFLAGS=""
LDFLAGS="-Wl,-z,relro -Wl,--as-needed -Wl,-z,now -Wl,--build-id=sha1"
builds Fedora
CFLAGS="$rpm -D_FORTIFY_SOURCE=2 -funwind-tables"
LDFLAGS="-flto=auto"
builds openSUSE
CFLAGS="-march=x86-64 -mtune=generic -O2 -pipe -fno-plt -fexceptions -Wp,-D_FORTIFY_SOURCE=3"
CFLAGS="$CFLAGS -Wformat -Werror=format-security -fno-omit-frame-pointer -flto=auto"
case $(uname -m) in x86_64) ;; *) CFLAGS=${CFLAGS#-march=x86-64 -mtune=generic } ;; esac
LDFLAGS="-Wl,-O1 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now"
builds Arch

# The last word is the builder's.
CFLAGS="-O1 -fno-stack-protector -Wno-shadow" CPPFLAGS="-D_FORTIFY_SOURCE=1" LDFLAGS=
export CFLAGS CPPFLAGS LDFLAGS
"$MAKE" -n BUILD="$dir/build" V=1 "$dir/build/obj/src/base.o" >"$dir/log" 2>&1 || fail "the order"
command=$(grep -e '-c -o .*base\.o' "$dir/log")
[[ $command == *-fstack-protector-strong*-D_FORTIFY_SOURCE=1*-O1*-fno-stack-protector* ]] ||
    fail "the builder's flags are not the last"
[ "$(grep -o 'FORTIFY_SOURCE' <<<"$command" | wc -l)" = 1 ] || fail "_FORTIFY_SOURCE twice"

echo "$seen distributions"
