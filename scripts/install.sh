#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# install.sh install MODULE.ko   installs it for the kernel it was built for, with
#                                the modprobe configuration that puts it in the
#                                place of vhost_vsock
# install.sh uninstall [RELEASE] takes that back (default: the running kernel)
#
# DESTDIR is put in front of all paths. Nothing is loaded or unloaded. Where the
# kernel takes signed modules only (Secure Boot), sign MODULE.ko first.
set -euo pipefail

name=vhost_vsock_rs
top=$(cd "$(dirname "$0")/.." && pwd)
root=${DESTDIR:-}
conf=$root/etc/modprobe.d/vhost-vsock-rs.conf

die() {
	echo "install.sh: $*" >&2
	exit 1
}

# index RELEASE: tells modprobe. A DESTDIR without that kernel is a package being
# made, whose own scripts run depmod where it is installed.
index() {
	if [[ ! -f $root/lib/modules/$1/modules.order ]]; then
		echo "no kernel $1 in ${root:-/}: depmod not run"
		return
	fi
	depmod -b "${root:-/}" "$1"
}

install_module() {
	local file=$1 release
	[[ -f $file ]] || die "$file not found: build the module first"
	[[ $(modinfo -F name "$file") == "$name" ]] || die "$file is not $name"
	release=$(modinfo -F vermagic "$file" | cut -d' ' -f1)
	[[ -n $release ]] || die "$file names no kernel"
	install -D -m 644 "$file" "$root/lib/modules/$release/updates/$name.ko"
	install -D -m 644 "$top/modprobe.d/vhost-vsock-rs.conf" "$conf"
	index "$release"
	echo "installed $root/lib/modules/$release/updates/$name.ko and $conf"
	if [[ -z $root && -d /sys/module/vhost_vsock ]]; then
		echo "The C driver is loaded and stays until: modprobe -C /dev/null -r vhost_vsock && modprobe $name"
	fi
}

uninstall_module() {
	local release=$1 left
	rm -f "$root/lib/modules/$release/updates/$name.ko"
	rmdir --ignore-fail-on-non-empty "$root/lib/modules/$release/updates" 2>/dev/null || true
	index "$release"
	# Another kernel may still have the module and need the configuration.
	left=$(compgen -G "$root/lib/modules/*/updates/$name.ko" || true)
	if [[ -n $left ]]; then
		echo "removed for $release; $conf stays for $left"
	else
		rm -f "$conf"
		echo "removed for $release, with $conf"
	fi
}

case ${1:-} in
install) install_module "${2:?usage: install.sh install MODULE.ko}" ;;
uninstall) uninstall_module "${2:-$(uname -r)}" ;;
*) die "usage: install.sh install MODULE.ko | uninstall [RELEASE]" ;;
esac
