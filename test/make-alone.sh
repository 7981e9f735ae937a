#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# In place of make for tests that run side by side: one at a time for each build folder, so that no
# two build the same file; what make itself starts stands under its lock. HWT_MAKE is the make that
# runs.

folder=${BUILD:-build}
for argument in "$@"; do
    case $argument in BUILD=*) folder=${argument#BUILD=} ;; esac
done
make=${HWT_MAKE:-make}
unset MAKE HWT_MAKE # MAKE would be what make calls $(MAKE)
mkdir -p "$folder"
exec flock "$folder/.lock" "$make" "$@"
