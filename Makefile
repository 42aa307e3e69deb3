# SPDX-License-Identifier: GPL-2.0
# The user's commands. Kbuild has the rules of the module itself.

# The kernel tree to build in: prepared, Rust-enabled, of 7.2 or 7.3.
KDIR ?= /lib/modules/$(shell uname -r)/build

kernel_release = $(shell cat $(KDIR)/include/config/kernel.release)
# The compiler that the kernel was built with, as its own configuration has it.
kernel_config = $(KDIR)/include/config/auto.conf
kernel_llvm = $(shell sed -n 's/^CONFIG_CC_IS_CLANG=y$$/1/p' $(kernel_config))
kernel_cc = $(if $(kernel_llvm),clang,$(shell \
	sed -n 's/^CONFIG_CC_VERSION_TEXT="\{0,1\}\([^ "]*\) .*/\1/p' $(kernel_config)))
ifeq ($(origin CC),default)
CC = $(kernel_cc)
endif

.PHONY: modules check-tree install uninstall demo test test-params test-debug lint bench clean help

modules: check-tree
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(MO)) CC=$(CC) \
		$(if $(kernel_llvm),LLVM=$(or $(LLVM),1)) KERNELRELEASE=$(kernel_release) modules

check-tree:
	@scripts/check-tree.sh $(KDIR)

install:
	scripts/install.sh install $(or $(MO),$(CURDIR))/vhost_vsock_rs.ko

uninstall:
	scripts/install.sh uninstall $(KERNELRELEASE)

demo:
	@scripts/bed/demo

test:
	@scripts/bed/run-tests

test-params:
	@scripts/bed/params-test

test-debug:
	@scripts/bed/debug-test

lint:
	@scripts/bed/lint

bench:
	@scripts/bed/bench

clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(MO)) clean

help:
	@echo 'For a real host:'
	@echo '  make [KDIR=...]  build vhost_vsock_rs.ko in a prepared kernel tree'
	@echo '  make install     put it in the place of vhost_vsock for that kernel (as root)'
	@echo '  make uninstall   take that back (KERNELRELEASE=... for another kernel than the running one)'
	@echo '  make clean       remove what was built'
	@echo 'Anywhere, as root (all is made in a cache of its own, nothing is installed but mmdebstrap):'
	@echo '  make demo        move checked data between a host and a guest, over this module and over C'
	@echo '  make test        run all tests over both modules'
	@echo '  make test-params run suites over ours with six sets of parameters: each two values of each two'
	@echo '  make test-debug  run tests over ours on a kernel with KASAN, lockdep and more (builds it first: long)'
	@echo '  make lint        check the source'
	@echo '  make bench       compare throughput and cost with the C module'
