# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Runs commands so that nothing of them outlives this script: mounts are in a
# private namespace, and all processes die with the one that started them.

# sealed COMMAND...: COMMAND with its own mounts and its own process tree.
sealed() {
	setpriv --pdeathsig KILL unshare --mount --propagation private \
		--pid --fork --kill-child --mount-proc -- "$@"
}

# in_root ROOT [-r SOURCE:TARGET]... [-w SOURCE:TARGET]... [-c SOURCE:TARGET]... --
# COMMAND...: runs COMMAND in the toolchain root ROOT, which it sees read-only, with
# SOURCE at TARGET: read-only (-r), writable (-w), or as a copy whose changes are
# lost at the end (-c). ROOT is writable with -W.
in_root() {
	sealed bash "$VV_TOP/scripts/lib/enter-root" "$@"
}
