#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The kernel's vsock_test: stream and seqpacket sockets between host and guest.
# Seconds: 600
# Baseline: c
. "$(dirname "$0")/kernel-tests.sh"

mapfile -t cases < <(kt_list vsock_test)
kt_suite vsock_test "${cases[@]}"
