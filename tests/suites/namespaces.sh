#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The cases of the kernel's tools/testing/selftests/vsock/vmtest.sh, by their names.
# That script cannot run here: it boots its guests with virtme-ng on the host's
# own, writable root, reaches them by ssh, and gives each 5 s to get as far as its
# pid file, which emulation does not. So the guests are this bed's: one in a global
# and one in a local namespace, with one CID, for all cases. Instead of all of
# vsock_test, which has a suite of its own, data moves over a stream and a seqpacket.
# Where a case says that something cannot be reached, the same dial from where
# it can be is part of the case.
# Seconds: 500
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

cid=1234
image=/tmp/l2.cpio

# in_ns NAMESPACE COMMAND...: init_ns is where this suite runs.
in_ns() {
	local namespace=$1
	shift
	case $namespace in
	init_ns) "$@" ;;
	*) ip netns exec "$namespace" "$@" ;;
	esac
}

# add_child PARENT NAME: a namespace whose parent is PARENT, and so has its mode.
add_child() {
	nsenter --net=/run/netns/"$1" ip netns add "$2"
}

add_namespaces() {
	local mode
	for mode in global local; do
		ip netns add "$mode-parent"
		in_ns "$mode-parent" sh -c "echo $mode >/proc/sys/net/vsock/child_ns_mode"
		add_child "$mode-parent" "${mode}0"
		add_child "$mode-parent" "${mode}1"
		# QEMU forwards the agent's port on lo.
		in_ns "${mode}0" ip link set lo up
		in_ns "${mode}1" ip link set lo up
	done
}

# serve_in NAMESPACE: starts peer's server there; its job is in $server.
serve_in() {
	local status=0
	peer_started "$VV_OUT/serve-$1" listening in_ns "$1" peer serve --port "$PEER_PORT" || status=1
	server=$started
	return "$status"
}

# moves_from NAMESPACE CID: data moves both ways, opened from NAMESPACE.
moves_from() {
	local kind
	for kind in stream seqpacket; do
		in_ns "$1" peer transfer --cid "$2" --port "$PEER_PORT" --seed "$VV_SEED" --type "$kind" \
			--connections 2 --up "$MIB" --down "$MIB" || return 1
	done
}

# guest_moves NAME CID: data moves both ways, opened by the guest.
guest_moves() {
	local kind
	for kind in stream seqpacket; do
		l2_exec "$1" 60 peer transfer --cid "$2" --port "$PEER_PORT" --seed "$VV_SEED" --type "$kind" \
			--connections 2 --up "$MIB" --down "$MIB" || return 1
	done
}

# dials OUTCOME COMMAND...: COMMAND, which ends in "peer dial", has this outcome.
dials() {
	local want=$1 line
	shift
	line=$("$@" 2>&1 | grep '^phase')
	echo "$line"
	[[ $line == *" outcome=$want "* ]]
}

dial_from() {
	in_ns "$1" peer dial --cid "$2" --port "$PEER_PORT"
}

# with_server NAMESPACE COMMAND...: runs COMMAND while peer serves in NAMESPACE.
with_server() {
	local server status=0
	serve_in "$1" || status=1
	shift
	"$@" || status=1
	pkill -KILL -P "$server" 2>/dev/null
	kill -KILL "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	return "$status"
}

vm_server_host_client() {
	moves_from global0 "$cid"
}

vm_client_host_server() {
	with_server global0 guest_moves global 2
}

vm_loopback() {
	l2_exec global 10 insmod /vsock_loopback.ko && guest_moves global 1
}

ns_host_vsock_ns_mode_ok() {
	local mode
	for mode in global local; do
		[[ $(in_ns "${mode}0" cat /proc/sys/net/vsock/ns_mode) == "$mode" ]] || return 1
	done
}

ns_host_vsock_child_ns_mode_ok() {
	local mode
	for mode in global local; do
		if echo "$mode" >/proc/sys/net/vsock/ns_mode; then
			echo "ns_mode is writable"
			return 1
		fi
		in_ns "${mode}0" sh -c "echo $mode >/proc/sys/net/vsock/child_ns_mode" || return 1
	done 2>/dev/null
}

# qemu_in NAMESPACE: starts a QEMU with the CID there that stays before its first
# instruction: the CID is taken when the device is made. Its pid is in $qemu.
qemu_in() {
	local pid=/tmp/qemu-$1.pid
	rm -f "$pid"
	in_ns "$1" qemu-system-x86_64 -accel kvm -cpu host -m 64 -S -nodefaults -no-user-config \
		-display none -device "vhost-vsock-pci,guest-cid=$same_cid" -pidfile "$pid" -daemonize &&
		qemu=$(cat "$pid")
}

# both_have_cid NAMESPACE NAMESPACE: QEMU takes the same CID in both. The first must
# be able to, whatever the second is.
both_have_cid() {
	local same_cid=4321 qemu first status=0
	qemu_in "$1" || { echo "the first QEMU failed"; return 2; }
	first=$qemu
	qemu_in "$2" || status=1
	((status)) || kill -KILL "$qemu"
	kill -KILL "$first"
	vv_wait 10 vv_references 2 || return 2
	return "$status"
}

ns_global_same_cid_fails() {
	local log status=0
	log=$(both_have_cid global0 global1 2>&1) || status=$?
	echo "$log"
	[[ $status == 1 && $log == *"Address already in use"* ]]
}

ns_local_same_cid_ok() {
	both_have_cid local0 local1
}

ns_global_local_same_cid_ok() {
	both_have_cid global0 local0
}

