# SPDX-License-Identifier: BSD-2-Clause
#
# `make examples`: each into $(B)/examples, where pkg-config finds its library; otherwise a line
# says what was skipped. The main Makefile includes this file.

EXAMPLES := $(patsubst docs/examples/%,$(B)/examples/%,\
	$(basename $(wildcard docs/examples/*.c docs/examples/*.cc)))

# What an example needs beside libhwt: a package and its headers, and what Debian calls that.
$(addprefix $(B)/examples/,uv_loop uv_pool): private PACKAGE := libuv
$(addprefix $(B)/examples/,event_loop): private PACKAGE := libevent
$(addprefix $(B)/examples/,glib_loop glib_pool): private PACKAGE := glib-2.0
$(addprefix $(B)/examples/,lock_watchdog): private PACKAGE := hiredis
debian := libuv=libuv1-dev libevent=libevent-dev glib-2.0=libglib2.0-dev hiredis=libhiredis-dev
debian_name = $(patsubst $(1)=%,%,$(or $(filter $(1)=%,$(debian)),$(1)))

# As a user compiles them: with the public header alone, and no feature macros but those of the
# package. Warnings are about the example, not about the package's headers.
example_flags = -pthread -Iinclude $(WARNINGS) $(link_$(KIND)) $(CPPFLAGS) \
	-MMD -MP -MF $(O)/examples/$(@F).d -MT $@
example_package = $(if $(PACKAGE),$$($(PKG_CONFIG) --cflags $(PACKAGE) | sed 's/-I/-isystem /g'))
# pkg-config, and the C++ compiler, may be of another C library than the C compiler.
has_package = $(PKG_CONFIG) --exists $(PACKAGE) && echo 'int main(void) { return 0; }' | \
	$(CC) -x c - -o /dev/null $(LDFLAGS) $$($(PKG_CONFIG) --libs $(PACKAGE))
has_cxx = command -v $(CXX) && CC='$(CC)' CXX='$(CXX)' && . test/toolchain.sh && share_a_libc
example_link = $(LDFLAGS) $(B)/libhwt.a $(LDLIBS) $(if $(PACKAGE),$$($(PKG_CONFIG) --libs $(PACKAGE)))

# $(1): what must be there, $(2): as a command that finds out, $(3): the compiler and its options
define example_build
@mkdir -p $(@D) $(O)/examples
@if ! { $(2); } >/dev/null 2>&1; then \
	echo "  SKIP    $@: $(1) is not found, or not for $(CC): apt-get install $(call debian_name,$(1)) pkg-config"; \
	rm -f $@; \
else \
	$(if $(Q),echo "  CC      $@",set -x); \
	$(3) $(example_flags) $(example_package) -o $@ $< $(example_link); \
fi
endef

$(B)/examples/%: docs/examples/%.c $(B)/libhwt.a
	$(call example_build,$(PACKAGE),$(if $(PACKAGE),$(has_package),:),\
		$(CC) -std=gnu11 $(SET_C))

$(B)/examples/%: docs/examples/%.cc $(B)/libhwt.a
	$(call example_build,$(CXX),$(has_cxx),$(CXX) -std=c++17 $(or $(CXXFLAGS),-O2 -g))

.PHONY: examples
examples: $(EXAMPLES) ## build: Build docs/examples, those whose library is installed

-include $(patsubst $(B)/examples/%,$(O)/examples/%.d,$(EXAMPLES))
