# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced: cargo of the toolchain root on this repository.
. "$VV_TOP/scripts/lib/sandbox.sh"

# The target is named, so that "static" is not asked of build scripts and macros.
VV_TARGET=x86_64-unknown-linux-gnu

# in_cargo ROOT COMMAND ARG...: cargo COMMAND in the root, with this repository.
in_cargo() {
	local root=$1
	shift
	mkdir -p "$VV_CACHE/cargo-home" "$VV_CACHE/cargo-target"
	in_root "$root" -r "$VV_TOP:/repo" -w "$VV_CACHE/cargo-home:/cargo" \
		-w "$VV_CACHE/cargo-target:/build" -- env CARGO_HOME=/cargo CARGO_TARGET_DIR=/build \
		CARGO_BUILD_TARGET="$VV_TARGET" RUSTFLAGS="-C target-feature=+crt-static" \
		cargo "$1" --manifest-path /repo/Cargo.toml "${@:2}"
}

# bed_cargo STEP TEXT COMMAND ARG...: the same as a step.
bed_cargo() {
	local name=$1 text=$2 root
	shift 2
	need_root
	root=$("$VV_TOP/scripts/bed/root")
	step "$name" "$text" in_cargo "$root" "$@"
}
