# SPDX-License-Identifier: BSD-2-Clause
#
# libhwt: `make` builds both libraries, `make help` lists what else there is.
#
# Variables worth setting: CC, CFLAGS, LDFLAGS, V=1 (print commands), WERROR= (warnings stay
# warnings), KIND=debug|asan|ubsan|tsan|coverage|sim (whatever the target, in a folder of its own),
# BUILD (where everything is put), prefix, libdir, includedir, DESTDIR.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# ---- what to build with ----

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
OBJCOPY    ?= objcopy
PKG_CONFIG ?= pkg-config
INSTALL    ?= install
WERROR     ?= -Werror

prefix     ?= /usr/local
libdir     ?= $(prefix)/lib
includedir ?= $(prefix)/include
pcdir      := $(libdir)/pkgconfig

version_part = $(shell sed -n 's/^\#define HWT_VERSION_$(1) *\([0-9]*\).*/\1/p' include/hwt.h)
MAJOR   := $(call version_part,MAJOR)
VERSION := $(MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)

V ?= 0
ifeq ($(V),0)
Q := @
say = @$(if $(findstring s,$(firstword -$(MAKEFLAGS))),:,printf '  %-7s %s\n' '$(1)' '$(2)')
else
Q :=
say = @:
endif

# ---- kinds of build: each has a folder, so that their objects never meet ----

KINDS := release debug asan ubsan tsan coverage sim
KIND  ?= release
ifeq ($(filter $(KIND),$(KINDS)),)
$(error KIND is one of: $(KINDS))
endif
BUILD ?= build
B     := $(BUILD)$(if $(filter-out release,$(KIND)),/$(KIND))
O     := $(B)/obj

# ck_pr is inline assembly, which no sanitizer can follow: see the header.
sanitize = -fno-omit-frame-pointer -include src/ck_sanitizer.h -fno-sanitize-recover=all

optimize_release  := -O2
optimize_debug    := -O0
optimize_asan     := -O1
optimize_ubsan    := -O1
optimize_tsan     := -O1
optimize_coverage := -O0
optimize_sim      := -O1
kind_debug        := -DHWT_DEBUG
kind_asan          = -DHWT_DEBUG -fsanitize=address,undefined $(sanitize)
kind_ubsan         = -fsanitize=undefined $(sanitize)
kind_tsan          = -fsanitize=thread $(sanitize)
kind_coverage     := --coverage -fprofile-update=atomic
# Marked, as for ThreadSanitizer, and linked with a runtime of ours (test/sim/sim.mk): every corner
# near, the pool's blocks told of as to AddressSanitizer.
sim_both           = -DHWT_DEBUG -D__SANITIZE_ADDRESS__ -DHWT_SIZES='"../test/sim/sizes.h"'
kind_sim           = -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -Wno-tsan \
	-include src/ck_sanitizer.h -DCK_SAN_WEAK $(sim_both) -fcf-protection=none
link_asan         := -fsanitize=address,undefined
link_ubsan        := -fsanitize=undefined
link_tsan         := -fsanitize=thread
link_coverage     := --coverage

CFLAGS  ?= $(optimize_$(KIND)) -g
LDFLAGS ?=

# ---- flags ----

accepted = $(shell for f in $(1); do \
	$(CC) -Werror $$f -x c -c -o /dev/null /dev/null 2>/dev/null && echo "$$f"; done)
package  = $(shell $(PKG_CONFIG) $(2) $(1) 2>/dev/null)

ifneq ($(filter release debug,$(KIND)),)
HARDEN := $(call accepted,-fstack-protector-strong -fstack-clash-protection -fcf-protection=full)
endif
ifeq ($(KIND),release)
ifneq ($(filter -O1 -O2 -O3 -Os,$(CFLAGS)),)
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
endif
endif

