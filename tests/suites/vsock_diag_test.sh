#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The kernel's vsock_diag_test: sockets as sock_diag shows them.
# Seconds: 120
# Baseline: c
. "$(dirname "$0")/kernel-tests.sh"

mapfile -t cases < <(kt_list vsock_diag_test)
kt_suite vsock_diag_test "${cases[@]}"
