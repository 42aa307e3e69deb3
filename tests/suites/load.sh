#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module comes and goes: 50 times, refused while a file or a socket needs it;
# its device node and aliases; the other module before, beside and after it.
# Seconds: 300
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

rounds=50
# No guest has this CID: a socket that tries it keeps its transport all the same.
absent_cid=77
guest_cid=42

# refused_unload: succeeds if the module cannot be unloaded because it is in use.
refused_unload() {
	local message
	message=$(vv_unload 2>&1) && { echo "the module was unloaded"; return 1; }
	[[ $message == *"in use"* ]] || { echo "$message"; return 1; }
}

unload() {
	vv_wait 5 vv_unload
}

# with_open_file COMMAND...: runs COMMAND while the device is open.
with_open_file() {
	local file status=0
	exec {file}<>/dev/vhost-vsock || return 1
	"$@" || status=1
	exec {file}>&-
	return "$status"
}

# with_socket CID PORT OUTCOME COMMAND...: runs COMMAND while a socket exists
# whose attempt to connect ended in OUTCOME.
with_socket() {
	local socket status=0 line want="pinned outcome=$3"
	exec {socket}< <(exec peer pin --cid "$1" --port "$2" --seconds 60)
	shift 3
	# The socket is there when the program has printed its line.
	read -r -t 20 -u "$socket" line
	[[ $line == "$want" ]] || { echo "$line"; status=1; }
	"$@" || status=1
	kill "$!"
	wait "$!"
	exec {socket}<&-
	return "$status"
}

load_and_unload() {
	local round
	for ((round = 1; round <= rounds; round++)); do
		vv_load &&
			with_open_file refused_unload &&
			with_socket "$absent_cid" 1 ENODEV refused_unload &&
			unload && continue
		echo "round $round failed"
		return 1
	done
}

device_number() {
	[[ $(stat -c '%F %t:%T' /dev/vhost-vsock) == "character special file a:f1" ]]
}

aliases() {
	diff <(modinfo -F alias "$module_file" | sort) <(printf '%s\n' char-major-10-241 devname:vhost-vsock)
}

# While sockets connect all the time the module goes and comes: a connect finds it
# or does not, and both are ENODEV here.
unload_under_connects() {
	local dialler status=0 out=$VV_OUT/dial count=0
	peer dial --cid "$absent_cid" --port 1 --attempts 1000000 --interval 0 --milliseconds $((10000 * VV_SLOW)) >"$out" &
	dialler=$!
	while kill -0 "$dialler" 2>/dev/null; do
		{ vv_load && unload; } || { status=1; break; }
		count=$((count + 1))
	done
	wait "$dialler"
	echo "$count rounds"
	cat "$out"
	((status == 0 && count >= 3)) && [[ $(peer_outcomes "$out") == ENODEV ]]
}

# The guest's end is gone and its file closed; the host's socket keeps the module.
guest_goes_first() {
	local status=0
	vv_references 2 || status=1
	l2_stop a
	vv_wait 10 vv_references 1 || status=1
	refused_unload && ((status == 0))
}

socket_outlives_guest() {
	vv_load && l2_start a "$guest_cid" && peer_serve_in a &&
		with_socket "$guest_cid" "$PEER_PORT" OK guest_goes_first &&
		unload && vv_no_sockets "$guest_cid"
}

c_module_works_after() {
	local status=0
	modprobe vhost_vsock && l2_start a "$guest_cid" && peer_serve_in a &&
		peer transfer --cid "$guest_cid" --port "$PEER_PORT" --seed "$VV_SEED" --type stream \
			--up "$MIB" --down "$MIB" || status=1
	l2_stop a
	vv_wait 5 rmmod vhost_vsock && ((status == 0))
}

refused_beside_c() {
	local message status=0 seen
	modprobe vhost_vsock || return 1
	seen=$(dmesg | wc -l)
	message=$(vv_load 2>&1) && status=1
	echo "$message"
	[[ $message == *"Device or resource busy"* ]] || status=1
	dmesg | tail -n "+$((seen + 1))" | grep 'vhost_vsock_rs: .*vhost_vsock' || status=1
	rmmod vhost_vsock && ((status == 0))
}

c_refused_beside_ours() {
	local message status=0
	vv_load || return 1
	message=$(modprobe vhost_vsock 2>&1) && status=1
	echo "$message"
	[[ $message == *"Device or resource busy"* ]] || status=1
	unload && ((status == 0))
}

case $VV_MODULE in
c) module_file=vhost_vsock ;;
rust) module_file=${VV_TOOLS%/bin}/module/vhost_vsock_rs.ko ;;
esac

ktap_plan 8
ktap_case "aliases for loading on demand" aliases
vv_load
ktap_case "the device node is 10:241" device_number
vv_unload
ktap_case "$rounds loads and unloads, refused with an open file and with an open socket" load_and_unload
ktap_case "unloads while sockets connect" unload_under_connects
ktap_case "a connected socket keeps the module when its guest is gone" socket_outlives_guest
ktap_case "the C module works after all that" c_module_works_after
case $VV_MODULE in
c)
	ktap_skip "refused with EBUSY and a log line beside the C module" "over the Rust module only"
	ktap_skip "the C module is refused with EBUSY beside this one" "over the Rust module only"
	;;
rust)
	ktap_case "refused with EBUSY and a log line beside the C module" refused_beside_c
	ktap_case "the C module is refused with EBUSY beside this one" c_refused_beside_ours
	;;
esac
ktap_end
