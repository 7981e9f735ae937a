# SPDX-License-Identifier: BSD-2-Clause
#
# libhwt: `make` builds both libraries, `make help` lists what else there is.
#
# Variables worth setting: CC, CFLAGS, LDFLAGS, V=1 (print commands), WERROR= (warnings stay
# warnings), KIND=debug|asan|ubsan|tsan|coverage|sim (whatever the target, in a folder of its own),
# FRAME_POINTERS=1, NODEPS=1 (install nothing), BUILD (where everything is put), prefix (or
# PREFIX), libdir, includedir, DESTDIR.

# `make -f elsewhere/Makefile` is `make -C elsewhere`.
# (Not by words: there may be blanks in it. Nothing else has been read yet, but what MAKEFILES names.)
here := $(strip $(subst $(MAKEFILES),,$(MAKEFILE_LIST)))
here := $(shell cd "$$(dirname "$(here)")" && pwd -P)
ifneq ($(here),$(shell pwd -P))
.PHONY: there
$(or $(MAKECMDGOALS),all): there ; @:
there: ; @$(MAKE) --no-print-directory -C "$(here)" $(MAKECMDGOALS)
else

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
# The compiler knows its own: those of the target, when that is another machine.
ifeq ($(origin AR),default)
AR := $(shell $(CC) -print-prog-name=ar 2>/dev/null)
endif
ifeq ($(origin OBJCOPY),undefined)
OBJCOPY := $(shell $(CC) -print-prog-name=objcopy 2>/dev/null)
endif
PKG_CONFIG ?= pkg-config
INSTALL    ?= install
LDCONFIG   ?= ldconfig
# For those who work on it; a release meets compilers that nobody has seen yet.
WERROR     ?= $(if $(wildcard .git),-Werror)

prefix     ?= $(or $(PREFIX),/usr/local)
libdir     ?= $(prefix)/lib
includedir ?= $(prefix)/include
pcdir      := $(libdir)/pkgconfig
cmakedir   := $(libdir)/cmake/hwt

version_part = $(shell sed -n 's/^\#define HWT_VERSION_$(1) *\([0-9]*\).*/\1/p' include/hwt.h)
MAJOR   := $(call version_part,MAJOR)
VERSION := $(MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)

quoted = '$(subst ','\'',$(1))'

V ?= 0
ifeq ($(V),0)
Q := @
say = @$(if $(findstring s,$(firstword -$(MAKEFLAGS))),:, \
	printf '  %-7s %s\n' '$(1)' $(call quoted,$(2)))
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
ifneq ($(words $(BUILD)),1)
$(error BUILD cannot be empty, nor have blanks in its name)
endif
B     := $(BUILD)$(if $(filter-out release,$(KIND)),/$(KIND))
O     := $(B)/obj

# ck_pr is inline assembly, which no sanitizer can follow: see the header.
sanitize = -DHWT_SANITIZED -fno-omit-frame-pointer -include src/ck_sanitizer.h \
	-fno-sanitize-recover=all

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
sim_both           = -DHWT_DEBUG -D__SANITIZE_ADDRESS__ -DHWT_SIZES='"../test/sim/sizes.h"' \
	-DPLATFORM_COUNTER=0
kind_sim           = -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -Wno-tsan \
	-include src/ck_sanitizer.h -DCK_SAN_WEAK $(sim_both) -fcf-protection=none
link_asan         := -fsanitize=address,undefined
link_ubsan        := -fsanitize=undefined
link_tsan         := -fsanitize=thread
link_coverage     := --coverage

CFLAGS  ?= $(optimize_$(KIND)) -g
LDFLAGS ?=

# ---- flags ----

# What of the builder's flags says which machine it is for, and where that one's tools and files are:
# probes are to hear of it, and ld -r.
AIMED   := $(filter -m% --target=% --sysroot=% -B%,$(CPPFLAGS) $(CFLAGS) $(LDFLAGS))

accepted = $(shell for f in $(1); do \
	$(CC) $(AIMED) -Werror $$f -x c -c -o /dev/null /dev/null 2>/dev/null && echo "$$f"; done)
hash    := \#
comma   := ,
finds    = $(shell echo '$(hash)include <$(1)>' | $(CC) $(AIMED) $(2) -E - >/dev/null 2>&1 && echo $(1))
package  = $(shell $(PKG_CONFIG) $(2) $(1) 2>/dev/null)

