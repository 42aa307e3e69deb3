# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by the suites that run a test program of the kernel's tools/testing/vsock
# between the host and one guest. Each case is reported on its own, with the host
# as the server and as the client. The programs end at the first failing case:
# they are started again behind it.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KT_CID=42
# Port of the control connection when the host is the server.
KT_PORT=5000
# Limit of one run of a program, in seconds; single steps have 60 in the program.
KT_SECONDS=400

# kt_run ROLE SKIPS...: one run of the program, the host being ROLE; what each side
# says is in $kt_dir/host and $kt_dir/guest.
kt_run() {
	local role=$1
	shift
	if [[ $role == server ]]; then
		timeout $((KT_SECONDS * VV_SLOW)) "$kt_program" --mode server --control-port "$KT_PORT" \
			--peer-cid "$KT_CID" "$@" >"$kt_dir/host" 2>&1 &
		vv_wait 10 vv_listening "$KT_PORT"
		l2_exec guest "$KT_SECONDS" "$kt_program" --mode client --control-host 10.0.2.2 \
			--control-port "$KT_PORT" --peer-cid 2 "$@" >"$kt_dir/guest" 2>&1
	else
		l2_exec guest "$KT_SECONDS" "$kt_program" --mode server \
			--control-port "$L2_USER_PORT" --peer-cid 2 "$@" >"$kt_dir/guest" 2>&1 &
		l2_exec guest 10 sh -c "until grep -qi ':$(printf '%04X' "$L2_USER_PORT") .* 0A ' /proc/net/tcp; do sleep 0.1; done"
		timeout $((KT_SECONDS * VV_SLOW)) "$kt_program" --mode client --control-host 127.0.0.1 \
			--control-port "$(l2_port guest)" --peer-cid "$KT_CID" "$@" >"$kt_dir/host" 2>&1
	fi
	# Not every child: the guest's QEMU is one too.
	wait "$!"
	printf '%s\n' "--- $role $*" | cat - "$kt_dir/host" "$kt_dir/guest" >>"$VV_OUT/$kt_program.log"
}

# kt_outcome SIDE ID: ok, skip, or fail, as that side's text of the case has it.
kt_outcome() {
	awk -v id="$2" '
		match($0, /^[0-9]+ - /) { mine = ($1 == id) }
		/^All tests have been executed/ { mine = 0 }
		mine && /Test skipped|Setup unsupported/ { skip = 1 }
		mine && /(^|\.\.\.)ok$/ { ok = 1 }
		END { print !ok ? "fail" : skip ? "skip" : "ok" }' "$kt_dir/$1"
}

# kt_failed ID
kt_failed() {
	[[ $(kt_outcome host "$1") == fail || $(kt_outcome guest "$1") == fail ]]
}

# kt_say: what each side said last.
kt_say() {
	tail -n 3 "$kt_dir/host" | sed 's/^/host says: /'
	tail -n 3 "$kt_dir/guest" | sed 's/^/guest says: /'
}

# kt_report ROLE ID: the KTAP line of a case; fails if the case did.
kt_report() {
	local name="host $1: ${kt_cases[$2]}"
	if kt_failed "$2"; then
		kt_say | ktap_comment
		ktap_fail "$name"
		return 1
	elif [[ $(kt_outcome host "$2")-$(kt_outcome guest "$2") == ok-ok ]]; then
		ktap_pass "$name"
	else
		ktap_skip "$name" "said to be skipped by the program"
	fi
}

# kt_skips COUNT: options that skip the first COUNT cases.
kt_skips() {
	local i
	for ((i = 0; i < $1; i++)); do printf '%s\n' --skip "$i"; done
}

# The programs search all symbols of the kernel for transports within the minute that
# the other side waits, which an emulated guest may miss: they get the few lines
# that they look for, as the kernel has them.
# shellcheck disable=SC2016 # expanded where it is run
kt_fewer_symbols='grep "_transport" /proc/kallsyms >/tmp/kallsyms && mount --bind /tmp/kallsyms /proc/kallsyms'

# kt_new_guest: a guest with a second transport, which some cases need.
kt_new_guest() {
	l2_stop guest
	l2_start guest "$KT_CID" && l2_loopback guest && l2_exec guest 120 sh -c "$kt_fewer_symbols"
}

kt_prepare() {
	# shellcheck disable=SC2119 # no parameters
	modprobe vsock_loopback && vv_load && sh -c "$kt_fewer_symbols" && kt_new_guest
}

# kt_role ROLE: all cases, the host being ROLE. Some wait for no more than what the
# kernel usually needs: one that fails is run once more, if VV_AGAIN allows that. What
# failed first is in $VV_OUT/again, for the judge.
kt_role() {
	local id=0 skips tried=-1
	while ((id < ${#kt_cases[@]})); do
		mapfile -t skips < <(kt_skips "$id")
		kt_run "$1" "${skips[@]}"
		# All cases up to one that is not complete were run.
		while ((id < ${#kt_cases[@]})); do
			if ((VV_AGAIN > 0 && tried != id)) && [[ -z ${kt_single:-} ]] && kt_failed "$id"; then
				tried=$id
				kt_say >"$VV_OUT/said-$1-$id"
				echo "host $1: ${kt_cases[$id]}" >>"$VV_OUT/again"
				break
			fi
			kt_report "$1" "$id" || { id=$((id + 1)); break; }
			id=$((id + 1))
		done
		((id == ${#kt_cases[@]})) || l2_alive guest 10 || kt_new_guest || kt_give_up "$1" "$id"
		[[ -z ${kt_single:-} ]] || ((id == ${#kt_cases[@]})) || kt_give_up "$1" "$id"
	done
}

# kt_give_up ROLE ID: the cases from ID on cannot be run; ends the suite's role.
kt_give_up() {
	for ((id = $2; id < ${#kt_cases[@]}; id++)); do
		ktap_fail "host $1: ${kt_cases[$id]}"
	done
}

# kt_suite PROGRAM CASE...: the whole suite. kt_single is set for a program that
# cannot skip cases.
kt_suite() {
	kt_program=$1
	shift
	kt_cases=("$@")
	kt_dir=$(mktemp -d)
	ktap_plan $((2 * ${#kt_cases[@]}))
	if ! kt_prepare; then
		ktap_comment "the module or the guest did not start"
		exit 1
	fi
	kt_role server
	kt_role client
	l2_stop guest
	umount /proc/kallsyms
	ktap_end
}

# kt_list PROGRAM: the names of its cases.
kt_list() {
	"$1" --list | sed -n 's/^[0-9]*\t//p'
}
