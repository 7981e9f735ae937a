# SPDX-License-Identifier: BSD-2-Clause
#
# The benchmarks, one program per question: build/bench/NAME from bench/bench_NAME.c (with _ for -).
# Included by the Makefile, whose variables it uses. `make bench` runs them all and leaves the
# figures in build/bench/results.jsonl, from which bench/report.sh writes the tables of
# docs/benchmarks.md; BENCH_FLAGS=--quick takes a few minutes instead of many.

BENCH_NAMES := submit population expire cancel-wheel reschedule lateness idle burst scaling \
	structures
BENCHES     := $(addprefix $(B)/bench/,$(BENCH_NAMES))
BENCH_O     := $(addprefix $(O)/bench/,support.o harness.o producer.o)
BENCH_FLAGS ?=
BENCH_JSON  ?= $(B)/bench/results.jsonl
PEERS_JSON  ?= $(B)/bench/peers.jsonl

BENCH_O_structures := $(O)/bench/structures_ordered.o $(O)/bench/structures_wheels.o

bench_object = $(O)/bench/bench_$(subst -,_,$(1)).o

define bench_program
$(B)/bench/$(1): $(call bench_object,$(1)) $(BENCH_O_$(1)) $(BENCH_O) $(B)/libhwt.a
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(LINK) -o $$@ $$^ -lm
endef
$(foreach name,$(BENCH_NAMES),$(eval $(call bench_program,$(name))))

# Counts cache lines: a library compiled for ThreadSanitizer, with hooks of its own instead of the
# sanitizer's. Only beside a release build, whose make then calls one for the other kind.
ifeq ($(KIND),release)
.PHONY: tsan-library
tsan-library:
	@$(MAKE) --no-print-directory KIND=tsan $(BUILD)/tsan/libhwt.a

LINES_O := $(addprefix $(O)/bench/,count/lines.o count/hooks.o support.o harness.o)

$(B)/bench/lines: $(LINES_O) tsan-library
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -no-pie -o $@ $(LINES_O) $(BUILD)/tsan/libhwt.a -lm
BENCH_LINES := $(B)/bench/lines
endif

# ---- other timers under one interface; what is not installed is left out ----

peer_packages := libuv libevent_pthreads
peers_here    := $(foreach p,$(peer_packages),$(shell $(PKG_CONFIG) --exists $(p) && echo $(p)))
peer_defines  := $(foreach p,$(peers_here),-DHAVE_$(p))
PEER_O        := $(patsubst %.c,$(O)/%.o,$(wildcard bench/peers/*.c))

$(PEER_O): BENCH_C += $(peer_defines) $(foreach p,$(peers_here),$(call package,$(p),--cflags))

$(B)/bench/peers: $(PEER_O) $(BENCH_O) $(B)/libhwt.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $^ $(foreach p,$(peers_here),$(call package,$(p),--libs)) -lm -lrt

# ---- running ----

.PHONY: bench-programs bench bench-peers
bench-programs: $(BENCHES) $(BENCH_LINES) $(B)/bench/peers $(if $(REPLAY_O),$(B)/hwt-replay) ## Build the benchmarks and the replay
bench: deps ## Measure: every program of bench/ in turn (half an hour; BENCH_FLAGS=--quick: minutes)
	@$(MAKE) --no-print-directory bench-programs
	@rm -f $(BENCH_JSON)
	@set -e; for program in $(BENCHES) $(BENCH_LINES); do \
		$$program $(BENCH_FLAGS) --json $(BENCH_JSON); \
	done
bench-peers: deps ## Measure other timers beside this one: those that are installed
	@$(MAKE) --no-print-directory $(B)/bench/peers
	@rm -f $(PEERS_JSON)
	@BUILD=$(BUILD) bench/peers/run.sh $(B)/bench/peers $(BENCH_FLAGS) --json $(PEERS_JSON)

-include $(patsubst %.o,%.d,$(BENCH_O) $(PEER_O) $(BENCH_O_structures) $(LINES_O))
-include $(foreach name,$(BENCH_NAMES),$(patsubst %.o,%.d,$(call bench_object,$(name))))
