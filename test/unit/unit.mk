# SPDX-License-Identifier: BSD-2-Clause
#
# Programs of Criterion, one for each subject.

UNIT := $(call test_programs,unit)

$(UNIT): $(B)/%: $(O)/%.o $(SUPPORT) $(O)/libsupport.a $(INTERNAL)
	$(call link_test,$< $(SUPPORT),-lcriterion)
