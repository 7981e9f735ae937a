# SPDX-License-Identifier: BSD-2-Clause
#
# The fuzz programs: with a main of their own, which makes input from a seed, for `make check`; and
# without one for libFuzzer, which needs a library of its own, built by clang.

FUZZ := $(call test_programs,fuzz)

$(FUZZ): $(B)/%: $(O)/%.o $(O)/libsupport.a $(INTERNAL)
	$(call link_test,$<)

fuzz_flags := -fsanitize=fuzzer-no-link -DFUZZ_TARGET
.PHONY: fuzz
fuzz: ## closer: Fuzz the API with libFuzzer, for FUZZ_SECONDS=60 (needs clang)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang KIND=asan CPPFLAGS='$(fuzz_flags)' \
		all $(patsubst $(B)/%,$(BUILD)/fuzz/asan/obj/%.o,$(FUZZ))
	@mkdir -p $(BUILD)/fuzz/corpus
	@for name in $(notdir $(FUZZ)); do \
		clang -fsanitize=fuzzer,address,undefined -no-pie -o $(BUILD)/fuzz/$$name \
			$(BUILD)/fuzz/asan/obj/test/fuzz/$$name.o $(BUILD)/fuzz/asan/libhwt.a -pthread && \
		$(BUILD)/fuzz/$$name -max_total_time=$${FUZZ_SECONDS:-60} -max_len=600 -print_final_stats=1 \
			-artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus || exit; \
	done
