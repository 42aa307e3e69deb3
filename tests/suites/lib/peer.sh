# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by the suites that move data with peer, after lib.sh.

# Port of peer's server; its seqpacket sockets take the next one.
PEER_PORT=1000
# shellcheck disable=SC2034 # used by the suites
MIB=$((1 << 20))

# peer_serve_in NAME: starts peer's server in the guest.
peer_serve_in() {
	l2_exec "$1" 10 sh -c "peer serve --port $PEER_PORT >/tmp/serve 2>&1 &" &&
		vv_wait 20 l2_exec "$1" 10 grep -q listening /tmp/serve
}

# peer_started FILE WORD COMMAND...: starts COMMAND, whose job is in $started, with its
# output in FILE, and waits until WORD is in it. What an earlier command left in FILE is
# removed here: the job itself might do it too late.
peer_started() {
	local file=$1 word=$2
	shift 2
	rm -f "$file"
	"$@" >"$file" 2>&1 &
	# shellcheck disable=SC2034 # used by the suites
	started=$!
	vv_wait 20 grep -qs "$word" "$file"
}

# peer_serve_here: starts peer's server on the host, in this network namespace.
peer_serve_here() {
	peer_started "$VV_OUT/serve" listening peer serve --port "$PEER_PORT"
}

# peer_value FILE LINE NAME: the value of NAME=value in FILE's last line that
# begins with LINE.
peer_value() {
	sed -n "s/^$2 .*\b$3=\([^ ]*\).*/\1/p" "$1" | tail -n 1
}

# peer_outcomes FILE: the different outcomes of a dial, in order, one a line.
peer_outcomes() {
	sed -n 's/^phase outcome=\([A-Z]*\) .*/\1/p' "$1" | uniq
}

vv_module_name() {
	case $VV_MODULE in
	c) echo vhost_vsock ;;
	rust) echo vhost_vsock_rs ;;
	esac
}

# vv_references N: succeeds if N references are held on the module: one for each
# open file and one for each socket that has it as transport.
vv_references() {
	[[ $(cat "/sys/module/$(vv_module_name)/refcnt") == "$1" ]]
}

# vv_sockets [CID]: the host's vsock sockets in this namespace (whose peer is CID).
vv_sockets() {
	ss -H --vsock --all --numeric | awk -v cid="${1:-}" 'cid == "" || $6 ~ "^" cid ":"'
}

# vv_no_sockets CID: succeeds if no socket here has CID as peer.
vv_no_sockets() {
	[[ -z $(vv_sockets "$1") ]]
}
