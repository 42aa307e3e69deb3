#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/check-tree.sh on made-up kernel trees: each lacks one piece, and must be
# refused with one line that names it. Needs no kernel source and no compiler.
set -uo pipefail
. "$(dirname "$0")/lib.sh"

rustc="rustc 1.85.1 (4eb161250 2025-03-15)"
gcc="some-gcc-14 (Debian 14.2.0-19) 14.2.0"

# fake_tool NAME LINE: a program in $tools that knows only --version.
fake_tool() {
	# shellcheck disable=SC2016 # $1 is the program's own
	printf '#!/bin/sh\n[ "$1" = --version ] && echo "%s"\n[ "$1" = --print ] && echo %s/sysroot\nexit 0\n' "$2" "$tree" >"$tools/$1"
	chmod +x "$tools/$1"
}

# new_tree: a complete tree and its tools, made of stubs.
new_tree() {
	tree=$scratch/tree tools=$scratch/tools
	rm -rf "$tree" "$tools"
	mkdir -p "$tools" "$tree"/{scripts,drivers/vhost,include/{config,generated},rust/bindings}
	touch "$tree"/{Makefile,rust/Makefile,scripts/{Makefile.build,target.json},drivers/vhost/vhost.h,include/generated/rustc_cfg}
	touch "$tree"/rust/{lib{core,compiler_builtins,ffi,build_error,pin_init,bindings,uapi,kernel}.rmeta,libmacros.so,libpin_init_internal.so,bindings/bindings_generated.rs}
	mkdir -p "$tree/sysroot/lib/rustlib/src/rust/library/core/src"
	touch "$tree/sysroot/lib/rustlib/src/rust/library/core/src/lib.rs"
	echo "$rustc" >"$tree/rust/libcore.rmeta"
	echo "7.3.4+test" >"$tree/include/config/kernel.release"
	cat >"$tree/include/config/auto.conf" <<-EOF
		CONFIG_X86_64=y
		CONFIG_MODULES=y
		CONFIG_RUST=y
		CONFIG_VSOCKETS=m
		CONFIG_VIRTIO_VSOCKETS_COMMON=m
		CONFIG_VHOST=m
		CONFIG_VHOST_VSOCK=m
		CONFIG_RUSTC_VERSION_TEXT="$rustc"
		CONFIG_BINDGEN_VERSION_TEXT="bindgen 0.71.1"
		CONFIG_CC_VERSION_TEXT="$gcc"
	EOF
	printf '#!/bin/sh\necho 0.71.1\n' >"$tree/scripts/min-tool-version.sh"
	chmod +x "$tree/scripts/min-tool-version.sh"
	echo 'EXPORT_SYMBOL_RUST_GPL(_RNvCsHASH_6kernel4name);' >"$tree/rust/exports_kernel_generated.h"
	symvers _RNvCsHASH_6kernel4name "${wanted[@]}"
	fake_tool rustc "$rustc"
	fake_tool bindgen "bindgen 0.71.1"
	fake_tool some-gcc-14 "$gcc"
	fake_tool pahole v1.30
	fake_tool python3 "Python 3"
	fake_tool rustfmt "rustfmt 1.8.0-stable"
}

symvers() {
	printf '0x00000000\t%s\tvmlinux\tEXPORT_SYMBOL_GPL\t\n' "$@" >"$tree/Module.symvers"
}

# The C symbols that the script asks for, from the script itself.
mapfile -t wanted < <(sed -n '/^symbols="/,/"$/p' "$top/scripts/check-tree.sh" | tr -d '"' | sed 's/^symbols=//' | grep -oE '[a-z_]+')

run() {
	PATH="$tools:/usr/bin:/bin" RUSTC="$tools/rustc" BINDGEN="$tools/bindgen" PAHOLE="$tools/pahole" RUSTFMT="$tools/rustfmt" CC="$tools/some-gcc-14" \
		"$@" "$top/scripts/check-tree.sh" "$tree" >"$scratch/out" 2>"$scratch/err"
}