# glibc keeps some static storage of threads for libraries that are loaded late. Where another libc
# does not, the library could not be loaded late at all: descriptors are the next best, if there.
ifneq ($(shell $(CC) -E -dM -include features.h -x c /dev/null 2>/dev/null | grep -w __GLIBC__),)
TLS_MODEL := -ftls-model=initial-exec
else
TLS_MODEL := $(call accepted,-mtls-dialect=gnu2)
endif
# A task may throw through hwt_timer_advance (src/guard.h); unless the unwinder that the compiler has
# is for another C library (a musl-gcc that wraps the compiler of the host).
guarded := void h(void) __attribute__((weak)); static void g(int *i) { (void)i; } \
	void f(void) { int i __attribute__((cleanup(g))) = 0; h(); }
UNWINDING := $(shell echo '$(guarded)' | \
	$(CC) -fexceptions -fPIC -shared -Wl,-z,defs -x c - -o /dev/null 2>/dev/null && echo -fexceptions)

# Only headers of Concurrency Kit are used. Its pkg-config file claims to be on the build machine's
# architecture, which would drop the barriers on another one.
CK_CFLAGS := $(patsubst -I%,-isystem %,$(filter-out -D__% -I/usr/include,$(call package,ck,--cflags)))

WARNINGS := -Wall -Wextra -Wshadow -Wundef -Wconversion $(WERROR)
INCLUDES := -Iinclude -Isrc $(CK_CFLAGS)
# Defined as nothing, so that a file may define it itself.
DEFINES  := -D_GNU_SOURCE= $(INCLUDES)
BASE     := -std=gnu11 -pthread $(DEFINES) $(WARNINGS) -MMD -MP
LIB_C     = $(BASE) -fvisibility=hidden -fPIC $(TLS_MODEL) $(UNWINDING) $(HARDEN) \
	$(kind_$(KIND)) $(CPPFLAGS) $(CFLAGS)
# Criterion's parameterized tests need fixed addresses.
TEST_C    = $(BASE) -fno-pie $(kind_$(KIND)) -Itest $(CPPFLAGS) $(CFLAGS)
BENCH_C   = $(BASE) $(HARDEN) -Ibench $(kind_$(KIND)) $(CPPFLAGS) $(CFLAGS)

LINK      = $(link_$(KIND)) -pthread -Wl,--as-needed $(CFLAGS) $(LDFLAGS)
# A sanitized object takes the sanitizer's own symbols from the program that loads it.
LINK_SO   = -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/hwt.map \
	$(if $(link_$(KIND)),,-Wl,-z,defs) -Wl,-z,relro,-z,now,-z,nodelete $(LINK)

# ---- files ----

SONAME   := libhwt.so.$(MAJOR)
REALNAME := libhwt.so.$(VERSION)
LIBS     := $(B)/libhwt.a $(B)/$(REALNAME) $(B)/$(SONAME) $(B)/libhwt.so
INTERNAL := $(O)/libhwt-internal.a

