#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: blocklist.sh KERNEL/rust/bindings/bindings_generated.rs
#
# Prints, on one line, the bindgen arguments that keep every type which the
# `bindings` crate of the kernel defines out of ours.  Two kinds stay: anonymous
# enums, which are numbered per run of bindgen, and types that the kernel's crate
# knows by name only (their size there is 0, and a structure of ours that holds
# one would have the wrong layout).  bindgen takes regular expressions; each is
# kept below 60 kB.
awk '
	/^ *pub (struct|union|type|enum) [A-Za-z0-9_]+/ {
		match($0, /pub (struct|union|type|enum) [A-Za-z0-9_]+/)
		split(substr($0, RSTART, RLENGTH), word, " ")
		name = word[3]
		seen[name] = 1
	}
	/^ *_unused: \[u8; 0/ || /^ *pub _unused: \[u8; 0/ { delete seen[name] }
	END { for (name in seen) print name }
' "$1" |
	grep -v '^_bindgen_ty_' | sort -u |
	awk 'function flush() {
		if (s != "")
			printf "--blocklist-type '\''%s'\'' ", s
		s = ""
		n = 0
	}
	{
		if (n + length($0) + 1 > 60000)
			flush()
		s = (s == "" ? $0 : s "|" $0)
		n += length($0) + 1
	}
	END { flush() }'
