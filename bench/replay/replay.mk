# SPDX-License-Identifier: BSD-2-Clause
#
# hwt-replay, the main job: a recording of real timers played on this library.

REPLAY   := $(B)/hwt-replay
REPLAY_O := $(patsubst %.c,$(O)/%.o,$(wildcard bench/replay/*.c)) $(O)/bench/support.o
TRACE    := bench/data/linux-tcp-timers.csv.xz

$(REPLAY): $(REPLAY_O) $(B)/libhwt.a $(O)/files
	$(call link_bench,-llzma -lm)

.PHONY: demo
demo: deps ## first: Replay four seconds of a real kernel's TCP timers
	@$(MAKE) --no-print-directory $(REPLAY)
	$(REPLAY) $(TRACE)
