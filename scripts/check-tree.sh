#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# check-tree.sh [KDIR]: can a Rust module be built in this kernel tree, for the
# kernel it belongs to? Each missing piece is one line that names it and the
# command that provides it. Exit status: 0 yes, 1 something is missing.
#
# The compilers are those of the environment, as for kbuild: RUSTC, BINDGEN, CC.
set -uo pipefail
export LC_ALL=C

kdir=${1:-/lib/modules/$(uname -r)/build}
RUSTC=${RUSTC:-rustc}
BINDGEN=${BINDGEN:-bindgen}
PAHOLE=${PAHOLE:-pahole}
errors=0

# One export of each C library for each thing that the module does with it.
symbols="vhost_dev_init vhost_dev_ioctl vhost_vring_ioctl vhost_worker_ioctl vhost_get_vq_desc
	vhost_add_used_n vhost_signal vhost_log_write vhost_chr_poll vhost_init_device_iotlb
	vsock_core_register vsock_core_unregister vsock_find_cid vsock_for_each_connected_socket
	virtio_transport_recv_pkt virtio_transport_stream_enqueue virtio_transport_seqpacket_enqueue
	virtio_transport_deliver_tap_pkt virtio_transport_purge_skbs virtio_transport_consume_skb_sent"

# missing PIECE WHY COMMAND
missing() {
	printf 'missing: %s: %s; to get it: %s\n' "$1" "$2" "$3" >&2
	errors=$((errors + 1))
}

warn() {
	printf 'warning: %s\n' "$*" >&2
}

finish() {
	if ((errors)); then
		printf '%s: %d missing, the module cannot be built here\n' "$kdir" "$errors" >&2
		exit 1
	fi
	printf '%s: ready to build for %s\n' "$kdir" "$release"
	exit 0
}

# option NAME: the value of CONFIG_NAME without quotes, empty where it is off.
option() {
	sed -n "s/^CONFIG_$1=\"\\{0,1\\}\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p" "$config"
}

# number VERSION: x.y.z as one number that can be compared.
number() {
	local IFS=.
	# shellcheck disable=SC2086 # split at the dots
	set -- ${1%%[!0-9.]*}
	echo $((${1:-0} * 1000000 + ${2:-0} * 1000 + ${3:-0}))
}

debian() {
	[[ -e /etc/debian_version ]]
}

# either DEBIAN GENERIC: the command for the system that this runs on.
either() {
	if debian; then echo "$1"; else echo "$2"; fi
}

# --- the tree ---

# find_tree: sets release, config (a built tree's options) and source (where the C code is).
find_tree() {
	local included
	if [[ ! -f $kdir/Makefile ]]; then
		missing "kernel tree" "$kdir has no Makefile" "$(prepare_hint "$(uname -r)")"
		release=unknown
		finish
	fi
	source=$kdir
	included=$(sed -n 's/^include \(\/.*\)\/Makefile$/\1/p' "$kdir/Makefile" | head -1)
	[[ -z $included ]] || source=$included
	config=$kdir/include/config/auto.conf
	if [[ ! -f $config || ! -f $kdir/include/config/kernel.release ]]; then
		missing "prepared tree" "$kdir has no include/config/auto.conf or kernel.release" \
			"$(prepare_hint "$(uname -r)"), or with a .config in place: make -C $kdir olddefconfig prepare"
		release=unknown
		finish
	fi
	release=$(<"$kdir/include/config/kernel.release")
}

# prepare_hint RELEASE: the command that makes a tree for that kernel.
prepare_hint() {
	local series=${1%%[!0-9.]*}
	series=$(cut -d. -f1,2 <<<"$series")
	if [[ $series != 7.[23] ]]; then
		either "apt install -t trixie-backports linux-image-amd64, boot it, and see there" "build and boot a kernel 7.2 or 7.3 with CONFIG_RUST=y"
		return
	fi
	either "apt install linux-source-$series linux-headers-$1 linux-image-$1 && scripts/prepare-tree.sh DIR $1, then KDIR=DIR" \
		"make -C SOURCE O=DIR olddefconfig prepare modules_prepare, with that kernel's .config and Module.symvers in DIR, then KDIR=DIR"
}

check_version() {
	case $release in
	7.2 | 7.2[.+-]* | 7.3 | 7.3[.+-]*) ;;
	*) missing "kernel 7.2 or 7.3" "this tree is $release, whose vhost and Rust interfaces are not those the module was written for" \
		"$(prepare_hint "$release")" ;;
	esac
}

