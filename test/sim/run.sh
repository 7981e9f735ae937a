#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Run the simulator: one history (SEED), or as many as there is time for (SIM_SECONDS, or HOURS), on
# all CPUs. The seeds of histories that failed once are tried first.
# Environment: SIM (the program), SEED, TRACE, SIM_SECONDS, HOURS, WORLD.

set -u
cd "$(dirname "$0")/../.." || exit
: "${SIM:=build/sim/hwt-sim}" "${SIM_SECONDS:=60}"
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

cpus=$(nproc)
pids=()
for ((i = 0; i < cpus; i++)); do
    "${fixed[@]}" "$SIM" -s "$SIM_SECONDS" -f "${FIRST:-$i}" -j "$cpus" \
        ${WORLD:+-w "$WORLD"} ${TRACE:+-t} &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || status=1
done
exit $status
