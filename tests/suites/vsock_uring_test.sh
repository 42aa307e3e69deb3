#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The kernel's vsock_uring_test: io_uring on vsock. It can neither list nor skip.
# Seconds: 120
# Baseline: c
. "$(dirname "$0")/kernel-tests.sh"

# shellcheck disable=SC2034 # read by kernel-tests.sh
kt_single=1
kt_suite vsock_uring_test "SOCK_STREAM io_uring test" "SOCK_STREAM io_uring MSG_ZEROCOPY test"
