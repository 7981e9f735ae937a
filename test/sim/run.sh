#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Run the simulator: one history (SEED), or as many as there is time for (SIM_SECONDS, or HOURS), on
# all CPUs. The seeds of histories that failed once are tried first. The last line says what was
# searched.
# Environment: SIM (the program), SEED, TRACE, SIM_SECONDS, HOURS, WORLD, FIRST (the first seed),
# SIM_LINES=1 (which accesses were never reached, or never left for another thread).

set -u
cd "$(dirname "$0")/../.." || exit
: "${SIM:=build/sim/hwt-sim}" "${SIM_SECONDS:=20}" "${FIRST:=0}"
[ -x "$SIM" ] || { echo "the simulator is not built: that takes gcc 11, and glibc"; exit 77; }
[ -n "${HOURS:-}" ] && SIM_SECONDS=$(awk "BEGIN { print int($HOURS * 3600) }")

# The simulator's addresses are fixed: others' must not move into them.
fixed=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed=(setarch "$(uname -m)" -R)

if [ -n "${SEED:-}" ]; then
    exec "${fixed[@]}" "$SIM" ${TRACE:+-t} "$SEED"
fi

status=0
read -ra seeds <<<"$(grep -v '^#' test/sim/seeds.txt | awk '{ printf "%s ", $1 }')"
[ ${#seeds[@]} -gt 0 ] && { "${fixed[@]}" "$SIM" "${seeds[@]}" || status=1; }

# Each CPU has seeds of its own; of those that are found bad the first one is shrunk and shown.
logs=$(mktemp -d)
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$logs"' EXIT
cpus=$(nproc)
pids=()
for ((i = 0; i < cpus; i++)); do
    "${fixed[@]}" "$SIM" -s "$SIM_SECONDS" -f $((FIRST + i)) -j "$cpus" \
        ${WORLD:+-w "$WORLD"} ${TRACE:+-t} ${SIM_LINES:+-l} >"$logs/$i" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || status=1
done
cat "$logs"/*
awk '
    / histories, .* points, / {
        histories += $1; points += $3; switches += $5
        if ($7 > states) states = $7
    }
    / atomic accesses in the code: / {
        accesses = $1
        if ($7 > reached) reached = $7
        if ($9 > left) left = $9
    }
    END {
        printf "%d histories, %.3g points, %.3g switches, at least %.3g states; ",
            histories, points, switches, states
        printf "of %d atomic accesses %d reached, %d left for another thread\n",
            accesses, reached, left
    }' "$logs"/*
exit $status
