#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A guest moves four times (--long: ten) between QEMU processes of this host while
# data flows, by "migrate" over a unix socket. A CID is taken by the QEMU that has the device, not
# by the guest: source and destination are there at once, so they have one each, and
# the guest learns its new CID from the transport reset that QEMU sends it.
# Not run by default: it takes minutes, and a guest that the emulator loses in the
# middle costs all of it.
# Default: no
# Seconds: 1000
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

# Each takes a minute and more under emulation.
rounds=4
[[ " $VV_ARGS " != *" --long "* ]] || rounds=10
collect_port=2000
export L2_MEMORY=176

cid_of() {
	echo $((42 + $1 % 2))
}

# monitor NAME COMMAND...: QEMU's answer to a line of its monitor.
monitor() {
	local name=$1
	shift
	printf '%s\n' "$*" | socat -t 5 - "UNIX-CONNECT:/tmp/monitor-$name"
}

monitor_of() {
	echo "-monitor unix:/tmp/monitor-$1,server=on,wait=off"
}

# start_source, start_destination NUMBER: the QEMU of that number.
start_source() {
	# shellcheck disable=SC2046 # two words
	l2_start "m$1" "$(cid_of "$1")" $(monitor_of "m$1")
}

start_destination() {
	# shellcheck disable=SC2046 # two words
	l2_launch "m$1" "$(cid_of "$1")" $(monitor_of "m$1") -incoming "unix:/tmp/migrate-m$1" &&
		vv_wait 30 test -S "/tmp/migrate-m$1"
}

# migrated NAME: the migration out of NAME is over.
migrated() {
	local state
	state=$(monitor "$1" info migrate | tr -d '\r')
	[[ $state == *Status:*completed* ]]
}

# before_switch FROM: connections of all sorts, with data on them.
before_switch() {
	local name=m$1 cid
	cid=$(cid_of "$1")
	l2_exec "$name" 10 sh -c "rm -f /tmp/collect /tmp/hold
		peer collect --port $collect_port --file /tmp/data >/tmp/collect 2>&1 &
		peer hold --cid 2 --port $PEER_PORT --connections 2 --seconds 600 >/tmp/hold 2>&1 &" &&
		vv_wait 10 l2_exec "$name" 10 grep -q listening /tmp/collect &&
		vv_wait 10 l2_exec "$name" 10 grep -q holding /tmp/hold || return 1
	peer_started "$VV_OUT/hold-$1" holding \
		peer hold --cid "$cid" --port "$PEER_PORT" --connections 2 --seconds 600 || return 1
	holder=$started
	peer_started "$VV_OUT/pour-$1" pouring \
		peer pour --cid "$cid" --port "$collect_port" --seed "$VV_SEED" --interval 20 || return 1
	pourer=$started
}

# held_reset: standard input, of two connections held, says that both were reset.
held_reset() {
	local held
	held=$(cat)
	echo "$held"
	[[ $(grep -c '^ended .*how=ECONNRESET$' <<<"$held") == 2 ]] && grep -qx 'held open=0' <<<"$held"
}

# old_ones_end FROM TO: all connections to the old CID are reset, at both ends. A
# write may be told before that the device does not run, or is gone.
old_ones_end() {
	wait "$holder" "$pourer"
	held_reset <"$VV_OUT/hold-$1" || return 1
	cat "$VV_OUT/pour-$1"
	grep -qx 'poured end=\(ECONNRESET\|EPIPE\|EHOSTUNREACH\|ENODEV\)' "$VV_OUT/pour-$1" || return 1
	vv_wait 10 l2_exec "m$2" 10 grep -q '^held' /tmp/hold
	l2_exec "m$2" 10 cat /tmp/hold | held_reset
}

# memory_is_right NUMBER: what the guest received before it moved is what was sent.
memory_is_right() {
	local bytes sum
	vv_wait 10 l2_exec "m$1" 10 grep -q collected /tmp/collect || return 1
	bytes=$(l2_exec "m$1" 10 cat /tmp/collect | sed -n 's/.*bytes=\([0-9]*\).*/\1/p')
	sum=$(l2_exec "m$1" 60 sha256sum /tmp/data)
	echo "$bytes bytes received before the switch"
	((bytes > 0)) && [[ ${sum%% *} == "$(peer digest --seed "$VV_SEED" --bytes "$bytes")" ]]
}

# migrate FROM TO: by one more QEMU; none after one that failed.
migrate() {
	[[ $1 == "$current" ]] || { echo "the guest is not in QEMU $1"; return 1; }
	start_destination "$2" && before_switch "$1" || return 1
	# Seconds of downtime are cheaper here than one more look at memory that changes.
	monitor "m$1" migrate_set_parameter downtime-limit 2000 >/dev/null
	monitor "m$1" migrate -d "unix:/tmp/migrate-m$2" >/dev/null
	vv_wait 120 migrated "m$1" || { monitor "m$1" info migrate; return 1; }
	current=$2
	# New connections work at once, while the source's process is still there.
	peer transfer --cid "$(cid_of "$2")" --port "$PEER_PORT" --wait 20 --seed "$VV_SEED" --type stream \
		--up "$MIB" --down "$MIB" || return 1
	l2_stop "m$1"
	old_ones_end "$1" "$2" && memory_is_right "$2"
}

# A destination does not run until it has its guest, a source no longer.
touch "$L2_UNWATCHED"
ktap_plan $((rounds + 3))
current=0
vv_load
ktap_case "a guest boots" start_source 0
peer_serve_in m0
peer_serve_here
for ((round = 1; round <= rounds; round++)); do
	ktap_case "migration $round under traffic" migrate $((round - 1)) "$round"
done
ktap_case "the guest lives" l2_alive "m$rounds"
l2_stop "m$current"
ktap_case "no socket is left" vv_wait 10 vv_no_sockets "$(cid_of "$rounds")"
ktap_end