check_config() {
	local name
	[[ $(option RUST) == y ]] ||
		missing "CONFIG_RUST=y" "the kernel was built without Rust" \
			"$(either "apt install -t trixie-backports linux-image-amd64" "scripts/config -e RUST && make LLVM=1 rustavailable olddefconfig, then build and boot that kernel")"
	[[ $(option MODULES) == y ]] ||
		missing "CONFIG_MODULES=y" "the kernel loads no modules" "scripts/config -e MODULES, then build and boot that kernel"
	for name in VSOCKETS VIRTIO_VSOCKETS_COMMON VHOST; do
		[[ $(option $name) == [my] ]] ||
			missing "CONFIG_$name" "off in this kernel" "scripts/config -m VSOCKETS -m VHOST_VSOCK && make olddefconfig, then build and boot that kernel"
	done
	case $(option VHOST_VSOCK) in
	y) missing "CONFIG_VHOST_VSOCK=m" "the C driver is built in (y): it owns /dev/vhost-vsock and cannot be unloaded" \
		"scripts/config -m VHOST_VSOCK && make olddefconfig, then build and boot that kernel" ;;
	esac
}

check_sources() {
	[[ -f $source/drivers/vhost/vhost.h ]] ||
		missing drivers/vhost/vhost.h "a private header that headers packages leave out, not in $source" "$(prepare_hint "$release")"
	[[ -f $source/scripts/Makefile.build ]] ||
		missing scripts/Makefile.build "not in $source" "$(prepare_hint "$release")"
}

check_rust_files() {
	local file fix
	fix="make -C $kdir LLVM=1 rustavailable && make -C $kdir prepare"
	[[ -f $source/rust/Makefile ]] || fix=$(prepare_hint "$release")
	for file in lib{core,compiler_builtins,ffi,build_error,pin_init,bindings,uapi,kernel}.rmeta \
		libmacros.so libpin_init_internal.so bindings/bindings_generated.rs; do
		[[ -f $kdir/rust/$file ]] || missing "rust/$file" "not in $kdir" "$fix"
	done
	[[ -f $kdir/scripts/target.json || -z $(option X86_64) ]] ||
		missing scripts/target.json "the Rust target of the kernel build, not in $kdir" "$fix"
	[[ -f $kdir/include/generated/rustc_cfg ]] ||
		missing include/generated/rustc_cfg "the configuration as rustc flags, not in $kdir" "$fix"
	[[ ! -s $kdir/rust/bindings/bindings_generated.rs ]] || grep -q '^pub struct' "$kdir/rust/bindings/bindings_generated.rs" ||
		missing "rust/bindings/bindings_generated.rs by line" "the one in $kdir was made without rustfmt" \
			"$(either "apt install rustfmt" "rustup component add rustfmt") && rm $kdir/rust/bindings/bindings_generated.rs && make -C $kdir prepare"
	# Only a tree that is not prepared needs it.
	[[ -f $kdir/rust/libcore.rmeta ]] || check_rust_src
}

check_rust_src() {
	local sysroot
	sysroot=$("$RUSTC" --print sysroot 2>/dev/null) || return
	[[ -f ${RUST_LIB_SRC:-$sysroot/lib/rustlib/src/rust/library}/core/src/lib.rs ]] ||
		missing rust-src "the source of core, which rust/libcore.rmeta is made of" "$(either "apt install rust-src" "rustup component add rust-src")"
}

# --- the tools ---

check_rustc() {
	local has wants version
	wants=$(option RUSTC_VERSION_TEXT)
	version=$(sed -n 's/^rustc \([0-9.]*\).*/\1/p' <<<"$wants")
	if ! has=$("$RUSTC" --version 2>/dev/null); then
		missing rustc "$RUSTC does not run" "$(either "apt install rustc=$version+\\*" "rustup toolchain install ${version:-1.85.0}")"
	elif [[ -n $wants && $has != "$wants" ]]; then
		missing "rustc $version" "this is '$has', the kernel was built by '$wants', and metadata of one cannot be read by another" \
			"$(either "apt install rustc=$version+\\* (trixie has the one for backports kernels, forky its own)" "rustup toolchain install $version, then RUSTC=\$(rustup which --toolchain $version rustc)")"
	elif [[ -f $kdir/rust/libcore.rmeta ]] && ! grep -aqF "$has" "$kdir/rust/libcore.rmeta"; then
		missing "rust/libcore.rmeta of $has" "the one in $kdir was made by another rustc" "rm $kdir/rust/*.rmeta && make -C $kdir prepare"
	fi
}

