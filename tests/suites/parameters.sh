#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# What a user relies on holds with every combination of the module's parameters: for
# each of them a few cases of tests/ring, which move checked data both ways, keep its
# order and respect credit. scripts/bed/params-test runs whole suites with a few.
# Modules: rust
# Seconds: 600
# shellcheck disable=SC2119 # vv_load may have parameters
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/parameters.sh"

parameters=/sys/module/vhost_vsock_rs/parameters
combinations=$((1 << ${#PARAMETERS[@]}))
# Cases that move data in all shapes, on many flows, in order and within credit, and
# one that tells by counters whether a parameter does anything: a second or two for all.
# One parameter more doubles the combinations, and the time.
selection=(
	shapes/both-ways
	model/interleaved-flows-with-scarce-buffers
	rx/used-entries-in-order-with-real-lengths
	tx/used-entries-in-order
	credit/small-packets-under-back-pressure
	ours/counters-agree-with-the-traffic
)
only=()
# Started so often, it is not to be read over 9p each time.
ring=/tmp/ring

# all_listed: the module has the parameters of the list and no others. Those of test
# builds are no part of its behaviour.
all_listed() {
	diff <(printf '%s\n' "${PARAMETERS[@]%% *}" | sort) <(find "$parameters" -type f ! -name 'fail_*' -printf '%f\n' | sort)
}

# defaults_hold: the list's defaults are those of the module as it was loaded.
defaults_hold() {
	local pair
	for pair in $(params_values 0); do
		[[ $(<"$parameters/${pair%%=*}") == "${pair#*=}" ]] || { echo "not $pair"; return 1; }
	done
}

# rows_cover: in the rows of params-test each two parameters have each two values.
rows_cover() {
	local i j row want
	local -A seen
	for row in $(params_rows); do
		for ((i = 0; i < ${#PARAMETERS[@]}; i++)); do
			for ((j = 0; j < i; j++)); do
				seen["$i $j $((row >> i & 1))$((row >> j & 1))"]=1
			done
		done
	done
	want=$((${#PARAMETERS[@]} * (${#PARAMETERS[@]} - 1) * 2))
	echo "${#seen[@]} of $want"
	((${#seen[@]} == want))
}

# set_combination COMBINATION: what is read back is what was written.
set_combination() {
	local pair value
	for pair in $(params_values "$1"); do
		echo "${pair#*=}" >"$parameters/${pair%%=*}" &&
			read -r value <"$parameters/${pair%%=*}" && [[ $value == "${pair#*=}" ]] || return 1
	done
}

# all_exist: a case that was renamed would be left out.
all_exist() {
	diff <(printf '%s\n' "${selection[@]}" | sort) <("$ring" --list "${only[@]}" | sed 's/ (.*//' | sort)
}

# holds_with COMBINATION: each has random data and CIDs of its own.
holds_with() {
	set_combination "$1" && "$ring" --driver rust --seed $((VV_SEED + $1)) --run "$1" --short "${only[@]}"
}

cp "$(command -v ring)" "$ring"
for name in "${selection[@]}"; do only+=(--only "$name"); done
ktap_plan $((4 + combinations))
VV_PARAMS='' vv_load || { echo "Bail out! the module cannot be loaded"; exit 1; }
ktap_case "the list has all parameters of the module" all_listed
ktap_case "the list has their defaults" defaults_hold
ktap_case "each two values of each two parameters are in a row of params-test" rows_cover
ktap_case "the cases that are run exist" all_exist
for ((combination = 0; combination < combinations; combination++)); do
	ktap_case "data, order and credit hold with $(params_name "$combination")" holds_with "$combination"
done
ktap_end
