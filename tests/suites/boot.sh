#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# What a host program sees while its guest comes, restarts and goes.
# Seconds: 300
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

cid=42

# in_order FILE OUTCOME...: the dial's outcomes are these, in this order, each left
# out or not, and the last is OK.
in_order() {
	local outcome got file=$1
	shift
	cat "$file"
	mapfile -t got < <(peer_outcomes "$file")
	[[ ${got[-1]} == OK ]] || return 1
	for outcome; do
		[[ ${got[0]} != "$outcome" ]] || got=("${got[@]:1}")
	done
	((${#got[@]} == 0))
}

# dial_until_ok FILE: connects every 10 ms, in the background.
dial_until_ok() {
	peer dial --cid "$cid" --port "$PEER_PORT" --attempts 1000000 --interval 10 --milliseconds $((90000 * VV_SLOW)) >"$1" 2>&1 &
	dialler=$!
}

# There is no guest, then one that has no driver yet, then one without a listener.
dial_from_start() {
	local dialler out=$VV_OUT/dial-start
	dial_until_ok "$out"
	{ l2_start a "$cid" -action reboot=reset && peer_serve_in a; } || kill "$dialler"
	wait "$dialler"
	in_order "$out" ENODEV EHOSTUNREACH ECONNRESET OK
	# Without these the loop has not seen the guest come.
	grep -q outcome=ENODEV "$out" && grep -q outcome=EHOSTUNREACH "$out"
}

boot_id() {
	l2_exec a 10 cat /proc/sys/kernel/random/boot_id 2>/dev/null
}

# booted_anew ID: the guest answers and its boot is another than ID.
booted_anew() {
	local id
	id=$(boot_id) && [[ -n $id && $id != "$1" ]]
}

# The guest's CID stays; its driver goes and comes.
guest_reboots() {
	local dialler before out=$VV_OUT/dial-reboot
	before=$(boot_id)
	l2_exec a 5 sh -c 'reboot -f &'
	vv_wait 30 driver_is_gone || { echo "the guest did not go down"; return 1; }
	dial_until_ok "$out"
	{ vv_wait 90 booted_anew "$before" && peer_serve_in a; } || kill "$dialler"
	wait "$dialler"
	in_order "$out" EHOSTUNREACH ECONNRESET OK
}

driver_is_gone() {
	[[ $(peer dial --cid "$cid" --port 1 2>/dev/null) == *outcome=EHOSTUNREACH* ]]
}

moves_data() {
	peer transfer --cid "$cid" --port "$PEER_PORT" --seed "$VV_SEED" --type stream --up "$MIB" --down "$MIB"
}

# hold_eight FILE: eight connections, held in the background by $holder.
hold_eight() {
	local status=0
	peer_started "$1" holding \
		peer hold --cid "$cid" --port "$PEER_PORT" --connections 8 --seconds 60 || status=1
	holder=$started
	return "$status"
}

# Eight connections are open, eight others have been closed here but not yet by the
# guest, when the process that was the guest is killed.
# all_stopped PID: no thread of the process runs; the driver's worker does not count.
all_stopped() {
	local task
	for task in "/proc/$1/task"/*; do
		[[ $(<"$task/comm") == vhost-* ]] || grep -q '^State:.T' "$task/status" || return 1
	done
}

guest_is_killed() {
	local holder kept out=$VV_OUT/hold-killed
	hold_eight "$out" || return 1
	kept=$holder
	hold_eight "$VV_OUT/hold-closed" || return 1
	# A stopped guest answers nothing, once all its threads have stopped.
	kill -STOP "$(cat /run/l2/a/pid)"
	vv_wait 10 all_stopped "$(cat /run/l2/a/pid)" || return 1
	kill "$holder"
	wait "$holder"
	[[ $(vv_sockets "$cid" | wc -l) == 16 ]] || { vv_sockets; return 1; }
	l2_stop a
	wait "$kept"
	cat "$out"
	[[ $(grep -c '^ended .*how=ECONNRESET$' "$out") == 8 ]] && grep -qx 'held open=0' "$out"
}

nothing_is_left() {
	vv_wait 10 vv_no_sockets "$cid" && vv_wait 10 vv_references 0 && return
	vv_sockets
	return 1
}

gone_is_enodev() {
	[[ $(peer dial --cid "$cid" --port 1 2>/dev/null) == *outcome=ENODEV* ]]
}

ktap_plan 7
ktap_case "the module loads" vv_load
ktap_case "ENODEV, EHOSTUNREACH, ECONNRESET, then a connection, as the guest boots" dial_from_start
ktap_case "EHOSTUNREACH, ECONNRESET, then a connection, as the guest reboots" guest_reboots
ktap_case "data moves after the reboot" moves_data
ktap_case "killing the guest's process resets all open connections" guest_is_killed
ktap_case "ENODEV when the guest is gone" gone_is_enodev
ktap_case "no socket and no reference is left, closed before or reset" nothing_is_left
ktap_end
