# SPDX-License-Identifier: BSD-2-Clause
#
# Counts cache lines and accesses: a library compiled for ThreadSanitizer, with hooks of its own instead of the
# sanitizer's. Only beside a release build, whose make then calls one for the other kind.
# (test/check/instructions.sh compiles instructions.c itself.)

ifeq ($(KIND),release)
.PHONY: tsan-library
tsan-library:
	@$(MAKE) --no-print-directory KIND=tsan $(BUILD)/tsan/libhwt.a

COUNTS   := $(addprefix $(B)/bench/,lines waits)
COUNTS_O := $(addprefix $(O)/bench/count/,lines.o waits.o hooks.o)

$(COUNTS): $(B)/bench/%: $(O)/bench/count/%.o $(O)/bench/count/hooks.o $(HARNESS_O) tsan-library
	$(call link_bench,-no-pie $(BUILD)/tsan/libhwt.a -lm)
endif
