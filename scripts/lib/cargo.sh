# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced: cargo of the toolchain root on this repository.
. "$VV_TOP/scripts/lib/sandbox.sh"

# The target is named, so that "static" is not asked of build scripts and macros.
VV_TARGET=x86_64-unknown-linux-gnu

# bed_cargo STEP TEXT ARG...: one step that runs cargo with ARGs in the root.
bed_cargo() {
	local name=$1 text=$2 root
	shift 2
	need_root
	root=$("$VV_TOP/scripts/bed/root")
	mkdir -p "$VV_CACHE/cargo-home" "$VV_CACHE/cargo-target"
	step "$name" "$text" in_root "$root" -r "$VV_TOP:/repo" -w "$VV_CACHE/cargo-home:/cargo" \
		-w "$VV_CACHE/cargo-target:/build" -- env CARGO_HOME=/cargo CARGO_TARGET_DIR=/build \
		CARGO_BUILD_TARGET="$VV_TARGET" RUSTFLAGS="-C target-feature=+crt-static" \
		cargo "$1" --manifest-path /repo/Cargo.toml "${@:2}"
}
