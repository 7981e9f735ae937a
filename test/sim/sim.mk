# SPDX-License-Identifier: BSD-2-Clause
#
# The simulator (KIND=sim): the objects of src/, compiled with the marks for ThreadSanitizer,
# without its runtime; what they ask of the system is renamed to what test/sim/ answers. Their
# variables, and the text of those that may look at free memory, get sections of their own
# (test/sim/memory.c).

SIM      := $(BUILD)/sim/hwt-sim
SIM_O    := $(patsubst %.c,$(O)/%.o,$(wildcard test/sim/*.c))
# base.c prints and aborts; the simulator has its own way to fail.
SIM_LIB  := $(filter-out $(O)/src/base.o,$(LIB_O))
SIM_POOL := $(patsubst %,$(O)/sim/%.o,depot pool pool_home slab slab_map slab_take)
SIM_PEEK := $(patsubst %,$(O)/sim/%.o,segment_count lane_sweep bucket_look crowd wheel answer)
SIM_TEXT := $(SIM_POOL) $(SIM_PEEK) $(O)/sim/poison.o $(O)/sim/pass.o

ifeq ($(KIND),sim)
$(SIM_POOL): sections := --rename-section .text=hwt_pool
$(SIM_PEEK): sections := --rename-section .text=hwt_peek
$(O)/sim/poison.o: sections := --rename-section .text=hwt_debug
$(O)/sim/pass.o: sections := --redefine-sym wheel_check_on=sim_wheel_check
$(SIM_TEXT): $(O)/sim/%.o: $(O)/src/%.o
	@mkdir -p $(@D)
	$(Q)$(OBJCOPY) $(sections) $< $@

$(O)/sim/all.o: $(filter-out $(SIM_TEXT:$(O)/sim/%=$(O)/src/%),$(SIM_LIB)) $(SIM_TEXT) \
		test/sim/system.syms $(O)/files
	$(call say,LD -r,$@)
	$(Q)$(CC) -r -nostdlib -o $@.new $(filter %.o,$^)
	$(Q)$(OBJCOPY) --redefine-syms=test/sim/system.syms --rename-section .data=hwt_data \
		--rename-section .bss=hwt_bss $@.new $@
	@rm $@.new

# Not the flags of the tests: a switch of fibers is no jump that a fortified libc allows.
$(SIM_O): $(O)/test/sim/%.o: test/sim/%.c $(O)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(sim_both) -O2 -g -fno-pie -fexceptions -U_FORTIFY_SOURCE $(CPPFLAGS) \
		-c -o $@ $<

$(SIM): $(SIM_O) $(O)/sim/all.o
	$(call say,LD,$@)
	$(Q)$(CC) -no-pie -pthread -o $@ $^ -lm

-include $(SIM_O:.o=.d)
endif

# SEED: that history again; HOURS: on all CPUs; otherwise SIM_SECONDS. WORLD: only that one.
SIM_SECONDS ?= 60
# The marks are gcc's alone, since gcc 11; and musl has no makecontext.
sim_here = $(and $(call accepted,--param=tsan-instrument-func-entry-exit=0),$(shell \
	$(CC) -include stdlib.h -dM -E -x c /dev/null 2>/dev/null | grep -ow __GLIBC__))
.PHONY: sim sim-program sim-mutants
sim-program: ## keep: Build the simulator
	@$(if $(sim_here),$(MAKE) --no-print-directory KIND=sim $(SIM), \
		echo 'sim: not built: that takes gcc 11 or later, and glibc')
sim: deps sim-program ## test: Search histories of the source for a bad one (SEED=, TRACE=1, HOURS=)
	@SIM=$(SIM) SEED='$(SEED)' TRACE='$(filter 1,$(TRACE))' HOURS='$(HOURS)' \
		SIM_SECONDS=$(SIM_SECONDS) WORLD='$(WORLD)' test/sim/run.sh
sim-mutants: deps sim-program ## test: Put bugs back into the source, one by one: each must be found
	@MAKE='$(MAKE)' BUILD=$(BUILD) test/sim/mutants.sh $(M)
