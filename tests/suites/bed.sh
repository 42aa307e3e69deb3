#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The bed itself: the module loads, a guest boots, answers and tells its CID.
# Seconds: 120
. "$(dirname "$0")/lib.sh"

guest_says() {
	[[ $(l2_exec a 10 sh -c 'echo "$0 $1"; exit 3' x "y z") == "x y z" ]]
	[[ $? == 0 ]]
}

status_is_kept() {
	l2_exec a 10 sh -c 'exit 3'
	[[ $? == 3 ]]
}

limit_is_kept() {
	l2_exec a 1 sleep 30
	[[ $? == 124 ]]
}

ktap_plan 5
ktap_case "the module loads" vv_load
ktap_case "a guest boots" l2_start a 42
ktap_case "a guest's output arrives" guest_says
ktap_case "a guest's exit status arrives" status_is_kept
ktap_case "a command is killed when its time is over" limit_is_kept
l2_stop a
ktap_end
