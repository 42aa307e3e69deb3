#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A host out of memory loses no byte that a guest sent: the build of the module in
# which allocations can be made to fail, and the ring program's case for it.
# Modules: rust
# Seconds: 120
. "$(dirname "$0")/lib.sh"

load_faults() {
	vv_insmod faults.ko && vv_wait 5 test -c /dev/vhost-vsock
}

load_faults || { echo "Bail out! the module cannot be loaded"; exit 1; }
exec ring --driver rust --seed "$VV_SEED" --only ours/out-of-memory
