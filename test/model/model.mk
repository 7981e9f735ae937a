# SPDX-License-Identifier: BSD-2-Clause
#
# The relacy models, which are C++ and know nothing of the library; the spin models are compiled by
# run-tests.sh. Most of the time goes into compiling them: hence -O1, and as many at a time as there
# are CPUs.

MODELS := $(patsubst %.cc,$(B)/%,$(wildcard test/model/*.cc))

$(MODELS): $(B)/%: %.cc $(O)/flags
	$(call say,CXX,$@)
	@mkdir -p $(@D) $(O)/$(*D)
	$(Q)$(CXX) -std=gnu++17 -O1 -Wall -Wextra $(WERROR) $(INCLUDES) -pthread \
		-MMD -MP -MF $(O)/$*.d -MT $@ $(CXXFLAGS) -o $@ $<

.PHONY: model-programs model
model-programs: $(MODELS) ## keep: Build the relacy models
model: deps ## test: Check the relacy and spin models of the protocols
	@if echo '#include <relacy/relacy.hpp>' | $(CXX) -x c++ -E - >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc)) model-programs; \
	fi
	$(call run,$(KIND),model)