LIB_O    := $(patsubst %.c,$(O)/%.o,$(wildcard src/*.c))

# C, that is: the models' headers are C++.
C_FILES  := $(filter-out test/model/%,$(wildcard include/*.h src/*.[ch] test/*.[ch] test/*/*.[ch] \
	bench/*.[ch] bench/*/*.[ch] docs/examples/*.[ch]))
SCRIPTS  := $(wildcard test/*.sh test/*/*.sh bench/*.sh bench/*/*.sh .ci/*)

# Which file is installed where. Both install and uninstall follow this list.
INSTALLED := $(includedir)/hwt.h $(pcdir)/hwt.pc \
	$(addprefix $(libdir)/,libhwt.a $(REALNAME) $(SONAME) libhwt.so)

# ---- the library ----

.PHONY: all
all: $(LIBS) ## Build libhwt.so and libhwt.a (the default)

# Rewritten only when a flag changes, or a file comes or goes: what every object, and what every
# archive depends on.
define stamp
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(1))' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
endef
$(O)/flags: FORCE
	$(call stamp,$(CC) $(CXX) $(LIB_C) $(TEST_C) $(LINK))
$(O)/files: FORCE
	$(call stamp,$(LIB_O) $(SUPPORT) $(REPLAY_O))
.PHONY: FORCE
FORCE:

$(O)/src/%.o: src/%.c $(O)/flags
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_C) -c -o $@ $<

# For the tests: the objects as they are, every internal function within reach.
$(INTERNAL): $(LIB_O) $(O)/files
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(LIB_O)

# For users: one object in which the hidden symbols are local, as they are in libhwt.so. Without
# groups: a program with one of the same name would leave the local symbols of ours undefined.
$(O)/libhwt.o: $(LIB_O) $(O)/files
	$(call say,LD -r,$@)
	$(Q)$(CC) $(filter -m%,$(CFLAGS)) -r -nostdlib -Wl,--force-group-allocation \
		-o $@ $(LIB_O)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(B)/libhwt.a: $(O)/libhwt.o
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $<

$(B)/$(REALNAME): $(O)/libhwt.o src/hwt.map $(O)/flags
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK_SO) -o $@ $<

$(B)/$(SONAME): $(B)/$(REALNAME)
	$(Q)ln -sf $(REALNAME) $@
$(B)/libhwt.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# ---- what is not the library: its rules stand beside it ----

include test/test.mk
include bench/bench.mk
include docs/examples/examples.mk

# ---- keeping house ----

.PHONY: deps deps-full
deps: ## Install through apt what building and testing needs, if anything is missing
	@CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' .ci/deps
deps-full: ## The same for everything that any target can use
	@CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' .ci/deps full

.PHONY: format format-check
format: ## Lay the sources out with clang-format
	clang-format -i $(C_FILES)
format-check: ## Say where clang-format would change something
	@clang-format --dry-run -Werror $(C_FILES)

.PHONY: lint
lint: ## Run the static analysers that are installed
	@C_FILES='$(C_FILES)' SCRIPTS='$(SCRIPTS)' TIDY_FLAGS='-std=gnu11 $(DEFINES) -Itest -Ibench' \
		.ci/lint

.PHONY: abi
abi: all ## Compare the ABI with that of the releases (or REF=..., a git revision)
	@CC='$(CC)' BUILD=$(BUILD) REF='$(REF)' .ci/abi

.PHONY: install
install: all ## Install header, libraries, hwt.pc (DESTDIR, prefix, libdir, includedir)
	$(call say,INSTALL,$(DESTDIR)$(prefix))
	$(Q)$(INSTALL) -d $(sort $(addprefix $(DESTDIR),$(dir $(INSTALLED))))
	$(Q)$(INSTALL) -m 644 include/hwt.h $(DESTDIR)$(includedir)/hwt.h
	$(Q)$(INSTALL) -m 644 $(B)/libhwt.a $(DESTDIR)$(libdir)/libhwt.a
	$(Q)$(INSTALL) -m 755 $(B)/$(REALNAME) $(DESTDIR)$(libdir)/$(REALNAME)
	$(Q)ln -sf $(REALNAME) $(DESTDIR)$(libdir)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(DESTDIR)$(libdir)/libhwt.so
	$(Q)sed -e 's,@prefix@,$(prefix),; s,@libdir@,$(libdir),; s,@includedir@,$(includedir),' \
		-e 's,@version@,$(VERSION),' src/hwt.pc.in >$(DESTDIR)$(pcdir)/hwt.pc
	$(Q)chmod 644 $(DESTDIR)$(pcdir)/hwt.pc
	$(Q)$(if $(DESTDIR),:,[ "$$(id -u)" != 0 ] || ldconfig || :)

.PHONY: uninstall
uninstall: ## Remove what install puts there, with the same variables
	$(call say,REMOVE,$(DESTDIR)$(prefix))
	$(Q)rm -f $(addprefix $(DESTDIR),$(INSTALLED))

.PHONY: clean
clean: ## Remove the build folder
	$(Q)rm -rf $(BUILD)

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(filter Makefile %.mk,$(MAKEFILE_LIST)) | \
		while IFS="$$(printf '\t')" read -r t what; do printf '  %-16s %s\n' "$$t" "$$what"; done

-include $(LIB_O:.o=.d)