# refused DESC PATTERN [COMMAND...]: the tree as it is now is refused in exactly
# one line, which matches PATTERN and names a command. COMMAND is put in front.
refused() {
	local desc=$1 pattern=$2 status=0
	shift 2
	run "$@" && status=1
	[[ $(grep -c '^missing: ' "$scratch/err") == 1 ]] || status=1
	grep -Eq "^missing: $pattern.*; to get it: .+" "$scratch/err" || status=1
	cat "$scratch/out" "$scratch/err" >"$scratch/why"
	result $status "$desc"
}

accepted() {
	local status=0 desc=$1
	shift
	run "$@" || status=1
	grep -q 'ready to build' "$scratch/out" || status=1
	! grep -q '^missing: ' "$scratch/err" || status=1
	cat "$scratch/out" "$scratch/err" >"$scratch/why"
	result $status "$desc"
}

# config SED: changes the made-up configuration.
config() {
	sed -i "$1" "$tree/include/config/auto.conf"
}

new_tree; accepted "a complete tree is accepted"
for release in 7.2 7.2.12+deb14-amd64 7.3 7.3.4+deb13-amd64 7.3-rc1; do
	new_tree; echo $release >"$tree/include/config/kernel.release"; accepted "kernel $release is accepted"
done
for release in 6.18.44 7.1.9 7.30.1 7.4.0 8.3.1; do
	new_tree; echo $release >"$tree/include/config/kernel.release"; refused "kernel $release is refused" "kernel 7.2 or 7.3: this tree is $release"
done

new_tree; rm "$tree/Makefile"; refused "no tree" "kernel tree: .* no Makefile"
new_tree; rm "$tree/include/config/auto.conf"; refused "tree not prepared" "prepared tree: "
new_tree; rm "$tree/include/config/kernel.release"; refused "tree without release" "prepared tree: "

new_tree; config '/CONFIG_RUST=/d'; refused "CONFIG_RUST off" "CONFIG_RUST=y: "
new_tree; config '/CONFIG_MODULES=/d'; refused "CONFIG_MODULES off" "CONFIG_MODULES=y: "
for name in VSOCKETS VIRTIO_VSOCKETS_COMMON VHOST; do
	new_tree; config "/CONFIG_$name=/d"; refused "CONFIG_$name off" "CONFIG_$name: "
	new_tree; config "s/CONFIG_$name=m/CONFIG_$name=y/"; accepted "CONFIG_$name built in"
done
new_tree; config 's/VHOST_VSOCK=m/VHOST_VSOCK=y/'; refused "C driver built in" "CONFIG_VHOST_VSOCK=m: the C driver is built in"
new_tree; config '/VHOST_VSOCK=/d'; accepted "C driver off"

new_tree; rm "$tree/drivers/vhost/vhost.h"; refused "no vhost.h" "drivers/vhost/vhost.h: "
new_tree; rm "$tree/scripts/Makefile.build"; refused "no kbuild" "scripts/Makefile.build: "
new_tree; rm "$tree/rust/libcore.rmeta"; refused "no libcore.rmeta" "rust/libcore.rmeta: "
for file in lib{compiler_builtins,ffi,build_error,pin_init,bindings,uapi,kernel}.rmeta libmacros.so libpin_init_internal.so bindings/bindings_generated.rs; do
	new_tree; rm "$tree/rust/$file"; refused "no $file" "rust/$file: not in"
done
new_tree; rm "$tree/scripts/target.json"; refused "no target.json" "scripts/target.json: "
new_tree; rm "$tree/include/generated/rustc_cfg"; refused "no rustc_cfg" "include/generated/rustc_cfg: "
new_tree; rm "$tree/rust/libcore.rmeta"; rm -r "$tree/sysroot"
run; grep -q '^missing: rust-src: .*; to get it: ' "$scratch/err"; result $? "no rust-src where libcore must be made"
new_tree; rm -r "$tree/sysroot"; accepted "no rust-src where libcore is there"

