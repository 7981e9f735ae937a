#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What make install puts there for CMake: C and C++ programs find the library as README.md says, are
# linked with the shared one and the static one, and run; also where it has been moved, or is found
# through links. A version that is too new, or another major version, is refused.

set -eu
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${CC:=gcc}" "${CXX:=g++}" "${MAKE:=make}"
unset VERBOSE DESTDIR PREFIX prefix libdir includedir LD_LIBRARY_PATH
unset "${!CMAKE_@}" "${!hwt_@}"
. test/toolchain.sh
share_a_libc || { echo "$CC and $CXX have not the same C library"; exit 77; }
command -v cmake >/dev/null || { echo "CMake is not installed: apt-get install cmake"; exit 77; }
tmp=$(realpath "$(mktemp -d)")
trap 'rm -rf "$tmp"' EXIT
export CC CXX
runs=0

fail() # what
{
    echo "$1"
    [ ! -e "$tmp/log" ] || tail -n 30 "$tmp/log"
    exit 1
}

mk()
{
    "$MAKE" -s KIND=release BUILD="$BUILD" CC="$CC" LDCONFIG=: "$@"
}

# ---- projects ----

mkdir "$tmp/user" "$tmp/asks"
cat >"$tmp/user/app.c" <<'END_C'
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <string.h>

#ifndef THREADS
#error "it does not come with the threads it needs"
#endif

static sem_t rang;

static void ring(hwt_timeout *timeout, void *arg)
{
    (void)timeout;
    (void)arg;
    sem_post(&rang);
}

int main(void)
{
    hwt_timer *timer;

    sem_init(&rang, 0, 0);
    if (strcmp(hwt_version(), "1.1.0") != 0 || hwt_timer_create(&timer, NULL) != 0)
        return 1;
    if (hwt_new_timeout(timer, ring, NULL, HWT_MSEC(1), NULL) != 0)
        return 2;
    while (sem_wait(&rang) != 0 && errno == EINTR)
        continue;
    return hwt_timer_destroy(timer);
}
END_C
cp "$tmp/user/app.c" "$tmp/user/app.cc"

# Looked for twice, as by a project inside another one.
cat >"$tmp/user/CMakeLists.txt" <<'END_CMAKE'
cmake_minimum_required(VERSION 3.10)
project(user LANGUAGES ${LANGUAGE})
add_executable(app ${SOURCE})
include(readme.cmake)
add_executable(app_static ${SOURCE})
find_package(hwt REQUIRED)
target_link_libraries(app_static PRIVATE hwt::hwt_static)
set_property(TARGET Threads::Threads PROPERTY INTERFACE_COMPILE_DEFINITIONS THREADS)
add_custom_target(soname ALL test -e $<TARGET_SONAME_FILE:hwt::hwt> VERBATIM)
END_CMAKE
grep -E '^    (find_package|target_link_libraries)\(' README.md >"$tmp/user/readme.cmake" || :
[ "$(wc -l <"$tmp/user/readme.cmake")" = 2 ] || fail "README.md does not say how CMake finds it"

# One line for each answer that is wrong. Ranges are known since CMake 3.19.
cat >"$tmp/asks/CMakeLists.txt" <<'END_CMAKE'
cmake_minimum_required(VERSION 3.10)
project(asks LANGUAGES C)
set(accepted "" 1 1.0 1.1 1.1.0 "1.1 EXACT" "1.1.0 EXACT")
set(refused 1.1.1 1.2 1.10 2 2.0 11 0 0.9 "1 EXACT" "1.1.1 EXACT")
if(NOT CMAKE_VERSION VERSION_LESS 3.19)
    list(APPEND accepted 1.0...1.1 1...<2 1.1.0...3)
    list(APPEND refused 1.0...1.0.9 1.0...<1.1 1.1.1...2 2...3 0.9...<1)
