# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Guests (L2) of the test host, under its own QEMU and KVM with vhost-vsock-pci.
# What is known of a guest is in /run/l2/NAME. Commands reach it by TCP through
# QEMU's user network, never through vsock.

# The agent's TCP port in a guest, and the one that suites may listen on there.
L2_AGENT_PORT=514
L2_USER_PORT=5555
# Seconds that a guest may take to boot; some 7 are usual under emulation.
L2_BOOT_SECONDS=$((${L2_BOOT_SECONDS:-90} * VV_SLOW))

# A suite that makes this file sees to dead guests itself: the test host does not.
# shellcheck disable=SC2034 # for suites
L2_UNWATCHED=/run/l2.unwatched

# l2_in NAME COMMAND...: runs COMMAND in the namespace that NAME's QEMU is in.
l2_in() {
	local netns
	netns=$(cat "/run/l2/$1/netns" 2>/dev/null)
	shift
	if [[ -n $netns ]]; then ip netns exec "$netns" "$@"; else "$@"; fi
}

# l2_port NAME: the host's TCP port that leads to the guest's L2_USER_PORT.
l2_port() {
	cat "/run/l2/$1/port"
}

l2_agent() {
	echo "127.0.0.1:$(($(l2_port "$1") + 1000))"
}

# l2_start NAME CID [QEMU ARGS...]: boots a guest and waits until it answers.
# L2_NETNS names the network namespace for its QEMU, L2_DEVICE further properties
# of its vhost-vsock-pci (",in_order=on"). When a guest dies in the emulator, in its
# boot or later, the test host ends the suite and runs it again: a guest that fails
# to boot is left to be looked at.
l2_start() {
	l2_launch "$@" || return 1
	l2_wait_boot "$1" && return 0
	l2_end_if_lost "$1"
	ktap_comment "guest $1 did not boot; its console ends:"
	tail -n 5 "/run/l2/$1/console" 2>/dev/null | ktap_comment
	return 1
}

# l2_end_if_lost NAME: ends the suite if the emulator has lost the guest, and leaves
# word for the test host. A suite that sees to that itself goes on.
l2_end_if_lost() {
	if [[ -e $L2_UNWATCHED ]] || ! l2_emulator_hang "$1"; then return 0; fi
	echo "guest $1 was lost by the emulator while it booted" >"$VV_OUT/bed"
	exit 1
}

# l2_launch NAME CID [QEMU ARGS...]: starts the guest's QEMU. One whose processor was
# reset, as by a triple fault, stays and is stopped: it looks like a guest that hangs.
l2_launch() {
	local name=$1 cid=$2 dir=/run/l2/$1 slot enter=()
	shift 2
	[[ ! -e $dir ]] || { echo "guest $name exists" >&2; return 1; }
	slot=$(l2_next_slot)
	mkdir -p "$dir"
	echo $((15000 + slot)) >"$dir/port"
	echo "${L2_NETNS:-}" >"$dir/netns"
	ln -s "$VV_OUT/l2-$name-$slot.console" "$dir/console"
	[[ -z ${L2_NETNS:-} ]] || enter=(ip netns exec "$L2_NETNS")
	"${enter[@]}" qemu-system-x86_64 -accel kvm -cpu host -m "${L2_MEMORY:-512}" -smp "${L2_CPUS:-1}" \
		-nodefaults -no-user-config -display none -no-reboot -no-shutdown \
		-chardev "file,id=console,path=$VV_OUT/l2-$name-$slot.console" -serial chardev:console \
		-kernel /bed/vmlinuz -initrd /bed/l2.cpio \
		-append "console=ttyS0 loglevel=4 panic=-1 rdinit=/init" \
		-netdev "user,id=net,hostfwd=tcp:127.0.0.1:$((15000 + slot))-:$L2_USER_PORT,hostfwd=tcp:127.0.0.1:$((16000 + slot))-:$L2_AGENT_PORT" \
		-device virtio-net-pci,netdev=net,romfile= \
		-device "vhost-vsock-pci,id=vsock,guest-cid=$cid${L2_DEVICE:-}" \
		"$@" >"$VV_OUT/l2-$name-$slot.qemu" 2>&1 &
	# Nothing but QEMU itself has this number: "ip netns exec" becomes QEMU.
	echo $! >"$dir/pid"
	disown
	ln -s "$VV_OUT/l2-$name-$slot.qemu" "$dir/qemu"
}

