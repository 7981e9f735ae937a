# SPDX-License-Identifier: BSD-2-Clause
#
# Other timers under one interface; what is not installed is left out.

peer_packages := libuv libevent_pthreads
peers_here    := $(foreach p,$(peer_packages),$(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo $(p)))
PEERS         := $(B)/bench/peers
PEERS_O       := $(patsubst %.c,$(O)/%.o,$(filter-out %/release.c,$(wildcard bench/peers/*.c)))

$(PEERS_O): BENCH_C += $(foreach p,$(peers_here),-DHAVE_$(p) $(call package,$(p),--cflags))

$(PEERS): $(PEERS_O) $(HARNESS_O) $(B)/libhwt.so
	$(call link_shared,$(foreach p,$(peers_here),$(call package,$(p),--libs)) -lm -lrt)

# Asks one question, as a user of 1.0 has compiled it: run.sh starts it with that release.
ASKED_OF_1_0 := $(B)/bench/release
RELEASE_O    := $(addprefix $(O)/bench/peers/1.0/,hwt.o release.o)

$(RELEASE_O): $(O)/bench/peers/1.0/%.o: bench/peers/%.c $(O)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -Itest/compat/1.0 $(BENCH_C) -c -o $@ $<

$(ASKED_OF_1_0): $(RELEASE_O) $(addprefix $(O)/bench/peers/,ask.o peer.o) \
		$(filter-out %/producer.o,$(HARNESS_O)) $(B)/libhwt.so
	$(call link_shared,-lm)
