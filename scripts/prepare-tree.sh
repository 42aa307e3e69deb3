#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# prepare-tree.sh DIR [RELEASE]: makes DIR a kernel tree in which Rust modules for
# Debian's kernel RELEASE (default: the running one) can be built, from its
# linux-source, linux-headers and linux-image packages. An existing DIR is left
# alone. Takes about 2 minutes and 2.5 GB.
set -euo pipefail

dir=${1:?usage: prepare-tree.sh DIR [RELEASE]}
release=${2:-$(uname -r)}
series=$(cut -d. -f1,2 <<<"${release%%[!0-9.]*}")
headers=/usr/src/linux-headers-$release
archive=/usr/src/linux-source-$series.tar.xz

# first FILE...: the first that exists.
first() {
	local file
	for file; do
		[[ ! -f $file ]] || { echo "$file"; return; }
	done
	echo "prepare-tree.sh: none of these exists: $*" >&2
	return 1
}

die() {
	echo "prepare-tree.sh: $*" >&2
	exit 1
}

[[ ! -e $dir ]] || die "$dir exists"
[[ -f $archive ]] || die "$archive not found: apt install linux-source-$series"
[[ -d $headers ]] || die "$headers not found: apt install linux-headers-$release"
config=$(first "/boot/config-$release" "/lib/modules/$release/config" "$headers/.config")
compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$config")
command -v "$compiler" >/dev/null || die "$compiler not found: apt install ${compiler##*-gnu-}"

part=$dir.part
rm -rf "$part"
mkdir -p "$part"
trap 'rm -rf "$part"' EXIT

echo "unpacking $archive"
tar -C "$part" --strip-components=1 -xf "$archive"
version=$(make -s -C "$part" kernelversion)
[[ $release == "$version"+* ]] || die "$archive is $version, not the source of $release"
cp "$config" "$part/.config"
cp "$headers/Module.symvers" "$part/"
# Its type information is what modules' own is based on.
[[ ! -f $headers/vmlinux ]] || cp "$headers/vmlinux" "$part/"

echo "preparing for $release with $compiler"
make -C "$part" -j"$(nproc)" CC="$compiler" KERNELRELEASE="$release" olddefconfig prepare modules_prepare
# kbuild writes where it ran into some generated files; a move is noticed and harmless.
mv -T "$part" "$dir"
trap - EXIT
echo "$dir is ready: make KDIR=$dir"