ns_local_global_same_cid_ok() {
	both_have_cid local0 global0
}

ns_diff_global_host_connect_to_global_vm_ok() {
	moves_from global1 "$cid"
}

# With the guest of global0 away nothing but the one in local0 has the CID.
ns_diff_global_host_connect_to_local_vm_fails() {
	dials OK dial_from local0 "$cid" && dials ENODEV dial_from global0 "$cid"
}

ns_diff_global_vm_connect_to_global_host_ok() {
	with_server global1 guest_moves global 2
}

guest_dials() {
	l2_exec "$1" 20 peer dial --cid 2 --port "$PEER_PORT"
}

ns_diff_global_vm_connect_to_local_host_fails() {
	with_server local0 dials OK guest_dials local &&
		with_server local0 dials ECONNRESET guest_dials global
}

ns_diff_local_host_connect_to_local_vm_fails() {
	dials OK dial_from local0 "$cid" && dials ENODEV dial_from local1 "$cid"
}

ns_diff_local_vm_connect_to_local_host_fails() {
	with_server local1 dials ECONNRESET guest_dials local &&
		with_server local0 dials OK guest_dials local
}

# loopback FROM TO OUTCOME: a server in TO is dialled on loopback from FROM.
loopback() {
	with_server "$2" dials "$3" dial_from "$1" 1
}

ns_diff_global_to_local_loopback_local_fails() {
	loopback global0 local0 ECONNRESET && loopback local0 local0 OK
}

ns_diff_local_to_global_loopback_fails() {
	loopback local0 global0 ECONNRESET && loopback global0 global0 OK
}

ns_diff_local_to_local_loopback_fails() {
	loopback local0 local1 ECONNRESET && loopback local1 local1 OK
}

ns_diff_global_to_global_loopback_ok() {
	loopback global0 global1 OK
}

ns_same_local_loopback_ok() {
	loopback local0 local0 OK
}

ns_same_local_host_connect_to_local_vm_ok() {
	moves_from local0 "$cid"
}

ns_same_local_vm_connect_to_local_host_ok() {
	with_server local0 guest_moves local 2
}

# survives_deletion NAMESPACE...: a connection from global1 to the guest in global0
# goes on while the namespaces lose their names, which is all that can be deleted
# while a process is in them.
survives_deletion() {
	local pinger name out=$VV_OUT/ping-deletion
	peer_started "$out" connected \
		in_ns global1 peer ping --cid "$cid" --port "$PEER_PORT" --count 12 --interval 250 || return 1
	pinger=$started
	for name; do
		ip netns del "$name" || return 1
	done
	grep -q '^ping' "$out" && { echo "the round trips ended before the deletion"; return 1; }
	wait "$pinger" && cat "$out"
}

# The guest goes on in its namespace without a name; this gives it back.
name_guests_namespace() {
	touch /run/netns/global0
	mount --bind "/proc/$(cat /run/l2/global/pid)/ns/net" /run/netns/global0
}

ns_delete_vm_ok() {
	survives_deletion global0 && name_guests_namespace && dials OK dial_from global0 "$cid"
}

ns_delete_host_ok() {
	survives_deletion global1 && add_child global-parent global1
}

ns_delete_both_ok() {
	survives_deletion global0 global1
}

# The guests' image and, not loaded, the driver that vm_loopback needs.
make_image() {
	local module
	module=$(modinfo -n vsock_loopback) || return 1
	mkdir -p /tmp/add && cp /bed/l2.cpio "$image" || return 1
	case $module in
	*.xz) xz -dc "$module" ;;
	*) cat "$module" ;;
	esac >/tmp/add/vsock_loopback.ko
	(cd /tmp/add && echo vsock_loopback.ko | cpio --quiet -o -H newc) >>"$image"
}

# The same CID in a global and in a local namespace.
start_guests() {
	make_image &&
		L2_NETNS=global0 l2_start global "$cid" -initrd "$image" &&
		L2_NETNS=local0 l2_start local "$cid" -initrd "$image" &&
		peer_serve_in global && peer_serve_in local
}

ktap_plan 25
vv_load
modprobe vsock_loopback
add_namespaces
ktap_case ns_host_vsock_ns_mode_ok ns_host_vsock_ns_mode_ok
start_guests || ktap_comment "the guests did not start"
for name in \
	ns_host_vsock_child_ns_mode_ok \
	vm_server_host_client vm_client_host_server vm_loopback \
	ns_global_same_cid_fails ns_local_same_cid_ok ns_global_local_same_cid_ok ns_local_global_same_cid_ok \
	ns_diff_global_host_connect_to_global_vm_ok \
	ns_diff_global_vm_connect_to_global_host_ok ns_diff_global_vm_connect_to_local_host_fails \
	ns_diff_local_host_connect_to_local_vm_fails ns_diff_local_vm_connect_to_local_host_fails \
	ns_diff_global_to_local_loopback_local_fails ns_diff_local_to_global_loopback_fails \
	ns_diff_local_to_local_loopback_fails ns_diff_global_to_global_loopback_ok ns_same_local_loopback_ok \
	ns_same_local_host_connect_to_local_vm_ok ns_same_local_vm_connect_to_local_host_ok \
	ns_delete_vm_ok ns_delete_host_ok ns_delete_both_ok; do
	ktap_case "$name" "$name"
done
l2_stop global
name=ns_diff_global_host_connect_to_local_vm_fails
add_child global-parent global0
ktap_case "$name" "$name"
ktap_end