new_tree; rm "$tools/rustc"; refused "no rustc" "rustc: "
new_tree; fake_tool rustc "rustc 1.97.1 (8bab26f4f 2026-07-14)"; refused "another rustc" "rustc 1.85.1: this is 'rustc 1.97.1"
new_tree; fake_tool rustc "rustc 1.85.1 (another build)"; refused "the same rustc version, another build" "rustc 1.85.1: this is 'rustc 1.85.1 .another"
new_tree; echo "rustc 1.85.0" >"$tree/rust/libcore.rmeta"; refused "libcore.rmeta of another rustc" "rust/libcore.rmeta of rustc 1.85.1"
new_tree; rm "$tools/bindgen"; refused "no bindgen" "bindgen: "
new_tree; fake_tool bindgen "bindgen 0.60.1"; refused "old bindgen" "bindgen 0.71.1 or newer: this is 'bindgen 0.60.1'"
new_tree; fake_tool bindgen "bindgen 0.72.1"; refused "bindgen other than the kernel's" "bindgen 0.71.1: this is 'bindgen 0.72.1'"
new_tree; config '/BINDGEN_VERSION/d'; fake_tool bindgen "bindgen 0.72.1"; accepted "newer bindgen where the kernel's is not known"
new_tree; rm "$tools/some-gcc-14"; refused "no C compiler" "C compiler .*some-gcc-14: the kernel was built by"
new_tree; fake_tool some-gcc-14 "some-gcc-14 (Debian 12.2.0-14) 12.2.0"; refused "another C compiler" "C compiler 'some-gcc-14 .*14.2.0': this is "
new_tree; fake_tool some-gcc-14 "Debian clang version 14.2.0"; refused "clang for gcc" "C compiler 'some-gcc-14"
new_tree; fake_tool some-gcc-14 "some-gcc-14 (Debian 14.2.0-20) 14.2.0"; accepted "another build of the C compiler"
new_tree; config 's/some-gcc-14 .*"/Debian clang version 19.1.7 (3+b1)"/'; fake_tool clang "Debian clang version 19.1.7 (3+b1)"; accepted "a kernel that clang built" env -u CC
new_tree; rm "$tools/rustfmt"; refused "no rustfmt" "rustfmt: "
new_tree; echo "pub struct a { } pub struct b { }" >"$tree/rust/bindings/bindings_generated.rs"; accepted "bindings by line"
new_tree; echo "# [repr (C)] pub struct a { } pub struct b { }" >"$tree/rust/bindings/bindings_generated.rs"
refused "bindings in one line" "rust/bindings/bindings_generated.rs by line: "
new_tree; rm "$tools/pahole"; refused "no pahole" "pahole: "
new_tree; rm "$tools/pahole"; accepted "no pahole without layout check" env LAYOUT_CHECK=skip

new_tree; rm "$tree/Module.symvers"; refused "no Module.symvers" "Module.symvers: "
for name in "${wanted[@]}"; do
	new_tree; sed -i "/\t$name\t/d" "$tree/Module.symvers"; refused "no symbol $name" "symbol $name: "
done
new_tree; sed -i '/_RNv/d' "$tree/Module.symvers"; refused "Rust symbols of another kernel crate" "Rust symbols of 7.3.4.test: 1 of those"

# Many pieces at once: each has its line.
new_tree; config '/CONFIG_RUST=/d'; rm "$tools/bindgen" "$tree/Module.symvers" "$tree/drivers/vhost/vhost.h"
status=0
! run || status=1
grep -c '^missing: ' "$scratch/err" | grep -qx 4 || status=1
cp "$scratch/err" "$scratch/why"
result $status "four pieces lacking: four lines"
finish
