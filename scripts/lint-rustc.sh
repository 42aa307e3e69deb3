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

# A module has no items that are public outside: its pages are for its authors.
"${RUSTDOC:-rustdoc}" "${flags[@]}" -Dwarnings -Arustdoc::private_intra_doc_links -Zunstable-options --document-private-items --output "$LINT_DOC"
exec "${CLIPPY_DRIVER:-clippy-driver}" "$@"
