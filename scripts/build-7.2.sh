#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# build-7.2.sh: compiles the module for Debian's 7.2 kernel, with the toolchain
# that built that kernel, in a root of the suite that has it (forky). Compiled,
# linked against the kernel's own symbols and compared with its struct layouts;
# not loaded. Prints the module's path. The first run takes about 8 minutes.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
. "$VV_TOP/scripts/lib/sandbox.sh"

suite=forky
series=7.2
toolchain="rustc rust-src rustfmt bindgen build-essential flex bison bc libelf-dev libssl-dev
	kmod cpio xz-utils python3 pahole"
root=$VV_CACHE/root-$suite-$(key_of -- "$series" "$toolchain")

# apt DIR ARG...: apt-get in the root.
apt() {
	local dir=$1
	shift
	in_root "$dir" -W -- env INITRD=No \
		apt-get -o Dpkg::Options::=--force-unsafe-io -o APT::Sandbox::User=root "$@"
}

# newest DIR: the newest kernel of the series that the suite has.
newest() {
	in_root "$1" -- apt-cache pkgnames "linux-modules-$series." |
		sed -n 's/^linux-modules-\([0-9.]*+deb[0-9]*-amd64\)$/\1/p' | sort -V | tail -1
}

# A mirror that was frozen has a release file whose date of validity is past; the
# signature is checked all the same.
fill_root() {
	local dir=$1 kernel
	sealed mmdebstrap --variant=minbase --include=ca-certificates \
		--aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$dir"
	mkdir -p "$dir"/{k,repo,build}
	rm -f "$dir/etc/resolv.conf"
	touch "$dir/etc/resolv.conf"
	apt "$dir" update
	kernel=$(newest "$dir")
	if [[ -z $kernel ]]; then
		in_root "$dir" -- apt-cache pkgnames linux-modules- | sort -V
		die "$suite has moved on from kernel $series; it offers the ones above"
	fi
	# shellcheck disable=SC2086 # one argument a package
	apt "$dir" install -y --no-install-recommends $toolchain \
		"linux-modules-$kernel" "linux-headers-$kernel" "linux-source-$series"
	echo "$kernel" >"$dir/etc/vv-kernel"
}

fill_tree() {
	in_root "$root" -r "$VV_TOP:/repo" -w "$1:/k" -- /repo/scripts/prepare-tree.sh /k/linux "$kernel"
}

# shellcheck disable=SC2016 # the inner shell expands it
compile() {
	in_root "$root" -c "$tree/linux:/k" -r "$VV_TOP:/repo" -w "$build:/build" -- bash -ec '
		make -C /repo KDIR=/k MO=/build modules
		modinfo -F vermagic /build/vhost_vsock_rs.ko'
}

need_root
if [[ ! -d $root ]]; then
	make_once "$root" step root-7.2 "making the toolchain root of $suite (about 4 min)" fill_root
fi
kernel=$(cat "$root/etc/vv-kernel")
tree=$VV_CACHE/tree-$(key_of "$VV_TOP/scripts/prepare-tree.sh" -- "$root" "$kernel")
if [[ ! -d $tree ]]; then
	make_once "$tree" step tree-7.2 "preparing the tree of $kernel (about 4 min)" fill_tree
fi
build=$VV_CACHE/module-$series
mkdir -p "$build"
step module-7.2 "building the module for $kernel" compile
echo "$build/vhost_vsock_rs.ko"
