# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by every suite, in the test host (L1). A suite prints KTAP; its first
# lines may say for the runner:
#	# Modules: c rust	the modules it is run over (default: both)
#	# Seconds: 120		its limit in time (default: 120)
#	# Baseline: c		a case that fails over both modules is the bed's
#	# Default: no		run by name only
# In the environment: VV_MODULE (c or rust), VV_SEED, VV_TOOLS, VV_OUT (a writable
# folder that ends up in the report), VV_ARGS (the suite's own arguments), VV_PARAMS
# (NAME=VALUE...: parameters that our module is loaded with), VV_SLOW (how many times
# slower than a stock kernel's this host is: times are longer).

VV_SLOW=${VV_SLOW:-1}
. "$(dirname "${BASH_SOURCE[0]}")/l2.sh"

ktap_number=0
ktap_failed=0

# ktap_plan N: announces N cases.
ktap_plan() {
	printf 'KTAP version 1\n1..%d\n' "$1"
}

ktap_pass() {
	ktap_number=$((ktap_number + 1))
	printf 'ok %d %s\n' "$ktap_number" "$*"
}

ktap_fail() {
	ktap_number=$((ktap_number + 1))
	ktap_failed=$((ktap_failed + 1))
	printf 'not ok %d %s\n' "$ktap_number" "$*"
}

# ktap_skip DESC WHY
ktap_skip() {
	ktap_number=$((ktap_number + 1))
	printf 'ok %d %s # SKIP %s\n' "$ktap_number" "$1" "$2"
}

# ktap_case DESC COMMAND...: a case that passes when COMMAND succeeds; what it
# prints becomes diagnostics.
ktap_case() {
	local description=$1 status=0 log
	shift
	log=$(mktemp)
	"$@" >"$log" 2>&1 || status=$?
	ktap_comment <"$log"
	if ((status)); then ktap_fail "$description"; else ktap_pass "$description"; fi
}

# ktap_comment [TEXT...]: TEXT, or else standard input, as diagnostic lines.
ktap_comment() {
	if (($#)); then printf '# %s\n' "$*"; else awk '{ print "# " $0; fflush() }'; fi
}

# ktap_end: the suite's last line; fails if a case failed.
ktap_end() {
	((ktap_failed == 0))
	exit
}

# vv_insmod FILE [PARAMETER=VALUE...]: loads a build of our module, with VV_PARAMS. The
# kernel takes the last value of a parameter, so the suite's own come after those. It
# takes unknown names too, and only logs them: a misspelt one would test nothing.
vv_insmod() {
	local file=$1 pair
	shift
	modprobe -a vhost vmw_vsock_virtio_transport_common || return 1
	# shellcheck disable=SC2086 # VV_PARAMS is a list of words.
	insmod "${VV_TOOLS%/bin}/module/$file" ${VV_PARAMS:-} "$@" || return 1
	for pair in ${VV_PARAMS:-}; do
		[[ -e /sys/module/vhost_vsock_rs/parameters/${pair%%=*} ]] && continue
		echo "VV_PARAMS: the module has no parameter ${pair%%=*}" >&2
		rmmod vhost_vsock_rs
		return 1
	done
}

# vv_load [PARAMETER=VALUE...]: loads the module that VV_MODULE names.
vv_load() {
	case $VV_MODULE in
	c) modprobe vhost_vsock "$@" ;;
	rust) vv_insmod vhost_vsock_rs.ko "$@" ;;
	*) echo "VV_MODULE is neither c nor rust" >&2; return 2 ;;
	esac && vv_wait 5 test -c /dev/vhost-vsock
}

vv_unload() {
	case $VV_MODULE in
	c) rmmod vhost_vsock ;;
	rust) rmmod vhost_vsock_rs ;;
	esac
}

# vv_wait SECONDS COMMAND...: repeats COMMAND until it succeeds, for SECONDS.
vv_wait() {
	local end=$((SECONDS + $1 * VV_SLOW))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

# vv_listening PORT: succeeds when someone listens on the TCP port here.
vv_listening() {
	grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$1") [0-9A-F]*:0000 0A" /proc/net/tcp
}
