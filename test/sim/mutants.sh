#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Is the evidence any good? Each file of test/sim/mutants/ puts one bug into the source; the
# simulator must find it. Such a file is a patch with a few lines before it:
#   What: the bug, in a line
#   Rule: the rule of docs/concurrency.md that it breaks, or the guarantee
#   Worlds: where to look for it (otherwise everywhere)
#   Seconds: more patience, where it takes longer
#   Seed: a history that has shown it in this source; if it still does, there is no search
#   Harmless: why nobody would notice: then it must not be found, in a tenth of the time
#   Open: why it is not found in a minute as things are; a tenth of the time is spent on it
#   Weak: why the simulator, whose loads are never early, cannot show it: not found either, but
#         left to the models of test/model/
#   Hangs: why a thread of it goes round and reaches no point, which no search comes back from: it
#         may be found that way, too
# Arguments: names of mutants; otherwise all. MUTANT_SECONDS is the patience for each (60);
# MUTANT_SHARE=K/N takes every Nth of them, from the Kth on, and says so; of these, what is open is
# built and not searched.
# The rows printed are those of the table in docs/reliability.md.

set -u
cd "$(dirname "$0")/../.." || exit
: "${BUILD:=build}" "${MAKE:=make}" "${MUTANT_SECONDS:=60}"
[ -x "$BUILD/sim/hwt-sim" ] || { echo "not built: that takes gcc 11, and glibc"; exit 77; }
unset MAKEFLAGS MFLAGS MAKELEVEL
rm -rf "$BUILD/mutants" && mkdir -p "$BUILD/mutants" && work=$(realpath "$BUILD/mutants") || exit
fixed=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed=(setarch "$(uname -m)" -R)

header() # patch name
{
    sed -n "s/^$2: *//p; /^--- /q" "$1"
}

build() # tree
{
    (cd "$1" && $MAKE -s KIND=sim BUILD=build WERROR= build/sim/hwt-sim)
}

# A copy of the tree, and of what is built, which is in its folder `build`, wherever ours is: only
# what a patch touches is compiled again.
copy_tree() # to
{
    mkdir -p "$1/build"
    tar -c --exclude=./build "--exclude=./$(realpath --relative-to=. "$BUILD")" --exclude=./.git . |
        tar -x -C "$1"
    cp -a "$BUILD/sim" "$1/build/sim"
    find "$1/build" -name '*.d' -exec sed -i "s,^${BUILD#./}/,build/," {} +
    build "$1" >&2
}

# In a copy of its own, so that what was built of the tree stays as it is for the next.
try() # tree patch
{
    local tree=$1.mutant patch=$PWD/$2 name status worlds log seconds=$MUTANT_SECONDS found why seed
    name=$(basename "$2" .patch)
    log=$work/$name.log
    for why in Harmless Weak Open; do
        [ -n "$(header "$patch" $why)" ] && seconds=$((MUTANT_SECONDS / 10 + 1))
    done
    [ -n "$(header "$patch" Seconds)" ] && seconds=$(header "$patch" Seconds)
    worlds=$(header "$patch" Worlds | tr ' ' ,)
    cp -a "$1" "$tree"
    if ! { patch -s -p1 -d "$tree" <"$patch" && build "$tree"; } >"$log" 2>&1; then
        echo "| $name | $(header "$patch" Rule) | DOES NOT BUILD | | |"
    elif [ -n "${MUTANT_SHARE:-}" ] && [ -n "$(header "$patch" Open)" ]; then
        echo "| $name | $(header "$patch" Rule) | NOT SEARCHED | | |"
    else
        seed=$(header "$patch" Seed)
        [ -n "$seed" ] && timeout 20 "${fixed[@]}" "$tree/build/sim/hwt-sim" -q "$seed" \
            >"$log" 2>&1
        status=$?
        grep -q '^FAILED' "$log" || {
            timeout -k 5 $((seconds + 60)) "${fixed[@]}" "$tree/build/sim/hwt-sim" -q \
                -s "$seconds" ${worlds:+-w "$worlds"} >"$log" 2>&1
            status=$?
        }
        found=$(grep -m1 '^FAILED' "$log")
        if [ -n "$found" ]; then
            echo "| $name | $(header "$patch" Rule) | $(sed -n \
                's/^FAILED after \([0-9]*\) histories (\([^)]*\)): \(.*\)/\1 | \2 | \3/p' \
                <<<"$found") |"
        elif [ $status = 124 ]; then
            echo "| $name | $(header "$patch" Rule) | ? | | a thread that goes round without end |"
        elif [ $status != 0 ]; then
            echo "| $name | $(header "$patch" Rule) | DIED | | its status: $status |"
        else
            echo "| $name | $(header "$patch" Rule) | NOT FOUND | | |"
        fi
    fi
    rm -rf "$tree"
}

patches=()
if [ $# -gt 0 ]; then
    for name in "$@"; do patches+=("test/sim/mutants/$name.patch"); done
else
    patches=(test/sim/mutants/*.patch)
fi
if [ -n "${MUTANT_SHARE:-}" ]; then
    all=("${patches[@]}") patches=()
    for ((i = ${MUTANT_SHARE%/*}; i < ${#all[@]}; i += ${MUTANT_SHARE#*/})); do
        patches+=("${all[i]}")
    done
    echo "${#patches[@]} of ${#all[@]}; the others: make sim-mutants"
fi
workers=$(nproc)
[ "$workers" -le ${#patches[@]} ] || workers=${#patches[@]}
for ((w = 0; w < workers; w++)); do
    {
        copy_tree "$work/tree$w"
        for ((i = w; i < ${#patches[@]}; i += workers)); do
            try "$work/tree$w" "${patches[i]}"
        done
        rm -rf "$work/tree$w"
    } >"$work/rows.$w" &
done
wait
sort "$work"/rows.* >"$work/rows"

found=0 wrong=0 harmless=0 weak=0 open=0
while IFS='|' read -r _ name _ result _; do
    name=${name// /}
    why=
    for header in Harmless Weak Open Hangs; do
        [ -z "$(header "test/sim/mutants/$name.patch" $header)" ] || why=$header
    done
    case ${result// /},$why in
    NOT*,Harmless) harmless=$((harmless + 1)) ;;
    NOT*,Weak) weak=$((weak + 1)) ;;
    NOT*,Open) open=$((open + 1)) ;;
    [0-9]*, | [0-9]*,Open | [0-9]*,Hangs | '?',Hangs) found=$((found + 1)) ;;
    *) wrong=$((wrong + 1)) ;;
    esac
done <"$work/rows"
lost=$((${#patches[@]} - found - harmless - weak - open - wrong))
wrong=$((wrong + (lost > 0 ? lost : -lost)))
echo '| mutant | rule | histories | strategy | what the simulator says |'
echo '| --- | --- | --- | --- | --- |'
cat "$work/rows"
echo "$found mutants found, $harmless harmless, $weak left to relacy, $open open," \
    "$wrong not as expected$([ $lost = 0 ] || echo " ($lost without a row)")"
[ $wrong = 0 ]
