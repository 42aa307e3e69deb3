# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced: the one list of the module's parameters, and combinations of their values.
# A combination is a number: bit i is set if parameter i has its other value.

# Name, default, and the value that it is tested with besides. A new parameter is one
# more line; the suite "parameters" fails while one of the module's is missing here.
PARAMETERS=(
	"rx_batch Y N"
	"tx_batch Y N"
	"rx_coalesce Y N"
	"tx_coalesce Y N"
	"offer_in_order N Y"
	"busyloop_us 0 50"
	"rx_linger_us 1000 0"
	"tx_linger_us 1000 0"
)

# params_values COMBINATION: NAME=VALUE of each parameter, one a line.
params_values() {
	local i name default other
	for i in "${!PARAMETERS[@]}"; do
		read -r name default other <<<"${PARAMETERS[i]}"
		if (($1 >> i & 1)); then echo "$name=$other"; else echo "$name=$default"; fi
	done
}

# params_name COMBINATION: what is not as by default.
params_name() {
	local i name other list=()
	for i in "${!PARAMETERS[@]}"; do
		read -r name _ other <<<"${PARAMETERS[i]}"
		! (($1 >> i & 1)) || list+=("$name=$other")
	done
	echo "${list[*]:-all at their defaults}"
}

# params_rows: six combinations in which each two parameters, of ten at most, have each
# two values: one has the other value of all, and each parameter has it in two of five
# more. No two parameters share both of those, and three of five are left to each for
# its default, so there is one where both have it.
params_rows() {
	local i row rows=(0 0 0 0 0 0) pairs=("0 1" "2 3" "0 4" "1 2" "3 4" "0 2" "1 3" "2 4" "0 3" "1 4")
	((${#PARAMETERS[@]} <= ${#pairs[@]})) || { echo "six rows are enough for ten parameters" >&2; return 1; }
	for i in "${!PARAMETERS[@]}"; do
		for row in ${pairs[i]} 5; do
			rows[row]=$((rows[row] | 1 << i))
		done
	done
	printf '%s\n' "${rows[@]}"
}
