# SPDX-License-Identifier: BSD-2-Clause
#
# The measurements of this library, through the shared one as its users have it, in the order in
# which `make bench` takes them: $(B)/bench/NAME from bench/suite/NAME.c (with _ for -). The harness
# serves the other folders too.

HARNESS_O := $(addprefix $(O)/bench/,support.o suite/harness.o suite/producer.o)

suite_names := submit population expire cancel-wheel reschedule lateness idle burst scaling tail
suite_object = $(O)/bench/suite/$(subst -,_,$(1)).o
SUITE       := $(addprefix $(B)/bench/,$(suite_names))
SUITE_O     := $(foreach name,$(suite_names),$(call suite_object,$(name)))

$(foreach name,$(suite_names),$(eval $(B)/bench/$(name): $(call suite_object,$(name))))
$(SUITE): $(HARNESS_O) $(B)/libhwt.so
	$(call link_shared,-lm)
