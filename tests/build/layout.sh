#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The layout check of the build: a module whose headers differ from the target
# kernel does not build, and the message names the member. The differences are
# made with a changed copy of vhost.h that comes first in the include path.
#
# usage: layout.sh KDIR [MODULE-SOURCE]
set -uo pipefail
kdir=$(realpath "${1:?usage: layout.sh KDIR [MODULE-SOURCE]}")
. "$(dirname "$0")/lib.sh"
module=$(realpath "${2:-$top}")

source=$kdir
[[ ! -L $kdir/source ]] || source=$kdir/source
release=$(<"$kdir/include/config/kernel.release")
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\{0,1\}\([^ "]*\) .*/\1/p' "$kdir/include/config/auto.conf")
mkdir "$scratch/include"

# build ARG...: both sides of the check, from nothing; what is said is in $scratch/log.
build() {
	rm -rf "$scratch/out"
	mkdir "$scratch/out"
	make -k -C "$kdir" M="$module" MO="$scratch/out" CC="$cc" KERNELRELEASE="$release" \
		KCFLAGS="-I$scratch/include" "$@" layout_check.o rust/vhost_vsock_rs_main.o >"$scratch/log" 2>&1
}

# header SED: vhost.h with a change, which must be one.
header() {
	sed -E "$1" "$source/drivers/vhost/vhost.h" >"$scratch/include/vhost.h"
	if cmp -s "$scratch/include/vhost.h" "$source/drivers/vhost/vhost.h"; then
		echo "Bail out! this kernel's vhost.h has no place for: $1"
		exit 1
	fi
}

# said WHO PATTERN: the C compiler's or rustc's message about a layout.
said() {
	case $1 in
	c) grep -qE "(static assertion failed: \"layout: $2|error: .*$2)" "$scratch/log" ;;
	rust) grep -qE "panicked.*layout: $2" "$scratch/log" ;;
	script) grep -qE "^(error: layout check:| ) $2" "$scratch/log" ;;
	esac
}

# caught DESC PATTERN WHO...: the last build's log has each WHO's objection.
caught() {
	local desc=$1 pattern=$2 status=0 who
	shift 2
	for who; do
		said "$who" "$pattern" || status=1
	done
	grep -E 'error|layout' "$scratch/log" | cut -c1-200 | head -20 >"$scratch/why"
	result $status "$desc"
}

# fails DESC: the build ends with an error.
fails() {
	local status=0
	build && status=1
	result $status "$1"
}

built() {
	local desc=$1 status=0
	shift
	build "$@" || status=1
	tail -20 "$scratch/log" >"$scratch/why"
	result $status "$desc"
}

# refused DESC PATTERN ARG...: the build fails and the script says why.
refused() {
	local desc=$1 pattern=$2 status=0
	shift 2
	build "$@" && status=1
	said script "$pattern" || status=1
	grep -q 'LAYOUT_CHECK=skip\|apt install' "$scratch/log" || status=1
	tail -20 "$scratch/log" >"$scratch/why"
	result $status "$desc"
}

# covered FILE PATTERN NAME...: each struct has an assertion in the generated file.
covered() {
	local file=$1 pattern=$2 status=0 name
	shift 2
	for name; do
		grep -qE "${pattern//NAME/$name}" "$scratch/out/$file" || { echo "no assertion for $name" >>"$scratch/why"; status=1; }
	done
	return $status
}

vhost="vhost_dev vhost_virtqueue vhost_worker vhost_work vhost_poll"
vsock="virtio_vsock_hdr virtio_vsock_skb_cb vsock_sock vsock_transport virtio_transport virtio_vsock_sock sk_buff"

built "the kernel's own headers agree with the kernel"
# shellcheck disable=SC2086 # one argument a name
covered layout_check.c 'sizeof\(struct NAME\) ==' $vhost $vsock net; result $? "all structs are compared in C"
# shellcheck disable=SC2086 # one argument a name
covered layout_check.rs 'size_of::<NAME>\(\) ==' $vhost $vsock; result $? "all structs are compared in Rust"

# Members that the target does not have.
header '
	s/^\tvhost_work_fn_t handle_kick;/\tu64 stray_before;\n&/
	s/^\tbool log_used;/&\n\tu8 stray_padding;/
	s/^\tunsigned long\s+flags;/&\n\tu64 stray_end;/'
fails "added members end the build"
caught "a member added" "vhost_virtqueue.stray_before is in the headers but not" script
caught "a member added in padding, which moves no other" "vhost_virtqueue.stray_padding is in the headers but not" script
caught "a member added at the end of vhost_work" "vhost_work.stray_end is in the headers but not" script

# Members that are not what they are in the target.
header '
	s/^\tu16 last_avail_idx;/\tu32 last_avail_idx;/
	s/^\tbool is_le;/\tu16 is_le;/
	s/^(\tvring_avail_t.*\*)avail;/\1SWAP;/
	s/^(\tvring_used_t.*\*)used;/\1avail;/
	s/SWAP/used/
	s/^\tu32 busyloop_timeout;//'
fails "changed members end the build"
caught "a member that is wider" "vhost_virtqueue.last_avail_idx is 2 bytes" c rust
caught "a member that moved" "vhost_virtqueue.avail_idx is at byte" c rust
caught "a wider member that moves no other" "vhost_virtqueue.is_le is 1 bytes" c rust
caught "two members that changed places" "vhost_virtqueue.used is at byte" c rust
caught "a member missing" busyloop_timeout c

# The two compilers read the same header differently.
header '
	s/^\tu16 last_avail_idx;/#ifdef __BINDGEN__\n\tu32 last_avail_idx;\n#else\n&\n#endif/
	s/^\tbool is_le;/#ifdef __BINDGEN__\n&\n#else\n\tu16 is_le;\n#endif/'
fails "compilers that differ end the build"
caught "bindgen alone sees another layout" "vhost_virtqueue.last_avail_idx is 2 bytes" rust
! said c "vhost_virtqueue.last_avail_idx"; result $? "and C has no objection there"
caught "the C compiler alone sees another layout" "vhost_virtqueue.is_le is 1 bytes" c
! said rust "vhost_virtqueue.is_le"; result $? "and Rust has no objection there"
rm "$scratch/include/vhost.h"

refused "no BTF of the kernel" "BTF of the kernel .* not found" TARGET_VMLINUX=/nonexistent
refused "no module of the target" "the target's vhost.ko not found" TARGET_MODULES=/nonexistent
refused "no pahole" "/nonexistent/pahole not found" PAHOLE=/nonexistent/pahole
header 's/^\tu64 log_addr;/&\n\tu64 stray;/'
built "LAYOUT_CHECK=skip builds, without all three and whatever the headers say" \
	LAYOUT_CHECK=skip TARGET_VMLINUX=/nonexistent TARGET_MODULES=/nonexistent PAHOLE=/nonexistent/pahole
grep -q 'warning: LAYOUT_CHECK=skip' "$scratch/log"; result $? "and says that nothing was compared"
finish
