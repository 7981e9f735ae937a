#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Is the simulator what it says? Nothing in src/ goes past it, its histories are the same again, and
# it finds a bug that is put there.

set -u
cd "$(dirname "$0")/../.." || exit
: "${BUILD:=build}" "${MAKE:=make}"
export BUILD MAKE
sim=$BUILD/sim/hwt-sim
[ -x "$sim" ] || { echo "the simulator is not built: make sim-program"; exit 77; }
fixed=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed=(setarch "$(uname -m)" -R)
status=0

# What the objects still ask of others: functions that only compute, and what is the thread's own.
allowed='__tsan_.*|__a?san_.*|sim_.*|base_fail|__start_.*|__stop_.*|_GLOBAL_OFFSET_TABLE_
_Unwind_Resume|__gcc_personality_v0|__divti3|__udivti3|__errno_location|__lsan_.*
f?printf|v?snprintf|__f?printf_chk|__snprintf_chk|stderr|fputs|fwrite|strncpy|strlen|memcmp
pthread_attr_.*|__sched_cpucount|sigfillset'
past=$(nm -u "$BUILD/sim/obj/sim/all.o" | awk '{ print $2 }' |
    grep -vxE "$(tr '\n' '|' <<<"$allowed" | sed 's/|$//')")
if [ -n "$past" ]; then
    echo "asked of the system past the simulator (test/sim/system.syms):" "$past"
    status=1
fi

# The same number of points in the same histories; and the same by their events alone.
searched()
{
    "${fixed[@]}" "$sim" -n 400 -s 60 -r | sed -n '/^FAILED/p; s/,[^,]* states.*//p'
}
first=$(searched) second=$(searched)
if [ "${first%% *}" != 400 ] || [ "$first" != "$second" ]; then
    printf 'not the same again: %s; %s\n' "$first" "$second"
    status=1
fi

# Each rule has its worlds, and those that docs/concurrency.md names are there.
"$sim" -h | awk '/^worlds:/ { now = 1; next } now { print $1 }' | sort >"$BUILD/sim/worlds"
for rule in $(grep -o '^\*\*C[0-9]* ' docs/concurrency.md | tr -d '* '); do
    "$sim" -h | grep -qw "$rule" || { echo "$rule has no world"; status=1; }
done
# shellcheck disable=SC2016
unknown=$(sed -n 's/.*\*Worlds:\* //p' docs/concurrency.md | grep -o '`[a-z]*`' | tr -d '`' |
    sort -u | comm -23 - "$BUILD/sim/worlds")
[ -z "$unknown" ] || { echo "no such worlds:" "$unknown"; status=1; }

if ! command -v patch >/dev/null; then
    echo "left out: a bug that is put into the source: apt-get install patch"
else
    mutant=depot_pop_relaxed
    said=$(MUTANT_SHARE='' MUTANT_SECONDS=60 test/sim/mutants.sh $mutant)
    case $? in
    0) ;;
    77) echo "left out: a bug that is put into the source: $said" ;;
    *)
        echo "a bug that was put into the source is not found: test/sim/mutants.sh $mutant"
        echo "$said"
        status=1
        ;;
    esac
fi
[ $status = 0 ] && echo "$first, twice the same"
exit $status
