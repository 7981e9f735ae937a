# SPDX-License-Identifier: BSD-2-Clause
#
# The wheels beside the structures of the textbooks: heap, tree, list.

STRUCTURES   := $(B)/bench/structures
STRUCTURES_O := $(patsubst %.c,$(O)/%.o,$(wildcard bench/structures/*.c))

$(STRUCTURES): $(STRUCTURES_O) $(HARNESS_O) $(B)/libhwt.a
	$(call link_bench,-lm)
