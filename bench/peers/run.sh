#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs a comparison with other timers: run.sh PROGRAM [OPTION...], where PROGRAM is the build's
# bench/peers or bench/inflight. Programs for timers in other languages are compiled here, when
# their compiler and library are installed, and the library as it was in 1.0, from the history; else
# a line says what is missing.
set -eu

program=$1
shift
here=$(dirname "$0")
work=${BUILD:-build}/bench/foreign
mkdir -p "$work"
work=$(cd "$work" && pwd)

# Prints the command that measures Netty, or ! and why there is none.
netty() {
    jars=
    for jar in netty-common netty-all; do
        for dir in /usr/share/java /usr/local/share/java; do
            [ -e "$dir/$jar.jar" ] && jars=$jars:$dir/$jar.jar
        done
    done
    if ! command -v javac >/dev/null; then
        echo "!a Java compiler is not installed"
    elif [ -z "$jars" ]; then
        echo "!libnetty-java is not installed"
    elif ! javac -nowarn -d "$work" -cp "${jars#:}" "$here/NettyPeer.java" 2>"$work/javac.log"; then
        echo "!NettyPeer.java does not compile with the Netty installed here"
    else
        echo "java -Xms4g -Xmx4g -cp '$work$jars' NettyPeer 2>'$work/netty.log'"
    fi
}

go_timers() {
    if ! command -v go >/dev/null; then
        echo "!golang-go is not installed"
    elif ! GOCACHE="$work/go-cache" GO111MODULE=off \
        go build -o "$work/go_peer" "$here/go_peer.go" 2>"$work/go.log"; then
        echo "!go_peer.go does not compile with the Go installed here"
    else
        echo "'$work/go_peer'"
    fi
}

# The last commit of 1.0.
release() {
    commit=61d5b23baf4c357fb6c0efacd24ce92f1fe2f099
    asks=$(cd "$(dirname "$program")" && pwd)/release
    library=$work/1.0/build
    if [ ! -x "$asks" ]; then
        echo "!$(dirname "$program")/release is not built"
    elif [ ! -e "$library/libhwt.so" ] &&
        ! git -C "$here" cat-file -e "$commit:Makefile" 2>/dev/null; then
        echo "!this is no clone with the history of 1.0"
    elif [ ! -e "$library/libhwt.so" ] && ! build_release >"$work/1.0.log" 2>&1; then
        echo "!1.0 does not compile here: $work/1.0.log"
    else
        echo "LD_LIBRARY_PATH='$library' '$asks'"
    fi
}

build_release() {
    mkdir -p "$work/1.0" &&
        git -C "$here/../.." archive --format=tar "$commit" >"$work/1.0.tar" &&
        tar -xf "$work/1.0.tar" -C "$work/1.0" &&
        env -u BUILD -u MAKEFLAGS -u MAKELEVEL -u MAKEOVERRIDES \
            make -C "$work/1.0" NODEPS=1 build/libhwt.so
}

BENCH_NETTY=$(netty)
BENCH_GO=$(go_timers)
BENCH_RELEASE=
case $program in
*/peers) BENCH_RELEASE=$(release) ;;
esac
export BENCH_NETTY BENCH_GO BENCH_RELEASE
exec "$program" "$@"
