#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs a comparison with other timers: run.sh PROGRAM [OPTION...], where PROGRAM is the build's
# bench/peers or bench/inflight. Programs for timers in other languages are compiled here, when
# their compiler and library are installed; else a line says what is missing.
set -eu

program=$1
shift
here=$(dirname "$0")
work=${BUILD:-build}/bench/foreign
mkdir -p "$work"

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
    elif ! GOCACHE="$PWD/$work/go-cache" GO111MODULE=off \
        go build -o "$work/go_peer" "$here/go_peer.go" 2>"$work/go.log"; then
        echo "!go_peer.go does not compile with the Go installed here"
    else
        echo "'$work/go_peer'"
    fi
}

BENCH_NETTY=$(netty)
BENCH_GO=$(go_timers)
export BENCH_NETTY BENCH_GO
exec "$program" "$@"
