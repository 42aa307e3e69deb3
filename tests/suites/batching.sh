#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Host to guest at saturation, in writes of 256 bytes to a real guest: how many
# packets a used-index update carries and how often the guest is signalled, by the
# module's counters; and that data is right with every knob off.
# Modules: rust
# Seconds: 240
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"
. "$(dirname "$0")/lib/parameters.sh"

cid=42
parameters=/sys/module/vhost_vsock_rs/parameters
declare -A count

# set_parameters NAME=VALUE...: the others are at their defaults.
set_parameters() {
	local pair
	for pair in $(params_values 0) "$@"; do
		echo "${pair#*=}" >"$parameters/${pair%=*}"
	done
}

# settled_stats: the counters of the guest, once nothing moves: a pass adds to them
# one after the other when it ends, so two of them read together may disagree by it.
settled_stats() {
	local stats=/sys/kernel/debug/vhost_vsock_rs/$cid/stats last now
	now=$(<"$stats")
	for _ in {1..100}; do
		last=$now
		sleep 0.1
		now=$(<"$stats")
		[[ $now != "$last" ]] || break
	done
	echo "$now"
}

# counted COMMAND...: runs COMMAND; what each counter of the guest grew by is in
# the array count.
counted() {
	local name value
	local -A before
	while read -r name value; do before[$name]=$value; done < <(settled_stats)
	"$@" || return 1
	while read -r name value; do count[$name]=$((value - ${before[$name]})); done < <(settled_stats)
	for name in {rx,tx}_{packets,buffers,passes,publishes,signals}; do
		printf '%s=%s ' "$name" "${count[$name]}"
	done
	echo
}

# to_guest BYTES: small writes by the host.
to_guest() {
	peer flood --cid "$cid" --port "$PEER_PORT" --size 256 --bytes "$1"
}

# from_guest BYTES: small writes by the guest.
from_guest() {
	l2_exec a 60 peer flood --cid 2 --port "$PEER_PORT" --size 256 --bytes "$1"
}

# signals_bounded DIRECTION: no pass signals more than once.
signals_bounded() {
	((count[$1_passes] > 0 && count[$1_signals] <= count[$1_passes]))
}

# per_publication DIRECTION: the packets that one publication carries.
per_publication() {
	echo "$1: $((count[$1_packets] / count[$1_publishes])) packets a publication"
}

batched() {
	set_parameters "$@"
	counted to_guest $((4 * MIB)) && per_publication rx && signals_bounded rx &&
		((count[rx_packets] > 8 * count[rx_publishes]))
}

unbatched() {
	set_parameters rx_batch=N "$@"
	counted to_guest $((2 * MIB)) && per_publication rx && signals_bounded rx &&
		((count[rx_publishes] > 0 && count[rx_buffers] == count[rx_publishes]))
}

tx_batched() {
	set_parameters
	counted from_guest "$MIB" && per_publication tx && signals_bounded tx &&
		((count[tx_publishes] < count[tx_buffers]))
}

tx_unbatched() {
	set_parameters tx_batch=N
	counted from_guest "$MIB" && signals_bounded tx &&
		((count[tx_publishes] > 0 && count[tx_buffers] == count[tx_publishes]))
}

# data_with NAME=VALUE...: data is right with these parameters.
data_with() {
	local kind
	set_parameters "$@"
	for kind in stream seqpacket; do
		peer transfer --cid "$cid" --port "$PEER_PORT" --seed "$VV_SEED" --type "$kind" --connections 2 \
			--up "$MIB" --down "$MIB" --max-write 65536 || return 1
	done
}

ktap_plan 11
vv_load
ktap_case "a guest boots" l2_start a "$cid"
peer_serve_in a
peer_serve_here
ktap_case "batched and coalesced: above 8 packets a publication, at most a signal a pass" batched
ktap_case "batched alone: above 8 packets a publication, at most a signal a pass" batched rx_coalesce=N
ktap_case "rx_batch=N: exactly one buffer a publication" unbatched rx_coalesce=N
ktap_case "rx_batch=N, coalesced: exactly one buffer a publication" unbatched
ktap_case "guest to host: batched, at most a signal a pass" tx_batched
ktap_case "tx_batch=N: exactly one buffer a publication" tx_unbatched
for off in rx_batch rx_coalesce tx_coalesce; do
	ktap_case "data is right with $off=N" data_with "$off=N"
done
ktap_case "data is right with all off" data_with rx_batch=N rx_coalesce=N tx_batch=N tx_coalesce=N
ktap_end
