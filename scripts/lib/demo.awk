# SPDX-License-Identifier: GPL-2.0
# The demonstration's table. Both ends hashed all bytes, or there is no row. Only
# our module counts packets, publications and signals.

BEGIN {
	format = "%-7s %-9s %-10s %-7s %14s %10s %12s %9s\n"
	printf format, "module", "direction", "type", "writes", "bytes checked", "Gbit/s", "pkts/publ.", "signals"
}

{
	ours = $1 == "rust"
	printf format, ours ? "ours" : "stock C", $2, $3, $4, $5, $6, \
		ours && $8 ? sprintf("%.1f", $7 / $8) : "-", ours ? $9 : "-"
}
