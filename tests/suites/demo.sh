#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The demonstration (make demo): seeded data between host and guest, each way, over
# our module and over the C one; the rows of its table go to $VV_OUT/rows. What the C
# one does not carry is shown as failed there, and is no failure of the demonstration.
# Seconds: 300
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

total=/sys/kernel/debug/vhost_vsock_rs/total

# counter NAME: our module's counter of that name; 0 without our module.
counter() {
	[[ -e $total ]] || { echo 0; return; }
	awk -v name="$1" '$1 == name { print $2 }' "$total"
}

# counters SIDE: packets, publications and signals of rx or tx.
counters() {
	echo "$(counter "$1_packets") $(counter "$1_publishes") $(counter "$1_signals")"
}

# row DIRECTION TYPE WRITES BYTES ARGS...: one transfer; checked by peer at both ends.
row() {
	local direction=$1 type=$2 writes=$3 bytes=$4 side=rx way=up before after log=$VV_OUT/$VV_MODULE-$1-$2-$3
	local packets publishes signals
	shift 4
	[[ $direction == to-guest ]] || { side=tx; way=down; }
	read -ra before <<<"$(counters "$side")"
	peer transfer --cid 42 --port "$PEER_PORT" --type "$type" --connections 4 --seed "$VV_SEED" \
		"--$way" "$bytes" "$@" >"$log" || return 1
	cat "$log"
	read -ra after <<<"$(counters "$side")"
	packets=$((after[0] - before[0]))
	publishes=$((after[1] - before[1]))
	signals=$((after[2] - before[2]))
	echo "$VV_MODULE $direction $type $writes $bytes $(peer_value "$log" transfer gbit_per_s)" \
		"$packets $publishes $signals" >>"$VV_OUT/rows"
}

# transfer DIRECTION TYPE WRITES BYTES ARGS...: a row, or a row that tells of a failure of the C
# module. What the guest has to say to one is shown.
transfer() {
	row "$@" && return 0
	l2_exec a 10 cat /tmp/serve
	[[ $VV_MODULE == c ]] || return 1
	echo "c $1 $2 $3 $4 failed 0 0 0" >>"$VV_OUT/rows"
}

# warm_up: what is run for the first time takes an emulator longer than it takes later.
warm_up() {
	local type
	for type in stream seqpacket; do
		peer transfer --cid 42 --port "$PEER_PORT" --type "$type" --seed "$VV_SEED" \
			--up $((2 * MIB)) --down $((2 * MIB)) || return 1
	done
}

mib=$((16 * MIB))
ktap_plan 14
for VV_MODULE in rust c; do
	ktap_case "$VV_MODULE: the module loads" vv_load
	ktap_case "$VV_MODULE: a guest boots and serves" eval 'l2_start a 42 && peer_serve_in a && warm_up'
	for type in stream seqpacket; do
		ktap_case "$VV_MODULE: $type to the guest" transfer to-guest $type mixed "$mib"
		ktap_case "$VV_MODULE: $type to the host" transfer to-host $type mixed "$mib"
	done
	small=(--min-write 256 --max-write 256)
	ktap_case "$VV_MODULE: small writes to the guest" transfer to-guest stream 256B $((mib / 4)) "${small[@]}"
	l2_stop a
	vv_wait 10 vv_unload
done
ktap_end