check_bindgen() {
	local has wants least=0.71.1
	wants=$(option BINDGEN_VERSION_TEXT)
	[[ ! -x $source/scripts/min-tool-version.sh ]] || least=$("$source/scripts/min-tool-version.sh" bindgen)
	if ! has=$("$BINDGEN" --version 2>/dev/null); then
		missing bindgen "$BINDGEN does not run" "$(either "apt install bindgen" "cargo install --locked bindgen-cli --version ${wants#bindgen }")"
	elif (($(number "${has#bindgen }") < $(number "$least"))); then
		missing "bindgen $least or newer" "this is '$has'" "$(either "apt install -t trixie bindgen" "cargo install --locked bindgen-cli --version $least")"
	elif [[ -n $wants && $has != "$wants" ]]; then
		missing "$wants" "this is '$has'; types would differ from those of the kernel's own bindings" \
			"$(either "apt install bindgen=${wants#bindgen }-\\*" "cargo install --locked bindgen-cli --version ${wants#bindgen }")"
	fi
}

check_compiler() {
	local has wants cc
	wants=$(option CC_VERSION_TEXT)
	cc=${CC:-$(compiler_of "$wants")}
	if ! has=$("$cc" --version 2>/dev/null | head -1) || [[ -z $has ]]; then
		missing "C compiler $cc" "the kernel was built by '$wants'" "$(either "apt install $(compiler_package "$cc")" "install it, or name another with CC=")"
	elif [[ $(compiler_major "$has") != $(compiler_major "$wants") ]]; then
		missing "C compiler '$wants'" "this is '$has'" "$(either "apt install $(compiler_package "$(compiler_of "$wants")")" "install it"), then CC=$(compiler_of "$wants")"
	elif [[ $has != "$wants" ]]; then
		warn "the C compiler is '$has', the kernel was built by '$wants'"
	fi
}

# compiler_of LINE: the command whose --version begins with LINE. clang does not say
# its own: "Debian clang version 19.1.7".
compiler_of() {
	case $1 in
	*clang*) echo clang ;;
	*) echo "${1%% *}" ;;
	esac
}

# compiler_major LINE: "gcc 14" for the first line of --version.
compiler_major() {
	local kind=gcc
	[[ $1 != *clang* ]] || kind=clang
	sed -nE "s/.*[^0-9.]([0-9]+)\.[0-9]+\.[0-9]+.*/$kind \1/p" <<<" $1"
}

# compiler_package CC: Debian's package of x86_64-linux-gnu-gcc-14 is gcc-14.
compiler_package() {
	sed -E 's/^.*-(gcc(-[0-9]+)?|clang(-[0-9]+)?)$/\1/' <<<"${1##*/}"
}

check_other_tools() {
	command -v "${RUSTFMT:-rustfmt}" >/dev/null || missing rustfmt "bindgen's output is one line without it, and is read by line" "$(either "apt install rustfmt" "rustup component add rustfmt")"
	command -v python3 >/dev/null || missing python3 "runs the layout check" "$(either "apt install python3" "install python3")"
	[[ ${LAYOUT_CHECK:-} == skip ]] || command -v "$PAHOLE" >/dev/null ||
		missing pahole "reads the target's BTF for the layout check" "$(either "apt install pahole" "install dwarves"), or LAYOUT_CHECK=skip"
}

# --- the symbols ---

check_symvers() {
	local symvers=$kdir/Module.symvers name
	if [[ ! -s $symvers ]]; then
		missing Module.symvers "no symbol versions in $kdir" \
			"$(either "apt install linux-headers-$release && cp /usr/src/linux-headers-$release/Module.symvers $kdir" "make -C $kdir, or copy the file from the build of the running kernel")"
		return
	fi
	for name in $symbols; do
		grep -qP "\t$name\t" "$symvers" ||
			missing "symbol $name" "not in $symvers" "take Module.symvers from the build of $release, with VSOCKETS and VHOST_VSOCK on"
	done
	check_rust_symbols "$symvers"
}

# check_rust_symbols SYMVERS: the names of Rust symbols hold a hash of the crate:
# what this tree's kernel crate exports must be what the kernel has.
check_rust_symbols() {
	local exports=$kdir/rust/exports_kernel_generated.h lost
	[[ -f $exports ]] || return
	lost=$(comm -23 <(sed -n 's/^EXPORT_SYMBOL_RUST_GPL(\(.*\));$/\1/p' "$exports" | sort -u) <(cut -f2 "$1" | sort -u) | wc -l)
	((lost == 0)) ||
		missing "Rust symbols of $release" "$lost of those that this tree's kernel crate exports are not in Module.symvers: source, configuration or rustc are not the kernel's" \
			"$(prepare_hint "$release")"
}

find_tree
check_version
check_config
check_sources
check_rustc
check_bindgen
check_compiler
check_other_tools
check_rust_files
check_symvers
finish
