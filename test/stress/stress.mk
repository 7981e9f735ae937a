# SPDX-License-Identifier: BSD-2-Clause
#
# Programs with a main of their own, which TSan needs. They take what they use from the support
# code, and so need Criterion only if that does; so do those of test/fault and test/fuzz.

STRESS := $(call test_programs,stress)

$(STRESS): $(B)/%: $(O)/%.o $(O)/libsupport.a $(INTERNAL)
	$(call link_test,$<)
