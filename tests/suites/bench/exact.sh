#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Instructions with a real guest, over the C driver and ours, in turn. The host must
# have one processor and QEMU's counting plugin (scripts/bench/exact).
# Seconds: 7200
. "$(dirname "$0")/common.sh"

read -r rounds selection modes <<<"$VV_ARGS"
case $selection in
quick) sizes="64 256" ;;
full) sizes="64 256 1024 4096 65536" ;;
esac
mapfile -t workloads < <(throughput "$sizes" 1)
# shellcheck disable=SC2034 # for common.sh
measure_options=--exact
# KVM and vhost are loaded and their addresses known.
# shellcheck disable=SC2034 # for common.sh
after_start="bench counter"
# shellcheck disable=SC2086 # a list
all_rounds "$rounds" $modes
