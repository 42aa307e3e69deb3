#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Throughput and round trips with a real guest, over the C driver and ours, in turn.
# Seconds: 7200
. "$(dirname "$0")/common.sh"

read -r rounds selection modes <<<"$VV_ARGS"
case $selection in
quick)
	mapfile -t workloads < <(
		throughput "64 256 1024 4096 65536" 1
		round_trips 64
	)
	;;
full)
	mapfile -t workloads < <(
		throughput "64 256 512 1024 4096 16384 65536 262144" 1
		round_trips 64
		throughput "64 256 4096 65536" "8 64"
		round_trips "1 256 4096 65536"
	)
	# shellcheck disable=SC2034 # for common.sh
	seldom=18
	;;
to-*:*)
	# One direction, and sizes: "to-host:64,256".
	sizes=${selection#*:}
	mapfile -t workloads < <(throughput "${sizes//,/ }" 1 | grep " ${selection%:*} ")
	;;
round-trips:*)
	sizes=${selection#*:}
	mapfile -t workloads < <(round_trips "${sizes//,/ }")
	;;
esac
# shellcheck disable=SC2086 # a list
all_rounds "$rounds" $modes