ifneq ($(filter release debug,$(KIND)),)
HARDEN := $(call accepted,-fstack-protector-strong -fstack-clash-protection -fcf-protection=full)
endif
# For those who profile whole systems by them, where a distribution asks for it.
ifeq ($(FRAME_POINTERS),1)
FRAMES := $(call accepted,-fno-omit-frame-pointer -mno-omit-leaf-frame-pointer)
endif
# The same bytes wherever it is built: no folder's name in what debuggers read.
ifeq ($(KIND),release)
PLACE := $(if $(call accepted,-ffile-prefix-map=a=b),-ffile-prefix-map=$(call quoted,$(CURDIR))=.)
endif
# Unless the builder says which, or does not optimize.
ifeq ($(KIND)$(findstring _FORTIFY_SOURCE,$(CC) $(CPPFLAGS) $(CFLAGS)),release)
ifneq ($(filter -O1 -O2 -O3 -Os,$(CFLAGS)),)
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
endif
endif

# Processors of Intel's from Skylake to Cascade Lake decode a branch anew each time if it touches the
# end of 32 bytes: so where a function came to lie made a tenth of a timeout's whole life there. The
# assembler keeps branches off such places; clang has an option of its own for that.
ifeq ($(KIND),release)
within   := -mbranches-within-32B-boundaries
BRANCHES := $(firstword $(call accepted,-Wa$(comma)$(within) $(within)))
endif

# glibc keeps some static storage of threads for libraries that are loaded late. Where another libc
# does not, the library could not be loaded late at all: descriptors are the next best, if there.
ifneq ($(shell $(CC) $(AIMED) $(CPPFLAGS) -E -dM -include features.h -x c /dev/null 2>/dev/null | \
	grep -w __GLIBC__),)
TLS_MODEL := -ftls-model=initial-exec
else
TLS_MODEL := $(call accepted,-mtls-dialect=gnu2)
# musl-gcc, which wraps the host's compiler, finds its own C library's headers alone: those of the
# kernel and of Concurrency Kit are the host's, and come after them.
HOST := $(if $(call finds,linux/futex.h,$(CPPFLAGS)),,-idirafter /usr/include \
	$(addprefix -idirafter /usr/include/,$(shell $(CC) -print-multiarch 2>/dev/null)))
endif
# A task may throw through hwt_timer_advance (src/guard.h); unless the unwinder that the compiler has
# is for another C library (a musl-gcc that wraps the compiler of the host).
guarded := void h(void) __attribute__((weak)); static void g(int *i) { (void)i; } \
	void f(void) { int i __attribute__((cleanup(g))) = 0; h(); }
UNWINDING := $(shell echo '$(guarded)' | \
	$(CC) $(AIMED) $(filter -L%,$(LDFLAGS)) -fexceptions -fPIC -shared -Wl,-z,defs -x c - \
		-o /dev/null 2>/dev/null && echo -fexceptions)

# Only headers of Concurrency Kit are used. Its pkg-config file claims to be on the build machine's
# architecture, which would drop the barriers on another one.
CK_CFLAGS := $(patsubst -I%,-isystem %,$(filter-out -D__% -I/usr/include,$(call package,ck,--cflags)))

# What the builder sets comes last, and wins, but for link-time optimization: bitcode survives
# neither ld -r nor objcopy, which make of hidden symbols local ones, and archives of it can be
# linked by its own compiler alone. It would gain little here: what is hot is inline (a twentieth of
# a turn in which one timeout is due, and nothing beyond the noise where there are many).
SET_C    := $(filter-out -flto% -f%-lto-objects,$(CFLAGS)) -fno-lto

WARNINGS := -Wall -Wextra -Wshadow -Wundef -Wconversion $(WERROR)
INCLUDES := -Iinclude -Isrc $(CK_CFLAGS) $(HOST)
# Defined as nothing, so that a file may define it itself.
DEFINES  := -D_GNU_SOURCE= $(INCLUDES)
BASE     := -std=gnu11 -pthread $(DEFINES) $(WARNINGS) -MMD -MP
LIB_C     = $(BASE) -fvisibility=hidden -fPIC $(TLS_MODEL) $(UNWINDING) $(HARDEN) $(FRAMES) \
	$(BRANCHES) $(PLACE) $(kind_$(KIND)) $(CPPFLAGS) $(SET_C)
# Criterion's parameterized tests need fixed addresses.
TEST_C    = $(BASE) $(kind_$(KIND)) -Itest $(CPPFLAGS) $(SET_C) -fno-pie
BENCH_C   = $(BASE) $(HARDEN) $(BRANCHES) -Ibench $(kind_$(KIND)) $(CPPFLAGS) $(SET_C)

