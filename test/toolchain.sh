# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
#
# What the compilers here can do. Sourced by checks, which are left out where it is not enough: a
# musl-gcc, say, wraps the host's compiler, and has neither its libraries nor its sanitizers.

has_header() # header
{
    echo "#include <$1>" | ${CC:-gcc} -E - >/dev/null 2>&1
}

# A program with these sanitizers is linked, and runs.
can_sanitize() # list
{
    program=$(mktemp) || return
    echo 'int main(void) { return 0; }' |
        ${CC:-gcc} "-fsanitize=$1" -x c -o "$program" - >/dev/null 2>&1
    "$program" >/dev/null 2>&1
    set -- $?
    rm -f "$program"
    return "$1"
}

libc_of() # language compiler
{
    echo '#include <stdlib.h>' | $2 -dM -E -x "$1" - 2>/dev/null |
        grep -qw __GLIBC__ && echo glibc || echo other
}

# What $CXX links can hold what $CC has compiled.
share_a_libc()
{
    [ "$(libc_of c "${CC:-gcc}")" = "$(libc_of c++ "${CXX:-g++}")" ]
}
