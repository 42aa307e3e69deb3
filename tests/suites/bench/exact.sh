#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Instructions with a real guest, over the C driver and ours, in turn. The host must
# have one processor and QEMU's counting plugin (scripts/bench/exact).
# Seconds: 7200
# shellcheck disable=SC2034 # for common.sh and l2.sh
LIMIT=900 L2_BOOT_SECONDS=400
. "$(dirname "$0")/common.sh"

read -r rounds selection modes <<<"$VV_ARGS"
case $selection in
quick) sizes="64 256" ;;
full) sizes="64 256 1024 4096 65536" ;;
esac
mapfile -t workloads < <(throughput "$sizes" 1)
# shellcheck disable=SC2034 # for common.sh
measure_options=--exact
# Counting makes the machine slow: only while it is of use. By then all modules are
# loaded and their addresses known.
before_workloads() { bench counter; }
after_workloads() { bench counter --stop; }
# shellcheck disable=SC2086 # a list
all_rounds "$rounds" $modes
