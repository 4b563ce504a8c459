# SPDX-License-Identifier: MIT
#
# The front door. Meson does the work; `make help` says what can be done.

PREFIX ?= /usr/local
LIBDIR ?= lib
BUILD ?= build
BUILD_INSTALL ?= build-install

NINJA = ninja -C $(BUILD)

all: $(BUILD)/build.ninja ## build the library, the command and the tests
	@$(NINJA)

help: ## say what can be done
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 20

run: deps ## install what is missing, build, serve a demo
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@$(NINJA) src/postern
	$(BUILD)/src/postern serve --demo

check: all ## run the quick tests
	meson test -C $(BUILD) --no-rebuild --print-errorlogs --suite quick \
		--num-processes $$((2 * $$(nproc)))

test: deps ## install what is missing, run every test on every build
	tools/test

torture: deps ## run the tests that can go on for hours, and count
	tools/torture

bench: all ## measure, beside programs that do the same writes bare
	bench/run $(BUILD)

tidy: ## look for bugs with clang-tidy
	tools/tidy

format: ## format every C file
	tools/c-files | xargs clang-format -i

# A build of its own: the prefix is part of what is built.
install: ## install below PREFIX, or below DESTDIR/PREFIX
	@[ -e $(BUILD_INSTALL)/build.ninja ] || \
		meson setup $(BUILD_INSTALL) -Dtests=false
	meson configure $(BUILD_INSTALL) -Dprefix=$(PREFIX) -Dlibdir=$(LIBDIR)
	ninja -C $(BUILD_INSTALL)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD_INSTALL) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

deps: ## install the Debian packages that are missing
	@tools/install-deps

clean: ## remove what was built
	rm -rf build build-*

$(BUILD)/build.ninja:
	meson setup $(BUILD)

.PHONY: all help run check test torture bench tidy format install deps clean
