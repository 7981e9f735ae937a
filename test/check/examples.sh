#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Build docs/examples and run what could be built. Each checks itself; here its exit status counts,
# and that its last line says what it should. KIND=asan runs those built with sanitizers.

set -u
cd "$(dirname "$0")/../.." || exit
: "${KIND:=release}" "${BUILD:=build}" "${CC:=gcc}" "${CXX:=g++}" "${MAKE:=make}"
if [ "$KIND" = release ]; then programs=$BUILD/examples; else programs=$BUILD/$KIND/examples; fi
ran=0 failed=0 skipped=0
tmp=$(mktemp -d)
redis=
trap '[ -n "$redis" ] && kill "$redis" && wait "$redis"; rm -rf "$tmp"' EXIT

# The last line of each, as an extended regular expression.
expected()
{
    case $1 in
    heartbeat) echo 'reconnected, [0-9]+ connections' ;;
    rpc_timeout) echo '4000 calls, [0-9]+ completed, [0-9]+ failed' ;;
    idle_connections) echo '[0-9]+ closed as idle, [0-9]+ hung up, [0-9]+ packets moved .*' ;;
    lock_watchdog) echo 'held two leases .* with [0-9]+ renewals, freed when its holder died' ;;
    delay_queue) echo '[0-9]+ items taken in order, [0-9]+ removed, at most .* ms late' ;;
    comet_caller) echo '[0-9]+ clients, [0-9]+ reconnects in 900 simulated seconds, [0-9]+ gone' ;;
    timer_object) echo '1000 objects armed [0-9]+ times, disarmed [0-9]+ times, [0-9]+ callbacks' ;;
    *_loop) echo '40 tasks, [0-9]+ wake-ups, at most .* ms late' ;;
    glib_pool) echo '[0-9]+ slow tasks at once, [0-9]+ of 200 ran before stop, [0-9]+ refused' ;;
    uv_pool) echo '60 tasks of 20 ms, [0-9]+ at once, 5 cancelled by stop' ;;
    graceful_shutdown) echo '20000 jobs ran once each, [0-9]+ handed over, [0-9]+ refused .*' ;;
    rolling_restart) echo '[0-9]+ ran in time, [0-9]+ renewed, [0-9]+ of them were periodic' ;;
    metrics) echo '3 timers on one page, [0-9]+ lines of each' ;;
    cpp17) echo '50 tasks ran once, one 4 times until it succeeded, a periodic one [0-9]+ times' ;;
    *) echo 'an example that this script does not know' ;;
    esac
}

# On a socket in a folder of our own: no port, no file left behind.
start_redis()
{
    command -v redis-server >/dev/null || return
    redis-server --port 0 --unixsocket "$tmp/redis.sock" --save '' --appendonly no \
        --dir "$tmp" >"$tmp/redis.log" 2>&1 &
    redis=$!
    for _ in $(seq 100); do
        [ -S "$tmp/redis.sock" ] && return
        sleep 0.05
    done
    echo "redis-server does not start:"
    tail -n 5 "$tmp/redis.log"
    return 1
}

skip() # name why
{
    skipped=$((skipped + 1))
    echo "left out: $1: $2"
}

run() # name arguments...
{
    local name=$1 status last
    shift
    ran=$((ran + 1))
    timeout -k 5 60 "$programs/$name" "$@" >"$tmp/out" 2>&1 </dev/null
    status=$?
    last=$(tail -n 1 "$tmp/out")
    if [ $status = 0 ] && [[ $last =~ ^$name:\ $(expected "$name")$ ]]; then
        echo "$last"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED: $name, exit status $status, printed:"
    sed 's/^/    /' "$tmp/out"
}

"$MAKE" -s KIND="$KIND" BUILD="$BUILD" CC="$CC" CXX="$CXX" examples >"$tmp/make" || exit 1
for source in docs/examples/*.c docs/examples/*.cc; do
    name=$(basename "${source%.*}")
    if [ ! -x "$programs/$name" ]; then
        skip "$name" "$(sed -n "s,.*SKIP .*/$name: ,,p" "$tmp/make")"
    elif [ "$KIND $name" = "tsan glib_pool" ]; then
        skip "$name" "ThreadSanitizer does not see the locks inside GLib"
    elif [ "$name" != lock_watchdog ]; then
        run "$name"
    elif start_redis; then
        run "$name" "$tmp/redis.sock"
    else
        skip "$name" "redis-server is not installed: apt-get install redis-server"
    fi
done

echo "$ran examples ran, $failed failed, $skipped skipped"
[ "$ran" -gt 0 ] || exit 77
[ "$failed" -eq 0 ]