LINK      = $(link_$(KIND)) -pthread -Wl,--as-needed $(SET_C) $(LDFLAGS)
# A sanitized object takes the sanitizer's own symbols from the program that loads it.
# The library's own calls are its own, also where a program has another copy of it (plugins).
LINK_SO   = -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/hwt.map \
	$(if $(link_$(KIND)),,-Wl,-z,defs) -Wl,-z,relro,-z,now,-z,nodelete \
	-Wl,-Bsymbolic-functions $(LINK)

# ---- files ----

SONAME   := libhwt.so.$(MAJOR)
REALNAME := libhwt.so.$(VERSION)
LIBS     := $(B)/libhwt.a $(B)/$(REALNAME) $(B)/$(SONAME) $(B)/libhwt.so
INTERNAL := $(O)/libhwt-internal.a

LIB_O    := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard src/*.c)))

# C, that is: the models' headers are C++.
C_FILES  := $(filter-out test/model/%,$(wildcard include/*.h src/*.[ch] test/*.[ch] test/*/*.[ch] \
	bench/*.[ch] bench/*/*.[ch] docs/examples/*.[ch]))
SCRIPTS  := $(wildcard test/*.sh test/*/*.sh bench/*.sh bench/*/*.sh .ci/*)

# Which file is installed where. Both install and uninstall follow this list.
INSTALLED := $(includedir)/hwt.h $(pcdir)/hwt.pc \
	$(cmakedir)/hwt-config.cmake $(cmakedir)/hwt-config-version.cmake \
	$(addprefix $(libdir)/,libhwt.a $(REALNAME) $(SONAME) libhwt.so)

# ---- the library ----

.PHONY: all
all: $(LIBS) ## build: Build libhwt.so and libhwt.a (the default)

ifeq ($(call finds,stddef.h,$(CFLAGS)),)
.PHONY: no-cc
$(LIB_O): no-cc
no-cc: ; $(error $(CC) does not compile: $(firstword $(CC)) is not there, or does not take its flags)
else ifeq ($(call finds,ck_stack.h,$(INCLUDES) $(CPPFLAGS)),)
.PHONY: no-ck
$(LIB_O): no-ck
no-ck: ; $(error Concurrency Kit is not there. `make deps` installs it (apt-get install libck-dev))
endif

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
# groups: a program with one of the same name would leave the local symbols of ours undefined. By
# the compiler's own linker, whatever -fuse-ld says: gold and older lld do not know that option.
$(O)/libhwt.o: $(LIB_O) $(O)/files
	$(call say,LD -r,$@)
	$(Q)$(CC) $(AIMED) -r -nostdlib -Wl,--force-group-allocation -o $@ $(LIB_O)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(B)/libhwt.a: $(O)/libhwt.o
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $<

$(B)/$(REALNAME): $(O)/libhwt.o src/hwt.map $(O)/flags
	$(call say,LD,$@)
	$(Q)$(CC) $(LINK_SO) -o $@ $<

$(B)/$(SONAME): $(B)/$(REALNAME)
	$(Q)ln -sf $(REALNAME) $@
$(B)/libhwt.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# ---- what is not the library: its rules stand beside it ----

include bench/bench.mk
include test/test.mk
include docs/examples/examples.mk

.PHONY: debug asan ubsan tsan
debug: ## build: Build the libraries with their validators, into build/debug
asan: ## build: Build them with AddressSanitizer and UBSan, into build/asan
ubsan: ## build: Build them with UBSan, into build/ubsan
tsan: ## build: Build them with ThreadSanitizer, into build/tsan
debug asan ubsan tsan:
	@$(MAKE) --no-print-directory KIND=$@ all

# Rewritten only when a flag changes, or a file comes or goes: what every object, and what every
# archive depends on. Compared here and not by a recipe, so that make -n knows what is the same.
# -Werror makes no other objects.
held_flags := $(filter-out -Werror,$(CC) $(CXX) $(LIB_C) $(TEST_C) $(LINK))
held_files := $(LIB_O) $(SUPPORT) $(REPLAY_O)
changed     = $(call unlike,$(2),$(strip $(file <$(1))))
unlike      = $(if $(subst x$(1),,x$(2))$(subst x$(2),,x$(1)),FORCE)

$(O)/flags: $(call changed,$(O)/flags,$(held_flags))
$(O)/files: $(call changed,$(O)/files,$(held_files))
$(O)/flags $(O)/files:
	@mkdir -p $(@D)
	@printf '%s\n' $(call quoted,$(held_$(@F))) >$@
.PHONY: FORCE
FORCE:

# ---- keeping house ----

.PHONY: deps deps-demo deps-full
deps: ## keep: Install through apt what the tests need and is missing (NODEPS=1: nothing)
deps-demo: ## keep: What building and the replay need
deps-full: ## keep: What any target can use
deps deps-demo deps-full: deps%:
	@CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' NODEPS='$(filter 1,$(NODEPS))' \
		.ci/deps $(or $(patsubst -%,%,$*),check)

.PHONY: format format-check
format: ## keep: Lay the sources out with clang-format
	clang-format -i $(C_FILES)
format-check: ## keep: Say where clang-format would change something
	@clang-format --dry-run -Werror $(C_FILES)

.PHONY: lint
lint: ## closer: Run the static analysers that are installed
	@C_FILES='$(C_FILES)' SCRIPTS='$(SCRIPTS)' FLAGS='-std=gnu11 $(DEFINES)' .ci/lint

.PHONY: abi
abi: all ## closer: Compare the ABI with that of the releases (or REF=..., a git revision)
	@CC='$(CC)' BUILD=$(BUILD) REF='$(REF)' .ci/abi

# A folder may have blanks in its name while it is packed, but not where the files are to stay.
staged = $(call quoted,$(DESTDIR)$(1))
blanks = $(if $(word 2,x$(prefix)x$(libdir)x$(includedir)), \
	$(error prefix, libdir and includedir cannot have blanks in their names))

# What says to others where the rest is: a template of src/, filled in.
# For pkg-config, which may be told another prefix (--define-prefix).
under_prefix = $(patsubst $(abspath $(prefix))/%,$${prefix}/%,$(abspath $(1)))
define fill
	$(Q)sed -e 's,@prefix@,$(abspath $(prefix)),; s,@libdir@,$(abspath $(libdir)),' \
		-e 's,@includedir@,$(abspath $(includedir)),' \
		-e 's,@pc_libdir@,$(call under_prefix,$(libdir)),; s,@pc_includedir@,$(call under_prefix,$(includedir)),' \
		-e 's,@version@,$(VERSION),; s,@major@,$(MAJOR),' \
		src/$(notdir $(1)).in >$(call staged,$(1))
	$(Q)chmod 644 $(call staged,$(1))
endef

.PHONY: install
install: all ## build: Install header, libraries, package files (DESTDIR, prefix, libdir, includedir)
	$(blanks)$(call say,INSTALL,$(DESTDIR)$(prefix))
	$(Q)$(INSTALL) -d $(foreach d,$(sort $(dir $(INSTALLED))),$(call staged,$(d)))
	$(Q)$(INSTALL) -m 644 include/hwt.h $(call staged,$(includedir)/hwt.h)
	$(Q)$(INSTALL) -m 644 $(B)/libhwt.a $(call staged,$(libdir)/libhwt.a)
	$(Q)$(INSTALL) -m 755 $(B)/$(REALNAME) $(call staged,$(libdir)/$(REALNAME))
	$(Q)ln -sf $(REALNAME) $(call staged,$(libdir)/$(SONAME))
	$(Q)ln -sf $(SONAME) $(call staged,$(libdir)/libhwt.so)
	$(call fill,$(pcdir)/hwt.pc)
	$(call fill,$(cmakedir)/hwt-config.cmake)
	$(call fill,$(cmakedir)/hwt-config-version.cmake)
	$(Q)$(if $(DESTDIR),:,[ "$$(id -u)" != 0 ] || $(LDCONFIG) || :)

.PHONY: uninstall
uninstall: ## build: Remove what install puts there, with the same variables
	$(blanks)$(call say,REMOVE,$(DESTDIR)$(prefix))
	$(Q)rm -f $(foreach f,$(INSTALLED),$(call staged,$(f)))
	$(Q)rmdir $(call staged,$(cmakedir)) 2>/dev/null || :

# The same bytes for the same commit, whoever packs it.
RELEASE := libhwt-$(VERSION)
.PHONY: dist
dist: ## build: Pack the last commit as a release, build/libhwt-VERSION.tar.gz
	$(call say,PACK,$(BUILD)/$(RELEASE).tar.gz)
	@[ -e .git ] || { echo 'dist: this is not a git checkout'; exit 1; }
	@git diff --quiet HEAD || echo 'dist: what is not committed is not in it'
	$(Q)mkdir -p $(BUILD)
	$(Q)git -c tar.umask=0022 archive --format=tar --prefix=$(RELEASE)/ \
		-o $(BUILD)/$(RELEASE).tar HEAD
	$(Q)gzip -9nf $(BUILD)/$(RELEASE).tar

.PHONY: clean
clean: ## keep: Remove the build folder
	$(Q)rm -rf $(BUILD)

.PHONY: help
help: ## keep: List the targets, as .ci/help groups them
	@.ci/help $(filter Makefile %.mk,$(MAKEFILE_LIST))

-include $(LIB_O:.o=.d)

endif
