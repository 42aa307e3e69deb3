#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module while allocations fail, by the kernel's fault injection: what a guest
# sent arrives whole all the same, and what had to give up leaves nothing behind.
# For a debug kernel (scripts/bed/debug-test).
# Modules: rust
# Seconds: 300
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/peer.sh"

cid=42
# More than ever fail, so that what is left of them tells how many did.
times=100000000

# symbol_range PATTERN: the addresses from the module's first symbol that matches
# PATTERN to the one that follows the last.
symbol_range() {
	awk -v pattern="$1" '
		$4 != "[vhost_vsock_rs]" || $2 !~ /[tT]/ { next }
		{ print $1, $3 ~ pattern }' /proc/kallsyms | sort -u |
		awk '$2 && !from { from = $1 } from && !$2 && wanted { print from, $1; exit } { wanted = $2; last = $1 }
			END { if (from && wanted) print from, substr(last, 1, 13) "fff" }'
}

# fail WHAT PERCENT SYMBOLS: allocations of the kind WHAT (failslab, fail_page_alloc)
# fail so often, if a function of the module whose name matches SYMBOLS asked for
# them, itself or through others.
fail() {
	local attribute=/sys/kernel/debug/$1 from to
	read -r from to < <(symbol_range "$3")
	[[ -n $to ]] || { echo "the module has no symbol $3"; return 1; }
	echo "0x$from" >"$attribute/require-start"
	echo "0x$to" >"$attribute/require-end"
	echo 32 >"$attribute/stacktrace-depth"
	fail_any "$1" "$2" N
}

# fail_any WHAT PERCENT TASKS: with TASKS Y only in tasks that were told to fail.
fail_any() {
	local attribute=/sys/kernel/debug/$1
	echo N >"$attribute/ignore-gfp-wait"
	[[ $1 != fail_page_alloc ]] || echo 0 >"$attribute/min-order"
	echo 0 >"$attribute/verbose"
	echo "$3" >"$attribute/task-filter"
	echo "$times" >"$attribute/times"
	echo "$2" >"$attribute/probability"
}

# failed WHAT: ends the failures, and succeeds if there were any.
failed() {
	local attribute=/sys/kernel/debug/$1 count
	echo 0 >"$attribute/probability"
	echo 0 >"$attribute/require-start"
	echo 0xffffffffffffffff >"$attribute/require-end"
	count=$((times - $(cat "$attribute/times")))
	echo "$count allocations failed"
	((count > 0))
}

# guest_sends WHAT PERCENT TYPE: checked data both ways on connections of the guest,
# while the worker gets no memory for packets now and then.
guest_sends() {
	local status=0
	fail "$1" "$2" '^rs_virtio_vsock_alloc_skb$' || return 1
	l2_exec a 100 peer transfer --cid 2 --port "$PEER_PORT" --seed "$VV_SEED" --type "$3" \
		--connections 4 --up $((2 * MIB)) --down $((2 * MIB)) || status=1
	failed "$1" && ((status == 0))
}

retries() {
	sed -n 's/^tx_retries //p' /sys/kernel/debug/vhost_vsock_rs/total
}

# guests_come_and_go WHAT PERCENT: in any function of the module, and below.
guests_come_and_go() {
	fail "$1" "$2" . || return 1
	ring --driver rust --seed "$VV_SEED" --only start/ --only connect/ --only tx/ >"$VV_OUT/ring-$1" 2>&1
	failed "$1"
}

# runs_or_ended PID PROGRAM
runs_or_ended() {
	[[ ! -e /proc/$1 || $(readlink "/proc/$1/exe") == "$2" ]]
}

# sender_fails WHAT PERCENT: in any function, for the task that uses the socket. All of
# its files are in memory, and it is told when it runs: where a walk through the host's
# 9p root fails, the root is of no use to anybody afterwards.
sender_fails() {
	local jail=/tmp/jail log=/tmp/sender-$1 pid
	mkdir -p "$jail" && cp "$(command -v peer)" "$jail/peer"
	fail_any "$1" "$2" Y
	for _ in {1..20}; do
		chroot "$jail" /peer transfer --cid "$cid" --port "$PEER_PORT" --seed "$VV_SEED" --type stream \
			--timeout 5 --up 500000 --down 500000 >>"$log" 2>&1 &
		pid=$!
		vv_wait 5 runs_or_ended "$pid" "$jail/peer"
		echo 1 >"/proc/$pid/make-it-fail"
		wait "$pid"
	done 2>/dev/null
	failed "$1" || return 1
	cp "$log" "$VV_OUT"
}

all_is_well() {
	peer transfer --cid "$cid" --port "$PEER_PORT" --seed "$VV_SEED" --type stream \
		--connections 4 --up $((2 * MIB)) --down $((2 * MIB)) &&
		vv_wait 20 vv_references 1 && vv_no_sockets "$cid"
}

if [[ ! -d /sys/kernel/debug/failslab || ! -e /proc/self/make-it-fail ]]; then
	ktap_plan 1
	ktap_skip "what a guest sends arrives while allocations fail" "this kernel has no fault injection"
	ktap_end
fi
ktap_plan 13
ktap_case "the module loads" vv_load
ktap_case "guests come and go while slab allocations fail" guests_come_and_go failslab 10
ktap_case "guests come and go while page allocations fail" guests_come_and_go fail_page_alloc 10
ktap_case "a guest boots" l2_start a "$cid"
peer_serve_in a
peer_serve_here
before=$(retries)
for what in failslab fail_page_alloc; do
	ktap_case "streams of a guest arrive whole under $what" guest_sends "$what" 30 stream
	ktap_case "seqpackets of a guest arrive whole under $what" guest_sends "$what" 30 seqpacket
	ktap_case "a sender on the host under $what" sender_fails "$what" 3
done
ktap_case "the worker had to try again" test "$(retries)" -gt "$before"
ktap_case "all works when memory is back" all_is_well
l2_stop a
ktap_case "no reference is left without the guest" vv_wait 10 vv_references 0
ktap_end
