# SPDX-License-Identifier: BSD-2-Clause
#
# Programs of Criterion, one for each subject; those that can be built here are all or none, which
# may have changed when `deps` has run.

UNIT      := $(call test_programs,unit)
UNIT_HERE  = $(if $(call finds,criterion/criterion.h,$(CPPFLAGS)),$(UNIT))

$(UNIT): $(B)/%: $(O)/%.o $(SUPPORT) $(O)/libsupport.a $(INTERNAL)
	$(call link_test,$< $(SUPPORT),-lcriterion)
