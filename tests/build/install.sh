#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/install.sh and modprobe.d, asked of the real depmod and modprobe over a
# copy of the stock kernel's vhost and vsock modules.
#
# usage: install.sh [MODULE.ko]. Without one, the stock C module under our name
# stands in: what matters here are its name, aliases and dependencies.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin

if ! ko=$(find /lib/modules/*/kernel/drivers/vhost -name 'vhost_vsock.ko*' 2>/dev/null | head -1) || [[ -z $ko ]]; then
	echo "Bail out! no stock vhost_vsock module under /lib/modules"
	exit 1
fi
stock=${ko%/kernel/drivers/vhost/*}
release=${stock##*/}
root=$scratch/root
lib=$root/lib/modules/$release

# stock_tree: the modules that matter, as the distribution installs them.
stock_tree() {
	rm -rf "$root"
	mkdir -p "$lib/kernel"/{drivers,net}
	cp -r "$stock/kernel/drivers/vhost" "$lib/kernel/drivers/"
	cp -r "$stock/kernel/net/vmw_vsock" "$lib/kernel/net/"
	cp "$stock"/modules.{order,builtin,builtin.modinfo} "$lib/"
	depmod -b "$root" "$release"
}

# The running test's module: the one given, or the stand-in with its name in place.
module=$scratch/vhost_vsock_rs.ko
if [[ -n ${1:-} ]]; then
	cp "$1" "$module"
else
	case $ko in
	*.xz) xz -dc "$ko" ;;
	*.zst) zstd -dc "$ko" ;;
	*) cat "$ko" ;;
	esac >"$scratch/c.ko"
	objcopy -O binary --only-section=.modinfo "$scratch/c.ko" "$scratch/modinfo"
	sed -i 's/name=vhost_vsock\x00/name=vhost_vsock_rs\x00/' "$scratch/modinfo"
	objcopy --update-section .modinfo="$scratch/modinfo" "$scratch/c.ko" "$module"
fi
built_for=$(modinfo -F vermagic "$module" | cut -d' ' -f1)

run() {
	DESTDIR=$root "$top/scripts/install.sh" "$@" >"$scratch/out" 2>&1
}

# probes REQUEST: the names of the modules that modprobe would insert for it.
probes() {
	modprobe -d "$root" -C "$root/etc/modprobe.d" -S "$release" -n -v "$1" 2>&1 |
		sed -nE 's|^insmod .*/([^/]*)\.ko(\.[a-z]+)? *$|\1|p' | tr '\n' ' ' | sed 's/ $//'
}

# loads DESC REQUEST YES NO: modprobe REQUEST ends with YES, and NO is not in it.
loads() {
	local got status=0
	got=$(probes "$2")
	[[ ${got##* } == "$3" ]] || status=1
	[[ " $got " != *" $4 "* ]] || status=1
	echo "modprobe $2: $got" >"$scratch/why"
	result $status "$1"
}

# all_requests WHEN YES NO: everything that may ask for the driver.
all_requests() {
	loads "$1: modprobe vhost_vsock" vhost_vsock "$2" "$3"
	loads "$1: modprobe vhost-vsock" vhost-vsock "$2" "$3"
	loads "$1: opening the node (char-major-10-241)" char-major-10-241 "$2" "$3"
	loads "$1: static node (devname:vhost-vsock)" devname:vhost-vsock "$2" "$3"
}

[[ $built_for == "$release" ]] || echo "# $module is for $built_for, the stock kernel is $release"
stock_tree
mkdir -p "$root/etc/modprobe.d"
all_requests "before" vhost_vsock vhost_vsock_rs

run install "$module"; cp "$scratch/out" "$scratch/why"; result $? "install"
cmp -s "$module" "$lib/updates/vhost_vsock_rs.ko"; result $? "the module is in updates/"
cmp -s "$top/modprobe.d/vhost-vsock-rs.conf" "$root/etc/modprobe.d/vhost-vsock-rs.conf"; result $? "the configuration is in modprobe.d"
all_requests "installed" vhost_vsock_rs vhost_vsock
loads "installed: modprobe vhost_vsock_rs" vhost_vsock_rs vhost_vsock_rs vhost_vsock
probes vhost_vsock_rs | tr ' ' '\n' >"$scratch/why"
grep -qx vhost "$scratch/why" && grep -qx vsock "$scratch/why" && [[ $(tail -1 "$scratch/why") == vhost_vsock_rs ]]
result $? "installed: vhost and vsock come before it"
modprobe -d "$root" -C /dev/null -S "$release" -n -v vhost_vsock 2>&1 | tail -1 | grep -q '/vhost_vsock\.ko'
result $? "installed: modprobe -C /dev/null vhost_vsock still gives the C driver"
[[ $(probes vhost_net) == *vhost_net ]]; result $? "installed: other vhost modules are not touched"
run install "$module"; result $? "install again"
all_requests "installed twice" vhost_vsock_rs vhost_vsock

mkdir -p "$root/lib/modules/9.9.9/updates"
cp "$module" "$root/lib/modules/9.9.9/updates/"
run uninstall "$release"; cp "$scratch/out" "$scratch/why"; result $? "uninstall for one kernel of two"
[[ -f $root/etc/modprobe.d/vhost-vsock-rs.conf ]]; result $? "the configuration stays for the other"
run uninstall 9.9.9; cp "$scratch/out" "$scratch/why"; result $? "uninstall for the other"
[[ ! -e $root/etc/modprobe.d/vhost-vsock-rs.conf && ! -e $lib/updates ]]; result $? "nothing of ours is left"
all_requests "uninstalled" vhost_vsock vhost_vsock_rs
run uninstall "$release"; result $? "uninstall again"

rm -rf "$root"
run install "$module" && [[ -f $root/lib/modules/$built_for/updates/vhost_vsock_rs.ko ]] &&
	[[ ! -e $root/lib/modules/$built_for/modules.dep ]] && grep -q 'depmod not run' "$scratch/out"
result $? "install into an empty DESTDIR, for a package"

cp "$scratch/vhost_vsock_rs.ko" "$scratch/empty.ko"; : >"$scratch/empty.ko"
! run install "$scratch/empty.ko"; result $? "a file that is no module is refused"
! run install "$scratch/none.ko" && grep -q 'build the module first' "$scratch/out"; result $? "no module: says to build it"
! run nonsense; result $? "an unknown command is refused"
finish
