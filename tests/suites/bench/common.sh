# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by the suites that measure: rounds over several modes (a driver and its
# settings), in which each mode does all workloads with a guest of its own, and a last
# case that tells whether none was lost.
# VV_ARGS: ROUNDS SELECTION MODE..., a mode being "c" or "NAME[:parameter=value,...]"
# for our module, of which "polling" does the round trips only; SELECTION is quick or
# full. What is measured goes to $VV_OUT/measured.jsonl, what the guests note to
# $VV_OUT/notes. The suite has its workloads in the array of that name, lines "kind
# direction size connections".
# Workloads from number "seldom" on, if that is set, are done in every fourth round only.
# shellcheck disable=SC2154 # workloads

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../lib/peer.sh"

CID=42
# The first port of vsock_perf's receivers; each workload has its own.
PERF_PORT=2000
# Seconds for one workload; usual are one to five.
LIMIT=${LIMIT:-40}
# A guest that dies in the emulator is started again this often in a suite.
hangs_left=5
# Workloads that failed.
lost=0

# bytes_of SIZE: payload of one run with writes of SIZE, for a second or so.
bytes_of() {
	case $1 in
	64) echo $((3 << 19)) ;;
	256) echo $((5 << 20)) ;;
	512) echo $((8 << 20)) ;;
	1024) echo $((10 << 20)) ;;
	4096) echo $((20 << 20)) ;;
	*) echo $((32 << 20)) ;;
	esac
}

# throughput SIZES CONNECTIONS: lines "kind direction size connections".
throughput() {
	local direction size connections
	for connections in $2; do
		for direction in to-guest to-host; do
			for size in $1; do echo "throughput $direction $size $connections"; done
		done
	done
}

# round_trips SIZES
round_trips() {
	local direction size
	for direction in to-guest to-host; do
		for size in $1; do echo "round-trip $direction $size 1"; done
	done
}

# vsock_interrupts: prints in the guest how many it has had.
# shellcheck disable=SC2016 # expanded in the guest
vsock_interrupts='awk "/-(rx|tx|event|virtqueues)\$/ { for (i = 2; i <= NF && \$i ~ /^[0-9]+\$/; i++) n += \$i } END { print \"interrupts=\" n + 0 }" /proc/interrupts'

# receiver PORT BYTES: the program text that receives just so many bytes. A connection
# that its sender gave up while it was made ends without. The program reads once more
# when the sender has ended: that must take all that its window holds.
receiver() {
	echo "until vsock_perf --port $1 --buf-size 256K >/tmp/received && grep -qx 'total bytes received: $2' /tmp/received; do :; done; cat /tmp/received"
}

# sender CID PORT BYTES SIZE PAUSE: the program text that sends as soon as there is a
# receiver, looking every PAUSE seconds.
sender() {
	echo "until vsock_perf --sender $1 --port $2 --bytes $3 --buf-size $4 >/tmp/sent 2>/dev/null; do sleep $5; done; cat /tmp/sent"
}

# guest_program DIRECTION FIRST: the guest's part of the single-connection throughput
# runs in that direction, from workload FIRST on, one after the other, with a note
# after each.
guest_program() {
	local i kind direction size connections port
	echo "echo port=0; $vsock_interrupts"
	for ((i = $2; i < ${#workloads[@]}; i++)); do
		read -r kind direction size connections <<<"${workloads[i]}"
		[[ $kind == throughput && $direction == "$1" && $connections == 1 ]] || continue
		port=$((PERF_PORT + i))
		echo "echo port=$port"
		# The pause is longer than what the host's worker must rest.
		case $direction in
		to-guest) receiver "$port" "$(bytes_of "$size")" ;;
		to-host) sender 2 "$port" "$(bytes_of "$size")" "$size" 0.2 ;;
		esac
		echo "$vsock_interrupts"
	done
	echo "echo port=end"
}

# start_guest_program DIRECTION FIRST: the one that runs, if any, is ended.
start_guest_program() {
	l2_exec a 10 sh -c "[ ! -e /tmp/program ] || kill -KILL -\$(cat /tmp/program) 2>/dev/null
cat >/tmp/$1.sh <<'END'
$(guest_program "$@")
END
setsid sh /tmp/$1.sh >>/tmp/$1.notes 2>&1 &
echo \$! >/tmp/program"
}

# measure I BYTES COMMAND...: workload I, on the host's side.
measure() {
	local i=$1 bytes=$2 kind direction size connections
	read -r kind direction size connections <<<"${workloads[i]}"
	shift 2
	# shellcheck disable=SC2086 # perhaps no option
	timeout "$LIMIT" bench measure --mode "$mode" --pair "$round" --kind "$kind" --direction "$direction" \
		--size "$size" --connections "$connections" --port $((PERF_PORT + i)) --bytes "$bytes" \
		--pid "$(cat /run/l2/a/pid)" ${measure_options:-} -- "$@" >>"$rows"
}

# in_guest COMMAND...: the command line that runs COMMAND in the guest.
in_guest() {
	command_line=(agent run "$(l2_agent a)" "$LIMIT" "$@")
}

run_throughput() {
	local i=$1 direction=$2 size=$3 connections=$4 bytes port=$((PERF_PORT + $1)) each command_line
	bytes=$(bytes_of "$size")
	if ((connections == 1)); then
		case $direction in
		to-guest) measure "$i" "$bytes" sh -c "$(sender "$CID" "$port" "$bytes" "$size" 0.05)" ;;
		to-host) measure "$i" "$bytes" sh -c "$(receiver "$port" "$bytes")" ;;
		esac
		return
	fi
	each=$(((bytes / connections + size - 1) / size * size))
	if [[ $direction == to-guest ]]; then
		command_line=(peer flood --cid "$CID")
	else
		in_guest peer flood --cid 2
	fi
	measure "$i" $((each * connections)) "${command_line[@]}" --port "$PEER_PORT" \
		--connections "$connections" --size "$size" --bytes "$each"
}

