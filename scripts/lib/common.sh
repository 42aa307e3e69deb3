# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by every script of the bed: where things are kept, how progress is
# shown, and how something is made whole or not at all.

# A script started by another one ends with it, and ends what it started.
if [[ -n ${VV_TIED:-} && $VV_TIED != "$$" ]]; then
	VV_TIED=$$ exec setpriv --pdeathsig TERM -- bash "$0" "$@"
fi
export VV_TIED=$$
trap 'pkill -TERM -P $$ || true' EXIT

# shellcheck disable=SC2034 # for those who source this
VV_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VV_CACHE=${VV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vhost-vsock-rs}
VV_LOGS=${VV_LOGS:-$VV_CACHE/logs}
mkdir -p "$VV_CACHE" "$VV_LOGS"

# say TEXT...: one line of progress. Standard output is kept for results.
say() {
	printf '[%(%H:%M:%S)T] %s\n' -1 "$*" >&2
}

die() {
	say "error: $*"
	exit 1
}

# key_of FILE... [-- WORD...]: a short name for what the files and words say.
key_of() {
	local files=()
	while [[ $# -gt 0 && $1 != -- ]]; do
		files+=("$1")
		shift
	done
	{ [[ ${#files[@]} -eq 0 ]] || cat -- "${files[@]}"; printf '%s\n' "$@"; } | sha256sum | cut -c1-12
}

# watch_log LOG TEXT: while a step runs, shows its log's last line now and then.
# The pause is a read that times out, so that no process of its own is left.
watch_log() {
	local log=$1 text=$2 last pause start=$SECONDS
	exec {pause}<> <(:)
	while ! read -rt 20 -u "$pause"; do
		last=$(tail -c 400 "$log" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -1)
		say "    $text, $((SECONDS - start))s: ${last:0:90}"
	done
}

# step NAME TEXT COMMAND...: runs one long step. Its output goes to NAME.log; a
# failed step shows the end of it. COMMAND runs under "set -e", so a step must
# not be called where the shell ignores that (in a condition, before || or &&).
step() {
	local log=$VV_LOGS/$1.log text=$2 watcher status start=$SECONDS
	shift 2
	say "$text ..."
	: >"$log"
	watch_log "$log" "$text" &
	watcher=$!
	set +e
	(
		set -e
		"$@"
	) </dev/null >"$log" 2>&1
	status=$?
	set -e
	kill "$watcher" 2>/dev/null || true
	wait "$watcher" 2>/dev/null || true
	if ((status)); then
		tail -n 25 "$log" >&2
		say "$text: failed with status $status after $((SECONDS - start))s; full log: $log"
		return "$status"
	fi
	say "$text: done in $((SECONDS - start))s"
}

# take_lock NAME: waits for and holds a lock, until drop_lock or until this process
# and all that it started are gone.
take_lock() {
	exec {vv_lock}>"$VV_CACHE/$1.lock"
	if ! flock -n "$vv_lock"; then
		say "waiting for another run that holds the lock $1"
		flock "$vv_lock"
	fi
}

drop_lock() {
	exec {vv_lock}>&-
}

# make_once DIR BUILDER ARG...: DIR appears complete or not at all. BUILDER gets
# the ARGs and then the folder to fill. Not to be called where "set -e" is off.
make_once() {
	local dir=$1
	shift
	mkdir -p "$(dirname "$dir")"
	take_lock "$(basename "$dir")"
	if [[ ! -d $dir ]]; then
		rm -rf --one-file-system "$dir.part"
		mkdir "$dir.part"
		"$@" "$dir.part"
		mv -T "$dir.part" "$dir"
	fi
	drop_lock
}

need_root() {
	[[ $(id -u) -eq 0 ]] || die "the test bed makes chroots and mounts: run it as root"
}
