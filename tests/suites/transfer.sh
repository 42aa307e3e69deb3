#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# 64 MiB of seeded random data each way between the host and a real guest: streams
# and seqpackets, opened by either end, several connections at once, writes of 1 B
# to 1 MiB. Hashes are compared at both ends, and on seqpacket every message's
# length and end-of-record mark.
# Seconds: 240
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

cid=42
# Seqpackets of all connections may fill 16 MiB of windows, through which a digest has to
# go on a slow machine.
patience=$((60 * VV_SLOW))

# host_moves ARGS...: a transfer that the host opens.
host_moves() {
	peer transfer --cid "$cid" --port "$PEER_PORT" --seed "$VV_SEED" --timeout "$patience" "$@"
}

# guest_moves ARGS...: a transfer that the guest opens.
guest_moves() {
	l2_exec a 100 peer transfer --cid 2 --port "$PEER_PORT" --seed "$VV_SEED" --timeout "$patience" "$@"
}

nothing_is_left() {
	# The guest's QEMU has the one open file.
	vv_wait 10 vv_references 1 && vv_no_sockets "$cid"
}

ktap_plan 10
ktap_case "the module loads" vv_load
ktap_case "a guest boots" l2_start a "$cid"
peer_serve_in a
peer_serve_here
each=(--connections 4 --up $((16 * MIB)) --down $((16 * MIB)))
tiny=(--max-write 64 --connections 2 --up 20000 --down 20000)
ktap_case "host opens streams, 16 MiB each way" host_moves --type stream "${each[@]}"
ktap_case "guest opens streams, 16 MiB each way" guest_moves --type stream "${each[@]}"
ktap_case "host opens seqpackets, 16 MiB each way" host_moves --type seqpacket "${each[@]}"
ktap_case "guest opens seqpackets, 16 MiB each way" guest_moves --type seqpacket "${each[@]}"
ktap_case "tiny writes on streams, each way" host_moves --type stream "${tiny[@]}"
ktap_case "tiny messages on seqpackets, each way" host_moves --type seqpacket "${tiny[@]}"
ktap_case "no socket is left" nothing_is_left
l2_stop a
ktap_case "no reference is left without the guest" vv_wait 10 vv_references 0
ktap_end