run_round_trip() {
	local i=$1 direction=$2 size=$3 command_line count=400
	if [[ $direction == to-guest ]]; then
		command_line=(peer ping --cid "$CID")
	else
		in_guest peer ping --cid 2
	fi
	measure "$i" $((count * size)) "${command_line[@]}" --port "$PEER_PORT" --count "$count" --size "$size"
}

warm_up() {
	local command_line
	peer transfer --cid "$CID" --port "$PEER_PORT" --seed 1 --type stream --up "$MIB" --down "$MIB" &&
		peer ping --cid "$CID" --port "$PEER_PORT" --count 100 >/dev/null
}

# what_failed I: what there is to see of a workload that failed.
what_failed() {
	echo "failed: ${workloads[$1]}"
	echo "the host's last words: $(tail -n 2 /tmp/sent /tmp/received 2>/dev/null | xargs)"
	l2_exec a 10 sh -c 'tail -n 6 /tmp/*.notes; ps | grep "[v]sock_perf"' || echo "the guest does not answer"
	ss --vsock -an
	cat "/sys/kernel/debug/vhost_vsock_rs/$CID/stats" 2>/dev/null
}

# all_workloads: with the guest that is there. A workload that fails is told and left
# out; three are too many.
all_workloads() {
	local failed=0 i kind rest direction current=none
	warm_up || return 1
	for i in "${!workloads[@]}"; do
		read -r kind rest <<<"${workloads[i]}"
		[[ $mode != polling || $kind == round-trip ]] || continue
		((i < ${seldom:-i + 1} || round % 4 == 1)) || continue
		# The guest's programs come in the order of the list.
		if [[ $kind == throughput && $rest != "$current"* && $rest == *" 1" ]]; then
			current=${rest%% *}
			start_guest_program "$current" "$i" || return 1
		fi
		# shellcheck disable=SC2086 # three words
		"run_${kind//-/_}" "$i" $rest && continue
		what_failed "$i"
		lost=$((lost + 1))
		((++failed < 3)) || return 1
		# Both ends begin again with what comes next.
		[[ $kind != throughput || $rest != *" 1" ]] || start_guest_program "$current" $((i + 1)) || return 1
	done
	for direction in to-guest to-host; do
		l2_exec a 10 cat "/tmp/$direction.notes" 2>/dev/null || true
	done >"$notes"
}

# A suite may have its own ones.
before_workloads() { :; }
after_workloads() { :; }

# one_mode MODE[:PARAMETERS]: loads the driver, starts a guest, runs all workloads. What
# was measured counts only when all of it was.
one_mode() {
	local mode=${1%%:*} parameters='' rows notes serve status=0
	[[ $1 != *:* ]] || parameters=${1#*:}
	rows=$(mktemp)
	notes=$(mktemp)
	# shellcheck disable=SC2034 # for lib.sh
	if [[ $mode == c ]]; then VV_MODULE=c; else VV_MODULE=rust; fi
	# shellcheck disable=SC2086 # a list of parameters
	vv_load ${parameters//,/ } || return 1
	if l2_start a "$CID" && peer_serve_in a; then
		peer serve --port "$PEER_PORT" >/dev/null 2>&1 &
		serve=$!
		before_workloads && all_workloads && after_workloads || status=1
		kill "$serve"
		wait "$serve" 2>/dev/null
	else
		status=1
	fi
	((status == 0)) || ! l2_emulator_hang a || status=2
	l2_stop a
	vv_wait 20 vv_unload || status=1
	((status)) || { cat "$rows" >>"$VV_OUT/measured.jsonl"; cp "$notes" "$VV_OUT/notes/$round-$mode"; }
	return "$status"
}

# measure_mode MODE: the same, again after a hang of the emulator.
measure_mode() {
	local status
	while :; do
		status=0
		one_mode "$1" || status=$?
		((status == 2 && hangs_left > 0)) || return "$status"
		hangs_left=$((hangs_left - 1))
		echo "bed: the guest hung in the emulator: once more"
	done
}

# all_rounds ROUNDS MODE...: the modes in turn, in every other round from the last on.
all_rounds() {
	local rounds=$1 round i modes
	shift
	modes=("$@")
	mkdir -p "$VV_OUT/notes"
	touch "$L2_UNWATCHED"
	ktap_plan $((rounds * $# + 1))
	for ((round = 1; round <= rounds; round++)); do
		for i in "${!modes[@]}"; do
			((round % 2)) || i=$((${#modes[@]} - 1 - i))
			ktap_case "round $round: ${modes[i]}" measure_mode "${modes[i]}"
		done
	done
	ktap_case "no workload failed" test "$lost" = 0
	ktap_end
}
