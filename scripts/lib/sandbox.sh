# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Runs commands so that nothing of them outlives this script: mounts are in a
# private namespace, and all processes die with the one that started them.

# sealed COMMAND...: COMMAND with its own mounts and its own process tree.
sealed() {
	setpriv --pdeathsig KILL unshare --mount --propagation private \
		--pid --fork --kill-child --mount-proc -- "$@"
}

# in_root ROOT [-r SOURCE:TARGET]... [-w SOURCE:TARGET]... -- COMMAND...: runs
# COMMAND in the toolchain root ROOT, which it sees read-only, with SOURCE
# bound to TARGET read-only (-r) or writable (-w). ROOT is writable with -W.
in_root() {
	sealed bash "$VV_TOP/scripts/lib/enter-root" "$@"
}
