# SPDX-License-Identifier: BSD-2-Clause
#
# The tests: a folder for each kind, with the rules for its programs beside them. Included by the
# Makefile, whose variables it uses. Programs are built where their source is: $(B)/test/unit/lane
# from test/unit/lane.c; test/run-tests.sh runs them by the same names.

SUPPORT := $(O)/test/support.o

$(O)/test/%.o: test/%.c $(O)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_C) -c -o $@ $<

$(O)/libsupport.a: $(SUPPORT) $(O)/files
	@rm -f $@
	$(Q)$(AR) rcs $@ $(SUPPORT)

# A test may name what its own link needs, in a line `/* LDFLAGS: ... */`.
own_ldflags = $$(sed -n 's,^/\* LDFLAGS: \(.*\) \*/$$,\1,p' $(@:$(B)/%=%).c)

# $(1): objects, $(2): libraries
define link_test
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -no-pie -o $@ $(1) $(O)/libsupport.a $(INTERNAL) $(own_ldflags) $(2)
endef

test_programs = $(patsubst test/$(1)/%.c,$(B)/test/$(1)/%,$(wildcard test/$(1)/*.c))

include test/unit/unit.mk
include test/stress/stress.mk
include test/fault/fault.mk
include test/fuzz/fuzz.mk
include test/model/model.mk
include test/sim/sim.mk

.PHONY: unit-programs stress-programs
unit-programs: $(UNIT_HERE) ## keep: Build the unit tests
stress-programs: $(STRESS) $(FAULT) $(FUZZ) ## keep: Build the stress, fault and fuzz programs

# ---- running ----

run = @KIND=$(1) BUILD=$(BUILD) CC='$(CC)' CXX='$(CXX)' MAKE='$(MAKE)' test/run-tests.sh $(2)

# These run on a debug build in `make check` too: there the validators look at wheel, buckets, lanes
# and pool after every pass, which a release build never does.
VALIDATED := $(addprefix unit/,wheel wheel_cascade wheel_edges wheel_memory wheel_pause agenda bucket \
	order next lane lane_threads pool worker worker_stop worker_thread) fuzz/api stress/ends stress/caller

# What else runs, on the kind of build that was asked for, and which scripts beside a release, whose
# histories are searched.
TESTED   := unit fuzz stress fault
CHECKED  := check
SEARCHED := sim

# What the words of TESTED are: folders' programs, or single ones.
tested_here = $(foreach t,$(TESTED),$(filter $(B)/test/$(t) $(B)/test/$(t)/%,$(UNIT_HERE) $(STRESS) \
	$(FAULT) $(FUZZ)))
validated_here = $(if $(UNIT_HERE),$(VALIDATED),$(filter-out unit/%,$(VALIDATED)))

.PHONY: check
check: deps ## first: Build and run all tests but models and packages, part on a debug build (minutes)
	@$(MAKE) --no-print-directory all $(tested_here) $(REPLAY_HERE)
	@$(if $(filter release,$(KIND)),$(MAKE) --no-print-directory KIND=debug \
		$(addprefix $(BUILD)/debug/test/,$(validated_here)))
	@$(if $(filter release,$(KIND)),$(if $(SEARCHED),$(MAKE) --no-print-directory sim-program))
	$(call run,$(KIND),$(TESTED) \
		$(if $(filter release,$(KIND)),$(SEARCHED) $(CHECKED) KIND=debug $(VALIDATED)))

# T names a file of test/unit, stress, fault, fuzz, check or packages, with its folder or without.
matching = $(sort $(filter $(T) %/$(T),$(patsubst $(B)/test/%,%,$(UNIT) $(STRESS) $(FAULT) $(FUZZ)) \
	$(patsubst test/%.sh,%,$(wildcard test/check/*.sh test/packages/*.sh))))
.PHONY: test
test: ## test: Build and run one test: make test T=lane (or unit/lane, check/header), KIND=debug
	@$(if $(T),,echo 'which one? make test T=lane'; exit 2)
	@$(if $(matching),,echo 'there is no test named $(T)'; exit 2)
	@$(MAKE) --no-print-directory all $(patsubst %,$(B)/test/%,$(filter-out check/% packages/%,$(matching)))
	$(call run,$(KIND),$(matching))

.PHONY: packages
packages: deps-full ## test: Build as distributions do: their flags, link-time optimization, a release
	$(call run,$(KIND),packages)

.PHONY: stress
stress: export STRESS_SECONDS ?= 20
stress: deps ## test: Run the stress and fault programs for long (STRESS_SECONDS=20 each)
	@$(MAKE) --no-print-directory stress-programs
	$(call run,$(KIND),stress fault)

# Criterion does not start under TSan.
.PHONY: check-debug check-asan check-ubsan check-tsan
check-debug: ## test: Run the tests on the debug build
check-asan: ## test: Run the tests under ASan and UBSan
check-ubsan: ## test: Run the tests under UBSan
check-tsan: ## test: Run the stress and fault programs under TSan
check-debug check-asan check-ubsan: check-%: deps
	@$(MAKE) --no-print-directory KIND=$* all unit-programs stress-programs
	$(call run,$*,unit fuzz stress fault)
check-tsan: deps
	@$(MAKE) --no-print-directory KIND=tsan all stress-programs
	$(call run,tsan,stress fault)

.PHONY: again
again: deps ## test: Run the wheel's random tests again and again (AGAIN_SECONDS=60)
	@$(MAKE) --no-print-directory unit-programs
	$(call run,$(KIND),again)

# VALGRIND_TESTS: names of unit tests; otherwise all.
memcheck_unit = $(if $(VALGRIND_TESTS), \
	$(filter $(addprefix %/,$(notdir $(VALGRIND_TESTS))),$(UNIT_HERE)),$(UNIT_HERE))
.PHONY: valgrind
valgrind: deps ## closer: Run the unit tests under valgrind (VALGRIND_TESTS=, only those)
	@$(MAKE) --no-print-directory KIND=debug \
		$(patsubst $(B)/%,$(BUILD)/debug/%,$(FUZZ) $(memcheck_unit))
	$(call run,debug,valgrind)

.PHONY: coverage
coverage: deps ## closer: Measure what the tests reach, into build/coverage/index.html
	@$(MAKE) --no-print-directory KIND=coverage unit-programs stress-programs
	@find $(BUILD)/coverage -name '*.gcda' -delete
	$(call run,coverage,unit fuzz stress fault)
	gcovr --root . --filter src/ --branches --exclude-throw-branches --print-summary \
		--html-details $(BUILD)/coverage/index.html $(BUILD)/coverage/obj/src

-include $(SUPPORT:.o=.d) $(patsubst $(B)/%,$(O)/%.d,$(UNIT) $(STRESS) $(FAULT) $(FUZZ) $(MODELS))
