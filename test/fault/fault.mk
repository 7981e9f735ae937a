# SPDX-License-Identifier: BSD-2-Clause
#
# Programs in which memory, threads, clock or futex fail.

FAULT := $(call test_programs,fault)

$(FAULT): $(B)/%: $(O)/%.o $(O)/libsupport.a $(INTERNAL)
	$(call link_test,$<)

# The walk throws through the library where that may be thrown through.
$(O)/test/fault/walk.o: TEST_C += $(UNWINDING)
