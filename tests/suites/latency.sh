#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Round trips on one socket while another one of the same guest writes 64 bytes at
# a time, as fast as it can. The figures are for comparison; what is asserted is
# that both sockets get on.
# Seconds: 180
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

cid=42

# round_trips ARGS...: prints what they took; all that are begun must end.
round_trips() {
	peer ping --cid "$cid" --port "$PEER_PORT" "$@"
}

# under_load COMMAND...: round trips while COMMAND floods; it must not end before.
under_load() {
	local flood status=0 out=$VV_OUT/flood
	"$@" >"$out" 2>&1 &
	flood=$!
	sleep 1
	round_trips --count 1000 --milliseconds 6000 || status=1
	kill -0 "$flood" 2>/dev/null || { echo "the flood ended before the round trips"; status=1; }
	wait "$flood" || status=1
	cat "$out"
	return "$status"
}

host_floods() {
	peer flood --cid "$cid" --port "$PEER_PORT" --size 64 --seconds 15
}

guest_floods() {
	l2_exec a 60 peer flood --cid 2 --port "$PEER_PORT" --size 64 --seconds 15
}

ktap_plan 4
vv_load
ktap_case "a guest boots" l2_start a "$cid"
peer_serve_in a
peer_serve_here
ktap_case "round trips on an idle guest" round_trips --count 300
ktap_case "round trips while the host floods another socket" under_load host_floods
ktap_case "round trips while the guest floods another socket" under_load guest_floods
ktap_end