endif()
foreach(answer accepted refused)
    foreach(wanted IN LISTS ${answer})
        separate_arguments(version UNIX_COMMAND "${wanted}")
        find_package(hwt ${version} QUIET)
        if(answer STREQUAL "accepted" AND NOT hwt_FOUND)
            message(SEND_ERROR "'${wanted}' is not found")
        elseif(answer STREQUAL "refused" AND hwt_FOUND)
            message(SEND_ERROR "'${wanted}' is not refused")
        elseif(NOT hwt_CONSIDERED_VERSIONS MATCHES "^1\\.1\\.0")
            message(SEND_ERROR "'${wanted}' is answered by '${hwt_CONSIDERED_VERSIONS}'")
        endif()
    endforeach()
endforeach()
foreach(target hwt::hwt hwt::hwt_static)
    if(TARGET ${target})
        list(APPEND targets ${target})
    endif()
endforeach()
if(NOT targets STREQUAL TARGETS)
    message(SEND_ERROR "its targets are '${targets}'")
endif()
set(CMAKE_SIZEOF_VOID_P 4)
find_package(hwt QUIET)
if(hwt_FOUND)
    message(SEND_ERROR "it is found for 32 bits")
endif()
END_CMAKE

configure() # project cmake-options...
{
    rm -rf "$tmp/build"
    mkdir "$tmp/build"
    (cd "$tmp/build" && cmake -G 'Unix Makefiles' "${@:2}" "$tmp/$1") >"$tmp/log" 2>&1
}

use() # folder-of-hwt-config.cmake C|CXX cmake-options...
{
    local program source=app.c
    [ "$2" = C ] || source=app.cc
    configure user -DLANGUAGE="$2" -DSOURCE=$source "${@:3}" || fail "$1: it is not found"
    grep -qx "hwt_DIR:PATH=$1" "$tmp/build/CMakeCache.txt" || fail "$1: another one is found"
    cmake --build "$tmp/build" >"$tmp/log" 2>&1 || fail "$1: it does not build"
    for program in app app_static; do
        timeout 20 "$tmp/build/$program" || fail "$1: $program ends with $?"
        runs=$((runs + 1))
    done
    objdump -p "$tmp/build/app" | grep -q 'NEEDED *libhwt\.so\.1$' || fail "needs no libhwt.so.1"
    ! objdump -p "$tmp/build/app_static" | grep 'NEEDED *libhwt' || fail "needs it, though static"
}

ask() # prefix targets
{
    configure asks -DCMAKE_PREFIX_PATH="$1" -DTARGETS="$2" || fail "it is found, but"
}

# ---- a plain prefix, then moved ----
mk install prefix="$tmp/usr"
package=lib/cmake/hwt
use "$tmp/usr/$package" C -DCMAKE_PREFIX_PATH="$tmp/usr"
if command -v "${CXX%% *}" >/dev/null; then
    use "$tmp/usr/$package" CXX -DCMAKE_PREFIX_PATH="$tmp/usr"
else
    echo "left out: a C++ program: apt-get install g++"
fi
mv "$tmp/usr" "$tmp/it is here"
use "$tmp/it is here/$package" C -DCMAKE_PREFIX_PATH="$tmp/it is here"

# ---- versions; what is not installed is no target ----
ask "$tmp/it is here" 'hwt::hwt;hwt::hwt_static'
rm "$tmp/it is here/lib/libhwt.a"
ask "$tmp/it is here" hwt::hwt
mk install prefix="$tmp/usr"
rm "$tmp"/usr/lib/libhwt.so*
ask "$tmp/usr" hwt::hwt_static

# ---- folders of one's own, staged, reached as /lib is on many systems ----
mk install DESTDIR="$tmp/root" prefix=/usr libdir=/usr/lib/deep includedir=/usr/headers/hwt
ln -s usr/lib "$tmp/root/lib"
use "$tmp/root/lib/deep/cmake/hwt" C -Dhwt_DIR:PATH="$tmp/root/lib/deep/cmake/hwt"

# ---- lib itself is a link to somewhere else ----
mkdir -p "$tmp/opt" "$tmp/far/away/lib"
ln -s "$tmp/far/away/lib" "$tmp/opt/lib"
mk install prefix="$tmp/opt"
use "$tmp/opt/$package" C -DCMAKE_PREFIX_PATH="$tmp/opt"

echo "$runs programs, CMake $(cmake --version | sed -n 's/^cmake version //p')"
