# SPDX-License-Identifier: BSD-2-Clause
#
# hwt-replay, the main job: a recording of real timers played on this library.

REPLAY   := $(B)/hwt-replay
REPLAY_O := $(patsubst %.c,$(O)/%.o,$(wildcard bench/replay/*.c)) $(O)/bench/support.o
REPLAY_HERE = $(if $(call finds,lzma.h,$(CPPFLAGS)),$(REPLAY))
TRACE    := bench/data/linux-tcp-timers.csv.xz

ifeq ($(REPLAY_HERE),)
.PHONY: no-lzma
$(REPLAY): no-lzma
no-lzma: ; $(error liblzma is not there. `make deps` installs it (apt-get install liblzma-dev))
endif
$(REPLAY): $(REPLAY_O) $(B)/libhwt.a $(O)/files
	$(call link_bench,-llzma -lm)

.PHONY: demo
demo: deps-demo ## first: Replay four seconds of a real kernel's TCP timers
	@$(MAKE) --no-print-directory $(REPLAY)
	$(REPLAY) $(TRACE)