# Guests of one suite are numbered; a number is not used twice.
l2_next_slot() {
	local slot
	slot=$(($(cat /run/l2.slots 2>/dev/null || echo 0) + 1))
	echo "$slot" >/run/l2.slots
	echo $((slot % 900))
}

l2_wait_boot() {
	local end=$((SECONDS + L2_BOOT_SECONDS))
	while l2_running "$1" && ! l2_internal_error "$1" && ((SECONDS < end)); do
		l2_alive "$1" && return 0
		sleep 0.3
	done
	[[ ! -s /run/l2/$1/qemu ]] || ktap_comment <"/run/l2/$1/qemu"
	return 1
}

# l2_running NAME: succeeds while the guest's QEMU exists.
l2_running() {
	kill -0 "$(cat "/run/l2/$1/pid" 2>/dev/null)" 2>/dev/null
}

# l2_alive NAME [SECONDS]: succeeds if the guest answers in time (3 s).
l2_alive() {
	l2_in "$1" agent ping "$(l2_agent "$1")" "$((${2:-3} * VV_SLOW))" 2>/dev/null
}

# l2_exec NAME SECONDS COMMAND...: runs COMMAND in the guest; its output, its
# status. 124: the time ran out and it was killed; 125: the guest did not answer.
l2_exec() {
	local name=$1 seconds=$(($2 * VV_SLOW))
	shift 2
	l2_in "$name" agent run "$(l2_agent "$name")" "$seconds" "$@"
}

# l2_loopback NAME: loads the guest's loopback transport, which no guest has at first.
l2_loopback() {
	l2_exec "$1" 10 insmod /later/vsock_loopback.ko
}

# l2_exits NAME: exits that KVM has served for the guest so far, but for those that
# interrupts of the host caused: these end a guest that runs, whatever it does.
l2_exits() {
	local dir exits of_host
	dir=$(compgen -G "/sys/kernel/debug/kvm/$(cat "/run/l2/$1/pid")-*") || return 1
	# The latter first: what comes in between is not missed, but counted once too often.
	of_host=$(cat "$dir/irq_exits") && exits=$(cat "$dir/exits") || return 1
	echo $((exits - of_host))
}

# l2_internal_error NAME: succeeds if KVM gave the guest up: an event was delivered
# twice by the emulated processor ("Suberror: 3"). QEMU then holds it for ever.
l2_internal_error() {
	grep -q '^KVM internal error. Suberror: 3' "/run/l2/$1/qemu" 2>/dev/null
}

# l2_no_exits NAME: succeeds if KVM served no exit for the guest since this was asked
# last; a few may be those of the host, as the two counts are not read at once. A guest
# that works or sleeps has some all the time: its clock ticks.
l2_no_exits() {
	local dir=/run/l2/$1 exits before
	exits=$(l2_exits "$1") || return 1
	before=$(cat "$dir/exits" 2>/dev/null)
	echo "$exits" >"$dir/exits"
	((exits - ${before:-0} < 4 && before))
}

# l2_in_vhost NAME: succeeds if a thread of the guest's QEMU is in vhost code: that is
# no fault of the emulator, whatever it is. The driver's worker is, and one of KVM's
# threads is a vhost task too: both wait in vhost_task_fn().
l2_in_vhost() {
	grep -h vhost "/proc/$(cat "/run/l2/$1/pid")"/task/*/stack | grep -qv ' vhost_task_fn+'
}

# l2_emulator_hang NAME: succeeds if the guest is dead in the ways that emulated
# SVM makes it: QEMU is there, the guest does not answer, it has not panicked, and
# KVM gave it up or serves no exit for it, perhaps since it was reset. A slow, failing or crashed guest is none.
l2_emulator_hang() {
	l2_running "$1" || return 1
	! l2_internal_error "$1" || return 0
	! grep -qE 'Kernel panic|Oops|BUG:|WARNING:' "/run/l2/$1/console" || return 1
	l2_no_exits "$1"
	! l2_alive "$1" 10 && l2_no_exits "$1" && ! l2_in_vhost "$1"
}

# l2_stop NAME: ends the guest's QEMU, as if its power failed.
l2_stop() {
	local dir=/run/l2/$1
	[[ -d $dir ]] || return 0
	kill -KILL "$(cat "$dir/pid")" 2>/dev/null
	while l2_running "$1"; do sleep 0.05; done
	rm -rf "$dir"
}
