# SPDX-License-Identifier: BSD-2-Clause
#
# Other timers under one interface; what is not installed is left out.

peer_packages := libuv libevent_pthreads
peers_here    := $(foreach p,$(peer_packages),$(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo $(p)))
PEERS         := $(B)/bench/peers
PEERS_O       := $(patsubst %.c,$(O)/%.o,$(wildcard bench/peers/*.c))

$(PEERS_O): BENCH_C += $(foreach p,$(peers_here),-DHAVE_$(p) $(call package,$(p),--cflags))

$(PEERS): $(PEERS_O) $(HARNESS_O) $(B)/libhwt.so
	$(call link_shared,$(foreach p,$(peers_here),$(call package,$(p),--libs)) -lm -lrt)
