# SPDX-License-Identifier: BSD-2-Clause
#
# The benchmarks and the replay, a folder for each kind, with its rules beside it; a program per
# question, $(B)/bench/NAME. Included by the Makefile, whose variables it uses. `make bench` runs
# them all and leaves the figures in build/bench/results.jsonl, from which bench/report.sh writes
# the tables of docs/benchmarks.md; BENCH_FLAGS=--quick takes a few minutes instead of many.

BENCH_FLAGS ?=
BENCH_JSON  ?= $(B)/bench/results.jsonl
PEERS_JSON  ?= $(B)/bench/peers.jsonl

$(O)/bench/%.o: bench/%.c $(O)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BENCH_C) -c -o $@ $<

define link_bench
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $(filter %.o %.a,$^) $(1)
endef

# With the shared library, which is found beside the folder of the program.
define link_shared
	$(call link_bench,$(B)/libhwt.so -Xlinker -rpath -Xlinker '$$ORIGIN/..' $(1))
endef

include bench/replay/replay.mk
include bench/suite/suite.mk
include bench/structures/structures.mk
include bench/count/count.mk
include bench/peers/peers.mk
include bench/inflight/inflight.mk

BENCHES := $(SUITE) $(STRUCTURES) $(COUNTS)

.PHONY: bench-programs bench bench-peers
bench-programs: $(BENCHES) $(INFLIGHT) $(PEERS) $(ASKED_OF_1_0) $(REPLAY) ## keep: Build the benchmarks and the replay
bench: deps ## measure: Every program of bench/ in turn (40 minutes; BENCH_FLAGS=--quick: minutes)
	@$(MAKE) --no-print-directory $(BENCHES) $(INFLIGHT)
	@rm -f $(BENCH_JSON)
	@set -e; for program in $(BENCHES); do \
		$$program $(BENCH_FLAGS) --json $(BENCH_JSON); \
	done
	@BUILD=$(BUILD) bench/peers/run.sh $(INFLIGHT) $(BENCH_FLAGS) --json $(BENCH_JSON)
	@bench/summary.sh $(BENCH_JSON)
bench-peers: deps ## measure: Measure other timers beside this one: those that are installed
	@$(MAKE) --no-print-directory $(PEERS) $(ASKED_OF_1_0)
	@rm -f $(PEERS_JSON)
	@BUILD=$(BUILD) bench/peers/run.sh $(PEERS) $(BENCH_FLAGS) --json $(PEERS_JSON)
	@bench/summary.sh $(PEERS_JSON)

-include $(patsubst %.o,%.d,$(sort $(REPLAY_O) $(HARNESS_O) $(SUITE_O) $(STRUCTURES_O) $(COUNTS_O) \
	$(PEERS_O) $(RELEASE_O) $(INFLIGHT_O)))
