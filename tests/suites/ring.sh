#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A guest made of user space, on rings of its own: every case of tests/ring.
# Over C the cases that say so must fail. VV_ARGS reaches the program: --long, --short,
# --only PATTERN.
# Seconds: 400
. "$(dirname "$0")/lib.sh"

# shellcheck disable=SC2119 # no parameters: all at their defaults
vv_load || { echo "Bail out! the module cannot be loaded"; exit 1; }
modprobe vsockmon || { echo "Bail out! no vsockmon"; exit 1; }
# shellcheck disable=SC2086 # VV_ARGS is a list of words.
exec ring --driver "$VV_MODULE" --seed "$VV_SEED" --slow "$VV_SLOW" $VV_ARGS
