#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The bed itself: the module loads, a guest boots, answers and tells its CID.
# Seconds: 120
. "$(dirname "$0")/lib.sh"

# output_arrives: with the arguments as they were given.
output_arrives() {
	[[ $(l2_exec a 10 printf '%s|' x "y z" '*') == "x|y z|*|" ]]
}

# status_is STATUS SECONDS COMMAND...
status_is() {
	local status=0
	l2_exec a "${@:2}" || status=$?
	[[ $status == "$1" ]]
}

# exits_are_counted: what tells a dead guest from a slow one.
exits_are_counted() {
	local before
	before=$(l2_exits a) && l2_alive a && (($(l2_exits a) > before)) && ! l2_emulator_hang a
}

# a_dead_guest_is_told: one that its QEMU does not run looks like one that hangs.
a_dead_guest_is_told() {
	touch "$L2_UNWATCHED"
	monitor stop && vv_wait 10 l2_no_exits a && l2_emulator_hang a && monitor cont && vv_wait 10 l2_alive a &&
		! l2_emulator_hang a && rm "$L2_UNWATCHED"
}

monitor() {
	echo "$1" | socat - unix-connect:/tmp/monitor >/dev/null
}

ktap_plan 8
ktap_case "the module loads" vv_load
ktap_case "a guest boots" l2_start a 42 -monitor unix:/tmp/monitor,server=on,wait=off
ktap_case "a guest's output arrives" output_arrives
ktap_case "a guest's exit status arrives" status_is 3 10 sh -c "exit 3"
ktap_case "a command is killed when its time is over" status_is 124 1 sleep 30
ktap_case "a guest at work is seen to be alive" exits_are_counted
ktap_case "a guest that the emulator lost is told from a slow one" a_dead_guest_is_told
l2_stop a
ktap_case "the module unloads when the guest is gone" vv_unload
ktap_end
