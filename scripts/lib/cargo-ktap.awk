# SPDX-License-Identifier: GPL-2.0
# Turns the output of "cargo test" into KTAP: one line a test, named after its
# crate; a test binary that could not finish is a failed case of its own.

/^ *Running |^ *Doc-tests / {
	crate = $NF
	sub(/^.*\//, "", crate)
	sub(/-[0-9a-f]+\)$/, "", crate)
	if (/Doc-tests/)
		crate = $NF " doc"
}
/^test .* \.\.\. / {
	name = $0
	sub(/^test /, "", name)
	sub(/ \.\.\. .*$/, "", name)
	if (/ \.\.\. ok/)
		line[++n] = "ok %d " crate ": " name
	else if (/ \.\.\. ignored/)
		line[++n] = "ok %d " crate ": " name " # SKIP ignored"
	else
		line[++n] = "not ok %d " crate ": " name
}
/^error/ { line[++n] = "not ok %d cargo: " $0 }

END {
	print "KTAP version 1"
	print "1.." n + 0
	for (i = 1; i <= n; i++) {
		sub(/%d/, i, line[i])
		print line[i]
	}
}
