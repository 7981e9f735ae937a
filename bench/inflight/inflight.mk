# SPDX-License-Identifier: BSD-2-Clause
#
# Pairs with many timeouts in flight, of this library and of the peers in the same run. As a program
# of a user's: with the shared library.

INFLIGHT   := $(B)/bench/inflight
INFLIGHT_O := $(patsubst %.c,$(O)/%.o,$(wildcard bench/inflight/*.c))

$(INFLIGHT_O): BENCH_C += $(foreach p,$(peers_here),-DHAVE_$(p))

$(INFLIGHT): $(INFLIGHT_O) $(filter-out %/peers.o,$(PEERS_O)) $(HARNESS_O) $(B)/libhwt.so
	$(call link_shared,$(foreach p,$(peers_here),$(call package,$(p),--libs)) -lm -lrt)
