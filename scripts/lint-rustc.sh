#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Stands in for the Rust compiler of a kernel build (RUSTC_OR_CLIPPY): runs rustdoc
# with the flags that kbuild gives to rustc, as the kernel's own rustdoc target
# does, and then clippy. LINT_DOC is where the pages go.
set -euo pipefail

flags=()
skip=
for arg; do
	if [[ -n $skip ]]; then
		skip=
		continue
	fi
	case $arg in
	--out-dir) skip=1 ;;
	--emit=* | --remap-path-scope=*) ;;
	*) flags+=("$arg") ;;
	esac
done

"${RUSTDOC:-rustdoc}" "${flags[@]}" -Dwarnings -Zunstable-options --document-private-items --output "$LINT_DOC"
exec "${CLIPPY_DRIVER:-clippy-driver}" "$@"
